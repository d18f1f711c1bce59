/** Commands that go to the database, past the service. */

import { type Config, readConfig } from '../config.ts'
import { createLogger, type Logger } from '../telemetry.ts'
import { Unsuccessful } from './failure.ts'

/** As shells count: 128 and the number of SIGINT. */
const INTERRUPTED = 130

type Stoppable = Readonly<{ stop: () => Promise<void> }>

/** Ctrl-C ends it between two slices; what it did stays, and another run goes on from there. */
export async function onDatabase<D extends Stoppable, T>(
  open: (config: Config, log: Logger) => Promise<D>,
  work: (database: D, signal: AbortSignal, log: Logger) => Promise<T>,
): Promise<T> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  const interrupted = new AbortController()
  await using stack = new AsyncDisposableStack()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    const interrupt = () => interrupted.abort(new Unsuccessful(INTERRUPTED))
    process.once(signal, interrupt)
    stack.defer(() => void process.off(signal, interrupt))
  }
  const database = await open(config, log)
  stack.defer(() => database.stop())
  return await work(database, interrupted.signal, log)
}

/** One line that is written over, where somebody watches. */
export function showProgress(
  what: string,
  { done, of }: Readonly<{ done: number; of: number | null }>,
): void {
  if (!process.stderr.isTTY) return
  process.stderr.write(`\r\x1b[K${what} ${done}${of === null ? '' : ` of ${of}`}`)
}

export function endProgress(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
}
