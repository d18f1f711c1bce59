/**
 * From a configuration to the URLs of a database that is ready: the embedded one or DATABASE_URL's, with roles, schema and
 * logins. A command that only reads takes a database as it is: `findDatabase`.
 */

import type pg from 'pg'
import type { Logger } from 'pino'
import { type Config, StartRefused } from '../config.ts'
import { readUrl, withClient } from './connect.ts'
import { hasEmbedded, shareEmbedded, startEmbedded } from './embedded.ts'
import { checkSessions } from './locks.ts'
import { checkMigrated, migrate, migrateJobs } from './migrate.ts'
import {
  checkServiceLogin,
  deriveLogins,
  ensureRoles,
  inspectLogin,
  type Logins,
  readSystemIdentifier,
  SERVICE_ROLE,
} from './roles.ts'

export type Database = {
  readonly serviceUrl: string
  readonly jobsUrl: string
  /** For migrate, rebuild and tests; undefined: the administrator's login is not known. */
  readonly adminUrl: string | undefined
  readonly stop: () => Promise<void>
}

type Options = {
  readonly log: Logger
  /** `own`: another process must not run the embedded server. `share`: it may. */
  readonly embedded: 'own' | 'share'
  readonly onFailure?: ((error: Error) => void) | undefined
}

type DatabaseConfig = Pick<Config, 'databaseUrl' | 'databaseAdminUrl' | 'directory'>

/** @throws StartRefused or ConnectionLost with a message for people */
export async function openDatabase(config: DatabaseConfig, options: Options): Promise<Database> {
  const start = options.embedded === 'own' ? startEmbedded : shareEmbedded
  return onServer(config, options, start, (url) => prepare(url, config.databaseAdminUrl, options.log))
}

export type FoundDatabase = Awaited<ReturnType<typeof findDatabase>>

/**
 * For commands that read: no server, role or schema is made or altered, and none is migrated, least of all by a newer
 * checkout than the one that serves. `url` is as it was given; `adminUrl` is the owner's, if that is known.
 *
 * @throws StartRefused or ConnectionLost with a message for people
 */
export async function findDatabase(config: DatabaseConfig, options: { readonly log: Logger }) {
  const { databaseUrl, databaseAdminUrl, directory } = config
  if (databaseUrl === undefined && databaseAdminUrl === undefined && !hasEmbedded(directory)) {
    throw new StartRefused(
      `There is no database in ${directory}: run the command where the service runs, or let IPLEDGER_DIR or DATABASE_URL name it.`,
    )
  }
  return onServer(config, options, shareEmbedded, async (url) => {
    await withClient(target(url), (client) => checkMigrated(client))
    return { url, adminUrl: databaseAdminUrl ?? url }
  })
}

const target = (url: string) => ({ url, applicationName: 'ipledger start' })

/** The operator's server, or the embedded one, which is stopped when the work fails. */
async function onServer<T>(
  { databaseUrl, databaseAdminUrl, directory }: DatabaseConfig,
  options: Pick<Options, 'log' | 'onFailure'>,
  start: typeof startEmbedded,
  work: (url: string) => Promise<T>,
): Promise<T & { readonly stop: () => Promise<void> }> {
  if (databaseUrl !== undefined) return { ...(await work(databaseUrl)), stop: async () => {} }
  if (databaseAdminUrl !== undefined)
    throw new StartRefused('DATABASE_ADMIN_URL is set but DATABASE_URL is not: set both, or neither.')
  const { url, stop } = await start({ directory, ...options })
  try {
    return { ...(await work(url)), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function prepare(
  databaseUrl: string,
  databaseAdminUrl: string | undefined,
  log: Logger,
): Promise<Omit<Database, 'stop'>> {
  // If the owner's login is given too, the service's role may not exist yet.
  const isServices = databaseAdminUrl !== undefined && readUrl(databaseUrl).user === SERVICE_ROLE
  const administers = !isServices && (await withClient(target(databaseUrl), inspectLogin)).administers
  const adminUrl = databaseAdminUrl ?? (administers ? databaseUrl : undefined)
  if (adminUrl !== undefined) await checkSessions(adminUrl)
  const logins =
    adminUrl === undefined
      ? await withClient(target(databaseUrl), (service) => adoptService(service, databaseUrl))
      : await withClient(target(adminUrl), (admin) => administer(admin, databaseUrl, log, !administers))
  await withClient(target(logins.serviceUrl), checkServiceLogin)
  return { ...logins, adminUrl }
}

/** Without an administrator's login nothing is changed and everything is checked. */
async function adoptService(service: pg.Client, databaseUrl: string): Promise<Logins> {
  await checkServiceLogin(service)
  await checkSessions(databaseUrl)
  await checkMigrated(service)
  const { jobsUrl } = deriveLogins(databaseUrl, await readSystemIdentifier(service))
  try {
    await withClient(target(jobsUrl), async () => {})
  } catch (error) {
    throw new StartRefused(
      `Cannot log in as "${readUrl(jobsUrl).user}": run "ipledger migrate" with this DATABASE_URL, and with DATABASE_ADMIN_URL naming the owner of the database.`,
      { cause: error },
    )
  }
  return { serviceUrl: databaseUrl, jobsUrl }
}

async function administer(
  admin: pg.Client,
  databaseUrl: string,
  log: Logger,
  keepService: boolean,
): Promise<Logins> {
  const self = await inspectLogin(admin)
  if (!self.administers) {
    throw new StartRefused(
      `Role "${self.role}" of DATABASE_ADMIN_URL owns neither the database nor the schema: let it name the owner of the database.`,
    )
  }
  const logins = await ensureRoles(admin, databaseUrl, log, keepService)
  await checkSessions(logins.serviceUrl)
  await migrate(admin, log)
  await migrateJobs(admin, logins.jobsUrl, log)
  return logins
}
