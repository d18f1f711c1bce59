/**
 * Time limits of connections. Only time in which this process ran counts: after a starved event loop the answer may have
 * arrived, unread. (100,000 calls at once severed every connection to PostgreSQL.)
 */

/** A step counts once, however late the event loop was for it. */
const STEPS = 20

/** Calls `late` after so long, unless the returned function is called before. */
export function afterRunning(ms: number, late: () => void): () => void {
  let left = STEPS
  let timer = setTimeout(step, ms / STEPS)
  let after: NodeJS.Immediate | undefined

  function step(): void {
    left -= 1
    if (left > 0) timer = setTimeout(step, ms / STEPS)
    // What has arrived is read first.
    else after = setImmediate(late)
  }
  return () => {
    clearTimeout(timer)
    clearImmediate(after)
  }
}

/** Gives work a signal that aborts after so long, or with `signal`. */
export async function withinRunning<T>(
  ms: number,
  signal: AbortSignal,
  work: (limit: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController()
  const inTime = afterRunning(ms, () => late.abort())
  try {
    return await work(AbortSignal.any([signal, late.signal]))
  } finally {
    inTime()
  }
}
