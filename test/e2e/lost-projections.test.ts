import { afterAll, expect, onTestFinished, test } from 'vitest'
import { createTestDatabase, useTestDatabase, withClient } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { ipledger, startService, stopService } from './service.ts'

const database = await useTestDatabase()
const env = { DATABASE_URL: database.adminUrl }

afterAll(() => expectVerified(database))

test('7.1: projections truncated by accident: nothing is handed out until they are rebuilt, and then what was held is', async () => {
  const first = await startService(env, { args: ['--no-worker'] })
  const before = rpc(first.url)
  await before.ok('PoolService/CreatePool', { name: 'web', cidr: '10.7.0.0/29' })
  const held = {
    owner: { kind: 'sandbox', name: 'held', uid: 'u1', incarnation: '1' },
    claims: [{ pool: 'web' }],
  }
  const lease = (await before.ok('LeaseService/Reserve', held)).leases[0]
  expect(lease.address).toBe('10.7.0.1')
  before.close()
  await stopService(first)

  await withClient(database.adminUrl, (client) =>
    client.query(
      'truncate ipledger.network, ipledger.lease, ipledger.pool_position, ipledger.released_address',
    ),
  )

  const second = await startService(env, { args: ['--no-worker'] })
  const after = rpc(second.url)
  const newcomer = {
    owner: { kind: 'sandbox', name: 'new', uid: 'u2', incarnation: '1' },
    claims: [{ pool: 'web' }],
  }
  for (const [method, message] of [
    ['LeaseService/Reserve', newcomer],
    ['LeaseService/Quarantine', { address: '10.7.0.1', why: 'looks free' }],
    ['PoolService/DeletePool', { name: 'web' }],
    ['PoolService/UpdatePool', { name: 'web', cidr: '10.7.0.4/30' }],
    ['PoolService/CreatePool', { name: 'other', cidr: '10.6.0.0/29' }],
  ] as const) {
    expect((await after(method, message)).reason, method).toBe('NETWORK_RECOVERING')
  }
  expect((await ipledger(second, ['rebuild'], env)).code).toBe(0)

  expect((await after.ok('LeaseService/Reserve', newcomer)).leases[0].address).toBe('10.7.0.2')
  expect((await after.ok('LeaseService/GetLease', { leaseId: lease.leaseId })).lease).toEqual(lease)
  after.close()
  await stopService(second)
})

test('a network whose log lost its first event is refused by itself: the start serves the others (azure#4449)', async () => {
  const other = await createTestDatabase()
  onTestFinished(() => other.drop())
  const otherEnv = { DATABASE_URL: other.adminUrl }
  const first = await startService(otherEnv, { args: ['--no-worker'] })
  const before = rpc(first.url)
  await before.ok('NetworkService/CreateNetwork', { name: 'damaged' })
  for (const network of ['default', 'damaged']) {
    await before.ok('PoolService/CreatePool', { network, name: 'web', cidr: '10.7.0.0/29' })
  }
  before.close()
  await stopService(first)
  await withClient(other.adminUrl, (client) =>
    client.query(`delete from ipledger.event where network_id = 'damaged' and type = 'network.created'`),
  )

  const second = await startService(otherEnv)
  const after = rpc(second.url)
  const asked = { owner: { kind: 'sandbox', name: 'new' }, claims: [{ pool: 'web' }] }
  expect((await after('LeaseService/Reserve', { ...asked, network: 'damaged' })).reason).toBe(
    'NETWORK_RECOVERING',
  )
  expect((await after.ok('LeaseService/Reserve', asked)).leases[0].address).toBe('10.7.0.1')
  after.close()
  await stopService(second)
  expect(second.stderr()).toContain('ipledger rebuild --network damaged')
  await expectVerified(other, { network: 'default' })
})
