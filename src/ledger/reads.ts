/**
 * Reads of a network: SQL on the projections and the log, past the loop and its lock, on a pool of their own. A page is true
 * at the head that it says: it is one statement, or reads a part of the log that never changes. No page looks at more than
 * `MOST_EXAMINED` rows; it may then come out short, or empty, and still not be the last.
 */
import { Kysely, PostgresDialect, type PostgresPool, type PostgresPoolClient, sql } from 'kysely'
import type pg from 'pg'
import { POLICY } from '../core/policy.ts'
import { place } from '../postgres/connect.ts'
import { isAway } from '../postgres/connection-lost.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { sever } from '../postgres/pipeline.ts'
import { afterRunning } from '../time-limit.ts'
import type { RequestRow } from './log.ts'
import { readFindings } from './read-attention.ts'
import { asksOf, type Db } from './read-db.ts'
import { readLeaseAt, readLeaseByToken, readLeases } from './read-leases.ts'
import {
  readAddressHistory,
  readEvents,
  readExplanation,
  readLeaseHistory,
  readLeasesAsOf,
} from './read-log.ts'
import { readAddressMap } from './read-map.ts'
import { readNamed } from './read-matches.ts'
import { type NetworkAt, readNetworks, readPools, readTrends } from './read-pools.ts'
import { readFreshness, readLookUps, readSightings, readSources } from './read-sources.ts'
import { readHeads, readTail } from './read-tail.ts'
import { type Verified, verifyNetwork } from './verify.ts'

const VERIFY_MS = 5_000
/** Beside its budget a verification takes at most one slice more, and its rows. */
const VERIFY_WITHIN_MS = 4 * VERIFY_MS

/** The database did not answer, or cannot answer now. */
export class ReadsUnavailable extends Error {
  override readonly name = 'ReadsUnavailable'
}

/** Null stands for a network that does not exist. The pool stays the caller's: closing it ends the reads. */
export class Reads {
  readonly #pool: pg.Pool
  readonly #db: Db
  #verifying: { readonly network: string; readonly run: Promise<Verified | null> } | undefined

  constructor(pool: pg.Pool) {
    this.#pool = pool
    this.#db = new Kysely({ dialect: new PostgresDialect({ pool: withTimeout(pool) }) })
  }

  readonly condition = this.#of(readCondition)
  readonly #about = this.#of(readAbout)
  readonly networks = this.#of(readNetworks)
  readonly pools = this.#of(readPools)
  readonly trends = this.#of(readTrends)
  readonly leaseByToken = this.#of(readLeaseByToken)
  readonly leaseAt = this.#of(readLeaseAt)
  readonly leases = this.#of(readLeases)
  readonly request = this.#of(readRequest)
  readonly events = this.#of(readEvents)
  readonly addressHistory = this.#of(readAddressHistory)
  readonly leaseHistory = this.#of(readLeaseHistory)
  readonly leasesAsOf = this.#of(readLeasesAsOf)
  readonly heads = this.#of(readHeads)
  readonly tail = this.#of(readTail)
  readonly explanation = this.#of(readExplanation)
  readonly addressMap = this.#of(readAddressMap)
  readonly named = this.#of(readNamed)
  readonly sources = this.#of(readSources)
  readonly sightings = this.#of(readSightings)
  readonly freshness = this.#of((db, network: string) => readFreshness(asksOf(db), network))
  readonly findings = this.#of((db, network: string) => readFindings(asksOf(db), network))
  readonly lookUps = this.#of((db, network: string, addresses: readonly string[]) =>
    readLookUps(asksOf(db), network, addresses),
  )

  async network(name: string): Promise<NetworkAt | null> {
    return (await this.networks({ labels: {}, only: [name], after: null, limit: 1 }))[0] ?? null
  }

  /** Where the database is, without a login; PostgreSQL's version; the newest migration. */
  async database(): Promise<{ readonly place: string; readonly version: string; readonly schema: string }> {
    return { place: place(this.#pool.options.connectionString!), ...(await this.#about()) }
  }

  /** Verifies for at most 5 s, one network at a time; callers that ask for the same network share the answer. */
  async verification(network: string): Promise<Verified | 'busy' | null> {
    if (this.#verifying !== undefined && this.#verifying.network !== network) return 'busy'
    const begin = () => onConnection(this.#pool, (client) => verify(client, network), VERIFY_WITHIN_MS)
    this.#verifying ??= {
      network,
      run: asking(begin()).finally(() => {
        this.#verifying = undefined
      }),
    }
    return this.#verifying.run
  }

  #of<Args extends readonly unknown[], Found>(read: (db: Db, ...args: Args) => Promise<Found>) {
    return (...args: Args): Promise<Found> => asking(read(this.#db, ...args))
  }
}

/** The role's time-out ends a statement after 5 s. A silent database cannot report that, so its connection is severed. */
const ANSWER_WITHIN_MS = 7_000

function withTimeout(pool: pg.Pool): PostgresPool {
  return {
    options: pool.options,
    end: () => pool.end(),
    async connect() {
      const client = await pool.connect()
      const inTime = afterRunning(ANSWER_WITHIN_MS, () => sever(client))
      return {
        // Of its two signatures only the one without cursors is used.
        query: client.query.bind(client) as unknown as PostgresPoolClient['query'],
        release() {
          inTime()
          client.release()
        },
      }
    },
  }
}

/** How many networks are RECOVERING, and how many have a hold. */
export type Condition = { readonly recovering: number; readonly held: number }

/** Whether the database answers, and what is wrong with its networks. */
async function readCondition(db: Db): Promise<Condition> {
  const { rows } = await sql<Condition>`
    select count(*) filter (where n.recovering is not null) as recovering,
      count(*) filter (where n.holds::text <> '{}') as held
    from ipledger.network n
  `.execute(db)
  return rows[0]!
}

async function readAbout(db: Db) {
  const { rows } = await sql<{ readonly version: string; readonly schema: string }>`
    select current_setting('server_version') as version, (select max(m.name) from ipledger.migration m) as schema
  `.execute(db)
  return rows[0]!
}

type RequestFound = Pick<RequestRow, 'method' | 'at' | 'seq' | 'answer'>

/** `found` is null when the id was never committed, or more than 24 h ago. */
async function readRequest(
  db: Db,
  network: string,
  { node, requestId }: { readonly node: string; readonly requestId: string },
): Promise<{ readonly found: RequestFound | null } | null> {
  const { rows } = await sql<RequestFound | { method: null }>`
    select r.method, r.at, r.seq, r.answer from ipledger.network n
    left join ipledger.request r on r.network_id = n.network_id and r.node = ${node} and r.request_id = ${requestId}
      and r.at > now() - ${POLICY.requestMemoryMs} * interval '1 millisecond'
    where n.network_id = ${network}
  `.execute(db)
  const [found] = rows
  if (found === undefined) return null
  return { found: found.method === null ? null : found }
}

async function verify(client: pg.PoolClient, network: string): Promise<Verified | null> {
  const known = await client.query('select from ipledger.network_lock where network_id = $1', [network])
  return known.rows.length === 0 ? null : verifyNetwork(client, network, { budgetMs: VERIFY_MS })
}

/** @throws ReadsUnavailable when the database cannot answer */
export async function asking<T>(question: Promise<T>): Promise<T> {
  try {
    return await question
  } catch (error) {
    if (!isAway(error)) throw error
    throw new ReadsUnavailable('the database does not answer', { cause: error })
  }
}
