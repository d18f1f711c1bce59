/** Some worlds with all rules. Apart from those without, so that mutants are tried on these few. */
import { expect, test } from 'vitest'
import { simulate } from './simulate.ts'

test.each([1, 2, 3])('seed %i', async (seed) => {
  expect((await simulate(seed, 10_000)).failure).toBeNull()
})
