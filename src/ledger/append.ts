/**
 * Writes a batch: its events, and the rows of the projections they changed. One set-based statement a table, each
 * bound to one network; what exists already is changed through `on conflict` on the primary key or deleted by
 * `key = any(…)`, because plans made while a table was small must still be index look-ups when it is not.
 */
import { type Family, formatValue } from '../core/address.ts'
import {
  type Books,
  bootKey,
  type ClosedAttachment,
  type Fence,
  type Hold,
  type ReleasedAddress,
  UNTOUCHED,
} from '../core/books.ts'
import type { LedgerEvent } from '../core/event.ts'
import type { Lease } from '../core/lease.ts'
import type { Network } from '../core/network.ts'
import { attachmentKey, holderKey, type Owner } from '../core/owner.ts'
import { type Pool, type PoolSettings, settingsOf } from '../core/pool.ts'
import type { Range } from '../core/ranges.ts'
import type { Statement } from '../postgres/trip.ts'
import { arrayLiteral } from '../postgres/values.ts'
import { MOST_OF_ONE, writeNodes } from './rows.ts'
import type { PoolStorage, Slice } from './slice.ts'

/** A remembered answer to be written with its batch. */
export type NewRequest = {
  readonly requestId: string
  readonly fingerprint: string
  readonly method: string
  readonly seq: number
  readonly answer: string
}

// Columns of each table written in sets. A time travels as milliseconds, a map or a list as JSON text.

export type Column = {
  readonly name: string
  readonly type: 'text' | 'inet' | 'bigint' | 'smallint' | 'boolean' | 'time' | 'jsonb' | 'json'
}

export const OWNER: readonly Column[] = [
  { name: 'owner_kind', type: 'text' },
  { name: 'owner_name', type: 'text' },
  { name: 'owner_uid', type: 'text' },
  { name: 'owner_uid_named', type: 'boolean' },
  { name: 'owner_incarnation', type: 'text' },
  { name: 'owner_interface', type: 'text' },
]

const EVENT: readonly Column[] = [
  { name: 'seq', type: 'bigint' },
  { name: 'type', type: 'text' },
  { name: 'at', type: 'time' },
  { name: 'actor', type: 'text' },
  { name: 'cause', type: 'text' },
  { name: 'request_id', type: 'text' },
  { name: 'trace_id', type: 'text' },
  { name: 'pool_id', type: 'bigint' },
  { name: 'address', type: 'inet' },
  { name: 'prefix_length', type: 'smallint' },
  { name: 'fencing_token', type: 'bigint' },
  { name: 'state', type: 'text' },
  { name: 'quarantine_reason', type: 'text' },
  { name: 'quarantined_at', type: 'time' },
  { name: 'quarantined_by', type: 'text' },
  { name: 'quarantine_why', type: 'text' },
  ...OWNER,
  { name: 'node', type: 'text' },
  { name: 'boot', type: 'text' },
  { name: 'labels', type: 'jsonb' },
  { name: 'witness', type: 'text' },
  { name: 'reserved_at', type: 'time' },
  { name: 'confirmed_at', type: 'time' },
  { name: 'confirm_by', type: 'time' },
  { name: 'available_at', type: 'time' },
  { name: 'removal_confirmed', type: 'boolean' },
  { name: 'settings', type: 'json' },
  { name: 'evidence', type: 'jsonb' },
]

export const LEASE: readonly Column[] = [
  { name: 'address', type: 'inet' },
  { name: 'prefix_length', type: 'smallint' },
  { name: 'pool_id', type: 'bigint' },
  { name: 'fencing_token', type: 'bigint' },
  { name: 'version', type: 'bigint' },
  { name: 'state', type: 'text' },
  { name: 'quarantine_reason', type: 'text' },
  { name: 'quarantined_at', type: 'time' },
  { name: 'quarantined_by', type: 'text' },
  { name: 'quarantine_why', type: 'text' },
  ...OWNER,
  { name: 'holder_key', type: 'text' },
  { name: 'attachment_key', type: 'text' },
  { name: 'node', type: 'text' },
  { name: 'boot', type: 'text' },
  { name: 'labels', type: 'jsonb' },
  { name: 'witness', type: 'text' },
  { name: 'asked_from', type: 'text' },
  { name: 'reserved_at', type: 'time' },
  { name: 'confirmed_at', type: 'time' },
  { name: 'confirm_by', type: 'time' },
]

export const RELEASED: readonly Column[] = [
  { name: 'address', type: 'inet' },
  { name: 'pool_id', type: 'bigint' },
  { name: 'prefix_length', type: 'smallint' },
  { name: 'available_at', type: 'time' },
  { name: 'released_seq', type: 'bigint' },
  { name: 'holder_key', type: 'text' },
  { name: 'removal_confirmed', type: 'boolean' },
]

export const RANGE: readonly Column[] = [
  { name: 'pool_id', type: 'bigint' },
  { name: 'first_address', type: 'inet' },
  { name: 'last_address', type: 'inet' },
]

export const POSITION: readonly Column[] = [
  { name: 'pool_id', type: 'bigint' },
  { name: 'seq', type: 'bigint' },
  { name: 'low_first', type: 'inet' },
  { name: 'cursor_first', type: 'inet' },
  { name: 'cursor_next', type: 'inet' },
  { name: 'reuse_after', type: 'time' },
  { name: 'reserved', type: 'bigint' },
  { name: 'active', type: 'bigint' },
  { name: 'quarantined', type: 'bigint' },
  { name: 'released', type: 'bigint' },
]

export const CLOSED: readonly Column[] = [
  { name: 'attachment_key', type: 'text' },
  { name: 'pool_id', type: 'bigint' },
  ...OWNER,
  { name: 'closed_at', type: 'time' },
  { name: 'closed_seq', type: 'bigint' },
]

export const HOLD: readonly Column[] = [
  { name: 'source_id', type: 'text' },
  { name: 'held_seq', type: 'bigint' },
  { name: 'held_at', type: 'time' },
  { name: 'why', type: 'text' },
  { name: 'reaps', type: 'bigint' },
  { name: 'leases', type: 'bigint' },
]

export const FENCE: readonly Column[] = [
  { name: 'node', type: 'text' },
  { name: 'boot', type: 'text' },
  { name: 'fenced_seq', type: 'bigint' },
  { name: 'fenced_at', type: 'time' },
  { name: 'fenced_by', type: 'text' },
  { name: 'why', type: 'text' },
  { name: 'fenced_head', type: 'bigint' },
]

const REQUEST: readonly Column[] = [
  { name: 'request_id', type: 'text' },
  { name: 'fingerprint', type: 'text' },
  { name: 'method', type: 'text' },
  { name: 'at', type: 'time' },
  { name: 'seq', type: 'bigint' },
  { name: 'answer', type: 'json' },
]

/** `insert into … select … from unnest(…)`: a row an element, network_id first. */
export function insertText(table: string, columns: readonly Column[], onConflict = ''): string {
  const names = columns.map(({ name }) => name)
  return `insert into ${table} (network_id, ${names.join(', ')})
    select $1, ${columns.map((column) => stored(column, `u.${column.name}`)).join(', ')}
    from unnest(${columns.map((column, index) => `$${index + 2}::${sentAs(column)}[]`).join(', ')}) as u (${names.join(', ')})
    ${onConflict}`
}

/**
 * The same for one row. A set of 33 columns makes 33 functions and as many buffers, whatever its length: the events of
 * a single Reserve took 237 µs from arrays and 82 µs like this.
 */
function insertOneText(table: string, columns: readonly Column[], onConflict = ''): string {
  const cells = columns.map((column, index) => stored(column, `$${index + 2}::${sentAs(column)}`))
  return `insert into ${table} (network_id, ${columns.map(({ name }) => name).join(', ')})
    values ($1, ${cells.join(', ')}) ${onConflict}`
}

function sentAs({ type }: Column): string {
  return type === 'time' ? 'float8' : type === 'json' || type === 'jsonb' ? 'text' : type
}

function stored({ type }: Column, sent: string): string {
  if (type === 'time') return `to_timestamp(${sent} / 1000)`
  return type === 'json' || type === 'jsonb' ? `${sent}::${type}` : sent
}

/** The parameters of `insertText`: per column one array literal. */
export function values<Row>(
  network: string,
  columns: readonly Column[],
  rows: readonly Row[],
  cell: (row: Row) => readonly unknown[],
): readonly unknown[] {
  const cells = rows.map(cell)
  return [network, ...columns.map((_column, index) => arrayLiteral(cells.map((row) => row[index])))]
}

// A lease that the batch read is changed in place. If another stands there by now, the event would be written and the
// row would not: the cast fails, names the address, and nothing of the batch is committed. A row that is not there
// needs no such thing: what is inserted or left out then is what the event says.
const LEASE_CHANGES = LEASE.filter(({ name }) => name !== 'address' && name !== 'fencing_token')
  .map(({ name }) =>
    name === 'version'
      ? `version = case when lease.fencing_token = excluded.fencing_token and lease.version < excluded.version
          then excluded.version else ('not the lease that was read: ' || host(lease.address))::bigint end`
      : `${name} = excluded.${name}`,
  )
  .join(', ')

type Insert = { readonly table: string; readonly columns: readonly Column[]; readonly onConflict?: string }

const INSERTS = {
  events: { table: 'ipledger.event', columns: EVENT },
  leasesBegin: { table: 'ipledger.lease', columns: LEASE },
  leasesChange: {
    table: 'ipledger.lease',
    columns: LEASE,
    onConflict: `on conflict (network_id, address) do update set ${LEASE_CHANGES}`,
  },
  releasedAdded: { table: 'ipledger.released_address', columns: RELEASED },
  rangesSet: {
    table: 'ipledger.untouched_range',
    columns: RANGE,
    onConflict:
      'on conflict (network_id, pool_id, first_address) do update set last_address = excluded.last_address',
  },
  positions: { table: 'ipledger.pool_position', columns: POSITION },
  closingsSet: { table: 'ipledger.closed_attachment', columns: CLOSED },
  holdsSet: {
    table: 'ipledger.hold',
    columns: HOLD,
    onConflict: `on conflict (network_id, source_id) do update set held_seq = excluded.held_seq,
      held_at = excluded.held_at, why = excluded.why, reaps = excluded.reaps, leases = excluded.leases`,
  },
  fencesSet: {
    table: 'ipledger.fence',
    columns: FENCE,
    onConflict: `on conflict (network_id, node, boot) do update set fenced_seq = excluded.fenced_seq,
      fenced_at = excluded.fenced_at, fenced_by = excluded.fenced_by, why = excluded.why,
      fenced_head = excluded.fenced_head`,
  },
  requests: { table: 'ipledger.request', columns: REQUEST },
} as const satisfies Readonly<Record<string, Insert>>

type InsertName = keyof typeof INSERTS

function textsOf(text: (table: string, columns: readonly Column[], onConflict?: string) => string) {
  const entries = Object.entries<Insert>(INSERTS)
  return Object.fromEntries(
    entries.map(([name, { table, columns, onConflict }]) => [name, text(table, columns, onConflict)]),
  ) as Readonly<Record<InsertName, string>>
}

/**
 * Of rows that are found by where they lie. Here network_id narrows nothing and must lead to nothing: with one row left
 * of a table the planner finds any index that begins with it as good, and walks all its dead. Under another collation
 * no index serves, and a comparison that `is true` is none that an index knows.
 */
export const OF_NETWORK = 'network_id = $1 collate "POSIX"'

/** Every statement of a batch's writes; the names are those of the prepared statements. */
export const WRITES = {
  ...textsOf(insertText),
  // By where the rows lie: by key the dead of a recycled address are passed, as long as a snapshot is held open.
  leasesEnd: `delete from ipledger.lease
      where ctid = any($2::tid[]) and ${OF_NETWORK} and (address = any($3::inet[])) is true`,
  releasedTaken: `delete from ipledger.released_address
      where ctid = any($2::tid[]) and ${OF_NETWORK} and (address = any($3::inet[])) is true`,
  releasedDropped: `delete from ipledger.released_address where ${OF_NETWORK} and ctid = any(array(
        select r.row_id from unnest($3::inet[], $4::inet[]) as g (first, last)
        cross join lateral (
          select s.ctid as row_id, s.pool_id from ipledger.released_address s
          where s.network_id = $1 and s.address between g.first and g.last order by s.address offset 0) r
        where r.pool_id = $2))`,
  droppedLeft: `insert into ipledger.dropped_range (network_id, pool_id, first_address, last_address)
    select $1, $2::bigint, g.first, g.last from unnest($3::inet[], $4::inet[]) as g (first, last)`,
  rangesGone: `delete from ipledger.untouched_range where ${OF_NETWORK} and ctid = any(array(
      select u.row_id from unnest($3::inet[]) as k (first)
      cross join lateral (
        select ctid as row_id from ipledger.untouched_range
        where network_id = $1 and pool_id = $2 and first_address >= k.first and first_address <= k.first
        order by first_address limit 1) u))`,
  rangesOfPoolGone: `delete from ipledger.untouched_range where network_id = $1 and pool_id = $2`,
  closingsGone: `delete from ipledger.closed_attachment where ${OF_NETWORK} and ctid = any(array(
      select c.row_id from unnest($2::text[]) as k (key)
      cross join lateral (
        select ctid as row_id from ipledger.closed_attachment
        where network_id = $1 and attachment_key >= k.key and attachment_key <= k.key
        order by attachment_key limit ${MOST_OF_ONE}) c))`,
  holdsGone: `delete from ipledger.hold where ${OF_NETWORK} and ctid = any(array(
      select h.row_id from unnest($2::text[]) as k (source)
      cross join lateral (
        select ctid as row_id from ipledger.hold
        where network_id = $1 and source_id >= k.source and source_id <= k.source order by source_id limit 1) h))`,
  networkSet: `insert into ipledger.network
        (network_id, description, labels, state, era, version, created_at, updated_at)
      values ($1, $2, $3::jsonb, $4, $5, $6, to_timestamp($7::float8 / 1000), to_timestamp($8::float8 / 1000))
      on conflict (network_id) do update set description = excluded.description, labels = excluded.labels,
        state = excluded.state, era = excluded.era, version = excluded.version, updated_at = excluded.updated_at`,
  poolSet: `insert into ipledger.pool
        (network_id, pool_id, name, version, family, cidr, is_default, settings, created_at, updated_at)
      values ($1, $2, $3, $4, $5, $6, $7, $8::json, to_timestamp($9::float8 / 1000), to_timestamp($10::float8 / 1000))
      on conflict (network_id, pool_id) do update set name = excluded.name, version = excluded.version,
        cidr = excluded.cidr, is_default = excluded.is_default, settings = excluded.settings,
        updated_at = excluded.updated_at`,
  poolGone: `delete from ipledger.pool where network_id = $1 and pool_id = $2`,
} as const

/** The inserts of a single row. */
export const WRITES_OF_ONE = textsOf(insertOneText)

function statement(name: keyof typeof WRITES, given: readonly unknown[]): Statement {
  return { name: `write_${name}`, text: WRITES[name], values: given }
}

function insert<Row>(
  name: InsertName,
  network: string,
  rows: readonly Row[],
  cells: (row: Row) => readonly unknown[],
): Statement {
  const [first] = rows
  if (rows.length === 1) {
    return { name: `write_one_${name}`, text: WRITES_OF_ONE[name], values: [network, ...cells(first!)] }
  }
  return statement(name, values(network, INSERTS[name].columns, rows, cells))
}

/** Everything a batch has to write; empty when nothing happened. */
export function writeBatch(
  slice: Slice,
  events: readonly LedgerEvent[],
  requests: readonly NewRequest[],
): readonly Statement[] {
  const { books } = slice
  const network = books.networkName
  const statements: Statement[] = []
  if (events.length > 0) {
    statements.push(
      insert('events', network, events, eventCells),
      ...writeNetwork(books, events),
      ...writeAddresses(slice),
      ...writeFreeSpace(slice, events),
      ...writeClosings(slice),
      ...writeStatements(books, events),
    )
  }
  if (requests.length > 0) {
    statements.push(
      insert('requests', network, requests, (one) => [
        one.requestId,
        one.fingerprint,
        one.method,
        books.now,
        one.seq,
        one.answer,
      ]),
    )
  }
  return statements
}

function writeAddresses(slice: Slice): readonly Statement[] {
  const { books } = slice
  const network = books.networkName
  const ended: string[] = []
  const begun: Lease[] = []
  const changed: Lease[] = []
  const taken: string[] = []
  const added: ReleasedAddress[] = []
  for (const [address, after] of books.addresses) {
    // What was not read at an address was read as untouched space around it.
    const before = slice.before.get(address) ?? UNTOUCHED
    if (after === before) continue
    if (before.lease !== after.lease) {
      if (before.lease !== null && before.lease.fencingToken === after.lease?.fencingToken)
        changed.push(after.lease)
      else {
        if (before.lease !== null) ended.push(address)
        if (after.lease !== null) begun.push(after.lease)
      }
    }
    if (before.released !== after.released) {
      if (before.released !== null) taken.push(address)
      if (after.released !== null) added.push(after.released)
    }
  }
  const statements: Statement[] = []
  if (ended.length > 0) statements.push(statement('leasesEnd', [network, rowIdsOf(slice, ended), ended]))
  if (taken.length > 0) statements.push(statement('releasedTaken', [network, rowIdsOf(slice, taken), taken]))
  if (begun.length > 0) statements.push(insert('leasesBegin', network, begun, leaseCells))
  if (changed.length > 0) statements.push(insert('leasesChange', network, changed, leaseCells))
  if (added.length > 0) statements.push(insert('releasedAdded', network, added, releasedCells))
  return statements
}

function rowIdsOf(slice: Slice, addresses: readonly string[]): readonly string[] {
  return addresses.map((address) => slice.rowIds.get(address)!)
}

/** Pools and networks change in batches of their own, so what an event says is the last word. */
function writeNetwork(books: Books, events: readonly LedgerEvent[]): readonly Statement[] {
  const statements: Statement[] = []
  for (const event of events) {
    switch (event.type) {
      case 'network.created':
      case 'network.updated':
      case 'era.begun':
        statements.push(statement('networkSet', networkCells(books.network!)))
        break
      case 'pool.created':
      case 'pool.updated':
        statements.push(statement('poolSet', poolCells(books.pools.get(event.poolId)!.pool)))
        break
      case 'pool.deleted':
        statements.push(statement('poolGone', [event.network, event.poolId]))
        break
      default:
        break
    }
  }
  return statements
}

function writeFreeSpace(slice: Slice, events: readonly LedgerEvent[]): readonly Statement[] {
  const { books } = slice
  const network = books.networkName
  const statements: Statement[] = []
  const touched = new Set<number>()
  const reshaped = new Set<number>()
  for (const event of events) {
    if ('lease' in event) touched.add(event.lease.poolId)
    else if ('ended' in event) touched.add(event.ended.lease.poolId)
    else if (event.type === 'pool.created' || event.type === 'pool.updated') {
      touched.add(event.poolId)
      reshaped.add(event.poolId)
    } else if (event.type === 'pool.deleted') {
      statements.push(
        statement('rangesOfPoolGone', [network, event.poolId]),
        ...dropReleased(slice, event.poolId, event.pool, true),
      )
    }
  }
  const positions: (readonly unknown[])[] = []
  for (const poolId of touched) {
    const { pool } = books.pools.get(poolId)!
    const storage = slice.storage.get(poolId) ?? newStorage()
    if (reshaped.has(poolId)) statements.push(...dropReleased(slice, poolId, pool))
    const encoded = encodeRanges(slice, poolId, storage)
    if (encoded.gone.length > 0) {
      statements.push(
        statement('rangesGone', [
          network,
          poolId,
          encoded.gone.map((first) => formatValue(pool.family, first)),
        ]),
      )
    }
    if (encoded.set.length > 0) {
      statements.push(
        insert('rangesSet', network, encoded.set, (range) => [
          poolId,
          formatValue(pool.family, range.first),
          formatValue(pool.family, range.last),
        ]),
      )
    }
    positions.push(positionCells(slice, poolId, storage, encoded))
  }
  if (positions.length > 0) statements.push(insert('positions', network, positions, (cells) => cells))
  return statements
}

/** Rows that are removed in the batch itself: 18 ms for the whole call on 2 cores. */
const DROPPED_WITH_POOL = 10_000

/**
 * Cooled addresses that leave the pool with a change of its shape; nothing held or cooling may. Of a pool that is gone
 * the rows may lie about for a while.
 */
function dropReleased(
  slice: Slice,
  poolId: number,
  settings: PoolSettings,
  gone = false,
): readonly Statement[] {
  const occupants = slice.books.occupants.get(poolId)
  if (occupants === undefined || occupants.cooledCount === 0) return []
  const family: Family = settings.cidr.includes(':') ? 6 : 4
  const leaving = occupants.ranges
  return [
    statement(gone && occupants.cooledCount > DROPPED_WITH_POOL ? 'droppedLeft' : 'releasedDropped', [
      slice.books.networkName,
      poolId,
      leaving.map((range) => formatValue(family, range.first)),
      leaving.map((range) => formatValue(family, range.last)),
    ]),
  ]
}

function newStorage(): PoolStorage {
  return {
    lowFirst: null,
    cursor: null,
    reuseAfter: null,
    ranges: new Map(),
    lastRange: null,
    lastReleased: null,
  }
}

type EncodedRanges = {
  readonly gone: readonly bigint[]
  readonly set: readonly Range[]
  readonly cursor: PoolStorage['cursor']
  readonly lowFirst: bigint | null
}

/**
 * How the untouched space that was read is stored now. Taking the lowest address, the common case, moves the
 * cursor and rewrites no row; every other range is stored as it is.
 */
function encodeRanges(slice: Slice, poolId: number, storage: PoolStorage): EncodedRanges {
  const book = slice.books.pools.get(poolId)!
  const stored = storage.ranges
  // Every row up to here was read; of those beyond only the ones that an address led to.
  const { untouchedUpTo } = book
  const windowed = untouchedUpTo === null || untouchedUpTo >= 0n
  // The row whose beginning is the cursor: the lowest one where the low end was read, else the one it was. A
  // cursor into a row that was not read stays, or what it has used up would count as untouched again.
  const lowest = book.untouched[0]
  let cursor = storage.cursor
  let cursorRow: Range | undefined
  if (storage.cursor === null || stored.has(storage.cursor.first)) {
    if (windowed && lowest !== undefined) cursorRow = rowOver(stored, lowest.first)
    const unreadBefore = cursorRow !== undefined && untouchedUpTo !== null && cursorRow.first > untouchedUpTo
    if (storage.cursor !== null && (!windowed || unreadBefore)) cursorRow = stored.get(storage.cursor.first)
    else if (unreadBefore) cursorRow = undefined
    cursor = null
  }
  const wanted = new Map<bigint, Range>()
  let cursorUsed = false
  for (const range of book.untouched) {
    if (
      !cursorUsed &&
      cursorRow !== undefined &&
      cursorRow.first <= range.first &&
      range.first <= cursorRow.last
    ) {
      cursorUsed = true
      wanted.set(cursorRow.first, { first: cursorRow.first, last: range.last })
      if (range.first > cursorRow.first) cursor = { first: cursorRow.first, next: range.first }
      continue
    }
    wanted.set(range.first, range)
  }
  const gone = [...stored.keys()].filter((first) => !wanted.has(first))
  const set = [...wanted.values()].filter((range) => stored.get(range.first)?.last !== range.last)
  return { gone, set, cursor, lowFirst: lowestFirst(storage, untouchedUpTo, wanted) }
}

/**
 * Below this no row starts, so that reading begins behind the rows used up: while a snapshot is held open those are
 * dead but still in the index. Rows between the end of what was read in order and a row beyond it are not known.
 */
function lowestFirst(
  storage: PoolStorage,
  untouchedUpTo: bigint | null,
  wanted: ReadonlyMap<bigint, Range>,
): bigint | null {
  const lowest = lowestKey(wanted)
  if (untouchedUpTo === null) return lowest ?? storage.lastRange ?? storage.lowFirst
  if (untouchedUpTo >= 0n) return lowest !== null && lowest < untouchedUpTo ? lowest : untouchedUpTo
  return storage.lowFirst !== null && lowest !== null && lowest < storage.lowFirst ? lowest : storage.lowFirst
}

function rowOver(stored: ReadonlyMap<bigint, Range>, value: bigint): Range | undefined {
  for (const range of stored.values()) if (range.first <= value && value <= range.last) return range
  return undefined
}

function lowestKey(ranges: ReadonlyMap<bigint, Range>): bigint | null {
  let lowest: bigint | null = null
  for (const first of ranges.keys()) if (lowest === null || first < lowest) lowest = first
  return lowest
}

function positionCells(
  slice: Slice,
  poolId: number,
  storage: PoolStorage,
  encoded: EncodedRanges,
): readonly unknown[] {
  const { books } = slice
  const { pool, counts, cooled, cooledComplete } = books.pools.get(poolId)!
  const text = (value: bigint | null | undefined) => (value == null ? null : formatValue(pool.family, value))
  // Nothing released has an earlier end of cooling than the first that is left: the queue is taken from its front.
  let reuseAfter = storage.reuseAfter
  if (storage.lastReleased !== null || cooledComplete) {
    const first = cooled.values().next()
    if (!first.done) reuseAfter = first.value.availableAt
    else if (storage.lastReleased !== null) reuseAfter = storage.lastReleased.availableAt
  }
  if (reuseAfter !== null) reuseAfter = Math.min(reuseAfter, books.now)
  return [
    poolId,
    books.head,
    text(encoded.lowFirst),
    text(encoded.cursor?.first),
    text(encoded.cursor?.next),
    reuseAfter,
    counts.reserved,
    counts.active,
    counts.quarantined,
    counts.released,
  ]
}

function writeClosings(slice: Slice): readonly Statement[] {
  const { books } = slice
  const gone: string[] = []
  const set: ClosedAttachment[] = []
  for (const [key, before] of slice.closingsBefore) {
    const after = books.closings.get(key)!
    if (after === before || (after.length === 0 && before.length === 0)) continue
    if (before.length > 0) gone.push(key)
    set.push(...after)
  }
  const statements: Statement[] = []
  if (gone.length > 0) statements.push(statement('closingsGone', [books.networkName, gone]))
  if (set.length > 0) statements.push(insert('closingsSet', books.networkName, set, closedCells))
  return statements
}

/** What was said of reaping, as the last event of the batch about each left it. */
function writeStatements(books: Books, events: readonly LedgerEvent[]): readonly Statement[] {
  const network = books.networkName
  const holds = new Map<string, Hold | null>()
  const fences = new Map<string, Fence>()
  for (const event of events) {
    if (event.type === 'reconcile.held' || event.type === 'reconcile.resumed') {
      const { source } = event.evidence
      holds.set(source, books.holds.get(source)!)
    } else if (event.type === 'node.fenced') {
      const key = bootKey(event.evidence.node, event.evidence.boot)
      fences.set(key, books.fences.get(key)!)
    }
  }
  const statements: Statement[] = []
  const held = [...holds.values()].filter((hold) => hold !== null)
  const resumed = [...holds].filter(([, hold]) => hold === null).map(([source]) => source)
  if (held.length > 0) statements.push(insert('holdsSet', network, held, holdCells))
  if (resumed.length > 0) statements.push(statement('holdsGone', [network, resumed]))
  if (fences.size > 0) statements.push(insert('fencesSet', network, [...fences.values()], fenceCells))
  return statements
}

// Cells in the order of the columns above.

/** Of `OWNER`. */
export function ownerCells(owner: Owner | null): readonly unknown[] {
  if (owner === null) return [null, null, null, null, null, null]
  return [owner.kind, owner.name, owner.uid, owner.uidNamed, owner.incarnation, owner.interface]
}

function eventCells(event: LedgerEvent): readonly unknown[] {
  const lease = 'lease' in event ? event.lease : 'ended' in event ? event.ended.lease : null
  const ended = 'ended' in event ? event.ended : null
  const owner = lease !== null ? lease.owner : event.type === 'attachment.closed' ? event.owner : null
  const poolId = lease !== null ? lease.poolId : 'poolId' in event ? event.poolId : null
  return [
    event.seq,
    event.type,
    event.at,
    event.actor,
    event.cause,
    event.requestId,
    event.traceId,
    poolId,
    lease?.address ?? null,
    lease?.prefixLength ?? null,
    lease?.fencingToken ?? null,
    lease?.state ?? null,
    lease?.quarantine?.reason ?? null,
    lease?.quarantine?.at ?? null,
    lease?.quarantine?.by ?? null,
    lease?.quarantine?.why ?? null,
    ...ownerCells(owner),
    lease?.placement.node ?? null,
    lease?.placement.boot ?? null,
    lease === null ? null : JSON.stringify(lease.placement.labels),
    lease?.witness ?? null,
    lease?.reservedAt ?? null,
    lease?.confirmedAt ?? null,
    lease?.confirmBy ?? null,
    ended?.availableAt ?? null,
    ended?.removalConfirmed ?? null,
    settingsCell(event),
    event.evidence === null ? null : JSON.stringify(event.evidence),
  ]
}

function settingsCell(event: LedgerEvent): string | null {
  switch (event.type) {
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted':
      return JSON.stringify({ pool: event.pool })
    case 'network.created':
    case 'network.updated':
      return JSON.stringify({ network: event.settings, recoveryEnded: event.recoveryEnded })
    case 'era.begun':
      return JSON.stringify({ era: event.era, recovering: event.recovering })
    default:
      return 'lease' in event
        ? askedFromCell(event.lease)
        : 'ended' in event
          ? askedFromCell(event.ended.lease)
          : null
  }
}

function askedFromCell({ askedFrom = [] }: Lease): string | null {
  return askedFrom.length === 0 ? null : JSON.stringify({ askedFrom })
}

export function leaseCells(lease: Lease): readonly unknown[] {
  return [
    lease.address,
    lease.prefixLength,
    lease.poolId,
    lease.fencingToken,
    lease.version,
    lease.state,
    lease.quarantine?.reason ?? null,
    lease.quarantine?.at ?? null,
    lease.quarantine?.by ?? null,
    lease.quarantine?.why ?? null,
    ...ownerCells(lease.owner),
    lease.owner === null ? null : holderKey(lease.owner),
    lease.owner === null ? null : attachmentKey(lease.owner),
    lease.placement.node,
    lease.placement.boot,
    JSON.stringify(lease.placement.labels),
    lease.witness,
    writeNodes(lease.askedFrom),
    lease.reservedAt,
    lease.confirmedAt,
    lease.confirmBy,
  ]
}

export function releasedCells(released: ReleasedAddress): readonly unknown[] {
  return [
    released.address,
    released.poolId,
    released.prefixLength,
    released.availableAt,
    released.releasedSeq,
    released.holderKey,
    released.removalConfirmed,
  ]
}

export function closedCells(closing: ClosedAttachment): readonly unknown[] {
  return [
    attachmentKey(closing.owner),
    closing.poolId ?? 0,
    ...ownerCells(closing.owner),
    closing.closedAt,
    closing.closedSeq,
  ]
}

export function holdCells(hold: Hold): readonly unknown[] {
  return [hold.source, hold.seq, hold.at, hold.why, hold.reaps, hold.leases]
}

export function fenceCells({ node, boot, seq, head, at, by, why }: Fence): readonly unknown[] {
  return [node, boot, seq, at, by, why, head === seq ? null : head]
}

export function networkCells(network: Network): readonly unknown[] {
  return [
    network.network,
    network.description,
    JSON.stringify(network.labels),
    network.state,
    network.era,
    network.version,
    network.createdAt,
    network.updatedAt,
  ]
}

export function poolCells(pool: Pool): readonly unknown[] {
  return [
    pool.network,
    pool.poolId,
    pool.name,
    pool.version,
    pool.family,
    pool.cidr,
    pool.isDefault,
    JSON.stringify(settingsOf(pool)),
    pool.createdAt,
    pool.updatedAt,
  ]
}
