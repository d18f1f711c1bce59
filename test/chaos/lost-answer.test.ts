import { afterAll, expect, test } from 'vitest'
import { startService } from '../e2e/service.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { startProxy } from '../support/proxy.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const proxy = await startProxy(database.adminUrl)

afterAll(async () => {
  await proxy.close()
  await expectVerified(database)
})

test('a server killed between commit and answer: the same requestId gives the lease that was committed', async () => {
  const first = await startService({ DATABASE_URL: proxy.url }, { args: ['--no-worker'] })
  const call = rpc(first.url)
  await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.9.0.0/29', cooldown: '0s' })
  const owner = { kind: 'sandbox', name: 'once', uid: 'u1', incarnation: '1' }
  const request = { owner, claims: [{ pool: 'web' }], requestId: 'only-once' }
  proxy.silentFromNextCommit()
  const unanswered = call('LeaseService/Reserve', request).then(
    () => 'answered',
    () => 'lost',
  )
  const committed = await waitFor(
    () =>
      withClient(database.adminUrl, async (client) => {
        const { rows } = await client.query<{ address: string; fencing_token: number }>(
          `select host(address) as address, fencing_token from ipledger.lease where owner_name = 'once'`,
        )
        return rows[0]
      }),
    { what: 'the commit behind the silence' },
  )
  first.child.kill('SIGKILL')
  await first.finished
  expect(await unanswered).toBe('lost')
  call.close()

  proxy.silent(false)
  const second = await startService({ DATABASE_URL: proxy.url }, { args: ['--no-worker'] })
  const again = rpc(second.url)
  const replay = (await again.ok('LeaseService/Reserve', request)).leases[0]
  expect(replay.address).toBe(committed.address)
  expect(Number(replay.fencingToken)).toBe(committed.fencing_token)
  // And without the id, by the attachment.
  const reused = (await again.ok('LeaseService/Reserve', { owner, claims: [{ pool: 'web' }] })).leases[0]
  expect(reused).toMatchObject({ leaseId: replay.leaseId, address: committed.address, reused: true })
  expect((await again.ok('LeaseService/ListLeases', {})).leases).toHaveLength(1)

  // Once its address has a new holder, the old id says so and never gives the address.
  await again.ok('LeaseService/Release', { leaseId: replay.leaseId })
  const successor = (
    await again.ok('LeaseService/Reserve', {
      owner: { kind: 'sandbox', name: 'next', uid: 'u2', incarnation: '1' },
      claims: [{ address: committed.address }],
    })
  ).leases[0]
  expect(successor.address).toBe(committed.address)
  expect((await again('LeaseService/Reserve', request)).reason).toBe('LEASE_LOST')
  for (let times = 0; times < 100; times += 1) {
    const released = await again.ok('LeaseService/Release', { leaseId: replay.leaseId })
    expect(released.leases[0].leaseId).toBe(replay.leaseId)
  }
  const { lease } = await again.ok('LeaseService/GetLease', { leaseId: successor.leaseId })
  expect(lease).toMatchObject({ address: committed.address, state: 'RESERVED', owner: { name: 'next' } })
  again.close()
  second.child.kill('SIGTERM')
  await second.finished
})
