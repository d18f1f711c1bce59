/** Lists of LivenessService: filters against a plain loop over everything, pages of any size, tokens that are forged. */
import { beforeAll, describe, expect, test } from 'vitest'
import { encodePage } from '../../src/api/page-token.ts'
import {
  LivenessService,
  type Sighting,
  type Snapshot,
  type Source,
  SourceState,
} from '../../src/gen/ipledger/v1/liveness_pb.ts'
import { MOST_WALKED } from '../../src/liveness/lists.ts'
import { claim, createNetwork, createPool, owner, reserve } from '../support/commands.ts'
import { withClient } from '../support/database.ts'
import { seededRandom } from '../support/random.ts'
import { clientOf, post, told, useServer } from './running.ts'

const running = await useServer()
const liveness = clientOf(LivenessService, running, 'connect binary')

type Asked<F extends (request: never, ...rest: never[]) => unknown> = Parameters<F>[0]

async function walk<P extends { nextPageToken: string }>(
  get: (pageToken: string) => Promise<P>,
): Promise<P[]> {
  const pages: P[] = []
  for (let pageToken = ''; ; ) {
    const page = await get(pageToken)
    pages.push(page)
    pageToken = page.nextPageToken
    if (pageToken === '') return pages
    if (pages.length > 1_000) throw new Error('the list does not end')
  }
}

const sightingPages = (asked: Asked<typeof liveness.listSightings>) =>
  walk((pageToken) => liveness.listSightings({ ...asked, pageToken }))
const listSightings = async (asked: Asked<typeof liveness.listSightings>) =>
  (await sightingPages(asked)).flatMap((page) => page.sightings)

const network = 'lists'
const SOURCES = ['agent-n1', 'agent-n2', 'wide', 'änother source'] as const

/** Enough for each source to be warm for some of them, so that what it does not list ends. */
const LOOKS = 10

const random = seededRandom()
console.log(`seed ${random.seed}`)

const addressOf = (n: number) => (n % 3 === 0 ? `fd00::${n.toString(16)}` : `10.0.0.${n}`)

/** Reports, each of some addresses, so that what is listed comes and goes; looks half a minute apart. */
async function lookAround(): Promise<void> {
  for (const source of SOURCES) {
    const node = source.startsWith('agent') ? source.slice(6) : ''
    await liveness.registerSource({ network, id: source, sight: { ownerKinds: ['pod'], node } })
    for (let look = 0; look < LOOKS; look += 1) {
      const { token } = await liveness.beginSnapshot({ network, source })
      const entries = Array.from({ length: 60 }, (_, n) => n + 1)
        .filter(() => random.chance(0.6))
        .map((n) => ({
          address: addressOf(n),
          kind: 'pod',
          name: `p-${n}`,
          uid: random.chance(0.2) ? 'x' : '',
        }))
      await liveness.reportSnapshot({ network, source, token, epoch: 'e1', complete: look > 0, entries })
      // Half an interval later it is another look; nothing here is in the ledger.
      await withClient(running.database.adminUrl, (admin) =>
        admin.query(
          `update ipledger.source set complete_at = complete_at - interval '1 minute', warming_at = warming_at - interval '1 minute'
            where network_id = $1 and source_id = $2`,
          [network, source],
        ),
      )
    }
  }
}

describe('filters', () => {
  let everything: readonly Sighting[]

  beforeAll(async () => {
    await running.ledger.accept(createNetwork(network))
    await running.ledger.accept(
      createPool({ name: 'nets', cidr: '10.1.0.0/16', prefixLength: 28 }, { network }),
    )
    await lookAround()
    everything = await listSightings({ network, vanished: true, pageSize: 1_000 })
    expect(everything.length).toBeGreaterThan(300)
    expect(everything.filter((one) => !one.listed).length).toBeGreaterThan(100)
  })

  const numberOf = ({ address }: Sighting): bigint =>
    address.includes(':')
      ? (1n << 64n) + BigInt(`0x${address.slice(6)}`)
      : address.split('.').reduce((sum, octet) => (sum << 8n) + BigInt(octet), 0n)

  test('all of them are by address, v4 first, each once', () => {
    const numbers = everything.map(numberOf)
    expect(numbers).toEqual(numbers.toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0)))
    const keys = everything.map((one) =>
      [one.address, one.source, one.owner!.uid, one.appearedSequence].join(),
    )
    expect(new Set(keys).size).toBe(keys.length)
  })

  const FILTERS: readonly (readonly [Asked<typeof liveness.listSightings>, (one: Sighting) => boolean])[] = [
    [{}, (one) => one.listed],
    [{ vanished: true }, () => true],
    [{ source: 'wide' }, (one) => one.source === 'wide' && one.listed],
    [{ source: 'wide', vanished: true }, (one) => one.source === 'wide'],
    [{ source: 'änother source' }, (one) => one.source === 'änother source' && one.listed],
    [{ address: '10.0.0.7' }, (one) => one.address === '10.0.0.7' && one.listed],
    [{ address: 'fd00:0::9', vanished: true }, (one) => one.address === 'fd00::9'],
    [
      { address: '10.0.0.8', source: 'agent-n1', vanished: true },
      (one) => one.address === '10.0.0.8' && one.source === 'agent-n1',
    ],
    [
      { source: 'agent-n2', sequence: 9n, vanished: true },
      (one) => one.source === 'agent-n2' && (one.appearedSequence === 9n || one.vanishedSequence === 9n),
    ],
    [
      { source: 'agent-n2', sequence: 9n },
      (one) => one.source === 'agent-n2' && one.appearedSequence === 9n && one.listed,
    ],
    [{ address: '10.9.9.9' }, () => false],
  ]
  test.each(FILTERS.map(([filter, wanted]) => [filter.source ?? '', filter, wanted] as const))(
    'sightings %s %o',
    async (_, filter, wanted) => {
      const expected = everything.filter(wanted)
      for (const pageSize of [1_000, 7, ...(expected.length < 50 ? [1] : [])]) {
        expect(await listSightings({ network, ...filter, pageSize })).toEqual(expected)
      }
    },
  )

  test('an address of a block that is leased as one stands for the block', async () => {
    const node = owner({ name: 'node-1', kind: 'infrastructure' })
    const block = await running.ledger.take(
      reserve({ owner: node, claims: [claim({ pool: 'nets' })], network }),
    )
    expect(block).toMatchObject({ address: '10.1.0.0', prefixLength: 28 })
    const source = 'wide'
    const entries = ['10.1.0.3', '10.1.0.15', '10.1.0.16'].map((address) => ({
      address,
      kind: 'pod',
      name: address,
    }))
    await liveness.reportSnapshot({ network, source, epoch: 'e1', entries })
    for (const address of ['10.1.0.0', '10.1.0.9']) {
      expect((await listSightings({ network, address })).map((one) => one.address)).toEqual([
        '10.1.0.3',
        '10.1.0.15',
      ])
    }
    expect((await listSightings({ network, address: '10.1.0.16' })).map((one) => one.address)).toEqual([
      '10.1.0.16',
    ])
  })

  test('snapshots, the latest first', async () => {
    const list = async (asked: Asked<typeof liveness.listSnapshots>) =>
      (await walk((pageToken) => liveness.listSnapshots({ network, ...asked, pageToken }))).flatMap(
        (page) => page.snapshots,
      )
    const all: readonly Snapshot[] = await list({ source: 'agent-n1' })
    expect(all.map((one) => Number(one.sequence))).toEqual(
      Array.from({ length: LOOKS }, (_, index) => LOOKS - index),
    )
    expect(all.at(-1)).toMatchObject({ complete: false, because: ['DECLARED'], epoch: 'e1' })
    for (const pageSize of [1, 4]) expect(await list({ source: 'agent-n1', pageSize })).toEqual(all)
    expect(await list({ source: 'agent-n1', sequence: 3n })).toEqual([all.at(-3)])
    expect(await list({ source: 'agent-n1', sequence: 99n })).toEqual([])
    // Without a token they have the number of the one before, and are told apart by their time.
    for (const epoch of ['e2', 'e3', 'e4']) {
      await liveness.reportSnapshot({ network, source: 'agent-n2', epoch, entries: [{ address: epoch }] })
      await liveness.reportSnapshot({ network, source: 'agent-n2', epoch, complete: true })
    }
    const many = await list({ source: 'agent-n2' })
    const last = many.filter((one) => one.sequence === BigInt(LOOKS))
    expect(last.length).toBeGreaterThan(4)
    for (const pageSize of [1, 2, 3]) expect(await list({ source: 'agent-n2', pageSize })).toEqual(many)
    expect(await list({ source: 'agent-n2', sequence: BigInt(LOOKS), pageSize: 1 })).toEqual(last)
  })

  test('sources', async () => {
    await liveness.registerSource({ network, id: 'over', sight: { ownerKinds: ['vm'], node: 'n1' } })
    await liveness.retireSource({ network, id: 'over' })
    await liveness.enableSource({ network, id: 'wide' })
    const list = async (asked: Asked<typeof liveness.listSources>) =>
      (await walk((pageToken) => liveness.listSources({ network, ...asked, pageToken }))).flatMap((page) =>
        page.sources.map((one: Source) => one.id),
      )
    const { REGISTERED, ENABLED, RETIRED } = SourceState
    for (const pageSize of [100, 2, 1]) {
      expect(await list({ pageSize })).toEqual(['agent-n1', 'agent-n2', 'over', 'wide', 'änother source'])
      expect(await list({ pageSize, node: 'n1' })).toEqual(['agent-n1', 'over'])
      expect(await list({ pageSize, node: 'n1', states: [REGISTERED] })).toEqual(['agent-n1'])
      expect(await list({ pageSize, states: [ENABLED, RETIRED] })).toEqual(['over', 'wide'])
      expect(await list({ pageSize, id: 'over' })).toEqual(['over'])
      expect(await list({ pageSize, id: 'over', states: [ENABLED] })).toEqual([])
      expect(await list({ pageSize, id: 'over', node: 'n2' })).toEqual([])
    }
  })
})

test('a page walks a bounded number of sightings, and nothing is skipped where it stops', {
  timeout: 60_000,
}, async () => {
  const large = 'large'
  await running.ledger.accept(createNetwork(large))
  await liveness.registerSource({ network: large, id: 's', sight: { ownerKinds: ['pod'] } })
  await liveness.registerSource({ network: large, id: 'rare', sight: { ownerKinds: ['pod'] } })
  const COUNT = 2 * MOST_WALKED + 500
  await withClient(running.database.adminUrl, (admin) =>
    admin.query(
      `insert into ipledger.sighting
         (network_id, address, source_id, entry_key, appeared_sequence, node, boot, state, live, epoch, appeared_head, appeared_at,
          last_seen_at, vanished_sequence, vanished_head, vanished_at)
       select $1, '255.255.0.0'::inet + i / 2, 's', 'k' || i, 1, '', '', 'live', i % 2 = 0, 'e1', 1, now(),
              case i % 2 when 1 then now() end, case i % 2 when 1 then 2 end, case i % 2 when 1 then 1 end,
              case i % 2 when 1 then now() end
         from generate_series(0, $2::int - 1) i`,
      [large, COUNT],
    ),
  )
  const entries = ['::1:1', '255.255.16.0'].map((address) => ({ address, kind: 'pod', name: address }))
  await liveness.reportSnapshot({ network: large, source: 'rare', epoch: 'e', entries })
  const rare = await sightingPages({ network: large, source: 'rare', vanished: true })
  expect(rare.flatMap((page) => page.sightings.map((one) => one.address))).toEqual(['255.255.16.0', '::1:1'])
  expect(rare.length).toBeGreaterThan(2)
  const all = await listSightings({ network: large, vanished: true, pageSize: 1_000 })
  expect(all).toHaveLength(COUNT + 2)
  const listed = await listSightings({ network: large, source: 's', pageSize: 1_000 })
  expect(listed).toHaveLength(COUNT / 2)
  expect(new Set(listed.map((one) => one.address)).size).toBe(COUNT / 2)
})

describe('page tokens', () => {
  const LISTS = [
    ['ListSources', { network }, ['ListSources', network, null, null, ['REGISTERED', 'ENABLED', 'RETIRED']]],
    ['ListSnapshots', { network, source: 'wide' }, ['ListSnapshots', network, 'wide', null]],
    ['ListSightings', { network }, ['ListSightings', network, null, null, false, null]],
  ] as const

  test.each(LISTS)('%s: a forged position reaches nothing', async (method, body, asked) => {
    const POSITIONS = [
      '\u0000',
      'a\u0000',
      '10.0.0.1',
      '1 x',
      '10.0.0.300 1 k s',
      "1 or 1=1 -- '",
      '9'.repeat(40),
    ]
    for (const position of POSITIONS) {
      const pageToken = encodePage(position, asked)
      const answer = await post(running, `LivenessService/${method}`, { ...body, pageToken })
      // Where it goes on is an id: any text is one.
      if (method === 'ListSources' && !position.includes('\u0000')) expect(answer.status).toBe(200)
      else expect(told(answer)).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'pageToken' } })
    }
    const sound = { ListSources: 'agent', ListSnapshots: '3 1700000000000', ListSightings: '10.0.0.9 1 k s' }[
      method
    ]
    const pageToken = encodePage(sound, asked)
    expect((await post(running, `LivenessService/${method}`, { ...body, pageToken })).status).toBe(200)
  })

  test.each(LISTS)('%s: a token of another list is refused', async (method, body, asked) => {
    const pageToken = encodePage('x', [...asked, 'other'])
    const answer = await post(running, `LivenessService/${method}`, { ...body, pageToken })
    expect(told(answer)).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'pageToken' } })
  })
})
