/**
 * What the auditor may: read and call all of `ipledger_audit`, and nothing else (INV-20). And that every object there says
 * what it answers, with an example that runs.
 */
import { afterAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { useAuditor } from '../support/auditor.ts'
import { claim, createNetwork, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const audit = await useAuditor(database)
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const INSUFFICIENT_PRIVILEGE = '42501'
const READ_ONLY = '25006'

// The examples speak of the network default and of these addresses.
await ledger.accept(createNetwork())
await ledger.accept(createPool({ name: 'default', cidr: '10.8.64.0/24', gateway: '10.8.64.1' }))
const first = await ledger.take(
  reserve({ owner: owner({ name: 'default/web-0' }), claims: [claim({ pool: 'default' })], confirmed: true }),
)
await ledger.accept(release(first.fencingToken))

type Made = Readonly<{
  kind: 'view' | 'function'
  identity: string
  name: string
  comment: string | null
  columns: readonly string[]
}>

const objects = (
  await admin.query<Made>(`
    select 'view' as kind, c.oid::regclass::text as identity, c.relname as name, obj_description(c.oid, 'pg_class') as comment,
           array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
      from pg_class c where c.relnamespace = 'ipledger_audit'::regnamespace and c.relkind <> 'i' and c.relname <> 'applied'
    union all
    select 'function', p.oid::regprocedure::text, p.proname, obj_description(p.oid, 'pg_proc'),
           case when p.proargmodes is not null then array(
             select p.proargnames[i] from generate_subscripts(p.proargmodes, 1) as i where p.proargmodes[i] in ('o', 'b', 't')) else '{}' end
      from pg_proc p where p.pronamespace = 'ipledger_audit'::regnamespace
    order by 1, 2`)
).rows

describe('every object', () => {
  test('is one that ipledger made and gave away', async () => {
    expect(objects.length).toBeGreaterThan(50)
    const { rows } = await admin.query<{ identity: string }>('select identity from ipledger_audit.applied')
    expect(objects.map(({ kind, identity }) => `${kind} ${identity}`).sort()).toEqual(
      rows.map(({ identity }) => identity).sort(),
    )
    const rights = await admin.query<{
      identity: string
      auditor: boolean
      service: boolean
      others: boolean
    }>(`
      select c.oid::regclass::text as identity, has_table_privilege('ipledger_auditor', c.oid, 'select') as auditor,
             has_table_privilege('ipledger_service', c.oid, 'select') as service, has_table_privilege('ipledger_jobs', c.oid, 'select') as others
        from pg_class c where c.relnamespace = 'ipledger_audit'::regnamespace and c.relkind <> 'i'
      union all
      select p.oid::regprocedure::text, has_function_privilege('ipledger_auditor', p.oid, 'execute'),
             has_function_privilege('ipledger_service', p.oid, 'execute'), has_function_privilege('ipledger_jobs', p.oid, 'execute')
        from pg_proc p where p.pronamespace = 'ipledger_audit'::regnamespace`)
    expect(rights.rows.filter((one) => !one.auditor || !one.service || one.others)).toEqual([])
  })

  test.each(objects.map(({ kind, identity, ...rest }) => ({ what: `${kind} ${identity}`, kind, ...rest })))(
    '$what says what it answers, its columns, and an example that runs',
    async ({ kind, name, comment, columns }) => {
      const [said, example] = (comment ?? '').split('\n\nExample:\n')
      expect(said!.length).toBeGreaterThan(40)
      expect(example).toBeDefined()
      expect(example!.trim()).toMatch(/^select [\s\S]+;$/)
      expect(example).toMatch(new RegExp(`\\b${name}\\b`))
      await audit.client.query(example!)
      if (kind === 'view') await audit.client.query(`select * from ${name} limit 10`)
      const others = [...said!.matchAll(/(?:those|Columns) (?:of|as of|as in) view `?(\w+)`?/gi)].map(
        ([, view]) => objects.find((one) => one.name === view)!.comment!,
      )
      if (columns.length < 2 || /Columns as in ipledger\./.test(said!)) return
      const words = new Set([said, ...others].join(' ').match(/\w+/g))
      expect(columns.filter((column) => !words.has(column))).toEqual([])
    },
  )

  test('runs with the rights of whoever calls it', async () => {
    const { rows } = await admin.query(
      `select p.oid::regprocedure::text as identity from pg_proc p
        where p.pronamespace = 'ipledger_audit'::regnamespace and (p.prosecdef or p.provolatile = 'v')`,
    )
    expect(rows).toEqual([])
  })
})

describe('the auditor', () => {
  test('logs in to a session that reads, for a while, in UTC', async () => {
    const names = [
      'default_transaction_read_only',
      'statement_timeout',
      'idle_in_transaction_session_timeout',
      'lock_timeout',
      'TimeZone',
      'jit',
      'search_path',
    ]
    const rows = await audit.ask<{ value: string }>(
      'select current_setting(name) as value from unnest($1::text[]) as name',
      names,
    )
    expect(rows.map(({ value }) => value)).toEqual([
      'on',
      '30s',
      '1min',
      '3s',
      'UTC',
      'off',
      'ipledger_audit',
    ])
    await expect(audit.client.query('create temp table mine (x int)')).rejects.toMatchObject({
      code: READ_ONLY,
    })
  })

  test('may write to no table, make nothing, and call nothing that writes', async () => {
    // An update of pg_settings sets one's own session.
    const writable = await admin.query(`
      select c.oid::regclass::text as identity from pg_class c
       where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't' and c.oid <> 'pg_settings'::regclass
         and (has_table_privilege('ipledger_auditor', c.oid, 'insert, update, delete, truncate, trigger')
              or has_any_column_privilege('ipledger_auditor', c.oid, 'insert, update'))
      union all
      select s.oid::regclass::text from pg_class s where case when s.relkind = 'S' then has_sequence_privilege('ipledger_auditor', s.oid, 'usage, update') else false end
      union all
      select n.nspname from pg_namespace n where has_schema_privilege('ipledger_auditor', n.oid, 'create')
      union all
      select d.datname from pg_database d where d.datname = current_database() and has_database_privilege('ipledger_auditor', d.oid, 'create')
      union all
      select p.oid::regprocedure::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
       where n.nspname in ('ipledger', 'graphile_worker') and has_schema_privilege('ipledger_auditor', n.oid, 'usage')`)
    expect(writable.rows).toEqual([])
    const { rows } = await admin.query(
      `select rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls as any_power,
              (select count(*) from pg_auth_members m where m.member = r.oid) as memberships
         from pg_roles r where r.rolname = 'ipledger_auditor'`,
    )
    expect(rows).toEqual([{ any_power: false, memberships: 0 }])
  })

  test.each([
    'insert into ipledger.event (network_id, seq, type, at, actor, cause) values (1, 1, 1, now(), 1, 1)',
    'update ipledger.lease set version = 1',
    'delete from ipledger.event',
    'truncate ipledger.event',
    'update ipledger_audit.log set seq = 1',
    'insert into ipledger_audit.applied values (1, 1, 1, 1)',
    'delete from ipledger_audit.sightings',
    'create table ipledger_audit.mine (x int)',
    'create view ipledger_audit.mine as select 1',
    'create table ipledger.mine (x int)',
    'create table public.mine (x int)',
    'drop view ipledger_audit.event',
    'create or replace function ipledger_audit.moment(moment timestamptz) returns text language sql as $$ select null::text $$',
    'select ipledger.oldest_transaction()',
    'alter role ipledger_service nologin',
  ])('also where its session is not read-only: %s', async (sql) => {
    await audit.client.query('begin; set transaction read write')
    const outcome = await audit.client.query(sql).catch((error: unknown) => error)
    await audit.client.query('rollback')
    expect(outcome).toMatchObject({ code: INSUFFICIENT_PRIVILEGE })
  })

  test.each([
    'select * from ipledger.signing_key',
    'select answer from ipledger.request',
    'select * from ipledger.event',
    'select settings from ipledger.source',
    'select * from graphile_worker.jobs',
    'select * from graphile_worker._private_jobs',
    'select rolpassword from pg_authid',
    `select pg_read_file('PG_VERSION')`,
  ])('may not read: %s', async (sql) => {
    await expect(audit.client.query(sql)).rejects.toMatchObject({ code: INSUFFICIENT_PRIVILEGE })
  })

  test('reads no table through a view but those that are meant', async () => {
    const { rows } = await admin.query<{ name: string }>(`
      select distinct t.oid::regclass::text as name
        from pg_class v
        join pg_rewrite r on r.ev_class = v.oid
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
        join pg_class t on t.oid = d.refobjid and t.relkind in ('r', 'p')
       where v.relnamespace = 'ipledger_audit'::regnamespace order by 1`)
    for (const secret of ['signing_key', 'request', 'snapshot_part', 'database_life', 'network_lock'])
      expect(rows.map(({ name }) => name)).not.toContain(`ipledger.${secret}`)
    expect(rows.map(({ name }) => name)).toContain('ipledger.event')
  })
})
