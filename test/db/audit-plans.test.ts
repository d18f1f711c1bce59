/**
 * No question that names a network and an address, a lease, an owner or a time reads the log from end to end, whoever asks:
 * counted by the database while it answers, for the auditor, who has PostgreSQL's own settings, and for the service, whose
 * role pins its plans; on tables that are empty, full, and analysed while small and full of dead rows
 * (ops/decisions/0002-plans.md).
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect, connectUnchecked } from '../../src/postgres/connect.ts'
import { claim, createNetwork, createPool, owner, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'
import { filledStatement, readPages } from '../support/runbooks.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'long'
const LEASES = 20_000
/** Addresses over which they go: each was held 40 times. */
const OVER = 500
const ADDRESS = '10.0.0.77'
const EVENTS_OF_ONE = (3 * LEASES) / OVER

const CLOCK_JUMPED = readPages().find(({ path }) => path.endsWith('/clock-jumped.md'))!
/** Named in full: the service has another search path than the auditor. */
const LAST_EVENT = filledStatement(CLOCK_JUMPED.statements[0]!, { network: NETWORK }).replaceAll(
  /from (network|event)\b/g,
  'from ipledger_audit.$1',
)

/** The question, and how many rows of the log it may read in a log of 60,000: some for each event it answers with. */
const QUESTIONS = {
  who_had: [`select * from ipledger_audit.who_had('${NETWORK}', '${ADDRESS}', now() + interval '1 day')`, 50],
  'who_had long ago': [
    `select * from ipledger_audit.who_had('${NETWORK}', '${ADDRESS}', (select at from ipledger_audit.log where network_id = '${NETWORK}' and seq = 300))`,
    60,
  ],
  'who_had of a CIDR': [
    `select * from ipledger_audit.who_had('${NETWORK}', '10.0.0.64/28', now() + interval '1 day')`,
    16 * 10,
  ],
  explain_address: [
    `select * from ipledger_audit.explain_address('${NETWORK}', '${ADDRESS}', now() + interval '1 day')`,
    150,
  ],
  'explain_address of one never held': [
    `select * from ipledger_audit.explain_address('${NETWORK}', '10.9.9.9')`,
    50,
  ],
  address_history: [
    `select * from ipledger_audit.address_history('${NETWORK}', '${ADDRESS}')`,
    5 * EVENTS_OF_ONE,
  ],
  'address_history of an hour long ago': [
    `select * from ipledger_audit.address_history('${NETWORK}', '${ADDRESS}', '2001-01-01', '2001-01-02')`,
    50,
  ],
  lease_history: [`select * from ipledger_audit.lease_history('${NETWORK}/3')`, 40],
  owner_history: [`select * from ipledger_audit.owner_history('${NETWORK}', 'ns/w7')`, 40],
  'owner_history of one who never was': [
    `select * from ipledger_audit.owner_history('${NETWORK}', 'nobody')`,
    10,
  ],
  reaps: [`select * from ipledger_audit.reaps('-infinity', 'infinity')`, 50],
  'event by number': [
    `select what from ipledger_audit.event where network = '${NETWORK}' and seq = 4711`,
    10,
  ],
  'event by time': [
    `select what from ipledger_audit.event where network = '${NETWORK}' and at > now() + interval '1 day'`,
    10,
  ],
  position_at: [`select ipledger_audit.position_at('${NETWORK}', now() - interval '1 day')`, 10],
  churn: [`select * from ipledger_audit.churn('2001-01-01', '2001-01-02')`, 10],
  event_rate: [`select * from ipledger_audit.event_rate('2001-01-01', '2001-01-02')`, 10],
  conflicts: ['select * from ipledger_audit.conflicts', 10],
  quarantines: ['select * from ipledger_audit.quarantines', 10],
  pool_usage_history: [
    `select * from ipledger_audit.pool_usage_history('${NETWORK}', 'long', '-infinity', 'infinity')`,
    10,
  ],
  pool_usage: ['select * from ipledger_audit.pool_usage', 0],
  pool_forecast: ['select * from ipledger_audit.pool_forecast', 0],
  sources: ['select * from ipledger_audit.sources', 0],
  suspects: ['select * from ipledger_audit.suspects', 0],
  stuck: ['select * from ipledger_audit.stuck', 0],
  network: ['select * from ipledger_audit.network', 10],
  'the last event, as the page clock-jumped asks for it': [LAST_EVENT, 10],
} as const satisfies Readonly<Record<string, readonly [string, number]>>

type Read = Readonly<{ scans: number; read: number }>

/** The counters of a session go on until it reports them: what is told is the difference. */
async function counted(client: pg.Client): Promise<Read> {
  const { rows } = await client.query<Read>(
    `select s.seq_scan as scans, s.seq_tup_read + s.idx_tup_fetch as read
       from pg_stat_xact_all_tables s where s.schemaname = 'ipledger' and s.relname = 'event'`,
  )
  return rows[0]!
}

async function readsOf(client: pg.Client, question: string): Promise<Read & { readonly rows: number }> {
  await client.query('begin')
  try {
    const before = await counted(client)
    const { rowCount } = await client.query(question)
    const after = await counted(client)
    return { scans: after.scans - before.scans, read: after.read - before.read, rows: rowCount! }
  } finally {
    await client.query('rollback')
  }
}

async function fill(): Promise<void> {
  await writeLongLog(database, ledger, NETWORK, { leases: LEASES, held: OVER, over: OVER })
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

const NEARLY_EMPTY = 'a log that is nearly empty'

describe.each([
  { state: NEARLY_EMPTY, prepare: async () => {}, full: false },
  { state: 'a long log', prepare: fill, full: true },
  { state: 'a long log, analysed', prepare: () => admin.query('analyze'), full: true },
  { state: 'a log analysed while small and full of dead rows', prepare: thinOut, full: false },
])('$state', ({ state, prepare, full }) => {
  const clients: Record<string, pg.Client> = {}
  beforeAll(async () => {
    await prepare()
    for (const [who, url] of Object.entries({ auditor: database.auditorUrl, service: database.serviceUrl }))
      clients[who] = await connectUnchecked({ url, applicationName: `test ${who}` })
  })
  afterAll(() => Promise.all(Object.values(clients).map((client) => client.end())))

  describe.each(['auditor', 'service'])('%s', (who) => {
    test.each(Object.keys(QUESTIONS) as (keyof typeof QUESTIONS)[])('%s', async (name) => {
      const [question, most] = QUESTIONS[name]
      // Plans that were kept are those of the second time.
      await readsOf(clients[who]!, question)
      const { scans, read, rows } = await readsOf(clients[who]!, question)
      // A view has no settings of its own: a log of a few pages may be read at once.
      if (state === NEARLY_EMPTY && question.startsWith('select what')) return
      expect({ scans, within: read <= most, read, rows }).toMatchObject({ scans: 0, within: true })
      if (full && name === 'address_history') expect(rows).toBe(EVENTS_OF_ONE - 1)
      if (full && name === 'who_had of a CIDR') expect(rows).toBe(16)
    })
  })
})
