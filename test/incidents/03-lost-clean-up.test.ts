/** Lost clean-ups (group 3 of docs/incidents.md): what nobody gives back comes back by deadlines and proofs, and by nothing else. */
import { type ClientRequest, request } from 'node:http'
import { expect } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { INTERVAL } from '../support/agent.ts'
import { withClient } from '../support/database.ts'
import { type LeaseJson, sandbox, useIncidents } from '../support/incident.ts'
import type { Workload } from '../support/reality.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

const running = await useService()
const incident = useIncidents(running)

/** Sends a call and dies when it is told to. */
function caller(method: string, message: object): ClientRequest {
  const sent = request(`${running.url}/ipledger.v1.${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'connect-timeout-ms': '60000' },
    agent: false,
  })
  sent.on('error', () => {})
  return sent.end(JSON.stringify(message))
}

incident(
  '3.2 failure-after-allocate: ninety callers killed between Reserve and Confirm leak nothing for long',
  ['GRACE_AFTER_THE_DEADLINE'],
  async (scene) => {
    const { network, call, reality } = scene
    await scene.pool('10.32.0.0/24')
    const reserve = (index: number) =>
      scene.wants(sandbox(`s${index}`), { confirmWithin: '30s', requestId: `request-${index}` })
    await withClient(running.database.adminUrl, async (blocker) => {
      await blocker.query('begin')
      await blocker.query('select from ipledger.network_lock where network_id = $1 for update', [network])
      const callers = Array.from({ length: 90 }, (_, index) => caller('LeaseService/Reserve', reserve(index)))
      const queued = () => running.ledger.stats().find((one) => one.network === network)!.queued
      await waitFor(() => queued() === 90, { what: 'all calls to arrive' })
      for (const one of callers) one.destroy()
      await blocker.query('rollback')
    })
    // Of some the caller comes back with its key: the same address, once.
    const returned: LeaseJson[] = []
    for (const index of [0, 30, 60]) {
      const [first] = (await call.ok('LeaseService/Reserve', reserve(index))).leases
      const [second] = (await call.ok('LeaseService/Reserve', reserve(index))).leases
      expect(second.leaseId).toBe(first.leaseId)
      const confirmed = await call.ok('LeaseService/Confirm', { leaseId: first.leaseId })
      reality.start({ name: `s${index}`, addresses: [first.address] })
      returned.push(confirmed.leases[0])
    }
    const list = async (): Promise<readonly LeaseJson[]> =>
      (await call.ok('LeaseService/ListLeases', { network, pageSize: 1_000 })).leases
    const leaked = (await list()).filter(({ state }) => state === 'RESERVED')
    expect(leaked).toHaveLength(87)

    await scene.passes(30_000)
    await scene.jobs()
    expect(await list(), 'not before the grace is over').toHaveLength(90)
    await scene.passes(POLICY.confirmGraceMs)
    await scene.jobs()
    expect((await list()).map(({ leaseId }) => leaseId)).toEqual(returned.map(({ leaseId }) => leaseId))
    for (const { leaseId, address } of leaked) {
      const [reaped] = await scene.reaps({ leaseId })
      expect(reaped, address).toMatchObject({ cause: 'NEVER_CONFIRMED' })
      // Through cooling: it is not to be had yet.
      expect(Date.parse(reaped!.lease!.availableAt!) - Date.parse(reaped!.time)).toBe(POLICY.cooldownMs)
    }
    const { pool } = await call.ok('PoolService/GetPool', { network, name: 'web' })
    expect(pool.usage).toMatchObject({ cooling: '87', active: '3', reserved: '0' })
  },
)

incident(
  '3.1 crash-loop-drains-pool: four crash loops hold no more than their share, and never lose the life that runs',
  ['OWNER_HAS_A_LIMIT', 'NEWER_LIFE_SUPERSEDES'],
  async (scene) => {
    const { call, network, reality } = scene
    // 32 addresses, less the first and the last.
    await scene.pool('10.31.0.0/27')
    const agent = await scene.agent('n1')
    const looping = ['a', 'b', 'c', 'd']
    const current = new Map<string, { readonly workload: Workload; readonly lease: LeaseJson }>()
    let refused = 0
    /** The leases of all lives in the books. */
    const held = async (): Promise<readonly LeaseJson[]> =>
      (await call.ok('LeaseService/ListLeases', { network, pageSize: 1_000 })).leases

    for (let restart = 0; restart < 50; restart += 1) {
      for (const name of looping) {
        const life = `${name}-${restart}`
        const told = await call('LeaseService/Reserve', {
          network,
          // Every restart is a new sandbox; only the name stays.
          owner: sandbox(name, { uid: life, incarnation: life, node: 'n1' }),
          claims: [{ pool: 'web' }],
        })
        const before = current.get(name)
        if (before !== undefined) reality.end(before.workload)
        if (told.status !== 200) {
          expect(told.reason).toBe('OWNER_LIMIT')
          refused += 1
          current.delete(name)
          continue
        }
        const [lease] = told.body.leases
        const workload = reality.start({
          name,
          uid: life,
          incarnation: life,
          node: 'n1',
          addresses: [lease.address],
        })
        current.set(name, { workload, lease })
      }
      await scene.passes(INTERVAL)
      await agent.report()
      if (restart % 5 === 4) await scene.jobs()
      const all = await held()
      for (const name of looping) {
        const leases = all.filter(({ owner }) => owner?.name === name)
        expect(leases.length, `${name} at restart ${restart}`).toBeLessThanOrEqual(POLICY.ownerLimit)
        const now = current.get(name)
        if (now === undefined) continue
        expect(leases.find(({ leaseId }) => leaseId === now.lease.leaseId)?.state).toMatch(/RESERVED|ACTIVE/)
      }
    }
    expect(refused, 'the limit was met').toBeGreaterThan(0)
    // Whoever does not loop still gets an address.
    const calm = await scene.start({ name: 'calm', node: 'n1' })
    expect((await scene.at(calm.lease.address))?.owner?.name).toBe('calm')
    // No life that ran was ever freed: what was reaped was superseded before.
    for (const { lease } of await scene.reaps()) {
      const states = (await scene.events({ leaseId: lease!.leaseId })).map(({ type }) => type)
      expect(states, lease!.leaseId).toContain('lease.quarantined')
    }
  },
)
