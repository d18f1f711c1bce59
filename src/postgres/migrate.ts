/**
 * Forward-only migrations: `db/migrations/NNNN_name.sql`, each in its own transaction, never edited after landing.
 *
 * The row of a migration is inserted before its statements, so that of two starters one waits on the other's row and
 * then yields (as graphile/worker does). Afterwards `db/audit` is applied where it differs (`audit-schema.ts`). A database
 * that is newer than this code, or whose migrations are not these files, is refused. Roles must exist first (`roles.ts`):
 * migrations grant to them.
 */

import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { Logger as JobsLogger, runMigrations } from 'graphile-worker'
import pg from 'pg'
import { StartRefused } from '../config.ts'
import type { Logger } from '../telemetry.ts'
import { applyAudit } from './audit-schema.ts'
import { createPool, readUrl } from './connect.ts'

export const JOBS_SCHEMA = 'graphile_worker'

export type MigrationSources = Readonly<{ migrations: string; audit: string }>

export const SOURCES: MigrationSources = {
  migrations: fileURLToPath(new URL('../../db/migrations/', import.meta.url)),
  audit: fileURLToPath(new URL('../../db/audit/', import.meta.url)),
}

type Migration = Readonly<{ version: number; name: string; checksum: string; sql: string }>
type AppliedRow = Readonly<{ version: number; name: string; checksum: string }>

/** Any number that nobody else uses as an advisory lock. */
const JOBS_SCHEMA_LOCK = 0x1b1ed9e5

/** Somebody else made it between our look and our statement: duplicate key, schema, table, object. */
const CLASHES: ReadonlySet<string> = new Set(['23505', '42P06', '42P07', '42710'])

/** Its files are not installed; whoever migrates may not make it. */
const NO_EXTENSION: ReadonlySet<string> = new Set(['0A000', '58P01', '42501'])

const MIGRATION_TABLE = `
  create table ipledger.migration (
    version int not null,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp(),
    constraint migration_is_applied_once primary key (version)
  );
  comment on table ipledger.migration is 'Which files of db/migrations this database has seen, and their SHA-256.';
  grant select on ipledger.migration to ipledger_service;
`

const INSERT_MIGRATION = 'insert into ipledger.migration (version, name, checksum) values ($1, $2, $3)'

/**
 * Brings the schemas `ipledger` and `ipledger_audit` up to this code. Safe to run by several starters at once; each
 * migration is applied once, the audit also where nothing differs if it is wanted `anew`. Returns the versions this call
 * applied.
 *
 * @throws StartRefused when a landed file was edited or the database is newer than this code
 */
export async function migrate(
  admin: pg.Client,
  log: Logger,
  sources: MigrationSources = SOURCES,
  options: Readonly<{ anew?: boolean }> = {},
): Promise<readonly number[]> {
  const migrations = await readMigrations(sources.migrations)
  const before = await readApplied(admin)
  refuseStrangers(before, migrations)
  const applied: number[] = []
  for (const migration of migrations.slice(before.length)) {
    if (await apply(admin, migration)) {
      applied.push(migration.version)
      log.info({ migration: migration.name }, 'migration applied')
    }
  }
  refuseStrangers(await readApplied(admin), migrations)
  if (await applyAudit(admin, sources.audit, await sqlFiles(sources.audit), options)) {
    log.info('views and functions of ipledger_audit applied')
  }
  return applied
}

/**
 * For a login that may not migrate.
 *
 * @throws StartRefused when the database is not exactly at this code's version
 */
export async function checkMigrated(client: pg.Client, sources: MigrationSources = SOURCES): Promise<void> {
  const migrations = await readMigrations(sources.migrations)
  const applied = await readApplied(client)
  refuseStrangers(applied, migrations)
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
  try {
    if (await jobsSchemaExists(admin)) {
      await runMigrations({ pgPool: pool, schema: JOBS_SCHEMA, logger: jobsLogger(log) })
      return
    }
    const { rows } = await admin.query<{ database: string }>('select current_database() as database')
    const create = `create on database ${pg.escapeIdentifier(rows[0]!.database)}`
    const role = pg.escapeIdentifier(readUrl(jobsUrl).user)
    // One starter at a time: else the first one's revoke falls into the second one's `create schema`.
    await admin.query('select pg_advisory_lock($1)', [JOBS_SCHEMA_LOCK])
    try {
      await admin.query(`grant ${create} to ${role}`)
      await runMigrations({ pgPool: pool, schema: JOBS_SCHEMA, logger: jobsLogger(log) })
    } finally {
      await admin.query(`revoke ${create} from ${role}`)
      await admin.query('select pg_advisory_unlock($1)', [JOBS_SCHEMA_LOCK])
    }
  } finally {
    await pool.end()
  }
}

/** graphile-worker's messages in our log. */
export function jobsLogger(log: Logger): JobsLogger {
  const levels = { error: 'error', warning: 'warn', info: 'info', debug: 'debug' } as const
  return new JobsLogger(() => (level, message, meta) => {
    // Its `info` tells of every job and every start; ours tells of ipledger.
    const ours = level === 'info' ? 'debug' : levels[level]
    log[ours]({ ...meta }, message)
  })
}

async function jobsSchemaExists(admin: pg.Client): Promise<boolean> {
  const { rows } = await admin.query<{ present: boolean }>('select to_regclass($1) is not null as present', [
    `${JOBS_SCHEMA}.migrations`,
  ])
  return rows[0]!.present
}

async function readMigrations(directory: string): Promise<readonly Migration[]> {
  const files = await sqlFiles(directory)
  return Promise.all(
    files.map(async (file, index) => {
      const found = /^(\d{4})_([a-z0-9_]+)\.sql$/.exec(file)
      if (found === null || Number(found[1]) !== index + 1) {
        throw new Error(
          `${directory}${file}: migrations are named 0001_name.sql, 0002_name.sql, … without a gap`,
        )
      }
      const sql = (await readFile(`${directory}/${file}`, 'utf8')).replaceAll('\r\n', '\n')
      return {
        version: index + 1,
        name: file.replace(/\.sql$/, ''),
        checksum: createHash('sha256').update(sql).digest('hex'),
        sql,
      }
    }),
  )
}

async function sqlFiles(directory: string): Promise<readonly string[]> {
  try {
    return (await readdir(directory)).filter((file) => file.endsWith('.sql')).sort()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return []
    throw error
  }
}

async function readApplied(client: pg.Client): Promise<readonly AppliedRow[]> {
  // Not to_regclass: it raises for a login that may not look into the schema.
  const { rows: tables } = await client.query<{ role: string; readable: boolean }>(
    `select current_user as role,
            has_schema_privilege(relnamespace, 'usage') and has_table_privilege(oid, 'select') as readable
       from pg_class
      where relname = 'migration' and relnamespace = to_regnamespace('ipledger')`,
  )
  const table = tables[0]
  if (table === undefined) return []
  if (!table.readable) {
    throw new StartRefused(
      `Role "${table.role}" may not read ipledger.migration: grant ipledger_service to ${pg.escapeIdentifier(table.role)}.`,
    )
  }
  const { rows } = await client.query<AppliedRow>(
    'select version, name, checksum from ipledger.migration order by version',
  )
  return rows
}

function refuseStrangers(applied: readonly AppliedRow[], migrations: readonly Migration[]): void {
  for (const row of applied) {
    const migration = migrations[row.version - 1]
    if (migration === undefined) {
      throw new StartRefused(
        `The database is at schema version ${applied.at(-1)!.version} (${applied.at(-1)!.name}), newer than this ipledger, ` +
          `which knows ${migrations.length}: start the newer ipledger.`,
      )
    }
    if (migration.name !== row.name || migration.checksum !== row.checksum) {
      throw new StartRefused(
        `Migration ${row.name} was applied to this database with other contents than db/migrations/${migration.name}.sql has now: ` +
          'landed migrations are never edited; restore the file and add a new one.',
      )
    }
  }
}

/**
 * False: another starter applied it meanwhile. The first migration makes the schema that holds the table of
 * migrations, so there the schema itself is what two starters collide on.
 */
async function apply(admin: pg.Client, migration: Migration): Promise<boolean> {
  const row = [migration.version, migration.name, migration.checksum]
  try {
    await transaction(admin, async () => {
      if (migration.version === 1) {
        await admin.query(migration.sql)
        await admin.query(MIGRATION_TABLE)
        await admin.query(INSERT_MIGRATION, row)
      } else {
        await admin.query(INSERT_MIGRATION, row)
        await admin.query(migration.sql)
      }
    })
    return true
  } catch (error) {
    if (CLASHES.has(sqlState(error)) && (await readApplied(admin)).length >= migration.version) return false
    const said = error instanceof Error ? error.message : String(error)
    const extension = /^create extension (?:if not exists )?(\w+)/m.exec(migration.sql)?.[1]
    if (extension !== undefined && NO_EXTENSION.has(sqlState(error)) && said.includes(extension)) {
      throw new StartRefused(
        `ipledger needs the extension ${extension} of PostgreSQL's contrib modules, and cannot make it (${said}): install ` +
          `the modules beside the server (package postgresql-contrib, where they do not come with it), or let an ` +
          `administrator run this in the database, then start again:\n  create extension ${extension} with schema public;`,
        { cause: error },
      )
    }
    throw new Error(`migration ${migration.name} failed: ${said}`, { cause: error })
  }
}

async function transaction(client: pg.Client, work: () => Promise<void>): Promise<void> {
  await client.query('begin')
  try {
    await work()
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => {})
    throw error
  }
}

function sqlState(error: unknown): string {
  return error instanceof pg.DatabaseError ? (error.code ?? '') : ''
}
