/** The pages for probes say in text what is wrong, and no more than anybody may know. */
import { expect, onTestFinished, test } from 'vitest'
import { HealthState, type WorkerTrouble } from '../../src/api/http/health.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { createTestDatabase, withClient } from '../support/database.ts'
import { startProxy } from '../support/proxy.ts'
import { waitFor } from '../support/wait-for.ts'

const READY = 'ipledger is ready: the database answers\n'

async function ownHealth(
  options: { readonly worker?: () => WorkerTrouble | null; readonly loaded?: () => boolean } = {},
) {
  const database = await createTestDatabase()
  const proxy = await startProxy(database.serviceUrl)
  const pool = createPool({ url: proxy.url, applicationName: 'test health', max: 2 })
  pool.on('error', () => {})
  const stopping = new AbortController()
  onTestFinished(async () => {
    await pool.end()
    await proxy.close()
    await database.drop()
  })
  const reads = new Reads(pool)
  const health = new HealthState({
    reads,
    services: [],
    stopping: stopping.signal,
    ...options,
  })
  return { database, proxy, health, stopping }
}

test('ready, and nothing to be said', async () => {
  const { health } = await ownHealth()
  expect(await health.report()).toEqual({ ready: true, text: READY })
  expect(health.live()).toBe('ipledger is up\n')
})

test('since when the database does not answer, and again when it does', async () => {
  const { health, proxy } = await ownHealth()
  expect((await health.report()).ready).toBe(true)
  proxy.down(true)
  const away = await waitFor(async () => {
    const report = await health.report()
    return !report.ready && report
  })
  expect(away.text).toMatch(
    /^ipledger is not ready: the database does not answer since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/,
  )
  expect(away.text).not.toContain('127.0.0.1')
  expect(health.live()).toBe('ipledger is up\n')
  // The same moment, as long as it is away.
  const later = await waitFor(async () => {
    const report = await health.report()
    return report !== away && report
  })
  expect(later.text.slice(0, 80)).toBe(away.text.slice(0, 80))
  proxy.down(false)
  await waitFor(async () => (await health.report()).ready)
})

test('a network that recovers, or is held, is a warning and no more', async () => {
  const reads = { condition: async () => ({ recovering: 2, held: 1 }) }
  const health = new HealthState({ reads, services: [], stopping: new AbortController().signal })
  const { ready, text } = await health.report()
  expect(ready).toBe(true)
  expect(text.split('\n')).toEqual([
    READY.trim(),
    'warning: 2 networks are RECOVERING, with nothing handed out: ipledger attention',
    'warning: 1 network is held: ipledger attention',
    '',
  ])
})

test('a worker that is started again is a warning, of both pages', async () => {
  const since = Date.UTC(2026, 0, 2, 3, 4, 5)
  let trouble: WorkerTrouble | null = { since }
  const { health } = await ownHealth({ worker: () => trouble })
  const warning =
    'warning: the worker failed at 2026-01-02T03:04:05.000Z and is started again: the log says why\n'
  expect(await health.report()).toEqual({ ready: true, text: READY + warning })
  expect(health.live()).toBe(`ipledger is up\n${warning}`)
  trouble = null
  expect(health.live()).toBe('ipledger is up\n')
})

test('tables that are missing', async () => {
  const { health, database } = await ownHealth()
  expect((await health.report()).ready).toBe(true)
  await withClient(database.adminUrl, (client) => client.query('drop schema ipledger cascade'))
  const none = await waitFor(async () => {
    const report = await health.report()
    return report.text.includes('lacks tables') && report
  })
  expect(none).toEqual({
    ready: false,
    text: expect.stringMatching(
      /^ipledger is not ready: the database lacks tables of ipledger since .*: run ipledger migrate\n$/,
    ),
  })
})

test('not ready before the images are loaded', async () => {
  let isLoaded = false
  const { health } = await ownHealth({ loaded: () => isLoaded })
  expect(await health.report()).toEqual({
    ready: false,
    text: 'ipledger is not ready: it loads the images of its networks\n',
  })
  isLoaded = true
  await waitFor(async () => (await health.report()).ready)
})

test('stopping', async () => {
  const { health, stopping } = await ownHealth()
  stopping.abort()
  expect(await health.report()).toEqual({
    ready: false,
    text: 'ipledger is not ready: it is stopping\n',
  })
  expect(health.live()).toBe('ipledger is up and stopping\n')
})
