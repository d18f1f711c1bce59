/**
 * What each event means: the one rule by which rows are projected, projections are rebuilt, the past is read and
 * mirrors follow. Events carry the state after them, so an address needs only its own events; the checks here
 * are those the log must satisfy by itself, and breaking one is a bug or a tampered log, never a refusal.
 */
import {
  type AddressBook,
  addressValue,
  type Books,
  BrokenBooks,
  bookInPool,
  bootKey,
  type ClosedAttachment,
  type Fence,
  type Hold,
  lastHolderOf,
  type PoolBook,
  type ReleasedAddress,
  replaceBook,
  workloadKey,
} from './books.ts'
import {
  type EndedEvent,
  type FencedEvent,
  type HoldEvent,
  isEndedEvent,
  isHeldEvent,
  type LeaseEvent,
  type LedgerEvent,
  type ResumedEvent,
} from './event.ts'
import { type EndedLease, type Lease, SIGHTING_REASONS } from './lease.ts'
import type { Network } from './network.ts'
import { attachmentKey, holderKey, type Owner } from './owner.ts'
import { buildPool, NO_COUNTS, type Pool } from './pool.ts'
import { contains, intersect, type Range, subtract, union } from './ranges.ts'

export function addressOf(event: LeaseEvent): { readonly poolId: number; readonly address: string } {
  return isHeldEvent(event) ? event.lease : event.ended.lease
}

/** One address, one event later. */
export function evolveAddress(before: AddressBook, event: LeaseEvent): AddressBook {
  if (isHeldEvent(event)) {
    const { lease } = event
    if (lease.version !== event.seq) broken(event, 'its version is not its number')
    const creates = before.lease === null
    if (creates !== (lease.fencingToken === event.seq))
      broken(event, 'its token does not fit the state before it')
    switch (event.type) {
      case 'lease.reserved':
      case 'lease.adopted':
        if (!creates) broken(event, 'the address is held already')
        break
      case 'lease.confirmed':
      case 'lease.updated':
        if (creates) broken(event, 'there is no lease')
        break
      case 'lease.quarantined':
        break
    }
    if (before.lease !== null && before.lease.fencingToken !== lease.fencingToken)
      broken(event, 'another lease is there')
    return { lease, released: null }
  }
  const { ended } = event
  if (before.lease === null || before.lease.fencingToken !== ended.lease.fencingToken) {
    broken(event, 'there is no such lease to end')
  }
  return { lease: null, released: releasedBy(event) }
}

function releasedBy(event: EndedEvent): ReleasedAddress {
  const { lease, availableAt, removalConfirmed } = event.ended
  return {
    poolId: lease.poolId,
    address: lease.address,
    prefixLength: lease.prefixLength,
    availableAt,
    releasedSeq: event.seq,
    holderKey: lease.owner === null ? '' : holderKey(lease.owner),
    removalConfirmed,
  }
}

/** Whose closings an event changes. */
export function closedOrReopened(event: LedgerEvent): Owner | null {
  const owner =
    event.type === 'attachment.closed'
      ? event.owner
      : event.type === 'lease.reserved'
        ? event.lease.owner
        : null
  return owner === null || owner.incarnation === '' ? null : owner
}

/** Closed attachments, one event later: closing adds, reserving (which only `reopen` or time allows) removes. */
export function evolveClosings(
  before: readonly ClosedAttachment[],
  event: LedgerEvent,
): readonly ClosedAttachment[] {
  if (event.type === 'attachment.closed') {
    const closing: ClosedAttachment = {
      owner: event.owner,
      poolId: event.poolId,
      closedAt: event.at,
      closedSeq: event.seq,
    }
    return [...before.filter((one) => one.poolId !== event.poolId), closing]
  }
  if (event.type === 'lease.reserved') {
    return before.filter((one) => one.poolId !== null && one.poolId !== event.lease.poolId)
  }
  return before
}

export function evolveNetwork(before: Network | null, event: LedgerEvent): Network | null {
  switch (event.type) {
    case 'network.created':
      return {
        ...event.settings,
        network: event.network,
        state: 'READY',
        era: before?.era ?? 0,
        createdAt: event.at,
        updatedAt: event.at,
        version: event.seq,
      }
    case 'network.updated':
      return {
        ...present(before, event),
        ...event.settings,
        ...(event.recoveryEnded ? { state: 'READY' as const } : {}),
        updatedAt: event.at,
        version: event.seq,
      }
    case 'era.begun':
      return {
        ...present(before, event),
        era: event.era,
        // Books that are being replaced stay that; the fold that replaces them knows of the recovery.
        ...(event.recovering && before?.state !== 'REBUILDING' ? { state: 'RECOVERING' as const } : {}),
        updatedAt: event.at,
        version: event.seq,
      }
    default:
      return before
  }
}

/** The hold of a source, or of the network, after the event, whatever it was before. */
export function evolveHold(event: HoldEvent | ResumedEvent): Hold | null {
  if (event.type === 'reconcile.resumed') return null
  const { source, why, reaps, leases } = event.evidence
  return { source, seq: event.seq, at: event.at, why, reaps, leases }
}

/** A boot that was fenced stays so; said again, it is said of all leases up to then. */
export function evolveFence(event: FencedEvent): Fence {
  const { node, boot, why, head = event.seq } = event.evidence
  return { node, boot, seq: event.seq, head: Math.min(head, event.seq), at: event.at, by: event.actor, why }
}

export function evolvePool(before: Pool | null, event: LedgerEvent): Pool | null {
  switch (event.type) {
    case 'pool.created':
      return buildPool(event.pool, {
        network: event.network,
        poolId: event.poolId,
        version: event.seq,
        createdAt: event.at,
        updatedAt: event.at,
      })
    case 'pool.updated':
      return buildPool(event.pool, {
        network: event.network,
        poolId: event.poolId,
        version: event.seq,
        createdAt: present(before, event).createdAt,
        updatedAt: event.at,
      })
    case 'pool.deleted':
      return null
    default:
      return before
  }
}

/** Folds an event into a batch's books, in place, and returns them. */
export function evolve(books: Books, event: LedgerEvent): Books {
  books.head = event.seq
  if (isHeldEvent(event) || isEndedEvent(event)) {
    const { poolId, address } = addressOf(event)
    const before = bookInPool(books, poolId, address)
    const after = evolveAddress(before, event)
    replaceBook(books, poolId, address, after)
    countQuarantine(books, before.lease, -1)
    countQuarantine(books, after.lease, 1)
    if (books.heldLeases !== undefined)
      books.heldLeases += (after.lease === null ? 0 : 1) - (before.lease === null ? 0 : 1)
    if (isEndedEvent(event)) {
      books.byToken.set(event.ended.lease.fencingToken, { ended: event.ended })
      books.lastHolders.set(event.seq, lastHolderOf(event.ended.lease))
      addEnding(books, event.ended)
      countReap(books, event)
    }
  }
  const closes = closedOrReopened(event)
  if (closes !== null) evolveClosingsOf(books, attachmentKey(closes), event)
  switch (event.type) {
    case 'era.begun':
      // In the new era nothing has been observed yet.
      books.unobserved = undefined
      if (event.recovering) books.lastRecovery = event.seq
      books.network = evolveNetwork(books.network, event)
      return books
    case 'network.created':
    case 'network.updated':
      books.network = evolveNetwork(books.network, event)
      return books
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted': {
      const before = books.pools.get(event.poolId) ?? null
      const pool = evolvePool(before?.pool ?? null, event)
      if (pool === null) books.pools.delete(event.poolId)
      else books.pools.set(event.poolId, reshapePool(books, before, pool))
      return books
    }
    case 'node.fenced': {
      const { node, boot } = event.evidence
      books.fences.set(bootKey(node, boot), evolveFence(event))
      // Its sources are waited for no more: to be read anew.
      books.strictness.clear()
      return books
    }
    case 'reconcile.held':
    case 'reconcile.resumed': {
      const { source } = event.evidence
      books.holds.set(source, evolveHold(event))
      if (event.type === 'reconcile.resumed') books.absenceReaps.set(source, 0)
      return books
    }
    case 'attachment.closed':
      addClosedLife(books, event.owner)
      return books
    default:
      return books
  }
}

/** Untouched space after a pool's shape changed: what stays of it, and what comes in. */
export function evolveUntouched(
  untouched: readonly Range[],
  before: readonly Range[],
  after: readonly Range[],
): readonly Range[] {
  return union(intersect(untouched, after), subtract(after, before))
}

function reshapePool(books: Books, before: PoolBook | null, pool: Pool): PoolBook {
  const old = before?.pool.allocatable ?? []
  const dropped = before === null ? 0 : (books.occupants.get(pool.poolId)?.cooledCount ?? 0)
  const counts = before?.counts ?? NO_COUNTS
  const leaves = (entry: ReleasedAddress) => !contains(pool.allocatable, addressValue(entry.address))
  return {
    pool,
    counts: { ...counts, released: counts.released - dropped },
    untouched: evolveUntouched(before?.untouched ?? [], old, pool.allocatable),
    untouchedUpTo: before === null ? null : before.untouchedUpTo,
    cooled: new Map([...(before?.cooled ?? [])].filter(([, entry]) => !leaves(entry))),
    cooledComplete: before?.cooledComplete ?? true,
    sighted: new Set(),
    sightedUpTo: -1n,
  }
}

function evolveClosingsOf(books: Books, key: string, event: LedgerEvent): void {
  const before = books.closings.get(key)
  if (before !== undefined) books.closings.set(key, evolveClosings(before, event))
}

function addEnding(books: Books, ended: EndedLease): void {
  if (ended.lease.owner === null || books.endings.size === 0) return
  const key = attachmentKey(ended.lease.owner)
  const before = books.endings.get(key)
  if (before !== undefined) books.endings.set(key, [...before, ended])
}

function addClosedLife(books: Books, owner: Owner): void {
  const key = workloadKey(owner.kind, owner.uid)
  const before = books.closedLives.get(key)
  if (before !== undefined) books.closedLives.set(key, new Map(before).set(attachmentKey(owner), owner))
}

function countQuarantine(books: Books, lease: Lease | null, by: 1 | -1): void {
  const quarantine = lease?.quarantine
  if (quarantine === null || quarantine === undefined) return
  const counts =
    quarantine.reason === 'SEEN_BY_CALLER'
      ? books.quarantinesBy
      : SIGHTING_REASONS.includes(quarantine.reason)
        ? books.quarantinesBySource
        : undefined
  const count = counts?.get(quarantine.by)
  if (count !== undefined) counts!.set(quarantine.by, count + by)
}

/** Reaps that rest on absence, of the network and of each source they rest on. */
function countReap(books: Books, event: EndedEvent): void {
  if (event.type !== 'lease.reaped' || event.cause !== 'PROVEN_ABSENT') return
  for (const source of ['', ...((event.evidence?.sources ?? []) as readonly string[])]) {
    const count = books.absenceReaps.get(source)
    if (count !== undefined) books.absenceReaps.set(source, count + 1)
  }
}

function present<T>(before: T | null, event: LedgerEvent): T {
  if (before === null) broken(event, 'what it changes was never created')
  return before
}

function broken(event: LedgerEvent, why: string): never {
  throw new BrokenBooks(`event ${event.network}/${event.seq} (${event.type}): ${why}`)
}
