/** What README and docs say of the code is so: tables, functions of the flows, names of constraints, numbers, links. */
import { existsSync, readFileSync } from 'node:fs'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { MEANINGS } from '../../src/api/codec/errors.ts'
import { createProgram } from '../../src/cli/program.ts'
import { readConfig } from '../../src/config.ts'
import { QUARANTINE_REASONS } from '../../src/core/event.ts'
import { exitsOf, LIFECYCLE } from '../../src/core/lifecycle.ts'
import { LAST_ERA, POLICY } from '../../src/core/policy.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { LIMITS } from '../../src/ledger/loop-options.ts'
import { MOST_ENTRIES } from '../../src/sources/source.ts'
import { MOST_SERIES } from '../../src/telemetry.ts'
import { LINKING, tableIn, textOf } from '../support/docs.ts'
import { ROOT, SRC } from '../support/root.ts'

const source = (path: string): string => readFileSync(new URL(path.replace(/^src\//, ''), SRC), 'utf8')

/** Of `docker run` and of Node.js. */
const OPTIONS_OF_OTHERS: readonly string[] = ['--ip', '--max-semi-space-size']

/** The anchors of a page's headings, as GitHub makes them. */
const anchorsOf = (path: string): readonly string[] =>
  [...textOf(path).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )

test.each(LINKING)('links of %s lead somewhere', (path) => {
  const prose = textOf(path).replaceAll(/^```.*?^```/gms, '')
  const broken = [...prose.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)].filter(
    ([, target, anchor]) => {
      const at = new URL(target!, new URL(path, ROOT))
      if (!existsSync(at)) return true
      const page = at.href.slice(ROOT.href.length)
      return anchor !== undefined && !anchorsOf(page).includes(anchor)
    },
  )
  expect(broken.map(([link]) => link)).toEqual([])
})

test('errors are those the API answers by', () => {
  expect(tableIn('docs/callers.md', '| reason | code | what to do |')).toEqual(
    (Object.keys(MEANINGS) as Reason[]).map((reason) => [
      `\`${reason}\``,
      `\`${codeToString(MEANINGS[reason].code)}\``,
      MEANINGS[reason].caller,
    ]),
  )
})

test('the life of an address is the one of the core', () => {
  const code = (words: readonly string[]) => words.map((word) => `\`${word}\``).join(', ')
  const sentence = (words: readonly string[]) => {
    const text = words.join('; or ')
    return `${text[0]!.toUpperCase()}${text.slice(1)}`
  }
  const held = LIFECYCLE.reap.from
  const whatIs = (from: readonly string[]) => {
    if (from.includes('FREE')) return 'free'
    const others = held.filter((one) => !from.includes(one))
    return from.length < 6 ? code(from) : others.length === 0 ? 'held' : `held, not ${code(others)}`
  }
  const rows = Object.values(LIFECYCLE)
  const changes = rows.filter(({ event }) => event !== 'lease.quarantined')
  expect(tableIn('docs/concepts.md', '| what happens | to what is | makes it |')).toEqual(
    changes.map(({ when, from, to }) => [
      sentence([when]),
      whatIs(from),
      to === null ? 'stays so' : code([to]),
    ]),
  )
  expect(tableIn('docs/concepts.md', '| reason | because | ends by |')).toEqual(
    QUARANTINE_REASONS.map((reason) => {
      const because = rows.filter(({ to }) => to === reason).map(({ when }) => when)
      const exits = exitsOf(reason, null)
      return [code([reason]), sentence(because), exits.length === 0 ? 'an operator only' : exits.join(' or ')]
    }),
  )
})

test('every variable that is read is there, with its default', () => {
  const read = [...source('config.ts').matchAll(/^ {2}([A-Z][A-Z_]+): /gm)].map((found) => found[1]!)
  const rows = tableIn('docs/deploying.md', '| variable | default | meaning |')
  expect(rows.map(([name]) => name)).toEqual(read.map((name) => `\`${name}\``))
  const defaults = readConfig({})
  const shown = (name: string): string => rows.find((row) => row[0] === `\`${name}\``)![1]!
  expect(shown('IPLEDGER_HOST')).toBe(defaults.host)
  expect(shown('IPLEDGER_DIR')).toBe('.ipledger')
  expect(shown('IPLEDGER_LOG_LEVEL')).toBe(defaults.logLevel)
  for (const [name, value] of [
    ['IPLEDGER_PORT', defaults.port],
    ['IPLEDGER_GRPC_PORT', defaults.grpcPort],
    ['IPLEDGER_WRITE_CONNECTIONS', defaults.writeConnections],
    ['IPLEDGER_READ_CONNECTIONS', defaults.readConnections],
    ['IPLEDGER_JOB_CONNECTIONS', defaults.jobConnections],
    ['IPLEDGER_BATCH_LEASES', defaults.batchLeases],
    ['IPLEDGER_DEADLINE_SECONDS', defaults.deadlineMs / 1_000],
    ['IPLEDGER_IMAGE_ADDRESSES', defaults.imageAddresses],
  ] as const) {
    expect([name, shown(name)]).toEqual([name, String(value)])
  }
})

test('every command is there', () => {
  const named = tableIn('docs/operating.md', '| command | does |').flatMap(([cell]) =>
    [...cell!.matchAll(/`([a-z-]+)`/g)].map((found) => found[1]!),
  )
  expect(named.sort()).toEqual(
    createProgram()
      .commands.map((command) => command.name())
      .sort(),
  )
})

const optionsOf = ({ options, commands }: Command): readonly string[] => [
  ...options.flatMap(({ long }) => long ?? []),
  ...commands.flatMap(optionsOf),
]

test.each(LINKING)('options that %s names are there', (path) => {
  const known = ['--help', ...optionsOf(createProgram()), ...OPTIONS_OF_OTHERS]
  const named = [...textOf(path).matchAll(/`(--[a-z-]+)[^`\n]*`/g)].map((found) => found[1]!)
  expect(named.filter((name) => !known.includes(name))).toEqual([])
})

const steps = [...textOf('docs/design.md').matchAll(/^\| `(\w+)` \| `(src\/\S+\.ts)` \|/gm)]

test('the flows are there', () => {
  expect(steps.length).toBeGreaterThan(20)
})

test.each(steps.map(([, name, path]) => [name!, path!] as const))('%s is in %s', (name, path) => {
  expect(source(path)).toMatch(
    new RegExp(`(function\\*? ${name}\\b|\\b${name}: (async|\\w+\\()|^ +(async )?${name}\\()`, 'm'),
  )
})

test('constraints are named as the migration names them', () => {
  const migration = textOf('db/migrations/0001_ipledger.sql')
  for (const [, name] of textOf('docs/design.md').matchAll(/^\| `(\w+_\w+)` \(/gm))
    expect(migration).toContain(name)
})

test('limits are those of the code', () => {
  const limits = textOf('docs/limits.md')
  const config = readConfig({})
  const number = (value: number) => value.toLocaleString('en-US')
  for (const value of [LAST_ERA, MOST_ENTRIES, MOST_SERIES, POLICY.sources, config.imageAddresses])
    expect(limits).toContain(number(value))
  expect(limits).toContain(`${LIMITS.queuedMb} MB in a process`)
  expect(limits).toContain(`at most ${POLICY.quarantinesPerCaller} addresses`)
  expect(limits).toContain(`more than ${POLICY.heldAboveReaps} reaps`)
})
