/** Each check of the log and of the projections refuses what it is there for, and what the states allow passes. */

import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { claim, confirmOf, createPool, owner, quarantine, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
let admin: pg.Client
let network: string

beforeAll(async () => {
  admin = await connect({ url: database.adminUrl, applicationName: 'test constraints' })
  network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 60_000 }, { network }))
  const take = (name: string) =>
    ledger.take(
      reserve({ network, owner: owner({ name, incarnation: 'i' }), claims: [claim({ pool: 'a' })] }),
    )
  await take('reserved')
  await take('active')
  await ledger.accept(confirmOf(owner({ name: 'active', incarnation: 'i' }), { network }))
  const ended = await take('ended')
  await ledger.accept(release(ended.fencingToken, { network }))
  await ledger.accept(quarantine({ address: '10.0.0.200' }, { network }))
})
afterAll(() => admin.end())

const TABLES = ['event', 'lease', 'released_address', 'untouched_range', 'pool_position', 'pool', 'network']

/** By constraint: changes of a right row, each of which it refuses. */
const REFUSED: Readonly<Record<string, readonly string[]>> = {
  event_number_is_positive: [`update event set seq = 0 where type = 'network.created'`],
  event_type_is_known: [
    `update event set type = 'attachment.opened' where type = 'attachment.closed'`,
    `update event set type = 'pool.created2' where type = 'pool.created'`,
    `update event set type = '' where type = 'pool.created'`,
  ],
  event_about_a_lease_names_it: [
    'pool_id',
    'address',
    'prefix_length',
    'fencing_token',
    'state',
    'reserved_at',
  ].map((column) => `update event set ${column} = null where type = 'lease.reserved'`),
  event_that_ends_a_lease_says_when_it_cools: [
    `update event set available_at = null where type = 'lease.released'`,
    `update event set removal_confirmed = null where type = 'lease.released'`,
    `update event set type = 'lease.reaped', available_at = null where type = 'lease.released'`,
  ],
  event_address_is_a_host: [
    `update event set address = set_masklen(address, 24) where type = 'lease.reserved'`,
    `update event set address = 'fd00::/32' where type = 'lease.reserved'`,
  ],
  lease_address_is_a_host: [`update lease set address = set_masklen(address, 24)`],
  lease_state_is_known: [`update lease set state = 'FREE' where state = 'ACTIVE'`],
  quarantined_lease_has_a_known_reason: [
    `update lease set quarantine_reason = 'BORED' where state = 'QUARANTINED'`,
    ...['quarantine_reason', 'quarantined_at', 'quarantined_by'].map(
      (column) => `update lease set ${column} = null where state = 'QUARANTINED'`,
    ),
    `update lease set quarantine_reason = 'OPERATOR' where state = 'ACTIVE'`,
    `update lease set quarantine_reason = 'OPERATOR', quarantined_at = now(), quarantined_by = 'x' where state = 'ACTIVE'`,
  ],
  held_lease_has_an_owner: [
    ...[
      'owner_kind',
      'owner_name',
      'owner_uid',
      'owner_uid_named',
      'owner_incarnation',
      'owner_interface',
      'holder_key',
      'attachment_key',
    ].map((column) => `update lease set ${column} = null where state = 'ACTIVE'`),
    `update lease set owner_name = 'x' where owner_name is null`,
    `update lease set owner_kind = 'x' where owner_name is null`,
  ],
  only_reserved_leases_have_a_deadline: [`update lease set confirm_by = now() where state = 'ACTIVE'`],
  lease_version_is_not_before_its_token: [`update lease set version = fencing_token - 1`],
  released_address_is_a_host: [`update released_address set address = set_masklen(address, 24)`],
  untouched_range_is_not_empty: [`update untouched_range set last_address = first_address - 1`],
  pool_cursor_is_whole: [`update pool_position set cursor_first = '10.0.0.0', cursor_next = null`],
  pool_counts_are_not_negative: ['reserved', 'active', 'quarantined', 'released'].map(
    (column) => `update pool_position set ${column} = -1`,
  ),
  pool_family_is_that_of_its_cidr: [`update pool set family = 6`],
  network_name_is_a_dns_like_label: [`update network set network_id = 'No Name'`],
  network_state_is_known: [`update network set state = 'TIRED'`],
  network_era_is_not_negative: [`update network set era = -1`],
}

async function run(statement: string): Promise<number> {
  await admin.query('begin')
  try {
    await admin.query('set local search_path = ipledger')
    const where = statement.includes(' where ') ? ' and' : ' where'
    return (await admin.query(`${statement}${where} network_id = '${network}'`)).rowCount ?? 0
  } finally {
    await admin.query('rollback')
  }
}

test('every check has its case', async () => {
  const { rows } = await admin.query<{ name: string }>(
    `select conname as name from pg_constraint
      where contype = 'c' and conrelid = any($1::text[]::regclass[])`,
    [TABLES.map((table) => `ipledger.${table}`)],
  )
  expect(Object.keys(REFUSED).sort()).toEqual(rows.map(({ name }) => name).sort())
})

describe.each(Object.entries(REFUSED))('%s', (constraint, statements) => {
  test.each(statements)('%s', async (statement) => {
    await expect(run(statement)).rejects.toMatchObject({ code: '23514', constraint })
  })
})

test('a quarantined lease with an owner is as right as one without', async () => {
  const given = `owner_kind = 'pod', owner_name = 'x', owner_uid = 'x', owner_uid_named = true, owner_incarnation = '',
    owner_interface = 'eth0', holder_key = 'x', attachment_key = 'x'`
  expect(await run(`update lease set ${given} where owner_name is null`)).toBe(1)
})

test('the ledgers of this file are in order', () => expectVerified(database))
