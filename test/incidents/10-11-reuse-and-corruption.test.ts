/** Reuse at once (group 10 of docs/incidents.md), and records that cannot be read or are written over (group 11). */
import { expect, onTestFinished } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { serve } from '../e2e/commands.ts'
import { INTERVAL } from '../support/agent.ts'
import { createTestDatabase } from '../support/database.ts'
import { HOUR, type LeaseJson, playWithout, sandbox, useIncidents } from '../support/incident.ts'
import { rpc } from '../support/rpc.ts'
import { serviceOn, useService } from '../support/service.ts'
import { expectVerified } from '../support/verified.ts'

const running = await useService()
const incident = useIncidents(running)

playWithout(
  '10.2 cooling-forgotten-on-restart: kill -9 a second after the Release, and it cools all the same',
  ['ADDRESS_COOLS', 'CLOCK_NEVER_GOES_BACK'],
  running.checks,
  async () => {
    const database = await createTestDatabase()
    onTestFinished(() => database.drop())
    const first = await serve({ DATABASE_URL: database.adminUrl }, '--no-worker')
    const before = rpc(first.url)
    await before.ok('PoolService/CreatePool', { name: 'one', cidr: '10.102.0.0/32' })
    const request = (name: string) => ({ owner: sandbox(name), claims: [{ pool: 'one' }] })
    const [lease] = (await before.ok('LeaseService/Reserve', request('first'))).leases
    const [released] = (await before.ok('LeaseService/Release', { leaseId: lease.leaseId })).leases
    first.child.kill('SIGKILL')
    await first.finished

    const time = { movedBy: 0 }
    await using second = await serviceOn({ database, time, checks: running.checks })
    const after = second.call
    const cooling = async (what: string) => {
      const told = await after('LeaseService/Reserve', request('next'))
      expect(told.reason, what).toBe('POOL_EXHAUSTED')
      const named = await after('LeaseService/Reserve', {
        ...request('next'),
        claims: [{ address: '10.102.0.0' }],
      })
      expect(named.reason, what).toBe('ADDRESS_COOLING')
    }
    expect(Date.parse(released.availableAt) - Date.parse(released.endedAt)).toBe(POLICY.cooldownMs)
    await cooling('after the restart')
    time.movedBy += POLICY.cooldownMs - 10_000
    await cooling('ten seconds before the end')
    // The clock steps an hour back: the rest is not over sooner, and no time in the log runs backwards.
    time.movedBy -= HOUR
    await cooling('with the clock an hour back')
    await after.ok('PoolService/UpdatePool', { name: 'one', labels: { said: 'an hour before' } })
    const { events } = await after.ok('AuditService/ListEvents', {})
    const times = events.map(({ time }: { time: string }) => Date.parse(time))
    expect([...times].sort((a, b) => a - b)).toEqual(times)
    time.movedBy += HOUR + 11_000
    const [next] = (await after.ok('LeaseService/Reserve', request('next'))).leases
    expect(next.address).toBe('10.102.0.0')
    await expectVerified(database)
  },
)

incident(
  '11.2 unparseable-address: what cannot be read makes the snapshot partial, and the rest of it protects',
  ['ONLY_COUNTED_REPORTS_DECIDE'],
  async (scene) => {
    await scene.pool('10.112.0.0/24')
    const agent = await scene.agent('n1')
    const held = await scene.start({ name: 'held', node: 'n1' })
    await scene.cycles(1)
    await scene.passes(6 * 60_000)
    const bad = ['10.0.0.300', '', '010.0.0.5']
    for (let cycle = 0; cycle < 5; cycle += 1) {
      await scene.passes(INTERVAL)
      const answer = await agent.report({
        entries: [
          ...bad.map((address) => ({ address, kind: 'sandbox', name: 'odd', uid: 'odd' })),
          // The second is a v4 address in v6 clothes: what it means is clear.
          ...['10.112.0.77', '::ffff:10.112.0.78'].map((address) => ({ address, ...sandbox('good') })),
        ],
      })
      expect(answer).toMatchObject({
        complete: false,
        counted: false,
        because: ['UNREADABLE_ENTRY'],
        unreadable: 3,
      })
      await scene.jobs()
    }
    // It left out a lease for five cycles, and nothing was missed of it.
    expect(await scene.lease(held.lease.leaseId)).toMatchObject({
      state: 'ACTIVE',
      version: held.lease.version,
    })
    expect(await scene.reaps()).toEqual([])
    // What it did read is nobody else's, and whoever asks is told that the source is not whole.
    for (const address of ['10.112.0.77', '10.112.0.78']) {
      const told = await scene.reserve(sandbox('another'), { claims: [{ pool: 'web', address }] })
      expect(told.reason).toBe('ADDRESS_QUARANTINED')
    }
    const { sources } = await scene.call.ok('LivenessService/ListSources', { network: scene.network })
    expect(sources[0]).toMatchObject({ id: 'n1', partialBecause: ['UNREADABLE_ENTRY'] })
  },
)

incident(
  '11.6 lost-update: Reserve and Reap on one pool at once, and the events add up to the table',
  [],
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.116.0.0/22', { cooldown: '0s' })
    // Each by a process of its own: within one they would wait for each other anyway.
    await using other = await serviceOn(running)
    const ROUNDS = 500
    const answered: { readonly reserved: LeaseJson[]; readonly reaped: LeaseJson[] } = {
      reserved: [],
      reaped: [],
    }
    const waiting: LeaseJson[] = []
    let begun = 0
    await Promise.all(
      Array.from({ length: 16 }, async (_, worker) => {
        while (begun < ROUNDS) {
          begun += 1
          const round = begun
          const [lease] = await scene.reserve.ok(sandbox(`s${round}`))
          answered.reserved.push(lease)
          waiting.push(lease)
          // Every second worker takes back what another one has just reserved.
          if (worker % 2 === 0 || waiting.length < 8) continue
          for (const gone of waiting.splice(0, 2)) {
            const { leaseId, version } = gone
            const reap = { leaseId, version, why: 'round' }
            answered.reaped.push(...(await other.call.ok('LeaseService/Reap', reap)).leases)
          }
        }
      }),
    )
    const left = new Map(answered.reserved.map((lease) => [lease.leaseId, lease.address]))
    for (const { leaseId } of answered.reaped) expect(left.delete(leaseId)).toBe(true)
    const held: LeaseJson[] = []
    for (let pageToken = ''; ; ) {
      const page = await call.ok('LeaseService/ListLeases', { network, pageSize: 1_000, pageToken })
      held.push(...page.leases)
      pageToken = page.nextPageToken
      if (pageToken === '') break
    }
    expect(new Map(held.map(({ leaseId, address }) => [leaseId, address]))).toEqual(left)
  },
)
