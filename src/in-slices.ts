import { setImmediate as turn } from 'node:timers/promises'

/** How long a walk keeps the event loop to itself: a Reserve that comes meanwhile waits for it. */
const SLICE_MS = 5
/** The clock is looked at after so many items. */
const ITEMS = 64

/** All items, some at a time, by turns with everything else that the process does. */
export async function* inSlices<T>(items: Iterable<T>, signal?: AbortSignal): AsyncGenerator<readonly T[]> {
  let begun = performance.now()
  let slice: T[] = []
  for (const item of items) {
    slice.push(item)
    if (slice.length < ITEMS) continue
    yield slice
    slice = []
    if (signal?.aborted) return
    if (performance.now() - begun < SLICE_MS) continue
    await turn()
    begun = performance.now()
  }
  yield slice
}
