/**
 * DESIGN §3, each state against each kind of sighting, through `decide`: what a source lists confirms, adopts or sets
 * aside at once, and never takes anything back. Then the guards, one by one.
 */
import { describe, expect, test } from 'vitest'
import { emptyBooks } from '../../src/core/books.ts'
import type { SightedEntry } from '../../src/core/command.ts'
import { decide } from '../../src/core/decide.ts'
import { isHeldEvent } from '../../src/core/event.ts'
import { stateOf } from '../../src/core/lifecycle.ts'
import { POLICY } from '../../src/core/policy.ts'
import { sight } from '../support/commands.ts'
import {
  active,
  claim,
  closed,
  elapsed,
  entry,
  type Fact,
  fenced,
  type Given,
  given,
  givenIn,
  HOUR,
  lists,
  listsPartly,
  MINUTE,
  on,
  owner,
  pool,
  quarantined,
  reap,
  recovering,
  release,
  released,
  releaseOf,
  reserve,
  reserved,
  sightOf,
  source,
} from '../support/given.ts'
import { ENDED, EVERY_STATE, QUARANTINED, type State, SUBJECT, statesOf } from '../support/states.ts'

const api = owner({ name: 'api', uid: 'u1', incarnation: '1' })
const stranger = owner({ name: 'stranger', uid: 'u9', incarnation: '1' })
const STATES = statesOf(api)
const FREE = ['FREE', ...ENDED] as const
const HELD = ['RESERVED', 'ACTIVE'] as const

/** What a source that sees nobody's interface and life lists. */
function bare(of: ReturnType<typeof owner>) {
  return { ...of, incarnation: '', interface: '' }
}
/** By name alone. */
function byName(name: string) {
  return owner({ name })
}

type Row = {
  readonly entry: SightedEntry
  /** Besides what the state is made of. */
  readonly also?: readonly Fact[]
  readonly outcomes: Readonly<Record<string, readonly State[]>>
}

const TABLE: Readonly<Record<string, Row>> = {
  'for its owner': {
    entry: entry(SUBJECT, api),
    outcomes: { ADOPTED: FREE, CONFIRMED: ['RESERVED'], AS_BOOKED: ['ACTIVE', ...QUARANTINED] },
  },
  'for its owner, life and interface not told': {
    entry: entry(SUBJECT, bare(api)),
    outcomes: { ADOPTED: FREE, CONFIRMED: ['RESERVED'], AS_BOOKED: ['ACTIVE', ...QUARANTINED] },
  },
  'for another life of its owner': {
    entry: entry(SUBJECT, { ...api, incarnation: '2' }),
    outcomes: { ADOPTED: FREE, CONFIRMED: ['RESERVED'], AS_BOOKED: ['ACTIVE', ...QUARANTINED] },
  },
  'for another life on another node (live migration, kubevirt#4910)': {
    entry: entry(SUBJECT, { ...api, incarnation: '2' }, { node: 'n2' }),
    outcomes: { ADOPTED: FREE, CONFIRMED: ['RESERVED'], AS_BOOKED: ['ACTIVE', ...QUARANTINED] },
  },
  'for another workload': {
    entry: entry(SUBJECT, stranger),
    outcomes: { ADOPTED: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for another workload, life and interface not told': {
    entry: entry(SUBJECT, bare(stranger)),
    outcomes: { ADOPTED: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for a workload of another kind and the same uid': {
    entry: entry(SUBJECT, { ...api, kind: 'vm' }),
    outcomes: { ADOPTED: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for its successor of the same name': {
    entry: entry(SUBJECT, { ...api, uid: 'u2' }),
    outcomes: { ADOPTED: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for one that has a lease on that interface in the pool': {
    entry: entry(SUBJECT, stranger),
    also: [active('10.0.0.9', stranger)],
    outcomes: { SECOND_ADDRESS: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for one that has a lease on another interface in the pool': {
    entry: entry(SUBJECT, stranger),
    also: [active('10.0.0.9', { ...stranger, interface: 'eth1' })],
    outcomes: { ADOPTED: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for one that has a lease in the pool, interface not told': {
    entry: entry(SUBJECT, bare(stranger)),
    also: [active('10.0.0.9', stranger)],
    outcomes: { ADOPTED: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for an attachment that is closed': {
    entry: entry(SUBJECT, stranger),
    also: [closed(stranger)],
    outcomes: { RELEASED_BUT_LIVE: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for an attachment that is closed, life and interface not told': {
    entry: entry(SUBJECT, bare(stranger)),
    also: [closed(stranger)],
    outcomes: { RELEASED_BUT_LIVE: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'for nobody known': {
    entry: entry(SUBJECT, null),
    outcomes: { FOREIGN: FREE, AS_BOOKED: [...HELD, ...QUARANTINED] },
  },
  'for one that tells its name alone, and it is the owner’s': {
    entry: entry(SUBJECT, byName('api')),
    outcomes: { FOREIGN: FREE, AS_BOOKED: [...HELD, ...QUARANTINED] },
  },
  'for one that tells its name alone, and it is another': {
    entry: entry(SUBJECT, byName('stranger')),
    outcomes: { FOREIGN: FREE, CONFLICT: HELD, AS_BOOKED: QUARANTINED },
  },
  'as ended': {
    entry: entry(SUBJECT, api, { state: 'terminal' }),
    outcomes: { TERMINAL: EVERY_STATE },
  },
  'as ended, for another workload': {
    entry: entry(SUBJECT, stranger, { state: 'terminal' }),
    outcomes: { TERMINAL: EVERY_STATE },
  },
  'as paused, for its owner (nomad#11272)': {
    entry: entry(SUBJECT, api, { state: 'paused' }),
    outcomes: { ADOPTED: FREE, CONFIRMED: ['RESERVED'], AS_BOOKED: ['ACTIVE', ...QUARANTINED] },
  },
  'in a phase nobody knows, for its owner (W-05)': {
    entry: entry(SUBJECT, api, { state: 'ContainerCreating' }),
    outcomes: { ADOPTED: FREE, CONFIRMED: ['RESERVED'], AS_BOOKED: ['ACTIVE', ...QUARANTINED] },
  },
}

const EVENTS: Readonly<Record<string, string>> = {
  CONFIRMED: `lease.confirmed ${SUBJECT}`,
  ADOPTED: `lease.adopted ${SUBJECT}`,
  CONFLICT: `lease.quarantined ${SUBJECT} CONFLICT`,
  SECOND_ADDRESS: `lease.quarantined ${SUBJECT} SECOND_ADDRESS`,
  RELEASED_BUT_LIVE: `lease.quarantined ${SUBJECT} RELEASED_BUT_LIVE`,
  FOREIGN: `lease.quarantined ${SUBJECT} FOREIGN (nobody)`,
}

function because(books: Given, id = 'agent'): readonly string[] {
  const { answer, refusal } = books.ledger.submit(sightOf(books.ledger, id))
  expect(refusal).toBeNull()
  return answer!.findings!.map((finding) => finding.because)
}

describe.each(Object.entries(TABLE))('seen live %s', (_name, row) => {
  const outcomeIn = (state: State) => {
    const fitting = Object.entries(row.outcomes).filter(([, states]) => states.includes(state))
    expect(fitting, `one outcome for ${state}`).toHaveLength(1)
    return fitting[0]![0]
  }

  test.each(EVERY_STATE)('%s', (state) => {
    const facts = [pool('a', '10.0.0.0/28'), ...STATES[state], ...(row.also ?? []), source('agent')]
    const books = given(...facts, lists('agent', row.entry))
    const before = books.leaseAt(SUBJECT)
    const outcome = outcomeIn(state)
    expect(because(books)).toEqual([outcome])
    const event = EVENTS[outcome]
    expect(books.since()).toEqual(event === undefined ? [] : [event])
    if (event === undefined) expect(books.leaseAt(SUBJECT)).toEqual(before)
    // Whatever it was, it is not free now, and nobody gets it.
    if (outcome !== 'TERMINAL') expect(books.leaseAt(SUBJECT)).not.toBeNull()
    // Said again, it is said already.
    expect(because(books)).toEqual([event === undefined ? outcome : 'OLDER_THAN_THE_BOOKS'])
    lists('agent', row.entry)(books.ledger)
    expect(because(books)).toEqual([outcome === 'TERMINAL' ? 'TERMINAL' : 'AS_BOOKED'])
  })

  test.each(EVERY_STATE)('%s since the snapshot was begun: the next one is waited for', (state) => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      ...(row.also ?? []),
      source('agent'),
      lists('agent', row.entry),
      ...STATES[state],
    )
    const terminal = row.entry.state === 'terminal'
    const untouched = state === 'FREE' ? outcomeIn(state) : 'OLDER_THAN_THE_BOOKS'
    expect(because(books)).toEqual([terminal ? 'TERMINAL' : untouched])
  })

  test.each(EVERY_STATE)('%s by a source in dry run: nothing changes, and it says what would', (state) => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      ...STATES[state],
      ...(row.also ?? []),
      source('agent', { state: 'REGISTERED' }),
      lists('agent', row.entry),
    )
    expect(because(books)).toEqual([outcomeIn(state)])
    expect(books.since()).toEqual([])
  })
})

describe('what is written', () => {
  test('of an adoption: whom, where and on which evidence', () => {
    const books = given(pool('a', '10.0.0.0/28'), source('agent'), elapsed(MINUTE))
    lists('agent', entry(SUBJECT, api, { node: 'n3', boot: 'b7' }))(books.ledger)
    books.when(sightOf(books.ledger, 'agent')).then(`lease.adopted ${SUBJECT}`)
    const now = books.ledger.now()
    expect(books.leaseAt(SUBJECT)).toEqual({
      network: 'default',
      poolId: 2,
      address: SUBJECT,
      prefixLength: 32,
      fencingToken: 3,
      version: 3,
      state: 'ACTIVE',
      quarantine: null,
      owner: api,
      placement: { node: 'n3', boot: 'b7', labels: {} },
      witness: '',
      reservedAt: now,
      confirmedAt: now,
      confirmBy: null,
    })
    expect(books.ledger.events.at(-1)!.evidence).toEqual({
      source: 'agent',
      epoch: 'b1',
      sequence: 1,
      head: 2,
      begunAt: new Date(now).toISOString(),
      seen: { address: SUBJECT, owner: api, node: 'n3', boot: 'b7', state: 'running' },
    })
  })

  test('of a conflict: both owners, and the holder keeps its name on it', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      active(SUBJECT, api),
      source('agent'),
      lists('agent', entry(SUBJECT, stranger)),
    )
    because(books)
    expect(books.leaseAt(SUBJECT)).toMatchObject({
      owner: api,
      quarantine: { reason: 'CONFLICT', by: 'agent', why: expect.stringContaining('stranger') },
    })
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ holder: api, seen: { owner: stranger } })
  })

  test('of one that was released: the life that was, so that its Release and its return find it', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      closed(api),
      source('agent'),
      lists('agent', entry(SUBJECT, bare(api))),
    )
    because(books)
    expect(books.leaseAt(SUBJECT)).toMatchObject({ owner: api, quarantine: { reason: 'RELEASED_BUT_LIVE' } })
  })

  test('of a confirmation: the deadline is over', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      reserved(SUBJECT, api, { confirmBy: 1, placement: on('n1', { a: 'b' }) }),
      source('agent'),
      lists('agent', entry(SUBJECT, api)),
    )
    expect(because(books)).toEqual(['CONFIRMED'])
    expect(books.leaseAt(SUBJECT)).toMatchObject({
      state: 'ACTIVE',
      confirmBy: null,
      confirmedAt: books.ledger.now(),
      placement: on('n1', { a: 'b' }),
    })
  })
})

describe('an interface that was not told', () => {
  const past = [pool('a', '10.0.0.0/28'), source('agent')]

  test('is one of its own for each address, which no Reserve reuses', () => {
    const books = given(...past, lists('agent', entry('10.0.0.5', bare(api)), entry('10.0.0.6', bare(api))))
    expect(because(books)).toEqual(['ADOPTED', 'ADOPTED'])
    expect(books.leaseAt('10.0.0.5')!.owner!.interface).toBe('?10.0.0.5')
    expect(books.leaseAt('10.0.0.6')!.owner!.interface).toBe('?10.0.0.6')
    const lease = books.take(reserve({ owner: { ...bare(api), interface: 'eth0' } }))
    expect(lease).toMatchObject({ address: '10.0.0.1', reused: false })
  })

  test('that was told is reused', () => {
    const books = given(...past, lists('agent', entry(SUBJECT, api)))
    because(books)
    expect(books.take(reserve({ owner: api }))).toMatchObject({ address: SUBJECT, reused: true })
  })
})

describe('who is closed', () => {
  const past = [pool('a', '10.0.0.0/26'), source('agent')]
  const seeing = (of: ReturnType<typeof owner>, ...facts: readonly Fact[]) =>
    because(given(...past, ...facts, lists('agent', entry(SUBJECT, of))))

  test('is that until the horizon is over', () => {
    expect(seeing(api, closed(api), elapsed(POLICY.retryHorizonMs - 1))).toEqual(['RELEASED_BUT_LIVE'])
    expect(seeing(api, closed(api), elapsed(POLICY.retryHorizonMs))).toEqual(['ADOPTED'])
  })

  test('and longer while a lease of it is superseded or not removed', () => {
    const aside = [active('10.0.0.9', { ...api, interface: 'eth1' }), closed({ ...api, interface: 'eth1' })]
    const late = [...aside, quarantined('10.0.0.9', 'SUPERSEDED'), elapsed(HOUR)]
    expect(seeing({ ...bare(api) }, ...late)).toEqual(['RELEASED_BUT_LIVE'])
  })

  test('in another pool alone is not closed here', () => {
    const elsewhere = [pool('b', '10.0.1.0/28'), closed(api, 'b')]
    expect(seeing(api, ...elsewhere)).toEqual(['ADOPTED'])
    expect(seeing(api, closed(api, 'a'))).toEqual(['RELEASED_BUT_LIVE'])
  })

  test('in another life or on another interface is not this one, where that is told', () => {
    expect(seeing({ ...api, incarnation: '2' }, closed(api))).toEqual(['ADOPTED'])
    expect(seeing({ ...api, interface: 'eth1' }, closed(api))).toEqual(['ADOPTED'])
    expect(seeing({ ...api, incarnation: '' }, closed(api))).toEqual(['RELEASED_BUT_LIVE'])
    expect(seeing({ ...api, interface: '' }, closed(api))).toEqual(['RELEASED_BUT_LIVE'])
  })

  test('of several that it may be, it is the one that was closed last', () => {
    const lives = ['3', '1', '2'].map((incarnation) => closed({ ...api, incarnation }))
    const books = given(...past, ...lives, lists('agent', entry(SUBJECT, bare(api))))
    expect(because(books)).toEqual(['RELEASED_BUT_LIVE'])
    expect(books.leaseAt(SUBJECT)!.owner!.incarnation).toBe('2')
  })

  test('is known within the batch that closes it', () => {
    const books = given(...past, active('10.0.0.9', api), lists('agent', entry(SUBJECT, bare(api))))
    const seen = sightOf(books.ledger, 'agent')
    const token = books.leaseAt('10.0.0.9')!.fencingToken
    const [, late] = books.ledger.submitBatch([release(token), seen])
    expect(late!.answer!.findings).toEqual([{ address: SUBJECT, because: 'RELEASED_BUT_LIVE' }])
  })

  test('is known also where it was asked for before', () => {
    const books = given(...past, active('10.0.0.9', api), lists('agent', entry(SUBJECT, bare(api))))
    const seen = sightOf(books.ledger, 'agent')
    const token = books.leaseAt('10.0.0.9')!.fencingToken
    const [dry, , late] = books.ledger.submitBatch([{ ...seen, dryRun: true }, release(token), seen])
    expect([dry, late].map((one) => one!.answer!.findings![0]!.because)).toEqual([
      'ADOPTED',
      'RELEASED_BUT_LIVE',
    ])
  })
})

describe('one entry sees what the one before it came to', () => {
  test('two addresses of one owner on one interface', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      source('agent'),
      lists('agent', entry('10.0.0.5', api), entry('10.0.0.6', api)),
    )
    expect(because(books)).toEqual(['ADOPTED', 'SECOND_ADDRESS'])
    expect(books.leaseAt('10.0.0.6')!.owner).toEqual(api)
  })

  test('two owners at one address: the second waits for the next snapshot', () => {
    const both = [entry(SUBJECT, api), entry(SUBJECT, stranger)]
    const books = given(pool('a', '10.0.0.0/28'), source('agent'), lists('agent', ...both))
    expect(because(books)).toEqual(['ADOPTED', 'OLDER_THAN_THE_BOOKS'])
    lists('agent', ...both)(books.ledger)
    expect(because(books)).toEqual(['AS_BOOKED', 'CONFLICT'])
  })
})

describe('evidence that is not good enough', () => {
  const past = [pool('a', '10.0.0.0/28'), source('agent')]

  test('what the source lists no more when the job comes', () => {
    const books = given(...past, lists('agent', entry(SUBJECT, api), entry('10.0.0.6', stranger)))
    const paused = sightOf(books.ledger, 'agent')
    books.wait(MINUTE)
    lists('agent', entry('10.0.0.6', stranger))(books.ledger)
    const { answer } = books.ledger.submit(paused)
    expect(answer!.findings!.map((one) => one.because)).toEqual(['LISTED_NO_MORE', 'ADOPTED'])
    expect(books.leaseAt(SUBJECT)).toBeNull()
  })

  test('what another source lists', () => {
    const books = given(...past, source('other'), lists('other', entry(SUBJECT, api)), lists('agent'))
    const seen = sightOf(books.ledger, 'agent', { entries: [entry(SUBJECT, api)] })
    expect(books.ledger.submit(seen).answer!.findings).toEqual([
      { address: SUBJECT, because: 'LISTED_NO_MORE' },
    ])
  })

  test.each([
    ['an owner', entry(SUBJECT, stranger)],
    ['no owner', entry(SUBJECT, null)],
    ['a node', entry(SUBJECT, api, { node: 'n2' })],
    ['a boot', entry(SUBJECT, api, { boot: 'b2' })],
    ['a life', entry(SUBJECT, { ...api, incarnation: '2' })],
    ['an interface', entry(SUBJECT, { ...api, interface: 'eth1' })],
    ['a name', entry(SUBJECT, { ...api, name: 'other' })],
    ['an address', entry('10.0.0.6', api)],
  ])('what it lists with %s of another entry', (_what, claimed) => {
    const books = given(...past, lists('agent', entry(SUBJECT, api)))
    const seen = sightOf(books.ledger, 'agent', { entries: [claimed] })
    expect(books.ledger.submit(seen).answer!.findings![0]!.because).toBe('LISTED_NO_MORE')
  })

  test('what nothing proves a head of', () => {
    const books = given(...past, lists('agent'), listsPartly('agent', [entry(SUBJECT, api)], null))
    expect(because(books)).toEqual(['NOT_PROVEN'])
    // The next complete snapshot that lists it does.
    lists('agent', entry(SUBJECT, api))(books.ledger)
    expect(because(books)).toEqual(['ADOPTED'])
  })

  test('an epoch that is closed', () => {
    const books = given(...past, lists('agent', entry(SUBJECT, api)))
    const seen = sightOf(books.ledger, 'agent')
    const refusal = books.refuse({ ...seen, epoch: 'b0' }, 'VERSION_MISMATCH')
    expect(refusal.metadata).toMatchObject({ source: 'agent', epoch: 'b1', expected: 'b0' })
  })

  test('another era', () => {
    const books = given(...past, lists('agent', entry(SUBJECT, api)), recovering())
    expect(because(books)).toEqual(['OLDER_THAN_THE_BOOKS'])
    lists('agent', entry(SUBJECT, api))(books.ledger)
    // While it recovers, what is seen is adopted: that is what it recovers by (calico#4374).
    expect(because(books)).toEqual(['ADOPTED'])
    expect(books.leaseAt(SUBJECT)!.fencingToken).toBe(2 ** 40 + 1)
  })

  test('a source that is not there', () => {
    const books = given(pool('a', '10.0.0.0/28'))
    books.refuse(sight('nobody', { entries: [] }), 'SOURCE_NOT_FOUND')
  })

  test('a source that was retired: its sightings are ended', () => {
    const books = given(...past, lists('agent', entry(SUBJECT, api)))
    const seen = sightOf(books.ledger, 'agent')
    source('agent', { state: 'RETIRED' })(books.ledger)
    expect(books.ledger.submit(seen).answer!.findings![0]!.because).toBe('LISTED_NO_MORE')
  })
})

test('a dry run says what would be, and leaves no trace', () => {
  const books = given(
    pool('a', '10.0.0.0/28'),
    source('agent'),
    lists('agent', entry('10.0.0.5', api), entry('10.0.0.6', api)),
  )
  const { answer, events } = books.ledger.submit(sightOf(books.ledger, 'agent', { dryRun: true }))
  expect(events).toEqual([])
  expect(answer).toEqual({
    leases: [],
    findings: [
      { address: '10.0.0.5', because: 'ADOPTED' },
      { address: '10.0.0.6', because: 'SECOND_ADDRESS' },
    ],
  })
})

describe('where there is nothing to hold', () => {
  test.each([
    ['outside all pools', '10.9.0.5', 'OUTSIDE'],
    ['of another family', 'fd00::5', 'OUTSIDE'],
    ['the gateway', '10.0.0.1', 'EXCLUDED'],
    ['an exclusion', '10.0.0.3', 'EXCLUDED'],
    ['the broadcast address', '10.0.0.15', 'EXCLUDED'],
  ])('%s', (_what, address, outcome) => {
    const books = given(
      pool('a', '10.0.0.0/28', { gateway: '10.0.0.1', exclude: ['10.0.0.3'] }),
      source('agent'),
      lists('agent', entry(address, api)),
    )
    expect(because(books)).toEqual([outcome])
    expect(books.since()).toEqual([])
  })

  test('a pool made later finds it (7.1)', () => {
    const books = given(source('agent'), lists('agent', entry(SUBJECT, api)))
    expect(because(books)).toEqual(['OUTSIDE'])
    pool('a', '10.0.0.0/28')(books.ledger)
    expect(because(books)).toEqual(['ADOPTED'])
  })

  test('what the database vetoed stays set aside', () => {
    const books = given(pool('a', '10.0.0.0/28'), source('agent'), lists('agent', entry(SUBJECT, api)))
    books.ledger.setAside.add(SUBJECT)
    expect(because(books)).toEqual(['SET_ASIDE'])
  })
})

describe('inside a delegated block', () => {
  const holder = owner({ kind: 'vm', name: 'db', uid: 'v1' })
  const guest = owner({ name: 'guest', uid: 'g1' })
  const block = (...facts: readonly Fact[]) =>
    given(pool('a', '10.0.0.0/24', { prefixLength: 28 }), source('agent'), ...facts)
  const heldBy = (node: string) => reserved('10.0.0.16', holder, { placement: on(node) })

  test.each([
    ['its holder’s guest on its node', guest, 'n1', 'n1', 'CONFIRMED'],
    ['its holder’s guest, the source names no node', guest, 'n1', '', 'CONFIRMED'],
    ['its holder’s guest, the lease names no node', guest, '', 'n1', 'CONFIRMED'],
    ['its holder on another node', holder, 'n1', 'n2', 'CONFIRMED'],
    ['nobody known on another node', null, 'n1', 'n2', 'CONFIRMED'],
    ['another on another node', guest, 'n1', 'n2', 'CONFLICT'],
  ])('%s', (_who, seen, node, where, outcome) => {
    const books = block(heldBy(node), lists('agent', entry('10.0.0.21', seen, { node: where })))
    expect(because(books)).toEqual([outcome])
    expect(books.leaseAt('10.0.0.16')!.state).toBe(outcome === 'CONFIRMED' ? 'ACTIVE' : 'QUARANTINED')
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ seen: { address: '10.0.0.21' } })
  })

  const other = owner({ name: 'other', uid: 'g2' })
  test.each([
    ['a guest', '10.0.0.21', guest, []],
    ['a guest, interface not told', '10.0.0.21', bare(guest), []],
    ['a guest at its first address', '10.0.0.16', guest, []],
    ['nobody known', '10.0.0.21', null, []],
    ['one that was released', '10.0.0.21', guest, [closed(guest)]],
    ['one that has a block', '10.0.0.21', guest, [active('10.0.0.32', guest)]],
    ['a guest on a boot that was fenced', '10.0.0.21', guest, [fenced('n1', 'b1')]],
    ['one after another', '10.0.0.21', guest, [active('10.0.0.16', holder), released('10.0.0.16')]],
  ] satisfies [string, string, ReturnType<typeof owner> | null, readonly Fact[]][])(
    'that is free, it is set aside and nobody’s: %s (12.1)',
    (_who, address, seen, facts) => {
      const books = block(...facts, lists('agent', entry(address, seen)))
      expect(because(books)).toEqual(['FOREIGN'])
      expect(books.leaseAt('10.0.0.16')).toMatchObject({
        prefixLength: 28,
        state: 'QUARANTINED',
        owner: null,
        quarantine: { reason: 'FOREIGN', why: expect.stringContaining(`at ${address}`) },
      })
      expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ seen: { address, owner: seen } })
    },
  )

  test('that nobody holds, its guests neither keep it from each other nor release it', () => {
    const books = block(lists('agent', entry('10.0.0.21', guest), entry('10.0.0.22', other)))
    expect(because(books)).toEqual(['FOREIGN', 'OLDER_THAN_THE_BOOKS'])
    books.when(releaseOf({ ...guest, incarnation: '1' })).then('attachment.closed g1#1 everywhere')
    expect(books.leaseAt('10.0.0.16')).toMatchObject({ state: 'QUARANTINED', owner: null })
  })
})

describe('a boot that was fenced (6.3)', () => {
  const past = [pool('a', '10.0.0.0/28'), source('agent')]

  test('says nothing by what it listed before', () => {
    const books = given(...past, lists('agent', entry(SUBJECT, api)), fenced('n1', 'b1'))
    expect(because(books)).toEqual(['FENCED'])
    expect(books.since()).toEqual([])
  })

  test('confirms nothing by what it listed before, which would contradict the statement for ever', () => {
    const seen = lists('agent', entry(SUBJECT, api))
    const held = reserved(SUBJECT, api)
    const books = given(...past, held, seen, fenced('n1', 'b1'))
    expect(because(books)).toEqual(['FENCED'])
    expect(books.leaseAt(SUBJECT)).toMatchObject({ state: 'RESERVED', confirmedAt: null })
    // It reports again: the statement was false.
    expect(because(given(...past, held, fenced('n1', 'b1'), seen))).toEqual(['CONFIRMED'])
    expect(because(given(...past, held, seen, fenced('n1', 'b2')))).toEqual(['CONFIRMED'])
  })

  test('says what it listed after the head that the statement is about', () => {
    const books = given(
      ...past,
      fenced('n3', 'b1'),
      fenced('n3', 'b2'),
      lists('agent', entry(SUBJECT, api)),
      (ledger) => fenced('n1', 'b1', ledger.fold().head - 1)(ledger),
    )
    expect(because(books)).toEqual(['RELEASED_BUT_LIVE'])
  })

  test('that lists it again was fenced falsely: it is set aside, and not handed on', () => {
    const books = given(...past, fenced('n1', 'b1'), lists('agent', entry(SUBJECT, api)))
    expect(because(books)).toEqual(['RELEASED_BUT_LIVE'])
    expect(books.leaseAt(SUBJECT)).toMatchObject({
      owner: api,
      quarantine: { why: expect.stringContaining('powered off') },
    })
  })

  test('whoever got its address meanwhile is in conflict', () => {
    const books = given(
      ...past,
      fenced('n1', 'b1'),
      active(SUBJECT, stranger),
      lists('agent', entry(SUBJECT, api)),
    )
    expect(because(books)).toEqual(['CONFLICT'])
  })

  test.each([
    ['another boot', entry(SUBJECT, api, { boot: 'b2' })],
    ['another node', entry(SUBJECT, api, { node: 'n2' })],
    ['a boot that was not told', entry(SUBJECT, api, { boot: '' })],
  ])('is not %s', (_what, seen) => {
    const books = given(...past, fenced('n1', 'b1'), lists('agent', seen))
    expect(because(books)).toEqual(['ADOPTED'])
  })
})

describe('caps of durable quarantines (opnsense#10285)', () => {
  const host = (n: number) => `10.0.${Math.floor(n / 256)}.${n % 256}`
  const strangers = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, n) => entry(host(from + n), null))

  test('of one source: 64 at a time; the others are not recorded, and nobody gets them', () => {
    const books = givenIn(
      { windows: [7] },
      pool('a', '10.0.0.0/20'),
      source('agent'),
      source('other'),
      lists('agent', ...strangers(1, 70)),
    )
    expect(because(books)).toEqual([...Array(64).fill('FOREIGN'), ...Array(6).fill('CAPPED')])
    expect(books.ledger.pool('a').counts.quarantined).toBe(64)
    expect(books.take(reserve({ owner: api })).address).toBe('10.0.0.71')
    // Another source has its own.
    lists('other', entry('10.0.0.80', null))(books.ledger)
    expect(because(books, 'other')).toEqual(['FOREIGN'])
    // Over several commands, in one batch, it is the same cap.
    expect(because(books).filter((one) => one === 'CAPPED')).toHaveLength(6)
  })

  test('of one source has room again when one of its quarantines ends', () => {
    const books = givenIn({ windows: [7] }, pool('a', '10.0.0.0/20'), source('agent'))
    lists('agent', ...strangers(1, 65))(books.ledger)
    because(books)
    const one = books.leaseAt('10.0.0.1')!
    books.accept(reap(one.fencingToken, one.version))
    expect(because(books).at(-1)).toBe('FOREIGN')
  })

  test('of a pool: a tenth of it, and at least one', () => {
    const tenth = given(pool('a', '10.0.0.0/27'), source('agent'), lists('agent', ...strangers(1, 5)))
    expect(because(tenth)).toEqual(['FOREIGN', 'FOREIGN', 'FOREIGN', 'CAPPED', 'CAPPED'])
    const small = given(pool('a', '10.0.0.0/29'), source('agent'), lists('agent', ...strangers(1, 2)))
    expect(because(small)).toEqual(['FOREIGN', 'CAPPED'])
  })

  test('limit conflicts as well: beyond, the lease stays as it is', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      active('10.0.0.1', owner({ name: 'x', uid: 'x1' })),
      active('10.0.0.2', owner({ name: 'y', uid: 'y1' })),
      source('agent'),
      lists('agent', entry('10.0.0.1', stranger), entry('10.0.0.2', bare(stranger))),
    )
    expect(because(books)).toEqual(['CONFLICT', 'CAPPED'])
    expect(books.leaseAt('10.0.0.2')!.state).toBe('ACTIVE')
  })

  test('never limit what is confirmed or adopted', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      quarantined('10.0.0.6', 'FOREIGN', 'agent'),
      reserved('10.0.0.1', api),
      source('agent'),
      lists('agent', entry('10.0.0.1', api), entry('10.0.0.2', stranger)),
    )
    expect(because(books)).toEqual(['CONFIRMED', 'ADOPTED'])
  })
})

test('what all entries miss is asked for at once: each round reads for all of them', () => {
  const books = given(pool('a', '10.0.0.0/24'), source('agent'))
  const fresh = emptyBooks('default')
  fresh.network = books.ledger.fold().network
  fresh.head = 2
  fresh.sources.set('agent', {
    source: 'agent',
    state: 'ENABLED',
    epoch: 'b1',
    warm: true,
    era: 0,
    size: 100,
  })
  const entries = Array.from({ length: 100 }, (_, n) => entry(`10.0.0.${n + 1}`, api))
  const decision = decide(fresh, sight('agent', { entries }))
  expect(decision).toMatchObject({ kind: 'missing', need: { what: 'poolAt' } })
  expect(decision.kind === 'missing' && decision.alike).toHaveLength(99)
})

test('a lease that is sighted is never worse off than set aside', () => {
  for (const state of EVERY_STATE) {
    for (const row of Object.values(TABLE)) {
      const books = given(
        pool('a', '10.0.0.0/28'),
        ...STATES[state],
        ...(row.also ?? []),
        source('agent'),
        lists('agent', row.entry),
      )
      const { events } = books.ledger.submit(sightOf(books.ledger, 'agent'))
      for (const event of events) {
        if (!isHeldEvent(event)) throw new Error(`${event.type} takes something back`)
        expect(['ACTIVE', 'CONFLICT', 'FOREIGN', 'SECOND_ADDRESS', 'RELEASED_BUT_LIVE']).toContain(
          stateOf(event.lease),
        )
      }
    }
  }
})

test('nothing seen live goes to anybody, whatever was recorded of it', () => {
  const books = given(
    pool('a', '10.0.0.0/29'),
    active('10.0.0.6', stranger),
    released('10.0.0.6'),
    elapsed(HOUR),
    source('agent'),
    lists('agent', ...['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.6'].map((one) => entry(one, null))),
  )
  because(books)
  const got = ['x', 'y', 'z'].map((name) => {
    const { answer, refusal } = books.ledger.submit(reserve({ owner: owner({ name }), claims: [claim()] }))
    return answer === null ? refusal!.reason : answer.leases[0]!.address
  })
  expect(got).toEqual(['10.0.0.4', '10.0.0.5', 'POOL_EXHAUSTED'])
})
