/**
 * The service is away: ADD goes on within the node's reserve, and nothing is held twice afterwards. IPLEDGER_CHAOS_ROUNDS=50 for
 * the long form: an outage of 60 seconds.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { serve, stop } from '../e2e/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, given, openNode } from './node.ts'

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
const sight = { node: 'n1', ownerKinds: ['pod', 'container', 'reserve'], interval: '1s' }
await ok('LivenessService/RegisterSource', { id: 'n1', sight })
await ok('LivenessService/EnableSource', { id: 'n1' })

const node = await openNode({ IPLEDGER_URL: service.url })
type Lease = {
  readonly address: string
  readonly state: string
  readonly owner: Readonly<Record<string, string>>
}
const leases = async (): Promise<readonly Lease[]> =>
  (await ok('LeaseService/ListLeases', { pageSize: 1_000 })).leases
const ofReserve = async () => (await leases()).filter(({ owner }) => owner.kind === 'reserve')
const untilReserve = (size: number) =>
  waitFor(async () => (await ofReserve()).length === size, { what: `${size} addresses in reserve` })
const STATUS = { plugin: 'ipledger-cni', config: { cniVersion: '1.1.0' } } as const

test('ADDs go on within the reserve, through a kill of the agent; nothing is held twice', async () => {
  await node.startAgent('--reserve', '3')
  await untilReserve(3)
  const before = given(await node.call('ADD', node.add('before')))
  const begun = performance.now()
  await stop(service)

  const added = new Map([['before', before]])
  for (const container of ['out1', 'out2'])
    added.set(container, given(await node.call('ADD', node.add(container))))
  expect(await node.call('STATUS', '', STATUS)).toMatchObject({
    code: 0,
    body: null,
    stderr: expect.stringContaining('1 addresses are left'),
  })
  // It knows by its files what it has given away.
  await node.killAgent()
  await node.startAgent('--reserve', '3')
  expect(given(await node.call('ADD', 'out2', { plugin: 'ipledger-cni' }))).toEqual(added.get('out2'))
  added.set('out3', given(await node.call('ADD', node.add('out3'))))
  const beyond = await node.call('ADD', node.add('out4'))
  expect(beyond).toMatchObject({ code: 1, body: { code: 11 } })
  expect((await node.call('STATUS', '', STATUS)).body.code).toBe(50)
  const asked = await node.call('ADD', node.add('out5'), { args: 'IgnoreUnknown=1;IP=10.202.0.99' })
  expect(asked.body.code).toBe(11)
  for (const [container, addresses] of added) expect(node.addresses().get(container)).toEqual(addresses)
  expect(doubles(node)).toEqual([])
  expect((await node.call('DEL', 'out1')).code).toBe(0)
  expect((await node.call('DEL', 'before')).code).toBe(0)
  await delay(Math.max(0, OUTAGE_MS - (performance.now() - begun)))

  service = await serve({ ...env, IPLEDGER_PORT: port }, '--no-worker')
  // Released are the one that was leased before and the one of the reserve; two are with containers, three are free.
  await waitFor(async () => !(await leases()).some(({ owner }) => owner.uid === 'before'), {
    what: 'the release to be delivered',
  })
  await untilReserve(5)
  const held = (await leases()).map(({ address }) => address)
  for (const container of ['out2', 'out3']) expect(held).toContain(added.get(container)![0])
  for (let turn = 0; turn < 20; turn += 1) given(await node.call('ADD', node.add(`after${turn}`)))
  expect(doubles(node)).toEqual([])
  await waitFor(async () => listed(await sightings(), added.get('out2')![0]!) === 'reserve', {
    what: 'the reserve to be listed',
  })
  for (const container of ['out2', 'out3']) expect((await node.call('DEL', container)).code).toBe(0)
  await untilReserve(3)
  const now = (await leases()).map(({ address }) => address)
  expect(now).not.toContain(added.get('out2')![0])
})

type Sighting = { readonly address: string; readonly owner?: { readonly kind: string } }
const sightings = async (): Promise<readonly Sighting[]> =>
  (await ok('LivenessService/ListSightings', { pageSize: 1_000 })).sightings
const listed = (all: readonly Sighting[], address: string) =>
  all.find((one) => one.address === address)?.owner?.kind

test('the log verifies', () => expectVerified(database))
