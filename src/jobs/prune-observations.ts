/**
 * What was observed, and need not be remembered any longer: old snapshots, sightings that ended long ago, chunks of
 * snapshots that were never finished, questions about leases that are over, samples, turns of sources that are retired,
 * callers that a recovery waited for. And what sources that are retired still list, ends.
 * Epochs are never forgotten: a closed one must never open again.
 *
 * Of a held lease the last sighting of each workload by each source stays, however old: it is what makes that source a
 * witness, and without its witness a lease would be judged by whoever is left (16.8). So does the last one on each
 * boot, alive and ended: what was seen elsewhere is freed by no fence (16.5), and an ended life is no news of another (W-03).
 */
import { TERMINAL } from '../core/command.ts'
import { OF_NETWORK } from '../ledger/append.ts'
import { endRetired } from '../liveness/register.ts'
import { dropQuestions } from '../liveness/suspects.ts'
import { forgetUnknown } from '../liveness/unknown-sources.ts'
import { type Done, inEachNetwork, type Job, type JobContext } from './job.ts'
import { type Pruned, pruneUpTo } from './prune.ts'

const DAY_MS = 24 * 3_600_000
const SNAPSHOTS_KEPT_MS = 30 * DAY_MS
const SIGHTINGS_KEPT_MS = 30 * DAY_MS
const SAMPLES_KEPT_MS = 90 * DAY_MS
const PARTS_KEPT_MS = 3_600_000

export const OBSERVATIONS = {
  snapshots: { table: 'snapshot', column: 'reported_at', memoryMs: SNAPSHOTS_KEPT_MS },
  sightings: {
    table: 'sighting',
    column: 'vanished_at',
    memoryMs: SIGHTINGS_KEPT_MS,
    // Leases do not overlap: of those that begin before an address only the nearest can contain it.
    when: `(
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
           and later.node = old.node and later.boot = old.boot
           and (later.state = '${TERMINAL}') = (old.state = '${TERMINAL}')
         order by later.address, later.source_id limit 1) is not null)`,
  },
  parts: { table: 'snapshot_part', column: 'received_at', memoryMs: PARTS_KEPT_MS },
  samples: { table: 'pool_sample', column: 'at', memoryMs: SAMPLES_KEPT_MS },
} as const satisfies Readonly<Record<string, Pruned>>

/** Turns removed by one run; there are few. */
const MOST_TURNS = 2_000

/** Of sources that nobody asks again. A run that asks one at this moment ends a turn that is not there. */
export const RETIRED_TURNS = `
  delete from ipledger.turn
   where ${OF_NETWORK} and ctid = any(array(
     select old.ctid from ipledger.turn as old
      where old.network_id = $1
        and (select source.state from ipledger.source as source
              where source.network_id = $1 and source.source_id >= old.source_id and source.source_id <= old.source_id
              order by source.source_id limit 1) = 'RETIRED'
      order by old.source_id limit ${MOST_TURNS} for update skip locked))`

export const pruneObservations: Job = (context) =>
  inEachNetwork(context, (network) => pruneNetwork(context, network))

async function pruneNetwork(context: JobContext, network: string): Promise<Done> {
  const done: Record<string, number> = {}
  for (const [what, observations] of Object.entries(OBSERVATIONS)) {
    const { pruned = 0 } = await pruneUpTo(context, network, observations)
    done[what] = pruned
  }
  done.retired = await endRetired(context.database, network, context.signal)
  done.turns = (await context.database.query(RETIRED_TURNS, [network])).rowCount ?? 0
  done.unknown = await forgetUnknown(context.database, network)
  done.questions = await dropQuestions(context.database, network, context.signal)
  return done
}
