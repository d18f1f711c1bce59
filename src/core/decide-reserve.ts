/**
 * Reserve. In order: may this attachment reserve at all; what it holds already; whom it supersedes; then an address for
 * each claim that is not met yet. A refused Reserve leaves nothing but the quarantine of addresses that its caller sees
 * live: the caller has nothing to clean up (M-10, INV-15).
 */
import { blockBase, formatValue, isBlockBase, isMalformed, parseAddress } from './address.ts'
import { type Batch, blank, emit, emitLease, freshnessOf, isWordSpent, viewOf } from './batch.ts'
import type { Answer, Claim, Command, LeaseView } from './command.ts'
import { closed, illegal, mayTouch, notOpen, renew, stateMetadata } from './decide-lease.ts'
import type { AddressRecord } from './event.ts'
import { leaseId } from './event.ts'
import {
  addressValue,
  freedByHolder,
  giveBack,
  type HeldRecord,
  isClosed,
  isHeld,
  isLive,
  leasesOfAttachment,
  leasesOfHolder,
  nextCooledAt,
  type PoolState,
  poolAt,
  poolNamed,
  restedBy,
  sightingsOf,
  takeCandidate,
} from './image.ts'
import { coversNode, isFresh } from './judge.ts'
import { describeOwner, holderKey, sameAttachment } from './owner.ts'
import { POLICY } from './policy.ts'
import { isSingle } from './pool.ts'
import { contains } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'

type OpenClaim = {
  readonly path: string
  readonly claim: Claim
  readonly places: readonly PoolState[]
  /** The address asked for, canonical, and its pool. */
  readonly named: { readonly address: string; readonly place: PoolState } | null
}

type Skipped = { readonly address: string; readonly place: PoolState }

export function decideReserve(batch: Batch, command: Command<'reserve'>): Answer | Refusal {
  const { image, now } = batch
  const { owner } = command
  const shut = notOpen(batch, 'handed out')
  if (shut !== null) return shut
  const claims = openClaims(batch, command)
  if ('reason' in claims) return claims
  // Its Release or a newer life overtook it (4.2).
  if (isClosed(image, owner, now) && !batch.without.has('CLOSED_IS_REFUSED')) return closed(owner)

  const own = leasesOfAttachment(image, owner)
  const met = new Map<OpenClaim, HeldRecord>()
  for (const open of claims) {
    const record = own.find(
      (one) => one.state !== 'QUARANTINED' && open.places.some(({ pool }) => pool.poolId === one.poolId),
    )
    if (record === undefined || batch.without.has('RETRY_GETS_THE_SAME_LEASE')) continue
    if (record.owner!.name !== owner.name) {
      return illegal(
        batch,
        record,
        `${record.address} is held by ${describeOwner(record.owner!)}: two names with one uid are two workloads; give each its own uid`,
      )
    }
    const bad = mayTouch(batch, command.actor, record)
    if (bad !== null) return bad
    if (open.named !== null && open.named.address !== record.address) {
      return illegal(
        batch,
        record,
        `${open.path}.address: ${describeOwner(owner)} holds ${record.address} already; release it to have ${open.named.address}`,
      )
    }
    met.set(open, record)
  }
  const stopped = supersede(batch, command, met.size < claims.length)
  if (stopped !== null) return stopped

  const skipped: Skipped[] = []
  const leases: LeaseView[] = []
  for (const open of claims) {
    const held = met.get(open)
    if (held !== undefined) {
      leases.push(viewOf(image, again(batch, command, held), true))
      continue
    }
    const picked = pick(batch, command, open, skipped)
    if ('reason' in picked) return picked
    leases.push(viewOf(image, picked))
  }
  return { leases }
}

/** What a refused Reserve leaves: the candidates that its caller sees live, which nobody should be offered again. */
export function quarantineSeen(
  batch: Batch,
  command: Command<'reserve'>,
  addresses: readonly string[],
): void {
  for (const address of addresses) {
    const place = poolAt(batch.image, addressValue(address))
    if (place !== null && !isHeld(batch.image.records.get(address)))
      seenByCaller(batch, command, place, address)
  }
}

// Claims.

/** Finds the pools of each claim; without claims, the one default pool of each family. */
function openClaims({ image }: Batch, command: Command<'reserve'>): readonly OpenClaim[] | Refusal {
  if (command.claims.length === 0) {
    const open: OpenClaim[] = []
    for (const family of [4, 6] as const) {
      const places = defaultPools(image, family)
      const names = places.map(({ pool }) => pool.name).join(', ')
      if (places.length > 1)
        return invalid('claims', `required: IPv${family} has several default pools (${names})`)
      const claim = { pools: [names], address: null, preferPrevious: false }
      if (places.length === 1) open.push({ path: `claims[${open.length}]`, claim, places, named: null })
    }
    if (open.length === 0)
      return invalid('claims', `required: network ${image.name} has no default pool; name a pool`)
    return open
  }
  const open: OpenClaim[] = []
  const claimedBy = new Map<PoolState, number>()
  for (const [index, claim] of command.claims.entries()) {
    const path = `claims[${index}]`
    const places = poolsOf(image, claim, path)
    if ('reason' in places) return places
    for (const place of places) {
      const other = claimedBy.get(place)
      if (other !== undefined && other !== index) {
        return invalid(
          `${path}.pools`,
          `pool ${place.pool.name} is in claims[${other}] already; two claims may not share a pool`,
        )
      }
      claimedBy.set(place, index)
    }
    const named = claim.address === null ? null : namedIn(places, claim.address, path)
    if (named !== null && 'reason' in named) return named
    open.push({ path, claim, places, named })
  }
  return open
}

/** Those that say so; else the only pool of the family. */
function defaultPools(image: Batch['image'], family: 4 | 6): readonly PoolState[] {
  const places = image.poolsInOrder.filter(({ pool }) => pool.family === family)
  const marked = places.filter(({ pool }) => pool.isDefault)
  return marked.length > 0 ? marked : places.length === 1 ? places : []
}

function poolsOf(image: Batch['image'], claim: Claim, path: string): readonly PoolState[] | Refusal {
  if (claim.pools.length > 0) {
    const found = new Set<PoolState>()
    for (const [index, name] of claim.pools.entries()) {
      const place = poolNamed(image, name)
      if (place === undefined) {
        const field = `${path}.pools[${index}]`
        return refusal('POOL_NOT_FOUND', `${field}: there is no pool ${name} in network ${image.name}`, {
          field,
          pool: name,
        })
      }
      found.add(place)
    }
    return [...found]
  }
  if (claim.address !== null) {
    const parsed = parseAddress(claim.address)
    if (isMalformed(parsed)) return invalid(`${path}.address`, parsed.malformed)
    const place = poolAt(image, parsed)
    return place === null
      ? invalid(`${path}.address`, `${claim.address} is in no pool of network ${image.name}`)
      : [place]
  }
  const places = [...defaultPools(image, 4), ...defaultPools(image, 6)]
  if (places.length === 1) return places
  const names = places.map(({ pool }) => pool.name).join(', ')
  return invalid(
    `${path}.pool`,
    places.length === 0
      ? `required: network ${image.name} has no default pool`
      : `required: there are several default pools (${names})`,
  )
}

function namedIn(
  places: readonly PoolState[],
  text: string,
  path: string,
): NonNullable<OpenClaim['named']> | Refusal {
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) return invalid(`${path}.address`, parsed.malformed)
  const { family, value } = parsed
  const place = places.find(
    ({ pool }) => pool.family === family && pool.range.first <= value && value <= pool.range.last,
  )
  if (place === undefined) {
    const names = places.map(({ pool }) => `${pool.name} (${pool.cidr})`).join(', ')
    return invalid(`${path}.address`, `${text} is not in ${names}`)
  }
  const { pool } = place
  if (!isBlockBase(family, value, pool.prefixLength)) {
    const base = formatValue(family, blockBase(family, value, pool.prefixLength))
    return invalid(
      `${path}.address`,
      `leases of pool ${pool.name} are /${pool.prefixLength} blocks; did you mean ${base}?`,
    )
  }
  return { address: formatValue(family, value), place }
}

// Supersession.

/**
 * Quarantines what other lives of the same (kind, name, interface) hold: nobody said that they are gone. Which one is newer
 * is decided by what is closed, never by comparing strings: whoever gets here is not closed, and closes what it overtakes.
 */
function supersede(batch: Batch, command: Command<'reserve'>, takes: boolean): Refusal | null {
  const { image, now } = batch
  const { owner, node } = command
  if (batch.without.has('NEWER_LIFE_SUPERSEDES')) return null
  for (const record of leasesOfHolder(image, owner)) {
    const holder = record.owner!
    if (sameAttachment(holder, owner)) continue
    if (record.state === 'QUARANTINED') {
      if (takes && owner.incarnation !== '' && holder.incarnation !== '' && !isClosed(image, holder, now))
        emit(batch, command, { type: 'attachment.closed', owner: holder })
      continue
    }
    if (owner.incarnation === '' && holder.incarnation !== '') {
      return illegal(
        batch,
        record,
        `${describeOwner(holder)} holds ${record.address}; a Reserve without an incarnation cannot tell whether it is newer`,
      )
    }
    const isElsewhere = record.node !== '' && node !== '' && record.node !== node
    if (holder.uid !== owner.uid && owner.kind !== 'pod' && isElsewhere) {
      return illegal(
        batch,
        record,
        `${describeOwner(holder)} holds ${record.address} on node ${record.node}; release it first if it is gone`,
      )
    }
    const bad = mayTouch(batch, command.actor, record)
    if (bad !== null) return bad
    emitLease(batch, command, 'lease.quarantined', record, {
      state: 'QUARANTINED',
      confirmBy: null,
      quarantine: {
        reason: 'SUPERSEDED',
        at: now,
        by: command.actor.name,
        why: `superseded by ${describeOwner(owner)}`,
      },
    })
  }
  return null
}

// What is held already.

/** A retry changes nothing but a deadline, which moves out or goes, and where the workload is. */
function again(batch: Batch, command: Command<'reserve'>, record: HeldRecord): AddressRecord {
  const { now } = batch
  if (record.state === 'RESERVED' && command.confirmed) {
    return emitLease(batch, command, 'lease.confirmed', record, {
      state: 'ACTIVE',
      confirmedAt: record.confirmedAt ?? now,
      confirmBy: null,
      node: command.node === '' ? record.node : command.node,
    })
  }
  const within = command.confirmWithinMs ?? batch.image.pools.get(record.poolId)!.pool.confirmWithinMs
  const confirmBy =
    record.confirmBy === null || within === null ? null : Math.max(record.confirmBy, now + within)
  const node = command.node === '' ? record.node : command.node
  if (confirmBy === record.confirmBy && node === record.node) return renew(batch, command, record)
  return emitLease(batch, command, 'lease.updated', record, { confirmBy, node })
}

// A free address.

function pick(
  batch: Batch,
  command: Command<'reserve'>,
  open: OpenClaim,
  skipped: Skipped[],
): AddressRecord | Refusal {
  if (open.named !== null) return pickNamed(batch, command, open.named)
  let last: Refusal | undefined
  for (const place of open.places) {
    const refused = bars(batch, command, place)
    if (refused !== null && refused.reason !== 'POOL_DRAINING') return refused
    const picked = refused ?? pickFrom(batch, command, place, open.claim.preferPrevious, skipped)
    if (!('reason' in picked) || picked.reason === 'ALL_CANDIDATES_LIVE') return picked
    // Of a draining pool and an exhausted one, the exhausted one says more about when to come back.
    if (last === undefined || picked.reason === 'POOL_EXHAUSTED') last = picked
  }
  return last!
}

/** What keeps this holder out of a pool, whatever its addresses: draining, liveness, the owner limit. */
function bars(batch: Batch, command: Command<'reserve'>, { pool }: PoolState): Refusal | null {
  if (pool.draining) {
    return refusal('POOL_DRAINING', `pool ${pool.name} is draining and hands out nothing new`, {
      pool: pool.name,
    })
  }
  if (pool.liveness === 'STRICT') {
    const stale = staleness(batch, command, pool.name)
    if (stale !== null) return stale
  }
  if (batch.without.has('OWNER_HAS_A_LIMIT')) return null
  const filling = leasesOfHolder(batch.image, command.owner).filter(({ poolId }) => poolId === pool.poolId)
  if (filling.length < pool.ownerLimit) return null
  const ids = filling.slice(0, POLICY.listedBlockers).map(({ token }) => leaseId(batch.image.name, token))
  const { kind, name, interface: on } = command.owner
  return refusal(
    'OWNER_LIMIT',
    `${kind} ${name} (${on}) holds ${filling.length} leases in pool ${pool.name}, its limit is ${pool.ownerLimit}: ${ids.join(', ')}; end one by Release with confirmed removal, or by Reap`,
    { pool: pool.name, limit: String(pool.ownerLimit), leases: ids.join(',') },
  )
}

/** A STRICT pool hands out only while every source that covers the asking node has said lately what is live (M-14). */
function staleness(batch: Batch, { node }: Command<'reserve'>, pool: string): Refusal | null {
  const { image, now } = batch
  const covering = [...image.sources.values()].filter(
    ({ state, declaration }) => state === 'ENABLED' && (node === '' || coversNode(declaration, node)),
  )
  const silent = covering
    .filter((source) => !isFresh(source, freshnessOf(batch, source.declaration.id), image.network!.era, now))
    .map(({ declaration }) => declaration.id)
  if (covering.length > 0 && silent.length === 0) return null
  const why =
    covering.length === 0
      ? `no enabled source sees ${node === '' ? 'this network' : `node ${node}`}`
      : `${silent.join(', ')} has not reported completely lately`
  return refusal('LIVENESS_STALE', `pool ${pool} is STRICT and ${why}; it hands out nothing`, {
    pool,
    node,
    sources: silent.join(','),
  })
}

function pickNamed(
  batch: Batch,
  command: Command<'reserve'>,
  { address, place }: NonNullable<OpenClaim['named']>,
) {
  const { image, now } = batch
  const { pool } = place
  const metadata = { address, pool: pool.name }
  if (!contains(pool.allocatable, addressValue(address).value)) {
    return refusal(
      'ADDRESS_EXCLUDED',
      `${address} is excluded from pool ${pool.name} and never handed out`,
      metadata,
    )
  }
  const record = image.records.get(address)
  if (isHeld(record) && record.state === 'QUARANTINED') {
    const { reason, by, why } = record.quarantine!
    return refusal('ADDRESS_QUARANTINED', `${address} is quarantined (${reason}) by ${by}: ${why}`, {
      ...metadata,
      quarantineReason: reason,
      seenBy: by,
    })
  }
  if (isHeld(record)) {
    const holder = describeOwner(record.owner!)
    return refusal('ADDRESS_TAKEN', `${address} is held by ${holder}`, {
      ...metadata,
      ...stateMetadata(image, record),
    })
  }
  const barred = bars(batch, command, place)
  if (barred !== null) return barred
  if (!isRested(batch, record) && !mayHaveBack(record, command)) {
    const until = new Date(record!.availableAt!).toISOString()
    return refusal(
      'ADDRESS_COOLING',
      `${address} was released recently and rests until ${until}`,
      { ...metadata, availableAt: until },
      record!.availableAt! - now,
    )
  }
  const seen = seenForAnother(batch, command, place, address)
  if (seen !== null) {
    if (seen.source === null) seenByCaller(batch, command, place, address)
    return refusal(
      'ADDRESS_QUARANTINED',
      seen.source === null
        ? `${address} is in your liveAddresses, so somebody uses it`
        : `${address} is listed live by ${seen.source}${seen.whom}`,
      { ...metadata, seenBy: seen.source ?? command.actor.name },
    )
  }
  return reserve(batch, command, place, address)
}

function pickFrom(
  batch: Batch,
  command: Command<'reserve'>,
  place: PoolState,
  preferPrevious: boolean,
  skipped: Skipped[],
): AddressRecord | Refusal {
  const { image, now } = batch
  const { pool } = place
  if (preferPrevious) {
    const previous = freedByHolder(image, command.owner).find(
      (one) => one.poolId === pool.poolId && (isRested(batch, one) || mayHaveBack(one, command)),
    )
    if (
      previous !== undefined &&
      contains(pool.allocatable, addressValue(previous.address).value) &&
      seenForAnother(batch, command, place, previous.address) === null
    )
      return reserve(batch, command, place, previous.address)
  }
  const live = liveUnits(command, place)
  const passed: string[] = []
  try {
    for (;;) {
      const address = takeCandidate(image, place, now)
      if (address === null) return exhausted(batch, place)
      if (live === null || !live.has(address)) return reserve(batch, command, place, address)
      skipped.push({ address, place })
      if (!seenByCaller(batch, command, place, address)) passed.push(address)
      if (skipped.length >= POLICY.skips) {
        return refusal(
          'ALL_CANDIDATES_LIVE',
          `${skipped.length} free addresses in a row are in your liveAddresses; another allocator may use pool ${pool.name}`,
          {
            pool: pool.name,
            skips: String(skipped.length),
            skipped: skipped.map((one) => one.address).join(','),
          },
        )
      }
    }
  } finally {
    for (const address of passed) giveBack(image, place, address)
  }
}

function exhausted({ image, now }: Batch, place: PoolState): Refusal {
  const { name } = place.pool
  const next = nextCooledAt(image, place)
  const cooling = next === null ? 0 : place.counts.FREE
  return refusal(
    'POOL_EXHAUSTED',
    `pool ${name} has no free address${cooling > 0 ? `; ${cooling} are cooling` : ''}`,
    {
      pool: name,
      cooling: String(cooling),
      ...(next !== null && { nextAvailableAt: new Date(next).toISOString() }),
    },
    next === null ? undefined : next - now,
  )
}

/** For a pool of blocks an address in use makes its whole block live. */
function liveUnits({ liveAddresses }: Command<'reserve'>, { pool }: PoolState): ReadonlySet<string> | null {
  if (liveAddresses.length === 0) return null
  if (isSingle(pool)) return new Set(liveAddresses)
  const units = new Set<string>()
  for (const address of liveAddresses) {
    const { family, value } = addressValue(address)
    if (family === pool.family) units.add(formatValue(family, blockBase(family, value, pool.prefixLength)))
  }
  return units
}

function isRested({ image, now, without }: Batch, record: AddressRecord | undefined): boolean {
  return record === undefined || record.availableAt! <= restedBy(image, now) || without.has('ADDRESS_COOLS')
}

/** A cooling address goes back to its last holder alone, and only if that one said that it is removed. */
function mayHaveBack(record: AddressRecord | undefined, { owner }: Command<'reserve'>): boolean {
  return record?.ended === 'RELEASED' && record.owner !== null && holderKey(record.owner) === holderKey(owner)
}

/** Who sees a free address live, unless it is the very attachment that asks (INV-12, azure#1259). */
function seenForAnother(
  { image, without }: Batch,
  command: Command<'reserve'>,
  place: PoolState,
  address: string,
): { readonly source: string | null; readonly whom: string } | null {
  if (liveUnits(command, place)?.has(address)) return { source: null, whom: '' }
  if (without.has('LISTED_IS_NEVER_HANDED_OUT')) return null
  const seen = sightingsOf(image, address).find(
    (one) => isLive(one) && (one.owner === null || !sameAttachment(one.owner, command.owner)),
  )
  if (seen === undefined) return null
  return { source: seen.source, whom: seen.owner === null ? '' : ` for ${describeOwner(seen.owner)}` }
}

/** Quarantines a candidate that the caller sees in use, unless too many are on that caller's word already. */
function seenByCaller(batch: Batch, command: Command<'reserve'>, place: PoolState, address: string): boolean {
  const { image, now } = batch
  const by = command.actor.name
  if (isWordSpent(batch, by)) return false
  emitLease(batch, command, 'lease.quarantined', blank(batch, place, address), {
    state: 'QUARANTINED',
    quarantine: { reason: 'FOREIGN', at: now, by, why: 'in the liveAddresses of a Reserve' },
    token: image.head + 1,
  })
  return true
}

function reserve(
  batch: Batch,
  command: Command<'reserve'>,
  place: PoolState,
  address: string,
): AddressRecord {
  const { now } = batch
  const within = command.confirmWithinMs ?? place.pool.confirmWithinMs
  return emitLease(batch, command, 'lease.reserved', blank(batch, place, address), {
    state: command.confirmed ? 'ACTIVE' : 'RESERVED',
    owner: command.owner,
    node: command.node,
    labels: command.labels,
    confirmedAt: command.confirmed ? now : null,
    confirmBy: command.confirmed || within === null ? null : now + within,
  })
}
