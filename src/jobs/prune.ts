/** What need not be remembered any longer: answers to requests, look-ups of leases that are over, samples. */
import { POLICY } from '../core/policy.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { inEachNetwork, type Job } from './job.ts'

/** Of one network; what is left is left to the next run. */
const WITHIN_MS = 300_000
const SAMPLES_KEPT_MS = 90 * 24 * 3_600_000
/** A statement deletes what is of so long a time: of an hour's requests at 5,000 a second, 300,000 rows. Not measured. */
const STRETCH = '1 minute'

const LOOK_UPS = `
  delete from ipledger.lookup k
   where k.network_id = $1 and not exists (
     select from ipledger.lease l where l.network_id = $1 and l.address = k.address and l.state <> 'FREE')`

/** The oldest stretch first, so that what is dead but not yet vacuumed is not walked again. */
const oldest = (table: string) => `
  select min(x.at)::text as at from ipledger.${table} x where x.network_id = $1 and x.at < now() - $2 * interval '1 millisecond'`
const stretch = (table: string) => `
  delete from ipledger.${table} x
   where x.network_id = $1 and x.at < now() - $2 * interval '1 millisecond'
     and x.at >= $3::timestamptz and x.at < $3::timestamptz + interval '${STRETCH}'`

export const prune: Job = (context) =>
  inEachNetwork(context, (network) =>
    onConnection(
      context.database,
      async (client) => {
        const pruneTable = async (table: string, memoryMs: number): Promise<number> => {
          for (let pruned = 0; ; ) {
            const { rows } = await client.query<{ at: string | null }>(oldest(table), [network, memoryMs])
            if (rows[0]!.at === null || context.signal.aborted) return pruned
            pruned += (await client.query(stretch(table), [network, memoryMs, rows[0]!.at])).rowCount ?? 0
          }
        }
        return {
          requests: await pruneTable('request', POLICY.requestMemoryMs),
          samples: await pruneTable('pool_sample', SAMPLES_KEPT_MS),
          lookUps: (await client.query(LOOK_UPS, [network])).rowCount ?? 0,
        }
      },
      WITHIN_MS,
    ),
  )
