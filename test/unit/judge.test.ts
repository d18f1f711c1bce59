/**
 * The judge, each state against each kind of evidence, and each guard by itself: evidence that proves absence, one
 * thing changed, and what that keeps. The table is written out from DESIGN §3 and §4, not from the rules.
 */
import { describe, expect, test } from 'vitest'
import {
  isSameWorkload,
  type LeaseEvidence,
  type SeenPlace,
  type WitnessEvidence,
} from '../../src/core/judge.ts'
import { type Lease, QUARANTINE_REASONS } from '../../src/core/lease.ts'
import { firstSeqOfEra, judgePolicy } from '../../src/core/policy.ts'
import { owner } from '../support/commands.ts'
import {
  ago,
  answered,
  codes,
  ENABLED_HEAD,
  ended,
  evidence,
  FENCE,
  held,
  inQuarantine,
  judged,
  listed,
  NEW_BOOT,
  NOW,
  OTHER,
  type POLICY,
  said,
  sees,
  snapshots,
  THREE,
  TOKEN,
  VERSION,
  WEB,
  witness,
} from '../support/evidence.ts'
import { HOUR, MINUTE, SECOND } from '../support/given.ts'

const LEFT = { owner: null }

/** Each state a held lease can be in; LEFT is one whose holder released it and whose address stayed. */
const STATES = {
  RESERVED: held({ state: 'RESERVED', confirmedAt: null }),
  ACTIVE: held(),
  SUPERSEDED: inQuarantine('SUPERSEDED'),
  REMOVAL_UNCONFIRMED: inQuarantine('REMOVAL_UNCONFIRMED'),
  CONFLICT: inQuarantine('CONFLICT'),
  SECOND_ADDRESS: inQuarantine('SECOND_ADDRESS'),
  RELEASED_BUT_LIVE: inQuarantine('RELEASED_BUT_LIVE'),
  CONFLICT_LEFT: inQuarantine('CONFLICT', LEFT),
  SECOND_ADDRESS_LEFT: inQuarantine('SECOND_ADDRESS', LEFT),
  RELEASED_BUT_LIVE_LEFT: inQuarantine('RELEASED_BUT_LIVE', LEFT),
  FOREIGN: inQuarantine('FOREIGN'),
  SEEN_BY_CALLER: inQuarantine('SEEN_BY_CALLER'),
  OPERATOR: inQuarantine('OPERATOR'),
  OPERATOR_LEFT: inQuarantine('OPERATOR', LEFT),
} as const satisfies Record<string, Lease>

type State = keyof typeof STATES
const EVERY_STATE = Object.keys(STATES) as State[]

type Row = {
  /** One witness of this kind, beside what else the evidence holds. */
  readonly witness?: Partial<WitnessEvidence>
  readonly others?: readonly WitnessEvidence[]
  readonly beside?: Partial<LeaseEvidence>
  readonly lease?: Partial<Lease>
  /** The verdict: of leases with an owner, of those without, and of single states that differ. */
  readonly owned: string
  readonly nobodys: string
  readonly but?: Partial<Record<State, string>>
}

const TABLE: Readonly<Record<string, Row>> = {
  listed: { witness: sees({ seen: THREE.slice(1) }), owned: 'keep SEEN_LIVE', nobodys: 'keep SEEN_LIVE' },
  'listed by a source in dry run': {
    witness: sees({ enabled: false }),
    owned: 'keep SEEN_LIVE',
    nobodys: 'keep SEEN_LIVE',
  },
  'listed for another': {
    others: [sees({ source: 'docker', about: OTHER })],
    owned: 'keep SEEN_LIVE',
    nobodys: 'keep SEEN_LIVE',
  },
  'seen somewhere, whoever says so': {
    beside: { placements: [{ node: 'n1', boot: 'b1', source: 'docker' }] },
    owned: 'keep SEEN_LIVE',
    nobodys: 'keep SEEN_LIVE',
  },
  'listed for its owner alone, three times': {
    witness: sees(),
    beside: { lastSightedAt: ago(20 * SECOND) },
    owned: 'keep SEEN_LIVE',
    nobodys: 'keep SEEN_LIVE',
    but: {
      CONFLICT: 'restore SEEN_ALONE',
      SECOND_ADDRESS: 'restore SEEN_ALONE',
      RELEASED_BUT_LIVE: 'restore SEEN_ALONE',
    },
  },
  'missed twice': {
    witness: { misses: THREE.slice(1) },
    owned: 'keep TOO_FEW_MISSES',
    nobodys: 'keep TOO_FEW_MISSES',
  },
  'missed at heads that did not know it': {
    witness: { misses: snapshots([80 * SECOND, 50 * SECOND, 20 * SECOND], VERSION - 1) },
    owned: 'keep TOO_FEW_MISSES',
    nobodys: 'keep TOO_FEW_MISSES',
  },
  'missed before it was last seen': {
    beside: { lastSightedAt: ago(30 * SECOND) },
    owned: 'keep TOO_FEW_MISSES',
    nobodys: 'keep TOO_FEW_MISSES',
  },
  'missed, nobody asked': {
    witness: { lookup: null },
    owned: 'lookUp LOOKUP_NEEDED',
    nobodys: 'reap ABSENT',
  },
  'missed, asked too long ago': {
    witness: { lookup: answered('gone', 61 * SECOND) },
    owned: 'lookUp LOOKUP_NEEDED',
    nobodys: 'reap ABSENT',
  },
  'missed and gone': { owned: 'reap ABSENT', nobodys: 'reap ABSENT' },
  'missed, ended past its grace': {
    witness: { lookup: ended(5 * MINUTE) },
    owned: 'reap ABSENT',
    nobodys: 'reap ABSENT',
  },
  'missed, ended just now': {
    witness: { lookup: ended(4 * MINUTE) },
    owned: 'keep TERMINAL_IN_GRACE',
    nobodys: 'keep TERMINAL_IN_GRACE',
  },
  'listed as ended past its grace': {
    witness: { lookup: null, listedTerminal: { since: ago(5 * MINUTE) } },
    owned: 'reap ABSENT',
    nobodys: 'reap ABSENT',
  },
  'listed as ended just now': {
    witness: { lookup: null, listedTerminal: { since: ago(4 * MINUTE) } },
    owned: 'keep TERMINAL_IN_GRACE',
    nobodys: 'keep TERMINAL_IN_GRACE',
  },
  'missed, and found when asked': {
    witness: { lookup: answered('live') },
    owned: 'keep LOOKUP_LIVE',
    nobodys: 'keep LOOKUP_LIVE',
  },
  'missed, asking failed': {
    witness: { lookup: answered('error') },
    owned: 'blocked LOOKUP_ERROR',
    nobodys: 'blocked LOOKUP_ERROR',
  },
  'missed, in a state nobody knows': {
    witness: { lookup: answered('unknown') },
    owned: 'blocked LOOKUP_UNKNOWN',
    nobodys: 'blocked LOOKUP_UNKNOWN',
  },
  'missed, no answer': {
    witness: { lookup: answered('unanswered') },
    owned: 'blocked LOOKUP_UNANSWERED',
    nobodys: 'blocked LOOKUP_UNANSWERED',
  },
  'gone, by a source in dry run': {
    witness: { enabled: false },
    owned: 'blocked NOT_ENABLED',
    nobodys: 'blocked NOT_ENABLED',
    but: { SEEN_BY_CALLER: 'blocked NO_EXIT' },
  },
  'gone, by a source that can not see it': {
    witness: { canSee: false },
    owned: 'blocked CANNOT_SEE',
    nobodys: 'blocked CANNOT_SEE',
    but: { SEEN_BY_CALLER: 'blocked NO_EXIT' },
  },
  'gone, by a held source': { witness: { held: true }, owned: 'blocked HELD', nobodys: 'blocked HELD' },
  'gone, by a source warming up': {
    witness: { warm: false },
    owned: 'keep NOT_WARM',
    nobodys: 'keep NOT_WARM',
  },
  'gone, by a source of another era': {
    witness: { era: 1 },
    owned: 'keep ERA_NOT_REPORTED',
    nobodys: 'keep ERA_NOT_REPORTED',
  },
  'gone, in recovery': { beside: { recovering: true }, owned: 'keep RECOVERING', nobodys: 'keep RECOVERING' },
  'gone, and changed in the next era': {
    lease: { version: firstSeqOfEra(1) + 5 },
    owned: 'keep OTHER_ERA',
    nobodys: 'keep OTHER_ERA',
  },
  'gone, and changed a minute ago': {
    lease: { reservedAt: ago(MINUTE) },
    owned: 'keep TOO_YOUNG',
    nobodys: 'keep TOO_YOUNG',
  },
  'no witness': {
    beside: { witnesses: [] },
    owned: 'blocked NO_EXIT',
    nobodys: 'blocked NO_EXIT',
    but: { RESERVED: 'keep NOBODY_CAN_TELL', ACTIVE: 'keep NOBODY_CAN_TELL' },
  },
  'no witness, gone by a source that covers it': {
    witness: { why: 'COVERS', vanishedAt: null },
    owned: 'reap ABSENT',
    nobodys: 'blocked NO_EXIT',
    but: { SEEN_BY_CALLER: 'reap ABSENT' },
  },
  'gone by one, and the named witness is no source': {
    lease: { witness: 'docker' },
    owned: 'blocked NAMED_WITNESS_MISSING',
    nobodys: 'blocked NAMED_WITNESS_MISSING',
  },
  'imported, and never seen': {
    witness: { why: 'NAMED' },
    beside: { imported: true },
    owned: 'blocked IMPORTED',
    nobodys: 'blocked IMPORTED',
  },
  'older than its witness, and never seen': {
    witness: { why: 'NAMED', enabledHead: TOKEN },
    owned: 'blocked PREDATES_SOURCE',
    nobodys: 'blocked PREDATES_SOURCE',
    but: { SEEN_BY_CALLER: 'reap ABSENT' },
  },
  'fenced, last listed by the fenced boot': {
    witness: sees({ seen: [] }),
    beside: { fencedBy: FENCE, placements: [{ node: 'n1', boot: 'b1', source: 'agent-n1' }] },
    lease: { placement: { node: 'n1', boot: 'b1', labels: {} } },
    owned: 'reap FENCED',
    nobodys: 'keep SEEN_LIVE',
    but: {
      CONFLICT: 'keep SEEN_LIVE',
      SECOND_ADDRESS: 'reap FENCED',
    },
  },
  'gone with the boot of its node': {
    witness: { misses: [], bootEnded: NEW_BOOT, scopeNode: 'n1' },
    lease: { placement: { node: 'n1', boot: 'b1', labels: {} } },
    owned: 'reap PREVIOUS_BOOT',
    nobodys: 'keep OTHERS_WERE_SEEN TOO_FEW_MISSES',
    but: {
      CONFLICT: 'keep OTHERS_WERE_SEEN TOO_FEW_MISSES',
      SEEN_BY_CALLER: 'blocked NO_EXIT TOO_FEW_MISSES',
    },
  },
}

/** What the caller saw no source has; there the evidence is that of a source that covers the network. */
function evidenceOf(state: State, row: Row): LeaseEvidence {
  const lease = { ...STATES[state], ...row.lease }
  const why = state === 'SEEN_BY_CALLER' ? ({ why: 'COVERS', scopeNode: '' } as const) : {}
  const first = witness({ ...row.witness, about: lease.owner, ...why, ...whyOf(row.witness) })
  return evidence({ lease, witnesses: [first, ...(row.others ?? [])], ...row.beside })
}

function whyOf(fields: Partial<WitnessEvidence> = {}): Partial<WitnessEvidence> {
  return {
    ...(fields.why === 'NAMED' && { why: 'NAMED' }),
    ...(fields.bootEnded !== undefined && fields.bootEnded !== null && { scopeNode: 'n1' }),
  }
}

describe('each state against each kind of evidence', () => {
  test('every reason of a quarantine is in the table', () => {
    expect(EVERY_STATE).toEqual(expect.arrayContaining(['RESERVED', 'ACTIVE', ...QUARANTINE_REASONS]))
  })

  for (const [kind, row] of Object.entries(TABLE)) {
    test.each(EVERY_STATE)(`${kind}: %s`, (state) => {
      const { lease, ...rest } = evidenceOf(state, row)
      const verdict = judged({ lease, ...rest })
      const expected = row.but?.[state] ?? (lease.owner === null ? row.nobodys : row.owned)
      if (state.startsWith('OPERATOR')) expect(said(verdict)).toContain('keep OPERATOR_ONLY')
      else expect([verdict.verdict, ...new Set(codes(verdict))].join(' ')).toBe(expected)
    })
  }
})

/** Two things said of the same evidence: unchanged it is taken back, and the guard keeps it. */
type Guard = {
  readonly fields: Partial<LeaseEvidence>
  readonly kept: string
  /** The nearest evidence that is taken back all the same. */
  readonly unless?: Partial<LeaseEvidence>
  readonly policy?: typeof POLICY
}

function guards(list: Readonly<Record<string, Guard>>): void {
  test.each(Object.entries(list))('%s', (_, { fields, kept, unless, policy }) => {
    expect(said(judged(fields, policy))).toBe(kept)
    if (unless !== undefined) expect(judged(unless, policy).verdict).toBe('reap')
  })
}

const one = (fields: Partial<WitnessEvidence>) => ({ witnesses: [witness(fields)] })
/** Where the lease of these tests is placed. */
const HERE: SeenPlace = { node: 'n1', boot: 'b1' }

test('the evidence the guards change proves absence', () => {
  expect(said(judged())).toBe('reap ABSENT(agent-n1)')
})

describe('leases that no evidence takes back', () => {
  const infrastructure = owner({ kind: 'infrastructure', name: 'router', uid: 'uid-1' })
  guards({
    'what an operator quarantined, an operator frees (DESIGN §3)': {
      fields: { lease: inQuarantine('OPERATOR') },
      kept: 'keep OPERATOR_ONLY',
    },
    'infrastructure is judged by nobody unless Reserve named a witness (DESIGN §4)': {
      fields: { lease: held({ owner: infrastructure }), ...one({ about: infrastructure }) },
      kept: 'keep INFRASTRUCTURE',
      unless: {
        lease: held({ owner: infrastructure, witness: 'agent-n1' }),
        ...one({ about: infrastructure }),
      },
    },
    'also where the named one is no source, whatever the ground': {
      fields: {
        lease: held({ owner: infrastructure, witness: 'docker' }),
        fencedBy: FENCE,
        ...one({ about: infrastructure }),
      },
      kept: 'keep INFRASTRUCTURE',
      unless: { fencedBy: FENCE },
    },
    'recovery takes nothing (INV-24, 12.1)': {
      fields: { recovering: true, fencedBy: FENCE },
      kept: 'keep RECOVERING',
    },
    'evidence of one era says nothing about a lease of the next (12.4)': {
      fields: { lease: held({ version: firstSeqOfEra(1) }), fencedBy: FENCE },
      kept: 'keep OTHER_ERA',
      unless: { fencedBy: FENCE },
    },
  })
})

describe('life keeps', () => {
  guards({
    'listed, whatever else is said (INV-4)': {
      fields: one({ live: listed() }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'listed by a source in dry run (DESIGN §4)': {
      fields: { witnesses: [witness(), sees({ source: 'new', enabled: false, about: WEB })] },
      kept: 'keep SEEN_LIVE(new)',
    },
    'listed for another owner (INV-12)': {
      fields: { witnesses: [witness(), sees({ source: 'docker', about: OTHER })] },
      kept: 'keep SEEN_LIVE(docker)',
    },
    'listed paused (K-06, 7.5)': {
      fields: one({ live: listed({ state: 'paused' }) }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'found when asked, whatever happened since': {
      fields: {
        lastSightedAt: ago(50 * SECOND),
        ...one({
          misses: snapshots([45 * SECOND, 30 * SECOND, 15 * SECOND]),
          lookup: answered('live', 55 * SECOND),
        }),
      },
      kept: 'keep LOOKUP_LIVE(agent-n1)',
    },
    'seen at a place, by a source that is no witness (16.5)': {
      fields: { placements: [{ node: 'n1', boot: 'b1', source: 'agent-n2' }] },
      kept: 'keep SEEN_LIVE(agent-n2)',
    },
    'found when asked, though a list says it ended (M-02, 9.2)': {
      fields: one({ lookup: answered('live'), listedTerminal: { since: ago(HOUR) } }),
      kept: 'keep LOOKUP_LIVE(agent-n1)',
    },
  })
})

describe('time and count', () => {
  const reserved = (ms: number) => held({ state: 'RESERVED', confirmedAt: null, confirmBy: NOW - ms })
  const leftFor = (fields: Partial<WitnessEvidence>, confirmedAt: number) => ({
    lease: held({ confirmedAt, placement: { node: 'n1', boot: '', labels: {} } }),
    leftBoot: 'b1',
    ...one(fields),
  })
  const askedBy = (askedFrom: readonly string[], fields: Partial<WitnessEvidence>, confirmedAt: number) => ({
    lease: held({ confirmedAt, askedFrom, placement: { node: 'n1', boot: '', labels: {} } }),
    leftBoot: 'b1',
    ...one(fields),
  })
  guards({
    'a reservation is left alone until its deadline and grace are over (2.1, W-01)': {
      fields: { lease: reserved(MINUTE) },
      kept: 'keep CONFIRM_PENDING',
      unless: { lease: reserved(MINUTE + 1) },
    },
    'a deadline of a lease that was confirmed is history': {
      fields: { lease: held({ confirmBy: NOW }), ...one({ lookup: null }) },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
    },
    'minimum age since the last change (INV-3, 2.3)': {
      fields: { lease: held({ confirmedAt: ago(5 * MINUTE) + 1 }) },
      kept: 'keep TOO_YOUNG',
      unless: { lease: held({ confirmedAt: ago(5 * MINUTE) }) },
    },
    'nor where it was named and has seen nothing, as a source of its node (W-01)': {
      fields: { lease: held({ confirmedAt: ago(HOUR) + 1 }), ...one({ why: 'NAMED' }) },
      kept: 'keep TOO_YOUNG',
      unless: { lease: held({ confirmedAt: ago(HOUR) }), ...one({ why: 'NAMED' }) },
    },
    'a named one of the whole network is a witness at once (DESIGN §1)': {
      fields: { lease: held({ confirmedAt: ago(5 * MINUTE) + 1 }), ...one({ why: 'NAMED', scopeNode: '' }) },
      kept: 'keep TOO_YOUNG',
      unless: { lease: held({ confirmedAt: ago(5 * MINUTE) }), ...one({ why: 'NAMED', scopeNode: '' }) },
    },
    'nor where it was asked for from elsewhere, and only what it left has seen it (16.5)': {
      fields: leftFor({ seenOn: [HERE] }, ago(HOUR) + 1),
      kept: 'keep TOO_YOUNG',
      unless: leftFor({ seenOn: [HERE] }, ago(HOUR)),
    },
    'nor while nobody knows in which boot it saw it': {
      fields: leftFor({ seenOn: [{ node: 'n1', boot: '' }] }, ago(HOUR) + 1),
      kept: 'keep TOO_YOUNG',
    },
    'unless its source has seen it in another boot since': {
      fields: leftFor({ seenOn: [HERE, { node: 'n1', boot: 'b2' }] }, ago(5 * MINUTE) + 1),
      kept: 'keep TOO_YOUNG',
      unless: leftFor({ seenOn: [HERE, { node: 'n1', boot: 'b2' }] }, ago(5 * MINUTE)),
    },
    'or another node has': {
      fields: leftFor({ scopeNode: 'n2', seenOn: [{ node: 'n2', boot: 'b1' }] }, ago(5 * MINUTE) + 1),
      kept: 'keep TOO_YOUNG',
      unless: leftFor({ scopeNode: 'n2', seenOn: [{ node: 'n2', boot: 'b1' }] }, ago(5 * MINUTE)),
    },
    'not while another node has that did not ask': {
      fields: askedBy(['n2'], { seenOn: [{ node: 'n3', boot: '' }] }, ago(HOUR) + 1),
      kept: 'keep TOO_YOUNG',
      unless: askedBy(['n2'], { seenOn: [{ node: 'n2', boot: '' }] }, ago(5 * MINUTE)),
    },
    'nor before each has that did': {
      fields: askedBy(['n2', 'n3'], { seenOn: [{ node: 'n2', boot: '' }] }, ago(HOUR) + 1),
      kept: 'keep TOO_YOUNG',
      unless: askedBy(
        ['n2', 'n3'],
        {
          seenOn: [
            { node: 'n2', boot: '' },
            { node: 'n3', boot: '' },
          ],
        },
        ago(5 * MINUTE),
      ),
    },
    'nor by what the first has seen before it asked again': {
      fields: askedBy(['n1'], { seenOn: [HERE] }, ago(HOUR) + 1),
      kept: 'keep TOO_YOUNG',
      unless: askedBy(['n1'], { seenOn: [HERE, { node: 'n1', boot: 'b2' }] }, ago(5 * MINUTE)),
    },
    'nor where the boot that it left was not known': {
      fields: { ...askedBy(['n2'], { seenOn: [HERE] }, ago(HOUR) + 1), leftBoot: null },
      kept: 'keep TOO_YOUNG',
      unless: { ...askedBy(['n2'], { seenOn: [HERE] }, ago(HOUR)), leftBoot: null },
    },
    'or one of the whole network has': {
      fields: leftFor({ scopeNode: '', seenOn: [HERE] }, ago(5 * MINUTE) + 1),
      kept: 'keep TOO_YOUNG',
      unless: leftFor({ scopeNode: '', seenOn: [HERE] }, ago(5 * MINUTE)),
    },
    'a quarantine is a change': {
      fields: {
        lease: inQuarantine('SUPERSEDED', {
          quarantine: { reason: 'SUPERSEDED', at: ago(MINUTE), by: 'somebody', why: 'given' },
        }),
      },
      kept: 'keep TOO_YOUNG',
    },
    'an hour where nobody has ever seen it (W-01)': {
      fields: { lease: held({ confirmedAt: ago(HOUR) + 1 }), ...one({ why: 'COVERS' }) },
      kept: 'keep TOO_YOUNG',
      unless: { lease: held({ confirmedAt: ago(HOUR) }), ...one({ why: 'COVERS' }) },
    },
    'nor where only another life of its owner was seen (W-03)': {
      fields: { lease: held({ confirmedAt: ago(HOUR) + 1 }), ...one({ anotherLife: true }) },
      kept: 'keep TOO_YOUNG',
      unless: { lease: held({ confirmedAt: ago(HOUR) }), ...one({ anotherLife: true }) },
    },
    'which is no matter where this one was seen as well': {
      fields: {
        lease: held({ confirmedAt: ago(HOUR) + 1 }),
        witnesses: [witness({ lookup: null }), witness({ source: 'k8s', anotherLife: true })],
      },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
    },
    'fewer misses than k (M-17)': {
      fields: one({ misses: THREE.slice(1) }),
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
    },
    "k is the policy's (M-17)": {
      fields: {},
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
      policy: judgePolicy({ misses: 4 }),
    },
    'one snapshot told twice is one miss (M-18)': {
      fields: one({ misses: [...THREE.slice(1), THREE[1]!] }),
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
    },
    'a head below the version knew of another lease (2.2, W-02)': {
      fields: one({ misses: [{ ...THREE[0]!, head: VERSION - 1 }, ...THREE.slice(1)] }),
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
      unless: one({ misses: [{ ...THREE[0]!, head: VERSION }, ...THREE.slice(1)] }),
    },
    'one sighting by anyone starts the count again (M-17, 1.2)': {
      fields: { lastSightedAt: THREE[0]!.begunAt },
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
      unless: { lastSightedAt: THREE[0]!.begunAt - 1 },
    },
    'heads of an earlier era are of books that may be lost (12.4)': {
      fields: { era: 1, ...one({ era: 1 }) },
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
      unless: {
        era: 1,
        ...one({ era: 1, misses: THREE.map((ref) => ({ ...ref, head: firstSeqOfEra(1) })) }),
      },
    },
    'every witness, not one (INV-3)': {
      fields: { witnesses: [witness(), witness({ source: 'k8s', misses: THREE.slice(1) })] },
      kept: 'keep TOO_FEW_MISSES(k8s)',
    },
  })
})

describe('who can tell', () => {
  const covering = (fields: Partial<WitnessEvidence>) => one({ why: 'COVERS', vanishedAt: null, ...fields })
  const nowhere = held({ placement: { node: '', boot: '', labels: {} } })
  const bySomeCaller = inQuarantine('SEEN_BY_CALLER')
  guards({
    'without a witness it is kept for ever (DESIGN §4)': {
      fields: { witnesses: [] },
      kept: 'keep NOBODY_CAN_TELL',
      unless: covering({}),
    },
    'a quarantine without a witness waits for an operator': {
      fields: { lease: inQuarantine('FOREIGN'), witnesses: [] },
      kept: 'blocked NO_EXIT',
    },
    'a source of another node says: not here': {
      fields: covering({ scopeNode: 'n2' }),
      kept: 'keep NOBODY_CAN_TELL',
      unless: covering({ scopeNode: '' }),
    },
    "nor does a node's source cover what is booked on no node": {
      fields: { lease: nowhere, ...covering({}) },
      kept: 'keep NOBODY_CAN_TELL',
      unless: { lease: nowhere, ...covering({ scopeNode: '' }) },
    },
    'a source in dry run covers nothing': {
      fields: covering({ enabled: false }),
      kept: 'keep NOBODY_CAN_TELL',
    },
    "nor does one that can't see the kind or the family (5.4)": {
      fields: covering({ canSee: false }),
      kept: 'keep NOBODY_CAN_TELL',
    },
    'nor one enabled after the lease was reserved, and that is listed (16.8)': {
      fields: covering({ enabledHead: TOKEN }),
      kept: 'blocked PREDATES_SOURCE(agent-n1)',
      unless: covering({ enabledHead: TOKEN - 1 }),
    },
    'one enabled later neither counts nor blocks (DESIGN §4)': {
      fields: {
        witnesses: [
          witness({ why: 'COVERS', lookup: null }),
          witness({ source: 'late', why: 'COVERS', enabledHead: TOKEN, misses: [] }),
        ],
      },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
    },
    "another owner's witness is none of this one": {
      fields: { lease: inQuarantine('CONFLICT'), ...one({ about: OTHER }) },
      kept: 'blocked NO_EXIT',
    },
    'what a caller saw may be on any node (M-10)': {
      fields: { lease: bySomeCaller, ...covering({ about: null }) },
      kept: 'blocked NO_EXIT',
      unless: { lease: bySomeCaller, ...covering({ about: null, scopeNode: '' }) },
    },
    "and the nodes' sources must miss it as well": {
      fields: {
        lease: bySomeCaller,
        witnesses: [
          witness({ source: 'k8s', why: 'COVERS', about: null, scopeNode: '' }),
          witness({ why: 'COVERS', about: null, misses: [] }),
        ],
      },
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
    },
    'those enabled since count as well (DESIGN §3)': {
      fields: {
        lease: bySomeCaller,
        ...covering({ about: null, scopeNode: '', enabledHead: VERSION, misses: THREE.slice(1) }),
      },
      kept: 'keep TOO_FEW_MISSES(agent-n1)',
      unless: { lease: bySomeCaller, ...covering({ about: null, scopeNode: '', enabledHead: VERSION }) },
    },
    'where nobody can be asked after, only one that lists the stopped can miss it (M-19)': {
      fields: { lease: inQuarantine('FOREIGN'), ...one({ about: null, lookup: null, seesStopped: false }) },
      kept: 'blocked STOPPED_UNSEEN(agent-n1)',
      unless: { lease: inQuarantine('FOREIGN'), ...one({ about: null, lookup: null }) },
    },
    'nor what a caller saw': {
      fields: {
        lease: bySomeCaller,
        ...covering({ about: null, lookup: null, scopeNode: '', seesStopped: false }),
      },
      kept: 'blocked STOPPED_UNSEEN(agent-n1)',
    },
    'only who saw a foreign address can miss it (DESIGN §3)': {
      fields: { lease: inQuarantine('FOREIGN'), ...covering({ about: null, scopeNode: '' }) },
      kept: 'blocked NO_EXIT',
    },
    'who saw another life alone tells of this one only where it would see it (W-03)': {
      fields: one({ anotherLife: true, scopeNode: 'n2' }),
      kept: 'keep NOBODY_CAN_TELL',
      unless: one({ anotherLife: true, scopeNode: '' }),
    },
    'and for none that covers it and is younger than it (16.8)': {
      fields: {
        witnesses: [
          witness({ anotherLife: true, scopeNode: '' }),
          witness({ source: 'late', why: 'COVERS', enabledHead: TOKEN, misses: [] }),
        ],
      },
      kept: 'blocked PREDATES_SOURCE(late)',
      unless: {
        witnesses: [
          witness({ anotherLife: true, scopeNode: '' }),
          witness({ source: 'late', why: 'COVERS' }),
        ],
      },
    },
    'it must miss it and say that it is gone beside whoever saw this life (16.5)': {
      fields: {
        witnesses: [
          witness(),
          witness({ source: 'agent-n2', scopeNode: 'n2', anotherLife: true, lookup: null }),
        ],
      },
      kept: 'lookUp LOOKUP_NEEDED(agent-n2)',
    },
    'each source that covers the network must miss what a caller saw, whoever saw it since (DESIGN §3)': {
      fields: {
        lease: bySomeCaller,
        witnesses: [
          witness({ source: 'k8s', about: OTHER, scopeNode: '' }),
          witness({ source: 'docker', why: 'COVERS', about: null, scopeNode: '', misses: [] }),
        ],
      },
      kept: 'keep TOO_FEW_MISSES(docker)',
    },
    'a witness that was retired can tell no more, and nobody tells for it (16.8)': {
      fields: { retired: [{ source: 'docker', about: WEB }], ...covering({}) },
      kept: 'blocked WITNESS_RETIRED(docker)',
      unless: { retired: [], ...covering({}) },
    },
    'nor does anybody for one that saw another there': {
      fields: { lease: inQuarantine('CONFLICT'), retired: [{ source: 'docker', about: OTHER }] },
      kept: 'blocked WITNESS_RETIRED(docker)',
    },
    'nor while one was retired that could not tell who was there': {
      fields: { retired: [{ source: 'docker', about: null }], ...covering({}) },
      kept: 'blocked WITNESS_RETIRED(docker)',
      unless: { retired: [], ...covering({}) },
    },
    'a fence needs no witness': {
      fields: { retired: [{ source: 'docker', about: WEB }], witnesses: [] },
      kept: 'blocked WITNESS_RETIRED(docker) NOBODY_CAN_TELL',
      unless: { retired: [{ source: 'docker', about: WEB }], witnesses: [], fencedBy: FENCE },
    },
    'a source of another node says: not here, though Reserve named it (16.5)': {
      fields: one({ why: 'NAMED', scopeNode: 'n2' }),
      kept: 'keep NOBODY_CAN_TELL',
      unless: one({ why: 'NAMED', scopeNode: 'n1' }),
    },
    'nor does its own one speak of what was asked for from elsewhere since (16.5)': {
      fields: { leftBoot: 'b1', ...one({ why: 'NAMED' }) },
      kept: 'keep NOBODY_CAN_TELL',
      unless: { leftBoot: null, ...one({ why: 'NAMED' }) },
    },
    'nor if no boot was known that it left': {
      fields: { lease: held({ askedFrom: ['n2'] }), leftBoot: null, ...one({ why: 'NAMED' }) },
      kept: 'keep NOBODY_CAN_TELL',
    },
    'unless it has seen it': {
      fields: { leftBoot: 'b1', ...one({ lookup: null }) },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: { leftBoot: 'b1', ...one({ why: 'NAMED', scopeNode: '' }) },
    },
    'a named one must miss it beside whoever has seen it, wherever it looks (DESIGN §4)': {
      fields: {
        witnesses: [witness(), witness({ source: 'nz', why: 'NAMED', scopeNode: 'n2', misses: [] })],
      },
      kept: 'keep TOO_FEW_MISSES(nz)',
      unless: { witnesses: [witness(), witness({ source: 'nz', why: 'NAMED', scopeNode: 'n2' })] },
    },
    'of what was placed on no known node, the node that was named tells': {
      fields: { lease: nowhere, ...one({ why: 'NAMED', lookup: null }) },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: { lease: nowhere, ...one({ why: 'NAMED' }) },
    },
    'a named witness that is no source blocks (DESIGN §4)': {
      fields: { lease: held({ witness: 'docker' }) },
      kept: 'blocked NAMED_WITNESS_MISSING(docker)',
      unless: { lease: held({ witness: 'agent-n1' }) },
    },
  })
})

describe('standing of a witness', () => {
  guards({
    'not enabled (5.4)': { fields: one({ enabled: false }), kept: 'blocked NOT_ENABLED(agent-n1)' },
    "can't see the kind or the family (5.4)": {
      fields: one({ canSee: false }),
      kept: 'blocked CANNOT_SEE(agent-n1)',
    },
    'held (INV-21, 5.2)': { fields: one({ held: true }), kept: 'blocked HELD(agent-n1)' },
    'imported, and never seen by it (16.8)': {
      fields: { imported: true, ...one({ why: 'NAMED' }) },
      kept: 'blocked IMPORTED(agent-n1)',
      unless: { imported: true },
    },
    'older than its enabling, and never seen by it (16.8)': {
      fields: one({ why: 'NAMED', enabledHead: TOKEN }),
      kept: 'blocked PREDATES_SOURCE(agent-n1)',
      unless: one({ why: 'NAMED', enabledHead: ENABLED_HEAD }),
    },
    'never enabled, and never seen by it': {
      fields: one({ why: 'NAMED', enabledHead: null }),
      kept: 'blocked PREDATES_SOURCE(agent-n1)',
    },
    'has not reported in this era (12.4)': {
      fields: one({ era: 1 }),
      kept: 'keep ERA_NOT_REPORTED(agent-n1)',
    },
    'warming up (5.1)': { fields: one({ warm: false }), kept: 'keep NOT_WARM(agent-n1)' },
    'one of two is enough to block': {
      fields: { witnesses: [witness(), witness({ source: 'k8s', scopeNode: '', held: true })] },
      kept: 'blocked HELD(k8s)',
    },
  })
})

describe('answers', () => {
  const lookup = (answer: WitnessEvidence['lookup']) => one({ lookup: answer })
  const endedInList = { listedTerminal: { since: ago(HOUR) } }
  const one10 = (source: string, age: number) =>
    witness({ source, answersForMs: 10 * MINUTE, lookup: answered('gone', age) })
  guards({
    'nobody asked yet (M-02)': { fields: lookup(null), kept: 'lookUp LOOKUP_NEEDED(agent-n1)' },
    'an error means alive (M-08), also where a list says ended': {
      fields: one({ lookup: answered('error'), ...endedInList }),
      kept: 'blocked LOOKUP_ERROR(agent-n1)',
    },
    'an unknown phase means alive (W-05)': {
      fields: one({ lookup: answered('unknown'), ...endedInList }),
      kept: 'blocked LOOKUP_UNKNOWN(agent-n1)',
    },
    'no answer means alive (M-08)': {
      fields: one({ lookup: answered('unanswered'), ...endedInList }),
      kept: 'blocked LOOKUP_UNANSWERED(agent-n1)',
    },
    'an old error is still no gone': {
      fields: lookup(answered('error', HOUR)),
      kept: 'blocked LOOKUP_ERROR(agent-n1)',
    },
    'dead gets a grace window, when asked (M-07)': {
      fields: lookup(ended(5 * MINUTE - 1)),
      kept: 'keep TERMINAL_IN_GRACE(agent-n1)',
      unless: lookup(ended(5 * MINUTE)),
    },
    'and in a list (M-07)': {
      fields: one({ lookup: null, listedTerminal: { since: ago(5 * MINUTE) + 1 } }),
      kept: 'keep TERMINAL_IN_GRACE(agent-n1)',
      unless: one({ lookup: null, listedTerminal: { since: ago(5 * MINUTE) } }),
    },
    'an answer older than a proof may be is asked for again (DESIGN §4)': {
      fields: lookup(answered('gone', MINUTE + 1)),
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: lookup(answered('gone', MINUTE)),
    },
    'of one that reports it stands for two of its reports ': {
      fields: {
        lastSightedAt: ago(HOUR),
        witnesses: [one10('agent-n1', 10 * MINUTE + 1), one10('agent-n2', 5 * MINUTE)],
      },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: {
        lastSightedAt: ago(HOUR),
        witnesses: [one10('agent-n1', 10 * MINUTE), one10('agent-n2', 5 * MINUTE)],
      },
    },
    'so does one that says live': {
      fields: one({ answersForMs: 10 * MINUTE, lookup: answered('live', 10 * MINUTE) }),
      kept: 'keep LOOKUP_LIVE(agent-n1)',
    },
    'of one that is asked when it is wanted it does not': {
      fields: one({ answersForMs: 0, lookup: answered('gone', MINUTE + 1) }),
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: one({ answersForMs: 0, lookup: answered('gone', MINUTE) }),
    },
    'also one that says ended': {
      fields: lookup(ended(HOUR, MINUTE + 1)),
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: lookup(ended(HOUR, MINUTE)),
    },
    'an answer from before the last sighting is asked for again (1.6)': {
      fields: {
        lastSightedAt: ago(50 * SECOND),
        ...one({
          misses: snapshots([45 * SECOND, 30 * SECOND, 15 * SECOND]),
          lookup: answered('gone', 50 * SECOND),
        }),
      },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: {
        lastSightedAt: ago(50 * SECOND),
        ...one({
          misses: snapshots([45 * SECOND, 30 * SECOND, 15 * SECOND]),
          lookup: answered('gone', 49 * SECOND),
        }),
      },
    },
    'an answer from before the last change is asked for again': {
      fields: { lease: held({ confirmedAt: ago(4 * SECOND) }) },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
      unless: { lease: held({ confirmedAt: ago(5 * SECOND) }) },
      policy: judgePolicy({ minimumAgeMs: 0 }),
    },
    'gone from every witness, not from one (INV-3)': {
      fields: { witnesses: [witness(), witness({ source: 'k8s', lookup: null })] },
      kept: 'lookUp LOOKUP_NEEDED(k8s)',
    },
    'the other party of a conflict must be gone too (DESIGN §3)': {
      fields: {
        lease: inQuarantine('CONFLICT'),
        witnesses: [witness(), witness({ source: 'docker', about: OTHER, lookup: null })],
      },
      kept: 'lookUp LOOKUP_NEEDED(docker)',
      unless: {
        lease: inQuarantine('CONFLICT'),
        witnesses: [witness(), witness({ source: 'docker', about: OTHER })],
      },
    },
    'and whoever was seen where its holder let go': {
      fields: { lease: inQuarantine('CONFLICT', LEFT), ...one({ about: OTHER, lookup: null }) },
      kept: 'lookUp LOOKUP_NEEDED(agent-n1)',
    },
  })

  test('a question names the source and whom it is about', () => {
    const verdict = judged({
      lease: inQuarantine('CONFLICT'),
      witnesses: [
        witness({ lookup: null }),
        witness({ about: OTHER, lookup: answered('error') }),
        witness({ source: 'k8s', scopeNode: '' }),
      ],
    })
    expect(verdict).toMatchObject({
      verdict: 'blocked',
      ask: [
        { source: 'agent-n1', owner: WEB },
        { source: 'agent-n1', owner: OTHER },
      ],
    })
  })

  test('no question is asked about what a list says ended (M-06)', () => {
    const verdict = judged({
      witnesses: [
        witness({ lookup: null, listedTerminal: { since: ago(HOUR) } }),
        witness({ source: 'k8s', lookup: null }),
      ],
    })
    expect(verdict).toMatchObject({ verdict: 'lookUp', ask: [{ source: 'k8s', owner: WEB }] })
  })

  test('no question is asked before every witness has missed it (M-06)', () => {
    const verdict = judged({
      witnesses: [witness({ lookup: null }), witness({ source: 'k8s', misses: [], lookup: null })],
    })
    expect(said(verdict)).toBe('keep TOO_FEW_MISSES(k8s)')
    expect(verdict).not.toHaveProperty('ask')
  })

  test('nothing is asked of a held source, nor of anybody else about its lease', () => {
    const verdict = judged({
      witnesses: [witness({ lookup: null }), witness({ source: 'k8s', held: true })],
    })
    expect(verdict).toMatchObject({ verdict: 'blocked', ask: [] })
  })
})

describe('a new boot', () => {
  const rebooted = (fields: Partial<WitnessEvidence> = {}) =>
    witness({ misses: [], epoch: 'b2', bootEnded: NEW_BOOT, ...fields })
  const boot = (fields: Partial<WitnessEvidence> = {}) => ({ witnesses: [rebooted(fields)] })
  const alsoBy = (fields: Partial<WitnessEvidence>) => ({
    witnesses: [rebooted(), witness({ source: 'other', misses: [], lookup: null, ...fields })],
  })
  const kept = (code: string) => `keep ${code} TOO_FEW_MISSES(agent-n1)`

  test('ends what was placed on the old one, when its source agrees', () => {
    const verdict = judged(boot())
    expect(said(verdict)).toBe('reap PREVIOUS_BOOT(agent-n1)')
    expect(verdict).toMatchObject({ proof: { cause: 'PREVIOUS_BOOT' } })
  })

  guards({
    'is no proof while the source warms up (5.1)': {
      fields: boot({ warm: false }),
      kept: 'keep NOT_WARM(agent-n1) TOO_FEW_MISSES(agent-n1)',
    },
    'nor while it is held': {
      fields: boot({ held: true }),
      kept: 'blocked HELD(agent-n1) TOO_FEW_MISSES(agent-n1)',
    },
    'nor before it is enabled': {
      fields: boot({ enabled: false }),
      kept: 'blocked NOT_ENABLED(agent-n1) TOO_FEW_MISSES(agent-n1)',
    },
    'nor without its word': { fields: boot({ lookup: null }), kept: 'lookUp LOOKUP_NEEDED(agent-n1)' },
    'nor while a witness was retired that nobody replaces (16.8)': {
      fields: { ...boot(), retired: [{ source: 'agent-n2', about: WEB }] },
      kept: 'blocked WITNESS_RETIRED(agent-n2) TOO_FEW_MISSES(agent-n1)',
      unless: boot(),
    },
    'nor while asking fails': {
      fields: boot({ lookup: answered('error') }),
      kept: 'blocked LOOKUP_ERROR(agent-n1)',
    },
    'nor where the lease was placed on another boot': {
      fields: { lease: held({ placement: { node: 'n1', boot: 'b2', labels: {} } }), ...boot() },
      kept: kept('NOT_ENDED_BY_BOOT(agent-n1)'),
    },
    'nor where the lease was placed on another node': {
      fields: {
        lease: held({ placement: { node: 'n2', boot: 'b1', labels: {} } }),
        ...boot({ scopeNode: 'n1' }),
      },
      kept: 'keep SEEN_ON_ANOTHER_NODE(agent-n1) NOT_ENDED_BY_BOOT(agent-n1) TOO_FEW_MISSES(agent-n1)',
    },
    'nor is the new epoch of a network-wide source': {
      fields: {
        lease: held({ placement: { node: '', boot: 'b1', labels: {} } }),
        ...boot({ scopeNode: '' }),
      },
      kept: kept('NOT_ENDED_BY_BOOT(agent-n1)'),
    },
    'nor where anyone has seen it since (DESIGN §4)': {
      fields: { lastSightedAt: NEW_BOOT.at + 1, ...boot() },
      kept: kept('NOT_ENDED_BY_BOOT(agent-n1)'),
      unless: { lastSightedAt: NEW_BOOT.at, ...boot() },
    },
    'nor while another said live just before': {
      fields: {
        witnesses: [
          rebooted({ bootEnded: { ...NEW_BOOT, at: ago(SECOND) } }),
          witness({ source: 'other', scopeNode: '', misses: [], lookup: answered('live') }),
        ],
      },
      kept: 'keep LOOKUP_LIVE(other)',
    },
    'nor where anyone was asked since and found it': {
      fields: alsoBy({ scopeNode: '', lookup: answered('live', 2 * MINUTE) }),
      kept: 'keep NOT_ENDED_BY_BOOT(agent-n1) TOO_FEW_MISSES(agent-n1) TOO_FEW_MISSES(other)',
      unless: alsoBy({ scopeNode: '', lookup: answered('live', 4 * MINUTE) }),
    },
    'nor while asking anyone fails (M-08)': {
      fields: alsoBy({ scopeNode: '', lookup: answered('error') }),
      kept: 'blocked LOOKUP_ERROR(other)',
      unless: alsoBy({ scopeNode: '' }),
    },
    'nor where it was confirmed since (9.2)': {
      fields: {
        lease: held({ confirmedAt: ago(6 * MINUTE) }),
        ...boot({ bootEnded: { ...NEW_BOOT, at: ago(6 * MINUTE) - 1 } }),
      },
      kept: kept('NOT_ENDED_BY_BOOT(agent-n1)'),
      unless: {
        lease: held({ confirmedAt: ago(6 * MINUTE) }),
        ...boot({ bootEnded: { ...NEW_BOOT, at: ago(6 * MINUTE) } }),
      },
    },
    'nor while another lists it (16.5)': {
      fields: alsoBy({ live: listed() }),
      kept: 'keep SEEN_LIVE(other)',
    },
    'nor while another says live when asked': {
      fields: alsoBy({ lookup: answered('live') }),
      kept: 'keep LOOKUP_LIVE(other)',
    },
    "nor where another node's source has seen it, which must miss it (16.5)": {
      fields: alsoBy({ scopeNode: 'n2' }),
      kept: 'keep SEEN_ON_ANOTHER_NODE(other) TOO_FEW_MISSES(agent-n1) TOO_FEW_MISSES(other)',
      unless: alsoBy({ scopeNode: '' }),
    },
    'nor where one of the whole network has seen it on another node (16.5)': {
      fields: alsoBy({ scopeNode: '', seenOn: [HERE, { node: 'n2', boot: '' }] }),
      kept: 'keep SEEN_ON_ANOTHER_NODE(other) TOO_FEW_MISSES(agent-n1) TOO_FEW_MISSES(other)',
      unless: alsoBy({ scopeNode: '', seenOn: [HERE, { node: '', boot: '' }, { node: 'n1', boot: '' }] }),
    },
    'nor what was seen in the new boot, though before the boot was known (12.2)': {
      fields: boot({ seenOn: [HERE, { node: 'n1', boot: 'b2' }] }),
      kept: 'keep SEEN_ON_ANOTHER_NODE(agent-n1) TOO_FEW_MISSES(agent-n1)',
      unless: boot({ seenOn: [HERE] }),
    },
    'nor where another owner was seen at the address': {
      fields: alsoBy({ about: OTHER, scopeNode: '' }),
      kept: 'keep OTHERS_WERE_SEEN TOO_FEW_MISSES(agent-n1) TOO_FEW_MISSES(other)',
    },
    'nor before the minimum age': {
      fields: {
        lease: held({ confirmedAt: ago(5 * MINUTE) + 1 }),
        ...boot({ bootEnded: { ...NEW_BOOT, at: ago(4 * MINUTE) } }),
      },
      kept: 'keep TOO_YOUNG TOO_FEW_MISSES(agent-n1)',
    },
    'nor on the word of a source that was named and has never seen it, for as long, though another has (W-01)':
      {
        fields: {
          lease: held({ confirmedAt: ago(HOUR) + 1 }),
          witnesses: [
            rebooted({ why: 'NAMED', seenOn: [] }),
            witness({ source: 'k8s', scopeNode: '', misses: [], lookup: null }),
          ],
        },
        kept: 'keep TOO_YOUNG TOO_FEW_MISSES(agent-n1) TOO_FEW_MISSES(k8s)',
        unless: {
          lease: held({ confirmedAt: ago(HOUR) + 1 }),
          witnesses: [rebooted(), witness({ source: 'k8s', scopeNode: '', misses: [], lookup: null })],
        },
      },
    'nor while it may still be confirmed (2.1)': {
      fields: { lease: held({ state: 'RESERVED', confirmedAt: null, confirmBy: NOW }), ...boot() },
      kept: 'keep CONFIRM_PENDING TOO_FEW_MISSES(agent-n1)',
    },
  })
})

describe('a fence', () => {
  const last = sees({ seen: [] })
  const fenced = (fields: Partial<LeaseEvidence> = {}): Partial<LeaseEvidence> => ({
    fencedBy: FENCE,
    witnesses: [last],
    placements: [{ node: 'n1', boot: 'b1', source: 'agent-n1' }],
    ...fields,
  })
  const retiredHaving = (seenOn: readonly SeenPlace[]) =>
    fenced({ retired: [{ source: 'old', about: WEB, scopeNode: '', seenOn }] })
  const alsoBy = (fields: Partial<WitnessEvidence>) =>
    fenced({
      witnesses: [last, witness({ source: 'other', scopeNode: '', misses: [], lookup: null, ...fields })],
    })

  test('frees what was placed on its boot, whatever that boot last listed', () => {
    const verdict = judged(fenced())
    expect(said(verdict)).toBe('reap FENCED')
    expect(verdict).toMatchObject({ proof: { cause: 'FENCED', fencedBy: FENCE } })
  })

  guards({
    'frees nothing reserved after it (6.3)': {
      fields: fenced({ fencedBy: { ...FENCE, head: TOKEN - 1 } }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'frees nothing of another boot': {
      fields: fenced({ lease: held({ placement: { node: 'n1', boot: 'b2', labels: {} } }) }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'frees nothing of another node': {
      fields: fenced({
        lease: held({ placement: { node: 'n2', boot: 'b1', labels: {} } }),
        witnesses: [],
        placements: [],
      }),
      kept: 'keep NOT_FENCED NOBODY_CAN_TELL',
    },
    'frees nothing of a boot nobody named': {
      fields: {
        fencedBy: { ...FENCE, boot: '' },
        lease: held({ placement: { node: 'n1', boot: '', labels: {} } }),
        witnesses: [],
      },
      kept: 'keep NOT_FENCED NOBODY_CAN_TELL',
    },
    'frees nothing that anybody else lists (DESIGN §4)': {
      fields: alsoBy({ live: listed({ node: '' }) }),
      kept: 'keep SEEN_LIVE(other) SEEN_LIVE(agent-n1)',
      unless: alsoBy({}),
    },
    'frees nothing that is seen on another node too': {
      fields: fenced({
        placements: [
          { node: 'n1', boot: 'b1', source: 'agent-n1' },
          { node: 'n2', boot: 'b7', source: 'other' },
        ],
      }),
      kept: 'keep SEEN_LIVE(other) SEEN_LIVE(agent-n1)',
    },
    'frees nothing listed from no known place': {
      fields: fenced({ placements: [] }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'frees nothing found when asked just before': {
      fields: { ...alsoBy({ lookup: answered('live') }), fencedBy: { ...FENCE, at: ago(SECOND) } },
      kept: 'keep LOOKUP_LIVE(other) SEEN_LIVE(agent-n1)',
    },
    'is contradicted by a later report (6.3)': {
      fields: fenced({ lastSightedAt: FENCE.at + 1 }),
      kept: 'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
      unless: fenced({ lastSightedAt: FENCE.at }),
    },
    'is contradicted by whatever its boot reports later (6.3)': {
      fields: fenced({ fencedBy: { ...FENCE, reportedAt: FENCE.at + 1 } }),
      kept: 'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
      unless: fenced({ fencedBy: { ...FENCE, reportedAt: FENCE.at } }),
    },
    'is contradicted for what its boot lists nowhere (6.3)': {
      fields: { fencedBy: { ...FENCE, reportedAt: FENCE.at + 1 }, witnesses: [], placements: [] },
      kept: 'keep FENCE_CONTRADICTED',
      unless: { fencedBy: { ...FENCE, reportedAt: null }, witnesses: [], placements: [] },
    },
    'is contradicted by a later look-up': {
      fields: {
        ...alsoBy({ lookup: answered('live', 2 * MINUTE) }),
        fencedBy: { ...FENCE, at: ago(3 * MINUTE) },
      },
      kept: 'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
      unless: {
        ...alsoBy({ lookup: answered('live', 4 * MINUTE) }),
        fencedBy: { ...FENCE, at: ago(3 * MINUTE) },
      },
    },
    'is contradicted by a later Confirm': {
      fields: fenced({ lease: held({ confirmedAt: FENCE.at + 1 }) }),
      kept: 'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
      unless: fenced({ lease: held({ confirmedAt: FENCE.at }) }),
    },
    'of what was seen at an earlier head is contradicted by what its boot reported after that (6.3)': {
      fields: fenced({ fencedBy: { ...FENCE, since: FENCE.at - MINUTE, reportedAt: FENCE.at - 1 } }),
      kept: 'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
      unless: fenced({
        fencedBy: { ...FENCE, since: FENCE.at - MINUTE, reportedAt: FENCE.at - MINUTE },
        lastSightedAt: FENCE.at - MINUTE,
        lease: held({ confirmedAt: FENCE.at - MINUTE, reservedAt: FENCE.at - MINUTE }),
      }),
    },
    'and by a Confirm after that': {
      fields: fenced({
        fencedBy: { ...FENCE, since: FENCE.at - MINUTE },
        lease: held({ confirmedAt: FENCE.at - 1 }),
      }),
      kept: 'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
      unless: fenced({ lease: held({ confirmedAt: FENCE.at - 1 }) }),
    },
    'frees nothing that another node had seen whose source was retired (16.5)': {
      fields: fenced({ retired: [{ source: 'agent-n2', about: WEB, scopeNode: 'n2' }] }),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: fenced({ retired: [{ source: 'agent-n2', about: WEB, scopeNode: 'n1' }] }),
    },
    'frees nothing that one of the whole network had seen on another node before it was retired (16.5)': {
      fields: retiredHaving([HERE, { node: 'n2', boot: '' }]),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: retiredHaving([HERE, { node: '', boot: '' }]),
    },
    'nor what was seen in another boot of its node by one that was retired (6.3)': {
      fields: retiredHaving([{ node: 'n1', boot: 'b2' }]),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: retiredHaving([{ node: 'n1', boot: '' }]),
    },
    'nor what one of the whole network has seen on another node (16.5)': {
      fields: alsoBy({ seenOn: [{ node: 'n2', boot: 'b1' }] }),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: alsoBy({ seenOn: [HERE] }),
    },
    'nor what its own source has seen in another boot (6.3)': {
      fields: {
        fencedBy: FENCE,
        witnesses: [witness({ misses: [], seenOn: [HERE, { node: 'n1', boot: 'b2' }] })],
      },
      kept: 'keep SEEN_ON_ANOTHER_NODE(agent-n1) TOO_FEW_MISSES(agent-n1)',
      unless: { fencedBy: FENCE, witnesses: [witness({ misses: [], seenOn: [HERE] })] },
    },
    'nor where another was seen whose source was retired': {
      fields: fenced({ retired: [{ source: 'old', about: OTHER, scopeNode: '', seenOn: [] }] }),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: fenced({ rules: 1, retired: [{ source: 'old', about: OTHER, scopeNode: '' }] }),
    },
    'nor where nobody could tell who that was': {
      fields: fenced({ retired: [{ source: 'old', about: null, scopeNode: '', seenOn: [] }] }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'frees nothing that another node has seen (16.5)': {
      fields: alsoBy({ scopeNode: 'n2' }),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: alsoBy({ scopeNode: 'n1' }),
    },
    'says nothing about another owner at the address': {
      fields: alsoBy({ about: OTHER }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
    'says nothing about the other party of a conflict': {
      fields: fenced({ lease: inQuarantine('CONFLICT') }),
      kept: 'keep SEEN_LIVE(agent-n1)',
      unless: fenced({ lease: inQuarantine('SUPERSEDED') }),
    },
    'says nothing where nobody is known to hold the address': {
      fields: fenced({ lease: inQuarantine('FOREIGN', { placement: held().placement }) }),
      kept: 'keep SEEN_LIVE(agent-n1)',
    },
  })
})

describe('the way back from a quarantine', () => {
  const conflict = inQuarantine('CONFLICT')
  const gone = witness({ source: 'docker', scopeNode: '', about: OTHER })
  const alone = (fields: Partial<LeaseEvidence> = {}): Partial<LeaseEvidence> => ({
    lease: conflict,
    lastSightedAt: ago(20 * SECOND),
    othersSightedAt: ago(3 * MINUTE),
    witnesses: [sees(), gone],
    ...fields,
  })
  const own = (fields: Partial<WitnessEvidence>) => alone({ witnesses: [sees(fields), gone] })
  const other = (fields: Partial<WitnessEvidence>) => alone({ witnesses: [sees(), { ...gone, ...fields }] })

  test('opens when everyone who saw the address shows only its owner', () => {
    const verdict = judged(alone())
    expect(said(verdict)).toBe('restore SEEN_ALONE(agent-n1) NOBODY_ELSE(docker)')
    expect(verdict).toMatchObject({ proof: { cause: 'SEEN_ALONE', version: VERSION, token: TOKEN } })
  })

  const shut: Record<string, Partial<LeaseEvidence>> = {
    'of a lease in no quarantine': alone({ lease: held() }),
    'of a quarantine that ends otherwise': alone({ lease: inQuarantine('SUPERSEDED') }),
    'of an owner whose attachment is closed (4.2)': alone({ ownerClosed: true }),
    'where its holder let go': alone({ lease: inQuarantine('CONFLICT', LEFT) }),
    'of another life of the owner (3.1, W-03)': {
      ...own({ live: listed({ incarnation: 'two' }) }),
      lease: inQuarantine('CONFLICT', { owner: { ...WEB, incarnation: 'one' } }),
    },
    'shown fewer than k times': own({ seen: THREE.slice(1) }),
    'shown at heads that did not know the quarantine': own({
      seen: THREE.map((ref) => ({ ...ref, head: VERSION - 1 })),
    }),
    'while another was still seen': alone({ othersSightedAt: THREE[0]!.begunAt }),
    'while another is listed': other({ live: listed() }),
    'while another is listed by one that was only named': other({ live: listed(), why: 'NAMED' }),
    'while somebody unknown sees it too': alone({
      placements: [{ node: 'n3', boot: '', source: 'agent-n3' }],
    }),
    'while another is found when asked': other({ lookup: answered('live') }),
    'with fewer than k misses of the other': other({ misses: THREE.slice(1) }),
    'by a source in dry run': own({ enabled: false }),
    'against one in dry run that saw another': other({ enabled: false }),
    'by a held source': own({ held: true }),
    'by a source warming up': own({ warm: false }),
    'by a source of another era': own({ era: 1 }),
    'in recovery': alone({ recovering: true }),
    'where one who saw it fell silent': alone({
      witnesses: [sees(), gone, witness({ source: 'agent-n2', scopeNode: 'n2', misses: [] })],
    }),
  }
  test.each(Object.entries(shut))('stays shut %s', (_, fields) => {
    expect(judged(fields).verdict).toBe('keep')
  })

  test.each([
    ['nobody has asked', { lookup: null }],
    ['it was asked too long ago', { lookup: answered('gone', 61 * SECOND) }],
    [
      'it was asked before the other was last seen',
      { lookup: answered('gone', 3 * MINUTE), answersForMs: HOUR },
    ],
  ])('asks after the other party first: %s (M-02)', (_, fields) => {
    const verdict = judged(other(fields))
    expect(said(verdict)).toBe('lookUp LOOKUP_NEEDED(docker)')
    expect(verdict).toMatchObject({ ask: [{ source: 'docker', owner: OTHER }] })
  })

  test.each([
    ['an error', answered('error'), 'blocked LOOKUP_ERROR(docker)'],
    ['an unknown state', answered('unknown'), 'blocked LOOKUP_UNKNOWN(docker)'],
    ['no answer', answered('unanswered'), 'blocked LOOKUP_UNANSWERED(docker)'],
    ['an end just now', ended(4 * MINUTE), 'keep SEEN_LIVE(agent-n1)'],
    ['an end past its grace', ended(5 * MINUTE), 'restore SEEN_ALONE(agent-n1) NOBODY_ELSE(docker)'],
  ])('of the other party %s', (_, lookup, expected) => {
    expect(said(judged(other({ lookup })))).toBe(expected)
  })

  test('while its owner is listed all the time, an answer stands since the other was last seen', () => {
    const lookup = answered('gone', 50 * SECOND)
    expect(judged({ ...other({ lookup }), lastSightedAt: ago(SECOND) }).verdict).toBe('restore')
  })

  test('waits for who was retired having seen another there (16.8)', () => {
    const retired = (about: typeof OTHER | null) => ({ ...alone(), retired: [{ source: 'old', about }] })
    expect(said(judged(retired(OTHER)))).toBe('blocked WITNESS_RETIRED(old)')
    expect(said(judged(retired(null)))).toBe('blocked WITNESS_RETIRED(old)')
    expect(judged(retired(WEB)).verdict).toBe('restore')
  })

  test('of another that nobody can be asked after, needs a list that has the stopped (M-19)', () => {
    const unknown = { about: null, lookup: null }
    expect(judged(other(unknown)).verdict).toBe('restore')
    expect(said(judged(other({ ...unknown, seesStopped: false })))).toBe('blocked STOPPED_UNSEEN(docker)')
  })

  test('asks nothing of a source in dry run that sees its owner too', () => {
    const dry = sees({ source: 'new', enabled: false, seen: [] })
    expect(judged(alone({ witnesses: [sees(), gone, dry] })).verdict).toBe('restore')
  })

  test('asks nothing of a source that has not seen the address', () => {
    const named = witness({ source: 'k8s', scopeNode: '', why: 'NAMED', misses: [], vanishedAt: null })
    expect(judged(alone({ witnesses: [sees(), gone, named] })).verdict).toBe('restore')
  })

  test('counts misses of a node it has left', () => {
    const left = witness({ source: 'agent-n2', scopeNode: 'n2', seen: [], lookup: null })
    expect(judged(alone({ witnesses: [sees(), gone, left] })).verdict).toBe('restore')
  })
})

describe('the same workload', () => {
  const nameOnly = owner({ name: 'default/web-0' })

  test('is the same kind and uid, whatever its name (DESIGN §1, 9.1)', () => {
    expect(isSameWorkload(WEB, { ...WEB, name: 'default/renamed', incarnation: 'two' })).toBe(true)
    expect(isSameWorkload(WEB, { ...WEB, uid: 'uid-9' })).toBe(false)
    expect(isSameWorkload(WEB, { ...WEB, kind: 'container' })).toBe(false)
  })

  test('is the same kind and name where the owner named no uid', () => {
    expect(isSameWorkload(nameOnly, WEB)).toBe(true)
    expect(isSameWorkload(nameOnly, { ...WEB, name: 'default/other' })).toBe(false)
  })

  test('is one judgement: its witness is no stranger', () => {
    const lease = held({ owner: nameOnly })
    expect(judged({ lease, ...one({ about: WEB }) }).verdict).toBe('reap')
    expect(judged({ lease: held(), ...one({ about: { ...WEB, uid: 'uid-9' } }) }).verdict).toBe('keep')
  })
})
