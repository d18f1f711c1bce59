/**
 * The database's clock as this process sees it, beside its own monotonic clock. Everything that cools, expires or is proven
 * young hangs on that clock: set forward, all of it would be over at once.
 *
 * A reading was made at some moment between sending and receiving, so a busy process sees no step. A step while no process
 * runs is not seen.
 */
import { POLICY } from '../core/policy.ts'

export type Step = { readonly byMs: number; readonly at: number }

export type ClockWatch = {
  /** `clock` in milliseconds since 1970; the others by the monotonic clock. */
  observe(clock: number, sent: number, received: number): void
  /** Forward steps that have not elapsed yet at a moment of the monotonic clock. */
  steps(now: number): readonly Step[]
  /** The database's clock at a moment of the monotonic clock, as last compared. */
  at(now: number): number
}

export function watchClock(onStep: (byMs: number) => void = () => {}): ClockWatch {
  /** The database's clock is ahead of the monotonic one by between these two. */
  let ahead: { readonly least: number; readonly most: number } | undefined
  let steps: readonly Step[] = []
  return {
    observe(clock, sent, received) {
      const now = { least: clock - received, most: clock - sent }
      const before = ahead
      ahead = now
      if (before === undefined) return
      const forward = now.least - before.most
      const back = before.least - now.most
      if (forward > POLICY.clockStepMs) {
        steps = [...steps.filter(({ at, byMs }) => at + byMs > received), { byMs: forward, at: received }]
        onStep(forward)
      } else if (back > POLICY.clockStepMs) onStep(-back)
    },
    steps: (now) => steps.filter(({ at, byMs }) => at + byMs > now),
    at: (now) => Math.floor(now + (ahead?.most ?? Date.now() - now)),
  }
}
