/** The plugin under Debian's `bridge`, on namespaces of this machine. */
import { describe, expect, test } from 'vitest'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, enableSource, given, type Held, heldBy, openNode } from './node.ts'

const service = await useService()
const { call } = service
await call.ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.200.0.0/22',
  gateway: '10.200.0.1',
  default: true,
  cooldown: '0s',
  options: { routes: [{ destination: '10.99.0.0/16' }], dns: ['10.200.0.53'] },
})
await call.ok('PoolService/CreatePool', {
  name: 'web6',
  cidr: 'fd00:200::/112',
  gateway: 'fd00:200::1',
  default: true,
  cooldown: '0s',
})
await call.ok('PoolService/CreatePool', { name: 'tiny', cidr: '10.201.0.0/30', gateway: '10.201.0.1' })
await enableSource(call, 'n1', { interval: '2s' })
const node = await openNode({ IPLEDGER_URL: service.url })
await node.startAgent()

const { leases, leasesOf, untilActive, untilReleased } = heldBy(call)

test('two namespaces ping each other, IPv4 and IPv6; the result has gateway, routes and resolvers', async () => {
  const one = await node.call('ADD', node.add('ping1'))
  const two = await node.call('ADD', node.add('ping2'))
  expect(one.body).toMatchObject({
    cniVersion: '1.0.0',
    ips: [
      { address: expect.stringMatching(/^10\.200\.\d+\.\d+\/22$/), gateway: '10.200.0.1' },
      { address: expect.stringMatching(/^fd00:200::.*\/112$/), gateway: 'fd00:200::1' },
    ],
    routes: [{ dst: '10.99.0.0/16' }],
  })
  expect(node.addresses().get('ping1')).toEqual(given(one))
  const [v4, v6] = given(two)
  expect(node.inside('ping1', 'ping', '-c1', '-W5', v4!)).toContain(' 0% packet loss')
  expect(node.inside('ping1', 'ping', '-c1', '-W5', v6!)).toContain(' 0% packet loss')
  await untilActive('ping1')
  expect((await leasesOf('ping1')).map(({ address, owner }) => [address, owner.kind, owner.node])).toEqual(
    given(one).map((address) => [address, 'container', 'n1']),
  )
})

test.each(['0.3.1', '0.4.0', '1.0.0'])('CNI %s through bridge', async (cniVersion) => {
  const container = node.add(`v${cniVersion.replaceAll('.', '')}`)
  const added = await node.call('ADD', container, { config: { cniVersion } })
  expect(added.body.cniVersion).toBe(cniVersion)
  expect(node.addresses().get(container)).toEqual(given(added))
  expect((await node.call('DEL', container, { config: { cniVersion } })).code).toBe(0)
  await untilReleased(container)
})

test('CNI 1.1.0 of the IPAM plugin, VERSION and an unknown version', async () => {
  const options = { plugin: 'ipledger-cni' } as const
  const config = { cniVersion: '1.1.0' }
  // Debian's `bridge` prints the resolvers of its own configuration.
  expect((await node.call('ADD', node.add('v110'), { ...options, config })).body).toMatchObject({
    cniVersion: '1.1.0',
    dns: { nameservers: ['10.200.0.53'] },
  })
  expect((await node.call('VERSION', 'x', options)).body.supportedVersions).toContain('1.1.0')
  const odd = await node.call('ADD', 'v110', { ...options, config: { cniVersion: '2.0.0' } })
  expect(odd).toMatchObject({ code: 1, body: { code: 1, msg: expect.stringContaining('2.0.0') } })
  expect((await node.call('DEL', 'v110', { ...options, config })).code).toBe(0)
})

test("requested addresses, by Kubernetes' annotation and by argument, and an address that is taken", async () => {
  const capability = { config: { runtimeConfig: { ips: ['10.200.2.7/22'] } } }
  expect(given(await node.call('ADD', node.add('req1'), capability))).toEqual(['10.200.2.7'])
  expect(given(await node.call('ADD', node.add('req2'), { args: 'IgnoreUnknown=1;IP=10.200.2.8' }))).toEqual([
    '10.200.2.8',
  ])
  const taken = await node.call('ADD', node.add('req3'), { args: 'IgnoreUnknown=1;IP=10.200.2.8' })
  expect(taken).toMatchObject({ code: 1, body: { code: 100, msg: expect.stringContaining('ADDRESS_TAKEN') } })
  expect(await leasesOf('req3')).toEqual([])
})

test("a pod's lease has Kubernetes' names, and a closed sandbox gets nothing more", async () => {
  const args = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=7c1e'
  given(await node.call('ADD', node.add('sandbox1'), { args }))
  expect((await leases({ ownerUid: '7c1e' }))[0]?.owner).toMatchObject({
    kind: 'pod',
    name: 'shop/web-0',
    uid: '7c1e',
    incarnation: 'sandbox1',
    interface: 'eth0',
    labels: { 'cni.network': 'blue' },
  })
  expect((await node.call('DEL', 'sandbox1', { args })).code).toBe(0)
  await waitFor(async () => (await leases({ ownerUid: '7c1e' })).length === 0)
  const late = await node.call('ADD', 'sandbox1', { args, plugin: 'ipledger-cni' })
  expect(late.body.msg).toContain('ATTACHMENT_CLOSED')
})

test('200 parallel ADDs: 200 addresses in 200 namespaces, and all become ACTIVE', async () => {
  const containers = Array.from({ length: 200 }, (_, n) => node.add(`p${n}`))
  const added = new Map(
    await Promise.all(containers.map(async (one) => [one, given(await node.call('ADD', one))] as const)),
  )
  const inside = node.addresses()
  for (const one of containers) expect(inside.get(one), one).toEqual(added.get(one))
  expect(doubles(node)).toEqual([])
  const confirmed = async () => {
    const active = (await leases({ states: ['ACTIVE'] })).map(({ address }) => address)
    return [...added.values()].flat().every((address) => active.includes(address))
  }
  await waitFor(confirmed, { what: 'all to be ACTIVE' })
  await Promise.all(containers.map((one) => node.call('DEL', one)))
  for (const one of containers) node.remove(one)
  await waitFor(async () => (await leases()).every(({ owner }) => !/^p\d+$/.test(owner.uid!)), {
    what: 'all to be released',
  })
})

test('DEL before ADD, DEL twice, DEL without a namespace, and the container comes again', async () => {
  const container = node.add('again')
  expect((await node.call('DEL', container)).code).toBe(0)
  for (const netns of [node.pathOf(container), '']) {
    given(await node.call('ADD', container))
    expect((await node.call('DEL', container)).code).toBe(0)
    expect((await node.call('DEL', container, { netns })).code).toBe(0)
    await untilReleased(container)
  }
})

test('an address that is still configured is not released, though the runtime has said DEL', async () => {
  const container = node.add('lingers')
  const [address] = given(await node.call('ADD', container))
  expect((await node.call('DEL', container, { plugin: 'ipledger-cni' })).code).toBe(0)
  // What comes later is released, so the agent has looked at this one too.
  given(await node.call('ADD', node.add('later')))
  expect((await node.call('DEL', 'later')).code).toBe(0)
  await untilReleased('later')
  expect((await leasesOf(container)).map((lease) => lease.address)).toContain(address)
  node.inside(container, 'ip', 'link', 'del', 'eth0')
  await untilReleased(container)
})

describe('CHECK', () => {
  test('finds what was changed in the namespace, and what is not held', async () => {
    const container = node.add('check')
    const added = await node.call('ADD', container)
    const config = { prevResult: added.body }
    const check = () => node.call('CHECK', container, { plugin: 'ipledger-cni', config })
    expect(await check()).toMatchObject({ code: 0, body: null })
    const [v4] = given(added)
    node.inside(container, 'ip', 'addr', 'del', `${v4}/22`, 'dev', 'eth0')
    node.inside(container, 'ip', 'addr', 'add', '10.200.3.250/32', 'dev', 'eth0')
    expect(await check()).toMatchObject({ code: 1, body: { code: 102, msg: expect.stringContaining(v4!) } })
    node.inside(container, 'ip', 'addr', 'add', `${v4}/22`, 'dev', 'eth0')
    node.inside(container, 'ip', 'addr', 'del', '10.200.3.250/32', 'dev', 'eth0')
    expect(await check()).toMatchObject({ code: 0 })
    const [{ leaseId }] = (await leasesOf(container)) as [Held]
    await call.ok('LeaseService/Release', { leaseId })
    expect(await check()).toMatchObject({ code: 1, body: { code: 101 } })
  })
})

describe('GC', () => {
  const gc = (valid: readonly string[]) =>
    node.call('GC', '', {
      plugin: 'ipledger-cni',
      config: {
        cniVersion: '1.1.0',
        'cni.dev/valid-attachments': valid.map((containerID) => ({ containerID, ifname: 'eth0' })),
      },
    })

  test('releases what nobody has, and keeps what an interface has though the list lacks it (antrea#8239)', async () => {
    for (const one of ['gone', 'forgotten', 'known']) {
      given(await node.call('ADD', node.add(one)))
      await untilActive(one)
    }
    node.remove('gone')
    expect((await gc(['known'])).code).toBe(0)
    await untilReleased('gone')
    for (const one of ['forgotten', 'known']) {
      const held = (await leasesOf(one)).map(({ address }) => address)
      expect(held, one).toEqual(node.addresses().get(one))
    }
  })
})

describe('STATUS', () => {
  const status = (ipam: object = {}) =>
    node.call('STATUS', '', { plugin: 'ipledger-cni', config: { cniVersion: '1.1.0' }, ipam })

  test('fails when the pool is full', async () => {
    const ipam = { pools: ['tiny'] }
    const config = { isGateway: false }
    expect(await status(ipam)).toMatchObject({ code: 0, body: null })
    given(await node.call('ADD', node.add('last'), { ipam, config }))
    expect(await status(ipam)).toMatchObject({
      code: 1,
      body: { code: 50, msg: expect.stringContaining('POOL_EXHAUSTED') },
    })
    const refused = await node.call('ADD', node.add('onemore'), { ipam, config })
    expect(refused.code).toBe(1)
    expect(node.addresses().get('onemore')).toEqual([])
  })
})

test('without an agent the plugin asks the service itself, and what DEL can not release yet is kept', async () => {
  await node.killAgent()
  try {
    const container = node.add('direct')
    const added = await node.call('ADD', container)
    expect(node.addresses().get(container)).toEqual(given(added))
    expect((await leasesOf(container)).map(({ state }) => state)).toEqual(['ACTIVE', 'ACTIVE'])
    const away = { plugin: 'ipledger-cni', ipam: { url: 'http://127.0.0.1:9' } } as const
    expect((await node.call('ADD', node.add('away'), away)).body.code).toBe(11)
    node.inside(container, 'ip', 'link', 'del', 'eth0')
    expect((await node.call('DEL', container, away)).code).toBe(0)
    expect(await leasesOf(container)).toHaveLength(2)
  } finally {
    await node.startAgent()
  }
  await untilReleased('direct')
})
