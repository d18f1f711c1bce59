/** Gauges that come from the database, against a network with a little of everything. */
import assert from 'node:assert/strict'
import { pino } from 'pino'
import { afterAll, onTestFinished, test, vi } from 'vitest'
import { DatabaseGauges } from '../../src/database-gauges.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { command, lists, network, pool, quarantine, reserve, source } from '../core/given.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { played, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const connections = createPool({ url: database.serviceUrl, applicationName: 'test', max: 2 })
afterAll(() => connections.end())

test('says how full pools are, what is held, who is silent and what waits', async () => {
  const scene = played(
    network,
    pool('10.0.0.0/24', { isDefault: true }),
    reserve('a', { confirmed: true }),
    quarantine('10.0.0.77'),
    source('agent'),
    lists('agent', ['z@10.0.0.1']),
    source('n2', { node: 'n2' }),
    reserve('b', { node: 'n1', confirmed: true }),
    lists('n2', ['y@10.0.0.2']),
    command({ type: 'hold', hold: 'TOO_MANY_REAPS', why: 'test' }),
  )
  await withClient(database.adminUrl, async (client) => {
    await storeScene(client, scene)
    await client.query(
      `insert into ipledger.pool_sample select network_id, pool_id, now(), 256, 2, 252, 0, 0, 0, 2 from ipledger.pool`,
    )
    await client.query(
      "insert into ipledger.lookup select 'net', 'agent', 'container', 'a', 'a', '10.0.0.1', 'wanted', null, '', 1, now(), 1",
    )
  })
  const readings = await new DatabaseGauges(connections, pino({ level: 'silent' })).collect()
  const value = (metric: string, ...labels: readonly string[]) =>
    readings.find((one) => one[0] === metric && one[1].join() === labels.join())?.[2]
  assert.equal(value('ipledger.database.up'), 1)
  assert.equal(value('ipledger.era', 'net'), 0)
  assert.equal(value('ipledger.network.state', 'net', 'READY'), 1)
  assert.equal(value('ipledger.network.state', 'net', 'RECOVERING'), 0)
  assert.equal(value('ipledger.holds', 'net', 'TOO_MANY_REAPS'), 1)
  assert.equal(value('ipledger.verify.differences', 'net'), 0)
  assert.ok(value('ipledger.verify.age.seconds', 'net')! > 0)
  assert.equal(value('ipledger.pool.addresses', 'net', 'pool', 'free'), 252)
  assert.equal(value('ipledger.pool.draining', 'net', 'pool'), 0)
  assert.equal(value('ipledger.sources', 'net', 'silent'), 2)
  assert.equal(value('ipledger.source.interval.seconds', 'net', 'agent'), 30)
  assert.ok(value('ipledger.source.lag.seconds', 'net', 'agent')! > 0)
  assert.equal(value('ipledger.quarantined_leases', 'net', 'OPERATOR'), 1)
  assert.equal(value('ipledger.suspects', 'net', 'waiting'), 1)
  assert.equal(value('ipledger.attention', 'net', 'HELD'), 1)
  assert.equal(value('ipledger.attention', 'net', 'LISTED_ELSEWHERE'), 1)
  assert.equal(value('ipledger.series.left_out', 'pools'), 0)
})

test('goes on reading after a collection that had nothing to read', async () => {
  let movedMs = 0
  const now = performance.now.bind(performance)
  const spied = vi.spyOn(performance, 'now').mockImplementation(() => now() + movedMs)
  onTestFinished(() => spied.mockRestore())
  const gauges = new DatabaseGauges(connections, pino({ level: 'silent' }))
  const isKnown = async () =>
    (await gauges.collect()).find(([metric]) => metric === 'ipledger.series.left_out') !== undefined
  await gauges.collect()
  await gauges.collect()
  // What was read once is known no more by then.
  movedMs = 10 * 60_000
  assert.ok(await isKnown())
})

test('a database that is away is told of, and holds up nobody', async () => {
  const nowhere = createPool({ url: 'postgresql://a@127.0.0.1:1/x', applicationName: 'test', max: 1 })
  const readings = await new DatabaseGauges(nowhere, pino({ level: 'silent' })).collect()
  assert.deepEqual(readings, [['ipledger.database.up', [], 0]])
  await nowhere.end()
})
