/**
 * How pruning finds its rows, on tables in whatever state (ops/decisions/0002-plans.md): along the index by time, and
 * the lease of each closed attachment by its key, however many dead leases a snapshot keeps.
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { CLEAR_STATEMENTS } from '../../src/jobs/clear-dropped.ts'
import { CLOSINGS, REQUESTS, statementsOf } from '../../src/jobs/prune.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
/** Holds a snapshot open for one of the states. */
const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => Promise.all([admin.end(), reader.end()]))

const NETWORK = 'big'
const TIME = '2026-01-01T00:00:00Z'
const TABLES = ['lease', 'closed_attachment', 'request', 'released_address', 'dropped_range', 'pool']
const { bound: requestBound, prune: requests } = statementsOf(REQUESTS)
const { bound: closingBound, prune: closings } = statementsOf(CLOSINGS)
const STATEMENTS = { requestBound, requests, closingBound, closings, ...CLEAR_STATEMENTS }
const DROPPED = { dropped_range_starts_once: ['first_address'] }
const LEFT = { address_is_released_once: ['address'] }

const CASES: Readonly<Record<keyof typeof STATEMENTS, Case>> = {
  requestBound: { values: [NETWORK, TIME, '1000', '1999'], scans: { request_by_time: ['at'] } },
  requests: {
    values: [NETWORK, TIME, '1000', 'infinity'],
    scans: { request_by_time: ['at'] },
    byRowId: 'request',
  },
  closingBound: {
    values: [NETWORK, TIME, '1000', '1999'],
    scans: { closed_attachment_by_time: ['closed_at'] },
  },
  closings: {
    values: [NETWORK, TIME, '1000', 'infinity'],
    scans: { closed_attachment_by_time: ['closed_at'], lease_by_attachment: ['attachment_key'] },
    byRowId: 'closed_attachment',
  },
  droppedRanges: {
    values: [NETWORK, '10.0.0.0', '200'],
    scans: { ...DROPPED, pool_id_is_unique_in_its_network: ['pool_id'] },
  },
  leftBound: { values: [NETWORK, '10.2.0.0', '10.2.255.255', '1999'], scans: LEFT },
  leftCleared: {
    values: [NETWORK, '10.2.0.0', '10.2.1.0', '1'],
    scans: LEFT,
    byRowId: 'released_address',
  },
  rangeCleared: { values: [NETWORK, '10.2.0.0', '10.2.255.255'], scans: { ...DROPPED, ...LEFT } },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.lease
      (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key,
       node, boot, labels, witness, reserved_at)
      select '${NETWORK}', '10.0.0.0'::inet + i, 32, 1, i, i, 'RESERVED',
       'pod', 'w' || i, 'w' || i, false, '', 'eth0', 'pod|eth0|w' || i, 'pod|eth0||w' || i,
       '', '', '{}', '', now() from generate_series(1, 50000) i;
    insert into ipledger.closed_attachment
      select '${NETWORK}', 'pod|eth0|1|w' || i, 0, 'pod', 'w' || i, 'w' || i, true, '1', 'eth0', now() - i * interval '1 second', i
      from generate_series(1, 20000) i;
    insert into ipledger.request
      select '${NETWORK}', 'r' || i, 'f', 'Reserve', now() - i * interval '1 second', i, '{}' from generate_series(1, 20000) i;
    insert into ipledger.released_address
      select '${NETWORK}', '10.2.0.0'::inet + i, 1, 32, now(), i, '', true from generate_series(1, 20000) i;
    insert into ipledger.dropped_range
      select '${NETWORK}', '10.2.0.0'::inet + 256 * i, '10.2.0.255'::inet + 256 * i, 1 from generate_series(0, 5000) i;
    insert into ipledger.pool
      select '${NETWORK}', i, 'p' || i, i, 4, ('10.' || i || '.0.0/16')::cidr, false, '{}', now(), now()
      from generate_series(101, 200) i`)
}

/** Everything but one row is dead, and the statistics are of that one: with forty left, keys decided. */
async function thinOut(): Promise<void> {
  await reader.query('begin isolation level repeatable read; select count(*) from ipledger.pool')
  await admin.query(`
    delete from ipledger.lease where fencing_token > 1;
    delete from ipledger.closed_attachment where closed_seq > 1;
    delete from ipledger.request where seq > 1;
    delete from ipledger.released_address where released_seq > 1;
    delete from ipledger.dropped_range where first_address > '10.2.0.0';
    analyze ipledger.lease, ipledger.closed_attachment, ipledger.request, ipledger.released_address, ipledger.dropped_range`)
}

beforeAll(async () => {
  for (const table of TABLES) {
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
  }
})

describe.each([
  { state: 'empty tables', prepare: async () => {} },
  { state: 'tables that filled since they were last analysed', prepare: fill },
  { state: 'full tables, analysed', prepare: () => admin.query('analyze') },
  { state: 'tables analysed while small and full of dead rows', prepare: thinOut },
  {
    state: 'tables vacuumed while a snapshot keeps the dead',
    prepare: () => admin.query('vacuum analyze'),
  },
])('$state', ({ prepare }) => {
  let service: pg.Client
  beforeAll(async () => {
    await prepare()
    service = await connect({ url: database.serviceUrl, applicationName: 'test' })
  })
  afterAll(() => service.end())

  test.each(Object.keys(CASES) as (keyof typeof STATEMENTS)[])('%s', async (name) => {
    const { values, scans, byRowId } = CASES[name]
    const found = await scansOf(service, STATEMENTS[name], values)
    const rest = found.filter((scan) => !scan.startsWith(`Tid Scan ${byRowId} `))
    expectScans(rest, scans, name, false)
  })
})
