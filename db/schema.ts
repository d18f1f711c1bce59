/**
 * `db/schema.sql`: what the migrations and the audit files together make, for review and for reading; never executed.
 * Written from the catalogue, because pg_dump does not come with the embedded PostgreSQL. Run as a program it writes the
 * file; with `--check` it fails when the file is stale.
 */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { pino } from 'pino'
import { withClient } from '../src/postgres/connect.ts'
import { openDatabase } from '../src/postgres/database.ts'
import { DB } from '../src/postgres/migrate.ts'

const HEADER =
  '-- The schemas "ipledger" and "ipledger_audit" as db/migrations, db/audit and db/grants.sql make them. Written by "npm run generate"; do not edit.\n'

const OURS = `('ipledger'::regnamespace, 'ipledger_audit'::regnamespace)`

const EXTENSIONS = `
  select format('create extension %I;', extname) as text from pg_extension where extname <> 'plpgsql' order by 1`

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

// What callers see of views and functions; how they are made is in their files.
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

// The audit's schema comment has the digest of its files, which is not worth a line of review.
const COMMENTS = `
  select format('comment on %s %s is %L;', i.type, i.identity, d.description) as text
    from pg_description d,
         lateral pg_identify_object(d.classoid, d.objoid, d.objsubid) i
   where i.schema in ('ipledger', 'ipledger_audit')
   order by i.type, i.identity`

// The owner's own rights are not worth a line either.
const GRANTS = `
  select format('grant %s on %s to %s;', string_agg(lower(privilege_type), ', ' order by privilege_type), object,
                case grantee when 0 then 'public' else grantee::regrole::text end) as text
    from (select 'schema ' || n.oid::regnamespace as object, n.nspowner as owner, a.*
            from pg_namespace n, aclexplode(n.nspacl) a
           where n.oid in ${OURS}
          union all
          select 'table ' || c.oid::regclass, c.relowner, a.* from pg_class c, aclexplode(c.relacl) a
           where c.relnamespace in ${OURS}
          union all
          select format('table %s (%I)', c.oid::regclass, t.attname), c.relowner, a.*
            from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
           where c.relnamespace in ${OURS}
          union all
          select 'function ' || p.oid::regprocedure, p.proowner, a.* from pg_proc p, aclexplode(p.proacl) a
           where p.pronamespace in ${OURS}) as granted
   where grantee <> owner
   group by object, grantee
   order by object, grantee::regrole::text`

/** The schemas as text, in an order that does not depend on how it came about. */
async function describeSchema(client: pg.Client): Promise<string> {
  const parts = [HEADER]
  // Names are shown with their schema.
  await client.query('begin read only; set local search_path = pg_catalog')
  for (const sql of [EXTENSIONS, TABLES, INDEXES, VIEWS, FUNCTIONS, COMMENTS, GRANTS]) {
    const { rows } = await client.query<{ text: string }>(sql)
    parts.push(...rows.map((row) => `${row.text}\n`))
  }
  await client.query('commit')
  return parts.join('\n')
}

/** What this checkout makes on a fresh embedded server. */
async function freshSchema(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ipledger-schema-'))
  try {
    const database = await openDatabase(
      { databaseUrl: undefined, databaseAdminUrl: undefined, directory: join(directory, 'server') },
      { log: pino({ level: 'warn' }, pino.destination(2)), embedded: 'own' },
    )
    try {
      return await withClient({ url: database.adminUrl!, applicationName: 'ipledger schema' }, describeSchema)
    } finally {
      await database.stop()
    }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  const file = new URL('schema.sql', DB)
  const fresh = await freshSchema()
  if (!process.argv.includes('--check')) {
    await writeFile(file, fresh)
  } else if (fresh !== (await readFile(file, 'utf8').catch(() => ''))) {
    console.error('db/schema.sql is stale: npm run generate')
    process.exitCode = 1
  }
}
