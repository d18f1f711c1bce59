/** What docs/ says of the code is so: the functions of the flows, the names of constraints, the numbers, the links. */
import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { LAST_ERA, POLICY } from '../../src/core/policy.ts'
import { MOST_ENTRIES } from '../../src/sources/source.ts'
import { MOST_SERIES } from '../../src/telemetry.ts'
import { ROOT, SRC } from '../support/root.ts'

const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8')
const source = (path: string): string => readFileSync(new URL(path.replace(/^src\//, ''), SRC), 'utf8')
const design = read('docs/design.md')
const limits = read('docs/limits.md')

const steps = [...design.matchAll(/^\| `(\w+)` \| `(src\/\S+\.ts)` \|/gm)]

test('the flows are there', () => {
  expect(steps.length).toBeGreaterThan(20)
})

test.each(steps.map(([, name, path]) => [name!, path!] as const))('%s is in %s', (name, path) => {
  expect(source(path)).toMatch(
    new RegExp(`(function\\*? ${name}\\b|\\b${name}: (async|\\w+\\()|async ${name}\\()`),
  )
})

test('constraints are named as the migration names them', () => {
  const migration = read('db/migrations/0001_ipledger.sql')
  for (const [, name] of design.matchAll(/^\| `(\w+_\w+)` \(/gm)) expect(migration).toContain(name)
})

test('limits are those of the code', () => {
  const config = readConfig({})
  const number = (value: number) => value.toLocaleString('en-US')
  for (const value of [
    LAST_ERA,
    MOST_ENTRIES,
    MOST_SERIES,
    POLICY.sources,
    config.imageAddresses,
    config.maxQueuedCommands,
  ])
    expect(limits).toContain(number(value))
  expect(limits).toContain(`at most ${POLICY.quarantinesPerCaller} addresses`)
  expect(limits).toContain(`more than ${POLICY.heldAboveReaps} reaps`)
})

test('links lead somewhere', () => {
  for (const [page, text] of [
    ['docs/design.md', design],
    ['docs/limits.md', limits],
  ] as const)
    for (const [, target] of text.matchAll(/\]\(([^)#:]+)\)/g))
      expect(existsSync(new URL(target!, new URL(page, ROOT))), `${page}: ${target}`).toBe(true)
})
