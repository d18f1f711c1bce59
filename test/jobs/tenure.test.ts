/**
 * The jobs that keep the past: each run twice at once and broken off in the middle, on a log long enough to have checkpoints
 * at their own distance.
 */
import type pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { CHECKPOINT_STATEMENTS, forgetCheckpoints, makeCheckpoint } from '../../src/ledger/checkpoints.ts'
import { rebuild } from '../../src/ledger/rebuild.ts'
import { projectSlice, TENURE_STATEMENTS } from '../../src/ledger/tenure.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'
import { openJobs } from '../support/run-jobs.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const jobs = openJobs(database.serviceUrl)
afterAll(() => jobs.close())
const NETWORK = 'long'
const HELD = 3_000

const count = (text: string) =>
  withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query<{ count: number }>(text, [NETWORK])
    return rows[0]!.count
  })
const checkpoints = () =>
  count('select count(*)::int as count from ipledger.lease_checkpoint where network_id = $1 and seq > 0')
const tenures = () => count('select count(*)::int as count from ipledger.tenure where network_id = $1')

const textOf = (given: unknown): unknown =>
  typeof given === 'object' && given !== null && 'text' in given ? given.text : given

/** Breaks off with the nth run of a statement, as a killed worker does. */
function breaking(client: pg.Client, text: string, nth: number): pg.Client {
  let runs = 0
  const query = (given: unknown, cells?: unknown[]) => {
    if (textOf(given) === text) {
      runs += 1
      if (runs === nth) throw new Error('killed')
    }
    return client.query(given as string, cells)
  }
  return Object.create(client, { query: { value: query } })
}

test('a long log is followed by two at once, and by who comes after one that was killed', async () => {
  await writeLongLog(database, ledger, NETWORK, { leases: 25_000, held: HELD, over: 5_000 })
  await rebuild({ adminUrl: database.adminUrl, network: NETWORK })
  await withClient(database.serviceUrl, async (client) => {
    const killed = breaking(client, TENURE_STATEMENTS.move, 2)
    await projectSlice(killed, NETWORK, 2_000)
    const before = await tenures()
    await expect(projectSlice(killed, NETWORK, 2_000)).rejects.toThrow('killed')
    expect(await tenures(), 'nothing of the slice is left').toBe(before)
  })
  await Promise.all([jobs.run('project-tenure', NETWORK), jobs.run('project-tenure', NETWORK)])
  expect(await tenures()).toBe(25_000)

  await withClient(database.serviceUrl, async (client) => {
    const killed = breaking(client, CHECKPOINT_STATEMENTS.whole, 1)
    await expect(makeCheckpoint(killed, NETWORK, { distance: 20_000 })).rejects.toThrow('killed')
  })
  expect(await checkpoints(), 'what was not finished says nothing').toBe(0)
  await Promise.all([jobs.run('keep-checkpoints', NETWORK), jobs.run('keep-checkpoints', NETWORK)])
  // Some 72,000 events, one for each 20,000.
  expect(await checkpoints()).toBe(3)
  await expectVerified(database, { network: NETWORK })
}, 60_000)

/** Does something else, on another connection, when a statement is about to run for the nth time. */
function disturbed(
  client: pg.Client,
  text: string,
  nth: number,
  disturb: (other: pg.Client) => Promise<unknown>,
) {
  const ran = { times: 0 }
  const query = async (given: unknown, cells?: unknown[]) => {
    if (textOf(given) === text) {
      ran.times += 1
      if (ran.times === nth) await withClient(database.serviceUrl, disturb)
    }
    return client.query(given as string, cells)
  }
  const disturbing: pg.Client = Object.create(client, { query: { value: query } })
  return { disturbing, ran }
}

const OFTEN = { distance: 4_000, part: 50 }

/** From nothing; the checkpoint after which the next has parts of it to read. */
async function makeAll(client: pg.Client, most = Number.POSITIVE_INFINITY): Promise<void> {
  await forgetCheckpoints(client, NETWORK)
  while ((await checkpoints()) < most && (await makeCheckpoint(client, NETWORK, OFTEN)));
}

test('what is made from a checkpoint that is forgotten meanwhile, and made again, does not count', async () => {
  await withClient(database.serviceUrl, async (client) => {
    await makeAll(client)
    const all = await checkpoints()
    expect(all).toBeGreaterThan(10)
    const last = await locksOfOne(client, all)
    for (const [text, nth] of [
      [CHECKPOINT_STATEMENTS.kept, 1],
      [LOCK, 2],
      [LOCK, last],
    ] as const) {
      await makeAll(client, all - 1)
      // The one that the next is made from is wrong, and a rebuild mends it while the next is being made.
      await withClient(database.adminUrl, (admin) =>
        admin.query(
          `update ipledger.lease_checkpoint_part set events = events[2:2] || events[2:] where network_id = $1 and part = 0
             and seq = (select max(seq) from ipledger.lease_checkpoint where network_id = $1)`,
          [NETWORK],
        ),
      )
      const { disturbing, ran } = disturbed(client, text, nth, (other) => makeAll(other, all - 1))
      expect(await makeCheckpoint(disturbing, NETWORK, OFTEN)).toBe(false)
      expect(ran.times).toBe(nth)
      while (await makeCheckpoint(client, NETWORK, OFTEN));
      expect(await checkpoints()).toBe(all)
      await expectVerified(database, { network: NETWORK })
    }
  })
}, 120_000)

const LOCK = CHECKPOINT_STATEMENTS.lockCheckpoint

/** How often the last one takes the lock: each time, somebody else may have been there before. */
async function locksOfOne(client: pg.Client, all: number): Promise<number> {
  await makeAll(client, all - 1)
  const { disturbing, ran } = disturbed(client, LOCK, 0, async () => {})
  expect(await makeCheckpoint(disturbing, NETWORK, OFTEN)).toBe(true)
  expect(ran.times).toBeGreaterThan(4)
  return ran.times
}

test('who comes late, with the checkpoint before the last, removes nothing of the last', async () => {
  await withClient(database.serviceUrl, async (client) => {
    await makeAll(client, 3)
    const parts = () =>
      count('select count(*)::int as count from ipledger.lease_checkpoint_part where network_id = $1')
    // It has read which is the last; another makes the next one, and goes on from that.
    let others = 0
    const { disturbing, ran } = disturbed(client, CHECKPOINT_STATEMENTS.due, 1, async (other) => {
      expect(await makeCheckpoint(other, NETWORK, OFTEN)).toBe(true)
      others = await parts()
    })
    expect(await makeCheckpoint(breaking(disturbing, CHECKPOINT_STATEMENTS.changed, 1), NETWORK, OFTEN)).toBe(
      false,
    )
    expect(ran.times).toBe(1)
    expect(await parts(), 'all of the checkpoint that the other made').toBe(others)
    expect(await makeCheckpoint(client, NETWORK, OFTEN)).toBe(true)
    await expectVerified(database, { network: NETWORK })
  })
}, 60_000)

test('from a checkpoint of which a part is gone none is made, and it says what to do', async () => {
  await withClient(database.serviceUrl, async (client) => {
    await makeAll(client, 3)
    await withClient(database.adminUrl, (admin) =>
      admin.query(
        `delete from ipledger.lease_checkpoint_part where network_id = $1 and part = 0
           and seq = (select max(seq) from ipledger.lease_checkpoint where network_id = $1)`,
        [NETWORK],
      ),
    )
    await expect(makeCheckpoint(client, NETWORK, OFTEN)).rejects.toThrow(
      /^the checkpoint of network long at number [0-9]+ has not all of its leases; run ipledger rebuild --tenure$/,
    )
    expect(await checkpoints()).toBe(3)
    await makeAll(client)
    await expectVerified(database, { network: NETWORK })
  })
}, 60_000)

test('a checkpoint whose parts another removed is not whole', async () => {
  await withClient(database.serviceUrl, async (client) => {
    await makeAll(client)
    const all = await checkpoints()
    const last = await locksOfOne(client, all)
    await makeAll(client, all - 1)
    // Another began with it, removed what it found of it, and was killed.
    const { disturbing, ran } = disturbed(client, LOCK, last, async (other) => {
      const killed = breaking(other, CHECKPOINT_STATEMENTS.changed, 1)
      await expect(makeCheckpoint(killed, NETWORK, OFTEN)).rejects.toThrow('killed')
    })
    expect(await makeCheckpoint(disturbing, NETWORK, OFTEN)).toBe(false)
    expect(ran.times).toBe(last)
    expect(await checkpoints()).toBe(all - 1)
    expect(await makeCheckpoint(client, NETWORK, OFTEN)).toBe(true)
    await expectVerified(database, { network: NETWORK })
  })
}, 60_000)
