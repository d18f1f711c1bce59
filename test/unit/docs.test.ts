/** What README and docs say of the code is so: tables, commands, options, links. */
import { existsSync, readFileSync } from 'node:fs'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { MEANINGS } from '../../src/api/codec/errors.ts'
import { createProgram } from '../../src/cli/program.ts'
import { readConfig } from '../../src/config.ts'
import { EVENT_TYPES, QUARANTINE_REASONS } from '../../src/core/event.ts'
import { exitsOf, LIFECYCLE } from '../../src/core/lifecycle.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { LINKING, tableIn, textOf } from '../support/docs.ts'
import { ROOT, SRC } from '../support/root.ts'

const source = (path: string): string => readFileSync(new URL(path.replace(/^src\//, ''), SRC), 'utf8')

/** Of `docker run` and of Node.js. */
const OPTIONS_OF_DOCKER = ['--aux-address', '--ip', '--ip-range', '--ipam-driver', '--mac-address']
const OPTIONS_OF_OTHERS: readonly string[] = [...OPTIONS_OF_DOCKER, '--max-semi-space-size', '--omit']

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

test('the contract lists every type of event', () => {
  const contract = readFileSync(new URL('proto/ipledger/v1/audit.proto', ROOT), 'utf8')
  expect(EVENT_TYPES.filter((type) => !contract.includes(`\`${type}\``))).toEqual([])
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
  const defaults: Readonly<Record<string, unknown>> = readConfig({})
  for (const [variable, setting] of [
    ['HOST', 'host'],
    ['LOG_LEVEL', 'logLevel'],
    ['PORT', 'port'],
    ['GRPC_PORT', 'grpcPort'],
    ['WRITE_CONNECTIONS', 'writeConnections'],
    ['READ_CONNECTIONS', 'readConnections'],
    ['JOB_CONNECTIONS', 'jobConnections'],
    ['BATCH_LEASES', 'batchLeases'],
    ['IMAGE_ADDRESSES', 'imageAddresses'],
  ] as const) {
    const [, shown] = rows.find(([name]) => name === `\`IPLEDGER_${variable}\``)!
    expect(shown, variable).toBe(String(defaults[setting]))
  }
})

test('every command is there', () => {
  const named = tableIn('docs/operating.md', '| command | does |').flatMap(([cell]) =>
    [...cell!.matchAll(/`([a-z-]+)`/g)].map((found) => found[1]!),
  )
  expect(named.sort()).toEqual(
    createProgram()
      .commands.map((command) => command.name())
      .filter((name) => !name.startsWith('__'))
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
