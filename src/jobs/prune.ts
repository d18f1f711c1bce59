/** Forgets old answers to requests, look-ups of leases that are over, and old samples. */
import { POLICY } from '../core/policy.ts'
import { oldest, pruneStretch } from '../ledger/sql/jobs.ts'
import { PRUNE_LOOK_UPS } from '../ledger/sql/look-ups.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { inEachNetwork, type Job } from './job.ts'

/** For one network; the next run does the rest. */
const WITHIN_MS = 300_000
const SAMPLES_KEPT_MS = 90 * 24 * 3_600_000
export const prune: Job = (context) =>
  inEachNetwork(context, (network) =>
    onConnection(
      context.database,
      async (client) => {
        const pruneTable = async (table: string, memoryMs: number): Promise<number> => {
          for (let pruned = 0; ; ) {
            const { rows } = await client.query<{ at: string | null }>(oldest(table), [network, memoryMs])
            if (rows[0]!.at === null || context.signal.aborted) return pruned
            pruned +=
              (await client.query(pruneStretch(table), [network, memoryMs, rows[0]!.at])).rowCount ?? 0
          }
        }
        return {
          requests: await pruneTable('request', POLICY.requestMemoryMs),
          samples: await pruneTable('pool_sample', SAMPLES_KEPT_MS),
          lookUps: (await client.query(PRUNE_LOOK_UPS, [network])).rowCount ?? 0,
        }
      },
      WITHIN_MS,
    ),
  )
