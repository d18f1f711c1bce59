/** Citus that comes to a database which has networks already. */
import { expect, onTestFinished, test } from 'vitest'
import { reserve } from '../core/given.ts'
import { expectInOrder, freshNetwork, useLedger } from '../ledger/opened.ts'
import { Cluster, startServer } from './cluster.ts'

test('the next migrate distributes it with its data, and each network begins an era', async () => {
  const cluster = new Cluster(await startServer())
  onTestFinished(() => cluster.stop())
  await cluster.migrate()
  const before = await useLedger(cluster.serviceUrl)
  const { network, of } = await freshNetwork(before)
  const { address } = await before.take(of(reserve('a/1')))

  await cluster.spread(true)
  const meanwhile = await useLedger(cluster.serviceUrl)
  await meanwhile.refuse(of(reserve('b/1')), 'NETWORK_RECOVERING')
  await before.close()
  await meanwhile.close()
  await cluster.migrate()
  const table = `select from pg_dist_partition where logicalrelid = 'ipledger.event'::regclass`
  expect(await cluster.query(table)).toHaveLength(1)
  const after = await useLedger(cluster.serviceUrl)
  await after.refuse(of(reserve('c/1')), 'NETWORK_RECOVERING')
  expect(after.eras).toHaveLength(1)
  const image = await expectInOrder(cluster.serviceUrl, network, after)
  expect(image.records.get(address)?.owner?.name).toBe('a')
})
