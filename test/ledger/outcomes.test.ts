/**
 * What a caller may be told: committed only when the commit was answered so; that nothing was done only before a commit was
 * sent, or when its rollback is confirmed; the truth as soon as the log says it.
 */
import assert from 'node:assert/strict'
import type pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { connect } from '../../src/postgres/connect.ts'
import { command, enable, pool, register, release, reserve } from '../core/given.ts'
import { TestClock } from '../support/clock.ts'
import { useTestDatabase } from '../support/database.ts'
import { useProxy } from '../support/proxy.ts'
import { waitFor } from '../support/wait-for.ts'
import { expectInOrder, freshNetwork, held, linesOf, type TestLedger, useLedger } from './opened.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const soon = (ms: number) => ({ deadline: performance.now() + ms })

/** A network with one lease, 10.0.0.1 of `warm`, of a ledger on connections of its own. */
async function warm(url = database.serviceUrl) {
  const ledger = await useLedger(url)
  const { network, of } = await freshNetwork(ledger)
  await ledger.take(of(reserve('warm')))
  return { ledger, network, of }
}

async function behindProxy() {
  const proxy = await useProxy(database.serviceUrl)
  return { proxy, ...(await warm(proxy.url)) }
}

/** A transaction of a superuser that is open until it is told to end. */
async function meanwhile<T>(
  statements: readonly (readonly [string, (readonly unknown[])?])[],
  work: (other: pg.Client) => Promise<T>,
) {
  const other = await connect({ url: database.adminUrl, applicationName: 'test' })
  try {
    await other.query('begin')
    for (const [text, values = []] of statements) await other.query(text, [...values])
    return await work(other)
  } finally {
    await other.end()
  }
}

const waiting = () =>
  waitFor(
    async () => {
      const { rows } = await admin.query<{ pid: number }>(
        `select pid from pg_stat_activity where datname = $1 and usename = 'ipledger_service' and wait_event_type = 'Lock'`,
        [database.name],
      )
      return rows[0]?.pid
    },
    { what: 'the ledger to wait for a lock' },
  )

const LOCK = 'select 1 from ipledger.network_lock where network_id = $1 for update'
/** The next event of a network as a second writer would leave it that takes no lock: for another owner at an address. */
const OTHER_WRITER = `insert into ipledger.event
  select (jsonb_populate_record(e, jsonb_build_object('seq', e.seq + $3::bigint, 'token', e.seq + $3::bigint, 'address', $2::text,
    'owner_name', 'other', 'owner_uid', 'other'))).* from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1`

describe('what a constraint refuses', () => {
  test('a row of a second writer without the lock: the image is loaded afresh, and everybody is served', async () => {
    const { ledger, network, of } = await warm()
    const { loads } = ledger
    const leases = await meanwhile([[OTHER_WRITER, [network, '10.0.0.2', 1]]], async (other) => {
      const both = Promise.all(['a', 'b'].map((name) => ledger.take(of(reserve(name)))))
      await waiting()
      // Its projection comes with it, as a writer's would.
      await other.query(
        `insert into ipledger.lease select network_id, address, seq, pool_id, state, node from ipledger.event
          where network_id = $1 order by seq desc limit 1`,
        [network],
      )
      await other.query('commit')
      return both
    })
    assert.deepEqual(
      leases.map(({ address }) => address),
      ['10.0.0.3', '10.0.0.4'],
    )
    assert.deepEqual(ledger.loads, loads + 1)
    expect(ledger.failed).toEqual([
      expect.stringMatching(/^vetoed: duplicate key value .*number_is_given_once/),
    ])
    assert.deepEqual(ledger.defects, [])
    assert.deepEqual(await held(ledger, network), [
      '10.0.0.1 warm',
      '10.0.0.2 other',
      '10.0.0.3 a',
      '10.0.0.4 b',
    ])
  })

  test('an event that no image knows: the command that would fork the chain is refused alone, and alarmed', async () => {
    const { ledger, network, of } = await warm()
    await ledger.accept(of(command({ type: 'beginEra', above: 0, recovering: false, why: 'test' })))
    await ledger.take(of(reserve('second')))
    // In the gap that the era left, where nobody looks again.
    await admin.query(OTHER_WRITER, [network, '10.0.0.7', 100 - 2 ** 40])
    const culprit = of(reserve('x', { claims: [{ address: '10.0.0.7' }] }))
    const outcomes = await Promise.all(
      [of(reserve('a')), culprit, of(reserve('b')), of(release('second'))].map((one) => ledger.submit(one)),
    )
    assert.deepEqual(
      outcomes.map((one) => (one.ok ? one.answer.leases[0]!.address : one.refusal.reason)),
      ['10.0.0.3', 'ILLEGAL_STATE', '10.0.0.4', 'INVALID_FIELD'],
    )
    assert.deepEqual(ledger.defects, [culprit])
    expect(ledger.failed.every((one) => one.includes('history_of_an_address_never_forks'))).toBe(true)
    // The next batch is one again, and other addresses are as good as before.
    assert.equal((await ledger.take(of(reserve('c')))).address, '10.0.0.5')
    await admin.query(`delete from ipledger.event where network_id = $1 and owner_name = 'other'`, [network])
    assert.equal((await ledger.take(culprit)).address, '10.0.0.7')
    await expectInOrder(database.serviceUrl, network, ledger)
  })

  test('a pool put in by hand: the fresh image has it, and says so', async () => {
    const { ledger, network, of } = await warm()
    await admin.query(
      `insert into ipledger.pool select network_id, 77, 'byhand', '10.9.0.0/24', 32, replace(settings::text, '10.0.0', '10.9.0')::json,
         77, now(), now() from ipledger.pool where network_id = $1`,
      [network],
    )
    const { message } = await ledger.refuse(of(pool('10.9.0.0/16', { name: 'mine' })), 'INVALID_FIELD')
    assert.match(message, /overlaps .*10\.9\.0\.0\/24/)
    expect(ledger.failed).toEqual([expect.stringContaining('pools_never_overlap')])
    await admin.query('delete from ipledger.pool where pool_id = 77')
  })

  test('what a column cannot hold, and what cannot be decided at all, is refused alone', async () => {
    const { ledger, network, of } = await warm()
    const broken: Command[] = [
      of(reserve('nul\u0000')),
      of(reserve('never', { claims: [{ address: null as never, pools: null as never }] })),
    ]
    for (const culprit of broken) {
      const outcomes = await Promise.all(
        [of(reserve('a')), culprit, of(reserve('b'))].map((one) => ledger.submit(one)),
      )
      assert.deepEqual(
        outcomes.map((one) => (one.ok ? one.answer.leases[0]!.address : one.refusal.reason)),
        ['10.0.0.2', 'ILLEGAL_STATE', '10.0.0.3'],
      )
    }
    assert.deepEqual(ledger.defects, broken)
    await expectInOrder(database.serviceUrl, network, ledger)
  })
})

describe('what fails for other reasons', () => {
  test('is undone and tried again: the database forbids a write for a while', async () => {
    const { ledger, network, of } = await warm()
    await admin.query('revoke insert on ipledger.event from ipledger_service')
    try {
      const patient = ledger.take(of(reserve('a')))
      // One whose deadline passes while an attempt is under way is told that nobody knows.
      const { message } = await waitFor(async () => {
        const hasty = await ledger.submit(of(reserve('hasty')), soon(300))
        return !hasty.ok && hasty.refusal.reason === 'DATABASE_UNAVAILABLE' && hasty.refusal
      })
      assert.match(message, /nothing was done: permission denied for table event/)
      expect(ledger.failed[0]).toMatch(/^rolledBack: permission denied/)
      await admin.query('grant insert on ipledger.event to ipledger_service')
      expect((await patient).address).toBe('10.0.0.2')
    } finally {
      await admin.query('grant insert on ipledger.event to ipledger_service')
    }
    assert.deepEqual(await held(ledger, network), ['10.0.0.1 warm', '10.0.0.2 a'])
    await expectInOrder(database.serviceUrl, network, ledger)
  })

  test('a clock step whose hold was rolled back is held by the next batch', async () => {
    let aheadMs = 0
    const ledger = await useLedger(database.serviceUrl, {
      clock: new TestClock({ database: () => Date.now() + aheadMs }),
    })
    const { network, of } = await freshNetwork(ledger)
    await ledger.take(of(reserve('a')))
    await admin.query('revoke insert on ipledger.event from ipledger_service')
    aheadMs = 3_600_000
    const patient = ledger.take(of(reserve('b')))
    await waitFor(() => ledger.failed.length > 1)
    await admin.query('grant insert on ipledger.event to ipledger_service')
    await patient
    assert.deepEqual((await linesOf(ledger, network)).slice(3), [
      'reconcile.held CLOCK',
      'lease.reserved 10.0.0.2 RESERVED #5',
    ])
  })

  test('a migration under a running ledger costs a connection and no call', async () => {
    const { ledger, network, of } = await warm()
    await ledger.accept(of(register('agent')))
    await ledger.accept(of(enable('agent')))
    await ledger.accept(
      of(command({ type: 'updatePool', name: 'pool', version: null, change: { liveness: 'STRICT' } })),
    )
    const { message } = await ledger.refuse(of(reserve('a')), 'LIVENESS_STALE')
    await admin.query('alter table ipledger.source_report add column added_later integer')
    assert.equal((await ledger.refuse(of(reserve('a')), 'LIVENESS_STALE')).message, message)
    await admin.query('alter table ipledger.source_report drop column added_later')
    expect(ledger.failed).toEqual([expect.stringContaining('cached plan must not change result type')])
    await expectInOrder(database.serviceUrl, network, ledger)
  })

  test('a lock that is held for longer than a statement may wait costs no call', async () => {
    const { ledger, network, of } = await warm()
    const lease = await meanwhile([[LOCK, [network]]], async (other) => {
      const waits = ledger.take(of(reserve('a')))
      await waitFor(() => ledger.failed.length > 0, { what: 'the lock time-out' })
      expect(ledger.failed).toEqual(['begin: canceling statement due to lock timeout'])
      await other.query('rollback')
      return waits
    })
    assert.equal(lease.address, '10.0.0.2')
  })
})

describe('a deadline', () => {
  test('that passes while a command is queued: nothing was done, and it says so', async () => {
    const { ledger, network, of } = await warm()
    await meanwhile([[LOCK, [network]]], async (other) => {
      const first = ledger.refuse(of(reserve('first')), 'DEADLINE_EXCEEDED', soon(300))
      await waiting()
      const second = await ledger.refuse(of(reserve('second')), 'DEADLINE_EXCEEDED', soon(300))
      assert.match(second.message, /nothing was done/)
      await first
      // The lock comes before anybody has looked at deadlines again.
      const late = ledger.refuse(of(reserve('late')), 'DEADLINE_EXCEEDED', soon(-1))
      await other.query('rollback')
      await late
    })
    assert.equal((await ledger.take(of(reserve('b')))).address, '10.0.0.2')
    assert.deepEqual(await held(ledger, network), ['10.0.0.1 warm', '10.0.0.2 b'])
    await expectInOrder(database.serviceUrl, network, ledger)
  })

  test('that passes while the database is away; who has more time is served when it is back', async () => {
    const { proxy, ledger, network, of } = await behindProxy()
    proxy.down(true)
    const patient = ledger.take(of(reserve('patient')))
    await waitFor(() => ledger.failed.length > 0, { what: 'the first attempt to fail' })
    const refusal = await ledger.refuse(of(reserve('hasty')), 'DATABASE_UNAVAILABLE', soon(300))
    assert.match(refusal.message, /nothing was done/)
    assert.ok(refusal.retryAfterMs! > 0)
    // Also while the next attempt is under way, and gets no answer.
    proxy.silent(true)
    proxy.down(false)
    await ledger.refuse(of(reserve('hastier')), 'DATABASE_UNAVAILABLE', soon(1_500))
    proxy.down(true)
    proxy.silent(false)
    proxy.down(false)
    assert.equal((await patient).address, '10.0.0.2')
    assert.deepEqual(await held(ledger, network), ['10.0.0.1 warm', '10.0.0.2 patient'])
    await expectInOrder(database.serviceUrl, network, ledger)
  })

  test('that passes after the commit was sent: nobody knows, until the log is read', async () => {
    const { proxy, ledger, network, of } = await behindProxy()
    const other = await useLedger(database.serviceUrl)
    proxy.silentFromNextCommit()
    const request = of(reserve('a', { requestId: 'r', fingerprint: 'f' }))
    let isAnswered = false
    const patient = ledger.submit(request, soon(60_000)).finally(() => {
      isAnswered = true
    })
    await ledger.refuse(of(reserve('hasty')), 'OUTCOME_UNKNOWN', soon(2_000))
    assert.equal(isAnswered, false)
    // Another process knows: it finds what was committed.
    expect(await other.submit(request)).toMatchObject({
      ok: true,
      replayed: true,
      answer: { leases: [{ address: '10.0.0.2' }] },
    })
    // The connection is lost at last, and the log says what became of the batch: its first answer is the true one.
    proxy.down(true)
    proxy.silent(false)
    proxy.down(false)
    expect(await patient).toMatchObject({
      ok: true,
      replayed: false,
      answer: { leases: [{ address: '10.0.0.2' }] },
    })
    assert.deepEqual(await held(ledger, network), ['10.0.0.1 warm', '10.0.0.2 a', '10.0.0.3 hasty'])
    await expectInOrder(database.serviceUrl, network, ledger, other)
  })
})

describe('an outcome that nobody heard of', () => {
  const said = (ledger: TestLedger) => ledger.failed.map((one) => one.split(':')[0])

  test.each(['before', 'after'] as const)(
    'a connection lost %s the commit took effect: one lease',
    async (when) => {
      const { proxy, ledger, network, of } = await behindProxy()
      proxy.loseNextCommit(when)
      const leases = await Promise.all([
        ledger.take(of(reserve('a', { requestId: 'r', fingerprint: 'f' }))),
        ledger.take(of(reserve('b'))),
      ])
      assert.deepEqual(
        leases.map(({ address, fencingToken }) => `${address} ${fencingToken}`),
        ['10.0.0.2 4', '10.0.0.3 5'],
      )
      assert.deepEqual(said(ledger), ['unknown'])
      expect(await ledger.submit(of(reserve('a', { requestId: 'r', fingerprint: 'f' })))).toMatchObject({
        replayed: true,
      })
      assert.deepEqual(await held(ledger, network), ['10.0.0.1 warm', '10.0.0.2 a', '10.0.0.3 b'])
      await expectInOrder(database.serviceUrl, network, ledger)
    },
  )

  test('a commit is a success only if its answer says so', async () => {
    const { proxy, ledger, network, of } = await behindProxy()
    proxy.answerNextCommitWithRollback()
    assert.equal((await ledger.take(of(reserve('a')))).fencingToken, 4)
    assert.deepEqual(said(ledger), ['unknown'])
    assert.deepEqual(await held(ledger, network), ['10.0.0.1 warm', '10.0.0.2 a'])
    await expectInOrder(database.serviceUrl, network, ledger)
  })
})
