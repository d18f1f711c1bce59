import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { closeBrokenNetworks } from '../../src/cli/projections.ts'
import { formatValue } from '../../src/core/address.ts'
import { addressValue } from '../../src/core/books.ts'
import { normalise } from '../../src/core/ranges.ts'
import { closeIfLost, projectionsLookWhole, rebuild } from '../../src/ledger/rebuild.ts'
import { readAddress } from '../../src/ledger/rows.ts'
import type { Logger } from '../../src/telemetry.ts'
import {
  claim,
  confirm,
  createNetwork,
  createPool,
  owner,
  release,
  reserve,
  updatePool,
} from '../support/commands.ts'
import { createTestDatabase, useTestDatabase, withClient } from '../support/database.ts'
import { openTestLedger, useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'
import { expectPartition } from '../support/partition.ts'
import { moveToThePast } from '../support/past.ts'
import { seededRandom } from '../support/random.ts'
import { makeTraffic, type Traffic } from '../support/traffic.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const random = seededRandom()
console.log(`seed ${random.seed}`)

afterAll(() => expectVerified(database))

const sql = (text: string, values: readonly unknown[] = []) =>
  withClient(database.adminUrl, (admin) => admin.query(text, [...values]))
const run = (network: string, options: Partial<Parameters<typeof rebuild>[0]> = {}) =>
  rebuild({ adminUrl: database.adminUrl, network, ...options })
const look = (network: string) =>
  withClient(database.serviceUrl, (client) => projectionsLookWhole(client, network))

const closeLost = (network: string) =>
  withClient(database.serviceUrl, (client) => closeIfLost(client, network))

/** While the work runs, nothing is written to the network; at the end, with what `last` did under the lock. */
async function whileLocked<T>(network: string, work: () => Promise<T>, last: string): Promise<T> {
  return withClient(database.adminUrl, async (holder) => {
    await holder.query('begin')
    await holder.query('select 1 from ipledger.network_lock where network_id = $1 for no key update', [
      network,
    ])
    const working = work()
    await waitFor(
      async () => {
        const { rows } = await sql(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        )
        return rows.length > 0
      },
      { what: 'somebody to wait for the lock' },
    )
    await holder.query(last, [network])
    await holder.query('commit')
    return working
  })
}

let made = 0
/** A network with a past; the tables hold others beside it. */
async function busyNetwork(commands: number) {
  made += 1
  const network = `busy${made}`
  await ledger.accept(createNetwork(network))
  const traffic = await makeTraffic(ledger, network, random)
  await traffic.run(commands)
  return { network, traffic }
}

/** Every column of every projection as PostgreSQL prints it; untouched space as what it means. */
async function dump(network: string) {
  const rows = async (table: string, order: string) =>
    (
      await sql(`select t::text as row from ipledger.${table} t where network_id = $1 order by ${order}`, [
        network,
      ])
    ).rows.map(({ row }) => row as string)
  const positions = await sql(
    `select distinct on (pool_id) pool_id, reserved, active, quarantined, released from ipledger.pool_position
      where network_id = $1 and pool_id in (select pool_id from ipledger.pool where network_id = $1)
      order by pool_id, seq desc`,
    [network],
  )
  return {
    network: await rows('network', '1'),
    pools: await rows('pool', 'pool_id'),
    leases: await rows('lease', 'address'),
    reuse: await rows('released_address', 'pool_id, available_at, released_seq'),
    closed: await rows('closed_attachment', 'attachment_key, pool_id'),
    untouched: await untouched(network),
    counts: positions.rows,
    requests: await rows('request', 'request_id'),
  }
}

async function untouched(network: string): Promise<readonly string[]> {
  const { rows } = await sql(
    `select u.pool_id, u.first_address, u.last_address, x.cursor_first, x.cursor_next
       from ipledger.untouched_range u
       join lateral (
         select cursor_first, cursor_next from ipledger.pool_position q
          where q.network_id = $1 and q.pool_id = u.pool_id order by seq desc limit 1) x on true
      where u.network_id = $1 order by u.pool_id`,
    [network],
  )
  const byPool = new Map<number, { first: bigint; last: bigint }[]>()
  const value = (text: string) => addressValue(readAddress(text))
  for (const row of rows) {
    const first = row.first_address === row.cursor_first ? value(row.cursor_next) : value(row.first_address)
    const list = byPool.get(row.pool_id) ?? []
    byPool.set(row.pool_id, list)
    list.push({ first, last: value(row.last_address) })
  }
  return [...byPool].flatMap(([pool, ranges]) =>
    normalise(ranges).map(({ first, last }) => `${pool}: ${formatValue(6, first)}-${formatValue(6, last)}`),
  )
}

const PROJECTIONS = [
  'network',
  'pool',
  'lease',
  'released_address',
  'untouched_range',
  'pool_position',
  'closed_attachment',
  'network_lock',
] as const

describe('projections that were truncated', () => {
  let traffic: Traffic
  let networks: readonly string[] = []
  beforeAll(async () => {
    const one = await busyNetwork(600)
    const two = await busyNetwork(150)
    traffic = one.traffic
    networks = [one.network, two.network]
  })

  test.each([...PROJECTIONS.map((table) => [table]), [...PROJECTIONS]].map((tables) => ({ tables })))(
    'are as they were before: $tables',
    async ({ tables }) => {
      const before = await Promise.all(networks.map(dump))
      await sql(`truncate ${tables.map((table) => `ipledger.${table}`).join(', ')}`)
      for (const network of networks) {
        const { whole, why } = await look(network)
        // Without its closed attachments a network looks like one where none bind.
        expect(whole, why.join('; ')).toBe(tables.join() === 'closed_attachment')
        const report = await run(network)
        expect(report.replaced).toBeGreaterThan(0)
        for (const table of tables) expect(report.counts[table], table).toBeGreaterThan(0)
        expect(await look(network)).toEqual({ whole: true, why: [] })
      }
      expect(await Promise.all(networks.map(dump))).toEqual(before)
      for (const network of networks) {
        await expectVerified(database, { network })
        await withClient(database.adminUrl, (admin) => expectPartition(admin, network))
      }
    },
  )

  test('and the ledger goes on where it was', async () => {
    await traffic.run(300)
    await expectVerified(database, { network: networks[0]! })
  })
})

test('two rebuilds of one network at once leave it as one does, and open', async () => {
  const { network } = await busyNetwork(300)
  const before = await dump(network)
  const lost = ['lease', 'released_address', 'untouched_range', 'pool_position', 'closed_attachment']
  for (const table of lost) await sql(`delete from ipledger.${table} where network_id = $1`, [network])
  // Held back until they have compared: each replaces all of it, slice by slice between the other's.
  const reports = await whileLocked(
    network,
    () => Promise.all([run(network, { slice: 50 }), run(network, { slice: 50 })]),
    'select 1 from ipledger.network where network_id = $1',
  )
  for (const report of reports) expect(report.locked).toBeGreaterThan(3)
  expect(await dump(network)).toEqual(before)
  expect((await run(network)).replaced).toBe(0)
  await expectVerified(database, { network })
})

test('sound projections are not touched', async () => {
  const { network } = await busyNetwork(400)
  const every = () =>
    Promise.all(
      [...PROJECTIONS, 'request'].map(async (table) =>
        (
          await sql(
            `select t.ctid, t.xmin, t::text as row from ipledger.${table} t where network_id = $1 order by 3`,
            [network],
          )
        ).rows.map(({ ctid, xmin, row }) => `${ctid} ${xmin} ${row}`),
      ),
    )
  const before = await every()
  const report = await run(network)
  expect(report).toMatchObject({ replaced: 0, locked: 0, differences: [] })
  expect(report.events).toBe(report.head)
  expect(await every()).toEqual(before)
})

test('a dry run names the differences and leaves them', async () => {
  const { network } = await busyNetwork(200)
  const { rows } = await sql(
    'delete from ipledger.lease where network_id = $1 and address = (select min(address) from ipledger.lease where network_id = $1) returning address',
    [network],
  )
  const report = await run(network, { dryRun: true })
  expect(report.replaced).toBe(0)
  expect(report.differences).toContainEqual({
    table: 'lease',
    about: rows[0].address,
    what: 'missing',
    columns: [],
  })
  expect((await run(network, { dryRun: true })).differences).toEqual(report.differences)
  expect((await run(network)).replaced).toBe(1)
})

test('a network stays closed when a rebuild breaks off, until one ends', async () => {
  const { network } = await busyNetwork(300)
  const kept = await ledger.take(
    reserve({ network, owner: owner({ name: 'kept' }), claims: [claim({ pool: 'wide' })], confirmed: true }),
  )
  const before = await dump(network)
  await sql('delete from ipledger.lease where network_id = $1 and address <> $2', [network, kept.address])
  const stop = new AbortController()
  const broken = run(network, {
    signal: stop.signal,
    onProgress: ({ what }) => {
      if (what === 'replacing') stop.abort(new Error('power cut'))
    },
  })
  await expect(broken).rejects.toThrow('power cut')
  await ledger.refuse(
    reserve({ network, owner: owner({ name: 'new' }), claims: [claim({ pool: 'wide' })] }),
    'NETWORK_RECOVERING',
  )
  // Since when, whoever looks for what waits is told.
  const since = async () =>
    (await sql('select rebuilding_since as since from ipledger.network where network_id = $1', [network]))
      .rows[0]!.since
  const closedAt = await since()
  expect(closedAt).not.toBeNull()
  await expect(run(network, { signal: AbortSignal.abort(new Error('again')) })).rejects.toThrow('again')
  expect(await since()).toEqual(closedAt)
  // What gives nothing out is answered.
  await ledger.accept(confirm(kept.fencingToken, { network }))
  await ledger.refuse(confirm(1, { network }), 'LEASE_NOT_FOUND')
  expect((await look(network)).whole).toBe(false)
  await run(network)
  expect(await look(network)).toEqual({ whole: true, why: [] })
  expect(await dump(network)).toEqual(before)
  await ledger.accept(release(kept.fencingToken, { network }))
  await ledger.accept(reserve({ network, owner: owner({ name: 'new' }), claims: [claim({ pool: 'wide' })] }))
})

test('a service that finds projections lost closes the network by itself', async () => {
  const { network } = await busyNetwork(200)
  const before = await dump(network)
  for (const table of ['network', 'lease', 'network_lock'])
    await sql(`delete from ipledger.${table} where network_id = $1`, [network])
  expect(await closeLost(network)).not.toEqual([])
  await ledger.refuse(
    reserve({ network, owner: owner({ name: 'new' }), claims: [claim({ pool: 'wide' })] }),
    'NETWORK_RECOVERING',
  )
  await run(network)
  expect(await dump(network)).toEqual(before)
})

test('a service that starts while a rebuild ends does not close the network after it', async () => {
  const { network } = await busyNetwork(50)
  await sql(`update ipledger.network set state = 'REBUILDING' where network_id = $1`, [network])
  const why = await whileLocked(
    network,
    () => closeLost(network),
    `update ipledger.network set state = 'READY' where network_id = $1`,
  )
  expect(why).toEqual([])
  expect(await look(network)).toEqual({ whole: true, why: [] })
})

test('a rebuild opens what a service closed that started in the middle of it', async () => {
  const { network } = await busyNetwork(50)
  await sql(
    `update ipledger.pool_position set reserved = 0, active = 0, quarantined = 0 where network_id = $1
        and pool_id = (select min(pool_id) from ipledger.lease where network_id = $1)`,
    [network],
  )
  expect((await look(network)).why).toEqual([expect.stringMatching(/counts 0 leases and has some$/)])
  // One thing is to be done, for which the rebuild itself closes nothing.
  await whileLocked(
    network,
    () => run(network),
    `update ipledger.network set state = 'REBUILDING' where network_id = $1`,
  )
  expect(await look(network)).toEqual({ whole: true, why: [] })
})

test('a network whose log lost its beginning is closed by itself, and the others are served (azure#4449)', async () => {
  const other = await createTestDatabase()
  onTestFinished(() => other.drop())
  const books = openTestLedger({ url: other.serviceUrl })
  onTestFinished(() => books.close())
  for (const network of ['broken', 'sound']) {
    await books.accept(createNetwork(network))
    await books.accept(createPool({ name: 'web', cidr: '10.0.0.0/24' }, { network }))
  }
  await withClient(other.adminUrl, (admin) =>
    admin.query(`delete from ipledger.event where network_id = 'broken' and type = 'network.created'`),
  )
  const logged: object[] = []
  const log = { error: (fields: object) => logged.push(fields) } as unknown as Logger
  await closeBrokenNetworks(other.serviceUrl, log)
  expect(logged).toEqual([{ network: 'broken', why: [expect.stringMatching(/^network broken has a row/)] }])
  const asked = (network: string) =>
    reserve({ network, owner: owner({ name: 'new' }), claims: [claim({ pool: 'web' })] })
  await books.refuse(asked('broken'), 'NETWORK_RECOVERING')
  expect(await books.take(asked('sound'))).toMatchObject({ address: '10.0.0.1' })

  // So is one of whose pools the log says what cannot be.
  await withClient(other.adminUrl, (admin) =>
    admin.query(
      `update ipledger.event set settings = '{"pool": {"name": "web", "cidr": "nowhere"}}'
        where network_id = 'sound' and type = 'pool.created'`,
    ),
  )
  await closeBrokenNetworks(other.serviceUrl, log)
  await books.refuse(asked('sound'), 'NETWORK_RECOVERING')
})

test('a lock that is held for long is waited for', async () => {
  const { network } = await busyNetwork(50)
  await sql('delete from ipledger.lease where network_id = $1', [network])
  await withClient(database.adminUrl, async (holder) => {
    await holder.query('begin')
    await holder.query('select 1 from ipledger.network_lock where network_id = $1 for no key update', [
      network,
    ])
    const running = run(network)
    // Longer than the role waits: the first attempt ends, the next one begins.
    await waitFor(
      async () => {
        const { rows } = await sql(
          `select count(*) as ended from pg_stat_activity
            where datname = current_database() and application_name = 'ipledger rebuild' and wait_event_type = 'Lock'
              and xact_start > backend_start + interval '3 seconds'`,
        )
        return rows[0].ended === 1
      },
      { what: 'the second attempt' },
    )
    await holder.query('commit')
    expect((await running).replaced).toBeGreaterThan(0)
  })
})

test('a rebuild of everything while eight writers hammer the ledger', async () => {
  const { network, traffic } = await busyNetwork(300)
  traffic.settle()
  const stop = new AbortController()
  const hammering = traffic.hammer(8, stop.signal)
  try {
    for (const tables of [
      ['lease'],
      ['released_address', 'pool_position'],
      ['untouched_range'],
      ['network', 'pool', 'lease'],
    ]) {
      await withClient(database.adminUrl, async (client) => {
        // Between two batches: a batch locks rows in its own order.
        await client.query('begin')
        await client.query('select from ipledger.network_lock where network_id = $1 for update', [network])
        for (const table of tables)
          await client.query(`delete from ipledger.${table} where network_id = $1`, [network])
        await client.query('commit')
      })
      await run(network)
      // What was written between the loss and the rebuild is in the log, and now in the projections.
      expect((await run(network)).differences).toEqual([])
    }
  } finally {
    stop.abort()
  }
  expect(await hammering).toBeGreaterThan(100)
  await expectVerified(database, { network })
}, 60_000)

test.each([4, 17])('in slices of %i addresses the outcome is the same', async (slice) => {
  const { network } = await busyNetwork(100)
  const before = await dump(network)
  expect(await run(network, { slice })).toMatchObject({ differences: [], replaced: 0 })
  for (const table of ['lease', 'released_address', 'untouched_range', 'closed_attachment', 'pool_position'])
    await sql(`delete from ipledger.${table} where network_id = $1`, [network])
  await sql(
    `insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       quarantine_reason, quarantined_at, quarantined_by, node, boot, labels, witness, reserved_at)
     select $1, '10.1.0.0'::inet + n * 3, 32, 2, 1, 1, 'QUARANTINED', 'OPERATOR', now(), '', '', '', '{}', '', now()
       from generate_series(0, 40) as n`,
    [network],
  )
  await sql(
    `insert into ipledger.untouched_range select $1, pool_id, 'fd01::'::inet + n * 9, 'fd01::'::inet + n * 9 + 12
       from generate_series(0, 40) as n, ipledger.pool where network_id = $1 and name = 'wide'`,
    [network],
  )
  const { counts } = await run(network, { slice, dryRun: true })
  const { lease, released_address } = counts
  expect((await run(network, { slice })).counts).toMatchObject({ lease, released_address })
  expect(await dump(network)).toEqual(before)
  await expectVerified(database, { network })
})

test('addresses that left their pool and came back are untouched again', async () => {
  const network = 'reshaped'
  await ledger.accept(createNetwork(network))
  await ledger.accept(createPool({ name: 'p', cidr: '10.0.0.0/28', cooldownMs: 0 }, { network }))
  const leases = await Promise.all(
    Array.from({ length: 14 }, (_, index) =>
      ledger.take(reserve({ network, owner: owner({ name: `w${index}` }), claims: [claim({ pool: 'p' })] })),
    ),
  )
  for (const { fencingToken } of leases.slice(4)) await ledger.accept(release(fencingToken, { network }))
  const exclude = (ranges: readonly string[]) =>
    ledger.accept(updatePool('p', { exclude: ranges }, { network }))
  await exclude(['10.0.0.8-10.0.0.10'])
  await exclude(['10.0.0.10'])
  await exclude(['10.0.0.10-10.0.0.12'])
  await exclude([])
  const before = await dump(network)
  expect(before.untouched).toEqual([`2: ${formatValue(6, 0x0a000008n)}-${formatValue(6, 0x0a00000cn)}`])
  expect(before.reuse.length).toBe(5)
  await expectVerified(database, { network })
  // As its release left it; but that is forgotten.
  await sql(
    `insert into ipledger.released_address
     select network_id, address, pool_id, prefix_length, available_at, seq, 'pod|eth0|' || owner_name, removal_confirmed
       from ipledger.event where network_id = $1 and type = 'lease.released' and address = '10.0.0.9'`,
    [network],
  )
  expect((await run(network)).counts).toMatchObject({ released_address: 1 })
  expect(await dump(network)).toEqual(before)
  for (const table of ['released_address', 'untouched_range', 'pool_position'])
    await sql(`delete from ipledger.${table} where network_id = $1`, [network])
  await run(network)
  expect(await dump(network)).toEqual(before)
})

test('of closed attachments those come back that still bind', async () => {
  const network = 'closings'
  await ledger.accept(createNetwork(network))
  await ledger.accept(createPool({ name: 'p', cidr: '10.0.0.0/24' }, { network }))
  const life = (name: string, incarnation: string) => owner({ name, uid: name, incarnation })
  const start = (name: string, incarnation: string) =>
    ledger.take(reserve({ network, owner: life(name, incarnation), claims: [claim({ pool: 'p' })] }))
  const gone = await start('gone', 'a')
  await ledger.accept(release(gone.fencingToken, { network }))
  await start('crashed', 'a')
  await start('crashed', 'b')
  const pulled = await start('pulled', 'a')
  await ledger.accept(release(pulled.fencingToken, { network, removalConfirmed: false }))
  await moveToThePast(database, 600_000, network)
  const fresh = await start('fresh', 'a')
  await ledger.accept(release(fresh.fencingToken, { network }))

  const before = (await dump(network)).closed
  expect(before.length).toBe(4)
  expect((await run(network, { dryRun: true })).differences).toEqual([])
  await sql('delete from ipledger.closed_attachment where network_id = $1', [network])
  await run(network)
  const after = (await dump(network)).closed
  expect(after).toEqual(before.filter((row) => !row.includes('gone')))
})

test('a log that is not there cannot be rebuilt from', async () => {
  await expect(run('nowhere')).rejects.toThrow('network nowhere has no events')
})

test('a long log is rebuilt in slices of a fraction of a second', async () => {
  // Alone in its database: what is measured is not another test.
  const alone = await createTestDatabase()
  const writer = openTestLedger({ url: alone.serviceUrl })
  try {
    const head = await writeLongLog(alone, writer, 'long', { leases: 25_000, held: 8_000, over: 12_000 })
    const begun = performance.now()
    const report = await rebuild({ adminUrl: alone.adminUrl, network: 'long' })
    const took = performance.now() - begun
    expect(report).toMatchObject({ head, events: head, addresses: 12_000 })
    expect(report.counts).toMatchObject({ lease: 8_000, released_address: 4_000 })
    expect(report.locked).toBeGreaterThan(5)
    const again = performance.now()
    expect((await rebuild({ adminUrl: alone.adminUrl, network: 'long' })).replaced).toBe(0)
    console.log(
      `${head} events: from nothing in ${took.toFixed(0)} ms, ${report.locked} times locked, ` +
        `${report.longestLockMs.toFixed(0)} ms at the most; compared in ${(performance.now() - again).toFixed(0)} ms`,
    )
    await expectVerified(alone)
  } finally {
    await writer.close()
    await alone.drop()
  }
}, 60_000)
