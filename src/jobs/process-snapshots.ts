/**
 * What sources list, held against the books: everything live that the books do not say is brought before the ledger,
 * whoever reported it and whenever. Reports bring their own news at once; this finds what they could not.
 */
import { isBusy, sightListed } from '../liveness/sighted.ts'
import { inEachNetwork, type Job } from './job.ts'

export const PROCESS_ACTOR = 'job:process-snapshots'

/** Where a walk that was too long for one run goes on, by network: of this process. */
export function createProcessSnapshots(): Job {
  const stoppedAt = new Map<string, string>()
  return (context) =>
    inEachNetwork(context, async (network) => {
      const { database, ledger, log, signal } = context
      const from = stoppedAt.get(network) ?? null
      const { findings, refused, after } = await sightListed({ database, ledger }, network, PROCESS_ACTOR, {
        after: from,
        signal,
      })
      if (after === null) stoppedAt.delete(network)
      else stoppedAt.set(network, after)
      if (refused !== null && isBusy(refused)) {
        log.warn({ network, reason: refused.reason }, 'sightings are left to the next run')
      }
      return changesOf(findings)
    })
}

const CHANGES = [
  'CONFIRMED',
  'ADOPTED',
  'CONFLICT',
  'RELEASED_BUT_LIVE',
  'FOREIGN',
  'SECOND_ADDRESS',
] as const

function changesOf(findings: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  return Object.fromEntries(
    CHANGES.flatMap((because) => {
      const count = findings[because]
      return count === undefined ? [] : [[because.toLowerCase(), count]]
    }),
  )
}
