/** The agent as a plugin calls it, in this process, on a real service. What is on the node is the test's. */
import { chmodSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { Code, ConnectError } from '@connectrpc/connect'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { Agent } from '../../src/agent/agent.ts'
import { CallFailed } from '../../src/client/call-failed.ts'
import { createClient, type IpledgerClient } from '../../src/client/client.ts'
import type { Scan } from '../../src/cni/namespaces.ts'
import { ErrorInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import { createLogger } from '../../src/telemetry.ts'
import { useProxy } from '../support/proxy.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

/** By the path of a namespace, and in any. */
const configured = new Map<string, readonly string[]>()
const seen = new Set<string>()
/** Paths that were looked at, to confirm or to deliver. */
let lookedAt: readonly string[] = []
vi.mock('../../src/cni/namespaces.ts', async (original) => ({
  ...(await original<object>()),
  addressesOf: async (places: readonly { readonly netns: string }[]) => {
    const paths = places.map(({ netns }) => netns)
    lookedAt = [...lookedAt, ...paths]
    return paths.map((path) => configured.get(path) ?? [])
  },
  scanNode: async (): Promise<Scan> => ({ seen: [], all: seen, complete: true, namespaces: new Map() }),
}))

const { call, url } = await useService()
await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.53.0.0/24', cooldown: '0s' })
const sight = { node: 'n1', ownerKinds: ['container'], interval: '1s' }
await call.ok('LivenessService/RegisterSource', { id: 'n1', sight })
const client = createClient({ url })
beforeEach(() => {
  configured.clear()
  seen.clear()
  lookedAt = []
})

const unused = () => {
  const state = temporaryDirectory()
  const own = { network: 'default', bridge: 'none', node: 'n1', source: 'n1', state, cniCache: state }
  return { ...own, socket: join(state, 'agent.sock'), spares: 0, pools: [], probe: false }
}

/** Until the test is over. */
async function start(spares: number, at: IpledgerClient) {
  const options = { ...unused(), spares }
  const ended = new AbortController()
  const ready = Promise.withResolvers<void>()
  const running = new Agent(options, at, createLogger('fatal')).run(ended.signal, ready.resolve)
  onTestFinished(async () => {
    ended.abort()
    await running
  })
  await ready.promise
  return async (command: string, container: string, network = 'default') => {
    const plugin = connect(options.socket)
    const config = { cniVersion: '1.0.0', ipam: { type: 'ipledger-cni', network }, prevResult: { ips: [] } }
    const env = { COMMAND: command, CONTAINERID: container, NETNS: `/${container}`, IFNAME: 'eth0' }
    const lines = Object.entries(env).map(([name, value]) => `CNI_${name}=${value}\n`)
    plugin.end(`${lines.join('')}\n${JSON.stringify(config)}`)
    const [exitCode, stdout = ''] = (await text(plugin)).split('\n')
    const body = stdout === '' ? {} : JSON.parse(stdout)
    return { exitCode, code: body.code, address: body.ips?.[0].address.split('/')[0] as string }
  }
}
type Plugin = Awaited<ReturnType<typeof start>>
const added = async (plugin: Plugin, container: string) => {
  const { exitCode, address } = await plugin('ADD', container)
  expect(exitCode).toBe('0')
  return address
}
const leaseAt = async (address: string) => (await call('LeaseService/GetLease', { address })).body.lease
const untilActive = (address: string) =>
  waitFor(async () => (await leaseAt(address)).state === 'ACTIVE', { what: `${address} to be confirmed` })
const untilReleased = (address: string) =>
  waitFor(async () => (await leaseAt(address)) === undefined, { what: `${address} to be released` })
/** A client whose Confirm of one address fails. */
const failing = (fails: (leaseId: string) => ConnectError | null): IpledgerClient => {
  const confirm: typeof client.leases.confirm = async (asked, options) => {
    const error = fails(asked.leaseId!)
    if (error !== null) throw new CallFailed(error)
    return await client.leases.confirm(asked, options)
  }
  return { ...client, leases: { ...client.leases, confirm } }
}

test('an ADD that is repeated while the first one runs gets the same spare address', async () => {
  const proxy = await useProxy(url.replace('http', 'postgres'))
  const plugin = await start(2, createClient({ url: proxy.url.replace('postgres', 'http') }))
  const listed = async () => (await call.ok('LivenessService/ListSightings', { source: 'n1' })).sightings
  await waitFor(async () => (await listed()).length === 2, { what: 'two spares' })
  proxy.down(true)
  const [first, again] = await Promise.all([added(plugin, 'c1'), added(plugin, 'c1')])
  expect(again).toBe(first)
  expect(await added(plugin, 'c1')).toBe(first)
})

test('with the arping of the other package it does not start', async () => {
  const bin = temporaryDirectory()
  writeFileSync(join(bin, 'arping'), '#!/bin/sh\necho "ARPing 2.23, by Thomas Habets"\n')
  chmodSync(join(bin, 'arping'), 0o755)
  vi.stubEnv('PATH', bin)
  onTestFinished(() => void vi.unstubAllEnvs())
  const agent = new Agent({ ...unused(), probe: true }, client, createLogger('fatal'))
  await expect(agent.run(AbortSignal.abort(), () => {})).rejects.toThrow('iputils-arping')
})

test('of another network it adds nothing; what was added there is checked, and goes back', async () => {
  const plugin = await start(0, client)
  for (const command of ['ADD', 'STATUS']) expect((await plugin(command, 'c2', 'other')).code).toBe(7)
  await call.ok('NetworkService/CreateNetwork', { name: 'other' })
  await call.ok('PoolService/CreatePool', { network: 'other', name: 'web', cidr: '10.54.0.0/28' })
  const owner = { kind: 'container', name: 'c2', interface: 'eth0', node: 'n1' }
  const { leases } = await client.leases.reserve({ network: 'other', owner })
  const { address, leaseId } = leases[0]!
  expect((await plugin('CHECK', 'c2', 'other')).exitCode).toBe('0')
  expect((await plugin('DEL', 'c2', 'other')).exitCode).toBe('0')
  const held = async () => (await call('LeaseService/GetLease', { network: 'other', address })).body.lease
  await waitFor(async () => (await held())?.leaseId !== leaseId, { what: 'the release' })
})

test('what DEL was called for is not confirmed any more', async () => {
  const plugin = await start(0, client)
  const address = await added(plugin, 'c3')
  seen.add(address)
  await plugin('DEL', 'c3')
  configured.set('/c3', [address])
  const next = await added(plugin, 'c4')
  configured.set('/c4', [next])
  await untilActive(next)
  expect((await leaseAt(address)).state).toBe('RESERVED')
})

test('what is configured is confirmed, and not looked at again; nor is what is not configured in time', async () => {
  const now = performance.now.bind(performance)
  let movedBy = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now() + movedBy)
  onTestFinished(() => void vi.restoreAllMocks())
  const plugin = await start(0, client)
  const address = await added(plugin, 'c5')
  configured.set('/c5', [address])
  await added(plugin, 'c6')
  await untilActive(address)
  // 100 ms, and twice as long each time, up to 30 s.
  const scans = () => lookedAt.filter((path) => path === '/c6').length
  for (let times = scans(); times < 9; times = scans()) {
    movedBy += 60_000
    await plugin('STATUS', '')
    await waitFor(() => scans() > times, { what: `scan ${times + 1}` })
  }
  lookedAt = []
  movedBy += 60_000
  await added(plugin, 'c7')
  await waitFor(() => lookedAt.includes('/c7'), { what: 'a scan after all' })
  expect(lookedAt).toEqual(['/c7'])
})

test('a Confirm that meets a defect stops neither other ones nor releases', async () => {
  let broken = ''
  const at = failing((leaseId) => (leaseId === broken ? new ConnectError('broken', Code.Internal) : null))
  const plugin = await start(0, at)
  const [bad, good, gone] = [await added(plugin, 'c8'), await added(plugin, 'c9'), await added(plugin, 'c10')]
  broken = (await leaseAt(bad)).leaseId
  configured.set('/c8', [bad])
  configured.set('/c9', [good])
  await untilActive(good)
  await plugin('DEL', 'c10')
  await untilReleased(gone)
  expect((await leaseAt(bad)).state).toBe('RESERVED')
})

test('a Confirm while the service is overloaded is repeated, and releases go on', async () => {
  let attempts = 0
  let isOverloaded = true
  const at = failing(() => {
    attempts += 1
    const info = { reason: 'OVERLOADED', domain: 'ipledger' }
    const details = [{ desc: ErrorInfoSchema, value: info }]
    return isOverloaded ? new ConnectError('too much', Code.Unavailable, undefined, details) : null
  })
  const plugin = await start(0, at)
  const [address, gone] = [await added(plugin, 'c11'), await added(plugin, 'c12')]
  configured.set('/c11', [address])
  await waitFor(() => attempts > 1, { what: 'two attempts' })
  await plugin('DEL', 'c12')
  await untilReleased(gone)
  isOverloaded = false
  await untilActive(address)
})
