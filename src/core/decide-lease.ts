/** Commands about a lease or an address: Confirm, Release, Quarantine, Reap, expiry, labels. */
import { formatValue, isMalformed, parseAddress } from './address.ts'
import { type Batch, blank, emit, emitLease, viewOf } from './batch.ts'
import type { Actor, Answer, Command, LeaseReference } from './command.ts'
import { type AddressRecord, type Details, leaseId } from './event.ts'
import {
  freedByHolder,
  type HeldRecord,
  type Image,
  isClosed,
  isHeld,
  isLive,
  leasesOfAttachment,
  poolAt,
  sightingsOf,
} from './image.ts'
import { confirmableUntil, entryOf } from './judge.ts'
import { attachmentKey, describeOwner, isListedAs, type Owner, sameAttachment } from './owner.ts'
import { eraOf, POLICY, reapPolicy } from './policy.ts'
import { unitOf } from './pool.ts'
import { contains } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'

export function decideConfirm(batch: Batch, command: Command<'confirm'>): Answer | Refusal {
  const { image, now } = batch
  const found = resolve(batch, command.lease)
  if ('reason' in found) return found
  if (found.ended.length > 0) return lost(image, found.ended[0]!, 'unconfigure the address')
  if (found.held.length === 0) {
    const owner = command.lease.owner!
    return isClosed(image, owner, now)
      ? closed(owner)
      : refusal('LEASE_NOT_FOUND', `${describeOwner(owner)} holds no lease in ${image.name}`, {
          network: image.name,
        })
  }
  const leases = withoutReplaced(found.held)
  const confirmed: AddressRecord[] = []
  for (const record of leases) {
    const bad = mayTouch(batch, command.actor, record) ?? matches(batch, command.lease, record)
    if (bad !== null) return bad
    if (record.state !== 'ACTIVE' && record.owner !== null && isClosed(image, record.owner, now))
      return closed(record.owner)
    if (record.state === 'QUARANTINED')
      return illegal(batch, record, `lease ${idOf(image, record)} is quarantined and cannot be confirmed`)
    confirmed.push(
      record.state === 'ACTIVE' ? renew(batch, command, record) : confirm(batch, command, record, null),
    )
  }
  return { leases: confirmed.map((record) => viewOf(image, record)) }
}

/** An attachment's quarantined lease is no reason against the fresh one that it was given in the same pool. */
function withoutReplaced(leases: readonly HeldRecord[]): readonly HeldRecord[] {
  const fresh = new Set(leases.filter((one) => one.state !== 'QUARANTINED').map((one) => one.poolId))
  return leases.filter((one) => one.state !== 'QUARANTINED' || !fresh.has(one.poolId))
}

export function confirm(
  batch: Batch,
  by: Parameters<typeof emit>[1],
  record: HeldRecord,
  details: Details | null,
): AddressRecord {
  const change = { state: 'ACTIVE', confirmedAt: record.confirmedAt ?? batch.now, confirmBy: null } as const
  return emitLease(batch, by, 'lease.confirmed', record, change, details)
}

/**
 * A promise made again is life: whoever is told once more that the lease is his will use the address, so its age and the
 * proofs under way begin anew (2.4). Said again soon it writes nothing: retries write nothing, and the age protects.
 */
export function renew(
  batch: Batch,
  command: Command<'reserve'> | Command<'confirm'>,
  record: HeldRecord,
): AddressRecord {
  if (batch.now - record.at < POLICY.renewAfterMs || record.confirmBy !== null) return record
  if (batch.without.has('PROMISE_RENEWS_THE_AGE')) return record
  return emitLease(batch, command, 'lease.updated', record, {})
}

export function decideRelease(batch: Batch, command: Command<'release'>): Answer | Refusal {
  const { image, now } = batch
  const reference = command.lease
  if (reference.token === null) {
    const { incarnation, interface: on } = reference.owner
    // Without it a late call could release what a successor of the same name holds (azure#885).
    if (incarnation === '')
      return invalid('owner.incarnation', 'required to release by owner; or name the lease id')
    if (on === '') return invalid('owner.interface', 'required to release by owner; or name the lease id')
  }
  const found = resolve(batch, reference)
  if ('reason' in found) return found
  for (const ended of found.ended) {
    const bad = mayTouch(batch, command.actor, ended) ?? matches(batch, reference, ended)
    if (bad !== null) return bad
  }
  if (found.held.length === 0) {
    if (reference.token === null && found.ended.length === 0 && !isClosed(image, reference.owner, now))
      emit(batch, command, { type: 'attachment.closed', owner: reference.owner })
    return { leases: found.ended.map((record) => viewOf(image, record)) }
  }
  const leases: AddressRecord[] = []
  for (const record of found.held) {
    const bad = mayTouch(batch, command.actor, record) ?? matches(batch, reference, record)
    if (bad !== null) return bad
    leases.push(release(batch, command, record))
  }
  if (reference.token === null && !isClosed(image, reference.owner, now))
    emit(batch, command, { type: 'attachment.closed', owner: reference.owner })
  return { leases: leases.map((record) => viewOf(image, record)) }
}

function release(batch: Batch, command: Command<'release'>, record: HeldRecord): AddressRecord {
  const { image, now } = batch
  const { removalConfirmed } = command
  if (record.state !== 'QUARANTINED') {
    if (removalConfirmed || batch.without.has('UNCONFIRMED_REMOVAL_IS_KEPT'))
      return end(batch, command, record, 'RELEASED', null)
    const quarantine = {
      reason: 'REMOVAL_UNCONFIRMED',
      at: now,
      by: command.actor.name,
      why: 'removal was not confirmed',
    } as const
    const change = { state: 'QUARANTINED', confirmBy: null, quarantine } as const
    return emitLease(batch, command, 'lease.quarantined', record, change)
  }
  const { reason } = record.quarantine!
  const isOwn = reason === 'SUPERSEDED' || reason === 'REMOVAL_UNCONFIRMED' || reason === 'RELEASED_BUT_LIVE'
  if (!removalConfirmed || !isOwn || isListedForAnother(image, record)) return record
  return end(batch, command, record, 'RELEASED', null)
}

function isListedForAnother(image: Image, record: HeldRecord): boolean {
  return sightingsOf(image, record.address).some(
    (one) =>
      isLive(one) && (one.owner === null || record.owner === null || !isListedAs(record.owner, one.owner)),
  )
}

/** Ends a lease: its address cools, for the pool's cooldown and two report intervals of the slowest source at least. */
export function end(
  batch: Batch,
  by: Parameters<typeof emit>[1],
  record: HeldRecord,
  ended: 'RELEASED' | 'REAPED',
  details: Details | null,
): AddressRecord {
  const { image, now } = batch
  const cooldownMs = image.pools.get(record.poolId)!.pool.cooldownMs
  const restsMs = Math.max(cooldownMs, POLICY.cooldownIntervals * image.slowestIntervalMs)
  return emitLease(
    batch,
    by,
    ended === 'RELEASED' ? 'lease.released' : 'lease.reaped',
    record,
    { state: 'FREE', ended, confirmBy: null, availableAt: now + restsMs },
    details,
  )
}

export function decideQuarantine(batch: Batch, command: Command<'quarantine'>): Answer | Refusal {
  const { image, now } = batch
  let record: AddressRecord | undefined
  if ('token' in command.target) {
    const found = byToken(batch, command.target.token)
    if ('reason' in found) return found
    if (!isHeld(found)) return lost(image, found, `quarantine the address ${found.address} instead`)
    record = found
  } else {
    const place = placeOf(image, command.target.address)
    if ('reason' in place) return place
    const current = image.records.get(place.address)
    record = isHeld(current) ? current : blank(batch, place.place, place.address)
  }
  const bad = isHeld(record) && record.seq > 0 ? mayTouch(batch, command.actor, record) : null
  if (bad !== null) return bad
  if (record.quarantine?.reason === 'OPERATOR' && record.state === 'QUARANTINED')
    return { leases: [viewOf(image, record)] }
  const quarantine = { reason: 'OPERATOR', at: now, by: command.actor.name, why: command.why } as const
  const change = { state: 'QUARANTINED', confirmBy: null, quarantine } as const
  return { leases: [viewOf(image, emitLease(batch, command, 'lease.quarantined', record, change))] }
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
  const details = { reason: 'OPERATOR', why: command.why, node, head }
  const ended: AddressRecord[] = []
  const placed = [...image.records.values()].filter((one) => one.node === node && one.seq <= head)
  for (const record of placed) {
    if (!isHeld(record) || record.quarantine?.reason === 'OPERATOR') continue
    const isElsewhere = sightingsOf(image, record.address).some((one) => {
      const at = image.sources.get(one.source)?.declaration.node ?? ''
      return isLive(one) && (at === '' ? one.node !== node : at !== node)
    })
    if (isElsewhere && !batch.without.has('NODE_ELSEWHERE_KEEPS')) continue
    ended.push(end(batch, command, record, 'REAPED', details))
  }
  for (const [id, { declaration, epoch, state }] of image.sources) {
    if (declaration.node !== node || state === 'RETIRED') continue
    const vanished = [...(image.listedBy.get(id) ?? [])]
      .filter((one) => one.appearedHead <= head)
      .map(entryOf)
      .sort((a, b) => (a.address < b.address ? -1 : 1))
    if (vanished.length === 0 && epoch === null) continue
    emit(batch, command, {
      type: 'source.reported',
      details: {
        source: id,
        epoch: epoch?.name ?? '',
        sequence: 0,
        head,
        appeared: [],
        vanished,
        closed: true,
      },
    })
  }
  return { leases: ended.map((record) => viewOf(image, record)) }
}

/** A promise that was broken: RESERVED, past its deadline and the grace, and never listed (2.1). */
export function decideExpire(batch: Batch, command: Command<'expire'>): Answer | Refusal {
  const { image, now } = batch
  const record = judged(batch, command)
  if ('reason' in record) return record
  const due = expiresAt(batch, record)
  if (due === null)
    return illegal(
      batch,
      record,
      `lease ${idOf(image, record)} has no deadline, or was listed since it was made`,
    )
  if (now <= due) {
    const message = `lease ${idOf(image, record)} may still be confirmed`
    return refusal('ILLEGAL_STATE', message, stateMetadata(image, record), due - now + 1)
  }
  const details = { confirmBy: record.confirmBy, due, version: command.version }
  return {
    leases: [viewOf(image, end(batch, { ...command, cause: 'NEVER_CONFIRMED' }, record, 'REAPED', details))],
  }
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
  return confirmableUntil(record, reapPolicy(image.pools.get(record.poolId)!.pool.reapPolicy).confirmGraceMs)
}

export function decideUpdateLabels(batch: Batch, command: Command<'updateLabels'>): Answer | Refusal {
  const { image } = batch
  const record = byToken(batch, command.token)
  if ('reason' in record) return record
  if (!isHeld(record)) return lost(image, record, '')
  const { version, labels } = command
  const bad =
    mayTouch(batch, command.actor, record) ??
    (version === null ? null : versionMismatch(batch, record, version))
  if (bad !== null) return bad
  if (isSameMap(record.labels, labels)) return { leases: [viewOf(image, record)] }
  return { leases: [viewOf(image, emitLease(batch, command, 'lease.updated', record, { labels }))] }
}

function isSameMap(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a)
  return (
    keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key])
  )
}

// Which lease is meant.

type Resolved = { readonly held: readonly HeldRecord[]; readonly ended: readonly AddressRecord[] }

function resolve(batch: Batch, reference: LeaseReference): Resolved | Refusal {
  const { image, known } = batch
  if (reference.token === null) {
    const { owner } = reference
    const held = leasesOfAttachment(image, owner)
    if (held.length > 0) return { held, ended: [] }
    const freed = freedByHolder(image, owner).filter((one) => sameAttachment(one.owner!, owner))
    return {
      held,
      ended: freed.length > 0 ? freed : (known.endedByOwner.get(attachmentKey(owner)) ?? []),
    }
  }
  const found = byToken(batch, reference.token)
  if ('reason' in found) return found
  return isHeld(found) ? { held: [found], ended: [] } : { held: [], ended: [found] }
}

function byToken({ image, known }: Batch, token: number): AddressRecord | Refusal {
  const record = image.byToken.get(token) ?? known.endedByToken.get(token) ?? null
  if (record !== null) return record
  if (token > image.head) return beyondHead(image, `lease ${leaseId(image.name, token)}`, token)
  const id = leaseId(image.name, token)
  return refusal('LEASE_NOT_FOUND', `there never was a lease ${id}`, { leaseId: id })
}

/** The held lease that an operator or a job judged, at the version that was judged. */
export function judged(
  batch: Batch,
  command: { readonly actor: Actor; readonly token: number; readonly version: number },
): HeldRecord | Refusal {
  const record = byToken(batch, command.token)
  if ('reason' in record) return record
  if (!isHeld(record)) return lost(batch.image, record, '')
  return (
    mayTouch(batch, command.actor, record) ??
    versionMismatch(batch, record, command.version) ??
    notOpen(batch, 'reaped') ??
    record
  )
}

function placeOf(image: Image, text: string) {
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) return invalid('address', parsed.malformed)
  const place = poolAt(image, parsed)
  if (place === null) return invalid('address', `${text} is in no pool of network ${image.name}`)
  const { pool } = place
  const base = unitOf(pool, parsed.value)
  const address = formatValue(pool.family, base)
  if (contains(pool.allocatable, base)) return { address, place }
  return refusal('ADDRESS_EXCLUDED', `${address} is excluded from pool ${pool.name} and never handed out`, {
    address,
    pool: pool.name,
  })
}

// Refusals.

/** What is not trusted hands out nothing and takes nothing back (INV-24). */
export function notOpen({ image, without }: Batch, what: 'handed out' | 'reaped'): Refusal | null {
  const { era, recovering, holds } = image.network!
  const refused = (why: string, state: string) =>
    refusal(
      'NETWORK_RECOVERING',
      `network ${image.name} ${why}; nothing is ${what} until then`,
      { network: image.name, state, era: String(era) },
      1_000,
    )
  if (recovering !== null && !without.has('NEW_ERA_RECOVERS'))
    return refused(
      'is RECOVERING: it waits until every enabled source has reported twice in this era, or an operator ends the recovery',
      'RECOVERING',
    )
  if (holds.SOURCE_AHEAD !== undefined)
    return refused('is held: a source has seen a later log than this one; recover, or resume', 'HELD')
  if (what === 'reaped' && holds.CLOCK !== undefined)
    return refused('is held: the clock of the database was set; it ends by itself, or resume', 'HELD')
  return null
}

/** An agent acts on leases of its own node only: moving a workload is the orchestrator's word. */
export function mayTouch({ image }: Batch, actor: Actor, record: AddressRecord): Refusal | null {
  if (actor.node === null || record.node === actor.node) return null
  return refusal(
    'PERMISSION_DENIED',
    `this token is bound to node ${actor.node}, lease ${idOf(image, record)} is on another`,
    { node: actor.node },
  )
}

function matches(batch: Batch, reference: LeaseReference, record: AddressRecord): Refusal | null {
  if (reference.token === null || reference.owner === null) return null
  if (record.owner !== null && sameAttachment(reference.owner, record.owner)) return null
  const holder = record.owner === null ? 'nobody' : describeOwner(record.owner)
  return illegal(
    batch,
    record,
    `lease ${idOf(batch.image, record)} is held by ${holder}, not by ${describeOwner(reference.owner)}`,
  )
}

function versionMismatch({ image, without }: Batch, record: HeldRecord, version: number): Refusal | null {
  if (record.seq === version || without.has('VERSION_IS_JUDGED_AGAIN')) return null
  const id = idOf(image, record)
  return refusal(
    'VERSION_MISMATCH',
    `lease ${id} is at version ${record.seq}, not ${version}; read it again and decide anew`,
    { leaseId: id, version: String(record.seq), expected: String(version) },
  )
}

/** A number beyond the head was given out by a later life of this log: this one may be a restored copy (12.1). */
export function beyondHead(image: Image, what: string, number: number): Refusal {
  return refusal(
    'VERSION_MISMATCH',
    `${what} is beyond this ledger's last number ${image.head}; if it was ever answered, the database is an older copy`,
    { number: String(number), beyondHead: String(image.head) },
  )
}

export function closed(owner: Owner): Refusal {
  return refusal(
    'ATTACHMENT_CLOSED',
    `${describeOwner(owner)}: this incarnation was released or superseded; a call that was overtaken by it holds nothing`,
    { owner: describeOwner(owner) },
  )
}

function lost(image: Image, record: AddressRecord, remedy: string): Refusal {
  const message = `lease ${idOf(image, record)} has ended`
  return refusal('LEASE_LOST', remedy === '' ? message : `${message}; ${remedy}`, {
    leaseId: idOf(image, record),
    address: record.address,
    state: record.ended!,
    endedAt: new Date(record.at).toISOString(),
  })
}

export function illegal({ image }: Batch, record: AddressRecord, message: string): Refusal {
  return refusal('ILLEGAL_STATE', message, stateMetadata(image, record))
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
