/** Commands about a lease or an address: Confirm, Release, Quarantine, Reap, expiry, labels. */
import { isDeepStrictEqual } from 'node:util'
import { isLate, isOfAnotherNode, type Use } from './attention.ts'
import { type Batch, type By, blank, change, emit, freshnessOf, quarantine, viewOf } from './batch.ts'
import type { Actor, Answer, Command } from './command.ts'
import { type AddressRecord, type Details, type Entry, leaseId, type Quarantine } from './event.ts'
import {
  closed,
  excluded,
  idOf,
  illegal,
  isPlacedFor,
  leaseLost,
  mayTouch,
  quarantineQuotaReached,
  suspended,
  unplacedOf,
} from './guards.ts'
import {
  blockAt,
  evidenceAt,
  freedByHolder,
  type HeldRecord,
  type Image,
  isClosed,
  isHeld,
  isLive,
  leasesOfAttachment,
  type PoolState,
  type Sighting,
  sightingsOf,
} from './image.ts'
import { confirmableUntil, entryOf } from './judge.ts'
import { type Doubt, type Finding, mayFollow } from './lifecycle.ts'
import { attachmentKey, describeOwner, isListedAs, RESERVE_KIND, sameAttachment } from './owner.ts'
import { POLICY, reapPolicy } from './policy.ts'
import { contains } from './ranges.ts'
import { atVersion, beyondHead, invalid, type Refusal, refusal, unknownLease } from './refusal.ts'

export function decideConfirm(batch: Batch, command: Command<'confirm'>): Answer | Refusal {
  const { image, now } = batch
  const found = resolveLease(batch, command)
  if ('reason' in found) return found
  if (found.length === 0) {
    const owner = command.lease.owner!
    if (isClosed(image, owner, command.actor.node ?? '', now)) return closed(owner)
    const message = `${describeOwner(owner)} holds no lease in ${image.name}`
    return refusal('LEASE_NOT_FOUND', message, { network: image.name })
  }
  // An attachment's quarantined lease is no reason against the fresh one that it was given in the same pool.
  const fresh = new Set(found.filter(({ state }) => state !== 'QUARANTINED').map(({ poolId }) => poolId))
  const confirmed: AddressRecord[] = []
  for (const record of found) {
    if (!isHeld(record)) return leaseLost(image, record, '; unconfigure the address')
    if (record.state === 'QUARANTINED' && fresh.has(record.poolId)) continue
    if (record.state !== 'ACTIVE' && record.owner !== null && isClosed(image, record.owner, record.node, now))
      return closed(record.owner)
    if (record.state === 'QUARANTINED')
      return illegal(image, record, `lease ${idOf(image, record)} is quarantined and cannot be confirmed`)
    confirmed.push(
      record.state === 'ACTIVE' ? renew(batch, command, record) : confirm(batch, command, record, null),
    )
  }
  return { leases: confirmed.map((record) => viewOf(image, record)) }
}

export function confirm(batch: Batch, by: By, record: HeldRecord, details: Details | null): AddressRecord {
  const fields = { confirmedAt: record.confirmedAt ?? batch.now, confirmBy: null }
  return change(batch, by, 'confirm', record, fields, details)
}

/**
 * A lease that is answered again will be used: its age and the proofs under way begin anew (2.4). Soon after its last change
 * this writes nothing: the age protects it.
 */
export function renew(batch: Batch, by: By, record: HeldRecord): AddressRecord {
  const { minimumAgeMs } = reapPolicy(batch.image.pools.get(record.poolId)!.pool.reapPolicy)
  const isYoung = batch.now - record.at < Math.min(POLICY.renewAfterMs, minimumAgeMs / 2)
  if (isYoung || record.confirmBy !== null) return record
  if (!batch.guards.PROMISE_RENEWS_THE_AGE) return record
  return change(batch, by, 'renew', record)
}

export function decideRelease(batch: Batch, command: Command<'release'>): Answer | Refusal {
  const { image, now } = batch
  const { token, owner } = command.lease
  const node = command.actor.node ?? ''
  // Without it a late call could release what a successor of the same name holds (azure#885).
  if (token === null && owner.incarnation === '')
    return invalid('owner.incarnation', 'required to release by owner; or name the lease id')
  const found = resolveLease(batch, command)
  if ('reason' in found) return found
  const leases = found.map((record) => (isHeld(record) ? release(batch, command, record) : record))
  if (token === null && !found.some(({ ended }) => ended !== null) && !isClosed(image, owner, node, now))
    emit(batch, command, { type: 'attachment.closed', owner, node })
  return { leases: leases.map((record) => viewOf(image, record)) }
}

function release(batch: Batch, command: Command<'release'>, record: HeldRecord): AddressRecord {
  const { removal, actor } = command
  const reporter = reporterOf(actor)
  const details = actor.node === null ? null : { tokenNode: actor.node }
  const isReleased = removal === 'CONFIRMED' || !batch.guards.UNCONFIRMED_REMOVAL_IS_KEPT
  if (record.state !== 'QUARANTINED' && isReleased) return end(batch, command, 'release', record, details)
  if (record.state === 'QUARANTINED') {
    const isIts = mayFollow('release', record) && !isListedForAnother(batch.image, record)
    return removal === 'CONFIRMED' && isIts ? end(batch, command, 'release', record, details) : record
  }
  if (removal === 'UNCONFIRMED') {
    const why = 'removal was not confirmed'
    return quarantine(batch, command, 'releaseUnconfirmed', record, { ...reporter, why })
  }
  const poolState = batch.image.pools.get(record.poolId)!
  const inUse = { ...reporter, why: 'another host answers for the address' }
  if (quarantineQuotaReached(batch, poolState, { by: actor.name, node: '' }))
    return quarantine(batch, command, 'inUse', record, inUse)
  const released = end(batch, command, 'release', record, details, null)
  quarantine(batch, command, 'inUse', blank(batch, poolState, record.address), inUse)
  return released
}

export function reporterOf({ name, node }: Actor): Pick<Quarantine, 'by' | 'node'> {
  return { by: name, node: node ?? '' }
}

/** A source of another node may list what it likes there: the holder keeps every right. */
function isListedForAnother(image: Image, record: HeldRecord): boolean {
  const { address, owner } = record
  return sightingsOf(image, address).some(
    (one) =>
      isLive(one) &&
      (one.owner === null || owner === null || !isListedAs(owner, one.owner)) &&
      !isOfAnotherNode(image, one, record),
  )
}

/**
 * Ends a lease: its address cools. Where another owner was seen since the lease was made, the address is quarantined
 * without an owner until all that were seen there are proven gone. `other` is null where that is proven, or an operator ends it.
 */
export function end(
  batch: Batch,
  by: By,
  finding: Finding,
  record: HeldRecord,
  details: Details | null,
  other = seenBeside(batch, record),
): AddressRecord {
  const { image, now } = batch
  const poolState = image.pools.get(record.poolId)!
  const fields = { confirmBy: null, availableAt: now + restsMs(image, poolState) }
  if (other === null) return change(batch, by, finding, record, fields, details)
  const freed = change(batch, by, finding, record, fields, { ...details, contested: true })
  const why = `has listed ${describeOwner(other.owner!)} there while ${describeOwner(record.owner!)} held it`
  quarantineListed(batch, by, 'contest', blank(batch, poolState, record.address), other, why)
  return freed
}

export function quarantineListed(
  batch: Batch,
  by: By,
  finding: Doubt,
  record: AddressRecord,
  seen: Sighting,
  does = `lists ${seen.owner === null ? 'somebody' : describeOwner(seen.owner)} there`,
): void {
  const { node } = batch.image.sources.get(seen.source)!.declaration
  const why = `${seen.source} ${does}`
  quarantine(batch, by, finding, record, { by: seen.source, node, why }, evidenceOf(seen))
}

/**
 * The entry of another owner at a lease since it was made, if its source may quarantine one more. Sources of a node that is
 * gone do not count.
 */
function seenBeside(batch: Batch, record: HeldRecord, gone: string | null = null): Sighting | null {
  const { image, guards } = batch
  const { owner, address, token } = record
  const poolState = image.pools.get(record.poolId)!
  const mayKeep = ({ source }: Sighting) => {
    const { node } = image.sources.get(source)!.declaration
    return node !== gone && !quarantineQuotaReached(batch, poolState, { by: source, node })
  }
  const isBeside = (one: Sighting) =>
    one.owner !== null &&
    one.owner.kind !== RESERVE_KIND &&
    // A workload that is listed at a spare of its node has it.
    !(owner!.kind === RESERVE_KIND && one.node === record.node) &&
    !isListedAs(owner!, one.owner) &&
    image.sources.get(one.source)!.state === 'ENABLED' &&
    (isLive(one) || one.appearedHead >= token)
  if (owner === null || !guards.CONTESTED_IS_KEPT) return null
  return evidenceAt(image, address).find((one) => isBeside(one) && mayKeep(one)) ?? null
}

/** How long an address rests: its pool's cooldown, and two report intervals of the slowest source at least. */
export function restsMs(image: Image, { pool }: PoolState): number {
  return Math.max(pool.cooldownMs, POLICY.cooldownIntervals * image.slowestIntervalMs)
}

export function evidenceOf(sighting: Sighting): Details {
  const { source, appearedSeq: appeared, appearedHead: head } = sighting
  return { source, seen: entryOf(sighting) as Details, appeared, head }
}

export function decideQuarantine(batch: Batch, command: Command<'quarantine'>): Answer | Refusal {
  const { image } = batch
  const { target, actor, why } = command
  const found = 'token' in target ? byToken(batch, target.token) : atAddress(batch, target.address)
  if ('reason' in found) return found
  if (!isHeld(found)) return leaseLost(image, found, `; quarantine the address ${found.address} instead`)
  const bad = found.seq === 0 ? null : mayTouch(image, actor, found)
  if (bad !== null) return bad
  const isDone = !mayFollow('quarantine', found)
  const reason = { ...reporterOf(actor), why }
  const kept = isDone ? found : quarantine(batch, command, 'quarantine', found, reason)
  return { leases: [viewOf(image, kept)] }
}

/** The lease that an address belongs to; of a free one, the lease that it would be. */
function atAddress(batch: Batch, address: string): AddressRecord | Refusal {
  const { image } = batch
  const block = blockAt(image, address)
  if (block === null) return invalid('address', `${address} is in no pool of network ${image.name}`)
  if (!contains(block.poolState.pool.allocatable, block.value))
    return excluded(block.address, block.poolState.pool.name)
  const record = image.records.get(block.address)
  return isHeld(record) ? record : blank(batch, block.poolState, block.address)
}

export function decideReap(batch: Batch, command: Command<'reap'>): Answer | Refusal {
  const record = judged(batch, command)
  if ('reason' in record) return record
  const details = { reason: 'OPERATOR', why: command.why, version: command.version }
  const other = record.state === 'QUARANTINED' ? null : undefined
  return { leases: [viewOf(batch.image, end(batch, command, 'reap', record, details, other))] }
}

/**
 * A node that is gone for good: ends the leases placed there up to the head that the operator had seen, unless a source of
 * another node lists them; and what the node's own sources listed up to it, whose epochs are closed.
 */
export function decideReapNode(batch: Batch, command: Command<'reapNode'>): Answer | Refusal {
  const { image } = batch
  const { node, head } = command
  const refused = suspended(batch, 'REAP')
  if (refused !== null) return refused
  if (head > image.head) return beyondHead('head', head, image.head)
  const reporting = reportingFrom(batch, node)
  if (reporting !== null) return reporting
  const isElsewhere = (one: Sighting) => {
    const at = image.sources.get(one.source)!.declaration.node
    return isLive(one) && (at === '' ? one.node !== node : at !== node)
  }
  const isKept = ({ address }: HeldRecord) =>
    batch.guards.NODE_ELSEWHERE_KEEPS && sightingsOf(image, address).some(isElsewhere)
  const placed = [...image.records.values()]
    .filter(isHeld)
    .filter((one) => one.node === node && one.seq <= head && mayFollow('reapNode', one) && !isKept(one))
  // First, so that of what its sources listed nothing stays as evidence of a lease that ends.
  for (const [source, { declaration, epoch, state }] of image.sources) {
    if (declaration.node !== node || state === 'RETIRED') continue
    const listed = [...(image.listedBy.get(source) ?? [])].filter((one) => one.appearedHead <= head)
    if (listed.length > 0 || epoch !== null) closeLists(batch, command, source, head, listed)
  }
  const details = { reason: 'OPERATOR', why: command.why, node, head }
  const ended = placed.map((record) =>
    end(batch, command, 'reapNode', record, details, seenBeside(batch, record, node)),
  )
  return { leases: ended.map((record) => viewOf(image, record)) }
}

function reportingFrom(batch: Batch, node: string): Refusal | null {
  const { image, now, guards } = batch
  if (!guards.NODE_THAT_REPORTS_STAYS) return null
  for (const [source, { declaration, state }] of image.sources) {
    const reportedAt = freshnessOf(batch, source)?.reportedAt ?? 0
    if (declaration.node !== node || state === 'RETIRED' || isLate(now, reportedAt, declaration)) continue
    const at = new Date(reportedAt).toISOString()
    const message = `node ${node} is not gone: its source ${source} reported at ${at}; stop its agent, wait for two of its intervals, and reap again`
    return refusal('ILLEGAL_STATE', message, { node, source, reportedAt: at })
  }
  return null
}

export function closeLists(
  batch: Batch,
  by: By,
  source: string,
  head: number,
  listed: readonly Sighting[],
): void {
  const { epoch } = batch.image.sources.get(source)!
  const vanished = listed.map((one) => unlisted(batch, entryOf(one)))
  const details = { source, epoch: epoch?.name ?? '', sequence: 0, head, appeared: [], vanished }
  emit(batch, by, { type: 'source.reported', details: { ...details, closed: true } })
}

/** One wrong list must not free an address at once: what is listed no more rests as what is released does. */
export function unlisted({ image, now, guards }: Batch, entry: Entry): Entry {
  const block = blockAt(image, entry.address)
  if (block === null || isHeld(image.records.get(block.address)) || !guards.UNLISTED_RESTS) return entry
  return { ...entry, restsUntil: now + restsMs(image, block.poolState) }
}

/** A promise that was broken: RESERVED, past its deadline and the grace, and never listed (2.1). */
export function decideExpire(batch: Batch, command: Command<'expire'>): Answer | Refusal {
  const { image, now } = batch
  const record = judged(batch, command)
  if ('reason' in record) return record
  const id = idOf(image, record)
  const due = expiresAt(batch, record)
  if (due === null)
    return illegal(image, record, `lease ${id} has no deadline, or was listed since it was made`)
  if (now <= due) return illegal(image, record, `lease ${id} may still be confirmed`, due - now + 1)
  const details = { confirmBy: record.confirmBy, due, version: command.version }
  const reaped = end(batch, { ...command, cause: 'NEVER_CONFIRMED' }, 'expire', record, details)
  return { leases: [viewOf(image, reaped)] }
}

/** When a lease expires; null: never, because it has no deadline, was confirmed, or was listed. */
export function expiresAt(
  { image, guards }: Pick<Batch, 'image' | 'guards'>,
  record: AddressRecord,
): number | null {
  if (record.confirmBy === null) return null
  if (guards.expire.some(({ keeps }) => keeps(image, record as HeldRecord))) return null
  if (!guards.GRACE_AFTER_THE_DEADLINE) return record.confirmBy
  return confirmableUntil(record, reapPolicy(image.pools.get(record.poolId)!.pool.reapPolicy).confirmGraceMs)
}

export function decideUpdateLabels(batch: Batch, command: Command<'updateLabels'>): Answer | Refusal {
  const { image } = batch
  const { labels } = command
  const record = heldAt(batch, command)
  if ('reason' in record) return record
  if (isDeepStrictEqual(record.labels, labels)) return { leases: [viewOf(image, record)] }
  return { leases: [viewOf(image, change(batch, command, 'label', record, { labels }))] }
}

/** The leases that Confirm and Release are about, held or ended. By owner, those that the caller may touch. */
function resolveLease(
  batch: Batch,
  { type, lease: { token, owner }, actor }: Command<'confirm' | 'release'>,
): readonly AddressRecord[] | Refusal {
  const { image, known } = batch
  let found: readonly AddressRecord[]
  if (token === null) {
    const unplaced = type === 'confirm' ? unplacedOf(image, actor, owner) : null
    if (unplaced !== null) return unplaced
    const isOwn = (one: AddressRecord) => isPlacedFor(batch.guards, actor, one)
    found = leasesOfAttachment(image, owner).filter(isOwn)
    if (found.length === 0)
      found = freedByHolder(image, owner).filter((one) => sameAttachment(one.owner!, owner) && isOwn(one))
    if (found.length === 0) found = (known.endedByOwner.get(attachmentKey(owner)) ?? []).filter(isOwn)
  } else {
    const record = byToken(batch, token)
    if ('reason' in record) return record
    found = [record]
  }
  for (const record of found) {
    const bad = mayTouch(image, actor, record)
    if (bad !== null) return bad
    if (owner === null || (record.owner !== null && sameAttachment(owner, record.owner))) continue
    const holder = record.owner === null ? 'nobody' : describeOwner(record.owner)
    const message = `lease ${idOf(image, record)} is held by ${holder}, not by ${describeOwner(owner)}`
    return illegal(image, record, message)
  }
  return found
}

function byToken({ image, known }: Batch, token: number): AddressRecord | Refusal {
  const record = image.byToken.get(token) ?? known.endedByToken.get(token) ?? null
  if (record !== null) return record
  return unknownLease(leaseId(image.name, token), token, image.head)
}

function heldAt(
  batch: Batch,
  { actor, token, version }: Command<'reap' | 'expire' | 'reapProven' | 'updateLabels'>,
): HeldRecord | Refusal {
  const { image, guards } = batch
  const record = byToken(batch, token)
  if ('reason' in record) return record
  if (!isHeld(record)) return leaseLost(image, record, '')
  const id = idOf(image, record)
  const looked = guards.VERSION_IS_JUDGED_AGAIN ? version : null
  return (
    mayTouch(image, actor, record) ?? atVersion(`lease ${id}`, record.seq, looked, { leaseId: id }) ?? record
  )
}

/** The held lease that an operator or a job judged, where leases may be taken back. */
export function judged(
  batch: Batch,
  command: Command<'reap' | 'expire' | 'reapProven'>,
  use: Use = 'REAP',
): HeldRecord | Refusal {
  const record = heldAt(batch, command)
  return 'reason' in record ? record : (suspended(batch, use) ?? record)
}
