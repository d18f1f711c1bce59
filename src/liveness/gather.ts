/**
 * Calls that come close together, done together. Thousands of agents report by clocks of their own, each something that
 * costs little by itself and a transaction on top; a report is not urgent, so it may wait a moment for others.
 *
 * - Who comes alone never waits: it pays only where several came in the moment before.
 * - Nobody waits here longer than `GATHERED_MS`, however many come: what waits is sent at once, `MOST_AT_ONCE` together.
 * - Of one caller one call waits; another one is refused. One that nobody awaits any more gives way.
 * - No more than `MOST_UNANSWERED` calls are waiting or on their way; who comes then is refused.
 * - What nobody awaits by the time it would be sent, as its deadline passed or its caller went away, is not sent.
 * - Each is answered when its own answer is there.
 */
import { type Refusal, refusal } from '../core/refusal.ts'

/** Longest wait. 67 reports a second on 2 cores: 16 of them share a transaction (0.21 cores alone, 0.05 so, without the jobs that follow the log). */
export const GATHERED_MS = 250
/** Callers within as long a time, from which on the next ones are gathered. Not measured. */
export const FEWEST = 4
/** In one transaction. Not measured. */
export const MOST_AT_ONCE = 500
/** A minute of 2,000 agents, which report each 30 s. Not measured. */
export const MOST_UNANSWERED = 4_000

export type Gathering<Call, Answer> = {
  /** Of calls with different keys, in their order; each settled by itself. */
  readonly perform: (calls: readonly Call[]) => readonly Promise<Answer>[]
  /** Who calls, and what calls are done together. */
  readonly keyOf: (call: Call) => string
  readonly groupOf: (call: Call) => string
  readonly isAwaited: (call: Call) => boolean
}

type Waiting<Call, Answer> = {
  readonly call: Call
  readonly answer: (answer: Answer | Refusal | Promise<Answer>) => void
}

export function createGathering<Call, Answer>({
  perform,
  keyOf,
  groupOf,
  isAwaited,
}: Gathering<Call, Answer>): (call: Call) => Promise<Answer | Refusal> {
  /** By key. */
  let waiting = new Map<string, Waiting<Call, Answer>>()
  let unanswered = 0
  let begunAt = Number.NEGATIVE_INFINITY
  let callers = new Set<string>()
  let callersBefore = 0

  /** How many callers there were in the moment before this one. */
  function count(key: string): number {
    const now = performance.now()
    if (now - begunAt >= GATHERED_MS) {
      callersBefore = now - begunAt < 2 * GATHERED_MS ? callers.size : 0
      callers = new Set()
      begunAt = now
    }
    callers.add(key)
    return callersBefore
  }

  function flush(): void {
    const awaited: Waiting<Call, Answer>[] = []
    for (const one of waiting.values()) {
      if (isAwaited(one.call)) awaited.push(one)
      else one.answer(notAwaited())
    }
    waiting = new Map()
    for (const group of Map.groupBy(awaited, ({ call }) => groupOf(call)).values()) {
      for (let from = 0; from < group.length; from += MOST_AT_ONCE) {
        performAll(group.slice(from, from + MOST_AT_ONCE))
      }
    }
  }

  function performAll(all: readonly Waiting<Call, Answer>[]): void {
    const answers = perform(all.map(({ call }) => call))
    for (const [place, { answer }] of all.entries()) answer(answers[place]!)
  }

  function wait(key: string, one: Waiting<Call, Answer>): void {
    const before = waiting.get(key)
    if (before !== undefined && isAwaited(before.call)) {
      one.answer(
        refusal(
          'OVERLOADED',
          'a call of this caller waits already, the limit is 1',
          { limit: '1' },
          GATHERED_MS,
        ),
      )
      return
    }
    before?.answer(notAwaited())
    if (waiting.size === 0) setTimeout(flush, GATHERED_MS)
    waiting.set(key, one)
  }

  return async function gather(call) {
    if (unanswered >= MOST_UNANSWERED) {
      const limit = String(MOST_UNANSWERED)
      return refusal('OVERLOADED', `${limit} calls wait for their answer, the limit`, { limit }, 1_000)
    }
    const key = keyOf(call)
    const { promise, resolve } = Promise.withResolvers<Answer | Refusal>()
    const one = { call, answer: resolve }
    unanswered += 1
    try {
      if (count(key) < FEWEST && waiting.size === 0) performAll([one])
      else wait(key, one)
      return await promise
    } finally {
      unanswered -= 1
    }
  }
}

/** Of what is dropped before it is sent: most likely nobody hears of it. */
export function notAwaited(): Refusal {
  return refusal('OVERLOADED', 'the deadline passed while the call waited; it did nothing', {}, 100)
}
