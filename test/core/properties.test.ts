/**
 * Whatever is commanded: a batch undone restores the image exactly, decided again it leaves the same events, the fold of all
 * events is the image, free space is handed out in order, the partition is exact.
 */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { rollback } from '../../src/core/image.ts'
import { canonical } from '../support/canonical.ts'
import { type Draw, START, STEPS, stepsOf } from '../support/random-walk.ts'
import { checkFold, decideOnce, newScene, perform, type Scene } from './given.ts'

const draw = fc.record({
  kind: fc.nat(STEPS.length - 1),
  who: fc.nat(4),
  life: fc.nat(2),
  at: fc.nat(39),
  flag: fc.boolean(),
})

function runAll(scene: Scene, batches: readonly (readonly Draw[])[]): void {
  for (const step of START) perform(scene, step(scene)!)
  for (const batch of batches) {
    const before = canonical(scene.image, scene.now)
    // The whole batch at once, and back.
    const clock = scene.now
    const inverses: (() => void)[] = []
    for (const one of stepsOf(batch)) {
      const command = one(scene)
      if (command === undefined) continue
      decideOnce(scene, command)
      inverses.push(...scene.image.journal!)
    }
    scene.image.journal = inverses
    rollback(scene.image, 0)
    scene.image.journal = null
    scene.now = clock
    assert.deepEqual(canonical(scene.image, scene.now), before, 'undo of a batch restores the image')
    for (const one of stepsOf(batch)) {
      const command = one(scene)
      if (command !== undefined) perform(scene, command)
    }
    checkFold(scene)
  }
}

describe('whatever is commanded', () => {
  test('undo, fold, free space and partition hold', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(draw, { minLength: 1, maxLength: 6 }), { minLength: 6, maxLength: 24 }),
        (batches) => runAll(newScene(), batches),
      ),
      { numRuns: 80 },
    )
  })
})
