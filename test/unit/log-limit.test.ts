import { expect, test } from 'vitest'
import { createLogLimit } from '../../src/log-limit.ts'

test('a line a second for each caller; the next says how many were left out', () => {
  let now = 0
  const limit = createLogLimit(() => now)
  const lines: object[] = []
  const fail = (caller: string) => limit(caller, (more) => lines.push({ caller, ...more }))
  for (now of [0, 1, 999]) fail('a')
  fail('b')
  for (now of [1_000, 2_000]) fail('a')
  expect(lines).toEqual([{ caller: 'a' }, { caller: 'b' }, { caller: 'a', omitted: 2 }, { caller: 'a' }])
})
