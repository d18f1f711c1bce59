/** Reconcilers that race with an allocation in flight (group 2 of docs/incidents.md): evidence older than a lease says nothing of it. */
import { setTimeout as delay } from 'node:timers/promises'
import { expect } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { INTERVAL } from '../support/agent.ts'
import { identityOf, type LeaseJson, sandbox, useIncidents } from '../support/incident.ts'
import { random } from '../support/random-walk.ts'
import { useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

/** As eager as a pool can be made: one second. */
const eager = { minimumAge: '1s', unwitnessedAge: '1s' }
const onNode = (name: string, more: object = {}) => sandbox(name, { node: 'n1', ...more })

incident(
  '2.1 pending-workload-reaped: a hundred runs before the deadline take nothing, and one after it does',
  ['AGE_OF_THE_LAST_CHANGE'],
  async (scene) => {
    // Old enough for anything after a second, so that it is the deadline that keeps them.
    await scene.pool('10.21.0.0/28', { reapPolicy: eager })
    await scene.pool('10.21.1.0/28', { name: 'second', reapPolicy: eager })
    const agent = await scene.agent('n1')
    agent.answers = () => ({ answer: 'GONE', detail: 'no such sandbox' })
    // Two attachments, and neither published yet.
    const reserve = async (pool: string, on: string): Promise<LeaseJson> =>
      (
        await scene.reserve.ok(onNode('x', { interface: on }), { claims: [{ pool }], confirmWithin: '600s' })
      )[0]
    const leases = [await reserve('web', 'eth0'), await reserve('second', 'net1')]
    for (let run = 0; run < 100; run += 1) {
      if (run % 5 === 0) {
        await scene.passes(INTERVAL - 1_000)
        await agent.report()
      }
      await scene.jobs('judge', 'expire')
    }
    for (const lease of leases) expect(await scene.lease(lease.leaseId)).toMatchObject(identityOf(lease))
    expect(agent.asked).toEqual([])
    await scene.passes(20_000 + POLICY.confirmGraceMs)
    await scene.jobs('expire')
    for (const lease of leases) {
      expect(await scene.lease(lease.leaseId)).toBeNull()
      const [reaped] = await scene.reaps({ leaseId: lease.leaseId })
      expect(reaped).toMatchObject({ cause: 'NEVER_CONFIRMED' })
      expect(Date.parse(reaped!.lease!.availableAt!)).toBeGreaterThan(Date.parse(reaped!.time))
    }
  },
)

incident(
  '2.2 list-order: a lease committed while a source was looking is missed by no such look, however many there were',
  [],
  async (scene) => {
    const { call } = scene
    await scene.pool('10.22.0.0/28', { reapPolicy: eager })
    const agent = await scene.agent('n1')
    agent.answers = () => ({ answer: 'GONE' })
    const [lease] = await scene.reserve.ok(onNode('x'), { confirmed: true })
    for (let look = 0; look < 10; look += 1) {
      await scene.passes(INTERVAL)
      // Begun; then the lease changes; then the look is over, and does not have it.
      const begun = await agent.begin()
      await call.ok('LeaseService/UpdateLabels', { leaseId: lease.leaseId, labels: { look: String(look) } })
      const answer = await agent.report({ begun })
      expect(answer).toMatchObject({ complete: true, counted: true })
      await scene.jobs()
    }
    expect(await scene.lease(lease.leaseId)).toMatchObject({ state: 'ACTIVE' })
    expect(await scene.codes(lease.address)).toContain('TOO_FEW_REPORTS')
    expect(agent.asked).toEqual([])
    // The same looks, begun after its last change, are misses.
    await scene.cycles(5)
    expect(await scene.lease(lease.leaseId)).toBeNull()
  },
)

incident(
  '2.3 repair-loop-between-two-writes: hundreds of Reserve and Confirm while reaper and reconciler run without pause: nothing alive is taken',
  [],
  async (scene) => {
    const { network, call, reality } = scene
    const seed = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
    console.log(`seed ${seed}`)
    const below = random(seed)
    // So that the reaper has work all the time.
    await scene.pool('10.23.0.0/21', { reapPolicy: { ...eager, misses: 1, confirmGrace: '1s' } })
    const agent = await scene.agent('n1', { intervalMs: 1_000 })
    const leaked = new Set<string>()
    const over = new AbortController()
    let rounds = 0
    const repair = async () => {
      // Its lists come from an index that lags: each forgets a third of what runs. Who is asked after is looked up.
      const third = below(3)
      agent.lists = ({ name }) => Number(name.slice(5)) % 3 !== third
      await agent.report()
      await scene.jobs()
      rounds += 1
    }
    const repairing = (async () => {
      while (!over.signal.aborted) await repair()
    })()
    const COUNT = 400
    let next = 0
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        while (next < COUNT || rounds <= 3) {
          next += 1
          const name = `pair-${next}`
          const [lease] = await scene.reserve.ok(onNode(name), { confirmWithin: '60s' })
          const workload = reality.start({ name, node: 'n1', addresses: [lease.address] })
          // Up to the longest that a request may take.
          await delay(below(300))
          const confirmed = await call.ok('LeaseService/Confirm', { leaseId: lease.leaseId })
          expect(confirmed.leases[0].address).toBe(lease.address)
          // A few end, and nobody says so.
          if (below(25) > 0) continue
          leaked.add(lease.leaseId)
          reality.end(workload)
        }
      }),
    )
    over.abort()
    await repairing
    // And until the leaked ones it has seen are taken back: the loop does reap.
    for (let round = 0; round < 40 && (await scene.reaps()).length === 0; round += 1) {
      await scene.passes(1_000)
      await repair()
    }
    const reaped = (await scene.reaps()).map(({ lease }) => lease!.leaseId)
    expect(reaped.length, 'leaked ones taken back').toBeGreaterThan(0)
    expect(
      reaped.filter((leaseId) => !leaked.has(leaseId)),
      'no reap of anything alive',
    ).toEqual([])
    expect(reality.live.size).toBe(next - leaked.size)
    const { leases } = await call.ok('LeaseService/ListLeases', {
      network,
      states: ['ACTIVE'],
      pageSize: 1_000,
    })
    const active = new Set(leases.map(({ address }: LeaseJson) => address))
    expect([...reality.live].filter(({ addresses }) => !active.has(addresses[0]))).toEqual([])
  },
)
