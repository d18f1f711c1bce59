/** Several processes on one network, each with its own image: whatever each believes, the log is one. */
import assert from 'node:assert/strict'
import { expect, onTestFinished, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { Nodes } from '../../src/ledger/nodes.ts'
import { createPgLog } from '../../src/ledger/pg-log.ts'
import { release, reserve } from '../core/given.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { chain } from '../support/stored-scene.ts'
import { waitFor } from '../support/wait-for.ts'
import { eventsOf, expectInOrder, freshNetwork, useLedger } from './opened.ts'
import { NOTHING } from './writer.ts'

const database = await useTestDatabase()
const open = () => useLedger(database.serviceUrl)

test('a process that is far behind loads anew; one that begins late, too', async () => {
  const [busy, lazy] = [await open(), await useLedger(database.serviceUrl, { limits: { behind: 1_500 } })]
  const { network, of } = await freshNetwork(busy, { cidr: '10.0.0.0/16' })
  await lazy.take(of(reserve('first')))
  assert.equal(lazy.loads, 1)
  const fill = (from: number, count: number) =>
    Promise.all(Array.from({ length: count }, (_, i) => busy.take(of(reserve(`x${from + i}`)))))
  await fill(0, 2_100)
  // More than a page of the log, and not too far.
  expect((await lazy.take(of(reserve('second')))).address).toBe('10.0.8.54')
  assert.equal(lazy.loads, 1)
  await fill(2_100, 4_100)
  expect((await lazy.take(of(reserve('third')))).address).toBe('10.0.24.59')
  assert.equal(lazy.loads, 2)
  await expectInOrder(database.serviceUrl, network, busy, lazy, await open())
})

test('an image that nobody uses is dropped, and loaded again as it was', async () => {
  const ledger = await useLedger(database.serviceUrl, { idleMs: 1 })
  const { network, of } = await freshNetwork(ledger)
  await ledger.take(of(reserve('a')))
  await waitFor(() => ledger.stats().length === 0)
  expect((await ledger.take(of(reserve('b')))).address).toBe('10.0.0.2')
  await expectInOrder(database.serviceUrl, network, ledger)
})

test('a network that is not there is not kept, and nothing is written there', async () => {
  const ledger = await open()
  const nowhere: (step: () => Command) => Command = (step) => ({ ...step(), network: 'nowhere' })
  await ledger.refuse(nowhere(reserve('a')), 'NETWORK_NOT_FOUND')
  await ledger.refuse(nowhere(release('a/1')), 'NETWORK_NOT_FOUND')
  assert.equal(await ledger.image('nowhere'), null)
  await waitFor(() => ledger.stats().length === 0)
})

test('a process that meets an event of a newer format stops serving that network, and writes nothing there', async () => {
  const ledger = await open()
  const { network, of } = await freshNetwork(ledger)
  await ledger.take(of(reserve('a')))
  await withClient(database.adminUrl, async (admin) => {
    await admin.query(
      `insert into ipledger.event
       select (jsonb_populate_record(e, '{"seq": 4, "format": 2, "address": "10.0.0.9", "previous": 0}')).*
         from ipledger.event e where network_id = $1 and seq = 3`,
      [network],
    )
    const refused = await ledger.refuse(of(reserve('b')), 'NETWORK_RECOVERING')
    expect(refused.message).toContain('upgrade this one')
    await (await open()).refuse(of(reserve('b')), 'NETWORK_RECOVERING')
    const { rows } = await admin.query('select max(seq) as head from ipledger.event where network_id = $1', [
      network,
    ])
    expect(Number(rows[0].head)).toBe(4)
  })
})

test('a network that another process creates after this one asked for its lock is not taken without its lock', async () => {
  const { network } = await freshNetwork(await open())
  const nodes = new Nodes(database.serviceUrl, { connections: 1 })
  onTestFinished(() => nodes.end())
  await withClient(database.adminUrl, async (other) => {
    await other.query('begin')
    await other.query(`insert into ipledger.network_lock values ('new')`)
    await other.query(
      `insert into ipledger.event select (jsonb_populate_record(e, '{"network_id": "new"}')).*
         from ipledger.event e where network_id = $1 and seq = 1`,
      [network],
    )
    await other.query('lock table ipledger.event')
    const asked = { after: 0, prefetch: NOTHING, creates: false, expectedSeq: null }
    const log = createPgLog(nodes)
    const seen = assert.rejects(log.begin('new', asked), /was just created/)
    const waits = `select from pg_locks where not granted and relation = 'ipledger.event'::regclass`
    await waitFor(async () => (await other.query(waits)).rowCount)
    await other.query('commit')
    await seen
    const { caught, abandon } = await log.begin('new', asked)
    assert.equal(caught.tail.length, 1)
    const lock = `select from ipledger.network_lock where network_id = 'new' for update nowait`
    await assert.rejects(other.query(lock), /could not obtain lock/)
    await abandon()
  })
})

test('nothing is written to a network that has no row in network_lock', async () => {
  const ledger = await open()
  const { network } = await freshNetwork(ledger)
  const nodes = new Nodes(database.serviceUrl, { connections: 1 })
  onTestFinished(() => nodes.end())
  const asked = { after: 0, prefetch: NOTHING, creates: false, expectedSeq: null }
  const { commit, abandon } = await createPgLog(nodes).begin('unlocked', asked)
  const write = {
    events: chain('unlocked', await eventsOf(ledger, network)),
    records: [],
    pools: [],
    network: null,
    sources: [],
    freshness: [],
    sightings: new Map(),
    requests: [],
  }
  await assert.rejects(commit(write), /network unlocked has no row in network_lock/)
  await abandon()
})
