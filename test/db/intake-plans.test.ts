/**
 * Plans of the intake of snapshots: like the write path's, each statement must be a look-up by its key on tables that
 * are empty, full, or analysed while small and full of dead rows (ops/decisions/0002-plans.md).
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { REGISTER_STATEMENTS } from '../../src/liveness/register.ts'
import { REPORT_STATEMENTS } from '../../src/liveness/report.ts'
import { SIGHTING_STATEMENTS } from '../../src/liveness/sightings.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const ROWS = 100_000
const NETWORK = 'big'
const SOURCE = { source_id_is_unique_in_its_network: ['source_id'] }
const LISTED = { source_lists_an_entry_once: ['source_id', 'entry_key'] }
const PART = { part_of_a_snapshot_is_kept_once: ['source_id', 'begun_at'] }
const EPOCH = { epoch_is_begun_once_per_source: ['source_id', 'epoch'] }
const WAITING = { lookup_waits_for_its_source: ['source_id'] }
const LOOKUP = { lookup_is_kept_once_per_lease_owner_and_source: ['source_id', 'fencing_token'] }
const EVENT = { event_is_numbered_once_per_network: [] }
const DECLARED = ['push', '', '{pod}', '{4,6}', 'true', 'false', '30000', '{}', 'test']

const STATEMENTS = { ...REPORT_STATEMENTS, ...SIGHTING_STATEMENTS, ...REGISTER_STATEMENTS }

/** Inserts find what they conflict with by the arbiter; only the statements that search are listed. */
const CASES: Readonly<Partial<Record<keyof typeof STATEMENTS, Case>>> = {
  ground: {
    values: [NETWORK],
    // All pools of the network are asked for the shortest cooldown.
    scans: { network_name_is_unique: [], ...EVENT, pool_id_is_unique_in_its_network: [] },
  },
  key: { values: [NETWORK], scans: { network_has_one_signing_key: [] } },
  source: { values: [NETWORK, 's1'], scans: SOURCE },
  lockSource: { values: [NETWORK, 's1'], scans: SOURCE },
  lockSources: { values: [NETWORK, '{s1,s2}'], scans: SOURCE },
  marks: {
    values: [NETWORK, '{s1,s2}', '{e1,e1}'],
    scans: { ...SOURCE, boot_is_fenced_once: ['node', 'boot'] },
  },
  epoch: { values: [NETWORK, 's1', 'e1'], scans: EPOCH },
  fence: {
    values: [NETWORK, 's1', 'e1'],
    scans: { ...SOURCE, boot_is_fenced_once: ['node', 'boot'] },
  },
  closeEpoch: { values: [NETWORK, 's1', 'e1', '1700000000000', 'e2'], scans: EPOCH },
  updateStanding: {
    values: [
      ...[NETWORK, 's1', 'e1', '1', 'true', null, null, null, '0', '1', '1', '1', '1', '1', '1', '1', 'd'],
      ...['1', '1', '[]', null, '{}'],
    ],
    scans: SOURCE,
  },
  updateStandings: {
    values: [
      ...[NETWORK, '{s1,s2}', '{e1,e1}', '{1,1}', '{true,true}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}'],
      ...['{0,0}', '{1,1}', '{1,1}', '{1,1}', '{1,1}', '{1,1}', '{1,1}', '{1,1}', '{d,d}', '{1,1}', '{1,1}'],
      ...['{"[]","[]"}', '{NULL,NULL}', '{"",""}'],
    ],
    scans: SOURCE,
    byRowId: 'source',
  },
  partKeys: { values: [NETWORK, 's1', '1700000000000', '0'], scans: PART },
  partEntries: { values: [NETWORK, 's1', '1700000000000', '0'], scans: PART },
  dropOlderParts: {
    values: [NETWORK, 's1', '1700000000000'],
    scans: PART,
    byRowId: 'snapshot_part',
  },
  dropParts: { values: [NETWORK, 's1', '1700000000000'], scans: PART, byRowId: 'snapshot_part' },
  waiting: { values: [NETWORK, 's1'], scans: WAITING },
  allWaiting: { values: [NETWORK, '{s1,s2}'], scans: WAITING },
  asked: { values: [NETWORK, 's1', '{1,2}', '1700000000000'], scans: LOOKUP, byRowId: 'lookup' },
  answered: {
    values: [NETWORK, 's1', 'e1', '{1,2}', '{a,b}', '{1,2}', '{1,2}', '{gone,live}', '{NULL,NULL}', '{a,b}'],
    scans: LOOKUP,
    byRowId: 'lookup',
  },
  listed: { values: [NETWORK, 's1', '', '5000'], scans: LISTED },
  listedKeys: { values: [NETWORK, 's1', '', '5000'], scans: LISTED },
  known: { values: [NETWORK, 's1', '{a,b}'], scans: LISTED },
  vanish: {
    values: [NETWORK, 's1', '{a,b}', '2', '1', '1700000000000', '1700000000000', '1700000000000', 'e1'],
    scans: LISTED,
    byRowId: 'sighting',
  },
  find: { values: [NETWORK, 's1'], scans: SOURCE },
  looksAtTheSame: { values: [NETWORK, 's1', 'push', '', '{}'], scans: SOURCE },
  redeclare: { values: [NETWORK, 's1', ...DECLARED], scans: SOURCE },
  enable: { values: [NETWORK, 's1', 'test'], scans: { ...SOURCE, ...EVENT } },
  retire: { values: [NETWORK, 's1', 'test'], scans: SOURCE },
  retiredListing: {
    values: [NETWORK, 's1'],
    scans: { ...SOURCE, source_lists_an_entry_once: ['source_id'] },
  },
  headThen: { values: [NETWORK, '1700000000000'], scans: { event_by_time: ['at'] } },
  list: { values: [NETWORK, '', '100'], scans: SOURCE },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.network values ('${NETWORK}', '', '{}', 'READY', 0, 1, now(), now());
    insert into ipledger.pool
      select '${NETWORK}', i, 'p' || i, i, 4, ('10.' || i || '.0.0/16')::cidr, false, '{"cooldownMs":120000}', now(), now()
        from generate_series(1, 100) i;
    insert into ipledger.event (network_id, seq, type, at, actor, cause)
      select '${NETWORK}', i, 'network.updated', now(), 'test', 'test' from generate_series(1, ${ROWS}) i;
    insert into ipledger.signing_key select 'n' || i, repeat('A', 43), now() from generate_series(1, 100) i;
    insert into ipledger.source
      (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings,
       state, registered_at, registered_by, epoch, warm, last_sequence, size, digest, counted, streak_from, recent, partial_because)
      select '${NETWORK}', 's' || i, 'push', 'n' || i, '{pod}', '{4}', false, false, 30000, '{}', 'REGISTERED', now(), 'test',
       'e1', true, 1, 0, '', 0, 0, '[]', '{}' from generate_series(1, 2000) i;
    insert into ipledger.source_epoch
      select '${NETWORK}', 's' || i % 2000, 'e' || i / 2000, now(), 1, 1, null, null from generate_series(1, ${ROWS / 10}) i;
    insert into ipledger.snapshot
      select '${NETWORK}', 's' || i % 2000, i / 2000, now() + i * interval '1 ms', 'e1', 0, 1, now(), true, false, '{}', 1, 0, 0, 1, 0, ''
        from generate_series(1, ${ROWS / 5}) i;
    insert into ipledger.snapshot_part
      select '${NETWORK}', 's' || i % 20, now() + i % 7 * interval '1 ms', i, now(), 'e1', '[]', 1, '', 0, 0
        from generate_series(1, ${ROWS / 50}) i;
    insert into ipledger.sighting
      (network_id, address, source_id, entry_key, appeared_sequence, node, boot, state, live, epoch, appeared_head, appeared_at,
       last_seen_at, vanished_sequence, vanished_head, vanished_at)
      select '${NETWORK}', '10.0.0.0'::inet + i, 's' || i % 50, 'k' || i, 1, '', '', 'live', i % 3 > 0, 'e1', 1, now(),
       case i % 3 when 0 then now() end, case i % 3 when 0 then 2 end, case i % 3 when 0 then 1 end, case i % 3 when 0 then now() end
        from generate_series(1, ${ROWS}) i;
    insert into ipledger.lookup
      (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid, owner_uid_named,
       owner_incarnation, owner_interface, node, wanted_at, epoch, detail, attempts)
      select '${NETWORK}', 's' || i % 50, i, 'a' || i, i, '10.0.0.0'::inet + i, 'pod', 'x', 'x', false, '', 'eth0', '', now(), '', '', 0
        from generate_series(1, ${ROWS / 5}) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.sighting where address > '10.0.0.1';
    delete from ipledger.lookup where fencing_token > 1;
    delete from ipledger.source where source_id > 's13';
    delete from ipledger.source_epoch where source_id > 's13';
    delete from ipledger.snapshot where source_id > 's13';
    delete from ipledger.snapshot_part where part > 1;
    delete from ipledger.pool where pool_id > 3;
    analyze ipledger.sighting, ipledger.lookup, ipledger.source, ipledger.source_epoch, ipledger.snapshot, ipledger.snapshot_part,
      ipledger.pool, ipledger.network, ipledger.signing_key`)
}

beforeAll(async () => {
  for (const table of [
    ...['sighting', 'lookup', 'source', 'source_epoch', 'snapshot', 'snapshot_part', 'signing_key'],
    ...['pool', 'network', 'event'],
  ]) {
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
  }
})

const STATES = [
  { state: 'empty tables', prepare: async () => {}, fewPools: true },
  { state: 'tables that filled since they were last analysed', prepare: fill, fewPools: true },
  { state: 'full tables, analysed', prepare: () => admin.query('analyze'), fewPools: true },
  { state: 'tables analysed while small and full of dead rows', prepare: thinOut, fewPools: true },
] as const

describe.each(STATES)('$state', ({ prepare, fewPools }) => {
  let service: pg.Client
  beforeAll(async () => {
    await prepare()
    service = await connect({ url: database.serviceUrl, applicationName: 'test' })
  })
  afterAll(() => service.end())

  test.each(Object.keys(CASES) as (keyof typeof CASES)[])('%s', async (name) => {
    const { values, scans, byRowId } = CASES[name]!
    // Rows found by their key are changed where they lie.
    const found = (await scansOf(service, STATEMENTS[name], values)).filter(
      (one) => !one.startsWith(`Tid Scan ${byRowId} `),
    )
    expectScans(found, scans, name, fewPools)
  })
})

test('whatever searches is explained here', () => {
  const searching = Object.entries(STATEMENTS).filter(([, text]) => /^\s*(select|update|delete)/.test(text))
  expect(Object.keys(CASES).sort()).toEqual(searching.map(([name]) => name).sort())
})
