/**
 * The server under the ledger changes while it runs: a standby is promoted that lacks the last commits or none, a commit is
 * confirmed by nobody. The address that the ledger connects to moves with it.
 */
import assert from 'node:assert/strict'
import type pg from 'pg'
import { pino } from 'pino'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import type { LedgerOptions } from '../../src/ledger/open.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { release, reserve } from '../core/given.ts'
import { expectInOrder, freshNetwork, held, linesOf, type TestLedger, useLedger } from '../ledger/opened.ts'
import { withClient } from '../support/database.ts'
import { useProxy } from '../support/proxy.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'
import { startStandby } from './standby.ts'

type Server = Pick<Awaited<ReturnType<typeof startTestServer>>, 'url'>

const primary = await startTestServer()
afterAll(() => primary.stop())
const admin = <T>(server: Server, work: (client: pg.Client) => Promise<T>, database = 'postgres') =>
  withClient(server.url(database), work)

let databases = 0

/** A ledger's database, and an address that leads to it until it is moved. */
async function scene() {
  databases += 1
  const name = `ledger${databases}`
  await admin(primary, (client) => client.query(`create database ${name}`))
  const { serviceUrl } = await openDatabase(
    { databaseUrl: primary.url(name), databaseAdminUrl: undefined, directory: '' },
    { log: pino({ level: 'warn' }), embedded: 'own' },
  )
  const address = await useProxy(serviceUrl)
  const at = (server: Server) => serviceUrl.replace(/@[^/]*/, `@${new URL(server.url(name)).host}`)
  return {
    name,
    address,
    at,
    move: (server: Server) => address.retarget(at(server)),
    open: (options: Partial<LedgerOptions> = {}) => useLedger(address.url, options),
  }
}

async function identityOf(ledger: TestLedger, network: string) {
  const { era, recovering, identity } = (await ledger.image(network))!.network!
  return { era, isRecovering: recovering !== null, timeline: identity.slice(identity.lastIndexOf('/') + 1) }
}

test('a promoted standby that lacks the last commits: a new era, and back on the old primary another', async () => {
  const { address, at, move, open } = await scene()
  const replication = await useProxy(primary.url('postgres'))
  const standby = await startStandby(primary, replication.url)
  onTestFinished(() => standby.stop())
  const ledger = await open()
  const declared = await open({ losesNothing: true })
  const [lost, whole, kept, gone] = await Promise.all(
    [ledger, ledger, declared, declared].map((one) => freshNetwork(one)),
  )
  const all = [lost!, whole!, kept!, gone!]
  for (const { of } of all)
    await (of === kept!.of || of === gone!.of ? declared : ledger).take(of(reserve('before')))
  await standby.caughtUp()
  replication.down(true)
  const acknowledged = await ledger.take(lost!.of(reserve('lost')))
  expect(acknowledged).toMatchObject({ address: '10.0.0.2', fencingToken: 4 })
  await declared.take(gone!.of(reserve('lost')))

  move(standby)
  await waitFor(
    async () => {
      const told = await ledger.submit(whole!.of(reserve('x')), { deadline: performance.now() + 500 })
      return !told.ok && /read-only standby/.test(told.refusal.message)
    },
    { what: 'the word of the standby' },
  )
  await standby.promote()

  // Who quotes the lost lease before anybody else has asked is told by the era that begins first.
  await ledger.refuse(lost!.of(release(acknowledged.fencingToken)), 'LEASE_NOT_FOUND')
  await ledger.refuse(lost!.of(reserve('y')), 'NETWORK_RECOVERING')
  // It knows of no loss, but others may.
  await ledger.refuse(whole!.of(reserve('y')), 'NETWORK_RECOVERING')
  expect(ledger.eras).toEqual([
    '1: number 4 is not in the log as this process knows it',
    expect.stringMatching(/^1: .*a failover, or a recovery to a point in time$/),
  ])
  // Declared to lose nothing: where that is so it goes on, and where it is not it is found out.
  expect(await declared.take(kept!.of(reserve('y')))).toMatchObject({ address: '10.0.0.2', fencingToken: 5 })
  await declared.refuse(gone!.of(reserve('y')), 'NETWORK_RECOVERING')
  expect(await identityOf(declared, kept!.network)).toEqual({
    era: 0,
    isRecovering: false,
    timeline: '00000002',
  })
  expect(await identityOf(declared, gone!.network)).toMatchObject({ era: 1, isRecovering: true })
  for (const { network } of all) await expectInOrder(at(standby), network, ledger, declared)

  // The old primary is the life it was, and knows nothing of what came since; these processes do.
  move(primary)
  await ledger.refuse(whole!.of(reserve('z')), 'NETWORK_RECOVERING')
  await declared.refuse(kept!.of(reserve('z')), 'NETWORK_RECOVERING')
  assert.equal((await identityOf(ledger, whole!.network)).era, 2)
  assert.equal((await identityOf(declared, kept!.network)).era, 1)
  await expectInOrder(at(primary), whole!.network, ledger, declared)
  await address.close()
})

test('a promoted synchronous standby lacks nothing: one that is declared so goes on, and so do processes that start later', async () => {
  const { at, move, open } = await scene()
  const standby = await startStandby(primary)
  onTestFinished(() => standby.stop())
  await synchronous('*')
  const ledger = await open({ losesNothing: true })
  const { network, of } = await freshNetwork(ledger)
  const leases = await Promise.all(['a', 'b', 'c'].map((name) => ledger.take(of(reserve(name)))))
  await synchronous('')
  await standby.promote()
  move(standby)
  expect(await ledger.take(of(reserve('d')))).toMatchObject({ address: '10.0.0.4', fencingToken: 7 })
  assert.deepEqual((await linesOf(ledger, network)).slice(5), [
    'network.updated',
    'lease.reserved 10.0.0.4 RESERVED #7',
  ])
  const later = await open()
  expect(await later.take(of(reserve('e')))).toMatchObject({ address: '10.0.0.5', fencingToken: 8 })
  assert.deepEqual(
    (await held(later, network)).map((one) => one.split(' ')[0]),
    [...leases.map(({ address }) => address), '10.0.0.4', '10.0.0.5'],
  )
  await expectInOrder(at(standby), network, ledger, later)
})

/** Of the whole server. */
/** Commits begin to wait when the checkpointer has read the setting, which may be later than every other process. */
async function commitsWait(client: pg.Client): Promise<boolean> {
  return admin(primary, async (probe) => {
    const { pid } = (await probe.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]!
    let isOver = false
    const committed = probe.query(`select pg_logical_emit_message(true, 'probe', '')`).then(() => {
      isOver = true
    })
    const isWaiting = async () =>
      (await client.query(`select from pg_stat_activity where pid = $1 and wait_event = 'SyncRep'`, [pid]))
        .rows.length > 0
    const waits = await waitFor(async () => (isOver ? 'over' : (await isWaiting()) && 'waits'))
    await client.query('select pg_cancel_backend($1)', [pid])
    await committed
    return waits === 'waits'
  })
}

async function synchronous(names: string): Promise<void> {
  await admin(primary, async (client) => {
    await client.query(`alter system set synchronous_standby_names = '${names}'`)
    await client.query('select pg_reload_conf()')
    await waitFor(
      async () =>
        (await client.query('show synchronous_standby_names')).rows[0]!.synchronous_standby_names === names,
    )
    if (names !== '' && names !== '*')
      await waitFor(() => commitsWait(client), { what: 'commits to wait for a standby' })
    if (names === '*')
      await waitFor(
        async () =>
          (await client.query(`select 1 from pg_stat_replication where sync_state = 'sync'`)).rows.length > 0,
        { what: 'the standby to be synchronous' },
      )
  })
}

test('a commit whose wait for a standby was cancelled is no success until a later commit was confirmed', async () => {
  const { name, at, open } = await scene()
  const ledger = await open()
  const { network, of } = await freshNetwork(ledger)
  await ledger.take(of(reserve('before')))
  await synchronous('missing')
  onTestFinished(() => synchronous(''))
  const waits = (since: number) =>
    admin(primary, (client) =>
      waitFor(
        async () => {
          const { rows } = await client.query<{ pid: number; xact: number }>(
            `select pid, (date_part('epoch', xact_start) * 1e6)::bigint as xact from pg_stat_activity where datname = $1 and wait_event = 'SyncRep'`,
            [name],
          )
          return rows.find(({ xact }) => xact > since)
        },
        { what: 'a commit that waits for the standby' },
      ),
    )
  const cancel = (pid: number) =>
    admin(primary, (client) => client.query('select pg_cancel_backend($1)', [pid]))

  const answers: string[] = []
  const patient = ledger.take(of(reserve('a', { requestId: 'r', fingerprint: 'f' })), {
    deadline: performance.now() + 60_000,
  })
  void patient.then(() => answers.push('patient'))
  const hasty = ledger.refuse(of(reserve('b')), 'OUTCOME_UNKNOWN', { deadline: performance.now() + 3_000 })
  const first = await waits(0)
  await cancel(first.pid)
  // The events are there for all to see, and the look-up of the batch waits for the standby as well.
  const second = await waits(first.xact)
  await hasty
  assert.deepEqual(answers, [])
  assert.deepEqual(ledger.failed, ['unknown: the commit was not confirmed by a standby'])
  await cancel(second.pid)
  await waits(second.xact)
  assert.deepEqual(answers, [])
  await synchronous('')
  expect(await patient).toMatchObject({ address: '10.0.0.2', fencingToken: 4 })
  assert.deepEqual((await linesOf(ledger, network)).slice(3), [
    'lease.reserved 10.0.0.2 RESERVED #4',
    'lease.reserved 10.0.0.3 RESERVED #5',
  ])
  expect(await ledger.submit(of(reserve('a', { requestId: 'r', fingerprint: 'f' })))).toMatchObject({
    replayed: true,
  })
  await expectInOrder(at(primary), network, ledger)
})
