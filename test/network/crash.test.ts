/** Crashes at the worst moment: what was reserved and not answered, answered and not confirmed, released and not answered. */
import { createServer } from 'node:http'
import { afterAll, expect, test } from 'vitest'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, enableSource, given, heldBy, openNode } from './node.ts'

const service = await useService()
const { call } = service
await call.ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.206.0.0/24',
  gateway: '10.206.0.1',
  cooldown: '0s',
})
await enableSource(call)

/** In front of the service: the next answer of a method is lost, after its work was done, and `meanwhile` is called. */
let lost: { readonly method: string; readonly meanwhile: () => void } | null = null
const proxy = createServer(async (request, response) => {
  const body = []
  for await (const part of request) body.push(part)
  const { method, headers, url = '' } = request
  const answer = await fetch(service.url + url, {
    method: method!,
    headers: { 'content-type': headers['content-type']! },
    body: Buffer.concat(body),
  })
  const bytes = Buffer.from(await answer.arrayBuffer())
  if (lost !== null && url.endsWith(lost.method)) {
    lost.meanwhile()
    lost = null
    request.socket.destroy()
    return
  }
  response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type')! }).end(bytes)
})
await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
afterAll(() => void proxy.close().closeAllConnections())
const url = `http://127.0.0.1:${(proxy.address() as { readonly port: number }).port}`
/** Resolves when it has happened. */
const loseNext = (method: string, meanwhile = () => {}) =>
  new Promise<void>((resolve) => {
    const both = () => {
      meanwhile()
      resolve()
    }
    lost = { method, meanwhile: both }
  })

const node = await openNode({ IPLEDGER_URL: url })
let agent = await node.startAgent()
const restart = async () => {
  await node.killAgent()
  agent = await node.startAgent()
}
/** Where neither agent nor service is. */
const alone = { ipam: { url: 'http://127.0.0.1:9' } }

const { leasesOf, untilActive, untilReleased } = heldBy(call)

test('the agent is killed between Reserve and its answer: ADD again gives the same address', async () => {
  const container = node.add('reserved')
  loseNext('/Reserve', () => agent.child.kill('SIGKILL'))
  const failed = await node.call('ADD', container, { ...alone, plugin: 'ipledger-cni' })
  expect(failed).toMatchObject({ code: 1, body: { code: 11 } })
  const [reserved] = await leasesOf(container)
  expect(reserved).toMatchObject({ state: 'RESERVED' })
  await restart()
  expect(given(await node.call('ADD', container))).toEqual([reserved!.address])
  expect(node.addresses().get(container)).toEqual([reserved!.address])
  await untilActive(container)
  expect((await leasesOf(container)).map(({ leaseId }) => leaseId)).toEqual([reserved!.leaseId])
})

test('the answer of Reserve is lost: the agent asks again, and nothing is held twice', async () => {
  const container = node.add('unheard')
  loseNext('/Reserve')
  const added = given(await node.call('ADD', container))
  expect((await leasesOf(container)).map(({ address }) => address)).toEqual(added)
  await untilActive(container)
})

test('the agent is killed before it could confirm: its report does', async () => {
  const container = node.add('unconfirmed')
  const cut = loseNext('/Confirm', () => agent.child.kill('SIGKILL'))
  given(await node.call('ADD', container))
  // Its answer never came, or the call was never made.
  await cut
  await restart()
  // The lists of an agent that has just started only protect; the worker looks at them again each minute.
  const isActive = async () => {
    await service.run('recheck', 'default')
    return (await leasesOf(container)).every(({ state }) => state === 'ACTIVE')
  }
  await waitFor(isActive, { what: `${container} to be confirmed`, every: 500 })
})

test('the plugin is killed under ADD: DEL leaves nothing behind', async () => {
  const container = node.add('killed')
  let plugin = 0
  loseNext('/Reserve', () => process.kill(plugin, 'SIGKILL'))
  const started = (pid: number) => {
    plugin = pid
  }
  await node.call('ADD', container, { plugin: 'ipledger-cni', started })
  expect((await node.call('DEL', container)).code).toBe(0)
  await untilReleased(container)
})

test('the agent is killed when a release was done and not answered: the container that comes again keeps its address', async () => {
  const container = node.add('returns')
  given(await node.call('ADD', container))
  await untilActive(container)
  const cut = loseNext('/Release', () => agent.child.kill('SIGKILL'))
  expect((await node.call('DEL', container, alone)).code).toBe(0)
  await cut
  // Without an agent: the release that was done still waits in the state directory.
  const again = given(await node.call('ADD', container))
  agent = await node.startAgent()
  const witness = node.add('witness')
  given(await node.call('ADD', witness))
  expect((await node.call('DEL', witness)).code).toBe(0)
  await untilReleased(witness)
  expect((await leasesOf(container)).map(({ address }) => address)).toEqual(again)
  expect(node.addresses().get(container)).toEqual(again)
})

test('no address is on two interfaces', () => expect(doubles(node)).toEqual([]))
