/**
 * A ledger without a database: one network's events, their fold, and a driver that answers what decisions need
 * from that fold as the shell answers it from PostgreSQL. Each read sees what was committed before the batch, adds
 * rows only where nothing is known yet, and brings candidates in windows, so that the ends of windows are met.
 *
 * The fold here is `evolve` taken one thing at a time (one address, one attachment, one pool) over the whole
 * history; the driver holds it against the books after every batch.
 */
import { isDeepStrictEqual } from 'node:util'
import { expect } from 'vitest'
import {
  blockBase,
  blockSize,
  type Family,
  formatValue,
  isMalformed,
  parseCidr,
} from '../../src/core/address.ts'
import {
  type AddressBook,
  addressValue,
  type Books,
  bootKey,
  type ClosedAttachment,
  emptyBooks,
  type Fence,
  type Hold,
  lastHolderOf,
  type Need,
  placeKey,
  type ReleasedAddress,
  type Remembered,
  workloadKey,
} from '../../src/core/books.ts'
import { type Answer, type Command, TERMINAL } from '../../src/core/command.ts'
import { decide } from '../../src/core/decide.ts'
import { isEndedEvent, isHeldEvent, type LedgerEvent } from '../../src/core/event.ts'
import {
  addressOf,
  closedOrReopened,
  evolve,
  evolveAddress,
  evolveClosings,
  evolveFence,
  evolveHold,
  evolveNetwork,
  evolvePool,
} from '../../src/core/evolve.ts'
import { type EndedLease, type Lease, SIGHTING_REASONS } from '../../src/core/lease.ts'
import type { Network } from '../../src/core/network.ts'
import { attachmentKey, holderKey, type Owner } from '../../src/core/owner.ts'
import { POLICY } from '../../src/core/policy.ts'
import type { Pool, PoolCounts } from '../../src/core/pool.ts'
import { contains, normalise, type Range, subtract } from '../../src/core/ranges.ts'
import type { Refusal } from '../../src/core/refusal.ts'
import { createWorld, type World } from './world.ts'

/** What a network's history says, complete. */
export type Fold = {
  readonly network: Network | null
  readonly head: number
  readonly now: number
  readonly pools: ReadonlyMap<number, Pool>
  readonly addresses: ReadonlyMap<string, AddressBook>
  readonly closings: ReadonlyMap<string, readonly ClosedAttachment[]>
  readonly ended: ReadonlyMap<number, EndedLease>
  readonly holds: ReadonlyMap<string, Hold>
  readonly fences: ReadonlyMap<string, Fence>
}

export type Result = {
  readonly events: readonly LedgerEvent[]
  /** Exactly one of both. */
  readonly answer: Answer | null
  readonly refusal: Refusal | null
  readonly replayed: boolean
}

export type MemoryLedger = {
  readonly networkName: string
  /** Milliseconds; what the database's clock would say under the lock. */
  now(): number
  wait(ms: number): void
  /** One batch of one command. */
  submit(command: Command): Result
  /** One batch: each command sees the events of those before it, all of them one time. */
  submitBatch(commands: readonly Command[]): readonly Result[]
  /** Appends facts that no command leaves (sightings, eras). */
  append(events: readonly LedgerEvent[]): void
  readonly events: readonly LedgerEvent[]
  fold(): Fold
  /** Leases, untouched space and counts of a pool as the history has them. */
  pool(name: string): PoolFold
  /** The database's veto: these are never candidates. */
  readonly setAside: Set<string>
  /** What sources see; nothing of it is in the history. */
  readonly world: World
}

export type PoolFold = {
  readonly pool: Pool
  readonly leases: readonly Lease[]
  readonly released: readonly ReleasedAddress[]
  readonly untouched: readonly Range[]
  readonly counts: PoolCounts
}

/** Rows a window of candidates has; each decision is made once for each and must come out the same. */
export type MemoryOptions = {
  readonly networkName?: string
  readonly windows?: readonly number[]
  readonly start?: number
}

const DEFAULT_WINDOWS = [1, 2, 7]
export const START = Date.UTC(2026, 0, 1)
/** A decision that asks more often than this asks for ever. */
const MOST_NEEDS = 5_000

export function memoryLedger(options: MemoryOptions = {}): MemoryLedger {
  const networkName = options.networkName ?? 'default'
  const windows = options.windows ?? DEFAULT_WINDOWS
  const store = emptyStore()
  const requests = new Map<string, Remembered>()
  const setAside = new Set<string>()
  const world = createWorld()
  let clock = options.start ?? START

  function submitBatch(commands: readonly Command[]): readonly Result[] {
    let agreed: Batch | undefined
    for (const window of windows) {
      const batch = runBatch({ store, requests, setAside, world, networkName, now: clock, window }, commands)
      if (agreed !== undefined) {
        expect(batch.results, `with windows of ${window} as with windows of ${windows[0]}`).toEqual(
          agreed.results,
        )
      }
      agreed = batch
    }
    const { books, results, remembered } = agreed!
    const shapes = new Map([...store.pools].map(([id, pool]) => [id, pool.allocatable]))
    for (const result of results) fold(store, result.events)
    for (const [id, one] of remembered) requests.set(id, one)
    compare(store, books, shapes)
    return results
  }

  return {
    networkName,
    now: () => clock,
    wait(ms) {
      clock += ms
    },
    submit: (command) => submitBatch([command])[0]!,
    submitBatch,
    append(events) {
      fold(store, events)
      clock = Math.max(clock, store.now)
    },
    get events() {
      return store.events
    },
    fold: () => store,
    pool(name) {
      const pool = [...store.pools.values()].find((one) => one.name === name)
      if (pool === undefined) throw new Error(`no pool ${name}`)
      return foldPool(store, pool)
    },
    setAside,
    world,
  }
}

// The fold.

type Store = {
  network: Network | null
  head: number
  now: number
  readonly events: LedgerEvent[]
  readonly pools: Map<number, Pool>
  readonly addresses: Map<string, AddressBook>
  readonly closings: Map<string, readonly ClosedAttachment[]>
  readonly ended: Map<number, EndedLease>
  readonly holds: Map<string, Hold>
  readonly fences: Map<string, Fence>
}

function emptyStore(): Store {
  return {
    network: null,
    head: 0,
    now: 0,
    events: [],
    pools: new Map(),
    addresses: new Map(),
    closings: new Map(),
    ended: new Map(),
    holds: new Map(),
    fences: new Map(),
  }
}

/** A history folded from its beginning, by nothing but its events. */
export function foldAll(events: readonly LedgerEvent[]): Fold {
  const store = emptyStore()
  fold(store, events)
  return store
}

function fold(store: Store, events: readonly LedgerEvent[]): void {
  for (const event of events) {
    if (event.type !== 'era.begun') expect(event.seq, 'numbers have no gap').toBe(store.head + 1)
    expect(event.at, 'time does not run backwards').toBeGreaterThanOrEqual(store.now)
    store.events.push(event)
    store.head = event.seq
    store.now = event.at
    store.network = evolveNetwork(store.network, event)
    foldClosings(store, event)
    foldStatement(store, event)
    if (isHeldEvent(event) || isEndedEvent(event)) {
      const { address } = addressOf(event)
      store.addresses.set(address, evolveAddress(standing(store, address), event))
      if (isEndedEvent(event)) store.ended.set(event.ended.lease.fencingToken, event.ended)
    }
    if ('poolId' in event && event.type !== 'attachment.closed') {
      const pool = evolvePool(store.pools.get(event.poolId) ?? null, event)
      if (pool === null) store.pools.delete(event.poolId)
      else store.pools.set(event.poolId, pool)
      forgetOutside(store, event.poolId, pool)
    }
  }
}

function foldClosings(store: Store, event: LedgerEvent): void {
  const owner = closedOrReopened(event)
  if (owner === null) return
  const key = attachmentKey(owner)
  store.closings.set(key, evolveClosings(store.closings.get(key) ?? [], event))
}

function foldStatement(store: Store, event: LedgerEvent): void {
  if (event.type === 'node.fenced') {
    const fence = evolveFence(event)
    store.fences.set(bootKey(fence.node, fence.boot), fence)
  }
  if (event.type === 'reconcile.held' || event.type === 'reconcile.resumed') {
    const hold = evolveHold(event)
    if (hold === null) store.holds.delete(event.evidence.source)
    else store.holds.set(event.evidence.source, hold)
  }
}

/** Reaps on absence of the last hour, but none from before it was resumed last. */
function absenceReaps(store: Store, source: string, now: number): number {
  const resumed = store.events.findLast(
    (event) => event.type === 'reconcile.resumed' && event.evidence.source === source,
  )
  return store.events.filter((event) => {
    if (event.type !== 'lease.reaped' || event.cause !== 'PROVEN_ABSENT') return false
    if (event.at <= now - POLICY.holdWindowMs || event.seq <= (resumed?.seq ?? 0)) return false
    return source === '' || (event.evidence!.sources as readonly string[]).includes(source)
  }).length
}

/** A change of a pool's shape forgets the released addresses that are in it no more. */
function forgetOutside(store: Store, poolId: number, pool: Pool | null): void {
  for (const [address, { released }] of store.addresses) {
    if (released === null || released.poolId !== poolId) continue
    if (pool === null || !contains(pool.allocatable, addressValue(address))) store.addresses.delete(address)
  }
}

function standing(store: Store, address: string): AddressBook {
  return store.addresses.get(address) ?? { lease: null, released: null }
}

function leasesOf(store: Store, fits: (lease: Lease) => boolean): readonly Lease[] {
  return [...store.addresses.values()].flatMap(({ lease }) => (lease !== null && fits(lease) ? [lease] : []))
}

function leaseContaining(store: Store, address: string): Lease | undefined {
  const family: Family = address.includes(':') ? 6 : 4
  return leasesOf(
    store,
    (lease) =>
      lease.address.includes(':') === address.includes(':') &&
      formatValue(family, blockBase(family, addressValue(address), lease.prefixLength)) === lease.address,
  )[0]
}

function releasedOf(store: Store, fits: (released: ReleasedAddress) => boolean): readonly ReleasedAddress[] {
  return [...store.addresses.values()]
    .flatMap(({ released }) => (released !== null && fits(released) ? [released] : []))
    .sort((a, b) => a.availableAt - b.availableAt || a.releasedSeq - b.releasedSeq)
}

function foldPool(store: Store, pool: Pool): PoolFold {
  const leases = leasesOf(store, (lease) => lease.poolId === pool.poolId)
  const released = releasedOf(store, (one) => one.poolId === pool.poolId)
  const counts = {
    reserved: leases.filter((lease) => lease.state === 'RESERVED').length,
    active: leases.filter((lease) => lease.state === 'ACTIVE').length,
    quarantined: leases.filter((lease) => lease.state === 'QUARANTINED').length,
    released: released.length,
  }
  const block = 1n << BigInt((pool.family === 4 ? 32 : 128) - pool.prefixLength)
  const used = [...leases, ...released].map(({ address }) => {
    const first = addressValue(address)
    return { first, last: first + block - 1n }
  })
  return { pool, leases, released, untouched: subtract(pool.allocatable, normalise(used)), counts }
}

// The driver.

type Context = {
  readonly store: Store
  readonly requests: ReadonlyMap<string, Remembered>
  readonly setAside: ReadonlySet<string>
  readonly world: World
  readonly networkName: string
  readonly now: number
  readonly window: number
}

type Batch = {
  readonly books: Books
  readonly results: readonly Result[]
  readonly remembered: ReadonlyMap<string, Remembered>
}

/** How far each pool's free space has been read. */
type Read = { readonly pieces: Set<bigint>; untouched: number; released: number }

function runBatch(context: Context, commands: readonly Command[]): Batch {
  const { store } = context
  const books = emptyBooks(context.networkName, context.setAside)
  books.network = store.network
  books.head = store.head
  books.now = Math.max(context.now, store.now)
  books.slowestIntervalMs = context.world.slowestIntervalMs()
  const read = new Map<number, Read>()
  const remembered = new Map<string, Remembered>()
  const results = commands.map((command): Result => {
    let decision = decide(books, command)
    for (let needs = 0; decision.kind === 'missing'; needs += 1) {
      if (needs === MOST_NEEDS) throw new Error(`asks for ever: ${JSON.stringify(decision.need, bigints)}`)
      for (const need of [decision.need, ...decision.alike]) answerNeed(context, books, read, need)
      decision = decide(books, command)
    }
    for (const event of decision.events) evolve(books, event)
    if (decision.kind === 'refused') {
      return { events: decision.events, answer: null, refusal: decision.refusal, replayed: false }
    }
    const { events, answer, replayed } = decision
    if (command.requestId !== null && !replayed && !(command.type === 'reserve' && command.validateOnly)) {
      const one: Remembered = {
        fingerprint: command.fingerprint ?? '',
        method: command.cause,
        at: books.now,
        seq: books.head,
        answer: JSON.stringify(answer),
      }
      remembered.set(command.requestId, one)
      books.requests.set(command.requestId, one)
    }
    return { events, answer, refusal: null, replayed }
  })
  return { books, results, remembered }
}

function answerNeed(context: Context, books: Books, read: Map<number, Read>, need: Need): void {
  const { store } = context
  const pools = [...store.pools.values()]
  const bring = (pool: Pool) => bringPool(store, books, read, pool)
  switch (need.what) {
    case 'pool': {
      const pool = pools.find((one) => one.name === need.name)
      if (pool === undefined) books.poolNames.set(need.name, null)
      else bring(pool)
      return
    }
    case 'poolById':
      bring(store.pools.get(need.poolId)!)
      return
    case 'poolAt': {
      const value = addressValue(need.address)
      const family = need.address.includes(':') ? 6 : 4
      const pool = pools.find(
        (one) => one.family === family && one.range.first <= value && value <= one.range.last,
      )
      if (pool !== undefined) bring(pool)
      books.poolsAt.set(need.address, pool?.poolId ?? null)
      return
    }
    case 'defaultPools': {
      const defaults = ([4, 6] as const).flatMap((family) => {
        const ofFamily = pools.filter((one) => one.family === family)
        const named = ofFamily.filter((one) => one.isDefault)
        return named.length > 0 ? named : ofFamily.length === 1 ? ofFamily : []
      })
      for (const pool of defaults) bring(pool)
      books.defaultPools = defaults.map((one) => one.poolId)
      return
    }
    case 'overlap': {
      const cidr = parseCidr(need.cidr)
      if (isMalformed(cidr)) throw new Error(cidr.malformed)
      const found = pools.filter(
        (one) => one.family === cidr.family && one.range.first <= cidr.last && cidr.first <= one.range.last,
      )
      for (const pool of found) bring(pool)
      books.overlaps.set(
        need.cidr,
        found.map((one) => one.poolId),
      )
      return
    }
    case 'address':
      know(books, need.address, standing(store, need.address))
      bringPiece(store, books, read, need.address)
      return
    case 'token': {
      const [lease] = leasesOf(store, (one) => one.fencingToken === need.token)
      const ended = store.ended.get(need.token)
      const pool = store.pools.get(lease?.poolId ?? ended?.lease.poolId ?? -1)
      if (pool !== undefined) bring(pool)
      if (books.byToken.has(need.token)) return
      if (lease !== undefined) {
        know(books, lease.address, standing(store, lease.address))
        books.byToken.set(need.token, { address: lease.address })
      } else books.byToken.set(need.token, ended === undefined ? null : { ended })
      return
    }
    case 'holder':
      for (const lease of leasesOf(store, (one) => keyed(one, holderKey) === need.key))
        know(books, lease.address, standing(store, lease.address))
      indexKnown(books, books.byHolder, need.key, holderKey)
      return
    case 'attachment':
      for (const lease of leasesOf(store, (one) => keyed(one, attachmentKey) === need.key))
        know(books, lease.address, standing(store, lease.address))
      indexKnown(books, books.byAttachment, need.key, attachmentKey)
      return
    case 'closings':
      if (!books.closings.has(need.key)) books.closings.set(need.key, store.closings.get(need.key) ?? [])
      return
    case 'endings': {
      const key = attachmentKey(need.owner)
      const known = [...books.byToken.values()].flatMap((one) =>
        one !== null && 'ended' in one ? [one.ended] : [],
      )
      const endings = new Map(
        [...store.ended.values(), ...known]
          .filter(({ lease }) => keyed(lease, attachmentKey) === key)
          .map((one) => [one.lease.fencingToken, one]),
      )
      for (const { lease } of endings.values()) {
        const pool = store.pools.get(lease.poolId)
        if (pool !== undefined) bring(pool)
      }
      if (!books.endings.has(key)) books.endings.set(key, [...endings.values()])
      return
    }
    case 'request':
      if (!books.requests.has(need.id)) books.requests.set(need.id, context.requests.get(need.id) ?? null)
      return
    case 'candidates': {
      const pool = pools.find((one) => one.name === need.pool)!
      bring(pool)
      bringCandidates(context, books, read.get(pool.poolId)!, pool, context.window)
      return
    }
    case 'wholeFreeSpace': {
      const pool = pools.find((one) => one.name === need.pool)!
      bring(pool)
      bringCandidates(context, books, read.get(pool.poolId)!, pool, Number.MAX_SAFE_INTEGER)
      return
    }
    case 'cooling': {
      const ends = [...knownAndStored(books, store).values()].flatMap(({ released }) =>
        released !== null && released.poolId === need.poolId && released.availableAt > books.now
          ? [released.availableAt]
          : [],
      )
      books.nextCooled.set(need.poolId, ends.length === 0 ? null : Math.min(...ends))
      return
    }
    case 'previous': {
      for (const one of releasedOf(store, (released) => released.holderKey === need.key))
        know(books, one.address, standing(store, one.address))
      const addresses = [...books.addresses].flatMap(([address, { released }]) =>
        released?.holderKey === need.key ? [address] : [],
      )
      if (!books.previous.has(need.key)) books.previous.set(need.key, addresses)
      return
    }
    case 'quarantinesBy': {
      const count = [...knownAndStored(books, store).values()].filter(
        ({ lease }) => lease?.quarantine?.reason === 'SEEN_BY_CALLER' && lease.quarantine.by === need.actor,
      ).length
      books.quarantinesBy.set(need.actor, count)
      return
    }
    case 'quarantinesBySource': {
      const count = [...knownAndStored(books, store).values()].filter(
        ({ lease }) =>
          lease?.quarantine?.by === need.source && SIGHTING_REASONS.includes(lease.quarantine.reason),
      ).length
      books.quarantinesBySource.set(need.source, count)
      return
    }
    case 'sightings':
      bringSightings(context, books, need.address, need.prefixLength)
      return
    case 'lastHolder': {
      const ended = [...store.ended.values()].find(({ seq }) => seq === need.seq)?.lease
      books.lastHolders.set(need.seq, ended === undefined ? null : lastHolderOf(ended))
      return
    }
    case 'sightedIn':
      bringSighted(context, books, need.poolId, need.ranges)
      return
    case 'source':
      books.sources.set(need.source, context.world.bookOf(need.source))
      return
    case 'closedLives': {
      const lives = new Map<string, Owner>()
      for (const { owner } of [...store.closings.values(), ...books.closings.values()].flat())
        if (owner.kind === need.kind && owner.uid === need.uid) lives.set(attachmentKey(owner), owner)
      books.closedLives.set(workloadKey(need.kind, need.uid), lives)
      return
    }
    case 'fence': {
      const key = bootKey(need.node, need.boot)
      if (!books.fences.has(key)) books.fences.set(key, store.fences.get(key) ?? null)
      if (!books.fencedReports.has(key))
        books.fencedReports.set(key, context.world.lastReportFrom(need.node, need.boot))
      return
    }
    case 'hold':
      if (!books.holds.has(need.source)) books.holds.set(need.source, store.holds.get(need.source) ?? null)
      return
    case 'absenceReaps':
      if (!books.absenceReaps.has(need.source))
        books.absenceReaps.set(need.source, absenceReaps(store, need.source, books.now))
      return
    case 'heldLeases':
      books.heldLeases = [...knownAndStored(books, store).values()].filter(
        ({ lease }) => lease !== null,
      ).length
      return
    case 'leasesSeen': {
      const { source, upTo } = need
      const entries = context.world.listed(source).slice(0, upTo)
      const seen = new Set(
        entries.flatMap(({ address, state }) => {
          const lease = state === TERMINAL ? undefined : leaseContaining(store, address)
          return lease === undefined ? [] : [lease.address]
        }),
      )
      books.leasesSeen.set(source, { upTo, entries: entries.length, leases: seen.size })
      return
    }
    case 'strictness': {
      const fences = [...new Map([...store.fences, ...books.fences]).values()].filter((one) => one !== null)
      books.strictness.set(need.node, context.world.strictnessFor(need.node, books.network!.era, fences))
      return
    }
    case 'unobserved':
      books.unobserved = context.world.unobservedIn(books.network!.era)
      return
    case 'lastRecovery':
      books.lastRecovery ??=
        store.events.findLast((event) => event.type === 'era.begun' && event.recovering)?.seq ?? 0
      return
    case 'occupants': {
      const inside = (address: string) => contains(need.ranges, addressValue(address))
      const held = leasesOf(store, (one) => one.poolId === need.poolId && inside(one.address))
      const released = releasedOf(store, (one) => one.poolId === need.poolId && inside(one.address))
      const cooling = released.filter((one) => one.availableAt > books.now)
      books.occupants.set(need.poolId, {
        ranges: need.ranges,
        held: held.slice(0, POLICY.listedBlockers + 1),
        cooling: cooling
          .toSorted((a, b) => b.availableAt - a.availableAt)
          .slice(0, POLICY.listedBlockers + 1),
        cooledCount: released.length - cooling.length,
      })
      return
    }
  }
}

function keyed(lease: Lease, keyOf: (owner: Owner) => string): string | null {
  return lease.owner === null ? null : keyOf(lease.owner)
}

/** What a batch knows goes before what was committed. */
function knownAndStored(books: Books, store: Store): ReadonlyMap<string, AddressBook> {
  return new Map([...store.addresses, ...books.addresses])
}

function know(books: Books, address: string, book: AddressBook): void {
  if (!books.addresses.has(address)) books.addresses.set(address, book)
}

function indexKnown(
  books: Books,
  index: Map<string, Set<string>>,
  key: string,
  keyOf: (owner: Owner) => string,
): void {
  if (index.has(key)) return
  const addresses = [...books.addresses].flatMap(([address, { lease }]) =>
    lease !== null && keyed(lease, keyOf) === key ? [address] : [],
  )
  index.set(key, new Set(addresses))
}

function bringPool(store: Store, books: Books, read: Map<number, Read>, pool: Pool): void {
  books.poolNames.set(pool.name, pool.poolId)
  if (books.pools.has(pool.poolId)) return
  books.pools.set(pool.poolId, {
    pool,
    counts: foldPool(store, pool).counts,
    untouched: [],
    untouchedUpTo: -1n,
    cooled: new Map(),
    cooledComplete: false,
    sighted: new Set(),
    sightedUpTo: -1n,
  })
  read.set(pool.poolId, { pieces: new Set(), untouched: 0, released: 0 })
}

/** The piece of untouched space an address lies in comes with the address, out of order. */
function bringPiece(store: Store, books: Books, read: Map<number, Read>, address: string): void {
  const value = addressValue(address)
  const family = address.includes(':') ? 6 : 4
  for (const { pool } of books.pools.values()) {
    if (pool.family !== family) continue
    const pieces = foldPool(store, pool).untouched.filter((one) => one.first <= value && value <= one.last)
    addPieces(books, read.get(pool.poolId)!, pool, pieces)
  }
}

function addPieces(books: Books, read: Read, pool: Pool, pieces: readonly Range[]): void {
  const fresh = pieces.filter((piece) => !read.pieces.has(piece.first))
  for (const piece of fresh) read.pieces.add(piece.first)
  const book = books.pools.get(pool.poolId)!
  book.untouched = normalise([...book.untouched, ...fresh])
}

/** The next rows of a pool's free space, in the order of reuse. */
function bringCandidates(context: Context, books: Books, read: Read, pool: Pool, window: number): void {
  const { store } = context
  const stored = foldPool(store, pool)
  const book = books.pools.get(pool.poolId)!
  addPieces(books, read, pool, stored.untouched.slice(read.untouched, read.untouched + window))
  read.untouched = Math.min(stored.untouched.length, read.untouched + window)
  // A whole window may have been the last one; only a short one says so.
  book.untouchedUpTo =
    read.untouched === stored.untouched.length ? null : (stored.untouched[read.untouched - 1]?.first ?? -1n)
  const cooled = stored.released.filter((one) => one.availableAt <= books.now)
  for (const entry of cooled.slice(read.released, read.released + window)) {
    know(books, entry.address, { lease: null, released: entry })
    // Taken or changed by this batch: what is known is newer.
    if (isDeepStrictEqual(books.addresses.get(entry.address)?.released, entry))
      book.cooled.set(entry.address, entry)
    bringSightings(context, books, entry.address, entry.prefixLength)
  }
  read.released = Math.min(cooled.length, read.released + window)
  book.cooledComplete = read.released === cooled.length
}

function bringSightings(context: Context, books: Books, address: string, prefixLength: number): void {
  const key = placeKey(address, prefixLength)
  if (!books.sightings.has(key)) books.sightings.set(key, context.world.at(address, prefixLength))
}

/** The lowest sightings in untouched space, at most a window of them. */
function bringSighted(context: Context, books: Books, poolId: number, ranges: readonly Range[]): void {
  const book = books.pools.get(poolId)!
  const { pool } = book
  const seen = context.world
    .seenIn(pool.family, pool.prefixLength)
    .filter((block) => contains(ranges, addressValue(block)))
    .sort((a, b) => (addressValue(a) < addressValue(b) ? -1 : 1))
  const some = seen.slice(0, context.window)
  for (const block of some) book.sighted.add(block)
  // Up to the end of the last block that was read; all the pieces when no other is seen.
  const step = blockSize(pool.family, pool.prefixLength)
  const end = ranges.at(-1)?.last ?? -1n
  book.sightedUpTo = some.length < seen.length ? addressValue(some.at(-1)!) + step - 1n : end
}

/** The books a batch worked on say what the history says, wherever they say anything. */
function compare(store: Store, books: Books, shapes: ReadonlyMap<number, readonly Range[]>): void {
  expect(books.head).toBe(store.head)
  expect(books.network).toEqual(store.network)
  for (const [poolId, book] of books.pools) {
    const stored = foldPool(store, store.pools.get(poolId)!)
    // Free space that was not read would be forgotten with a change of shape.
    if (!isDeepStrictEqual(shapes.get(poolId), stored.pool.allocatable))
      expect(book.untouchedUpTo, `all untouched space of ${stored.pool.name} is known`).toBeNull()
    expect(book.counts, `counts of ${stored.pool.name}`).toEqual(stored.counts)
    if (book.untouchedUpTo === null)
      expect(texts(stored.pool, book.untouched), `untouched space of ${stored.pool.name}`).toEqual(
        texts(stored.pool, stored.untouched),
      )
  }
  for (const [address, book] of books.addresses) {
    const outside = book.released !== null && !store.addresses.has(address)
    if (!outside) expect(book, address).toEqual(standing(store, address))
  }
  for (const [key, closings] of books.closings) expect(closings, key).toEqual(store.closings.get(key) ?? [])
  for (const [key, endings] of books.endings)
    expect(bySeq(endings), key).toEqual(
      bySeq([...store.ended.values()].filter(({ lease }) => keyed(lease, attachmentKey) === key)),
    )
  const counted = (by: string) =>
    leasesOf(store, ({ quarantine }) => quarantine?.by === by && SIGHTING_REASONS.includes(quarantine.reason))
  for (const [source, count] of books.quarantinesBySource)
    expect(count, `quarantines by ${source}`).toBe(counted(source).length)
  for (const [source, hold] of books.holds) expect(hold, source).toEqual(store.holds.get(source) ?? null)
  for (const [key, fence] of books.fences) expect(fence, key).toEqual(store.fences.get(key) ?? null)
  for (const [source, count] of books.absenceReaps)
    expect(count, `reaps on absence of ${source}`).toBe(absenceReaps(store, source, books.now))
  if (books.heldLeases !== undefined) expect(books.heldLeases).toBe(leasesOf(store, () => true).length)
  for (const [key, addresses] of books.byHolder)
    expect([...addresses].sort(), key).toEqual(addressesBy(store, key, holderKey))
  for (const [key, addresses] of books.byAttachment)
    expect([...addresses].sort(), key).toEqual(addressesBy(store, key, attachmentKey))
}

function bySeq(endings: readonly EndedLease[]): readonly EndedLease[] {
  return endings.toSorted((a, b) => a.seq - b.seq)
}

function addressesBy(store: Store, key: string, keyOf: (owner: Owner) => string): readonly string[] {
  return leasesOf(store, (one) => keyed(one, keyOf) === key)
    .map((one) => one.address)
    .sort()
}

function texts(pool: Pool, ranges: readonly Range[]): readonly string[] {
  return ranges.map(
    ({ first, last }) => `${formatValue(pool.family, first)}-${formatValue(pool.family, last)}`,
  )
}

function bigints(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}

export type Partition = Readonly<
  Record<'free' | 'cooling' | 'reserved' | 'active' | 'quarantined' | 'excluded' | 'size', bigint>
>

/** The parts whose sum must be the size of the pool (DESIGN §1), from the history. */
export function partition(ledger: MemoryLedger, name: string): Partition {
  const { pool, released, untouched, counts } = ledger.pool(name)
  const block = 1n << BigInt((pool.family === 4 ? 32 : 128) - pool.prefixLength)
  const blocks = (ranges: readonly Range[]) =>
    ranges.reduce((sum, { first, last }) => sum + (last - first + 1n) / block, 0n)
  const cooling = released.filter((one) => one.availableAt > ledger.now()).length
  const size = blocks([pool.range])
  return {
    free: blocks(untouched) + BigInt(released.length - cooling),
    cooling: BigInt(cooling),
    reserved: BigInt(counts.reserved),
    active: BigInt(counts.active),
    quarantined: BigInt(counts.quarantined),
    excluded: size - blocks(pool.allocatable),
    size,
  }
}
