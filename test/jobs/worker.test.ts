/** The schedule by graphile-worker, in this process. A rejection that nobody handles would fail this file. */
import assert from 'node:assert/strict'
import { pino } from 'pino'
import { afterAll, test } from 'vitest'
import type { Done, JobContext } from '../../src/jobs/job.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { Worker } from '../../src/jobs/worker.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { Intake } from '../../src/sources/intake.ts'
import { PulledSources } from '../../src/sources/pulled-sources.ts'
import { network, pool } from '../core/given.ts'
import { asSuperuser, useTestDatabase, withClient } from '../support/database.ts'
import { useTestLedger } from '../support/ledger.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const at = await useTestLedger(database)

const jobs = createPool({ url: database.jobsUrl, applicationName: 'ipledger jobs', max: 12 })
const connections = createPool({ url: database.serviceUrl, applicationName: 'ipledger jobs', max: 4 })
afterAll(async () => {
  await jobs.end()
  await connections.end()
})

function options(around: (job: string, work: () => Promise<Done>) => Promise<Done>) {
  const schedule = Object.entries(createSchedule()).map(([name, { everyMinutes, run }]) => [
    name,
    { everyMinutes, run: (context: JobContext) => around(name, () => run(context)) },
  ])
  return {
    jobs,
    database: connections,
    ledger: at.ledger,
    intake: new Intake({ ledger: at.ledger, database: at.pool }),
    pulled: new PulledSources({}),
    log: pino({ level: 'silent' }) as JobContext['log'],
    schedule: Object.fromEntries(schedule),
  }
}

const cut = () =>
  asSuperuser(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database.name}' and application_name <> 'ipledger ledger'`,
  )

test('every job is run after the start, and stops when it is told to', async () => {
  await at.play(network, pool('10.0.0.0/24', { isDefault: true }))
  const begun = new Set<string>()
  const ended: string[] = []
  const worker = await new Worker().start(
    options(async (job, work) => {
      begun.add(job)
      const done = await work()
      ended.push(job)
      return done
    }),
  )
  await waitFor(() => begun.size === Object.keys(createSchedule()).length && ended.includes('sample'))
  assert.equal(worker.trouble(), null)
  await worker.stop()
  assert.deepEqual(new Set(ended), begun)
  const { rows } = await at.pool.query('select from ipledger.pool_sample')
  assert.equal(rows.length, 1)
})

test('connections that are lost while jobs end do not end the process', async () => {
  let runs = 0
  const worker = await new Worker().start(
    options(async (_job, work) => {
      runs += 1
      await cut()
      return work()
    }),
  )
  // Some are cut off before they are asked for: they wait for their slot.
  await waitFor(() => runs >= 2).finally(() => worker.stop())
  assert.equal(worker.trouble(), null)
  // The next test begins without connections that were cut off and do not know it yet.
  await cut()
  await waitFor(() => jobs.idleCount === 0)
})

test('jobs go on when the database is back', async () => {
  const run: string[] = []
  const worker = await new Worker().start(
    options((job, work) => {
      run.push(job)
      return work()
    }),
  )
  await waitFor(() => run.includes('sample'))
  await asSuperuser(`alter database ${database.name} with allow_connections false`)
  await cut()
  await waitFor(() =>
    at.pool.query('select 1').then(
      () => false,
      () => true,
    ),
  )
  await asSuperuser(`alter database ${database.name} with allow_connections true`)
  run.length = 0
  await withClient(database.jobsUrl, (client) => client.query("select graphile_worker.add_job('sample')"))
  await waitFor(() => run.includes('sample'))
  assert.equal(worker.trouble(), null)
  await worker.stop()
})
