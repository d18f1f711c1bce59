/**
 * Time limits of connections. Only time in which this process ran counts: what a starved event loop finds too late is this
 * process's doing, and the answer may be there already, unread. (100,000 calls at once severed every connection to PostgreSQL.)
 */

/** A step counts once, however late the event loop was for it. */
const STEPS = 20

/** Calls `late` after so long, unless the function that it answers is called before. */
export function afterRunning(ms: number, late: () => void): () => void {
  let left = STEPS
  let timer = setTimeout(step, ms / STEPS)
  let turn: NodeJS.Immediate | undefined

  function step(): void {
    left -= 1
    if (left > 0) timer = setTimeout(step, ms / STEPS)
    // What has arrived is read first.
    else turn = setImmediate(late)
  }
  return () => {
    clearTimeout(timer)
    clearImmediate(turn)
  }
}

/** Gives work a signal that comes after so long, or with another one. */
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
