/**
 * A scene for an incident of docs/incidents.md: a network of its own on the real service, agents that report over the API, the
 * jobs of the worker run one after the other, and a world apart from the books. However it goes, at its end no two
 * live workloads of that world have shared an address, and the books verify.
 */
import { expect, test } from 'vitest'
import { ALL_CHECKS } from '../../src/ledger/loop-options.ts'
import { checksWithout, type Rule } from '../simulation/world.ts'
import { createAgent, type Declared, INTERVAL, type TestAgent } from './agent.ts'
import { createReality, type Reality, type Workload } from './reality.ts'
import type { Rpc, Told } from './rpc.ts'
import type { Checks, TestService } from './service.ts'
import { expectVerified } from './verified.ts'

export const MINUTE = 60_000
export const HOUR = 60 * MINUTE

/** As JSON has it. */
export type LeaseJson = {
  readonly leaseId: string
  readonly pool: string
  readonly address: string
  readonly state: 'RESERVED' | 'ACTIVE' | 'QUARANTINED' | 'ENDED'
  readonly version: string
  readonly fencingToken: string
  readonly owner?: Workload
  readonly quarantine?: { readonly reason: string; readonly by: string; readonly why: string }
  readonly availableAt?: string
  readonly reused: boolean
}

type EventJson = {
  readonly seq: string
  readonly type: string
  readonly time: string
  readonly actor: string
  readonly cause: string
  readonly lease?: LeaseJson
  // biome-ignore lint/suspicious/noExplicitAny: JSON as it came
  readonly evidence?: any
}

/** What a workload is started with, and what its Reserve says besides. */
type ToStart = Partial<Workload> & {
  readonly name: string
  readonly node?: string
  readonly address?: string
  readonly pool?: string
  readonly more?: object
}

export type Started = { readonly workload: Workload; readonly lease: LeaseJson }

export type Scene = {
  readonly network: string
  readonly call: Rpc
  readonly reality: Reality
  readonly agents: readonly TestAgent[]
  pool(cidr: string, fields?: object): Promise<void>
  /** Registered, enabled and warm. */
  agent(source: string, declared?: Declared): Promise<TestAgent>
  /** The same, before its first report. */
  newAgent(source: string, declared?: Declared): Promise<TestAgent>
  /** A Reserve for an owner, of pool `web` unless it says otherwise. */
  wants(owner: object, more?: object): object
  /** The same, sent. */
  readonly reserve: ((owner: object, more?: object) => Promise<Told>) & {
    /** One that must succeed. */
    ok(owner: object, more?: object): Promise<LeaseJson[] & { 0: LeaseJson; 1: LeaseJson }>
  }
  /** Reserve, configure, Confirm: as a careful caller does it. */
  start(given: ToStart): Promise<Started>
  passes(ms: number): Promise<void>
  /** One run of each, in this order; none named: of all that judge. */
  jobs(...names: readonly string[]): Promise<void>
  /** So often: an interval passes, every agent reports, the jobs run. */
  cycles(count: number): Promise<void>
  /** Long enough for anything that could be proven to be proven. */
  longEnough(): Promise<void>
  /** The lease at an address now; null where there is none. */
  at(address: string): Promise<LeaseJson | null>
  /** Null: it has ended. */
  lease(leaseId: string): Promise<LeaseJson | null>
  events(filter?: object): Promise<readonly EventJson[]>
  /** The same, one line each, without times: those move when time passes. */
  log(filter?: object): Promise<readonly string[]>
  reaps(filter?: object): Promise<readonly EventJson[]>
  /** Why the dry run would do to an address what it would do. */
  codes(address: string): Promise<readonly string[]>
  attention(
    ...codes: readonly string[]
  ): Promise<readonly { code: string; source: string; address: string; leaseId: string }[]>
}

/** What looks at leases; the rest prunes and samples. */
const JUDGING = ['recheck', 'judge', 'expire'] as const

type Play = (scene: Scene) => Promise<void>

/**
 * At the top of a test file: `incident('8.6 check-then-insert: …', ['CATCHES_UP_UNDER_THE_LOCK'], async (scene) => …)`. The scene
 * is played, and once more without each of these rules: then it fails.
 */
export function useIncidents(service: TestService) {
  let scenes = 0
  return (title: string, needs: readonly Rule[], play: Play) =>
    playWithout(title, needs, service.checks, async () => {
      scenes += 1
      const network = `n${scenes}-${title.slice(0, title.indexOf(' ')).replace('.', '-')}`
      await service.call.ok('NetworkService/CreateNetwork', { name: network })
      const scene = openScene({ network, service })
      await play(scene)
      await expectInOrder(scene, service)
    })
}

/** A test, and for each rule one that it fails without it. */
export function playWithout(
  title: string,
  needs: readonly Rule[],
  checks: Checks,
  play: () => Promise<void>,
): void {
  test(title, play)
  test.for(needs)(`${title}: fails without %s`, async (rule) => {
    Object.assign(checks, checksWithout([rule]))
    try {
      await expect(play()).rejects.toThrow()
    } finally {
      Object.assign(checks, ALL_CHECKS)
    }
  })
}

/** The end of every scene. */
export async function expectInOrder(
  { network, reality }: Pick<Scene, 'network' | 'reality'>,
  { database }: Pick<TestService, 'database'>,
): Promise<void> {
  reality.expectApart()
  await expectVerified(database, { network })
}

export function openScene({
  network,
  service,
  reality = createReality(),
  agents: known = [],
}: {
  readonly network: string
  readonly service: Pick<TestService, 'call' | 'run' | 'time'>
  readonly reality?: Reality
  /** Of the service's life before this one. */
  readonly agents?: readonly TestAgent[]
}): Scene {
  const { call } = service
  const agents: TestAgent[] = [...known]

  const passes = async (ms: number) => {
    service.time.movedBy += ms
  }
  const jobs = async (...names: readonly string[]) => {
    for (const name of names.length > 0 ? names : JUDGING) await service.run(name, network)
  }
  const cycles = async (count: number) => {
    for (let cycle = 0; cycle < count; cycle += 1) {
      await passes(INTERVAL)
      for (const agent of agents) await agent.report()
      await jobs()
    }
  }
  const newAgent = async (source: string, declared: Declared = {}) => {
    const agent = await createAgent({ call, network, reality }, source, declared)
    agents.push(agent)
    return agent
  }
  const wants = (owner: object, more: object = {}) => ({ network, owner, claims: [{ pool: 'web' }], ...more })
  const events = async (filter: object = {}): Promise<readonly EventJson[]> =>
    (await call.ok('AuditService/ListEvents', { network, pageSize: 1_000, ...filter })).events
  return {
    network,
    call,
    reality,
    agents,
    async pool(cidr, fields = {}) {
      await call.ok('PoolService/CreatePool', { network, name: 'web', cidr, ...fields })
    },
    newAgent,
    wants,
    reserve: Object.assign(
      (owner: object, more?: object) => call('LeaseService/Reserve', wants(owner, more)),
      {
        ok: async (owner: object, more?: object) =>
          (await call.ok('LeaseService/Reserve', wants(owner, more))).leases,
      },
    ),
    async agent(source, declared = {}) {
      const agent = await newAgent(source, declared)
      // Two that do not grow warm it up; each of them is an interval after the one before.
      for (let look = 0; look < 2; look += 1) {
        await passes(INTERVAL)
        await agent.report()
      }
      return agent
    },
    async start({ address, pool = 'web', more = {}, ...given }) {
      const draft = reality.start({ ...given, addresses: [] })
      // Not there before it has an address.
      reality.end(draft)
      const { kind, name, uid, incarnation, interface: on } = draft
      const owner = { kind, name, uid, incarnation, interface: on, node: given.node ?? '' }
      const claim = { pool, ...(address === undefined ? {} : { address }) }
      const { leases } = await call.ok('LeaseService/Reserve', { network, owner, claims: [claim], ...more })
      const lease: LeaseJson = leases[0]
      const workload = reality.start({ ...given, addresses: [lease.address] })
      const confirmed = await call.ok('LeaseService/Confirm', { leaseId: lease.leaseId })
      return { workload, lease: confirmed.leases[0] }
    },
    passes,
    jobs,
    cycles,
    async longEnough() {
      // Older than the minimum age; then enough snapshots, a question, its answer, and the reap.
      await passes(5 * MINUTE)
      await cycles(6)
    },
    async at(address) {
      const told = await call('LeaseService/GetLease', { network, address })
      if (told.status === 200) return told.body.lease
      expect(told.reason).toBe('LEASE_NOT_FOUND')
      return null
    },
    async lease(leaseId) {
      const told = await call('LeaseService/GetLease', { leaseId })
      if (told.status === 200) return told.body.lease
      expect(told.reason).toBe('LEASE_NOT_FOUND')
      return null
    },
    events,
    log: async (filter = {}) =>
      (await events(filter)).map(({ seq, type, cause, lease }) =>
        [seq, type, cause, lease?.address ?? '', lease?.state ?? ''].join(' '),
      ),
    reaps: (filter = {}) => events({ types: ['lease.reaped'], ...filter }),
    async codes(address) {
      const asked = { network, address, kept: true }
      const [found] = (await call.ok('LivenessService/Reconcile', asked)).findings
      return (found?.because ?? []).map(({ code }: { readonly code: string }) => code)
    },
    async attention(...codes) {
      return (await call.ok('LivenessService/ListAttention', { network, codes, each: true })).items
    },
  }
}

/** Fillers are given what the pool has until it has none left: their addresses, and what it says then. */
export async function emptyPool(
  { call, network, reality }: Pick<Scene, 'call' | 'network' | 'reality'>,
  options: { readonly pool?: string; readonly prefix?: string } = {},
): Promise<{ readonly addresses: readonly string[]; readonly reason: string }> {
  const { pool = 'web', prefix = 'filler' } = options
  const addresses: string[] = []
  for (;;) {
    const name = `${prefix}-${addresses.length}`
    const told = await call('LeaseService/Reserve', {
      network,
      owner: { kind: 'filler', name, uid: `uid-${name}`, incarnation: '1' },
      claims: [{ pool }],
    })
    if (told.status !== 200) return { addresses, reason: told.reason }
    const { address } = told.body.leases[0]
    reality.start({ kind: 'filler', name, addresses: [address] })
    addresses.push(address)
  }
}

export const sandbox = (name: string, more: object = {}) => ({
  kind: 'sandbox',
  name,
  uid: `uid-${name}`,
  incarnation: '1',
  ...more,
})

/** Whose word a reap by absence rests on. */
export function witnessesOf(reaped: EventJson | undefined): readonly string[] {
  return reaped!.evidence.proof.witnesses.map(({ id }: { id: string }) => id)
}

/** What a lease is, whatever the time: which one, in which state, since which number. */
export function identityOf({ leaseId, address, state, version }: LeaseJson): Partial<LeaseJson> {
  return { leaseId, address, state, version }
}
