/** Long work in slices, between which the event loop runs. */
import { setImmediate } from 'node:timers/promises'

/** How long work blocks the event loop: a Reserve that arrives meanwhile waits for it. */
const SLICE_MS = 5
/** The clock is read after so many items. */
const ITEMS = 16
/** Entries of a report between two steps of a generator: 2 ms of a process; 100,000 take 0.2 s. */
export const STEP = 1_000

/** The results of `pick` without nulls, `most` at a time. */
export async function* scanInSlices<T, R>(
  items: Iterable<T>,
  pick: (item: T) => R | null,
  most: number,
  signal?: AbortSignal,
): AsyncGenerator<readonly R[]> {
  let found: R[] = []
  let begun = performance.now()
  let index = 0
  for (const item of items) {
    const picked = pick(item)
    if (picked !== null) found.push(picked)
    if (found.length === most) {
      yield found
      found = []
    }
    index += 1
    if (index % ITEMS > 0 || performance.now() - begun < SLICE_MS) continue
    await setImmediate()
    if (signal?.aborted) return
    begun = performance.now()
  }
  if (found.length > 0) yield found
}

/** Runs a generator to its end; the event loop runs between its steps. */
export async function cooperatively<T>(work: Generator<void, T>): Promise<T> {
  for (;;) {
    const { done, value } = work.next()
    if (done) return value
    await setImmediate()
  }
}
