import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { POLICY } from '../../src/core/policy.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { startWorker, type Worker } from '../../src/jobs/worker.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { createLogger } from '../../src/telemetry.ts'
import { claim, createNetwork, createPool, owner, reserve } from '../support/commands.ts'
import { asSuperuser, useTestDatabase, withClient } from '../support/database.ts'
import { moveToThePast } from '../support/past.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const log = createLogger('silent')
const ledger = openLedger({ url: database.serviceUrl, log })
const workers: Worker[] = []

beforeAll(async () => {
  await ledger.submit(createNetwork())
  await ledger.submit(createPool({ name: 'web', cidr: '10.0.0.0/20', cooldownMs: 0 }))
})
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.stop()
  await withClient(database.jobsUrl, (client) => client.query('delete from graphile_worker._private_jobs'))
})
afterAll(async () => {
  await ledger.close()
  await expectVerified(database, { full: true })
})

async function start(): Promise<Worker> {
  const worker = await startWorker({
    jobsUrl: database.jobsUrl,
    serviceUrl: database.serviceUrl,
    config: { ...readConfig({}), logLevel: 'silent' },
    log,
  })
  workers.push(worker)
  return worker
}

async function expiredLease(name: string): Promise<void> {
  const outcome = await ledger.submit(
    reserve({ owner: owner({ name }), claims: [claim({ pool: 'web' })], confirmWithinMs: 1_000 }),
  )
  expect(outcome.ok).toBe(true)
  await moveToThePast(database, 1_000 + POLICY.confirmGraceMs + 1_000)
}

async function held(): Promise<number> {
  return withClient(database.serviceUrl, async (client) => {
    const { rows } = await client.query<{ held: number }>('select count(*)::int as held from ipledger.lease')
    return rows[0]!.held
  })
}

/** Stays for the whole of its slot. */
const STAYS = 'project-tenure'

async function jobs(): Promise<readonly Readonly<{ task: string; locked_by: string | null }>[]> {
  return withClient(database.jobsUrl, async (client) => {
    const { rows } = await client.query<{ task: string; locked_by: string | null }>(
      `select tasks.identifier as task, jobs.locked_by
         from graphile_worker._private_jobs as jobs join graphile_worker._private_tasks as tasks on tasks.id = jobs.task_id`,
    )
    return rows
  })
}

async function jobsLeft() {
  return (await jobs()).filter(({ task, locked_by }) => task !== STAYS || locked_by === 'killed')
}

test('every job divides the hour', () => {
  for (const { everyMinutes } of Object.values(createSchedule())) expect(60 % everyMinutes).toBe(0)
})

test('each job runs right after the start, and leaves no row behind', async () => {
  await expiredLease('a')
  const worker = await start()
  await waitFor(async () => (await held()) === 0, { what: 'the lease to be reaped' })
  await waitFor(async () => (await jobsLeft()).length === 0, { what: 'the jobs to be done' })
  await worker.stop()
  expect(await jobs()).toEqual([])
})

test('jobs that a killed worker left locked are waited for by nobody', async () => {
  await expiredLease('b')
  await withClient(database.jobsUrl, async (client) => {
    for (const task of Object.keys(createSchedule())) {
      await client.query(`select graphile_worker.add_job($1, '{}', max_attempts => 1)`, [task])
    }
    await client.query(
      `update graphile_worker._private_jobs set locked_at = now(), locked_by = 'killed', attempts = 1`,
    )
  })
  await start()
  await waitFor(async () => (await held()) === 0, { what: 'the lease to be reaped' })
  await waitFor(async () => (await jobsLeft()).every(({ locked_by }) => locked_by === 'killed'), {
    what: 'the jobs to be done',
  })
  // After four hours graphile-worker lets go of them; tried once, they are only cleaned up.
  await withClient(database.jobsUrl, (client) =>
    client.query('update graphile_worker._private_jobs set locked_at = null, locked_by = null'),
  )
  await start()
  await waitFor(async () => (await jobsLeft()).length === 0, { what: 'the table to be empty' })
})

test('the slots of all jobs are known to the database, so that one process runs each', async () => {
  await start()
  await start()
  const known = await waitFor(async () =>
    withClient(database.jobsUrl, async (client) => {
      const { rows } = await client.query<{ identifier: string }>(
        'select identifier from graphile_worker._private_known_crontabs order by identifier',
      )
      return rows.length > 0 && rows.map(({ identifier }) => identifier)
    }),
  )
  expect(known).toEqual(['clean-up-jobs', ...Object.keys(createSchedule())].sort())
})

test('a worker that loses its connections goes on when the database is back', async () => {
  await start()
  await waitFor(async () => (await jobsLeft()).length === 0)
  await asSuperuser(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database.name}' and usename = 'ipledger_jobs'`,
  )
  await expiredLease('c')
  await withClient(database.jobsUrl, (client) =>
    client.query(`select graphile_worker.add_job('expire-unconfirmed', '{}', max_attempts => 1)`),
  )
  await waitFor(async () => (await held()) === 0, { timeout: 15_000, what: 'the lease to be reaped' })
})

test('connections lost while jobs are being completed end neither the process nor the worker', async () => {
  await start()
  for (let round = 0; round < 10; round++) {
    await withClient(database.jobsUrl, (client) =>
      client.query(
        `select graphile_worker.add_job('clean-up-jobs', '{}', max_attempts => 1) from generate_series(1, 20)`,
      ),
    )
    await asSuperuser(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database.name}' and usename = 'ipledger_jobs'`,
    )
  }
  await expiredLease('d')
  await withClient(database.jobsUrl, (client) =>
    client.query(`select graphile_worker.add_job('expire-unconfirmed', '{}', max_attempts => 1)`),
  )
  await waitFor(async () => (await held()) === 0, { timeout: 18_000, what: 'the lease to be reaped' })
})

test('the role of the jobs can neither read nor write the ledger', async () => {
  for (const statement of [
    'select 1 from ipledger.lease',
    'delete from ipledger.request',
    'insert into ipledger.pool_position default values',
  ]) {
    await expect(withClient(database.jobsUrl, (client) => client.query(statement))).rejects.toThrow(
      /permission denied/,
    )
  }
})

test('a worker stops within its time when the database is gone', async () => {
  const worker = await start()
  await asSuperuser(
    `alter database ${database.name} allow_connections false`,
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database.name}'`,
  )
  try {
    workers.splice(workers.indexOf(worker), 1)
    await worker.stop()
  } finally {
    await asSuperuser(`alter database ${database.name} allow_connections true`)
  }
})
