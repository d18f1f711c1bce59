/**
 * Checkpoints of the table of leases follow the log (ledger/checkpoints.ts). A run makes all that are due; where a long log
 * has none yet, it goes on for most of its slot and leaves the rest to the next.
 */
import { makeCheckpoint } from '../ledger/checkpoints.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { inTurns, type Job } from './job.ts'

/** The job runs each minute. One more begun at its end takes seconds. */
const SLOT_MS = 45_000
/** One of a network takes turns with the others' after so many. */
const IN_A_ROW = 5

export const keepCheckpoints: Job = async (context) => {
  const { database, signal } = context
  const end = performance.now() + SLOT_MS
  const inTime = () => !signal.aborted && performance.now() < end
  const takeTurn = async (network: string) => {
    let made = 0
    while (made < IN_A_ROW && inTime()) {
      if (!(await onConnection(database, (client) => makeCheckpoint(client, network, { signal })))) break
      made += 1
    }
    return { done: { checkpoints: made }, more: made === IN_A_ROW }
  }
  return { checkpoints: 0, ...(await inTurns(context, takeTurn, inTime)) }
}
