/**
 * 12.1 backup-older-than-reality: a database is restored as it was before 50 Reserves and 50 Releases, while the workloads
 * go on. Against the real service; the agents report over the API, and the world is kept apart from the books.
 *
 * The dump is PostgreSQL's own, restored into another cluster, where its programs are of the server's version
 * (IPLEDGER_TEST_POSTGRES=15 with Debian's); the embedded server brings none, and then it is a copy of the database.
 */
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { createLogger } from '../../src/telemetry.ts'
import { startService, stopService } from '../e2e/service.ts'
import { type EventJson, expectInOrder, openScene, type Scene, type Started } from '../support/incident.ts'
import { createReality, type Reality } from '../support/reality.ts'
import { rpc } from '../support/rpc.ts'
import { openJobs } from '../support/run-jobs.ts'
import { startTestServer } from '../support/server.ts'
import { startCopy } from '../support/standby.ts'

const ERA = 2n ** 40n
const NETWORK = 'r'
const NODES = ['n1', 'n2'] as const

type Server = Awaited<ReturnType<typeof startTestServer>>
type Open = { readonly scene: Scene; close(): Promise<void> }

async function startServer(): Promise<Server> {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  return server
}

async function createDatabase(server: Server, name: string, template = 'template1'): Promise<string> {
  const admin = await connect({ url: server.url('postgres'), applicationName: 'test' })
  await admin.query(`create database ${name} template ${template}`)
  await admin.end()
  return server.url(name)
}

/** The service on a database, without its worker: the test says when a job runs. */
async function open(adminUrl: string, reality: Reality): Promise<Open> {
  const service = await startService({ DATABASE_URL: adminUrl }, { args: ['--no-worker'] })
  const call = rpc(service.url)
  const logins = await openDatabase(
    { databaseUrl: adminUrl, databaseAdminUrl: undefined, directory: '' },
    { log: createLogger('warn'), embedded: 'share' },
  )
  const jobs = openJobs(logins.serviceUrl)
  const scene = openScene({ network: NETWORK, call, jobs, database: { adminUrl }, reality })
  return {
    scene,
    async close() {
      await expectInOrder(scene, logins)
      await jobs.close()
      call.close()
      expect((await stopService(service)).code).toBe(0)
    },
  }
}

/** The database as it is now, for later; nobody is connected to it. */
async function dump(server: Server): Promise<() => Promise<string>> {
  const programs = `/usr/lib/postgresql/${process.env.IPLEDGER_TEST_POSTGRES}/bin`
  if (!existsSync(join(programs, 'pg_dump'))) {
    const url = await createDatabase(server, 'restored', 'ledger')
    return async () => url
  }
  const dumped = execFileSync(join(programs, 'pg_dump'), [server.url('ledger')], { maxBuffer: 2 ** 28 })
  return async () => {
    const other = await startServer()
    // The roles that the dump grants to are no part of it.
    await openDatabase(
      { databaseUrl: await createDatabase(other, 'roles'), databaseAdminUrl: undefined, directory: '' },
      { log: createLogger('warn'), embedded: 'own' },
    )
    const url = await createDatabase(other, 'ledger')
    execFileSync(join(programs, 'psql'), ['--quiet', '--set=ON_ERROR_STOP=1', url], {
      input: dumped,
      stdio: ['pipe', 'ignore', 'inherit'],
    })
    return url
  }
}

function startMany(scene: Scene, count: number, name: string): Promise<readonly Started[]> {
  return Promise.all(
    Array.from({ length: count }, (_, i) => scene.start({ name: `${name}-${i}`, node: NODES[i % 2]! })),
  )
}

const addressesOf = (started: readonly Started[]) => started.map(({ lease }) => lease.address).sort()
const addressesIn = (events: readonly EventJson[]) => events.map(({ lease }) => lease!.address).sort()

async function networkOf({ call }: Scene) {
  return (await call.ok('NetworkService/GetNetwork', { name: NETWORK })).network
}

test('12.1: 50 Reserves and 50 Releases after the dump: nobody shares an address, what was lost is adopted, what was released is reaped on proof', async () => {
  const reality = createReality()
  const server = await startServer()
  const original = await createDatabase(server, 'ledger')

  const before = await open(original, reality)
  await before.scene.call.ok('NetworkService/CreateNetwork', { name: NETWORK })
  await before.scene.pool('10.1.0.0/24')
  for (const node of NODES) await before.scene.agent(node)
  const old = await startMany(before.scene, 60, 'old')
  await before.scene.cycles(3)
  await before.close()

  const restore = await dump(server)

  const after = await open(original, reality)
  for (const node of NODES) await after.scene.newAgent(node)
  const lost = await startMany(after.scene, 50, 'lost')
  const released = old.slice(0, 50)
  for (const { workload, lease } of released) {
    reality.end(workload)
    await after.scene.call.ok('LeaseService/Release', { leaseId: lease.leaseId })
  }
  await after.scene.cycles(1)
  const { head } = await networkOf(after.scene)
  await after.close()

  const { scene, close } = await open(await restore(), reality)
  const [first, second] = [await scene.newAgent('n1'), await scene.newAgent('n2')]

  const eras = await scene.events({ types: ['era.begun'] })
  expect(eras.map(({ cause }) => cause)).toEqual(['DATABASE_REPLACED'])
  // Before anybody has asked for anything.
  expect(await networkOf(scene)).toMatchObject({
    state: 'RECOVERING',
    era: 1,
    head: String(ERA),
    recovery: { sources: 2, unreported: ['n1', 'n2'] },
  })
  const early = await scene.call('LeaseService/Reserve', {
    network: NETWORK,
    owner: { kind: 'sandbox', name: 'early', uid: 'early', incarnation: '1' },
    claims: [{ pool: 'web' }],
  })
  expect([early.reason, early.body.message]).toEqual([
    'NETWORK_RECOVERING',
    expect.stringContaining('still to come: n1, n2'),
  ])

  // One is not both, a part is not all, and one look is not two: the first list of an era may be that of a start.
  await first.report()
  await second.report()
  await scene.jobs('process-snapshots', 'end-recovery')
  expect(await networkOf(scene)).toMatchObject({
    state: 'RECOVERING',
    recovery: { sources: 2, unreported: ['n1', 'n2'] },
  })
  await scene.passes(30_000)
  await first.report()
  await second.report({ complete: false })
  await scene.jobs('process-snapshots', 'verify-suspects', 'end-recovery')
  expect(await networkOf(scene)).toMatchObject({
    state: 'RECOVERING',
    recovery: { sources: 2, unreported: ['n2'] },
  })
  await scene.passes(30_000)
  await second.report()
  await scene.jobs('process-snapshots', 'end-recovery')
  expect(await networkOf(scene)).toMatchObject({ state: 'READY', era: 1 })

  const adopted = await scene.events({ types: ['lease.adopted'] })
  expect(addressesIn(adopted)).toEqual(addressesOf(lost))
  for (const { workload, lease } of lost) {
    expect(await scene.at(lease.address)).toMatchObject({
      state: 'ACTIVE',
      owner: { kind: workload.kind, name: workload.name, uid: workload.uid },
    })
  }
  expect(await scene.reaps()).toEqual([])
  for (const { lease } of released) expect((await scene.at(lease.address))?.leaseId).toBe(lease.leaseId)

  const fresh = await startMany(scene, 60, 'new')
  reality.expectApart()
  for (const { lease } of fresh) expect(BigInt(lease.fencingToken)).toBeGreaterThan(BigInt(head))
  expect(fresh.every(({ lease }) => BigInt(lease.fencingToken) > ERA)).toBe(true)

  // Fifty at once are too many to be believed: a person looks, and lets it go on.
  let resumed = 0
  for (let round = 0; round < 60 && (await scene.reaps()).length < 50; round += 1) {
    await scene.longEnough()
    const { holds = [] } = await scene.call.ok('LivenessService/ListHolds', { network: NETWORK })
    for (const { source } of holds) {
      resumed += 1
      await scene.call.ok('LivenessService/ResumeHold', { network: NETWORK, source, why: 'restored' })
    }
  }
  expect(resumed).toBeGreaterThan(0)
  const reaped = await scene.reaps()
  expect(addressesIn(reaped)).toEqual(addressesOf(released))
  expect(new Set(reaped.map(({ cause }) => cause))).toEqual(new Set(['PROVEN_ABSENT']))
  for (const { lease } of [...lost, ...fresh, ...old.slice(50)]) {
    expect((await scene.at(lease.address))?.state).toBe('ACTIVE')
  }
  await close()
}, 240_000)

test('12.1: a node that was added after the dump is waited for: its source is in no restored book, and neither is its workload', async () => {
  const reality = createReality()
  const server = await startServer()
  const original = await createDatabase(server, 'ledger')

  const before = await open(original, reality)
  await before.scene.call.ok('NetworkService/CreateNetwork', { name: NETWORK })
  await before.scene.pool('10.0.0.0/29')
  await before.scene.agent('n1')
  await before.close()
  const restore = await dump(server)

  const after = await open(original, reality)
  await after.scene.agent('n2')
  const lost = await after.scene.start({ name: 'lost', node: 'n2' })
  expect(lost.lease.address).toBe('10.0.0.1')
  await after.scene.cycles(1)
  const { head } = await networkOf(after.scene)
  await after.close()

  const { scene, close } = await open(await restore(), reality)
  const first = await scene.newAgent('n1')
  const begins = { network: NETWORK, source: 'n2', seenHead: head }
  const told = await scene.call('LivenessService/BeginSnapshot', begins)
  expect([told.reason, told.body.message]).toEqual([
    'SOURCE_NOT_FOUND',
    expect.stringContaining('register and enable it'),
  ])
  for (let look = 0; look < 3; look += 1) {
    await scene.passes(30_000)
    await first.report()
    await scene.jobs('process-snapshots', 'end-recovery', 'prune-observations')
  }
  expect(await networkOf(scene)).toMatchObject({
    state: 'RECOVERING',
    recovery: { sources: 1, unknown: ['n2'] },
  })
  const refused = await scene.call('LeaseService/Reserve', {
    network: NETWORK,
    owner: { kind: 'sandbox', name: 'next', uid: 'next', incarnation: '1' },
    claims: [{ pool: 'web' }],
  })
  expect([refused.reason, refused.body.message]).toEqual([
    'NETWORK_RECOVERING',
    expect.stringContaining('n2'),
  ])
  const { stuck } = await scene.call.ok('LivenessService/ListStuck', { network: NETWORK })
  expect(stuck.map(({ code, source }: { code: string; source: string }) => [code, source])).toContainEqual([
    'SOURCE_UNKNOWN',
    'n2',
  ])

  const second = await scene.newAgent('n2')
  for (let look = 0; look < 2; look += 1) {
    await scene.passes(30_000)
    await first.report()
    await second.report()
    await scene.jobs('process-snapshots', 'end-recovery')
  }
  expect(await networkOf(scene)).toMatchObject({ state: 'READY', era: 1 })
  expect(await scene.at('10.0.0.1')).toMatchObject({
    state: 'ACTIVE',
    owner: { name: 'lost', uid: lost.workload.uid },
  })
  const next = await scene.start({ name: 'next', node: 'n1' })
  expect(next.lease.address).not.toBe('10.0.0.1')
  reality.expectApart()
  await scene.jobs('prune-observations')
  await close()
}, 240_000)

test('12.1: a copy of the whole data directory is the same life, and is found out by a token that it signed itself', async () => {
  const reality = createReality()
  const server = await startServer()
  const original = await open(await createDatabase(server, 'ledger'), reality)
  await original.scene.call.ok('NetworkService/CreateNetwork', { name: NETWORK })
  await original.scene.pool('10.1.0.0/24')
  const agent = await original.scene.agent('n1')
  const held = await original.scene.start({ name: 'held', node: 'n1' })
  const copy = await startCopy(server)
  onTestFinished(() => copy.stop())
  const lost = await original.scene.start({ name: 'lost', node: 'n1' })
  const token = await agent.begin()
  await original.close()

  const { scene, close } = await open(copy.url('ledger'), reality)
  expect(await networkOf(scene)).toMatchObject({ state: 'READY', era: 0 })
  // Anybody can quote a number.
  const told = await scene.call('LeaseService/Release', { leaseId: lost.lease.leaseId })
  expect([told.reason, told.status]).toEqual(['VERSION_MISMATCH', 409])
  expect((await networkOf(scene)).era ?? 0).toBe(0)

  const again = await scene.newAgent('n1')
  expect(await again.report({ token })).toMatchObject({ complete: false, because: ['BEYOND_HEAD'] })
  expect(await networkOf(scene)).toMatchObject({
    state: 'RECOVERING',
    era: 1,
    recovery: { unreported: ['n1'] },
  })
  for (let look = 0; look < 2; look += 1) {
    await scene.passes(30_000)
    await again.report()
  }
  await scene.jobs('process-snapshots', 'end-recovery')
  expect(await networkOf(scene)).toMatchObject({ state: 'READY', era: 1 })
  expect((await scene.at(lost.lease.address))?.owner).toMatchObject({ uid: lost.workload.uid })
  expect((await scene.at(held.lease.address))?.leaseId).toBe(held.lease.leaseId)
  await scene.start({ name: 'next', node: 'n1' })
  await close()
}, 120_000)
