/**
 * `db/schema.sql`: what all migrations together make, for review and for reading; never executed. Written from the
 * catalogue, because pg_dump does not come with the embedded PostgreSQL. Run as a program it writes the file, with
 * `--check` it fails when the file is stale.
 */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type pg from 'pg'
import { createLogger } from '../telemetry.ts'
import { connect } from './connect.ts'
import { openDatabase } from './database.ts'

const FILE = fileURLToPath(new URL('../../db/schema.sql', import.meta.url))

const HEADER = `-- The schemas "ipledger" and "ipledger_audit" as db/migrations and db/audit make them. Written by "npm run generate"; do not edit.\n`

/** The schemas as text, in an order that does not depend on how it came about. */
export async function describeSchema(client: pg.Client): Promise<string> {
  const parts = [HEADER]
  for (const sql of [EXTENSIONS, TYPES, FUNCTIONS, TABLES, INDEXES, VIEWS, TRIGGERS, COMMENTS, GRANTS]) {
    const { rows } = await client.query<{ text: string }>(sql)
    parts.push(...rows.map((row) => `${row.text}\n`))
  }
  return parts.join('\n')
}

const OURS = `('ipledger'::regnamespace, 'ipledger_audit'::regnamespace)`

const EXTENSIONS = `
  select format('create extension %I with schema %I;', e.extname, n.nspname) as text
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace
   where e.extname <> 'plpgsql'
   order by e.extname`

const TYPES = `
  select format('create type %s.%I as enum (%s);', t.typnamespace::regnamespace, t.typname,
                string_agg(quote_literal(e.enumlabel), ', ' order by e.enumsortorder)) as text
    from pg_type t join pg_enum e on e.enumtypid = t.oid
   where t.typnamespace in ${OURS}
   group by t.oid, t.typname
   order by t.typnamespace::regnamespace::text, t.typname`

const FUNCTIONS = `
  select rtrim(pg_get_functiondef(p.oid), E'\\n') || ';' as text
    from pg_proc p
   where p.pronamespace in ${OURS} and p.prokind <> 'a'
   order by p.pronamespace::regnamespace::text, p.proname, pg_get_function_identity_arguments(p.oid)`

// Columns in the order they were written, constraints by name; a NOT NULL is shown at its column.
const TABLES = `
  select format(E'create table %s.%I (\\n%s\\n)%s;', c.relnamespace::regnamespace, c.relname,
           (select string_agg('  ' || line, E',\\n' order by kind, place, line)
              from (select 1 as kind, a.attnum::int as place,
                           a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                           || case when a.attcollation <> t.typcollation then format(' collate %I', l.collname) else '' end
                           || case when a.attnotnull then ' not null' else '' end
                           || case when d.adbin is null then ''
                                   when a.attgenerated <> '' then format(' generated always as (%s) stored', pg_get_expr(d.adbin, d.adrelid))
                                   else ' default ' || pg_get_expr(d.adbin, d.adrelid) end as line
                      from pg_attribute a
                      join pg_type t on t.oid = a.atttypid
                      left join pg_collation l on l.oid = a.attcollation
                      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                    union all
                    select 2, strpos('pufcx', x.contype::text), format('constraint %I %s', x.conname, pg_get_constraintdef(x.oid, true))
                      from pg_constraint x
                     where x.conrelid = c.oid and x.contype <> 'n'
                   ) as lines),
           case when c.reloptions is null then ''
                else format(' with (%s)', (select string_agg(o, ', ' order by o) from unnest(c.reloptions) as o)) end) as text
    from pg_class c
   where c.relnamespace in ${OURS} and c.relkind in ('r', 'p')
   order by c.relnamespace::regnamespace::text, c.relname`

const INDEXES = `
  select pg_get_indexdef(i.indexrelid) || ';' as text
    from pg_index i
    join pg_class t on t.oid = i.indrelid
    join pg_class c on c.oid = i.indexrelid
   where t.relnamespace in ${OURS}
     and not exists (select 1 from pg_constraint x where x.conindid = i.indexrelid and x.contype in ('p', 'u', 'x'))
   order by t.relnamespace::regnamespace::text, t.relname, c.relname`

const VIEWS = `
  select format(E'create %sview %s.%I as\\n%s', case c.relkind when 'm' then 'materialized ' else '' end,
                c.relnamespace::regnamespace, c.relname, pg_get_viewdef(c.oid, true)) as text
    from pg_class c
   where c.relnamespace in ${OURS} and c.relkind in ('v', 'm')
   order by c.relnamespace::regnamespace::text, c.relname`

const TRIGGERS = `
  select pg_get_triggerdef(g.oid, true) || ';' as text
    from pg_trigger g join pg_class c on c.oid = g.tgrelid
   where c.relnamespace in ${OURS} and not g.tgisinternal
   order by c.relnamespace::regnamespace::text, c.relname, g.tgname`

const COMMENTS = `
  select format('comment on %s is %L;', object, description) as text
    from (select format('schema %I', n.nspname) as object, obj_description(n.oid, 'pg_namespace') as description
            from pg_namespace n where n.oid in ${OURS}
          union all
          select format('%s %s.%I', case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'i' then 'index' else 'table' end, c.relnamespace::regnamespace, c.relname),
                 obj_description(c.oid, 'pg_class')
            from pg_class c where c.relnamespace in ${OURS}
          union all
          select format('column %s.%I.%I', c.relnamespace::regnamespace, c.relname, a.attname), col_description(c.oid, a.attnum)
            from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
           where c.relnamespace in ${OURS}
          union all
          select format('constraint %I on %s.%I', x.conname, c.relnamespace::regnamespace, c.relname), obj_description(x.oid, 'pg_constraint')
            from pg_constraint x join pg_class c on c.oid = x.conrelid
           where c.relnamespace in ${OURS}
          union all
          select 'function ' || p.oid::regprocedure, obj_description(p.oid, 'pg_proc')
            from pg_proc p where p.pronamespace in ${OURS}) as commented
   where description is not null
   order by object`

// The owner's own rights are not worth a line.
const GRANTS = `
  select format('grant %s on %s to %s;', string_agg(lower(privilege), ', ' order by privilege), object, grantee) as text
    from (select format('schema %I', n.nspname) as object, a.privilege_type as privilege,
                 case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as grantee
            from pg_namespace n, aclexplode(n.nspacl) a
           where n.oid in ${OURS} and a.grantee <> n.nspowner
          union all
          select format('%s %s.%I', case c.relkind when 'S' then 'sequence' else 'table' end, c.relnamespace::regnamespace, c.relname), a.privilege_type,
                 case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_class c, aclexplode(c.relacl) a
           where c.relnamespace in ${OURS} and a.grantee <> c.relowner
          union all
          select format('table %s.%I', c.relnamespace::regnamespace, c.relname), format('%s (%I)', a.privilege_type, t.attname),
                 case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
           where c.relnamespace in ${OURS} and a.grantee <> c.relowner
          union all
          select 'function ' || p.oid::regprocedure, a.privilege_type,
                 case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_proc p, aclexplode(p.proacl) a
           where p.pronamespace in ${OURS} and a.grantee <> p.proowner) as granted
   group by object, grantee
   order by object, grantee`

/** The schema that the migrations of this checkout make on a fresh embedded server. */
async function freshSchema(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ipledger-schema-'))
  try {
    const database = await openDatabase(
      { databaseUrl: undefined, databaseAdminUrl: undefined, directory: join(directory, 'server') },
      { log: createLogger('warn'), embedded: 'own' },
    )
    try {
      const admin = await connect({ url: database.adminUrl!, applicationName: 'ipledger schema' })
      const text = await describeSchema(admin)
      await admin.end()
      return text
    } finally {
      await database.stop()
    }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  const fresh = await freshSchema()
  if (!process.argv.includes('--check')) {
    await writeFile(FILE, fresh)
  } else if (fresh !== (await readFile(FILE, 'utf8').catch(() => ''))) {
    console.error('db/schema.sql is stale: npm run generate')
    process.exitCode = 1
  }
}
