/**
 * Calls that come close together, done together. Thousands of agents report by clocks of their own, each something that
 * costs little by itself and a transaction on top; a report is not urgent, so it may wait a moment for others.
 *
 * - Who comes alone never waits: it pays only where several came in the moment before.
 * - Nobody waits longer than `GATHERED_MS`, however many come, and for what was sent before then.
 * - Of one caller there is one call in a gathering; the next one is in the next.
 */

/** Longest wait. 67 reports a second on 2 cores: 16 of them share a transaction (0.21 cores alone, 0.05 so). */
export const GATHERED_MS = 250
/** Callers within as long a time, from which on the next ones are gathered. Not measured. */
export const FEWEST = 4
const MOST = 500

export type Gathering<Call, Answer> = {
  /** Of calls with different keys. Answers in their order. */
  readonly perform: (calls: readonly Call[]) => Promise<readonly PromiseSettledResult<Answer>[]>
  /** Who calls, and what calls are done together. */
  readonly keyOf: (call: Call) => string
  readonly groupOf: (call: Call) => string
}

type Waiting<Call, Answer> = {
  readonly call: Call
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

export function createGathering<Call, Answer>({
  perform,
  keyOf,
  groupOf,
}: Gathering<Call, Answer>): (call: Call) => Promise<Answer> {
  let waiting: Waiting<Call, Answer>[] = []
  let begunAt = Number.NEGATIVE_INFINITY
  let callers = new Set<string>()
  let callersBefore = 0

  /** How many callers there were in the moment before this one. */
  function count(call: Call): number {
    const now = performance.now()
    if (now - begunAt >= GATHERED_MS) {
      callersBefore = now - begunAt < 2 * GATHERED_MS ? callers.size : 0
      callers = new Set()
      begunAt = now
    }
    callers.add(keyOf(call))
    return callersBefore
  }

  function flush(): void {
    const groups = Map.groupBy(waiting, ({ call }) => groupOf(call))
    waiting = []
    for (const group of groups.values()) {
      const [first, later] = firstOfEach(group)
      void performAll(first.slice(0, MOST))
      waiting.push(...first.slice(MOST), ...later)
    }
    if (waiting.length > 0) setTimeout(flush, GATHERED_MS)
  }

  function firstOfEach(group: readonly Waiting<Call, Answer>[]) {
    const keys = new Set<string>()
    const first: Waiting<Call, Answer>[] = []
    const later: Waiting<Call, Answer>[] = []
    for (const one of group) {
      const key = keyOf(one.call)
      if (keys.has(key)) later.push(one)
      else first.push(one)
      keys.add(key)
    }
    return [first, later] as const
  }

  async function performAll(all: readonly Waiting<Call, Answer>[]): Promise<void> {
    try {
      const answers = await perform(all.map(({ call }) => call))
      for (const [place, { resolve, reject }] of all.entries()) {
        const answer = answers[place]!
        if (answer.status === 'fulfilled') resolve(answer.value)
        else reject(answer.reason)
      }
    } catch (error) {
      for (const { reject } of all) reject(error)
    }
  }

  return async function gather(call) {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const one = { call, resolve, reject }
    if (count(call) < FEWEST && waiting.length === 0) void performAll([one])
    else {
      if (waiting.length === 0) setTimeout(flush, GATHERED_MS)
      waiting.push(one)
    }
    return promise
  }
}
