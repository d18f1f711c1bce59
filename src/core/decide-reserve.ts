/**
 * Reserve. In order: may this attachment reserve at all; what it holds already; whom it supersedes; then an address for
 * each claim that is not satisfied yet. A refused Reserve leaves nothing but the quarantine of addresses that its caller sees
 * live: the caller has nothing to clean up.
 */
import { coversNode, sourceStatus } from './attention.ts'
import {
  type Batch,
  blank,
  change,
  freshnessOf,
  isNodeFull,
  quarantine,
  quarantineQuotaReached,
  viewOf,
} from './batch.ts'
import type { Answer, Claim, Command, LeaseView } from './command.ts'
import {
  barred,
  closed,
  confirm,
  excluded,
  idOf,
  illegal,
  isPlacedFor,
  mayTouch,
  renew,
  stateMetadata,
  unplacedOf,
  wordOf,
} from './decide-lease.ts'
import type { AddressRecord } from './event.ts'
import {
  addressValue,
  blockAt,
  freedByHolder,
  type HeldRecord,
  type Image,
  isClosed,
  isFull,
  isHeld,
  isLive,
  leasesOfAttachment,
  leasesOfHolder,
  nextCooledAt,
  type PoolState,
  poolNamed,
  pushFree,
  readyAt,
  restedBy,
  sightingsOf,
  takeCandidate,
} from './image.ts'
import { describeOwner, holderKey, sameAttachment } from './owner.ts'
import { POLICY } from './policy.ts'
import { contains } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'

type Reserve = Command<'reserve'>

/** A claim with its pools, in order of preference. */
type OpenClaim = Claim & { readonly path: string; readonly poolStates: readonly PoolState[] }

export function decideReserve(batch: Batch, command: Reserve): Answer | Refusal {
  const { image, now } = batch
  const { owner, actor, node } = command
  const shut = barred(batch, 'RESERVE')
  if (shut !== null) return shut
  const claims = openClaims(image, command)
  if ('reason' in claims) return claims
  // Its Release or a newer life overtook it (4.2).
  if (isClosed(image, owner, node, now) && !batch.without.has('CLOSED_IS_REFUSED')) return closed(owner)
  const unplaced = unplacedOf(batch, actor, owner)
  if (unplaced !== null) return unplaced

  const own = leasesOfAttachment(image, owner).filter(
    (one) => one.state !== 'QUARANTINED' && isPlacedFor(batch, actor, one),
  )
  const satisfied = new Map<OpenClaim, HeldRecord>()
  for (const claim of claims) {
    const record = own.find(({ poolId }) => claim.poolStates.some(({ pool }) => pool.poolId === poolId))
    if (record === undefined || batch.without.has('RETRY_GETS_THE_SAME_LEASE')) continue
    const bad = mayHaveAgain(image, command, claim, record)
    if (bad !== null) return bad
    satisfied.set(claim, record)
  }
  const stopped = supersede(batch, command)
  if (stopped !== null) return stopped

  const skipped: string[] = []
  const leases: LeaseView[] = []
  for (const claim of claims) {
    const held = satisfied.get(claim)
    const record =
      held === undefined ? pick(batch, command, claim, skipped) : renewLease(batch, command, held)
    if ('reason' in record) return record
    leases.push(viewOf(image, record, held !== undefined))
  }
  return { leases }
}

/** What a refused Reserve leaves: the candidates that its caller sees live, which nobody should be offered again. */
export function quarantineSeen(batch: Batch, command: Reserve, addresses: readonly string[]): void {
  for (const address of addresses) {
    const block = blockAt(batch.image, address)
    if (block !== null && !isHeld(batch.image.records.get(address)))
      seenByCaller(batch, command, block.poolState, address)
  }
}

// Claims.

/** Finds the pools of each claim; without claims, the default pool of each family. */
function openClaims(image: Image, command: Reserve): readonly OpenClaim[] | Refusal {
  if (command.claims.length === 0) {
    const poolStates = defaultPools(image)
    if (poolStates.length === 0) return noDefault(image, 'claims')
    const claim = { pools: [], address: null, preferPrevious: false }
    return poolStates.map((poolState, index) => ({
      ...claim,
      path: `claims[${index}]`,
      poolStates: [poolState],
    }))
  }
  const open: OpenClaim[] = []
  for (const [index, claim] of command.claims.entries()) {
    const path = `claims[${index}]`
    const poolStates = poolsOf(image, claim, path)
    if ('reason' in poolStates) return poolStates
    const both = poolStates.find((poolState) => open.some((other) => other.poolStates.includes(poolState)))
    if (both !== undefined)
      return invalid(`${path}.pools`, `two claims may not share a pool, and another has ${both.pool.name}`)
    open.push({ ...claim, path, poolStates })
  }
  return open
}

/** Of each family the one that says so; else its only pool. */
function defaultPools(image: Image): readonly PoolState[] {
  return [4, 6].flatMap((family) => {
    const poolStates = image.poolsInOrder.filter(({ pool }) => pool.family === family)
    return poolStates.find(({ pool }) => pool.isDefault) ?? (poolStates.length === 1 ? poolStates : [])
  })
}

function noDefault(image: Image, field: string): Refusal {
  const names = defaultPools(image).map(({ pool }) => pool.name)
  const why = names.length === 0 ? 'no default pool' : `a default pool of each family (${names.join(', ')})`
  return invalid(field, `required: network ${image.name} has ${why}; name a pool`)
}

function poolsOf(image: Image, claim: Claim, path: string): readonly PoolState[] | Refusal {
  const found = new Set<PoolState>()
  for (const [index, name] of claim.pools.entries()) {
    const poolState = poolNamed(image, name)
    if (poolState === undefined) {
      const field = `${path}.pools[${index}]`
      const message = `${field}: there is no pool ${name} in network ${image.name}`
      return refusal('POOL_NOT_FOUND', message, { field, pool: name })
    }
    found.add(poolState)
  }
  if (claim.address === null) {
    const poolStates = found.size > 0 ? [...found] : defaultPools(image)
    return claim.pools.length === 0 && poolStates.length !== 1 ? noDefault(image, `${path}.pool`) : poolStates
  }
  const { address } = claim
  const block = blockAt(image, address)
  if (block === null || (found.size > 0 && !found.has(block.poolState))) {
    const where = [...found].map(({ pool }) => `${pool.name} (${pool.cidr})`).join(', ')
    return invalid(`${path}.address`, `${address} is not in ${where || `a pool of network ${image.name}`}`)
  }
  if (block.address === address) return [block.poolState, ...found]
  const { name, prefixLength } = block.poolState.pool
  const why = `leases of pool ${name} are /${prefixLength} blocks; did you mean ${block.address}?`
  return invalid(`${path}.address`, why)
}

// Supersession.

/**
 * Quarantines what other lives of the same (kind, name, interface) hold: nobody said that they are gone. Which one is newer
 * is decided by what is closed, never by comparing strings: whoever gets here is not closed, and closes what it overtakes.
 */
function supersede(batch: Batch, command: Reserve): Refusal | null {
  const { image } = batch
  const { owner, node, actor } = command
  if (batch.without.has('NEWER_LIFE_SUPERSEDES')) return null
  for (const record of leasesOfHolder(image, owner)) {
    const holder = record.owner!
    if (record.state === 'QUARANTINED' || sameAttachment(holder, owner)) continue
    if (!isPlacedFor(batch, actor, record)) continue
    const isElsewhere = record.node !== '' && node !== '' && record.node !== node
    if (holder.uid !== owner.uid && owner.kind !== 'pod' && isElsewhere) {
      const holds = `${describeOwner(holder)} holds ${record.address} on node ${record.node}`
      return illegal(image, record, `${holds}; release it first if it is gone`)
    }
    const bad = mayTouch(image, actor, record)
    if (bad !== null) return bad
    const why = `superseded by ${describeOwner(owner)}`
    quarantine(batch, command, 'supersede', record, { ...wordOf(actor), why })
  }
  return null
}

// What is held already.

function mayHaveAgain(image: Image, command: Reserve, claim: OpenClaim, record: HeldRecord): Refusal | null {
  const { owner, actor } = command
  if (record.owner!.name !== owner.name) {
    const why = 'two names with one uid are two workloads; give each its own uid'
    return illegal(image, record, `${record.address} is held by ${describeOwner(record.owner!)}: ${why}`)
  }
  const bad = mayTouch(image, actor, record)
  if (bad !== null || claim.address === null || claim.address === record.address) return bad
  const why = `${describeOwner(owner)} holds ${record.address} already; release it to have ${claim.address}`
  return illegal(image, record, `${claim.path}.address: ${why}`)
}

/** A retry changes nothing but a deadline, which moves out or goes, and where the workload is. */
function renewLease(batch: Batch, command: Reserve, record: HeldRecord): AddressRecord | Refusal {
  const { image, now } = batch
  const poolState = image.pools.get(record.poolId)!
  const node = command.node === '' ? record.node : command.node
  if (node !== record.node && isNodeFull(batch, poolState, node)) return nodeLimit(poolState, node)
  if (record.state === 'RESERVED' && command.confirmed)
    return confirm(batch, command, { ...record, node }, null)
  const within = command.confirmWithinMs ?? poolState.pool.confirmWithinMs
  const confirmBy =
    record.confirmBy === null || within === null ? null : Math.max(record.confirmBy, now + within)
  if (confirmBy === record.confirmBy && node === record.node) return renew(batch, command, record)
  return change(batch, command, 'renew', record, { confirmBy, node })
}

// A free address.

function pick(batch: Batch, command: Reserve, claim: OpenClaim, skipped: string[]): AddressRecord | Refusal {
  if (claim.address !== null) return pickNamed(batch, command, claim.poolStates[0]!, claim.address)
  let last: Refusal | undefined
  for (const poolState of claim.poolStates) {
    const refused = admission(batch, command, poolState)
    if (refused !== null && refused.reason !== 'POOL_DRAINING') return refused
    const picked = refused ?? pickFrom(batch, command, poolState, claim.preferPrevious, skipped)
    if (!('reason' in picked) || picked.reason === 'ALL_CANDIDATES_LIVE') return picked
    last = picked
  }
  return last!
}

/** What keeps this holder out of a pool, whatever its addresses: draining, liveness, the limits of its node and of itself. */
function admission(batch: Batch, command: Reserve, poolState: PoolState): Refusal | null {
  const { pool } = poolState
  if (pool.draining) {
    const message = `pool ${pool.name} is draining and hands out nothing new`
    return refusal('POOL_DRAINING', message, { pool: pool.name })
  }
  const isStrict = pool.liveness === 'STRICT' && !batch.without.has('STRICT_WANTS_FRESH_SOURCES')
  const stale = isStrict ? staleness(batch, command, pool.name) : null
  if (stale !== null) return stale
  if (isNodeFull(batch, poolState, command.node)) return nodeLimit(poolState, command.node)
  if (batch.without.has('OWNER_HAS_A_LIMIT')) return null
  const filling = leasesOfHolder(batch.image, command.owner).filter(
    (one) => one.poolId === pool.poolId && isPlacedFor(batch, command.actor, one),
  )
  if (filling.length < pool.ownerLimit) return null
  const ids = filling.slice(0, POLICY.listedBlockers).map((record) => idOf(batch.image, record))
  const { kind, name, interface: on } = command.owner
  return refusal(
    'OWNER_LIMIT',
    `${kind} ${name} (${on}) holds ${filling.length} leases in pool ${pool.name}, its limit is ${pool.ownerLimit}: ${ids.join(', ')}; end one by Release with confirmed removal, or by Reap`,
    { pool: pool.name, limit: String(pool.ownerLimit), leases: ids.join(',') },
  )
}

function nodeLimit({ pool: { name, nodeLimit: limit }, heldOn }: PoolState, node: string): Refusal {
  const message = `node ${node} holds ${heldOn.get(node)} leases in pool ${name}, spares and quarantines on its word included; its limit is ${limit}: release or reap some, or raise nodeLimit`
  return refusal('NODE_LIMIT', message, { pool: name, node, limit: String(limit) })
}

/** A STRICT pool hands out only while every source that covers the asking node has said lately what is live. */
function staleness(batch: Batch, { node }: Reserve, pool: string): Refusal | null {
  const { image, now } = batch
  const covering = [...image.sources.values()].filter(
    ({ state, declaration }) => state === 'ENABLED' && (node === '' || coversNode(declaration, node)),
  )
  const times = { era: image.network!.era, now }
  const silent = covering
    .filter((source) => sourceStatus(source, freshnessOf(batch, source.declaration.id), times) !== 'GOOD')
    .map(({ declaration }) => declaration.id)
  if (covering.length > 0 && silent.length === 0) return null
  const sources = silent.join(',')
  const why =
    silent.length === 0 ? 'no enabled source sees the node' : `${sources} has not reported completely`
  const message = `pool ${pool} is STRICT and ${why}; it hands out nothing`
  return refusal('LIVENESS_STALE', message, { pool, node, sources })
}

function pickNamed(
  batch: Batch,
  command: Reserve,
  poolState: PoolState,
  address: string,
): AddressRecord | Refusal {
  const { image, now } = batch
  const { pool } = poolState
  const metadata = { address, pool: pool.name }
  const quarantined = (why: string, more: Readonly<Record<string, string>>) =>
    refusal('ADDRESS_QUARANTINED', `${address} is ${why}`, { ...metadata, ...more })
  if (!contains(pool.allocatable, addressValue(address).value)) return excluded(address, pool)
  const record = image.records.get(address)
  if (isHeld(record) && record.state === 'QUARANTINED') {
    const { reason, by, at, why } = record.quarantine!
    const since = new Date(at).toISOString()
    return quarantined(`quarantined (${reason}) by ${by} since ${since}: ${why}`, {
      seenBy: by,
      since,
      quarantineReason: reason,
    })
  }
  if (isHeld(record)) {
    const message = `${address} is held by ${describeOwner(record.owner!)}`
    return refusal('ADDRESS_TAKEN', message, { ...metadata, ...stateMetadata(image, record) })
  }
  const barred = admission(batch, command, poolState)
  if (barred !== null) return barred
  if (!mayTake(batch, address, command)) {
    const ready = readyAt(image, address)!
    const until = new Date(ready).toISOString()
    const was = record?.availableAt === ready ? 'released recently' : 'listed as live until recently'
    const message = `${address} was ${was} and rests until ${until}`
    const waitMs = ready - now
    return refusal('ADDRESS_COOLING', message, { ...metadata, availableAt: until }, waitMs)
  }
  if (liveBlocks(batch, command)?.has(address)) {
    seenByCaller(batch, command, poolState, address)
    return quarantined('in your liveAddresses, so somebody uses it', { seenBy: command.actor.name })
  }
  const seen = seenForAnother(batch, command, address)
  if (seen !== undefined) {
    const whom = seen.owner === null ? '' : ` for ${describeOwner(seen.owner)}`
    const { source, appearedSeq } = seen
    return quarantined(`listed live by source ${source}${whom} since event ${appearedSeq}`, {
      seenBy: source,
      sinceSeq: String(appearedSeq),
    })
  }
  if (record === undefined && isFull(image)) return exhausted(batch, poolState)
  return reserve(batch, command, poolState, address)
}

function pickFrom(
  batch: Batch,
  command: Reserve,
  poolState: PoolState,
  preferPrevious: boolean,
  skipped: string[],
): AddressRecord | Refusal {
  const { image, now } = batch
  const { pool } = poolState
  const live = liveBlocks(batch, command)
  if (preferPrevious) {
    const previous = freedByHolder(image, command.owner).find(
      (one) =>
        one.poolId === pool.poolId &&
        isPlacedFor(batch, command.actor, one) &&
        mayTake(batch, one.address, command),
    )
    if (
      previous !== undefined &&
      contains(pool.allocatable, addressValue(previous.address).value) &&
      !live?.has(previous.address) &&
      seenForAnother(batch, command, previous.address) === undefined
    )
      return reserve(batch, command, poolState, previous.address)
  }
  const passed: string[] = []
  try {
    for (;;) {
      const address = takeCandidate(image, poolState, now)
      if (address === null) return exhausted(batch, poolState)
      if (!live?.has(address)) {
        // What its caller sees live counts against its node.
        if (!isNodeFull(batch, poolState, command.node)) return reserve(batch, command, poolState, address)
        passed.push(address)
        return nodeLimit(poolState, command.node)
      }
      skipped.push(address)
      if (!seenByCaller(batch, command, poolState, address)) passed.push(address)
      if (skipped.length < POLICY.skips) continue
      return refusal(
        'ALL_CANDIDATES_LIVE',
        `${skipped.length} free addresses in a row are in your liveAddresses; another allocator may use pool ${pool.name}`,
        { pool: pool.name, skips: String(skipped.length), skipped: skipped.join(',') },
      )
    }
  } finally {
    for (const address of passed) pushFree(image, poolState, address)
  }
}

function exhausted({ image, now }: Batch, poolState: PoolState): Refusal {
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

/** What the caller sees live, by lease: an address in use makes its whole block live. */
function liveBlocks({ image, without }: Batch, { liveAddresses }: Reserve): ReadonlySet<string> | null {
  if (liveAddresses.length === 0 || without.has('WHAT_CALLERS_SEE_IS_SKIPPED')) return null
  return new Set(liveAddresses.map((address) => blockAt(image, address)?.address ?? address))
}

/** It has rested; or goes back to its last holder, who said that it is removed, or to the attachment that was listed there. */
function mayTake(batch: Batch, address: string, { owner, actor }: Reserve): boolean {
  const { image, now, without } = batch
  const rested = restedBy(image, now)
  const isBarred = sightingsOf(image, address).some(
    (one) => (one.restsUntil ?? 0) > rested && (one.owner === null || !sameAttachment(one.owner, owner)),
  )
  if (isBarred) return false
  const record = image.records.get(address)
  if (record === undefined || without.has('ADDRESS_COOLS') || record.availableAt! <= rested) return true
  if (record.ended !== 'RELEASED' || record.owner === null || !isPlacedFor(batch, actor, record)) return false
  return holderKey(record.owner) === holderKey(owner)
}

/** Who lists a free address live, unless for the very attachment that asks (azure#1259). */
function seenForAnother({ image, without }: Batch, command: Reserve, address: string) {
  if (without.has('LISTED_IS_NEVER_HANDED_OUT')) return undefined
  return sightingsOf(image, address).find(
    (one) => isLive(one) && (one.owner === null || !sameAttachment(one.owner, command.owner)),
  )
}

/** Quarantines a candidate that the caller sees in use, unless too many are on that caller's word already. */
function seenByCaller(batch: Batch, command: Reserve, poolState: PoolState, address: string): boolean {
  const word = wordOf(command.actor)
  if (quarantineQuotaReached(batch, poolState, word)) return false
  const why = 'in the liveAddresses of a Reserve'
  quarantine(batch, command, 'listedForNobody', blank(batch, poolState, address), { ...word, why })
  return true
}

function reserve(batch: Batch, command: Reserve, poolState: PoolState, address: string): AddressRecord {
  const { now } = batch
  const within = command.confirmWithinMs ?? poolState.pool.confirmWithinMs
  const finding = command.confirmed ? 'reserveConfirmed' : 'reserve'
  return change(batch, command, finding, blank(batch, poolState, address), {
    owner: command.owner,
    node: command.node,
    labels: command.labels,
    confirmedAt: command.confirmed ? now : null,
    confirmBy: command.confirmed || within === null ? null : now + within,
  })
}
