/** The job that seals logs: what it does in a run, and what it says where it must not go on. */
import { afterAll, expect, test } from 'vitest'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { createSealLog, sealLog } from '../../src/jobs/seal-log.ts'
import { EVENTS_PER_SEAL, SEAL_AFTER_MS, SEAL_STATEMENTS } from '../../src/ledger/seals.ts'
import { verify } from '../../src/ledger/verify.ts'
import { createLogger } from '../../src/telemetry.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'
import { useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const ledger = useLedger({ url: database.serviceUrl })
afterAll(() => expectVerified(database, { network: 'n1' }))

const seals = (network: string) =>
  truth.rows<{ first: number; last: number }>(
    'select first_seq as first, last_seq as last from ipledger.seal where network_id = $1 order by 1',
    network,
  )

test('a young stretch is left for the next run, an old one is sealed; the last event of all is sealed in the end', async () => {
  const network = await truth.network()
  for (let n = 0; n < 5; n += 1) await truth.lease(network, workload(n))
  expect(await truth.run(sealLog)).toEqual({ seals: 0, sealed: 0, stopped: 0 })
  await truth.past(network, SEAL_AFTER_MS + 1_000)
  expect(await truth.run(sealLog)).toEqual({ seals: 1, sealed: 7, stopped: 0 })
  await truth.lease(network, workload('later'))
  expect(await truth.run(sealLog)).toEqual({ seals: 0, sealed: 0, stopped: 0 })
  expect(await seals(network)).toEqual([{ first: 1, last: 7 }])
})

test('a long log is sealed in one run, by two at once as by one, a full seal at a time', async () => {
  const head = await writeLongLog(database, ledger, 'long', { leases: 6_000, held: 500, over: 5_000 })
  const job = (signal?: AbortSignal) =>
    sealLog(truth.context({ database: onlyLong(), ...(signal !== undefined && { signal }) }))
  const stopped = new AbortController()
  stopped.abort()
  expect(await job(stopped.signal)).toEqual({})
  const [one, other] = await Promise.all([job(), job()])
  const full = Math.floor(head / EVENTS_PER_SEAL)
  expect(one.seals! + other.seals!).toBe(full)
  expect(await seals('long')).toEqual(
    Array.from({ length: full }, (_, n) => ({
      first: EVENTS_PER_SEAL * n + 1,
      last: EVENTS_PER_SEAL * (n + 1),
    })),
  )
  const { networks } = await verify({ url: database.serviceUrl, network: 'long', seals: true })
  expect(networks[0]!.seals).toMatchObject({ seals: full, unsealed: head - full * EVENTS_PER_SEAL })
  expect(networks[0]!.findings.filter(({ what }) => /SEAL|^EVENTS?_/.test(what))).toEqual([])

  // One is removed before it is sealed: it must not be sealed over.
  await withClient(database.adminUrl, async (admin) => {
    await admin.query('delete from ipledger.seal where network_id = $1', ['long'])
    await admin.query('delete from ipledger.event where network_id = $1 and seq = 5000', ['long'])
  })
  const said: unknown[] = []
  const log = Object.assign(createLogger('silent'), { error: (...words: unknown[]) => void said.push(words) })
  expect(await sealLog(truth.context({ database: onlyLong(), log }))).toEqual({
    seals: 1,
    sealed: EVENTS_PER_SEAL,
    stopped: 1,
  })
  expect(said).toEqual([
    [
      { network: 'long', why: 'events are missing between 4097 and 8192' },
      'nothing is sealed: the log has lost events, run "ipledger verify"',
    ],
  ])
})

/** Connections of a world of one network. */
function onlyLong() {
  const query = async (text: string, values?: unknown[]) =>
    text.startsWith('select network_id from ipledger.network ')
      ? { rows: [{ network_id: 'long' }] }
      : truth.connections.query(text, values)
  return { query, connect: () => truth.connections.connect() } as unknown as typeof truth.connections
}

test('a run ends when its slot is over, and the next goes on; a network that is being sealed is left to who is at it', async () => {
  await withClient(database.adminUrl, (admin) =>
    admin.query('delete from ipledger.seal where network_id = $1', ['long']),
  )
  const job = (slotMs: number) => createSealLog({ slotMs })(truth.context({ database: onlyLong() }))
  expect(await job(0)).toEqual({})
  // As a process that was stopped in the middle of a seal.
  await withClient(database.serviceUrl, async (holder) => {
    await holder.query('begin')
    await holder.query(SEAL_STATEMENTS.lock, ['long'])
    expect(await job(5_000)).toEqual({ seals: 0, sealed: 0, stopped: 0 })
    await holder.query('rollback')
  })
  expect(await job(5_000)).toMatchObject({ seals: 1 })
})

test('it is in the schedule, every minute', () => {
  expect(createSchedule()['seal-log']).toEqual({ everyMinutes: 1, run: sealLog })
})
