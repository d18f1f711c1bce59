/** What may import what: rooms stand on those below them, and nothing stands on itself. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'

/** A room is a folder of `src`, a file beside them, or `bench`. It may import what it stands on, and what that stands on. */
const STANDS_ON: Readonly<Record<string, readonly string[]>> = {
  gen: [],
  core: [],
  'config.ts': [],
  'in-slices.ts': [],
  'limit-to.ts': [],
  'log-limit.ts': [],
  'time-limit.ts': [],
  'telemetry.ts': ['config.ts'],
  'telemetry-export.ts': ['telemetry.ts'],
  postgres: ['core', 'config.ts', 'time-limit.ts'],
  ledger: ['postgres', 'gen', 'in-slices.ts'],
  sources: ['ledger', 'telemetry.ts', 'log-limit.ts', 'limit-to.ts'],
  watch: ['ledger', 'limit-to.ts'],
  jobs: ['sources'],
  api: ['sources', 'watch'],
  'database-gauges.ts': ['ledger', 'telemetry.ts'],
  'serve.ts': ['api', 'jobs', 'database-gauges.ts', 'telemetry-export.ts'],
  // A page: the service sends its files, and nothing imports them.
  console: ['gen'],
  client: ['core', 'gen'],
  cni: ['client'],
  // It is given its logger.
  agent: ['cni', 'telemetry.ts'],
  docker: ['cni', 'telemetry.ts'],
  import: ['cni'],
  cli: ['serve.ts', 'agent', 'docker', 'import'],
  'main.ts': ['cli'],
  // Nothing imports these: they are programs.
  demo: ['cli'],
  bench: ['cli'],
}

function below(room: string): readonly string[] {
  return [room, ...STANDS_ON[room]!.flatMap(below)]
}

const IMPORT = /(?:\bfrom |\bimport\(\s*|^import )['"]([^'"\n]+)['"]/gm
const importsOf = (file: string) =>
  [...readFileSync(file, 'utf8').matchAll(IMPORT)].map(([, what]) => ({
    file,
    what: what!.startsWith('.') ? join(file, '..', what!) : what!,
  }))
const roomOf = (path: string) => (path.startsWith('bench/') ? 'bench' : path.split('/')[1]!)
const isOurs = ({ what }: { readonly what: string }) => what.startsWith('src/') || what.startsWith('bench/')

const files = globSync(['src/**/*.ts', 'bench/**/*.ts'], { exclude: ['src/gen/**'] })
const imports = files.flatMap(importsOf)
const lines = (found: typeof imports) => found.map(({ file, what }) => `${file}: ${what}`)

test('a room imports only what stands below it', () => {
  expect(new Set(['src/gen/x.ts', ...files].map(roomOf))).toEqual(new Set(Object.keys(STANDS_ON)))
  const astray = imports
    .filter(isOurs)
    .filter(({ file, what }) => !below(roomOf(file)).includes(roomOf(what)))
  expect(lines(astray)).toEqual([])
})

test('no file imports itself, whatever lies between', () => {
  const open = new Map(files.map((file) => [file, importsOf(file).filter(isOurs)]))
  // Leaf by leaf: what is left in the end is on a circle, or leads to one.
  for (let before = -1; before !== open.size; ) {
    before = open.size
    for (const [file, found] of open) if (!found.some(({ what }) => open.has(what))) open.delete(file)
  }
  expect(lines([...open.values()].flat().filter(({ what }) => open.has(what)))).toEqual([])
})

/** Of Node, pure functions: is it an address, are these equal. */
const PURE = ['node:net', 'node:util']

test('core imports nothing but core, and what is pure', () => {
  const core = imports.filter(({ file }) => file.startsWith('src/core/'))
  expect(lines(core.filter(({ what }) => !what.startsWith('src/core/') && !PURE.includes(what)))).toEqual([])
})

test.each([
  ['Connect', /from '@connectrpc\//, /^src\/(api|client)\//],
  // CNI gives a plugin its call in there.
  ['the environment', /^[^*]*\bprocess\.env\b/m, /^(src\/config\.ts|src\/cni\/main\.ts|bench\/cni\.ts)$/],
  // A floor of the bench is what a user would write.
  [
    'how a connection to PostgreSQL is opened',
    /\bnew pg\.|extends pg\./,
    /^(src\/postgres\/|bench\/floor-process\.ts$)/,
  ],
  // Whoever waits for an answer counts only time in which the process runs. These stop, pause, or are callers.
  [
    'time limits that go by the clock',
    /\bsetTimeout\(|AbortSignal\.timeout\(/,
    /^(src\/(time-limit|telemetry|api\/http\/server|cli\/stopping|ledger\/clock|postgres\/server-process)\.ts$|src\/(client|console)\/|bench\/)/,
  ],
  ['OpenTelemetry', /from '@opentelemetry\//, /^src\/telemetry(-export)?\.ts$/],
  ['SQL', /\b(from|into|update|join) (ipledger\w*|\$\{\w+\})\./, /^(src\/(ledger|postgres|cli)|bench)\//],
] as const)('only its own rooms know %s', (_, known, rooms) => {
  const knowing = files.filter((file) => known.test(readFileSync(file, 'utf8')))
  expect(knowing.length).toBeGreaterThan(0)
  expect(knowing.filter((file) => !rooms.test(file))).toEqual([])
})

test('what jobs, sources and watches ask of PostgreSQL goes over connections that they are given', () => {
  const asking = imports.filter(({ file }) => ['jobs', 'sources', 'watch'].includes(roomOf(file)))
  expect(lines(asking.filter(({ what }) => what === 'src/postgres/connect.ts'))).toEqual([])
})

test('the client imports of packages only those of Connect', () => {
  const reached = new Set(['src/client/client.ts'])
  // Sets grow while they are walked.
  for (const file of reached)
    for (const { what } of importsOf(file)) if (what.startsWith('src/')) reached.add(what)
  const others = [...reached].flatMap(importsOf).filter((one) => !isOurs(one))
  expect(
    lines(others.filter(({ what }) => !/^(node:|@bufbuild\/protobuf|@connectrpc\/)/.test(what))),
  ).toEqual([])
})
