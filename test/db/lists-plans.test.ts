/**
 * Plans of the lists of what sources see: by their keys on tables that are empty, full, or analysed while small and full
 * of dead rows (ops/decisions/0002-plans.md).
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { LIST_STATEMENTS } from '../../src/liveness/lists.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const ROWS = 100_000
const NETWORK = 'big'
const HOLD = { source_is_held_once: ['source_id'] }
const STATES = '{REGISTERED,ENABLED,RETIRED}'
const LAST = 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'
const FROM = [NETWORK, '10.0.0.9', LAST, 's1', 'k1', '1']

const CASES: Readonly<Record<keyof typeof LIST_STATEMENTS, Case>> = {
  sources: {
    values: [NETWORK, '', STATES, '101'],
    scans: { source_id_is_unique_in_its_network: ['source_id'], ...HOLD },
  },
  sourcesOfNode: {
    values: [NETWORK, '', STATES, '101', 'n1'],
    scans: { source_by_node: ['node', 'source_id'], ...HOLD },
  },
  sourceNamed: {
    values: [NETWORK, 's1'],
    scans: { source_id_is_unique_in_its_network: ['source_id'], ...HOLD },
  },
  snapshots: {
    values: [NETWORK, 's1', '0', '9007199254740991', '253402300799000', '101'],
    scans: {
      report_is_kept_once: ['source_id', 'sequence'],
      epoch_is_begun_once_per_source: ['source_id', 'epoch'],
      source_id_is_unique_in_its_network: ['source_id'],
    },
  },
  sightings: {
    values: [...FROM, 'false', '', '0', '101'],
    scans: { sighting_begins_once: ['address'] },
  },
  listed: {
    values: [...FROM, 's1', '0', '101'],
    scans: { source_lists_an_entry_once: ['source_id'] },
  },
  holds: { values: [NETWORK], scans: { source_is_held_once: [] } },
  fenced: {
    values: [NETWORK, 'n1', 'b1'],
    scans: { boot_is_fenced_once: ['node', 'boot'], lease_by_node: ['node'] },
  },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.source
      (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings,
       state, registered_at, registered_by, epoch, warm, last_sequence, size, digest, counted, streak_from, recent, partial_because)
      select '${NETWORK}', 's' || i, 'push', 'n' || i, '{pod}', '{4}', false, false, 30000, '{}', 'REGISTERED', now(), 'test',
       'e1', true, 1, 0, '', 0, 0, '[]', '{}' from generate_series(1, 2000) i;
    insert into ipledger.snapshot
      select '${NETWORK}', 's' || i % 2000, i / 2000, now() + i * interval '1 ms', 'e1', 0, 1, now(), true, false, '{}', 1, 0, 0, 1, 0, ''
        from generate_series(1, ${ROWS / 5}) i;
    insert into ipledger.sighting
      (network_id, address, source_id, entry_key, appeared_sequence, node, boot, state, live, epoch, appeared_head, appeared_at,
       last_seen_at, vanished_sequence, vanished_head, vanished_at)
      select '${NETWORK}', '10.0.0.0'::inet + i, 's' || i % 50, 'k' || i, 1, '', '', 'live', i % 3 > 0, 'e1', 1, now(),
       case i % 3 when 0 then now() end, case i % 3 when 0 then 2 end, case i % 3 when 0 then 1 end, case i % 3 when 0 then now() end
        from generate_series(1, ${ROWS}) i;
    insert into ipledger.hold select '${NETWORK}', 's' || i, i, now(), 'why', 4, 10 from generate_series(1, 500) i;
    insert into ipledger.fence select '${NETWORK}', 'n' || i % 2000, 'b' || i, i, now(), 'test', 'why' from generate_series(1, 5000) i;
    insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state, node, boot, labels, witness,
       reserved_at, owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key)
      select '${NETWORK}', '10.0.0.0'::inet + i, 32, 1, i, i, 'RESERVED', 'n' || i % 2000, 'b1', '{}', '', now(), 'pod', 'p' || i, 'p' || i, true,
       '', 'eth0', 'pod|eth0|p' || i, 'pod|eth0||p' || i from generate_series(1, ${ROWS / 2}) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.sighting where address > '10.0.0.1';
    delete from ipledger.source where source_id > 's13';
    delete from ipledger.snapshot where source_id > 's13';
    delete from ipledger.hold where source_id > 's13';
    delete from ipledger.fence where fenced_seq > 1;
    delete from ipledger.lease where fencing_token > 1;
    analyze ipledger.sighting, ipledger.source, ipledger.snapshot, ipledger.hold, ipledger.fence, ipledger.lease`)
}

beforeAll(async () => {
  for (const table of ['sighting', 'source', 'snapshot', 'hold', 'fence', 'lease']) {
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
    const found = await scansOf(service, LIST_STATEMENTS[name], values)
    // What was found is put in order of address.
    expectScans(
      found.filter((scan) => !/^CTE Scan /.test(scan)),
      scans,
      name,
      false,
    )
  })
})

test('whatever searches is explained here', () => {
  expect(Object.keys(CASES).sort()).toEqual(Object.keys(LIST_STATEMENTS).sort())
})
