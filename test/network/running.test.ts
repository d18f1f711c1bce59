/**
 * What a namespace has keeps its lease, however it came there, and whatever DEL says: connected by another plugin than `bridge` or to
 * another bridge than the agent's, without a name, or in a DEL that names no namespace.
 */
import { execFileSync, spawn } from 'node:child_process'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, enableSource, given, heldBy, openNode } from './node.ts'

const service = await useService()
const { call, time } = service
await call.ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.209.0.0/24',
  gateway: '10.209.0.1',
  cooldown: '0s',
})
await enableSource(call)
const node = await openNode({ IPLEDGER_URL: service.url })
await node.startAgent()
const other = `${node.bridge}x`
afterAll(() => void execFileSync('sh', ['-c', `ip link del ${other} || true`], { stdio: 'ignore' }))

const { leasesOf, untilActive, untilReleased } = heldBy(call)

test('a look-up answers GONE only for what no namespace has: not for another bridge, another plugin, a wrong --bridge', async () => {
  const added = new Map(
    await Promise.all(
      [
        ['bridged', 'bridge', {}],
        ['routed', 'ptp', { type: 'ptp' }],
        ['elsewhere', 'bridge', { bridge: other }],
        ['crashed', 'bridge', {}],
      ].map(async ([container, plugin, config]) => {
        const options = { plugin, config } as Parameters<typeof node.call>[2]
        return [
          container as string,
          given(await node.call('ADD', node.add(container as string), options)),
        ] as const
      }),
    ),
  )
  for (const container of added.keys()) await untilActive(container)
  await node.killAgent()
  await node.startAgent('--bridge', 'no-such-bridge')
  node.remove('crashed')
  await waitFor(
    async () => {
      time.movedBy += 20 * 60_000
      await service.run('judge', 'default')
      return (await leasesOf('crashed')).length === 0
    },
    { what: 'the lease of the one that crashed to be reaped', every: 500 },
  )
  added.delete('crashed')
  for (const [container, addresses] of added) {
    expect(node.addresses().get(container), container).toEqual(addresses)
    expect(
      (await leasesOf(container)).map(({ address }) => address),
      container,
    ).toEqual(addresses)
    const listed = await call.ok('LivenessService/ListSightings', { address: addresses[0] })
    expect(listed.sightings, container).toMatchObject([{ owner: { uid: container } }])
  }
  await node.killAgent()
  await node.startAgent()
})

test('DEL of a namespace that has lost its name: the address stays as long as a process is in it', async () => {
  const container = node.add('detached')
  const added = given(await node.call('ADD', container))
  const held = spawn('nsenter', [`--net=${node.pathOf(container)}`, 'cat'])
  const ended = new Promise((resolve) => held.once('exit', resolve))
  onTestFinished(() => void held.kill('SIGKILL'))
  await waitFor(() => node.processesIn(container).includes(held.pid!), { what: 'a process in it' })
  node.remove(container)
  expect((await node.call('DEL', container)).code).toBe(0)
  // Of what comes later the release was delivered, so it has been looked at by then.
  given(await node.call('ADD', node.add('next')))
  expect((await node.call('DEL', 'next')).code).toBe(0)
  await untilReleased('next')
  expect((await leasesOf(container)).map(({ address }) => address)).toEqual(added)
  held.kill('SIGKILL')
  await ended
  await untilReleased(container)
})

test('what is not connected to the bridge, and is no lease of this node, is of another network', async () => {
  const address = '10.209.0.200'
  const stranger = node.add('stranger')
  node.inside(stranger, 'sh', '-c', `ip link add eth0 type bridge; ip addr add ${address}/24 dev eth0`)
  const reports = async () => {
    const { sources } = await call.ok('LivenessService/ListSources', {})
    return Number(sources[0].lastSequence)
  }
  const lookedAgain = async () => {
    const before = await reports()
    await waitFor(async () => (await reports()) > before + 1, { what: 'two reports' })
  }
  await lookedAgain()
  const asked = { args: `IgnoreUnknown=1;IP=${address}` }
  expect(given(await node.call('ADD', node.add('asker'), asked))).toEqual([address])
  await lookedAgain()
  await service.run('recheck', 'default')
  expect(await leasesOf('asker')).toMatchObject([{ address, state: 'ACTIVE' }])
  node.remove(stranger)
})

test('no address is on two interfaces', () => expect(doubles(node)).toEqual([]))
