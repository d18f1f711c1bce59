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

test('no two files import each other', () => {
  const both = new Set(imports.map(({ file, what }) => `${what}: ${file}`))
  expect(lines(imports).filter((line) => both.has(line))).toEqual([])
})

test('only api and client know Connect', () => {
  const connect = imports.filter(({ what }) => what.startsWith('@connectrpc/'))
  expect(lines(connect.filter(({ file }) => !/^src\/(api|client)\//.test(file)))).toEqual([])
})
