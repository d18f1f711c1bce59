/**
 * Plans of the write path. Statistics of these tables swing, and a plan is made once per connection and kept: each
 * statement must be a look-up by its key on tables that are empty, full, or analysed while small and full of dead rows.
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WRITES } from '../../src/ledger/append.ts'
import { READS } from '../../src/ledger/load.ts'
import { connect } from '../../src/postgres/connect.ts'
import { claim, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, openTestLedger } from '../support/ledger.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
/** Holds a snapshot open for some of the states. */
const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => Promise.all([admin.end(), reader.end()]))

const LEASES = 100_000

const NETWORK = 'big'
const ADDRESSES = '{10.0.1.1,10.0.2.2,10.0.3.3}'
const POOL = { pool_id_is_unique_in_its_network: ['pool_id'] }
const POSITION = { pool_has_one_position_per_batch: ['pool_id'] }
const POOL_BY_NAME = { pool_name_is_unique_in_its_network: ['name'], ...POSITION }
const POOL_BY_CIDR = { pools_of_a_network_never_overlap: ['cidr'] }
const EVENT = { event_is_numbered_once_per_network: ['seq'] }
const LEASE = { address_has_one_lease: ['address'] }
const LEASE_BY_TOKEN = { lease_by_token: ['fencing_token'] }
const RELEASED = { address_is_released_once: ['address'] }
const RANGE = { untouched_range_starts_once: ['pool_id', 'first_address'] }
const CLOSED = { attachment_is_closed_once_per_pool: ['attachment_key'] }
const SOURCE = { source_id_is_unique_in_its_network: ['source_id'] }
const LIVE = { sighting_live: ['address'], ...SOURCE }
const FENCE = { boot_is_fenced_once: ['node', 'boot'] }

const READ_CASES: Readonly<Record<keyof typeof READS, Case>> = {
  lock: { values: [NETWORK], scans: { network_lock_has_one_row_per_network: [] } },
  head: {
    values: [NETWORK],
    scans: {
      network_name_is_unique: [],
      network_is_written_in_one_life: [],
      // The slowest source.
      source_by_interval: [],
      event_is_numbered_once_per_network: [],
    },
  },
  poolsByName: { values: [NETWORK, '{a,b}'], scans: POOL_BY_NAME },
  poolsById: { values: [NETWORK, '{1,2}'], scans: { ...POOL, ...POSITION } },
  poolsByToken: { values: [NETWORK, '{5,6}'], scans: { ...POOL, ...POSITION, ...EVENT } },
  // Few pools are default, and the whole network's are asked.
  poolsByDefault: { values: [NETWORK], scans: { pools_of_a_network_never_overlap: [], ...POSITION } },
  poolsAt: { values: [NETWORK, ADDRESSES], scans: { ...POOL, ...POOL_BY_CIDR, ...POSITION } },
  droppedOver: {
    values: [NETWORK, '10.0.0.0', '10.0.0.255'],
    scans: { dropped_range_starts_once: ['first_address'] },
  },
  poolsOverlapping: { values: [NETWORK, '10.0.0.0/24'], scans: { ...POOL_BY_CIDR, ...POSITION } },
  leasesByAddress: { values: [NETWORK, ADDRESSES], scans: LEASE },
  leasesByOwner: {
    values: [NETWORK, '{pod|eth0|w5}', '{pod|eth0||w7}'],
    scans: { lease_by_holder: ['holder_key'], lease_by_attachment: ['attachment_key'] },
  },
  leasesByToken: { values: [NETWORK, '{5,6,7}'], scans: LEASE_BY_TOKEN },
  endingsByToken: {
    values: [NETWORK, '{5,6,7}'],
    scans: { ...LEASE_BY_TOKEN, ...EVENT, event_by_address: ['address'] },
  },
  endings: {
    values: [NETWORK, '{pod}', '{w5}', '{w5}', '{1}', '{eth0}', '{pod|eth0|1|w5}'],
    scans: { event_by_owner: ['owner_name'], ...CLOSED, ...EVENT },
  },
  poolsByEnding: {
    values: [NETWORK, '{pod}', '{w5}', '{w5}', '{1}', '{eth0}', '{pod|eth0|1|w5}'],
    scans: { ...POOL, ...POSITION, event_by_owner: ['owner_name'], ...CLOSED, ...EVENT },
  },
  closingsByToken: { values: [NETWORK, '{5,6,7}'], scans: { ...CLOSED, ...LEASE_BY_TOKEN } },
  closingsByKey: { values: [NETWORK, '{pod|eth0||w7}'], scans: CLOSED },
  closedLives: {
    values: [NETWORK, '{pod,pod}', '{w5,w6}'],
    scans: { closed_attachment_by_workload: ['owner_uid'] },
  },
  releasedByAddress: { values: [NETWORK, ADDRESSES], scans: RELEASED },
  rangesAtAddress: { values: [NETWORK, ADDRESSES], scans: { ...POOL_BY_CIDR, ...RANGE } },
  rangesInOrder: {
    values: [NETWORK, '{a}', '{NULL}', '{8}'],
    scans: { ...POOL_BY_NAME, ...RANGE },
  },
  rangesInOrderSeen: {
    values: [NETWORK, '{a}', '{NULL}', '{8}', '{64}'],
    scans: { ...POOL_BY_NAME, ...RANGE, ...LIVE },
  },
  releasedInOrder: {
    values: [NETWORK, '{a}', '{NULL}', '{NULL}', '{64}'],
    scans: {
      ...POOL_BY_NAME,
      released_in_order_of_reuse: ['pool_id', 'available_at'],
      // The last event alone.
      event_is_numbered_once_per_network: [],
    },
  },
  releasedInOrderSeen: {
    values: [NETWORK, '{a}', '{NULL}', '{NULL}', '{64}'],
    scans: {
      ...POOL_BY_NAME,
      released_in_order_of_reuse: ['pool_id', 'available_at'],
      event_is_numbered_once_per_network: [],
      ...LIVE,
      ...FENCE,
    },
  },
  nextCooled: {
    values: [NETWORK, '{1}', '1700000000000'],
    scans: { released_in_order_of_reuse: ['pool_id', 'available_at'] },
  },
  previous: {
    values: [NETWORK, 'w5', 'pod|eth0|w5'],
    scans: { event_by_owner: ['owner_name'], ...RELEASED },
  },
  previousSeen: {
    values: [NETWORK, 'w5', 'pod|eth0|w5'],
    scans: { event_by_owner: ['owner_name'], ...RELEASED, ...LIVE, ...FENCE, ...EVENT },
  },
  requests: { values: [NETWORK, '{r1,r2}'], scans: { request_id_is_remembered_once: ['request_id'] } },
  quarantinesBy: { values: [NETWORK, '{test}'], scans: { lease_by_quarantiner: ['quarantined_by'] } },
  heldIn: { values: [NETWORK, '{10.0.1.0}', '{10.0.1.255}'], scans: LEASE },
  coolingIn: { values: [NETWORK, '{10.2.1.0}', '{10.2.1.255}', '1700000000000'], scans: RELEASED },
  cooledIn: { values: [NETWORK, '{10.2.1.0}', '{10.2.1.255}', '1700000000000'], scans: RELEASED },
  coolingOf: {
    values: [NETWORK, '1', '1700000000000'],
    scans: { released_in_order_of_reuse: ['pool_id', 'available_at'] },
  },
  cooledOf: {
    values: [NETWORK, '1', '1700000000000'],
    scans: { released_in_order_of_reuse: ['pool_id', 'available_at'] },
  },
  sightings: {
    values: [NETWORK, '{10.0.1.0,10.0.2.2}', '{10.0.1.15,10.0.2.2}'],
    scans: { ...LIVE, sighting_by_last_seen: ['address'] },
  },
  lastHolders: { values: [NETWORK, '{5,6,7}'], scans: EVENT },
  sightedIn: { values: [NETWORK, '{10.0.1.0}', '{10.0.1.255}'], scans: LIVE },
  sources: { values: [NETWORK, '{s1,s2}'], scans: SOURCE },
  quarantinesBySource: {
    values: [NETWORK, '{s1,s2}'],
    scans: { lease_by_quarantiner: ['quarantined_by'] },
  },
  fences: {
    values: [NETWORK, '{n1,n2}', '{b1,b1}'],
    scans: {
      ...FENCE,
      source_by_node: ['node'],
      boot_is_heard_of_once_by_a_source: ['node', 'boot'],
    },
  },
  holds: { values: [NETWORK, '{s1,s2}'], scans: { source_is_held_once: ['source_id'] } },
  absence: {
    values: [NETWORK, String(LEASES + 5), '1700000000000'],
    scans: { ...EVENT, event_of_absence: ['at'] },
  },
  // All pools of the network are summed up.
  heldLeases: { values: [NETWORK], scans: { pool_id_is_unique_in_its_network: [], ...POSITION } },
  leasesSeen: {
    values: [NETWORK, '{s1,s2}', '{256,4096}'],
    scans: { source_lists_an_entry_once: ['source_id'], ...LEASE },
  },
  strictness: {
    values: [NETWORK, '{n1}', '{}', '{}'],
    // Any of the enabled ones, those of another era and those that are cold: at most a few are looked at.
    scans: {
      source_by_era: [],
      source_warming_up: [],
      source_by_node: ['node'],
      network_name_is_unique: [],
      ...FENCE,
    },
  },
  unobserved: {
    values: [NETWORK],
    scans: {
      source_by_era: [],
      source_warming_up: [],
      network_name_is_unique: [],
      // Those that call while the books recover: a thousand at most, and none otherwise.
      unknown_source_is_kept_once: [],
      source_id_is_unique_in_its_network: ['source_id'],
    },
  },
  // Eras are few.
  lastRecovery: { values: [NETWORK], scans: { network_name_is_unique: [], ...EVENT } },
}

/** Inserts find what they conflict with by the arbiter; only the statements that search are listed. */
const WRITE_CASES: Readonly<Partial<Record<keyof typeof WRITES, Case>>> = {
  leasesEnd: { values: [NETWORK, '{"(0,1)"}', ADDRESSES], scans: LEASE, byRowId: 'lease' },
  releasedTaken: { values: [NETWORK, '{"(0,1)"}', ADDRESSES], scans: RELEASED, byRowId: 'released_address' },
  releasedDropped: {
    values: [NETWORK, '1', '{10.2.1.0}', '{10.2.1.255}'],
    scans: RELEASED,
    byRowId: 'released_address',
  },
  rangesGone: { values: [NETWORK, '1', ADDRESSES], scans: RANGE, byRowId: 'untouched_range' },
  rangesOfPoolGone: { values: [NETWORK, '1'], scans: { untouched_range_starts_once: ['pool_id'] } },
  closingsGone: { values: [NETWORK, '{pod|eth0||w7}'], scans: CLOSED, byRowId: 'closed_attachment' },
  poolGone: { values: [NETWORK, '1'], scans: POOL },
  holdsGone: {
    values: [NETWORK, '{s1,s2}'],
    scans: { source_is_held_once: ['source_id'] },
    byRowId: 'hold',
  },
}

function leasesOf(network: string, firstToken = 1): string {
  return `insert into ipledger.lease
      (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key,
       node, boot, labels, witness, reserved_at)
      select '${network}', '10.0.0.0'::inet + i, 32, 1, ${firstToken} - 1 + i, ${firstToken} - 1 + i, 'RESERVED',
       'pod', 'w' || i, 'w' || i, false, '', 'eth0', 'pod|eth0|w' || i, 'pod|eth0||w' || i,
       '', '', '{}', '', now() from generate_series(1, ${LEASES}) i`
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.network_lock values ('${NETWORK}');
    insert into ipledger.network values ('${NETWORK}', '', '{}', 'READY', 0, 1, now(), now());
    insert into ipledger.database_life select 'n' || i, '1', 1, 1, 1, now() from generate_series(1, 100) i;
    insert into ipledger.pool
      select '${NETWORK}', i, case i when 1 then 'a' when 2 then 'b' else 'p' || i end, i, 4, ('10.' || i || '.0.0/16')::cidr,
        false, '{}', now(), now() from generate_series(1, 100) i;
    insert into ipledger.event
      (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state,
       owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, node, boot, labels, witness, reserved_at)
      select '${NETWORK}', i, 'lease.reserved', now(), 'test', 'test', 1, '10.0.0.0'::inet + i, 32, i, 'RESERVED',
       'pod', 'w' || i, 'w' || i, false, '', 'eth0', '', '', '{}', '', now() from generate_series(1, ${LEASES}) i;
    ${leasesOf(NETWORK)};
    insert into ipledger.released_address
      select '${NETWORK}', '10.2.0.0'::inet + i, 1, 32, now() - interval '1 day' + i * interval '1 ms', i, 'pod|eth0|w' || i, true
      from generate_series(1, ${LEASES / 2}) i;
    insert into ipledger.untouched_range
      select '${NETWORK}', 1, '10.4.0.0'::inet + 2 * i, '10.4.0.0'::inet + 2 * i from generate_series(1, ${LEASES / 5}) i;
    insert into ipledger.pool_position
      select '${NETWORK}', 1 + i % 2, i, null, null, null, null, 0, 0, 0, 0 from generate_series(1, ${LEASES / 5}) i;
    insert into ipledger.request
      select '${NETWORK}', 'r' || i, 'f', 'Reserve', now(), i, '{}' from generate_series(1, ${LEASES / 5}) i;
    insert into ipledger.closed_attachment
      select '${NETWORK}', 'pod|eth0|1|w' || i, 0, 'pod', 'w' || i, 'w' || i, true, '1', 'eth0', now(), i
      from generate_series(1, ${LEASES / 5}) i;
    insert into ipledger.event
      (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state, reserved_at,
       available_at, removal_confirmed, evidence)
      select '${NETWORK}', ${LEASES} + i, 'lease.reaped', now(), 'test', 'PROVEN_ABSENT', 1, '10.0.0.0'::inet + i, 32, i, 'ACTIVE', now(),
       now(), false, '{"sources": ["s1"]}' from generate_series(1, ${LEASES / 50}) i;
    insert into ipledger.source
      (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings,
       state, registered_at, registered_by, enabled_at, enabled_by, enabled_head, epoch, warm, last_sequence, size, digest,
       counted, streak_from, recent, partial_because, era, complete_sequence, complete_head, complete_at)
      select '${NETWORK}', 's' || i, 'push', 'n' || i, '{pod}', '{4}', false, false, 30000, '{}', 'ENABLED', now(), 'test',
       now(), 'test', 1, 'b1', i % 50 > 0, 1, 0, '', 0, 0, '[]', '{}', case when i % 100 > 0 then 0 end, case when i % 100 > 0 then 1 end,
       case when i % 100 > 0 then 1 end, case when i % 100 > 0 then now() end from generate_series(1, ${LEASES / 50}) i;
    insert into ipledger.sighting
      (network_id, address, source_id, entry_key, appeared_sequence, node, boot, state, live, epoch, appeared_head, appeared_at,
       last_seen_at, vanished_sequence, vanished_head, vanished_at)
      select '${NETWORK}', '10.0.0.0'::inet + i, 's' || i % 50, 'k' || i, 1, '', '', 'live', i % 3 > 0, 'b1', 1, now(),
       case i % 3 when 0 then now() end, case i % 3 when 0 then 2 end, case i % 3 when 0 then 1 end, case i % 3 when 0 then now() end
      from generate_series(1, ${LEASES}) i;
    insert into ipledger.boot_report
      select '${NETWORK}', 'n' || i % 1000, 'b' || i / 1000, 's' || i % 1000, now() from generate_series(1, ${LEASES}) i;
    insert into ipledger.unknown_source
      select '${NETWORK}', 'u' || i, 0, '', 'test', now(), now() from generate_series(1, 1000) i;
    insert into ipledger.fence
      select '${NETWORK}', 'n' || i, 'b0', i, now(), 'test', 'test' from generate_series(1, ${LEASES / 50}) i;
    insert into ipledger.hold
      select '${NETWORK}', 's' || i, i, now(), 'test', 1, 1 from generate_series(1, ${LEASES / 50}) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. With forty left, keys decided; with one, nothing does. */
async function thinOut(): Promise<void> {
  await reader.query('begin isolation level repeatable read; select count(*) from ipledger.pool')
  await admin.query(`
    delete from ipledger.lease where fencing_token > 1;
    delete from ipledger.released_address where released_seq > 1;
    delete from ipledger.untouched_range where first_address > '10.4.0.2';
    delete from ipledger.pool_position where seq < ${LEASES / 5 - 1};
    delete from ipledger.request where seq > 1;
    delete from ipledger.closed_attachment where closed_seq > 1;
    delete from ipledger.pool where pool_id > 3;
    delete from ipledger.source where source_id > 's13';
    delete from ipledger.sighting where address > '10.0.0.1';
    delete from ipledger.fence where fenced_seq > 1;
    delete from ipledger.boot_report where node > 'n13';
    delete from ipledger.unknown_source where source_id > 'u13';
    delete from ipledger.hold where held_seq > 1;
    analyze ipledger.source, ipledger.sighting, ipledger.fence, ipledger.boot_report, ipledger.hold, ipledger.event, ipledger.lease, ipledger.released_address, ipledger.untouched_range, ipledger.pool,
      ipledger.pool_position, ipledger.request, ipledger.closed_attachment, ipledger.network, ipledger.network_lock`)
}

beforeAll(async () => {
  for (const table of [
    ...['event', 'lease', 'released_address', 'untouched_range', 'pool', 'pool_position', 'request'],
    ...['closed_attachment', 'network', 'network_lock', 'source', 'sighting', 'fence', 'boot_report', 'hold'],
  ]) {
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
  }
})

const STATES = [
  { state: 'empty tables', prepare: async () => {}, fewPools: true },
  { state: 'tables that filled since they were last analysed', prepare: fill, fewPools: false },
  { state: 'full tables, analysed', prepare: () => admin.query('analyze'), fewPools: false },
  { state: 'tables analysed while small and full of dead rows', prepare: thinOut, fewPools: true },
  {
    state: 'tables vacuumed while a snapshot keeps the dead',
    prepare: () => admin.query('vacuum analyze'),
    fewPools: true,
  },
  {
    state: 'tables of a few rows and a few pages',
    prepare: async () => {
      await reader.query('rollback')
      await admin.query('vacuum analyze')
    },
    fewPools: true,
  },
] as const

describe.each(STATES)('$state', ({ prepare, fewPools }) => {
  let service: pg.Client
  beforeAll(async () => {
    await prepare()
    service = await connect({ url: database.serviceUrl, applicationName: 'test' })
  })
  afterAll(() => service.end())

  test.each(Object.keys(READS) as (keyof typeof READS)[])('%s', async (name) => {
    const { values, scans } = READ_CASES[name]
    expectScans(await scansOf(service, READS[name], values), scans, name, fewPools)
  })

  test.each(Object.keys(WRITES) as (keyof typeof WRITES)[])('%s', async (name) => {
    const found = WRITE_CASES[name]
    if (found !== undefined) {
      const scans = await scansOf(service, WRITES[name], found.values)
      const rest = scans.filter((scan) => !scan.startsWith(`Tid Scan ${found.byRowId} `))
      if (rest.length > 0) expectScans(rest, found.scans, name, fewPools)
      return
    }
    // An insert, which reads nothing but what it was sent.
    const parameters = Math.max(...[...WRITES[name].matchAll(/\$(\d+)/g)].map((match) => Number(match[1])))
    const values = Array.from({ length: parameters }, (_, i) => (i === 0 ? NETWORK : null))
    expect(await scansOf(service, WRITES[name], values), name).toEqual([])
  })
})

test('a plan made while the tables were empty is made anew soon after they have filled', async () => {
  for (const table of ['lease', 'released_address', 'untouched_range', 'pool_position', 'pool', 'event']) {
    await admin.query(`delete from ipledger.${table}`)
  }
  // Known to be empty: every index costs the same.
  await admin.query('vacuum analyze')
  const ledger = openTestLedger({ url: database.serviceUrl, connections: 1 })
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'c', cidr: '10.200.0.0/24', cooldownMs: 0 }, { network }))
  const pair = async () => {
    const lease = await ledger.take(
      reserve({ network, owner: owner({ name: 'x' }), claims: [claim({ pool: 'c' })] }),
    )
    await ledger.take(release(lease.fencingToken, { network }))
  }
  await pair()
  await admin.query(leasesOf(network, 1_000_000))
  let pairs = 0
  let before = await leasesRead()
  await waitFor(
    async () => {
      for (let i = 0; i < 10; i += 1) await pair()
      pairs += 10
      const now = await leasesRead()
      // The server tells its figures once a second.
      if (now === before) return false
      const each = (now - before) / pairs
      pairs = 0
      before = now
      return each < 100
    },
    { timeout: 30_000, what: 'a pair to read a few leases instead of all' },
  )
  await ledger.close()
}, 60_000)

async function leasesRead(): Promise<number> {
  const { rows } = await admin.query<{ tuples: string }>(
    `select sum(idx_tup_read) as tuples from pg_stat_user_indexes where schemaname = 'ipledger' and relname = 'lease'`,
  )
  return Number(rows[0]!.tuples)
}
