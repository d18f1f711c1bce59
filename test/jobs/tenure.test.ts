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

test('checkpoints that are forgotten while they are made are made again, whole', async () => {
  await withClient(database.serviceUrl, async (client) => {
    let forgotten = false
    // Another connection: a rebuild is another process.
    const disturbed = (text: string) =>
      Object.create(client, {
        query: {
          value: async (given: unknown, cells?: unknown[]) => {
            if (textOf(given) === text && !forgotten) {
              forgotten = true
              await withClient(database.serviceUrl, (other) => forgetCheckpoints(other, NETWORK))
            }
            return client.query(given as string, cells)
          },
        },
      }) as pg.Client
    for (const text of [CHECKPOINT_STATEMENTS.kept, CHECKPOINT_STATEMENTS.changed]) {
      await forgetCheckpoints(client, NETWORK)
      forgotten = false
      const options = { distance: 2_000, part: 50 }
      while (await makeCheckpoint(disturbed(text), NETWORK, options));
      expect(forgotten).toBe(true)
      while (await makeCheckpoint(client, NETWORK, options));
      expect(await checkpoints()).toBeGreaterThan(30)
      await expectVerified(database, { network: NETWORK })
    }
  })
}, 60_000)
