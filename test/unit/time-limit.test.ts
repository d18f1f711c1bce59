/** Time limits count time in which the event loop ran, and nothing else. */
import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setImmediate as immediate, setTimeout as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { afterRunning, withinRunning } from '../../src/time-limit.ts'
import { waitFor } from '../support/wait-for.ts'

function block(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

test('time in which the event loop did not run does not count', async () => {
  let isLate = false
  afterRunning(200, () => {
    isLate = true
  })
  const begun = performance.now()
  for (let n = 0; n < 5; n += 1) {
    block(200)
    // A turn of the event loop in which every timer that is due fires.
    await turn(1)
    expect(isLate, `after ${Math.round(performance.now() - begun)} ms, 5 turns`).toBe(false)
  }
  await waitFor(() => isLate)
})

test('what has arrived while the event loop did not run comes first', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const caller = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const [answering] = (await once(server, 'connection')) as [Socket]
  let heard = () => {}
  caller.on('data', () => heard())
  // In one of these the limit would pass while the event loop does not run.
  for (let turns = 10; turns < 22; turns += 1) {
    const seen: string[] = []
    const inTime = afterRunning(100, () => seen.push('late'))
    for (let n = 0; n < turns; n += 1) await turn(5)
    heard = () => {
      seen.push('answer')
      inTime()
    }
    // A file is answered for when timers have had their turn: what they put off comes before this immediate.
    await stat('.')
    await immediate()
    if (seen.length > 0) break
    // Timers come next, and then what is to be read.
    answering.write('x')
    block(50)
    await waitFor(() => seen.length > 0)
    expect(seen, `${turns} turns`).toEqual(['answer'])
  }
  caller.destroy()
  server.close()
})

test('it is not called when it was ended', async () => {
  let isLate = false
  const inTime = afterRunning(20, () => {
    isLate = true
  })
  const other = Promise.withResolvers<void>()
  afterRunning(40, other.resolve)
  inTime()
  await other.promise
  expect(isLate).toBe(false)
})

test('work has a signal that counts such time only, and comes with another one', async () => {
  const { signal } = new AbortController()
  const begun = performance.now()
  await withinRunning(100, signal, async (limit) => {
    block(200)
    await turn(1)
    expect(limit.aborted, `after ${Math.round(performance.now() - begun)} ms, 1 turn`).toBe(false)
    await waitFor(() => limit.aborted)
  })
  await withinRunning(60_000, AbortSignal.abort(), async (limit) => expect(limit.aborted).toBe(true))
  expect(signal.aborted).toBe(false)
})
