/**
 * Brings a database up to this code: `db/migrations/NNNN_name.sql`, each once; then all of `db/audit/*.sql` when one of them
 * differs. One transaction under one lock: one starter at a time, and nothing stays half done. The roles must exist
 * (`roles.ts`): tables are granted to them.
 *
 * Schema `ipledger_audit` is dropped with everything that depends on it: keep your own views in another schema.
 */

import { hash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { Logger as JobsLogger, runMigrations } from 'graphile-worker'
import pg from 'pg'
import type { Logger } from 'pino'
import { StartRefused } from '../config.ts'
import {
  ALONE,
  AUDIT_DIGEST,
  distribute,
  dropAudit,
  GRANTS,
  hasCitus,
  inPlpgsql,
  onWorkers,
} from './citus.ts'
import { createPool, readUrl } from './connect.ts'
import { INSUFFICIENT_PRIVILEGE, sqlState } from './connection-lost.ts'
import { AUDITOR_ROLE, SERVICE_ROLE } from './roles.ts'

export const JOBS_SCHEMA = 'graphile_worker'

export const DB = new URL('../../db/', import.meta.url)

/** Advisory locks; no other program uses these numbers. */
const MIGRATION_LOCK = 0x1b1ed9e4
const JOBS_SCHEMA_LOCK = 0x1b1ed9e5
const FEATURE_NOT_SUPPORTED = '0A000'

type File = { readonly name: string; readonly text: string }

/** Several starters may run it at once. Returns the names of the migrations that this call applied. */
export async function migrate(admin: pg.Client, log: Logger, db: URL = DB): Promise<readonly string[]> {
  const migrations = await readSql(new URL('migrations/', db))
  await admin.query('begin isolation level read committed')
  try {
    await admin.query('select pg_advisory_xact_lock($1)', [MIGRATION_LOCK])
    const before = await readApplied(admin)
    refuseNewer(before, migrations)
    const isCitus = await hasCitus(admin)
    if (isCitus && before.length < migrations.length) await dropAudit(admin)
    const applied = await apply(admin, migrations, before)
    if (isCitus) await distribute(admin)
    const audit = await readAudit(db, isCitus)
    const isAudited = await applyAudit(admin, audit, isCitus)
    await admin.query('commit')
    if (isCitus) await onWorkers(admin, [audit.begin, ...audit.files.map(({ text }) => text)], audit.digest)
    for (const migration of applied) log.info({ migration }, 'migration applied')
    if (isAudited) log.info('views and functions of ipledger_audit applied')
    return applied
  } catch (error) {
    await admin.query('rollback').catch(() => {})
    if (sqlState(error) !== INSUFFICIENT_PRIVILEGE) throw error
    throw new StartRefused(
      `Role "${admin.user}" may not bring the database up to date (${(error as Error).message}): ` +
        'let DATABASE_ADMIN_URL name the role that owns the schemas ipledger and ipledger_audit, or a superuser.',
      { cause: error },
    )
  }
}

/**
 * For a login that may not migrate.
 *
 * @throws StartRefused when the database is not exactly at this code's version
 */
export async function checkMigrated(client: pg.Client, db: URL = DB): Promise<void> {
  const migrations = await readSql(new URL('migrations/', db))
  const applied = await readApplied(client)
  refuseNewer(applied, migrations)
  if (applied.length < migrations.length) {
    throw new StartRefused(
      `The database is at schema version ${applied.length}, this ipledger needs ${migrations.length}: ` +
        'run "ipledger migrate" with DATABASE_ADMIN_URL naming the owner of the database.',
    )
  }
}

/**
 * graphile-worker's own migrations, run as the role that owns its schema. That role may create in the database only
 * while the schema is being made.
 */
export async function migrateJobs(admin: pg.Client, jobsUrl: string, log: Logger): Promise<void> {
  const pool = createPool({ url: jobsUrl, applicationName: 'ipledger migrate jobs', max: 2 })
  const run = () => runMigrations({ pgPool: pool, schema: JOBS_SCHEMA, logger: jobsLogger(log) })
  try {
    // Not to_regclass: an owner who is no superuser may not look into the schema.
    const { rows } = await admin.query<{ database: string; present: boolean }>(
      `select current_database() as database, exists (
         select from pg_tables where schemaname = $1 and tablename = 'migrations') as present`,
      [JOBS_SCHEMA],
    )
    const { database, present } = rows[0]!
    if (present) return await run()
    const create = `create on database ${pg.escapeIdentifier(database)}`
    const role = pg.escapeIdentifier(readUrl(jobsUrl).user)
    // One starter at a time: else the first one's revoke falls into the second one's `create schema`.
    await admin.query('select pg_advisory_lock($1)', [JOBS_SCHEMA_LOCK])
    try {
      await admin.query(`grant ${create} to ${role}`)
      await run()
    } finally {
      await admin.query(`revoke ${create} from ${role}`)
      await admin.query('select pg_advisory_unlock($1)', [JOBS_SCHEMA_LOCK])
    }
  } finally {
    await pool.end()
  }
}

/** graphile-worker's messages in our log. Its `info` reports every job and every start: ours does not. */
export function jobsLogger(log: Logger): JobsLogger {
  const levels = { error: 'error', warning: 'warn', info: 'debug', debug: 'debug' } as const
  return new JobsLogger(() => (level, message, meta) => log[levels[level]]({ ...meta }, message))
}

/** In the transaction that is open on this connection. */
async function apply(
  admin: pg.Client,
  migrations: readonly File[],
  applied: readonly string[],
): Promise<readonly string[]> {
  if (applied.length === 0)
    await admin.query(`
      create schema if not exists ipledger;
      create table if not exists ipledger.migration (name text primary key, timestamp timestamptz not null)`)
  const missing = migrations.filter(({ name }) => !applied.includes(name))
  for (const { name, text } of missing) {
    await run(admin, text, `migration ${name}`)
    await admin.query('insert into ipledger.migration (name, timestamp) values ($1, now())', [name])
  }
  return missing.map(({ name }) => name)
}

type Audit = {
  readonly digest: string
  readonly grants: readonly File[]
  readonly begin: string
  readonly files: readonly File[]
}

async function readAudit(db: URL, isCitus: boolean): Promise<Audit> {
  const all = await readSql(new URL('audit/', db))
  const files = isCitus ? all.map(({ name, text }) => ({ name, text: inPlpgsql(text) })) : all
  const grants = [...(await readSql(new URL('grants/', db))), ...(isCitus ? [GRANTS] : [])]
  const digest = hash('sha256', [...grants, ...files].map(({ name, text }) => `${name}\n${text}`).join('\n'))
  // Functions are checked when they are called, so that no order among them matters.
  const begin = `
    set local search_path = pg_catalog;
    set local check_function_bodies = off;
    drop schema if exists ipledger_audit cascade;
    create schema ipledger_audit;
    comment on schema ipledger_audit is
      'Views and functions that people and dashboards query; made anew by each version of ipledger. ${digest}';`
  return { digest, grants, begin, files }
}

/** True if something differed: a file, or the grants, which a dump does not bring to a server without the roles. */
async function applyAudit(
  admin: pg.Client,
  { digest, grants, begin, files }: Audit,
  isCitus: boolean,
): Promise<boolean> {
  const { rows } = await admin.query<{ digest: string | null; granted: boolean | null }>(
    `select (${AUDIT_DIGEST}) as digest,
            has_schema_privilege($1, to_regnamespace('ipledger_audit'), 'usage')
              and has_schema_privilege($2, to_regnamespace('ipledger'), 'usage') as granted`,
    [AUDITOR_ROLE, SERVICE_ROLE],
  )
  if (rows[0]!.digest === digest && rows[0]!.granted) return false
  for (const { name, text } of grants) await run(admin, text, `db/grants/${name}.sql`)
  if (isCitus) await admin.query(ALONE)
  await admin.query(begin)
  for (const { name, text } of files) await run(admin, text, `db/audit/${name}.sql`)
  return true
}

async function readSql(directory: URL): Promise<readonly File[]> {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.sql')).sort()
  return Promise.all(
    files.map(async (file) => ({
      name: file.replace(/\.sql$/, ''),
      text: (await readFile(new URL(file, directory), 'utf8')).replaceAll('\r\n', '\n'),
    })),
  )
}

async function readApplied(client: pg.Client): Promise<readonly string[]> {
  // Not to_regclass: it raises for a login that may not look into the schema.
  const { rows: tables } = await client.query(
    `select from pg_class where relname = 'migration' and relnamespace = to_regnamespace('ipledger')`,
  )
  if (tables.length === 0) return []
  try {
    const { rows } = await client.query<{ name: string }>('select name from ipledger.migration order by name')
    return rows.map(({ name }) => name)
  } catch (error) {
    if (sqlState(error) !== INSUFFICIENT_PRIVILEGE) throw error
    throw new StartRefused(
      `Role "${client.user}" may not read ipledger.migration: grant ${SERVICE_ROLE} to ${pg.escapeIdentifier(client.user ?? '')}.`,
      { cause: error },
    )
  }
}

function refuseNewer(applied: readonly string[], migrations: readonly File[]): void {
  const last = applied.findLast((name) => !migrations.some((one) => one.name === name))
  if (last === undefined) return
  throw new StartRefused(
    `The database is at schema version ${applied.length} (${last}), newer than this ipledger, ` +
      `which knows ${migrations.length}: start the newer ipledger.`,
  )
}

/** An error says which file failed; `migrate` says what a role may not do. */
async function run(admin: pg.Client, text: string, what: string): Promise<void> {
  try {
    await admin.query(text)
  } catch (error) {
    if (sqlState(error) === INSUFFICIENT_PRIVILEGE) throw error
    if (sqlState(error) === FEATURE_NOT_SUPPORTED)
      throw new StartRefused(
        `The server lacks what ipledger needs (${(error as Error).message}): install PostgreSQL's contrib modules there.`,
      )
    throw new Error(`${what} failed: ${(error as Error).message}`, { cause: error })
  }
}
