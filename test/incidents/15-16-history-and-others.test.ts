/** Nothing to explain it afterwards (group 15 of docs/incidents.md), and what fits no group (16). */
import { expect, vi } from 'vitest'
import { judgeProof, type Proof } from '../../src/core/judge.ts'
import { INTERVAL } from '../support/agent.ts'
import { MINUTE, useIncidents, witnessesOf } from '../support/incident.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

const running = await useService()
const incident = useIncidents(running)

incident(
  '15.1 no-history: who held an address at any instant, and why each reap',
  ['LOOK_UP_SAYS_GONE'],
  async (scene) => {
    const { network, call, reality } = scene
    await scene.pool('10.151.0.0/29', { cooldown: '60s' })
    await scene.agent('n1')
    const { address } = (await scene.start({ name: 'first', node: 'n1', address: '10.151.0.2' })).lease
    const held = new Map<string, string | null>()
    /** Between two events: who holds it. */
    const mark = async (holder: string | null) => {
      await scene.cycles(1)
      const { head } = await call.ok('AuditService/ListEvents', { network, descending: true, pageSize: 1 })
      held.set(head, holder)
    }
    await mark('first')
    reality.end(reality.at(address)[0]!)
    await scene.longEnough()
    await mark(null)
    await scene.passes(10 * MINUTE)
    await scene.cycles(1)
    await scene.start({ name: 'second', node: 'n1', address })
    await mark('second')

    // Who held it then: by the address's own events up to that number, and nothing else.
    for (const [head, holder] of held) {
      const events = await scene.events({ address, beforeSeq: String(Number(head) + 1) })
      const last = events.at(-1)!
      const holds =
        last.type === 'lease.released' || last.type === 'lease.reaped' ? null : last.lease!.owner!.name
      expect(holds, `at ${head}`).toBe(holder)
      const told = await call.ok('AuditService/ExplainAddress', { network, address, seq: head })
      expect(told, `at ${head}`).toMatchObject({ seq: head, state: holder === null ? 'COOLING' : 'ACTIVE' })
      if (holder !== null) expect(told.answer).toContain(`sandbox ${holder}`)
      expect(told.steps.map(({ seq }: { seq: string }) => seq)).toContain(last.seq)
    }
    // Why it was taken back: sources, numbers of their snapshots, misses, the answer, the policy; judged again, the same.
    const [reaped] = await scene.reaps({ address })
    expect(reaped).toMatchObject({ actor: expect.stringContaining('job:'), cause: 'PROVEN_ABSENT' })
    const proof = reaped!.evidence.proof as Proof
    expect(proof.lookUps).toMatchObject([{ source: 'n1', answer: 'gone' }])
    const [witness] = proof.witnesses
    expect(witness).toMatchObject({ id: 'n1', isEnabled: true, isWarm: true })
    expect(witness!.missed.length).toBeGreaterThanOrEqual(proof.policy.misses)
    for (const { head, sequence } of witness!.missed) {
      expect(head).toBeGreaterThanOrEqual(proof.record.seq)
      expect(sequence).toBeGreaterThan(0)
    }
    expect(judgeProof(proof).verdict).toBe('reap')
  },
)

incident(
  '16.2 session-lock-lies: a worker paused between verdict and Reap comes back and does nothing wrong',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.162.0.0/28')
    const agent = await scene.agent('n1')
    // It sees the whole network, and none of what this is about so far.
    const peer = await scene.agent('peer', { node: '' })
    peer.lists = () => false
    const leaked = await scene.start({ name: 'leaked', node: 'n1' })
    const moved = await scene.start({ name: 'moved', node: 'n1' })
    await scene.cycles(1)
    // One ended; the other is alive, and both have lost sight of it.
    reality.end(leaked.workload)
    agent.lists = (workload) => workload !== moved.workload
    agent.answers = () => ({ answer: 'GONE' })
    peer.answers = agent.answers
    await scene.passes(5 * MINUTE)

    // A worker that stops just before its Reap: what it will say is judged and on its way.
    const paused: (() => void)[] = []
    const submit = running.ledger.submit.bind(running.ledger)
    const worker = vi.spyOn(running.ledger, 'submit').mockImplementation(async (...args) => {
      if (args[0].type === 'reapProven') await new Promise<void>((resolve) => paused.push(resolve))
      return submit(...args)
    })
    let run: Promise<unknown> = Promise.resolve()
    for (let cycle = 0; cycle < 6 && paused.length === 0; cycle += 1) {
      await scene.passes(INTERVAL)
      await agent.report()
      await peer.report()
      let over = false
      run = running.run('judge', scene.network).finally(() => {
        over = true
      })
      await waitFor(() => over || paused.length === 2, { what: 'the run, or its Reaps' })
    }
    expect(paused.length, 'both Reaps are on their way').toBe(2)
    worker.mockRestore()
    // Meanwhile the other source sees the one that is alive, and another worker takes over.
    peer.lists = () => true
    await peer.report()
    await scene.jobs()
    const before = await scene.log({ types: ['lease.reaped'] })
    expect((await scene.reaps()).map(({ lease }) => lease!.leaseId)).toEqual([leaked.lease.leaseId])
    for (const resume of paused) resume()
    await run
    expect(await scene.log({ types: ['lease.reaped'] }), 'nothing done twice').toEqual(before)
    expect(await scene.lease(moved.lease.leaseId)).toMatchObject({ state: 'ACTIVE' })
    // And nothing stuck: the next run is a run like any.
    await scene.cycles(2)
    expect(await scene.log({ types: ['lease.reaped'] })).toEqual(before)
  },
)

incident(
  '16.5 legitimate-double-presence: a VM that moves is one lease, and lives as long as either node sees it',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.165.0.0/28')
    const source = await scene.agent('n1')
    const target = await scene.agent('n2')
    source.answers = target.answers = () => ({ answer: 'GONE' })
    const vm = await scene.start({ name: 'vm', node: 'n1' })
    await scene.cycles(1)
    // Both carry the address: one lease, no conflict.
    vm.workload.nodes = ['n1', 'n2']
    await scene.cycles(3)
    expect(await scene.lease(vm.lease.leaseId)).toMatchObject({ state: 'ACTIVE', version: vm.lease.version })
    expect((await source.report()).complete && (await target.report()).complete).toBe(true)
    // The source side ends: its lists without the VM are no misses while the other reports it.
    vm.workload.nodes = ['n2']
    await scene.passes(10 * MINUTE)
    await scene.cycles(8)
    expect(await scene.lease(vm.lease.leaseId)).toMatchObject({ state: 'ACTIVE', version: vm.lease.version })
    expect(await scene.codes(vm.lease.address)).toContain('LISTED_LIVE')
    // It ends on both: then, and not before, it is taken back.
    expect(await scene.reaps()).toEqual([])
    reality.end(vm.workload)
    await scene.longEnough()
    expect(await scene.lease(vm.lease.leaseId)).toBeNull()
    const [reaped] = await scene.reaps({ leaseId: vm.lease.leaseId })
    expect(witnessesOf(reaped)).toEqual(['n1', 'n2'])
  },
)
