/** How the job that expires reservations finds them: along the deadlines, on tables in whatever state (ops/decisions/0002-plans.md). */
import type pg from 'pg'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { LIST_DUE } from '../../src/jobs/expire-unconfirmed.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'big'

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.pool
      select '${NETWORK}', i, 'p' || i, i, 4, ('10.' || i || '.0.0/16')::cidr, false,
       case when i % 3 = 0 then '{"cooldownMs":120000,"reapPolicy":{"confirmGraceMs":5000}}' else '{"cooldownMs":120000}' end::json,
       now(), now() from generate_series(1, 100) i;
    insert into ipledger.lease
      (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key,
       node, boot, labels, witness, reserved_at, confirm_by)
      select '${NETWORK}', '10.0.0.0'::inet + i, 32, 1 + i % 100, i, i, 'RESERVED',
       'pod', 'w' || i, 'w' || i, false, '', 'eth0', 'pod|eth0|w' || i, 'pod|eth0||w' || i,
       '', '', '{}', '', now(), case when i % 2 = 0 then now() - i * interval '1 second' end from generate_series(1, 50000) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.lease where address > '10.0.0.1';
    delete from ipledger.pool where pool_id > 3;
    analyze ipledger.lease, ipledger.pool`)
}

beforeAll(async () => {
  for (const table of ['lease', 'pool']) {
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

  test('what is due', async () => {
    const found = await scansOf(service, LIST_DUE, [NETWORK, '60000', '-infinity', '0.0.0.0', '500'])
    expectScans(
      found,
      {
        lease_by_deadline: ['confirm_by'],
        pool_id_is_unique_in_its_network: [],
        network_name_is_unique: [],
        event_is_numbered_once_per_network: ['seq'],
      },
      'due',
      true,
    )
  })
})
