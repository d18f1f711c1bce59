/** What the server says of itself, and to a caller that does not know how to call it. */
import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { withClient } from '../support/database.ts'
import { useService } from '../support/service.ts'

const running = await useService()
const { call, database } = running

test('GetServer: version, schema, time, database, caller', async () => {
  const server = await call.ok('ServerService/GetServer', {})
  const newest = readdirSync(new URL('../../db/migrations', import.meta.url))
    .sort()
    .at(-1)!
  const { rows } = await withClient(database.adminUrl, (admin) =>
    admin.query(
      `select current_setting('server_version') as version, current_database() as name, now() as now`,
    ),
  )
  const [{ version, name, now }] = rows
  expect(server).toMatchObject({
    version: manifest.version,
    schema: newest.replace('.sql', ''),
    database: { place: expect.stringContaining(`database "${name}"`), version },
    caller: { name: 'loopback', role: 'admin', node: '', networks: [] },
  })
  expect(Math.abs(new Date(now).getTime() - Date.parse(server.time))).toBeLessThan(10_000)
})

test('GetServer names no login', async () => {
  const { place } = (await call.ok('ServerService/GetServer', {})).database
  expect(place).toMatch(/^PostgreSQL at (\/|[\w.]+:\d+)/)
  expect(place).not.toMatch(/@|ipledger_service/)
})
