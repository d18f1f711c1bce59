/**
 * What AuditService asks reads by keys and no more than its pages need: counted by the database while it answers, with
 * the settings of the service's role, on a log that is nearly empty, long, and analysed while small and full of dead
 * rows (ops/decisions/0002-plans.md).
 */
import { Kysely, PostgresDialect } from 'kysely'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Cidr, isMalformed, parseAddress, parseCidr } from '../../src/core/address.ts'
import {
  type HistoryAsked,
  MOST_MERGED,
  type Range,
  readAddressHistory,
  readBounds,
  readExplanation,
  readLeaseHistory,
  readLeasesAsOf,
} from '../../src/ledger/read-audit.ts'
import { connect } from '../../src/postgres/connect.ts'
import type { Tables } from '../../src/postgres/tables.ts'
import { claim, createNetwork, createPool, owner, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'long'
const LEASES = 40_000
/** Addresses over which they go: each was held 10 times. */
const OVER = 4_000
const EVENTS = 3 * LEASES
const EVENTS_OF_ONE = EVENTS / OVER

/** Blocks that hold an address could begin at some before it, which were held as well. */
const AROUND = 5 * EVENTS_OF_ONE

const all: Range = { afterSeq: 0, beforeSeq: null, from: null, to: null }
const page = (more: Partial<HistoryAsked> = {}): HistoryAsked => ({
  descending: false,
  size: 10,
  position: null,
  ...more,
})
const now = { seq: null, at: null }

function cidr(text: string): Cidr {
  const found = parseCidr(text)
  if (isMalformed(found)) throw new Error(found.malformed)
  return found
}

function address(text: string) {
  const found = parseAddress(text)
  if (isMalformed(found)) throw new Error(found.malformed)
  return found
}

type Ask = (db: Kysely<Tables>) => Promise<unknown>
const history = (text: string, range: Partial<Range> = {}, asked: Partial<HistoryAsked> = {}): Ask => {
  return (db) => readAddressHistory(db, NETWORK, cidr(text), { ...all, ...range }, page(asked))
}

/** The question, and how many rows of a log of 120,000 it may read. */
const QUESTIONS: Readonly<Record<string, readonly [Ask, number]>> = {
  'history of an address': [history('10.0.0.77/32'), AROUND + 120],
  'its newest page': [history('10.0.0.77/32', {}, { descending: true }), AROUND + 120],
  'its page in the midst': [history('10.0.0.77/32', {}, { position: 55_000 }), 120],
  'of a few numbers': [history('10.0.0.77/32', { afterSeq: 300, beforeSeq: 330 }), 60],
  'of an hour long ago': [history('10.0.0.77/32', { from: 0, to: 3_600_000 }), 60],
  'of one never held': [history('10.9.9.9/32'), 60],
  'of a CIDR': [history('10.0.0.64/28'), 16 * EVENTS_OF_ONE + 300],
  // Each address its share of 10,000, then those that held before.
  'of a CIDR as wide as is merged': [history('10.0.0.0/23'), 14_000],
  'of one that is walked': [history('10.0.0.0/8', { afterSeq: 40_000 }), 300],
  'of a lease': [(db) => readLeaseHistory(db, NETWORK, 3, page()), 60],
  'of a lease that never was': [(db) => readLeaseHistory(db, NETWORK, 1, page()), 10],
  'numbers of times': [(db) => readBounds(db, NETWORK, { ...all, from: 1_000, to: Date.now() }), 10],
  'why an address is as it is': [(db) => readExplanation(db, NETWORK, address('10.0.0.77'), now), 150],
  'leases as of an early number': [
    (db) => readLeasesAsOf(db, NETWORK, { seq: 300, at: null }, { pool: null, after: null, size: 10 }),
    600,
  ],
}

/** Probes: looks at an index; of those that an index answers alone the rows do not count as read. */
type Read = Readonly<{ scans: number; probes: number; read: number }>

/** The counters of a session go on until it reports them: what is told is the difference. */
async function counted(client: pg.Client): Promise<Read> {
  const { rows } = await client.query<Read>(
    `select s.seq_scan as scans, s.idx_scan as probes, s.seq_tup_read + s.idx_tup_fetch as read
       from pg_stat_xact_all_tables s where s.schemaname = 'ipledger' and s.relname = 'event'`,
  )
  return rows[0]!
}

async function readsOf(client: pg.Client, db: Kysely<Tables>, ask: Ask): Promise<Read> {
  await client.query('begin')
  try {
    const before = await counted(client)
    await ask(db)
    const after = await counted(client)
    return {
      scans: after.scans - before.scans,
      probes: after.probes - before.probes,
      read: after.read - before.read,
    }
  } finally {
    await client.query('rollback')
  }
}

/** Everything that is asked goes over this one connection. */
function over(client: pg.Client): Kysely<Tables> {
  const connection = { query: client.query.bind(client), release: () => {} }
  return new Kysely<Tables>({
    dialect: new PostgresDialect({
      pool: { options: {}, connect: async () => connection as never, end: async () => {} },
    }),
  })
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(
    `delete from ipledger.event where network_id = '${NETWORK}' and seq > 20; analyze ipledger.event`,
  )
}

beforeAll(async () => {
  await admin.query('alter table ipledger.event set (autovacuum_enabled = false)')
  await ledger.accept(createNetwork())
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }))
  await ledger.take(reserve({ owner: owner({ name: 'x' }), claims: [claim({ pool: 'a' })] }))
})

describe.each([
  { state: 'a log that is nearly empty', prepare: async () => {} },
  {
    state: 'a long log',
    prepare: () => writeLongLog(database, ledger, NETWORK, { leases: LEASES, held: OVER, over: OVER }),
  },
  { state: 'a long log, analysed', prepare: () => admin.query('analyze') },
  { state: 'a log analysed while small and full of dead rows', prepare: thinOut },
])('$state', ({ prepare }) => {
  let client: pg.Client
  let db: Kysely<Tables>
  beforeAll(async () => {
    await prepare()
    client = await connect({ url: database.serviceUrl, applicationName: 'test' })
    db = over(client)
  })
  afterAll(() => client.end())

  test.each(Object.keys(QUESTIONS))('%s', async (name) => {
    const [ask, most] = QUESTIONS[name]!
    await readsOf(client, db, ask)
    const { scans, probes, read } = await readsOf(client, db, ask)
    const within = read <= most && probes <= most + MOST_MERGED + 300
    expect({ scans, within, probes, read }).toMatchObject({ scans: 0, within: true })
  })
})
