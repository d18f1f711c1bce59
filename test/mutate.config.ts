import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

/** The tests that mutants are tried on: of the core, of the loop in memory, and of what is pure of the agent and the plugin. */
export default defineConfig({
  test: {
    root: fileURLToPath(new URL('..', import.meta.url)),
    include: [
      'test/core/*.test.ts',
      'test/simulation/worlds.test.ts',
      'test/ledger/{memory-log,write}.test.ts',
      'test/agent/{last-number,spares}.test.ts',
      'test/cni/{attachments,cache,call}.test.ts',
    ],
    globalSetup: ['test/support/postgres.ts'],
    testTimeout: 90_000,
    pool: 'forks',
  },
})
