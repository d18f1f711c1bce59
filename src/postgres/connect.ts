/**
 * The only place that opens connections to PostgreSQL.
 *
 * Every connection reads values as `values.ts` says, names itself, keeps its socket alive and gives up connecting after
 * 5 s. A connection of `connect` is checked before it is handed out, after every reconnect too: a failover can end on a
 * server that forgets acknowledged commits.
 */

import pg from 'pg'
import { StartRefused } from '../config.ts'
import { sever } from './trip.ts'
import { valueTypes } from './values.ts'

type ConnectTarget = {
  readonly url: string
  /** Shown in pg_stat_activity. */
  readonly applicationName: string
}

const CONNECT_TIMEOUT_MS = 5_000
const KEEP_ALIVE_AFTER_MS = 10_000
const OLDEST_SERVER = 150_000

/**
 * The life of the database, as one text: system identifier, oid of the database, oid of `ipledger.event`, timeline. It
 * differs after a restore (into another cluster, beside the original, or from a dump) and after a failover. An expression
 * for the select list of a statement; it takes the server 10 µs, and fails on a standby.
 */
export const IDENTITY_SQL = `(select system_identifier from pg_control_system())
  || '/' || (select oid from pg_database where datname = current_database())
  || '/' || 'ipledger.event'::regclass::oid || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)`

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
  const client = await connectUnchecked(target)
  try {
    await checkServer(client)
    return client
  } catch (error) {
    await client.end().catch(() => {})
    throw error
  }
}

/** @throws ConnectFailed */
export async function connectUnchecked(target: ConnectTarget): Promise<pg.Client> {
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

/** A connection that is closed after the work, whatever comes of it. */
export async function withClient<T>(
  target: ConnectTarget,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = await connect(target)
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

/**
 * Connections that many share. Opened when needed; one that is lost is dropped, while it is idle with a word to `onLost`.
 * `prepare` is done to each new connection before it is handed out.
 */
export function createPool(
  target: ConnectTarget & {
    readonly max: number
    readonly onLost?: (error: Error) => void
    readonly prepare?: (client: pg.ClientBase) => Promise<void>
  },
): pg.Pool {
  const { max, onLost, prepare } = target
  const onConnect = async (client: pg.ClientBase): Promise<void> => {
    // The pool's own time-out has passed by then.
    const timer = setTimeout(() => sever(client), CONNECT_TIMEOUT_MS)
    try {
      await prepare?.(client)
    } finally {
      clearTimeout(timer)
    }
  }
  const pool = new pg.Pool({ ...options(target), max, idleTimeoutMillis: 30_000, onConnect })
  pool.on('error', (error) => onLost?.(error))
  // One that is lost while it is lent out: its borrower's statement fails, but pg reports it here as well.
  pool.on('connect', (client) => client.on('error', () => {}))
  return pool
}

/** @throws ConnectFailed, or StartRefused if the server must not be written to */
export async function borrow(pool: pg.Pool): Promise<pg.PoolClient> {
  try {
    return await pool.connect()
  } catch (error) {
    if (error instanceof StartRefused) throw error
    throw new ConnectFailed(describe(error, place(pool.options.connectionString!)), { cause: error })
  }
}

/** @throws StartRefused in one sentence when this server would lose, mangle or refuse what is written to it. */
export async function checkServer(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<
    Record<'version' | 'fsync' | 'commits' | 'encoding' | 'readOnly' | 'role', string> & {
      number: number
      standby: boolean
    }
  >(
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version,
            current_setting('fsync') as fsync, current_setting('synchronous_commit') as commits,
            current_setting('server_encoding') as encoding, pg_is_in_recovery() as standby,
            current_setting('transaction_read_only') as "readOnly", current_user as role`,
  )
  const { number, version, fsync, commits, encoding, standby, readOnly, role } = rows[0]!
  const wrong: readonly (readonly [boolean, string])[] = [
    [number < OLDEST_SERVER, `PostgreSQL ${version} is too old: ipledger needs 15 or newer.`],
    [
      fsync === 'off',
      'The PostgreSQL server runs with fsync = off and can lose what it acknowledged: set fsync = on.',
    ],
    [
      commits === 'off',
      `synchronous_commit is off for role "${role}", so a crash would lose acknowledged leases: alter role ${pg.escapeIdentifier(role)} set synchronous_commit = on.`,
    ],
    [
      encoding !== 'UTF8',
      `The database's encoding is ${encoding}, ipledger needs UTF8: create the database anew with encoding UTF8.`,
    ],
    [
      standby,
      'The PostgreSQL server is a read-only standby: let DATABASE_URL name the primary (target_session_attrs is not understood).',
    ],
    [
      readOnly === 'on',
      `default_transaction_read_only is on, for the PostgreSQL server, this database or role "${role}": turn it off, or let DATABASE_URL name the primary.`,
    ],
  ]
  const [, sentence] = wrong.find(([is]) => is) ?? []
  if (sentence !== undefined) throw new StartRefused(sentence)
}

/** What a connection string says, as the driver reads it. */
export function readUrl(url: string): {
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string | undefined
  readonly database: string
} {
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
export function replaceLogin(
  url: string,
  login: { readonly user: string; readonly password?: string },
): string {
  const found = /^(postgres(?:ql)?:\/\/)(?:[^/?#]*@)?(.*)$/s.exec(url)
  if (found === null) throw new Error('not a PostgreSQL URL')
  const secret = login.password === undefined ? '' : `:${encodeURIComponent(login.password)}`
  const rest = found[2]!.replace(/([?&])(?:user|password)=[^&]*(?=&|$)/g, '$1').replace(/[?&]+$/, '')
  return `${found[1]}${encodeURIComponent(login.user)}${secret}@${rest}`
}

/** Where a connection string leads, without login and password. */
export function place(url: string): string {
  const { host, port, database } = readUrl(url)
  return `PostgreSQL at ${host.startsWith('/') ? host : `${host}:${port}`}, database "${database}"`
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

function describe(error: unknown, where: string): string {
  const first = error instanceof AggregateError ? error.errors[0] : error
  const said = first instanceof Error ? first.message.replace(/\.$/, '') : String(first)
  // 3D000: that database does not exist; 28…: no such login, or another password.
  const isUp = first instanceof pg.DatabaseError && !/^(?:3D|28)/.test(first.code ?? '')
  return `Cannot connect to ${where}: ${said}.${isUp ? '' : ' Start it, or correct DATABASE_URL.'}`
}
