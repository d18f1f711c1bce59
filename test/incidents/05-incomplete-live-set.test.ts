/** Incomplete and empty live sets (group 5 of docs/incidents.md): a list with a hole protects what it has and proves nothing about the rest. */
import { expect } from 'vitest'
import { INTERVAL } from '../support/agent.ts'
import {
  HOUR,
  identityOf,
  MINUTE,
  type Scene,
  type Started,
  sandbox,
  useIncidents,
} from '../support/incident.ts'
import { serviceOn, useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

/** Many at once; their agent does not have to hear of them one by one. */
async function fill(scene: Scene, node: string, count: number, pool = 'web'): Promise<readonly Started[]> {
  return Promise.all(
    Array.from({ length: count }, (_, index) => scene.start({ name: `${pool}-${index}`, node, pool })),
  )
}

const states = async (scene: Scene): Promise<Readonly<Record<string, number>>> => {
  const counts: Record<string, number> = {}
  const { leases } = await scene.call.ok('LeaseService/ListLeases', {
    network: scene.network,
    pageSize: 1_000,
  })
  for (const { state } of leases) counts[state] = (counts[state] ?? 0) + 1
  return counts
}

incident(
  '5.1 empty-map-after-restart: 200 leases, and a node that comes back with nothing, then ten, then all of them',
  [],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.51.0.0/23')
    const agent = await scene.agent('n1')
    const all = await fill(scene, 'n1', 200)
    await scene.cycles(1)
    await scene.passes(10 * MINUTE)
    // The agent comes back in a new life with what it has restored so far.
    agent.epoch = 'life-2'
    agent.answers = () => ({ answer: 'GONE', detail: 'not restored yet' })
    let shown = 0
    const restored = new Set(all.map(({ workload }) => workload))
    agent.lists = (workload) =>
      restored.has(workload) && all.findIndex((one) => one.workload === workload) < shown
    for (const [count, status] of [
      [0, 'COLD'],
      [10, 'COLD'],
      [200, 'COLD'],
      [200, 'GOOD'],
    ] as const) {
      shown = count
      await scene.cycles(1)
      const [source] = (await scene.call.ok('LivenessService/ListSources', { network: scene.network }))
        .sources
      expect(source, `a list of ${count}`).toMatchObject({ epoch: 'life-2', size: count, status })
      expect(await states(scene), `after a list of ${count}`).toEqual({ ACTIVE: 200 })
    }
    expect(agent.asked, 'nobody is a suspect before it is warm').toEqual([])
    expect(await scene.reaps()).toEqual([])
    // Warm again, and reaping with it: of one that is really gone.
    const gone = all[7]!
    reality.end(gone.workload)
    agent.answers = ({ owner }) =>
      reality.find(owner, 'n1') === undefined ? { answer: 'GONE' } : { answer: 'LIVE' }
    await scene.longEnough()
    expect(await scene.lease(gone.lease.leaseId)).toBeNull()
    expect(await states(scene)).toEqual({ ACTIVE: 199 })
  },
)

incident(
  '5.2 presumed-stale-then-erased: a source that loses a whole block takes nothing, and everything is as before when it is back',
  ['LOOK_UP_SAYS_GONE', 'MANY_REAPS_HOLD'],
  async (scene) => {
    const { call, network } = scene
    await scene.pool('10.52.0.0/23')
    const agent = await scene.agent('n1')
    const all = await fill(scene, 'n1', 160)
    await scene.cycles(1)
    const before = await scene.log()
    // The tenth block cannot be read: what was in it is listed nowhere, and cannot be asked for either.
    const lost = new Set(all.slice(64, 80).map(({ workload }) => workload))
    agent.lists = (workload) => !lost.has(workload)
    agent.answers = () => ({ answer: 'ERROR', detail: 'block 10.52.0.64/28 cannot be read' })
    await scene.passes(5 * MINUTE)
    await scene.cycles(6)
    expect(await states(scene)).toEqual({ ACTIVE: 160 })
    expect(await scene.log(), 'not one event').toEqual(before)
    // Told of, and asked about again and again; the sixteen and nobody else.
    const lostAddresses = new Set(all.slice(64, 80).map(({ lease }) => lease.address))
    await scene.cycles(8)
    const waiting = await scene.attention('LOOKUP_FAILING')
    expect(new Set(waiting.map(({ address }) => address))).toEqual(lostAddresses)
    agent.lists = () => true
    await scene.cycles(2)
    expect(await scene.log()).toEqual(before)

    // The other way to lose them: a source that is sure of itself. Beyond the cap it stops and asks.
    const half = new Set(all.slice(0, 80).map(({ workload }) => workload))
    agent.lists = (workload) => !half.has(workload)
    agent.answers = () => ({ answer: 'GONE' })
    await scene.cycles(6)
    const holds = async (): Promise<readonly string[]> =>
      ((await call.ok('NetworkService/GetNetwork', { name: network })).network.holds ?? []).map(
        ({ cause }: { cause: string }) => cause,
      )
    // A fifth of what is held: the 27th would be more than that of the 134 that are left with it.
    expect(await holds()).toEqual(['TOO_MANY_REAPS'])
    expect(await scene.reaps()).toHaveLength(26)
    await scene.passes(HOUR)
    await scene.cycles(2)
    expect(await scene.reaps(), 'time does not end it').toHaveLength(26)
    // An operator lets it go on, and is asked again.
    const resume = { network, cause: 'TOO_MANY_REAPS', why: 'looked at the first of them' }
    await call.ok('LivenessService/ResumeHold', resume)
    await scene.cycles(4)
    expect(await holds()).toEqual(['TOO_MANY_REAPS'])
    const reaps = await scene.reaps()
    expect(reaps).toHaveLength(48)
    for (const { workload } of all) {
      // The world is told by the books what it may not use any more.
      const lost = reaps.some(({ lease }) => lease!.owner!.name === workload.name)
      if (lost) scene.reality.end(workload)
    }
    agent.lists = () => true
    await scene.cycles(4)
    expect(await scene.reaps(), 'no more of them').toHaveLength(reaps.length)
    expect((await states(scene)).ACTIVE).toBe(160 - reaps.length)
  },
)

incident(
  '5.3 allocate-before-synced: restart after restart, and the one address of the pool is never somebody else’s',
  [],
  async (scene) => {
    const { call } = scene
    await scene.pool('10.53.0.0/32')
    const request = (name: string) => scene.wants(sandbox(name))
    const [held] = (await call.ok('LeaseService/Reserve', { ...request('s1'), confirmed: true })).leases
    for (let restart = 0; restart < 5; restart += 1) {
      await using next = await serviceOn(running)
      // Waiting since before the start; the first thing the new process hears.
      const told = await Promise.all([
        next.call('LeaseService/Reserve', request('s2')),
        next.call('LeaseService/Reserve', { ...request('s2'), claims: [{ address: held.address }] }),
      ])
      expect(told.map(({ reason }) => reason)).toEqual(['POOL_EXHAUSTED', 'ADDRESS_TAKEN'])
    }
    expect(await scene.lease(held.leaseId)).toEqual(held)
    expect(await scene.events({ types: ['lease.reserved'] })).toHaveLength(1)
  },
)

incident(
  '5.4 only-one-family-visible: a hundred lists of a source that sees v4 alone are no miss of a v6 address',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.54.0.0/28')
    await scene.pool('fd54::/120', { name: 'six' })
    const agent = await scene.agent('n1', { families: [4] })
    const owner = sandbox('x', { node: 'n1' })
    const [v4, v6] = await scene.reserve.ok(owner, {
      claims: [{ pool: 'web' }, { pool: 'six' }],
      confirmed: true,
    })
    reality.start({ name: 'x', node: 'n1', addresses: [v4.address, v6.address] })
    // Whoever asks it after the v6 address hears that it does not know it.
    agent.answers = () => ({ answer: 'GONE' })
    await scene.passes(2 * HOUR)
    for (let list = 0; list < 100; list += 1) {
      // Those between count for nothing more: they come too soon.
      if (list % 3 === 0) await scene.passes(INTERVAL)
      await agent.report()
      if (list % 10 === 9) await scene.jobs()
    }
    expect(await scene.lease(v6.leaseId)).toMatchObject(identityOf(v6))
    expect(await scene.lease(v4.leaseId)).toMatchObject(identityOf(v4))
    expect(await scene.codes(v6.address)).toContain('NO_WITNESS')
    expect(agent.asked).toEqual([])
  },
)

incident(
  '5.4 only-one-family-visible: a source that claims v6 and has never listed any is stopped by the dry run, and by the refusal to enable it',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { call, network } = scene
    await scene.pool('fd55::/120')
    const agent = await scene.newAgent('n1', { enabled: false })
    // Claims both families, and lists none of the v6 ones.
    agent.entries = () => []
    agent.answers = () => ({ answer: 'GONE' })
    const early = await scene.start({ name: 'early', node: 'n1' })
    await scene.cycles(4)
    await scene.passes(2 * HOUR)
    await scene.cycles(6)
    expect(await scene.lease(early.lease.leaseId), 'in dry run').toMatchObject({ state: 'ACTIVE' })
    const refused = await call('LivenessService/EnableSource', { network, id: 'n1' })
    expect(refused.message).toMatch(/witness of 1 leases .* node n1, and lists 0 of them/)
    await call.ok('LivenessService/EnableSource', { network, id: 'n1', acceptUnlisted: true })
    // It was made hours ago, and its age counts from the enabling.
    await scene.cycles(6)
    expect(await scene.lease(early.lease.leaseId)).toMatchObject({ state: 'ACTIVE' })
  },
)
