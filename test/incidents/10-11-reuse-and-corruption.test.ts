/** Reuse at once (group 10 of the corpus), and records that cannot be read or are written over (group 11). */
import { afterAll, expect, test, vi } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { useServer } from '../api/running.ts'
import { startService } from '../e2e/service.ts'
import { INTERVAL } from '../support/agent.ts'
import { useTestDatabase } from '../support/database.ts'
import { HOUR, type LeaseJson, useIncidents } from '../support/incident.ts'
import { moveToThePast } from '../support/past.ts'
import { openReplica } from '../support/replica.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'

const running = await useServer()
const incident = useIncidents(running)
const killed = await useTestDatabase()
afterAll(() => expectVerified(killed))

const sandbox = (name: string) => ({ kind: 'sandbox', name, uid: `uid-${name}`, incarnation: '1' })

/**
 * covers: INV-11
 * guard: src/core/decide-reserve.ts pickNamed; src/core/books.ts cooldownOf
 */
test('10.2 cooling-forgotten-on-restart: kill -9 a second after the Release, and it cools all the same', async () => {
  const env = { DATABASE_URL: killed.adminUrl }
  const first = await startService(env, { args: ['--no-worker'] })
  const before = rpc(first.url)
  await before.ok('PoolService/CreatePool', { name: 'one', cidr: '10.102.0.0/32' })
  const request = (name: string) => ({ owner: sandbox(name), claims: [{ pool: 'one' }] })
  const [lease] = (await before.ok('LeaseService/Reserve', request('first'))).leases
  const [released] = (await before.ok('LeaseService/Release', { leaseId: lease.leaseId })).leases
  first.child.kill('SIGKILL')
  await first.finished
  before.close()

  const second = await startService(env, { args: ['--no-worker'] })
  const after = rpc(second.url)
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
  await moveToThePast(killed, POLICY.cooldownMs - 10_000)
  await cooling('ten seconds before the end')
  // The clock steps an hour back: the rest is not over sooner, and no time in the log runs backwards.
  await moveToThePast(killed, -HOUR)
  await cooling('with the clock an hour back')
  const { events } = await after.ok('AuditService/ListEvents', {})
  const times = events.map(({ time }: { time: string }) => Date.parse(time))
  expect([...times].sort((a, b) => a - b)).toEqual(times)
  await moveToThePast(killed, HOUR + 11_000)
  const [next] = (await after.ok('LeaseService/Reserve', request('next'))).leases
  expect(next.address).toBe('10.102.0.0')
  after.close()
  second.child.kill('SIGTERM')
  await second.finished
}, 60_000)

/**
 * covers: INV-18 M-20
 * guard: src/liveness/entries.ts readEntries; src/liveness/standing.ts assess
 */
incident(
  '11.2 unparseable-address: what cannot be read makes the snapshot partial, and the rest of it protects',
  async (scene) => {
    await scene.pool('10.112.0.0/24')
    const agent = await scene.agent('n1')
    const held = await scene.start({ name: 'held', node: 'n1' })
    await scene.cycles(1)
    await scene.passes(6 * 60_000)
    // A v4 address in v6 clothes is refused by the same rule: it has one spelling.
    const bad = ['10.0.0.300', '', '010.0.0.5', '::ffff:10.0.0.5']
    const warned = vi.spyOn(running.intake.log, 'warn')
    for (let cycle = 0; cycle < 5; cycle += 1) {
      warned.mockClear()
      await scene.passes(INTERVAL)
      const answer = await agent.report({
        entries: [
          ...bad.map((address) => ({ address, kind: 'sandbox', name: 'odd', uid: 'odd' })),
          {
            address: '10.112.0.77',
            kind: 'sandbox',
            name: 'good',
            uid: 'good',
            interface: 'eth0',
          },
        ],
      })
      expect(answer).toMatchObject({
        complete: false,
        counted: false,
        because: ['UNREADABLE_ENTRY'],
        unreadable: 4,
      })
      // Each once, with its source, its snapshot, its text and what is wrong with it.
      const logged = warned.mock.calls.map(([fields]) => fields as unknown as Record<string, unknown>)
      expect(logged.map(({ text }) => JSON.parse(text as string).address ?? '')).toEqual(bad)
      for (const { source, sequence, why } of logged) {
        expect({ source, sequence: String(sequence) }).toEqual({ source: 'n1', sequence: answer.sequence })
        expect(why).toMatch(/./)
      }
      await scene.jobs()
    }
    warned.mockRestore()
    // It left out a lease for five cycles, and nothing was missed of it.
    expect(await scene.lease(held.lease.leaseId)).toMatchObject({
      state: 'ACTIVE',
      version: held.lease.version,
    })
    expect(await scene.reaps()).toEqual([])
    expect(await scene.at('10.112.0.77')).toMatchObject({ state: 'ACTIVE', owner: { name: 'good' } })
    const { snapshots } = await scene.call.ok('LivenessService/ListSnapshots', {
      network: scene.network,
      source: 'n1',
    })
    expect(snapshots[0]).toMatchObject({ unreadable: 4, because: ['UNREADABLE_ENTRY'], complete: false })
    // A source that stays partial is not silent about it.
    expect((await scene.stuck('SOURCE_PARTIAL')).map(({ source }) => source)).toEqual(['n1'])
  },
)

/**
 * covers: INV-13 N-02
 * guard: src/ledger/load.ts network_lock
 */
incident(
  '11.6 lost-update: Reserve and Reap on one pool at once, and the events add up to the table',
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.116.0.0/22', { cooldown: '0s' })
    // Each by a process of its own: within one they would wait for each other anyway.
    await using other = await openReplica(running.database.serviceUrl)
    const ROUNDS = 1_500
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
          const [lease] = (
            await call.ok('LeaseService/Reserve', {
              network,
              owner: sandbox(`s${round}`),
              claims: [{ pool: 'web' }],
            })
          ).leases
          answered.reserved.push(lease)
          waiting.push(lease)
          // Every second worker takes back what another one has just reserved.
          if (worker % 2 === 0 || waiting.length < 8) continue
          for (const gone of waiting.splice(0, 2)) {
            const { leaseId, version } = gone
            const reap = { leaseId, version, why: 'round' }
            const { lease: ended } = await other.call.ok('LeaseService/Reap', reap)
            answered.reaped.push(ended)
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
    // Replayed one by one, the events give the same table: none is missing, none is there twice.
    const replayed = new Map<string, string>()
    for (let afterSeq = '0'; ; ) {
      const { events } = await call.ok('AuditService/ListEvents', { network, afterSeq, pageSize: 1_000 })
      for (const { type, lease } of events) {
        if (type === 'lease.reserved') {
          expect(replayed.has(lease.leaseId)).toBe(false)
          replayed.set(lease.leaseId, lease.address)
        }
        if (type === 'lease.reaped') expect(replayed.delete(lease.leaseId)).toBe(true)
      }
      if (events.length < 1_000) break
      afterSeq = events.at(-1).seq
    }
    expect(replayed).toEqual(left)
  },
  60_000,
)
