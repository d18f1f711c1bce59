/**
 * The part of a network's projections that one batch works on: what was read under the lock, plus what the
 * batch's own events have changed since. Nothing here does I/O. Whatever a decision asks for and the batch has
 * not read is thrown as `Missing`; the shell reads it and the command is decided again from its start, so a
 * short read can never be taken for an empty one.
 *
 * Two rules keep late reads honest: rows read later are added only where nothing is known yet, because what is
 * known may already carry this batch's events; and nothing is changed that has not been read before.
 */
import { blockSize, formatValue, isMalformed, parseAddress } from './address.ts'
import type { EndedLease, Lease } from './lease.ts'
import type { Network } from './network.ts'
import { attachmentKey, holderKey, type Owner } from './owner.ts'
import type { Pool, PoolCounts } from './pool.ts'
import { contains, type Range, subtract } from './ranges.ts'

/** An address somebody held before: cooling until `availableAt`, then free again, longest-free first. */
export type ReleasedAddress = {
  readonly poolId: number
  readonly address: string
  readonly prefixLength: number
  readonly availableAt: number
  readonly releasedSeq: number
  /** Its last holder; only it may have the address back before it has cooled, and only if removal was confirmed. */
  readonly holderKey: string
  readonly removalConfirmed: boolean
}

export type ClosedAttachment = {
  readonly owner: Owner
  /** Null: in every pool. */
  readonly poolId: number | null
  readonly closedAt: number
  readonly closedSeq: number
}

export type Remembered = {
  readonly fingerprint: string
  readonly method: string
  readonly at: number
  readonly seq: number
  /** The answer's JSON. */
  readonly answer: string
}

export type PoolBook = {
  readonly pool: Pool
  counts: PoolCounts
  /** Loaded pieces of the untouched space, ascending. */
  untouched: readonly Range[]
  /** Every piece that starts at or below this is loaded; null when all of them are; -1 when none was read. */
  untouchedUpTo: bigint | null
  /** Loaded released addresses that had cooled when they were read, in order of reuse. */
  readonly cooled: Map<string, ReleasedAddress>
  /** True when no cooled address is left unread. */
  cooledComplete: boolean
}

/** What stands at an address: a lease, or its place in the queue of released addresses, or neither (untouched). */
export type AddressBook = {
  readonly lease: Lease | null
  readonly released: ReleasedAddress | null
}

export const UNTOUCHED: AddressBook = { lease: null, released: null }

export type Occupants = {
  /** The ranges that were asked about. */
  readonly ranges: readonly Range[]
  /** Held and cooling addresses, at most a page. */
  readonly held: readonly Lease[]
  readonly heldCount: number
  readonly cooling: readonly ReleasedAddress[]
  readonly coolingCount: number
  /** Released addresses that have cooled and would be forgotten. */
  readonly cooledCount: number
  readonly lastAvailableAt: number | null
}

export type Need =
  | { readonly what: 'pool'; readonly name: string }
  | { readonly what: 'poolById'; readonly poolId: number }
  | { readonly what: 'poolAt'; readonly address: string }
  | { readonly what: 'defaultPools' }
  | { readonly what: 'overlap'; readonly cidr: string }
  | { readonly what: 'address'; readonly address: string }
  | { readonly what: 'token'; readonly token: number }
  | { readonly what: 'holder'; readonly key: string }
  | { readonly what: 'attachment'; readonly key: string }
  | { readonly what: 'closings'; readonly key: string }
  /** What an attachment held that holds nothing now. */
  | { readonly what: 'endings'; readonly owner: Owner }
  | { readonly what: 'request'; readonly id: string }
  /** Pieces of untouched space, and released addresses that have cooled, in order. */
  | { readonly what: 'candidates'; readonly pool: string; readonly ranges: number; readonly released: number }
  | { readonly what: 'cooling'; readonly poolId: number }
  | { readonly what: 'previous'; readonly key: string; readonly owner: Owner }
  | { readonly what: 'quarantinesBy'; readonly actor: string }
  | { readonly what: 'occupants'; readonly poolId: number; readonly ranges: readonly Range[] }
  | { readonly what: 'wholeFreeSpace'; readonly pool: string }

/** Read at a time when what was read at first does not do. */
const MORE_CANDIDATES = 256

export class Missing extends Error {
  readonly need: Need
  constructor(need: Need) {
    super(`not read yet: ${need.what}`)
    this.need = need
  }
}

/** The books contradict themselves: a bug or a second writer. Never a caller's fault. */
export class BrokenBooks extends Error {}

export type Books = {
  readonly networkName: string
  network: Network | null
  head: number
  /** Milliseconds; never less than the time of the last event. */
  now: number
  readonly pools: Map<number, PoolBook>
  readonly poolNames: Map<string, number | null>
  defaultPools: readonly number[] | undefined
  readonly addresses: Map<string, AddressBook>
  readonly byHolder: Map<string, Set<string>>
  readonly byAttachment: Map<string, Set<string>>
  readonly byToken: Map<number, { readonly address: string } | { readonly ended: EndedLease } | null>
  readonly closings: Map<string, readonly ClosedAttachment[]>
  /** By `endingsKey`. */
  readonly endings: Map<string, readonly EndedLease[]>
  readonly requests: Map<string, Remembered | null>
  readonly previous: Map<string, readonly string[]>
  readonly nextCooled: Map<number, number | null>
  /** Addresses this batch released that need not cool, by pool: free, and behind all that were free before. */
  readonly freed: Map<number, Map<string, ReleasedAddress>>
  readonly quarantinesBy: Map<string, number>
  readonly poolsAt: Map<string, number | null>
  readonly overlaps: Map<string, readonly number[]>
  readonly occupants: Map<number, Occupants>
  /** Addresses the database vetoed in this process (a row the books did not know); never candidates. */
  readonly setAside: ReadonlySet<string>
}

export function emptyBooks(networkName: string, setAside: ReadonlySet<string> = new Set()): Books {
  return {
    networkName,
    network: null,
    head: 0,
    now: 0,
    pools: new Map(),
    poolNames: new Map(),
    defaultPools: undefined,
    addresses: new Map(),
    byHolder: new Map(),
    byAttachment: new Map(),
    byToken: new Map(),
    closings: new Map(),
    endings: new Map(),
    requests: new Map(),
    previous: new Map(),
    nextCooled: new Map(),
    freed: new Map(),
    quarantinesBy: new Map(),
    poolsAt: new Map(),
    overlaps: new Map(),
    occupants: new Map(),
    setAside,
  }
}

/** A copy that can be thrown away: all-or-nothing commands fold their items into it first. */
export function forkBooks(books: Books): Books {
  const copySets = (index: Map<string, Set<string>>) =>
    new Map([...index].map(([key, set]) => [key, new Set(set)]))
  return {
    ...books,
    pools: new Map([...books.pools].map(([id, book]) => [id, { ...book, cooled: new Map(book.cooled) }])),
    poolNames: new Map(books.poolNames),
    addresses: new Map(books.addresses),
    byHolder: copySets(books.byHolder),
    byAttachment: copySets(books.byAttachment),
    byToken: new Map(books.byToken),
    closings: new Map(books.closings),
    endings: new Map(books.endings),
    requests: new Map(books.requests),
    previous: new Map(books.previous),
    nextCooled: new Map(books.nextCooled),
    freed: new Map([...books.freed].map(([id, entries]) => [id, new Map(entries)])),
    quarantinesBy: new Map(books.quarantinesBy),
    poolsAt: new Map(books.poolsAt),
    overlaps: new Map(books.overlaps),
    occupants: new Map(books.occupants),
  }
}

// What decisions ask.

export function poolNamed(books: Books, name: string): PoolBook | null {
  const id = books.poolNames.get(name)
  if (id === undefined) throw new Missing({ what: 'pool', name })
  return id === null ? null : poolById(books, id)
}

export function poolById(books: Books, poolId: number): PoolBook {
  const book = books.pools.get(poolId)
  if (book === undefined) throw new Missing({ what: 'poolById', poolId })
  return book
}

export function poolAt(books: Books, address: string): PoolBook | null {
  const id = books.poolsAt.get(address)
  if (id === undefined) throw new Missing({ what: 'poolAt', address })
  return id === null ? null : poolById(books, id)
}

export function defaultPools(books: Books): readonly PoolBook[] {
  if (books.defaultPools === undefined) throw new Missing({ what: 'defaultPools' })
  return books.defaultPools.map((id) => poolById(books, id))
}

export function poolsOverlapping(books: Books, cidr: string): readonly PoolBook[] {
  const ids = books.overlaps.get(cidr)
  if (ids === undefined) throw new Missing({ what: 'overlap', cidr })
  return ids.map((id) => poolById(books, id))
}

export function bookAt(books: Books, address: string): AddressBook {
  const book = books.addresses.get(address)
  if (book === undefined) throw new Missing({ what: 'address', address })
  return book
}

export function leaseByToken(
  books: Books,
  token: number,
): { readonly lease: Lease } | { readonly ended: EndedLease } | null {
  const found = books.byToken.get(token)
  if (found === undefined) throw new Missing({ what: 'token', token })
  if (found === null || 'ended' in found) return found
  const lease = bookAt(books, found.address).lease
  if (lease === null || lease.fencingToken !== token)
    throw new BrokenBooks(`lease ${token} is not at ${found.address}`)
  return { lease }
}

export function leasesOfHolder(books: Books, owner: Owner): readonly Lease[] {
  const key = holderKey(owner)
  const found = books.byHolder.get(key)
  if (found === undefined) throw new Missing({ what: 'holder', key })
  return leasesAt(books, found)
}

export function leasesOfAttachment(books: Books, owner: Owner): readonly Lease[] {
  const key = attachmentKey(owner)
  const found = books.byAttachment.get(key)
  if (found === undefined) throw new Missing({ what: 'attachment', key })
  return leasesAt(books, found)
}

/**
 * What stands at an address that an event is about. A candidate out of the untouched space was never read by
 * itself: that it is untouched is what was read about it.
 */
export function bookInPool(books: Books, poolId: number, address: string): AddressBook {
  const book = books.addresses.get(address)
  if (book !== undefined) return book
  const { untouched } = poolById(books, poolId)
  return contains(untouched, addressValue(address)) ? UNTOUCHED : bookAt(books, address)
}

function leasesAt(books: Books, addresses: ReadonlySet<string>): readonly Lease[] {
  const leases: Lease[] = []
  for (const address of addresses) {
    const lease = bookAt(books, address).lease
    if (lease !== null) leases.push(lease)
  }
  return leases.sort((a, b) => a.fencingToken - b.fencingToken)
}

export function closingsOf(books: Books, owner: Owner): readonly ClosedAttachment[] {
  const key = attachmentKey(owner)
  const found = books.closings.get(key)
  if (found === undefined) throw new Missing({ what: 'closings', key })
  return found
}

/** An attachment under the name it gives itself: the log is looked up by name. */
export function endingsKey(owner: Owner): string {
  return JSON.stringify([attachmentKey(owner), owner.name])
}

/** Leases of the attachment that ended last, one right after the other: as a Release by owner ends them. */
export function lastEndingsOf(books: Books, owner: Owner): readonly EndedLease[] {
  const found = books.endings.get(endingsKey(owner))
  if (found === undefined) throw new Missing({ what: 'endings', owner })
  const latestFirst = found.toSorted((a, b) => b.seq - a.seq)
  const gap = latestFirst.findIndex((one, index) => index > 0 && one.seq !== latestFirst[index - 1]!.seq - 1)
  return latestFirst.slice(0, gap === -1 ? undefined : gap).reverse()
}

export function rememberedRequest(books: Books, id: string): Remembered | null {
  const found = books.requests.get(id)
  if (found === undefined) throw new Missing({ what: 'request', id })
  return found
}

/** Addresses this holder released, latest first, that nobody holds now. */
export function previousAddresses(books: Books, owner: Owner): readonly ReleasedAddress[] {
  const key = holderKey(owner)
  const found = books.previous.get(key)
  if (found === undefined) throw new Missing({ what: 'previous', key, owner })
  const released: ReleasedAddress[] = []
  for (const address of found) {
    const entry = bookAt(books, address).released
    if (entry !== null && entry.holderKey === key) released.push(entry)
  }
  return released.sort((a, b) => b.releasedSeq - a.releasedSeq)
}

export function quarantinesCausedBy(books: Books, actor: string): number {
  const count = books.quarantinesBy.get(actor)
  if (count === undefined) throw new Missing({ what: 'quarantinesBy', actor })
  return count
}

/** When the next address of the pool stops cooling; null when none is cooling. */
export function nextCooledAt(books: Books, poolId: number): number | null {
  const at = books.nextCooled.get(poolId)
  if (at === undefined) throw new Missing({ what: 'cooling', poolId })
  return at
}

export function occupantsOf(books: Books, poolId: number, ranges: readonly Range[]): Occupants {
  const occupants = books.occupants.get(poolId)
  if (occupants === undefined) throw new Missing({ what: 'occupants', poolId, ranges })
  return occupants
}

/**
 * Free addresses of a pool in the order in which they are handed out: untouched space from its lowest address
 * on, then released addresses that have cooled, longest-free first. Throws `Missing` where the loaded window
 * ends; ends itself only where the pool really has no more.
 */
export function* candidates(books: Books, book: PoolBook): Generator<string> {
  const { pool } = book
  const step = blockSize(pool.family, pool.prefixLength)
  for (const range of book.untouched) {
    if (book.untouchedUpTo !== null && range.first > book.untouchedUpTo) break
    for (let value = range.first; value <= range.last; value += step) yield formatValue(pool.family, value)
  }
  const more = {
    what: 'candidates',
    pool: pool.name,
    ranges: MORE_CANDIDATES,
    released: MORE_CANDIDATES,
  } as const
  if (book.untouchedUpTo !== null) throw new Missing(more)
  for (const entry of book.cooled.values()) if (entry.availableAt <= books.now) yield entry.address
  if (!book.cooledComplete) throw new Missing(more)
  yield* books.freed.get(pool.poolId)?.keys() ?? []
}

// What events change. Called by `evolve` alone.

/** Puts an address's new state in place and keeps indexes, counters and free space in step. */
export function replaceBook(books: Books, poolId: number, address: string, after: AddressBook): void {
  const before = bookInPool(books, poolId, address)
  books.addresses.set(address, after)
  unindex(books, before.lease)
  index(books, after.lease)
  const book = poolById(books, poolId)
  const counts = { ...book.counts }
  count(counts, before, -1)
  count(counts, after, 1)
  book.counts = counts
  if (
    before.lease === null &&
    before.released === null &&
    (after.lease !== null || after.released !== null)
  ) {
    takeUntouched(book, address)
  }
  if (after.released === before.released) return
  if (before.released !== null) {
    book.cooled.delete(address)
    books.freed.get(poolId)?.delete(address)
  }
  if (after.released !== null) releasedHere(books, after.released)
}

function releasedHere(books: Books, released: ReleasedAddress): void {
  const { poolId, address, availableAt } = released
  if (availableAt <= books.now) {
    const freed = books.freed.get(poolId) ?? new Map<string, ReleasedAddress>()
    books.freed.set(poolId, freed.set(address, released))
  } else {
    const next = books.nextCooled.get(poolId)
    if (next !== undefined && (next === null || next > availableAt)) books.nextCooled.set(poolId, availableAt)
  }
  const previous = books.previous.get(released.holderKey)
  if (previous !== undefined) books.previous.set(released.holderKey, [...new Set([...previous, address])])
}

function takeUntouched(book: PoolBook, address: string): void {
  const { pool } = book
  const first = addressValue(address)
  if (!contains(book.untouched, first))
    throw new BrokenBooks(`${address} is neither held, released nor untouched`)
  const last = first + blockSize(pool.family, pool.prefixLength) - 1n
  const lowest = book.untouched[0]!
  // The common case, taking the lowest, must not copy a fragmented pool's whole list.
  book.untouched =
    lowest.first === first && lowest.last > last
      ? [{ first: last + 1n, last: lowest.last }, ...book.untouched.slice(1)]
      : subtract(book.untouched, [{ first, last }])
}

function index(books: Books, lease: Lease | null): void {
  if (lease === null) return
  books.byToken.set(lease.fencingToken, { address: lease.address })
  if (lease.owner === null) return
  books.byHolder.get(holderKey(lease.owner))?.add(lease.address)
  books.byAttachment.get(attachmentKey(lease.owner))?.add(lease.address)
}

function unindex(books: Books, lease: Lease | null): void {
  if (lease === null) return
  if (lease.owner === null) return
  books.byHolder.get(holderKey(lease.owner))?.delete(lease.address)
  books.byAttachment.get(attachmentKey(lease.owner))?.delete(lease.address)
}

function count(
  counts: { -readonly [K in keyof PoolCounts]: PoolCounts[K] },
  book: AddressBook,
  by: 1 | -1,
): void {
  if (book.released !== null) counts.released += by
  switch (book.lease?.state) {
    case 'RESERVED':
      counts.reserved += by
      return
    case 'ACTIVE':
      counts.active += by
      return
    case 'QUARANTINED':
      counts.quarantined += by
      return
    case undefined:
      return
  }
}

export function addressValue(address: string): bigint {
  const parsed = parseAddress(address)
  if (isMalformed(parsed))
    throw new BrokenBooks(`${address} is stored but is no address: ${parsed.malformed}`)
  return parsed.value
}
