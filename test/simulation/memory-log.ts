/**
 * A log in memory with PostgreSQL's contract, for the simulator: one lock a network, in the order in which it was asked for;
 * a number is given once, the chain of an address never forks, pools never overlap; a transaction is written in full or not
 * at all; what a client hears of its commit is another matter. `test/ledger/log-contract.ts` runs on both.
 *
 * A client's hooks are asked at each step of a transaction: they wait, throw, or say what becomes of a commit. The database
 * can be set back to an earlier commit, as by a failover that lost the end or by the restore of a backup.
 */
import { type Cidr, parseCidr } from '../../src/core/address.ts'
import {
  type Freshness,
  type Known,
  type LookUp,
  type Remembered,
  requestName,
} from '../../src/core/command.ts'
import type { AddressRecord } from '../../src/core/event.ts'
import type { NetworkState, Sighting, SourceState } from '../../src/core/image.ts'
import { attachmentKey } from '../../src/core/owner.ts'
import { POLICY } from '../../src/core/policy.ts'
import { NO_DIGEST } from '../../src/ledger/event-text.ts'
import {
  type CatchUp,
  type Caught,
  type Chained,
  type Committed,
  type Loaded,
  type Log,
  NeedsRebuild,
  type PoolRow,
  type RequestRow,
  type Transaction,
  type Write,
} from '../../src/ledger/log.ts'
import type { Prefetch } from '../../src/ledger/prefetch.ts'

/** What becomes of a commit: it is lost on its way there, on its way back, comes with a warning, or is rolled back. */
export type Fate = 'committed' | 'lostBefore' | 'lostAfter' | 'warned' | 'rolledBack'

type Hooks = {
  /** Throws: the connection cannot be had. */
  beforeLock?(): Promise<void> | undefined
  afterLock?(): Promise<void> | undefined
  beforeCommit?(): Fate | Promise<Fate>
  afterCommit?(): Promise<void> | undefined
}

export type Database = {
  /** A client of it: what a process has. */
  connect(hooks?: Hooks): Log
  identity: string
  readonly tables: ReadonlyMap<string, Tables>
  /** Answers of sources to look-ups are written beside the log. */
  writeLookUps(network: string, answers: readonly LookUp[]): void
  /** A conditional update of a source's row, beside the log; false: it is not as expected. */
  writeFreshness(network: string, before: Freshness, after: Freshness): boolean
  /** Commits so far: to come back to. */
  readonly commits: number
  /** Undoes all later commits, and ends what is under way. */
  setBack(commits: number): void
  /** Ends transactions, of one client or of all: they are rolled back, and their clients do not know. */
  sever(client?: Log): void
  /** The client is no more: what it waits for, nobody waits for. */
  forget(client: Log): void
  /** Told of each commit that takes effect, before its client is. */
  onCommit: (network: string, write: Write) => void
}

export type Tables = {
  readonly name: string
  readonly events: Chained[]
  readonly leases: Map<string, AddressRecord>
  readonly pools: Map<number, PoolRow>
  readonly network: { row: NetworkState | null }
  readonly sources: Map<string, SourceState>
  readonly freshness: Map<string, Freshness>
  readonly sightings: Map<string, readonly Sighting[]>
  readonly lookUps: Map<string, readonly LookUp[]>
  readonly requests: Map<string, RequestRow>
  readonly endedByToken: Map<number, AddressRecord>
  readonly endedByOwner: Map<string, readonly AddressRecord[]>
  /** `address previous` of each event. */
  readonly chain: Set<string>
  lastAboutAddress: number
}

type Lock = { holder: Held | null; readonly waiting: { readonly client: Log; readonly hand: () => void }[] }
type Held = { readonly client: Log; isOver: boolean }

const RECENT: ReadonlySet<string> = new Set([
  'lease.released',
  'lease.reaped',
  'lease.quarantined',
  'attachment.closed',
  'reconcile.resumed',
])

export function createDatabase(clock: () => number, page = 2_000): Database {
  const tables = new Map<string, Tables>()
  const locks = new Map<string, Lock>()
  const forgotten = new Set<Log>()
  /** Of each commit, what undoes it. */
  const history: (() => void)[][] = []
  const database: Database = {
    connect,
    identity: 'system-1/database/event/1',
    tables,
    writeLookUps(network, answers) {
      const { lookUps } = tables.get(network)!
      for (const one of answers) {
        const there = lookUps.get(one.address) ?? []
        lookUps.set(one.address, [...there.filter((other) => !isSameQuestion(one, other)), one])
      }
    },
    writeFreshness(network, before, after) {
      const { freshness } = tables.get(network)!
      const now = freshness.get(before.source)
      if (now?.epoch !== before.epoch || now.sequence !== before.sequence || now.digest !== before.digest)
        return false
      freshness.set(after.source, after)
      history.push([() => freshness.set(before.source, now)])
      return true
    },
    get commits() {
      return history.length
    },
    setBack(commits) {
      database.sever()
      while (history.length > commits) for (const undo of history.pop()!.reverse()) undo()
    },
    sever(client) {
      for (const lock of locks.values())
        if (lock.holder !== null && (client === undefined || lock.holder.client === client))
          end(lock, lock.holder)
    },
    forget(client) {
      forgotten.add(client)
      for (const lock of locks.values())
        lock.waiting.splice(0, Infinity, ...lock.waiting.filter((one) => one.client !== client))
      database.sever(client)
    },
    onCommit: () => {},
  }

  function end(lock: Lock, held: Held): void {
    if (held.isOver) return
    held.isOver = true
    lock.holder = null
    lock.waiting.shift()?.hand()
  }

  function acquire(lock: Lock, client: Log): Held | Promise<Held> {
    const take = () => {
      const held = { client, isOver: false }
      lock.holder = held
      return held
    }
    if (forgotten.has(client)) return new Promise(() => {})
    if (lock.holder === null) return take()
    return new Promise((resolve) => lock.waiting.push({ client, hand: () => resolve(take()) }))
  }

  function connect(hooks: Hooks = {}): Log {
    const log: Log = {
      async begin(network, asked) {
        const waits = hooks.beforeLock?.()
        if (waits !== undefined) await waits
        if (asked.creates && !tables.has(network)) tables.set(network, newTables(network))
        const lock = lockOf(network)
        const lent = acquire(lock, log)
        const held = lent instanceof Promise ? await lent : lent
        const caught = catchUp(network, asked)
        const idles = hooks.afterLock?.()
        if (idles !== undefined) await idles
        return transaction(network, lock, held, caught)
      },
      async tail(network, after) {
        await hooks.beforeLock?.()
        return pageAfter(tables.get(network), after)
      },
      async load(network, build) {
        await hooks.beforeLock?.()
        return build(loadedFrom(tables.get(network)))
      },
      async clock() {
        return clock()
      },
    }

    function transaction(network: string, lock: Lock, held: Held, caught: Caught): Transaction {
      const lost = () => new Error('the connection was lost')
      return {
        caught,
        async know(missing) {
          if (held.isOver) throw lost()
          return knownOf(tables.get(network), missing)
        },
        async abandon() {
          end(lock, held)
        },
        async commit(write): Promise<Committed> {
          const asked = hooks.beforeCommit?.() ?? 'committed'
          const fate = typeof asked === 'string' ? asked : await asked
          if (held.isOver) return { kind: 'unknown', error: lost() }
          if (fate === 'lostBefore' || fate === 'rolledBack') {
            end(lock, held)
            return fate === 'lostBefore'
              ? { kind: 'unknown', error: lost() }
              : { kind: 'rolledBack', error: new Error('the server is shutting down') }
          }
          const veto = write.events.length === 0 ? null : vetoOf(tables.get(network)!, write)
          if (veto === null && !isEmpty(write)) {
            history.push(apply(tables.get(network)!, write))
            database.onCommit(network, write)
          }
          end(lock, held)
          const dawdles = hooks.afterCommit?.()
          if (dawdles !== undefined) await dawdles
          if (veto !== null) return { kind: 'vetoed', error: new Error(veto) }
          return fate === 'lostAfter'
            ? { kind: 'unknown', error: lost() }
            : { kind: 'committed', isWarned: fate === 'warned' }
        },
      }
    }
    return log
  }

  function lockOf(network: string): Lock {
    const found = locks.get(network)
    if (found !== undefined) return found
    const lock = { holder: null, waiting: [] }
    locks.set(network, lock)
    return lock
  }

  function catchUp(network: string, { after, prefetch, expectedSeq }: CatchUp): Caught {
    const of = tables.get(network)
    return {
      clock: clock(),
      identity: database.identity,
      digest: after === 0 ? NO_DIGEST : digestAt(of, after),
      expectedDigest: expectedSeq === null ? null : digestAt(of, expectedSeq),
      ...pageAfter(of, after),
      known: knownOf(of, prefetch),
    }
  }

  function pageAfter(of: Tables | undefined, after: number) {
    const events = of?.events ?? []
    const from = indexAfter(events, after)
    const tail = events.slice(from, from + page)
    return { tail, isCut: from + page < events.length }
  }

  function knownOf(of: Tables | undefined, prefetch: Prefetch): Known {
    const requests = new Map<string, Remembered>()
    for (const key of prefetch.requests.keys()) {
      const found = of?.requests.get(key)
      if (found !== undefined && found.at > clock() - POLICY.requestMemoryMs) requests.set(key, found)
    }
    function all<K, V, N>(keys: Iterable<K>, map: ReadonlyMap<K, V> | undefined, none: N) {
      return new Map(Array.from(keys, (key) => [key, map?.get(key) ?? none]))
    }
    return {
      identity: database.identity,
      requests,
      endedByToken: all(prefetch.tokens, of?.endedByToken, null),
      endedByOwner: all(prefetch.owners.keys(), of?.endedByOwner, []),
      freshness: all(prefetch.sources, of?.freshness, null),
      lookUps: all(prefetch.lookUps, of?.lookUps, []),
    }
  }

  function loadedFrom(of: Tables | undefined): Loaded {
    const last = of?.events.at(-1)
    if (
      of !== undefined &&
      Math.max(0, ...[...of.leases.values()].map(({ seq }) => seq)) !== of.lastAboutAddress
    )
      throw new NeedsRebuild(of.name)
    const since = clock() - POLICY.holdWindowMs
    return {
      head: last?.event.seq ?? 0,
      at: last?.event.at ?? 0,
      digest: last?.digest ?? NO_DIGEST,
      network: of?.network.row ?? null,
      pools: [...(of?.pools.values() ?? [])],
      sources: [...(of?.sources.values() ?? [])],
      sightings: [...(of?.sightings.values() ?? [])].flat(),
      records: pagesOf([...(of?.leases.values() ?? [])]),
      recent: pagesOf((of?.events ?? []).filter(({ event }) => RECENT.has(event.type) && event.at > since)),
    }
  }

  return database
}

async function* pagesOf<T>(all: readonly T[]): AsyncGenerator<readonly T[]> {
  yield all
}

function newTables(name: string): Tables {
  return {
    name,
    events: [],
    leases: new Map(),
    pools: new Map(),
    network: { row: null },
    sources: new Map(),
    freshness: new Map(),
    sightings: new Map(),
    lookUps: new Map(),
    requests: new Map(),
    endedByToken: new Map(),
    endedByOwner: new Map(),
    chain: new Set(),
    lastAboutAddress: 0,
  }
}

/** Where the events after a number begin: nearly always at the end. */
function indexAfter(events: readonly Chained[], after: number): number {
  let low = 0
  let high = events.length
  if (high === 0 || events[high - 1]!.event.seq <= after) return high
  while (low < high) {
    const middle = (low + high) >>> 1
    if (events[middle]!.event.seq <= after) low = middle + 1
    else high = middle
  }
  return low
}

function digestAt(of: Tables | undefined, seq: number): string | null {
  const found = of === undefined ? undefined : of.events[indexAfter(of.events, seq) - 1]
  return found?.event.seq === seq ? found.digest : null
}

function isSameQuestion(a: LookUp, b: LookUp): boolean {
  return a.source === b.source && a.owner.kind === b.owner.kind && a.owner.uid === b.owner.uid
}

function isEmpty(write: Write): boolean {
  return write.events.length === 0 && write.freshness.length === 0 && write.requests.length === 0
}

const linkOf = (address: string, previous: number) => `${address} ${previous}`

/** Why a constraint refuses a write; null: none does. */
function vetoOf(of: Tables, { events, pools, sightings }: Write): string | null {
  let last = of.events.at(-1)?.event.seq ?? 0
  const links = new Set<string>()
  for (const { event } of events) {
    // Numbers in a batch go up, so a number is taken only if the log has gone on.
    if (event.seq <= last) return 'number_is_given_once'
    last = event.seq
    if (!('record' in event)) continue
    const link = linkOf(event.record.address, event.previous)
    if (of.chain.has(link) || links.has(link)) return 'history_of_an_address_never_forks'
    if (event.previous < 0 || event.previous >= event.seq) return 'chain_goes_forward'
    links.add(link)
  }
  // All make room first; then each is compared with what is there.
  const rows = new Map(of.pools)
  for (const { poolId } of pools) rows.delete(poolId)
  for (const row of pools.filter(({ settings }) => settings !== null)) {
    const [{ name }, range] = [row.settings!, rangeOf(row)]
    for (const other of rows.values()) {
      if (other.settings!.name === name) return 'pool_name_is_taken_once'
      const { family, first, last } = rangeOf(other)
      if (family === range.family && first <= range.last && last >= range.first) return 'pools_never_overlap'
    }
    rows.set(row.poolId, row)
  }
  for (const all of sightings.values()) {
    const keys = all.map(({ source, owner }) => `${source} ${owner === null ? '' : attachmentKey(owner)}`)
    if (new Set(keys).size < keys.length) return 'source_lists_an_owner_once'
  }
  return null
}

const rangeOf = ({ settings }: PoolRow): Cidr => parseCidr(settings!.cidr) as Cidr

/** Writes all of it, and answers with what undoes it. */
function apply(of: Tables, write: Write): (() => void)[] {
  const undo: (() => void)[] = []
  function set<K, V>(map: Map<K, V>, key: K, value: V | undefined): void {
    const before = map.get(key)
    undo.push(before === undefined ? () => map.delete(key) : () => map.set(key, before))
    if (value === undefined) map.delete(key)
    else map.set(key, value)
  }
  const { lastAboutAddress } = of
  const length = of.events.length
  const { row } = of.network
  undo.push(() => {
    of.lastAboutAddress = lastAboutAddress
    of.events.length = length
    of.network.row = row
  })
  for (const chained of write.events) {
    of.events.push(chained)
    const { event } = chained
    if (!('record' in event)) continue
    const { record } = event
    const link = linkOf(record.address, event.previous)
    of.chain.add(link)
    undo.push(() => of.chain.delete(link))
    of.lastAboutAddress = event.seq
    if (record.state !== 'FREE') continue
    set(of.endedByToken, record.token, record)
    if (record.owner === null) continue
    const key = attachmentKey(record.owner)
    set(of.endedByOwner, key, [record, ...(of.endedByOwner.get(key) ?? [])])
  }
  for (const record of write.records) set(of.leases, record.address, record)
  for (const pool of write.pools) set(of.pools, pool.poolId, pool.settings === null ? undefined : pool)
  if (write.network !== null) of.network.row = write.network
  for (const source of write.sources) set(of.sources, source.declaration.id, source)
  for (const one of write.freshness) set(of.freshness, one.source, one)
  for (const [address, all] of write.sightings) set(of.sightings, address, all.length === 0 ? undefined : all)
  for (const request of write.requests)
    set(of.requests, requestName(request.node, request.requestId).key, request)
  return undo
}
