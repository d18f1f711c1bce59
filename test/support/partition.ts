/**
 * The partition of each pool, read from the tables alone: leases, released addresses and untouched ranges (from the
 * cursor on) are disjoint and together exactly what can be leased; counts and hints of the last position are true.
 */
import type pg from 'pg'
import { expect } from 'vitest'
import { blockSize, formatValue } from '../../src/core/address.ts'
import { addressValue } from '../../src/core/books.ts'
import { buildPool, type Pool, type PoolSettings } from '../../src/core/pool.ts'
import { normalise, type Range, size } from '../../src/core/ranges.ts'
import { readAddress } from '../../src/ledger/rows.ts'

type PositionRow = {
  low_first: string | null
  cursor_first: string | null
  cursor_next: string | null
  reuse_after: number | null
  reserved: number
  active: number
  quarantined: number
  released: number
}

export type PoolPartition = {
  readonly pool: Pool
  readonly leases: readonly { readonly address: string; readonly state: string }[]
  /** In order of reuse. */
  readonly released: readonly { readonly address: string; readonly availableAt: number }[]
  readonly untouched: readonly Range[]
  readonly position: PositionRow
}

/** Fails unless every pool of the network is divided without rest or overlap; the client may read everything. */
export async function expectPartition(
  client: pg.ClientBase,
  network: string,
): Promise<ReadonlyMap<string, PoolPartition>> {
  const pools = await client.query<{ pool_id: number; settings: PoolSettings }>(
    'select pool_id, settings from ipledger.pool where network_id = $1 order by pool_id',
    [network],
  )
  const found = new Map<string, PoolPartition>()
  for (const { pool_id: poolId, settings } of pools.rows) {
    const pool = buildPool(settings, { network, poolId, version: 0, createdAt: 0, updatedAt: 0 })
    found.set(settings.name, await partitionOf(client, pool))
  }
  const strays = await client.query(
    `select x.network_id, x.pool_id from (
       select network_id, pool_id from ipledger.lease
       union select network_id, pool_id from ipledger.released_address
       union select network_id, pool_id from ipledger.untouched_range) x
     where x.network_id = $1 and not exists (
       select 1 from ipledger.pool p where p.network_id = x.network_id and p.pool_id = x.pool_id)`,
    [network],
  )
  expect(strays.rows, 'nothing is filed under a pool that is gone').toEqual([])
  await expectGapless(client, network)
  return found
}

async function partitionOf(client: pg.ClientBase, pool: Pool): Promise<PoolPartition> {
  const { network, poolId } = pool
  const where = 'where network_id = $1 and pool_id = $2'
  const key = [network, poolId]
  const leases = await client.query<{ address: string; state: string }>(
    `select address, state from ipledger.lease ${where} order by address`,
    key,
  )
  const released = await client.query<{ address: string; available_at: number }>(
    `select address, available_at from ipledger.released_address ${where} order by available_at, released_seq`,
    key,
  )
  const ranges = await client.query<{ first_address: string; last_address: string }>(
    `select first_address, last_address from ipledger.untouched_range ${where} order by first_address`,
    key,
  )
  const positions = await client.query<PositionRow>(
    `select * from ipledger.pool_position ${where} order by seq desc limit 1`,
    key,
  )
  const position = positions.rows[0]!
  const value = (text: string) => addressValue(readAddress(text))
  const block = (text: string): Range => {
    const first = value(text)
    return { first, last: first + blockSize(pool.family, pool.prefixLength) - 1n }
  }
  const untouched: Range[] = []
  for (const row of ranges.rows) {
    const stored = { first: value(row.first_address), last: value(row.last_address) }
    const atCursor = position.cursor_first !== null && value(position.cursor_first) === stored.first
    const first = atCursor ? value(position.cursor_next!) : stored.first
    if (position.low_first !== null) {
      expect(stored.first >= value(position.low_first), `${row.first_address} is not below the low end`).toBe(
        true,
      )
    }
    if (first <= stored.last) untouched.push({ first, last: stored.last })
  }
  if (position.cursor_first !== null) {
    const cursor = value(position.cursor_first)
    expect(
      ranges.rows.some((row) => value(row.first_address) === cursor),
      `the cursor's range ${position.cursor_first} is there`,
    ).toBe(true)
  }
  const pieces = [
    ...leases.rows.map((row) => block(row.address)),
    ...released.rows.map((row) => block(row.address)),
    ...untouched,
  ]
  const together = normalise(pieces)
  const show = (all: readonly Range[]) =>
    all.map(({ first, last }) => `${formatValue(pool.family, first)}-${formatValue(pool.family, last)}`)
  expect(show(together), `pool ${pool.name} is all there`).toEqual(show(pool.allocatable))
  expect(
    pieces.reduce((sum, piece) => sum + size([piece]), 0n),
    `nothing of pool ${pool.name} is there twice`,
  ).toBe(size(together))
  const count = (state: string) => leases.rows.filter((row) => row.state === state).length
  expect(
    {
      reserved: position.reserved,
      active: position.active,
      quarantined: position.quarantined,
      released: position.released,
    },
    `counts of pool ${pool.name}`,
  ).toEqual({
    reserved: count('RESERVED'),
    active: count('ACTIVE'),
    quarantined: count('QUARANTINED'),
    released: released.rows.length,
  })
  const earliest = released.rows[0]?.available_at
  if (position.reuse_after !== null && earliest !== undefined) {
    expect(position.reuse_after, 'nothing waits before the head of the queue').toBeLessThanOrEqual(earliest)
  }
  return {
    pool,
    leases: leases.rows.map((row) => ({ address: readAddress(row.address), state: row.state })),
    released: released.rows.map((row) => ({
      address: readAddress(row.address),
      availableAt: row.available_at,
    })),
    untouched,
    position,
  }
}

async function expectGapless(client: pg.ClientBase, network: string): Promise<void> {
  const { rows } = await client.query<{ first: number; last: number; count: number; back: number }>(
    `select min(seq) as first, max(seq) as last, count(*) as count,
       (select count(*) from (
          select at < lag(at) over (order by seq) as back from ipledger.event where network_id = $1) x
        where x.back) as back
     from ipledger.event where network_id = $1`,
    [network],
  )
  const { first, last, count, back } = rows[0]!
  expect({ first, last, back }, `the numbers of ${network} have no gap and its time runs forward`).toEqual({
    first: 1,
    last: count,
    back: 0,
  })
}
