/**
 * The only place that opens connections to PostgreSQL.
 *
 * Every connection reads values as `values.ts` says, names itself, keeps its socket alive and gives up connecting after
 * 5 s in which this process ran. Each connection of `connect` is checked: a failover can end on a server that forgets
 * acknowledged commits. Of several hosts, `h1:5432,h2:5432`, each new connection goes to the one that takes writes.
 */

import pg from 'pg'
import { StartRefused } from '../config.ts'
import { afterRunning } from '../time-limit.ts'
import { ConnectionLost, lostOr, sqlState } from './connection-lost.ts'
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
 * The driver's own time limit also counts time in which this process did not run. The listener is there from the start: a server
 * that dies while it accepts a connection would end this process otherwise. What is in flight rejects in any case.
 */
class Client extends pg.Client {
  /** Each as a target of its own; none if there is one only. */
  readonly #hosts: readonly ConnectTarget[]

  constructor(config: pg.ClientConfig = {}) {
    const { connectionString = '', application_name: applicationName = '' } = config
    const [url, ...more] = eachHost(connectionString)
    super({ ...config, connectionString: url })
    this.#hosts = more.length === 0 ? [] : [url!, ...more].map((one) => ({ url: one, applicationName }))
    this.on('error', () => {})
  }

  override connect(): Promise<pg.Client>
  override connect(callback: (error: Error) => void): void
  override connect(callback?: (error: Error) => void): Promise<pg.Client> | undefined {
    const connected = this.#open()
    if (callback === undefined) return connected
    // The driver's pool takes a null for success.
    connected.then(() => callback(null as unknown as Error), callback)
    return undefined
  }

  async #open(): Promise<pg.Client> {
    if (this.#hosts.length > 0) Object.assign(this, await findPrimary(this.#hosts))
    const inTime = afterRunning(CONNECT_TIMEOUT_MS, () => sever(this, new Error('timeout expired')))
    try {
      return await super.connect()
    } catch (error) {
      throw new ConnectionLost(describe(error, addressOf(this)), error)
    } finally {
      inTime()
    }
  }

  /** A statement fails with ConnectionLost if the connection is gone, and only then. */
  override query(...query: readonly never[]): never {
    const result: unknown = Reflect.apply(super.query, this, query)
    if (!(result instanceof Promise)) return result as never
    return result.catch((error) => {
      throw lostOr(error, this)
    }) as never
  }
}

/**
 * As libpq's target_session_attrs=read-write, which the driver does not know. All are asked at once, so that a silent host delays
 * nothing.
 */
async function findPrimary(hosts: readonly ConnectTarget[]): Promise<Pick<pg.Client, 'host' | 'port'>> {
  try {
    return await Promise.any(hosts.map(askWhetherPrimary))
  } catch (error) {
    const errors: readonly Error[] = (error as AggregateError).errors
    // A wrong password says more than a host that is away.
    const { cause } = errors.find((one) => sqlState(one.cause) !== undefined) ?? errors[0]!
    const why = errors.map(({ message }) => message).join(' ')
    throw new ConnectionLost(`No host of DATABASE_URL takes writes. ${why}`, cause)
  }
}

async function askWhetherPrimary(target: ConnectTarget): Promise<Pick<pg.Client, 'host' | 'port'>> {
  const client = await connectUnchecked(target)
  const inTime = afterRunning(CONNECT_TIMEOUT_MS, () => sever(client))
  try {
    const { rows } = await client.query<{ transaction_read_only: string }>('show transaction_read_only')
    if (rows[0]!.transaction_read_only === 'off') return { host: client.host, port: client.port }
    throw new ConnectionLost(`${addressOf(client)}, is read-only.`, undefined)
  } finally {
    inTime()
    sever(client)
  }
}

type Lent = (
  error: Error | undefined,
  client: pg.PoolClient | undefined,
  done: (release?: boolean | Error) => void,
) => void

/**
 * A caller waits for a connection for as long as others are returned: a busy pool does not mean that the database is away.
 * (10,000 reads at once: after 5 s most failed as if the database did not answer.)
 */
class FairPool extends pg.Pool {
  readonly #waiting = new Set<() => void>()
  #lent = 0
  #returned = 0

  constructor(options: pg.PoolConfig) {
    super(options)
    this.on('release', this.#giveBack)
  }

  override connect(): Promise<pg.PoolClient>
  override connect(callback: Lent): void
  override async connect(callback?: Lent): Promise<pg.PoolClient | undefined> {
    if (callback !== undefined) {
      this.connect().then(
        (lent) => callback(undefined, lent, lent.release),
        (error: Error) => callback(error, undefined, () => {}),
      )
      return undefined
    }
    if (this.ending) throw new ConnectionLost('The pool of connections is closed.', undefined)
    if (this.#lent < this.options.max) this.#lent += 1
    else await this.#waitForOne()
    try {
      return await super.connect()
    } catch (error) {
      this.#giveBack(error)
      throw error
    }
  }

  #waitForOne(): Promise<void> {
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

  /** The next waiting caller may connect. */
  readonly #giveBack = (failure?: unknown): void => {
    if (!failure) this.#returned += 1
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
export async function connect(target: ConnectTarget, check = checkServer): Promise<pg.Client> {
  const client = new Client(options(target))
  try {
    await client.connect()
    await check(client)
    return client
  } catch (error) {
    await client.end().catch(() => {})
    throw error
  }
}

/** @throws ConnectionLost */
export const connectUnchecked = (target: ConnectTarget) => connect(target, async () => {})

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
 * Connections that many share, opened when needed. A broken one is dropped; `onLost` hears of it if it was idle. `prepare`
 * runs on each new connection before it is handed out.
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
      'The PostgreSQL server is a read-only standby: let DATABASE_URL name the primary, or all hosts with commas between them.',
    ],
    [
      readOnly === 'on',
      `default_transaction_read_only is on, for the PostgreSQL server, this database or role "${role}": turn it off, or let DATABASE_URL name the primary.`,
    ],
  ]
  const [, sentence] = wrong.find(([is]) => is) ?? []
  if (sentence !== undefined) throw new StartRefused(sentence)
}

/** One connection string for each of the hosts. */
function eachHost(url: string): readonly string[] {
  const [, login, hosts, rest] = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/s.exec(url) ?? ['', '', url, '']
  return hosts!.split(',').map((host) => `${login}${host}${rest}`)
}

/** A connection string, as the driver reads it; of several hosts the first. */
export function readUrl(url: string) {
  const [connectionString] = eachHost(url)
  const { host, port, user = '', password, database = '' } = new pg.Client({ connectionString })
  return { host, port, user, password: password ?? undefined, database }
}

export function replaceLogin(
  url: string,
  login: { readonly user: string; readonly password?: string },
): string {
  const found = /^(postgres(?:ql)?:\/\/)(?:[^/?#]*@)?(.*)$/s.exec(url)
  if (found === null) throw new Error('not a PostgreSQL URL')
  const secret = login.password === undefined ? '' : `:${encodeURIComponent(login.password)}`
  return `${found[1]}${encodeURIComponent(login.user)}${secret}@${withoutParameters(found[2]!, 'user|password')}`
}

export function atHost(
  url: string,
  { host, port }: { readonly host: string; readonly port: number },
): string {
  const [, login, rest] = /^(\w+:\/\/(?:[^/?#]*@)?)[^/?#]*(.*)$/s.exec(url)!
  const at = host.includes(':') ? `[${host}]` : host
  return `${login}${at}:${port}${withoutParameters(rest!, 'host|port')}`
}

function withoutParameters(url: string, names: string): string {
  return url.replace(new RegExp(`([?&])(?:${names})=[^&]*(?=&|$)`, 'g'), '$1').replace(/[?&]+$/, '')
}

export function place(url: string): string {
  return eachHost(url)
    .map((one) => addressOf(readUrl(one)))
    .join(' or ')
}

function addressOf({ host, port, database = '' }: Pick<pg.Client, 'host' | 'port' | 'database'>): string {
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
  const why = first instanceof Error ? first.message.replace(/\.$/, '') : String(first)
  // 3D000: that database does not exist; 28…: no such login, or another password.
  const isUp = first instanceof pg.DatabaseError && !/^(?:3D|28)/.test(first.code ?? '')
  return `Cannot connect to ${where}: ${why}.${isUp ? '' : ' Start it, or correct DATABASE_URL.'}`
}
