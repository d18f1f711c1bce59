/** Each way in which an attempt ends, with a log in memory whose commits a test answers. `outcomes.test.ts` shows them of PostgreSQL. */
import { expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { Clock } from '../../src/ledger/clock.ts'
import { type Committed, type Log, NeedsRebuild, type Transaction, type Write } from '../../src/ledger/log.ts'
import { Loop } from '../../src/ledger/loop.ts'
import type { LoopLimits } from '../../src/ledger/loop-options.ts'
import { command, pool, reserve } from '../core/given.ts'
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

/** A loop on a network with a pool, with the ends of its next commits, and what it reports. */
async function open(change: Partial<Log> = {}, log = newLog(), limits: Partial<LoopLimits> = {}) {
  const ends: End[] = []
  const told = {
    failed: [] as string[],
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
    limits,
    observer: {
      loaded: () => {
        told.loads += 1
      },
      batch: (_, { commands }) => told.batches.push(commands),
      failed: (_, what) => told.failed.push(what),
      defect: (_, one) => told.defects.push(one),
      event: () => {
        told.events += 1
      },
    },
  })
  const submit = async (...commands: readonly Command[]) =>
    (await Promise.all(commands.map((one) => loop.submit(one)))).map((one) =>
      one.ok ? (one.answer.leases[0]?.address ?? 'ok') : one.refusal.reason,
    )
  return { log, loop, ends, told, submit }
}

async function opened() {
  const all = await open()
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
  ends.push(end)
  expect(await submit(reserve('a/1')(), reserve('b/1')())).toEqual(['10.0.0.1', '10.0.0.2'])
  expect(told).toMatchObject({ failed, defects: [], events: before + 2 })
  expect(told.batches[1]).toBe(size)
  const image = (await loop.image())!
  expect([image.head, image.records.size, loop.queue.size, loop.records]).toEqual([4, 2, 0, 2])
  expect(await submit(reserve('c/1')(), reserve('d/1')())).toEqual(['10.0.0.3', '10.0.0.4'])
  expect(told.batches.at(-1)).toBe(2)
})

test('an outcome is looked up once more if the look-up itself fails', async () => {
  const { ends, told, submit } = await opened()
  ends.push(unheard, unmade('rolledBack'), unmade('unknown'))
  expect(await submit(reserve('a/1')())).toEqual(['10.0.0.1'])
  expect(told.failed).toEqual(['unknown', 'rolledBack', 'unknown'])
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
})

test('a log that needs a rebuild is told to those that wait', async () => {
  const { submit, told } = await open({ load: () => Promise.reject(new NeedsRebuild('rebuild it')) })
  expect(await submit(reserve('a/1')())).toEqual(['NETWORK_RECOVERING'])
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

test('of a network that there is not, no image is kept', async () => {
  const { loop } = await open()
  expect(await loop.image()).toBeNull()
  expect(loop.isIdle(60_000)).toBe(true)
  const { loop: other } = await opened()
  expect([other.isIdle(60_000), other.isIdle(0)]).toEqual([false, true])
})

test.each([
  ['read on', 25, 1],
  ['loaded anew if it is more than the limit', 5, 2],
])('what another process wrote is %s', async (_, behind, loads) => {
  const log = newLog()
  const [one, other] = [await open({}, log, { behind }), await open({}, log)]
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
