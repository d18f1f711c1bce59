/**
 * Reads what decisions need, under the network's lock: what is asked together goes out in one trip and each statement
 * is a look-up by index. Rows are added only where nothing is known yet, because what is known may already carry
 * this batch's events (see core/books.ts).
 */
import type pg from 'pg'
import { type Cidr, formatValue, parseCidr } from '../core/address.ts'
import {
  type AddressBook,
  addressValue,
  type Books,
  bootKey,
  type ClosedAttachment,
  type Need,
  placeKey,
  workloadKey,
} from '../core/books.ts'
import type { EndedLease, Lease } from '../core/lease.ts'
import { attachmentKey, holderKey, type Owner } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import type { Pool } from '../core/pool.ts'
import { normalise, type Range } from '../core/ranges.ts'
import { type Answered, type Statement, trip, Unreadable } from '../postgres/trip.ts'
import { readSeen, SEEN_COLUMNS, type SeenRow, STORED_LIFE } from './life.ts'
import {
  addSeen,
  addSightedInOrder,
  askForSeen,
  SEEN_AT_RELEASED,
  SEEN_READS,
  type SeenReleasedRow,
  SIGHTED_AT_FIRST,
  SIGHTED_IN_PIECE,
  type SightedPieceRow,
  SLOWEST_INTERVAL,
  type WantedSeen,
  wantNothingSeen,
} from './load-seen.ts'
import {
  EVENT_COLUMNS,
  type EventRow,
  LEASE_COLUMNS,
  type LeaseRow,
  MOST_OF_ONE,
  NETWORK_COLUMNS,
  type NetworkRow,
  POOL_COLUMNS,
  type PoolRow,
  RELEASED_COLUMNS,
  type ReleasedRow,
  readAddress,
  readEvent,
  readLease,
  readNetwork,
  readOwner,
  readPool,
  readReleased,
} from './rows.ts'
import { changeOf, type Slice, Unsound } from './slice.ts'

/** Ranges read at first; one is enough unless the space is fragmented. */
const RANGES_AT_FIRST = 8
const EVERYTHING = 2_147_483_647

const of = (alias: string, columns: readonly string[]) =>
  columns.map((column) => `${alias}.${column}`).join(', ')

/** With where the row lies: under the network's lock nobody moves it before this batch removes it. */
const HELD_COLUMNS = ['ctid::text as row_id', ...LEASE_COLUMNS]
const FREED_COLUMNS = ['ctid::text as row_id', ...RELEASED_COLUMNS]

const POSITION_COLUMNS = `x.low_first, x.cursor_first, x.cursor_next, x.reuse_after,
  coalesce(x.reserved, 0) as reserved, coalesce(x.active, 0) as active,
  coalesce(x.quarantined, 0) as quarantined, coalesce(x.released, 0) as released`
const LATEST_POSITION = `left join lateral (
    select q.* from ipledger.pool_position q
    where q.network_id = $1 and q.pool_id = p.pool_id order by q.seq desc limit 1) x on true`
// What the batch takes for now: a clock that was set back stands still at the last event.
const NOW = `greatest(statement_timestamp(), (
          select e.at from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1))`
const POOL_NAMED = `cross join lateral (
      select o.pool_id from ipledger.pool o where o.network_id = $1 and o.name = c.name limit 1) p`
const POOL = `select ${of('p', POOL_COLUMNS)}, ${POSITION_COLUMNS} from ipledger.pool p ${LATEST_POSITION}`
/** A Release ends leases one right after the other and then closes their attachment: so many are looked at before that. */
const ENDED_BEFORE_CLOSING = 64
const OF_ATTACHMENT = `e.owner_kind = a.kind and e.owner_uid = a.uid
        and e.owner_incarnation = a.incarnation and e.owner_interface = a.interface`
// Through what closed the attachment, whatever name the caller gives it and whatever happened under that since; and, as
// a closing is forgotten after a while, through the latest events under the name.
const ENDINGS = `unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
      as a (kind, name, uid, incarnation, interface, key)
    cross join lateral (
      select ${of('e', EVENT_COLUMNS)} from (
        select ${of('f', EVENT_COLUMNS)} from ipledger.event f
        where f.network_id = $1 and f.owner_name >= a.name and f.owner_name <= a.name
        order by f.owner_name desc, f.seq desc limit 256) e
      where e.type in ('lease.released', 'lease.reaped') and ${OF_ATTACHMENT}
      union all
      select ${of('r', EVENT_COLUMNS)} from (
        select c.closed_seq from ipledger.closed_attachment c
        where c.network_id = $1 and c.attachment_key >= a.key and c.attachment_key <= a.key
        order by c.attachment_key limit ${MOST_OF_ONE}) c
      cross join lateral (
        select ${of('e', EVENT_COLUMNS)}, bool_and(
            (e.type in ('lease.released', 'lease.quarantined') and ${OF_ATTACHMENT}) is true)
            over (order by e.seq desc) as own
        from (
          select ${of('f', EVENT_COLUMNS)} from ipledger.event f
          where f.network_id = $1 and f.seq < c.closed_seq
          order by f.seq desc limit ${ENDED_BEFORE_CLOSING}) e) r
      where r.own and r.type = 'lease.released') x`

/**
 * The event of a number. Bounded and ordered: a plan that takes equality for reason enough may walk the index by time,
 * whose last column it is.
 */
const eventAt = (alias: string, seq: string, columns: string) => `cross join lateral (
      select ${columns} from ipledger.event
      where network_id = $1 and seq >= ${seq} and seq <= ${seq} order by seq limit 1) ${alias}`

const closingsAt = (key: string) => `cross join lateral (
      select o.* from ipledger.closed_attachment o
      where o.network_id = $1 and o.attachment_key >= ${key} and o.attachment_key <= ${key}
      order by o.attachment_key limit ${MOST_OF_ONE}) c`

/** With what is seen live in each piece, from the cursor on: below it everything is held, and seen. */
const rangesInOrder = (
  sighted: string,
  parameter: string,
  column: string,
) => `select p.pool_id, r.first_address, r.last_address${sighted}
    from unnest($2::text[], $3::inet[], $4::int[]${parameter}) as c (name, after_first, most${column})
    ${POOL_NAMED}
    ${LATEST_POSITION}
    cross join lateral (
      select u.first_address, u.last_address from ipledger.untouched_range u
      where u.network_id = $1 and u.pool_id = p.pool_id
        and u.first_address >= coalesce(x.low_first, '0.0.0.0/0') and u.first_address > coalesce(c.after_first, '0.0.0.0/0')
      order by u.first_address limit c.most) r
    order by p.pool_id, r.first_address`

const releasedInOrder = (seen: string) => `select ${of('r', ['row_id', ...RELEASED_COLUMNS])}${seen}
    from unnest($2::text[], $3::float8[], $4::bigint[], $5::int[]) as c (name, after_at, after_seq, most)
    ${POOL_NAMED}
    ${LATEST_POSITION}
    cross join lateral (
      select ${of('s', FREED_COLUMNS)} from ipledger.released_address s
      where s.network_id = $1 and s.pool_id = p.pool_id
        and s.available_at <= ${NOW}
        and (s.available_at, s.released_seq)
          > (coalesce(to_timestamp(c.after_at / 1000), x.reuse_after, '-infinity'), coalesce(c.after_seq, 0))
      order by s.available_at, s.released_seq limit c.most) r
    order by r.available_at, r.released_seq`

const previous = (seen: string) => `select ${of('r', ['row_id', ...RELEASED_COLUMNS])}${seen}
    from (
      select distinct e.address from (
        select f.address, f.type from ipledger.event f
        where f.network_id = $1 and f.owner_name >= $2 and f.owner_name <= $2
        order by f.owner_name desc, f.seq desc limit 256) e
      where e.type in ('lease.released', 'lease.reaped')) e
    cross join lateral (
      select ${of('s', FREED_COLUMNS)} from ipledger.released_address s
      where s.network_id = $1 and s.address >= e.address and s.address <= e.address and s.holder_key = $3
      order by s.address limit 1) r`

const PAGE_AND_ONE = POLICY.listedBlockers + 1
const FORGOTTEN_AND_ONE = POLICY.forgottenAtOnce + 1
/** Released addresses in parts of a pool, as many as may be forgotten at once and one more. */
const RESTING_IN = `(
      select w.* from unnest($2::inet[], $3::inet[]) as g (first, last)
      cross join lateral (
        select ${of('s', RELEASED_COLUMNS)} from ipledger.released_address s
        where s.network_id = $1 and s.address between g.first and g.last
        order by s.address limit ${FORGOTTEN_AND_ONE}) w
      limit ${FORGOTTEN_AND_ONE})`

/** Every statement of the write path's reads; the names are those of the prepared statements. */
export const READS = {
  lock: `select 1 from ipledger.network_lock where network_id = $1 for no key update`,
  // After the lock, so that every event before is seen and the clock is read in order.
  head: `select ${of('n', NETWORK_COLUMNS)},
      h.seq as head, h.at as head_at, clock_timestamp() as clock,
      ${SEEN_COLUMNS},
      ${SLOWEST_INTERVAL}
    from (select 1) one
    left join ipledger.network n on n.network_id = $1
    ${STORED_LIFE}
    left join lateral (
      select e.seq, e.at from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) h on true`,
  poolsByName: `${POOL} where p.network_id = $1 and p.name = any($2::text[])`,
  poolsById: `${POOL} where p.network_id = $1 and p.pool_id = any($2::bigint[])`,
  poolsByToken: `${POOL} where p.network_id = $1 and p.pool_id = any(array(
      select e.pool_id from unnest($2::bigint[]) as k (token) ${eventAt('e', 'k.token', 'pool_id')}))`,
  // Default pools, and those that are the only one of their family.
  poolsByDefault: `${POOL} where p.network_id = $1 and (p.is_default or 1 = (
      select count(*) from (
        select 1 from ipledger.pool o where o.network_id = $1 and o.family = p.family limit 2) few))
      order by p.family, p.name limit 16`,
  poolsAt: `${POOL} where p.network_id = $1 and p.pool_id = any(array(
      select o.pool_id from unnest($2::inet[]) as a (address)
      cross join lateral (
        select i.pool_id from ipledger.pool i where i.network_id = $1 and i.cidr >>= a.address limit 1) o))`,
  // Of ranges that do not overlap the last that begins before the end has the greatest end.
  droppedOver: `select d.first_address from (
      select r.first_address, r.last_address from ipledger.dropped_range r
      where r.network_id = $1 and r.first_address <= $3::inet order by r.first_address desc limit 1) d
    where d.last_address >= $2::inet`,
  poolsOverlapping: `${POOL} where p.network_id = $1 and p.cidr && $2::cidr order by p.cidr limit 20`,
  leasesByAddress: `select l.* from unnest($2::inet[]) as k (address)
    cross join lateral (
      select ${of('h', HELD_COLUMNS)} from ipledger.lease h
      where h.network_id = $1 and h.address >= k.address and h.address <= k.address order by h.address limit 1) l`,
  // Superseded and limited by holder, retried by attachment: mostly the same rows, looked up in one statement. Keys are
  // bounded from both sides instead of equated, so that only the index by that key gives the order.
  leasesByOwner: `select l.* from unnest($2::text[]) as k (key)
    cross join lateral (
      select ${of('h', HELD_COLUMNS)} from ipledger.lease h
      where h.network_id = $1 and h.holder_key >= k.key and h.holder_key <= k.key
      order by h.holder_key limit ${MOST_OF_ONE}) l
    union all
    select l.* from unnest($3::text[]) as k (key)
    cross join lateral (
      select ${of('a', HELD_COLUMNS)} from ipledger.lease a
      where a.network_id = $1 and a.attachment_key >= k.key and a.attachment_key <= k.key
      order by a.attachment_key limit ${MOST_OF_ONE}) l`,
  // By token, not by address: at a recycled address all the dead are passed while a snapshot is held open.
  leasesByToken: `select l.* from unnest($2::bigint[]) as k (token)
    cross join lateral (
      select ${of('t', HELD_COLUMNS)} from ipledger.lease t
      where t.network_id = $1 and t.fencing_token >= k.token and t.fencing_token <= k.token
      order by t.fencing_token limit 1) l`,
  // The first ending on the address at or after the token is that lease's: an address has one lease at a time.
  // Address is bounded from both sides instead of equated, so that only the index by address gives the order.
  endingsByToken: `select x.*
    from unnest($2::bigint[]) as k (token) ${eventAt('e', 'k.token', 'seq, address, fencing_token')}
    cross join lateral (
      select ${of('y', EVENT_COLUMNS)} from ipledger.event y
      where y.network_id = $1 and (y.address, y.seq) >= (e.address, e.seq) and y.address <= e.address
        and y.type in ('lease.released', 'lease.reaped')
        and (
          select l.fencing_token from ipledger.lease l
          where l.network_id = $1 and l.fencing_token >= e.seq and l.fencing_token <= e.seq
          order by l.fencing_token limit 1) is null
      order by y.address, y.seq limit 1) x
    where e.fencing_token = e.seq`,
  endings: `select x.* from ${ENDINGS}`,
  poolsByEnding: `${POOL} where p.network_id = $1 and p.pool_id = any(array(select x.pool_id from ${ENDINGS}))`,
  closingsByToken: `select c.* from (
      select distinct l.attachment_key as key from unnest($2::bigint[]) as k (token)
      cross join lateral (
        select t.attachment_key from ipledger.lease t
        where t.network_id = $1 and t.fencing_token >= k.token and t.fencing_token <= k.token
        order by t.fencing_token limit 1) l) k ${closingsAt('k.key')}`,
  closingsByKey: `select c.* from unnest($2::text[]) as k (key) ${closingsAt('k.key')}`,
  closedLives: `select c.* from unnest($2::text[], $3::text[]) as k (kind, uid)
    cross join lateral (
      select o.* from ipledger.closed_attachment o
      where o.network_id = $1 and o.owner_uid >= k.uid and o.owner_uid <= k.uid and o.owner_kind = k.kind
      order by o.owner_uid limit ${MOST_OF_ONE}) c`,
  releasedByAddress: `select r.* from unnest($2::inet[]) as k (address)
    cross join lateral (
      select ${of('s', FREED_COLUMNS)} from ipledger.released_address s
      where s.network_id = $1 and s.address >= k.address and s.address <= k.address order by s.address limit 1) r`,
  // What is joined is looked up once for each outer row, in a subquery that cannot be turned into a join: a join planned
  // while a table was empty walks all of it later. Where equality leaves a choice of indexes, the order asked for decides.
  rangesAtAddress: `select p.pool_id, r.first_address, r.last_address
    from unnest($2::inet[]) as a (address)
    cross join lateral (
      select o.pool_id from ipledger.pool o where o.network_id = $1 and o.cidr >>= a.address limit 1) p
    cross join lateral (
      select u.first_address, u.last_address from ipledger.untouched_range u
      where u.network_id = $1 and u.pool_id = p.pool_id and u.first_address <= a.address
      order by u.first_address desc limit 1) r`,
  // What sources see is read with them where there are any: 30 µs more, and 2 µs for each released address.
  rangesInOrder: rangesInOrder('', '', ''),
  rangesInOrderSeen: rangesInOrder(SIGHTED_IN_PIECE, ', $5::int[]', ', most_sighted'),
  releasedInOrder: releasedInOrder(''),
  releasedInOrderSeen: releasedInOrder(SEEN_AT_RELEASED),
  nextCooled: `select p.pool_id, r.available_at
    from unnest($2::bigint[]) as p (pool_id)
    left join lateral (
      select s.available_at from ipledger.released_address s
      where s.network_id = $1 and s.pool_id = p.pool_id and s.available_at > to_timestamp($3::float8 / 1000)
      order by s.available_at limit 1) r on true`,
  // Found through the owner's latest endings: the queue needs no index by holder.
  previous: previous(''),
  previousSeen: previous(SEEN_AT_RELEASED),
  requests: `select q.request_id, q.fingerprint, q.method, q.at, q.seq, q.answer::text as answer
    from unnest($2::text[]) as k (id)
    cross join lateral (
      select r.* from ipledger.request r
      where r.network_id = $1 and r.request_id >= k.id and r.request_id <= k.id
      order by r.request_id limit 1) q`,
  quarantinesBy: `select a.actor, q.count
    from unnest($2::text[]) as a (actor)
    cross join lateral (
      select count(*) as count from ipledger.lease l
      where l.network_id = $1 and l.quarantined_by = a.actor and l.quarantine_reason = 'SEEN_BY_CALLER'
        and l.state = 'QUARANTINED') q`,
  heldIn: `select l.* from unnest($2::inet[], $3::inet[]) as g (first, last)
    cross join lateral (
      select ${of('h', LEASE_COLUMNS)} from ipledger.lease h
      where h.network_id = $1 and h.address between g.first and g.last order by h.address limit ${PAGE_AND_ONE}) l
    order by l.address limit ${PAGE_AND_ONE}`,
  // The longest wait first: it says when the last of them is over.
  coolingIn: `select ${of('r', RELEASED_COLUMNS)} from ${RESTING_IN} r
    where r.available_at > to_timestamp($4::float8 / 1000) order by r.available_at desc limit ${PAGE_AND_ONE}`,
  cooledIn: `select count(*) as total from ${RESTING_IN} r where r.available_at <= to_timestamp($4::float8 / 1000)`,
  coolingOf: `select ${of('s', RELEASED_COLUMNS)} from ipledger.released_address s
    where s.network_id = $1 and s.pool_id = $2 and s.available_at > to_timestamp($3::float8 / 1000)
    order by s.available_at desc, s.released_seq desc limit ${PAGE_AND_ONE}`,
  cooledOf: `select count(*) as total from (
      select s.released_seq from ipledger.released_address s
      where s.network_id = $1 and s.pool_id = $2 and s.available_at <= to_timestamp($3::float8 / 1000)
      order by s.available_at, s.released_seq limit ${FORGOTTEN_AND_ONE}) r`,
  ...SEEN_READS,
} as const

export type ReadName = keyof typeof READS

type PositionedPoolRow = PoolRow & {
  low_first: string | null
  cursor_first: string | null
  cursor_next: string | null
  reuse_after: number | null
  reserved: number
  active: number
  quarantined: number
  released: number
}

type ClosedRow = {
  attachment_key: string
  pool_id: number
  owner_kind: string
  owner_name: string
  owner_uid: string
  owner_uid_named: boolean
  owner_incarnation: string
  owner_interface: string
  closed_at: number
  closed_seq: number
}

type HeldRow = LeaseRow & { row_id: string }
type FreedRow = ReleasedRow & { row_id: string }
type SeenFreedRow = FreedRow & SeenReleasedRow
type RangeRow = { pool_id: number; first_address: string; last_address: string }
type SightedRangeRow = RangeRow & SightedPieceRow

/** A statement and where its rows go. */
export type Ask = { readonly statement: Statement; readonly apply: (rows: Answered['rows']) => void }

/** Asks in one trip, and files the rows in the order of asking. */
export async function ask(client: pg.Client, asks: readonly Ask[]): Promise<void> {
  if (asks.length === 0) return
  const statements = asks.map(({ statement }) => statement)
  const answered = await trip(client, statements).catch((error: unknown) => {
    throw error instanceof Unreadable ? new Unsound(error.message, { cause: error.cause }) : error
  })
  for (const [index, { statement, apply }] of asks.entries()) {
    try {
      apply(answered[index]!.rows)
    } catch (error) {
      throw new Unsound(`the rows of ${statement.name} cannot be read`, { cause: error })
    }
  }
}

type HeadRow = {
  head: number | null
  head_at: number | null
  clock: number
  slowest_interval: number
}

/** The lock and the head. The lock is a statement of its own, so that what follows sees what it waited for. */
export function askHead(slice: Slice): readonly Ask[] {
  const { books } = slice
  let locked = false
  return [
    read('lock', [books.networkName], (rows) => {
      locked = rows.length > 0
    }),
    read<NetworkRow & SeenRow & HeadRow>('head', [books.networkName], ([row]) => {
      // Made by another process since the lock was asked for: nothing holds it, so it is not there yet.
      books.network = row!.network_id === null || !locked ? null : readNetwork(row!)
      books.head = row!.head ?? 0
      books.now = Math.max(row!.clock, row!.head_at ?? 0)
      slice.clock = row!.clock
      books.slowestIntervalMs = row!.slowest_interval
      slice.watched = row!.slowest_interval > 0
      slice.database = readSeen(row!)
    }),
  ]
}

/** The reads for these needs. Pools come first, since free space is filed under its pool. */
export function askFor(slice: Slice, needs: readonly Need[]): readonly Ask[] {
  const { books } = slice
  const network = books.networkName
  const asks: Ask[] = []
  const wanted = gather(needs)

  if (wanted.poolNames.size > 0) {
    const names = [...wanted.poolNames]
    asks.push(
      read<PositionedPoolRow>('poolsByName', [network, names], (rows) => {
        addPools(slice, rows)
        for (const name of names) if (!books.poolNames.has(name)) books.poolNames.set(name, null)
      }),
    )
  }
  if (wanted.poolIds.size > 0) {
    asks.push(
      read<PositionedPoolRow>('poolsById', [network, [...wanted.poolIds]], (rows) => addPools(slice, rows)),
    )
  }
  if (wanted.defaults) {
    asks.push(
      read<PositionedPoolRow>('poolsByDefault', [network], (rows) => {
        addPools(slice, rows)
        books.defaultPools ??= chooseDefaults(rows.map((row) => books.pools.get(row.pool_id)!.pool))
      }),
    )
  }
  if (wanted.poolsAt.size > 0) {
    const addresses = [...wanted.poolsAt]
    asks.push(
      read<PositionedPoolRow>('poolsAt', [network, addresses], (rows) => {
        addPools(slice, rows)
        const pools = rows.map((row) => books.pools.get(row.pool_id)!.pool)
        for (const address of addresses) books.poolsAt.set(address, poolOver(pools, address)?.poolId ?? null)
      }),
    )
  }
  for (const cidr of wanted.overlaps) {
    const { family, first, last } = parseCidr(cidr) as Cidr
    asks.push(
      read('droppedOver', [network, formatValue(family, first), formatValue(family, last)], (rows) => {
        if (rows.length > 0) books.uncleared.add(cidr)
      }),
      read<PositionedPoolRow>('poolsOverlapping', [network, cidr], (rows) => {
        addPools(slice, rows)
        books.overlaps.set(
          cidr,
          rows.map((row) => row.pool_id),
        )
      }),
    )
  }
  if (wanted.tokens.size > 0) {
    const tokens = [...wanted.tokens]
    const unclosed = new Set<string>()
    asks.push(
      read<PositionedPoolRow>('poolsByToken', [network, tokens], (rows) => addPools(slice, rows)),
      read<HeldRow>('leasesByToken', [network, tokens], (rows) => {
        for (const lease of addLeases(slice, rows)) {
          const key = lease.owner === null ? '' : attachmentKey(lease.owner)
          if (key === '' || books.closings.has(key)) continue
          unclosed.add(key)
          addClosings(slice, [key], [])
        }
      }),
      read<ClosedRow>('closingsByToken', [network, tokens], (rows) => {
        for (const key of new Set(rows.map((row) => row.attachment_key))) {
          if (unclosed.has(key)) books.closings.delete(key)
          addClosings(slice, [key], rows)
        }
      }),
      read<EventRow>('endingsByToken', [network, tokens], (rows) => {
        for (const row of rows) {
          const event = readEvent(row)
          if ('ended' in event && !books.byToken.has(event.ended.lease.fencingToken)) {
            books.byToken.set(event.ended.lease.fencingToken, { ended: event.ended })
          }
        }
        for (const token of tokens) if (!books.byToken.has(token)) books.byToken.set(token, null)
      }),
    )
  }
  if (wanted.holders.size > 0 || wanted.attachments.size > 0) {
    const holders = [...wanted.holders]
    const attachments = [...wanted.attachments]
    asks.push(
      read<HeldRow>('leasesByOwner', [network, holders, attachments], (rows) => {
        addLeases(slice, rows)
        indexBy(books, books.byHolder, holders, holderKey)
        indexBy(books, books.byAttachment, attachments, attachmentKey)
      }),
    )
  }
  if (wanted.closings.size > 0) {
    const keys = [...wanted.closings]
    asks.push(read<ClosedRow>('closingsByKey', [network, keys], (rows) => addClosings(slice, keys, rows)))
  }
  if (wanted.closedLives.size > 0) {
    const workloads = [...wanted.closedLives.values()]
    const values = [network, workloads.map(({ kind }) => kind), workloads.map(({ uid }) => uid)]
    asks.push(
      read<ClosedRow>('closedLives', values, (rows) => {
        // An attachment's closings are all of one workload: none is missing.
        addClosings(slice, [...new Set(rows.map((row) => row.attachment_key))], rows)
        for (const [key, workload] of wanted.closedLives) addClosedLives(books, key, workload, rows)
      }),
    )
  }
  if (wanted.endings.size > 0) {
    const owners = [...wanted.endings.values()]
    const values = [
      network,
      owners.map((owner) => owner.kind),
      owners.map((owner) => owner.name),
      owners.map((owner) => owner.uid),
      owners.map((owner) => owner.incarnation),
      owners.map((owner) => owner.interface),
      owners.map(attachmentKey),
    ]
    asks.push(
      read<PositionedPoolRow>('poolsByEnding', values, (rows) => addPools(slice, rows)),
      read<EventRow>('endings', values, (rows) => addEndings(slice, [...wanted.endings.keys()], rows)),
    )
  }
  if (wanted.requests.size > 0) {
    const ids = [...wanted.requests]
    asks.push(
      read<{
        request_id: string
        fingerprint: string
        method: string
        at: number
        seq: number
        answer: string
      }>('requests', [network, ids], (rows) => {
        for (const row of rows) {
          if (!books.requests.has(row.request_id)) books.requests.set(row.request_id, row)
        }
        for (const id of ids) if (!books.requests.has(id)) books.requests.set(id, null)
      }),
    )
  }
  if (wanted.addresses.size > 0) {
    const addresses = [...wanted.addresses]
    let leases: readonly HeldRow[] = []
    asks.push(
      read<HeldRow>('leasesByAddress', [network, addresses], (rows) => {
        leases = rows
      }),
      read<FreedRow>('releasedByAddress', [network, addresses], (rows) => {
        addLeases(slice, leases)
        for (const row of rows) addReleased(slice, row)
        for (const address of addresses) know(slice, address, { lease: null, released: null })
      }),
      read<RangeRow>('rangesAtAddress', [network, addresses], (rows) => addRanges(slice, rows)),
    )
  }
  if (wanted.candidates.size > 0) {
    asks.push(...askForCandidates(slice, wanted.candidates))
  }
  if (wanted.cooling.size > 0) {
    asks.push(
      read<{ pool_id: number; available_at: number | null }>(
        'nextCooled',
        [network, [...wanted.cooling], books.now],
        (rows) => {
          for (const row of rows)
            books.nextCooled.set(row.pool_id, earliestCooling(slice, row.pool_id, row.available_at))
        },
      ),
    )
  }
  for (const [key, owner] of wanted.previous) {
    asks.push(
      read<SeenFreedRow>(slice.watched ? 'previousSeen' : 'previous', [network, owner.name, key], (rows) => {
        for (const row of rows) {
          addReleased(slice, row)
          addSeen(slice, row)
        }
        const inBatch = [...books.addresses]
          .filter(([, book]) => book.released?.holderKey === key)
          .map(([address]) => address)
        books.previous.set(key, [...new Set([...rows.map((row) => readAddress(row.address)), ...inBatch])])
      }),
    )
  }
  if (wanted.quarantiners.size > 0) {
    const actors = [...wanted.quarantiners]
    asks.push(
      read<{ actor: string; count: number }>('quarantinesBy', [network, actors], (rows) => {
        for (const { actor, count } of rows) {
          if (books.quarantinesBy.has(actor)) continue
          const mine = ({ quarantine }: Lease) =>
            quarantine?.reason === 'SEEN_BY_CALLER' && quarantine.by === actor
          books.quarantinesBy.set(actor, count + changeOf(slice, mine))
        }
      }),
    )
  }
  asks.push(...askForSeen(slice, wanted.seen))
  for (const need of wanted.occupants) asks.push(...askForOccupants(slice, need))
  return asks
}

function read<Row>(name: ReadName, values: readonly unknown[], apply: (rows: readonly Row[]) => void): Ask {
  return {
    statement: { name: `read_${name}`, text: READS[name], values },
    apply: (rows) => apply(rows as readonly Row[]),
  }
}

function askForCandidates(slice: Slice, wanted: Wanted['candidates']): readonly Ask[] {
  const { books } = slice
  const known = (name: string) => {
    const id = books.poolNames.get(name)
    const book = id === undefined || id === null ? undefined : books.pools.get(id)
    return book === undefined ? undefined : { book, storage: slice.storage.get(book.pool.poolId)! }
  }
  const names = [...wanted.keys()]
  const afterFirst = names.map((name) => {
    const found = known(name)
    return found?.storage.lastRange == null
      ? null
      : formatValue(found.book.pool.family, found.storage.lastRange)
  })
  const mostRanges = names.map((name) => {
    const { ranges } = wanted.get(name)!
    // Ranges are long as a rule: as many as commands would be read in vain.
    return known(name)?.storage.lastRange == null && ranges < EVERYTHING
      ? Math.min(ranges, RANGES_AT_FIRST)
      : ranges
  })
  // With all of a pool's space nobody is given an address: it is about to change its shape.
  const mostSighted = names.map((name) => (wanted.get(name)!.ranges < EVERYTHING ? SIGHTED_AT_FIRST : 0))
  const released = names.map((name) => known(name)?.storage.lastReleased ?? null)
  const most = names.map((name) => wanted.get(name)!.released)
  const perPool = (rows: readonly { pool_id: number }[], poolId: number) =>
    rows.reduce((count, row) => (row.pool_id === poolId ? count + 1 : count), 0)
  const network = books.networkName
  const asks = [
    read<SightedRangeRow>(
      slice.watched ? 'rangesInOrderSeen' : 'rangesInOrder',
      [network, names, afterFirst, mostRanges, ...(slice.watched ? [mostSighted] : [])],
      (rows) => {
        addRanges(slice, rows)
        for (const [index, name] of names.entries()) {
          const found = known(name)
          if (found === undefined) continue
          const { book, storage } = found
          if (mostSighted[index]! > 0) addSightedInOrder(slice, book, rows)
          const last = rows.findLast((row) => row.pool_id === book.pool.poolId)
          if (last !== undefined) storage.lastRange = addressValue(readAddress(last.first_address))
          const all = perPool(rows, book.pool.poolId) < mostRanges[index]!
          // Up to the end of the last one read: a cursor moves its beginning, and the next one starts behind it.
          book.untouchedUpTo = all
            ? null
            : last === undefined
              ? -1n
              : addressValue(readAddress(last.last_address))
        }
      },
    ),
  ]
  if (most.every((count) => count === 0)) return asks
  asks.push(
    read<SeenFreedRow>(
      slice.watched ? 'releasedInOrderSeen' : 'releasedInOrder',
      [
        network,
        names,
        released.map((one) => one?.availableAt ?? null),
        released.map((one) => one?.releasedSeq ?? null),
        most,
      ],
      (rows) => {
        for (const row of rows) {
          const entry = readReleased(row)
          const storage = slice.storage.get(entry.poolId)!
          storage.lastReleased = { availableAt: entry.availableAt, releasedSeq: entry.releasedSeq }
          addSeen(slice, row)
          // Known already: this batch has taken it or changed it, and what is known is newer.
          if (!know(slice, entry.address, { lease: null, released: entry }, row.row_id)) {
            const standing = books.addresses.get(entry.address)!
            if (standing.released?.releasedSeq !== entry.releasedSeq) continue
          }
          books.pools.get(entry.poolId)!.cooled.set(entry.address, entry)
        }
        for (const [index, name] of names.entries()) {
          const book = known(name)?.book
          if (book !== undefined) book.cooledComplete = perPool(rows, book.pool.poolId) < most[index]!
        }
      },
    ),
  )
  return asks
}

function askForOccupants(slice: Slice, { poolId, ranges, whole }: OccupantsNeed): readonly Ask[] {
  const { books } = slice
  const { networkName: network, now } = books
  const { family } = books.pools.get(poolId)!.pool
  const firsts = ranges.map((range) => formatValue(family, range.first))
  const lasts = ranges.map((range) => formatValue(family, range.last))
  let held: readonly LeaseRow[] = []
  let cooling: readonly ReleasedRow[] = []
  const resting = whole ? [network, poolId, now] : [network, firsts, lasts, now]
  return [
    read<LeaseRow>('heldIn', [network, firsts, lasts], (rows) => {
      held = rows
    }),
    read<ReleasedRow>(whole ? 'coolingOf' : 'coolingIn', resting, (rows) => {
      cooling = rows
    }),
    read<{ total: number }>(whole ? 'cooledOf' : 'cooledIn', resting, (rows) => {
      books.occupants.set(poolId, {
        ranges,
        held: held.map(readLease),
        cooling: cooling.map(readReleased),
        cooledCount: rows[0]?.total ?? 0,
      })
    }),
  ]
}

type OccupantsNeed = Extract<Need, { what: 'occupants' }>

type Wanted = {
  readonly poolNames: Set<string>
  readonly poolIds: Set<number>
  readonly poolsAt: Set<string>
  readonly overlaps: Set<string>
  defaults: boolean
  readonly addresses: Set<string>
  readonly tokens: Set<number>
  readonly holders: Set<string>
  readonly attachments: Set<string>
  readonly closings: Set<string>
  readonly endings: Map<string, Owner>
  readonly requests: Set<string>
  /** Ranges and released addresses to read, by pool name. */
  readonly candidates: Map<string, { ranges: number; released: number }>
  readonly cooling: Set<number>
  readonly previous: Map<string, Owner>
  readonly quarantiners: Set<string>
  readonly occupants: OccupantsNeed[]
  /** By `workloadKey`. */
  readonly closedLives: Map<string, Workload>
  readonly seen: WantedSeen
}

type Workload = { readonly kind: string; readonly uid: string }

function gather(needs: readonly Need[]): Wanted {
  const wanted: Wanted = {
    poolNames: new Set(),
    poolIds: new Set(),
    poolsAt: new Set(),
    overlaps: new Set(),
    defaults: false,
    addresses: new Set(),
    tokens: new Set(),
    holders: new Set(),
    attachments: new Set(),
    closings: new Set(),
    endings: new Map(),
    requests: new Set(),
    candidates: new Map(),
    cooling: new Set(),
    previous: new Map(),
    quarantiners: new Set(),
    occupants: [],
    closedLives: new Map(),
    seen: wantNothingSeen(),
  }
  for (const need of needs) {
    switch (need.what) {
      case 'pool':
        wanted.poolNames.add(need.name)
        break
      case 'poolById':
        wanted.poolIds.add(need.poolId)
        break
      case 'poolAt':
        wanted.poolsAt.add(need.address)
        break
      case 'defaultPools':
        wanted.defaults = true
        break
      case 'overlap':
        wanted.overlaps.add(need.cidr)
        break
      case 'address':
        wanted.addresses.add(need.address)
        break
      case 'token':
        wanted.tokens.add(need.token)
        break
      case 'holder':
        wanted.holders.add(need.key)
        break
      case 'attachment':
        wanted.attachments.add(need.key)
        break
      case 'closings':
        wanted.closings.add(need.key)
        break
      case 'endings':
        wanted.endings.set(attachmentKey(need.owner), need.owner)
        break
      case 'request':
        wanted.requests.add(need.id)
        break
      case 'candidates':
        wanted.poolNames.add(need.pool)
        more(wanted, need.pool, need)
        break
      case 'cooling':
        wanted.cooling.add(need.poolId)
        break
      case 'previous':
        wanted.previous.set(need.key, need.owner)
        break
      case 'quarantinesBy':
        wanted.quarantiners.add(need.actor)
        break
      case 'occupants':
        wanted.occupants.push(need)
        break
      case 'closedLives':
        wanted.closedLives.set(workloadKey(need.kind, need.uid), need)
        break
      case 'quarantinesBySource':
        wanted.seen.quarantiningSources.add(need.source)
        break
      case 'sightings':
        wanted.seen.sightings.set(placeKey(need.address, need.prefixLength), need)
        break
      case 'lastHolder':
        wanted.seen.lastHolders.add(need.seq)
        break
      case 'sightedIn':
        wanted.seen.sightedIn.push(need)
        break
      case 'source':
        wanted.seen.sources.add(need.source)
        break
      case 'fence':
        wanted.seen.fences.set(bootKey(need.node, need.boot), need)
        break
      case 'hold':
        wanted.seen.holds.add(need.source)
        break
      case 'absenceReaps':
        wanted.seen.absence.add(need.source)
        break
      case 'heldLeases':
        wanted.seen.heldLeases = true
        break
      case 'leasesSeen':
        wanted.seen.leasesSeen.set(need.source, need.upTo)
        break
      case 'strictness':
        wanted.seen.strictness.add(need.node)
        break
      case 'unobserved':
        wanted.seen.unobserved = true
        break
      case 'lastRecovery':
        wanted.seen.lastRecovery = true
        break
      case 'wholeFreeSpace':
        more(wanted, need.pool, { ranges: EVERYTHING, released: 0 })
        break
    }
  }
  return wanted
}

function more(
  wanted: Wanted,
  pool: string,
  by: { readonly ranges: number; readonly released: number },
): void {
  const before = wanted.candidates.get(pool)
  wanted.candidates.set(pool, {
    ranges: Math.min(EVERYTHING, (before?.ranges ?? 0) + by.ranges),
    released: Math.min(EVERYTHING, (before?.released ?? 0) + by.released),
  })
}

// Rows into the slice.

function addPools(slice: Slice, rows: readonly PositionedPoolRow[]): void {
  const { books } = slice
  for (const row of rows) {
    if (books.pools.has(row.pool_id)) continue
    books.pools.set(row.pool_id, {
      pool: readPool(row),
      counts: {
        reserved: row.reserved,
        active: row.active,
        quarantined: row.quarantined,
        released: row.released,
      },
      untouched: [],
      untouchedUpTo: -1n,
      cooled: new Map(),
      cooledComplete: false,
      sighted: new Set(),
      sightedUpTo: -1n,
    })
    books.poolNames.set(row.name, row.pool_id)
    slice.storage.set(row.pool_id, {
      lowFirst: row.low_first === null ? null : addressValue(readAddress(row.low_first)),
      cursor:
        row.cursor_first === null
          ? null
          : {
              first: addressValue(readAddress(row.cursor_first)),
              next: addressValue(readAddress(row.cursor_next!)),
            },
      reuseAfter: row.reuse_after,
      ranges: new Map(),
      lastRange: null,
      lastReleased: null,
    })
    fileRanges(slice, row.pool_id, slice.strayRanges.get(row.pool_id) ?? [])
    slice.strayRanges.delete(row.pool_id)
  }
}

/** Of pools that do not overlap. */
function poolOver(pools: readonly Pool[], address: string): Pool | undefined {
  const family = address.includes(':') ? 6 : 4
  const value = addressValue(address)
  return pools.find((pool) => pool.family === family && pool.range.first <= value && value <= pool.range.last)
}

/** Explicit defaults of a family count; without one, the only pool of the family does. */
function chooseDefaults(pools: readonly Pool[]): readonly number[] {
  return ([4, 6] as const).flatMap((family) => {
    const ofFamily = pools.filter((pool) => pool.family === family)
    const explicit = ofFamily.filter((pool) => pool.isDefault)
    return (explicit.length > 0 ? explicit : ofFamily).map((pool) => pool.poolId)
  })
}

/** Files what was read at an address, unless something is known there already. */
function know(slice: Slice, address: string, book: AddressBook, rowId?: string): boolean {
  if (slice.books.addresses.has(address)) return false
  if (rowId !== undefined) slice.rowIds.set(address, rowId)
  slice.books.addresses.set(address, book)
  slice.before.set(address, book)
  return true
}

function addLeases(slice: Slice, rows: readonly HeldRow[]): readonly Lease[] {
  const leases = rows.map(readLease)
  for (const [index, lease] of leases.entries()) {
    if (know(slice, lease.address, { lease, released: null }, rows[index]!.row_id) || holds(slice, lease)) {
      if (!slice.books.byToken.has(lease.fencingToken))
        slice.books.byToken.set(lease.fencingToken, { address: lease.address })
    }
  }
  return leases
}

function holds(slice: Slice, lease: Lease): boolean {
  return slice.books.addresses.get(lease.address)?.lease?.fencingToken === lease.fencingToken
}

function addReleased(slice: Slice, row: FreedRow): void {
  const entry = readReleased(row)
  know(slice, entry.address, { lease: null, released: entry }, row.row_id)
}

/** The index of these keys over everything known: what was read, and what this batch made. */
function indexBy(
  books: Books,
  index: Map<string, Set<string>>,
  keys: readonly string[],
  keyOf: (owner: Owner) => string,
): void {
  const fresh = new Set(keys.filter((key) => !index.has(key)))
  for (const key of fresh) index.set(key, new Set())
  for (const [address, { lease }] of books.addresses) {
    if (lease?.owner == null) continue
    const key = keyOf(lease.owner)
    if (fresh.has(key)) index.get(key)!.add(address)
  }
}

function addClosings(slice: Slice, keys: readonly string[], rows: readonly ClosedRow[]): void {
  const { books } = slice
  for (const key of keys) {
    if (books.closings.has(key)) continue
    const closings = rows.filter((row) => row.attachment_key === key).map(readClosing)
    books.closings.set(key, closings)
    slice.closingsBefore.set(key, closings)
  }
}

/** Those that are stored, and those that this batch closed. */
function addClosedLives(books: Books, key: string, of: Workload, rows: readonly ClosedRow[]): void {
  if (books.closedLives.has(key)) return
  const owners = [
    ...rows.map((row) => readOwner(row)!),
    ...[...books.closings.values()].flat().map(({ owner }) => owner),
  ].filter(({ kind, uid }) => kind === of.kind && uid === of.uid)
  books.closedLives.set(key, new Map(owners.map((owner) => [attachmentKey(owner), owner])))
}

/** What the log knows, and what this batch has ended. */
function addEndings(slice: Slice, keys: readonly string[], rows: readonly EventRow[]): void {
  const { books } = slice
  const endings = new Map<number, EndedLease>()
  for (const row of rows) {
    const event = readEvent(row)
    if ('ended' in event) endings.set(event.ended.lease.fencingToken, event.ended)
  }
  for (const known of books.byToken.values())
    if (known !== null && 'ended' in known) endings.set(known.ended.lease.fencingToken, known.ended)
  const byKey = Map.groupBy(endings.values(), ({ lease }) =>
    lease.owner === null ? '' : attachmentKey(lease.owner),
  )
  for (const key of keys) if (!books.endings.has(key)) books.endings.set(key, byKey.get(key) ?? [])
}

function readClosing(row: ClosedRow): ClosedAttachment {
  return {
    owner: readOwner(row)!,
    poolId: row.pool_id === 0 ? null : row.pool_id,
    closedAt: row.closed_at,
    closedSeq: row.closed_seq,
  }
}

function addRanges(slice: Slice, rows: readonly RangeRow[]): void {
  const byPool = new Map<number, Range[]>()
  for (const row of rows) {
    const range = {
      first: addressValue(readAddress(row.first_address)),
      last: addressValue(readAddress(row.last_address)),
    }
    const list = byPool.get(row.pool_id)
    if (list === undefined) byPool.set(row.pool_id, [range])
    else list.push(range)
  }
  for (const [poolId, ranges] of byPool) {
    // A claim that names an address and no pool is looked up by its address: forgotten, it would count as taken.
    if (slice.storage.has(poolId)) fileRanges(slice, poolId, ranges)
    else slice.strayRanges.set(poolId, [...(slice.strayRanges.get(poolId) ?? []), ...ranges])
  }
}

function fileRanges(slice: Slice, poolId: number, ranges: readonly Range[]): void {
  const storage = slice.storage.get(poolId)!
  const fresh: Range[] = []
  for (const stored of ranges) {
    if (storage.ranges.has(stored.first)) continue
    storage.ranges.set(stored.first, stored)
    const first = storage.cursor?.first === stored.first ? storage.cursor.next : stored.first
    if (first <= stored.last) fresh.push({ first, last: stored.last })
  }
  if (fresh.length === 0) return
  const book = slice.books.pools.get(poolId)!
  book.untouched = normalise([...book.untouched, ...fresh])
}

/** The earliest end of cooling, read or made by this batch. */
function earliestCooling(slice: Slice, poolId: number, stored: number | null): number | null {
  let earliest = stored
  for (const { released } of slice.books.addresses.values()) {
    if (released === null || released.poolId !== poolId || released.availableAt <= slice.books.now) continue
    if (earliest === null || released.availableAt < earliest) earliest = released.availableAt
  }
  return earliest
}
