/**
 * Pools of many used addresses that are deleted or cut: bounded work under the lock. What is left lies where nobody meets
 * it, until a job has removed it.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { rebuild } from '../../src/ledger/rebuild.ts'
import { connect } from '../../src/postgres/connect.ts'
import { claim, createPool, deletePool, owner, release, reserve, updatePool } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'
import { expectPartition } from '../support/partition.ts'
import { openJobs } from '../support/run-jobs.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
const jobs = openJobs(database.serviceUrl)
afterAll(() => Promise.all([admin.end(), jobs.close()]))

/** More than go with the pool itself. */
const USED = 10_500

async function count(table: 'released_address' | 'dropped_range', network: string): Promise<number> {
  const { rows } = await admin.query<{ count: number }>(
    `select count(*) as count from ipledger.${table} where network_id = $1`,
    [network],
  )
  return rows[0]!.count
}

const any = (network: string, name: string, pool: string) =>
  reserve({ network, owner: owner({ name }), claims: [claim({ pool })] })

/** A network whose pool `long`, 10.0.0.0/12, has been used from 10.0.0.1 on and is empty by now. */
async function usedPool(network: string): Promise<void> {
  await writeLongLog(database, ledger, network, { leases: USED, held: 0, over: USED })
  await rebuild({ adminUrl: database.adminUrl, network })
}

beforeAll(async () => {
  await usedPool('used')
  await usedPool('twice')
}, 60_000)

test('a large pool is deleted at once, and its range is free for another as soon as a job has cleared it', async () => {
  const network = 'used'
  await ledger.accept(createPool({ name: 'next', cidr: '10.16.0.0/24', cooldownMs: 0 }, { network }))
  expect(await count('released_address', network)).toBe(USED)
  await ledger.accept(deletePool('long', { network }))

  // All of it is still there, and nobody meets it.
  expect(await count('released_address', network)).toBe(USED)
  expect(await count('dropped_range', network)).toBe(1)
  await expectVerified(database, { network })
  expect(await rebuild({ adminUrl: database.adminUrl, network })).toMatchObject({
    differences: [],
    replaced: 0,
  })
  const one = await ledger.take(any(network, 'one', 'next'))
  expect(one.address).toBe('10.16.0.1')
  await ledger.refuse(
    reserve({ network, owner: owner({ name: 'named' }), claims: [claim({ address: '10.0.0.1' })] }),
    'INVALID_FIELD',
  )
  for (const command of [
    createPool({ name: 'again', cidr: '10.0.0.0/24' }, { network }),
    createPool({ name: 'unused', cidr: '10.15.255.0/24' }, { network }),
    updatePool('next', { cidr: '10.0.0.0/11' }, { network }),
  ]) {
    const refusal = await ledger.refuse(command, 'POOL_IN_USE')
    expect(refusal.retryAfterMs).toBeGreaterThan(0)
    expect(refusal.message).toContain('deleted')
  }
  await ledger.accept(createPool({ name: 'beside', cidr: '10.17.0.0/24' }, { network }))
  await ledger.accept(createPool({ name: 'six', cidr: 'fd00::/64' }, { network }))

  expect(await jobs.run('clear-dropped', network)).toEqual({ cleared: USED })
  expect(await count('released_address', network)).toBe(0)
  expect(await count('dropped_range', network)).toBe(0)
  await ledger.accept(createPool({ name: 'again', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  const lease = await ledger.take(any(network, 'again', 'again'))
  expect(lease.address).toBe('10.0.0.1')
  await ledger.take(release(lease.fencingToken, { network }))
  expect(await jobs.run('clear-dropped', network)).toEqual({ cleared: 0 })
  expect(await count('released_address', network)).toBe(1)
  await expectPartition(admin, network)
})

test('two jobs at once clear it together, and leave a pool that is there alone', async () => {
  const network = 'twice'
  await ledger.accept(deletePool('long', { network }))
  await ledger.accept(createPool({ name: 'b', cidr: '10.32.0.0/24', cooldownMs: 0 }, { network }))
  const lease = await ledger.take(any(network, 'x', 'b'))
  await ledger.take(release(lease.fencingToken, { network }))
  // A row that no deletion wrote, as an operator's hand would leave it.
  await admin.query(
    `insert into ipledger.dropped_range (network_id, first_address, last_address, pool_id)
      select network_id, '10.32.0.0', '10.32.0.255', pool_id from ipledger.pool where network_id = $1 and name = 'b'`,
    [network],
  )
  const runs = await Promise.all([jobs.run('clear-dropped', network), jobs.run('clear-dropped', network)])
  expect(runs.reduce((sum, { cleared }) => sum + cleared!, 0)).toBe(USED)
  expect(await count('released_address', network)).toBe(1)
  await jobs.run('clear-dropped', network)
  const { rows } = await admin.query(
    'select host(first_address) as first from ipledger.dropped_range where network_id = $1',
    [network],
  )
  expect(rows).toEqual([{ first: '10.32.0.0' }])
  await admin.query('delete from ipledger.dropped_range where network_id = $1', [network])
  await expectPartition(admin, network)
})

test('a pool that stays lets so many used addresses go with one change, and no more', async () => {
  const network = await freshNetwork(ledger)
  const { poolId } = await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/12' }, { network }))
  await admin.query(
    `insert into ipledger.released_address
      select $1, '10.8.0.0'::inet + i, $2, 32, now() - interval '1 hour', i, '', true
      from generate_series(1, $3::int) i`,
    [network, poolId, POLICY.forgottenAtOnce + 1],
  )
  const refusal = await ledger.refuse(updatePool('a', { cidr: '10.0.0.0/13' }, { network }), 'POOL_IN_USE')
  expect(refusal.message).toContain('let fewer go')
  expect(refusal.metadata).toMatchObject({ held: '0', cooling: '0', forgotten: '100000 and more' })
  await admin.query('delete from ipledger.released_address where network_id = $1', [network])
  await ledger.accept(updatePool('a', { cidr: '10.0.0.0/13' }, { network }))
})

test('of what is in the way a page is looked at: held, and cooling with the end of the longest wait', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 600_000 }, { network }))
  const leases = await Promise.all(
    Array.from({ length: 60 }, (_, i) => ledger.take(any(network, `w${i}`, 'a'))),
  )
  for (const lease of leases.slice(0, 30)) await ledger.take(release(lease.fencingToken, { network }))
  const both = await ledger.refuse(deletePool('a', { network }), 'POOL_IN_USE')
  expect(both.metadata).toMatchObject({ held: '20 and more', cooling: '20 and more' })
  expect(both.metadata.blockers!.split('; ')).toHaveLength(20)
  expect(both.retryAfterMs).toBeUndefined()
  // The lowest thirty cool, of which eight would stay.
  const cut = await ledger.refuse(
    updatePool('a', { exclude: ['10.0.0.9-10.0.0.29'] }, { network }),
    'POOL_IN_USE',
  )
  expect(cut.metadata).toMatchObject({ held: '0', cooling: '20 and more' })
  const few = await ledger.refuse(
    updatePool('a', { exclude: ['10.0.0.29-10.0.0.32'] }, { network }),
    'POOL_IN_USE',
  )
  expect(few.metadata).toMatchObject({ held: '2', cooling: '2' })
  for (const lease of leases.slice(30)) await ledger.take(release(lease.fencingToken, { network }))
  const { rows } = await admin.query<{ last: number; now: number }>(
    `select max(available_at) as last, clock_timestamp() as now from ipledger.released_address where network_id = $1`,
    [network],
  )
  const resting = await ledger.refuse(deletePool('a', { network }), 'POOL_IN_USE')
  expect(resting.metadata).toMatchObject({ held: '0', cooling: '20 and more' })
  expect(Math.abs(resting.retryAfterMs! - (rows[0]!.last - rows[0]!.now))).toBeLessThan(5_000)
})

test('the ledgers of this file are in order', () => expectVerified(database))
