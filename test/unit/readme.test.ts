import { existsSync, readFileSync } from 'node:fs'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { expect, test } from 'vitest'
import { MEANINGS } from '../../src/api/errors.ts'
import { createProgram } from '../../src/cli/program.ts'
import { readConfig } from '../../src/config.ts'
import { QUARANTINE_REASONS } from '../../src/core/event.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { SERVICE_SETTINGS } from '../../src/postgres/roles.ts'
import { ROOT, SRC } from '../support/root.ts'

const readme = readFileSync(new URL('README.md', ROOT), 'utf8')

/** Rows of the first table after a line that begins with the text, cell by cell. */
function tableAfter(text: string): readonly (readonly string[])[] {
  const lines = readme.slice(readme.indexOf(`\n${text}`)).split('\n')
  const from = lines.findIndex((line) => line.startsWith('|'))
  const rows = lines.slice(
    from,
    lines.findIndex((line, at) => at > from && !line.startsWith('|')),
  )
  return rows.slice(2).map((row) =>
    row
      .slice(1, -1)
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim()),
  )
}

test('the table of errors is the one the API answers by', () => {
  expect(tableAfter('<!-- errors')).toEqual(
    (Object.keys(MEANINGS) as Reason[]).map((reason) => [
      `\`${reason}\``,
      `\`${codeToString(MEANINGS[reason].code)}\``,
      MEANINGS[reason].caller,
    ]),
  )
})

test('the table of quarantines has every reason', () => {
  expect(tableAfter('<!-- quarantines').map(([reason]) => reason)).toEqual(
    QUARANTINE_REASONS.map((reason) => `\`${reason}\``),
  )
})

test('the statements for a role of its own are all that the service was measured with', () => {
  const block = readme.slice(readme.indexOf('<!-- roles')).split('```')[1]!
  const set = [...block.matchAll(/^alter role app set (\w+) = '(.*)';$/gm)].map(([, name, value]) => [
    name,
    value,
  ])
  expect(Object.fromEntries(set)).toEqual(SERVICE_SETTINGS)
})

test('what it links to is there', () => {
  const targets = [...readme.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, target]) => target!)
  expect(targets.length).toBeGreaterThan(5)
  expect(targets.filter((target) => !existsSync(new URL(target, ROOT)))).toEqual([])
})

test('the table of settings has every variable that is read, with its default', () => {
  const read = [...readFileSync(new URL('config.ts', SRC), 'utf8').matchAll(/^ {2}([A-Z][A-Z_]+): /gm)].map(
    (found) => found[1]!,
  )
  const rows = tableAfter('<!-- configuration')
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
    ['IPLEDGER_MAX_QUEUED_COMMANDS', defaults.maxQueuedCommands],
    ['IPLEDGER_BATCH_LEASES', defaults.batchLeases],
    ['IPLEDGER_DEADLINE_SECONDS', defaults.deadlineMs / 1_000],
    ['IPLEDGER_IMAGE_ADDRESSES', defaults.imageAddresses],
  ] as const) {
    expect([name, shown(name)]).toEqual([name, String(value)])
  }
})

test('the table of commands names every command', () => {
  const named = tableAfter('| command | does |').flatMap(([cell]) =>
    [...cell!.matchAll(/`([a-z-]+)`/g)].map((found) => found[1]!),
  )
  expect(named.sort()).toEqual(
    createProgram()
      .commands.map((command) => command.name())
      .sort(),
  )
})
