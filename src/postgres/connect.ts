/**
 * The only place that opens connections to PostgreSQL.
 *
 * Every connection reads values as `values.ts` says, names itself, keeps its socket alive and gives up connecting after
 * 5 s in which this process ran. A connection of `connect` is checked before it is handed out, after every reconnect too: a failover can end on a
 * server that forgets acknowledged commits.
 */

import pg from 'pg'
import { StartRefused } from '../config.ts'
import { afterRunning } from '../time-limit.ts'
import { ConnectionLost, lostOr } from './connection-lost.ts'
import { sever } from './pipeline.ts'
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

/**
 * The driver's own limit counts also time in which this process did not run. And without a listener from the start a server that
 * dies with the packet that opens a connection would end this process; whoever waits for an answer hears of it anyway.
 */
class Client extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super(config)
    this.on('error', () => {})
  }

  override connect(): Promise<pg.Client>
  override connect(callback: (error: Error) => void): void
  override connect(callback?: (error: Error) => void): Promise<pg.Client> | undefined {
    const inTime = afterRunning(CONNECT_TIMEOUT_MS, () => sever(this, new Error('timeout expired')))
    const connected = super
      .connect()
      .catch((error: unknown) => {
        throw new ConnectionLost(describe(error, placeOf(this)), error)
      })
      .finally(inTime)
    if (callback === undefined) return connected
    // The driver's pool takes a null for success.
    connected.then(() => callback(null as unknown as Error), callback)
    return undefined
  }

  /** What fails because the connection is gone says so, and nothing else does. */
  override query(...asked: readonly never[]): never {
    const answer: unknown = Reflect.apply(super.query, this, asked)
    if (!(answer instanceof Promise)) return answer as never
    return answer.catch((error) => {
      throw lostOr(error, this)
    }) as never
  }
}

type Lent = (
  error: Error | undefined,
  client: pg.PoolClient | undefined,
  done: (release?: boolean | Error) => void,
) => void

/**
 * Whoever waits for a connection waits for as long as others bring theirs back: a pool that is busy is no database that is
 * away. (10,000 reads at once: after 5 s most were told that the database does not answer.)
 */
class FairPool extends pg.Pool {
  readonly #waiting = new Set<() => void>()
  #lent = 0
  #returned = 0

  constructor(options: pg.PoolConfig) {
    super(options)
    this.on('release', (error) => {
      if (!error) this.#returned += 1
      this.#goOn()
    })
  }

  override connect(): Promise<pg.PoolClient>
  override connect(callback: Lent): void
  override connect(callback?: Lent): Promise<pg.PoolClient> | undefined {
    const client = this.#take()
    if (callback === undefined) return client
    client.then(
      (lent) => callback(undefined, lent, lent.release),
      (error: Error) => callback(error, undefined, () => {}),
    )
    return undefined
  }

  async #take(): Promise<pg.PoolClient> {
    if (this.ending) throw new ConnectionLost('The pool of connections is closed.', undefined)
    if (this.#lent < this.options.max) this.#lent += 1
    else await this.#place()
    try {
      return await super.connect()
    } catch (error) {
      this.#goOn()
      throw error
    }
  }

  #place(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const wait = (returned: number) =>
      afterRunning(CONNECT_TIMEOUT_MS, () => {
        if (this.#returned > returned) inTime = wait(this.#returned)
        else if (this.#waiting.delete(resolve)) {
          const seconds = CONNECT_TIMEOUT_MS / 1_000
          reject(new ConnectionLost(`No connection came free in ${seconds} s: all are busy.`, undefined))
        }
      })
    let inTime = wait(this.#returned)
    this.#waiting.add(resolve)
    return promise.finally(() => inTime())
  }

  /** A place is free: it is the next one's. */
  #goOn(): void {
    const [next] = this.#waiting
    if (next === undefined) this.#lent -= 1
    else {
      this.#waiting.delete(next)
      next()
    }
  }
}

/**
 * When the server goes away, what is in flight rejects and `end` is emitted; the connection is then of no further use.
 *
 * @throws ConnectionLost, or StartRefused if the server must not be written to
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

/** @throws ConnectionLost */
export async function connectUnchecked(target: ConnectTarget): Promise<pg.Client> {
  const client = new Client(options(target))
  try {
    return await client.connect()
  } catch (error) {
    await client.end().catch(() => {})
    throw error
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
    const inTime = afterRunning(CONNECT_TIMEOUT_MS, () => sever(client))
    try {
      await prepare?.(client)
    } finally {
      inTime()
    }
  }
  const pool = new FairPool({ ...options(target), max, idleTimeoutMillis: 30_000, onConnect, Client })
  pool.on('error', (error) => onLost?.(error))
  // Each connection has a listener of its own; graphile-worker warns of a pool that has none for new connections.
  pool.on('connect', () => {})
  return pool
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
  return placeOf(readUrl(url))
}

function placeOf({ host, port, database = '' }: Pick<pg.Client, 'host' | 'port' | 'database'>): string {
  return `PostgreSQL at ${host.startsWith('/') ? host : `${host}:${port}`}, database "${database}"`
}

function options(target: ConnectTarget): pg.ClientConfig {
  return {
    connectionString: target.url,
    application_name: target.applicationName,
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
