/**
 * The part of a network's projections that one batch works on: what was read under the lock, plus what the
 * batch's own events have changed since. Nothing here does I/O. Whatever a decision asks for and the batch has
 * not read is thrown as `Missing`; the shell reads it and the command is decided again from its start, so a
 * short read can never be taken for an empty one.
 *
 * Two rules keep late reads honest: rows read later are added only where nothing is known yet, because what is
 * known may already carry this batch's events; and nothing is changed that has not been read before.
 */
import { blockSize, formatValue, isMalformed, maxPrefix, parseAddress } from './address.ts'
import { isSameWorkload } from './judge.ts'
import { Layer } from './layer.ts'
import type { EndedLease, Lease } from './lease.ts'
import type { Network } from './network.ts'
import { attachmentKey, holderKey, type Owner } from './owner.ts'
import { POLICY } from './policy.ts'
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

/** Whose lease an address was last, and where. */
export type LastHolder = {
  readonly owner: Owner | null
  readonly node: string
  /** Other nodes have asked for it: that it was removed is said of one of them, and nobody knows which. */
  readonly isMoved: boolean
}

export function lastHolderOf({ owner, placement: { node }, askedFrom = [] }: Lease): LastHolder {
  return { owner, node, isMoved: askedFrom.length > 0 }
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
  /** Untouched addresses, or blocks, that somebody sees live. */
  readonly sighted: Set<string>
  /** Of the untouched pieces that were read in order, `sighted` has all up to this address; null: all; -1: none. */
  sightedUpTo: bigint | null
}

/** An address, or one inside a block, that a source which is not retired lists now, and not as terminal. */
export type LiveSighting = {
  readonly source: string
  readonly address: string
  /** Null: in use, and whose it is is not known. */
  readonly owner: Owner | null
  readonly node: string
  readonly boot: string
  /** Head of the ledger that it is evidence of; null: nothing proves one, so that it only protects. */
  readonly head: number | null
  /** Begin of the last report that may have listed it. */
  readonly listedAt: number
}

/** What sources see at an address, or in the block that begins there. */
export type Sightings = {
  readonly live: readonly LiveSighting[]
  /** When it was last seen by anybody, as far as its intervals tell: where one began, or before one ended. */
  readonly lastSeenAt: number | null
}

export const NEVER_SEEN: Sightings = { live: [], lastSeenAt: null }

/** How a source stands, as far as decisions go by it. */
export type SourceBook = {
  readonly source: string
  readonly state: 'REGISTERED' | 'ENABLED' | 'RETIRED'
  readonly epoch: string
  readonly warm: boolean
  /** Of its last complete snapshot; null before it. */
  readonly era: number | null
  /** Entries of that snapshot. */
  readonly size: number
}

/** Held leases among what a source lists live, as far as its list was looked at. */
export type LeasesSeen = {
  /** Entries that were to be looked at, and as many as there were. */
  readonly upTo: number
  readonly entries: number
  readonly leases: number
}

/** Nothing is reaped on the word of a source, or in a whole network, until an operator resumes. */
export type Hold = {
  /** Empty: the whole network. */
  readonly source: string
  readonly seq: number
  readonly at: number
  readonly why: string
  readonly reaps: number
  readonly leases: number
}

/** Somebody answers for it that this boot of the node is over. */
export type Fence = {
  readonly node: string
  readonly boot: string
  /** Number of the statement. */
  readonly seq: number
  /** It is about leases with a token up to this: as far as its caller had seen the ledger. */
  readonly head: number
  readonly at: number
  readonly by: string
  readonly why: string
}

/** What a STRICT pool goes by. Sources are the enabled ones whose node's boot is not fenced. */
export type Strictness = {
  readonly sources: number
  /** Some of those that have not reported completely in this era, or are warming up. */
  readonly unreported: readonly string[]
  /** Those that see the asking node: its own and the network's. */
  readonly asking: readonly {
    readonly source: string
    readonly intervalMs: number
    /** When its last complete snapshot of this era was begun; null while it warms up. */
    readonly completeAt: number | null
  }[]
}

/**
 * What a recovery waits for. Of enabled sources none is left out for a fence: which boot a node is in the restored books
 * know from before, and what it runs by now only its source can tell (12.1).
 */
export type Unobserved = {
  readonly sources: number
  /** Some of those that have not reported completely in this era, or are warming up. */
  readonly unreported: readonly string[]
  /** Some of those that have called in this era, while the network recovered, and that nobody has registered and enabled. */
  readonly unknown: readonly string[]
}

/** What stands at an address: a lease, or its place in the queue of released addresses, or neither (untouched). */
export type AddressBook = {
  readonly lease: Lease | null
  readonly released: ReleasedAddress | null
}

export const UNTOUCHED: AddressBook = { lease: null, released: null }

/** Looked at under the lock: so few that a pool of millions is asked as fast as a small one. */
export type Occupants = {
  /** The ranges that were asked about. */
  readonly ranges: readonly Range[]
  /** At most one more than is listed. */
  readonly held: readonly Lease[]
  /** Likewise; the one that cools longest is among them. */
  readonly cooling: readonly ReleasedAddress[]
  /** Released addresses that have cooled and would be forgotten; counted up to one more than may be at once. */
  readonly cooledCount: number
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
  /** Of the lease that ended with that number. */
  | { readonly what: 'lastHolder'; readonly seq: number }
  | { readonly what: 'request'; readonly id: string }
  /** Pieces of untouched space, and released addresses that have cooled, in order. */
  | { readonly what: 'candidates'; readonly pool: string; readonly ranges: number; readonly released: number }
  | { readonly what: 'cooling'; readonly poolId: number }
  | { readonly what: 'previous'; readonly key: string; readonly owner: Owner }
  | { readonly what: 'quarantinesBy'; readonly actor: string }
  | { readonly what: 'quarantinesBySource'; readonly source: string }
  /** What is seen live at an address or in its block, and when it was last seen. */
  | { readonly what: 'sightings'; readonly address: string; readonly prefixLength: number }
  /** What is seen live in these pieces of a pool's untouched space, from the lowest address on. */
  | { readonly what: 'sightedIn'; readonly poolId: number; readonly ranges: readonly Range[] }
  | { readonly what: 'source'; readonly source: string }
  /** Attachments of a workload that are closed somewhere. */
  | { readonly what: 'closedLives'; readonly kind: string; readonly uid: string }
  | { readonly what: 'fence'; readonly node: string; readonly boot: string }
  | { readonly what: 'hold'; readonly source: string }
  /** Reaps on absence within the window and since the last resumption; without a source, those of the network. */
  | { readonly what: 'absenceReaps'; readonly source: string }
  | { readonly what: 'heldLeases' }
  /** How many held leases are among so many entries that a source lists. */
  | { readonly what: 'leasesSeen'; readonly source: string; readonly upTo: number }
  | { readonly what: 'strictness'; readonly node: string }
  | { readonly what: 'unobserved' }
  | { readonly what: 'lastRecovery' }
  | {
      readonly what: 'occupants'
      readonly poolId: number
      readonly ranges: readonly Range[]
      /** They are all of the pool. */
      readonly whole: boolean
    }
  | { readonly what: 'wholeFreeSpace'; readonly pool: string }

/** Read at a time when what was read at first does not do. */
const MORE_CANDIDATES = 256
/** Entries of a source among which its leases are counted; mostly a few tell enough. */
const FEW_ENTRIES = 256
/** And at most: as many leases are found in about 10 ms (not measured). */
export const MOST_ENTRIES = 4_096

export class Missing extends Error {
  readonly need: Need
  /** Wanted as well, and known already: one trip reads it all. */
  readonly alike: readonly Need[]
  constructor(need: Need, alike: readonly Need[] = []) {
    super(`not read yet: ${need.what}`)
    this.need = need
    this.alike = alike
  }
}

/** Asks at once for what each of them misses: one at a time, a thousand sightings would be thousands of trips. */
export function readTogether<T>(all: Iterable<T>, read: (one: T) => void): void {
  const needs: Need[] = []
  for (const one of all) {
    try {
      read(one)
    } catch (error) {
      if (!(error instanceof Missing)) throw error
      needs.push(error.need, ...error.alike)
    }
  }
  const [first, ...alike] = needs
  if (first !== undefined) throw new Missing(first, alike)
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
  /** By attachment. */
  readonly endings: Map<string, readonly EndedLease[]>
  /** By the number of the end of their lease; null: there is no such event. */
  readonly lastHolders: Map<number, LastHolder | null>
  readonly requests: Map<string, Remembered | null>
  readonly previous: Map<string, readonly string[]>
  readonly nextCooled: Map<number, number | null>
  /** Addresses this batch released that need not cool, by pool: free, and behind all that were free before. */
  readonly freed: Map<number, Map<string, ReleasedAddress>>
  /** Those that hold what a caller sees, by caller. */
  readonly quarantinesBy: Map<string, number>
  /** Those that hold what a source sees, by source. */
  readonly quarantinesBySource: Map<string, number>
  /** By `placeKey`. */
  readonly sightings: Map<string, Sightings>
  readonly sources: Map<string, SourceBook | null>
  /** By `workloadKey`, then by attachment. */
  readonly closedLives: Map<string, ReadonlyMap<string, Owner>>
  /** By `bootKey`. */
  readonly fences: Map<string, Fence | null>
  /** By `bootKey`: when the last report from a boot that is fenced was begun, before or after; null: none is known. */
  readonly fencedReports: Map<string, number | null>
  /** By source; the network's without one. */
  readonly holds: Map<string, Hold | null>
  readonly absenceReaps: Map<string, number>
  /** Leases of the network, whatever their state. */
  heldLeases: number | undefined
  /** By source. */
  readonly leasesSeen: Map<string, LeasesSeen>
  /** By asking node. */
  readonly strictness: Map<string, Strictness>
  unobserved: Unobserved | undefined
  /** Number of the event that began the last era with a recovery; 0: none did. */
  lastRecovery: number | undefined
  /** Longest report interval of the sources that are not retired; 0 without any. Read with the head. */
  slowestIntervalMs: number
  readonly poolsAt: Map<string, number | null>
  readonly overlaps: Map<string, readonly number[]>
  /** Of the CIDRs in `overlaps`: where rows of a deleted pool are left. */
  readonly uncleared: Set<string>
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
    lastHolders: new Map(),
    requests: new Map(),
    previous: new Map(),
    nextCooled: new Map(),
    freed: new Map(),
    quarantinesBy: new Map(),
    quarantinesBySource: new Map(),
    sightings: new Map(),
    sources: new Map(),
    closedLives: new Map(),
    fences: new Map(),
    fencedReports: new Map(),
    holds: new Map(),
    absenceReaps: new Map(),
    heldLeases: undefined,
    leasesSeen: new Map(),
    strictness: new Map(),
    unobserved: undefined,
    lastRecovery: undefined,
    slowestIntervalMs: 0,
    poolsAt: new Map(),
    overlaps: new Map(),
    uncleared: new Set(),
    occupants: new Map(),
    setAside,
  }
}

/** Books to try something on and throw away: all-or-nothing commands fold their items into them first. */
export function forkBooks(books: Books): Books {
  const copySet = (set: Set<string>) => new Set(set)
  return {
    ...books,
    pools: new Layer(books.pools, (book) => ({ ...book, cooled: new Layer(book.cooled) })),
    poolNames: new Layer(books.poolNames),
    addresses: new Layer(books.addresses),
    byHolder: new Layer(books.byHolder, copySet),
    byAttachment: new Layer(books.byAttachment, copySet),
    byToken: new Layer(books.byToken),
    closings: new Layer(books.closings),
    endings: new Layer(books.endings),
    lastHolders: new Layer(books.lastHolders),
    requests: new Layer(books.requests),
    previous: new Layer(books.previous),
    nextCooled: new Layer(books.nextCooled),
    freed: new Layer(books.freed, (entries) => new Layer(entries)),
    quarantinesBy: new Layer(books.quarantinesBy),
    quarantinesBySource: new Layer(books.quarantinesBySource),
    sightings: new Layer(books.sightings),
    sources: new Layer(books.sources),
    closedLives: new Layer(books.closedLives),
    fences: new Layer(books.fences),
    fencedReports: new Layer(books.fencedReports),
    holds: new Layer(books.holds),
    absenceReaps: new Layer(books.absenceReaps),
    leasesSeen: new Layer(books.leasesSeen),
    strictness: new Layer(books.strictness),
    poolsAt: new Layer(books.poolsAt),
    overlaps: new Layer(books.overlaps),
    occupants: new Layer(books.occupants),
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

/** Leases of the attachment that ended last, one right after the other: as a Release by owner ends them. */
export function lastEndingsOf(books: Books, owner: Owner): readonly EndedLease[] {
  const found = books.endings.get(attachmentKey(owner))
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

export function quarantinesOfSource(books: Books, source: string): number {
  const count = books.quarantinesBySource.get(source)
  if (count === undefined) throw new Missing({ what: 'quarantinesBySource', source })
  return count
}

export function placeKey(address: string, prefixLength: number): string {
  return `${address}/${prefixLength}`
}

export function sightingsAt(books: Books, address: string, prefixLength: number): Sightings {
  const found = books.sightings.get(placeKey(address, prefixLength))
  if (found === undefined) throw new Missing({ what: 'sightings', address, prefixLength })
  return found
}

export function sourceNamed(books: Books, source: string): SourceBook | null {
  const found = books.sources.get(source)
  if (found === undefined) throw new Missing({ what: 'source', source })
  return found
}

export function workloadKey(kind: string, uid: string): string {
  return `${kind}|${uid}`
}

/** Attachments of a workload that are closed somewhere, or were; `closingsOf` says where and since when. */
export function closedLivesOf(books: Books, { kind, uid }: Owner): readonly Owner[] {
  const found = books.closedLives.get(workloadKey(kind, uid))
  if (found === undefined) throw new Missing({ what: 'closedLives', kind, uid })
  return [...found.values()]
}

export function bootKey(node: string, boot: string): string {
  return JSON.stringify([node, boot])
}

/** Null: not fenced, or it is not known which boot. */
export function fenceOf(books: Books, node: string, boot: string): Fence | null {
  if (node === '' || boot === '') return null
  const found = books.fences.get(bootKey(node, boot))
  if (found === undefined) throw new Missing({ what: 'fence', node, boot })
  return found
}

/** Seen at a head at which it may still have been there, by who says that it is over (6.3). */
export function isBeforeFence(fence: Pick<Fence, 'seq' | 'head'>, head: number): boolean {
  return head < Math.min(fence.seq, fence.head + 1)
}

/** Of a boot that is fenced; it comes with its fence. */
export function fencedReportOf(books: Books, node: string, boot: string): number | null {
  const found = books.fencedReports.get(bootKey(node, boot))
  if (found === undefined) throw new Missing({ what: 'fence', node, boot })
  return found
}

export function holdOf(books: Books, source: string): Hold | null {
  const found = books.holds.get(source)
  if (found === undefined) throw new Missing({ what: 'hold', source })
  return found
}

export function absenceReapsOf(books: Books, source: string): number {
  const found = books.absenceReaps.get(source)
  if (found === undefined) throw new Missing({ what: 'absenceReaps', source })
  return found
}

export function heldLeasesOf(books: Books): number {
  if (books.heldLeases === undefined) throw new Missing({ what: 'heldLeases' })
  return books.heldLeases
}

/**
 * Held leases among what a source lists live, or as many as were looked for. Of a list that is longer than what is looked
 * at, the rest is taken to be like it: entries come in the order of digests, and are a fair sample.
 */
export function leasesSeenOf(books: Books, { source, size }: SourceBook, enough: number): number {
  const found = books.leasesSeen.get(source)
  if (found === undefined) throw new Missing({ what: 'leasesSeen', source, upTo: FEW_ENTRIES })
  const { upTo, entries, leases } = found
  if (entries < upTo || leases >= enough) return leases
  if (upTo < MOST_ENTRIES) throw new Missing({ what: 'leasesSeen', source, upTo: MOST_ENTRIES })
  return Math.min(heldLeasesOf(books), Math.floor((leases * Math.max(size, entries)) / entries))
}

export function strictnessFor(books: Books, node: string): Strictness {
  const found = books.strictness.get(node)
  if (found === undefined) throw new Missing({ what: 'strictness', node })
  return found
}

export function unobservedIn(books: Books): Unobserved {
  if (books.unobserved === undefined) throw new Missing({ what: 'unobserved' })
  return books.unobserved
}

/** What was promised before this number may be lost, and promises that were made about it. 0: nothing was ever lost. */
export function lastRecoveryOf(books: Books): number {
  if (books.network?.era === 0) return 0
  if (books.lastRecovery === undefined) throw new Missing({ what: 'lastRecovery' })
  return books.lastRecovery
}

/** A rest between two holders covers two reports of the slowest source: each could still say that it is live. */
export function cooldownOf(books: Books, pool: Pool): number {
  return Math.max(pool.cooldownMs, POLICY.cooldownIntervals * books.slowestIntervalMs)
}

/** When the next address of the pool stops cooling; null when none is cooling. */
export function nextCooledAt(books: Books, poolId: number): number | null {
  const at = books.nextCooled.get(poolId)
  if (at === undefined) throw new Missing({ what: 'cooling', poolId })
  return at
}

export function occupantsOf(
  books: Books,
  poolId: number,
  ranges: readonly Range[],
  whole: boolean,
): Occupants {
  const occupants = books.occupants.get(poolId)
  if (occupants === undefined) throw new Missing({ what: 'occupants', poolId, ranges, whole })
  return occupants
}

/**
 * Free addresses of a pool that nobody sees live, in the order in which they are handed out: untouched space from its
 * lowest address on, then released addresses that have cooled, longest-free first. Throws `Missing` where the loaded
 * window ends; ends itself only where the pool really has no more. `seen` collects what was passed over.
 */
export function* candidates(books: Books, book: PoolBook, seen: Set<string> = new Set()): Generator<string> {
  const { pool } = book
  const step = blockSize(pool.family, pool.prefixLength)
  for (const range of book.untouched) {
    if (book.untouchedUpTo !== null && range.first > book.untouchedUpTo) break
    for (let value = range.first; value <= range.last; value += step) {
      requireSightings(book, value + step - 1n)
      const address = formatValue(pool.family, value)
      if (book.sighted.has(address)) seen.add(address)
      else yield address
    }
  }
  const more = {
    what: 'candidates',
    pool: pool.name,
    ranges: MORE_CANDIDATES,
    released: MORE_CANDIDATES,
  } as const
  if (book.untouchedUpTo !== null) throw new Missing(more)
  for (const released of book.cooled.values()) {
    if (released.availableAt > books.now) continue
    if (isSeenAtFree(books, book, released)) seen.add(released.address)
    else yield released.address
  }
  if (!book.cooledComplete) throw new Missing(more)
  // Released under this lock: what anybody saw before is older.
  yield* books.freed.get(pool.poolId)?.keys() ?? []
}

/** What is missing about one of them is asked for about all: each by itself would be a trip. */
function isSeenAtFree(books: Books, { pool, cooled }: PoolBook, released: ReleasedAddress): boolean {
  const isSeen = (one: ReleasedAddress) => {
    const { live } = sightingsAt(books, one.address, pool.prefixLength)
    return live.some((seen) => !isRefuted(books, seen, one))
  }
  try {
    return isSeen(released)
  } catch (error) {
    if (!(error instanceof Missing)) throw error
    readTogether(
      [...cooled.values()].filter(({ availableAt }) => availableAt <= books.now),
      isSeen,
    )
    throw error
  }
}

/** What may refute what was seen at a released address. */
export type Refutation = {
  readonly released: Pick<ReleasedAddress, 'address' | 'prefixLength' | 'releasedSeq' | 'removalConfirmed'>
  readonly holder: LastHolder | null
  /** Of the boot it was seen in. */
  readonly fence: Pick<Fence, 'seq' | 'head'> | null
}

/**
 * Whether what was seen at an address before its last event is over by that event or by a fence. Whoever released it said
 * so of itself and of where it was; a reap proved it of whom nobody listed any more, so that it says nothing of what is
 * listed. Everybody else is there however old the list is, until the source reports again, is retired, or its boot is
 * fenced: a source that falls silent has not said that anybody has gone (INV-12, azure#1259).
 */
export function refutes(
  { released, holder, fence }: Refutation,
  seen: Pick<LiveSighting, 'head' | 'owner' | 'node'>,
): boolean {
  const { head } = seen
  if (head === null || head >= released.releasedSeq) return false
  if (released.removalConfirmed && holder !== null && isRemovedWith(holder, released, seen)) return true
  return fence !== null && isBeforeFence(fence, head)
}

export function isRefuted(
  books: Books,
  seen: LiveSighting,
  released: ReleasedAddress,
  /** Where the end of its lease has no number yet. */
  handedOnBy?: LastHolder,
): boolean {
  const { head, node, boot } = seen
  const { releasedSeq: seq, removalConfirmed } = released
  if (head === null || head >= seq) return false
  const holder = removalConfirmed ? (handedOnBy ?? books.lastHolders.get(seq)) : null
  const fence = node === '' || boot === '' ? null : books.fences.get(bootKey(node, boot))
  // Wanted together, so that it is one trip.
  if (holder === undefined)
    throw new Missing({ what: 'lastHolder', seq }, fence === undefined ? [{ what: 'fence', node, boot }] : [])
  if (fence === undefined) throw new Missing({ what: 'fence', node, boot })
  return refutes({ released, holder, fence }, seen)
}

/** A block's holder gives its addresses to whom it likes, on its own node. */
function isRemovedWith(
  holder: LastHolder,
  { address, prefixLength }: Refutation['released'],
  seen: Pick<LiveSighting, 'owner' | 'node'>,
): boolean {
  const isBlock = prefixLength < maxPrefix(address.includes(':') ? 6 : 4)
  const isElsewhere = holder.node !== seen.node
  if (holder.isMoved && seen.node !== '') return false
  if (isBlock) return seen.node !== '' && !isElsewhere
  if (isElsewhere && holder.node !== '' && seen.node !== '') return false
  return holder.owner !== null && isItself(seen, holder.owner)
}

/** As far as both tell lives apart. */
export function isItself({ owner: seen }: Pick<LiveSighting, 'owner'>, owner: Owner): boolean {
  return (
    seen !== null &&
    isSameWorkload(owner, seen) &&
    (seen.incarnation === '' || owner.incarnation === '' || seen.incarnation === owner.incarnation)
  )
}

/** Evidence begun before the address's last event says nothing about what came after; of no proven age, it protects. */
export function isSeenSince({ live }: Sightings, seq: number): boolean {
  return live.some(({ head }) => head === null || head >= seq)
}

/** Untouched space that was not held against the sightings is not free space yet. */
function requireSightings({ pool, untouched, untouchedUpTo, sightedUpTo }: PoolBook, last: bigint): void {
  if (sightedUpTo === null || last <= sightedUpTo) return
  const inOrder = untouched.filter(({ first }) => untouchedUpTo === null || first <= untouchedUpTo)
  const ranges = sightedUpTo < 0n ? inOrder : subtract(inOrder, [{ first: 0n, last: sightedUpTo }])
  throw new Missing({ what: 'sightedIn', poolId: pool.poolId, ranges })
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
