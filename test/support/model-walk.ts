/**
 * Random commands for one network, and the walk that asks a system all of them and holds each answer against the
 * model's. The system may be the core in memory or the service on PostgreSQL. Pools are small, so that they run
 * full, cool and are recycled; picks are plain numbers, so that a failing walk shrinks.
 */
import fc from 'fast-check'
import { expect } from 'vitest'
import type {
  Actor,
  Answer,
  Claim,
  Command,
  Confirm,
  CreatePool,
  DeletePool,
  Expire,
  LeaseReference,
  LeaseView,
  QuarantineAddress,
  Reap,
  Release,
  Reserve,
  Sight,
  SightedEntry,
  UpdateLabels,
  UpdatePool,
} from '../../src/core/command.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import { judgeHeld, type LeaseEvidence, type Proof, type WitnessEvidence } from '../../src/core/judge.ts'
import type { Lease } from '../../src/core/lease.ts'
import type { Owner } from '../../src/core/owner.ts'
import { judgePolicy } from '../../src/core/policy.ts'
import type { Refusal } from '../../src/core/refusal.ts'
import {
  createModel,
  type Expectation,
  type ExpectedLease,
  holderOf,
  type Model,
  type ModelLease,
  type ReportHow,
} from './model.ts'

const ADMIN: Actor = { name: 'admin', node: null }
const ACTORS: readonly Actor[] = [
  ADMIN,
  ADMIN,
  ADMIN,
  ADMIN,
  ADMIN,
  ADMIN,
  { name: 'n1', node: 'n1' },
  { name: 'n2', node: 'n2' },
]
const NODES = ['', 'n1', 'n2'] as const
const BOOTS = ['', 'b1', 'b1', 'b2'] as const

const OWNERS: readonly Owner[] = [
  ...['', '1', '2', '3'].map((incarnation) => ownerOf('pod', 'web', 'web', incarnation)),
  ...['1', '2', '3'].map((incarnation) => ownerOf('pod', 'api', 'u1', incarnation)),
  ...['1', '2'].map((incarnation) => ownerOf('pod', 'api', 'u2', incarnation)),
  ...['', '1', '2'].map((incarnation) => ownerOf('vm', 'db', 'u1', incarnation)),
  ...['', '1'].map((incarnation) => ownerOf('vm', 'db', 'u2', incarnation)),
  { ...ownerOf('pod', 'web', 'web', '1'), interface: 'eth1' },
  ownerOf('container', 'job', 'job', '1'),
  ownerOf('container', 'other', 'other', '1'),
]

function ownerOf(kind: string, name: string, uid: string, incarnation: string): Owner {
  return { kind, name, uid, uidNamed: uid !== name, incarnation, interface: 'eth0' }
}

/** Where pools may be: each with ranges that overlap each other, so that pools grow, shrink and collide. */
const PLACES = [
  {
    name: 'a',
    cidrs: [
      '10.0.0.0/29',
      '10.0.0.0/28',
      '10.0.0.0/26',
      '10.0.0.8/29',
      '10.0.0.4/30',
      '10.0.0.2/31',
      '10.0.0.1/32',
    ],
    prefixLengths: [32],
    subnets: ['', '10.0.0.0/24'],
    gateways: ['', '10.0.0.1', '10.0.0.5'],
    excludes: [[], ['10.0.0.3'], ['10.0.0.2', '10.0.0.5-10.0.0.6']],
  },
  {
    name: 'b',
    cidrs: ['10.0.0.64/27', '10.0.0.64/28', '10.0.0.64/26', '10.0.0.96/27'],
    prefixLengths: [28, 29, 30],
    subnets: [''],
    gateways: ['', '10.0.0.66'],
    excludes: [[], ['10.0.0.70'], ['10.0.0.100-10.0.0.110']],
  },
  {
    name: 'c',
    cidrs: ['fd00::/126', 'fd00::/125', 'fd00::4/126', 'fd00::2/127', 'fd00::5/128'],
    prefixLengths: [128],
    subnets: ['', 'fd00::/112'],
    gateways: ['', 'fd00::1'],
    excludes: [[], ['fd00::3'], ['fd00::2-fd00::4']],
  },
] as const

const n = fc.nat({ max: 9_999 })
const rarely = fc.integer({ min: 0, max: 9 }).map((roll) => roll === 9)

const envelopeOf = fc.record({ actor: n, request: n })
/** Lists of these lengths, in these proportions. */
function listOf<T>(of: fc.Arbitrary<T>, weights: readonly number[]): fc.Arbitrary<T[]> {
  return fc.oneof(
    ...weights.map((weight, length) => ({
      weight,
      arbitrary: fc.array(of, { minLength: length, maxLength: length }),
    })),
  )
}

const wish = fc.record({
  pools: listOf(n, [1, 8, 3]),
  address: fc.option(n, { freq: 2 }),
  previous: fc.boolean(),
})
const reserveStep = fc.record({
  do: fc.constant('reserve' as const),
  envelope: envelopeOf,
  owner: n,
  node: n,
  wishes: listOf(wish, [1, 8, 2]),
  live: fc.oneof(
    { weight: 6, arbitrary: fc.constant(null) },
    { weight: 2, arbitrary: fc.array(n, { maxLength: 12, size: 'max' }) },
    { weight: 1, arbitrary: fc.constant('everything' as const) },
  ),
  confirmed: rarely,
  within: fc.option(n, { freq: 2 }),
  supersedes: fc.option(fc.record({ whom: n, parts: n, removed: fc.boolean() }), { freq: 2 }),
  reopen: rarely,
  dry: rarely,
})
const leaseStep = fc.record({
  do: fc.constantFrom('confirm' as const, 'release' as const, 'release' as const),
  envelope: envelopeOf,
  lease: n,
  how: n,
  removed: fc.integer({ min: 0, max: 3 }).map((roll) => roll > 0),
})
const operatorStep = fc.record({
  do: fc.constantFrom('quarantine' as const, 'reap' as const, 'expire' as const, 'updateLabels' as const),
  envelope: envelopeOf,
  lease: n,
  how: n,
})
const poolStep = fc.record({
  do: fc.constantFrom(
    'createPool' as const,
    'updatePool' as const,
    'updatePool' as const,
    'deletePool' as const,
  ),
  envelope: envelopeOf,
  pool: n,
  picks: fc.array(n, { minLength: 9, maxLength: 9 }),
  fields: n,
})
const waitStep = fc.record({ do: fc.constant('wait' as const), ms: n })
const manyStep = fc.record({
  do: fc.constant('allOrNothing' as const),
  envelope: envelopeOf,
  items: fc.array(fc.oneof(reserveStep, leaseStep), { minLength: 1, maxLength: 3 }),
})

/** An address, whose it is as far as that is told, and where. */
const seenEntry = fc.record({ address: n, owner: n, told: n, node: n, state: n })
const reportStep = fc.record({
  do: fc.constant('report' as const),
  source: n,
  keeps: fc.boolean(),
  entries: fc.array(seenEntry, { maxLength: 3 }),
  how: n,
})
const sightStep = fc.record({
  do: fc.constant('sight' as const),
  envelope: envelopeOf,
  source: n,
  late: rarely,
  dry: rarely,
})
const proofStep = fc.record({
  do: fc.constantFrom('reapProven' as const, 'reapProven' as const, 'restore' as const),
  envelope: envelopeOf,
  lease: n,
  sources: n,
  how: n,
  age: n,
})
const statementStep = fc.record({
  do: fc.constantFrom('resumeHold' as const, 'fenceNode' as const),
  envelope: envelopeOf,
  source: n,
})

type ReserveStep = typeof reserveStep extends fc.Arbitrary<infer T> ? T : never
type LeaseStep = typeof leaseStep extends fc.Arbitrary<infer T> ? T : never
type OperatorStep = typeof operatorStep extends fc.Arbitrary<infer T> ? T : never
type PoolStep = typeof poolStep extends fc.Arbitrary<infer T> ? T : never
type ManyStep = typeof manyStep extends fc.Arbitrary<infer T> ? T : never
type WaitStep = typeof waitStep extends fc.Arbitrary<infer T> ? T : never
type ReportStep = typeof reportStep extends fc.Arbitrary<infer T> ? T : never
type SightStep = typeof sightStep extends fc.Arbitrary<infer T> ? T : never
type ProofStep = typeof proofStep extends fc.Arbitrary<infer T> ? T : never
type StatementStep = typeof statementStep extends fc.Arbitrary<infer T> ? T : never
type FindingStep = SightStep | ProofStep | StatementStep
type Step = (
  | ReserveStep
  | LeaseStep
  | OperatorStep
  | PoolStep
  | ManyStep
  | WaitStep
  | ReportStep
  | FindingStep
) & {
  /** Goes into the batch of the step before, if both may. */
  readonly joins: boolean
}

export type Script = { readonly pools: readonly (readonly number[])[]; readonly steps: readonly Step[] }

/**
 * A network of one to three pools and what is asked of it. Plain numbers, so that a failing script shrinks. With
 * `findings`, sources report as well: only for systems that can be told what they see.
 */
export function modelScripts(length: {
  readonly min: number
  readonly max: number
  readonly findings?: boolean
}): fc.Arbitrary<Script> {
  const findings =
    length.findings === true
      ? [
          { weight: 6, arbitrary: reportStep },
          { weight: 5, arbitrary: sightStep },
          { weight: 7, arbitrary: proofStep },
          { weight: 1, arbitrary: statementStep },
        ]
      : []
  const step = fc.oneof(
    { weight: 10, arbitrary: reserveStep },
    { weight: 7, arbitrary: leaseStep },
    { weight: 3, arbitrary: operatorStep },
    { weight: 2, arbitrary: poolStep },
    { weight: 2, arbitrary: manyStep },
    { weight: 4, arbitrary: waitStep },
    ...findings,
  )
  return fc.record({
    pools: fc.array(fc.array(n, { minLength: 9, maxLength: 9 }), { minLength: 1, maxLength: 3 }),
    steps: fc.array(
      fc.tuple(step, fc.boolean()).map(([one, joins]): Step => ({ ...one, joins })),
      { minLength: length.min, maxLength: length.max, size: 'max' },
    ),
  })
}

/**
 * `jumps`: time is the test's, and deadlines, cooldowns and horizons are met and passed. `still`: time is the
 * system's own; nothing the model says depends on how much of it passes in less than two minutes.
 */
export type Time = 'jumps' | 'still'

const WAITS = [1, 999, 1_000, 29_999, 30_001, 60_000, 60_001, 120_000, 150_001, 3_600_000]
const LONG_MS = 30 * 24 * 3_600_000

type Asked = {
  readonly model: Model
  readonly time: Time
  count: number
  readonly now: () => number
  /** What was sighted last by each source: a job may be paused and come late with it. */
  readonly sighted: Map<string, Sight>
}

function at<T>(list: readonly T[], pick: number): T {
  return list[pick % list.length]!
}

function cooldownOf(asked: Asked, pick: number): number {
  return asked.time === 'still' ? at([0, LONG_MS], pick) : at([0, 1_000, 120_000, 120_000], pick)
}

function withinOf(asked: Asked, pick: number | null): number | null {
  if (pick === null) return null
  // Of one's own time nothing is known to the millisecond: each deadline is earlier than the one before.
  return asked.time === 'still' ? LONG_MS - 3_600_000 * asked.count : at([30_000, 60_000, 3_600_000], pick)
}

/** The command a step stands for, given what the model holds. */
function commandOf(asked: Asked, step: Exclude<Step, WaitStep | ReportStep>): Command {
  asked.count += 1
  switch (step.do) {
    case 'reserve':
      return reserveOf(asked, step)
    case 'confirm':
    case 'release':
      return leaseCommandOf(asked, step)
    case 'quarantine':
    case 'reap':
    case 'expire':
    case 'updateLabels':
      return operatorCommandOf(asked, step)
    case 'createPool':
    case 'updatePool':
    case 'deletePool':
      return poolCommandOf(asked, step)
    case 'allOrNothing': {
      const items = step.items.map((item) => {
        const made =
          item.do === 'reserve' ? reserveOf(asked, { ...item, dry: false }) : leaseCommandOf(asked, item)
        return { ...made, requestId: null, fingerprint: null }
      })
      return { ...stamp(step.envelope, items), type: 'allOrNothing', items }
    }
    case 'sight':
      return sightOf(asked, step)
    case 'reapProven':
    case 'restore':
      return provenOf(asked, step)
    case 'resumeHold': {
      const source = at([null, ...SOURCES.map(({ id }) => id)], step.source)
      return { ...plain(step.envelope), type: 'resumeHold', source, why: 'model' }
    }
    case 'fenceNode': {
      const node = at(['n1', 'n2', 'n1', 'n2', ''], step.source)
      return { ...plain(step.envelope), type: 'fenceNode', node, boot: 'b1', head: null, why: 'model' }
    }
  }
}

// What sources see.

const SOURCES = [
  { id: 'agent-n1', state: 'ENABLED', node: 'n1', intervalMs: 30_000 },
  { id: 'docker', state: 'ENABLED', node: '', intervalMs: 60_000 },
  { id: 'new', state: 'REGISTERED', node: '', intervalMs: 30_000 },
] as const

function plain(envelope: ReserveStep['envelope']) {
  return { ...stamp(envelope, null), actor: ADMIN, requestId: null, fingerprint: null }
}

/** Exactly, or without life and interface, or by name alone, or not at all. */
function told(owner: Owner, pick: number): Owner | null {
  switch (pick % 8) {
    case 0:
      return null
    case 1:
      return { ...owner, uid: owner.name, uidNamed: false }
    case 2:
    case 3:
      return { ...owner, uidNamed: true, incarnation: '', interface: '' }
    default:
      return { ...owner, uidNamed: true }
  }
}

function reportOf(
  { model }: Asked,
  step: ReportStep,
): { readonly id: string; readonly entries: readonly SightedEntry[]; readonly how: ReportHow } {
  const source = at(SOURCES, step.source)
  const addresses = everyAddress(model)
  const fresh = step.entries.map((pick): SightedEntry => {
    // Mostly where somebody is; now and then inside a block, on an exclusion, or nowhere.
    const held = [...model.state.leases.values()]
    const lease = pick.address % 3 === 0 && held.length > 0 ? at(held, pick.address) : null
    const odd = ['10.0.0.0', '10.0.0.66', '10.0.0.77', '10.9.0.1', 'fd00::3', 'fd00::ff']
    const address =
      lease?.address ??
      (pick.address % 10 === 9 || addresses.length === 0
        ? at(odd, Math.floor(pick.address / 10))
        : at(addresses, Math.floor(pick.address / 10)))
    const owner = pick.owner % 2 === 0 ? (lease?.owner ?? at(OWNERS, pick.owner)) : at(OWNERS, pick.owner)
    return {
      address,
      owner: told(owner, pick.told),
      node: at(['n1', 'n2', 'n1', ''], pick.node),
      boot: at(['b1', 'b1', 'b2', ''], pick.node),
      state: pick.state % 10 === 9 ? 'terminal' : 'running',
    }
  })
  const kept = step.keeps ? model.listed(source.id) : []
  const unique = new Map([...kept, ...fresh].map((one) => [JSON.stringify(one), one]))
  return {
    id: source.id,
    entries: [...unique.values()],
    how: {
      complete: step.how % 5 !== 0,
      proven: step.how % 10 !== 0,
      epoch: step.how % 23 === 22 ? 'b2' : model.sources.find(({ id }) => id === source.id)!.epoch,
    },
  }
}

function sightOf(asked: Asked, step: SightStep): Sight {
  const { id } = at(SOURCES, step.source)
  const late = asked.sighted.get(id)
  if (step.late && late !== undefined) return late
  const command: Sight = {
    ...plain(step.envelope),
    type: 'sight',
    source: id,
    epoch: asked.model.sources.find((one) => one.id === id)!.epoch,
    sequence: asked.count,
    begunAt: 0,
    dryRun: step.dry,
    entries: asked.model.listed(id),
  }
  asked.sighted.set(id, command)
  return command
}

/** A proof by the judge on evidence that proves it, of a lease in whatever state: what is asked is the second look. */
function provenOf(asked: Asked, step: ProofStep): Command {
  const { model } = asked
  const { token, lease } = suspectFor(model, step)
  const base = plain(step.envelope)
  if (lease === null) return { ...base, type: 'resumeHold', source: null, why: 'nothing is proven' }
  const version = lease.version - (step.how % 17 === 0 ? 1 : 0)
  const proof = proofOf(asked, step, lease, version)
  return { ...base, type: step.do, token, version, proof }
}

/** Mostly a lease that the proof may be right about. */
function suspectFor(model: Model, step: ProofStep): ReturnType<typeof tokenFor> {
  const held = [...model.state.leases.values()]
  const restorable = ['CONFLICT', 'SECOND_ADDRESS', 'RELEASED_BUT_LIVE']
  const fitting =
    step.do === 'restore'
      ? held.filter((one) => restorable.includes(one.reason ?? ''))
      : held.filter((one) => model.lastSeenAt(one.address) === null || step.how % 4 === 0)
  if (step.lease % 5 === 4 || fitting.length === 0) return tokenFor(model, step.lease)
  const lease = at(fitting, Math.floor(step.lease / 5))
  return { token: lease.token, lease }
}

const HOUR_MS = 3_600_000

function proofOf({ model, now }: Asked, step: ProofStep, held: ModelLease, version: number): Proof {
  const at0 = now() - at([0, 0, 1_000, 59_999, 60_000, 60_001], step.age)
  const alone = step.do === 'restore'
  const old = at0 - 2 * HOUR_MS
  const lease: Lease = {
    network: 'default',
    poolId: held.poolId,
    address: held.address,
    prefixLength: 32,
    fencingToken: held.token,
    version,
    state: alone ? 'QUARANTINED' : 'ACTIVE',
    quarantine: alone ? { reason: 'CONFLICT', at: old, by: 'model', why: 'model' } : null,
    owner: held.owner ?? OWNERS[0]!,
    placement: { node: 'n1', boot: 'b1', labels: {} },
    witness: '',
    reservedAt: old,
    confirmedAt: null,
    confirmBy: null,
  }
  const fence = model.state.fences.findLast((one) => one.node === 'n1' && one.boot === 'b1')
  const fenced = !alone && step.how % 2 === 0 && fence !== undefined && fence.seq >= held.token
  const names = at([['agent-n1'], ['docker'], ['agent-n1', 'docker'], ['new'], ['docker']], step.sources)
  const witnesses = fenced ? [] : names.map((source) => witnessOf(model, source, lease, alone, at0, step.how))
  const known = model.lastSeenAt(held.address)
  const evidence: LeaseEvidence = {
    lease,
    now: at0,
    era: 0,
    recovering: false,
    // Now and then it knows nothing of the last sighting.
    lastSightedAt: fenced || alone || step.how % 11 === 0 || known === null ? null : Math.min(known, old),
    othersSightedAt: null,
    imported: false,
    ownerClosed: false,
    fencedBy: fenced ? { node: 'n1', boot: 'b1', head: fence.seq, by: 'model', why: 'model', at: at0 } : null,
    witnesses,
    placements: [],
  }
  const verdict = judgeHeld(evidence, judgePolicy())
  if (verdict.verdict !== 'reap' && verdict.verdict !== 'restore')
    throw new Error(`the evidence proves nothing: ${verdict.because.map(({ code }) => code).join(', ')}`)
  // Misses were begun after any sighting; what the proof says of the last one is what the second look goes by.
  return { ...verdict.proof, lastSightedAt: evidence.lastSightedAt }
}

function witnessOf(
  model: Model,
  source: string,
  lease: Lease,
  alone: boolean,
  now: number,
  how: number,
): WitnessEvidence {
  const snapshots = [80_000, 50_000, 20_000].map((age, index) => ({
    sequence: index + 1,
    head: lease.version,
    begunAt: now - age,
  }))
  return {
    source,
    scopeNode: '',
    enabled: true,
    epoch: how % 13 === 0 ? 'b0' : model.sources.find(({ id }) => id === source)!.epoch,
    warm: true,
    era: 0,
    held: false,
    canSee: true,
    seesStopped: true,
    answersForMs: 60_000,
    enabledHead: 0,
    why: 'SIGHTED',
    about: lease.owner,
    live: alone ? { state: 'running', node: 'n1', since: now - HOUR_MS, incarnation: '' } : null,
    listedTerminal: null,
    vanishedAt: alone ? null : now - 80_000,
    seen: alone ? snapshots : [],
    misses: alone ? [] : snapshots,
    lookup: alone ? null : { answer: 'gone', at: now, detail: 'model' },
    bootEnded: null,
  }
}

/** Who asks, and now and then under a request id, which stands for this content alone. */
function stamp(picks: { readonly actor: number; readonly request: number }, content: unknown) {
  const once = picks.request % 6 === 0
  return {
    network: 'default',
    actor: at(ACTORS, picks.actor),
    cause: 'model',
    requestId: once ? `r${Math.floor(picks.request / 6) % 8}` : null,
    fingerprint: once ? JSON.stringify(content) : null,
    traceId: null,
  }
}

function everyAddress(model: Model): readonly string[] {
  return model.state.pools.flatMap((pool) => model.leasable(pool))
}

function reserveOf(asked: Asked, step: ReserveStep): Reserve {
  const { model } = asked
  const owner = at(OWNERS, step.owner)
  const { pools } = model.state
  const addresses = everyAddress(model)
  const claims = step.wishes.map((one): Claim => {
    const names = one.pools.map((pick) =>
      pick % 50 === 49 || pools.length === 0 ? 'nowhere' : at(pools, pick).name,
    )
    const address =
      one.address === null || addresses.length === 0 ? null : addressFor(model, names, one.address)
    return { pools: names, address, preferPrevious: one.previous }
  })
  const holders = [...model.state.leases.values()].filter((one) => one.owner?.name === owner.name)
  const whom =
    step.supersedes === null || holders.length === 0 ? null : at(holders, step.supersedes.whom).owner
  const supersedes =
    step.supersedes === null || whom === null || whom === undefined
      ? null
      : {
          uid: step.supersedes.parts % 3 === 0 ? null : whom.uid,
          incarnation: step.supersedes.parts % 3 === 1 ? null : whom.incarnation,
          removalConfirmed: step.supersedes.removed,
        }
  const content = {
    owner,
    placement: { node: at(NODES, step.node), boot: at(BOOTS, Math.floor(step.node / 7)), labels: {} },
    claims,
    liveAddresses: liveOf(addresses, step.live),
    confirmWithinMs: withinOf(asked, step.within),
    confirmed: step.confirmed,
    supersedes,
    reopen: step.reopen,
    witness: '',
    validateOnly: step.dry,
  }
  return { ...stamp(step.envelope, content), type: 'reserve', ...content }
}

function liveOf(addresses: readonly string[], picks: ReserveStep['live']): readonly string[] {
  if (picks === null || addresses.length === 0) return []
  return picks === 'everything' ? addresses : [...new Set(picks.map((pick) => at(addresses, pick)))]
}

/** Mostly an address of the claim's pools; now and then one that is excluded, inside a block, or elsewhere. */
function addressFor(model: Model, names: readonly string[], pick: number): string {
  const own = names.flatMap((name) => {
    const pool = model.poolNamed(name)
    return pool === undefined ? [] : model.leasable(pool)
  })
  const odd = ['10.0.0.0', '10.0.0.1', '10.0.0.3', '10.0.0.66', '10.0.0.255', 'fd00::', 'fd00::3', 'fd00::9']
  if (pick % 10 === 9) return at(odd, Math.floor(pick / 10))
  return at(own.length > 0 ? own : everyAddress(model), Math.floor(pick / 10))
}

/** A lease that is held, or that ended, or that never was. */
function tokenFor(model: Model, pick: number): { readonly token: number; readonly lease: ModelLease | null } {
  const held = [...model.state.leases.values()]
  const ended = [...model.state.ended.values()].slice(-5).map((one) => one.lease)
  const roll = pick % 20
  if (roll === 19) return { token: 1, lease: null }
  const list = (roll < 14 && held.length > 0) || ended.length === 0 ? held : ended
  if (list.length === 0) return { token: 99_999, lease: null }
  const lease = at(list, Math.floor(pick / 20))
  return { token: lease.token, lease }
}

function leaseCommandOf(asked: Asked, step: LeaseStep): Confirm | Release {
  const { token, lease } = tokenFor(asked.model, step.lease)
  const owner = lease?.owner ?? at(OWNERS, step.lease)
  const reference: LeaseReference =
    step.how % 3 === 0
      ? { token: null, owner }
      : { token, owner: step.how % 5 === 0 ? at(OWNERS, step.how) : step.how % 2 === 0 ? owner : null }
  const base = stamp(step.envelope, [step.do, reference, step.removed])
  return step.do === 'confirm'
    ? { ...base, type: 'confirm', lease: reference }
    : { ...base, type: 'release', lease: reference, removalConfirmed: step.removed }
}

function operatorCommandOf(
  asked: Asked,
  step: OperatorStep,
): QuarantineAddress | Reap | Expire | UpdateLabels {
  const { token, lease } = tokenFor(asked.model, step.lease)
  const version = (lease?.version ?? 1) - (step.how % 8 === 0 ? 1 : 0)
  const base = stamp(step.envelope, [step.do, token, step.how])
  switch (step.do) {
    case 'quarantine': {
      const target = step.how % 2 === 0 ? { token } : { address: addressFor(asked.model, [], step.lease) }
      const known = everyAddress(asked.model).length > 0
      return { ...base, type: 'quarantine', target: known ? target : { token }, why: 'model' }
    }
    case 'reap':
      return { ...base, type: 'reap', token, version, why: 'model' }
    case 'expire': {
      const due = [...asked.model.state.leases.values()].filter((one) => one.confirmBy !== null)
      const one = due.length === 0 ? null : at(due, step.lease)
      return { ...base, type: 'expire', token: one?.token ?? token, version: one?.version ?? version }
    }
    case 'updateLabels':
      return {
        ...base,
        type: 'updateLabels',
        token,
        version: step.how % 3 === 0 ? version : null,
        labels: step.how % 2 === 0 ? { a: String(step.how % 3) } : {},
      }
  }
}

function createPoolOf(asked: Asked, picks: readonly number[], base: ReturnType<typeof stamp>): CreatePool {
  const place = at(PLACES, picks[0]!)
  const subnet: string = at(place.subnets, picks[1]!)
  const gateway: string = at(place.gateways, picks[2]!)
  return {
    ...base,
    type: 'createPool',
    pool: {
      name: picks[3]! % 5 === 0 ? `${place.name}2` : place.name,
      cidr: at(place.cidrs, picks[4]!),
      prefixLength: at<number>(place.prefixLengths, picks[5]!),
      exclude: at<readonly string[]>(place.excludes, picks[6]!),
      cooldownMs: cooldownOf(asked, picks[7]!),
      ownerLimit: at([1, 2, 4, 4], picks[8]!),
      isDefault: picks[8]! % 7 === 0,
      liveness: picks[7]! % 23 === 22 ? 'STRICT' : 'AVAILABLE',
      ...(subnet === '' ? {} : { subnet }),
      ...(gateway === '' ? {} : { gateway }),
      ...(asked.time === 'jumps' && picks[2]! % 5 === 0 ? { confirmWithinMs: 30_000 } : {}),
      ...(picks[2]! % 3 === 0 ? { reapPolicy: { confirmGraceMs: 1_000 } } : {}),
    },
  }
}

function poolCommandOf(asked: Asked, step: PoolStep): CreatePool | UpdatePool | DeletePool {
  const base = { ...stamp(step.envelope, null), actor: ADMIN, requestId: null, fingerprint: null }
  const { pools } = asked.model.state
  if (step.do === 'createPool' || pools.length === 0) return createPoolOf(asked, step.picks, base)
  const pool = at(pools, step.pool)
  const version = step.fields % 11 === 0 ? pool.version - 1 : step.fields % 3 === 0 ? pool.version : null
  if (step.do === 'deletePool') return { ...base, type: 'deletePool', name: pool.name, version }
  const place = PLACES.find((one) => pool.name.startsWith(one.name))!
  const changes: UpdatePool['change'][] = [
    { cidr: at<string>(place.cidrs, step.picks[0]!) },
    { cidr: at<string>(place.cidrs, step.picks[0]!), exclude: [], gateway: null },
    { exclude: at<readonly string[]>(place.excludes, step.picks[1]!) },
    { gateway: at<string>(place.gateways, step.picks[2]!) },
    { draining: step.picks[3]! % 2 === 0 },
    { draining: false, liveness: 'AVAILABLE' },
    { ownerLimit: at([1, 2, 4], step.picks[4]!) },
    { cooldownMs: cooldownOf(asked, step.picks[5]!) },
    { name: step.picks[6]! % 2 === 0 ? place.name : `${place.name}2` },
    { isDefault: step.picks[7]! % 2 === 0 },
    { reapPolicy: step.picks[3]! % 2 === 0 ? null : { confirmGraceMs: 30_000 } },
    {},
  ]
  return { ...base, type: 'updatePool', name: pool.name, version, change: at(changes, step.fields) }
}

// The walk.

export type Observed = {
  readonly answer: Answer | null
  readonly refusal: Refusal | null
  /** What was appended, as `describeEvent` says it; null where the system does not tell. */
  readonly events: readonly string[] | null
}

/** What is asked: commands that go in together, in this order, and at most one that changes the network's shape. */
export type System = {
  submit(commands: readonly Command[]): Promise<readonly Observed[]>
  /** What the system's clock says, in milliseconds. */
  now(): number
  /** Present where time is the test's. */
  wait?(ms: number): void
  /** Present where the system can be told what sources see. */
  readonly world?: {
    register(source: (typeof SOURCES)[number]): void
    report(id: string, entries: readonly SightedEntry[], how: ReportHow): void
  }
}

/** Asks the system everything of a script and holds each answer against the model's; returns the model. */
export async function follow(
  system: System,
  script: Script,
  options: { readonly time: Time; readonly each?: (model: Model) => void | Promise<void> },
): Promise<Model> {
  const model = createModel()
  const asked: Asked = {
    model,
    time: options.time,
    count: 0,
    now: () => system.now(),
    sighted: new Map(),
  }
  let batch: { readonly command: Command; readonly expected: Expectation }[] = []

  const ask = (command: Command) => {
    batch.push({ command, expected: model.apply(command, system.now()) })
  }
  const flush = async () => {
    if (batch.length === 0) return
    const asking = batch
    batch = []
    const observed = await system.submit(asking.map(({ command }) => command))
    expect(observed).toHaveLength(asking.length)
    for (const [index, { command, expected }] of asking.entries()) hold(command, expected, observed[index]!)
    await options.each?.(model)
  }

  if (system.world !== undefined) {
    for (const source of SOURCES) {
      model.register({ ...source, epoch: 'b1', complete: null })
      system.world.register(source)
    }
  }

  const base = stamp({ actor: 0, request: 1 }, null)
  ask({ ...base, type: 'createNetwork', settings: { description: '', labels: {} } })
  await flush()
  for (const picks of script.pools) {
    ask(createPoolOf(asked, picks, base))
    await flush()
  }
  let shaped = true
  for (const step of script.steps) {
    if (step.do === 'wait') {
      await flush()
      system.wait?.(at(WAITS, step.ms))
      continue
    }
    if (step.do === 'report') {
      await flush()
      const { id, entries, how } = reportOf(asked, step)
      model.report(id, entries, how, system.now())
      system.world?.report(id, entries, how)
      continue
    }
    const shape = step.do === 'createPool' || step.do === 'updatePool' || step.do === 'deletePool'
    if (!step.joins || shape || shaped) await flush()
    shaped = shape
    ask(commandOf(asked, step))
  }
  await flush()
  return model
}

function hold(command: Command, expectation: Expectation, observed: Observed): void {
  const what = JSON.stringify(command)
  if (!expectation.ok) {
    expect(observed.refusal?.reason ?? 'accepted', what).toBe(expectation.reason)
  } else {
    expect(observed.refusal?.message ?? 'accepted', what).toBe('accepted')
    const answer = observed.answer!
    expect(answer.leases.map(shown), what).toEqual(expectation.leases.map(comparable))
    expect(answer.items?.map((item) => item.leases.map(shown)) ?? null, what).toEqual(
      expectation.items?.map((item) => item.map(comparable)) ?? null,
    )
  }
  if (observed.events !== null) expect(observed.events, what).toEqual(expectation.events)
}

function comparable(lease: ExpectedLease) {
  const { address, token, version, shown: state, reason, owner, confirmBy, reused } = lease
  return { address, token, version, state, reason, owner, deadline: confirmBy !== null, reused }
}

function shown(lease: LeaseView) {
  const { address, fencingToken, version, state, quarantine, owner, confirmBy, reused } = lease
  const reason = quarantine?.reason ?? null
  return { address, token: fencingToken, version, state, reason, owner, deadline: confirmBy !== null, reused }
}

/** Between two holders of an address its pool's cooldown lies, unless it went back to the one that removed it (INV-11). */
export function auditReuse(events: readonly LedgerEvent[]): void {
  const free = new Map<
    string,
    { readonly availableAt: number; readonly removed: boolean; readonly holder: string }
  >()
  const held = new Map<string, number>()
  for (const event of events) {
    if ('ended' in event) {
      const { lease, availableAt, removalConfirmed } = event.ended
      expect(held.get(lease.address), `${event.seq}: the lease that ends is the one that is held`).toBe(
        lease.fencingToken,
      )
      held.delete(lease.address)
      free.set(lease.address, {
        availableAt,
        removed: removalConfirmed,
        holder: lease.owner === null ? '' : holderOf(lease.owner),
      })
    } else if ('lease' in event) {
      const { address, fencingToken, owner } = event.lease
      const holder = held.get(address)
      if (holder !== undefined) expect(fencingToken, `${event.seq}: one holder at a time`).toBe(holder)
      else expect(fencingToken, `${event.seq}: a new token`).toBe(event.seq)
      held.set(address, fencingToken)
      const rest = free.get(address)
      if (event.type !== 'lease.reserved' || rest === undefined || event.at >= rest.availableAt) continue
      expect(
        rest.removed && rest.holder === holderOf(owner!),
        `${event.seq}: ${address} has not cooled`,
      ).toBe(true)
    }
  }
}
