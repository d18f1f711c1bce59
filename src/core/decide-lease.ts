/** Commands about a lease or an address: Confirm, Release, Quarantine, Reap, expiry, labels. */
import { isDeepStrictEqual } from 'node:util'
import { type Batch, type By, blank, emit, emitLease, quarantine, viewOf } from './batch.ts'
import type { Actor, Answer, Command } from './command.ts'
import { type AddressRecord, type Details, leaseId } from './event.ts'
import {
  freedByHolder,
  type HeldRecord,
  type Image,
  isClosed,
  isHeld,
  isLive,
  leasesOfAttachment,
  sightingsOf,
  unitAt,
} from './image.ts'
import { confirmableUntil, entryOf } from './judge.ts'
import { attachmentKey, describeOwner, isListedAs, type Owner, sameAttachment } from './owner.ts'
import { eraOf, POLICY, reapPolicy } from './policy.ts'
import type { Pool } from './pool.ts'
import { contains } from './ranges.ts'
import { atVersion, invalid, type Refusal, refusal } from './refusal.ts'

export function decideConfirm(batch: Batch, command: Command<'confirm'>): Answer | Refusal {
  const { image, now } = batch
  const found = meant(batch, command)
  if ('reason' in found) return found
  if (found.length === 0) {
    const owner = command.lease.owner!
    if (isClosed(image, owner, now)) return closed(owner)
    const message = `${describeOwner(owner)} holds no lease in ${image.name}`
    return refusal('LEASE_NOT_FOUND', message, { network: image.name })
  }
  // An attachment's quarantined lease is no reason against the fresh one that it was given in the same pool.
  const fresh = new Set(found.filter(({ state }) => state !== 'QUARANTINED').map(({ poolId }) => poolId))
  const confirmed: AddressRecord[] = []
  for (const record of found) {
    if (!isHeld(record)) return lost(image, record, '; unconfigure the address')
    if (record.state === 'QUARANTINED' && fresh.has(record.poolId)) continue
    if (record.state !== 'ACTIVE' && record.owner !== null && isClosed(image, record.owner, now))
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
  const change = { state: 'ACTIVE', confirmedAt: record.confirmedAt ?? batch.now, confirmBy: null } as const
  return emitLease(batch, by, 'lease.confirmed', record, change, details)
}

/**
 * A promise made again is life: whoever is told once more that the lease is his will use the address, so its age and the
 * proofs under way begin anew (2.4). Said again soon it writes nothing: retries write nothing, and the age protects.
 */
export function renew(batch: Batch, by: By, record: HeldRecord): AddressRecord {
  if (batch.now - record.at < POLICY.renewAfterMs || record.confirmBy !== null) return record
  if (batch.without.has('PROMISE_RENEWS_THE_AGE')) return record
  return emitLease(batch, by, 'lease.updated', record, {})
}

export function decideRelease(batch: Batch, command: Command<'release'>): Answer | Refusal {
  const { image, now } = batch
  const { token, owner } = command.lease
  // Without it a late call could release what a successor of the same name holds (azure#885).
  if (token === null && owner.incarnation === '')
    return invalid('owner.incarnation', 'required to release by owner; or name the lease id')
  const found = meant(batch, command)
  if ('reason' in found) return found
  const leases = found.map((record) => (isHeld(record) ? release(batch, command, record) : record))
  if (token === null && !found.some(({ ended }) => ended !== null) && !isClosed(image, owner, now))
    emit(batch, command, { type: 'attachment.closed', owner })
  return { leases: leases.map((record) => viewOf(image, record)) }
}

function release(batch: Batch, command: Command<'release'>, record: HeldRecord): AddressRecord {
  const { removalConfirmed, actor } = command
  if (record.state !== 'QUARANTINED') {
    if (removalConfirmed || batch.without.has('UNCONFIRMED_REMOVAL_IS_KEPT'))
      return end(batch, command, record, 'RELEASED', null)
    const why = 'removal was not confirmed'
    return quarantine(batch, command, record, { reason: 'REMOVAL_UNCONFIRMED', by: actor.name, why })
  }
  const { reason } = record.quarantine!
  const isOwn = reason === 'SUPERSEDED' || reason === 'REMOVAL_UNCONFIRMED' || reason === 'RELEASED_BUT_LIVE'
  if (!removalConfirmed || !isOwn || isListedForAnother(batch.image, record)) return record
  return end(batch, command, record, 'RELEASED', null)
}

function isListedForAnother(image: Image, { address, owner }: HeldRecord): boolean {
  return sightingsOf(image, address).some(
    (one) => isLive(one) && (one.owner === null || owner === null || !isListedAs(owner, one.owner)),
  )
}

/** Ends a lease: its address cools, for the pool's cooldown and two report intervals of the slowest source at least. */
export function end(
  batch: Batch,
  by: By,
  record: HeldRecord,
  ended: 'RELEASED' | 'REAPED',
  details: Details | null,
): AddressRecord {
  const { image, now } = batch
  const { cooldownMs } = poolOf(image, record)
  const restsMs = Math.max(cooldownMs, POLICY.cooldownIntervals * image.slowestIntervalMs)
  const type = ended === 'RELEASED' ? 'lease.released' : 'lease.reaped'
  const change = { state: 'FREE', ended, confirmBy: null, availableAt: now + restsMs } as const
  return emitLease(batch, by, type, record, change, details)
}

export function decideQuarantine(batch: Batch, command: Command<'quarantine'>): Answer | Refusal {
  const { image } = batch
  const { target, actor, why } = command
  const found = 'token' in target ? byToken(batch, target.token) : atAddress(batch, target.address)
  if ('reason' in found) return found
  if (!isHeld(found)) return lost(image, found, `; quarantine the address ${found.address} instead`)
  const bad = found.seq === 0 ? null : mayTouch(image, actor, found)
  if (bad !== null) return bad
  const isDone = found.state === 'QUARANTINED' && found.quarantine!.reason === 'OPERATOR'
  const says = { reason: 'OPERATOR', by: actor.name, why } as const
  return { leases: [viewOf(image, isDone ? found : quarantine(batch, command, found, says))] }
}

/** The lease that an address belongs to; of a free one, the lease that it would be. */
function atAddress(batch: Batch, address: string): AddressRecord | Refusal {
  const { image } = batch
  const unit = unitAt(image, address)
  if (unit === null) return invalid('address', `${address} is in no pool of network ${image.name}`)
  if (!contains(unit.place.pool.allocatable, unit.value)) return excluded(unit.address, unit.place.pool)
  const record = image.records.get(unit.address)
  return isHeld(record) ? record : blank(batch, unit.place, unit.address)
}

export function decideReap(batch: Batch, command: Command<'reap'>): Answer | Refusal {
  const record = judged(batch, command)
  if ('reason' in record) return record
  const details = { reason: 'OPERATOR', why: command.why, version: command.version }
  return { leases: [viewOf(batch.image, end(batch, command, record, 'REAPED', details))] }
}

/**
 * A node that is gone for good: ends the leases placed there up to the head that the operator had seen, unless a source of
 * another node lists them; and what the node's own sources listed up to it, whose epochs are closed.
 */
export function decideReapNode(batch: Batch, command: Command<'reapNode'>): Answer | Refusal {
  const { image } = batch
  const { node, head } = command
  const shut = notOpen(batch, 'reaped')
  if (shut !== null) return shut
  if (head > image.head) return beyondHead(image, 'head', head)
  const isElsewhere = (one: ReturnType<typeof sightingsOf>[number]) => {
    const at = image.sources.get(one.source)?.declaration.node ?? ''
    return isLive(one) && (at === '' ? one.node !== node : at !== node)
  }
  const placed = [...image.records.values()]
    .filter(isHeld)
    .filter((one) => one.node === node && one.seq <= head && one.quarantine?.reason !== 'OPERATOR')
    .filter(
      ({ address }) =>
        batch.without.has('NODE_ELSEWHERE_KEEPS') || !sightingsOf(image, address).some(isElsewhere),
    )
  const details = { reason: 'OPERATOR', why: command.why, node, head }
  const ended = placed.map((record) => end(batch, command, record, 'REAPED', details))
  for (const [source, { declaration, epoch, state }] of image.sources) {
    if (declaration.node !== node || state === 'RETIRED') continue
    const vanished = [...(image.listedBy.get(source) ?? [])]
      .filter((one) => one.appearedHead <= head)
      .map(entryOf)
    if (vanished.length === 0 && epoch === null) continue
    const said = { source, epoch: epoch?.name ?? '', sequence: 0, head, appeared: [], vanished }
    emit(batch, command, { type: 'source.reported', details: { ...said, closed: true } })
  }
  return { leases: ended.map((record) => viewOf(image, record)) }
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
  const reaped = end(batch, { ...command, cause: 'NEVER_CONFIRMED' }, record, 'REAPED', details)
  return { leases: [viewOf(image, reaped)] }
}

/** When a lease expires; null: never, because it has no deadline, was confirmed, or was listed. */
export function expiresAt(
  { image, without }: Pick<Batch, 'image' | 'without'>,
  record: AddressRecord,
): number | null {
  if (record.state !== 'RESERVED' || record.confirmBy === null) return null
  // Promised in a log that may have lost its Confirm: only proof of absence ends it (12.4).
  if (eraOf(record.token) < image.network!.era && !without.has('NEW_ERA_RECOVERS')) return null
  if (sightingsOf(image, record.address).length > 0 && !without.has('SEEN_NEVER_EXPIRES')) return null
  if (without.has('GRACE_AFTER_THE_DEADLINE')) return record.confirmBy
  return confirmableUntil(record, reapPolicy(poolOf(image, record).reapPolicy).confirmGraceMs)
}

export function decideUpdateLabels(batch: Batch, command: Command<'updateLabels'>): Answer | Refusal {
  const { image } = batch
  const { labels } = command
  const record = heldAt(batch, command)
  if ('reason' in record) return record
  if (isDeepStrictEqual(record.labels, labels)) return { leases: [viewOf(image, record)] }
  return { leases: [viewOf(image, emitLease(batch, command, 'lease.updated', record, { labels }))] }
}

// Which lease is meant.

/** The leases that Confirm and Release are about, held or ended, if the caller may touch them all. */
function meant(
  batch: Batch,
  { lease: { token, owner }, actor }: Command<'confirm' | 'release'>,
): readonly AddressRecord[] | Refusal {
  const { image, known } = batch
  let found: readonly AddressRecord[]
  if (token === null) {
    found = leasesOfAttachment(image, owner)
    if (found.length === 0)
      found = freedByHolder(image, owner).filter((one) => sameAttachment(one.owner!, owner))
    if (found.length === 0) found = known.endedByOwner.get(attachmentKey(owner)) ?? []
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
  const id = leaseId(image.name, token)
  if (token > image.head) return beyondHead(image, `lease ${id}`, token)
  return refusal('LEASE_NOT_FOUND', `there never was a lease ${id}`, { leaseId: id })
}

/** A held lease, at the version that was looked at. */
function heldAt(
  batch: Batch,
  { actor, token, version }: Command<'reap' | 'expire' | 'reapProven' | 'updateLabels'>,
): HeldRecord | Refusal {
  const { image, without } = batch
  const record = byToken(batch, token)
  if ('reason' in record) return record
  if (!isHeld(record)) return lost(image, record, '')
  const id = idOf(image, record)
  const looked = without.has('VERSION_IS_JUDGED_AGAIN') ? null : version
  return (
    mayTouch(image, actor, record) ?? atVersion(`lease ${id}`, record.seq, looked, { leaseId: id }) ?? record
  )
}

/** The held lease that an operator or a job judged, where leases may be taken back. */
export function judged(
  batch: Batch,
  command: Command<'reap' | 'expire' | 'reapProven'>,
): HeldRecord | Refusal {
  const record = heldAt(batch, command)
  return 'reason' in record ? record : (notOpen(batch, 'reaped') ?? record)
}

function poolOf(image: Image, { poolId }: AddressRecord): Pool {
  return image.pools.get(poolId)!.pool
}

// Refusals.

/** What is not trusted hands out nothing and takes nothing back. */
export function notOpen({ image, without }: Batch, what: 'handed out' | 'reaped'): Refusal | null {
  const { era, recovering, holds } = image.network!
  const why =
    recovering !== null && !without.has('NEW_ERA_RECOVERS')
      ? 'is RECOVERING: it waits until every enabled source has reported twice in this era, or an operator ends the recovery'
      : holds.SOURCE_AHEAD !== undefined
        ? 'is held: a source has seen a later log than this one; recover, or resume'
        : what === 'reaped' && holds.CLOCK !== undefined
          ? 'is held: the clock of the database was set; it ends by itself, or resume'
          : null
  if (why === null) return null
  const state = recovering !== null ? 'RECOVERING' : 'HELD'
  const metadata = { network: image.name, state, era: String(era) }
  return refusal(
    'NETWORK_RECOVERING',
    `network ${image.name} ${why}; nothing is ${what} until then`,
    metadata,
    1_000,
  )
}

/** An agent acts on leases of its own node only: moving a workload is the orchestrator's word. */
export function mayTouch(image: Image, { node }: Actor, record: AddressRecord): Refusal | null {
  if (node === null || record.node === node) return null
  const message = `this token is bound to node ${node}, lease ${idOf(image, record)} is on another`
  return refusal('PERMISSION_DENIED', message, { node })
}

/** A number beyond the head was given out by a later life of this log: this one may be a restored copy (12.1). */
function beyondHead(image: Image, what: string, number: number): Refusal {
  return refusal(
    'VERSION_MISMATCH',
    `${what} is beyond this ledger's last number ${image.head}; if it was ever answered, the database is an older copy`,
    { number: String(number), beyondHead: String(image.head) },
  )
}

export function closed(owner: Owner): Refusal {
  const who = describeOwner(owner)
  const why = 'this incarnation was released or superseded; a call that was overtaken by it holds nothing'
  return refusal('ATTACHMENT_CLOSED', `${who}: ${why}`, { owner: who })
}

export function excluded(address: string, { name }: Pool): Refusal {
  const message = `${address} is excluded from pool ${name} and never handed out`
  return refusal('ADDRESS_EXCLUDED', message, { address, pool: name })
}

function lost(image: Image, record: AddressRecord, remedy: string): Refusal {
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

export function stateMetadata(image: Image, record: AddressRecord): Record<string, string> {
  return {
    leaseId: idOf(image, record),
    address: record.address,
    state: record.ended ?? record.state,
    ...(record.state === 'QUARANTINED' && { quarantineReason: record.quarantine!.reason }),
    ...(record.owner !== null && { holder: describeOwner(record.owner) }),
  }
}
