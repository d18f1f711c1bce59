/** Who may import whom: rooms stand on those below them, and nothing stands on itself. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const importsOf = (file: string) =>
  [...readFileSync(file, 'utf8').matchAll(/from ['"]([^'"]+)['"]/g)].map(([, what]) => ({
    file,
    what: what!.startsWith('.') ? join(file, '..', what!) : what!,
  }))
const imports = globSync('src/**/*.ts', { exclude: ['src/gen/**', 'src/**/node_modules/**'] }).flatMap(
  importsOf,
)
const lines = (found: typeof imports) => found.map(({ file, what }) => `${file}: ${what}`)

/** Of Node, pure functions: is it an address, are these equal. */
const PURE = ['node:net', 'node:util']

test('core imports nothing but core, and what is pure', () => {
  expect(imports.length).toBeGreaterThan(100)
  const core = imports.filter(({ file }) => file.startsWith('src/core/'))
  expect(lines(core.filter(({ what }) => !what.startsWith('src/core/') && !PURE.includes(what)))).toEqual([])
})

test('a room imports none that stands above it', () => {
  const rooms = ['core', 'postgres', 'ledger', 'sources', 'jobs', 'api', 'cli']
  const floorOf = (path: string) => rooms.indexOf(path.split('/')[1]!)
  const up = imports.filter(({ file, what }) => floorOf(file) >= 0 && floorOf(what) > floorOf(file))
  expect(lines(up)).toEqual([])
})

test('what runs on nodes and at callers speaks to the API only', () => {
  const rooms = ['client', 'cni', 'agent', 'import']
  const below = (room: string) => ['core', 'gen', ...rooms.slice(0, rooms.indexOf(room) + 1)]
  const roomOf = (path: string) => path.split('/')[1]!
  const astray = imports
    .filter(({ file, what }) => rooms.includes(roomOf(file)) && what.startsWith('src/'))
    // A type; the agent is given its logger.
    .filter(({ file, what }) => !below(roomOf(file)).includes(roomOf(what)) && what !== 'src/telemetry.ts')
  expect(lines(astray)).toEqual([])
})

test('no two files import each other', () => {
  const both = new Set(imports.map(({ file, what }) => `${what}: ${file}`))
  expect(lines(imports).filter((line) => both.has(line))).toEqual([])
})

test('only api and client know Connect', () => {
  const connect = imports.filter(({ what }) => what.startsWith('@connectrpc/'))
  expect(lines(connect.filter(({ file }) => !/^src\/(api|client)\//.test(file)))).toEqual([])
})

test('the client imports the core and the contract, and of packages only those of Connect', () => {
  const reached = new Set(['src/client/client.ts'])
  // Sets grow while they are walked.
  for (const file of reached)
    for (const { what } of importsOf(file)) if (what.startsWith('src/')) reached.add(what)
  const rooms = new Set([...reached].map((file) => file.split('/')[1]))
  expect([...rooms].sort()).toEqual(['client', 'core', 'gen'])
  const others = [...reached].flatMap(importsOf).filter(({ what }) => !what.startsWith('src/'))
  expect(
    lines(others.filter(({ what }) => !/^(node:|@bufbuild\/protobuf|@connectrpc\/)/.test(what))),
  ).toEqual([])
})
