/**
 * Reads of a network: SQL on the projections and the log, past the loop and its lock, on a pool of their own. A page is true
 * at the head that it says: it is one statement, or reads a part of the log that never changes. No page looks at more than
 * `MOST_EXAMINED` rows; it may then come out short, or empty, and still not be the last.
 */
import { Kysely, PostgresDialect, type PostgresPool, type PostgresPoolClient, sql } from 'kysely'
import type pg from 'pg'
import type { Answer } from '../core/command.ts'
import { POLICY } from '../core/policy.ts'
import { isAway } from '../postgres/connection-lost.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { sever } from '../postgres/pipeline.ts'
import { afterRunning } from '../time-limit.ts'
import { type Ask, asksOf, type Db, type Tables } from './pages.ts'
import { readFindings } from './read-attention.ts'
import { readLeaseAt, readLeaseByToken, readLeases } from './read-leases.ts'
import {
  readAddressHistory,
  readEvents,
  readExplanation,
  readLeaseHistory,
  readLeasesAsOf,
} from './read-log.ts'
import { readNetworks, readPools } from './read-pools.ts'
import { readFreshness, readLookUps, readSightings, readSources } from './read-sources.ts'
import { readHeads, readTail } from './read-tail.ts'
import { type Verified, verifyNetwork } from './verify.ts'

const VERIFY_MS = 5_000
/** Beside its budget a verification takes at most one slice more, and its rows. */
const VERIFY_WITHIN_MS = 4 * VERIFY_MS

/** The database did not answer, or said that it cannot now. Nothing is known to be wrong with the question. */
export class ReadsUnavailable extends Error {
  override readonly name = 'ReadsUnavailable'
}

/** Null stands for a network that does not exist. */
export type Reads = ReturnType<typeof createReads>

/** The pool stays the caller's: closing it ends the reads. */
export function createReads(pool: pg.Pool) {
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: withTimeout(pool) }) })
  const of =
    <Asked extends readonly unknown[], Found>(read: (db: Db, ...asked: Asked) => Promise<Found>) =>
    (...asked: Asked): Promise<Found> =>
      asking(read(db, ...asked))
  const ofRows = <Asked extends readonly unknown[], Found>(
    read: (ask: Ask, ...asked: Asked) => Promise<Found>,
  ) => of((db, ...asked: Asked) => read(asksOf(db), ...asked))
  const networks = of(readNetworks)
  let verifying: { readonly network: string; readonly run: Promise<Verified | null> } | undefined

  return {
    condition: of(readCondition),
    networks,
    network: async (name: string) =>
      (await networks({ labels: {}, only: [name], after: null, limit: 1 }))[0] ?? null,
    pools: of(readPools),
    leaseByToken: of(readLeaseByToken),
    leaseAt: of(readLeaseAt),
    leases: of(readLeases),
    request: of(readRequest),
    events: of(readEvents),
    addressHistory: of(readAddressHistory),
    leaseHistory: of(readLeaseHistory),
    leasesAsOf: of(readLeasesAsOf),
    heads: of(readHeads),
    tail: of(readTail),
    explanation: of(readExplanation),
    /** Verifies for at most 5 s, one network at a time; whoever asks for the same network shares the answer. */
    verification: async (network: string): Promise<Verified | 'busy' | null> => {
      if (verifying !== undefined && verifying.network !== network) return 'busy'
      verifying ??= {
        network,
        run: asking(verify(pool, network)).finally(() => {
          verifying = undefined
        }),
      }
      return verifying.run
    },
    sources: of(readSources),
    sightings: of(readSightings),
    freshness: ofRows(readFreshness),
    lookUps: ofRows(readLookUps),
    findings: ofRows(readFindings),
  }
}

/** The role's time-out ends a statement after 5 s; a database that went silent says nothing of it, so its connection is given up. */
const ANSWER_WITHIN_MS = 7_000

function withTimeout(pool: pg.Pool): PostgresPool {
  return {
    options: pool.options,
    end: () => pool.end(),
    connect: async () => {
      const client = await pool.connect()
      const inTime = afterRunning(ANSWER_WITHIN_MS, () => sever(client))
      const query = (text: string, parameters: readonly unknown[]) => client.query(text, [...parameters])
      const release = () => {
        inTime()
        client.release()
      }
      // Of its two signatures only this one is used here: no cursors.
      return { query: query as unknown as PostgresPoolClient['query'], release }
    },
  }
}

export type Condition = {
  /** Networks that are RECOVERING. */
  readonly recovering: number
  /** Networks with a hold. */
  readonly held: number
}

/** Whether there is a database, and what is wrong with it. */
async function readCondition(db: Db): Promise<Condition> {
  const { rows } = await sql<Condition>`
    select count(*) filter (where n.recovering is not null) as recovering,
      count(*) filter (where n.holds::text <> '{}') as held
    from ipledger.network n
  `.execute(db)
  return rows[0]!
}

type RequestFound = {
  readonly method: string
  readonly at: number
  readonly seq: number
  readonly answer: Answer
}

/** `found` is null when the id was never committed, or more than 24 h ago. */
async function readRequest(
  db: Db,
  network: string,
  { node, requestId }: { readonly node: string; readonly requestId: string },
): Promise<{ readonly found: RequestFound | null } | null> {
  const { rows } = await sql<RequestFound & { known: boolean }>`
    select exists (select from ipledger.network where network_id = ${network}) as known,
      r.method, r.at, r.seq, r.answer
    from (select) one
    left join ipledger.request r on r.network_id = ${network} and r.node = ${node} and r.request_id = ${requestId}
      and r.at > now() - ${POLICY.requestMemoryMs} * interval '1 millisecond'
  `.execute(db)
  const { known, method, at, seq, answer } = rows[0]!
  if (!known) return null
  return { found: method === null ? null : { method, at, seq, answer } }
}

async function verify(pool: pg.Pool, network: string): Promise<Verified | null> {
  return onConnection(
    pool,
    async (client) => {
      const known = await client.query('select from ipledger.network_lock where network_id = $1', [network])
      return known.rows.length === 0 ? null : verifyNetwork(client, network, { budgetMs: VERIFY_MS })
    },
    VERIFY_WITHIN_MS,
  )
}

/** @throws ReadsUnavailable where it is the database's fault that there is no answer */
export async function asking<T>(question: Promise<T>): Promise<T> {
  try {
    return await question
  } catch (error) {
    if (!isAway(error)) throw error
    throw new ReadsUnavailable('the database does not answer', { cause: error })
  }
}
