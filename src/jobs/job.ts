import type pg from 'pg'
import type { Image } from '../core/image.ts'
import { inSlices } from '../in-slices.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { ask } from '../postgres/on-connection.ts'
import type { AskedSources } from '../sources/ask.ts'
import type { Intake } from '../sources/intake.ts'
import type { Logger } from '../telemetry.ts'

/**
 * Something that is done again and again. A job finds what is to be done in tables or in an image, never in what an earlier
 * run left; the ledger decides it. It works in slices of a few milliseconds, may be killed between any two of them, and may
 * run twice at once.
 */
export type Job = (context: JobContext) => Promise<Done>

export type JobContext = {
  /** Connections of the service's role. */
  readonly database: pg.Pool
  readonly ledger: Ledger
  readonly intake: Intake
  readonly asked: AskedSources
  readonly log: Logger
  /** Aborted when the worker stops: a job ends after the slice it is at. */
  readonly signal: AbortSignal
}

/** What a run did, by name; logged when anything was. */
export type Done = Readonly<Record<string, number>>

/** What every command of a job says of itself. */
export const commandOf = (network: string, job: string, cause: string) => ({
  network,
  actor: { name: `job:${job}`, node: null },
  cause,
  requestId: null,
  fingerprint: null,
  traceId: null,
})

/** Said one by one; with the database away every network fails. */
const MOST_SAID = 20

/**
 * One network after the other: all of them, or these. The sums of what was done in each. One that fails holds up none of the
 * others: it is said, and the job fails with the first such failure when it has been to all.
 */
export async function inEachNetwork(
  { database, signal, log }: Pick<JobContext, 'database' | 'signal' | 'log'>,
  work: (network: string) => Promise<Done>,
  these?: readonly string[],
): Promise<Done> {
  const all = 'select network_id from ipledger.network order by network_id'
  const names = these ?? (await ask<{ network_id: string }>(database, all)).map((row) => row.network_id)
  const sums: Record<string, number> = {}
  const failures: unknown[] = []
  for (const network of names) {
    if (signal.aborted) break
    try {
      for (const [what, count] of Object.entries(await work(network))) sums[what] = (sums[what] ?? 0) + count
    } catch (error) {
      if (signal.aborted) throw error
      failures.push(error)
      if (failures.length <= MOST_SAID) log.error({ network, err: error }, 'a job failed in this network')
    }
  }
  if (failures.length > 0) throw failures[0]
  return sums
}

/** With the image of each, whose reading also ends a hold for the clock that is over. */
export function inEachImage(
  context: JobContext,
  work: (network: string, image: Image) => Promise<Done>,
): Promise<Done> {
  return inEachNetwork(context, async (network) => {
    const image = await context.ledger.image(network)
    return image === null ? {} : work(network, image)
  })
}

/** What `pick` makes of items, without its nulls, so many at a time; by turns with everything else that the process does. */
export async function* sift<T, R>(
  items: Iterable<T>,
  pick: (item: T) => R | null,
  most: number,
  signal: AbortSignal,
): AsyncGenerator<readonly R[]> {
  let found: R[] = []
  for await (const slice of inSlices(items, signal))
    for (const item of slice) {
      const picked = pick(item)
      if (picked !== null) found.push(picked)
      if (found.length < most) continue
      yield found
      found = []
      if (signal.aborted) return
    }
  if (found.length > 0) yield found
}
