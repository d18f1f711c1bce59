/**
 * A day of two networks, for whatever draws or explains one: through the real service, its agents' reports and its jobs,
 * in the order in which things happen, with time moved by `past.ts`. Everything that a dashboard shows happens in it at
 * least once: churn, a crash loop, a conflict, a quarantine of each reason, reaps of each cause, a hold, a fence, a source that falls
 * silent and one that is partial, a new era, a pool that is nearly full. What a test asks for by name is in what it
 * answers; the rest is as it comes.
 */
import { createSchedule } from '../../src/jobs/schedule.ts'
import type { Running } from '../api/running.ts'
import type { TestAgent } from './agent.ts'
import { beginEra, createNetwork } from './commands.ts'
import { withClient } from './database.ts'
import { HOUR, type LeaseJson, MINUTE, openScene, type Scene, type Started } from './incident.ts'
import { rpc } from './rpc.ts'
import { openJobs } from './run-jobs.ts'
import { expectVerified } from './verified.ts'

export const DAY_NETWORK = 'default'
export const EDGE_NETWORK = 'edge'

/** Its holders, one after the other: released by the first, reaped from the second, in conflict with the third. */
export const STORIED_ADDRESS = '10.20.0.77'
export const STORIED_OWNERS = ['shop/first', 'shop/second', 'shop/third'] as const
export const GHOST = 'shop/ghost'
export const FOREIGN_ADDRESS = '10.20.0.200'
export const SECOND_ADDRESS = '10.20.0.150'
export const ADOPTED_ADDRESS = '10.20.0.160'
export const SEEN_ADDRESS = '10.20.0.170'
export const OPERATOR_ADDRESS = '10.20.0.180'
/** Handed on from one life of its owner to the next, without a gap. */
export const HANDED_ADDRESS = '10.20.0.90'
export const HANDED = 'shop/handed'
export const LOOPING = 'shop/loop'
export const BLOCKED = 'shop/unanswered'
export const SILENT_SOURCE = 'node-3'
export const PARTIAL_SOURCE = 'node-4'
export const FENCED_NODE = 'node-5'
export const REBOOTED_SOURCE = 'node-7'
export const HELD_SOURCE = 'node-2'
export const FULL_POOL = 'small'

export type DayOfLife = {
  /** Before its first event, and after its last. */
  readonly from: Date
  readonly to: Date
  /** Leases at STORIED_ADDRESS, in the order of STORIED_OWNERS. */
  readonly storied: readonly LeaseJson[]
  /** Of the workload that was released and lives on. */
  readonly releasedButLive: LeaseJson
  /** Of the one whose promise to confirm was broken. */
  readonly neverConfirmed: LeaseJson
  /** Of one that an operator took back. */
  readonly takenBack: LeaseJson
}

const HOURS_A_STEP = 2
const STEPS = 11

/** Only on a server of its own: it makes its networks itself. Some seconds. */
export async function liveADay(running: Pick<Running, 'database' | 'ledger' | 'url'>): Promise<DayOfLife> {
  const jobs = openJobs(running.database.serviceUrl)
  const call = rpc(running.url, { sockets: 16 })
  try {
    await running.ledger.accept(createNetwork(EDGE_NETWORK))
    const day = openScene({ network: DAY_NETWORK, call, jobs, database: running.database })
    const edge = openScene({ network: EDGE_NETWORK, call, jobs, database: running.database })
    const told = await play({ day, edge, running })
    await moveEvidence(running.database)
    for (const name of ['project-tenure', 'keep-checkpoints', 'seal-log', 'observe-stuck']) {
      if (!(name in createSchedule())) continue
      for (const network of [DAY_NETWORK, EDGE_NETWORK]) await jobs.run(name, network)
    }
    await expectVerified(running.database)
    return { ...told, ...(await bounds(running.database)) }
  } finally {
    call.close()
    await jobs.close()
  }
}

type Stage = { readonly day: Scene; readonly edge: Scene; readonly running: Pick<Running, 'ledger'> }

async function play({ day, edge, running }: Stage): Promise<Omit<DayOfLife, 'from' | 'to'>> {
  const { call, network, reality } = day
  await day.pool('10.20.0.0/24', { gateway: '10.20.0.1', ownerLimit: 16 })
  await day.pool('10.21.0.0/27', { name: FULL_POOL, ownerLimit: 4 })
  await day.pool('fd00:20::/64', { name: 'v6' })
  await day.pool('10.64.0.0/20', { name: 'blocks', prefixLength: 28 })
  await edge.pool('192.168.64.0/22', { name: 'edge' })

  const agents = new Map<string, TestAgent>()
  for (const source of ['node-1', HELD_SOURCE, SILENT_SOURCE, PARTIAL_SOURCE, FENCED_NODE]) {
    agents.set(source, await day.agent(source))
  }
  agents.set(REBOOTED_SOURCE, await day.agent(REBOOTED_SOURCE, { bootEndsAll: true }))
  await day.newAgent('node-6', { enabled: false })
  await edge.agent('edge-1')
  const agent = (source: string) => agents.get(source)!

  const release = (leaseId: string, removal: 'CONFIRMED' | 'UNCONFIRMED' = 'CONFIRMED') =>
    call.ok('LeaseService/Release', { leaseId, removal })
  const end = async ({ workload, lease }: Started) => {
    reality.end(workload)
    await release(lease.leaseId)
  }

  // Leases that stay all day, and some that come and go.
  const standing: Started[] = []
  for (let n = 0; n < 12; n += 1) {
    standing.push(await day.start({ name: `shop/web-${n}`, node: `node-${(n % 4) + 1}` }))
  }
  const held: Started[] = []
  for (let n = 0; n < 8; n += 1) held.push(await day.start({ name: `shop/batch-${n}`, node: HELD_SOURCE }))
  for (let n = 0; n < 4; n += 1) await day.start({ name: `shop/lost-${n}`, node: FENCED_NODE })
  for (let n = 0; n < 2; n += 1) await day.start({ name: `shop/reboot-${n}`, node: REBOOTED_SOURCE })
  for (let n = 0; n < 6; n += 1) await day.start({ name: `mesh/v6-${n}`, node: 'node-1', pool: 'v6' })
  for (let n = 0; n < 3; n += 1) await day.start({ name: `machine-${n}`, kind: 'node', pool: 'blocks' })
  for (let n = 0; n < 18; n += 1) await day.start({ name: `queue/q-${n}`, node: 'node-1', pool: FULL_POOL })
  for (let n = 0; n < 10; n += 1) {
    await edge.start({ name: `edge/cache-${n}`, node: 'edge-1', pool: 'edge' })
  }
  const storied: Started[] = []
  const inTurn = async (at: number) => {
    const name = STORIED_OWNERS[at]!
    storied.push(await day.start({ name, node: 'node-1', address: STORIED_ADDRESS }))
  }
  await inTurn(0)

  const churning: Started[] = []
  const told: { -readonly [K in 'releasedButLive' | 'neverConfirmed' | 'takenBack']?: LeaseJson } = {}

  /** What happens at the begin of each two hours besides the churn. */
  const happens: Readonly<Record<number, () => Promise<void>>> = {
    2: () => end(storied[0]!),
    3: async () => {
      await inTurn(1)
      const first = await day.start({ name: HANDED, node: 'node-2', address: HANDED_ADDRESS })
      reality.end(first.workload)
      const supersedes = { incarnation: '1', removal: 'CONFIRMED' }
      await day.start({
        name: HANDED,
        incarnation: '2',
        node: 'node-2',
        address: HANDED_ADDRESS,
        more: { supersedes },
      })
    },
    4: async () => {
      // It dies without a word.
      reality.end(storied[1]!.workload)
      const { leases } = await call.ok('LeaseService/Reserve', {
        network,
        owner: { kind: 'sandbox', name: 'shop/slow', uid: 'uid-slow', incarnation: '1', node: 'node-1' },
        claims: [{ pool: 'web' }],
        confirmWithin: '30s',
        requestId: 'slow-1',
      })
      told.neverConfirmed = leases[0]
    },
    5: async () => {
      await inTurn(2)
      reality.start({ name: 'shop/stray', node: 'node-1', addresses: [ADOPTED_ADDRESS] })
      const { workload, lease } = standing[0]!
      await release(lease.leaseId, 'UNCONFIRMED')
      reality.end(workload)
    },
    6: async () => {
      const { workload, lease } = standing[1]!
      reality.end(workload)
      const { lease: taken } = await call.ok('LeaseService/Reap', {
        leaseId: lease.leaseId,
        version: (await day.lease(lease.leaseId))!.version,
        why: 'its disk is gone',
      })
      told.takenBack = taken
      const owner = { kind: 'sandbox', name: 'shop/careful', uid: 'uid-careful', incarnation: '1' }
      await call('LeaseService/Reserve', {
        network,
        owner,
        claims: [{ pool: 'web', address: SEEN_ADDRESS }],
        liveAddresses: [SEEN_ADDRESS],
      })
    },
    7: async () => {
      await call.ok('LeaseService/Quarantine', {
        network,
        address: OPERATOR_ADDRESS,
        why: 'a printer has it by hand',
      })
      const lying = agent('node-1')
      const entries = lying.entries
      lying.entries = () => [...entries(), { address: FOREIGN_ADDRESS, state: 'running' }]
      reality.crash(REBOOTED_SOURCE)
      agent(REBOOTED_SOURCE).epoch = 'boot-2'
      const { workload } = standing[4]!
      workload.addresses = [...workload.addresses, SECOND_ADDRESS]
    },
    8: async () => {
      reality.excuse(STORIED_ADDRESS)
      reality.start({ name: GHOST, node: HELD_SOURCE, addresses: [STORIED_ADDRESS] })
      reality.crash(FENCED_NODE)
      agent(FENCED_NODE).report = silent
      await call.ok('LivenessService/FenceNode', {
        network,
        node: FENCED_NODE,
        boot: 'boot-1',
        why: 'its power supply burnt',
      })
      // The edge's database is restored.
      await running.ledger.accept(
        beginEra(1, { network: EDGE_NETWORK, why: 'restored from a backup', cause: 'BeginEra' }),
      )
    },
    9: async () => {
      // Its index has lost most of what it ran, and its look-ups go by that index.
      const lying = agent(HELD_SOURCE)
      const lost = new Set(held.map(({ workload }) => workload.uid))
      lying.lists = ({ uid }) => !lost.has(uid)
      const answers = lying.answers
      lying.answers = (asked) => (lost.has(asked.owner.uid) ? { answer: 'GONE' } : answers(asked))
      const { lease } = standing[8]!
      await release(lease.leaseId)
      told.releasedButLive = lease
    },
    10: async () => {
      // Three of the lost ones were taken back, then it was held; it finds some of them again.
      const found = new Set(held.slice(0, 4).map(({ workload }) => workload.uid))
      const lying = agent(HELD_SOURCE)
      const lists = lying.lists
      lying.lists = (workload) => found.has(workload.uid) || lists(workload)
      agent(SILENT_SOURCE).report = silent
      const partial = agent(PARTIAL_SOURCE)
      const report = partial.report
      partial.report = (look = {}) => report({ ...look, complete: false })
      const blocked = await day.start({ name: BLOCKED, node: 'node-1' })
      await looksAround(day, 1)
      reality.end(blocked.workload)
      const asked = agent('node-1')
      const answers = asked.answers
      asked.answers = (one) =>
        one.owner.name === BLOCKED ? { answer: 'ERROR', detail: 'runtime: connection refused' } : answers(one)
    },
  }

  for (let step = 0; step < STEPS; step += 1) {
    for (let n = 0; n < 4; n += 1) {
      churning.push(await day.start({ name: `shop/job-${step}-${n}`, node: `node-${(n % 2) + 1}` }))
    }
    for (const gone of churning.splice(0, step === 0 ? 0 : 3)) await end(gone)
    await happens[step]?.()
    await looksAround(day, 2)
    await looksAround(edge, 2)
    // Old enough to be judged, and looked at often enough.
    await day.passes(6 * MINUTE)
    await looksAround(day, 4)
    await samples(day, edge, { minutes: 20, times: 3 * HOURS_A_STEP })
  }
  await day.jobs('end-recovery')
  await edge.jobs('end-recovery')

  // The last hour: the small pool fills, and a workload crashes again and again.
  for (let n = 0; n < 6; n += 1) {
    await day.start({ name: `queue/late-${n}`, node: 'node-1', pool: FULL_POOL })
    await samples(day, edge, { minutes: 9, times: 1 })
    await looksAround(day, 1)
  }
  for (let life = 1; life <= 6; life += 1) {
    const { workload } = await day.start({
      name: LOOPING,
      incarnation: String(life),
      node: 'node-1',
      more: { requestId: `loop-${life}` },
    })
    reality.end(workload)
    await day.passes(MINUTE)
  }
  await looksAround(day, 1)
  await looksAround(edge, 1)
  await samples(day, edge, { minutes: 0, times: 1 })
  return {
    storied: storied.map(({ lease }) => lease),
    releasedButLive: told.releasedButLive!,
    neverConfirmed: told.neverConfirmed!,
    takenBack: told.takenBack!,
  }
}

async function looksAround(scene: Scene, times: number): Promise<void> {
  await scene.cycles(times)
}

/** A sample is moved row by row, and must not come to lie on another that is still to be moved: no two moves are the same. */
let moved = 0

async function samples(
  day: Scene,
  edge: Scene,
  { minutes, times }: { readonly minutes: number; readonly times: number },
): Promise<void> {
  for (let n = 0; n < times; n += 1) {
    moved += 1
    for (const scene of [day, edge]) {
      if (minutes > 0) await scene.passes(minutes * MINUTE + moved)
      await scene.jobs('observe-pools')
    }
  }
}

const DAY = 24 * HOUR
/** As proofs write times: milliseconds, or as in JSON. Numbers of events of a later era have as many digits. */
const TIMES = /\b1\d{12}(?:\.\d+)?\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g

/**
 * What `past.ts` leaves where it was: times within evidence. They are moved to where their event is now, so that a person who reads a
 * proof finds its last time just before the reap. The log is no longer what was written; nothing that is compared with it has these.
 */
async function moveEvidence(database: { readonly adminUrl: string }): Promise<void> {
  await withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query<{ network: string; seq: number; at: number; evidence: string }>(
      'select network_id as network, seq, at, evidence::text as evidence from ipledger.event where evidence is not null',
    )
    const now = Date.now()
    const read = (text: string) => (text.includes('T') ? Date.parse(text) : Number(text))
    const isTime = (time: number) => Math.abs(time - now) < 2 * DAY
    const moved = rows.flatMap(({ network, seq, at, evidence }) => {
      const times = [...evidence.matchAll(TIMES)].map(([text]) => read(text)).filter(isTime)
      const by = Math.max(...times) - at
      if (times.length === 0 || by < MINUTE) return []
      const earlier = evidence.replaceAll(TIMES, (text) => {
        const time = read(text)
        if (!isTime(time)) return text
        return text.includes('T') ? new Date(time - by).toISOString() : String(time - by)
      })
      return [{ network, seq, evidence: earlier }]
    })
    await admin.query(
      `update ipledger.event e set evidence = m.evidence::jsonb
         from unnest($1::text[], $2::bigint[], $3::text[]) as m (network_id, seq, evidence)
        where e.network_id = m.network_id and e.seq = m.seq`,
      [
        moved.map(({ network }) => network),
        moved.map(({ seq }) => seq),
        moved.map(({ evidence }) => evidence),
      ],
    )
  })
}

/** A node nobody hears of any more. */
async function silent(): Promise<never> {
  return undefined as never
}

async function bounds(database: { readonly adminUrl: string }): Promise<Pick<DayOfLife, 'from' | 'to'>> {
  return withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query<{ first: Date; now: Date }>(
      'select min(at) as first, clock_timestamp() as now from ipledger.event',
    )
    const { first, now } = rows[0]!
    const from = new Date(Number(first) - MINUTE)
    if (Number(now) - Number(from) > 30 * HOUR) throw new Error('a day is longer than that')
    return { from, to: new Date(Number(now) + MINUTE) }
  })
}
