/** What a source leaves when it is retired: leases that nobody else could miss. */
import { expect, test } from 'vitest'
import { findSource, retireSource } from '../../src/liveness/register.ts'
import { countUncovered } from '../../src/liveness/uncovered.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { register, settled } from '../support/intake.ts'
import { useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)

const on = (node: string) => ({ placement: { node, boot: '', labels: {} } })
const left = async (network: string, id: string) =>
  countUncovered(truth.connections, (await findSource(truth.connections, network, id))!)
const retire = async (network: string, id: string) =>
  settled(await retireSource(truth.connections, { network, id, by: 'test' }))
const NONE = { leases: 0, atLeast: false }

test('are those of its node, kinds and families that no other enabled source covers', async () => {
  const network = await truth.network()
  await truth.source(network, 'of-n1', { node: 'n1' })
  await truth.source(network, 'of-n2', { node: 'n2' })
  await truth.source(network, 'vms-of-n1', { node: 'n1', ownerKinds: ['vm'] })
  await truth.source(network, 'six', { families: [6] })
  await register(truth.intake, network, 'dry')
  for (const [n, node] of ['n1', 'n1', 'n1', 'n2', ''].entries())
    await truth.lease(network, workload(n), on(node))
  await truth.lease(network, workload('vm', { kind: 'vm' }), on('n1'))
  // Still there, it covers its own.
  expect(await left(network, 'of-n1')).toEqual(NONE)
  await retire(network, 'of-n1')
  expect(await left(network, 'of-n1')).toEqual({ leases: 3, atLeast: false })
  expect(await left(network, 'of-n2')).toEqual(NONE)
  await retire(network, 'vms-of-n1')
  expect(await left(network, 'vms-of-n1')).toEqual({ leases: 1, atLeast: false })
  // In dry run it covers nothing, and leaves nothing.
  await retire(network, 'dry')
  expect(await left(network, 'dry')).toEqual(NONE)
  await retire(network, 'six')
  expect(await left(network, 'six')).toEqual(NONE)

  await truth.source(network, 'all', { ownerKinds: ['pod', 'vm'] })
  for (const id of ['of-n1', 'vms-of-n1']) expect(await left(network, id)).toEqual(NONE)
  await retire(network, 'all')
  // All but the one of n2.
  expect(await left(network, 'all')).toEqual({ leases: 5, atLeast: false })
})

test('are counted up to a limit, and the answer says so', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  await truth.source(network, 'of-n1', { node: 'n1' })
  const lease = await truth.lease(network, workload('first'), on('n1'))
  await withClient(database.adminUrl, (admin) =>
    admin.query(
      `insert into ipledger.lease
         (network_id, address, prefix_length, pool_id, fencing_token, version, state, owner_kind, owner_name, owner_uid,
          owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key, node, boot, labels, witness, reserved_at)
       select l.network_id, '10.200.0.0'::inet + i, 32, l.pool_id, 1000000 + i, 1000000 + i, 'ACTIVE', 'pod', 'w' || i, 'w' || i,
              false, '', 'eth0', 'h' || i, 'a' || i, 'n1', '', '{}', '', now()
         from ipledger.lease l, generate_series(1, 10000) i where l.network_id = $1 and l.address = $2`,
      [network, lease.address],
    ),
  )
  await retire(network, 'of-n1')
  expect(await left(network, 'of-n1')).toEqual({ leases: 0, atLeast: true })
  await retire(network, 'agent')
  for (const id of ['agent', 'of-n1'])
    expect(await left(network, id)).toEqual({ leases: 10_001, atLeast: true })
})

test('are none of a source that was in dry run when it ended, enabled before or not', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  await truth.lease(network, workload(1))
  await register(truth.intake, network, 'agent', { intervalMs: 1_000 })
  await retire(network, 'agent')
  expect(await left(network, 'agent')).toEqual(NONE)
})
