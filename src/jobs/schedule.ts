/** Every job, and how often it runs: one table. Minutes are counted from the full hour, in UTC. */

import { clearDropped } from './clear-dropped.ts'
import { createClearQuarantine } from './clear-quarantine.ts'
import { endRecovery } from './end-recovery.ts'
import { expireUnconfirmed } from './expire-unconfirmed.ts'
import type { Job } from './job.ts'
import { keepCheckpoints } from './keep-checkpoints.ts'
import { observePools } from './observe-pools.ts'
import { observeStuck } from './observe-stuck.ts'
import { createProcessSnapshots } from './process-snapshots.ts'
import { createProjectTenure } from './project-tenure.ts'
import { createPrunePositions, pruneClosedAttachments, pruneRequests } from './prune.ts'
import { pruneObservations } from './prune-observations.ts'
import { createPullSources } from './pull-sources.ts'
import { sealLog } from './seal-log.ts'
import { createVerifyLog } from './verify-log.ts'
import { createVerifySuspects } from './verify-suspects.ts'

export type Scheduled = Readonly<{
  /** A divisor of 60. */
  everyMinutes: number
  run: Job
  /** It stays for most of its minute, looking every second or two: that a run takes long says nothing. */
  stays?: true
}>

/** Most of a slot: answers that are awaited are looked at as they come, and the next run begins with what is left. */
const STAY_FOR_ANSWERS_MS = 50_000

/** Jobs remember nothing that another process would have to know; what one remembers for itself begins here. */
export function createSchedule(): Readonly<Record<string, Scheduled>> {
  return {
    'expire-unconfirmed': { everyMinutes: 1, run: expireUnconfirmed },
    'end-recovery': { everyMinutes: 1, run: endRecovery },
    'pull-sources': { everyMinutes: 1, run: createPullSources(), stays: true },
    'process-snapshots': { everyMinutes: 1, run: createProcessSnapshots() },
    'verify-suspects': {
      everyMinutes: 1,
      run: createVerifySuspects({ stayMs: STAY_FOR_ANSWERS_MS }),
      stays: true,
    },
    'clear-quarantine': { everyMinutes: 1, run: createClearQuarantine() },
    'observe-pools': { everyMinutes: 1, run: observePools },
    'observe-stuck': { everyMinutes: 1, run: observeStuck },
    'project-tenure': { everyMinutes: 1, run: createProjectTenure(), stays: true },
    'keep-checkpoints': { everyMinutes: 1, run: keepCheckpoints },
    // A network writes up to 2,000 of them a second.
    'prune-positions': { everyMinutes: 1, run: createPrunePositions() },
    'clear-dropped': { everyMinutes: 1, run: clearDropped },
    'prune-closed-attachments': { everyMinutes: 1, run: pruneClosedAttachments },
    'seal-log': { everyMinutes: 1, run: sealLog },
    'verify-log': { everyMinutes: 1, run: createVerifyLog() },
    'prune-requests': { everyMinutes: 10, run: pruneRequests },
    'prune-observations': { everyMinutes: 10, run: pruneObservations },
  }
}
