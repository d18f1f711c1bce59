import type pg from 'pg'
import type { Image } from '../core/image.ts'
import { type Ledger, loadedImage } from '../ledger/ledger.ts'
import { NETWORK_NAMES } from '../ledger/sql/jobs.ts'
import { ask } from '../postgres/on-connection.ts'
import type { Intake } from '../sources/intake.ts'
import type { PulledSources } from '../sources/pulled-sources.ts'
import type { Logger } from '../telemetry.ts'

/**
 * Something that is done again and again. A job finds its work in tables or in an image, never in what an earlier run left; the
 * ledger decides it. A job works in slices of a few milliseconds. It may be killed between two of them, and may run twice at once.
 */
export type Job = (context: JobContext) => Promise<Done>

export type JobContext = {
  /** Connections of the service's role. */
  readonly database: pg.Pool
  readonly ledger: Ledger
  readonly intake: Intake
  readonly pulled: Pick<PulledSources, 'get'>
  readonly log: Logger
  /** Aborted when the worker stops: a job ends after the slice it is at. */
  readonly signal: AbortSignal
}

/** What a run did, by name; logged when anything was. */
export type Done = Readonly<Record<string, number>>

/** Failures that are logged one by one: with the database away every network fails. */
const MOST_LOGGED = 20

/**
 * One network after the other: all of them, or these. The sums of what was done in each. A network that fails is logged and the
 * others go on; the job fails with the first such failure at the end.
 */
export async function inEachNetwork(
  { database, signal, log }: Pick<JobContext, 'database' | 'signal' | 'log'>,
  work: (network: string) => Promise<Done>,
  these?: readonly string[],
): Promise<Done> {
  const names = these ?? (await namesOf(database, NETWORK_NAMES))
  const sums: Record<string, number> = {}
  const failures: unknown[] = []
  for (const network of names) {
    if (signal.aborted) break
    try {
      for (const [what, count] of Object.entries(await work(network))) sums[what] = (sums[what] ?? 0) + count
    } catch (error) {
      if (signal.aborted) throw error
      failures.push(error)
      if (failures.length <= MOST_LOGGED) log.error({ network, err: error }, 'a job failed in this network')
    }
  }
  if (failures.length > 0) throw failures[0]
  return sums
}

/** Networks, by a statement. */
export async function namesOf(database: pg.Pool, statement: string): Promise<readonly string[]> {
  return (await ask<{ network_id: string }>(database, statement)).map((row) => row.network_id)
}

/** With the image of each. Reading it also ends a hold for the clock that is over. */
export function inEachImage(
  context: JobContext,
  work: (network: string, image: Image) => Promise<Done>,
): Promise<Done> {
  return inEachNetwork(context, async (network) => {
    const image = await loadedImage(context.ledger, network)
    return image === null ? {} : work(network, image)
  })
}
