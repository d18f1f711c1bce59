/**
 * Where the bench works: databases it makes for itself and drops again, on an embedded PostgreSQL in a temporary
 * directory, or beside the database that `--database-url` names. That one is only asked to make others; nothing that
 * exists is written to.
 */
import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { StartRefused } from '../src/config.ts'
import { connect, connectUnchecked, replaceDatabase } from '../src/postgres/connect.ts'
import { type Database, openDatabase } from '../src/postgres/database.ts'
import { lockDirectory } from '../src/postgres/directory-lock.ts'
import { startEmbedded } from '../src/postgres/embedded.ts'
import { deriveLogins, JOBS_ROLE, readSystemIdentifier, SERVICE_ROLE } from '../src/postgres/roles.ts'
import type { Logger } from '../src/telemetry.ts'

export type Scratch = {
  /** Of the server, as who may make databases. */
  readonly url: string
  /** On the disk of the data, if that is on this machine and ours. */
  readonly directory: string | undefined
  /** Of the embedded server's postmaster. */
  readonly postmaster: () => number | undefined
  /** A new database with the schema, the network `default` and nothing else. */
  create(purpose: string): Promise<ScratchDatabase>
  /** Drops the databases, and the server if it is ours. */
  drop(): Promise<void>
}

export type ScratchDatabase = Omit<Database, 'stop'> & {
  readonly name: string
  /** Of the owner, who may write past the service. */
  readonly adminUrl: string
}

const PREFIX = 'ipledger-bench-'
/** A disk that is memory would make every commit free. */
const MEMORY_FILE_SYSTEMS: ReadonlySet<number> = new Set([0x01021994, 0x858458f6])

export async function openScratch(databaseUrl: string | undefined, log: Logger): Promise<Scratch> {
  if (databaseUrl !== undefined) return beside(databaseUrl, log)
  sweep()
  const home = [tmpdir(), '/var/tmp', process.cwd()].find(isDisk)
  if (home === undefined) throw new StartRefused('There is no directory on a disk to measure on: set TMPDIR.')
  const directory = mkdtempSync(join(home, PREFIX))
  // Where PostgreSQL runs as another user than we, that user must be able to pass through.
  chmodSync(directory, 0o711)
  const server = await startEmbedded({ directory, log })
  const databases = createDatabases(server.url, log)
  return {
    url: server.url,
    directory,
    postmaster: server.pid,
    create: databases.create,
    async drop() {
      await server.stop()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

async function beside(databaseUrl: string, log: Logger): Promise<Scratch> {
  const strangers = await inspect(databaseUrl)
  const databases = createDatabases(databaseUrl, log)
  return {
    url: databaseUrl,
    directory: undefined,
    postmaster: () => undefined,
    create: databases.create,
    async drop() {
      await databases.drop()
      await onServer(databaseUrl, async (admin) => {
        for (const role of [SERVICE_ROLE, JOBS_ROLE]) {
          if (!strangers.has(role)) await admin.query(`drop role if exists ${pg.escapeIdentifier(role)}`)
        }
      })
    },
  }
}

/**
 * The roles that are there already. They belong to the whole server: if those of an ipledger that runs there have other
 * passwords than ours would have, making a database would change them under it.
 */
async function inspect(databaseUrl: string): Promise<ReadonlySet<string>> {
  return onServer(databaseUrl, async (admin) => {
    const { rows } = await admin.query<{ makes: boolean; roles: readonly string[] }>(
      `select r.rolcreatedb or r.rolsuper as makes,
              array(select rolname::text from pg_roles where rolname = any($1)) as roles
         from pg_roles r where r.rolname = current_user`,
      [[SERVICE_ROLE, JOBS_ROLE]],
    )
    const { makes, roles } = rows[0]!
    if (!makes) {
      throw new StartRefused(
        'The bench makes databases of its own: let --database-url log in as a role that may create databases.',
      )
    }
    const { serviceUrl, jobsUrl } = deriveLogins(databaseUrl, await readSystemIdentifier(admin))
    for (const [role, url] of [
      [SERVICE_ROLE, serviceUrl],
      [JOBS_ROLE, jobsUrl],
    ] as const) {
      if (roles.includes(role) && !(await canLogIn(url))) {
        throw new StartRefused(
          `An ipledger uses role "${role}" of this server with another password, which the bench would have to change: ` +
            'use the DATABASE_URL it was started with, or another server.',
        )
      }
    }
    return new Set(roles)
  })
}

async function canLogIn(url: string): Promise<boolean> {
  try {
    await (await connectUnchecked({ url, applicationName: 'ipledger bench' })).end()
    return true
  } catch {
    return false
  }
}

function createDatabases(serverUrl: string, log: Logger): Pick<Scratch, 'create' | 'drop'> {
  const made: string[] = []
  return {
    async create(purpose) {
      const name = `ipledger_bench_${purpose}_${randomBytes(4).toString('hex')}`
      made.push(name)
      await onServer(serverUrl, (admin) => admin.query(`create database ${pg.escapeIdentifier(name)}`))
      const url = replaceDatabase(serverUrl, name)
      const { serviceUrl, jobsUrl } = await openDatabase(
        { databaseUrl: url, databaseAdminUrl: undefined, directory: '' },
        { log, embedded: 'share' },
      )
      return { name, serviceUrl, jobsUrl, adminUrl: url }
    },
    async drop() {
      await onServer(serverUrl, async (admin) => {
        for (const name of made)
          await admin.query(`drop database if exists ${pg.escapeIdentifier(name)} with (force)`)
      })
    },
  }
}

async function onServer<T>(url: string, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = await connect({ url, applicationName: 'ipledger bench' })
  try {
    return await work(admin)
  } finally {
    await admin.end()
  }
}

function isDisk(directory: string): boolean {
  return existsSync(directory) && !MEMORY_FILE_SYSTEMS.has(statfsSync(directory).type)
}

/** What a bench that was killed left behind: nobody holds its lock any more. */
function sweep(): void {
  for (const home of [tmpdir(), '/var/tmp', process.cwd()]) {
    for (const name of existsSync(home) ? readdirSync(home) : []) {
      if (!name.startsWith(PREFIX) || !existsSync(join(home, name, 'lock'))) continue
      const lock = lockDirectory(join(home, name))
      if (lock === undefined) continue
      lock.release()
      // Its server may still be shutting down; the next bench has it.
      if (existsSync(join(home, name, 'postgres', 'postmaster.pid'))) continue
      rmSync(join(home, name), { recursive: true, force: true })
    }
  }
}
