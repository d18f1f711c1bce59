/**
 * The only place that opens connections to PostgreSQL.
 *
 * Every connection reads values as `values.ts` says, names itself, keeps its socket alive and gives up connecting
 * after 5 s. A connection that writes is checked before it is handed out, after every reconnect too: a failover can
 * end on a server that forgets acknowledged commits.
 */

import pg from 'pg'
import { StartRefused } from '../config.ts'
import { valueTypes } from './values.ts'

export type ConnectTarget = Readonly<{
  url: string
  /** Shown in pg_stat_activity. */
  applicationName: string
}>

const CONNECT_TIMEOUT_MS = 5_000
const KEEP_ALIVE_AFTER_MS = 10_000
const OLDEST_SERVER = 150_000

/** Could not connect; the message is one sentence without the password, the cause is what the driver threw. */
export class ConnectFailed extends Error {
  override readonly name = 'ConnectFailed'
}

/**
 * When the server goes away, what is in flight rejects and `end` is emitted; the connection is then of no further use.
 *
 * @throws ConnectFailed, or StartRefused if the server must not be written to
 */
export async function connect(target: ConnectTarget): Promise<pg.Client> {
  return checked(await open(target))
}

/** A connection to a server nothing is known about yet. */
export async function connectUnchecked(target: ConnectTarget): Promise<pg.Client> {
  return open(target)
}

/** Connections for reads. Opened when needed; a lost idle one is dropped and told to `onLost`. */
export function createPool(
  target: ConnectTarget & Readonly<{ max: number; onLost?: (error: Error) => void }>,
): pg.Pool {
  const pool = new pg.Pool({ ...options(target), max: target.max, idleTimeoutMillis: 30_000 })
  pool.on('error', (error) => target.onLost?.(error))
  // One that is lost while it is lent out: its borrower's statement fails, but pg reports it here as well.
  pool.on('connect', (client) => client.on('error', () => {}))
  return pool
}

/** @throws StartRefused in one sentence when this server would lose, mangle or refuse what is written to it. */
export async function checkServer(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{
    version_number: number
    version: string
    fsync: string
    synchronous_commit: string
    server_encoding: string
    standby: boolean
    read_only: string
    role: string
  }>(
    `select current_setting('server_version_num')::int as version_number,
            current_setting('server_version') as version,
            current_setting('fsync') as fsync,
            current_setting('synchronous_commit') as synchronous_commit,
            current_setting('server_encoding') as server_encoding,
            pg_is_in_recovery() as standby,
            current_setting('transaction_read_only') as read_only,
            current_user as role`,
  )
  const server = rows[0]!
  if (server.version_number < OLDEST_SERVER) {
    throw new StartRefused(`PostgreSQL ${server.version} is too old: ipledger needs 15 or newer.`)
  }
  if (server.fsync === 'off') {
    throw new StartRefused(
      'The PostgreSQL server runs with fsync = off and can lose what it acknowledged: set fsync = on.',
    )
  }
  if (server.synchronous_commit === 'off') {
    throw new StartRefused(
      `synchronous_commit is off for role "${server.role}", so a crash would lose acknowledged leases: ` +
        `alter role ${pg.escapeIdentifier(server.role)} set synchronous_commit = on.`,
    )
  }
  if (server.server_encoding !== 'UTF8') {
    throw new StartRefused(
      `The database's encoding is ${server.server_encoding}, ipledger needs UTF8: create the database anew with encoding UTF8.`,
    )
  }
  if (server.standby) {
    throw new StartRefused(
      'The PostgreSQL server is a read-only standby: let DATABASE_URL name the primary (target_session_attrs is not understood).',
    )
  }
  if (server.read_only === 'on') {
    throw new StartRefused(
      `default_transaction_read_only is on, for the PostgreSQL server, this database or role "${server.role}": turn it off, or let DATABASE_URL name the primary.`,
    )
  }
}

/** What a connection string says, as the driver reads it. */
export function readUrl(url: string): Readonly<{
  host: string
  port: number
  user: string
  password: string | undefined
  database: string
}> {
  const client = new pg.Client({ connectionString: url })
  return {
    host: client.host,
    port: client.port,
    user: client.user ?? '',
    password: client.password ?? undefined,
    database: client.database ?? '',
  }
}

/** The same server and database, another login. */
export function replaceLogin(url: string, login: Readonly<{ user: string; password?: string }>): string {
  const found = /^(postgres(?:ql)?:\/\/)(?:[^/?#]*@)?(.*)$/s.exec(url)
  if (found === null) throw new Error('not a PostgreSQL URL')
  const secret = login.password === undefined ? '' : `:${encodeURIComponent(login.password)}`
  const rest = found[2]!.replace(/([?&])(?:user|password)=[^&]*(?=&|$)/g, '$1').replace(/[?&]+$/, '')
  return `${found[1]}${encodeURIComponent(login.user)}${secret}@${rest}`
}

/** The same server and login, another database. */
export function replaceDatabase(url: string, database: string): string {
  const found = /^(postgres(?:ql)?:\/\/[^/?#]*)(?:\/[^?#]*)?(.*)$/s.exec(url)
  if (found === null) throw new Error('not a PostgreSQL URL')
  return `${found[1]}/${encodeURIComponent(database)}${found[2]}`
}

function options(target: ConnectTarget): pg.ClientConfig {
  return {
    connectionString: target.url,
    application_name: target.applicationName,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_AFTER_MS,
    types: valueTypes,
  }
}

async function open(target: ConnectTarget): Promise<pg.Client> {
  const client = new pg.Client(options(target))
  // Without a listener a lost idle connection would end the process; whoever waits for an answer hears of it anyway.
  client.on('error', () => {})
  try {
    await client.connect()
    return client
  } catch (error) {
    await client.end().catch(() => {})
    throw new ConnectFailed(describe(error, place(target.url)), { cause: error })
  }
}

async function checked(client: pg.Client): Promise<pg.Client> {
  try {
    await checkServer(client)
    return client
  } catch (error) {
    await client.end().catch(() => {})
    throw error
  }
}

/** Where a connection string leads, without login and password. */
export function place(url: string): string {
  const { host, port, database } = readUrl(url)
  return `PostgreSQL at ${host.startsWith('/') ? host : `${host}:${port}`}, database "${database}"`
}

function describe(error: unknown, where: string): string {
  const first = error instanceof AggregateError ? error.errors[0] : error
  const code = errorCode(first)
  const said = first instanceof Error ? first.message.replace(/\.$/, '') : String(first)
  switch (code) {
    case 'ECONNREFUSED':
      return `Cannot reach ${where}: nothing listens there. Start it, or correct DATABASE_URL.`
    case 'ENOENT':
      return `Cannot reach ${where}: there is no such socket. Start it, or correct DATABASE_URL.`
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `Cannot reach ${where}: the host name is unknown. Correct DATABASE_URL.`
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `Cannot reach ${where}: no answer. Check the network, or correct DATABASE_URL.`
    case '28P01':
    case '28000':
      return `Cannot log in to ${where}: ${said}.`
    case '3D000':
      return `Cannot open ${where}: ${said}. Create it first.`
    case '53300':
      return `Cannot connect to ${where}: it has no connection left (${said}).`
    case '57P03':
      return `Cannot connect to ${where} yet: ${said}.`
    default:
      if (said === 'timeout expired') {
        return `Cannot reach ${where}: no answer within ${CONNECT_TIMEOUT_MS / 1000} s. Check the network, or correct DATABASE_URL.`
      }
      return `Cannot connect to ${where}: ${said}.`
  }
}

function errorCode(error: unknown): string | undefined {
  return typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined
}
