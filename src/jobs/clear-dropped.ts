/**
 * What is left of pools that were deleted (migration 0008): released addresses that are filed under a pool that is gone.
 * Slice by slice from the lowest address on, without the network's lock: nothing else reads or writes such rows. A range
 * that is clear is forgotten, and then a pool may be made there again.
 */
import type pg from 'pg'
import { OF_NETWORK } from '../ledger/append.ts'
import { type Done, inEachNetwork, type Job } from './job.ts'

/** Rows of a slice, as in `prune.ts`. */
const SLICE = 2_000
/** Rows of a run: what is left is left to the next. */
const SLICES = 2_000
const PAGE = 200

/** For the test of their plans. */
export const CLEAR_STATEMENTS = {
  // Never of a pool that is there, whatever the row says: its free addresses would be lost.
  droppedRanges: `
    select d.first_address as first, d.last_address as last, d.pool_id from ipledger.dropped_range d
     where d.network_id = $1 and d.first_address > $2::inet
       and (select p.pool_id from ipledger.pool p
             where p.network_id = $1 and p.pool_id >= d.pool_id and p.pool_id <= d.pool_id order by p.pool_id limit 1) is null
     order by d.first_address limit $3`,
  leftBound: `
    select r.address as bound from ipledger.released_address r
     where r.network_id = $1 and r.address >= $2::inet and r.address <= $3::inet
     order by r.address offset $4 limit 1`,
  leftCleared: `
    delete from ipledger.released_address
     where ${OF_NETWORK}
       and ctid = any(array(
         select r.ctid from (
           select s.ctid, s.pool_id from ipledger.released_address s
            where s.network_id = $1 and s.address >= $2::inet and s.address <= $3::inet
            order by s.address for update skip locked) r
          where r.pool_id = $4))`,
  rangeCleared: `
    delete from ipledger.dropped_range d
     where d.network_id = $1 and d.first_address = $2::inet
       and (select r.address from ipledger.released_address r
             where r.network_id = $1 and r.address >= $2::inet and r.address <= $3::inet
             order by r.address limit 1) is null`,
} as const

type Left = { readonly first: string; readonly last: string; readonly pool_id: number }

export const clearDropped: Job = (context) =>
  inEachNetwork(context, async (network) => {
    const { database, signal } = context
    let cleared = 0
    for (let after = '0.0.0.0/0', slices = SLICES; ; ) {
      const { rows } = await database.query<Left>(CLEAR_STATEMENTS.droppedRanges, [network, after, PAGE])
      for (const left of rows) {
        if (signal.aborted || slices === 0) return { cleared }
        const done = await clearRange(database, network, left, { signal, most: slices })
        cleared += done.cleared
        slices -= done.slices
      }
      const last = rows.at(-1)
      if (last === undefined) return { cleared }
      after = last.first
    }
  })

async function clearRange(
  database: pg.Pool,
  network: string,
  { first, last, pool_id }: Left,
  { signal, most }: { readonly signal: AbortSignal; readonly most: number },
): Promise<Done & { readonly cleared: number; readonly slices: number }> {
  let cleared = 0
  let slices = 0
  for (let from = first; slices < most && !signal.aborted; ) {
    slices += 1
    const { rows } = await database.query<{ bound: string }>(CLEAR_STATEMENTS.leftBound, [
      network,
      from,
      last,
      SLICE - 1,
    ])
    const upTo = rows[0]?.bound ?? last
    const { rowCount } = await database.query(CLEAR_STATEMENTS.leftCleared, [network, from, upTo, pool_id])
    cleared += rowCount ?? 0
    if (rows.length === 0) {
      await database.query(CLEAR_STATEMENTS.rangeCleared, [network, first, last])
      break
    }
    from = upTo
  }
  return { cleared, slices }
}
