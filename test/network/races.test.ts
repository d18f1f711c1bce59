/** What happens between two steps of the agent: between its list of leases and its look, and while it gives a reserve address back. */
import { expect, test } from 'vitest'
import { createReporter } from '../../src/agent/report.ts'
import { openReserve, type Reserve } from '../../src/agent/reserve.ts'
import { createClient } from '../../src/client/client.ts'
import { readCall } from '../../src/cni/call.ts'
import { useService } from '../support/service.ts'
import { given, openNode } from './node.ts'

const { call, url } = await useService()
await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.207.0.0/28', gateway: '10.207.0.1' })
const node = await openNode({ IPLEDGER_URL: url })

/** Without an agent; the bridge has no address. */
const alone = { config: { isGateway: false } }
/** After the ledger has said what it holds and before the look; before a release. */
let meanwhile = async () => {}
const real = createClient({ url })
const listLeases: typeof real.leases.listLeases = async (...asked) => {
  const answer = await real.leases.listLeases(...asked)
  await meanwhile()
  meanwhile = async () => {}
  return answer
}
const release: typeof real.leases.release = async (...asked) => {
  await meanwhile()
  return await real.leases.release(...asked)
}
const client = { ...real, leases: { ...real.leases, listLeases, release } }
const options = { client, network: 'default', node: 'n1', bridge: node.bridge, cniCache: node.dir }
const reserve = openReserve({ ...options, state: node.dir, size: 0, pools: [] })
const reporter = createReporter({ ...options, source: 'n1', epoch: 'one', reserve })
const foreign = async (handed = new Map()) => (await reporter.survey(handed)).foreign

test('what is reserved while it looks is not foreign: a container’s next one would lose the address', async () => {
  let added: readonly string[] = []
  meanwhile = async () => {
    added = given(await node.call('ADD', node.add('late'), alone))
  }
  expect(await foreign()).toEqual([])
  expect(node.addresses().get('late')).toEqual(added)
  expect(await foreign()).toEqual([])
})

test('what was handed out and released since the list is not foreign, however often it is seen', async () => {
  const handed = new Map([['10.207.0.9', undefined]])
  const container = node.add('handed')
  given(await node.call('ADD', container, alone))
  node.inside(container, 'ip', 'addr', 'add', '10.207.0.9/28', 'dev', 'eth0')
  for (let look = 0; look < 3; look += 1) expect(await foreign(handed)).toEqual([])
})

test('what is there without a lease, twice, is', async () => {
  expect(await foreign()).toEqual([])
  expect(await foreign()).toEqual(['10.207.0.9'])
})

test('an address of the reserve that is being given back is nobody’s', async () => {
  const slots = { ...options, state: `${node.dir}/slots`, pools: [] }
  await openReserve({ ...slots, size: 2 }).fill(new Set())
  const one = openReserve({ ...slots, size: 1 })
  const env = { CNI_COMMAND: 'ADD', CNI_NETNS: '/none', CNI_IFNAME: 'eth0' }
  const take = (id: string) =>
    one.take(
      readCall({ ...env, CNI_CONTAINERID: id }, '{"cniVersion":"1.0.0","ipam":{"type":"ipledger-cni"}}'),
    )
  const taken: ReturnType<Reserve['take']>[] = []
  meanwhile = async () => {
    taken.push(take('c1'), take('c2'))
  }
  await one.fill(new Set())
  expect(taken.map((leases) => leases?.length)).toEqual([1, undefined])
  const { leases } = await call.ok('LeaseService/ListLeases', { ownerKind: 'reserve' })
  expect(leases.map(({ leaseId }: { readonly leaseId: string }) => leaseId)).toContain(taken[0]![0]!.leaseId)
})
