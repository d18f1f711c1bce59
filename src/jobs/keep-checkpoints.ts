/**
 * Checkpoints of the table of leases follow the log (ledger/checkpoints.ts). A run makes all that are due; where a long log
 * has none yet, it goes on for most of its slot and leaves the rest to the next.
 */
import { makeCheckpoint } from '../ledger/checkpoints.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { inEachNetwork, type Job } from './job.ts'

/** The job runs each minute. One more begun at its end takes seconds. */
const SLOT_MS = 45_000
/** One of a network takes turns with the others' after so many. */
const IN_A_ROW = 5

export const keepCheckpoints: Job = async (context) => {
  const { database, signal } = context
  const end = performance.now() + SLOT_MS
  const inTime = () => !signal.aborted && performance.now() < end
  const sums = { checkpoints: 0 }
  for (let more = true; more && inTime(); ) {
    more = false
    await inEachNetwork(context, async (network) => {
      for (let made = 0; inTime(); ) {
        if (!(await onConnection(database, (client) => makeCheckpoint(client, network, { signal })))) break
        sums.checkpoints += 1
        made += 1
        if (made === IN_A_ROW) {
          more = true
          break
        }
      }
      return {}
    })
  }
  return sums
}
