/** No lease waits without anybody hearing of it: each reason of the judge is told, or ends without a person. */
import { expect, test } from 'vitest'
import { STUCK_CODES } from '../../src/cli/stuck.ts'
import { EFFECT, type ReasonCode } from '../../src/core/judge.ts'
import { TOLD_AS } from '../../src/liveness/stuck.ts'

const CODES = Object.keys(STUCK_CODES)
/** Who is alive, what the clock ends, and what only one of several grounds minds. */
const ENDS_WITHOUT_A_PERSON: readonly ReasonCode[] = [
  ...(['SEEN_LIVE', 'SEEN_ELSEWHERE'] as const),
  ...(['OTHER_ERA', 'CONFIRM_PENDING', 'TOO_YOUNG', 'TERMINAL_IN_GRACE'] as const),
  ...(['NOT_FENCED', 'SEEN_ON_ANOTHER_NODE', 'OTHERS_WERE_SEEN', 'NOT_ENDED_BY_BOOT'] as const),
]
/** Told of the source, and of the lease while something is wrong with it. */
const TOLD_OF_ITS_SOURCE: readonly ReasonCode[] = ['ERA_NOT_REPORTED', 'NOT_WARM', 'TOO_FEW_MISSES']

test.each(Object.entries(EFFECT) as [ReasonCode, string][])('%s (%s)', (code, effect) => {
  const told = TOLD_AS[code]
  if (effect === 'proof') expect(told).toBe('PASSING')
  else if (ENDS_WITHOUT_A_PERSON.includes(code)) expect(['ALIVE', 'PASSING', 'BESIDE']).toContain(told)
  else if (TOLD_OF_ITS_SOURCE.includes(code)) expect(told).toBe('OF_SOURCE')
  else expect(CODES).toContain(told)
  // What blocks until somebody acts is never left to time.
  if (effect === 'doubt' || effect === 'question') expect(CODES).toContain(told)
})
