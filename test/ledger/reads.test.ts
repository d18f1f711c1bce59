import assert from 'node:assert/strict'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type Cidr, isMalformed, parseCidr } from '../../src/core/address.ts'
import { addressValue } from '../../src/core/image.ts'
import { createReads } from '../../src/ledger/reads.ts'
import type { EventFilter, LeaseFilter, Reads } from '../../src/ledger/reads-types.ts'
import { createPool } from '../../src/postgres/connect.ts'
import {
  after,
  command,
  confirm,
  enable,
  HOUR,
  lists,
  MINUTE,
  network,
  pool,
  quarantine,
  register,
  release,
  reserve,
  type Scene,
  START,
} from '../core/given.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { NETWORK, played, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const connections = createPool({ url: database.serviceUrl, applicationName: 'test', max: 4 })
afterAll(() => connections.end())
const reads: Reads = createReads(connections)

const POOL = [{ pools: ['pool'] }]
const BLOCKS = { name: 'blocks', prefixLength: 28, isDefault: false }
let scene: Scene

beforeAll(async () => {
  scene = played(
    network,
    pool('10.0.0.0/24', { isDefault: true, cooldownMs: HOUR, labels: { tier: 'web' } }),
    pool('10.1.0.0/24', BLOCKS),
    pool('fd00::/64', { name: 'six' }),
    reserve('a/1', { node: 'n1', labels: { app: 'x' }, claims: POOL }),
    reserve('b/1', { node: 'n2', confirmWithinMs: MINUTE, claims: POOL }),
    confirm('b/1'),
    reserve('c/1', { claims: [{ pools: ['blocks'] }] }),
    reserve('d/1', { claims: [{ pools: ['six'] }] }),
    after(MINUTE),
    release('a/1'),
    reserve('e/1', { claims: [{ address: '10.0.0.9' }] }),
    release('e/1'),
    quarantine('10.0.0.77'),
    register('agent', { node: 'n1' }),
    enable('agent'),
    lists('agent', []),
    lists('agent', []),
    lists('agent', ['z/1@10.0.0.50', '?@10.1.0.40', 'b/1@10.0.0.2']),
    lists('agent', ['z/1@10.0.0.50', '?@10.1.0.40', 'b/1@10.0.0.2']),
    command({ type: 'hold', hold: 'TOO_MANY_REAPS', why: 'test' }),
  )
  await withClient(database.adminUrl, (client) => storeScene(client, scene))
})

const ANY: LeaseFilter = {
  states: [],
  quarantineReasons: [],
  ownerKind: null,
  ownerName: null,
  ownerUid: null,
  node: null,
  labels: {},
  pools: [],
  cidr: null,
}
const ALL: EventFilter = {
  afterSeq: 0,
  beforeSeq: null,
  from: null,
  to: null,
  address: null,
  cidr: null,
  ownerKind: null,
  ownerName: null,
  token: null,
  types: [],
}
const FIRST = { descending: false, size: 100, position: null }
const ALL_TIMES = { afterSeq: 0, beforeSeq: null, from: null, to: null }

function cidr(text: string): Cidr {
  const parsed = parseCidr(text)
  if (isMalformed(parsed)) throw new Error(parsed.malformed)
  return parsed
}

async function leases(filter: Partial<LeaseFilter>): Promise<readonly string[]> {
  const page = await reads.leases(NETWORK, { ...ANY, ...filter }, { after: null, size: 100 })
  return page!.leases.map(({ address }) => address)
}

describe('networks and pools', () => {
  test('a network is as the log left it', async () => {
    const found = await reads.network(NETWORK)
    assert.deepEqual(found!.network, scene.image.network)
    assert.equal(found!.head, scene.image.head)
    assert.equal(found!.digest.length, 64)
    assert.equal(await reads.network('other'), null)
    assert.deepEqual(await reads.networks({ labels: { a: 'b' }, only: null, after: null, limit: 10 }), [])
    assert.equal((await reads.networks({ labels: {}, only: null, after: null, limit: 10 })).length, 1)
    assert.equal(await reads.recovery(NETWORK), null)
    assert.deepEqual(await reads.condition(), { recovering: 0, held: 1 })
  })

  test('the parts of a pool are its size', async () => {
    const { pools, head } = (await reads.pools(NETWORK, { limit: 10 }))!
    assert.equal(head, scene.image.head)
    assert.deepEqual(
      pools.map(({ pool: { name } }) => name),
      ['blocks', 'pool', 'six'],
    )
    for (const { usage, pool: found } of pools) {
      const { free, cooling, reserved, active, quarantined, size, allocatable } = usage
      assert.equal(free + cooling + reserved + active + quarantined + (size - allocatable), size)
      assert.deepEqual(found, scene.image.pools.get(found.poolId)!.pool)
    }
    const { usage } = (await reads.pools(NETWORK, { name: 'pool', limit: 1 }))!.pools[0]!
    // The test's clock is in the past: what cooled then is free by now.
    assert.deepEqual(usage, {
      size: 256n,
      allocatable: 254n,
      free: 251n,
      cooling: 0n,
      reserved: 0n,
      active: 2n,
      quarantined: 1n,
    })
    assert.equal((await reads.pools(NETWORK, { labels: { tier: 'web' }, limit: 10 }))!.pools.length, 1)
    assert.equal((await reads.pools(NETWORK, { cidr: cidr('10.1.0.128/25'), limit: 10 }))!.pools.length, 1)
    assert.equal((await reads.pools(NETWORK, { after: 'pool', limit: 10 }))!.pools[0]!.pool.name, 'six')
    assert.deepEqual((await reads.pools(NETWORK, { name: 'none', limit: 1 }))!.pools, [])
    assert.equal(await reads.pools('other', { limit: 1 }), null)
  })
})

describe('leases', () => {
  test('by every filter', async () => {
    const held = [...scene.image.records.values()].filter(({ state }) => state !== 'FREE')
    assert.equal((await leases({})).length, held.length)
    assert.deepEqual(await leases({ states: ['QUARANTINED'] }), ['10.0.0.77', '10.1.0.32'])
    assert.deepEqual(await leases({ quarantineReasons: ['OPERATOR'] }), ['10.0.0.77'])
    assert.deepEqual(await leases({ ownerName: 'b' }), ['10.0.0.2'])
    assert.deepEqual(await leases({ ownerName: 'a' }), [])
    assert.deepEqual(await leases({ ownerName: 'b', ownerKind: 'pod' }), [])
    assert.deepEqual(await leases({ ownerUid: 'z' }), ['10.0.0.50'])
    assert.deepEqual(await leases({ node: 'n2' }), ['10.0.0.2'])
    assert.deepEqual(await leases({ labels: { app: 'x' } }), [])
    assert.deepEqual(await leases({ pools: ['six'] }), ['fd00::1'])
    assert.deepEqual(await leases({ cidr: cidr('10.1.0.8/32') }), ['10.1.0.0'])
    assert.deepEqual(await leases({ cidr: cidr('10.0.0.2/31') }), ['10.0.0.2'])
    const unknown = await reads.leases(NETWORK, { ...ANY, pools: ['nope'] }, { after: null, size: 1 })
    assert.deepEqual(unknown!.unknownPools, ['nope'])
    assert.equal(await reads.leases('other', ANY, { after: null, size: 1 }), null)
  })

  test('pages neither skip nor repeat', async () => {
    const all = await leases({})
    const paged: string[] = []
    for (let next: string | null = null; ; ) {
      const page = await reads.leases(NETWORK, ANY, { after: next, size: 2 })
      paged.push(...page!.leases.map(({ address }) => address))
      assert.equal(page!.head, scene.image.head)
      next = page!.next
      if (next === null) break
    }
    assert.deepEqual(paged, all)
  })

  test('one lease, held, ended and unknown', async () => {
    const b = scene.image.records.get('10.0.0.2')!
    const found = await reads.leaseByToken(NETWORK, b.token)
    assert.ok(found?.is === 'held')
    assert.equal(found.lease.pool, 'pool')
    assert.equal(found.lease.version, b.seq)
    const a = scene.image.records.get('10.0.0.1')!
    assert.deepEqual(await reads.leaseByToken(NETWORK, a.token), {
      is: 'ended',
      state: 'RELEASED',
      address: '10.0.0.1',
      endedAt: a.at,
    })
    assert.deepEqual(await reads.leaseByToken(NETWORK, 1), { is: 'unknown', head: scene.image.head })
    const block = await reads.leaseAt(NETWORK, addressValue('10.1.0.7'))
    assert.ok(block?.is === 'held')
    assert.equal(block.lease.address, '10.1.0.0')
    assert.equal((await reads.leaseAt(NETWORK, addressValue('10.0.0.1')))!.is, 'unknown')
    assert.equal((await reads.leaseAt(NETWORK, addressValue('192.0.2.1')))!.is, 'unknown')
    assert.equal(await reads.leaseAt('other', addressValue('10.0.0.1')), null)
  })
})

describe('the log', () => {
  test('events by every filter, both ways', async () => {
    const types = async (filter: Partial<EventFilter>, descending = false) =>
      (await reads.events(NETWORK, { ...ALL, ...filter }, { ...FIRST, descending }))!.events.map(
        ({ event }) => event,
      )
    const plain = scene.events.filter(({ type }) => !type.startsWith('source.'))
    assert.deepEqual(await types({}), plain)
    assert.deepEqual(await types({}, true), [...plain].reverse())
    assert.deepEqual(
      (await types({ types: ['source.enabled'] })).map(({ type }) => type),
      ['source.enabled'],
    )
    assert.deepEqual(
      (await types({ address: addressValue('10.0.0.9') })).map(({ type }) => type),
      ['lease.reserved', 'lease.released'],
    )
    assert.equal((await types({ address: addressValue('10.1.0.9') })).length, 1)
    assert.equal((await types({ cidr: cidr('10.1.0.0/24') })).length, 2)
    assert.equal((await types({ ownerName: 'b' })).length, 2)
    assert.equal((await types({ ownerName: 'b', ownerKind: 'pod' })).length, 0)
    const b = scene.image.records.get('10.0.0.2')!
    assert.equal((await types({ token: b.token })).length, 2)
    assert.equal((await types({ token: 999_999 })).length, 0)
    assert.deepEqual(await types({ afterSeq: 3, beforeSeq: 6 }), scene.events.slice(3, 5))
    assert.deepEqual(
      await types({ from: START + MINUTE, to: START + MINUTE }),
      plain.filter(({ at }) => at === START + MINUTE),
    )
    assert.equal(await reads.events('other', ALL, FIRST), null)
  })

  test('events in pages', async () => {
    for (const descending of [false, true]) {
      const seqs: number[] = []
      for (let position: number | null = null; ; ) {
        const page = await reads.events(NETWORK, ALL, { descending, size: 3, position })
        seqs.push(...page!.events.map(({ event }) => event.seq))
        position = page!.next
        if (position === null) break
      }
      const all = scene.events.filter(({ type }) => !type.startsWith('source.')).map(({ seq }) => seq)
      assert.deepEqual(seqs, descending ? all.reverse() : all)
    }
  })

  test('the history of an address says who held it', async () => {
    const page = await reads.addressHistory(NETWORK, cidr('10.0.0.9/32'), ALL_TIMES, FIRST)
    assert.equal(page!.entries.length, 2)
    assert.match(page!.entries[0]!.what, /was reserved for container e/)
    const [holder] = page!.holders
    assert.equal(holder!.owner!.name, 'e')
    assert.equal(holder!.from.as, 'lease.reserved/Reserve')
    assert.equal(holder!.until!.as, 'lease.released/Release')
    const late = { ...ALL_TIMES, afterSeq: page!.entries[0]!.event.seq }
    const after = await reads.addressHistory(NETWORK, cidr('10.0.0.9/32'), late, FIRST)
    assert.equal(after!.entries.length, 1)
    assert.equal(after!.holders.length, 1)
    const range = await reads.addressHistory(NETWORK, cidr('10.0.0.0/16'), ALL_TIMES, FIRST)
    assert.equal(range!.entries.length, scene.events.filter((one) => 'record' in one).length - 3)
  })

  test('histories in pages, both ways', async () => {
    const about = cidr('10.0.0.0/24')
    const all = scene.events.flatMap((one) =>
      'record' in one && one.record.address.startsWith('10.0.0.') ? one.seq : [],
    )
    for (const descending of [false, true]) {
      const seqs: number[] = []
      for (let position: number | null = null; ; ) {
        const page = await reads.addressHistory(NETWORK, about, ALL_TIMES, { descending, size: 2, position })
        seqs.push(...page!.entries.map(({ event }) => event.seq))
        position = page!.next
        if (position === null) break
      }
      assert.deepEqual(seqs, descending ? [...all].reverse() : all)
    }
  })

  test('the history of a lease ends with it', async () => {
    const b = scene.image.records.get('10.0.0.2')!
    const page = await reads.leaseHistory(NETWORK, b.token, FIRST)
    assert.deepEqual(
      page!.entries.map(({ event }) => event.type),
      ['lease.reserved', 'lease.confirmed'],
    )
    assert.deepEqual(
      page!.holders[0]!.states.map(({ state }) => state),
      ['RESERVED', 'ACTIVE'],
    )
    assert.equal(page!.next, null)
    assert.equal(await reads.leaseHistory(NETWORK, 1, FIRST), undefined)
    assert.equal(await reads.leaseHistory('other', b.token, FIRST), null)
    const back = await reads.leaseHistory(NETWORK, b.token, { descending: true, size: 1, position: null })
    assert.equal(back!.entries[0]!.event.type, 'lease.confirmed')
    const rest = await reads.leaseHistory(NETWORK, b.token, {
      descending: true,
      size: 5,
      position: back!.next,
    })
    assert.deepEqual(
      rest!.entries.map(({ event }) => event.type),
      ['lease.reserved'],
    )
  })

  test('leases as of a number and a time', async () => {
    const a = scene.image.records.get('10.0.0.1')!
    const all = { pool: null, after: null, size: 100 }
    const before = await reads.leasesAsOf(NETWORK, { seq: a.seq - 1, at: null }, all)
    assert.ok(before !== null && !('beyond' in before))
    assert.deepEqual(
      before.leases.map(({ address, state }) => `${address} ${state}`),
      ['10.0.0.1 RESERVED', '10.0.0.2 ACTIVE', '10.1.0.0 RESERVED', 'fd00::1 RESERVED'],
    )
    const now = await reads.leasesAsOf(NETWORK, { seq: null, at: null }, all)
    assert.ok(now !== null && !('beyond' in now))
    assert.deepEqual(now.leases, (await reads.leases(NETWORK, ANY, { after: null, size: 100 }))!.leases)
    const paged = await reads.leasesAsOf(NETWORK, { seq: null, at: START }, { ...all, size: 2 })
    assert.ok(paged !== null && !('beyond' in paged))
    assert.equal(paged.next, '10.0.0.2')
    const six = await reads.leasesAsOf(NETWORK, { seq: null, at: null }, { ...all, pool: 'six' })
    assert.ok(six !== null && !('beyond' in six) && six.leases.length === 1 && !six.poolUnknown)
    const none = await reads.leasesAsOf(NETWORK, { seq: null, at: null }, { ...all, pool: 'nope' })
    assert.ok(none !== null && !('beyond' in none) && none.poolUnknown)
    assert.deepEqual(await reads.leasesAsOf(NETWORK, { seq: 10_000, at: null }, all), {
      beyond: scene.image.head,
    })
  })

  test('an address explains itself', async () => {
    const why = await reads.explanation(NETWORK, addressValue('10.0.0.77'), { seq: null, at: null })
    assert.ok(why !== null && !('beyond' in why))
    assert.equal(why.state, 'QUARANTINED')
    assert.match(why.answer, /looks odd/)
    assert.equal(why.steps.length, 1)
    const then = await reads.explanation(NETWORK, addressValue('10.0.0.77'), { seq: 1, at: null })
    assert.ok(then !== null && !('beyond' in then))
    assert.equal(then.state, 'OUTSIDE')
  })
})

describe('sources', () => {
  test('as they stand, with what they list', async () => {
    const all = { id: null, node: null, states: [], after: null, limit: 10 }
    const [agent] = (await reads.sources(NETWORK, all))!
    assert.deepEqual(agent!.source, scene.image.sources.get('agent'))
    assert.deepEqual(agent!.freshness, scene.freshness.get('agent'))
    assert.deepEqual(await reads.sources(NETWORK, { ...all, node: 'n9' }), [])
    assert.equal(await reads.sources('other', all), null)
    assert.deepEqual(await reads.freshness(NETWORK), scene.freshness)
    assert.equal((await reads.lookUps(NETWORK, ['10.0.0.1'])).size, 0)
  })

  test('sightings in pages', async () => {
    const filter = { source: null, address: null, vanished: false }
    const found: string[] = []
    for (let next: string | null = null; ; ) {
      const page = await reads.sightings(NETWORK, filter, { after: next, size: 1 })
      found.push(...page!.sightings.map(({ address }) => address))
      next = page!.next
      if (next === null) break
    }
    assert.deepEqual(found, ['10.0.0.2', '10.0.0.50', '10.1.0.40'])
    const block = { ...filter, address: addressValue('10.1.0.33') }
    const inside = await reads.sightings(NETWORK, block, { after: null, size: 5 })
    assert.deepEqual(
      inside!.sightings.map(({ address, owner }) => [address, owner]),
      [['10.1.0.40', null]],
    )
    const nonsense = await reads.sightings(NETWORK, filter, { after: '["x","","","","",""]', size: 5 })
    assert.deepEqual(nonsense, { sightings: [], next: null })
    assert.equal(await reads.sightings('other', filter, { after: null, size: 5 }), null)
  })

  test('what waits for somebody', async () => {
    const page = await reads.attention(NETWORK, { codes: [] }, { after: null, size: 100 })
    const codes = new Set(page!.items.map(({ code }) => code))
    assert.ok(codes.has('HELD'))
    assert.ok(codes.has('SOURCE_SILENT'))
    const first = await reads.attention(NETWORK, { codes: [] }, { after: null, size: 1 })
    const second = await reads.attention(NETWORK, { codes: [] }, { after: first!.next, size: 100 })
    assert.equal(second!.items.length + 1, page!.items.length)
    assert.deepEqual(
      (await reads.attention(NETWORK, { codes: ['HELD'] }, { after: null, size: 5 }))!.items.length,
      1,
    )
  })

  test('a verification', async () => {
    const verified = await reads.verification(NETWORK)
    assert.ok(verified !== null && verified !== 'busy')
    assert.deepEqual(verified.findings, [])
    assert.equal(verified.complete, true)
    assert.equal(await reads.verification('other'), null)
  })

  test('a request that was made', async () => {
    assert.deepEqual(await reads.request(NETWORK, 'r1'), { found: null })
    assert.equal(await reads.request('other', 'r1'), null)
  })
})
