/**
 * Applies `db/audit`: the views and functions of schema `ipledger_audit`, one object a file, numbered in order of
 * dependency. All of them in one transaction, when a file differs from what was applied, or when asked to.
 *
 * An object is ours if a file comments on it; the table `ipledger_audit.applied` says which are, and what is not in it is
 * never touched. What no file makes any more is dropped first, and so is what `create or replace` cannot change (the columns of a
 * view), with those of ours that rest on it: their files come later and make them again. Never with `cascade`: where
 * somebody's own view rests on one, the start stops and names it.
 *
 * Functions are checked when they are called, not when they are made, so that no order among them matters. Rights are
 * given here and not in the files: the auditor and the service may read and call everything, nobody else anything.
 */

import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import pg from 'pg'
import { StartRefused } from '../config.ts'
import { AUDITOR_ROLE, SERVICE_ROLE } from './roles.ts'

/** A view, or a function with the types of its arguments, as its file writes it after `comment on`. */
type AuditObject = Readonly<{ object: string; place: number; digest: string }>
type AuditFile = Readonly<{ file: string; sql: string; objects: readonly AuditObject[] }>

const OBJECT = /^ *comment on ((?:view|function) ipledger_audit\.\w+(?:\([^)]*\))?) is\b/gm

/** Columns of a view differ; return type or names of arguments do; a view became a function. */
const NOT_REPLACEABLE: ReadonlySet<string> = new Set(['42P16', '42P13', '42809'])
const INSUFFICIENT_PRIVILEGE = '42501'

const READERS = `${AUDITOR_ROLE}, ${SERVICE_ROLE}`

const SCHEMA = `
  comment on schema ipledger_audit is
    'What people ask of the ledger: who had an address, on what evidence, what is stuck. Views and functions for psql and dashboards, read by ipledger_auditor; made anew by each version of ipledger.';
  revoke all on schema ipledger_audit from public;
  grant usage on schema ipledger_audit to ${READERS};
  create table if not exists ipledger_audit.applied (
    object text collate "C" not null,
    identity text collate "C" not null,
    place integer not null,
    digest text collate "C" not null,
    applied_at timestamptz not null default clock_timestamp(),
    constraint object_is_applied_once primary key (object)
  );
  comment on table ipledger_audit.applied is
    'Which views and functions of ipledger are here, and the SHA-256 of the files that made them. What is not in it is somebody else''s, and left alone.';
  comment on column ipledger_audit.applied.object is 'As its file names it.';
  comment on column ipledger_audit.applied.identity is 'As PostgreSQL names it.';
  comment on column ipledger_audit.applied.place is 'In the order of dependency.';
  grant select on ipledger_audit.applied to ${READERS};`

const HAS_SCHEMA = `
  select exists (select from pg_namespace n where n.nspname = 'ipledger_audit') as present`

/** With the role its grants go: a role that was made anew, or a dump that was restored without it, has none. */
const HAS_APPLIED = `
  select exists (
    select from pg_class c
     where c.relname = 'applied' and c.relnamespace = to_regnamespace('ipledger_audit')
       and has_schema_privilege(to_regrole('${AUDITOR_ROLE}'), c.relnamespace, 'usage')) as present`

/** Identities are looked up in the catalogue: a name whose types are gone cannot be parsed. */
const IDENTITIES = `
  select 'pg_class'::regclass::oid as classid, c.oid as objid, 'view ' || c.oid::regclass as identity
    from pg_class c where c.relnamespace = 'ipledger_audit'::regnamespace and c.relkind = 'v'
  union all
  select 'pg_proc'::regclass, p.oid, 'function ' || p.oid::regprocedure
    from pg_proc p where p.pronamespace = 'ipledger_audit'::regnamespace`

const STANDING = `
  with i as (${IDENTITIES})
  select a.object, a.place, i.classid, i.objid, i.identity from ipledger_audit.applied a join i using (identity)`

/** What rests on the objects $1 (classes) and $2, these included: a view is reached through its rule and its type. */
const RESTING = `
  with recursive i as (${IDENTITIES}),
  resting (classid, objid) as (
    select * from unnest($1::oid[], $2::oid[])
    union
    select x.classid, x.objid from resting r cross join lateral (
      select d.classid, d.objid from pg_depend d where d.refclassid = r.classid and d.refobjid = r.objid
      union all
      select 'pg_class'::regclass, w.ev_class from pg_rewrite w where r.classid = 'pg_rewrite'::regclass and w.oid = r.objid
    ) x
  )
  select a.place, i.identity, pg_describe_object(r.classid, r.objid, 0) as described
    from resting r
    left join i on i.classid = r.classid and i.objid = r.objid
    left join ipledger_audit.applied a on a.identity = i.identity
   where r.classid not in ('pg_rewrite'::regclass, 'pg_type'::regclass)
   order by a.place desc`

type Standing = Readonly<{ object: string; place: number; classid: number; objid: number; identity: string }>
type Resting = Readonly<{ place: number | null; identity: string | null; described: string }>

/**
 * Answers whether there was anything to do.
 *
 * @throws StartRefused when somebody's own object is in the way, or when this login may not
 */
export async function applyAudit(
  admin: pg.Client,
  directory: string,
  names: readonly string[],
  { anew = false }: Readonly<{ anew?: boolean }> = {},
): Promise<boolean> {
  const files = await readAudit(directory, names)
  if (files.length === 0 || (!anew && (await isApplied(admin, files)))) return false
  try {
    await admin.query('begin')
    // Two starters replacing one view at once fail with "tuple concurrently updated".
    await admin.query('lock table ipledger.migration in share row exclusive mode')
    const wanted = anew || !(await isApplied(admin, files))
    if (wanted) await makeAll(admin, files)
    await admin.query('commit')
    return wanted
  } catch (error) {
    await admin.query('rollback').catch(() => {})
    if (sqlState(error) !== INSUFFICIENT_PRIVILEGE) throw error
    const { rows } = await admin.query<{ role: string }>('select current_user as role')
    const { role } = rows[0]!
    throw new StartRefused(
      `Role "${role}" may not make the views of schema ipledger_audit (${messageOf(error)}). ` +
        `If it may not make the schema, let a superuser run this, then start again:\n  create schema ipledger_audit authorization ${pg.escapeIdentifier(role)};\n` +
        `If another role made what is there, let that one start ipledger, or drop the schema, which holds no data:\n  drop schema ipledger_audit cascade;`,
      { cause: error },
    )
  }
}

async function readAudit(directory: string, names: readonly string[]): Promise<readonly AuditFile[]> {
  const texts = await Promise.all(
    names.map(async (file) => ({
      file,
      sql: (await readFile(`${directory}/${file}`, 'utf8')).replaceAll('\r\n', '\n'),
    })),
  )
  let place = 0
  const made = new Map<string, string>()
  return texts.map(({ file, sql }) => {
    const digest = createHash('sha256').update(SCHEMA).update(sql).digest('hex')
    const objects = [...sql.matchAll(OBJECT)].map(([, object]) => ({
      object: object!.replace(/\s+/g, ' '),
      place: place++,
      digest,
    }))
    for (const { object } of objects) {
      const other = made.get(object)
      if (other !== undefined) throw new Error(`db/audit/${file} makes ${object}, and so does ${other}`)
      made.set(object, file)
    }
    if (objects.length === 0) {
      throw new Error(`db/audit/${file} comments on no view or function of ipledger_audit, so it makes none`)
    }
    return { file, sql, objects }
  })
}

async function isApplied(admin: pg.Client, files: readonly AuditFile[]): Promise<boolean> {
  const { rows: found } = await admin.query<{ present: boolean }>(HAS_APPLIED)
  if (!found[0]!.present) return false
  const { rows } = await admin.query<{ object: string; digest: string }>(
    'select object, digest from ipledger_audit.applied',
  )
  const applied = new Map(rows.map(({ object, digest }) => [object, digest]))
  const wanted = files.flatMap(({ objects }) => objects)
  return (
    wanted.length === applied.size && wanted.every(({ object, digest }) => applied.get(object) === digest)
  )
}

async function makeAll(admin: pg.Client, files: readonly AuditFile[]): Promise<void> {
  await admin.query('set local search_path = pg_catalog; set local check_function_bodies = off')
  const { rows } = await admin.query<{ present: boolean }>(HAS_SCHEMA)
  // `if not exists` asks for the right to make one even where there is one.
  if (!rows[0]!.present) await admin.query('create schema ipledger_audit')
  await admin.query(SCHEMA)
  const before = await readStanding(admin)
  const wanted = new Set(files.flatMap(({ objects }) => objects.map(({ object }) => object)))
  await drop(
    admin,
    before.filter(({ object }) => !wanted.has(object)),
  )
  for (const file of files) await make(admin, file)
  await admin.query('delete from ipledger_audit.applied')
  for (const { objects } of files) {
    for (const made of objects) await record(admin, made)
  }
}

async function make(admin: pg.Client, { file, sql, objects }: AuditFile): Promise<void> {
  await admin.query('savepoint made')
  try {
    await admin.query(sql)
  } catch (error) {
    await admin.query('rollback to savepoint made')
    const state = sqlState(error)
    if (state === INSUFFICIENT_PRIVILEGE) throw error
    const names = new Set(objects.map(({ object }) => nameOf(object)))
    const replaced = (await readStanding(admin)).filter(({ object }) => names.has(nameOf(object)))
    if (!NOT_REPLACEABLE.has(state) || replaced.length === 0) {
      throw new Error(`db/audit/${file} failed: ${messageOf(error)}`, { cause: error })
    }
    await drop(admin, replaced)
    await admin.query(sql)
  }
  await admin.query('release savepoint made')
}

/** These, and what of ours rests on them. */
async function drop(admin: pg.Client, objects: readonly Standing[]): Promise<void> {
  if (objects.length === 0) return
  const { rows } = await admin.query<Resting>(RESTING, [
    objects.map(({ classid }) => classid),
    objects.map(({ objid }) => objid),
  ])
  const strangers = rows.filter(({ place }) => place === null).map(({ described }) => described)
  if (strangers.length > 0) {
    throw new StartRefused(
      `This version of ipledger makes ${objects.map(({ identity }) => identity).join(', ')} anew or no more, and something that is not its own ` +
        `rests on that: ${strangers.join(', ')}. Drop it, start again, and make it anew.`,
    )
  }
  for (const { identity } of rows) await admin.query(`drop ${identity}`)
}

async function record(admin: pg.Client, { object, place, digest }: AuditObject): Promise<void> {
  const [kind, name] = [object.slice(0, object.indexOf(' ')), object.slice(object.indexOf(' ') + 1)]
  const { rows } = await admin.query<{ identity: string }>(
    `insert into ipledger_audit.applied (object, identity, place, digest)
       select $1, $2 || ' ' || ${kind === 'view' ? 'to_regclass($3)' : 'to_regprocedure($3)'}, $4, $5
     returning identity`,
    [object, kind, name, place, digest],
  )
  const { identity } = rows[0]!
  await admin.query(
    kind === 'view'
      ? `revoke all on ${name} from public; grant select on ${name} to ${READERS}`
      : `revoke all on ${identity} from public; grant execute on ${identity} to ${READERS}`,
  )
}

async function readStanding(admin: pg.Client): Promise<readonly Standing[]> {
  return (await admin.query<Standing>(STANDING)).rows
}

function nameOf(object: string): string {
  return object.replace(/^\w+ /, '').replace(/\(.*$/, '')
}

function sqlState(error: unknown): string {
  return error instanceof pg.DatabaseError ? (error.code ?? '') : ''
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
