/**
 * The end of a process that runs until a signal: SIGINT, SIGTERM, SIGHUP. The first asks for an orderly stop; another one
 * later ends the process at once (an embedded PostgreSQL then ends by itself).
 */
import type { Logger } from '../telemetry.ts'
import { SilentExit } from './exit.ts'

export const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** One Ctrl-C arrives several times: from the terminal, from npm, from the launcher in `bin`. */
const SAME_REQUEST_MS = 1_000
/** Calls have deadlines of seconds; a process that is still busy then hangs. */
const LONGEST_STOP_MS = 30_000

export type Stopping = Readonly<{
  /** Resolves at the first signal; rejects after `fail`. */
  stopped: Promise<void>
  /** For a start that is under way: a start that a signal stops has not failed. */
  signal: AbortSignal
  /** The process cannot go on. */
  fail: (error: Error) => void
}>

export function awaitSignals(log: Logger): Stopping {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const controller = new AbortController()
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
        controller.abort(new SilentExit(0))
        resolve()
      } else if (performance.now() - first > SAME_REQUEST_MS) {
        log.warn({ signal }, 'second signal: stopping at once')
        process.exit(1)
      }
    })
  }
  // It may fail before it is awaited.
  promise.catch(() => {})
  return { stopped: promise, signal: controller.signal, fail: reject }
}
