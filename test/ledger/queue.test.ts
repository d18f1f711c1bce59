/** What waits for a network is bounded by its memory, and settled in the order in which it came. */
import assert from 'node:assert/strict'
import { expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { Clock } from '../../src/ledger/clock.ts'
import { Loop } from '../../src/ledger/loop.ts'
import { LIMITS } from '../../src/ledger/loop-options.ts'
import { Queue } from '../../src/ledger/queue.ts'
import { command, owner, pool, reserve } from '../core/given.ts'
import { createDatabase } from '../simulation/memory-log.ts'

const create = command({ type: 'createNetwork', settings: { description: '', labels: {} } })
const NEVER = Number.POSITIVE_INFINITY

/** How many of these a queue of 1 MB takes; it is full after them. */
async function taken(make: (n: number) => Command | null): Promise<number> {
  const queue = new Queue('net', new Clock(), { ...LIMITS, queuedMb: 1, batch: 10_000 })
  for (let count = 0; count < 10_000; count += 1) {
    const before = queue.size
    const outcome = queue.add(make(count), NEVER)
    if (queue.size > before) continue
    expect(await outcome).toMatchObject({
      ok: false,
      refusal: { reason: 'OVERLOADED', message: expect.stringContaining('1 MB'), retryAfterMs: 1_000 },
    })
    for (const waiting of queue.take())
      queue.answer(waiting, { ok: true, answer: { leases: [] }, replayed: false })
    void queue.add(make(count), NEVER)
    expect(queue.size, 'there is room again').toBe(1)
    return count
  }
  return assert.fail('the queue has no bound')
}

test('a queue takes as many commands as its memory has room for, not a number of them', async () => {
  const labels = (bytes: number) => ({ labels: { note: 'x'.repeat(bytes) } })
  const small = await taken((n) => reserve(owner(`p${n}`))())
  expect(small).toBeGreaterThan(500)
  expect(small).toBeLessThan(2_000)
  const large = await taken((n) => reserve(owner(`p${n}`), labels(100_000))())
  expect(large).toBe(11)
  const items = [1, 2, 3].map((n) => reserve(owner(`p${n}`), labels(30_000))())
  expect(await taken(() => command({ type: 'allOrNothing', items })())).toBe(12)
  expect(await taken(() => null), 'reads of the image').toBeGreaterThan(small)
})

test('25,000 commands at once are all taken, and committed in the order in which they came', async () => {
  const log = createDatabase(() => Date.now()).connect()
  const loop = new Loop('net', { log, clock: new Clock(), limits: { deadlineMs: 60_000 } })
  const first = [create(), pool('10.0.0.0/16')()]
  const burst = Array.from({ length: 25_000 }, (_, n) => reserve(owner(`p${n}`))())
  const outcomes = await Promise.all([...first, ...burst].map((command) => loop.submit(command)))
  const names = outcomes.slice(first.length).map((one) => {
    assert.ok(one.ok, 'a command is refused')
    return one.answer.leases[0]!
  })
  expect(names.map((lease) => lease.owner?.name)).toEqual(burst.map((_, n) => `p${n}`))
  const tokens = names.map(({ fencingToken }) => fencingToken)
  expect(tokens).toEqual(tokens.toSorted((one, other) => one - other))
  expect(new Set(tokens).size).toBe(25_000)
})
