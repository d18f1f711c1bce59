/** What a loop is given: its limits, its observer and its checks. */
import type { Command } from '../core/command.ts'
import type { LedgerEvent } from '../core/event.ts'
import { GUARDS, type Guards } from '../core/guards.ts'
import type { Clock } from './clock.ts'
import type { Log } from './log.ts'

export type LoopLimits = {
  /** Memory of the commands that wait, by estimate; more are OVERLOADED. */
  readonly queuedMb: number
  /** Commands a batch; a command that holds several counts as many. */
  readonly batch: number
  /** Events behind which an image is loaded anew. */
  readonly behind: number
  /** Touched addresses of a network in this process's memory. */
  readonly touched: number
  readonly deadlineMs: number
}

export const LIMITS: LoopLimits = {
  queuedMb: 256,
  batch: 1_000,
  behind: 50_000,
  touched: 1_000_000,
  deadlineMs: 10_000,
}

/** What a loop reports, for metrics and the log. */
export type Observer = {
  batch?(
    network: string,
    done: { commands: number; events: number; lockMs: number; decideMs: number; writeMs: number },
  ): void
  loaded?(network: string, done: { records: number; ms: number }): void
  failed?(network: string, what: 'begin' | 'load' | 'rolledBack' | 'vetoed' | 'unknown', error: unknown): void
  /** The database refuses, of one command alone, what was decided. */
  defect?(network: string, command: Command, error: unknown): void
  event?(network: string, event: LedgerEvent): void
}

/** What the loop checks, and the guards of the core: all in production. The simulator leaves one out, and something fails then. */
export const ALL_CHECKS = {
  CATCHES_UP_UNDER_THE_LOCK: true,
  DIGEST_AT_THE_HEAD: true,
  ANOTHER_DATABASE_IS_ANOTHER_ERA: true,
  UNDOES_WHAT_FAILED: true,
  UNKNOWN_OUTCOME_IS_LOOKED_UP: true,
  WARNED_COMMIT_IS_UNKNOWN: true,
  CLOCK_STEP_HOLDS: true,
  CLOCK_NEVER_GOES_BACK: true,
  guards: GUARDS as Guards,
}
export type LoopChecks = Readonly<typeof ALL_CHECKS>

export type LoopOptions = {
  readonly log: Log
  readonly clock: Clock
  readonly limits?: Partial<LoopLimits> | undefined
  readonly observer?: Observer | undefined
  /** Declared by the deployment: a failover loses nothing that was acknowledged. */
  readonly losesNothing?: boolean | undefined
  readonly checks?: LoopChecks | undefined
}
