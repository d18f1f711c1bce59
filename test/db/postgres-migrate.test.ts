import { mkdirSync, writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { pino } from 'pino'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { connect } from '../../src/postgres/connect.ts'
import { checkMigrated, migrate, migrateJobs } from '../../src/postgres/migrate.ts'
import { createTestDatabase, type TestDatabase, withClient } from '../support/database.ts'
import { startTestServer } from '../support/server.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const log = pino({ level: 'silent' })
let database: TestDatabase

beforeEach(async () => {
  database = await createTestDatabase({ empty: true })
  return () => database.drop()
})

type Files = Readonly<Record<string, string>>
const GRANTS = 'grant usage on schema ipledger to ipledger_service;'
const AUDITS = 'grant usage on schema ipledger_audit to ipledger_auditor;'

function sources(migrations: Files, audit: Files = {}, grants = GRANTS): URL {
  const directory = temporaryDirectory()
  for (const [folder, files] of Object.entries({
    migrations,
    grants: { 'ledger.sql': grants },
    audit: { ...audit, '90_grants.sql': AUDITS },
  })) {
    mkdirSync(`${directory}/${folder}`)
    for (const [name, sql] of Object.entries(files)) writeFileSync(`${directory}/${folder}/${name}`, sql)
  }
  return pathToFileURL(`${directory}/`)
}

const ONE = {
  '0001_fruit.sql': 'create table ipledger.fruit (name text primary key);',
}
const TWO = { ...ONE, '0002_apple.sql': `insert into ipledger.fruit values ('apple');` }

const run = (db: URL) => withClient(database.adminUrl, (admin) => migrate(admin, log, db))
const rows = (sql: string, url = database.adminUrl) =>
  withClient(url, async (client) => (await client.query(sql)).rows as unknown[])
const fruit = () => rows('select name from ipledger.fruit order by 1')

describe('migrations', () => {
  test('are applied in order, once, and remembered', async () => {
    expect(await run(sources(ONE))).toEqual(['0001_fruit'])
    expect(await run(sources(TWO))).toEqual(['0002_apple'])
    expect(await run(sources(TWO))).toEqual([])
    expect(await fruit()).toEqual([{ name: 'apple' }])
    expect(await rows('select name from ipledger.migration order by 1')).toEqual([
      { name: '0001_fruit' },
      { name: '0002_apple' },
    ])
  })

  test('by eight starters at once are applied by one of them', async () => {
    const db = sources(
      { ...TWO, '0003_slow.sql': `select pg_sleep(0.3); insert into ipledger.fruit values ('pear');` },
      { 'fruit.sql': 'create view ipledger_audit.fruit as select name from ipledger.fruit;' },
    )
    const applied = await Promise.all(Array.from({ length: 8 }, () => run(db)))
    expect(applied.flat()).toEqual(['0001_fruit', '0002_apple', '0003_slow'])
    expect(await fruit()).toEqual([{ name: 'apple' }, { name: 'pear' }])
  })

  test('of a starter that fails are taken over by the one that waits', async () => {
    const first = await connect({ url: database.adminUrl, applicationName: 'first' })
    onTestFinished(() => first.end())
    const slow = { '0001_fruit.sql': 'select pg_sleep(60);' }
    const lost = migrate(first, log, sources(slow))
    const outcome = expect(lost).rejects.toThrow('migration 0001_fruit failed')
    const waits = (what: string) =>
      waitFor(async () => {
        const found = await rows(
          `select pid from pg_stat_activity where datname = current_database() and ${what}`,
        )
        return (found[0] as { pid: number } | undefined)?.pid
      })
    const pid = await waits(`wait_event = 'PgSleep'`)
    const second = run(sources(TWO))
    await waits(`wait_event = 'advisory'`)
    await rows(`select pg_terminate_backend(${pid})`)
    await outcome
    expect(await second).toEqual(['0001_fruit', '0002_apple'])
  })

  test('that fail leave nothing and say which', async () => {
    await run(sources(ONE))
    const broken = { ...ONE, '0002_broken.sql': `insert into ipledger.fruit values ('kiwi'); select 1/0;` }
    await expect(run(sources(broken))).rejects.toThrow('migration 0002_broken failed: division by zero')
    expect(await fruit()).toEqual([])
    expect(await run(sources(TWO))).toEqual(['0002_apple'])
  })

  test('a database newer than the code is refused', async () => {
    await run(sources(TWO))
    await expect(run(sources(ONE))).rejects.toThrow(
      'The database is at schema version 2 (0002_apple), newer than this ipledger, which knows 1: start the newer ipledger.',
    )
  })

  test('that need what the server does not have are refused', async () => {
    const refused = run(sources({ '0001_nothing.sql': 'create extension nothing' }))
    await expect(refused).rejects.toThrow(StartRefused)
    await expect(refused).rejects.toThrow('(extension "nothing" is not available)')
  })

  test.skipIf(process.env.IPLEDGER_TEST_POSTGRES)(
    'a server without btree_gist is refused, and nothing is made',
    async () => {
      // Only PostgreSQL 18 can be told to look for extensions elsewhere.
      const server = await startTestServer({ extension_control_path: '/nonexistent' })
      onTestFinished(() => server.stop())
      await withClient(server.url('postgres'), async (admin) => {
        await expect(migrate(admin, log)).rejects.toThrow(
          new StartRefused(
            'The server lacks what ipledger needs (extension "btree_gist" is not available): ' +
              "install PostgreSQL's contrib modules there.",
          ),
        )
        expect((await admin.query(`select to_regnamespace('ipledger') as it`)).rows).toEqual([{ it: null }])
      })
    },
  )

  test('a login that may not migrate is told who must', async () => {
    const db = sources(TWO, {}, `${GRANTS} grant select on ipledger.migration to ipledger_service;`)
    const check = () => withClient(database.serviceUrl, (service) => checkMigrated(service, db))
    await expect(check()).rejects.toThrow(
      'The database is at schema version 0, this ipledger needs 2: run "ipledger migrate"',
    )
    await run(sources(ONE))
    await expect(check()).rejects.toThrow('may not read ipledger.migration: grant ipledger_service to')
    await run(db)
    await check()
    await withClient(database.serviceUrl, (service) =>
      expect(
        migrate(service, log, sources({ ...TWO, '0003_c.sql': 'create table ipledger.c (x int)' })),
      ).rejects.toThrow(
        /^Role "ipledger_service" may not bring the database up to date \((permission denied for|must be owner of)/,
      ),
    )
  })
})

describe('the audit', () => {
  const view = (columns: string) => ({
    'a.sql': `create view ipledger_audit.fruit as select ${columns} from ipledger.fruit;`,
  })
  const oid = async () => (await rows(`select to_regclass('ipledger_audit.fruit')::oid as oid`))[0]

  test('is made anew when a file or the grants differ, and only then', async () => {
    await run(sources(TWO, view('name')))
    const first = await oid()
    await run(sources(TWO, view('name')))
    expect(await oid()).toEqual(first)
    await run(sources(TWO, view('length(name), name as other')))
    const second = await oid()
    expect(second).not.toEqual(first)
    expect(await rows('select * from ipledger_audit.fruit')).toEqual([{ length: 5, other: 'apple' }])
    await run(sources(TWO, view('length(name), name as other'), `${GRANTS} -- and a word`))
    const third = await oid()
    expect(third).not.toEqual(second)
    // As a dump leaves it that was restored where the roles were not.
    await rows('revoke usage on schema ipledger_audit from ipledger_auditor')
    await run(sources(TWO, view('length(name), name as other'), `${GRANTS} -- and a word`))
    expect(await oid()).not.toEqual(third)
    await run(sources(TWO))
    expect(await oid()).toEqual({ oid: null })
  })

  test('that fails leaves the one before, and says which file', async () => {
    await run(sources(TWO, view('name')))
    await expect(run(sources(TWO, view('nme')))).rejects.toThrow(
      'db/audit/a.sql failed: column "nme" does not exist',
    )
    expect(await rows('select * from ipledger_audit.fruit')).toEqual([{ name: 'apple' }])
  })
})

test("graphile-worker's schema belongs to the jobs' role, made by five starters at once", async () => {
  await run(sources(ONE))
  await Promise.all(
    Array.from({ length: 5 }, () =>
      withClient(database.adminUrl, (admin) => migrateJobs(admin, database.jobsUrl, log)),
    ),
  )
  expect(
    await rows(
      `select distinct pg_get_userbyid(c.relowner) as owner, has_database_privilege('ipledger_jobs', current_database(), 'create') as creates
         from pg_class c where c.relnamespace = 'graphile_worker'::regnamespace`,
    ),
  ).toEqual([{ owner: 'ipledger_jobs', creates: false }])
  await expect(rows('select 1 from graphile_worker.jobs', database.serviceUrl)).rejects.toThrow(
    'permission denied',
  )
})
