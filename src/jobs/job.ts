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

type InNetworks = Pick<JobContext, 'database' | 'signal' | 'log'>

/**
 * One network after the other, in order of name, until `signal`. The sums of what was done in each. One that fails holds up
 * none of the others: it is said, and the job fails with the first such failure when it has been to all.
 */
export function inEachNetwork(context: InNetworks, work: (network: string) => Promise<Done>): Promise<Done> {
  return inTurns(context, async (network) => ({ done: await work(network), more: false }))
}

/**
 * The same in turns, for what may have much to do in one network: those that have more come again, one after the other, for
 * as long as there is time.
 */
export async function inTurns(
  { database, log, signal }: InNetworks,
  work: (network: string) => Promise<{ readonly done: Done; readonly more: boolean }>,
  inTime: () => boolean = () => true,
): Promise<Done> {
  const { rows } = await database.query<{ network_id: string }>(
    'select network_id from ipledger.network order by network_id',
  )
  const sums: Record<string, number> = {}
  const failures = collectFailures(log)
  for (let left = rows.map(({ network_id }) => network_id); left.length > 0; ) {
    const more: string[] = []
    for (const network of left) {
      if (signal.aborted || !inTime()) return failures.end(sums)
      try {
        const turn = await work(network)
        for (const [what, count] of Object.entries(turn.done)) sums[what] = (sums[what] ?? 0) + count
        if (turn.more) more.push(network)
      } catch (error) {
        if (signal.aborted) throw error
        failures.add(network, error)
      }
    }
    left = more
  }
  return failures.end(sums)
}

/** Said one by one; with the database away every network fails. */
const MOST_SAID = 20

/** What failed in one network and is thrown when the others are done. */
export function collectFailures(log: Pick<Logger, 'error'>) {
  let first: { readonly error: unknown } | null = null
  let count = 0
  return {
    add(network: string, error: unknown): void {
      first ??= { error }
      count += 1
      if (count <= MOST_SAID) log.error({ network, err: error }, 'a job failed in this network')
    },
    end<T>(done: T): T {
      if (first !== null) throw first.error
      return done
    },
  }
}

/** As `inEachNetwork`, for walks that may be too long for one run: the next run of this process goes on where one stopped. */
export function createWalks() {
  const stoppedAt = new Map<string, string>()
  return (
    context: InNetworks,
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
