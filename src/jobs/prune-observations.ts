/**
 * What was observed, and need not be remembered any longer: old snapshots, sightings that ended long ago, chunks of
 * snapshots that were never finished, questions about leases that are over, samples. Epochs are never forgotten: a
 * closed one must never open again.
 *
 * Of a held lease the last sighting of each workload by each source stays, however old: it is what makes that source a
 * witness, and without its witness a lease would be judged by whoever is left (16.8).
 */
import { OF_NETWORK } from '../ledger/append.ts'
import { dropQuestions } from '../liveness/suspects.ts'
import { type Done, inEachNetwork, type Job, type JobContext } from './job.ts'
import { type Pruning, pruneUpTo } from './prune.ts'

const DAY_MS = 24 * 3_600_000
const SNAPSHOTS_KEPT_MS = 30 * DAY_MS
const SIGHTINGS_KEPT_MS = 30 * DAY_MS
const SAMPLES_KEPT_MS = 90 * DAY_MS
const PARTS_KEPT_MS = 3_600_000

type Kept = Pick<Pruning, 'memoryMs' | 'bound' | 'prune'>

const PRUNED = {
  snapshots: {
    memoryMs: SNAPSHOTS_KEPT_MS,
    bound: `
      select reported_at::text as bound from ipledger.snapshot
       where network_id = $1 and reported_at > $2::timestamptz and reported_at < now() - $3::bigint * interval '1 millisecond'
       order by reported_at offset $4 limit 1`,
    prune: `
      delete from ipledger.snapshot
       where ${OF_NETWORK}
         and ctid = any(array(
           select ctid from ipledger.snapshot
            where network_id = $1 and reported_at > $2::timestamptz and reported_at <= $4::timestamptz
              and reported_at < now() - $3::bigint * interval '1 millisecond'
            order by reported_at for update skip locked))`,
  },
  sightings: {
    memoryMs: SIGHTINGS_KEPT_MS,
    bound: `
      select vanished_at::text as bound from ipledger.sighting
       where network_id = $1 and vanished_at > $2::timestamptz and vanished_at < now() - $3::bigint * interval '1 millisecond'
       order by vanished_at offset $4 limit 1`,
    // Leases do not overlap: of those that begin before an address only the nearest can contain it.
    prune: `
      delete from ipledger.sighting
       where ${OF_NETWORK}
         and ctid = any(array(
           select old.ctid from ipledger.sighting as old
            where old.network_id = $1 and old.vanished_at > $2::timestamptz and old.vanished_at <= $4::timestamptz
              and old.vanished_at < now() - $3::bigint * interval '1 millisecond'
              and (
                coalesce((
                  select lease.address = old.address or set_masklen(lease.address, lease.prefix_length) >>= old.address
                    from ipledger.lease as lease
                   where lease.network_id = $1 and lease.address <= old.address
                   order by lease.address desc limit 1), false) is false
                or (
                  select later.appeared_sequence from ipledger.sighting as later
                   where later.network_id = $1 and later.address >= old.address and later.address <= old.address
                     and later.source_id = old.source_id and later.appeared_sequence > old.appeared_sequence
                     and later.owner_kind is not distinct from old.owner_kind
                     and later.owner_uid is not distinct from old.owner_uid
                     and later.owner_name is not distinct from old.owner_name
                   order by later.address, later.source_id limit 1) is not null)
            order by old.vanished_at for update skip locked))`,
  },
  parts: {
    memoryMs: PARTS_KEPT_MS,
    bound: `
      select received_at::text as bound from ipledger.snapshot_part
       where network_id = $1 and received_at > $2::timestamptz and received_at < now() - $3::bigint * interval '1 millisecond'
       order by received_at offset $4 limit 1`,
    prune: `
      delete from ipledger.snapshot_part
       where ${OF_NETWORK}
         and ctid = any(array(
           select ctid from ipledger.snapshot_part
            where network_id = $1 and received_at > $2::timestamptz and received_at <= $4::timestamptz
              and received_at < now() - $3::bigint * interval '1 millisecond'
            order by received_at for update skip locked))`,
  },
  samples: {
    memoryMs: SAMPLES_KEPT_MS,
    bound: `
      select at::text as bound from ipledger.pool_sample
       where network_id = $1 and at > $2::timestamptz and at < now() - $3::bigint * interval '1 millisecond'
       order by at offset $4 limit 1`,
    prune: `
      delete from ipledger.pool_sample
       where ${OF_NETWORK}
         and ctid = any(array(
           select ctid from ipledger.pool_sample
            where network_id = $1 and at > $2::timestamptz and at <= $4::timestamptz
              and at < now() - $3::bigint * interval '1 millisecond'
            order by at for update skip locked))`,
  },
} as const satisfies Readonly<Record<string, Kept>>

/** For the test of their plans. */
export const PRUNE_STATEMENTS = Object.fromEntries(
  Object.entries(PRUNED).flatMap(([what, { bound, prune }]) => [
    [`${what}Bound`, bound],
    [`${what}Prune`, prune],
  ]),
)

export const pruneObservations: Job = (context) =>
  inEachNetwork(context, (network) => pruneNetwork(context, network))

async function pruneNetwork(context: JobContext, network: string): Promise<Done> {
  const done: Record<string, number> = {}
  for (const [what, kept] of Object.entries(PRUNED)) {
    const { pruned = 0 } = await pruneUpTo(context, { network, ...kept })
    done[what] = pruned
  }
  done.questions = await dropQuestions(context.database, network, context.signal)
  return done
}
