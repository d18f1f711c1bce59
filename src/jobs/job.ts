import type pg from 'pg'
import type { Ledger } from '../ledger/ledger.ts'
import type { AskedSources } from '../liveness/asked.ts'
import type { Intake } from '../liveness/report.ts'
import type { Logger } from '../telemetry.ts'

/**
 * Something that is done again and again (DESIGN §4, Jobs). A job finds what is to be done by looking at the tables,
 * never at what an earlier run left; works in slices, each in a short transaction of its own; may be killed between
 * any two of them, and may run twice at once.
 */
export type Job = (context: JobContext) => Promise<Done>

export type JobContext = Readonly<{
  /** Connections of the service's role. */
  database: pg.Pool
  ledger: Ledger
  /** Of what sources see, on connections of its own: a large list holds up no other job. */
  intake: Intake
  asked: AskedSources
  log: Logger
  /** Aborted when the worker stops: a job ends after the slice it is at. */
  signal: AbortSignal
}>

/** What a run did, by name; logged when anything was. */
export type Done = Readonly<Record<string, number>>

/** One network after the other, in order of name, until `signal`. The sums of what was done in each. */
export async function inEachNetwork(
  { database, signal }: Pick<JobContext, 'database' | 'signal'>,
  work: (network: string) => Promise<Done>,
): Promise<Done> {
  const { rows } = await database.query<{ network_id: string }>(
    'select network_id from ipledger.network order by network_id',
  )
  const sums: Record<string, number> = {}
  for (const { network_id } of rows) {
    if (signal.aborted) break
    for (const [what, count] of Object.entries(await work(network_id))) {
      sums[what] = (sums[what] ?? 0) + count
    }
  }
  return sums
}

/** As `inEachNetwork`, for walks that may be too long for one run: the next run of this process goes on where one stopped. */
export function createWalks() {
  const stoppedAt = new Map<string, string>()
  return (
    context: Pick<JobContext, 'database' | 'signal'>,
    walk: (
      network: string,
      from: string | null,
    ) => Promise<{ readonly done: Done; readonly after: string | null }>,
  ): Promise<Done> =>
    inEachNetwork(context, async (network) => {
      const { done, after } = await walk(network, stoppedAt.get(network) ?? null)
      if (after === null) stoppedAt.delete(network)
      else stoppedAt.set(network, after)
      return done
    })
}
