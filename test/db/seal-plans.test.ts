/** How seals and the events they cover are found: by their numbers, on tables in whatever state (ops/decisions/0002-plans.md). */
import type pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { EXPORT_STATEMENTS } from '../../src/ledger/export-log.ts'
import { NO_DIGEST, SEAL_STATEMENTS } from '../../src/ledger/seals.ts'
import { VERIFY_SEAL_STATEMENTS } from '../../src/ledger/verify-seals.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'big'
const EVENT = { event_is_numbered_once_per_network: ['seq'] }
const HEAD = { event_is_numbered_once_per_network: [] }
const SEAL = { event_is_sealed_once: ['first_seq'] }

const STATEMENTS: Readonly<Record<string, string>> = {
  ...SEAL_STATEMENTS,
  ...Object.fromEntries(
    Object.entries(VERIFY_SEAL_STATEMENTS).map(([name, text]) => [`verify ${name}`, text]),
  ),
  ...Object.fromEntries(Object.entries(EXPORT_STATEMENTS).map(([name, text]) => [`export ${name}`, text])),
}

const CASES: Readonly<Record<string, Case>> = {
  // The last seal and the head have no number to go by.
  next: { values: [NETWORK], scans: { ...HEAD, event_is_sealed_once: [] } },
  lock: { values: [NETWORK], scans: { seal_lock_has_one_row_per_network: [] } },
  lockRow: { values: [NETWORK], scans: {} },
  seal: { values: [NETWORK, '1', '100', NO_DIGEST], scans: { ...EVENT, ...SEAL } },
  list: { values: [NETWORK, '1', '100', '500'], scans: SEAL },
  around: { values: [NETWORK, '100'], scans: SEAL },
  'verify bounds': { values: [NETWORK, '1', '1000'], scans: SEAL },
  'verify slice': { values: [NETWORK, '1', '4000'], scans: { ...EVENT, ...SEAL } },
  'verify leaves': { values: [NETWORK, '1'], scans: SEAL },
  'verify events': { values: [NETWORK, '1', '100'], scans: EVENT },
  'verify line': { values: [NETWORK, '1'], scans: EVENT },
  'verify between': { values: [NETWORK, '1', '100'], scans: EVENT },
  'verify unsealed': { values: [NETWORK, '1', '1000'], scans: EVENT },
  'verify exported': { values: [NETWORK, '{1}', '{10}', `{${NO_DIGEST}}`], scans: EVENT },
  'verify laterEra': { values: [NETWORK, '1'], scans: { event_of_shape: ['seq'] } },
  'export lines': { values: [NETWORK, '1', '100', '2000'], scans: EVENT },
  'export leaves': { values: [NETWORK, '1'], scans: SEAL },
  'export head': { values: [NETWORK], scans: HEAD },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.event (network_id, seq, type, at, actor, cause)
      select '${NETWORK}', i, 'attachment.closed', now(), 'a', 'b' from generate_series(1, 50000) i;
    insert into ipledger.seal
      select '${NETWORK}', i, i, l.leaves, ipledger.seal_digest(l.zeros, '${NETWORK}', i, i, l.leaves), l.zeros, now()
        from generate_series(1, 20000) i,
             (select decode(repeat('00', 16), 'hex') as leaves, decode('${NO_DIGEST}', 'hex') as zeros) l;
    insert into ipledger.seal_lock select 'n' || i from generate_series(1, 5000) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.event where seq > 3;
    delete from ipledger.seal where first_seq > 3;
    delete from ipledger.seal_lock where network_id > 'n1';
    analyze ipledger.event, ipledger.seal, ipledger.seal_lock`)
}

beforeAll(async () => {
  for (const table of ['event', 'seal', 'seal_lock']) {
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
  }
})

describe.each([
  { state: 'empty tables', prepare: async () => {} },
  { state: 'tables that filled since they were last analysed', prepare: fill },
  { state: 'full tables, analysed', prepare: () => admin.query('analyze') },
  { state: 'tables analysed while small and full of dead rows', prepare: thinOut },
])('$state', ({ prepare }) => {
  let service: pg.Client
  beforeAll(async () => {
    await prepare()
    service = await connect({ url: database.serviceUrl, applicationName: 'test' })
  })
  afterAll(() => service.end())

  test.each(Object.keys(STATEMENTS))('%s', async (name) => {
    const { values, scans } = CASES[name]!
    expectScans(await scansOf(service, STATEMENTS[name]!, values), scans, name, false)
  })
})
