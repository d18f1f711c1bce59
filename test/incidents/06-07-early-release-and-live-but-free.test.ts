/** Releases before the removal is confirmed (group 6 of docs/incidents.md), and what is live in reality and free in the books (7). */
import { expect } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { rebuildNetwork } from '../../src/ledger/rebuild.ts'
import { INTERVAL } from '../support/agent.ts'
import { withClient } from '../support/database.ts'
import {
  emptyPool,
  HOUR,
  MINUTE,
  type Scene,
  type Started,
  sandbox,
  useIncidents,
} from '../support/incident.ts'
import type { Told } from '../support/rpc.ts'
import { serviceOn, useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

/** A node nobody hears of any more. */
async function silent(): Promise<never> {
  return undefined as never
}

/** An operator's word that a node is gone for good, with all that was placed there so far. */
async function reapNode({ call, network }: Scene, node: string, why: string): Promise<Told> {
  const { head } = (await call.ok('NetworkService/GetNetwork', { name: network })).network
  return await call('LeaseService/Reap', { network, node, head, why })
}

incident(
  '6.1 warn-and-continue: a removal that fails three times keeps the address three times, and is released once',
  ['UNCONFIRMED_REMOVAL_IS_KEPT'],
  async (scene) => {
    const { call, reality } = scene
    await scene.pool('10.61.0.0/32')
    await scene.agent('n1')
    const { workload, lease } = await scene.start({ name: 'x', node: 'n1' })
    await scene.cycles(1)
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      // Still attached: the runtime says so.
      await call.ok('LeaseService/Release', { leaseId: lease.leaseId, removal: 'UNCONFIRMED' })
      expect(await scene.at(lease.address), `attempt ${attempt}`).toMatchObject({
        state: 'QUARANTINED',
        quarantine: { reason: 'REMOVAL_UNCONFIRMED' },
      })
      await scene.passes(5 * MINUTE)
      await scene.cycles(2)
      expect((await emptyPool(scene)).addresses, 'nobody gets it').toEqual([])
    }
    reality.end(workload)
    await call.ok('LeaseService/Release', { leaseId: lease.leaseId })
    expect(await scene.at(lease.address)).toBeNull()
    const types = (await scene.events({ leaseId: lease.leaseId })).map(({ type }) => type)
    expect(
      types.filter((type) => type === 'lease.released'),
      'exactly one',
    ).toHaveLength(1)
    expect(types.at(-1)).toBe('lease.released')
  },
)

incident(
  '6.3 terminating-on-unreachable-node: silence frees nothing, an operator’s word does, and a false one is found out',
  ['UNCONFIRMED_REMOVAL_IS_KEPT', 'LISTED_IS_LOOKED_AT_AGAIN'],
  async (scene) => {
    const { call, reality } = scene
    await scene.pool('10.63.0.0/26')
    const agent = await scene.agent('n1')
    const speak = agent.report
    const all: Started[] = []
    for (let index = 0; index < 20; index += 1) all.push(await scene.start({ name: `x${index}`, node: 'n1' }))
    await agent.report()
    // Unreachable; their delete was asked for, and nobody knows of their removal.
    agent.report = silent
    for (const { lease } of all)
      await call.ok('LeaseService/Release', { leaseId: lease.leaseId, removal: 'UNCONFIRMED' })
    const refused = await reapNode(scene, 'n1', 'it does not answer')
    expect(refused).toMatchObject({ reason: 'ILLEGAL_STATE', metadata: { node: 'n1', source: agent.source } })
    expect(refused.message).toContain(`its source ${agent.source} reported at ${refused.metadata.reportedAt}`)
    await scene.passes(HOUR)
    await scene.cycles(3)
    for (const { lease } of all)
      expect(await scene.at(lease.address), lease.address).toMatchObject({
        quarantine: { reason: 'REMOVAL_UNCONFIRMED' },
      })
    expect((await reapNode(scene, 'n1', 'powered off by ops')).status).toBe(200)
    for (const { lease } of all) {
      expect(await scene.at(lease.address), lease.address).toBeNull()
      const [reaped] = await scene.reaps({ leaseId: lease.leaseId })
      expect(reaped).toMatchObject({ evidence: { reason: 'OPERATOR', why: 'powered off by ops' } })
      expect(Date.parse(reaped!.lease!.availableAt!) - Date.parse(reaped!.time)).toBeGreaterThanOrEqual(
        POLICY.cooldownMs,
      )
    }
    // It was not off at all: it is back, with everything on it, first as a report that only protects.
    agent.report = speak
    await scene.cycles(1)
    await scene.passes(10 * MINUTE)
    const { addresses } = await emptyPool(scene)
    // Once it is trusted again the books have what was taken from them.
    await scene.cycles(4)
    for (const { lease } of all) expect((await scene.at(lease.address))?.owner).toMatchObject(lease.owner!)
    const live = new Set(all.map(({ lease }) => lease.address))
    expect(addresses.filter((address) => live.has(address))).toEqual([])
    expect(reality.live.size).toBeGreaterThan(20)
  },
)

incident(
  '7.1 restart-forgets-running-workloads: projections truncated by accident: nothing is handed out until they are rebuilt',
  [],
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.71.0.0/29')
    const request = (name: string) => scene.wants(sandbox(name))
    const held = []
    for (const name of ['a', 'b', 'c'])
      held.push((await call.ok('LeaseService/Reserve', request(name))).leases[0])
    await withClient(running.database.adminUrl, async (client) => {
      await client.query('delete from ipledger.lease where network_id = $1', [network])
      await using next = await serviceOn(running)
      for (let time = 0; time < 5; time += 1)
        expect((await next.call('LeaseService/Reserve', request('new'))).reason).toBe('NETWORK_RECOVERING')
      await rebuildNetwork(client, network)
    })
    await using next = await serviceOn(running)
    const [lease] = (await next.call.ok('LeaseService/Reserve', request('new'))).leases
    expect(held.map(({ address }) => address)).not.toContain(lease.address)
    for (const one of held) expect(await scene.lease(one.leaseId)).toEqual(one)
  },
)

incident(
  '7.1 restart-forgets-running-workloads: what runs and is in no books is adopted at once, and never handed out before',
  ['LISTED_IS_LOOKED_AT_AGAIN'],
  async (scene) => {
    const { reality } = scene
    // The workloads are older than the books: the pool is made over what runs there already.
    const agent = await scene.newAgent('n1')
    const running_ = ['10.71.1.1', '10.71.1.2', '10.71.1.5'].map((address) =>
      reality.start({ name: `old-${address}`, node: 'n1', addresses: [address] }),
    )
    await agent.report()
    await scene.pool('10.71.1.0/28')
    const [early] = await scene.reserve.ok(sandbox('early', { node: 'n1' }))
    expect(early.address, 'the first that nobody uses').toBe('10.71.1.3')
    reality.start({ name: 'early', node: 'n1', addresses: [early.address] })
    await scene.cycles(3)
    for (const workload of running_) {
      const lease = await scene.at(workload.addresses[0]!)
      expect(lease).toMatchObject({ state: 'ACTIVE', owner: { name: workload.name, uid: workload.uid } })
      const [adopted] = await scene.events({ leaseId: lease!.leaseId })
      expect(adopted).toMatchObject({ type: 'lease.adopted', evidence: { source: 'n1' } })
    }
    const { addresses } = await emptyPool(scene)
    for (const { addresses: used } of running_) expect(addresses).not.toContain(used[0])
  },
)

incident(
  '7.4 two-allocators-one-range: a live address of an unknown owner is set aside, on every path to an address',
  [],
  async (scene) => {
    const { call, network, reality } = scene
    await scene.pool('10.74.0.0/26')
    const agent = await scene.agent('host', { node: '' })
    const foreign = ['10.74.0.1', '10.74.0.2', '10.74.0.3']
    for (const address of foreign) reality.start({ kind: 'other', name: address, addresses: [address] })
    // It sees that they are in use, and cannot tell by whom.
    await scene.passes(INTERVAL)
    await agent.report({ entries: foreign.map((address) => ({ address })) })
    agent.entries = () => foreign.map((address) => ({ address }))
    for (const address of foreign) {
      expect(await scene.at(address), 'within that report').toMatchObject({
        state: 'QUARANTINED',
        quarantine: { reason: 'FOREIGN', by: 'host' },
      })
    }
    const named = await scene.reserve(sandbox('named'), { claims: [{ pool: 'web', address: foreign[0] }] })
    expect(named.reason).toBe('ADDRESS_QUARANTINED')
    expect(JSON.stringify(named.body)).toContain('host')
    // Every path: alone, previous, in a batch, all or nothing.
    const given: string[] = []
    const take = (leases: readonly { readonly address: string }[]) => {
      for (const { address } of leases) given.push(address)
    }
    take(await scene.reserve.ok(sandbox('a')))
    take(await scene.reserve.ok(sandbox('b'), { claims: [{ pool: 'web', preferPrevious: true }] }))
    for (const atomic of [false, true]) {
      const { results } = await call.ok('LeaseService/BatchReserve', {
        network,
        atomic,
        requests: ['c', 'd'].map((name) => ({
          owner: sandbox(`${name}-${atomic}`),
          claims: [{ pool: 'web' }],
        })),
      })
      for (const { response } of results) take(response.leases)
    }
    expect(given).toEqual(['10.74.0.4', '10.74.0.5', '10.74.0.6', '10.74.0.7', '10.74.0.8', '10.74.0.9'])
    // Pools count them.
    const { pool } = await call.ok('PoolService/GetPool', { network, name: 'web' })
    expect(pool.usage.quarantined).toBe('3')
  },
)

incident(
  '7.5 container-keeps-address-after-books-changed: paused and stopped is alive for as long as it is listed, and comes back to its address',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    await scene.pool('10.76.0.0/28')
    const agent = await scene.agent('n1')
    agent.answers = () => ({ answer: 'GONE' })
    const { workload, lease } = await scene.start({ name: 'x', node: 'n1' })
    for (const state of ['paused', 'exited', 'a word nobody knows']) {
      workload.state = state
      await scene.cycles(1)
      await scene.passes(HOUR)
      await scene.cycles(5)
      expect(await scene.lease(lease.leaseId), state).toMatchObject({
        state: 'ACTIVE',
        version: lease.version,
      })
      expect(await scene.codes(lease.address), state).toContain('LISTED_LIVE')
    }
    workload.state = 'running'
    const owner = sandbox('x', { node: 'n1' })
    const [again] = await scene.reserve.ok(owner)
    expect(again).toMatchObject({ leaseId: lease.leaseId, address: lease.address, reused: true })
  },
)
