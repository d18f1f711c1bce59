/**
 * Time as a process has it: its own monotonic clock, and the database's clock beside it. Everything that cools, expires or is
 * proven young hangs on the latter: set forward, all of it would be over at once. Tests and the simulator have clocks of their
 * own.
 *
 * A reading was made at some moment between sending and receiving, so a busy process sees no step. A slow reading, as after a
 * wait for the lock, has wide bounds; narrower ones from before still count, widened by `DRIFT`. A step while no process runs is
 * not seen.
 */
import { POLICY } from '../core/policy.ts'

export type Step = { readonly byMs: number; readonly at: number }

/** Of the time that passes: 1,000 ppm, twice what NTP corrects a clock by. */
const DRIFT = 0.001

export class Clock {
  /** The database's clock is ahead of the monotonic one by between these two, as of that moment of the latter. */
  #ahead: { readonly least: number; readonly most: number; readonly at: number } | undefined
  #steps: readonly Step[] = []
  onStep: (byMs: number) => void = () => {}

  /** The process's own clock, in milliseconds; it is never set. */
  now(): number {
    return performance.now()
  }

  pause(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms))
  }

  /** Takes a reading of the database's clock, in milliseconds since 1970, and answers it. */
  observe(database: number, sent: number, received: number): number {
    const now = { least: database - received, most: database - sent, at: received }
    const before = this.#ahead
    this.#ahead = now
    if (before === undefined) return database
    const drift = Math.max(0, received - before.at) * DRIFT
    const least = before.least - drift
    const most = before.most + drift
    const forward = now.least - most
    const back = least - now.most
    if (forward <= 0 && back <= 0)
      this.#ahead = { ...now, least: Math.max(now.least, least), most: Math.min(now.most, most) }
    if (forward > POLICY.clockStepMs) {
      this.#steps = [...this.steps(received), { byMs: forward, at: received }]
      this.onStep(forward)
    } else if (back > POLICY.clockStepMs) this.onStep(-back)
    return database
  }

  /** Forward steps that have not elapsed yet. */
  steps(now: number): readonly Step[] {
    return this.#steps.filter(({ at, byMs }) => at + byMs > now)
  }

  /** The database's clock now is not earlier. Only after a reading. */
  atLeast(): number {
    const now = this.now()
    const { least, at } = this.#ahead!
    return Math.floor(now + least - (now - at) * DRIFT)
  }

  /** The database's clock now, as last compared. */
  database(): number {
    const now = this.now()
    return Math.floor(now + (this.#ahead?.most ?? Date.now() - now))
  }
}

/** The time of a network's events: the database's, never before the last event. */
export class LogTime {
  #now = 0
  #at = 0

  /** It was so late at a moment of the monotonic clock. */
  set(now: number, at: number): void {
    this.#now = now
    this.#at = at
  }

  /**
   * Set back, time goes on at the pace of the process's own clock: since the last event, if another process wrote it, because of
   * no event may more time seem to have passed than has.
   */
  after(last: number, isNews: boolean, database: number, at: number): number {
    if (isNews || last > this.#now) this.set(last, at)
    const isBack = database < this.#now - POLICY.clockStepMs
    return Math.max(isBack ? Math.floor(this.#now + (at - this.#at)) : database, last)
  }
}
