/**
 * The database's clock is set while the ledger runs. Everything that cools or expires hangs on it, so nothing is taken back
 * or handed out again because of a step (an hour's step reaped a live promise, and its address was handed on).
 */
import assert from 'node:assert/strict'
import { afterAll, describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { Clock } from '../../src/ledger/clock.ts'
import { Loop } from '../../src/ledger/loop.ts'
import { Nodes } from '../../src/ledger/nodes.ts'
import { createPgLog } from '../../src/ledger/pg-log.ts'
import { command, HOUR, MINUTE, release, reserve, SECOND } from '../core/given.ts'
import { TestClock } from '../support/clock.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { waitFor } from '../support/wait-for.ts'
import { eventsOf, expectInOrder, freshNetwork, linesOf, openTestLedger, useLedger } from './opened.ts'

const database = await useTestDatabase()
const nodes = new Nodes(database.serviceUrl, { connections: 2 })
afterAll(() => nodes.end())
const observer = await openTestLedger(database.serviceUrl)
afterAll(() => observer.close())

/** What passes is seen by both clocks, a step by the database's alone. */
function newTime() {
  const time = { database: Date.now(), process: 0 }
  return {
    now: () => time.database,
    monotonic: () => time.process,
    passes(ms: number) {
      time.database += ms
      time.process += ms
    },
    step(ms: number) {
      time.database += ms
    },
  }
}

type Time = ReturnType<typeof newTime>

class SceneClock extends Clock {
  readonly #time: Time

  constructor(time: Time) {
    super()
    this.#time = time
  }

  override now(): number {
    return this.#time.monotonic()
  }

  override async pause(): Promise<void> {}

  override observe(_: number, sent: number, received: number): number {
    return super.observe(this.#time.now(), sent, received)
  }
}

/** The loop of one process on a network. */
function processOf(network: string, time: Time, clock = new SceneClock(time)) {
  const loop = new Loop(network, { log: createPgLog(nodes), clock })
  return {
    async take(one: Command) {
      const outcome = await loop.submit(one)
      if (!outcome.ok) assert.fail(`${outcome.refusal.reason}: ${outcome.refusal.message}`)
      return outcome.answer.leases[0]!
    },
    async refuse(one: Command, reason: Reason) {
      const outcome = await loop.submit(one)
      assert.equal(outcome.ok ? 'accepted' : outcome.refusal.reason, reason)
    },
  }
}

/** A pool of two addresses, cooling for a minute: 10.0.0.1 is promised for ten minutes, 10.0.0.2 was released. */
async function scene() {
  const time = newTime()
  const { network, of } = await freshNetwork(observer, { cidr: '10.0.0.0/30', cooldownMs: MINUTE })
  const process = processOf(network, time)
  const promised = await process.take(of(reserve('promised', { confirmWithinMs: 600 * SECOND })))
  const { fencingToken } = await process.take(of(reserve('gone')))
  await process.take(of(release(fencingToken)))
  time.passes(SECOND)
  const expire = of(command({ type: 'expire', token: promised.fencingToken, version: promised.version }))
  return { time, network, of, process, expire, next: of(reserve('next')) }
}

describe('set forward by an hour', () => {
  test('a promise is not reaped and no cooling ends, until an hour has passed once more', async () => {
    const { time, network, process, expire, next } = await scene()
    time.step(HOUR)
    await process.refuse(expire, 'NETWORK_RECOVERING')
    await process.refuse(next, 'POOL_EXHAUSTED')
    time.passes(HOUR - SECOND)
    await process.refuse(expire, 'NETWORK_RECOVERING')
    await process.refuse(next, 'POOL_EXHAUSTED')
    time.passes(2 * SECOND)
    assert.equal((await process.take(next)).address, '10.0.0.2')
    assert.equal((await process.take(expire)).state, 'REAPED')
    assert.deepEqual((await linesOf(observer, network)).slice(5), [
      'reconcile.held CLOCK',
      'reconcile.resumed',
      'lease.reserved 10.0.0.2 RESERVED #8',
      'lease.reaped 10.0.0.1 REAPED #3',
    ])
    await expectInOrder(database.serviceUrl, network, observer)
  })

  test('an operator who resumes ends it at once, and what began to cool since cools on', async () => {
    const { time, network, of, process, next } = await scene()
    time.step(HOUR)
    await process.refuse(next, 'POOL_EXHAUSTED')
    await process.take(of(release(3)))
    await process.refuse(next, 'POOL_EXHAUSTED')
    await process.refuse(
      of(command({ type: 'resumeHold', hold: 'SOURCE_AHEAD', why: 'other' })),
      'accepted' as Reason,
    )
    await process.refuse(next, 'POOL_EXHAUSTED')
    await process.refuse(
      of(command({ type: 'resumeHold', hold: 'CLOCK', why: 'ntp was off' })),
      'accepted' as Reason,
    )
    assert.equal((await process.take(next)).address, '10.0.0.2')
    await process.refuse(of(reserve('another')), 'POOL_EXHAUSTED')
    time.passes(MINUTE + 1)
    assert.equal((await process.take(of(reserve('another')))).address, '10.0.0.1')
    // Once a step: it is not held again.
    assert.equal(
      (await linesOf(observer, network)).filter((line) => line.startsWith('reconcile.held')).length,
      1,
    )
  })

  test('and by ten seconds more: both have to pass', async () => {
    const { time, network, process, next, expire } = await scene()
    time.step(HOUR)
    await process.refuse(next, 'POOL_EXHAUSTED')
    time.passes(SECOND)
    time.step(10 * SECOND)
    await process.refuse(next, 'POOL_EXHAUSTED')
    time.passes(11 * SECOND)
    await process.refuse(next, 'POOL_EXHAUSTED')
    await process.refuse(expire, 'NETWORK_RECOVERING')
    assert.equal((await linesOf(observer, network)).filter((line) => line.startsWith('reconcile')).length, 2)
    time.passes(HOUR - 15 * SECOND)
    await process.refuse(next, 'POOL_EXHAUSTED')
    time.passes(15 * SECOND)
    assert.equal((await process.take(next)).address, '10.0.0.2')
  })

  test('after a long wait for the lock: what was known of the clock before is not forgotten', async () => {
    const { time, network, process, expire, next } = await scene()
    await withClient(database.adminUrl, async (blocker) => {
      await blocker.query('begin')
      await blocker.query('lock table ipledger.network_lock in exclusive mode')
      const waiting = process.refuse(next, 'POOL_EXHAUSTED')
      const waits = `select from pg_locks where not granted and relation = 'ipledger.network_lock'::regclass`
      await waitFor(async () => (await blocker.query(waits)).rowCount)
      time.passes(9 * SECOND)
      await blocker.query('commit')
      await waiting
    })
    time.step(8 * SECOND)
    await process.refuse(expire, 'NETWORK_RECOVERING')
    expect((await linesOf(observer, network)).at(-1)).toBe('reconcile.held CLOCK')
  })

  test('a network that its process serves only later is held as well; the next process keeps the hold', async () => {
    const { time, network, of, expire, next } = await scene()
    const clock = new SceneClock(time)
    const elsewhere = await freshNetwork(observer)
    await processOf(elsewhere.network, time, clock).take(elsewhere.of(reserve('a')))
    time.step(HOUR)
    await processOf(elsewhere.network, time, clock).take(elsewhere.of(reserve('b')))
    time.passes(30 * SECOND)
    await processOf(network, time, clock).refuse(expire, 'NETWORK_RECOVERING')
    // It has seen no step, and an hour after the first word of it ends the hold.
    const restarted = processOf(network, time)
    await restarted.refuse(next, 'POOL_EXHAUSTED')
    time.passes(HOUR)
    assert.equal((await restarted.take(next)).address, '10.0.0.2')
    await expectInOrder(database.serviceUrl, network, observer)
    assert.equal((await restarted.take(of(release(3)))).state, 'RELEASED')
  })

  test('the service sees it by itself, raises its alarm, and holds though nobody asks', async () => {
    let aheadMs = 0
    const ledger = await useLedger(database.serviceUrl, {
      clock: new TestClock({ database: () => Date.now() + aheadMs }),
    })
    const { network, of } = await freshNetwork(ledger)
    await ledger.take(of(reserve('a')))
    aheadMs = HOUR
    await waitFor(() => ledger.steps.length > 0, { what: 'the alarm' })
    expect(Math.abs(ledger.steps[0]! - HOUR)).toBeLessThan(MINUTE)
    // Another process may serve the network meanwhile.
    await waitFor(async () => (await linesOf(ledger, network)).at(-1) === 'reconcile.held CLOCK')
    assert.equal((await ledger.take(of(reserve('b')))).fencingToken, 5)
    await expectInOrder(database.serviceUrl, network, ledger)
  })
})

describe('set back by an hour', () => {
  test('times never go back, coolings end in time, and verify finds nothing', async () => {
    const { time, network, of, process, next } = await scene()
    const before = time.now()
    time.step(-HOUR)
    await process.refuse(next, 'POOL_EXHAUSTED')
    time.passes(MINUTE)
    const lease = await process.take(next)
    assert.equal(lease.address, '10.0.0.2')
    assert.ok(lease.reservedAt >= before && lease.reservedAt <= before + MINUTE + SECOND)
    await process.take(of(release(lease.fencingToken)))
    await process.refuse(of(reserve('late')), 'POOL_EXHAUSTED')
    time.passes(MINUTE + SECOND)
    assert.equal((await process.take(of(reserve('late')))).address, '10.0.0.2')
    // The database has caught up: its clock counts again.
    time.passes(2 * HOUR)
    const { availableAt, endedAt } = await process.take(of(release(3)))
    assert.equal(endedAt, time.now())
    assert.equal(availableAt, endedAt! + MINUTE)
    const times = (await eventsOf(observer, network)).map(({ at }) => at)
    assert.deepEqual(
      times,
      [...times].sort((a, b) => a - b),
    )
    assert.ok(!(await linesOf(observer, network)).some((line) => line.startsWith('reconcile')))
    await expectInOrder(database.serviceUrl, network, observer)
  })
})

describe('what a process knows of the clock', () => {
  const watched = () => {
    const steps: number[] = []
    const watch = new Clock()
    watch.onStep = (byMs) => steps.push(byMs)
    return { steps, watch }
  }

  test('a reading that took long adds nothing, and takes nothing away', () => {
    const { steps, watch } = watched()
    watch.observe(1_000_000, 0, 1)
    watch.observe(1_030_000, 0, 30_000)
    watch.observe(1_045_000, 30_001, 30_002)
    expect(steps).toHaveLength(1)
    expect(steps[0]).toBeGreaterThan(14_900)
    // Of a step nobody knows more than the reading that shows it.
    watch.now = () => 30_002
    expect(watch.database()).toBeGreaterThanOrEqual(1_045_000)
    expect(watch.database()).toBeLessThanOrEqual(1_045_001)
  })

  test('what may be drift since the last reading is no step, and what cannot be is one, however long ago that was', () => {
    for (const drift of [1.0005, 0.9995]) {
      const { steps, watch } = watched()
      for (const at of [0, 20 * HOUR]) watch.observe(1_000_000 + at * drift, at, at + 1)
      expect(steps).toEqual([])
    }
    const { steps, watch } = watched()
    watch.observe(1_000_000, 0, 1)
    watch.observe(1_017_000, 9_000, 9_001)
    expect(steps).toHaveLength(1)
  })

  test('clocks that drift apart by up to 1,000 ppm are not set', () => {
    for (const drift of [1.0009, 0.9991]) {
      const { steps, watch } = watched()
      for (let at = 0; at < 24 * HOUR; at += 10 * MINUTE) watch.observe(1_000_000 + at * drift, at, at + 1)
      expect(steps).toEqual([])
    }
  })
})

test('a slow database and small corrections are no steps', async () => {
  const { time, network, process, next, of } = await scene()
  for (let i = 0; i < 30; i += 1) {
    time.step(1_900)
    time.passes(SECOND)
    time.step(-1_900)
    await process.take(of(reserve('promised')))
  }
  time.passes(30 * SECOND)
  assert.equal((await process.take(next)).address, '10.0.0.2')
  assert.ok(!(await linesOf(observer, network)).some((line) => line.startsWith('reconcile')))
})
