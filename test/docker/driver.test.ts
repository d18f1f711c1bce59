/**
 * Docker's IPAM driver on a real engine: containers live and die, the daemon and the driver come and go, and the worker of a real
 * service proves what leaked. The tests are one story and run in order.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import type Docker from 'dockerode'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ipledger, type Running, serve, startProcess } from '../e2e/commands.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type Rpc, rpc } from '../support/rpc.ts'
import { waitFor } from '../support/wait-for.ts'
import { type Engine, IMAGE, openEngine } from './engine.ts'

const NODE = 'n1'
/** Docker looks for sockets of plugins in this directory only. */
const DRIVER = `ipledger-test-${process.pid}`
const SOCKET = `/run/docker/plugins/${DRIVER}.sock`
const SUBNET = '172.31.248.0/24'
const GATEWAY = '172.31.248.1'
const SUBNET6 = 'fd00:248::/64'
const BARE = '172.31.247.0/24'
const MAC = '02:42:00:00:00:07'
const AGAIN = /has 172\.31\.248\.\d+ already/

const home = mkdtempSync(join(tmpdir(), 'ipledger-driver-'))
let database: TestDatabase
let engine: Engine
let service: Awaited<ReturnType<typeof serve>>
let token: string
let call: Rpc
let driver: Running

beforeAll(async () => {
  engine = await openEngine('172.31.246.0/24')
  database = await createTestDatabase()
  const tokens = join(home, 'tokens.jsonl')
  const create = async (...args: string[]) =>
    /ipl_\S+/.exec((await ipledger({ url: '' }, ['token', 'create', ...args, '--file', tokens])).stdout)![0]
  const admin = await create('admin', '--role', 'admin')
  token = await create('docker-n1', '--role', 'orchestrator', '--node', NODE)
  const secrets = join(home, 'secrets.json')
  writeFileSync(secrets, JSON.stringify({ 'default/docker-1': { origin: `unix:${engine.socketPath}` } }))
  const env = { IPLEDGER_TOKENS: tokens, IPLEDGER_SOURCE_SECRETS: secrets }
  service = await serve({ DATABASE_URL: database.adminUrl, ...env })
  call = rpc(service.url, { token: admin })
  const quick = { cooldown: '0s', reapPolicy: { minimumAge: '1s', unwitnessedAge: '1s' } }
  await call.ok('PoolService/CreatePool', { name: 'blue', cidr: SUBNET, gateway: GATEWAY, ...quick })
  await call.ok('PoolService/CreatePool', { name: 'blue6', cidr: SUBNET6, gateway: 'fd00:248::1', ...quick })
  await call.ok('PoolService/CreatePool', { name: 'bare', cidr: BARE, ...quick })
  await call.ok('PoolService/CreatePool', { name: 'blocks', cidr: '172.31.240.0/24', prefixLength: 28 })
  await startDriver()
})
afterAll(async () => {
  try {
    await remove(await containers())
    for (const { Name } of await engine.docker.listNetworks())
      if (['blue', 'bare', 'other'].includes(Name)) await removeNetwork(Name)
  } finally {
    await engine?.close()
    driver?.child.kill('SIGTERM')
    await driver?.finished
    rmSync(home, { recursive: true })
  }
})

async function startDriver(): Promise<void> {
  const env = { IPLEDGER_URL: service.url, IPLEDGER_TOKEN: token }
  driver = startProcess(['docker-driver', '--node', NODE, '--socket', SOCKET], env)
  await waitFor(() => driver.stdout().includes('listening'), { what: 'the driver to listen' })
}

async function killDriver(): Promise<void> {
  driver.child.kill('SIGKILL')
  await driver.finished
}

/** As Docker calls it. */
async function ask(
  method: string,
  body: object,
): Promise<{ readonly Error?: string; readonly Address?: string }> {
  return new Promise((resolve, reject) => {
    request({ socketPath: SOCKET, path: `/${method}`, method: 'POST' }, (response) =>
      json(response).then(resolve as never, reject),
    )
      .once('error', reject)
      .end(JSON.stringify(body))
  })
}

type Lease = Readonly<Record<'leaseId' | 'address' | 'state' | 'version', string>> & {
  readonly owner: Readonly<Record<'kind' | 'name' | 'uid' | 'node' | 'interface', string>>
}
async function leases(filter: object = { ownerKind: 'endpoint' }): Promise<readonly Lease[]> {
  return (await call.ok('LeaseService/ListLeases', { ...filter, pageSize: 1_000 })).leases ?? []
}

const held = async () => (await leases()).map(({ leaseId, address }) => ({ leaseId, address }))

type Given = { readonly ip?: string; readonly mac?: string }
async function create(name: string, { ip, mac }: Given = {}): Promise<Docker.Container> {
  return engine.docker.createContainer({
    name,
    Image: IMAGE,
    Cmd: ['/bin/busybox', 'sleep', '3600'],
    HostConfig: { NetworkMode: 'blue' },
    ...(mac !== undefined && { MacAddress: mac }),
    ...(ip !== undefined && {
      NetworkingConfig: { EndpointsConfig: { blue: { IPAMConfig: { IPv4Address: ip } } } },
    }),
  })
}

async function run(name: string, given: Given = {}): Promise<Docker.Container> {
  const container = await create(name, given)
  await container.start()
  return container
}

async function containers(): Promise<readonly Docker.Container[]> {
  const all = await engine.docker.listContainers({ all: true })
  return all.map(({ Id }) => engine.docker.getContainer(Id))
}

async function remove(some: readonly Docker.Container[]): Promise<void> {
  await Promise.all(some.map((one) => one.remove({ force: true })))
}

/**
 * Docker counts a network's endpoints, and may miscount those of 50 containers that end at once: its start counts anew
 * (`endpoint_cnt` in moby's libnetwork/store.go).
 */
async function removeNetwork(name: string): Promise<void> {
  const remove = async () => {
    await engine.docker.getNetwork(name).remove()
    return true
  }
  const what = `network ${name} to have no endpoints`
  try {
    await waitFor(remove, { every: 100, timeout: 10_000, what })
  } catch {
    await engine.stop()
    await engine.start()
    await waitFor(remove, { every: 100, what })
  }
}

/** What its interface has, as the kernel of its namespace says. */
async function addressesOf(container: Docker.Container): Promise<readonly string[]> {
  const { State } = await container.inspect()
  const net = `--net=/proc/${State.Pid}/ns/net`
  const [link] = JSON.parse(
    execFileSync('nsenter', [net, 'ip', '-j', 'addr', 'show', 'eth0'], { encoding: 'utf8' }),
  )
  type Address = { readonly scope: string; readonly local: string }
  return link.addr_info.filter(({ scope }: Address) => scope === 'global').map(({ local }: Address) => local)
}

const macOf = async (one: Docker.Container) => (await one.inspect()).NetworkSettings.Networks.blue!.MacAddress

/**
 * Every address of every namespace is leased, none is in two, and no other endpoint has a lease. Docker answers that a container has
 * stopped before it gives the addresses back.
 */
const untilAgreed = (count: number) =>
  waitFor(
    async () => {
      const running = await engine.docker.listContainers()
      const found = await Promise.all(running.map(({ Id }) => addressesOf(engine.docker.getContainer(Id))))
      expect((await leases()).map(({ address }) => address).sort()).toEqual(found.flat().sort())
      expect(new Set(found.flat()).size).toBe(found.flat().length)
      expect(found.flat()).toHaveLength(count)
      return true
    },
    { every: 100, what: 'leases and namespaces to agree' },
  )

const createNetwork = (Name: string, ...Config: readonly object[]) =>
  engine.docker.createNetwork({
    Name,
    Driver: 'bridge',
    EnableIPv6: Config.length > 1,
    IPAM: { Driver: DRIVER, Config: Config as never },
  })

test('a network needs a pool, and Swarm has none', async () => {
  await expect(createNetwork('other')).rejects.toThrow(
    /--subnet is required: it must be a pool of network default of ipledger, which has 172\.31\.247\.0\/24 \(bare\), 172/,
  )
  await expect(createNetwork('other', { Subnet: '172.31.240.0/24' })).rejects.toThrow(
    '--subnet 172.31.240.0/24 must be a pool of network default',
  )
  await expect(createNetwork('other', { Subnet: SUBNET, IPRange: '172.31.248.128/25' })).rejects.toThrow(
    '--ip-range 172.31.248.128/25 in --subnet 172.31.248.0/24 must be a pool',
  )
  const swarm = await ask('IpamDriver.RequestPool', { AddressSpace: 'ipledger-swarm', Pool: SUBNET })
  expect(swarm.Error).toContain('Swarm')
  expect(await leases({})).toEqual([])
})

test('the gateway of the pool has no lease; others and auxiliary addresses are infrastructure of node and network', async () => {
  const wanted = { Subnet: BARE, AuxiliaryAddresses: { router: '172.31.247.9' } }
  const bare = await createNetwork('bare', wanted)
  const name = `${NODE}/${BARE}`
  const infrastructure = [
    { state: 'ACTIVE', owner: { kind: 'infrastructure', name, interface: 'gateway', node: NODE } },
    { address: '172.31.247.9', owner: { kind: 'infrastructure', name, interface: '172.31.247.9' } },
  ]
  expect(await leases({})).toMatchObject(infrastructure)
  // Docker makes none of these, and would release what it was given for it.
  await expect(createNetwork('other', wanted)).rejects.toThrow('another Docker network of this node')
  await killDriver()
  await startDriver()
  await expect(createNetwork('other', wanted)).rejects.toThrow(
    `infrastructure ${name} has 172.31.247.1 already`,
  )
  const Gateway = '172.31.247.2'
  await expect(createNetwork('other', { ...wanted, Gateway })).rejects.toThrow(
    `${name} has 172.31.247.9 already`,
  )
  // What it had got already went back.
  expect(await leases({})).toMatchObject(infrastructure)
  // It tells what it has.
  await engine.stop()
  await engine.start()
  await expect(createNetwork('other', wanted)).rejects.toThrow('another Docker network of this node')
  await bare.remove()
  expect(await leases({})).toEqual([])
  await createNetwork('blue', { Subnet: SUBNET }, { Subnet: SUBNET6 })
  expect(await leases({})).toEqual([])
})

test('containers have what the ledger gave them; its source knows their names', async () => {
  const [one, two] = [await run('one'), await run('two')]
  await untilAgreed(4)
  const uid = `${NODE}/${SUBNET}/${await macOf(one)}`
  expect(await leases({ ownerUid: uid })).toMatchObject([
    { state: 'ACTIVE', owner: { node: NODE, name: uid } },
  ])
  expect(await addressesOf(two)).toHaveLength(2)

  await call.ok('LivenessService/RegisterSource', {
    id: 'docker-1',
    kind: 'DOCKER',
    sight: { node: NODE, ownerKinds: ['endpoint'], interval: '2s' },
    settings: { socketPath: engine.socketPath, network: 'blue', kind: 'endpoint' },
  })
  const listed = await waitFor(
    async () => {
      const { sightings = [] } = await call.ok('LivenessService/ListSightings', {})
      return sightings.length === 4 && sightings
    },
    { timeout: 90_000, every: 200, what: 'the source to list the endpoints' },
  )
  const [address] = await addressesOf(one)
  const sighting = { address, source: 'docker-1', owner: { kind: 'endpoint', name: `${NODE}/one`, uid } }
  expect(listed).toContainEqual(
    expect.objectContaining({ address, owner: expect.objectContaining(sighting.owner) }),
  )
  await call.ok('LivenessService/EnableSource', { id: 'docker-1' })
  expect(await leases({ states: ['QUARANTINED'] })).toEqual([])
})

test('a restart is a new owner; a killed container gives its address back', async () => {
  const [two] = await engine.docker.listContainers({ filters: { name: ['two'] } })
  const container = engine.docker.getContainer(two!.Id)
  const before = await macOf(container)
  await container.restart({ t: 0 })
  expect(await macOf(container)).not.toBe(before)
  await untilAgreed(4)
  await container.kill()
  await waitFor(async () => (await leases()).length === 2, { what: 'the leases of the killed one to end' })
  await container.remove()
})

test('with an address and no MAC of its own its restart waits until the address has rested', async () => {
  const named = await run('named', { ip: '172.31.248.88' })
  const isListed = async () =>
    (await call.ok('LivenessService/ListSightings', { address: '172.31.248.88' })).sightings
  await waitFor(isListed, { every: 200, what: 'it to be listed' })
  await expect(named.restart({ t: 0 })).rejects.toThrow(/ADDRESS_(QUARANTINED|COOLING): 172\.31\.248\.88/)
  await waitFor(() => named.start().then(() => true), { every: 500, what: 'the address to have rested' })
  expect(await addressesOf(named)).toContain('172.31.248.88')
  await named.remove({ force: true })
  await untilAgreed(2)
})

test('with an address and a MAC of its own it has both again at once; another with that MAC is refused', async () => {
  const fixed = await run('fixed', { ip: '172.31.248.77', mac: MAC })
  await waitFor(
    async () => (await call.ok('LivenessService/ListSightings', { address: '172.31.248.77' })).sightings,
    {
      every: 200,
      what: 'it to be listed',
    },
  )
  await fixed.restart({ t: 0 })
  expect(await addressesOf(fixed)).toContain('172.31.248.77')
  await expect(run('double', { mac: MAC })).rejects.toThrow(AGAIN)
  const twin = engine.docker.getContainer('double')
  await twin.remove()
  await expect(run('double', { ip: '172.31.248.77', mac: MAC })).rejects.toThrow(AGAIN)
  await engine.docker.getContainer('double').remove()
  await expect(run('double', { ip: GATEWAY })).rejects.toThrow('ADDRESS_EXCLUDED')
  await engine.docker.getContainer('double').remove()
  await untilAgreed(4)
})

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'a daemon that starts again (%s) has the same addresses',
  async (signal) => {
    const before = await held()
    await engine.stop(signal)
    await engine.start()
    expect(await held()).toEqual(before)
    await untilAgreed(4)
    // It has told the driver what it has, and has it once.
    await expect(run('double', { ip: '172.31.248.77', mac: MAC })).rejects.toThrow(AGAIN)
    await engine.docker.getContainer('double').remove()
  },
)

/** As a daemon that starts does. */
async function tellPool(): Promise<void> {
  await ask('Plugin.Activate', {})
  await ask('IpamDriver.RequestPool', { AddressSpace: 'ipledger', Pool: SUBNET })
}
const tell = (Address: string, mac: string) =>
  ask('IpamDriver.RequestAddress', {
    PoolID: SUBNET,
    Address,
    Options: { 'com.docker.network.endpoint.macaddress': mac },
  })

test('a held address is told once to a daemon that has started, and to none whose start the driver has not seen', async () => {
  const told = () => tell('172.31.248.77', MAC)
  await killDriver()
  await startDriver()
  expect((await told()).Error).toMatch(AGAIN)
  await ask('Plugin.Activate', {})
  expect((await told()).Error).toMatch(AGAIN)
  await tellPool()
  expect(await told()).toMatchObject({ Address: '172.31.248.77/24' })
  expect((await told()).Error).toMatch(AGAIN)
})

test('a daemon that starts while the service is away has its addresses all the same', async () => {
  await tellPool()
  service.child.kill('SIGSTOP')
  const away = await tell('172.31.248.77', MAC)
  service.child.kill('SIGCONT')
  expect(away.Error).toContain('ipledger cannot be reached')
  expect((await tell('172.31.248.77', MAC)).Error).toMatch(AGAIN)
})

test('an endpoint whose lease was lost, and that its source has listed since, is known by its MAC', async () => {
  const one = engine.docker.getContainer('one')
  const [address] = await addressesOf(one)
  const [{ leaseId, version }] = (await leases({ cidr: address })) as [Lease]
  await call.ok('LeaseService/Reap', { leaseId, version, why: 'as a restored dump lacks it' })
  const [adopted] = await waitFor(
    async () => (await leases({ cidr: address })).length > 0 && leases({ cidr: address }),
    {
      every: 200,
      what: 'the source to list it',
    },
  )
  expect(adopted).toMatchObject({ state: 'ACTIVE', owner: { kind: 'endpoint', name: `${NODE}/one` } })
  await tellPool()
  expect(await tell(address!, (await macOf(one))!)).toMatchObject({ Address: `${address}/24` })
  await untilAgreed(4)
})

test('it releases nothing that is not of its node and network', async () => {
  const claims = [{ pool: 'blue' }]
  const held = await Promise.all([
    call.ok('LeaseService/Reserve', { owner: { kind: 'vm', name: 'vm-1', node: NODE }, claims }),
    call.ok('LeaseService/Reserve', {
      owner: { kind: 'endpoint', name: `${NODE}/172.31.248.0/2/x`, node: NODE },
      claims,
    }),
  ])
  for (const {
    leases: [{ address, leaseId }],
  } of held) {
    expect(await ask('IpamDriver.ReleaseAddress', { PoolID: SUBNET, Address: address })).toEqual({})
    expect(await leases({ cidr: address })).toMatchObject([{ leaseId, state: 'RESERVED' }])
    await call.ok('LeaseService/Release', { leaseId })
  }
  expect(await ask('IpamDriver.ReleaseAddress', { PoolID: SUBNET, Address: '172.31.248.200' })).toEqual({})
  await untilAgreed(4)
})

test('a socket has one driver; what is no call of Docker is answered all the same', async () => {
  const env = { IPLEDGER_URL: service.url, IPLEDGER_TOKEN: token }
  const other = await startProcess(['docker-driver', '--socket', SOCKET], env).finished
  expect(other).toMatchObject({ code: 1, stderr: expect.stringContaining(`another driver has ${SOCKET}`) })
  expect(await ask('VolumeDriver.Create', {})).toEqual({ Err: 'there is no /VolumeDriver.Create' })
  expect((await ask('IpamDriver.RequestAddress', {})).Error).toContain('PoolID')
  expect((await ask('IpamDriver.RequestPool', { Pool: '10.0.0.1/8' })).Error).toContain('write 10.0.0.0/8')
})

test('a driver that is back within seconds misses nothing; one that stays away leaks until the source proves it', async () => {
  const [short, long] = [await run('short'), await run('long')]
  const [leak] = await addressesOf(long)
  await killDriver()
  const stopping = short.stop({ t: 0 })
  await startDriver()
  await stopping
  await untilAgreed(6)
  await waitFor(async () => (await call.ok('LivenessService/ListSightings', { address: leak })).sightings, {
    every: 200,
    what: 'it to be listed',
  })
  await killDriver()
  const begun = performance.now()
  await long.stop({ t: 0 })
  const stopped = performance.now()
  await expect(run('late')).rejects.toThrow(/plugin|driver|connect/i)
  await startDriver()
  await waitFor(async () => (await leases({ cidr: leak })).length === 0, {
    timeout: 170_000,
    every: 500,
    what: 'the leak to be proven',
  })
  const { entries } = await call.ok('AuditService/GetAddressHistory', { address: leak, pageSize: 1_000 })
  const proven = expect.objectContaining({ type: 'lease.reaped', cause: 'PROVEN_ABSENT' })
  expect(entries).toContainEqual(expect.objectContaining({ event: proven }))
  const seconds = (from: number, to: number) => ((to - from) / 1_000).toFixed(1)
  console.log(
    `a stop without driver: ${seconds(begun, stopped)} s; proven ${seconds(stopped, performance.now())} s later`,
  )
  await remove([short, long, engine.docker.getContainer('late')])
  await run('after')
}, 300_000)

test('50 at a time: no address twice, none leaked', async () => {
  const names = Array.from({ length: 50 }, (_, index) => `many-${index}`)
  const begun = performance.now()
  const many = await Promise.all(names.map((name) => run(name)))
  const started = performance.now()
  await untilAgreed(106)
  await remove(many)
  console.log(
    `50 containers started in ${(started - begun).toFixed(0)} ms, removed in ${(performance.now() - started).toFixed(0)} ms`,
  )
  expect(await leases({ states: ['QUARANTINED'] })).toEqual([])
  await untilAgreed(6)
}, 300_000)

test('without its containers nothing is held', async () => {
  await remove(await containers())
  await removeNetwork('blue')
  expect(await leases({})).toEqual([])
})
