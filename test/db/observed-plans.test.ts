/**
 * What the gauges read, every ten seconds and in each process: by keys, on tables in whatever state
 * (ops/decisions/0002-plans.md).
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { OBSERVED_STATEMENTS } from '../../src/observed.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'big'
const EVENT = { event_is_numbered_once_per_network: [] }

const CASES: Readonly<Record<keyof typeof OBSERVED_STATEMENTS, Case>> = {
  observedNetwork: {
    values: [NETWORK],
    scans: {
      ...EVENT,
      network_name_is_unique: [],
      source_is_held_once: [],
      network_has_one_checkpoint: [],
    },
  },
  observedPools: {
    values: [NETWORK, '1000'],
    scans: {
      pool_id_is_unique_in_its_network: [],
      pool_has_one_position_per_batch: ['pool_id'],
      released_in_order_of_reuse: ['pool_id', 'available_at'],
      pool_is_sampled_once_a_minute: ['pool_id'],
    },
  },
  observedQuarantined: { values: [NETWORK], scans: { lease_by_quarantiner: [] } },
  observedSuspects: { values: [NETWORK], scans: { lookup_is_kept_once_per_lease_owner_and_source: [] } },
  observedStuck: { values: [NETWORK], scans: {} },
  observedTenure: {
    values: [NETWORK],
    scans: { ...EVENT, network_has_one_tenure_position: [] },
  },
  observedSealed: { values: [NETWORK], scans: { event_is_sealed_once: [] } },
}
/** Tables whose rows are few, or are all counted: any index will do. */
const BY_ANY_INDEX: Readonly<Partial<Record<keyof typeof CASES, readonly string[]>>> = {
  observedNetwork: ['source', 'pool', 'verify_finding'],
  observedStuck: ['stuck_item'],
  observedTenure: ['tenure_overlap', 'verify_finding'],
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.pool
      select '${NETWORK}', i, 'p' || i, i, 4, ('10.' || i || '.0.0/16')::cidr, false, '{"cooldownMs":120000}'::json, now(), now()
        from generate_series(1, 100) i;
    insert into ipledger.released_address
      (network_id, address, pool_id, prefix_length, available_at, released_seq, holder_key, removal_confirmed)
      select '${NETWORK}', '10.0.0.0'::inet + i, 1 + i % 100, 32, now() + i * interval '1 second', i, 'h' || i, true
        from generate_series(1, 50000) i;
    insert into ipledger.pool_sample
      select '${NETWORK}', 1 + i % 100, date_trunc('minute', now()) - i * interval '1 minute', 65536, 65533, 0, 0, 0, 0, 3
        from generate_series(1, 50000) i;
    insert into ipledger.pool_position (network_id, pool_id, seq, reserved, active, quarantined, released)
      select '${NETWORK}', 1 + i % 100, i, 0, 0, 0, 0 from generate_series(1, 50000) i;
    insert into ipledger.lease
      (network_id, address, prefix_length, pool_id, fencing_token, version, state, quarantine_reason, quarantined_at,
       quarantined_by, quarantine_why, node, boot, labels, witness, reserved_at)
      select '${NETWORK}', '11.0.0.0'::inet + i, 32, 1, i, i, 'QUARANTINED', 'FOREIGN', now(), 'agent', '', '', '', '{}', '', now()
        from generate_series(1, 50000) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.lease where address > '11.0.0.1';
    delete from ipledger.released_address where address > '10.0.0.1';
    delete from ipledger.pool_sample where pool_id > 1;
    delete from ipledger.pool_position where pool_id > 1;
    delete from ipledger.pool where pool_id > 3;
    analyze ipledger.lease, ipledger.released_address, ipledger.pool_sample, ipledger.pool_position, ipledger.pool`)
}

beforeAll(async () => {
  for (const table of ['lease', 'pool', 'released_address', 'pool_sample', 'pool_position']) {
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
    const found = await scansOf(service, OBSERVED_STATEMENTS[name], values)
    const ofFew = BY_ANY_INDEX[name] ?? []
    const isOfFew = (scan: string) => ofFew.some((table) => scan.includes(` ${table} `))
    for (const scan of found.filter(isOfFew)) expect(scan).toMatch(/^Index.*network_id/)
    expectScans(
      found.filter((scan) => !isOfFew(scan)),
      scans,
      name,
      true,
    )
  })
})
