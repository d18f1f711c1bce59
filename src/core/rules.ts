/**
 * The names of the rules, so that a test or the simulator can take one out and show that it is needed: the ten rules of
 * truth, the rows of the lifecycle that guard something, and the checks of the loop.
 */
export const RULES = [
  // Truth, 1 to 10.
  'LISTED_IS_NEVER_HANDED_OUT',
  'ONLY_COUNTED_REPORTS_DECIDE',
  'LISTED_IS_LOOKED_AT_AGAIN',
  'EVERY_WITNESS_MISSES',
  'LOOK_UP_SAYS_GONE',
  'DOUBT_IS_LIFE',
  'AGE_OF_THE_LAST_CHANGE',
  'ONE_WORD_FILLS_NO_POOL',
  'OPERATOR_AND_INFRASTRUCTURE_STAY',
  'MANY_REAPS_HOLD',
  'VERSION_IS_JUDGED_AGAIN',
  'NEW_ERA_RECOVERS',
  // Lifecycle.
  'CLOSED_IS_REFUSED',
  'NEWER_LIFE_SUPERSEDES',
  'UNCONFIRMED_REMOVAL_IS_KEPT',
  'OTHER_OWNER_IS_A_CONFLICT',
  'RELEASED_BUT_LIVE_IS_KEPT',
  'ADDRESS_COOLS',
  'SEEN_NEVER_EXPIRES',
  'GRACE_AFTER_THE_DEADLINE',
  'PROMISE_RENEWS_THE_AGE',
  'OWNER_HAS_A_LIMIT',
  'RETRY_GETS_THE_SAME_LEASE',
  'REQUEST_IS_REMEMBERED',
  'NODE_ELSEWHERE_KEEPS',
  'POOL_KEEPS_WHAT_IS_HELD',
  // The loop.
  'CATCHES_UP_UNDER_THE_LOCK',
  'DIGEST_AT_THE_HEAD',
  'UNDOES_WHAT_FAILED',
  'UNKNOWN_OUTCOME_IS_LOOKED_UP',
  'CLOCK_STEP_HOLDS',
  'CLOCK_NEVER_GOES_BACK',
] as const

export type RuleName = (typeof RULES)[number]
