/**
 * Notices that the database's clock moved otherwise than time. Everything that cools, expires or is proven young hangs on
 * that clock: set back, the ledger's time stands still at its last event; set forward, all of it is over at once.
 *
 * What the clock says is read on the way, at some moment between sending and answer; so where this process stood still
 * meanwhile, that moment is uncertain and nothing is claimed. A failover to a server whose clock differs is a jump, too.
 */

/** Clocks that are steered drift by milliseconds; one that is set moves by more. Not measured. */
const JUMP_MS = 2_000

export type ClockWatch = (clock: number, asked: number, answered: number) => void

/** `clock` in milliseconds since 1970, the others by `performance.now()`. */
export function watchClock(onJump: (byMs: number) => void): ClockWatch {
  /** By how much the clock is ahead of this process's: between these two. */
  let before: { readonly least: number; readonly most: number } | undefined
  return (clock, asked, answered) => {
    const now = { least: clock - answered, most: clock - asked }
    if (before !== undefined) {
      const forward = now.least - before.most
      const back = before.least - now.most
      if (forward > JUMP_MS) onJump(forward)
      else if (back > JUMP_MS) onJump(-back)
    }
    before = now
  }
}
