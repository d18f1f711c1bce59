import { afterAll, expect, test } from 'vitest'
import { useTestDatabase } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { startService, stopService } from './service.ts'

const database = await useTestDatabase()
const env = { DATABASE_URL: database.adminUrl }
const services = [
  await startService(env),
  ...(await Promise.all([
    startService(env, { args: ['--no-worker'] }),
    startService(env, { args: ['--no-worker'] }),
  ])),
]
const calls = services.map((service) => rpc(service.url, { sockets: 500 }))

afterAll(async () => {
  for (const call of calls) call.close()
  await Promise.all(services.map((service) => stopService(service)))
  await expectVerified(database)
})

test('1,500 Reserves at once into a /22 through three servers: all distinct until it is full', async () => {
  await calls[0]!.ok('PoolService/CreatePool', { name: 'web', cidr: '10.8.0.0/22', gateway: '10.8.0.1' })
  const told = await Promise.all(
    Array.from({ length: 1_500 }, (_, index) =>
      calls[index % 3]!('LeaseService/Reserve', {
        owner: { kind: 'sandbox', name: `crowd/${index}`, uid: `uid-${index}`, incarnation: '1' },
        claims: [{ pool: 'web' }],
      }),
    ),
  )
  const reserved = told
    .filter(({ status }) => status === 200)
    .map(({ body }) => body.leases[0].address as string)
  // 1,024 less network, broadcast and gateway.
  const expected = Array.from({ length: 1_024 }, (_, index) => `10.8.${index >> 8}.${index & 255}`).filter(
    (address) => !['10.8.0.0', '10.8.0.1', '10.8.3.255'].includes(address),
  )
  expect([...reserved].sort()).toEqual([...expected].sort())
  const refused = told.filter(({ status }) => status !== 200)
  expect(refused).toHaveLength(1_500 - expected.length)
  expect(new Set(refused.map(({ reason }) => reason))).toEqual(new Set(['POOL_EXHAUSTED']))
  // Each server tells the same world.
  for (const call of calls) {
    const { pool } = await call.ok('PoolService/GetPool', { name: 'web' })
    expect(pool.usage).toMatchObject({
      reserved: '1021',
      free: '0',
      cooling: '0',
      excluded: '3',
      size: '1024',
    })
  }
})
