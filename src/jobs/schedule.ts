/** Every job, and how often it runs: one table. Minutes are counted from the full hour, in UTC. */
import { expire } from './expire.ts'
import type { Job } from './job.ts'
import { judge } from './judge.ts'
import { prune } from './prune.ts'
import { Pull } from './pull.ts'
import { recheck } from './recheck.ts'
import { Sample } from './sample.ts'
import { verify } from './verify.ts'

/** `everyMinutes`: a divisor of 60. */
export type Schedule = Readonly<Record<string, { readonly everyMinutes: number; readonly run: Job }>>

/** Jobs remember nothing that another process would have to know. Their own memory begins here. */
export function createSchedule(): Schedule {
  return {
    expire: { everyMinutes: 1, run: expire },
    judge: { everyMinutes: 1, run: judge },
    pull: { everyMinutes: 1, run: new Pull().run },
    recheck: { everyMinutes: 1, run: recheck },
    sample: { everyMinutes: 1, run: new Sample().run },
    verify: { everyMinutes: 1, run: verify },
    prune: { everyMinutes: 10, run: prune },
  }
}
