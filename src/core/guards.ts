/**
 * The guards of Reserve, of taking back and of recovery: named values in ordered lists, and rules that are one condition of a
 * decision. Production has all of them (`GUARDS`). A test or the simulator takes some out (`guardsWithout`) and shows that
 * something fails then. The refusals that several commands share stand here, too.
 */
import {
  coversNode,
  isOfAnotherNode,
  type Present,
  type Recovery,
  sourceStatus,
  suspensionsOf,
  type Use,
} from './attention.ts'
import type { Actor, Command } from './command.ts'
import { type AddressRecord, leaseId, type Quarantine } from './event.ts'
import {
  addressValue,
  blockAt,
  evidenceAt,
  type HeldRecord,
  type Image,
  isClosed,
  isFull,
  isHeld,
  isListed,
  isLive,
  leasesOfAttachment,
  leasesOfHolder,
  type NetworkState,
  nextCooledAt,
  type PoolState,
  readyAt,
  restedBy,
  type Sighting,
  sightingsOf,
} from './image.ts'
import { JUDGE_RULES, type JudgeRule } from './judge.ts'
import { describeOwner, holderKey, type Owner, sameAttachment } from './owner.ts'
import { eraOf, POLICY } from './policy.ts'
import { contains } from './ranges.ts'
import { type Refusal, refusal } from './refusal.ts'

/** A Reserve that is being decided. */
export type Asking = Present & {
  readonly guards: Guards
  readonly command: Command<'reserve'>
  /** Leases that its caller sees live: an address in use makes its whole block live. */
  readonly live: ReadonlySet<string>
}

/** Names of rules, which may be taken out, are in capitals. */
type Named = { readonly name: Uppercase<string> | Lowercase<string> }
type ReserveGuard = Named & { readonly refuses: (asking: Asking) => Refusal | null }
/** Guards of a pool take no address. */
export type AddressGuard = Named & {
  readonly refuses: (asking: Asking, poolState: PoolState, address: string) => Refusal | null
}
type LeaseGuard = Named & { readonly keeps: (image: Image, record: HeldRecord) => boolean }
type RecoveryGuard = Named & { readonly keeps: (recovery: Recovery, network: NetworkState) => boolean }

type Lists = Readonly<Record<'pool' | 'named' | 'previous' | 'candidate', readonly AddressGuard[]>> &
  Readonly<Record<'suspect' | 'expire', readonly LeaseGuard[]>> & {
    readonly reserve: readonly ReserveGuard[]
    readonly reap: readonly JudgeRule[]
    readonly recovery: readonly RecoveryGuard[]
  }

const NODE_LIMIT = {
  name: 'node limit',
  refuses(asking, poolState) {
    const { node } = asking.command.settings
    return isNodeFull(asking, poolState, node) ? nodeLimit(poolState, node) : null
  },
} as const satisfies AddressGuard

/** Of a pool, whichever of its addresses is wanted. */
const POOL = [
  {
    name: 'closed network',
    refuses: ({ image: { name, network } }) =>
      network!.closed
        ? refusal('NETWORK_CLOSED', `network ${name} is closed and hands out nothing new`, { network: name })
        : null,
  },
  {
    name: 'draining',
    refuses: (_, { pool: { draining, name } }) =>
      draining
        ? refusal('POOL_DRAINING', `pool ${name} is draining and hands out nothing new`, { pool: name })
        : null,
  },
  {
    name: 'STRICT_WANTS_FRESH_SOURCES',
    refuses: (asking, { pool }) => (pool.liveness === 'STRICT' ? staleness(asking, pool.name) : null),
  },
  NODE_LIMIT,
  { name: 'OWNER_HAS_A_LIMIT', refuses: ownerLimit },
] as const satisfies readonly AddressGuard[]

export const SEEN_BY_CALLER = {
  name: 'WHAT_CALLERS_SEE_IS_SKIPPED',
  refuses: ({ live, command }, { pool }, address) =>
    live.has(address)
      ? quarantined(address, pool.name, 'in your liveAddresses, so somebody uses it', {
          seenBy: command.actor.name,
        })
      : null,
} as const satisfies AddressGuard

/** Of a free address. */
const FREE = [
  {
    // It goes back at once to the attachment that was listed there.
    name: 'rests',
    refuses: ({ image, now, command: { owner } }, { pool }, address) => {
      const rested = restedBy(image, now)
      const isKept = (one: Sighting) => (one.restsUntil ?? 0) > rested && !isOfAttachment(one, owner)
      return sightingsOf(image, address).some(isKept) ? cooling(image, now, pool.name, address) : null
    },
  },
  {
    // It goes back at once to its last holder, if that released it.
    name: 'ADDRESS_COOLS',
    refuses: ({ image, now, guards, command: { owner, actor } }, { pool }, address) => {
      const record = image.records.get(address)
      if (record === undefined || record.availableAt! <= restedBy(image, now)) return null
      const isBack =
        record.ended === 'RELEASED' &&
        record.owner !== null &&
        isPlacedFor(guards, actor, record) &&
        holderKey(record.owner) === holderKey(owner)
      return isBack ? null : cooling(image, now, pool.name, address)
    },
  },
  SEEN_BY_CALLER,
  {
    // Unless for the very attachment that asks (azure#1259).
    name: 'LISTED_IS_NEVER_HANDED_OUT',
    refuses: ({ image, command: { owner } }, { pool }, address) => {
      const seen = sightingsOf(image, address).find((one) => isLive(one) && !isOfAttachment(one, owner))
      if (seen === undefined) return null
      const { source, appearedSeq } = seen
      const owned = seen.owner === null ? '' : ` for ${describeOwner(seen.owner)}`
      const why = `listed live by source ${source}${owned} since event ${appearedSeq}`
      return quarantined(address, pool.name, why, { seenBy: source, sinceSeq: String(appearedSeq) })
    },
  },
  {
    name: 'full',
    refuses: ({ image, now }, poolState, address) =>
      isFull(image) && !image.records.has(address) ? exhausted(image, now, poolState) : null,
  },
] as const satisfies readonly AddressGuard[]

const TAKEN = [
  {
    name: 'excluded',
    refuses: (_, { pool }, address) =>
      contains(pool.allocatable, addressValue(address).value) ? null : excluded(address, pool.name),
  },
  { name: 'held', refuses: held },
] as const satisfies readonly AddressGuard[]

const LISTS = {
  /** Of the caller, before anything is looked for. */
  reserve: [
    { name: 'suspended', refuses: (asking) => suspended(asking, 'RESERVE') },
    {
      // Its Release or a newer life overtook it (4.2).
      name: 'CLOSED_IS_REFUSED',
      refuses: ({ image, now, command: { owner, settings } }) =>
        isClosed(image, owner, settings.node, now) ? closed(owner) : null,
    },
    { name: 'unplaced', refuses: ({ image, command: { actor, owner } }) => unplacedOf(image, actor, owner) },
  ],
  pool: POOL,
  /** Of an address that the caller names. */
  named: [...TAKEN, ...POOL, ...FREE],
  /** Of an address that its last holder prefers. */
  previous: [...TAKEN, ...FREE],
  /** Of the next free address of a pool: the queues of free addresses have none that the other guards refuse. */
  candidate: [SEEN_BY_CALLER, NODE_LIMIT],
  reap: JUDGE_RULES,
  /** What the image alone says of a lease, so that most are not judged: the rule of the same name of `JUDGE_RULES`. */
  suspect: [{ name: 'DOUBT_IS_LIFE', keeps: (image, { address }) => isListed(image, address) }],
  /** Of a promise that is never broken. */
  expire: [
    {
      // Promised in a log that may have lost its Confirm: only proof of absence ends it (12.4).
      name: 'NEW_ERA_RECOVERS',
      keeps: (image, { token }) => eraOf(token) < image.network!.era,
    },
    { name: 'SEEN_NEVER_EXPIRES', keeps: (image, { address }) => evidenceAt(image, address).length > 0 },
  ],
  /** What keeps a recovery open when a report has been counted. */
  recovery: [
    { name: 'unreported', keeps: ({ unreported }) => unreported.length > 0 },
    { name: 'CLOCK_HOLD_KEEPS_RECOVERY', keeps: (_, { holds }) => holds.CLOCK !== undefined },
    {
      name: 'UNKNOWN_SOURCE_KEEPS_RECOVERY_OPEN',
      keeps: ({ unknown, needsOperator }) => unknown.length > 0 || needsOperator,
    },
  ],
} as const satisfies Lists

/** Rules that are one condition of a decision. */
const CONDITIONS = {
  NEW_ERA_RECOVERS: true,
  NODE_HAS_A_LIMIT: true,
  ONE_REPORTER_FILLS_NO_POOL: true,
  ONE_NODE_TOUCHES_ITS_OWN: true,
  VERSION_IS_JUDGED_AGAIN: true,
  REQUEST_IS_REMEMBERED: true,
  RETRY_GETS_THE_SAME_LEASE: true,
  PROMISE_RENEWS_THE_AGE: true,
  NEWER_LIFE_SUPERSEDES: true,
  UNCONFIRMED_REMOVAL_IS_KEPT: true,
  GRACE_AFTER_THE_DEADLINE: true,
  CONTESTED_IS_KEPT: true,
  UNLISTED_RESTS: true,
  POOL_KEEPS_WHAT_IS_HELD: true,
  ONLY_COUNTED_REPORTS_DECIDE: true,
  OLDER_LISTS_ONLY_PROTECT: true,
  LISTED_IS_LOOKED_AT_AGAIN: true,
  NUMBER_BEYOND_NEEDS_A_PROOF: true,
  OTHER_OWNER_IS_A_CONFLICT: true,
  RELEASED_BUT_LIVE_IS_KEPT: true,
  SPARE_IS_ADOPTED: true,
  MANY_REAPS_HOLD: true,
  NODE_THAT_REPORTS_STAYS: true,
  NODE_ELSEWHERE_KEEPS: true,
}

export type Guards = Readonly<Record<keyof typeof CONDITIONS, boolean>> & Lists

export const GUARDS: Guards = { ...LISTS, ...CONDITIONS }

type ListedName = (typeof LISTS)[keyof typeof LISTS][number]['name']
export type RuleName = keyof typeof CONDITIONS | Extract<ListedName, Uppercase<string>>

/** The rules: each is needed, as test/core and the simulator show. */
const LISTED: readonly Named[] = Object.values(LISTS).flat()
const NAMES = new Set([...Object.keys(CONDITIONS), ...LISTED.map(({ name }) => name)])
export const RULES = [...NAMES].filter((name) => name === name.toUpperCase()) as readonly RuleName[]

export function guardsWithout(names: Iterable<RuleName>): Guards {
  const out: ReadonlySet<string> = new Set(names)
  const kept = Object.entries(GUARDS).map(([key, value]) => [
    key,
    Array.isArray(value) ? value.filter(({ name }: Named) => !out.has(name)) : !out.has(key),
  ])
  return Object.fromEntries(kept)
}

type Under = Pick<Asking, 'image' | 'guards'>

function isOfAttachment(sighting: Sighting, owner: Owner): boolean {
  return sighting.owner !== null && sameAttachment(sighting.owner, owner)
}

/**
 * A caller or source has quarantined as many addresses as it may (opnsense#10285: one client drained a /24), or its node holds
 * as many of the pool as it may.
 */
export function quarantineQuotaReached(
  under: Under,
  poolState: PoolState,
  { by, node }: Pick<Quarantine, 'by' | 'node'>,
): boolean {
  if (!under.guards.ONE_REPORTER_FILLS_NO_POOL) return false
  const quarantines = under.image.quarantinedBy.get(by) ?? 0
  return quarantines >= POLICY.quarantinesPerCaller || isNodeFull(under, poolState, node)
}

export function isNodeFull(
  { guards }: Pick<Under, 'guards'>,
  { pool, heldOn }: PoolState,
  node: string,
): boolean {
  if (pool.nodeLimit === undefined || node === '' || !guards.NODE_HAS_A_LIMIT) return false
  return (heldOn.get(node) ?? 0) >= pool.nodeLimit
}

/**
 * For a caller that is bound to a node, a lease on another node is only a taken address. It is not the caller's own, it is no
 * older life of it, and it does not count in its limits.
 */
export function isPlacedFor(guards: Guards, { node }: Actor, record: AddressRecord): boolean {
  return node === null || record.node === node || !guards.ONE_NODE_TOUCHES_ITS_OWN
}

export function isElsewhere({ image, guards }: Under, sighting: Sighting, record: AddressRecord): boolean {
  return guards.ONE_NODE_TOUCHES_ITS_OWN && isOfAnotherNode(image, sighting, record)
}

/** A lease of the very same attachment on no node can only be of a caller that is bound to none: it is not the agent's to have. */
export function unplacedOf(image: Image, actor: Actor, owner: Owner): Refusal | null {
  if (actor.node === null) return null
  const found = leasesOfAttachment(image, owner).find((one) => one.node === '' && one.state !== 'QUARANTINED')
  return found === undefined ? null : mayTouch(image, actor, found)
}

/** An agent acts on leases of its own node only: the orchestrator moves workloads. */
export function mayTouch(image: Image, { node }: Actor, record: AddressRecord): Refusal | null {
  if (node === null || record.node === node) return null
  if (!isHeld(record)) return leaseLost(image, record, '')
  const message = `this token is bound to node ${node}, lease ${idOf(image, record)} is on another`
  return refusal('PERMISSION_DENIED', message, { node })
}

// Refusals.

export function suspended(
  { image, now, guards }: Under & { readonly now: number },
  use: Use,
): Refusal | null {
  const found = suspensionsOf(image, now, use).find(({ code }) => code === 'HELD' || guards.NEW_ERA_RECOVERS)
  if (found === undefined) return null
  const state = found.code === 'HELD' ? 'HELD' : 'RECOVERING'
  const metadata = { network: image.name, state, era: String(image.network!.era) }
  return refusal('NETWORK_RECOVERING', found.text, metadata, found.retryAfterMs)
}

function ownerLimit({ image, guards, command: { owner, actor } }: Asking, { pool }: PoolState) {
  const filling = leasesOfHolder(image, owner).filter(
    (one) => one.poolId === pool.poolId && isPlacedFor(guards, actor, one),
  )
  if (filling.length < pool.ownerLimit) return null
  const ids = filling.slice(0, POLICY.listedBlockers).map((record) => idOf(image, record))
  const { kind, name, interface: on } = owner
  return refusal(
    'OWNER_LIMIT',
    `${kind} ${name} (${on}) holds ${filling.length} leases in pool ${pool.name}, its limit is ${pool.ownerLimit}: ${ids.join(', ')}; end one by Release with confirmed removal, or by Reap`,
    { pool: pool.name, limit: String(pool.ownerLimit), leases: ids.join(',') },
  )
}

export function nodeLimit({ pool: { name, nodeLimit: limit }, heldOn }: PoolState, node: string): Refusal {
  const message = `node ${node} holds ${heldOn.get(node)} leases in pool ${name}, spares and quarantines on its word included; its limit is ${limit}: release or reap some, or raise nodeLimit`
  return refusal('NODE_LIMIT', message, { pool: name, node, limit: String(limit) })
}

/** A STRICT pool hands out only while every source that covers the caller's node has reported completely. */
function staleness({ image, now, freshness, command }: Asking, pool: string): Refusal | null {
  const { node } = command.settings
  const covering = [...image.sources.values()].filter(
    ({ state, declaration }) => state === 'ENABLED' && (node === '' || coversNode(declaration, node)),
  )
  const times = { era: image.network!.era, now }
  const silent = covering
    .filter((source) => sourceStatus(source, freshness(source.declaration.id), times) !== 'GOOD')
    .map(({ declaration }) => declaration.id)
  if (covering.length > 0 && silent.length === 0) return null
  const sources = silent.join(',')
  const why =
    silent.length === 0 ? 'no enabled source sees the node' : `${sources} has not reported completely`
  const message = `pool ${pool} is STRICT and ${why}; it hands out nothing`
  return refusal('LIVENESS_STALE', message, { pool, node, sources })
}

function held({ image }: Asking, { pool }: PoolState, address: string): Refusal | null {
  const record = image.records.get(address)
  if (!isHeld(record)) return null
  if (record.state !== 'QUARANTINED') {
    const message = `${address} is held by ${describeOwner(record.owner!)}`
    return refusal('ADDRESS_TAKEN', message, { pool: pool.name, ...stateMetadata(image, record) })
  }
  const { reason, by, at, why } = record.quarantine!
  const since = new Date(at).toISOString()
  const message = `quarantined (${reason}) by ${by} since ${since}: ${why}`
  return quarantined(address, pool.name, message, { seenBy: by, since, quarantineReason: reason })
}

function quarantined(address: string, pool: string, why: string, metadata: Readonly<Record<string, string>>) {
  return refusal('ADDRESS_QUARANTINED', `${address} is ${why}`, { address, pool, ...metadata })
}

function cooling(image: Image, now: number, pool: string, address: string): Refusal {
  const ready = readyAt(image, address)!
  const availableAt = new Date(ready).toISOString()
  const isReleased = image.records.get(address)?.availableAt === ready
  const was = isReleased ? 'released recently' : 'listed as live until recently'
  const message = `${address} was ${was} and rests until ${availableAt}`
  return refusal('ADDRESS_COOLING', message, { address, pool, availableAt }, ready - now)
}

export function exhausted(image: Image, now: number, poolState: PoolState): Refusal {
  const { name } = poolState.pool
  const next = nextCooledAt(image, poolState)
  const cooling = next === null ? 0 : poolState.counts.FREE
  const bound = `network ${image.name} has ${image.records.size} touched addresses, and IPLEDGER_IMAGE_ADDRESSES allows no more`
  const why = isFull(image) ? `has no free address that was touched, and ${bound}` : 'has no free address'
  const listed = listedFree(image, poolState)
  const message = [
    `pool ${name} ${why}`,
    ...(cooling > 0 ? [`${cooling} are cooling`] : []),
    ...(listed.length > 0 ? [`free ones are listed live by ${listed.join(', ')}: see ListSightings`] : []),
  ].join('; ')
  const metadata = { pool: name, cooling: String(cooling), listedBy: listed.join(',') }
  if (next === null) return refusal('POOL_EXHAUSTED', message, metadata)
  const nextAvailableAt = new Date(next).toISOString()
  return refusal('POOL_EXHAUSTED', message, { ...metadata, nextAvailableAt }, next - now)
}

const MOST_LOOKED_AT = 1_000

/** Sources that list free addresses of a pool, which keeps these from being handed out. */
function listedFree(image: Image, { pool }: PoolState): readonly string[] {
  const sources = new Set<string>()
  for (const [block, sightings] of image.sightings.entries().take(MOST_LOOKED_AT)) {
    if (isHeld(image.records.get(block)) || blockAt(image, block)?.poolState.pool !== pool) continue
    for (const one of sightings) if (isLive(one)) sources.add(one.source)
  }
  return [...sources].slice(0, 3)
}

export function closed(owner: Owner): Refusal {
  const who = describeOwner(owner)
  const why = 'this incarnation was released or superseded; a call that was overtaken by it holds nothing'
  return refusal('ATTACHMENT_CLOSED', `${who}: ${why}`, { owner: who })
}

export function excluded(address: string, pool: string): Refusal {
  const message = `${address} is excluded from pool ${pool} and never handed out`
  return refusal('ADDRESS_EXCLUDED', message, { address, pool })
}

export function leaseLost(image: Image, record: AddressRecord, remedy: string): Refusal {
  const id = idOf(image, record)
  return refusal('LEASE_LOST', `lease ${id} has ended${remedy}`, {
    leaseId: id,
    address: record.address,
    state: record.ended!,
    endedAt: new Date(record.at).toISOString(),
  })
}

export function illegal(
  image: Image,
  record: AddressRecord,
  message: string,
  retryAfterMs?: number,
): Refusal {
  return refusal('ILLEGAL_STATE', message, stateMetadata(image, record), retryAfterMs)
}

export function idOf(image: Image, record: AddressRecord): string {
  return leaseId(image.name, record.token)
}

function stateMetadata(image: Image, record: AddressRecord): Record<string, string> {
  return {
    leaseId: idOf(image, record),
    address: record.address,
    state: record.ended ?? record.state,
    ...(record.state === 'QUARANTINED' && { quarantineReason: record.quarantine!.reason }),
    ...(record.owner !== null && { holder: describeOwner(record.owner) }),
  }
}
