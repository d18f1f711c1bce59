/**
 * How tenure, checkpoints and their checks find their rows, and how leases_as_of does, for the service and for an auditor who
 * has PostgreSQL's own settings: by number and address, never by a walk of the log, on tables in whatever state
 * (ops/decisions/0002-plans.md).
 */
import { readFile } from 'node:fs/promises'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CHECKPOINT_STATEMENTS } from '../../src/ledger/checkpoints.ts'
import { TENURE_STATEMENTS } from '../../src/ledger/tenure.ts'
import { TENURE_CHECKS } from '../../src/ledger/tenure-check.ts'
import { connect, connectUnchecked } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => Promise.all([admin.end(), reader.end()]))

const NETWORK = 'big'
const ROWS = 50_000
const NUMBERS = `{${Array.from({ length: 1_000 }, (_, n) => 2 * n + 1).join(',')}}`
const ENDS = `{${Array.from({ length: 1_000 }, (_, n) => 2 * n + 2).join(',')}}`

const TABLES = [
  'event',
  'tenure',
  'tenure_position',
  'tenure_overlap',
  'lease_checkpoint',
  'lease_checkpoint_part',
  'network',
]
const EVENT = { event_is_numbered_once_per_network: ['seq'] }
const EVENT_AT = { event_by_address: ['address'] }
const TENURE = { tenure_begins_once_at_a_number: ['first_seq'] }
const OF_LEASE = { ...TENURE, tenure_of_another_owner: ['fencing_token'] }
const AT_ADDRESS = { tenure_by_address: ['address'] }
const OPEN_AT = { one_address_has_one_open_tenure: ['address'] }
const POSITION = { network_has_one_tenure_position: [] }
const OVERLAP = { overlap_is_found_once: ['first_seq'] }
const CHECKPOINT = { checkpoint_is_made_once_at_a_number: ['seq'] }
const PART = { checkpoint_part_is_kept_once: ['seq'] }

const STATEMENTS = { ...TENURE_STATEMENTS, ...checks(), ...CHECKPOINT_STATEMENTS }
type Name = keyof typeof STATEMENTS

/** What reads no rows of ours is not explained here. */
function checks() {
  const { constraints: _, position: checkPosition, ...rest } = TENURE_CHECKS
  return { checkPosition, ...rest }
}

type MyCase = Case & { readonly eitherOf?: readonly string[] }

const CASES: Readonly<Record<Exclude<Name, 'behind'>, MyCase>> = {
  position: { values: [NETWORK], scans: {} },
  lock: { values: [NETWORK], scans: POSITION },
  ahead: { values: [NETWORK, '100', '1000'], scans: { ...EVENT, ...POSITION } },
  boundaries: { values: [NETWORK, '100', '2100'], scans: { ...EVENT, ...EVENT_AT } },
  end: { values: [NETWORK, NUMBERS, ENDS], scans: { ...OF_LEASE, ...EVENT }, byRowId: 'tenure' },
  open: { values: [NETWORK, NUMBERS, ENDS], scans: { ...OF_LEASE, ...EVENT }, byRowId: 'tenure' },
  endOverlap: { values: [NETWORK, NUMBERS, ENDS], scans: { overlap_is_found_once: [] } },
  begin: { values: [NETWORK, NUMBERS, ENDS], scans: EVENT },
  beginIfFree: { values: [NETWORK, NUMBERS, ENDS], scans: EVENT },
  refuse: {
    values: [NETWORK, NUMBERS, ENDS],
    // Rare: whatever index of the network it takes.
    scans: { ...EVENT, no_two_owners_hold_one_address: [], tenure_by_address: [] },
    eitherOf: ['no_two_owners_hold_one_address', 'tenure_by_address'],
  },
  overlapping: {
    values: [NETWORK, NUMBERS, '{28,32}'],
    scans: { ...TENURE, ...AT_ADDRESS, ...OPEN_AT },
  },
  remove: { values: [NETWORK, '1'], scans: TENURE, byRowId: 'tenure' },
  sizes: { values: [NETWORK], scans: { event_of_shape: [] } },
  move: { values: [NETWORK, '100'], scans: { ...POSITION, ...EVENT } },
  strays: { values: [NETWORK, '99999', '1000'], scans: TENURE, byRowId: 'tenure' },
  clear: { values: [NETWORK, '1000'], scans: TENURE, byRowId: 'tenure' },
  clearOverlaps: { values: [NETWORK], scans: { overlap_is_found_once: [] } },
  reset: { values: [NETWORK], scans: {} },
  checkPosition: { values: [NETWORK], scans: { ...POSITION, ...EVENT } },
  verified: { values: [NETWORK, '100'], scans: POSITION },
  begun: {
    values: [NETWORK, NUMBERS, ENDS, '2100'],
    scans: { ...EVENT, ...EVENT_AT, ...TENURE, ...OVERLAP },
  },
  ended: {
    values: [NETWORK, NUMBERS, ENDS],
    scans: { ...OF_LEASE, ...EVENT, overlap_is_found_once: [] },
  },
  rows: { values: [NETWORK, '0', '{28,32}', '2000', '1000'], scans: { ...TENURE, ...AT_ADDRESS } },
  overlaps: { values: [NETWORK], scans: { overlap_is_found_once: [] } },
  checkpoints: { values: [NETWORK, '0', 'true'], scans: CHECKPOINT },
  held: { values: [NETWORK, '0', '1000'], scans: { ...CHECKPOINT, ...PART, ...EVENT } },
  listed: { values: [NETWORK, '1000', '0', '10'], scans: { ...PART, ...EVENT, ...EVENT_AT } },
  checkpointVerified: { values: [NETWORK, '1000'], scans: CHECKPOINT },
  checkpointDiffers: { values: [NETWORK, '1000'], scans: CHECKPOINT },
  base: { values: [NETWORK], scans: {} },
  last: { values: [NETWORK], scans: { checkpoint_is_made_once_at_a_number: [] } },
  due: { values: [NETWORK, '0', '1000'], scans: EVENT },
  changed: { values: [NETWORK, '0', '2000'], scans: EVENT },
  kept: { values: [NETWORK, '1000', '0', '10'], scans: { ...PART, ...EVENT } },
  part: { values: [NETWORK, '5', '0', '10.0.0.1', '10.0.0.2', '{1,2}'], scans: {} },
  leftOver: { values: [NETWORK, '1000', '500'], scans: PART, byRowId: 'lease_checkpoint_part' },
  whole: { values: [NETWORK, '1000', '1', '1'], scans: PART },
  forget: { values: [NETWORK], scans: { checkpoint_is_made_once_at_a_number: [] } },
  lockCheckpoint: { values: [NETWORK, '0', '2026-01-01Z'], scans: CHECKPOINT },
  later: { values: [NETWORK, '0'], scans: CHECKPOINT },
}

async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.event
      (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state, owner_kind, owner_name,
       owner_uid, owner_uid_named, owner_incarnation, owner_interface, node, boot, labels, witness, reserved_at, available_at, removal_confirmed)
      select '${NETWORK}', 2 * k + step, case step when 1 then 'lease.reserved' else 'lease.released' end, now(), 'test', 'test', 1,
       '10.0.0.0'::inet + (k % 5000)::int, 32, 2 * k + 1, 'RESERVED', 'pod', 'w' || k, 'w' || k, true, '', 'eth0', '', '', '{}', '', now(),
       case step when 2 then now() end, case step when 2 then true end
        from generate_series(0, ${ROWS / 2 - 1}) k, generate_series(1, 2) step;
    insert into ipledger.tenure
      select '${NETWORK}', 2 * k + 1, 2 * k + 1, 1, '10.0.0.0'::inet + (k % 5000)::int, int8range(2 * k + 1, 2 * k + 2), 'pod', 'w' || k, 'w' || k,
       true, '', 'eth0', now(), now(), 'test', 'test' from generate_series(0, ${ROWS / 2 - 1}) k;
    insert into ipledger.tenure
      select '${NETWORK}', 1000001 + k, 1000000, 1, '10.9.0.0'::inet + k, int8range(1000001 + k, null), 'pod', 'w' || k, 'w' || k,
       true, '', 'eth0', now(), null, 'test', null from generate_series(0, 2000) k;
    insert into ipledger.tenure_position select 'n' || k, 1, now(), 0 from generate_series(1, 500) k;
    insert into ipledger.tenure_position values ('${NETWORK}', 100, now(), 0);
    insert into ipledger.tenure_overlap select '${NETWORK}', k, k, 1, '10.0.0.1', '[1,2)', 1, 1, '10.0.0.1', now() from generate_series(1, 500) k;
    insert into ipledger.lease_checkpoint select '${NETWORK}', 1000 * k, 1000, 1, now(), null from generate_series(0, 500) k;
    insert into ipledger.lease_checkpoint_part
      select '${NETWORK}', 1000 * k, 0, '10.0.0.0', '10.0.3.231', 3, array[1, 3, 5]::bigint[] from generate_series(1, 500) k`)
}

/** Of the log nothing ever dies. */
async function thinOut(): Promise<void> {
  await reader.query('begin isolation level repeatable read; select count(*) from ipledger.pool')
  await admin.query(`
    delete from ipledger.tenure where first_seq > 1;
    delete from ipledger.tenure_position where network_id <> '${NETWORK}';
    delete from ipledger.tenure_overlap where first_seq > 1;
    delete from ipledger.lease_checkpoint where seq > 1000;
    delete from ipledger.lease_checkpoint_part where seq > 1000;
    analyze ipledger.tenure, ipledger.tenure_position, ipledger.tenure_overlap, ipledger.lease_checkpoint,
      ipledger.lease_checkpoint_part`)
}

beforeAll(async () => {
  for (const table of TABLES)
    await admin.query(`alter table ipledger.${table} set (autovacuum_enabled = false)`)
})

describe.each([
  { state: 'empty tables', prepare: async () => {} },
  { state: 'tables that filled since they were last analysed', prepare: fill },
  { state: 'full tables, analysed', prepare: () => admin.query('analyze') },
  { state: 'tables analysed while small and full of dead rows', prepare: thinOut },
  { state: 'tables vacuumed while a snapshot keeps the dead', prepare: () => admin.query('vacuum analyze') },
])('$state', ({ prepare }) => {
  let service: pg.Client
  let auditor: pg.Client
  beforeAll(async () => {
    await prepare()
    service = await connect({ url: database.serviceUrl, applicationName: 'test' })
    auditor = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test' })
  })
  afterAll(() => Promise.all([service.end(), auditor.end()]))

  test.each(Object.keys(CASES) as (keyof typeof CASES)[])('%s', async (name) => {
    const { values, scans, byRowId, eitherOf = [] } = CASES[name]
    const found = await scansOf(service, STATEMENTS[name], values)
    const rest = found.filter((scan) => !scan.startsWith(`Tid Scan ${byRowId} `) && !/^CTE Scan/.test(scan))
    const needless = eitherOf.filter((index) => !rest.some((scan) => scan.includes(` ${index} `)))
    const expected = Object.fromEntries(Object.entries(scans).filter(([index]) => !needless.includes(index)))
    expectScans(rest, expected, name, false)
  })

  test.each(['service', 'auditor'] as const)('leases_as_of, asked by the %s', async (who) => {
    const client = who === 'service' ? service : auditor
    const { settings, body } = await leasesAsOf()
    await client.query('begin')
    try {
      for (const setting of settings) await client.query(`set local ${setting}`)
      const found = await scansOf(client, body, [NETWORK, '1500', '10.0.0.1', '100'])
      const scans = found.filter((scan) => !/^(CTE|WorkTable) Scan/.test(scan) && !/ pool /.test(scan))
      const scanned = { ...CHECKPOINT, ...PART, ...EVENT, ...EVENT_AT, event_seldom: ['type', 'seq'] }
      expectScans(scans, scanned, 'leases_as_of', false)
    } finally {
      await client.query('rollback')
    }
  })

  test('position_at, asked by the auditor', async () => {
    const { rows } = await auditor.query<{ line: string }>(`select position_at('${NETWORK}', now()) as line`)
    expect(rows).toHaveLength(1)
  })
})

/** What the function runs, and with which settings: a plan inside of a function is not told. */
async function leasesAsOf(): Promise<{ readonly settings: readonly string[]; readonly body: string }> {
  const text = await readFile(new URL('../../db/audit/023_leases_as_of.sql', import.meta.url), 'utf8')
  const [head, body] = text.split('as $$\n')
  const settings = [...head!.matchAll(/^ *(set .*)$/gm)].flatMap(([, line]) =>
    line!.split(/(?:^| )set /).filter((one) => one !== ''),
  )
  expect(settings.length).toBeGreaterThan(3)
  const parameters = { network: '$1::text', seq: '$2::bigint', after: '$3::inet', most: '$4::bigint' }
  const own = Object.entries(parameters).reduce(
    (sql, [name, parameter]) => sql.replaceAll(`leases_as_of.${name}`, parameter),
    body!.split('$$;')[0]!,
  )
  return { settings, body: own }
}

test('whatever searches is explained here', () => {
  const left = new Set(Object.keys(CASES))
  expect(Object.keys(STATEMENTS).filter((name) => !left.has(name))).toEqual(['behind'])
})
