/** What the agent has not seen yet, because it came after the last look: the link is asked before an address is handed out. */
import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, given, openNode } from './node.ts'

const { call, url } = await useService()
await call.ok('PoolService/CreatePool', { name: 'four', cidr: '10.210.0.0/29', gateway: '10.210.0.1' })
await call.ok('PoolService/CreatePool', { name: 'six', cidr: 'fd00:210::/125', gateway: 'fd00:210::1' })
const sight = { node: 'n1', ownerKinds: ['container'], interval: '3600s' }
await call.ok('LivenessService/RegisterSource', { id: 'n1', sight })
const node = await openNode({ IPLEDGER_URL: url })
await node.startAgent('--probe')

test.each([
  ['four', 'IPv4 by ARP', '10.210.0.2/29'],
  ['six', 'IPv6 by neighbour solicitation', 'fd00:210::2/125'],
])('pool %s, %s', async (pool, _, cidr) => {
  const options = { ipam: { pools: [pool] }, config: { isGateway: false } }
  const address = cidr.split('/')[0]!
  // The bridge is made by the first ADD; this container has no lease, its address is set by hand.
  const stranger = node.add(`stranger-${pool}`)
  const asked = { ...options, args: `IgnoreUnknown=1;IP=${address.replace(/2$/, '3')}` }
  given(await node.call('ADD', stranger, asked))
  node.inside(stranger, 'ip', 'addr', 'add', cidr, 'dev', 'eth0', ...(pool === 'six' ? ['nodad'] : []))
  execFileSync('ip', ['link', 'set', node.bridge, 'up'])

  const refused = await node.call('ADD', node.add(`first-${pool}`), options)
  expect(refused).toMatchObject({ code: 1, body: { code: 103, msg: expect.stringContaining(address) } })
  const { lease } = await call.ok('LeaseService/GetLease', { address })
  expect(lease).toMatchObject({ state: 'QUARANTINED', quarantine: { reason: 'IN_USE' } })
  expect(lease).not.toHaveProperty('owner')
  expect((await node.call('DEL', `first-${pool}`)).code).toBe(0)
  // Of what comes later the release was delivered, so that of the first was, too.
  given(await node.call('ADD', node.add(`later-${pool}`), options))
  expect((await node.call('DEL', `later-${pool}`, options)).code).toBe(0)
  await waitFor(
    async () => (await call.ok('LeaseService/ListLeases', { ownerUid: `later-${pool}` })).leases.length === 0,
  )
  expect((await call.ok('LeaseService/GetLease', { address })).lease.quarantine.reason).toBe('IN_USE')
  const next = given(await node.call('ADD', node.add(`second-${pool}`), options))
  expect(next).not.toContain(address)
  await waitFor(() => doubles(node).length === 0)
})
