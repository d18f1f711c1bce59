/** How `db/audit` comes into a database: first, again, changed, by several at once, and beside what others made there. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { beforeEach, describe, expect, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { replaceLogin } from '../../src/postgres/connect.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { createLogger } from '../../src/telemetry.ts'
import { type AuditedDatabase, asSuperuser, createTestDatabase, withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const log = createLogger('silent')
let database: AuditedDatabase

beforeEach(async () => {
  database = await createTestDatabase({ empty: true })
  return () => database.drop()
})

const MIGRATIONS = {
  '0001_fruit.sql': `create schema ipledger; grant usage on schema ipledger to ipledger_service;
    create table ipledger.fruit (name text primary key, weight int); insert into ipledger.fruit values ('apple', 7);`,
}

function run(
  audit: Readonly<Record<string, string>>,
  options: { readonly anew?: boolean; readonly as?: string } = {},
): Promise<unknown> {
  const directory = temporaryDirectory()
  const from = { migrations: `${directory}/migrations`, audit: `${directory}/audit` }
  for (const [folder, files] of [
    [from.migrations, MIGRATIONS],
    [from.audit, audit],
  ] as const) {
    mkdirSync(folder)
    for (const [name, sql] of Object.entries(files)) writeFileSync(`${folder}/${name}`, sql)
  }
  return withClient(options.as ?? database.adminUrl, (admin) => migrate(admin, log, from, options))
}

const ask = async (sql: string) =>
  withClient(database.adminUrl, async (admin) => (await admin.query(sql)).rows as Record<string, unknown>[])

function view(name: string, columns: string, from = 'ipledger.fruit'): string {
  return `create or replace view ipledger_audit.${name} as select ${columns} from ${from};
    comment on view ipledger_audit.${name} is 'A view.';`
}

function heaviest(returns: string): string {
  return `create or replace function ipledger_audit.heaviest(above int) returns setof ${returns} language sql stable
    as $$ select f.* from ipledger_audit.fruit f where f.weight >= heaviest.above $$;
    comment on function ipledger_audit.heaviest(int) is 'A function.';`
}

const FRUIT = { '010_fruit.sql': view('fruit', 'name, weight') }
const ALL = {
  ...FRUIT,
  '020_heaviest.sql': heaviest('ipledger_audit.fruit'),
  '030_names.sql': view('names', 'name', 'ipledger_audit.fruit'),
}
const OBJECTS = `select object from ipledger_audit.applied order by place`

describe('applied', () => {
  test('once, read by the auditor and the service and by nobody else', async () => {
    await run(ALL)
    expect(await ask(OBJECTS)).toEqual([
      { object: 'view ipledger_audit.fruit' },
      { object: 'function ipledger_audit.heaviest(int)' },
      { object: 'view ipledger_audit.names' },
    ])
    for (const url of [database.serviceUrl, database.adminUrl]) {
      await withClient(url, async (client) => {
        const { rows } = await client.query('select name from ipledger_audit.heaviest(5)')
        expect(rows).toEqual([{ name: 'apple' }])
      })
    }
    await withClient(database.adminUrl, async (admin) => {
      await admin.query('set role ipledger_auditor')
      expect((await admin.query('select name from ipledger_audit.names')).rows).toEqual([{ name: 'apple' }])
      await admin.query('reset role; set role ipledger_jobs')
      await expect(admin.query('select name from ipledger_audit.names')).rejects.toThrow('permission denied')
    })
    const { rights } = (
      await ask(
        `select array_agg(distinct grantee::text order by grantee::text) as rights
           from information_schema.role_routine_grants where routine_schema = 'ipledger_audit'`,
      )
    )[0] as { rights: string[] }
    expect(rights).toEqual(['ipledger_auditor', 'ipledger_service', 'postgres'])
  })

  test('again only where something differs, or when it is asked for', async () => {
    await run(ALL)
    const at = async () => (await ask('select min(applied_at) as at from ipledger_audit.applied'))[0]!.at
    const first = await at()
    await run(ALL)
    expect(await at()).toBe(first)
    await run(ALL, { anew: true })
    const second = await at()
    expect(second).not.toBe(first)
    await run({ ...ALL, '030_names.sql': view('names', 'upper(name) as name', 'ipledger_audit.fruit') })
    expect(await at()).not.toBe(second)
    expect(await ask('select name from ipledger_audit.names')).toEqual([{ name: 'APPLE' }])
  })

  test('after somebody dropped a part of it, when it is asked for', async () => {
    await run(ALL)
    await ask('drop view ipledger_audit.fruit cascade')
    await run(ALL, { anew: true })
    expect(await ask('select name from ipledger_audit.heaviest(1)')).toEqual([{ name: 'apple' }])
    await ask('drop schema ipledger_audit cascade')
    await run(ALL)
    expect(await ask('select name from ipledger_audit.names')).toEqual([{ name: 'apple' }])
  })

  test('by six starters at once', async () => {
    await Promise.all(Array.from({ length: 6 }, () => run(ALL)))
    const wider = { ...ALL, '010_fruit.sql': view('fruit', 'weight, name') }
    await Promise.all(Array.from({ length: 6 }, () => run(wider, { anew: true })))
    expect(await ask('select * from ipledger_audit.fruit')).toEqual([{ weight: 7, name: 'apple' }])
  })

  test('whole or not at all', async () => {
    await run(FRUIT)
    await expect(
      run({ ...FRUIT, '020_new.sql': view('new', 'name'), '030_bad.sql': view('bad', 'colour') }),
    ).rejects.toThrow('db/audit/030_bad.sql failed: column "colour" does not exist')
    expect(await ask(OBJECTS)).toEqual([{ object: 'view ipledger_audit.fruit' }])
    expect(await ask(`select to_regclass('ipledger_audit.new')::text as name`)).toEqual([{ name: null }])
  })

  test('not when a file comments on nothing, or two make the same', async () => {
    await expect(
      run({ '010_fruit.sql': 'create view ipledger_audit.fruit as select 1 as x;' }),
    ).rejects.toThrow('db/audit/010_fruit.sql comments on no view or function of ipledger_audit')
    await expect(run({ ...FRUIT, '020_again.sql': FRUIT['010_fruit.sql'] })).rejects.toThrow(
      'db/audit/020_again.sql makes view ipledger_audit.fruit, and so does 010_fruit.sql',
    )
  })
})

describe('a newer version', () => {
  test('with other columns: the view is made anew, and so is what of ours rests on it', async () => {
    await run(ALL)
    await run({ ...ALL, '010_fruit.sql': view('fruit', 'weight, name') })
    expect(await ask('select * from ipledger_audit.heaviest(1)')).toEqual([{ weight: 7, name: 'apple' }])
    expect(await ask('select * from ipledger_audit.names')).toEqual([{ name: 'apple' }])
    await withClient(database.serviceUrl, (client) => client.query('select * from ipledger_audit.names'))
  })

  test('with another result or other names of arguments', async () => {
    await run(ALL)
    const text = heaviest('text').replace('f.*', 'f.name').replaceAll('above', 'beyond')
    await run({ ...ALL, '020_heaviest.sql': text })
    expect(await ask('select ipledger_audit.heaviest(beyond => 1) as name')).toEqual([{ name: 'apple' }])
  })

  test('with other arguments, or without an object: no old one is left', async () => {
    await run(ALL)
    const moved = heaviest('ipledger_audit.fruit')
      .replace('above int', 'above bigint')
      .replace('(int)', '(bigint)')
    await run({ ...FRUIT, '020_heaviest.sql': moved })
    expect(
      await ask(
        `select oid::regprocedure::text as name from pg_proc where pronamespace = 'ipledger_audit'::regnamespace`,
      ),
    ).toEqual([{ name: 'ipledger_audit.heaviest(bigint)' }])
    expect(await ask(`select to_regclass('ipledger_audit.names')::text as name`)).toEqual([{ name: null }])
  })

  test('with a function in place of a view', async () => {
    await run(ALL)
    await run({
      ...FRUIT,
      '030_names.sql': `create or replace function ipledger_audit.names() returns text language sql stable as $$ select 'pear' $$;
        comment on function ipledger_audit.names() is 'A function.';`,
    })
    expect(await ask('select ipledger_audit.names() as name')).toEqual([{ name: 'pear' }])
  })

  test.each([
    ['a view', 'create view public.mine as select name from ipledger_audit.fruit', 'view public.mine'],
    [
      'a function',
      `create function public.mine(f ipledger_audit.fruit) returns text language sql as $$ select f.name $$`,
      'function public.mine(ipledger_audit.fruit)',
    ],
  ])('stops at %s of somebody else, names it, and leaves everything as it is', async (_, theirs, named) => {
    await run(ALL)
    await ask(theirs)
    const refusal = await run({ ...ALL, '010_fruit.sql': view('fruit', 'weight, name') }).catch(
      (error: unknown) => error,
    )
    expect(refusal).toBeInstanceOf(StartRefused)
    expect((refusal as Error).message).toBe(
      `This version of ipledger makes view ipledger_audit.fruit anew or no more, and something that is not its own rests on that: ${named}. Drop it, start again, and make it anew.`,
    )
    expect(await ask('select * from ipledger_audit.fruit')).toEqual([{ name: 'apple', weight: 7 }])
    // What changes no column changes under it.
    await run({ ...ALL, '010_fruit.sql': view('fruit', 'upper(name) as name, weight') })
    expect(await ask('select * from ipledger_audit.fruit')).toEqual([{ name: 'APPLE', weight: 7 }])
  })

  test('leaves alone what somebody else made in the schema', async () => {
    await run(ALL)
    await ask(`create view ipledger_audit.theirs as select 'mine' as x`)
    await run({ ...FRUIT, '020_more.sql': view('more', 'name') })
    expect(await ask('select x from ipledger_audit.theirs')).toEqual([{ x: 'mine' }])
    await expect(run({ ...FRUIT, '030_theirs.sql': view('theirs', 'weight') })).rejects.toThrow(
      'db/audit/030_theirs.sql failed: cannot change name of view column "x" to "weight"',
    )
  })
})

test('an owner who may not make the schema is told the statement', async () => {
  const owner = 'ipledger_audit_owner'
  await asSuperuser(`drop role if exists ${owner}`, `create role ${owner} login password 'own'`)
  try {
    await ask(`create schema ipledger authorization ${owner}; create table ipledger.migration
      (version int not null primary key, name text not null, checksum text not null, applied_at timestamptz default now());
      alter table ipledger.migration owner to ${owner}`)
    await ask(`grant usage on schema ipledger to ${owner}`)
    const as = replaceLogin(database.adminUrl, { user: owner, password: 'own' })
    const { applyAudit } = await import('../../src/postgres/audit-schema.ts')
    const directory = temporaryDirectory()
    writeFileSync(
      `${directory}/010_one.sql`,
      `create or replace view ipledger_audit.one as select 1 as one;\n comment on view ipledger_audit.one is 'One.';`,
    )
    const apply = () => withClient(as, (client) => applyAudit(client, directory, ['010_one.sql']))
    const refusal = await apply().catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(StartRefused)
    expect((refusal as Error).message).toContain(`create schema ipledger_audit authorization "${owner}";`)
    await ask(`create schema ipledger_audit authorization ${owner}`)
    expect(await apply()).toBe(true)
    expect(await ask('select one from ipledger_audit.one')).toEqual([{ one: 1 }])
  } finally {
    await database.drop()
    await asSuperuser(`drop role ${owner}`)
  }
})
