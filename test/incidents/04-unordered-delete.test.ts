/** Deletes without an order (group 4 of docs/incidents.md): what is over stays over, whatever arrives late and in whatever order. */
import { expect } from 'vitest'
import { identityOf, MINUTE, type Scene, sandbox, useIncidents } from '../support/incident.ts'
import type { Rpc } from '../support/rpc.ts'
import { serviceOn, useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

const life = (name: string, incarnation = '3') => sandbox(name, { incarnation, interface: 'eth0' })

/** Everything a late message can be, each with the only reasons it may be refused for. */
function lateCalls(scene: Scene, leaseId: string, name: string) {
  const { network } = scene
  const owner = life(name)
  return {
    confirmById: ['LeaseService/Confirm', { leaseId }],
    confirmByOwner: ['LeaseService/Confirm', { network, owner }],
    reserve: ['LeaseService/Reserve', scene.wants(owner)],
    reserveNamed: [
      'LeaseService/Reserve',
      scene.wants(owner, { claims: [{ pool: 'web', preferPrevious: true }] }),
    ],
    replay: ['LeaseService/Reserve', scene.wants(owner, { requestId: `request-${name}` })],
  } as const satisfies Record<string, readonly [string, object]>
}
const REFUSED_FOR = ['LEASE_LOST', 'ATTACHMENT_CLOSED', 'LEASE_NOT_FOUND']

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length <= 1) return [[...items]]
  return items.flatMap((item, at) =>
    permutations([...items.slice(0, at), ...items.slice(at + 1)]).map((rest) => [item, ...rest]),
  )
}

incident(
  '4.1 stale-write-after-delete: released is released, for every order of late messages, at every replica',
  ['CLOSED_IS_REFUSED'],
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.41.0.0/24')
    await using other = await serviceOn(running)
    const replicas: readonly Rpc[] = [call, other.call]
    const kinds = Object.keys(lateCalls(scene, '', '')) as (keyof ReturnType<typeof lateCalls>)[]
    // Of the 120 orders each seventh: every kind comes first, and last.
    const orders = permutations(kinds).filter((_, at) => at % 7 === 0)
    for (const [round, order] of orders.entries()) {
      const name = `w${round}`
      const request = scene.wants(life(name), { requestId: `request-${name}` })
      const [lease] = (await call.ok('LeaseService/Reserve', request)).leases
      await call.ok('LeaseService/Confirm', { leaseId: lease.leaseId })
      await call.ok('LeaseService/Release', { network, owner: life(name) })
      const before = await scene.events({ leaseId: lease.leaseId })
      for (const [at, kind] of order.entries()) {
        const [method, message] = lateCalls(scene, lease.leaseId, name)[kind]
        const told = await replicas[(round + at) % 2]!(method, message)
        expect(REFUSED_FOR, `${kind} of ${order}: ${told.reason}`).toContain(told.reason)
      }
      expect(await scene.at(lease.address), `${lease.address} after ${order}`).toBeNull()
      expect(await scene.events({ leaseId: lease.leaseId })).toEqual(before)
    }
    // Also by one that was started since.
    await using late = await serviceOn(running)
    const told = await late.call('LeaseService/Reserve', scene.wants(life('w0')))
    expect(told.reason).toBe('ATTACHMENT_CLOSED')
  },
)

incident(
  '4.1 stale-write-after-delete: a list from before the release brings nothing back, a newer one sets it aside',
  ['RELEASED_BUT_LIVE_IS_KEPT'],
  async (scene) => {
    const { call } = scene
    await scene.pool('10.41.1.0/24')
    const agent = await scene.agent('n1')
    const peer = await scene.agent('peer', { node: '' })
    const { workload, lease } = await scene.start({ name: 'web', node: 'n1', incarnation: '3' })
    // One has listed it before, the other has not.
    peer.lists = () => false
    await scene.cycles(1)
    peer.lists = () => true
    // Both looked before it was released and say so after it: the same message, the same end, whoever receives it.
    const begun = [await agent.begin(), await peer.begin()]
    await call.ok('LeaseService/Release', { leaseId: lease.leaseId })
    const before = await scene.log()
    await agent.report({ begun: begun[0]! })
    await peer.report({ begun: begun[1]! })
    await scene.jobs()
    expect(await scene.at(lease.address)).toBeNull()
    expect(await scene.log()).toEqual(before)
    // It paused and was not removed: to a list that was begun since it is live, and it is not handed out.
    workload.state = 'paused'
    await scene.cycles(1)
    const quarantined = await scene.at(lease.address)
    expect(quarantined).toMatchObject({
      state: 'QUARANTINED',
      quarantine: { reason: 'RELEASED_BUT_LIVE' },
      owner: { name: 'web', incarnation: '3' },
    })
    await scene.cycles(2)
    expect(
      (await scene.at(lease.address))?.state,
      'within the horizon a closed life is not given its address back',
    ).toBe('QUARANTINED')
  },
)

type Step = 'reserve' | 'confirm' | 'release'

incident(
  '4.2 late-add-after-delete: every order of two calls of one life, and nothing is held after its Release',
  ['CLOSED_IS_REFUSED'],
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.42.0.0/23')
    await using other = await serviceOn(running)
    const message = (step: Step, name: string): [string, object] => {
      const owner = life(name)
      switch (step) {
        case 'reserve':
          return ['LeaseService/Reserve', scene.wants(owner)]
        case 'confirm':
          return ['LeaseService/Confirm', { network, owner }]
        case 'release':
          return ['LeaseService/Release', { network, owner }]
      }
    }
    const steps: readonly Step[] = ['reserve', 'confirm', 'release']
    const heldBy = async (name: string) =>
      (await call.ok('LeaseService/ListLeases', { network, ownerKind: 'sandbox', ownerName: name })).leases
    for (const [round, [first, second]] of steps
      .flatMap((one) => steps.map((other) => [one, other] as const))
      .entries()) {
      for (const reserved of [false, true]) {
        const name = `life-${round}-${reserved}`
        if (reserved) await call.ok(...message('reserve', name))
        await call(...message(first, name))
        const told = await other.call(...message(second, name))
        const what = `${reserved ? 'reserved, ' : ''}${first}, ${second}`
        const isClosed = first === 'release' || second === 'release'
        const isHeld = !isClosed && (reserved || first === 'reserve' || second === 'reserve')
        expect(await heldBy(name), what).toHaveLength(isHeld ? 1 : 0)
        if (first === 'release' && second !== 'release')
          expect(told.reason, what).toMatch(/ATTACHMENT_CLOSED|LEASE_LOST/)
      }
    }
    // And at the same time, in whatever order they reach the database: never held and released.
    await Promise.all(
      Array.from({ length: 100 }, async (_, index) => {
        const name = `race-${index}`
        const [reserved, released] = await Promise.all([
          call(...message('reserve', name)),
          other.call(...message('release', name)),
        ])
        expect(released.status).toBe(200)
        expect(await heldBy(name), `${name}: ${reserved.reason}`).toEqual([])
      }),
    )
  },
)

incident(
  '4.3 late-delete-hits-successor: a Release replayed a hundred times ends the lease it names and no other',
  [],
  async (scene) => {
    const { network, call, reality } = scene
    // One address, so that the successor has that of the first.
    await scene.pool('10.43.0.0/32')
    const x = await scene.start({ name: 'x', incarnation: '1' })
    const releases = [
      { leaseId: x.lease.leaseId },
      { network, fencingToken: x.lease.fencingToken },
      { network, owner: life('x', '1') },
    ]
    reality.end(x.workload)
    const first = (await call.ok('LeaseService/Release', releases[0]!)).leases[0]
    const replay = async (times: number) => {
      for (let time = 0; time < times; time += 1) {
        const { leases } = await call.ok('LeaseService/Release', releases[time % 3]!)
        // Released already, at the time it was.
        expect(leases[0]).toMatchObject({ leaseId: x.lease.leaseId, state: 'ENDED', endedAt: first.endedAt })
      }
    }
    await replay(30)
    await scene.passes(3 * MINUTE)
    const ended = (await call.ok('LeaseService/Release', releases[0]!)).leases[0]
    first.endedAt = ended.endedAt
    const y = await scene.start({ name: 'y' })
    expect(y.lease.address).toBe(x.lease.address)
    await Promise.all([replay(30), replay(30)])
    await replay(10)
    expect(await scene.lease(y.lease.leaseId)).toMatchObject(identityOf(y.lease))
    // "Taken" is no proof of ownership: who asks for it by name is told whose it is.
    const told = await scene.reserve(life('z'), { claims: [{ pool: 'web', address: y.lease.address }] })
    expect(told.reason).toBe('ADDRESS_TAKEN')
    expect(JSON.stringify(told.body)).toContain('sandbox y')
  },
)
