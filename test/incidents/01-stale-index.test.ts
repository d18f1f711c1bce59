/** Stale indexes and late lists (group 1 of docs/incidents.md): missing from a list is a hint, and the authority decides. */
import { expect } from 'vitest'
import type { Verdict } from '../support/agent.ts'
import { withClient } from '../support/database.ts'
import { emptyPool, HOUR, MINUTE, useIncidents, witnessesOf } from '../support/incident.ts'
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
  '1.1 stale-index-orphan-verdict: an error, an unknown, no answer at all: alive, for as long as it goes on, and nothing grows',
  ['LOOK_UP_SAYS_GONE'],
  async (scene) => {
    await scene.pool('10.11.1.0/28')
    const agent = await scene.agent('n1')
    const kinds: readonly (readonly [string, Verdict | null, string])[] = [
      ['error', { answer: 'ERROR', detail: 'connection refused' }, 'LOOK_UP_FAILED'],
      ['unknown', { answer: 'UNKNOWN', detail: 'phase Weird' }, 'LOOK_UP_ALIVE'],
      ['silence', null, 'LOOK_UP_WANTED'],
    ]
    const started = []
    for (const [name] of kinds) started.push(await scene.start({ name, node: 'n1' }))
    await scene.cycles(1)
    agent.lists = () => false
    agent.answers = ({ owner }) => kinds.find(([name]) => name === owner.name)![1]
    await scene.passes(5 * MINUTE)
    await scene.cycles(6)
    const before = await scene.log()
    await scene.passes(60 * MINUTE)
    const codes = new Set<string>()
    for (let cycle = 0; cycle < 12; cycle += 1) {
      await scene.cycles(1)
      for (const [at, { lease }] of started.entries())
        if ((await scene.codes(lease.address)).includes(kinds[at]![2])) codes.add(kinds[at]![2])
    }
    expect(codes).toEqual(new Set(kinds.map(([, , code]) => code)))
    for (const { lease } of started)
      expect(await scene.lease(lease.leaseId), lease.address).toMatchObject({ state: 'ACTIVE' })
    expect(await scene.log(), 'no event however often it failed').toEqual(before)
    // One row for each question, however often it is asked.
    const asked = () =>
      withClient(running.database.adminUrl, async (client) => {
        const { rows } = await client.query<{ address: string }>(
          'select host(address) as address from ipledger.lookup where network_id = $1 order by address',
          [scene.network],
        )
        return rows.map(({ address }) => address)
      })
    const addresses = started.map(({ lease }) => lease.address)
    expect(await asked()).toEqual(addresses)
    // Whoever looks is told what waits, and for whom.
    const waiting = await scene.attention('LOOKUP_FAILING')
    expect(waiting.map(({ source, address }) => [source, address])).toEqual(
      addresses.map((one) => ['n1', one]),
    )
    // It is asked again and again, and the first clear answer counts, whatever becomes of the others.
    const ended = started[0]!
    scene.reality.end(ended.workload)
    agent.answers = ({ owner }) => (owner.name === 'error' ? { answer: 'GONE' } : { answer: 'ERROR' })
    // However long it waits between two questions by now.
    await scene.passes(2 * HOUR)
    await scene.cycles(6)
    expect(await scene.lease(ended.lease.leaseId)).toBeNull()
    expect(await scene.reaps()).toHaveLength(1)
    // What was kept of it goes with it.
    await scene.jobs('prune')
    expect(await asked()).toEqual(addresses.slice(1))
  },
)

incident(
  '1.1 stale-index-orphan-verdict: what the list has as ended costs no look-up, and its grace is waited for',
  ['LOOK_UP_SAYS_GONE'],
  async (scene) => {
    await scene.pool('10.11.2.0/28')
    const agent = await scene.agent('n1')
    const x = await scene.start({ name: 'x', node: 'n1' })
    await scene.cycles(1)
    await scene.passes(10 * MINUTE)
    await scene.cycles(1)
    x.workload.state = 'terminal'
    // Four minutes of the five that an ended workload counts as there.
    await scene.cycles(8)
    expect(await scene.lease(x.lease.leaseId), 'in its grace').toMatchObject({ state: 'ACTIVE' })
    await scene.cycles(8)
    expect(await scene.lease(x.lease.leaseId), 'past its grace').toBeNull()
    expect(agent.asked, 'nobody was asked').toEqual([])
    expect((await scene.reaps())[0]).toMatchObject({ cause: 'PROVEN_ABSENT' })
  },
)

incident(
  '1.1 stale-index-orphan-verdict: one sighting resets the count, and k misses need an age as well',
  ['EVERY_WITNESS_MISSES', 'AGE_OF_THE_LAST_CHANGE'],
  async (scene) => {
    const { reality } = scene
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
    // A young one is missed often and fast, and is too young.
    const young = await scene.start({ name: 'young', node: 'n1' })
    await scene.cycles(1)
    reality.end(young.workload)
    await scene.cycles(7)
    expect(await scene.lease(young.lease.leaseId)).toMatchObject({ state: 'ACTIVE' })
    await scene.longEnough()
    expect(await scene.lease(young.lease.leaseId)).toBeNull()
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
