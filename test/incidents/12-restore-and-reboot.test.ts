/** Restores, reboots, failovers (group 12 of docs/incidents.md): books that travelled back in time hand out nothing before the world was seen again. */
import { expect } from 'vitest'
import type { Begun } from '../support/agent.ts'
import { copyOf, type TestDatabase, useOwnDatabase, withClient } from '../support/database.ts'
import {
  emptyPool,
  expectInOrder,
  MINUTE,
  openScene,
  playWithout,
  type Scene,
  type Started,
  sandbox,
  useIncidents,
  witnessesOf,
} from '../support/incident.ts'
import { serviceOn, type TestTime, useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

const NETWORK = 'default'
const FIRST_OF_ERA_1 = 2 ** 40

const startMany = (scene: Scene, name: string, count: number, node = 'n1'): Promise<Started[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => scene.start({ name: `${name}-${index}`, node })))

/** The next life of the service, and what the world sees of it. */
async function lifeOn(database: TestDatabase, time: TestTime, before?: Scene) {
  const service = await serviceOn({ database, time, checks: running.checks })
  const { call } = service
  const known = before === undefined ? {} : { reality: before.reality, agents: before.agents }
  const scene = openScene({ network: NETWORK, service, ...known })
  for (const agent of scene.agents) agent.speaksTo(call)
  const headOf = async () =>
    Number((await call.ok('NetworkService/GetNetwork', { name: NETWORK })).network.head)
  return { ...scene, headOf, [Symbol.asyncDispose]: () => service.stop() }
}

playWithout(
  '12.1 backup-older-than-reality: a restored dump recovers, adopts what it lost, and hands out nothing that is live',
  ['NEW_ERA_RECOVERS', 'MANY_REAPS_HOLD'],
  running.checks,
  async () => {
    const original = await useOwnDatabase()
    const time = { movedBy: 0 }
    let early: Started[] = []
    let first: Scene
    {
      await using scene = await lifeOn(original, time)
      first = scene
      await scene.pool('10.121.0.0/23')
      await scene.agent('n1')
      early = await startMany(scene, 'early', 60)
      await scene.cycles(2)
    }
    const dump = await copyOf(original)

    // Life goes on: 50 more, and of the 60 there were 50 less.
    const released = early.slice(0, 50)
    let late: Started[] = []
    let highest = 0
    {
      await using scene = await lifeOn(original, time, first)
      late = await startMany(scene, 'late', 50)
      for (const { workload, lease } of released) {
        scene.reality.end(workload)
        await scene.call.ok('LeaseService/Release', { leaseId: lease.leaseId })
      }
      await scene.cycles(1)
      highest = await scene.headOf()
    }

    await using scene = await lifeOn(dump, time, first)
    const { call, reality } = scene
    // Nothing is handed out or taken before the sources have reported twice in this era, warm; then it ends by itself.
    for (let cycle = 0; cycle < 4; cycle += 1) {
      expect((await scene.reserve(sandbox('too-early'))).reason, `after ${cycle} reports`).toBe(
        'NETWORK_RECOVERING',
      )
      await scene.cycles(1)
    }
    const eras = await scene.events({ types: ['era.begun', 'recovery.ended'] })
    expect(eras.map(({ type, cause }) => `${type} ${cause}`)).toEqual([
      'era.begun ERA',
      'recovery.ended OBSERVED',
    ])
    expect(Number(eras[0]!.seq), 'above all that anybody was given').toBeGreaterThan(highest)
    // The fifty that it lost are in the books again, those that were released since still are: nothing proves the contrary yet.
    for (const { lease, workload } of late) {
      const adopted = await scene.at(lease.address)
      expect(adopted, lease.address).toMatchObject({ state: 'ACTIVE', owner: { uid: workload.uid } })
      expect(Number(adopted!.fencingToken)).toBeGreaterThan(highest)
    }
    for (const { lease } of early) expect(await scene.lease(lease.leaseId), lease.address).not.toBeNull()
    expect(await scene.reaps()).toEqual([])
    const fresh = await scene.start({ name: 'fresh', node: 'n1' })
    expect(fresh.lease.address, 'beside the early and the late').toBe('10.121.0.111')
    expect(Number(fresh.lease.fencingToken)).toBeGreaterThan(highest)

    // With evidence of this era they go, no faster than the breaker lets them, and an operator looks in between.
    await scene.longEnough()
    const left = async () =>
      (await Promise.all(released.map(({ lease }) => scene.lease(lease.leaseId)))).filter(
        (one) => one !== null,
      )
    let resumed = 0
    for (; (await left()).length > 0 && resumed < 10; resumed += 1) {
      expect(await scene.attention('HELD')).toHaveLength(1)
      await call.ok('LivenessService/ResumeHold', {
        network: NETWORK,
        why: 'they were released after the dump',
      })
      await scene.cycles(2)
    }
    expect(resumed).toBeGreaterThan(1)
    expect(await left()).toEqual([])
    for (const { lease } of [...early.slice(50), fresh])
      expect(await scene.lease(lease.leaseId)).toMatchObject({ state: 'ACTIVE' })
    const { addresses } = await emptyPool(scene)
    expect(addresses.filter((address) => reality.at(address).length > 1)).toEqual([])
    await expectInOrder(scene, { database: dump })
  },
)

playWithout(
  '12.4 failover-loses-acknowledged-commit: who was told of a lease that is lost tells the ledger, and both are kept apart',
  ['NEW_ERA_RECOVERS', 'OTHER_OWNER_IS_A_CONFLICT'],
  running.checks,
  async () => {
    const database = await useOwnDatabase()
    const time = { movedBy: 0 }
    let first: Scene
    let kept = 0
    let x: Started
    let w: Started
    let begun: Begun
    {
      await using scene = await lifeOn(database, time)
      first = scene
      await scene.pool('10.124.0.0/28')
      await scene.agent('n1')
      await scene.start({ name: 'old', node: 'n1' })
      await scene.cycles(1)
      kept = await scene.headOf()
      // Acknowledged, and not replicated; and its agent has begun to look when the primary is lost.
      w = await scene.start({ name: 'w', node: 'n1', address: '10.124.0.9' })
      x = await scene.start({ name: 'x', node: 'n1', address: '10.124.0.2' })
      begun = await scene.agents[0]!.begin()
    }
    // The worst: no process is left that knows of the lost end, and the database itself shows no other life.
    await withClient(database.adminUrl, async (admin) => {
      for (const table of ['lease', 'event'])
        await admin.query(`delete from ipledger.${table} where network_id = $1 and seq > $2`, [NETWORK, kept])
    })
    await using scene = await lifeOn(database, time, first)
    const { call, reality } = scene
    const [agent] = scene.agents
    // Y is given what X has: no book can know better.
    const { address } = x.lease
    reality.excuse(address)
    const y = await scene.start({ name: 'y', node: 'n2', address })
    // X quotes its lease: unknown, and beyond all that this ledger has given out.
    const told = await call('LeaseService/Confirm', { leaseId: x.lease.leaseId })
    expect(told.reason).toBe('LEASE_NOT_FOUND')
    expect(JSON.stringify(told.body)).toContain('beyondHead')
    // W's number was given out again, to Y. With its owner beside it nobody mistakes the one for the other.
    expect(w.lease.leaseId).toBe(y.lease.leaseId)
    const { owner } = w.lease
    expect((await call('LeaseService/Release', { leaseId: w.lease.leaseId, owner })).reason).toBe(
      'ILLEGAL_STATE',
    )
    // A number in a caller's mouth changes nothing, nor in a list without the proof of it.
    const unproven = await agent!.report({ begun: { ...begun, proof: (await agent!.begin()).proof } })
    expect(unproven).toMatchObject({ complete: false, counted: false, because: ['UNPROVEN_HEAD'] })
    expect(await scene.attention('HELD')).toEqual([])
    // With it, in a list of an enabled source, it stops everything.
    const reported = await agent!.report({ begun })
    expect(reported).toMatchObject({ complete: false, counted: false, because: ['BEYOND_HEAD'] })
    expect((await scene.reserve(sandbox('z'))).reason).toBe('NETWORK_RECOVERING')
    expect(await scene.attention('HELD')).toHaveLength(1)
    await call.ok('NetworkService/BeginRecovery', {
      network: NETWORK,
      why: 'a failover lost commits',
      above: begun.head,
    })
    expect((await scene.reserve(sandbox('z'))).reason).toBe('NETWORK_RECOVERING')
    await scene.cycles(4)
    // X is live where Y was sent: a conflict with both in it, and both are told.
    expect(await scene.at(address)).toMatchObject({
      state: 'QUARANTINED',
      quarantine: { reason: 'CONFLICT' },
    })
    const [conflict] = await scene.events({ address, types: ['lease.quarantined'] })
    expect(conflict).toMatchObject({
      lease: { owner: { uid: 'uid-y' } },
      evidence: { seen: { uid: 'uid-x' } },
    })
    expect((await call('LeaseService/Confirm', { leaseId: y.lease.leaseId })).reason).toBe('ILLEGAL_STATE')
    expect((await call('LeaseService/Confirm', { leaseId: x.lease.leaseId })).reason).toBe('LEASE_NOT_FOUND')
    // W is in the books again, and who comes next is given what nobody uses, above all that was ever known.
    expect(await scene.at(w.lease.address)).toMatchObject({ state: 'ACTIVE', owner: { uid: 'uid-w' } })
    const z = await scene.start({ name: 'z', node: 'n1' })
    expect(Number(z.lease.fencingToken)).toBeGreaterThan(FIRST_OF_ERA_1)
    await expectInOrder(scene, { database })
  },
)

incident(
  '12.2 reboot-wipes-half: a new epoch, warm, without the thirty that it had: they are proven gone one by one',
  ['ONLY_COUNTED_REPORTS_DECIDE', 'LOOK_UP_SAYS_GONE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.122.0.0/23')
    const agent = await scene.agent('n1')
    await scene.agent('n2')
    // One node of many: what a reboot ends there is below the breaker's share.
    await startMany(scene, 'elsewhere', 160, 'n2')
    const all = await startMany(scene, 'x', 31)
    await scene.cycles(1)
    await scene.passes(10 * MINUTE)
    await scene.cycles(1)
    reality.crash('n1')
    agent.epoch = 'boot-6'
    const gone = all.slice(1)
    const [{ workload, lease: kept }] = all as [Started]
    // One comes up again by itself, as it was.
    reality.start({ ...workload, node: 'n1', nodes: ['n1'] })
    // Two reports warm it up, the next one ends what was listed, three more miss it; then it is asked.
    await scene.cycles(6)
    for (const { lease } of gone) expect(await scene.lease(lease.leaseId), lease.address).not.toBeNull()
    await scene.cycles(1)
    for (const { lease } of gone) {
      expect(await scene.lease(lease.leaseId), lease.address).toBeNull()
      const [reaped] = await scene.reaps({ leaseId: lease.leaseId })
      expect(reaped).toMatchObject({
        cause: 'PROVEN_ABSENT',
        evidence: { proof: { lookUps: [{ answer: 'gone' }] } },
      })
      expect(witnessesOf(reaped)).toEqual(['n1'])
    }
    expect(await scene.reaps()).toHaveLength(gone.length)
    expect(await scene.events({ types: ['reconcile.held'] })).toEqual([])
    expect(await scene.lease(kept.leaseId)).toMatchObject({ state: 'ACTIVE', version: kept.version })
    // One comes back with the same uid: it gets a lease of its own.
    const again = await scene.start({ name: 'x-1', incarnation: '2', node: 'n1' })
    expect(Number(again.lease.fencingToken)).toBeGreaterThan(Number(all.at(-1)!.lease.version))
  },
)
