import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** The simulator goes last: it takes longest, and most mutants are found without it. */
class ByName extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return files.toSorted((one, other) => (one.moduleId < other.moduleId ? -1 : 1))
  }
}

/** The tests that the mutants of a room are tried on: see `mutate.ts`. */
export default defineConfig({
  test: {
    root: fileURLToPath(new URL('..', import.meta.url)),
    include: JSON.parse(process.env.MUTATE_TESTS!),
    globalSetup: process.env.MUTATE_TESTS!.includes('agent') ? ['test/support/postgres.ts'] : [],
    sequence: { sequencer: ByName },
    // A mutant that never answers waits as long.
    testTimeout: 30_000,
  },
})
