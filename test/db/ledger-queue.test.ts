/** The queue of a network: what waits, what goes together, what is told to come back (DESIGN §2, write path 1). */
import { afterAll, expect, onTestFinished, test } from 'vitest'
import type { Reserve } from '../../src/core/command.ts'
import { connect } from '../../src/postgres/connect.ts'
import { allOrNothing, claim, createPool, owner, release, reserve, updatePool } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, openTestLedger, type TestLedger, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

async function freshPool(cidr = '10.0.0.0/24'): Promise<string> {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr, cooldownMs: 0 }, { network }))
  return network
}

function any(network: string, name: string, fields: Partial<Reserve> = {}): Reserve {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a' })], ...fields })
}

/** Limits of its own, and closed with the test. */
function open(limits: NonNullable<Parameters<typeof openTestLedger>[0]['limits']>): TestLedger {
  const own = openTestLedger({ url: database.serviceUrl, connections: 1, limits })
  onTestFinished(() => own.close())
  return own
}

/** Holds the network's lock: whatever is submitted next is in flight, and all that follows waits. */
async function hold(
  network: string,
): Promise<{ readonly waited: () => Promise<void>; readonly end: () => Promise<void> }> {
  const blocker = await connect({ url: database.adminUrl, applicationName: 'test' })
  await blocker.query('begin')
  await blocker.query('select 1 from ipledger.network_lock where network_id = $1 for update', [network])
  return {
    waited: async () => {
      await waitFor(async () => {
        const { rows } = await admin.query<{ pid: number }>(
          `select pid from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'`,
          [database.name],
        )
        return rows[0]?.pid
      })
    },
    end: async () => {
      await blocker.query('rollback')
      await blocker.end()
    },
  }
}

/** One position per pool and batch. */
async function batches(network: string): Promise<number> {
  const { rows } = await admin.query<{ count: number }>(
    'select count(*) as count from ipledger.pool_position where network_id = $1',
    [network],
  )
  return rows[0]!.count
}

async function namesInOrder(network: string): Promise<readonly string[]> {
  const { rows } = await admin.query<{ owner_name: string }>(
    `select owner_name from ipledger.event where network_id = $1 and type = 'lease.reserved' order by seq`,
    [network],
  )
  return rows.map((row) => row.owner_name)
}

test('the queue is bounded, and says which limit it is', async () => {
  const network = await freshPool()
  const own = open({ queued: 3 })
  const lock = await hold(network)
  const inFlight = own.take(any(network, 'in flight'))
  await lock.waited()
  const queued = ['a', 'b', 'c'].map((name) => own.take(any(network, name)))
  const refusal = await own.refuse(any(network, 'one too many'), 'OVERLOADED')
  expect(refusal.metadata).toEqual({ network, limit: '3' })
  expect(refusal.retryAfterMs).toBeGreaterThan(0)
  // The reconciler has a lane of its own.
  queued.push(own.take(any(network, 'reconciler'), { lane: 'reconciler' }))
  await lock.end()
  await Promise.all([inFlight, ...queued])
  expect(await namesInOrder(network)).toEqual(['in flight', 'a', 'b', 'c', 'reconciler'])
})

test('callers go before the reconciler, which gets one command into every batch all the same', async () => {
  const network = await freshPool()
  const own = open({ leasesPerBatch: 2 })
  const lock = await hold(network)
  const first = own.take(any(network, 'in flight'))
  await lock.waited()
  const all = [
    ...['r1', 'r2', 'r3'].map((name) => own.take(any(network, name), { lane: 'reconciler' })),
    ...['c1', 'c2', 'c3', 'c4', 'c5'].map((name) => own.take(any(network, name))),
  ]
  await lock.end()
  await Promise.all([first, ...all])
  expect(await namesInOrder(network)).toEqual([
    'in flight',
    ...['c1', 'c2', 'r1'],
    ...['c3', 'c4', 'r2'],
    ...['c5', 'r3'],
  ])
})

test('a call whose deadline passed while it waited is dropped and holds nothing', async () => {
  const network = await freshPool()
  const own = open({})
  const lock = await hold(network)
  const deadline = performance.now() + 150
  // The first waits for the lock, the second in the queue.
  const inFlight = own.refuse(any(network, 'in flight'), 'OVERLOADED', { deadline })
  await lock.waited()
  const queued = own.refuse(any(network, 'queued'), 'OVERLOADED', { deadline })
  const patient = own.take(any(network, 'patient'))
  expect((await inFlight).message).toContain('holds nothing')
  await queued
  await lock.end()
  expect((await patient).address).toBe('10.0.0.1')
  expect(await namesInOrder(network)).toEqual(['patient'])
})

test('commands of shape make a batch of their own, in the order in which they came', async () => {
  const network = await freshPool()
  const lock = await hold(network)
  const first = ledger.take(any(network, 'in flight'))
  await lock.waited()
  const all = [
    ledger.take(any(network, 'before')),
    ledger.accept(createPool({ name: 'b', cidr: '10.1.0.0/24' }, { network })),
    ledger.take(any(network, 'in b', { claims: [claim({ pool: 'b' })] })),
    ledger.accept(updatePool('a', { exclude: ['10.0.0.3-10.0.0.9'] }, { network })),
    ledger.take(any(network, 'behind the exclusion')),
  ] as const
  await lock.end()
  await first
  await Promise.all(all)
  expect((await all[0]).address).toBe('10.0.0.2')
  expect((await all[2]).address).toBe('10.1.0.1')
  expect((await all[4]).address).toBe('10.0.0.10')
  // Created twice, updated once, and reserved from in four batches of their own.
  expect(await batches(network)).toBe(7)
  await expectPartition(admin, network)
})

test('a batch is limited by the leases it touches', async () => {
  const network = await freshPool('10.0.0.0/20')
  const batch = (index: number) =>
    allOrNothing(
      Array.from({ length: 100 }, (_, item) => any(network, `b${index}-${item}`)),
      { network },
    )
  const lock = await hold(network)
  const first = ledger.accept(batch(0))
  await lock.waited()
  const rest = Array.from({ length: 24 }, (_, index) => ledger.accept(batch(index + 1)))
  const before = await batches(network)
  await lock.end()
  const answers = await Promise.all([first, ...rest])
  const addresses = answers.flatMap(({ items }) =>
    items!.flatMap(({ leases }) => leases.map((one) => one.address)),
  )
  expect(new Set(addresses).size).toBe(2_500)
  // One, ten, ten, four.
  expect((await batches(network)) - before).toBe(4)
  await expectPartition(admin, network)
})

test('what comes at once goes at once, what comes alone goes alone', async () => {
  const network = await freshPool('10.0.0.0/20')
  const before = await batches(network)
  const many = await Promise.all(Array.from({ length: 2_000 }, (_, i) => ledger.take(any(network, `m${i}`))))
  expect(new Set(many.map(({ address }) => address)).size).toBe(2_000)
  const together = (await batches(network)) - before
  expect(together).toBeLessThanOrEqual(5)
  for (let i = 0; i < 20; i += 1) await ledger.take(any(network, `s${i}`))
  expect((await batches(network)) - before - together).toBe(20)
})

test('sixty-four callers that wait for their answers share batches', async () => {
  const network = await freshPool('10.0.0.0/20')
  const before = await batches(network)
  await Promise.all(
    Array.from({ length: 64 }, async (_, caller) => {
      for (let turn = 0; turn < 20; turn += 1) {
        const lease = await ledger.take(any(network, `c${caller}-${turn}`))
        await ledger.take(release(lease.fencingToken, { network }))
      }
    }),
  )
  expect((await batches(network)) - before).toBeLessThan((64 * 20 * 2) / 8)
  await expectPartition(admin, network)
})

test('many networks take turns on few connections', async () => {
  const own = openTestLedger({ url: database.serviceUrl, connections: 2 })
  const networks = await Promise.all(Array.from({ length: 24 }, () => freshPool()))
  const leases = await Promise.all(
    networks.flatMap((network) => [1, 2, 3].map((i) => own.take(any(network, `x${i}`)))),
  )
  expect(leases.map((lease) => lease.address)).toEqual(
    networks.flatMap(() => ['10.0.0.1', '10.0.0.2', '10.0.0.3']),
  )
  await own.close()
})

test('a ledger that closes answers what it took and takes nothing more', async () => {
  const network = await freshPool()
  const own = openTestLedger({ url: database.serviceUrl, connections: 1 })
  const taken = Array.from({ length: 50 }, (_, i) => own.take(any(network, `x${i}`)))
  const closed = own.close()
  const refusal = await own.refuse(any(network, 'late'), 'OVERLOADED')
  expect(refusal.retryAfterMs).toBeGreaterThan(0)
  await closed
  expect(new Set((await Promise.all(taken)).map((lease) => lease.address)).size).toBe(50)
})

test('one command that is refused does not refuse the others of its batch', async () => {
  const network = await freshPool('10.0.0.0/29')
  const outcomes = await Promise.all(
    Array.from({ length: 10 }, (_, i) =>
      ledger.submit(
        i === 2
          ? any(network, 'lost', { claims: [claim({ pool: 'nowhere' })] })
          : i === 4
            ? any(network, 'bad', { claims: [claim({ pool: 'a', address: '10.0.0.0' })] })
            : any(network, `x${i}`),
      ),
    ),
  )
  expect(outcomes.map((one) => (one.ok ? one.answer.leases[0]!.address : one.refusal.reason))).toEqual([
    '10.0.0.1',
    '10.0.0.2',
    'POOL_NOT_FOUND',
    '10.0.0.3',
    'ADDRESS_EXCLUDED',
    '10.0.0.4',
    '10.0.0.5',
    '10.0.0.6',
    'POOL_EXHAUSTED',
    'POOL_EXHAUSTED',
  ])
  expect(await batches(network)).toBe(2)
})

// A short read is never exhaustion: windows of candidates end where they end.

async function combed(network: string): Promise<void> {
  await Promise.all(
    Array.from({ length: 511 }, (_, i) => {
      const value = 2 * (i + 1)
      const address = `10.0.${value >> 8}.${value & 255}`
      return ledger.take(any(network, `tooth${i}`, { claims: [claim({ pool: 'a', address })] }))
    }),
  )
}

test('a pool in pieces of one address is handed out to the last, one by one or all at once', async () => {
  const network = await freshPool('10.0.0.0/22')
  await combed(network)
  const some: string[] = []
  for (let i = 0; i < 30; i += 1) some.push((await ledger.take(any(network, `one${i}`))).address)
  expect(some[0]).toBe('10.0.0.1')
  expect(some[29]).toBe('10.0.0.59')
  const outcomes = await Promise.all(
    Array.from({ length: 500 }, (_, i) => ledger.submit(any(network, `all${i}`))),
  )
  const addresses = outcomes.flatMap((one) => (one.ok ? [one.answer.leases[0]!.address] : []))
  expect(new Set([...some, ...addresses]).size).toBe(511)
  expect(outcomes.filter((one) => !one.ok && one.refusal.reason === 'POOL_EXHAUSTED')).toHaveLength(19)
  await expectPartition(admin, network)
})

test('released addresses are found to the last, however many there are and whoever asks', async () => {
  const network = await freshPool('10.0.0.0/22')
  const leases = await Promise.all(
    Array.from({ length: 1_022 }, (_, i) => ledger.take(any(network, `x${i}`))),
  )
  await Promise.all(leases.map((lease) => ledger.take(release(lease.fencingToken, { network }))))
  const fresh = openTestLedger({ url: database.serviceUrl, connections: 1 })
  const outcomes = await Promise.all(
    Array.from({ length: 1_030 }, (_, i) => fresh.submit(any(network, `y${i}`))),
  )
  await fresh.close()
  const addresses = outcomes.flatMap((one) => (one.ok ? [one.answer.leases[0]!.address] : []))
  expect(new Set(addresses).size).toBe(1_022)
  expect(outcomes.filter((one) => !one.ok).map((one) => !one.ok && one.refusal.reason)).toEqual(
    Array.from({ length: 8 }, () => 'POOL_EXHAUSTED'),
  )
  await expectPartition(admin, network)
})

test('the second pool of preference is searched to its end as the first is', async () => {
  const network = await freshPool('10.0.0.0/30')
  await ledger.accept(createPool({ name: 'b', cidr: '10.4.0.0/22', cooldownMs: 0 }, { network }))
  const claims = [claim({ pools: ['a', 'b'] })]
  for (const life of ['first', 'second']) {
    // Untouched space at first, then what was released.
    const leases = await Promise.all(
      Array.from({ length: 1_024 }, (_, i) => ledger.take(any(network, `${life}${i}`, { claims }))),
    )
    expect(new Set(leases.map((lease) => lease.address)).size).toBe(1_024)
    await ledger.refuse(any(network, 'late', { claims }), 'POOL_EXHAUSTED')
    await Promise.all(leases.map((lease) => ledger.take(release(lease.fencingToken, { network }))))
  }
  await expectPartition(admin, network)
})

test.each(['untouched', 'in pieces', 'released'])(
  'thirty-one candidates seen live are passed over, the thirty-second ends the search: %s',
  async (state) => {
    const network = await freshPool('10.0.0.0/22')
    if (state === 'in pieces') await combed(network)
    if (state === 'released') {
      const leases = await Promise.all(
        Array.from({ length: 1_022 }, (_, i) => ledger.take(any(network, `x${i}`))),
      )
      for (let from = 0; from < leases.length; from += 100) {
        await Promise.all(
          leases
            .slice(from, from + 100)
            .map((lease) => ledger.take(release(lease.fencingToken, { network }))),
        )
      }
    }
    const step = state === 'in pieces' ? 2 : 1
    const liveAddresses = Array.from({ length: 32 }, (_, i) => `10.0.0.${1 + i * step}`)
    const passed = await ledger.take(any(network, 'y', { liveAddresses: liveAddresses.slice(0, 31) }))
    expect(passed.address).toBe(liveAddresses[31])
    const other = liveAddresses.map((_, i) => `10.0.0.${1 + (i + 32) * step}`)
    const refusal = await ledger.refuse(any(network, 'z', { liveAddresses: other }), 'ALL_CANDIDATES_LIVE')
    expect(refusal.metadata).toMatchObject({ pool: 'a', skips: '32' })
    // Durable quarantines are capped per caller; what is beyond is passed over just the same, and stays free.
    const beyond = liveAddresses.map((_, i) => `10.0.0.${1 + (i + 64) * step}`)
    await ledger.refuse(any(network, 'z', { liveAddresses: beyond }), 'ALL_CANDIDATES_LIVE')
    const { leases } = (await expectPartition(admin, network)).get('a')!
    expect(leases.filter((lease) => lease.state === 'QUARANTINED')).toHaveLength(64)
    expect((await ledger.take(any(network, 'z'))).address).toBe(beyond[1])
    await expectPartition(admin, network)
  },
)

test('the ledgers of this file are in order', () => expectVerified(database))
