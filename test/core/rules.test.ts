/** Each rule of the core is needed: without it its row comes to something else. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { RULES } from '../../src/core/guards.ts'
import { given } from './given.ts'
import { NODES } from './node-rows.ts'
import { LIFECYCLE, TRUTH } from './rows.ts'

describe('each rule is needed', () => {
  const rows = [...LIFECYCLE, ...TRUTH, ...NODES]
  for (const rule of RULES) {
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
