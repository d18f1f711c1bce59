/** Every job, and how often it runs: one table. Minutes are counted from the full hour, in UTC. */

import { expireUnconfirmed } from './expire-unconfirmed.ts'
import type { Job } from './job.ts'
import { createPrunePositions, pruneClosedAttachments, pruneRequests } from './prune.ts'

export type Scheduled = Readonly<{
  /** A divisor of 60. */
  everyMinutes: number
  run: Job
}>

/** Jobs remember nothing that another process would have to know; what one remembers for itself begins here. */
export function createSchedule(): Readonly<Record<string, Scheduled>> {
  return {
    'expire-unconfirmed': { everyMinutes: 1, run: expireUnconfirmed },
    // A network writes up to 2,000 of them a second.
    'prune-positions': { everyMinutes: 1, run: createPrunePositions() },
    'prune-closed-attachments': { everyMinutes: 1, run: pruneClosedAttachments },
    'prune-requests': { everyMinutes: 10, run: pruneRequests },
  }
}
