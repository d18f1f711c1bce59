/** What waits for a person: of the network and its sources, of leases, and of what is listed and has no lease. */
import { describe, expect, test } from 'vitest'
import {
  type Attention,
  AttentionList,
  attentionOf,
  coverageOf,
  currentReports,
  type Findings,
  placedBefore,
  recoveryEnd,
  recoveryOf,
  sourceStatus,
  suspensionsOf,
  witnessesOf,
} from '../../src/core/attention.ts'
import { isHeld } from '../../src/core/image.ts'
import { POLICY } from '../../src/core/policy.ts'
import { attentionToLeases } from '../../src/ledger/read-attention.ts'
import { played } from '../support/stored-scene.ts'
import {
  after,
  boundTo,
  command,
  enable,
  HOUR,
  lists,
  MINUTE,
  network,
  on,
  pool,
  quarantine,
  register,
  release,
  reserve,
  type Scene,
  SECOND,
  type Step,
  source,
} from './given.ts'

const KEPT = 'nothing that it watches is taken back'
const NOTHING: Findings = { lookUps: [], differences: [] }

async function waiting(
  { image, now, freshness }: Scene,
  found: Partial<Findings> = {},
  page: ConstructorParameters<typeof AttentionList>[0] = {},
): Promise<readonly Attention[]> {
  const list = new AttentionList(page)
  const present = { image, now, freshness: (id: string) => freshness.get(id), ...NOTHING, ...found }
  for (const one of attentionOf(present)) list.add(one)
  for await (const items of attentionToLeases(image)) for (const one of items) list.add(one)
  return list.items()
}

const called = (id: string) => command({ type: 'unknownSource', source: id })
const partialOf = (id: string) => lists(id, [], { complete: false })

const codesOf = async (scene: Scene, found: Partial<Findings> = {}) =>
  (await waiting(scene, found)).map(({ code, source: id, address, count }) =>
    [code, id, address, count === 1 ? '' : count].join(' ').trim(),
  )
/** Sources of other nodes are silent meanwhile. */
const ofLeases = async (scene: Scene) => (await codesOf(scene)).filter((one) => !one.startsWith('SOURCE_'))
const textOf = async (scene: Scene, code: string) =>
  (await waiting(scene)).find((one) => one.code === code)?.text

const era = command({ type: 'beginEra', above: 9, recovering: true, why: 'restored' })

describe('what suspends', () => {
  const room: Step = [network, pool('10.0.0.0/28')]
  const hold = (cause: string, more: object = {}) =>
    command({ type: 'hold', hold: cause, why: 'so', ...more })
  test.each<[string, Step, readonly unknown[]]>([
    ['nothing', room, [[], [], []]],
    ['a recovery that its sources end', [room, source('s'), era], [[1_000], [1_000], [1_000]]],
    ['a recovery without sources', [room, era], [[null], [null], [null]]],
    ['a source ahead', [room, hold('SOURCE_AHEAD')], [[null], [null], [null]]],
    ['a clock that was set', [room, hold('CLOCK', { stepMs: 3_000 }), after(SECOND)], [[], [2_000], [2_000]]],
    ['… and has caught up', [room, hold('CLOCK', { stepMs: 3_000 }), after(4 * SECOND)], [[], [0], [0]]],
    ['too many reaps', [room, hold('TOO_MANY_REAPS')], [[], [], [null]]],
    ['two', [room, source('s'), era, hold('SOURCE_AHEAD')], Array(3).fill([1_000, null])],
  ])('%s: each use, and when to try again', (_, step, expected) => {
    const { image, now } = played(step)
    const uses = ['RESERVE', 'REAP', 'REAP_ABSENT'] as const
    expect(
      uses.map((use) => suspensionsOf(image, now, use).map((suspension) => suspension.retryAfterMs)),
    ).toEqual(expected)
  })
})

describe('a recovery', () => {
  const room: Step = [network, pool('10.0.0.0/28')]
  test.each<[string, Step, number]>([
    ['for its least time', room, POLICY.recoveryMs],
    ['as long as a pool promises', [room, pool('10.1.0.0/28', { name: 'b', confirmWithinMs: HOUR })], HOUR],
    ['as long as a lease promises', [room, reserve('a/1', { confirmWithinMs: 2 * HOUR })], 2 * HOUR],
    [
      'not for one in quarantine',
      [room, reserve('a/1', { confirmWithinMs: HOUR }), quarantine('10.0.0.1')],
      POLICY.recoveryMs,
    ],
  ])('goes on %s', (_, step, lasts) => {
    const { image, now } = played(step, era)
    expect(recoveryEnd(image)).toBe(now + lasts)
    expect(recoveryEnd(played(step).image)).toBe(0)
  })

  const promise = reserve('a/1', { confirmWithinMs: HOUR })
  const warm: Step = [room, source('s'), lists('s', []), lists('s', [])]
  const twice: Step = [lists('s', []), lists('s', [])]
  test.each<[string, Step, readonly string[], readonly string[]]>([
    ['counts nothing of the era before', [warm, era], ['s'], []],
    ['… and one report is too few', [warm, era, after(HOUR), lists('s', [])], ['s'], []],
    ['… and two are too early', [warm, era, twice], ['s'], []],
    [
      '… until the last was begun in time',
      [warm, source('t'), promise, era, twice, twice, after(HOUR), twice],
      ['t'],
      [],
    ],
    ['waits for one that calls and never reported', [warm, era, called('c'), register('c')], ['s'], ['c']],
    ['waits for no source that is retired', [warm, command({ type: 'retireSource', id: 's' }), era], [], []],
    ['… nor for one in dry run', [room, source('s'), register('d'), era], ['s'], []],
    ['waits for who calls and is not known', [warm, era, called('c')], ['s'], ['c']],
    [
      '… and has sent no complete list',
      [warm, era, called('c'), register('c'), partialOf('c')],
      ['s'],
      ['c'],
    ],
    ['… until it has', [warm, era, called('c'), register('c'), lists('c', [])], ['s'], []],
    ['… or is enabled', [warm, era, called('c'), register('c'), enable('c')], ['s', 'c'], []],
  ])('%s', (_, step, unreported, unknown) => {
    const { image, now, freshness } = played(step)
    const recovery = recoveryOf({ image, now, freshness: (id) => freshness.get(id) })
    expect(recovery).toMatchObject({ unreported, unknown })
  })

  test('is none in another time', () => {
    const { image, now } = played(warm)
    expect(recoveryOf({ image, now, freshness: () => undefined })).toBeNull()
  })
})

test('a hold and a recovery name the command that ends them', () => {
  const scene = played(
    network,
    source('s'),
    era,
    command({ type: 'hold', hold: 'CLOCK', why: 'so', stepMs: 3_000 }),
  )
  const { image } = played(network, era, command({ type: 'hold', hold: 'SOURCE_AHEAD', why: 'so' }))
  const texts = [...suspensionsOf(scene.image, scene.now, 'REAP'), ...suspensionsOf(image, 0, 'REAP')].map(
    ({ text }) => text,
  )
  const until = new Date(scene.image.network!.holds.CLOCK!.details.until!).toISOString()
  expect(texts).toEqual([
    expect.stringMatching(
      /nothing is handed out or taken back until every enabled source .*: ipledger network get net$/,
    ),
    `network net is held (CLOCK): so. Nothing is taken back until ${until}, or until an operator ends the hold: ipledger network resume net --why …`,
    expect.stringMatching(
      /because no source is enabled, only an operator ends that: ipledger recover --end net$/,
    ),
    'network net is held (SOURCE_AHEAD): so. Nothing is handed out or taken back until an operator ends the hold: ipledger recover net, or ipledger network resume net --why …',
  ])
})

test('what was placed on a node, and is held, and what of it its source lists', () => {
  const { image } = played(
    [network, pool('10.0.0.0/28'), source('n1', { node: 'n1' }), source('all')],
    ['x/1', 'y/1', 'z/1', 'q/1'].map((who) => reserve(who, { node: 'n1', confirmed: true })),
    [reserve('w/1', { node: 'n2', confirmed: true }), release('z/1')],
    [
      lists('n1', ['x/1@10.0.0.1', 'q/1@10.0.0.4']),
      lists('n1', ['x/1@10.0.0.1']),
      lists('all', ['y/1@10.0.0.2']),
    ],
  )
  const of = (id: string) => placedBefore(image, image.sources.get(id)!)
  expect([of('n1'), of('all')]).toEqual([
    { placed: 3, listed: 1 },
    { placed: 0, listed: 0 },
  ])
})

test.each<[string, Step, readonly string[]]>([
  ['who listed its owner, of whatever kind it is a source', lists('pods', ['x/1@10.0.0.1']), ['pods']],
  ['not who listed another', lists('pods', ['y/1@10.0.0.1']), []],
  ['not the source that listed an unknown owner', lists('pods', ['?@10.0.0.1']), []],
  ['of what nobody holds, who listed anything', lists('pods', ['?@10.0.0.2']), ['pods']],
])('a witness is %s', (_, list, ids) => {
  const room: Step = [network, pool('10.0.0.0/28'), source('pods', { ownerKinds: ['pod'], families: [6, 4] })]
  const { image } = played(room, reserve('x/1', { node: 'n1', confirmed: true }), list)
  const record = image.records.get('10.0.0.2') ?? image.records.get('10.0.0.1')
  expect(isHeld(record) && [...witnessesOf(image, record, () => [])]).toEqual(ids)
})

test.each<[string, Step, readonly string[], string?]>([
  ['the whole network, and its node', [source('all'), source('n1', { node: 'n1' })], ['all', 'n1']],
  ['none of another node', [source('n2', { node: 'n2' })], []],
  ['none in dry run', [register('d')], []],
  ['none that is retired', [source('r'), command({ type: 'retireSource', id: 'r' })], []],
  ['none of another kind', [source('p', { ownerKinds: ['pod'] })], []],
  ['none of the other family', [source('v6', { families: [6] })], []],
  ['the whole network once, if it is on no node', [source('all')], ['all'], ''],
])('a lease is covered by %s', (_, sources, ids, node = 'n1') => {
  const { image } = played(network, pool('10.0.0.0/28'), sources, reserve('x/1', { node }))
  const record = image.records.get('10.0.0.1')
  const covering = isHeld(record) ? coverageOf(image)(record) : []
  expect(covering.map(({ declaration }) => declaration.id)).toEqual(ids)
})

describe('of sources', () => {
  const one = [network, pool('10.0.0.0/28'), source('s')]
  const good: Step = [one, lists('s', []), lists('s', []), lists('s', [])]
  const partial = partialOf('s')

  test.each<[string, Step, string]>([
    ['that never reported', [network, register('s'), enable('s')], 'COLD'],
    ['… for two intervals', [network, register('s'), enable('s'), after(MINUTE + 1)], 'SILENT'],
    ['with complete lists', [good], 'GOOD'],
    ['… two intervals ago', [good, after(MINUTE)], 'GOOD'],
    ['… longer ago', [good, after(MINUTE + 1)], 'SILENT'],
    ['whose last lists are partial', [good, partial], 'GOOD'],
    ['… for two intervals', [good, after(MINUTE), partial, after(SECOND)], 'PARTIAL'],
    ['whose first list is partial', [network, register('s'), enable('s'), partial], 'PARTIAL'],
    ['in a new era', [good, era], 'COLD'],
  ])('%s: %s', (_, step, status) => {
    const { image, now, freshness } = played(step)
    const { era } = image.network!
    expect(sourceStatus(image.sources.get('s')!, freshness.get('s'), { era, now })).toBe(status)
  })
})

test.each<[string, Step, string, number, string]>([
  ['not since it was registered', [enable('s'), after(SECOND)], 'COLD', SECOND, KEPT],
  ['… but since its epoch began', [enable('s'), lists('s', []), after(SECOND)], 'COLD', SECOND, KEPT],
  ['not since it was enabled', [enable('s'), lists('s', []), after(HOUR)], 'SILENT', HOUR, KEPT],
  [
    'since its first partial list',
    [enable('s'), partialOf('s'), lists('s', [], { complete: false, because: ['a', 'b'] }), after(SECOND)],
    'PARTIAL',
    31 * SECOND,
    `${KEPT} (a, b)`,
  ],
])('a source is as it is %s', async (_, step, status, since, text) => {
  const scene = played(network, register('s'), after(SECOND), step)
  const [one] = await waiting(scene)
  expect([one!.code, scene.now - one!.since]).toEqual([`SOURCE_${status}`, since])
  expect(one!.text.endsWith(text)).toBe(true)
})

test('reports of another epoch say nothing of this one', () => {
  const { image, freshness } = played(network, source('s'))
  const fresh = { ...freshness.get('s')!, epoch: 'e0' }
  expect(currentReports(0, image.sources.get('s')!, fresh)).toBeUndefined()
})

describe('of a network', () => {
  test('the worst first, one for each code and source, with the oldest of many', async () => {
    const scene = played(
      [
        network,
        pool('10.0.0.0/24'),
        source('n1', { node: 'n1' }),
        source('n2', { node: 'n2' }),
        register('d'),
      ],
      [3, 1, 2].map((n) => [reserve(`x${n}`, { claims: [{ address: `10.0.0.${n}` }] }), after(SECOND)]),
      [
        quarantine('10.0.0.9'),
        command({ type: 'hold', hold: 'TOO_MANY_REAPS', why: 'test' }),
        after(2 * MINUTE),
      ],
    )
    const differences = [
      { message: 'one', foundAt: 1 },
      { message: 'two', foundAt: 2 },
    ]
    expect(await codesOf(scene, { differences })).toEqual([
      'PROJECTION_DIFFERS   2',
      'HELD',
      'SOURCE_SILENT n1',
      'SOURCE_SILENT n2',
      'OPERATOR_ONLY  10.0.0.9',
      'NO_WITNESS  10.0.0.3 3',
    ])
  })

  test('each lease and address, in pages', async () => {
    const scene = played(
      [network, pool('10.0.0.0/24'), source('n1', { node: 'n1' }), quarantine('10.0.0.9')],
      Array.from({ length: 12 }, (_, i) => reserve(`x${i}`)),
      command({ type: 'hold', hold: 'TOO_MANY_REAPS', why: 'test' }),
    )
    const seen: string[] = []
    for (let after = ''; ; ) {
      const items = await waiting(scene, {}, { isEach: true, after, size: 3 })
      if (items.length === 0) break
      seen.push(...items.map(({ address }) => address))
      after = new AttentionList({ isEach: true }).positionOf(items.at(-1)!)
    }
    const leases = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]
    expect(seen).toEqual(['', ...[9, ...leases].map((last) => `10.0.0.${last}`)])
  })

  test.each([POLICY.unknownSources - 1, POLICY.unknownSources])(
    'a recovery with %i unknown sources says which it waits for',
    async (count) => {
      const ids = Array.from({ length: count }, (_, i) => `c${i}`)
      const scene = played([network, source('s'), era], ids.map(called))
      const text = await textOf(scene, 'NETWORK_RECOVERING')
      const isFull = count === POLICY.unknownSources
      expect(text?.includes(`because ${count} unknown sources have called, only an operator`)).toBe(isFull)
      expect((await codesOf(scene)).filter((one) => one.startsWith('SOURCE_UNKNOWN'))).toHaveLength(count)
    },
  )

  test('of the sources that called, those that are not known yet', async () => {
    const scene = played(
      [network, source('s'), era, called('c'), register('c'), lists('c', [])],
      boundTo('n9', called('d')),
    )
    expect((await codesOf(scene)).filter((one) => one.startsWith('SOURCE_UNKNOWN'))).toEqual([
      'SOURCE_UNKNOWN d',
    ])
    expect(await textOf(scene, 'SOURCE_UNKNOWN')).toMatch(/ \(it called from node n9\)$/)
  })

  test('look-ups that fail, of leases that have not changed since', async () => {
    const scene = played(network, pool('10.0.0.0/28'), reserve('a'), reserve('b'))
    const asked = {
      source: 's',
      answer: 'error',
      terminalSince: null,
      detail: 'timed out',
      askedAt: 1,
      attempts: 3,
    } as const
    const { head } = scene.image
    const lookUps = ['a', 'b'].map((name, at) => ({
      ...asked,
      address: `10.0.0.${at + 1}`,
      owner: { kind: 'container', name, uid: name },
      head: head - 1,
    }))
    expect(await codesOf(scene, { lookUps })).toEqual(['LOOKUP_FAILING s 10.0.0.1'])
  })
})

describe('without a witness', () => {
  test('is a lease that moved off the node of its only source', async () => {
    const scene = played(
      [network, pool('10.0.0.0/28'), source('n1', { node: 'n1' })],
      reserve('x/1', { node: 'n1', confirmed: true }),
      lists('n1', ['x/1@10.0.0.1']),
      lists('n1', []),
      reserve('x/1', { node: 'n2', confirmed: true }),
    )
    expect(scene.image.records.get('10.0.0.1')).toMatchObject({ state: 'ACTIVE', node: 'n2' })
    expect(await ofLeases(scene)).toEqual(['NO_WITNESS  10.0.0.1'])
  })

  const lone: Step = [network, pool('10.0.0.0/28'), source('n1', { node: 'n1' })]
  test.each<[string, Step, readonly string[]]>([
    ['is none where no source is enabled', [network, pool('10.0.0.0/28'), reserve('x/1')], []],
    ['is none with a promise to confirm', [lone, reserve('x/1', { confirmWithinMs: MINUTE })], []],
    ['is no infrastructure', [lone, reserve('infrastructure:x')], []],
    ['is none that its source covers', [lone, reserve('x/1', { node: 'n1' })], []],
    ['is a quarantine, too', [lone, reserve('x/1'), release('x/1', 'UNCONFIRMED')], ['NO_WITNESS  10.0.0.1']],
  ])('%s', async (_, step, codes) => {
    expect(await ofLeases(played(step))).toEqual(codes)
  })
})

describe('what nodes list of others', () => {
  const nodes: Step = [source('n1', { node: 'n1' }), source('n2', { node: 'n2' })]

  test('a held address for somebody else: both nodes and both owners are named', async () => {
    const scene = played(
      [network, pool('10.0.0.0/28'), nodes],
      reserve('x/1', { node: 'n1', confirmed: true }),
      reserve('w/1', { node: 'n1', confirmed: true }),
      lists('n2', ['y/1@10.0.0.1', 'w/1@10.0.0.2']),
    )
    expect(await ofLeases(scene)).toEqual(['LISTED_ELSEWHERE n2 10.0.0.1'])
    expect(await textOf(scene, 'LISTED_ELSEWHERE')).toBe(
      "n2 lists another owner at the address of another node's lease: container x incarnation 1 (eth0) holds 10.0.0.1 on node n1 and keeps every right, and container y incarnation 1 (eth0) is listed there on node n2; end one of the two",
    )
  })

  const free = (from: number, count: number) =>
    Array.from({ length: count }, (_, index) => `reserve:free@10.0.0.${from + index}`)

  const x = reserve('x/1', { node: 'n1', confirmed: true })
  test.each<[string, Step, Step]>([
    ['an unknown owner', x, lists('n2', ['?@10.0.0.1'])],
    ['another no more', x, [lists('n2', ['y/1@10.0.0.1']), lists('n2', [])]],
    ['another, and sees the whole network', x, [source('all'), lists('all', ['y/1@10.0.0.1'])]],
    ['what is in no pool', x, lists('n2', ['y/1@192.168.0.1'])],
    ['free addresses no more', x, [lists('n2', free(1, 65)), lists('n2', [])]],
    [
      'another inside a block',
      [
        pool('10.1.0.0/24', { name: 'blocks', prefixLength: 28 }),
        reserve('x/1', { node: 'n1', confirmed: true, claims: [{ pools: ['blocks'] }] }),
      ],
      lists('n2', ['y/1@10.1.0.0']),
    ],
  ])('not %s', async (_, held, listed) => {
    expect(await ofLeases(played(network, pool('10.0.0.0/24'), nodes, held, listed))).toEqual([])
  })

  test('the least limit of the pools counts', async () => {
    const pools = [pool('10.0.0.0/24', { nodeLimit: 2 }), pool('10.1.0.0/24', { name: 'other' })]
    const list = ['reserve:free@10.0.0.1', ...[1, 2].map((n) => `reserve:free@10.1.0.${n}`)]
    expect(await ofLeases(played(network, ...pools, nodes, lists('n2', list)))).toEqual([
      'LISTS_FREE_ADDRESSES n2 10.0.0.1 3',
    ])
  })

  test('a lease of no node is said to be on none', async () => {
    const scene = played(
      network,
      pool('10.0.0.0/28'),
      nodes,
      reserve('x/1', { confirmed: true }),
      lists('n2', ['y/1@10.0.0.1']),
    )
    expect(await textOf(scene, 'LISTED_ELSEWHERE')).toContain('holds 10.0.0.1 on no node and keeps')
  })

  test.each([
    [64, {}, []],
    [65, {}, ['LISTS_FREE_ADDRESSES n2 10.0.0.1 65']],
    [2, { nodeLimit: 2 }, []],
    [3, { nodeLimit: 2 }, ['LISTS_FREE_ADDRESSES n2 10.0.0.1 3']],
  ])('%i free addresses, settings %o: %o', async (count, settings, codes) => {
    const scene = played([network, pool('10.0.0.0/24', settings), nodes], lists('n2', free(1, count)))
    expect(await ofLeases(scene)).toEqual(codes)
  })

  test("a node at its pool's limit lists what it may not adopt", async () => {
    const full = [
      [network, pool('10.0.0.0/24', { nodeLimit: 2 }), nodes],
      reserve('a/1', { node: 'n2', confirmed: true }),
      reserve('b/1', { node: 'n2', confirmed: true }),
    ]
    expect(await ofLeases(played(...full))).toEqual([])
    const list = lists('n2', ['a/1@10.0.0.1', 'b/1@10.0.0.2', 'c/1@10.0.0.3'])
    expect(await ofLeases(played(...full, list))).toEqual(['NODE_LIMIT n2 10.0.0.3'])
    // On its word: c was adopted before, and holds one of two.
    const spoken = played(
      [network, pool('10.0.0.0/24', { nodeLimit: 2 }), nodes],
      boundTo('n2', reserve('a/1', { liveAddresses: ['10.0.0.1'], confirmed: true })),
      lists('n2', ['d/1@10.0.0.9']),
    )
    expect(await ofLeases(spoken)).toContain('NODE_LIMIT n2 10.0.0.9')
    const wide = played(...full, source('cluster'), on('n2', lists('cluster', ['c/1@10.0.0.3'])))
    expect(await ofLeases(wide)).toEqual(['NODE_LIMIT cluster 10.0.0.3'])
    expect(await textOf(wide, 'NODE_LIMIT')).toMatch(/ \(node n2 holds 2 of pool pool\)$/)
  })
})
