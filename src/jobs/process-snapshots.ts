/**
 * What sources list, held against the books: everything live that the books do not say is brought before the ledger,
 * whoever reported it and whenever. Reports bring their own news at once; this finds what they could not.
 */
import { isBusy, sightListed } from '../liveness/sighted.ts'
import { createWalks, type Job } from './job.ts'

export const PROCESS_ACTOR = 'job:process-snapshots'

export function createProcessSnapshots(): Job {
  const inEachNetwork = createWalks()
  return (context) =>
    inEachNetwork(context, async (network, from) => {
      const { database, ledger, log, signal } = context
      const { findings, refused, after } = await sightListed({ database, ledger }, network, PROCESS_ACTOR, {
        after: from,
        signal,
      })
      if (refused !== null && isBusy(refused)) {
        log.warn({ network, reason: refused.reason }, 'sightings are left to the next run')
      }
      return { done: changesOf(findings), after }
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
