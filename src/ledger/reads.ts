/**
 * What can be asked of a network without writing to it. Reads go past the ledger's queue and lock, each in one
 * statement on a connection of their own pool, and see what was committed when they began.
 */
import { Kysely, PostgresDialect, type PostgresPool, type PostgresPoolClient, sql } from 'kysely'
import pg from 'pg'
import type { Cidr, IpAddress } from '../core/address.ts'
import type { Answer } from '../core/command.ts'
import { POLICY } from '../core/policy.ts'
import type { Tables } from '../postgres/tables.ts'
import { onTrip } from '../telemetry.ts'
import {
  type AsOfAsked,
  type Beyond,
  type Bounds,
  type Explained,
  type HistoryAsked,
  type HistoryPage,
  type LeasesAsOf,
  type Moment,
  type Range,
  readAddressHistory,
  readBounds,
  readExplanation,
  readLeaseHistory,
  readLeasesAsOf,
} from './read-audit.ts'
import { type EventFilter, type EventPage, readEvents } from './read-events.ts'
import {
  type LeaseFilter,
  type LeaseFound,
  type LeasePage,
  readLeaseAt,
  readLeaseByToken,
  readLeases,
} from './read-leases.ts'
import { type NetworkAt, type PoolsAt, readNetworks, readPools } from './read-pools.ts'
import { type Recovery, readRecovery } from './read-recovery.ts'
import { type VerifiedBriefly, verifyBriefly } from './verify-briefly.ts'

export type RequestFound = {
  readonly method: string
  readonly at: number
  readonly seq: number
  readonly answer: Answer
}

export type Reads = {
  /** Whether there is a database, and what is wrong with it. */
  condition(): Promise<Condition>
  networks(filter: Parameters<typeof readNetworks>[1]): Promise<readonly NetworkAt[]>
  /** Null here and below: there is no such network. */
  network(name: string): Promise<NetworkAt | null>
  /** Null: it does not recover. */
  recovery(network: string): Promise<Recovery | null>
  pools(network: string, filter: Parameters<typeof readPools>[2]): Promise<PoolsAt | null>
  leaseByToken(network: string, token: number): Promise<LeaseFound | null>
  leaseAt(network: string, address: IpAddress): Promise<LeaseFound | null>
  leases(
    network: string,
    filter: LeaseFilter,
    page: { readonly after: string | null; readonly size: number },
  ): Promise<LeasePage | null>
  events(
    network: string,
    filter: EventFilter,
    page: { readonly descending: boolean; readonly size: number },
  ): Promise<EventPage | null>
  addressHistory(network: string, cidr: Cidr, range: Range, asked: HistoryAsked): Promise<HistoryPage | null>
  /** Undefined: no lease has this token. */
  leaseHistory(network: string, token: number, asked: HistoryAsked): Promise<HistoryPage | undefined | null>
  leasesAsOf(network: string, moment: Moment, asked: AsOfAsked): Promise<LeasesAsOf | Beyond | null>
  explanation(network: string, address: IpAddress, moment: Moment): Promise<Explained | Beyond | null>
  /** One network at a time; whoever asks for the same shares the answer. */
  verification(network: string): Promise<VerifiedBriefly | 'busy' | null>
  /** The numbers between two times, both ends of which are exclusive. */
  between(network: string, times: Pick<Range, 'from' | 'to'>): Promise<Bounds | null>
  /** `found` is null when the id was never committed, or too long ago. */
  request(network: string, requestId: string): Promise<{ readonly found: RequestFound | null } | null>
}

export type Condition = {
  /** How many were applied. */
  readonly migrations: number
  /** Networks that reserve nothing. */
  readonly recovering: number
  readonly rebuilding: number
}

/** The database did not answer, or said that it cannot now. Nothing is known to be wrong with the question. */
export class ReadsUnavailable extends Error {
  override readonly name = 'ReadsUnavailable'
}

/** @throws ReadsUnavailable where it is the database's fault that there is no answer */
export async function asking<T>(question: Promise<T>): Promise<T> {
  try {
    return await question
  } catch (error) {
    if (isUnavailable(error)) {
      throw new ReadsUnavailable('the database does not answer', { cause: error })
    }
    throw error
  }
}

/** The pool stays the caller's: closing it ends the reads. */
export function createReads(pool: pg.Pool): Reads {
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: impatient(pool) }) })
  let verifying: { readonly network: string; readonly run: Promise<VerifiedBriefly | null> } | undefined

  return {
    condition: () => asking(readCondition(db)),
    networks: (filter) => asking(readNetworks(db, filter)),
    network: async (name) => {
      const found = await asking(readNetworks(db, { name, labels: {}, only: null, after: null, limit: 1 }))
      return found[0] ?? null
    },
    recovery: (network) => asking(readRecovery(db, network)),
    pools: (network, filter) => asking(readPools(db, network, filter)),
    leaseByToken: (network, token) => asking(readLeaseByToken(db, network, token)),
    leaseAt: (network, address) => asking(readLeaseAt(db, network, address)),
    leases: (network, filter, page) => asking(readLeases(db, network, filter, page)),
    events: (network, filter, page) => asking(readEvents(db, network, filter, page)),
    between: (network, times) => asking(readBounds(db, network, { afterSeq: 0, beforeSeq: null, ...times })),
    addressHistory: (network, cidr, range, asked) =>
      asking(readAddressHistory(db, network, cidr, range, asked)),
    leaseHistory: (network, token, asked) => asking(readLeaseHistory(db, network, token, asked)),
    leasesAsOf: (network, moment, asked) => asking(readLeasesAsOf(db, network, moment, asked)),
    explanation: (network, address, moment) => asking(readExplanation(db, network, address, moment)),
    verification: async (network) => {
      if (verifying !== undefined && verifying.network !== network) return 'busy'
      verifying ??= {
        network,
        run: asking(verifyOn(pool, network)).finally(() => {
          verifying = undefined
        }),
      }
      return verifying.run
    },
    request: (network, requestId) => asking(readRequest(db, network, requestId)),
  }
}

/**
 * The role's own time-out ends a statement after 5 s, but a network that went silent says nothing of it. A connection
 * that has not answered by then is given up and its place in the pool with it.
 */
const ANSWER_WITHIN_MS = 7_000

function impatient(pool: pg.Pool): PostgresPool {
  return {
    options: pool.options,
    end: () => pool.end(),
    connect: async () => {
      const client = await pool.connect()
      let silent = false
      const query = (text: string, parameters: readonly unknown[]) => {
        const { promise, reject } = Promise.withResolvers<never>()
        const timer = setTimeout(() => {
          silent = true
          reject(new Error('no answer: timeout of a read'))
        }, ANSWER_WITHIN_MS)
        return onTrip('read', 1, () => {
          const answer = client.query(text, [...parameters]).finally(() => clearTimeout(timer))
          return Promise.race([answer, promise])
        })
      }
      // Of its two signatures only this one is used here: no cursors.
      return { query: query as unknown as PostgresPoolClient['query'], release: () => client.release(silent) }
    },
  }
}

/** Many short transactions on one connection; one that failed in their midst is not given to others. */
async function verifyOn(pool: pg.Pool, network: string): Promise<VerifiedBriefly | null> {
  const client = await pool.connect()
  let failed = true
  try {
    const verified = await verifyBriefly(client, network)
    failed = false
    return verified
  } finally {
    client.release(failed)
  }
}

async function readCondition(db: Kysely<Tables>): Promise<Condition> {
  const { rows } = await sql<Condition>`
    select (select count(*) from ipledger.migration) as migrations,
      count(*) filter (where n.state = 'RECOVERING') as recovering,
      count(*) filter (where n.state = 'REBUILDING') as rebuilding
    from ipledger.network n
  `.execute(db)
  return rows[0]!
}

async function readRequest(
  db: Kysely<Tables>,
  network: string,
  requestId: string,
): Promise<{ readonly found: RequestFound | null } | null> {
  const { rows } = await sql<{
    known: boolean
    method: string | null
    at: number
    seq: number
    answer: Answer
  }>`
    select exists (select from ipledger.network where network_id = ${network}) as known,
      r.method, r.at, r.seq, r.answer
    from (select 1) one
    left join ipledger.request r on r.network_id = ${network} and r.request_id = ${requestId}
      and r.at > now() - ${POLICY.requestMemoryMs} * interval '1 millisecond'
  `.execute(db)
  const { known, method, at, seq, answer } = rows[0]!
  if (!known) return null
  return { found: method === null ? null : { method, at, seq, answer } }
}

/** SQLSTATE classes: connection, login, a database that is not ours yet, resources, an operator or a time-out, the system itself. */
const UNAVAILABLE_CLASSES: ReadonlySet<string> = new Set(['08', '28', '3D', '53', '57', '58'])
/** A standby cancels a read that stands in the way of replay; a deadlock; a lock, or a transaction, waited too long. */
const UNAVAILABLE_CODES: ReadonlySet<string> = new Set(['40001', '40P01', '55P03', '25P03'])

/** The statement was refused, and its transaction with it, or there was no connection to send it by. */
export function nothingWasDone({ cause }: ReadsUnavailable): boolean {
  if (cause instanceof pg.DatabaseError || cause instanceof AggregateError) return true
  if (!(cause instanceof Error)) return false
  const code = 'code' in cause ? String(cause.code) : ''
  return (
    ['ECONNREFUSED', 'ENOENT', 'ENOTFOUND'].includes(code) ||
    /when trying to connect|pool after calling end/.test(cause.message)
  )
}

function isUnavailable(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    const { code = '' } = error
    return UNAVAILABLE_CLASSES.has(code.slice(0, 2)) || UNAVAILABLE_CODES.has(code)
  }
  if (!(error instanceof Error)) return false
  if (error instanceof AggregateError) return true
  if ('code' in error && typeof error.code === 'string' && /^E[A-Z]+$/.test(error.code)) return true
  // pg has no codes for its own: 'Connection terminated…', 'timeout exceeded when trying to connect', 'Cannot use a pool…'.
  return /terminat|timeout|ended|closed|pool after calling end/i.test(error.message)
}
