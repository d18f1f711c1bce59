/**
 * The service is away: ADD goes on with the node's spare addresses, and nothing is held twice afterwards. IPLEDGER_CHAOS_ROUNDS=50
 * for the long form: an outage of 60 seconds.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { serve, stop } from '../e2e/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, enableSource, given, heldBy, openNode } from './node.ts'

const OUTAGE_MS = Number(process.env.IPLEDGER_CHAOS_ROUNDS ?? 0) >= 50 ? 60_000 : 2_000

const database = await useTestDatabase()
const env = { DATABASE_URL: database.adminUrl, IPLEDGER_LOG_LEVEL: 'error' }
let service = await serve(env, '--no-worker')
const port = new URL(service.url).port
const { ok } = rpc(service.url)
await ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.202.0.0/24',
  gateway: '10.202.0.1',
  cooldown: '0s',
})
await enableSource({ ok })

const node = await openNode({ IPLEDGER_URL: service.url })
const { leases } = heldBy({ ok })
const spares = async () => (await leases()).filter(({ owner }) => owner.kind === 'reserve')
const untilSpares = (size: number) =>
  waitFor(async () => (await spares()).length === size, { what: `${size} spare addresses` })
const STATUS = { plugin: 'ipledger-cni', config: { cniVersion: '1.1.0' } } as const

test('ADDs go on with spare addresses; an agent that starts in the outage has none; nothing is held twice', async () => {
  await node.startAgent('--spares', '3')
  await untilSpares(3)
  const before = given(await node.call('ADD', node.add('before')))
  const begun = performance.now()
  await stop(service)

  const added = new Map([['before', before]])
  for (const container of ['out1', 'out2'])
    added.set(container, given(await node.call('ADD', node.add(container))))
  expect(await node.call('STATUS', '', STATUS)).toMatchObject({
    code: 0,
    body: null,
    stderr: expect.stringContaining("1 addresses are left of this node's spares"),
  })
  expect(given(await node.call('ADD', 'out2', { plugin: 'ipledger-cni' }))).toEqual(added.get('out2'))
  added.set('out3', given(await node.call('ADD', node.add('out3'))))
  const beyond = await node.call('ADD', node.add('out4'))
  expect(beyond).toMatchObject({ code: 1, body: { code: 11 } })
  await node.killAgent()
  await node.startAgent('--spares', '3')
  expect((await node.call('ADD', 'out4', { plugin: 'ipledger-cni' })).body.code).toBe(11)
  expect((await node.call('STATUS', '', STATUS)).body.code).toBe(50)
  const asked = await node.call('ADD', node.add('out5'), { args: 'IgnoreUnknown=1;IP=10.202.0.99' })
  expect(asked.body.code).toBe(11)
  for (const [container, addresses] of added) expect(node.addresses().get(container)).toEqual(addresses)
  expect(doubles(node)).toEqual([])
  expect((await node.call('DEL', 'out1')).code).toBe(0)
  expect((await node.call('DEL', 'before')).code).toBe(0)
  await delay(Math.max(0, OUTAGE_MS - (performance.now() - begun)))

  service = await serve({ ...env, IPLEDGER_PORT: port }, '--no-worker')
  await waitFor(async () => !(await leases()).some(({ owner }) => owner.uid === 'before'), {
    what: 'the release to be delivered',
  })
  // Released before a list of it is trusted, the address stays quarantined until the container is proven gone.
  const holds = async (container: string) =>
    (await leases()).some(
      ({ address, state }) => address === added.get(container)![0] && state !== 'QUARANTINED',
    )
  await waitFor(async () => !(await holds('out1')), { what: 'the spare of out1 to be released' })
  // Two are with containers, three are free.
  await untilSpares(5)
  for (const container of ['out2', 'out3']) expect(await holds(container), container).toBe(true)
  for (let turn = 0; turn < 20; turn += 1) given(await node.call('ADD', node.add(`after${turn}`)))
  expect(doubles(node)).toEqual([])
  for (const container of ['out2', 'out3']) {
    expect((await node.call('DEL', container)).code).toBe(0)
    await waitFor(async () => !(await holds(container)), { what: `the spare of ${container} to be released` })
  }
})

test('the log verifies', () => expectVerified(database))
