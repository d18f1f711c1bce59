/**
 * From a configuration to a database that is ready to be served: the embedded one or DATABASE_URL's, roles made,
 * schema migrated, logins checked. What is returned are URLs; connections are opened by whoever uses them.
 */

import type pg from 'pg'
import { type Config, StartRefused } from '../config.ts'
import type { Logger } from '../telemetry.ts'
import { connect, readUrl } from './connect.ts'
import { shareEmbedded, startEmbedded } from './embedded.ts'
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
  /** `own`: the embedded server is ours or the start is refused. `share`: one that runs already will do. */
  embedded: 'own' | 'share'
  /** The embedded server died and could not be started again. */
  onFailure?: (error: Error) => void
}>

/** @throws StartRefused or ConnectFailed, whose message is for people */
export async function openDatabase(
  config: Pick<Config, 'databaseUrl' | 'databaseAdminUrl' | 'directory'>,
  options: Options,
): Promise<Database> {
  if (config.databaseUrl === undefined && config.databaseAdminUrl !== undefined) {
    throw new StartRefused('DATABASE_ADMIN_URL is set but DATABASE_URL is not: set both, or neither.')
  }
  if (config.databaseUrl !== undefined) {
    return {
      ...(await prepare(config.databaseUrl, config.databaseAdminUrl, options.log)),
      stop: async () => {},
    }
  }
  const launch = options.embedded === 'own' ? startEmbedded : shareEmbedded
  const server = await launch({ directory: config.directory, ...options })
  try {
    return { ...(await prepare(server.url, undefined, options.log)), stop: server.stop }
  } catch (error) {
    await server.stop()
    throw error
  }
}

async function prepare(
  databaseUrl: string,
  databaseAdminUrl: string | undefined,
  log: Logger,
): Promise<Omit<Database, 'stop'>> {
  const given = await withClient(databaseUrl, inspectLogin)
  const adminUrl = databaseAdminUrl ?? (given.administers ? databaseUrl : undefined)
  const logins =
    adminUrl === undefined
      ? await withClient(databaseUrl, (service) => adoptService(service, databaseUrl))
      : await withClient(adminUrl, (admin) =>
          administer(admin, databaseUrl, { keepService: !given.administers, log }),
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
  options: Readonly<{ keepService: boolean; log: Logger }>,
): Promise<Logins> {
  const self = await inspectLogin(admin)
  if (!self.administers) {
    throw new StartRefused(
      `Role "${self.role}" of DATABASE_ADMIN_URL owns neither the database nor the schema: let it name the owner of the database.`,
    )
  }
  const logins = await ensureRoles(admin, databaseUrl, options.log, { keepService: options.keepService })
  await migrate(admin, options.log)
  await migrateJobs(admin, logins.jobsUrl, options.log)
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
