/**
 * Containers come and go while plugin, agent, service and PostgreSQL are killed. At no time do two interfaces have one address, and
 * afterwards a GC and the agent's reports leave held what interfaces have, and nothing else. IPLEDGER_CHAOS_ROUNDS=50 for a long form.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import { serve, stop } from '../e2e/commands.ts'
import { withClient } from '../support/database.ts'
import { random } from '../support/random-walk.ts'
import { rpc } from '../support/rpc.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, openNode } from './node.ts'

const ROUNDS = Number(process.env.IPLEDGER_CHAOS_ROUNDS ?? 6)
const SEED = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
const CONTAINERS = 12
/** Fewer than containers want, so that what is freed is soon handed out again. */
const POOL = {
  name: 'web',
  cidr: '10.203.0.0/28',
  gateway: '10.203.0.1',
  cooldown: '0s',
  confirmWithin: '5s',
}

const server = await startTestServer()
afterAll(() => server.stop())
await withClient(server.url('postgres'), (admin) => admin.query('create database chaos'))
const env = { DATABASE_URL: server.url('chaos'), IPLEDGER_LOG_LEVEL: 'fatal' }
let service = await serve(env)
const port = new URL(service.url).port
const { ok } = rpc(service.url)
await ok('PoolService/CreatePool', { ...POOL, reapPolicy: { confirmGrace: '1s' } })
const sight = { node: 'n1', ownerKinds: ['container'], interval: '1s' }
await ok('LivenessService/RegisterSource', { id: 'n1', sight })
await ok('LivenessService/EnableSource', { id: 'n1' })
const node = await openNode({ IPLEDGER_URL: service.url })
const agent = () => node.startAgent('--spares', '1')
await agent()

type Lease = { readonly address: string; readonly owner: { readonly kind: string; readonly uid: string } }
const leases = async (): Promise<readonly Lease[]> =>
  (await ok('LeaseService/ListLeases', { pageSize: 1_000 })).leases

test(`${ROUNDS} kills under load: no address on two interfaces, no leak after reconciliation`, async () => {
  console.log(`seed ${SEED}`)
  const pick = random(SEED)
  let isOver = false
  let added = 0

  /** As a runtime does it: ADD; when it fails, DEL until that succeeds; a container lives, then DEL until that succeeds. */
  const live = async (name: string, turn: number): Promise<void> => {
    const container = node.add(`${name}t${turn}`)
    const isKilled = pick(6) === 0
    const started = (pid: number) => void (isKilled && setTimeout(() => kill(pid), pick(30)))
    const { code } = await node.call('ADD', container, { started })
    if (code === 0) {
      added += 1
      await delay(pick(100))
    }
    while ((await node.call('DEL', container)).code !== 0) await delay(50)
    node.remove(container)
  }
  const kill = (pid: number) => {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended.
    }
  }
  const load = Array.from({ length: CONTAINERS }, async (_, at) => {
    for (let turn = 0; !isOver; turn += 1) await live(`c${at}`, turn)
  })
  const watched = (async () => {
    while (!isOver) {
      expect(doubles(node)).toEqual([])
      await delay(20)
    }
  })()

  const kills = [
    async () => {
      await node.killAgent()
      await delay(pick(300))
      await agent()
    },
    async () => {
      await stop(service, 'SIGKILL')
      await delay(pick(300))
      service = await serve({ ...env, IPLEDGER_PORT: port })
    },
    async () => {
      kill(server.pid()!)
    },
  ]
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = added
    await waitFor(() => added > before + 5, { what: 'containers to be started' })
    await kills[round % kills.length]!()
  }
  isOver = true
  await Promise.all([...load, watched])
  console.log(`${added} containers had an address`)

  const last = node.add('last')
  await waitFor(
    async () => {
      const { code, body } = await node.call('ADD', last)
      if (code !== 0) {
        await node.call('DEL', last)
        throw new Error(JSON.stringify(body))
      }
      return true
    },
    { what: 'an ADD' },
  )
  const attachments = [{ containerID: last, ifname: 'eth0' }]
  const config = { cniVersion: '1.1.0', 'cni.dev/valid-attachments': attachments }
  await waitFor(async () => (await node.call('GC', '', { plugin: 'ipledger-cni', config })).code === 0, {
    what: 'a GC',
  })
  const held = async () => {
    const all = (await leases()).filter(({ owner }) => owner.kind !== 'reserve')
    return all.map(({ address }) => address)
  }
  await waitFor(async () => JSON.stringify(await held()) === JSON.stringify(node.addresses().get(last)), {
    what: 'only what an interface has to be held',
  })
  expect(doubles(node)).toEqual([])
})
