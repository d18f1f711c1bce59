/**
 * When a process that runs until it is told to is told to: SIGINT, SIGTERM, SIGHUP. The first asks for an orderly
 * stop; another one later ends the process at once (an embedded PostgreSQL ends by itself when we are gone).
 */

import type { Logger } from '../telemetry.ts'
import { SilentExit } from './failure.ts'

export const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** One Ctrl-C arrives several times: from the terminal, from npm, from the launcher in `bin`. */
const SAME_REQUEST_MS = 1_000
/** Calls have deadlines of seconds; whatever is still busy then hangs. */
const LONGEST_STOP_MS = 30_000

export type Stopping = Readonly<{
  /** Resolves when the process is asked to stop; rejects when it cannot go on. */
  asked: Promise<void>
  /** The same for what is on its way: a start that is asked to stop has not failed. */
  signal: AbortSignal
  /** Something the process cannot go on without has failed. */
  fail: (error: Error) => void
}>

export function awaitSignals(log: Logger): Stopping {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const asked = new AbortController()
  let first: number | undefined
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      if (first === undefined) {
        first = performance.now()
        log.info({ signal }, 'stopping')
        setTimeout(() => {
          log.fatal(`still not stopped after ${LONGEST_STOP_MS / 1000} s, giving up`)
          process.exit(1)
        }, LONGEST_STOP_MS).unref()
        asked.abort(new SilentExit(0))
        resolve()
      } else if (performance.now() - first > SAME_REQUEST_MS) {
        log.warn({ signal }, 'asked again: stopping at once')
        process.exit(1)
      }
    })
  }
  // Whoever awaits it hears of the failure, also when that is later.
  promise.catch(() => {})
  return { asked: promise, signal: asked.signal, fail: reject }
}
