/**
 * Each rule of truth, each row of the lifecycle that guards something and each check of the loop is needed in a world: taken
 * out, some seed fails (`npm run simulate -- --table --seeds 200` says after how many).
 */
import { describe, expect, test } from 'vitest'
import { simulate } from './simulate.ts'
import { ALL_RULES, FAULTS_FOR, type Rule } from './world.ts'

const EVENTS = 10_000
const MOST = 100
/** The first seed that fails, where it is not 1. It is tried first: who changes the core is told of another. */
const FAILS_AT: Partial<Record<Rule, number>> = {
  ADDRESS_COOLS: 3,
  AGE_OF_THE_LAST_CHANGE: 5,
  CLOCK_NEVER_GOES_BACK: 3,
  CLOCK_STEP_HOLDS: 6,
  CONTESTED_IS_KEPT: 26,
  DIGEST_AT_THE_HEAD: 2,
  EVERY_WITNESS_MISSES: 16,
  LISTED_IS_LOOKED_AT_AGAIN: 27,
  LISTED_IS_NEVER_HANDED_OUT: 2,
  NEW_ERA_RECOVERS: 2,
  NODE_ELSEWHERE_KEEPS: 52,
  NODE_HAS_A_LIMIT: 2,
  OLDER_LISTS_ONLY_PROTECT: 9,
  ONE_REPORTER_FILLS_NO_POOL: 19,
  ONLY_COUNTED_REPORTS_DECIDE: 2,
  OPERATOR_AND_INFRASTRUCTURE_STAY: 5,
  OTHER_OWNER_IS_A_CONFLICT: 15,
  OWNER_HAS_A_LIMIT: 9,
  POOL_KEEPS_WHAT_IS_HELD: 2,
  PROMISE_RENEWS_THE_AGE: 14,
  RELEASED_BUT_LIVE_IS_KEPT: 2,
  REQUEST_IS_REMEMBERED: 12,
  SEEN_NEVER_EXPIRES: 12,
  STRICT_WANTS_FRESH_SOURCES: 17,
  UNDOES_WHAT_FAILED: 2,
  UNKNOWN_OUTCOME_IS_LOOKED_UP: 3,
  UNKNOWN_SOURCE_KEEPS_RECOVERY_OPEN: 3,
  WARNED_COMMIT_IS_UNKNOWN: 3,
  WHAT_CALLERS_SEE_IS_SKIPPED: 4,
}

describe('without a rule some seed fails', () => {
  for (const rule of ALL_RULES) {
    test(rule, { timeout: 300_000 }, async () => {
      const options = { without: [rule], faults: FAULTS_FOR[rule] ?? [] }
      const fails = async (seed: number) => (await simulate(seed, EVENTS, options)).failure !== null
      if (await fails(FAILS_AT[rule] ?? 1)) return
      for (let seed = 1; seed <= MOST; seed++)
        if (await fails(seed)) return void console.log(`${rule}: the first seed that fails is ${seed}`)
      expect.fail(`none of ${MOST} seeds fails without ${rule}`)
    })
  }
})
