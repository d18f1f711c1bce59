/**
 * What a page of the past costs: what is in it, or at most the events since the checkpoint, however many leases lie behind
 * it and however many addresses in front that nobody holds. Counted by the database, for whoever asks.
 */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { makeCheckpoint } from '../../src/ledger/checkpoints.ts'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const auditor = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test auditor' })
const service = await connectUnchecked({ url: database.serviceUrl, applicationName: 'test service' })
afterAll(() => Promise.all([auditor.end(), service.end()]))

const HELD = 20_000
/** Had by somebody once, in front of what is held. */
const DEAD = 10_000
const DISTANCE = 4_000
const PART = 200
const PAGE = 50
const NETWORKS = ['dense', 'sparse'] as const

let heads: Readonly<Record<(typeof NETWORKS)[number], number>>
beforeAll(async () => {
  const log = { leases: DEAD + HELD, held: HELD }
  heads = {
    dense: await writeLongLog(database, ledger, 'dense', { ...log, over: HELD }),
    sparse: await writeLongLog(database, ledger, 'sparse', { ...log, over: DEAD + HELD }),
  }
  await withClient(database.serviceUrl, async (client) => {
    for (const network of NETWORKS)
      while (await makeCheckpoint(client, network, { distance: DISTANCE, part: PART }));
  })
}, 120_000)

type Row = Readonly<{ address: string; version: number; pool: string }>

async function rowsOfLogRead(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ read: number }>(
    `select s.seq_tup_read + s.idx_tup_fetch as read
       from pg_stat_xact_all_tables s where s.schemaname = 'ipledger' and s.relname = 'event'`,
  )
  return rows[0]!.read
}

async function page(
  client: pg.Client,
  asked: { readonly network: string; readonly seq: number; readonly after?: string; readonly most?: number },
) {
  await client.query('begin')
  try {
    const before = await rowsOfLogRead(client)
    const { rows } = await client.query<Row>(
      'select l.address, l.version, l.pool from ipledger_audit.leases_as_of($1, $2::bigint, $3, $4) l',
      [asked.network, asked.seq, asked.after ?? null, asked.most ?? null],
    )
    return { rows, read: (await rowsOfLogRead(client)) - before }
  } finally {
    await client.query('rollback')
  }
}

/** The number of the checkpoint before the last, behind which as many events follow as lie between two. */
async function checkpointOf(network: string): Promise<number> {
  const { rows } = await auditor.query<{ seq: number }>(
    'select seq from checkpoint where network = $1 order by seq desc offset 1 limit 1',
    [network],
  )
  return rows[0]!.seq
}

describe.each(['auditor', 'service'] as const)('a page of 50, asked by the %s', (who) => {
  const client = () => (who === 'auditor' ? auditor : service)

  /** Two looks at each address of it, its event and the first of its lease; or the events since, twice, and two parts. */
  const BY_ADDRESS = 4 * PAGE + 50
  const byNumber = (since: number) => 2 * since + 2 * PART + 2 * PAGE + 50

  test.each([
    { where: 'at the begin', network: 'dense', since: DISTANCE - 1, after: undefined, most: BY_ADDRESS },
    { where: 'in the middle', network: 'dense', since: DISTANCE - 1, after: '10.0.20.0', most: BY_ADDRESS },
    { where: 'just behind a checkpoint', network: 'dense', since: 40, after: undefined, most: byNumber(40) },
    {
      where: 'behind addresses that nobody holds',
      network: 'sparse',
      since: DISTANCE - 1,
      after: undefined,
      // As many steps as the events are worth were in vain.
      most: byNumber(DISTANCE) + (2 * DISTANCE) / 20,
    },
    {
      where: 'of those that are held',
      network: 'sparse',
      since: DISTANCE - 1,
      after: '10.0.39.16',
      most: BY_ADDRESS,
    },
  ] as const)('$where', async ({ network, since, after, most }) => {
    const seq = (await checkpointOf(network)) + since
    expect(seq).toBeLessThan(heads[network])
    const whole = await page(client(), { network, seq })
    const asked = { network, seq, most: PAGE, ...(after === undefined ? {} : { after }) }
    const found = await page(client(), asked)
    expect(found.rows).toHaveLength(PAGE)
    if (after === undefined) expect(found.rows).toEqual(whole.rows.slice(0, PAGE))
    expect({ read: found.read, within: found.read <= most }).toMatchObject({ within: true })
    expect(whole.read).toBeGreaterThan(4 * most)
  })
})

test('the name of a pool that was deleted since is looked up once, not for each lease', async () => {
  const seq = heads.dense
  const before = await page(auditor, { network: 'dense', seq })
  await withClient(database.adminUrl, async (admin) => {
    await admin.query(
      `insert into ipledger.event (network_id, seq, type, at, actor, cause, pool_id, settings)
         select e.network_id, $1::bigint + 1, 'pool.deleted', now(), 'test', 'test', e.pool_id, e.settings
           from ipledger.event e where e.network_id = 'dense' and e.type = 'pool.created'`,
      [seq],
    )
    await admin.query(`delete from ipledger.pool where network_id = 'dense'`)
  })
  const after = await page(auditor, { network: 'dense', seq })
  expect(after.rows).toEqual(before.rows)
  expect(after.rows).toHaveLength(HELD)
  expect(new Set(after.rows.map(({ pool }) => pool))).toEqual(new Set(['long']))
  expect(after.read - before.read).toBeLessThan(10)
})

test('where whole parts of the checkpoint ended since, it reaches beyond them', async () => {
  const network = 'ended'
  const head = await writeLongLog(database, ledger, network, { leases: 2_000, held: 2_000, over: 2_000 })
  await withClient(database.serviceUrl, async (client) => {
    expect(await makeCheckpoint(client, network, { distance: head - 1, part: PART })).toBe(true)
  })
  // The first five parts, by address.
  const ended = 5 * PART
  await withClient(database.adminUrl, (admin) =>
    admin.query(
      `insert into ipledger.event (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state,
         reserved_at, available_at, removal_confirmed)
         select l.network_id, $2::bigint + row_number() over (order by l.address), 'lease.released', l.at, 'test', 'test', l.pool_id,
                l.address, 32, l.fencing_token, 'ACTIVE', l.reserved_at, l.at, true
           from ipledger.event l where l.network_id = $1 and l.type = 'lease.confirmed'
          order by l.address limit $3`,
      [network, head, ended],
    ),
  )
  const seq = head + ended
  const whole = await page(auditor, { network, seq })
  expect(whole.rows).toHaveLength(2_000 - ended)
  for (const [after, most] of [
    [undefined, PAGE],
    [undefined, ended],
    ['10.0.0.7', PAGE],
    ['10.0.3.1', PAGE - 1],
  ] as const) {
    const found = await page(auditor, { network, seq, most, ...(after === undefined ? {} : { after }) })
    expect(found.rows, `behind ${after}, ${most}`).toEqual(whole.rows.slice(0, most))
  }
})
