/** Calls that come close together, done together (liveness/gather.ts). */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import {
  createGathering,
  FEWEST,
  GATHERED_MS,
  MOST_AT_ONCE,
  MOST_UNANSWERED,
} from '../../src/liveness/gather.ts'

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] }))
afterEach(() => vi.useRealTimers())

type Call = {
  readonly who: string
  readonly group?: string
  /** By the clock of the test. */
  readonly deadline?: number
  readonly slow?: Promise<void>
}

function useGathering() {
  const performed: (readonly string[])[] = []
  const gather = createGathering({
    perform: (calls: readonly Call[]) => {
      performed.push(calls.map(({ who }) => who))
      return calls.map(async ({ who, slow }) => {
        await slow
        if (calls.some((one) => one.who === 'broken')) throw new Error('all of them')
        if (who === 'bad') throw new Error('that one')
        return `${who} was heard`
      })
    },
    keyOf: ({ who }) => who,
    groupOf: ({ group = '' }) => group,
    isAwaited: ({ deadline = Number.POSITIVE_INFINITY }) => performance.now() < deadline,
  })
  /** As many callers as it takes, in the moment before. */
  async function busy(): Promise<void> {
    await Promise.all(Array.from({ length: FEWEST }, (_, number) => gather({ who: `early-${number}` })))
    vi.advanceTimersByTime(GATHERED_MS)
    performed.length = 0
  }
  return { performed, gather, busy }
}

const many = (length: number) => Array.from({ length }, (_, number) => ({ who: `caller-${number}` }))
const OVERLOADED = { reason: 'OVERLOADED', retryAfterMs: expect.any(Number) }

test('who comes alone does not wait', async () => {
  const { performed, gather } = useGathering()
  for (let turn = 0; turn < 3; turn += 1) {
    expect(await gather({ who: 'a' })).toBe('a was heard')
    vi.advanceTimersByTime(GATHERED_MS / 10)
  }
  expect(performed).toEqual([['a'], ['a'], ['a']])
})

test('nor does one caller that calls again and again', async () => {
  const { performed, gather } = useGathering()
  for (let turn = 0; turn < 20; turn += 1) {
    await gather({ who: 'a' })
    vi.advanceTimersByTime(GATHERED_MS / 5)
  }
  expect(performed).toHaveLength(20)
})

test('where several came in the moment before, those that come now are done together, and soon', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const heard = Promise.all(['a', 'b', 'c'].map((who) => gather({ who })))
  expect(performed).toEqual([])
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await heard).toEqual(['a was heard', 'b was heard', 'c was heard'])
  expect(performed).toEqual([['a', 'b', 'c']])
})

test('after a moment in which nobody came, nobody waits', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  vi.advanceTimersByTime(2 * GATHERED_MS)
  await gather({ who: 'a' })
  expect(performed).toEqual([['a']])
})

test('each group by itself', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const calls = [{ who: 'a' }, { who: 'x', group: 'other' }, { who: 'b' }]
  const heard = Promise.all(calls.map((call) => gather(call)))
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await heard).toEqual(['a was heard', 'x was heard', 'b was heard'])
  expect(performed).toEqual([['a', 'b'], ['x']])
})

test('of one caller one call waits; another one is told so at once', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const first = gather({ who: 'a' })
  for (let turn = 0; turn < 200; turn += 1) {
    expect(await gather({ who: 'a' })).toMatchObject({ ...OVERLOADED, metadata: { limit: '1' } })
  }
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await first).toBe('a was heard')
  expect(performed).toEqual([['a']])
  vi.advanceTimersByTime(2 * GATHERED_MS)
  expect(performed).toHaveLength(1)
  expect(vi.getTimerCount()).toBe(0)
})

test('one that nobody awaits any more gives way to the next of its caller', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const late = gather({ who: 'a', deadline: performance.now() + 100 })
  vi.advanceTimersByTime(100)
  const next = gather({ who: 'a' })
  expect(await late).toMatchObject(OVERLOADED)
  vi.advanceTimersByTime(GATHERED_MS - 100)
  expect(await next).toBe('a was heard')
  expect(performed).toEqual([['a']])
})

test('what nobody awaits by the time it would be sent is not sent', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const late = gather({ who: 'late', deadline: performance.now() + GATHERED_MS - 1 })
  const inTime = gather({ who: 'in time', deadline: performance.now() + GATHERED_MS + 1 })
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await late).toMatchObject(OVERLOADED)
  expect(await inTime).toBe('in time was heard')
  expect(performed).toEqual([['in time']])
})

test('more than go together are sent at once all the same, and nobody twice', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const calls = many(2 * MOST_AT_ONCE + 1)
  const heard = Promise.all(calls.map((call) => gather(call)))
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await heard).toEqual(calls.map(({ who }) => `${who} was heard`))
  expect(performed.map(({ length }) => length)).toEqual([MOST_AT_ONCE, MOST_AT_ONCE, 1])
  expect(performed.flat()).toEqual(calls.map(({ who }) => who))
})

test('as many as the limit may be waiting or on their way; who comes then is told so at once', async () => {
  const { gather, busy } = useGathering()
  await busy()
  const slow = Promise.withResolvers<void>()
  const onTheirWay = many(MOST_UNANSWERED - 1).map((call) => gather({ ...call, slow: slow.promise }))
  vi.advanceTimersByTime(GATHERED_MS)
  const waits = gather({ who: 'waits' })
  expect(await gather({ who: 'too many' })).toMatchObject({
    ...OVERLOADED,
    metadata: { limit: String(MOST_UNANSWERED) },
  })
  slow.resolve()
  await Promise.all(onTheirWay)
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await waits).toBe('waits was heard')
  // Each place is free again.
  const again = many(MOST_UNANSWERED).map((call) => gather(call))
  vi.advanceTimersByTime(GATHERED_MS)
  expect((await Promise.all(again)).every((answer) => typeof answer === 'string')).toBe(true)
})

test('each is answered when its own answer is there', async () => {
  const { gather, busy } = useGathering()
  await busy()
  const slow = Promise.withResolvers<void>()
  const late = gather({ who: 'a', slow: slow.promise })
  const soon = gather({ who: 'b' })
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await soon).toBe('b was heard')
  slow.resolve()
  expect(await late).toBe('a was heard')
})

test('what fails for one fails for no other; what fails for all, for all of them', async () => {
  const { gather, busy } = useGathering()
  await busy()
  const first = Promise.allSettled(['a', 'bad'].map((who) => gather({ who })))
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await first).toMatchObject([{ value: 'a was heard' }, { reason: { message: 'that one' } }])
  await busy()
  const second = Promise.allSettled(['a', 'broken'].map((who) => gather({ who })))
  vi.advanceTimersByTime(GATHERED_MS)
  expect(await second).toMatchObject([
    { reason: { message: 'all of them' } },
    { reason: { message: 'all of them' } },
  ])
})
