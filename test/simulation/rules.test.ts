/**
 * Each rule of truth, each row of the lifecycle that guards something and each check of the loop is needed in a world: taken
 * out, some seed fails (`npm run simulate -- --table --seeds 300` says after how many).
 */
import { describe, expect, test } from 'vitest'
import { RULES, type RuleName } from '../../src/core/rules.ts'
import { simulate } from './simulate.ts'

const EVENTS = 10_000
/** Where to begin, for rules that are rarely all that stands between a workload and another. */
const RARE: Partial<Record<RuleName, number>> = {
  ONE_WORD_FILLS_NO_POOL: 30,
  OLDER_LISTS_ONLY_PROTECT: 162,
  EVERY_WITNESS_MISSES: 176,
}
const MOST = 300

describe('without a rule some seed fails', () => {
  for (const rule of RULES) {
    const first = RARE[rule] ?? 1
    test(`${rule} (from seed ${first})`, { timeout: 300_000 }, async () => {
      for (let seed = first; seed < first + MOST; seed++)
        if ((await simulate(seed, EVENTS, { without: [rule] })).failure !== null) return
      expect.fail(`none of ${MOST} seeds from ${first} fails without ${rule}`)
    })
  }
})

describe('with all rules none does', () => {
  for (let seed = 1; seed <= 3; seed++)
    test(`seed ${seed}`, { timeout: 60_000 }, async () => {
      expect((await simulate(seed, EVENTS)).failure).toBeNull()
    })
})
