/** A command that goes to the database leaves the process as it found it. */
import { expect, test } from 'vitest'
import { Unsuccessful } from '../../src/cli/failure.ts'
import { onDatabase } from '../../src/cli/on-database.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const listeners = () => SIGNALS.map((signal) => process.listenerCount(signal))

test('a signal interrupts its work; before and after it nobody listens', async () => {
  const before = listeners()
  let stopped = false
  const open = async () => ({
    stop: async () => {
      stopped = true
    },
  })
  const interrupted = onDatabase(open, async (_database, signal) => {
    expect(listeners()).toEqual(before.map((count) => count + 1))
    process.emit('SIGTERM')
    signal.throwIfAborted()
  })
  await expect(interrupted).rejects.toThrow(Unsuccessful)
  expect(stopped).toBe(true)
  expect(listeners()).toEqual(before)

  expect(await onDatabase(open, async () => 'done')).toBe('done')
  expect(listeners()).toEqual(before)
  const closed = async () => {
    throw new Error('there is none')
  }
  await expect(onDatabase(closed, async () => 'done')).rejects.toThrow('there is none')
  expect(listeners()).toEqual(before)
})
