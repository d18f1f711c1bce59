/**
 * What holds of the judge for any evidence: the conditions of a reap, recomputed here without its rules; that more
 * evidence of life or less proof never takes back what was kept; that a stored proof gives its verdict again.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  type Cause,
  judgeHeld,
  type LeaseEvidence,
  type LookupAnswer,
  type Proof,
  RULES,
  rejudge,
  type SeenPlace,
  type SnapshotRef,
  type Verdict,
  type WitnessEvidence,
} from '../../src/core/judge.ts'
import type { Lease } from '../../src/core/lease.ts'
import { firstSeqOfEra, judgePolicy } from '../../src/core/policy.ts'
import { owner } from '../support/commands.ts'
import {
  ago,
  answered,
  ENABLED_HEAD,
  ended,
  FENCE,
  held,
  inQuarantine,
  listed,
  NEW_BOOT,
  NOW,
  OTHER,
  POLICY,
  TOKEN,
  VERSION,
  WEB,
} from '../support/evidence.ts'
import { HOUR, MINUTE, SECOND } from '../support/given.ts'

const RUNS = { numRuns: 2_000 }

/** Mostly what a proof needs, so that many are near to one and some are one. */
function mostly<T>(likely: T, ...others: readonly T[]): fc.Arbitrary<T> {
  return fc.oneof({ weight: 12, arbitrary: fc.constant(likely) }, fc.constantFrom(likely, ...others))
}

const anyAge = (...likely: readonly number[]) =>
  fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...likely) }, fc.nat(2 * HOUR))
const anyTime = (...likely: readonly number[]) => anyAge(...likely).map(ago)

const anySnapshot: fc.Arbitrary<SnapshotRef> = fc.record({
  sequence: fc.integer({ min: 1, max: 9 }),
  head: mostly(VERSION, VERSION - 1, TOKEN, firstSeqOfEra(1), firstSeqOfEra(1) + VERSION),
  begunAt: anyTime(90 * SECOND, 60 * SECOND, 30 * SECOND),
})
const someSnapshots = fc.uniqueArray(anySnapshot, {
  minLength: 3,
  maxLength: 6,
  selector: (ref) => ref.sequence,
})
const anySnapshots = fc.oneof(
  { weight: 6, arbitrary: someSnapshots },
  fc.array(anySnapshot, { maxLength: 4 }),
)

const gone: LookupAnswer = answered('gone')
const anyLookup = mostly<LookupAnswer | null>(
  gone,
  null,
  answered('live'),
  answered('live', HOUR),
  answered('unknown'),
  answered('error'),
  answered('error', HOUR),
  answered('unanswered'),
  answered('gone', 2 * MINUTE),
  ended(HOUR),
  ended(MINUTE),
)

const anyLive = mostly<WitnessEvidence['live']>(
  null,
  listed(),
  listed({ state: 'paused', node: 'n2' }),
  listed({ incarnation: 'two' }),
)

const anySeenOn = mostly<readonly SeenPlace[]>(
  [{ node: 'n1', boot: 'b1' }],
  [],
  [{ node: 'n1', boot: '' }],
  [{ node: 'n1', boot: 'b2' }],
  [
    { node: 'n1', boot: 'b1' },
    { node: 'n2', boot: '' },
  ],
)

function anyWitness(
  why: fc.Arbitrary<WitnessEvidence['why']>,
  about: fc.Arbitrary<WitnessEvidence['about']>,
) {
  return fc.record<WitnessEvidence>({
    source: fc.constantFrom('agent-n1', 'agent-n2', 'k8s', 'docker'),
    scopeNode: mostly('n1', '', 'n2'),
    enabled: mostly(true, false),
    epoch: fc.constantFrom('b1', 'b2'),
    warm: mostly(true, false),
    era: mostly(0, 1),
    held: mostly(false, true),
    canSee: mostly(true, false),
    seesStopped: mostly(true, false),
    answersForMs: fc.constantFrom(0, 60_000, 600_000),
    enabledHead: mostly<number | null>(ENABLED_HEAD, null, TOKEN, VERSION),
    why,
    about,
    anotherLife: mostly(false, true),
    seenOn: anySeenOn,
    live: anyLive,
    listedTerminal: mostly<WitnessEvidence['listedTerminal']>(
      null,
      { since: ago(HOUR) },
      { since: ago(MINUTE) },
    ),
    vanishedAt: fc.constant(ago(80 * SECOND)),
    seen: anySnapshots,
    misses: anySnapshots,
    lookup: anyLookup,
    bootEnded: mostly<WitnessEvidence['bootEnded']>(null, NEW_BOOT, { ...NEW_BOOT, boot: 'b0' }),
  })
}

const router = owner({ kind: 'infrastructure', name: 'router', uid: 'uid-1' })
const anyLease: fc.Arbitrary<Lease> = fc
  .record({
    base: fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(held(), held({ state: 'RESERVED', confirmedAt: null })) },
      fc.constantFrom(
        inQuarantine('SUPERSEDED'),
        inQuarantine('REMOVAL_UNCONFIRMED'),
        inQuarantine('CONFLICT'),
        inQuarantine('CONFLICT', { owner: null }),
        inQuarantine('SECOND_ADDRESS'),
        inQuarantine('RELEASED_BUT_LIVE'),
        inQuarantine('FOREIGN'),
        inQuarantine('SEEN_BY_CALLER'),
        inQuarantine('OPERATOR'),
      ),
    ),
    holder: mostly(WEB, router, { ...WEB, incarnation: 'one' }),
    version: mostly(VERSION, TOKEN, firstSeqOfEra(1) + 1),
    witness: mostly('', 'agent-n1', 'k8s'),
    reservedAt: anyTime(2 * HOUR, 50 * MINUTE, MINUTE),
    confirmBy: mostly<number | null>(null, NOW, ago(HOUR)),
    node: mostly('n1', 'n2', ''),
    boot: mostly('b1', 'b2', ''),
  })
  .map(({ base, holder, node, boot, ...fields }) => ({
    ...base,
    ...fields,
    owner: base.owner === null ? null : holder,
    placement: { node, boot, labels: {} },
  }))

/** A Reserve from elsewhere takes the boot of the placement: the lease is on it no more. */
const askedFromElsewhere = (evidence: LeaseEvidence): LeaseEvidence => ({
  ...evidence,
  lease: { ...evidence.lease, placement: { ...evidence.lease.placement, boot: '' } },
  leftBoot: 'b1',
})

/** COVERS only where nobody is a witness, as the evidence is defined. */
const anyEvidence: fc.Arbitrary<LeaseEvidence> = anyLease.chain((lease) => {
  const about = mostly(lease.owner, OTHER, null)
  const witnesses = (why: fc.Arbitrary<WitnessEvidence['why']>) =>
    fc.array(anyWitness(why, about), { minLength: 0, maxLength: 3 })
  const evidence = fc.record<LeaseEvidence>({
    lease: fc.constant(lease),
    now: fc.constant(NOW),
    era: mostly(0, 1),
    recovering: mostly(false, true),
    lastSightedAt: mostly<number | null>(ago(10 * MINUTE), null, ago(45 * SECOND), NEW_BOOT.at + 1),
    othersSightedAt: mostly<number | null>(null, ago(10 * MINUTE), ago(45 * SECOND)),
    imported: mostly(false, true),
    ownerClosed: mostly(false, true),
    fencedBy: mostly<LeaseEvidence['fencedBy']>(null, FENCE, { ...FENCE, head: TOKEN - 1 }),
    witnesses: fc.oneof(
      { weight: 4, arbitrary: witnesses(mostly('SIGHTED', 'NAMED')) },
      witnesses(fc.constant('COVERS')),
    ),
    leftBoot: fc.constant(null),
    retired: mostly<NonNullable<LeaseEvidence['retired']>>(
      [],
      [{ source: 'old', about: WEB }],
      [{ source: 'old', about: OTHER, scopeNode: '', seenOn: [] }],
      [{ source: 'old', about: WEB, scopeNode: '', seenOn: [{ node: 'n2', boot: '' }] }],
    ),
    rules: fc.constant(RULES),
    placements: mostly<LeaseEvidence['placements']>(
      [],
      [{ node: 'n1', boot: 'b1', source: 'agent-n1' }],
      [{ node: 'n2', boot: 'b7', source: 'agent-n2' }],
    ),
  })
  return fc
    .tuple(evidence, mostly(false, true))
    .map(([one, isMoved]) => (isMoved ? askedFromElsewhere(one) : one))
})

const judge = (evidence: LeaseEvidence) => judgeHeld(evidence, POLICY)

function causeOf(verdict: Verdict): Cause | 'none' {
  return verdict.verdict === 'reap' || verdict.verdict === 'restore' ? verdict.proof.cause : 'none'
}

function missesThatCount(witness: WitnessEvidence, { lease, lastSightedAt, era }: LeaseEvidence): number {
  const sequences = new Set<number>()
  for (const { sequence, head, begunAt } of witness.misses) {
    if (head < lease.version || head >= firstSeqOfEra(era + 1)) continue
    if (era > 0 && head < firstSeqOfEra(era)) continue
    if (lastSightedAt !== null && begunAt <= lastSightedAt) continue
    sequences.add(sequence)
  }
  return sequences.size
}

const failed = (lookup: LookupAnswer | null) =>
  lookup !== null && ['error', 'unknown', 'unanswered'].includes(lookup.answer)

test('the evidence is near enough to proofs: every verdict and every cause comes up often', () => {
  const sample = fc.sample(anyEvidence, { numRuns: 20_000, seed: 1 }).map(judge)
  for (const verdict of ['keep', 'lookUp', 'blocked', 'reap', 'restore']) {
    expect(sample.filter((each) => each.verdict === verdict).length, verdict).toBeGreaterThan(20)
  }
  for (const cause of ['FENCED', 'PREVIOUS_BOOT', 'PROVEN_ABSENT', 'SEEN_ALONE']) {
    expect(sample.filter((each) => causeOf(each) === cause).length, cause).toBeGreaterThan(20)
  }
})

test("whatever is taken back was in nobody's care and in no recovery", () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      if (judge(evidence).verdict !== 'reap') return
      const { lease } = evidence
      expect(evidence.recovering).toBe(false)
      expect(lease.quarantine?.reason).not.toBe('OPERATOR')
      expect(lease.owner?.kind === 'infrastructure' && lease.witness === '').toBe(false)
      expect(lease.version).toBeLessThan(firstSeqOfEra(evidence.era + 1))
      const foundLive = evidence.witnesses.filter(({ lookup }) => lookup?.answer === 'live')
      expect(foundLive.every(({ lookup }) => lookup!.at < ago(MINUTE))).toBe(true)
    }),
    RUNS,
  )
})

test('nothing is taken back for absence with a sighting, an error, a miss too few, or a witness that can not tell', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      if (causeOf(judge(evidence)) !== 'PROVEN_ABSENT') return
      const { lease, witnesses, era } = evidence
      expect(witnesses.every(({ live }) => live === null)).toBe(true)
      expect(evidence.placements).toEqual([])
      expect(witnesses.length).toBeGreaterThan(0)
      expect(evidence.retired).toEqual([])
      expect(lease.reservedAt).toBeLessThanOrEqual(ago(5 * MINUTE))
      // Sources that merely cover the lease speak only if they can; all others must.
      const speaking = witnesses.filter(
        ({ why, enabled, canSee, enabledHead, scopeNode }) =>
          why !== 'COVERS' ||
          (enabled &&
            canSee &&
            (lease.owner === null || (enabledHead !== null && enabledHead < TOKEN)) &&
            (scopeNode === '' || scopeNode === lease.placement.node || lease.owner === null)),
      )
      expect(speaking.length).toBeGreaterThan(0)
      for (const witness of speaking) {
        expect(witness).toMatchObject({ enabled: true, warm: true, held: false, canSee: true, era })
        expect(missesThatCount(witness, evidence)).toBeGreaterThanOrEqual(3)
        expect(failed(witness.lookup)).toBe(false)
        if (witness.about === null) {
          expect(witness.seesStopped || witness.lookup !== null || witness.listedTerminal !== null).toBe(true)
          continue
        }
        const listedEnd = witness.listedTerminal !== null && witness.listedTerminal.since <= ago(5 * MINUTE)
        const { lookup } = witness
        const saidGone =
          lookup !== null &&
          lookup.at >= ago(Math.max(MINUTE, witness.answersForMs)) &&
          (lookup.answer === 'gone' || (lookup.answer === 'terminal' && lookup.since <= ago(5 * MINUTE)))
        expect(listedEnd || saidGone).toBe(true)
      }
    }),
    { numRuns: 5_000 },
  )
})

function expectHere(seenOn: readonly SeenPlace[], { placement }: Lease): void {
  for (const { node, boot } of seenOn) {
    expect(['', placement.node]).toContain(node)
    expect(['', placement.boot]).toContain(boot)
  }
}

test('nothing is given back before everybody else who was seen there is said to be gone', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      if (causeOf(judge(evidence)) !== 'SEEN_ALONE') return
      const { lease, witnesses, retired = [] } = evidence
      const isOther = ({ about }: Pick<WitnessEvidence, 'about'>) =>
        about === null || about.kind !== lease.owner!.kind || about.uid !== lease.owner!.uid
      expect(retired.filter(isOther)).toEqual([])
      for (const { lookup, listedTerminal, about } of witnesses.filter(
        (one) => one.why === 'SIGHTED' && isOther(one),
      )) {
        if (about === null) continue
        expect(listedTerminal !== null || ['gone', 'terminal'].includes(lookup?.answer ?? '')).toBe(true)
      }
    }),
    { numRuns: 5_000 },
  )
})

test('nothing is taken back for absence on the word of a node that is not known to be where it is', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      if (causeOf(judge(evidence)) !== 'PROVEN_ABSENT') return
      const { lease, leftBoot, witnesses } = evidence
      if (lease.owner === null) return
      const age = NOW - Math.max(lease.reservedAt, lease.confirmedAt ?? 0, lease.quarantine?.at ?? 0)
      const sighted = witnesses.filter(({ why }) => why === 'SIGHTED')
      const here = ({ node, boot }: SeenPlace) =>
        node === lease.placement.node && (boot === '' || boot === leftBoot)
      const named = witnesses.filter(({ why, scopeNode }) => why === 'NAMED' && scopeNode !== '')
      if (witnesses.every(({ why }) => why === 'NAMED')) {
        const placed = ['', ...named.map(({ scopeNode }) => scopeNode)]
        if (named.length === witnesses.length) {
          expect(leftBoot).toBeNull()
          expect(placed).toContain(lease.placement.node)
        }
        if (named.length > 0) expect(age).toBeGreaterThanOrEqual(HOUR)
      }
      const isLeft = (one: WitnessEvidence) => one.scopeNode !== '' && one.seenOn!.every(here)
      const holders = sighted.filter(({ about }) => about !== null && about.uid === lease.owner!.uid)
      if (leftBoot !== null && holders.length > 0 && holders.every(isLeft))
        expect(age).toBeGreaterThanOrEqual(HOUR)
    }),
    { numRuns: 5_000 },
  )
})

test('nothing is taken back for a boot or a fence with life elsewhere', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      const cause = causeOf(judge(evidence))
      const { lease, witnesses, placements, lastSightedAt, retired = [] } = evidence
      if (cause !== 'FENCED' && cause !== 'PREVIOUS_BOOT') return
      expect(lease.owner).not.toBeNull()
      expect(placements.every(({ node, boot }) => node === 'n1' && boot === 'b1')).toBe(true)
      const fencedSources = placements.map(({ source }) => source)
      for (const { live, source, scopeNode, why, seenOn = [] } of witnesses) {
        if (live !== null) expect(cause === 'FENCED' && fencedSources.includes(source)).toBe(true)
        if (why === 'SIGHTED') expect(['', lease.placement.node]).toContain(scopeNode)
        if (why === 'SIGHTED') expectHere(seenOn, lease)
      }
      for (const { about, scopeNode = '', seenOn = [] } of retired) {
        expect(about).toEqual(expect.objectContaining({ kind: lease.owner!.kind, uid: lease.owner!.uid }))
        expect(['', lease.placement.node]).toContain(scopeNode)
        expectHere(seenOn, lease)
      }
      if (cause === 'FENCED') {
        expect(lease.fencingToken).toBeLessThanOrEqual(evidence.fencedBy!.head)
        expect(lease.placement).toMatchObject({ node: 'n1', boot: 'b1' })
        expect(lastSightedAt ?? 0).toBeLessThanOrEqual(FENCE.at)
      } else {
        const ended = witnesses.filter(({ bootEnded }) => bootEnded !== null)
        expect(ended.length).toBeGreaterThan(0)
        for (const witness of ended) {
          expect(witness).toMatchObject({ enabled: true, warm: true, held: false, canSee: true })
          expect(witness).toMatchObject({ scopeNode: lease.placement.node, bootEnded: NEW_BOOT })
          expect(failed(witness.lookup)).toBe(false)
        }
        expect(lastSightedAt ?? 0).toBeLessThanOrEqual(NEW_BOOT.at)
      }
    }),
    { numRuns: 5_000 },
  )
})

/** More life, more doubt or less proof. What changes a witness is not meant for sources that merely cover. */
type Protection = (evidence: LeaseEvidence, index: number) => LeaseEvidence

const withWitness =
  (change: (witness: WitnessEvidence) => Partial<WitnessEvidence>): Protection =>
  (evidence, index) => ({
    ...evidence,
    witnesses: evidence.witnesses.map((witness, at) =>
      at === index % Math.max(1, evidence.witnesses.length) ? { ...witness, ...change(witness) } : witness,
    ),
  })
const unlessCovering = (fields: Partial<WitnessEvidence>) =>
  withWitness(({ why }) => (why === 'COVERS' ? {} : fields))
/** A failed or later answer in the place of one that says live would be less life. */
const unlessLive = (fields: Partial<WitnessEvidence>) =>
  withWitness(({ lookup }) => (lookup?.answer === 'live' || failed(lookup) ? {} : fields))
const andWitness =
  (fields: Partial<WitnessEvidence>): Protection =>
  (evidence) => ({ ...evidence, witnesses: [...evidence.witnesses, { ...THIRD, ...fields }] })
const withLease =
  (change: (lease: Lease) => Partial<Lease>): Protection =>
  (evidence) => ({ ...evidence, lease: { ...evidence.lease, ...change(evidence.lease) } })

const THIRD: WitnessEvidence = {
  source: 'third',
  scopeNode: '',
  enabled: true,
  epoch: 'e',
  warm: true,
  era: 0,
  held: false,
  canSee: true,
  seesStopped: true,
  answersForMs: 60_000,
  enabledHead: ENABLED_HEAD,
  why: 'SIGHTED',
  about: WEB,
  live: null,
  listedTerminal: null,
  vanishedAt: null,
  seen: [],
  misses: [],
  lookup: null,
  bootEnded: null,
}

const seenOnN3 = withWitness(({ seenOn = [] }) => ({ seenOn: [...seenOn, { node: 'n3', boot: '' }] }))

const PROTECTIONS: Readonly<Record<string, Protection>> = {
  'a sighting by a witness': withWitness(() => ({ live: listed() })),
  'a sighting by another source': andWitness({ live: listed() }),
  'a sighting in dry run': andWitness({ live: listed(), enabled: false }),
  'a sighting for another owner': andWitness({ live: listed(), about: OTHER }),
  'another witness, which has not missed it': andWitness({}),
  'a place where it is seen': (evidence) => ({
    ...evidence,
    placements: [...evidence.placements, { node: 'n3', boot: 'b3', source: 'third' }],
  }),
  'a later sighting': (evidence) => ({ ...evidence, lastSightedAt: ago(SECOND) }),
  'a sighting in between': (evidence) => ({
    ...evidence,
    lastSightedAt: Math.max(evidence.lastSightedAt ?? 0, ago(45 * SECOND)),
  }),
  'a later sighting of another': (evidence) => ({ ...evidence, othersSightedAt: ago(SECOND) }),
  'a miss less': withWitness(({ misses }) => ({ misses: misses.slice(1) })),
  'heads that knew less': withWitness(({ misses }) => ({
    misses: misses.map((ref) => ({ ...ref, head: Math.min(ref.head, TOKEN - 1) })),
  })),
  'no answer yet': withWitness(({ about, lookup }) =>
    about === null || failed(lookup) || lookup?.answer === 'live'
      ? {}
      : { lookup: null, listedTerminal: null },
  ),
  'an error': unlessLive({ lookup: answered('error') }),
  'a time-out': unlessLive({ lookup: answered('unanswered') }),
  'an unknown phase': unlessLive({ lookup: answered('unknown') }),
  'found when asked': withWitness(() => ({ lookup: answered('live', 0) })),
  'an end just now': unlessLive({ lookup: ended(SECOND), listedTerminal: null }),
  'a hold': withWitness(() => ({ held: true })),
  'a warm-up': withWitness(() => ({ warm: false })),
  'a source not heard in this era': withWitness(() => ({ era: 7 })),
  'a source not enabled': unlessCovering({ enabled: false }),
  'a source that can not see it': unlessCovering({ canSee: false }),
  'a named source that never saw it, enabled later': withWitness(({ why }) =>
    why === 'NAMED' ? { enabledHead: VERSION } : {},
  ),
  'no new boot': (evidence) => ({
    ...evidence,
    witnesses: evidence.witnesses.map((each) => ({ ...each, bootEnded: null })),
  }),
  'no fence': (evidence) => ({ ...evidence, fencedBy: null }),
  'a recovery': (evidence) => ({ ...evidence, recovering: true }),
  'an import': (evidence) => ({ ...evidence, imported: true }),
  'a later change': withLease(({ version }) => ({ version: version + 1 })),
  'a Confirm just now': withLease(() => ({ confirmedAt: NOW })),
  'a deadline not over': withLease(() => ({ confirmBy: NOW })),
  "an operator's quarantine": withLease(() => ({
    state: 'QUARANTINED',
    quarantine: { reason: 'OPERATOR', at: ago(HOUR), by: 'ops', why: 'given' },
  })),
  'a named witness nobody knows': withLease(() => ({ witness: 'nobody' })),
  // Of one that was asked for from elsewhere it would say where it went.
  'a witness that saw it on another node too': (evidence, index) =>
    evidence.leftBoot === null && evidence.lease.askedFrom === undefined
      ? seenOnN3(evidence, index)
      : evidence,
  'a Reserve from elsewhere': askedFromElsewhere,
  'a witness that was retired': (evidence) => ({
    ...evidence,
    retired: [...(evidence.retired ?? []), { source: 'older', about: WEB }],
  }),
  'no witness at all': (evidence) => ({ ...evidence, witnesses: [], fencedBy: null }),
}

test.each(Object.entries(PROTECTIONS))('never turns keep into reap: %s', (_, protect) => {
  fc.assert(
    fc.property(anyEvidence, fc.nat(2), (evidence, index) => {
      if (judge(evidence).verdict === 'reap') return
      expect(judge(protect(evidence, index)).verdict).not.toBe('reap')
    }),
    { numRuns: 500 },
  )
})

const SHARP = [
  'a sighting by another source',
  'a sighting in dry run',
  'a sighting for another owner',
  'a place where it is seen',
  'a recovery',
  "an operator's quarantine",
]

test.each(SHARP)('turns every reap into something else: %s', (name) => {
  fc.assert(
    fc.property(anyEvidence, fc.nat(2), (evidence, index) => {
      if (judge(evidence).verdict !== 'reap') return
      expect(judge(PROTECTIONS[name]!(evidence, index)).verdict).not.toBe('reap')
    }),
    RUNS,
  )
})

test('a stored proof judged again gives its verdict', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      const verdict = judge(evidence)
      if (verdict.verdict !== 'reap' && verdict.verdict !== 'restore') return
      const stored = JSON.parse(JSON.stringify(verdict.proof)) as Proof
      expect(stored).toEqual(verdict.proof)
      expect(rejudge(stored)).toEqual(verdict)
      // By stricter rules the same proof may not be enough, and never says something it did not.
      expect(rejudge(stored, judgePolicy({ misses: 9 })).verdict).not.toBe(
        verdict.verdict === 'reap' ? 'restore' : 'reap',
      )
    }),
    RUNS,
  )
})

test('the order of the witnesses changes nothing', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      const other = judge({ ...evidence, witnesses: evidence.witnesses.toReversed() })
      const first = judge(evidence)
      expect(other.verdict).toBe(first.verdict)
      expect(causeOf(other)).toBe(causeOf(first))
      expect(new Set(other.because)).toEqual(new Set(first.because))
    }),
    RUNS,
  )
})

test('every verdict says why, and every question is about somebody a witness was about', () => {
  fc.assert(
    fc.property(anyEvidence, (evidence) => {
      const verdict = judge(evidence)
      expect(verdict.because.length).toBeGreaterThan(0)
      for (const { text } of verdict.because) expect(text).not.toContain('undefined')
      if (verdict.verdict !== 'lookUp' && verdict.verdict !== 'blocked') return
      if (verdict.verdict === 'lookUp') expect(verdict.ask.length).toBeGreaterThan(0)
      for (const { source, owner: asked } of verdict.ask) {
        expect(evidence.witnesses.some((each) => each.source === source && each.about === asked)).toBe(true)
      }
    }),
    RUNS,
  )
})
