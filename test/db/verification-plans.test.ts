/** How verification finds where it stands and what it found: by key, on tables in whatever state (ops/decisions/0002-plans.md). */
import type pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { FINDING_STATEMENTS } from '../../src/ledger/findings.ts'
import { VERIFICATION_STATEMENTS } from '../../src/ledger/verification.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'big'
const STATEMENTS = { ...FINDING_STATEMENTS, ...VERIFICATION_STATEMENTS }
const STANDING = { network_is_verified_once_at_a_time: [] }
const FINDINGS = { finding_is_kept_once: [] }
const HEAD = { event_is_numbered_once_per_network: [] }

const CASES: Readonly<Record<keyof typeof STATEMENTS, Case>> = {
  findingsKnown: { values: [NETWORK], scans: FINDINGS },
  findingsKeep: {
    values: [NETWORK, '{k}', '{w}', '{m}', '{10.0.0.1}', '{l}', '{p}', '{1}', '{e}', '{f}'],
    scans: {},
  },
  findingsForget: { values: [NETWORK, '0', '{a%}'], scans: FINDINGS },
  findingsStill: { values: [NETWORK, '{a%}', null], scans: FINDINGS },
  findingsAny: { values: [NETWORK], scans: FINDINGS },
  verificationBegin: { values: [NETWORK], scans: { ...HEAD, network_has_one_checkpoint: [] } },
  verificationClaim: { values: [NETWORK, 'me', 'true'], scans: STANDING },
  verificationLeave: { values: [NETWORK, 'me'], scans: STANDING },
  verificationSaveRecent: { values: [NETWORK, 'me', '1', 'true'], scans: STANDING },
  verificationSaveWhole: {
    values: [NETWORK, 'me', 'addresses', '1', '10.0.0.1', '1', '1'],
    scans: STANDING,
  },
  verificationFinish: { values: [NETWORK, 'me', '1', '1', '1'], scans: STANDING },
  verificationStretchEnd: {
    values: [NETWORK, '1', '20000'],
    scans: { event_is_numbered_once_per_network: ['seq'] },
  },
  verificationHead: { values: [NETWORK], scans: HEAD },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.event (network_id, seq, type, at, actor, cause)
      select '${NETWORK}', i, 'attachment.closed', now(), 'a', 'b' from generate_series(1, 50000) i;
    insert into ipledger.verify_finding
      select 'n' || i % 100, i, 'w', 'm', null, null, null, i, null, null, now(), now() from generate_series(1, 50000) i;
    insert into ipledger.verification
      select 'n' || i, 1, now(), 'numbers', 0, null, now(), 0, 0, null, null, null, null, '', now() from generate_series(1, 5000) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.event where seq > 3;
    delete from ipledger.verify_finding where seq > 3;
    delete from ipledger.verification where network_id > 'n1';
    analyze ipledger.event, ipledger.verify_finding, ipledger.verification`)
}

beforeAll(async () => {
  for (const table of ['event', 'verify_finding', 'verification']) {
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

  test.each(Object.keys(CASES) as (keyof typeof CASES)[])('%s', async (name) => {
    const { values, scans } = CASES[name]
    expectScans(await scansOf(service, STATEMENTS[name], values), scans, name, false)
  })
})
