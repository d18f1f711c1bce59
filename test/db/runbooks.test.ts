/** What the pages of alerts say to type in psql, typed on a network that has lived a day, with the auditor's rights and settings. */
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { network, pool, quarantine } from '../core/given.ts'
import { useOwnDatabase, useTestDatabase, withClient } from '../support/database.ts'
import { DAY_NETWORK, liveADay, SILENT_SOURCE, STORIED_ADDRESS } from '../support/day-of-life.ts'
import { filledStatement, type PageValues, readPages } from '../support/runbooks.ts'
import { NETWORK, played, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const values: Record<string, string> = {
  network: DAY_NETWORK,
  pool: 'web',
  source: SILENT_SOURCE,
  address: STORIED_ADDRESS,
  range: '10.20.0.128/25',
}
let auditor: pg.Client

beforeAll(async () => {
  const { storied } = await withClient(database.adminUrl, liveADay)
  values.lease = storied[2]!
  auditor = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test runbooks' })
})
afterAll(() => auditor?.end())

/** Of these something happened that day: the first statement says who it is about. */
const SEEN: ReadonlySet<string> = new Set([
  'attention',
  'conflict-detected',
  'lookups-failing',
  'new-era',
  'pool-nearly-exhausted',
  'quarantine-growing',
  'reap-rate',
  'reconciliation-held',
  'released-but-live',
  'source-silent',
])

const pages = readPages().flatMap(({ name, statements }) =>
  statements.length === 0 ? [] : [[name.replace('.md', ''), statements] as const],
)

test.each(pages)('%s', async (name, statements) => {
  const found: number[] = []
  for (const statement of statements)
    found.push((await auditor.query(filledStatement(statement, values))).rows.length)
  if (SEEN.has(name)) expect(found[0], 'the first says who it is about').toBeGreaterThan(0)
  expect(Math.max(...found)).toBeLessThanOrEqual(2_000)
})

test('quarantine-growing: what of a range can be excluded lies around what is held in it', async () => {
  const scene = played(
    network,
    pool('10.77.0.0/24', { name: 'web' }),
    ...['10.77.0.128', '10.77.0.140', '10.77.0.141', '10.77.0.20'].map(quarantine),
  )
  const other = await useOwnDatabase()
  await withClient(other.adminUrl, (admin) => storeScene(admin, scene))
  const page = readPages().find(({ name }) => name === 'quarantine-growing.md')!
  const gaps = page.statements.find((one) => one.includes('as add_exclude'))!
  const told: PageValues = { network: NETWORK, range: '10.77.0.128/25' }
  const asked = (client: pg.Client) => client.query(filledStatement(gaps, told))
  const { rows } = await withClient(other.auditorUrl, asked)
  expect(rows).toEqual([{ add_exclude: '10.77.0.129-10.77.0.139,10.77.0.142-10.77.0.255' }])
})
