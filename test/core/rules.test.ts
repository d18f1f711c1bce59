/** Each rule of the core is needed: without it its row comes to something else. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { RULES, type RuleName } from '../../src/core/rules.ts'
import { given } from './given.ts'
import { LIFECYCLE, TRUTH } from './rows.ts'

/** What the loop checks is shown by the simulator. */
const OF_THE_LOOP: readonly RuleName[] = RULES.slice(RULES.indexOf('CATCHES_UP_UNDER_THE_LOCK'))

describe('each rule is needed', () => {
  const rows = [...LIFECYCLE, ...TRUTH]
  for (const rule of RULES) {
    if (OF_THE_LOOP.includes(rule)) continue
    test(rule, () => {
      const showing = rows.filter((row) => row.rule === rule)
      assert.notEqual(showing.length, 0, `no row shows ${rule}`)
      for (const row of showing) {
        const kept = given(...row.given).when(row.when).said
        const taken = given(...row.given).when(row.when, [rule]).said
        assert.notDeepEqual(taken, kept, `${row.name}: the same without ${rule}`)
      }
    })
  }
})
