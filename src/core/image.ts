/**
 * The image: the state of a network in a process's memory, the fold of its log.
 *
 * One immutable record for each address that was ever touched (its last event), the pools with their free space, what
 * sources list, holds, era. `put` is the one place that changes the record of an address and every index of it; the other
 * `put…` do the same for pools, sources and sightings. While a journal is open each notes its inverse, so that a batch is
 * undone by running the notes backwards. Only `evolve` and loading an image call them.
 *
 * Free space is stored only here: untouched is what has no record, free is what has a FREE record, longest free first.
 * What a source lists as live is in neither queue until it is listed no more, so that passing it over costs nothing; then it
 * rests (`readyAt`).
 *
 * Size: about 0.7 KB an address that was ever touched.
 */
import { blockSize, formatValue, type IpAddress, readAddress } from './address.ts'
import {
  type AddressRecord,
  type EventOf,
  type HoldCause,
  type LeaseState,
  type NetworkSettings,
  type SourceDeclaration,
  TERMINAL,
} from './event.ts'
import { createHeap } from './heap.ts'
import { countsForReporter, isClosing } from './lifecycle.ts'
import { attachmentKey, type Owner, SEPARATOR, sameAttachment } from './owner.ts'
import { POLICY } from './policy.ts'
import { blockOf, type Pool } from './pool.ts'
import { contains, firstFrom } from './ranges.ts'

export type Hold = Pick<EventOf<'reconcile.held'>, 'seq' | 'at' | 'details'>

export type UnknownSource = {
  readonly source: string
  /** Of its caller's token; empty: none. */
  readonly node: string
  readonly at: number
}

export type NetworkState = NetworkSettings & {
  /** It hands out nothing new. */
  readonly closed: boolean
  readonly era: number
  /** Life of the database that wrote this era. */
  readonly identity: string
  /** Not null: a new era began, and nothing is reserved or reaped until its sources have reported. */
  readonly recovering: { readonly seq: number; readonly at: number; readonly why: string } | null
  /** Sources that called in this recovery and were not registered: it waits until they are, and have reported. */
  readonly unknownSources: readonly UnknownSource[]
  /** When the last recovery ended: ages are counted anew from it. */
  readonly recoveredAt: number | null
  readonly holds: Readonly<Partial<Record<HoldCause, Hold>>>
  readonly version: number
  readonly createdAt: number
  readonly updatedAt: number
}

export type SourceState = {
  readonly declaration: SourceDeclaration
  /** REGISTERED is dry run: its lists only protect. */
  readonly state: 'REGISTERED' | 'ENABLED' | 'RETIRED'
  readonly version: number
  readonly registeredAt: number
  readonly registeredBy: string
  readonly enabledAt: number | null
  readonly enabledBy: string | null
  readonly enabledSeq: number | null
  readonly retiredAt: number | null
  /** The present life of the reporting process, and the number and head of the report that opened it. */
  readonly epoch: {
    readonly name: string
    readonly seq: number
    readonly head: number
    readonly at: number
  } | null
}

/**
 * What a source lists at an address. Kept when it vanished: while the lease that it was listed for is held; at a free address until
 * it has rested and any source reports.
 */
export type Sighting = {
  readonly source: string
  readonly address: string
  /** Null: the owner is not known. */
  readonly owner: Owner | null
  readonly node: string
  readonly state: string
  readonly appearedSeq: number
  readonly appearedAt: number
  /** Head that the report was begun at. */
  readonly appearedHead: number
  readonly vanishedSeq: number | null
  readonly terminalSeq: number | null
  readonly terminalAt: number | null
  /** Of one that is live no more at a free address: only its owner gets the address before. */
  readonly restsUntil: number | null
}

/** A pool with its free space. */
export type PoolState = ReturnType<typeof emptyPool>

type Freed = { readonly availableAt: number; readonly seq: number; readonly address: string }

/** With most touched addresses: at so many Reserve takes no untouched one any more, the bound of this process's memory. */
export function newImage(name: string, mostTouched = Number.POSITIVE_INFINITY) {
  return {
    name,
    mostTouched,
    /** Null: the network does not exist. */
    network: null as NetworkState | null,
    /** Number of the last event, its time, and its digest in hexadecimal. */
    head: 0,
    at: 0,
    digest: '0'.repeat(64),
    records: new Map<string, AddressRecord>(),
    byToken: new Map<number, AddressRecord>(),
    /** Held, by the owner's uid and by its name. Keys are the owner's own strings: one put together costs 1 µs and stays. */
    held: createIndex<HeldRecord>(),
    /** FREE, by the last owner's name. */
    freeByName: createIndex<AddressRecord>(),
    /** Addresses that one caller or source has put into quarantine. */
    quarantinedBy: new Map<string, number>(),
    pools: new Map<number, PoolState>(),
    /** By first address, v4 before v6. */
    poolsInOrder: [] as readonly PoolState[],
    /** Of each family the pool that says so; else its only pool. */
    defaultPools: [] as readonly PoolState[],
    sources: new Map<string, SourceState>(),
    /** Longest report interval of an enabled source; 0: none is enabled. */
    slowestIntervalMs: 0,
    /** By the address of the lease, which for a block is its first one; outside of pools, by the address itself. */
    sightings: new Map<string, readonly Sighting[]>(),
    listedBy: new Map<string, Set<Sighting>>(),
    /** What is listed no more and rests, and what did; the first to have rested first. */
    resting: createHeap<Sighting>((a, b) => a.restsUntil! < b.restsUntil!),
    /** When attachments were closed, by attachment and the node where, oldest first; only the last minutes. */
    closings: new Map<string, number>(),
    /** Times of reaps by absence within the last hour. */
    reaps: [] as readonly number[],
    /** Open while a batch is decided: the inverses, in order. */
    journal: null as (() => void)[] | null,
    /** Addresses whose sightings changed since the last write. */
    dirtySightings: new Set<string>(),
  }
}

export type Image = ReturnType<typeof newImage>

type Index<V extends object> = ReturnType<typeof createIndex<V>>

const NONE: readonly never[] = []

/** Several values a key; one, as nearly always, costs no set. */
function createIndex<V extends object>() {
  const entries = new Map<string, V | Set<V>>()
  return {
    add(key: string, value: V): void {
      const found = entries.getOrInsert(key, value)
      if (found instanceof Set) found.add(value)
      else if (found !== value) entries.set(key, new Set([found, value]))
    },
    delete(key: string, value: V): void {
      const found = entries.get(key)
      if (found === value) entries.delete(key)
      else if (found instanceof Set && found.delete(value) && found.size === 0) entries.delete(key)
    },
    of(key: string): Iterable<V> {
      const found = entries.get(key)
      return found === undefined ? NONE : found instanceof Set ? found : [found]
    },
  }
}

// Undo.

/** Replaces what is one value of the image. */
export function assign(
  image: Image,
  change: Partial<Pick<Image, 'network' | 'head' | 'at' | 'digest' | 'reaps'>>,
): void {
  const { network, head, at, digest, reaps } = image
  Object.assign(image, change)
  image.journal?.push(() => Object.assign(image, { network, head, at, digest, reaps }))
}

export function rollback(image: Image, mark: number): void {
  const { journal } = image
  if (journal === null) throw new Error('nothing is noted: no journal is open')
  image.journal = null
  while (journal.length > mark) journal.pop()!()
  image.journal = journal
}

// Addresses.

/** Replaces the record of an address; undefined only to undo its first one. */
export function put(image: Image, address: string, record: AddressRecord | undefined): void {
  const before = image.records.get(address)
  const block = blockAt(image, address)
  const poolState = block?.address === address ? block.poolState : null
  if (before !== undefined) index(image, poolState, before, -1)
  if (record === undefined) image.records.delete(address)
  else {
    image.records.set(address, record)
    index(image, poolState, record, 1)
  }
  if (poolState !== null && !isHeld(record)) pushFree(image, poolState, address)
  image.journal?.push(() => put(image, address, before))
}

function index(image: Image, poolState: PoolState | null, record: AddressRecord, change: 1 | -1): void {
  const { token, owner, quarantine, state } = record
  if (change === 1) image.byToken.set(token, record)
  else if (image.byToken.get(token) === record) image.byToken.delete(token)
  const how = change === 1 ? 'add' : 'delete'
  if (owner !== null && isHeld(record)) {
    image.held[how](owner.uid, record)
    image.held[how](owner.name, record)
  } else if (owner !== null) image.freeByName[how](owner.name, record)
  if (poolState !== null) count(poolState, record, change)
  if (state === 'QUARANTINED' && countsForReporter(quarantine!))
    add(image.quarantinedBy, quarantine!.by, change)
}

/** By state, and against the limits of the node that holds it and of the node that reported it. */
function count(
  { counts, heldOn }: PoolState,
  { state, node, quarantine }: AddressRecord,
  change: 1 | -1,
): void {
  counts[state] += change
  if (state === 'FREE') return
  if (node !== '') add(heldOn, node, change)
  const reporter = state === 'QUARANTINED' ? quarantine!.node : ''
  if (reporter !== '' && reporter !== node) add(heldOn, reporter, change)
}

function add(counts: Map<string, number>, key: string, change: number): void {
  const sum = (counts.get(key) ?? 0) + change
  if (sum === 0) counts.delete(key)
  else counts.set(key, sum)
}

export function addressValue(address: string): IpAddress {
  const read = readAddress(address)
  if (read === null) throw new Error(`not an address: ${address}`)
  return read
}

/** The lease that an address belongs to: its first address, and the pool that contains it. */
export function blockAt(
  image: Image,
  address: string,
): { readonly address: string; readonly poolState: PoolState; readonly value: bigint } | null {
  const { family, value } = addressValue(address)
  const poolState = firstFrom(
    image.poolsInOrder,
    ({ pool }) => pool.family < family || (pool.family === family && pool.range.last < value),
  )
  if (poolState === undefined || poolState.pool.family !== family || poolState.pool.range.first > value)
    return null
  const block = blockOf(poolState.pool, value)
  return { address: block === value ? address : formatValue(family, block), poolState, value: block }
}

export function poolNamed(image: Image, name: string): PoolState | undefined {
  return image.poolsInOrder.find(({ pool }) => pool.name === name)
}

// Holders.

export type HeldRecord = AddressRecord & { readonly state: LeaseState }

export function isHeld(record: AddressRecord | undefined): record is HeldRecord {
  return record !== undefined && record.state !== 'FREE'
}

export function leasesOfAttachment(image: Image, owner: Owner): readonly HeldRecord[] {
  const found = [...image.held.of(owner.uid)].filter((record) => sameAttachment(record.owner!, owner))
  return found.sort((a, b) => a.token - b.token)
}

export function leasesOfHolder(image: Image, owner: Owner): readonly HeldRecord[] {
  return ofHolder(image.held, owner).sort((a, b) => a.token - b.token)
}

export function freedByHolder(image: Image, owner: Owner): readonly AddressRecord[] {
  return ofHolder(image.freeByName, owner).sort((a, b) => b.seq - a.seq)
}

function ofHolder<R extends AddressRecord>(records: Index<R>, { kind, name, interface: on }: Owner): R[] {
  return [...records.of(name)].filter(
    ({ owner }) => owner!.name === name && owner!.kind === kind && owner!.interface === on,
  )
}

// Closing.

/** On one node, or everywhere: empty. */
export function putClosing(image: Image, owner: Owner, node: string, at: number): void {
  if (owner.incarnation === '') return
  const key = attachmentKey(owner) + SEPARATOR + node
  const before = image.closings.get(key)
  image.closings.delete(key)
  image.closings.set(key, at)
  const over: (readonly [string, number])[] = []
  for (const [oldest, closedAt] of image.closings) {
    if (closedAt + POLICY.retryHorizonMs > at) break
    image.closings.delete(oldest)
    over.push([oldest, closedAt])
  }
  image.journal?.push(() => {
    image.closings.delete(key)
    if (before !== undefined) image.closings.set(key, before)
    for (const [oldest, closedAt] of over) image.closings.set(oldest, closedAt)
  })
}

/**
 * Reserve and Confirm of what is placed on a node were overtaken by the attachment's Release or by a newer life (4.2): of a
 * caller of this node, or of one that is bound to none.
 */
export function isClosed(image: Image, owner: Owner, node: string, now: number): boolean {
  if (owner.incarnation === '') return false
  for (const where of node === '' ? [''] : ['', node]) {
    const closedAt = image.closings.get(attachmentKey(owner) + SEPARATOR + where)
    if (closedAt !== undefined && now < closedAt + POLICY.retryHorizonMs) return true
  }
  return leasesOfAttachment(image, owner).some(
    (one) => isClosing(one) && (one.quarantine!.node === '' || one.quarantine!.node === node),
  )
}

// Sources.

export function putSource(image: Image, id: string, source: SourceState | undefined): void {
  const before = image.sources.get(id)
  if (source === undefined) image.sources.delete(id)
  else image.sources.set(id, source)
  image.slowestIntervalMs = 0
  for (const { state, declaration } of image.sources.values())
    if (state === 'ENABLED' && declaration.intervalMs > image.slowestIntervalMs)
      image.slowestIntervalMs = declaration.intervalMs
  image.journal?.push(() => putSource(image, id, before))
}

// Pools and their free space.

/** Replaces a pool (undefined: removes it) and works out its free space anew, in one pass over the records. */
export function putPool(image: Image, id: number, pool: Pool | undefined): void {
  const before = image.pools.get(id)
  image.pools.delete(id)
  const state = pool === undefined ? null : emptyPool(pool)
  if (state !== null) image.pools.set(id, state)
  image.poolsInOrder = [...image.pools.values()].sort(
    (a, b) => a.pool.family - b.pool.family || (a.pool.range.first < b.pool.range.first ? -1 : 1),
  )
  image.defaultPools = [4, 6].flatMap((family) => {
    const pools = image.poolsInOrder.filter((one) => one.pool.family === family)
    return pools.find((one) => one.pool.isDefault) ?? (pools.length === 1 ? pools : [])
  })
  // Which lease an address belongs to may have changed.
  const all = [...image.sightings.values()].flat()
  image.sightings = Map.groupBy(all, ({ address }) => blockAt(image, address)?.address ?? address)
  if (state !== null) {
    for (const record of recordsIn(image, state.pool)) {
      count(state, record, 1)
      pushFree(image, state, record.address)
    }
    // What rests and was never leased.
    for (const block of image.sightings.keys())
      if (!image.records.has(block) && blockAt(image, block)?.poolState === state)
        pushFree(image, state, block)
  }
  image.journal?.push(() => putPool(image, id, before?.pool))
}

function emptyPool(pool: Pool) {
  return {
    pool,
    /** What rests or has rested; an entry counts while its address is as it was. */
    free: createHeap<Freed>((a, b) => compareFreed(a, b) < 0),
    /** Beyond so many entries the stale ones are dropped. */
    compactAt: 1_024,
    /** Untouched addresses below the cursor. */
    holes: createHeap<bigint>((a, b) => a < b),
    /** Everything untouched and not in `holes` is at or above it. */
    cursor: 0n,
    counts: { FREE: 0, RESERVED: 0, ACTIVE: 0, QUARANTINED: 0 },
    /** Leases placed on a node, and those that its callers and sources have quarantined. */
    heldOn: new Map<string, number>(),
  }
}

/** The order in which addresses are handed out: by when they have rested, then by their last event. */
export function compareFreed(a: Freed, b: Freed): number {
  return a.availableAt - b.availableAt || a.seq - b.seq || (a.address < b.address ? -1 : 1)
}

export function* recordsIn(image: Image, pool: Pool): Generator<AddressRecord> {
  for (const record of image.records.values()) {
    const { family, value } = addressValue(record.address)
    if (family !== pool.family || value < pool.range.first || value > pool.range.last) continue
    if (blockOf(pool, value) === value) yield record
  }
}

/** Puts an address where candidates come from, if it is free and not listed. */
export function pushFree(image: Image, poolState: PoolState, address: string): void {
  const record = image.records.get(address)
  if (isHeld(record) || isListed(image, address)) return
  const { value } = addressValue(address)
  if (!contains(poolState.pool.allocatable, value)) return
  const ready = readyAt(image, address)
  if (ready !== null) {
    poolState.free.push({ availableAt: ready, seq: record?.seq ?? 0, address })
    if (poolState.free.size > poolState.compactAt) compact(image, poolState)
  } else if (value < poolState.cursor) poolState.holes.push(value)
}

/** Entries go stale when leases are taken by name. The next time is when there are twice as many, so that an entry costs little. */
function compact(image: Image, poolState: PoolState): void {
  const { free } = poolState
  const current = new Map<string, Freed>()
  for (let entry = free.pop(); entry !== undefined; entry = free.pop())
    if (isCurrent(image, entry)) current.set(entry.address, entry)
  for (const entry of current.values()) free.push(entry)
  poolState.compactAt = 2 * free.size + 1_024
}

/** The number alone does not tell: a batch that was undone may have freed the address at the same number, but earlier. */
function isCurrent(image: Image, { address, seq, availableAt }: Freed): boolean {
  if ((image.records.get(address)?.seq ?? 0) !== seq || isListed(image, address)) return false
  return readyAt(image, address) === availableAt
}

/**
 * When a free address has rested: since its last lease ended, and since the last list that had it. Null: it was neither leased
 * nor listed, or is held.
 */
export function readyAt(image: Image, block: string): number | null {
  const record = image.records.get(block)
  if (isHeld(record)) return null
  let ready = record?.availableAt ?? null
  for (const { restsUntil } of sightingsOf(image, block))
    if (restsUntil !== null && restsUntil > (ready ?? 0)) ready = restsUntil
  return ready
}

/** The time up to which coolings have ended: now, or of a network held for its clock, the time before the step. */
export function restedBy(image: Image, now: number): number {
  return image.network!.holds.CLOCK?.details.before ?? now
}

/**
 * Takes the next candidate of a pool out of its queue: untouched ones first, lowest first, until the pool has touched
 * 65,536 addresses; then what has rested longest, and untouched ones only when nothing has rested. The caller gives back
 * what it does not use.
 */
export function takeCandidate(image: Image, poolState: PoolState, now: number): string | null {
  const { FREE, RESERVED, ACTIVE, QUARANTINED } = poolState.counts
  const spread = FREE + RESERVED + ACTIVE + QUARANTINED < POLICY.touchFirst
  return (
    (spread ? takeUntouched(image, poolState) : null) ??
    takeRested(image, poolState, restedBy(image, now)) ??
    (spread ? null : takeUntouched(image, poolState))
  )
}

/** When the next address of the pool has cooled; null: none is cooling. */
export function nextCooledAt(image: Image, poolState: PoolState): number | null {
  for (;;) {
    const entry = poolState.free.peek()
    if (entry === undefined) return null
    if (isCurrent(image, entry)) return entry.availableAt
    poolState.free.pop()
  }
}

function takeRested(image: Image, poolState: PoolState, now: number): string | null {
  const ready = nextCooledAt(image, poolState)
  if (ready === null || ready > now) return null
  const { address } = poolState.free.pop()!
  while (poolState.free.peek()?.address === address) poolState.free.pop()
  return address
}

function takeUntouched(image: Image, poolState: PoolState): string | null {
  if (isFull(image)) return null
  const { pool, holes } = poolState
  for (let hole = holes.pop(); hole !== undefined; hole = holes.pop()) {
    while (holes.peek() === hole) holes.pop()
    const address = formatValue(pool.family, hole)
    if (isUntouched(image, address)) return address
  }
  const size = blockSize(pool.family, pool.prefixLength)
  for (;;) {
    const range = firstFrom(pool.allocatable, ({ last }) => last < poolState.cursor)
    if (range === undefined) return null
    const value = range.first > poolState.cursor ? range.first : poolState.cursor
    poolState.cursor = value + size
    const address = formatValue(pool.family, value)
    if (isUntouched(image, address)) return address
  }
}

function isUntouched(image: Image, address: string): boolean {
  if (image.records.has(address)) return false
  const sightings = image.sightings.get(address)
  return sightings === undefined || !sightings.some((one) => isLive(one) || one.restsUntil !== null)
}

// Sightings.

export function isLive(sighting: Sighting): boolean {
  return sighting.vanishedSeq === null && sighting.state !== TERMINAL
}

/** No untouched address fits into this process's memory any more: only touched ones are handed out. */
export function isFull({ records, mostTouched }: Image): boolean {
  return records.size >= mostTouched
}

/** All that is or was listed at a lease: at its address, or inside its block. */
export function sightingsOf(image: Image, block: string): readonly Sighting[] {
  return image.sightings.get(block) ?? NONE
}

/** The same, as far as it proves anything: a source that is retired is no witness. */
export function evidenceAt(image: Image, block: string): readonly Sighting[] {
  return sightingsOf(image, block).filter(({ source }) => image.sources.get(source)!.state !== 'RETIRED')
}

/** The same at one address alone. */
export function sightingsAt(image: Image, address: string): readonly Sighting[] {
  if (image.sightings.size === 0) return NONE
  return sightingsOf(image, blockAt(image, address)?.address ?? address).filter(
    (one) => one.address === address,
  )
}

export function isListed(image: Image, block: string): boolean {
  return sightingsOf(image, block).some(isLive)
}

/** What is known to be listed at one address, with `sightings` in its place. */
export function putSightings(image: Image, address: string, sightings: readonly Sighting[]): void {
  const block = blockAt(image, address)
  const key = block?.address ?? address
  const all = sightingsOf(image, key)
  const before = all.filter((one) => one.address === address)
  const after =
    before.length === all.length ? sightings : [...all.filter((one) => one.address !== address), ...sightings]
  if (after.length === 0) image.sightings.delete(key)
  else image.sightings.set(key, after)
  for (const one of before) image.listedBy.get(one.source)?.delete(one)
  for (const one of sightings)
    if (one.vanishedSeq === null) image.listedBy.getOrInsertComputed(one.source, () => new Set()).add(one)
    else if (one.restsUntil !== null) image.resting.push(one)
  image.dirtySightings.add(address)
  if (block !== null) pushFree(image, block.poolState, key)
  image.journal?.push(() => putSightings(image, address, before))
}
