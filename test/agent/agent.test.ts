/** The agent as a plugin calls it, in this process, on a real service. What is on the node is the test's. */
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Agent } from '../../src/agent/agent.ts'
import { createClient } from '../../src/client/client.ts'
import type { Look } from '../../src/cni/namespaces.ts'
import { createLogger } from '../../src/telemetry.ts'
import { startProxy } from '../support/proxy.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

vi.mock('../../src/cni/namespaces.ts', async (original) => ({
  ...(await original<object>()),
  lookAround: async (): Promise<Look> => ({
    seen: [],
    all: new Set(),
    complete: true,
    namespaces: new Map(),
  }),
}))

const { call, url } = await useService()

test('an ADD that is repeated while the first one runs gets the same spare address', async () => {
  await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.53.0.0/28' })
  const sight = { node: 'n1', ownerKinds: ['container'], interval: '1s' }
  await call.ok('LivenessService/RegisterSource', { id: 'n1', sight })
  const proxy = await startProxy(url.replace('http', 'postgres'))
  onTestFinished(() => proxy.close())
  const state = temporaryDirectory()
  const socket = join(state, 'agent.sock')
  const own = { network: 'default', bridge: 'none', node: 'n1', source: 'n1', socket, state, cniCache: state }
  const options = { ...own, spares: 2, pools: [], probe: false }
  const client = createClient({ url: proxy.url.replace('postgres', 'http') })
  const ended = new AbortController()
  const running = new Agent(options, client, createLogger('fatal')).run(ended.signal, () => {})
  onTestFinished(async () => {
    ended.abort()
    await running
  })
  const listed = async () => (await call.ok('LivenessService/ListSightings', { source: 'n1' })).sightings
  await waitFor(async () => (await listed()).length === 2, { what: 'two spares' })
  proxy.down(true)

  const add = async (): Promise<string> => {
    const plugin = connect(socket)
    const config = { cniVersion: '1.0.0', ipam: { type: 'ipledger-cni' } }
    plugin.end(
      `CNI_COMMAND=ADD\nCNI_CONTAINERID=c1\nCNI_NETNS=/none\nCNI_IFNAME=eth0\n\n${JSON.stringify(config)}`,
    )
    const [exitCode, stdout] = (await text(plugin)).split('\n')
    expect(exitCode).toBe('0')
    return JSON.parse(stdout!).ips[0].address
  }
  const [first, again] = await Promise.all([add(), add()])
  expect(again).toBe(first)
  expect(await add()).toBe(first)
})
