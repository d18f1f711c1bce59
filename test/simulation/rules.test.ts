/**
 * Each rule of truth, each row of the lifecycle that guards something and each check of the loop is needed in a world: taken
 * out, some seed fails (`npm run simulate -- --table --seeds 200` says after how many).
 */
import { describe, expect, test } from 'vitest'
import { RULES } from '../../src/core/rules.ts'
import { simulate } from './simulate.ts'
import { FAULTS_FOR } from './world.ts'

const EVENTS = 10_000
const MOST = 100

describe('without a rule some seed fails', () => {
  for (const rule of RULES) {
    test(rule, { timeout: 300_000 }, async () => {
      const options = { without: [rule], faults: FAULTS_FOR[rule] ?? [] }
      for (let seed = 1; seed <= MOST; seed++)
        if ((await simulate(seed, EVENTS, options)).failure !== null) return
      expect.fail(`none of ${MOST} seeds fails without ${rule}`)
    })
  }
})

describe('with all rules none does', () => {
  for (let seed = 1; seed <= 3; seed++)
    test(`seed ${seed}`, { timeout: 60_000 }, async () => {
      expect((await simulate(seed, EVENTS)).failure).toBeNull()
    })
})
