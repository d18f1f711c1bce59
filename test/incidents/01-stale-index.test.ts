/** Stale indexes and late lists (group 1 of docs/incidents.md): missing from a list is a hint, and the authority decides. */
import { expect } from 'vitest'
import { emptyPool, MINUTE, useIncidents, witnessesOf } from '../support/incident.ts'
import { serviceOn, useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

incident(
  '1.1 stale-index-orphan-verdict: omitted by seven lists and found by the look-up, it stays, and nobody gets its address',
  ['LOOK_UP_SAYS_GONE'],
  async (scene) => {
    await scene.pool('10.11.0.0/29')
    const agent = await scene.agent('n1')
    const x = await scene.start({ name: 'x', node: 'n1' })
    await scene.cycles(1)
    const before = await scene.log({ address: x.lease.address })
    // The index behind the list lags; the workload runs.
    agent.lists = (workload) => workload !== x.workload
    await scene.passes(5 * MINUTE)
    const codes = new Set<string>()
    for (let cycle = 1; cycle <= 7; cycle += 1) {
      await scene.cycles(1)
      expect(await scene.lease(x.lease.leaseId)).toMatchObject({ state: 'ACTIVE', version: x.lease.version })
      for (const code of await scene.codes(x.lease.address)) codes.add(code)
    }
    // From the third miss on it is asked for, and the decision cites the answer.
    expect(codes).toContain('LOOK_UP_ALIVE')
    expect(agent.asked.length).toBeGreaterThan(0)
    expect(new Set(agent.asked.map(({ address }) => address))).toEqual(new Set([x.lease.address]))
    expect(await scene.log({ address: x.lease.address }), 'not one event').toEqual(before)
    const { addresses, reason } = await emptyPool(scene)
    expect(reason).toBe('POOL_EXHAUSTED')
    expect(addresses).not.toContain(x.lease.address)
  },
)

incident(
  '1.1 stale-index-orphan-verdict: one sighting resets the count',
  ['EVERY_WITNESS_MISSES'],
  async (scene) => {
    await scene.pool('10.11.3.0/28')
    const agent = await scene.agent('n1')
    const x = await scene.start({ name: 'x', node: 'n1' })
    await scene.cycles(1)
    agent.answers = () => ({ answer: 'GONE' })
    await scene.passes(6 * MINUTE)
    for (let round = 0; round < 3; round += 1) {
      // Missed twice, seen once.
      agent.lists = () => false
      await scene.cycles(2)
      agent.lists = () => true
      await scene.cycles(1)
    }
    expect(await scene.lease(x.lease.leaseId)).toMatchObject({ state: 'ACTIVE', version: x.lease.version })
    expect(agent.asked, 'never a suspect').toEqual([])
  },
)

incident(
  '1.2 async-status-as-live-set: a list that is written late frees nothing at a restart; both must miss it',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.12.0.0/28')
    const status = await scene.agent('status', { node: '' })
    const local = await scene.agent('n1')
    // Its list is begun before the Confirm, and has nothing of X.
    status.lists = () => false
    const early = await status.begin()
    const x = await scene.start({ name: 'x', node: 'n1' })
    await local.report()
    {
      // The service restarts, and the first thing it hears is that list.
      await using restarted = await serviceOn(running)
      status.speaksTo(restarted.call)
      const answer = await status.report({ begun: early })
      expect(answer.complete).toBe(true)
      await scene.jobs()
      status.speaksTo(scene.call)
    }
    expect(await scene.lease(x.lease.leaseId)).toMatchObject({ state: 'ACTIVE' })
    // Whoever is asked denies it: the lists alone keep it.
    status.answers = local.answers = () => ({ answer: 'GONE' })
    await scene.passes(5 * MINUTE)
    await scene.cycles(5)
    expect(await scene.lease(x.lease.leaseId), 'B lists it').toMatchObject({ state: 'ACTIVE' })
    expect(await scene.codes(x.lease.address)).toContain('LISTED_LIVE')
    // The status catches up; then the local one loses it, and its status goes on listing it.
    status.lists = () => true
    await scene.cycles(2)
    local.lists = () => false
    await scene.cycles(6)
    expect(await scene.lease(x.lease.leaseId), 'A lists it').toMatchObject({ state: 'ACTIVE' })
    expect(await scene.codes(x.lease.address)).toContain('LISTED_LIVE')
    reality.end(x.workload)
    await scene.longEnough()
    expect(await scene.lease(x.lease.leaseId), 'neither does').toBeNull()
    expect(witnessesOf((await scene.reaps())[0])).toEqual(['n1', 'status'])
  },
)
