/**
 * From a configuration to a database that is ready to be served: the embedded one or DATABASE_URL's, roles made, schema
 * migrated, logins checked. What is returned are URLs; connections are opened by whoever uses them. A command that only
 * looks takes a database as it is: `findDatabase`.
 */

import type pg from 'pg'
import type { Logger } from 'pino'
import { type Config, StartRefused } from '../config.ts'
import { readUrl, withClient } from './connect.ts'
import { type EmbeddedServer, hasEmbedded, shareEmbedded, startEmbedded } from './embedded.ts'
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
  /** For migrate, rebuild and tests; undefined when nobody told us an administrator's login. */
  readonly adminUrl: string | undefined
  /** Stops the embedded server if it is ours. */
  readonly stop: () => Promise<void>
}

type Options = {
  readonly log: Logger
  /** `own`: the embedded server is ours or the start is refused. `share`: one that runs already will do. */
  readonly embedded: 'own' | 'share'
  /** The embedded server died. */
  readonly onFailure?: ((error: Error) => void) | undefined
}

type Place = Pick<Config, 'databaseUrl' | 'databaseAdminUrl' | 'directory'>

/** @throws StartRefused or ConnectionLost, whose message is for people */
export async function openDatabase(config: Place, options: Options): Promise<Database> {
  requireBoth(config)
  const { databaseUrl, databaseAdminUrl, directory } = config
  if (databaseUrl !== undefined) {
    return { ...(await prepare(databaseUrl, databaseAdminUrl, options)), stop: async () => {} }
  }
  const start = options.embedded === 'own' ? startEmbedded : shareEmbedded
  const server = await start({ directory, ...options })
  return orStop(server, async () => ({
    ...(await prepare(server.url, undefined, options)),
    stop: server.stop,
  }))
}

export type FoundDatabase = {
  /** As it was given: the owner's or the service's. */
  readonly url: string
  /** The owner's, if anybody told us. */
  readonly adminUrl: string
  readonly stop: () => Promise<void>
}

/**
 * For commands that look at what is there: no server, role or schema is made or altered, and none is migrated, least of
 * all by a newer checkout than the one that serves.
 *
 * @throws StartRefused or ConnectionLost, whose message is for people
 */
export async function findDatabase(config: Place, options: { readonly log: Logger }): Promise<FoundDatabase> {
  requireBoth(config)
  const { databaseUrl, databaseAdminUrl, directory } = config
  const found = async (url: string, adminUrl: string, stop: () => Promise<void>): Promise<FoundDatabase> => {
    await withClient(target(url), (client) => checkMigrated(client))
    return { url, adminUrl, stop }
  }
  if (databaseUrl !== undefined) return found(databaseUrl, databaseAdminUrl ?? databaseUrl, async () => {})
  if (!hasEmbedded(directory)) {
    throw new StartRefused(
      `There is no database in ${directory}: run the command where the service runs, or let IPLEDGER_DIR or DATABASE_URL name it.`,
    )
  }
  const server = await shareEmbedded({ directory, ...options })
  return orStop(server, () => found(server.url, server.url, server.stop))
}

const target = (url: string) => ({ url, applicationName: 'ipledger start' })

async function orStop<T>(server: EmbeddedServer, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    await server.stop()
    throw error
  }
}

function requireBoth({ databaseUrl, databaseAdminUrl }: Place): void {
  if (databaseUrl === undefined && databaseAdminUrl !== undefined) {
    throw new StartRefused('DATABASE_ADMIN_URL is set but DATABASE_URL is not: set both, or neither.')
  }
}

async function prepare(
  databaseUrl: string,
  databaseAdminUrl: string | undefined,
  { log }: Pick<Options, 'log'>,
): Promise<Omit<Database, 'stop'>> {
  // Beside the owner's login, the service's role need not be there yet.
  const isServices = databaseAdminUrl !== undefined && readUrl(databaseUrl).user === SERVICE_ROLE
  const administers = !isServices && (await withClient(target(databaseUrl), inspectLogin)).administers
  const adminUrl = databaseAdminUrl ?? (administers ? databaseUrl : undefined)
  const logins =
    adminUrl === undefined
      ? await withClient(target(databaseUrl), (service) => adoptService(service, databaseUrl))
      : await withClient(target(adminUrl), (admin) => administer(admin, databaseUrl, log, !administers))
  await withClient(target(logins.serviceUrl), checkServiceLogin)
  return { ...logins, adminUrl }
}

/** The operator keeps the administrator's login to themselves: nothing is changed, everything is checked. */
async function adoptService(service: pg.Client, databaseUrl: string): Promise<Logins> {
  await checkServiceLogin(service)
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
  const logins = await ensureRoles(admin, databaseUrl, log, { keepService })
  await migrate(admin, log)
  await migrateJobs(admin, logins.jobsUrl, log)
  return logins
}
