/**
 * Files that follow from others. Run as a program it writes them; with `--check` it fails when one is stale.
 *
 * db/audit/00_event.sql  from the table of an event's columns its text, the view `log` and what shows leases; from the lifecycle
 *                        the ends of quarantines
 * db/schema.sql          what the migration and the audit files make, from the catalogue, for review; never executed. Rights
 *                        are in test/db/postgres-privileges.test.ts.
 * src/gen/tables.ts      the columns of our tables with their types, from the catalogue
 */

import { mkdtempDisposable, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type pg from 'pg'
import { pino } from 'pino'
import { QUARANTINE_REASONS } from '../src/core/event.ts'
import { EVENT_COLUMNS } from '../src/core/event-columns.ts'
import { exitsOf } from '../src/core/lifecycle.ts'
import { withClient } from '../src/postgres/connect.ts'
import { openDatabase } from '../src/postgres/database.ts'
import { DB } from '../src/postgres/migrate.ts'

const HEADER =
  '-- Tables, views with their columns, functions with their arguments. Written by "npm run generate"; do not edit.'

const OURS = `('ipledger'::regnamespace, 'ipledger_audit'::regnamespace)`

// Columns in the order they were written, then constraints; a NOT NULL is shown at its column.
const TABLES = `
  select format(E'create table %s (\\n%s\\n)%s;', c.oid::regclass,
           (select string_agg('  ' || line, E',\\n' order by place, line)
              from (select a.attnum::int as place,
                           a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                           || case when a.attcollation <> t.typcollation then format(' collate %I', l.collname) else '' end
                           || case when a.attnotnull then ' not null' else '' end
                           || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') as line
                      from pg_attribute a
                      join pg_type t on t.oid = a.atttypid
                      left join pg_collation l on l.oid = a.attcollation
                      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                    union all
                    select 10000, format('constraint %I %s', x.conname, pg_get_constraintdef(x.oid, true))
                      from pg_constraint x
                     where x.conrelid = c.oid and x.contype <> 'n') as lines),
           coalesce(' with (' || array_to_string(c.reloptions, ', ') || ')', '')) as text
    from pg_class c
   where c.relnamespace in ${OURS} and c.relkind in ('r', 'p')
   order by c.oid::regclass::text`

const INDEXES = `
  select pg_get_indexdef(i.indexrelid) || ';' as text
    from pg_index i join pg_class c on c.oid = i.indexrelid
   where c.relnamespace in ${OURS}
     and not exists (select from pg_constraint x where x.conindid = i.indexrelid and x.contype in ('p', 'u', 'x'))
   order by i.indrelid::regclass::text, c.relname`

// Columns and arguments of views and functions; their files have the rest.
const VIEWS = `
  select format('view %s (%s)', c.oid::regclass,
           string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum)) as text
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
   where c.relnamespace in ${OURS} and c.relkind = 'v'
   group by c.oid
   order by c.oid::regclass::text`

const FUNCTIONS = `
  select format('function %s.%I(%s) returns %s', p.pronamespace::regnamespace, p.proname,
           pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) as text
    from pg_proc p
   where p.pronamespace in ${OURS}
   order by 1`

const COLUMNS = `
  select c.relname as table, json_object_agg(a.attname, replace(format_type(a.atttypid, null), 'timestamp with time zone', 'timestamptz') || case when a.attnotnull then '' else '?' end
                                             order by a.attnum) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
   where c.relnamespace = 'ipledger'::regnamespace and c.relkind = 'r' and c.relname not like 'migration%'
   group by c.relname
   order by c.relname`

const KEYS = `
  select c.relname as table, json_agg(a.attname order by k.place) as columns
    from pg_constraint x join pg_class c on c.oid = x.conrelid
   cross join lateral unnest(x.conkey) with ordinality as k (attnum, place)
    join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
   where c.relnamespace = 'ipledger'::regnamespace and x.contype = 'p' and c.relname not like 'migration%'
   group by c.relname
   order by c.relname`

/** The schemas as text, in an order that does not depend on how they were made. */
async function describeSchema(client: pg.Client): Promise<string> {
  const parts = [HEADER]
  for (const sql of [TABLES, INDEXES, VIEWS, FUNCTIONS]) {
    const { rows } = await client.query<{ text: string }>(sql)
    parts.push(rows.map(({ text }) => text).join('\n'))
  }
  return `${parts.join('\n\n')}\n`
}

/** @throws when the event of the migration is not the one of the core */
async function describeTables(client: pg.Client): Promise<string> {
  const read = async <T>(sql: string): Promise<Readonly<Record<string, T>>> => {
    const { rows } = await client.query<{ table: string; columns: T }>(sql)
    return Object.fromEntries(rows.map(({ table, columns }) => [table, columns]))
  }
  const tables = await read<Record<string, string>>(COLUMNS)
  const made = Object.entries(tables.event!).map(([name, type]) => `${name} ${type.replace('?', '')}`)
  const wanted = [...EVENT.map(([name, type]) => `${name} ${type}`), 'digest bytea']
  const differing = made.findIndex((column, at) => column !== wanted[at])
  if (differing >= 0)
    throw new Error(`table event has ${made[differing]}, src/core/event-columns.ts has ${wanted[differing]}`)
  const stated = (value: object) => `${JSON.stringify(value, null, 2)} as const`
  return `// Written by "npm run generate" from the migration; do not edit. A type with ? may be null.
export const TABLES = ${stated(tables)}

export const KEYS = ${stated(await read(KEYS))}
`
}

function wrap(list: string, indent = '    '): string {
  return list.replaceAll(/(.{90,130}), /g, `$1,\n${indent}`)
}

const EVENT = Object.values(EVENT_COLUMNS)
const RENAMED: Readonly<Record<string, string>> = { token: 'fencing_token', details: 'evidence' }

const NOTES: Readonly<Record<string, string>> = {
  owner_interface: ' (null: not known)',
  confirm_by: ' (deadline; null: none)',
  quarantine_node: ' (of that caller or source)',
}

/** Left out of a lease, or shown under another name. */
const NOT_OF_LEASE = /^record\.(poolId|address|prefixLength|token|state|ended|availableAt)$/

function describeEvent(): string {
  const cell = ([name, type]: (typeof EVENT)[number]) => {
    if (type === 'timestamptz') return `((date_part('epoch', e.${name}) * 1000)::bigint)::text`
    return type === 'inet' ? `host(e.${name})` : type === 'text' ? `e.${name}` : `e.${name}::text`
  }
  const shown = EVENT.filter(([name]) => name !== 'request_id').map(([name, type]) => {
    const as = RENAMED[name] ?? name
    return type === 'json' ? `e.${name}::jsonb as ${as}` : as === name ? `e.${name}` : `e.${name} as ${as}`
  })
  const ofLease = Object.entries(EVENT_COLUMNS).flatMap(([field, column]) =>
    field.startsWith('record.') && !NOT_OF_LEASE.test(field) ? [column] : [],
  )
  const columns = ofLease.map(([name, type]) =>
    type === 'json' ? `e.${name}::jsonb as ${name}` : `e.${name}`,
  )
  const lease = (token: string, pool: string, since: string) =>
    wrap(
      `e.network_id as network, set_masklen(e.address, e.prefix_length) as address, ${pool} as pool, e.state, e.network_id || '/' || e.${token} as lease_id, e.${token} as fencing_token, e.seq as version, ${columns.join(', ')}, ${since} as since`,
    )
  const noted = ofLease.map(([name]) => name + (NOTES[name] ?? '')).join(', ')
  const typed = ofLease.map(([name, type]) => `${name} ${type.replace('json', 'jsonb')}`).join(', ')
  const ends = QUARANTINE_REASONS.map((reason) => {
    const [own, infrastructure] = [null, 'infrastructure'].map((kind) =>
      [...exitsOf(reason, kind), 'an operator: Reap'].join(' or '),
    )
    const end =
      own === infrastructure
        ? `'${own}'`
        : `case owner_kind when 'infrastructure' then '${infrastructure}' else '${own}' end`
    return `when '${reason}' then ${end}`
  })
  return `-- Written by "npm run generate" from src/core/event-columns.ts and src/core/lifecycle.ts; do not edit.

-- An event as one text: src/ledger/event-text.ts. \`stable\`, so that the server reads it into the statement: 2.2 µs an event, where
-- a call costs 8.
create or replace function ipledger.event_text(e ipledger.event) returns text
  language sql stable parallel safe
  return concat_ws(E'\\u001f',
    ${wrap(EVENT.map((column) => `coalesce(${cell(column)}, E'\\u001e')`).join(', '))});

create view ipledger_audit.log as
  select ${wrap([...shown, 'e.digest'].join(', '))}
    from ipledger.event e;

create view ipledger_audit.lease as
  select ${lease('token', "coalesce(p.name, '')", 'coalesce(b.at, e.at)')}
    from ipledger.lease l
    join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq
    left join ipledger.event b on b.network_id = e.network_id and b.seq = nullif(e.token, e.seq)
    left join ipledger.pool p on p.network_id = l.network_id and p.pool_id = l.pool_id
   where l.state <> 'FREE';
comment on view ipledger_audit.lease is $$Leases that are held now. In the past: leases_as_of.
${wrap(`Columns: network, address (a block with its mask), pool, state (RESERVED, ACTIVE, QUARANTINED), lease_id, fencing_token (number of the event that made it), version (number of its last event), ${noted}, since (begin of the lease).`, '')}
Example: select address, state, owner_name, since from lease where network = 'default' and node = 'n1';$$;

create function ipledger_audit.lease_after(e ipledger_audit.log, pool text, since timestamptz) returns setof ipledger_audit.lease
  language sql stable rows 1 as $$
  select ${lease('fencing_token', 'pool', 'since')}
$$;

create type ipledger_audit.past_lease as (
  ${wrap(`network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, ${typed}, since timestamptz, seq bigint, given_by text, given_cause text, until timestamptz, ended_as text`)});

create function ipledger_audit.quarantine_exit(reason text, owner_kind text) returns text
  language sql immutable as $$
  select 'It ends by ' || case reason
    ${ends.join('\n    ')} end
$$;
`
}

/** The schema of this checkout, on a fresh embedded server. */
async function onFreshSchema(read: (client: pg.Client) => Promise<void>): Promise<void> {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'ipledger-schema-'))
  await using open = new AsyncDisposableStack()
  const config = {
    databaseUrl: undefined,
    databaseAdminUrl: undefined,
    directory: join(directory.path, 'server'),
  }
  const log = pino({ level: 'warn' }, pino.destination(2))
  const database = open.adopt(await openDatabase(config, { log, embedded: 'own' }), (one) => one.stop())
  await withClient({ url: database.adminUrl!, applicationName: 'ipledger schema' }, read)
}

async function keepCurrent(file: URL, text: string): Promise<void> {
  const stored = await readFile(file, 'utf8').catch(() => '')
  if (text === stored) return
  if (!process.argv.includes('--check')) return writeFile(file, text)
  console.error(`${relative('.', fileURLToPath(file))} is stale: npm run generate`)
  process.exitCode = 1
}

if (import.meta.main) {
  await keepCurrent(new URL('audit/00_event.sql', DB), describeEvent())
  await onFreshSchema(async (client) => {
    // Names are shown with their schema.
    await client.query('set search_path = pg_catalog')
    await keepCurrent(new URL('schema.sql', DB), await describeSchema(client))
    await keepCurrent(new URL('../src/gen/tables.ts', DB), await describeTables(client))
  })
}
