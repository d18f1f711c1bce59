/** The auditor and Grafana ask a standby: all that they ask of a primary, and how far behind it is. */
import { pino } from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectUnchecked, replaceLogin } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { AUDITOR_ROLE } from '../../src/postgres/roles.ts'
import { auditObjects } from '../support/audit-objects.ts'
import { withClient } from '../support/database.ts'
import { CHOSEN, DAY_NETWORK, type DayOfLife, liveADay, STORIED_ADDRESS } from '../support/day-of-life.ts'
import { intervalOf, panelsOf, readDashboards, withMacros, withVariables } from '../support/grafana.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'
import { startStandby } from './standby.ts'

const primary = await startTestServer()
afterAll(() => primary.stop())
await withClient(primary.url('postgres'), async (admin) => {
  await admin.query('create database ledger')
})
const opened = { databaseUrl: primary.url('ledger'), databaseAdminUrl: undefined, directory: '' }
await openDatabase(opened, { log: pino({ level: 'warn' }), embedded: 'own' })
const day: DayOfLife = await withClient(primary.url('ledger'), async (admin) => {
  await admin.query(`alter role ${AUDITOR_ROLE} password 'auditor'`)
  return liveADay(admin)
})
const standby = await startStandby(primary)
afterAll(() => standby.stop())

const login = { user: AUDITOR_ROLE, password: 'auditor' }
const [there, here] = await Promise.all(
  [primary, standby].map((server) =>
    connectUnchecked({ url: replaceLogin(server.url('ledger'), login), applicationName: 'test' }),
  ),
)
afterAll(() => Promise.all([there!.end(), here!.end()]))
const ask = async (text: string, values: readonly unknown[] = []) =>
  (await here!.query(text, [...values])).rows as readonly Record<string, unknown>[]

beforeAll(() => standby.caughtUp())

test('every view and function answers there, and the log and what follows from it as at the primary', async () => {
  for (const { kind, name, comment } of await auditObjects(here!)) {
    await ask(comment!.split('\nExample: ')[1]!)
    if (kind === 'view') await ask(`select * from ${name} limit 10`)
  }
  for (const [text, ...values] of [
    [`select * from who_had($1, $2, $3)`, DAY_NETWORK, STORIED_ADDRESS, day.to],
    [`select * from explain_address($1, $2, $3)`, DAY_NETWORK, STORIED_ADDRESS, day.to],
    [`select * from address_history($1, $2)`, DAY_NETWORK, STORIED_ADDRESS],
    [`select severity, code, count, what from attention where network = $1 order by rank`, DAY_NETWORK],
    [`select * from pool_usage where network = $1 order by pool`, DAY_NETWORK],
    [`select * from lease where network = $1 order by address`, DAY_NETWORK],
  ] as const) {
    const rows = await ask(text, values)
    expect(rows.length, text).toBeGreaterThan(0)
    expect(rows, text).toEqual((await there!.query(text, [...values])).rows)
  }
})

test('every panel that asks PostgreSQL finds something there', async () => {
  let asked = 0
  for (const [name, dashboard] of readDashboards())
    for (const { title, targets, maxDataPoints } of panelsOf(dashboard))
      for (const { rawSql } of targets ?? []) {
        if (rawSql === undefined) continue
        const range = { from: day.from, to: day.to, intervalMs: intervalOf(day, maxDataPoints) }
        const rows = await ask(withMacros(withVariables(rawSql, CHOSEN[name]!), range))
        expect(rows.length, `${name}: ${title}`).toBeGreaterThan(0)
        asked += 1
      }
  expect(asked).toBeGreaterThan(30)
})

test('the lag is the age of the last transaction that arrived', async () => {
  type Told = { readonly is_standby: boolean; readonly as_of: number; readonly lag: number }
  const text = 'select is_standby, as_of, extract(epoch from lag)::float8 as lag from standby'
  const atPrimary = (await there!.query<Told>(text)).rows[0]!
  expect(atPrimary).toMatchObject({ is_standby: false, lag: 0 })
  const told = async () => (await ask(text))[0] as Told
  const commit = () =>
    withClient(primary.url('ledger'), async (admin) => {
      const { rows } = await admin.query<{ at: number }>(
        `select pg_logical_emit_message(true, 'test', ''), clock_timestamp() as at`,
      )
      return rows[0]!.at
    })
  const arrived = (at: number) =>
    waitFor(async () => (await told()).as_of >= at, { what: 'a transaction to arrive' })
  await arrived(await commit())
  const pause = (statement: string) =>
    withClient(standby.url('postgres'), async (admin) => void (await admin.query(statement)))
  await pause('select pg_wal_replay_pause()')
  const missed = await commit()
  // It is not there: the lag grows from what was there before.
  const behind = await waitFor(async () => ((await told()).lag > 0.2 ? told() : null))
  expect(behind).toMatchObject({ is_standby: true })
  expect(behind.as_of).toBeLessThan(missed)
  await pause('select pg_wal_replay_resume()')
  await arrived(missed)
})
