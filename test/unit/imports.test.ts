/** Who may import whom: rooms stand on those below them, and nothing stands on itself. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const imports = globSync('src/**/*.ts', { exclude: ['src/gen/**', 'src/**/node_modules/**'] }).flatMap(
  (file) =>
    [...readFileSync(file, 'utf8').matchAll(/from '([^']+)'/g)].map(([, what]) => ({
      file,
      what: what!.startsWith('.') ? join(file, '..', what!) : what!,
    })),
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
