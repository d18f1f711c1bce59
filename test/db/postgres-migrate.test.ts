import { mkdirSync, writeFileSync } from 'node:fs'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { connect } from '../../src/postgres/connect.ts'
import { checkMigrated, type MigrationSources, migrate, migrateJobs } from '../../src/postgres/migrate.ts'
import { createLogger } from '../../src/telemetry.ts'
import { createTestDatabase, type TestDatabase, withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const log = createLogger('silent')
let database: TestDatabase

beforeEach(async () => {
  database = await createTestDatabase({ empty: true })
  return () => database.drop()
})

function sources(
  migrations: Readonly<Record<string, string>>,
  audit: Readonly<Record<string, string>> = {},
): MigrationSources {
  const directory = temporaryDirectory()
  const made = { migrations: `${directory}/migrations`, audit: `${directory}/audit` }
  for (const [folder, files] of [
    [made.migrations, migrations],
    [made.audit, audit],
  ] as const) {
    mkdirSync(folder)
    for (const [name, sql] of Object.entries(files)) writeFileSync(`${folder}/${name}`, sql)
  }
  return made
}

const ONE = {
  '0001_fruit.sql':
    'create schema ipledger; grant usage on schema ipledger to ipledger_service; create table ipledger.fruit (name text primary key);',
}
const TWO = { ...ONE, '0002_apple.sql': `insert into ipledger.fruit values ('apple');` }

const run = (from: MigrationSources) => withClient(database.adminUrl, (admin) => migrate(admin, log, from))
const fruit = () =>
  withClient(database.adminUrl, async (admin) => (await admin.query('select name from ipledger.fruit')).rows)

describe('migrations', () => {
  test('are applied in order, once, and remembered with their checksum', async () => {
    expect(await run(sources(ONE))).toEqual([1])
    expect(await run(sources(TWO))).toEqual([2])
    expect(await run(sources(TWO))).toEqual([])
    expect(await fruit()).toEqual([{ name: 'apple' }])
    await withClient(database.adminUrl, async (admin) => {
      const { rows } = await admin.query(
        'select version, name, length(checksum) as length from ipledger.migration order by 1',
      )
      expect(rows).toEqual([
        { version: 1, name: '0001_fruit', length: 64 },
        { version: 2, name: '0002_apple', length: 64 },
      ])
    })
  })

  test('that need an extension which is not installed stop the start with a sentence', async () => {
    const error = await run(
      sources({
        '0001_fruit.sql': `-- Words first.\n\ncreate extension if not exists fruit_gist with schema public;`,
      }),
    ).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(StartRefused)
    expect((error as Error).message).toMatch(
      /^ipledger needs the extension fruit_gist of PostgreSQL's contrib modules, and cannot make it \(.*fruit_gist.*\): install /s,
    )
    // Another failure is no matter of extensions.
    await expect(
      run(sources({ '0001_fruit.sql': 'create extension if not exists btree_gist; select 1 / 0;' })),
    ).rejects.toThrow(/^migration 0001_fruit failed: division by zero/)
  })

  test('by eight starters at once are applied by one of them each', async () => {
    const from = sources(
      {
        ...TWO,
        '0003_slow.sql': `select pg_sleep(0.3); insert into ipledger.fruit values ('pear');`,
      },
      {
        '010_fruit.sql': `create or replace view ipledger_audit.fruit as select name from ipledger.fruit;
          comment on view ipledger_audit.fruit is 'Fruit.';`,
      },
    )
    const applied = await Promise.all(Array.from({ length: 8 }, () => run(from)))
    expect(applied.flat().sort()).toEqual([1, 2, 3])
    expect(await fruit()).toEqual([{ name: 'apple' }, { name: 'pear' }])
  })

  test('a starter that comes second waits for the first one, and takes over if that one fails', async () => {
    const from = sources(TWO)
    await run(sources(ONE))
    const first = await connect({ url: database.adminUrl, applicationName: 'first' })
    onTestFinished(() => first.end())
    await first.query('begin')
    await first.query(
      `insert into ipledger.migration (version, name, checksum) values (2, '0002_apple', 'x')`,
    )
    const second = run(from)
    await waitFor(async () => {
      const waiting = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      return withClient(database.adminUrl, async (admin) => (await admin.query(waiting)).rowCount === 1)
    })
    await first.query('rollback')
    expect(await second).toEqual([2])
  })

  test('that fail leave nothing and say which', async () => {
    const broken = sources({
      ...ONE,
      '0002_broken.sql': `insert into ipledger.fruit values ('kiwi'); select 1/0;`,
    })
    await expect(run(broken)).rejects.toThrow('migration 0002_broken failed: division by zero')
    expect(await fruit()).toEqual([])
    expect(await run(sources(TWO))).toEqual([2])
  })

  test('that were edited after landing are refused', async () => {
    await run(sources(TWO))
    const edited = sources({ ...TWO, '0001_fruit.sql': 'create table ipledger.fruit (name text);' })
    await expect(run(edited)).rejects.toThrow(
      'Migration 0001_fruit was applied to this database with other contents than db/migrations/0001_fruit.sql has now',
    )
    await withClient(database.adminUrl, (admin) =>
      expect(checkMigrated(admin, edited)).rejects.toThrow('Migration 0001_fruit was applied'),
    )
  })

  test('line ends of another system are no edit', async () => {
    await run(sources({ '0001_a.sql': 'create schema ipledger;\nselect 2;\n' }))
    expect(await run(sources({ '0001_a.sql': 'create schema ipledger;\r\nselect 2;\r\n' }))).toEqual([])
  })

  test('a database newer than the code is refused', async () => {
    await run(sources(TWO))
    await expect(run(sources(ONE))).rejects.toThrow(
      'The database is at schema version 2 (0002_apple), newer than this ipledger, which knows 1: start the newer ipledger.',
    )
  })

  test('a gap in the numbers is refused', async () => {
    await expect(run(sources({ '0002_b.sql': 'select 1;' }))).rejects.toThrow('without a gap')
  })

  test('a login that may not migrate is told who must', async () => {
    const from = sources(TWO)
    const check = () => withClient(database.serviceUrl, (service) => checkMigrated(service, from))
    await expect(check()).rejects.toThrow(
      'The database is at schema version 0, this ipledger needs 2: run "ipledger migrate"',
    )
    await run(sources(ONE))
    await expect(check()).rejects.toThrow('at schema version 1, this ipledger needs 2')
    await run(from)
    await check()
  })
})

test("graphile-worker's schema belongs to the jobs' role, made by five starters at once", async () => {
  await run(sources(ONE))
  await Promise.all(
    Array.from({ length: 5 }, () =>
      withClient(database.adminUrl, (admin) => migrateJobs(admin, database.jobsUrl, log)),
    ),
  )
  await withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query(
      `select distinct pg_get_userbyid(c.relowner) as owner, has_database_privilege('ipledger_jobs', current_database(), 'create') as creates
         from pg_class c where c.relnamespace = 'graphile_worker'::regnamespace`,
    )
    expect(rows).toEqual([{ owner: 'ipledger_jobs', creates: false }])
  })
  await withClient(database.serviceUrl, (service) =>
    expect(service.query('select 1 from graphile_worker.jobs')).rejects.toThrow('permission denied'),
  )
})
