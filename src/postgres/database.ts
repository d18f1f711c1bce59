/**
 * From a configuration to a database that is ready to be served: the embedded one or DATABASE_URL's, roles made,
 * schema migrated, logins checked. What is returned are URLs; connections are opened by whoever uses them. Who only looks
 * takes a database as it is: `findDatabase`.
 */

import type pg from 'pg'
import { type Config, StartRefused } from '../config.ts'
import type { Logger } from '../telemetry.ts'
import { connect, readUrl } from './connect.ts'
import { type EmbeddedServer, hasEmbedded, shareEmbedded, startEmbedded } from './embedded.ts'
import { checkMigrated, migrate, migrateJobs } from './migrate.ts'
import {
  checkServiceLogin,
  deriveLogins,
  ensureRoles,
  inspectLogin,
  type Logins,
  readSystemIdentifier,
} from './roles.ts'

export type Database = Readonly<{
  serviceUrl: string
  jobsUrl: string
  /** For migrate, rebuild and tests; undefined when nobody told us an administrator's login. */
  adminUrl: string | undefined
  /** Stops the embedded server if it is ours. */
  stop: () => Promise<void>
}>

type Options = Readonly<{
  log: Logger
  /**
   * `own`: the embedded server is ours or the start is refused. `share`: one that runs already will do. `found`: the
   * same, but none is made where there was none.
   */
  embedded: 'own' | 'share' | 'found'
  /** Makes the views and functions of `db/audit` again, also where they are as they should be. */
  auditAnew?: boolean
  /** The embedded server died and could not be started again. */
  onFailure?: (error: Error) => void
}>

type Place = Pick<Config, 'databaseUrl' | 'databaseAdminUrl' | 'directory'>

/** @throws StartRefused or ConnectFailed, whose message is for people */
export async function openDatabase(config: Place, options: Options): Promise<Database> {
  requireBoth(config)
  if (config.databaseUrl !== undefined) {
    return {
      ...(await prepare(config.databaseUrl, config.databaseAdminUrl, options)),
      stop: async () => {},
    }
  }
  const server = await launch(config.directory, options)
  try {
    return { ...(await prepare(server.url, undefined, options)), stop: server.stop }
  } catch (error) {
    await server.stop()
    throw error
  }
}

export type FoundDatabase = Readonly<{
  /** As it was given: the owner's or the service's. */
  url: string
  /** The owner's, if anybody told us. */
  adminUrl: string
  stop: () => Promise<void>
}>

/**
 * For commands that look at what is there: no server, role or schema is made or altered, and none is migrated, least of
 * all by a newer checkout than the one that serves.
 *
 * @throws StartRefused or ConnectFailed, whose message is for people
 */
export async function findDatabase(
  config: Place,
  options: Readonly<{ log: Logger }>,
): Promise<FoundDatabase> {
  requireBoth(config)
  const { databaseUrl, databaseAdminUrl } = config
  if (databaseUrl !== undefined) {
    await withClient(databaseUrl, (client) => checkMigrated(client))
    return { url: databaseUrl, adminUrl: databaseAdminUrl ?? databaseUrl, stop: async () => {} }
  }
  const { url, stop } = await launch(config.directory, { ...options, embedded: 'found' })
  try {
    await withClient(url, (client) => checkMigrated(client))
    return { url, adminUrl: url, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

function requireBoth({ databaseUrl, databaseAdminUrl }: Place): void {
  if (databaseUrl === undefined && databaseAdminUrl !== undefined) {
    throw new StartRefused('DATABASE_ADMIN_URL is set but DATABASE_URL is not: set both, or neither.')
  }
}

async function launch(directory: string, options: Options): Promise<EmbeddedServer> {
  if (options.embedded === 'found' && !hasEmbedded(directory)) {
    throw new StartRefused(
      `There is no database in ${directory}: run the command where the service runs, or let IPLEDGER_DIR or DATABASE_URL name it.`,
    )
  }
  const start = options.embedded === 'own' ? startEmbedded : shareEmbedded
  return start({ directory, ...options })
}

async function prepare(
  databaseUrl: string,
  databaseAdminUrl: string | undefined,
  { log, auditAnew }: Pick<Options, 'log' | 'auditAnew'>,
): Promise<Omit<Database, 'stop'>> {
  const given = await withClient(databaseUrl, inspectLogin)
  const adminUrl = databaseAdminUrl ?? (given.administers ? databaseUrl : undefined)
  const logins =
    adminUrl === undefined
      ? await withClient(databaseUrl, (service) => adoptService(service, databaseUrl))
      : await withClient(adminUrl, (admin) =>
          administer(admin, databaseUrl, { keepService: !given.administers, log, anew: auditAnew ?? false }),
        )
  await withClient(logins.serviceUrl, (service) => checkServiceLogin(service, log))
  return { ...logins, adminUrl }
}

/** The operator keeps the administrator's login to themselves: nothing is changed, everything is checked. */
async function adoptService(service: pg.Client, databaseUrl: string): Promise<Logins> {
  await checkMigrated(service)
  const { jobsUrl } = deriveLogins(databaseUrl, await readSystemIdentifier(service))
  try {
    await withClient(jobsUrl, async () => {})
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
  { keepService, log, anew }: Readonly<{ keepService: boolean; log: Logger; anew: boolean }>,
): Promise<Logins> {
  const self = await inspectLogin(admin)
  if (!self.administers) {
    throw new StartRefused(
      `Role "${self.role}" of DATABASE_ADMIN_URL owns neither the database nor the schema: let it name the owner of the database.`,
    )
  }
  const logins = await ensureRoles(admin, databaseUrl, log, { keepService })
  await migrate(admin, log, undefined, { anew })
  await migrateJobs(admin, logins.jobsUrl, log)
  return logins
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await connect({ url, applicationName: 'ipledger start' })
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
