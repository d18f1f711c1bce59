/**
 * What the tables need not remember any longer. Rows the write path holds at the moment are skipped, never waited for
 * (it may wait for ours, so waiting both ways would be a deadlock), and go with a later run. Slices follow each other
 * along an index and never go back, so that rows pruned a moment ago, dead but not yet vacuumed, are not walked again.
 */

import type pg from 'pg'
import { KEEPS_CLOSED } from '../core/lease.ts'
import { POLICY } from '../core/policy.ts'
import { OF_NETWORK } from '../ledger/append.ts'
import { reasonsOf } from '../ledger/rows.ts'
import { type Done, inEachNetwork, type Job, type JobContext } from './job.ts'

/** Rows of a slice: 5 ms for positions, 7 for requests, 14 for closed attachments, the worst 60 (2 cores, 300,000 rows). */
const SLICE = 2_000
/** Rows of a run: what is left is left to the next. */
const SLICES = 2_000

/** Rows of one table, by the time that one of its indexes has them by. */
export type Pruned = Readonly<{
  memoryMs: number
  table: string
  column: string
  /** Of rows called `old`: those that may go. All of them, if it is not given. */
  when?: string
}>

/** ($1 network, $2 after this time, $3 memory) Of `bound`, the time of the row that ends a slice, $4 is its rows; of `prune` its end. */
export function statementsOf({ table, column, when }: Pruned): Readonly<{ bound: string; prune: string }> {
  const old = `old.network_id = $1 and old.${column} > $2::timestamptz
            and old.${column} < now() - $3::bigint * interval '1 millisecond'`
  return {
    bound: `select old.${column}::text as bound from ipledger.${table} as old where ${old}
            order by old.${column} offset $4 limit 1`,
    prune: `delete from ipledger.${table} where ${OF_NETWORK} and ctid = any(array(
           select old.ctid from ipledger.${table} as old
            where ${old} and old.${column} <= $4::timestamptz ${when === undefined ? '' : `and ${when}`}
            order by old.${column} for update skip locked))`,
  }
}

export const REQUESTS: Pruned = { table: 'request', column: 'at', memoryMs: POLICY.requestMemoryMs }

export const CLOSINGS: Pruned = {
  table: 'closed_attachment',
  column: 'closed_at',
  memoryMs: POLICY.retryHorizonMs,
  // Each attachment's lease is looked up by itself: a join walks all leases once more for each, the dead ones too
  // while a snapshot is held open (two processors busy after five minutes of it).
  when: `(
    select lease.fencing_token from ipledger.lease
     where lease.network_id = $1
       and lease.attachment_key >= old.attachment_key and lease.attachment_key <= old.attachment_key
       and lease.quarantine_reason in (${reasonsOf(KEEPS_CLOSED)})
     order by lease.attachment_key limit 1) is null`,
}

/** Remembered requests: their ids have been exactly-once for as long as was promised. */
export const pruneRequests: Job = (context) =>
  inEachNetwork(context, (network) => pruneUpTo(context, network, REQUESTS))

/**
 * Closed attachments, once late calls of them cannot arrive any more: after the retry horizon, and when no lease of
 * theirs is quarantined because it was superseded or its removal is unknown. Whoever reads them judges by the same
 * rule, so a row that should have gone already changes nothing.
 */
export const pruneClosedAttachments: Job = (context) =>
  inEachNetwork(context, (network) => pruneUpTo(context, network, CLOSINGS))

/** By time, slice after slice. Times go back and forth as text, which is exact. */
export async function pruneUpTo(
  { database, signal }: Pick<JobContext, 'database' | 'signal'>,
  network: string,
  pruned: Pruned,
): Promise<Done> {
  const { bound, prune } = statementsOf(pruned)
  let count = 0
  let after = '-infinity'
  for (let slice = 0; slice < SLICES && !signal.aborted; slice++) {
    const { rows } = await database.query<{ bound: string }>(bound, [
      network,
      after,
      pruned.memoryMs,
      SLICE - 1,
    ])
    const upTo = rows[0]?.bound ?? 'infinity'
    const { rowCount } = await database.query(prune, [network, after, pruned.memoryMs, upTo])
    count += rowCount ?? 0
    if (rows.length === 0) break
    after = upTo
  }
  return { pruned: count }
}

/** Skips from pool to pool: there may be millions of positions and few pools. */
const LIST_POSITIONED = `
  with recursive positioned as (
    (select pool_id from ipledger.pool_position where network_id = $1 order by pool_id limit 1)
    union all
    select (select next.pool_id from ipledger.pool_position as next
             where next.network_id = $1 and next.pool_id > positioned.pool_id
             order by next.pool_id limit 1)
      from positioned
     where positioned.pool_id is not null)
  select pool_id from positioned where pool_id is not null`

const LATEST = `
  select position.seq, exists (
           select from ipledger.pool where pool.network_id = $1 and pool.pool_id = $2) as pool_exists
    from ipledger.pool_position as position
   where position.network_id = $1 and position.pool_id = $2
   order by position.seq desc
   limit 1`

const POSITION_BOUND = `
  select seq as bound from ipledger.pool_position
   where network_id = $1 and pool_id = $2 and seq > $3 and seq < $4
   order by seq offset $5 limit 1`

const PRUNE_POSITIONS = `
  delete from ipledger.pool_position
   where ${OF_NETWORK}
     and ctid = any(array(
       select ctid from ipledger.pool_position
        where network_id = $1 and pool_id = $2 and seq > $3 and seq <= $4
        order by seq for update skip locked))`

/**
 * Positions of pools that later ones replaced: all but the latest of each pool, and all of a pool that was deleted.
 * Below what an earlier run of this process pruned lie only dead rows: with a snapshot held open for long nobody
 * vacuums them, and walking all of them each minute would end in the statement's time-out.
 */
export function createPrunePositions(): Job {
  let prunedUpTo = new Map<string, number>()
  return async (context) => {
    const seen = new Map<string, number>()
    try {
      const done = await inEachNetwork(context, async (network) => {
        const { rows } = await context.database.query<{ pool_id: number }>(LIST_POSITIONED, [network])
        let pruned = 0
        for (const { pool_id } of rows) {
          const key = `${network}/${pool_id}`
          const result = await prunePool(context, network, pool_id, prunedUpTo.get(key) ?? 0)
          pruned += result.pruned
          seen.set(key, result.upTo)
        }
        return { pruned }
      })
      prunedUpTo = seen
      return done
    } catch (error) {
      // Of a network that failed it is what was known before.
      prunedUpTo = new Map([...prunedUpTo, ...seen])
      throw error
    }
  }
}

async function prunePool(
  { database, signal }: Readonly<{ database: pg.Pool; signal: AbortSignal }>,
  network: string,
  poolId: number,
  from: number,
): Promise<Readonly<{ pruned: number; upTo: number }>> {
  const { rows } = await database.query<{ seq: number; pool_exists: boolean }>(LATEST, [network, poolId])
  const latest = rows[0]
  if (latest === undefined) return { pruned: 0, upTo: from }
  const end = latest.pool_exists ? latest.seq : latest.seq + 1
  let pruned = 0
  let after = from
  for (let slice = 0; slice < SLICES && !signal.aborted; slice++) {
    const found = await database.query<{ bound: number }>(POSITION_BOUND, [
      network,
      poolId,
      after,
      end,
      SLICE - 1,
    ])
    const upTo = found.rows[0]?.bound ?? end - 1
    const { rowCount } = await database.query(PRUNE_POSITIONS, [network, poolId, after, upTo])
    pruned += rowCount ?? 0
    after = upTo
    if (found.rows.length === 0) break
  }
  return { pruned, upTo: after }
}
