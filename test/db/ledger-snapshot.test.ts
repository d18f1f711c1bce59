/**
 * What a batch rewrites, and what it reads while somebody holds a snapshot open (a dump, an audit): nothing that every
 * batch rewrites, and no row that earlier batches used up. 2,270 batches a second once fell to 239 within a minute.
 */
import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { READS } from '../../src/ledger/load.ts'
import { connect } from '../../src/postgres/connect.ts'
import { claim, confirm, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
const service = await connect({ url: database.serviceUrl, applicationName: 'test' })
afterAll(async () => {
  await service.end()
  await admin.end()
})

beforeAll(async () => {
  // What is measured is what the statements do by themselves.
  for (const table of ['event', 'lease', 'released_address', 'untouched_range', 'pool_position']) {
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
  }
})

function any(network: string, name: string) {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a' })] })
}

async function freshPool(cidr: string): Promise<string> {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr, cooldownMs: 0 }, { network }))
  return network
}

/** Versions of the rows of a table: a new one has another place and another transaction. */
async function versions(table: string, network: string): Promise<readonly unknown[]> {
  const { rows } = await admin.query(
    `select ctid::text, xmin::text from ipledger.${table} where network_id = $1 order by ctid`,
    [network],
  )
  return rows
}

const CANDIDATES = {
  rangesInOrderSeen: [`{a}`, '{NULL}', '{1}', '{64}'],
  releasedInOrderSeen: ['{a}', '{NULL}', '{NULL}', '{1}'],
  poolsByName: ['{a}'],
  head: [],
  lock: [],
} as const satisfies Partial<Record<keyof typeof READS, readonly string[]>>

/** Buffers that the reads of a batch for one address touch. */
async function buffersRead(network: string): Promise<number> {
  let buffers = 0
  await service.query('begin')
  for (const [name, values] of Object.entries(CANDIDATES)) {
    await service.query(`prepare measured as ${READS[name as keyof typeof CANDIDATES]}`)
    const list = [network, ...values].map((value) => pg.escapeLiteral(value)).join(', ')
    // Twice: what is found dead for everybody is marked by the first.
    for (const counted of [false, true]) {
      const { rows } = await service.query<{
        'QUERY PLAN': readonly [
          { readonly Plan: { 'Shared Hit Blocks': number; 'Shared Read Blocks': number } },
        ]
      }>(`explain (analyze, buffers, timing off, format json) execute measured(${list})`)
      const { Plan: plan } = rows[0]!['QUERY PLAN'][0]
      if (counted) buffers += plan['Shared Hit Blocks'] + plan['Shared Read Blocks']
    }
    await service.query('deallocate measured')
  }
  await service.query('rollback')
  return buffers
}

/** A reader that began now and does not end before the test. */
async function openSnapshot(): Promise<void> {
  const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
  await reader.query('begin isolation level repeatable read')
  await reader.query('select count(*) from ipledger.lease')
  onTestFinished(async () => {
    await reader.query('rollback')
    await reader.end()
  })
}

test('reserving rewrites no row that every batch needs', async () => {
  const network = await freshPool('10.0.0.0/22')
  // The first one cuts into the range and sets the cursor.
  await ledger.take(any(network, 'first'))
  const tables = ['network_lock', 'network', 'pool', 'untouched_range']
  const now = async () => {
    const all: unknown[] = []
    for (const table of tables) all.push(await versions(table, network))
    return all as readonly (readonly unknown[])[]
  }
  const before = await now()
  for (let turn = 0; turn < 100; turn += 1) {
    const lease = await ledger.take(any(network, `x${turn}`))
    await ledger.take(confirm(lease.fencingToken, { network }))
    if (turn % 2 === 0) await ledger.take(release(lease.fencingToken, { network }))
  }
  await Promise.all(Array.from({ length: 300 }, (_, i) => ledger.take(any(network, `y${i}`))))
  expect(await now()).toEqual(before)
  expect(before.map((rows) => rows.length)).toEqual([1, 1, 1, 1])
  const { rows } = await admin.query<{ relname: string; updated: number }>(
    `select relname, pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_tuples_updated(oid) as updated from pg_class
     where relnamespace = 'ipledger'::regnamespace and relname in ('network_lock', 'pool_position', 'event')`,
  )
  expect(rows.map(({ updated }) => updated)).toEqual([0, 0, 0])
  await expectPartition(admin, network)
})

test('recycling addresses reads as little after three thousand batches as after two hundred', {
  timeout: 60_000,
}, async () => {
  const network = await freshPool('10.0.0.0/24')
  const leases = await Promise.all(Array.from({ length: 254 }, (_, i) => ledger.take(any(network, `x${i}`))))
  await Promise.all(leases.map((lease) => ledger.take(release(lease.fencingToken, { network }))))
  await openSnapshot()
  const figures: number[] = []
  for (const pairs of [100, 1_400]) {
    for (let pair = 0; pair < pairs; pair += 1) {
      const lease = await ledger.take(any(network, `p${figures.length}-${pair}`))
      await ledger.take(release(lease.fencingToken, { network }))
    }
    figures.push(await buffersRead(network))
  }
  const [early, late] = figures as [number, number]
  expect(late, `${early} buffers after 200 batches, ${late} after 3,000`).toBeLessThanOrEqual(early + 8)
  await expectPartition(admin, network)
})

test('recycling by many at once reads as little later as at first', { timeout: 60_000 }, async () => {
  const network = await freshPool('10.0.0.0/22')
  const leases = await Promise.all(
    Array.from({ length: 1_021 }, (_, i) => ledger.take(any(network, `x${i}`))),
  )
  await Promise.all(leases.map((lease) => ledger.take(release(lease.fencingToken, { network }))))
  await openSnapshot()
  const figures: number[] = []
  for (const pairs of [10, 90]) {
    await Promise.all(
      Array.from({ length: 64 }, async (_, caller) => {
        for (let pair = 0; pair < pairs; pair += 1) {
          const lease = await ledger.take(any(network, `p${figures.length}-${caller}-${pair}`))
          await ledger.take(release(lease.fencingToken, { network }))
        }
      }),
    )
    figures.push(await buffersRead(network))
  }
  const [early, late] = figures as [number, number]
  expect(late, `${early} buffers after 640 pairs, ${late} after 6,400`).toBeLessThanOrEqual(early + 8)
  await expectPartition(admin, network)
})

test('using up a pool in pieces reads as little at its end as at its beginning', {
  timeout: 60_000,
}, async () => {
  const network = await freshPool('10.0.0.0/20')
  await Promise.all(
    Array.from({ length: 2_047 }, (_, i) => {
      const value = 2 * (i + 1)
      const address = `10.0.${value >> 8}.${value & 255}`
      return ledger.take(
        reserve({ network, owner: owner({ name: `t${i}` }), claims: [claim({ pool: 'a', address })] }),
      )
    }),
  )
  await openSnapshot()
  const figures: number[] = []
  for (const pieces of [100, 1_000]) {
    for (let piece = 0; piece < pieces; piece += 1)
      await ledger.take(any(network, `p${figures.length}-${piece}`))
    figures.push(await buffersRead(network))
  }
  const [early, late] = figures as [number, number]
  expect(late, `${early} buffers after 100 batches, ${late} after 1,100`).toBeLessThanOrEqual(early + 8)
  await expectPartition(admin, network)
})

test('the ledgers of this file are in order', () => expectVerified(database))
