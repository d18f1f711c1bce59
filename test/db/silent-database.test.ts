/**
 * A database that went silent: nothing is refused, nothing is closed, and nobody answers. Whoever waits is told, and the
 * place in the pool is free again: else a handful of reads would be the last ones of the process.
 */
import type pg from 'pg'
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Ledger } from '../../src/ledger/ledger.ts'
import { takeEvidence } from '../../src/liveness/evidence.ts'
import { readHolds } from '../../src/liveness/lists.ts'
import { planNetwork } from '../../src/liveness/plan.ts'
import {
  enableSource,
  findSource,
  listSources,
  registerSource,
  retireSource,
} from '../../src/liveness/register.ts'
import { beginSnapshot } from '../../src/liveness/report.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, NOTHING_SEEN } from '../support/intake.ts'
import { startProxy } from '../support/proxy.ts'

const database = await useTestDatabase()
const proxy = await startProxy(database.serviceUrl)
const pool = createPool({ url: proxy.url, applicationName: 'test', max: 1 })
afterAll(async () => {
  await pool.end()
  await proxy.close()
})

const network = 'default'
const source = { network, id: 'agent', by: 'test' }
const page = { network, after: null, limit: 10 }

const READS: Readonly<Record<string, (database: pg.Pool) => Promise<unknown>>> = {
  listStuck: (one) => listStuck(one, { ...page, codes: [] }),
  planNetwork: (one) =>
    planNetwork(
      { database: one, ledger: {} as Ledger },
      { ...page, pool: null, address: null, source: null, kept: false, asIfEnabled: null },
    ),
  registerSource: (one) =>
    registerSource(one, {
      ...source,
      kind: 'push',
      node: '',
      ownerKinds: ['pod'],
      families: [4],
      seesStopped: true,
      bootEndsAll: false,
      intervalMs: INTERVAL,
      settings: {},
    }),
  enableSource: (one) => enableSource(one, source),
  retireSource: (one) => retireSource(one, source),
  listSources: (one) => listSources(one, { network, after: '', limit: 10 }),
  findSource: (one) => findSource(one, network, 'agent'),
  readHolds: (one) => readHolds(one, network),
  takeEvidence: (one) => takeEvidence(one, network, []),
  beginSnapshot: (one) =>
    beginSnapshot({ database: one }, { network, source: 'agent', quoted: NOTHING_SEEN }),
}

beforeEach(async () => {
  await pool.query('select 1')
  proxy.silent(true)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
  proxy.silent(false)
})

test.each(Object.keys(READS))('%s gives up, and gives its place back', async (name) => {
  const ended = READS[name]!(pool).then(
    () => 'answered',
    (error: Error) => error.message,
  )
  let waited = true
  void ended.finally(() => {
    waited = false
  })
  for (let seconds = 0; waited && seconds < 120; seconds += 1) await vi.advanceTimersByTimeAsync(1_000)
  expect(waited).toBe(false)
  expect(await ended).toMatch(/Connection terminated/)
  vi.useRealTimers()
  proxy.silent(false)
  expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
})
