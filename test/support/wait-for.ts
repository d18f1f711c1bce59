import { setTimeout as delay } from 'node:timers/promises'

/**
 * Resolves with the first truthy answer of `condition`, which may throw until then. Tests wait for what they wait for,
 * with a limit, and never for a time.
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  options: Readonly<{ timeout?: number; every?: number; what?: string }> = {},
): Promise<Exclude<T, false | null | undefined | 0 | ''>> {
  const { timeout = 60_000, every = 10, what = 'the condition' } = options
  const deadline = performance.now() + timeout
  let last: unknown
  for (;;) {
    try {
      const answer = await condition()
      if (answer) return answer as Exclude<T, false | null | undefined | 0 | ''>
      last = undefined
    } catch (error) {
      last = error
    }
    if (performance.now() > deadline) {
      throw new Error(`waited ${timeout} ms in vain for ${what}`, { cause: last })
    }
    await delay(every)
  }
}
