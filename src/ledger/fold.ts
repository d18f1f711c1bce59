/**
 * What a slice of a network's addresses should be by the log, and what the projections say: read in one transaction,
 * so that nobody's batch lies between the two, and compared in memory. verify names the differences, rebuild removes
 * them.
 *
 * Every event carries the full state after it, so what an address came to is its last event; whether the events
 * before it were legal is asked by verify, which walks them all. A slice is bounded on every side: an interval that
 * holds more rows than a slice may is cut short, and the caller goes on behind it.
 *
 * Nearly always a row is what its last event left. The database says so of two rows faster than it sends both here, so
 * only the others are sent and folded (100,000 leases: compared in 1.1 s instead of 2.2 s). What it is asked is
 * generated from the columns of one name: an event carries the state after it, and the fold passes that through.
 * Whatever is more than that is decided here: the keys, quarantines, what a reshaped pool forgot.
 */
import type pg from 'pg'
import { blockBase, blockSize, type Family, formatValue, maxPrefix } from '../core/address.ts'
import { type AddressBook, addressValue, BrokenBooks, UNTOUCHED } from '../core/books.ts'
import { isHeldEvent, type LeaseEvent, type LedgerEvent } from '../core/event.ts'
import { addressOf, evolveAddress } from '../core/evolve.ts'
import type { Lease } from '../core/lease.ts'
import { attachmentKey, holderKey, type Owner } from '../core/owner.ts'
import type { Pool } from '../core/pool.ts'
import { intersect, normalise, type Range, subtract } from '../core/ranges.ts'
import { type Column, LEASE, leaseCells, RELEASED, releasedCells } from './append.ts'
import { EVENT_COLUMNS, type EventRow, readAddress, readEvent } from './rows.ts'
import { poolOver, poolsIn, type Shape, stillTouched } from './shape.ts'

export type Cells = readonly unknown[]

/** What one address came to by its last event. */
export type Standing = {
  readonly address: string
  readonly value: bigint
  readonly poolId: number
  /** Number of the last event. */
  readonly seq: number
  /** As the projections should have it; untouched if it left its pool since it was released. */
  readonly book: AddressBook
}

/** An address whose only row is, cell by cell, what its last event left. */
export type Settled = {
  readonly address: string
  readonly value: bigint
  readonly poolId: number
  readonly seq: number
  /** Null: released, and remembered as that. */
  readonly lease: Pick<Lease, 'poolId' | 'prefixLength' | 'fencingToken'> | null
}

/** A row that the log explains otherwise, or not at all, or that is not there. */
export type RowDifference = {
  readonly table: 'lease' | 'released_address'
  readonly address: string
  readonly expected: Cells | null
  readonly found: Cells | null
  /** Of a row that is there and should be: which columns differ. */
  readonly columns: readonly string[]
  readonly standing: Standing | undefined
}

/** A stretch of a pool whose untouched space is stored otherwise than the log has it. */
export type SpaceDifference = {
  readonly pool: Pool
  readonly interval: Range
  /** Never held, and missing from the stored ranges. */
  readonly missing: readonly Range[]
  /** Held or released before, or not for lease at all, and stored as untouched. */
  readonly extra: readonly Range[]
  /** Stored rows that lie over each other. */
  readonly overlaps: boolean
  readonly expected: readonly Range[]
  readonly space: Space
}

/** How a pool's untouched space is stored around an interval. */
export type Space = {
  readonly pool: Pool
  readonly interval: Range
  /** As the rows are, the one before the interval included. */
  readonly rows: readonly Range[]
  readonly cursor: Cursor
}

export type Cursor = { readonly first: bigint; readonly next: bigint } | null

export type Slice = {
  readonly family: Family
  /** What was read: what was asked for, or its beginning. */
  readonly interval: Range
  /** Addresses with events: first those whose rows need no look any more, then the others, with their rows. */
  readonly settled: readonly Settled[]
  readonly standings: readonly Standing[]
  readonly leases: readonly Cells[]
  readonly released: readonly Cells[]
  readonly spaces: readonly Space[]
}

export type Position = {
  readonly poolId: number
  readonly seq: number
  readonly lowFirst: string | null
  readonly cursor: Cursor
  readonly reuseAfter: number | null
  readonly reserved: number
  readonly active: number
  readonly quarantined: number
  readonly released: number
}

/** Pools one slice may cross: a network of many small ones must not make one statement of all of them. Not measured. */
const MOST_POOLS = 500

export function wholeFamily(family: Family): Range {
  return { first: 0n, last: (1n << BigInt(maxPrefix(family))) - 1n }
}

// The fold.

/** The state after an event, whatever was before it. */
export function stateAfter(event: LeaseEvent): AddressBook {
  if (!isHeldEvent(event)) return evolveAddress({ lease: event.ended.lease, released: null }, event)
  const { lease } = event
  const creates = lease.fencingToken === event.seq
  try {
    return evolveAddress(creates ? UNTOUCHED : { lease, released: null }, event)
  } catch (error) {
    if (!(error instanceof BrokenBooks)) throw error
    // Its type and its token contradict each other, so nothing fits before it; what is after it, it says itself.
    return { lease, released: null }
  }
}

/** The same, as the projections should have it by now. */
export function standingAfter(shape: Shape, event: LeaseEvent): Standing {
  const { address, poolId } = addressOf(event)
  const value = addressValue(address)
  const after = stateAfter(event)
  const forgotten = after.released !== null && !stillTouched(shape, poolId, value, event.seq)
  return { address, value, poolId, seq: event.seq, book: forgotten ? UNTOUCHED : after }
}

/** Columns that make an event of a lease; the others say who caused it and why. */
const WITHOUT: readonly string[] = ['actor', 'cause', 'request_id', 'trace_id', 'evidence']
const STATE_COLUMNS = EVENT_COLUMNS.filter((column) => !WITHOUT.includes(column))
type StateRow = Omit<EventRow, 'actor' | 'cause' | 'request_id' | 'trace_id' | 'evidence'>

const BLANK: EventRow = {
  network_id: '',
  seq: 0,
  type: '',
  at: 0,
  actor: '',
  cause: '',
  request_id: null,
  trace_id: null,
  pool_id: null,
  address: null,
  prefix_length: null,
  fencing_token: null,
  state: null,
  quarantine_reason: null,
  quarantined_at: null,
  quarantined_by: null,
  quarantine_why: null,
  owner_kind: null,
  owner_name: null,
  owner_uid: null,
  owner_uid_named: null,
  owner_incarnation: null,
  owner_interface: null,
  node: null,
  boot: null,
  labels: null,
  witness: null,
  reserved_at: null,
  confirmed_at: null,
  confirm_by: null,
  available_at: null,
  removal_confirmed: null,
  settings: null,
  evidence: null,
}

/** An event of which only some columns were read; what was not is empty. */
export function readSparseEvent(row: Partial<EventRow>): LedgerEvent {
  return readEvent({ ...BLANK, ...row })
}

export function readLeaseEvent(row: Partial<EventRow>): LeaseEvent {
  const event = readSparseEvent(row)
  if ('lease' in event || 'ended' in event) return event
  throw new Error(
    `event ${event.network}/${event.seq} (${event.type}) names an address and is about no lease`,
  )
}

const LAST_EVENTS = `select e.* from unnest($2::inet[]) as a (address)
  cross join lateral (
    select ${STATE_COLUMNS.join(', ')} from ipledger.event
     where event.network_id = $1 and event.address = a.address order by event.seq desc limit 1) e`

/** What these addresses came to, up to the head that this transaction sees. */
export async function readStandings(
  client: pg.Client,
  shape: Shape,
  addresses: readonly string[],
): Promise<readonly Standing[]> {
  if (addresses.length === 0) return []
  const { rows } = await client.query<StateRow>(LAST_EVENTS, [shape.networkName, addresses])
  return rows.map((row) => standingAfter(shape, readLeaseEvent(row)))
}

const NEXT_ADDRESSES = `select distinct s.address from (
    select e.address from ipledger.event e
     where e.network_id = $1 and e.address between $2::inet and $3::inet order by e.address limit $4) s
  order by s.address limit $5`

/** Index entries walked to find a slice's addresses, since one address may have millions of them. Not measured. */
const ENTRIES_PER_ADDRESS = 32

/** Addresses in an interval that any event is about, in order, and how far that is all of them. */
export async function nextAddresses(
  client: pg.Client,
  network: string,
  family: Family,
  interval: Range,
  most: number,
): Promise<Wanted> {
  const entries = most * ENTRIES_PER_ADDRESS
  const { rows } = await client.query<{ address: string }>(NEXT_ADDRESSES, [
    network,
    formatValue(family, interval.first),
    formatValue(family, interval.last),
    entries,
    most,
  ])
  const addresses = rows.map((row) => readAddress(row.address))
  const last = addresses.at(-1)
  if (last === undefined) return { addresses, interval }
  // Fewer addresses than asked for may be the end, or the end of the entries walked: only what was seen is known.
  return { addresses, interval: { first: interval.first, last: addressValue(last) } }
}

// What is stored.

export const names = (columns: readonly Column[]) => columns.map(({ name }) => name).join(', ')

/** Not of a pool that is gone: what is left of it is removed by and by, and says nothing. */
const ofPools = (row: string) => `coalesce((
      select d.last_address from ipledger.dropped_range d
      where d.network_id = $1 and d.first_address <= ${row}.address
      order by d.first_address desc limit 1) < ${row}.address, true)`

const LEASES_IN = `select ${names(LEASE)} from ipledger.lease
  where network_id = $1 and address between $2::inet and $3::inet order by address limit $4`
const RELEASED_IN = `select ${names(RELEASED)} from ipledger.released_address r
  where network_id = $1 and address between $2::inet and $3::inet and ${ofPools('r')} order by address limit $4`
const LEASES_AT = `select ${names(LEASE)} from ipledger.lease where network_id = $1 and address = any($2::inet[])`
const RELEASED_AT = `select ${names(RELEASED)} from ipledger.released_address r
  where network_id = $1 and address = any($2::inet[]) and ${ofPools('r')}`

export async function readCells(
  client: pg.Client,
  text: string,
  columns: readonly Column[],
  values: readonly unknown[],
): Promise<readonly Cells[]> {
  const { rows } = await client.query<unknown[]>({ rowMode: 'array', text, values: [...values] })
  for (const row of rows) {
    for (let index = 0; index < columns.length; index += 1) {
      const { type } = columns[index]!
      if (type === 'inet') row[index] = readAddress(row[index] as string)
      else if (type === 'jsonb') row[index] = JSON.stringify(row[index])
    }
  }
  return rows
}

/** The rows of these addresses alone. */
export async function readRowsAt(
  client: pg.Client,
  network: string,
  addresses: readonly string[],
): Promise<{ readonly leases: readonly Cells[]; readonly released: readonly Cells[] }> {
  const at = [network, addresses]
  return {
    leases: await readCells(client, LEASES_AT, LEASE, at),
    released: await readCells(client, RELEASED_AT, RELEASED, at),
  }
}

const KEYS: readonly string[] = ['holder_key', 'attachment_key']
const isQuarantine = ({ name }: Column) => name.startsWith('quarantine')
/** Columns that an event has under the same name; the number of a row is that of its event. */
const ALIKE_LEASE = LEASE.filter(
  (one) => !isQuarantine(one) && !KEYS.includes(one.name) && one.name !== 'asked_from',
)
const ALIKE_RELEASED = RELEASED.filter(({ name }) => !KEYS.includes(name))
const inEvent = ({ name }: Column) => (name === 'version' || name === 'released_seq' ? 'seq' : name)
const alike = (columns: readonly Column[], row: string) =>
  `row(${columns.map((column) => `e.${inEvent(column)}`).join(', ')}) is not distinct from ` +
  `row(${columns.map(({ name }) => `${row}.${name}`).join(', ')})`
const without = (columns: readonly Column[], row: string) =>
  columns.map(({ name }) => `${row}.${name} is null`).join(' and ')

const ENDED = `e.type in ('lease.released', 'lease.reaped')`
/** Each address beside the row that its last event should have left; one of the other table shows in the count. */
const SETTLED = `select e.address, e.seq, e.pool_id, e.prefix_length, e.fencing_token, e.owner_kind, e.owner_name, e.owner_uid,
    e.owner_incarnation, e.owner_interface, coalesce(l.holder_key, r.holder_key), l.attachment_key,
    case when l.alike then 'lease' when r.alike then 'released' end as what
  from unnest($2::inet[]) as a (address)
  cross join lateral (
    select * from ipledger.event
     where event.network_id = $1 and event.address = a.address order by event.seq desc limit 1) e
  left join lateral (
    select l.holder_key, l.attachment_key, ${alike(ALIKE_LEASE, 'l')}
        and ${without(LEASE.filter(isQuarantine), 'e')} and ${without(LEASE.filter(isQuarantine), 'l')}
        and e.settings is null and l.asked_from = '' as alike
      from ipledger.lease l
     where l.network_id = $1 and l.address = a.address and not ${ENDED} and e.type like 'lease.%' offset 0) l on true
  left join lateral (
    select r.holder_key, ${alike(ALIKE_RELEASED, 'r')} as alike
      from ipledger.released_address r where r.network_id = $1 and r.address = a.address and ${ENDED} and ${ofPools('r')} offset 0) r on true`

type SettledRow = readonly [
  address: string,
  seq: number,
  poolId: number,
  prefixLength: number,
  fencingToken: number,
  kind: string | null,
  name: string,
  uid: string,
  incarnation: string,
  on: string,
  holderKey: string | null,
  attachmentKey: string | null,
  what: 'lease' | 'released' | null,
]

const COUNT_ROWS = `select
    (select count(*) from (select from ipledger.lease l
      where l.network_id = $1 and l.address between $2::inet and $3::inet limit $4) s)
    + (select count(*) from (select from ipledger.released_address r
      where r.network_id = $1 and r.address between $2::inet and $3::inet and ${ofPools('r')} limit $4) s) as rows`

/** The beginning of an interval, and all addresses in it that any event is about. */
export type Wanted = { readonly addresses: readonly string[]; readonly interval: Range }

async function countRows(
  client: pg.Client,
  shape: Shape,
  family: Family,
  { addresses, interval }: Wanted,
): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(COUNT_ROWS, [
    shape.networkName,
    formatValue(family, interval.first),
    formatValue(family, interval.last),
    addresses.length + 1,
  ])
  return rows[0]!.rows
}

/** Most addresses have no row: they are lost, or left their pool. */
export async function looksLost(
  client: pg.Client,
  shape: Shape,
  family: Family,
  wanted: Wanted,
): Promise<boolean> {
  return 2 * (await countRows(client, shape, family, wanted)) < wanted.addresses.length
}

type Rows = Pick<Slice, 'settled' | 'leases' | 'released'> & {
  /** Those of the addresses that are not settled. */
  readonly others: readonly string[]
}

/**
 * The rows of an interval, of which `addresses` are all that have events, but for those that are settled. Null where
 * the interval holds rows that no event is about, or lacks so many that most addresses have to be folded anyway.
 */
async function readUnsettled(
  client: pg.Client,
  shape: Shape,
  family: Family,
  wanted: Wanted,
): Promise<Rows | null> {
  const network = shape.networkName
  const { addresses } = wanted
  const all = await countRows(client, shape, family, wanted)
  if (all > addresses.length || 2 * all < addresses.length) return null
  const { rows } = await client.query<[...SettledRow]>({
    rowMode: 'array',
    text: SETTLED,
    values: [network, addresses],
  })
  const settled: Settled[] = []
  const others: string[] = []
  for (const row of rows) {
    const one = settle(shape, row)
    if (one === null) others.push(readAddress(row[0]))
    else settled.push(one)
  }
  const { leases, released } = await readRowsAt(client, network, others)
  return leases.length + released.length + settled.length === all
    ? { settled, others, leases, released }
    : null
}

function settle(shape: Shape, row: SettledRow): Settled | null {
  const [
    text,
    seq,
    poolId,
    prefixLength,
    fencingToken,
    kind,
    name,
    uid,
    incarnation,
    on,
    holder,
    attached,
    what,
  ] = row
  if (what === null) return null
  const owner: Owner | null =
    kind === null ? null : { kind, name, uid, uidNamed: true, incarnation, interface: on }
  if (holder !== (owner === null ? '' : holderKey(owner))) return null
  const address = readAddress(text)
  const value = addressValue(address)
  if (what === 'released') {
    return stillTouched(shape, poolId, value, seq) ? { address, value, poolId, seq, lease: null } : null
  }
  // Nobody's is quarantined, and that is not for here.
  if (owner === null || attached !== attachmentKey(owner)) return null
  return { address, value, poolId, seq, lease: { poolId, prefixLength, fencingToken } }
}

/** Address is the first column of both tables that are keyed by it. */
export function addressOfCells(cells: Cells): string {
  return cells[0] as string
}

const RANGES_IN = `select p.pool_id, r.first_address, r.last_address
  from unnest($2::bigint[], $3::inet[], $4::inet[]) as p (pool_id, first_address, last_address)
  cross join lateral (
    (select u.first_address, u.last_address from ipledger.untouched_range u
      where u.network_id = $1 and u.pool_id = p.pool_id and u.first_address < p.first_address
      order by u.first_address desc limit 1)
    union all
    (select u.first_address, u.last_address from ipledger.untouched_range u
      where u.network_id = $1 and u.pool_id = p.pool_id
        and u.first_address between p.first_address and p.last_address
      order by u.first_address limit $5)) r`

const POSITIONS = `select x.pool_id, x.seq, x.low_first, x.cursor_first, x.cursor_next, x.reuse_after,
    x.reserved, x.active, x.quarantined, x.released
  from unnest($2::bigint[]) as p (pool_id)
  cross join lateral (
    select q.* from ipledger.pool_position q
     where q.network_id = $1 and q.pool_id = p.pool_id order by q.seq desc limit 1) x`

type PositionRow = {
  pool_id: number
  seq: number
  low_first: string | null
  cursor_first: string | null
  cursor_next: string | null
  reuse_after: number | null
  reserved: number
  active: number
  quarantined: number
  released: number
}

/** The last position of each pool that has one. */
export async function readPositions(
  client: pg.Client,
  network: string,
  poolIds: readonly number[],
): Promise<ReadonlyMap<number, Position>> {
  if (poolIds.length === 0) return new Map()
  const { rows } = await client.query<PositionRow>(POSITIONS, [network, poolIds])
  return new Map(
    rows.map((row) => [
      row.pool_id,
      {
        poolId: row.pool_id,
        seq: row.seq,
        lowFirst: row.low_first === null ? null : readAddress(row.low_first),
        cursor:
          row.cursor_first === null
            ? null
            : {
                first: addressValue(readAddress(row.cursor_first)),
                next: addressValue(readAddress(row.cursor_next!)),
              },
        reuseAfter: row.reuse_after,
        reserved: row.reserved,
        active: row.active,
        quarantined: row.quarantined,
        released: row.released,
      },
    ]),
  )
}

export type Stretch = { readonly pool: Pool; readonly interval: Range }

/** Stored ranges that begin in each stretch, at most so many, and the one before it. */
export async function readSpaces(
  client: pg.Client,
  network: string,
  stretches: readonly Stretch[],
  most: number,
): Promise<readonly Space[]> {
  if (stretches.length === 0) return []
  const positions = await readPositions(
    client,
    network,
    stretches.map(({ pool }) => pool.poolId),
  )
  const { rows } = await client.query<{ pool_id: number; first_address: string; last_address: string }>(
    RANGES_IN,
    [
      network,
      stretches.map(({ pool }) => pool.poolId),
      stretches.map(({ pool, interval }) => formatValue(pool.family, interval.first)),
      stretches.map(({ pool, interval }) => formatValue(pool.family, interval.last)),
      most,
    ],
  )
  const byPool = new Map<number, Range[]>()
  for (const row of rows) {
    const list = byPool.get(row.pool_id) ?? []
    byPool.set(row.pool_id, list)
    list.push({
      first: addressValue(readAddress(row.first_address)),
      last: addressValue(readAddress(row.last_address)),
    })
  }
  return stretches.map(({ pool, interval }) => ({
    pool,
    interval,
    rows: (byPool.get(pool.poolId) ?? []).sort(byFirst),
    cursor: positions.get(pool.poolId)?.cursor ?? null,
  }))
}

const RANGE_AT = `select a.place, r.first_address, r.last_address
  from unnest($2::bigint[], $3::inet[], $4::int[]) as a (pool_id, address, place)
  cross join lateral (
    select u.first_address, u.last_address from ipledger.untouched_range u
     where u.network_id = $1 and u.pool_id = a.pool_id and u.first_address <= a.address
     order by u.first_address desc limit 1) r`

/** Which of these addresses are stored as untouched in the pools over them. */
export async function readUntouchedAt(
  client: pg.Client,
  shape: Shape,
  standings: readonly Standing[],
): Promise<ReadonlySet<string>> {
  const asked = standings.flatMap((standing) => {
    const pool = poolOver(shape, familyOf(standing.address), standing.value)
    return pool === undefined ? [] : [{ ...standing, poolId: pool.poolId }]
  })
  const positions = await readPositions(client, shape.networkName, [
    ...new Set(asked.map(({ poolId }) => poolId)),
  ])
  const { rows } = await client.query<{ place: number; first_address: string; last_address: string }>(
    RANGE_AT,
    [
      shape.networkName,
      asked.map(({ poolId }) => poolId),
      asked.map(({ address }) => address),
      asked.map((_, place) => place),
    ],
  )
  const found = new Set<string>()
  for (const row of rows) {
    const { address, value, poolId } = asked[row.place]!
    const range = {
      first: addressValue(readAddress(row.first_address)),
      last: addressValue(readAddress(row.last_address)),
    }
    const [meant] = effective([range], positions.get(poolId)?.cursor ?? null)
    if (meant !== undefined && meant.first <= value && value <= meant.last) found.add(address)
  }
  return found
}

export function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4
}

/** What the rows mean: the one that the cursor names begins there. */
export function effective(rows: readonly Range[], cursor: Cursor): readonly Range[] {
  const ranges: Range[] = []
  for (const row of rows) {
    const first = cursor?.first === row.first ? cursor.next : row.first
    if (first <= row.last) ranges.push({ first, last: row.last })
  }
  return ranges
}

/**
 * Reads the beginning of an interval: the last event of each of `addresses` (all that have one in the interval), the
 * rows, and the untouched space around them.
 */
export async function readSlice(
  client: pg.Client,
  shape: Shape,
  family: Family,
  wanted: Wanted,
  most: number,
): Promise<Slice> {
  const { first } = wanted.interval
  let { last } = wanted.interval
  const within = (value: bigint) => value <= last
  const cut = (rows: readonly Cells[]) => {
    if (rows.length > most) {
      const end = addressValue(addressOfCells(rows[most - 1]!))
      if (end < last) last = end
    }
  }
  const bounds = () => [shape.networkName, formatValue(family, first), formatValue(family, last), most + 1]
  let rows = await readUnsettled(client, shape, family, wanted)
  if (rows === null) {
    const leases = await readCells(client, LEASES_IN, LEASE, bounds())
    cut(leases)
    const released = await readCells(client, RELEASED_IN, RELEASED, bounds())
    cut(released)
    rows = { settled: [], others: wanted.addresses, leases, released }
  }
  const crossed = poolsIn(shape, family, { first, last }, MOST_POOLS + 1)
  const beyond = crossed[MOST_POOLS]
  if (beyond !== undefined && beyond.range.first - 1n < last) last = beyond.range.first - 1n
  let spaces = await readSpaces(
    client,
    shape.networkName,
    stretchesIn(shape, family, { first, last }),
    2 * most + 4_096,
  )
  for (const { interval, rows } of spaces) {
    // A right slice has fewer: one range more than addresses, and the gaps that a pool's 1,024 exclusions leave.
    const inside = rows.filter((row) => row.first >= interval.first)
    const end = inside[2 * most + 4_095]?.first
    if (end !== undefined && end - 1n > first && end - 1n < last) last = end - 1n
  }
  const ends = new Map(
    stretchesIn(shape, family, { first, last }).map((one) => [one.pool.poolId, one.interval]),
  )
  spaces = spaces.flatMap((space) => {
    const interval = ends.get(space.pool.poolId)
    return interval === undefined ? [] : [{ ...space, interval }]
  })
  const standings = await readStandings(
    client,
    shape,
    rows.others.filter((address) => within(addressValue(address))),
  )
  const inside = (row: Cells) => within(addressValue(addressOfCells(row)))
  return {
    family,
    interval: { first, last },
    settled: rows.settled.filter(({ value }) => within(value)),
    standings,
    leases: rows.leases.filter(inside),
    released: rows.released.filter(inside),
    spaces,
  }
}

/**
 * The parts of pools whose untouched space this interval of addresses decides: whole blocks, each with the interval
 * that holds its first address.
 */
function stretchesIn(shape: Shape, family: Family, interval: Range): readonly Stretch[] {
  const before = interval.first === 0n ? undefined : poolOver(shape, family, interval.first - 1n)
  const first = before === undefined ? interval.first : blockEnd(before, interval.first - 1n) + 1n
  const after = poolOver(shape, family, interval.last)
  const last = after === undefined ? interval.last : blockEnd(after, interval.last)
  if (first > last) return []
  return poolsIn(shape, family, { first, last }, MOST_POOLS + 1).map((pool) => ({
    pool,
    interval: intersect([pool.range], [{ first, last }])[0]!,
  }))
}

function blockEnd(pool: Pool, value: bigint): bigint {
  const { family, prefixLength } = pool
  return blockBase(family, value, prefixLength) + blockSize(family, prefixLength) - 1n
}

// Comparing.

export const LEASE_NAMES = LEASE.map(({ name }) => name)
export const RELEASED_NAMES = RELEASED.map(({ name }) => name)

export function compareRows(
  standings: readonly Standing[],
  rows: { readonly leases: readonly Cells[]; readonly released: readonly Cells[] },
): readonly RowDifference[] {
  const differences: RowDifference[] = []
  const byAddress = new Map(standings.map((standing) => [standing.address, standing]))
  const compare = (
    table: RowDifference['table'],
    columns: readonly string[],
    found: readonly Cells[],
    expect: (book: AddressBook) => Cells | null,
  ) => {
    const seen = new Set<string>()
    for (const row of found) {
      const address = addressOfCells(row)
      seen.add(address)
      const standing = byAddress.get(address)
      const expected = standing === undefined ? null : expect(standing.book)
      const unequal = expected === null ? [] : differing(columns, expected, row)
      if (expected === null || unequal.length > 0)
        differences.push({ table, address, expected, found: row, columns: unequal, standing })
    }
    for (const standing of standings) {
      if (seen.has(standing.address)) continue
      const expected = expect(standing.book)
      if (expected !== null)
        differences.push({ table, address: standing.address, expected, found: null, columns: [], standing })
    }
  }
  compare('lease', LEASE_NAMES, rows.leases, ({ lease }) => (lease === null ? null : leaseCells(lease)))
  compare('released_address', RELEASED_NAMES, rows.released, ({ released }) =>
    released === null ? null : releasedCells(released),
  )
  return differences
}

/** Names of the cells that are not equal. */
export function differing(columns: readonly string[], expected: Cells, found: Cells): readonly string[] {
  return columns.filter((_, index) => expected[index] !== found[index])
}

/** Untouched is what can be leased and has no place among the leases and the released addresses. */
export function compareSpaces(
  slice: Pick<Slice, 'settled' | 'standings' | 'spaces'>,
): readonly SpaceDifference[] {
  const touched = new Map<number, Range[]>()
  const touch = ({ poolId, value }: Settled | Standing) => {
    const list = touched.get(poolId) ?? []
    touched.set(poolId, list)
    list.push({ first: value, last: value })
  }
  for (const one of slice.settled) touch(one)
  for (const one of slice.standings) if (one.book.lease !== null || one.book.released !== null) touch(one)
  return slice.spaces.flatMap((space) => {
    const difference = compareSpace(space, touched.get(space.pool.poolId) ?? [])
    return difference === null ? [] : [difference]
  })
}

/** The untouched space of a stretch, given the first addresses of the blocks in it that are touched. */
function untouchedIn({ pool, interval }: Stretch, touched: readonly Range[]): readonly Range[] {
  const blocks = touched.map(({ first }) => ({ first, last: blockEnd(pool, first) }))
  return subtract(intersect(pool.allocatable, [interval]), normalise(blocks))
}

function compareSpace(space: Space, touched: readonly Range[]): SpaceDifference | null {
  const { pool, interval } = space
  const stored = intersectAll(effective(space.rows, space.cursor), interval)
  const overlaps = stored.some((range, index) => index > 0 && range.first <= stored[index - 1]!.last)
  const found = normalise(stored)
  const expected = untouchedIn(space, touched)
  const missing = subtract(expected, found)
  const extra = subtract(found, expected)
  if (!overlaps && missing.length === 0 && extra.length === 0) return null
  return { pool, interval, missing, extra, overlaps, expected, space }
}

/** Of ranges that may lie over each other, which `intersect` does not expect. */
function intersectAll(ranges: readonly Range[], interval: Range): readonly Range[] {
  return ranges.flatMap((range) => intersect([range], [interval])).sort(byFirst)
}

export function byFirst(a: Range, b: Range): number {
  return a.first < b.first ? -1 : a.first > b.first ? 1 : 0
}
