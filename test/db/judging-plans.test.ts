/**
 * Plans of what judges and what is pruned: each statement must be a look-up by its key, or a walk along one, on tables
 * that are empty, full, or analysed while small and full of dead rows (ops/decisions/0002-plans.md).
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { OBSERVE_STATEMENTS } from '../../src/jobs/observe-pools.ts'
import { statementsOf } from '../../src/jobs/prune.ts'
import { OBSERVATIONS, RETIRED_TURNS } from '../../src/jobs/prune-observations.ts'
import { ERA_STATEMENTS } from '../../src/ledger/eras.ts'
import { EVIDENCE_STATEMENTS } from '../../src/liveness/evidence.ts'
import { PLAN_STATEMENTS } from '../../src/liveness/plan.ts'
import { SIGHTED_STATEMENTS } from '../../src/liveness/sighted.ts'
import { STUCK_STATEMENTS } from '../../src/liveness/stuck.ts'
import { SUSPECT_STATEMENTS } from '../../src/liveness/suspects.ts'
import { UNCOVERED_STATEMENTS } from '../../src/liveness/uncovered.ts'
import { UNKNOWN_STATEMENTS } from '../../src/liveness/unknown-sources.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const ROWS = 50_000
const NETWORK = 'big'
const HIGHEST = 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'
const T = '1700000000000'

const NETWORK_ROW = { network_name_is_unique: [] }
const SOURCE = { source_id_is_unique_in_its_network: ['source_id'] }
const SOURCE_BY_NODE = { source_by_node: ['node'] }
const EVENT = { event_is_numbered_once_per_network: [] }
const LEASE = { address_has_one_lease: ['address'] }
const LEASE_BY_TOKEN = { lease_by_token: ['fencing_token'] }
const LIVE = { sighting_live: ['address'] }
const LOOKUP = { lookup_is_kept_once_per_lease_owner_and_source: ['source_id'] }
const POOL = { pool_id_is_unique_in_its_network: ['pool_id'] }
const POOL_BY_CIDR = { pools_of_a_network_never_overlap: ['cidr'] }
const FENCE = { boot_is_fenced_once: ['node', 'boot'] }
const RELEASED = { address_is_released_once: ['address'] }

const PAGE = [NETWORK, '10.0.0.0', HIGHEST]

const STATEMENTS: Readonly<Record<string, string>> = {
  ...EVIDENCE_STATEMENTS,
  ...SIGHTED_STATEMENTS,
  ...SUSPECT_STATEMENTS,
  ...PLAN_STATEMENTS,
  ...STUCK_STATEMENTS,
  ...OBSERVE_STATEMENTS,
  ...UNCOVERED_STATEMENTS,
  ...UNKNOWN_STATEMENTS,
  ...ERA_STATEMENTS,
  turnsRetired: RETIRED_TURNS,
  ...Object.fromEntries(
    Object.entries(OBSERVATIONS).flatMap(([what, observations]) => {
      const { bound, prune } = statementsOf(observations)
      return [
        [`${what}Bound`, bound],
        [`${what}Prune`, prune],
      ]
    }),
  ),
}

const CASES: Readonly<Record<string, Case>> = {
  evidenceGround: { values: [NETWORK], scans: { ...NETWORK_ROW, ...EVENT } },
  evidenceSighted: {
    values: [NETWORK, '{0,1}', '{10.0.0.1,10.0.0.2}', '{10.0.0.1,10.0.0.2}'],
    scans: { sighting_begins_once: ['address'] },
  },
  evidenceFences: {
    values: [NETWORK, '{n1}', '{b1}'],
    scans: {
      boot_is_fenced_once: ['node', 'boot'],
      ...SOURCE_BY_NODE,
      boot_is_heard_of_once_by_a_source: ['node', 'boot'],
      event_is_numbered_once_per_network: ['seq'],
    },
  },
  evidenceClosed: {
    values: [NETWORK, '{pod|eth0||w1}'],
    scans: {
      attachment_is_closed_once_per_pool: ['attachment_key'],
      lease_by_attachment: ['attachment_key'],
    },
  },
  evidenceSources: { values: [NETWORK, '{s1,s2}'], scans: SOURCE },
  evidenceCovering: { values: [NETWORK, '{n1,n2}'], scans: SOURCE_BY_NODE },
  evidenceEndedBoots: {
    values: [NETWORK, '{n1}', '{b1}'],
    scans: { ...SOURCE_BY_NODE, epoch_is_begun_once_per_source: ['source_id', 'epoch'] },
  },
  evidenceBeginnings: {
    values: [NETWORK, '{1,2}'],
    scans: { event_is_numbered_once_per_network: ['seq'] },
  },
  evidenceHolds: { values: [NETWORK, '{s1}'], scans: { source_is_held_once: ['source_id'] } },
  evidenceLookups: { values: [NETWORK, '{s1}', '{1}'], scans: { ...LOOKUP } },
  sightedBound: { values: [...PAGE, '100'], scans: LIVE },
  sightedUnbooked: { values: PAGE, scans: { ...LIVE, ...LEASE } },
  sightedUnbookedAt: { values: [NETWORK, '{10.0.0.1,10.0.0.2}'], scans: { ...LIVE, ...LEASE } },
  sightedFree: {
    values: [NETWORK, '{0}', '{10.0.0.1}', '{n1}', '{b1}'],
    scans: { ...POOL_BY_CIDR, ...RELEASED, ...EVENT, ...FENCE },
  },
  sightedSources: { values: [NETWORK, '{s1,s2}'], scans: SOURCE },
  sightedGround: { values: [NETWORK], scans: { ...NETWORK_ROW, source_by_era: [] } },
  suspectWalk: { values: [...PAGE, '100'], scans: LEASE },
  suspectUnseen: { values: [...PAGE, '100'], scans: { ...LEASE, ...LIVE } },
  suspectSetAside: { values: [...PAGE, '100'], scans: { lease_by_quarantiner: [] } },
  suspectWaiting: { values: [...PAGE, '100'], scans: { ...LEASE, ...LIVE } },
  suspectAll: { values: [...PAGE, '100'], scans: LEASE },
  suspectFences: {
    values: [NETWORK, '', ''],
    scans: { boot_is_fenced_once: ['node', 'boot'], lease_by_node: ['node'] },
  },
  suspectFenced: {
    values: [NETWORK, 'n1', 'b1', '100', '10.0.0.0', '100'],
    scans: { lease_by_node: ['node'] },
  },
  suspectAnswered: { values: [NETWORK, T, '100'], scans: { lookup_by_answer: ['answered_at'] } },
  suspectByToken: { values: [NETWORK, '{1,2}'], scans: LEASE_BY_TOKEN },
  suspectPools: { values: [NETWORK, '{1,2}'], scans: POOL },
  suspectLookupsBound: { values: [NETWORK, 's1', '1', 'a', '100'], scans: LOOKUP },
  suspectDropLookups: {
    values: [NETWORK, 's1', '1', 'a', '100'],
    scans: { ...LOOKUP, ...LEASE_BY_TOKEN, ...LIVE },
    byRowId: 'lookup',
  },
  suspectHasFences: { values: [NETWORK], scans: { boot_is_fenced_once: [] } },
  unknownList: {
    values: [NETWORK, '100'],
    scans: { ...NETWORK_ROW, ...SOURCE, unknown_source_is_kept_once: [] },
  },
  unknownForget: {
    values: [NETWORK],
    scans: { ...NETWORK_ROW, unknown_source_is_kept_once: [] },
    byRowId: 'unknown_source',
  },
  planNetwork: { values: [NETWORK], scans: { ...NETWORK_ROW, ...EVENT } },
  planPoolNamed: { values: [NETWORK, 'p1'], scans: { pool_name_is_unique_in_its_network: ['name'] } },
  planPoolAt: { values: [NETWORK, '10.0.0.1'], scans: POOL_BY_CIDR },
  stuckNetwork: {
    values: [NETWORK],
    scans: { ...NETWORK_ROW, ...EVENT, source_id_is_unique_in_its_network: [] },
  },
  stuckDifferences: { values: [NETWORK], scans: { finding_is_kept_once: [] } },
  stuckFailures: { values: [NETWORK, '{s1}'], scans: { source_is_asked_by_one_at_a_time: ['source_id'] } },
  stuckStale: { values: [NETWORK, '{s1}'], scans: { source_lists_an_entry_once: ['source_id'], ...LEASE } },
  uncoveredEverywhere: {
    values: [NETWORK, '', '{pod}', '{4}'],
    scans: { address_has_one_lease: [], ...SOURCE_BY_NODE },
  },
  uncoveredOnNode: {
    values: [NETWORK, 'n1', '{pod}', '{4}'],
    scans: { lease_by_node: ['node'], ...SOURCE_BY_NODE },
  },
  beginnings: {
    values: [NETWORK, '{1099511627776}'],
    scans: { event_is_numbered_once_per_network: ['seq'] },
  },
  turnsRetired: {
    values: [NETWORK],
    scans: { source_is_asked_by_one_at_a_time: [], ...SOURCE },
    byRowId: 'turn',
  },
  observeUsed: {
    values: [NETWORK, '0', '100'],
    scans: {
      ...POOL,
      pool_has_one_position_per_batch: ['pool_id'],
      released_in_order_of_reuse: ['pool_id', 'available_at'],
    },
  },
  snapshotsBound: { values: [NETWORK, '-infinity', '1', '10'], scans: { snapshot_by_time: ['reported_at'] } },
  snapshotsPrune: {
    values: [NETWORK, '-infinity', '1', 'infinity'],
    scans: { snapshot_by_time: ['reported_at'] },
    byRowId: 'snapshot',
  },
  sightingsBound: {
    values: [NETWORK, '-infinity', '1', '10'],
    scans: { sighting_by_its_end: ['vanished_at'] },
  },
  sightingsPrune: {
    values: [NETWORK, '-infinity', '1', 'infinity'],
    scans: {
      sighting_by_its_end: ['vanished_at'],
      sighting_begins_once: ['address', 'source_id'],
      ...LEASE,
    },
    byRowId: 'sighting',
  },
  partsBound: {
    values: [NETWORK, '-infinity', '1', '10'],
    scans: { snapshot_part_by_time: ['received_at'] },
  },
  partsPrune: {
    values: [NETWORK, '-infinity', '1', 'infinity'],
    scans: { snapshot_part_by_time: ['received_at'] },
    byRowId: 'snapshot_part',
  },
  samplesBound: { values: [NETWORK, '-infinity', '1', '10'], scans: { pool_sample_by_time: ['at'] } },
  samplesPrune: {
    values: [NETWORK, '-infinity', '1', 'infinity'],
    scans: { pool_sample_by_time: ['at'] },
    byRowId: 'pool_sample',
  },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.network (network_id, description, labels, state, era, version, created_at, updated_at)
      values ('${NETWORK}', '', '{}', 'READY', 0, 1, now(), now());
    insert into ipledger.pool
      select '${NETWORK}', i, 'p' || i, i, 4, ('10.' || i || '.0.0/16')::cidr, false, '{"cooldownMs":120000}', now(), now()
        from generate_series(1, 100) i;
    insert into ipledger.pool_position (network_id, pool_id, seq, reserved, active, quarantined, released)
      select '${NETWORK}', i % 100, i, 0, 0, 0, 0 from generate_series(1, 1000) i;
    insert into ipledger.event (network_id, seq, type, at, actor, cause)
      select '${NETWORK}', i, 'network.updated', now(), 'test', 'test' from generate_series(1, ${ROWS}) i;
    insert into ipledger.lease
      (network_id, address, prefix_length, pool_id, fencing_token, version, state, owner_kind, owner_name, owner_uid,
       owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key, node, boot, labels, witness, reserved_at)
      select '${NETWORK}', '10.0.0.0'::inet + i, 32, i % 100, i, i, 'ACTIVE', 'pod', 'w' || i, 'w' || i, false, '', 'eth0',
       'pod|eth0|w' || i, 'pod|eth0||w' || i, 'n' || i % 500, 'b1', '{}', '', now() from generate_series(1, ${ROWS}) i;
    insert into ipledger.released_address
      select '${NETWORK}', '10.8.0.0'::inet + i, i % 100, 32, now(), i, '', true from generate_series(1, ${ROWS / 5}) i;
    insert into ipledger.closed_attachment
      select '${NETWORK}', 'pod|eth0||w' || i, 0, 'pod', 'w' || i, 'w' || i, false, '', 'eth0', now(), i
        from generate_series(1, ${ROWS / 10}) i;
    insert into ipledger.source
      (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings,
       state, registered_at, registered_by, epoch, warm, last_sequence, size, digest, counted, streak_from, recent, partial_because)
      select '${NETWORK}', 's' || i, 'push', 'n' || i, '{pod}', '{4}', false, false, 30000, '{}', 'REGISTERED', now(), 'test',
       'e1', true, 1, 0, '', 0, 0, '[]', '{}' from generate_series(1, 2000) i;
    insert into ipledger.source_epoch
      select '${NETWORK}', 's' || i % 2000, 'e' || i / 2000, now(), 1, 1, null, null from generate_series(1, ${ROWS / 5}) i;
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
       owner_incarnation, owner_interface, node, wanted_at, asked_at, answered_at, answer, epoch, detail, attempts)
      select '${NETWORK}', 's' || i % 50, i, 'a' || i, i, '10.0.0.0'::inet + i, 'pod', 'x', 'x', false, '', 'eth0', '', now(),
       now(), now() + i * interval '1 ms', 'live', '', '', 0 from generate_series(1, ${ROWS / 5}) i;
    insert into ipledger.turn select '${NETWORK}', 's' || i, now(), 'test', now(), '' from generate_series(1, 2000) i;
    insert into ipledger.hold select '${NETWORK}', 's' || i, i, now(), '', 1, 1 from generate_series(1, 1000) i;
    insert into ipledger.fence select '${NETWORK}', 'n' || i, 'b' || i, i, now(), 'test', '' from generate_series(1, 1000) i;
    insert into ipledger.boot_report
      select '${NETWORK}', 'n' || i % 2000, 'b' || i / 2000, 's' || i % 2000, now() from generate_series(1, ${ROWS / 5}) i;
    insert into ipledger.unknown_source
      select '${NETWORK}', 'u' || i, 0, '', 'test', now(), now() from generate_series(1, 1000) i;
    insert into ipledger.pool_sample
      select '${NETWORK}', i % 100, now() + i * interval '1 s', 256, 254, 0, 0, 0, 0, 2 from generate_series(1, ${ROWS / 5}) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.sighting where address > '10.0.0.1';
    delete from ipledger.lookup where fencing_token > 1;
    delete from ipledger.lease where fencing_token > 1;
    delete from ipledger.released_address where released_seq > 1;
    delete from ipledger.closed_attachment where closed_seq > 1;
    delete from ipledger.source where source_id > 's13';
    delete from ipledger.source_epoch where source_id > 's13';
    delete from ipledger.snapshot where source_id > 's13';
    delete from ipledger.snapshot_part where part > 1;
    delete from ipledger.turn where source_id > 's13';
    delete from ipledger.hold where held_seq > 1;
    delete from ipledger.fence where fenced_seq > 1;
    delete from ipledger.boot_report where node > 'n13';
    delete from ipledger.unknown_source where source_id > 'u13';
    delete from ipledger.pool_sample where pool_id > 3;
    delete from ipledger.pool_position where seq > 1;
    delete from ipledger.pool where pool_id > 3;
    analyze`)
}

beforeAll(async () => {
  for (const table of [
    ...[
      'sighting',
      'lookup',
      'source',
      'source_epoch',
      'snapshot',
      'snapshot_part',
      'hold',
      'fence',
      'boot_report',
      'turn',
      'unknown_source',
    ],
    ...[
      'pool',
      'pool_position',
      'pool_sample',
      'network',
      'event',
      'lease',
      'released_address',
      'closed_attachment',
    ],
  ]) {
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
  }
})

const STATES = [
  { state: 'empty tables', prepare: async () => {} },
  { state: 'tables that filled since they were last analysed', prepare: fill },
  { state: 'full tables, analysed', prepare: () => admin.query('analyze') },
  { state: 'tables analysed while small and full of dead rows', prepare: thinOut },
] as const

describe.each(STATES)('$state', ({ prepare }) => {
  let service: pg.Client
  beforeAll(async () => {
    await prepare()
    service = await connect({ url: database.serviceUrl, applicationName: 'test' })
  })
  afterAll(() => service.end())

  test.each(Object.keys(CASES))('%s', async (name) => {
    const { values, scans, byRowId } = CASES[name]!
    // Rows found by their key are removed where they lie.
    const found = (await scansOf(service, STATEMENTS[name]!, values)).filter(
      (one) => byRowId === undefined || !one.startsWith(`Tid Scan ${byRowId} `),
    )
    expectScans(found, scans, name, true)
  })
})

test('whatever searches is explained here', () => {
  const searching = Object.entries(STATEMENTS).filter(([, text]) => /^\s*(select|update|delete)/.test(text))
  expect(Object.keys(CASES).sort()).toEqual(searching.map(([name]) => name).sort())
})
