/**
 * The Docker source against a real engine (whose containers live and die behind ipledger's back): nothing live is ever
 * freed, and everything that is gone is reaped after proof.
 *
 * The tests are one story and run in order: the engine and the books are the same for all.
 */
import type Docker from 'dockerode'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { LeaseView } from '../../src/core/command.ts'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import type { JobContext } from '../../src/jobs/job.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createPullSources } from '../../src/jobs/pull-sources.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { createAskedSources } from '../../src/liveness/asked.ts'
import { enableSource, findSource } from '../../src/liveness/register.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import { claim, createNetwork, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { register, useIntake } from '../support/intake.ts'
import { useLedger } from '../support/ledger.ts'
import { moveToThePast } from '../support/past.ts'
import { expectVerified } from '../support/verified.ts'
import { type Engine, NETWORK, openEngine } from './engine.ts'

const SUBNET = '172.31.250.0/24'
const network = 'n1'
const INTERVAL = 60_000
/** Enough of them for k misses, and for the minimum age of a lease. */
const LOOKS = 9

const database = await useTestDatabase()
const intake = useIntake(database.serviceUrl)
const ledger = useLedger({ url: database.serviceUrl })
const connections = createConnections({ url: database.serviceUrl, applicationName: 'test docker', max: 4 })
const asked = createAskedSources({ log: { warn: () => {} }, secrets: {} })
const log = { warn() {}, info() {}, debug() {}, error() {} } as unknown as JobContext['log']
const context: JobContext = {
  database: connections,
  ledger,
  intake,
  asked,
  log,
  signal: new AbortController().signal,
}
let engine: Engine

beforeAll(async () => {
  engine = await openEngine(SUBNET)
  await ledger.accept(createNetwork(network))
  await ledger.accept(createPool({ name: 'web', cidr: SUBNET, gateway: '172.31.250.1' }, { network }))
  await register(intake, network, 'docker-n1', {
    kind: 'docker',
    node: 'n1',
    ownerKinds: ['container'],
    families: [4],
    intervalMs: INTERVAL,
    settings: { socketPath: engine.socketPath, network: NETWORK },
  })
  await enableSource(intake.database, { network, id: 'docker-n1', by: 'test' })
})
afterAll(async () => {
  await asked.close()
  await engine?.close()
  await connections.end()
  await expectVerified(database, { full: true })
})

/** As a caller does it: the address first, then the container with it. */
async function reserveFor(name: string): Promise<LeaseView> {
  return ledger.take(
    reserve({
      network,
      owner: owner({ kind: 'container', name: `n1/${name}` }),
      placement: { node: 'n1', boot: '', labels: {} },
      claims: [claim({ pool: 'web' })],
    }),
  )
}

const jobs = [
  createPullSources({ slotMs: 0 }),
  createProcessSnapshots(),
  createVerifySuspects({ stayMs: 0 }),
  createVerifySuspects({ stayMs: 0 }),
  createClearQuarantine(),
]

/** An interval passes, and every job runs. */
async function reconcile(times = 1): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    await moveToThePast(database, INTERVAL, network)
    for (const job of jobs) await job(context)
  }
}

type Held = {
  readonly address: string
  readonly name: string
  readonly uid: string
  readonly state: string
  readonly token: number
}

async function held(): Promise<readonly Held[]> {
  const { rows } = await connections.query<Held>(
    `select host(address) as address, owner_name as name, owner_uid as uid, state, fencing_token as token
       from ipledger.lease where network_id = $1 order by address`,
    [network],
  )
  return rows
}

async function leaseAt(address: string): Promise<Held | undefined> {
  return (await held()).find((lease) => lease.address === address)
}

async function reaped(
  address: string,
): Promise<readonly { cause: string; evidence: Record<string, unknown> }[]> {
  const { rows } = await connections.query(
    `select cause, evidence from ipledger.event
      where network_id = $1 and address = $2::inet and type = 'lease.reaped' order by seq`,
    [network, address],
  )
  return rows
}

const epoch = async () => (await findSource(intake.database, network, 'docker-n1'))!.standing.epoch

const containers = new Map<string, Docker.Container>()
const leases = new Map<string, LeaseView>()

async function runWithLease(name: string): Promise<void> {
  const lease = await reserveFor(name)
  leases.set(name, lease)
  containers.set(name, await engine.run(name, lease.address))
}

const addressOf = (name: string): string => leases.get(name)!.address
const tokenOf = (name: string): number => leases.get(name)!.fencingToken

test('containers that run with reserved addresses are confirmed', async () => {
  for (const name of ['running', 'stopped', 'killed', 'paused', 'removed']) await runWithLease(name)
  const created = await reserveFor('created')
  leases.set('created', created)
  containers.set('created', await engine.create('created', created.address))
  await reconcile(3)
  const states = (await held()).map(({ address, name, state }) => [address, name, state])
  expect(states).toEqual([...leases].map(([name, { address }]) => [address, `n1/${name}`, 'ACTIVE']).sort())
})

test('stopped, killed and paused ones keep theirs; that of a removed one is reaped after proof', async () => {
  await containers.get('stopped')!.stop({ t: 0 })
  await containers.get('killed')!.kill()
  await containers.get('paused')!.pause()
  await containers.get('removed')!.remove({ force: true })
  await reconcile(2)
  expect(await leaseAt(addressOf('removed')), 'two misses are no proof').toMatchObject({
    token: tokenOf('removed'),
  })
  await reconcile(LOOKS)
  expect(await leaseAt(addressOf('removed'))).toBeUndefined()
  const [proof] = await reaped(addressOf('removed'))
  expect(proof!.cause).toBe('PROVEN_ABSENT')
  expect(JSON.stringify(proof!.evidence)).toContain('docker-n1')
  expect(JSON.stringify(proof!.evidence)).toContain('gone')
  for (const name of ['running', 'stopped', 'killed', 'paused', 'created']) {
    expect(await leaseAt(addressOf(name)), name).toMatchObject({ token: tokenOf(name), state: 'ACTIVE' })
  }
})

test('a container that was started behind its back is adopted, and its address reaped when it is removed', async () => {
  const address = '172.31.250.77'
  const container = await engine.run('stranger', address)
  await reconcile(1)
  expect(await leaseAt(address)).toMatchObject({ name: 'n1/stranger', uid: container.id, state: 'ACTIVE' })
  await container.stop({ t: 0 })
  await reconcile(LOOKS)
  expect(await leaseAt(address)).toMatchObject({ uid: container.id, state: 'ACTIVE' })
  await container.remove()
  await reconcile(LOOKS)
  expect(await leaseAt(address)).toBeUndefined()
  expect(await reaped(address)).toMatchObject([{ cause: 'PROVEN_ABSENT' }])
})

test('what is released while its container still runs is not handed out', async () => {
  await runWithLease('released')
  await reconcile(2)
  const address = addressOf('released')
  await ledger.accept(release(tokenOf('released'), { network }))
  await reconcile(2)
  expect(await leaseAt(address), 'it is live').toBeDefined()
  await containers.get('released')!.remove({ force: true })
})

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'while the daemon is down (%s) nothing is known and nothing is freed, and it is the same life afterwards',
  async (signal) => {
    const life = await epoch()
    const before = await held()
    await engine.stop(signal)
    await reconcile(LOOKS)
    expect(await held()).toEqual(before)
    await engine.start()
    await reconcile(LOOKS)
    const kept = await held()
    for (const name of ['running', 'stopped', 'killed', 'paused', 'created']) {
      expect(
        kept.find(({ address }) => address === addressOf(name)),
        name,
      ).toMatchObject({ token: tokenOf(name), state: 'ACTIVE' })
    }
    expect(await epoch()).toBe(life)
  },
)

test('while the daemon goes down and up during reconciliation only what is gone is reaped', async () => {
  await runWithLease('gone')
  await reconcile(3)
  await containers.get('gone')!.remove({ force: true })
  let over = false
  const going = (async () => {
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      await engine.stop(signal)
      await engine.start()
    }
    over = true
  })()
  while (!over) await reconcile(1)
  await going
  await reconcile(LOOKS)
  expect(await leaseAt(addressOf('gone'))).toBeUndefined()
  expect(await reaped(addressOf('gone'))).toHaveLength(1)
  for (const name of ['running', 'stopped', 'killed', 'paused', 'created']) {
    expect(await leaseAt(addressOf(name)), name).toMatchObject({ token: tokenOf(name), state: 'ACTIVE' })
    expect(await reaped(addressOf(name)), name).toEqual([])
  }
})

test('in the end the books are the world: no address twice, every container with a lease, and no lease without', async () => {
  await reconcile(LOOKS)
  const world = await engine.docker.listContainers({ all: true })
  const addresses = world.flatMap(({ NetworkSettings }) => {
    const one = NetworkSettings.Networks[NETWORK]
    return one === undefined ? [] : [one.IPAMConfig?.IPv4Address || one.IPAddress]
  })
  expect(new Set(addresses).size).toBe(addresses.length)
  expect((await held()).map(({ address }) => address).sort()).toEqual(addresses.sort())
})
