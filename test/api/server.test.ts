/** What the server says of itself, and to a caller that does not know how to call it. */
import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { withClient } from '../support/database.ts'
import { serviceOn, useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

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

test('a start waits until its network can be loaded, however short the deadline of calls is', async () => {
  const starting = await withClient(database.adminUrl, async (admin) => {
    await admin.query('begin')
    await admin.query(`select from ipledger.network_lock where network_id = 'default' for update`)
    const began = performance.now()
    const starts = serviceOn({ database }, { IPLEDGER_DEADLINE_SECONDS: '1' })
    starts.catch(() => {})
    await waitFor(() => performance.now() - began > 1_500)
    await admin.query('commit')
    return { starts }
  })
  await using second = await starting.starts
  expect(await second.call.ok('ServerService/GetServer', {})).toMatchObject({ version: manifest.version })
})
