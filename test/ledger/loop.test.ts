/** Each way in which an attempt ends, with a log in memory whose commits a test answers. `outcomes.test.ts` shows them of PostgreSQL. */
import { expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { firstSeqOfEra, LAST_ERA } from '../../src/core/policy.ts'
import { Clock } from '../../src/ledger/clock.ts'
import { type Committed, type Log, NeedsRebuild, type Transaction, type Write } from '../../src/ledger/log.ts'
import { Loop } from '../../src/ledger/loop.ts'
import type { LoopOptions } from '../../src/ledger/loop-options.ts'
import { command, lists, newScene, pool, register, release, reserve } from '../core/given.ts'
import { createDatabase } from '../simulation/memory-log.ts'

type End = (transaction: Transaction, write: Write) => Promise<Committed>
const error = new Error('so')
const unmade =
  (kind: 'rolledBack' | 'unknown' | 'vetoed'): End =>
  async (transaction) => {
    await transaction.abandon()
    return { kind, error }
  }
const unheard: End = async (transaction, write) => {
  await transaction.commit(write)
  return { kind: 'unknown', error }
}
const warned: End = async (transaction, write) => {
  await transaction.commit(write)
  return { kind: 'committed', isWarned: true }
}
const create = command({ type: 'createNetwork', settings: { description: '', labels: {} } })

const newLog = () => createDatabase(() => Date.now(), 10).connect()

/** Ahead of the process's own by so much; its pauses are over at once. */
class TestClock extends Clock {
  aheadMs = 0
  readonly pauses: number[] = []
  override now(): number {
    return super.now() + this.aheadMs
  }
  override async pause(ms: number): Promise<void> {
    this.pauses.push(ms)
  }
}

/** A loop on a network with a pool, with the ends of its next commits, and what it reports. */
async function open(change: Partial<Log> = {}, log = newLog(), options: Partial<LoopOptions> = {}) {
  const ends: End[] = []
  const told = {
    failed: [] as string[],
    why: [] as string[],
    ms: 0,
    defects: [] as Command[],
    batches: [] as number[],
    events: 0,
    loads: 0,
  }
  const changed: Log = {
    ...log,
    async begin(name, asked) {
      const transaction = await log.begin(name, asked)
      return {
        ...transaction,
        commit: (write) => (ends.shift() ?? ((one) => one.commit(write)))(transaction, write),
      }
    },
    ...change,
  }
  const loop = new Loop('net', {
    log: changed,
    clock: new Clock(),
    observer: {
      loaded: (_, { ms }) => {
        told.loads += 1
        told.ms += ms
      },
      batch: (_, { commands, lockMs, decideMs, writeMs }) => {
        told.batches.push(commands)
        told.ms += lockMs + decideMs + writeMs
      },
      failed: (_, what, why) => {
        told.failed.push(what)
        told.why.push((why as Error).message)
      },
      defect: (_, one) => told.defects.push(one),
      event: () => {
        told.events += 1
      },
    },
    ...options,
  })
  const submit = async (...commands: readonly Command[]) =>
    (await Promise.all(commands.map((one) => loop.submit(one)))).map((one) =>
      one.ok ? (one.answer.leases[0]?.address ?? 'ok') : one.refusal.reason,
    )
  return { log, loop, ends, told, submit }
}

async function opened(...asked: Parameters<typeof open>) {
  const all = await open(...asked)
  expect(await all.submit(create(), pool('10.0.0.0/28')())).toEqual(['ok', 'ok'])
  return all
}

test.each<[string, End, string[], number]>([
  ['a rollback is undone and tried again', unmade('rolledBack'), ['rolledBack'], 2],
  ['a veto is undone, and decided one by one on a fresh image', unmade('vetoed'), ['vetoed'], 1],
  ['a commit that nobody heard of and that was none is made again', unmade('unknown'), ['unknown'], 2],
  ['… and one that was is answered from the log', unheard, ['unknown'], 0],
  ['a commit that no standby confirmed counts as such', warned, ['unknown'], 0],
  ['one that cannot be sent is a veto', () => Promise.reject(error), ['vetoed'], 1],
])('%s', async (_, end, failed, size) => {
  const { loop, ends, told, submit } = await opened()
  const before = told.events
  const begun = performance.now()
  Object.assign(told, { ms: 0 })
  ends.push(end)
  expect(await submit(reserve('a/1')(), reserve('b/1')())).toEqual(['10.0.0.1', '10.0.0.2'])
  const why = [end === warned ? 'the commit was not confirmed by a standby' : 'so']
  expect(told).toMatchObject({ failed, why, defects: [], events: before + 2 })
  expect(told.ms).toBeLessThan(performance.now() - begun)
  expect(told.batches[1]).toBe(size)
  const image = (await loop.image())!
  expect([image.head, image.records.size, loop.queue.size, loop.records]).toEqual([4, 2, 0, 2])
  expect(await submit(reserve('c/1')(), reserve('d/1')())).toEqual(['10.0.0.3', '10.0.0.4'])
  expect(told.batches.at(-1)).toBe(2)
})

test('an outcome is looked up once more if the look-up itself fails', async () => {
  const { ends, told, submit } = await opened()
  ends.push(unheard, ...(['rolledBack', 'vetoed', 'unknown'] as const).map(unmade))
  const made = ['a/1', 'b/1', 'c/1'].map((name) => reserve(name)())
  expect(await submit(...made)).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3'])
  expect(told.failed).toEqual(['unknown', 'rolledBack', 'vetoed', 'unknown'])
  expect(told.batches.at(-1), 'nothing is decided again').toBe(0)
  ends.push(unmade('unknown'))
  expect(await submit(reserve('x/1', { claims: [{ pools: ['none'] }] })())).toEqual(['POOL_NOT_FOUND'])
})

test('what is refused by itself is refused alone, and alarmed', async () => {
  const { ends, told, submit } = await opened()
  const culprit = reserve('x/1')()
  const refuse: End = async (transaction, write) =>
    write.records.some(({ owner }) => owner?.name === 'x')
      ? unmade('vetoed')(transaction, write)
      : transaction.commit(write)
  ends.push(refuse, refuse, refuse)
  expect(await submit(reserve('a/1')(), culprit, reserve('b/1')())).toEqual([
    '10.0.0.1',
    'ILLEGAL_STATE',
    '10.0.0.2',
  ])
  expect(told).toMatchObject({ failed: ['vetoed', 'vetoed'], defects: [culprit] })
  ends.push(unmade('vetoed'))
  expect(await submit(reserve('c/1')()), 'one veto is none').toEqual(['10.0.0.3'])
})

test('a log that needs a rebuild is told to those that wait', async () => {
  const { loop, told } = await open({ load: () => Promise.reject(new NeedsRebuild('rebuild it')) })
  const refusal = { reason: 'NETWORK_RECOVERING', metadata: { network: 'net' }, retryAfterMs: 5_000 }
  expect(await loop.submit(reserve('a/1')())).toMatchObject({ refusal })
  expect(told.failed).toEqual(['load'])
})

test('a lock that cannot be had is tried for again', async () => {
  let failures = 1
  const { log, submit, told } = await open({
    begin: (name, asked) => (failures-- > 0 ? Promise.reject(error) : log.begin(name, asked)),
  })
  expect(await submit(reserve('a/1')(), create(), pool('10.0.0.0/28')(), reserve('b/1')())).toEqual([
    'NETWORK_NOT_FOUND',
    'ok',
    'ok',
    '10.0.0.1',
  ])
  expect(told.failed).toEqual(['begin'])
})

test('a failure is waited out, each time twice as long up to a second; after a success anew', async () => {
  const clock = new TestClock()
  const { ends, submit } = await opened({}, newLog(), { limits: { batch: 1 }, clock, observer: {} })
  const fails = [...'12345678'].map(() => unmade('rolledBack'))
  ends.push(...fails.with(3, unmade('unknown')), (one, write) => one.commit(write), ...fails.slice(7))
  await submit(reserve('a/1')(), reserve('b/1')())
  expect(clock.pauses).toEqual([20, 40, 80, 160, 320, 640, 1_000, 1_000, 20])
})

test.each([
  ['rolledBack', 'DATABASE_UNAVAILABLE'],
  ['vetoed', 'DATABASE_UNAVAILABLE'],
  ['unknown', 'OUTCOME_UNKNOWN'],
] as const)('after the deadline, and a commit %s, nothing is tried again: %s', async (kind, expected) => {
  const clock = new TestClock()
  const { ends, submit } = await opened({}, newLog(), { clock })
  ends.push((transaction, write) => {
    clock.aheadMs += 20_000
    return unmade(kind)(transaction, write)
  })
  expect([await submit(reserve('a/1')()), clock.pauses]).toEqual([[expected], []])
})

const typesOf = async (log: Log) => (await log.tail('net', 2)).tail.map(({ event }) => event.type)

test('each step of the clock is held once', async () => {
  let stepMs = 0
  const log = createDatabase(() => Date.now() + stepMs).connect()
  const { submit } = await opened({}, log)
  for (const name of ['a/1', 'b/1', 'c/1']) {
    if (name !== 'b/1') stepMs += 3_600_000
    await submit(reserve(name)())
  }
  const [held, reserved] = ['reconcile.held', 'lease.reserved']
  expect(await typesOf(log)).toEqual([held, reserved, reserved, held, reserved])
})

test('where the clock is set back, time goes on at the pace of the process', async () => {
  const begun = Date.now()
  const clock = new TestClock()
  let setMs = 0
  const database = createDatabase(() => Date.now() + clock.aheadMs + setMs)
  const { loop, submit } = await opened({}, database.connect(), { clock })
  clock.aheadMs = 60_000
  await loop.image()
  clock.aheadMs = 120_000
  setMs = -3_600_000
  await submit(reserve('a/1')())
  expect((await loop.image())!.at).toBeGreaterThanOrEqual(begun + 120_000)
})

test.each([
  ['begins an era', {}, true, 'era.begun'],
  [
    'that loses nothing does not, for who knows the last commit',
    { losesNothing: true },
    true,
    'network.updated',
  ],
  ['… and does for others', { losesNothing: true }, false, 'era.begun'],
])('a failover %s', async (_, options, isKnown, expected) => {
  const database = createDatabase(() => Date.now())
  const log = database.connect()
  const one = await open({}, log, options)
  await (isKnown ? one : await open({}, log)).submit(create(), pool('10.0.0.0/28')())
  database.identity = 'system-1/database/event/2'
  await one.submit(reserve('a/1')())
  expect((await typesOf(log))[0]).toBe(expected)
})

test('after the last era nothing is written', async () => {
  const database = createDatabase(() => Date.now())
  const log = database.connect()
  const { submit } = await opened({}, log)
  const above = firstSeqOfEra(LAST_ERA - 1)
  await submit(command({ type: 'beginEra', above, recovering: false, why: 'so' })())
  database.identity = 'another'
  expect(await submit(reserve('a/1')())).toEqual(['ILLEGAL_STATE'])
  expect(await typesOf(log)).toEqual(['era.begun'])
})

test('what is listed is written where it changed, and not again', async () => {
  const log = newLog()
  const [one, other] = [await opened({}, log), await open({}, log)]
  await one.submit(register('agent')())
  await other.loop.image()
  const sizes: number[] = []
  for (const { ends } of [one, one, other])
    ends.push((transaction, write) => {
      sizes.push(write.sightings.size)
      return transaction.commit(write)
    })
  await one.submit(lists('agent', ['a/1@10.0.0.1'])({ ...newScene(), now: Date.now() })!)
  await one.submit(reserve('b/1')())
  await other.submit(reserve('c/1')())
  expect(sizes).toEqual([1, 0, 0])
})

const named = { requestId: 'r', fingerprint: 'f' }
test.each([
  ['goes with that batch', reserve('b/1'), 0, [2], '10.0.0.1'],
  ['does not if it needs what was not read', reserve('b/1', named), 0, [1, 1], '10.0.0.1'],
  ['does not if it makes the network, whose lock row there must be', create, 0, [1, 1], '10.0.0.1'],
  ['goes alone if the others are over their deadline', reserve('b/1'), 20_000, [1], 'DEADLINE_EXCEEDED'],
])('what comes while the lock is waited for %s', async (_, late, waitedMs, batches, expected) => {
  const [log, clock] = [newLog(), new TestClock()]
  let meanwhile = () => {}
  const begin: Log['begin'] = async (name, asked) => {
    const transaction = await log.begin(name, asked)
    meanwhile()
    return transaction
  }
  const { submit, told, loop } = await opened({ begin }, log, { clock })
  meanwhile = () => {
    meanwhile = () => {}
    clock.aheadMs += waitedMs
    void loop.submit(late())
  }
  expect(await submit(reserve('a/1')())).toEqual([expected])
  await loop.drained()
  expect(told.batches.slice(1)).toEqual(batches)
})

test('what another process ended since is read before it is answered', async () => {
  const log = newLog()
  const [one, other] = [await open({}, log), await open({}, log)]
  await one.submit(create(), pool('10.0.0.0/28', { cooldownMs: 0 })(), reserve('a/1')())
  const ends = { ...release('a/1')(), ...named }
  await other.submit(ends, reserve('b/1', { claims: [{ address: '10.0.0.1' }] })())
  const [again, repeated] = await Promise.all([release('a/1')(), ends].map((same) => one.loop.submit(same)))
  const answer = { leases: [{ address: '10.0.0.1', state: 'RELEASED' }] }
  expect(again).toMatchObject({ answer, replayed: false })
  expect(repeated).toMatchObject({ answer, replayed: true })
  expect(one.told.failed).toEqual([])
})

test('of a network that there is not, no image is kept', async () => {
  const { loop } = await open()
  expect([loop.records, await loop.image()]).toEqual([0, null])
  expect(loop.isIdle(60_000)).toBe(true)
  const { loop: other } = await opened()
  expect([other.isIdle(60_000), other.isIdle(0)]).toEqual([false, true])
})

test.each([
  ['read on', 25, 1],
  ['loaded anew if it is more than the limit', 5, 2],
])('what another process wrote is %s', async (_, behind, loads) => {
  const log = newLog()
  const [one, other] = [await open({}, log, { limits: { behind } }), await open({}, log)]
  await one.submit(create(), pool('10.0.0.0/24')())
  for (const count of [3, 25]) {
    const before = (await one.loop.image())!.records.size
    await other.submit(...Array.from({ length: count }, (_, i) => reserve(`o${before + i}/1`)()))
    expect(await one.submit(reserve(`p${before}/1`)())).toEqual([`10.0.0.${before + count + 1}`])
  }
  expect(one.told).toMatchObject({ loads, failed: [] })
  expect((await one.loop.image())!.head).toBe((await other.loop.image())!.head)
})

test('a log that lacks what this process wrote begins a new era above it', async () => {
  let current = newLog()
  const { submit, loop } = await open({
    begin: (name, asked) => current.begin(name, asked),
    load: (name, build) => current.load(name, build),
    tail: (name, after) => current.tail(name, after),
  })
  const made = [create(), pool('10.0.0.0/28')()]
  await submit(...made, reserve('a/1')(), reserve('b/1')())
  const copy = newLog()
  await (await open({}, copy)).submit(...made, reserve('other/1')())
  current = copy
  expect(await submit(reserve('c/1')())).toEqual(['NETWORK_RECOVERING'])
  expect((await loop.image())!.network).toMatchObject({ era: 1 })
})

test('who waits for a lock that does not come is answered at the deadline', async () => {
  const { loop } = await open({ begin: () => new Promise(() => {}) })
  const late = loop.submit(create(), 0)
  const patient = loop.submit(create())
  expect([loop.isIdle(0), loop.queue.size]).toEqual([false, 2])
  loop.queue.sweep()
  expect(await late).toMatchObject({ refusal: { reason: 'DEADLINE_EXCEEDED' } })
  expect([loop.queue.size, await Promise.race([patient, 'waits'])]).toEqual([1, 'waits'])
  const image = loop.image(0)
  loop.queue.sweep()
  await expect(image).rejects.toThrow('deadline passed')
})
