/** Calls that come close together, done together (liveness/gather.ts). */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createGathering, FEWEST, GATHERED_MS } from '../../src/liveness/gather.ts'

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] }))
afterEach(() => vi.useRealTimers())

type Call = { readonly who: string; readonly group?: string }

function useGathering() {
  const performed: (readonly string[])[] = []
  const gather = createGathering({
    perform: async (calls: readonly Call[]) => {
      performed.push(calls.map(({ who }) => who))
      if (calls.some(({ who }) => who === 'broken')) throw new Error('all of them')
      return calls.map(
        ({ who }): PromiseSettledResult<string> =>
          who === 'bad'
            ? { status: 'rejected', reason: new Error('that one') }
            : { status: 'fulfilled', value: `${who} was heard` },
      )
    },
    keyOf: ({ who }) => who,
    groupOf: ({ group = '' }) => group,
  })
  /** As many callers as it takes, in the moment before. */
  async function busy(): Promise<void> {
    await Promise.all(Array.from({ length: FEWEST }, (_, number) => gather({ who: `early-${number}` })))
    vi.advanceTimersByTime(GATHERED_MS)
    performed.length = 0
  }
  return { performed, gather, busy }
}

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

test('each group by itself, and of one caller one call at a time', async () => {
  const { performed, gather, busy } = useGathering()
  await busy()
  const calls = [{ who: 'a' }, { who: 'x', group: 'other' }, { who: 'a' }, { who: 'b' }]
  const heard = Promise.all(calls.map((call) => gather(call)))
  vi.advanceTimersByTime(GATHERED_MS)
  vi.advanceTimersByTime(GATHERED_MS)
  await heard
  expect(performed).toEqual([['a', 'b'], ['x'], ['a']])
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
