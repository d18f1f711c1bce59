/**
 * Spare addresses of a node, on real namespaces: whatever becomes of the agent and its files, no address is on two interfaces, and
 * a container that got a spare is as good as any other.
 */
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, afterEach, expect, test } from 'vitest'
import { startProxy } from '../support/proxy.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, enableSource, given, type Held, heldBy, openNode } from './node.ts'

const service = await useService()
const { call, time } = service
await call.ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.208.0.0/24',
  gateway: '10.208.0.1',
  cooldown: '0s',
})
// A node for each test; two agents on the second.
for (const id of ['n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7']) await enableSource(call, id, { node: id })
await enableSource(call, 'second', { node: 'n2' })
/** What the agents reach the service by, so that it can be away. */
const proxy = await startProxy(service.url.replace('http', 'postgres'))
afterAll(() => proxy.close())
const node = await openNode({ IPLEDGER_URL: proxy.url.replace('postgres', 'http') })
afterEach(async () => {
  proxy.down(false)
  await node.killAgent()
  rmSync(join(node.dir, 'state'), { recursive: true, force: true })
})

const { leases } = heldBy(call)
const holderOf = async (address: string) => (await leases()).find((lease) => lease.address === address)?.owner
/** Addresses that this source lists as spares. */
const listed = async (source: string): Promise<readonly string[]> => {
  const { sightings } = await call.ok('LivenessService/ListSightings', { source, pageSize: 1_000 })
  return sightings.flatMap(({ owner, address }: Held) => (owner?.kind === 'reserve' ? [address] : []))
}
const untilListed = (source: string, size: number) =>
  waitFor(async () => (await listed(source)).length >= size, { what: `${source} to list ${size} spares` })
const untilReported = async (times: number, source: string) => {
  const last = async () => {
    const { sources } = await call.ok('LivenessService/ListSources', {})
    return Number(sources.find(({ id }: { readonly id: string }) => id === source).lastSequence)
  }
  const before = await last()
  await waitFor(async () => (await last()) >= before + times, { what: `${times} reports` })
}
/** Also where the first list that has it is not trusted yet. */
const untilOwn = (address: string, container: string) =>
  waitFor(
    async () => {
      await service.run('recheck', 'default')
      return (await holderOf(address))?.uid === container
    },
    { what: `${address} to be the own address of ${container}` },
  )
const untilJudged = (isSo: () => Promise<boolean>, what: string) =>
  waitFor(
    async () => {
      time.movedBy += 20 * 60_000
      await service.run('judge', 'default')
      return await isSo()
    },
    { what, every: 500 },
  )
const add = async (container: string, options = {}) =>
  given(await node.call('ADD', node.add(container), options))[0]!

test('an agent that was killed and lost its files gives no address again', async () => {
  await node.startAgent('--spares', '2')
  await untilListed('n1', 2)
  proxy.down(true)
  const before = [await add('one'), await add('two')]
  proxy.down(false)
  await untilListed('n1', 2)
  await node.killAgent()
  rmSync(join(node.dir, 'state'), { recursive: true })
  await node.startAgent('--spares', '2')
  await untilReported(3, 'n1')
  proxy.down(true)
  const after = [await add('three'), await add('four')]
  expect(new Set([...before, ...after]).size).toBe(4)
  expect(doubles(node)).toEqual([])
})

test('two agents on one node, with one pool', async () => {
  const second = {
    socket: join(node.dir, 'second.sock'),
    args: ['--source', 'second', '--socket', join(node.dir, 'second.sock'), '--state', join(node.dir, 's2')],
  }
  await node.startAgent('--node', 'n2', '--spares', '1')
  await node.startAgent('--node', 'n2', '--spares', '1', ...second.args)
  await untilListed('n2', 1)
  await untilListed('second', 1)
  proxy.down(true)
  await add('first-of-two')
  await add('second-of-two', { ipam: { agentSocket: second.socket } })
  expect(doubles(node)).toEqual([])
})

test('an agent that was stopped gives none until it has reported again', async () => {
  const { child } = await node.startAgent('--node', 'n5', '--spares', '2')
  await untilListed('n5', 2)
  proxy.down(true)
  await add('before-stop')
  child.kill('SIGSTOP')
  await delay(11_000)
  child.kill('SIGCONT')
  const stopped = node.add('stopped')
  expect(await node.call('ADD', stopped, { plugin: 'ipledger-cni' })).toMatchObject({
    body: { code: 11, msg: expect.stringContaining('stood still') },
  })
  proxy.down(false)
  await untilReported(2, 'n5')
  proxy.down(true)
  given(await node.call('ADD', stopped))
  expect(doubles(node)).toEqual([])
})

test('one that another host answers for is given to nobody', async () => {
  await node.startAgent('--node', 'n6', '--spares', '2', '--probe')
  await untilListed('n6', 2)
  await add('stranger')
  const [used, other] = await listed('n6')
  // It answers by ARP, and no interface has the address: as a host elsewhere on the link.
  node.inside('stranger', 'ip', 'route', 'add', 'local', `${used}/32`, 'dev', 'lo')
  proxy.down(true)
  expect(await add('first-on-link')).toBe(other)
  expect((await node.call('ADD', node.add('second-on-link'))).body.code).toBe(11)
})

test('what an agent held that was killed ends by proof', async () => {
  await node.startAgent('--node', 'n7', '--spares', '2')
  await untilListed('n7', 2)
  await node.killAgent()
  const held = async () => (await leases()).filter(({ owner }) => owner.node === 'n7').length
  expect(await held()).toBe(2)
  await node.startAgent('--node', 'n7')
  await untilJudged(async () => (await held()) === 0, 'the spares to end')
})

test('what ADD wrote down names the container to an agent that has started since', async () => {
  await node.startAgent('--node', 'n4', '--spares', '1')
  await untilListed('n4', 1)
  proxy.down(true)
  const address = await add('survivor')
  await node.killAgent()
  proxy.down(false)
  await node.startAgent('--node', 'n4')
  await untilOwn(address, 'survivor')
  expect((await node.call('DEL', 'survivor')).code).toBe(0)
  await waitFor(async () => (await holderOf(address)) === undefined, { what: `${address} to be released` })
})

test('a container that got a spare and goes without a DEL leaves no lease behind', async () => {
  await node.startAgent('--node', 'n3', '--spares', '1')
  await untilListed('n3', 1)
  proxy.down(true)
  const address = await add('crashed')
  proxy.down(false)
  await untilOwn(address, 'crashed')
  node.remove('crashed')
  await untilJudged(async () => (await holderOf(address)) === undefined, `the lease of ${address} to end`)
})
