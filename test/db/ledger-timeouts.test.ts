/**
 * Whoever holds a network's lock and stops, a paused process or a connection gone silent, holds it for seconds, never
 * for good; and nobody is told more than is known. These take the real time-outs, so they run side by side.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import type pg from 'pg'
import { afterAll, describe, expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { claim, createPool, owner, reserve } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { freshNetwork, openTestLedger, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { startProxy } from '../support/proxy.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

async function freshPool(): Promise<string> {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  return network
}

function any(network: string, name: string, requestId: string | null = null) {
  return reserve({
    network,
    owner: owner({ name }),
    claims: [claim({ pool: 'a' })],
    requestId,
    fingerprint: requestId,
  })
}

test('time-outs and plans belong to the role, not to sessions', async () => {
  const { rows } = await admin.query<{ setting: string }>(
    `select unnest(setconfig) as setting from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
     where r.rolname = 'ipledger_service' and s.setdatabase = 0`,
  )
  expect(rows.map((row) => row.setting)).toEqual(
    expect.arrayContaining([
      'idle_in_transaction_session_timeout=2s',
      'lock_timeout=3s',
      'statement_timeout=5s',
      'plan_cache_mode=force_generic_plan',
    ]),
  )
  await withClient(database.serviceUrl, async (client) => {
    const found = await client.query(
      `select name, source from pg_settings where name in
        ('idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout') order by name`,
    )
    expect(found.rows.map((row: { source: string }) => row.source)).toEqual(['user', 'user', 'user'])
  })
})

describe.concurrent('somebody stops while holding the lock', () => {
  test('an idle transaction of the service ends within its time-out, and the others go on', async () => {
    const network = await freshPool()
    const paused = await connect({ url: database.serviceUrl, applicationName: 'test' })
    await paused.query('begin')
    await paused.query('select 1 from ipledger.network_lock where network_id = $1 for no key update', [
      network,
    ])
    const begun = performance.now()
    expect((await ledger.take(any(network, 'x'))).address).toBe('10.0.0.1')
    expect(performance.now() - begun).toBeLessThan(6_000)
    await expect(paused.query('commit')).rejects.toThrow()
    await expectPartition(admin, network)
  })

  test('a process stopped in the middle of a batch', async () => {
    const network = await freshPool()
    const child = await startWriter(network)
    // Stopped between its two trips more often than not; whichever it was, the lock must come free.
    for (let turn = 0; turn < 3; turn += 1) {
      process.kill(child.pid!, 'SIGSTOP')
      const begun = performance.now()
      await ledger.take(any(network, `turn${turn}`))
      expect(performance.now() - begun).toBeLessThan(6_000)
      process.kill(child.pid!, 'SIGCONT')
      const before = await events(network)
      await waitFor(async () => (await events(network)) > before + 20, { what: 'the stopped one to go on' })
    }
    child.kill('SIGKILL')
    await waitFor(() => child.signalCode !== null)
    await waitFor(async () => {
      const { rows } = await admin.query(
        `select 1 from pg_stat_activity where datname = $1 and application_name = 'ipledger ledger' and state <> 'idle'`,
        [database.name],
      )
      return rows.length === 0
    })
    await expectPartition(admin, network)
  })

  test('a lock held for longer than a statement may wait costs no call', async () => {
    const network = await freshPool()
    const own = openTestLedger({ url: database.serviceUrl, connections: 1 })
    const holder = await connect({ url: database.adminUrl, applicationName: 'test' })
    await holder.query('begin')
    await holder.query('select 1 from ipledger.network_lock where network_id = $1 for update', [network])
    const waiting = own.take(any(network, 'x'))
    await waitFor(() => own.logged.length > 0, { what: 'the lock time-out' })
    expect(own.logged[0]).toMatchObject({ fields: { kind: 'unsent', err: { code: '55P03' } } })
    await holder.query('rollback')
    await holder.end()
    expect((await waiting).address).toBe('10.0.0.1')
    await own.close()
  })

  test('a server that answers nothing any more: the call ends by its deadline, and the next one is served', async () => {
    const network = await freshPool()
    const proxy = await startProxy(database.serviceUrl)
    const far = openTestLedger({ url: proxy.url, connections: 1 })
    await far.take(any(network, 'warm'))
    proxy.silent(true)
    const begun = performance.now()
    // Neither is decided, so both can be told that they hold nothing.
    await Promise.all([
      far.refuse(any(network, 'in flight'), 'OVERLOADED', { deadline: begun + 500 }),
      far.refuse(any(network, 'queued'), 'OVERLOADED', { deadline: begun + 600 }),
    ])
    expect(performance.now() - begun).toBeLessThan(2_000)
    // By then it is not the queue that is slow.
    await far.refuse(any(network, 'later'), 'DATABASE_UNAVAILABLE', { deadline: begun + 4_000 })
    const patient = far.take(any(network, 'patient'), { deadline: begun + 40_000 })
    await waitFor(() => far.logged.some(({ fields }) => 'kind' in fields && fields.kind === 'unsent'), {
      timeout: 15_000,
      what: 'the watchdog',
    })
    proxy.silent(false)
    expect((await patient).address).toBe('10.0.0.2')
    await far.close()
    await proxy.close()
  }, 40_000)

  test('a server that answers nothing to the commit: each caller is told at its deadline that nobody knows, and the lease is there', async () => {
    const network = await freshPool()
    const proxy = await startProxy(database.serviceUrl)
    const far = openTestLedger({ url: proxy.url, connections: 1 })
    await far.take(any(network, 'warm'))
    proxy.silentFromNextCommit()
    const begun = performance.now()
    const patient = far.refuse(any(network, 'patient', 'p'), 'OUTCOME_UNKNOWN', { deadline: begun + 30_000 })
    await far.refuse(any(network, 'hasty', 'h'), 'OUTCOME_UNKNOWN', { deadline: begun + 500 })
    expect(performance.now() - begun).toBeLessThan(2_000)
    // The batch is in flight still: nobody has given it up.
    expect(far.logged).toEqual([])
    // Another process knows: it finds what was committed.
    const again = await waitFor(async () => {
      const outcome = await ledger.submit(any(network, 'hasty', 'h'))
      return outcome.ok && outcome
    })
    expect(again).toMatchObject({ replayed: true, answer: { leases: [{ address: '10.0.0.3' }] } })
    proxy.silent(false)
    await patient
    expect(far.logged).toMatchObject([{ fields: { kind: 'unknown' } }])
    expect((await far.take(any(network, 'patient', 'p'))).address).toBe('10.0.0.2')
    await far.close()
    await proxy.close()
    await expectPartition(admin, network)
  }, 40_000)
})

// By itself: it holds the table of the locks.
test('after a veto, those whose turn comes later end by their deadline too', async () => {
  const network = await freshPool()
  const own = openTestLedger({ url: database.serviceUrl, connections: 1 })
  await own.take(any(network, 'warm'))
  // Somebody else's row at the next address, whose fate the batch has to wait for while it holds the lock.
  const phantom = await connect({ url: database.adminUrl, applicationName: 'test' })
  await phantom.query('begin')
  await phantom.query(
    `insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key,
       attachment_key, node, boot, labels, witness, reserved_at)
     select network_id, '10.0.0.2', prefix_length, pool_id, 900000, 900000, state, owner_kind, 'phantom', 'phantom',
       false, '', owner_interface, 'pod|eth0|phantom', 'pod|eth0||phantom', '', '', labels, '', reserved_at
     from ipledger.lease where network_id = $1`,
    [network],
  )
  const first = own.take(any(network, 'first'), { deadline: performance.now() + 20_000 })
  const later = own.submit(any(network, 'later'), { deadline: performance.now() + 2_000 })
  await waitFor(() => blocks(phantom), { what: 'the batch to wait for the row' })
  // Next in line for the lock: the first of the two gets no further. Of a table, since a row's goes to whoever comes.
  const holder = await connect({ url: database.adminUrl, applicationName: 'test' })
  await holder.query('begin')
  const locked = holder.query('lock table ipledger.network_lock in access exclusive mode')
  await waitFor(() => isBlocked(holder), { what: 'the holder to wait for the lock' })
  await phantom.query('commit')
  await locked
  // Which of the two depends on how long the batch has waited by then; both say that it holds nothing.
  const ended = await later
  expect(['OVERLOADED', 'DATABASE_UNAVAILABLE']).toContain(ended.ok || ended.refusal.reason)
  // Before the lock time-out put it back into the queue, where deadlines are looked at as well.
  expect(own.logged.map(({ fields }) => 'kind' in fields && fields.kind)).toEqual(['rolledBack'])
  await holder.query('rollback')
  expect((await first).address).toBe('10.0.0.3')
  await admin.query('delete from ipledger.lease where network_id = $1 and fencing_token = 900000', [network])
  await Promise.all([own.close(), holder.end(), phantom.end()])
  await expectPartition(admin, network)
})

test('the ledgers of this file are in order', () => expectVerified(database))

async function events(network: string): Promise<number> {
  const { rows } = await admin.query<{ count: number }>(
    'select count(*) as count from ipledger.event where network_id = $1',
    [network],
  )
  return rows[0]!.count
}

async function blocks(client: pg.Client): Promise<boolean> {
  const { rows } = await admin.query(
    'select 1 from pg_stat_activity where $1::int = any(pg_blocking_pids(pid))',
    [backendOf(client)],
  )
  return rows.length > 0
}

async function isBlocked(client: pg.Client): Promise<boolean> {
  const { rows } = await admin.query<{ blocked: boolean }>(
    'select cardinality(pg_blocking_pids($1)) > 0 as blocked',
    [backendOf(client)],
  )
  return rows[0]!.blocked
}

/** The driver knows it from the start, and its types do not say so. */
function backendOf(client: pg.Client): number {
  return (client as unknown as { readonly processID: number }).processID
}

/** Another process that reserves and releases without pause. */
async function startWriter(network: string): Promise<ChildProcess> {
  const child = spawn(
    process.execPath,
    [new URL('../support/write-forever.ts', import.meta.url).pathname, database.serviceUrl, network, 'a'],
    { stdio: ['ignore', 'inherit', 'inherit'] },
  )
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  await waitFor(async () => (await events(network)) > 20, { what: 'the writer' })
  return child
}
