/** A list that was begun before a statement, or before a boot, and came after it (6.3, 12.2, DESIGN §4). */
import { afterAll, describe, expect, test } from 'vitest'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { retireSource } from '../../src/liveness/register.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { fenceNode } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, report, settled, tokenFor } from '../support/intake.ts'
import { GONE, listedAs, MINUTE, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const verify = createVerifySuspects({ stayMs: 0 })
const V = workload('v')
const placed = { placement: { node: 'n1', boot: 'b1', labels: {} } }

async function seenByCluster() {
  const network = await truth.network()
  await truth.source(network, 'cluster')
  const lease = await truth.lease(network, V, placed)
  await truth.past(network, 10 * MINUTE)
  const list = [listedAs(lease.address, V)]
  await truth.watch(network, 'cluster', [list, list, list], { endedAgo: 0 })
  await truth.past(network, INTERVAL)
  return { network, lease, list }
}
const says = (network: string, token: string, entries: readonly GivenEntry[]) =>
  report(truth.intake, { network, source: 'cluster', token, content: { entries } })

describe('seen by a list that was begun before, and came after', () => {
  test('a statement that its node is over: that is contradicted', async () => {
    const { network, lease, list } = await seenByCluster()
    const token = await tokenFor(truth.intake, network, 'cluster')
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await says(network, token, list)
    await truth.run(verify)
    await truth.expectKept(network, lease)
    await says(network, await tokenFor(truth.intake, network, 'cluster'), [])
    await truth.run(verify)
    await truth.expectKept(network, lease)
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await truth.run(verify)
    expect(await truth.state(network, lease.address)).toBe('FREE')
  })

  test('the first report of a new boot: its source must miss it', async () => {
    const { network, lease, list } = await seenByCluster()
    await truth.source(network, 'n1', { node: 'n1', bootEndsAll: true })
    await truth.watch(network, 'n1', [list, list, list], { epoch: 'b1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    const token = await tokenFor(truth.intake, network, 'cluster')
    await truth.watch(network, 'n1', [[]], { epoch: 'b2', endedAgo: 0 })
    await says(network, token, list)
    await says(network, await tokenFor(truth.intake, network, 'cluster'), [])
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'n1', [[]], { epoch: 'b2', endedAgo: 0 })
    await truth.run(verify)
    await truth.past(network, INTERVAL)
    const { asks } = await truth.watch(network, 'n1', [[]], { epoch: 'b2', endedAgo: 0 })
    await truth.answer(network, 'n1', asks, GONE, 'b2')
    await truth.run(verify)
    await truth.expectKept(network, lease)
  })
})

test('a source that is retired after its node was fenced contradicts nothing', async () => {
  const network = await truth.network()
  await truth.source(network, 'n1', { node: 'n1' })
  const lease = await truth.lease(network, V, placed)
  await truth.past(network, 10 * MINUTE)
  const list = [listedAs(lease.address, V)]
  await truth.watch(network, 'n1', [list, list, list], { epoch: 'b1', endedAgo: 0 })
  await truth.past(network, MINUTE)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  await truth.past(network, MINUTE)
  settled(await retireSource(truth.intake.database, { network, id: 'n1', by: 'test' }))
  await truth.run(verify)
  expect(await truth.state(network, lease.address)).toBe('FREE')
})
