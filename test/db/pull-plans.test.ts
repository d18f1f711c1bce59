/**
 * Plans of asking sources: like the write path's, each statement must be a look-up by its key on tables that are empty,
 * full, or analysed while small and full of dead rows (ops/decisions/0002-plans.md).
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { PULL_STATEMENTS } from '../../src/jobs/pull-sources.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Case, expectScans, scansOf } from '../support/plans.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const NETWORK = 'big'
const TURN = { source_is_asked_by_one_at_a_time: ['source_id'] }

/** An insert finds what it conflicts with by the arbiter: nothing to list. */
const CASES: Readonly<Record<keyof typeof PULL_STATEMENTS, Case>> = {
  listTurns: { values: [NETWORK, '', '1000', '0'], scans: { source_that_is_asked: ['source_id'], ...TURN } },
  takeTurn: { values: [NETWORK, 's1', 'x', '1000'], scans: {} },
  endTurn: { values: [NETWORK, 's1', 'x', '1000', ''], scans: TURN },
}

/** Of 20,000 sources every tenth is asked. */
async function fill(): Promise<void> {
  await admin.query(`
    insert into ipledger.source
      (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings,
       state, registered_at, registered_by, epoch, warm, last_sequence, size, digest, counted, streak_from, recent, partial_because)
      select '${NETWORK}', 's' || i, case i % 10 when 0 then 'docker' else 'push' end, 'n' || i, '{pod}', '{4}', false, false,
       30000, '{}', 'REGISTERED', now(), 'test', 'e1', true, 1, 0, '', 0, 0, '[]', '{}' from generate_series(1, 20000) i;
    insert into ipledger.turn
      select '${NETWORK}', 's' || i * 10, now(), 'x', now(), '' from generate_series(1, 2000) i`)
}

/** Everything but a few rows is dead, and the statistics are of those few. */
async function thinOut(): Promise<void> {
  await admin.query(`
    delete from ipledger.source where source_id > 's1010';
    delete from ipledger.turn where source_id > 's1010';
    analyze ipledger.source, ipledger.turn`)
}

beforeAll(async () => {
  for (const table of ['source', 'turn']) {
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

  test.each(Object.keys(CASES) as (keyof typeof CASES)[])('%s', async (name) => {
    const { values, scans } = CASES[name]
    expectScans(await scansOf(service, PULL_STATEMENTS[name], values), scans, name, true)
  })

  test('the list is read in its order', async () => {
    const scans = await scansOf(service, PULL_STATEMENTS.listTurns, CASES.listTurns.values)
    expect(scans.filter((scan) => scan.includes(' source '))).toHaveLength(1)
  })
})
