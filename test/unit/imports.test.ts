/** The rooms of the house: a room imports what stands below it, and some doors are kept by one room alone. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const SOURCE = fileURLToPath(new URL('../../src/', import.meta.url))

/** What each room may import beside itself. `config` and `telemetry` are open to all but the core. */
const BELOW: Readonly<Record<string, readonly string[]>> = {
  core: [],
  postgres: ['core'],
  ledger: ['core', 'postgres'],
  liveness: ['core', 'postgres', 'ledger'],
  jobs: ['core', 'postgres', 'ledger', 'liveness', 'telemetry-export'],
  api: ['core', 'postgres', 'ledger', 'liveness', 'gen'],
  client: ['core', 'gen'],
  cli: ['core', 'postgres', 'ledger', 'jobs', 'api', 'client', 'gen', 'observed', 'telemetry-export'],
  demo: ['core', 'postgres', 'ledger', 'liveness', 'jobs', 'api', 'client', 'gen', 'cli'],
}
const OPEN = ['config', 'telemetry']

type Import = { readonly file: string; readonly room: string; readonly from: string }

const imports: readonly Import[] = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !file.startsWith('gen/'))
  .flatMap((file) =>
    [...readFileSync(join(SOURCE, file), 'utf8').matchAll(/(?:from|import) '([^']+)'/g)].map((found) => ({
      file,
      room: file.includes('/') ? file.slice(0, file.indexOf('/')) : '',
      from: found[1]!.startsWith('.') ? relative(SOURCE, join(SOURCE, file, '..', found[1]!)) : found[1]!,
    })),
  )

test('a room imports what stands below it', () => {
  const wrong = imports.filter(({ room, from }) => {
    if (room === '' || !from.endsWith('.ts')) return false
    const other = from.includes('/') ? from.slice(0, from.indexOf('/')) : from.replace(/\.ts$/, '')
    if (other === room || (OPEN.includes(other) && room !== 'core')) return false
    return !(BELOW[room] ?? []).includes(other)
  })
  expect(wrong).toEqual([])
})

test('the core imports nothing but itself', () => {
  expect(imports.filter(({ room, from }) => room === 'core' && !from.startsWith('core/'))).toEqual([])
})

test('only api and client know Connect', () => {
  const wrong = imports.filter(
    ({ room, from }) => from.startsWith('@connectrpc/') && !['api', 'client'].includes(room),
  )
  expect(wrong).toEqual([])
})

test('only config.ts reads the environment', () => {
  const readers = [...new Set(imports.map(({ file }) => file))].filter((file) =>
    /process\.env\b/.test(readFileSync(join(SOURCE, file), 'utf8')),
  )
  expect(readers).toEqual(['config.ts'])
})

test('only telemetry knows OpenTelemetry, and only what exports it an SDK', () => {
  const known = imports.filter(({ from }) => from.startsWith('@opentelemetry/'))
  expect([...new Set(known.map(({ file }) => file))].sort()).toEqual([
    'telemetry-export.ts',
    'telemetry-page.ts',
    'telemetry.ts',
  ])
  const inTelemetry = known.filter(({ file }) => file === 'telemetry.ts').map(({ from }) => from)
  expect(inTelemetry).toEqual(['@opentelemetry/api', '@opentelemetry/semantic-conventions'])
})
