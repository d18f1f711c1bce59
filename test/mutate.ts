/**
 * Mutation testing by room: what share of small changes to the code its tests find. Fails if it is below 90 % in a room.
 * `npm run mutate -- core` runs one room, `-- core src/core/heap.ts` one file of it.
 */
import { availableParallelism } from 'node:os'
import { Stryker } from '@stryker-mutator/core'

const WORLDS = 'test/simulation/worlds.test.ts'
const LEDGER = [
  'attempt',
  'event-text',
  'image-cache',
  'loop',
  'prefetch',
  'queue',
  'system-commands',
  'write',
]
const CNI = ['answer', 'attachments', 'cache', 'call']

/** Only the tests of the agent need PostgreSQL. */
const ROOMS: Readonly<Record<string, { mutate: readonly string[]; tests: readonly string[] }>> = {
  core: { mutate: ['src/core/*.ts'], tests: ['test/core/*.test.ts', WORLDS] },
  ledger: {
    mutate: LEDGER.map((file) => `src/ledger/${file}.ts`),
    tests: ['test/ledger/{event-text,loop,memory-log,prefetch,queue,system-commands,write}.test.ts', WORLDS],
  },
  agent: {
    mutate: ['src/agent/spares.ts', 'src/agent/last-number.ts'],
    tests: ['test/agent/{last-number,spares}.test.ts'],
  },
  cni: {
    mutate: CNI.map((file) => `src/cni/${file}.ts`),
    tests: CNI.map((file) => `test/cni/${file}.test.ts`),
  },
}

const [only, ...files] = process.argv.slice(2)
for (const [room, { mutate, tests }] of Object.entries(ROOMS)) {
  if (only !== undefined && only !== room) continue
  process.env.MUTATE_TESTS = JSON.stringify(tests)
  const results = await new Stryker({
    mutate: files.length > 0 ? files : [...mutate],
    testRunner: 'vitest',
    vitest: { configFile: 'test/mutate.config.ts', related: false },
    coverageAnalysis: 'perTest',
    // judge.test.ts plays scenes when it is loaded: else all that these touch would be tried on every test.
    ignoreStatic: true,
    tsconfigFile: 'none: Stryker 10 reads it by the API of TypeScript 6',
    // Texts are for people: that each says what it should is no rule.
    mutator: { excludedMutations: ['StringLiteral'] },
    ignorePatterns: ['bench', '.ipledger', 'dist'],
    reporters: ['progress-append-only', 'json'],
    jsonReporter: { fileName: `reports/mutation/${room}.json` },
    thresholds: { high: 95, low: 90, break: null },
    concurrency: Math.max(1, availableParallelism() - 1),
  }).runMutationTest()
  const count = (...states: readonly string[]) =>
    results.filter(({ status }) => states.includes(status)).length
  const found = count('Killed', 'Timeout')
  const all = found + count('Survived', 'NoCoverage')
  console.log(`${room}: ${((100 * found) / all).toFixed(1)} % of ${all} mutants`)
  for (const { status, fileName, location, replacement } of results)
    if (status === 'Survived' || status === 'NoCoverage')
      console.log(`  ${fileName}:${location.start.line}:${location.start.column} -> ${replacement}`)
  if (found < 0.9 * all) process.exitCode = 1
}
