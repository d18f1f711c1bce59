/** What waits for a person: of the network and its sources, of leases, and of what is listed and has no lease. */
import { describe, expect, test } from 'vitest'
import {
  type Attention,
  AttentionList,
  attentionOf,
  type Findings,
  sourceStatus,
} from '../../src/core/attention.ts'
import { POLICY } from '../../src/core/policy.ts'
import { attentionToLeases } from '../../src/ledger/read-attention.ts'
import { played } from '../support/stored-scene.ts'
import {
  after,
  boundTo,
  command,
  enable,
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

const codesOf = async (scene: Scene, found: Partial<Findings> = {}) =>
  (await waiting(scene, found)).map(({ code, source: id, address, count }) =>
    [code, id, address, count === 1 ? '' : count].join(' ').trim(),
  )
/** Sources of other nodes are silent meanwhile. */
const ofLeases = async (scene: Scene) => (await codesOf(scene)).filter((one) => !one.startsWith('SOURCE_'))
const textOf = async (scene: Scene, code: string) =>
  (await waiting(scene)).find((one) => one.code === code)?.text

describe('of sources', () => {
  const one = [network, pool('10.0.0.0/28'), source('s')]
  const good: Step = [one, lists('s', []), lists('s', []), lists('s', [])]
  const partial = lists('s', [], { complete: false })

  test.each<[string, Step, string]>([
    ['that never reported', [network, register('s'), enable('s')], 'COLD'],
    ['… for two intervals', [network, register('s'), enable('s'), after(MINUTE + 1)], 'SILENT'],
    ['with complete lists', [good], 'GOOD'],
    ['… two intervals ago', [good, after(MINUTE)], 'GOOD'],
    ['… longer ago', [good, after(MINUTE + 1)], 'SILENT'],
    ['whose last lists are partial', [good, partial], 'GOOD'],
    ['… for two intervals', [good, after(MINUTE), partial, after(SECOND)], 'PARTIAL'],
    ['whose first list is partial', [network, register('s'), enable('s'), partial], 'PARTIAL'],
    [
      'in a new era',
      [good, command({ type: 'beginEra', above: 0, recovering: true, why: 'restored' })],
      'COLD',
    ],
  ])('%s: %s', (_, step, status) => {
    const { image, now, freshness } = played(step)
    const { era } = image.network!
    expect(sourceStatus(image.sources.get('s')!, freshness.get('s'), { era, now })).toBe(status)
  })
})

describe('of a network', () => {
  test('the worst first, one for each code and source, with the oldest of many', async () => {
    const scene = played(
      [network, pool('10.0.0.0/24'), source('n1', { node: 'n1' }), source('n2', { node: 'n2' })],
      ['a', 'b', 'c'].map((who) => [reserve(who), after(SECOND)]),
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
      'NO_WITNESS  10.0.0.1 3',
    ])
  })

  test('each lease and address, in pages', async () => {
    const scene = played(
      [network, pool('10.0.0.0/24'), source('n1', { node: 'n1' }), quarantine('10.0.0.9')],
      Array.from({ length: 12 }, (_, i) => reserve(`x${i}`)),
    )
    const seen: string[] = []
    for (let after = ''; ; ) {
      const items = await waiting(scene, {}, { isEach: true, after, size: 3 })
      if (items.length === 0) break
      seen.push(...items.map(({ address }) => address))
      after = new AttentionList({ isEach: true }).positionOf(items.at(-1)!)
    }
    const leases = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]
    expect(seen).toEqual([9, ...leases].map((last) => `10.0.0.${last}`))
  })

  test.each([POLICY.unknownSources - 1, POLICY.unknownSources])(
    'a recovery with %i unknown sources says which it waits for',
    async (count) => {
      const ids = Array.from({ length: count }, (_, i) => `c${i}`)
      const scene = played(
        [network, source('s'), command({ type: 'beginEra', above: 9, recovering: true, why: 'restored' })],
        ids.map((id) => command({ type: 'unknownSource', source: id })),
      )
      const text = await textOf(scene, 'NETWORK_RECOVERING')
      const isFull = count === POLICY.unknownSources
      expect(text?.includes(`because ${count} unknown sources have called, only an operator`)).toBe(isFull)
      expect((await codesOf(scene)).filter((one) => one.startsWith('SOURCE_UNKNOWN'))).toHaveLength(count)
    },
  )

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
