/** A process that is asked to stop ends, however busy it is. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { awaitSignals } from '../../src/cli/stopping.ts'
import { createLogger } from '../../src/telemetry.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const exits: unknown[] = []

beforeEach(() => {
  const before = new Map(SIGNALS.map((signal) => [signal, process.listeners(signal)]))
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const exit = vi.spyOn(process, 'exit').mockImplementation((code) => {
    exits.push(code)
    return undefined as never
  })
  return () => {
    exit.mockRestore()
    vi.useRealTimers()
    for (const signal of SIGNALS) {
      for (const listener of process.listeners(signal)) {
        if (!before.get(signal)!.includes(listener)) process.off(signal, listener)
      }
    }
  }
})
afterEach(() => {
  exits.length = 0
})

test.each(SIGNALS)('%s asks for an orderly stop, for which there are 30 s', async (signal) => {
  const { stopped } = awaitSignals(createLogger('silent'))
  process.emit(signal)
  await stopped
  // Once more from the launcher, a moment later.
  vi.advanceTimersByTime(900)
  process.emit(signal)
  vi.advanceTimersByTime(29_000)
  expect(exits).toEqual([])
  vi.advanceTimersByTime(200)
  expect(exits).toEqual([1])
})

test('asked again later, it ends at once', async () => {
  const { stopped } = awaitSignals(createLogger('silent'))
  process.emit('SIGINT')
  await stopped
  vi.advanceTimersByTime(1_100)
  process.emit('SIGINT')
  expect(exits).toEqual([1])
})
