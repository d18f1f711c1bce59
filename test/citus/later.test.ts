/** Citus that comes to a database which has networks already. */
import { pino } from 'pino'
import { expect, onTestFinished, test } from 'vitest'
import { openDatabase } from '../../src/postgres/database.ts'
import { reserve } from '../core/given.ts'
import { expectInOrder, freshNetwork, useLedger } from '../ledger/opened.ts'
import { mayLogIn, onOneNode } from '../support/citus.ts'
import { withClient } from '../support/database.ts'
import { startTestServer } from '../support/server.ts'

test('the next migrate distributes it with its data, and each network begins an era', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  await withClient(server.url('postgres'), (admin) => admin.query('create database later'))
  const url = server.url('later')
  const config = { databaseUrl: url, databaseAdminUrl: undefined, directory: '' }
  const migrate = () => openDatabase(config, { log: pino({ level: 'warn' }), embedded: 'own' })
  const { serviceUrl } = await migrate()
  const before = await useLedger(serviceUrl)
  const { network, of } = await freshNetwork(before)
  const { address } = await before.take(of(reserve('a/1')))
  await before.close()

  await withClient(url, async (admin) => {
    await onOneNode(admin, url)
    await mayLogIn(admin, serviceUrl)
  })
  await migrate()
  const tables = `select from pg_dist_partition where logicalrelid = 'ipledger.event'::regclass`
  expect((await withClient(url, (admin) => admin.query(tables))).rowCount).toBe(1)
  const after = await useLedger(serviceUrl)
  await after.refuse(of(reserve('b/1')), 'NETWORK_RECOVERING')
  const image = await expectInOrder(serviceUrl, network, after)
  expect(image.records.get(address)?.owner?.name).toBe('a')
})
