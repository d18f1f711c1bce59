/** What the database itself refuses, whoever asks and whatever a process believes. */
import { beforeAll, describe, expect, test } from 'vitest'
import { ON_CITUS } from '../support/citus.ts'
import { asSuperuser, useTestDatabase, withClient } from '../support/database.ts'

const database = await useTestDatabase()
// The rights on a database itself are not cloned with it.
await asSuperuser(`revoke temporary on database ${database.name} from public`)

const INSUFFICIENT_PRIVILEGE = '42501'
const query = (url: string, sql: string) => withClient(url, async (client) => (await client.query(sql)).rows)

const EVENT = (seq: number, address: string | null, previous: number | null) =>
  `insert into ipledger.event (network_id, seq, format, type, at, actor, cause, address, previous, digest)
   values ('n', ${seq}, 1, 'x', now(), 'test', 'test', ${address === null ? 'null' : `'${address}'`}, ${previous}, sha256(''))`

describe('the service', () => {
  beforeAll(async () => {
    await query(database.serviceUrl, `insert into ipledger.network_lock values ('n')`)
    await query(database.serviceUrl, EVENT(1, '10.0.0.1', 0))
  })

  // Of its tables all that is not granted below.
  test.each([
    `update ipledger.event set actor = 'somebody else'`,
    'drop table ipledger.event',
    'create table ipledger.mine (x int)',
    'create temporary table mine (x int)',
    'drop schema ipledger_audit cascade',
    'select 1 from graphile_worker.jobs',
  ])('may not: %s', async (sql) => {
    await expect(query(database.serviceUrl, sql)).rejects.toMatchObject({ code: INSUFFICIENT_PRIVILEGE })
  })

  test('locks a network', async () => {
    const rows = await query(
      database.serviceUrl,
      `select network_id from ipledger.network_lock where network_id = 'n' for no key update`,
    )
    expect(rows).toEqual([{ network_id: 'n' }])
  })

  test('has exactly these rights, and owns nothing', async () => {
    const rows = (await query(
      database.adminUrl,
      `select table_name, string_agg(left(privilege_type, 1), '' order by privilege_type) as rights
         from information_schema.role_table_grants
        where grantee = 'ipledger_service' and table_schema = 'ipledger' group by 1`,
    )) as { table_name: string; rights: string }[]
    expect(Object.fromEntries(rows.map(({ table_name, rights }) => [table_name, rights]))).toEqual({
      event: 'IS',
      network_lock: 'IS',
      lease: 'ISU',
      network: 'ISU',
      source: 'ISU',
      source_report: 'ISU',
      verification: 'ISU',
      pool: 'DISU',
      source_failure: 'DISU',
      sighting: 'DISU',
      lookup: 'DISU',
      request: 'DISU',
      pool_sample: 'DISU',
      attention: 'DISU',
      migration: 'S',
    })
    const owned = `select relname from pg_class c join pg_roles r on r.oid = c.relowner where r.rolname = 'ipledger_service'`
    expect(await query(database.adminUrl, owned)).toEqual([])
  })

  test.each([
    ['a number twice', EVENT(1, null, null), 'number_is_given_once'],
    [
      'a second event with the same predecessor',
      EVENT(2, '10.0.0.1', 0),
      'history_of_an_address_never_forks',
    ],
    ['an address without a predecessor', EVENT(2, '10.0.0.2', null), 'chain_goes_by_address'],
    ['a predecessor that comes later', EVENT(2, '10.0.0.2', 2), 'chain_goes_forward'],
    ['an address with a mask', EVENT(2, '10.0.0.0/24', 0), 'address_is_a_host'],
  ])('and everybody else is refused %s', async (_, sql, constraint) => {
    for (const url of [database.serviceUrl, database.adminUrl]) {
      // That of a shard of Citus ends with its number.
      await expect(query(url, sql)).rejects.toMatchObject({
        constraint: expect.stringMatching(new RegExp(`^${constraint}(_\\d+)?$`)),
      })
    }
  })
})

describe('the jobs', () => {
  test.each(['select 1 from ipledger.event', 'select 1 from ipledger_audit.lease', 'create schema mine'])(
    'may not: %s',
    async (sql) => {
      await expect(query(database.jobsUrl, sql)).rejects.toMatchObject({ code: INSUFFICIENT_PRIVILEGE })
    },
  )
})

describe('the auditor', () => {
  test('logs in to a session that reads, for a while, in UTC', async () => {
    const names = [
      'default_transaction_read_only',
      'statement_timeout',
      'idle_in_transaction_session_timeout',
      'TimeZone',
      'search_path',
    ]
    const rows = await query(
      database.auditorUrl,
      `select current_setting(name) as value from unnest('{${names.join(',')}}'::text[]) as name`,
    )
    expect(rows.map(({ value }) => value)).toEqual(['on', '30s', '1min', 'UTC', 'ipledger_audit'])
  })

  test.each([
    'create schema mine',
    'create temporary table mine (x int)',
    'select lo_create(0)',
    'select lo_creat(-1)',
    `select lo_from_bytea(0, 'x')`,
    'alter role ipledger_service nologin',
    'select * from graphile_worker._private_jobs',
    'select rolpassword from pg_authid',
    'select secret from ipledger.network_lock',
    `select pg_read_file('PG_VERSION')`,
  ])('may not, also where its session is not read-only: %s', async (sql) => {
    await withClient(database.auditorUrl, async (client) => {
      await client.query('begin; set transaction read write')
      await expect(client.query(sql)).rejects.toMatchObject({ code: INSUFFICIENT_PRIVILEGE })
    })
  })

  test('sees no request ids, by which a caller is answered again, and no secret of a network', async () => {
    const columns = `select table_name from information_schema.columns
       where table_schema = 'ipledger_audit' and column_name in ('request_id', 'secret')`
    expect(await query(database.adminUrl, columns)).toEqual([])
  })

  test('may write to nothing, belongs to nobody, and reads all of ipledger_audit', async () => {
    // An update of pg_settings sets one's own session.
    const writable = await query(
      database.adminUrl,
      `select c.oid::regclass::text as identity from pg_class c
        where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't' and c.oid <> 'pg_settings'::regclass
          and (has_table_privilege('ipledger_auditor', c.oid, 'insert, update, delete, truncate, trigger')
               or has_any_column_privilege('ipledger_auditor', c.oid, 'insert, update'))
       union all
       select n.nspname from pg_namespace n where has_schema_privilege('ipledger_auditor', n.oid, 'create')
       union all
       select n.nspname from pg_namespace n
        where n.nspname in ('ipledger', 'graphile_worker') and has_schema_privilege('ipledger_auditor', n.oid, 'usage')
       union all
       select d.datname from pg_database d
        where d.datname = current_database() and has_database_privilege('ipledger_auditor', d.oid, 'create, temporary')
       union all
       select c.oid::regclass::text from pg_class c
        where c.relnamespace = 'ipledger_audit'::regnamespace and c.relkind = 'v'
          and not has_table_privilege('ipledger_auditor', c.oid, 'select')
       union all
       select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'ipledger_audit'::regnamespace
          and (p.prosecdef or not has_function_privilege('ipledger_auditor', p.oid, 'execute')
               or has_function_privilege('ipledger_jobs', p.oid, 'execute'))`,
    )
    expect(writable).toEqual(ON_CITUS ? [{ identity: 'ipledger' }] : [])
    const powers = await query(
      database.adminUrl,
      `select rolname from pg_roles r where rolname like 'ipledger%' and
          (rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls
           or exists (select from pg_auth_members m where m.member = r.oid))`,
    )
    expect(powers).toEqual([])
  })
})
