/** What waits for a network is bounded by its memory, and settled in the order in which it came. */
import assert from 'node:assert/strict'
import { expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { Clock } from '../../src/ledger/clock.ts'
import { Loop } from '../../src/ledger/loop.ts'
import { LIMITS } from '../../src/ledger/loop-options.ts'
import { Queue, type Waiting } from '../../src/ledger/queue.ts'
import { command, owner, pool, reserve } from '../core/given.ts'
import { createDatabase } from '../simulation/memory-log.ts'

const create = command({ type: 'createNetwork', settings: { description: '', labels: {} } })
const done = { ok: true, answer: { leases: [] }, replayed: false } as const
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
    for (const waiting of queue.take()) queue.answer(waiting, done)
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

class HandClock extends Clock {
  at = 0
  override now(): number {
    return this.at
  }
}

/** What waits in batches of two, at time 0: names and their deadlines. */
function queueOf(deadlines: Readonly<Record<string, number>>) {
  const clock = new HandClock()
  const queue = new Queue('net', clock, { ...LIMITS, batch: 2 })
  const outcomes = Object.entries(deadlines).map(([name, at]) => queue.add(reserve(owner(name))(), at))
  return { clock, queue, outcomes }
}
const namesOf = (batch: readonly Waiting[]) =>
  batch.map(({ command }) => (command as Command<'reserve'>).owner.name).join(' ')

test('a batch stays at the front until it is answered; after a veto commands go one by one', () => {
  const { queue } = queueOf({ a: 9, b: 9, c: 9, d: 9, e: 9 })
  const first = queue.take()
  expect([namesOf(first), namesOf(queue.more(first)), namesOf(queue.take())]).toEqual(['a b', '', 'a b'])
  expect([namesOf(queue.more(first.slice(1))), namesOf(queue.more([]))]).toEqual(['c', 'd e'])
  queue.oneByOne = 2
  for (const expected of ['a', 'b', 'c d']) {
    const batch = queue.take()
    expect(namesOf(batch)).toBe(expected)
    queue.answer(batch[0]!, done)
    queue.answer(batch[0]!, done)
  }
  expect([queue.size, queue.oneByOne, namesOf(queue.take())]).toEqual([2, 0, 'd e'])
})

test('a command that holds several counts as all of them', () => {
  const queue = new Queue('net', new Clock(), { ...LIMITS, batch: 4 })
  const one = reserve('a')()
  const two = command({ type: 'allOrNothing', items: [one, one] })()
  const three = command({ type: 'dryRun', items: [two, one] })()
  for (const waits of [three, one, two, two, one]) void queue.add(waits, NEVER)
  for (const batch of [[three, one], [two, two], [one], []]) {
    const taken = queue.take()
    expect(taken.map(({ command }) => command)).toEqual(batch)
    for (const waiting of taken) queue.answer(waiting, done)
  }
})

test('at its deadline a command is answered, and the others keep their places', async () => {
  const { clock, queue, outcomes } = queueOf({ a: 10, b: 20, c: 10, d: 20, e: 15 })
  const [a, b] = queue.take()
  const sizes = [9, 10].map((at) => {
    clock.at = at
    queue.sweep()
    return queue.size
  })
  expect([sizes, a!.isAnswered, namesOf(queue.more([b!])), namesOf(queue.take())]).toEqual([
    [5, 3],
    true,
    'd',
    'b d',
  ])
  expect(await outcomes[2]).toMatchObject({ refusal: { reason: 'DEADLINE_EXCEEDED' } })
  clock.at = 15
  expect([queue.isOver(b!), namesOf(queue.more([])), queue.size]).toEqual([false, '', 2])
  clock.at = 20
  queue.sweep()
  expect(queue.size).toBe(0)
})

test.each([
  ['nothing was done', null, false, 'DEADLINE_EXCEEDED', 'waited for network net; nothing was done'],
  [
    '… and why, if the database is away',
    new Error('gone'),
    false,
    'DATABASE_UNAVAILABLE',
    'nothing was done: gone',
  ],
  ['… also if what failed is no error', 'gone', false, 'DATABASE_UNAVAILABLE', 'nothing was done: gone'],
  ['once its commit was sent, that nobody knows', 'gone', true, 'OUTCOME_UNKNOWN', 'repeat the same request'],
])('at its deadline a command is told: %s', async (_, failure, isSent, reason, message) => {
  const { clock, queue, outcomes } = queueOf({ a: 10 })
  Object.assign(queue, { failure })
  Object.assign(queue.take()[0]!, { isSent })
  clock.at = 10
  queue.sweep()
  expect(await outcomes[0]).toMatchObject({ refusal: { reason, message: expect.stringContaining(message) } })
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
