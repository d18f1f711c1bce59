/**
 * The log: its events, the histories of addresses and leases, and how leases were. What was committed never changes, so a page
 * may be made by several statements and is still of one head. Where things are in the log, the sentences and the reasons are
 * those of `ipledger_audit`.
 */
import { type RawBuilder, type SqlBool, sql } from 'kysely'
import { type Cidr, formatCidr, formatValue, type IpAddress } from '../core/address.ts'
import { type Details, type EventType, type LeaseEvent, type LedgerEvent, leaseId } from '../core/event.ts'
import { eventOf } from './event-text.ts'
import { type Db, MOST_EXAMINED } from './read-db.ts'
import { type LeasePage, type PageByAddress, readLeasePage } from './read-leases.ts'
import { headOf } from './sql/head.ts'

/** Addresses of a CIDR whose chains are merged; of one with more that were ever held, the log is walked. */
const MOST_MERGED = 1_000

/** A page of what goes by number. */
export type PageOfLog = {
  readonly descending: boolean
  readonly size: number
  /** Number at which the page before ended; null: the first page. */
  readonly position: number | null
}

/** All bounds apply together. Numbers are exclusive, times (milliseconds) inclusive. */
export type Range = {
  readonly afterSeq: number
  readonly beforeSeq: number | null
  readonly from: number | null
  readonly to: number | null
}

/** The pool of an event's lease as it is now; empty texts when the pool is deleted. */
export type PoolInfo = { readonly pool: string; readonly subnet: string; readonly gateway: string }
/** `what`: the sentence of `ipledger_audit.event`; null where it was not asked for. */
export type EventRead = {
  readonly event: LedgerEvent
  readonly poolInfo: PoolInfo
  readonly what: string | null
}

type LogPage = {
  readonly entries: readonly EventRead[]
  /** Number at which the next page goes on; null after the last one. */
  readonly next: number | null
  readonly head: number
}

/** Numbers, both ends exclusive. */
type Bounds = { readonly after: number; readonly before: number; readonly head: number }

/** The narrower of what numbers, times and the page before say. */
async function readBounds(
  db: Db,
  network: string,
  { afterSeq, beforeSeq, from, to }: Range,
  { descending, position }: PageOfLog,
): Promise<Bounds | null> {
  const { rows } = await sql<Bounds | { head: null }>`
    select h.head,
      greatest(${afterSeq}::bigint, ${descending ? null : position}::bigint, ${lastBy(network, from, true)}) as after,
      least(${beforeSeq}::bigint, ${descending ? position : null}::bigint, ${lastBy(network, to)} + 1, h.head + 1) as before
    from (select ${headOf(network)} as head) h
  `.execute(db)
  const bounds = rows[0]!
  return bounds.head === null ? null : (bounds as Bounds)
}

/** Number of the last event by a time in milliseconds, or before it; without a time null, which is no bound. */
function lastBy(network: string, time: number | null, isExclusive = false): RawBuilder<unknown> {
  if (time === null) return sql`null::bigint`
  const at = sql`to_timestamp(${time}::float8 / 1000)`
  return sql`ipledger_audit.position_at(${network}, ${at}${isExclusive ? sql` - interval '1 microsecond'` : sql``})`
}

function orderOf({ descending }: PageOfLog): RawBuilder<unknown> {
  return descending ? sql`desc` : sql`asc`
}

/** Selects of the numbers that are examined, and of the last of them if there may be more: the next page begins there. */
type Walk = { readonly numbers: RawBuilder<unknown>; readonly end: RawBuilder<unknown> }

/** `select` is about rows `e`. */
function walkOf(select: RawBuilder<unknown>, { after, before }: Bounds, page: PageOfLog): Walk {
  const rows = sql`${select} and e.seq > ${after} and e.seq < ${before} order by e.seq ${orderOf(page)}`
  return {
    numbers: sql`${rows} limit ${MOST_EXAMINED}`,
    end: sql`select x.seq from (${rows} offset ${MOST_EXAMINED - 1} limit 1) x`,
  }
}

/** Selects of all events of a network, and of those about a lease. */
const ofNetwork = (network: string) => sql`select e.seq from ipledger.event e where e.network_id = ${network}`
const ofLease = (network: string, token: number) =>
  sql`select e.seq from ipledger_audit.lease_history(${leaseId(network, token)}) e where true`

/**
 * The chains of some addresses, merged: each as far as its share of `MOST_EXAMINED` goes. What lies beyond the first that was cut
 * off is left to the next page, so that pages are in order of number and neither skip nor repeat.
 */
async function walkOfChains(
  db: Db,
  network: string,
  bases: readonly string[],
  { after, before }: Bounds,
  page: PageOfLog,
): Promise<Walk> {
  const share = Math.max(1, Math.floor(MOST_EXAMINED / bases.length))
  const { rows } = await sql<{ seqs: readonly number[] }>`
    select array_agg(c.seq order by c.seq ${orderOf(page)}) as seqs
    from unnest(${bases}::inet[]) as b (address)
    cross join lateral (
      select x.seq from ipledger_audit.chain(${network}, b.address, ${after}::bigint, ${before}::bigint - 1) x
      order by x.previous ${orderOf(page)} limit ${share}) c
    group by b.address
  `.execute(db)
  const ends = rows.flatMap(({ seqs }) => (seqs.length < share ? [] : seqs.at(-1)!))
  const end = ends.length === 0 ? null : page.descending ? Math.max(...ends) : Math.min(...ends)
  const isBefore = (seq: number): boolean => end === null || (page.descending ? seq >= end : seq <= end)
  const seqs = rows.flatMap((row) => row.seqs.filter(isBefore))
  return {
    numbers: sql`select u.seq from unnest(${seqs}::bigint[]) as u (seq)`,
    end: sql`select ${end}::bigint`,
  }
}

/** Where leases that overlap the CIDR begin, or could; null: too many. */
async function basesOf(db: Db, network: string, cidr: string): Promise<readonly string[] | null> {
  const { rows } = await sql<{ base: string }>`
    select b.base from ipledger_audit.bases(${network}, ${cidr}::inet) as b (base) limit ${MOST_MERGED + 1}
  `.execute(db)
  return rows.length > MOST_MERGED ? null : rows.map(({ base }) => base)
}

/** Of pool `p`, which may be deleted. */
export const POOL_INFO = sql`coalesce(p.name, '') as pool, coalesce(p.settings ->> 'subnet', '') as subnet,
  coalesce(p.settings ->> 'gateway', '') as gateway`

type ShownRow = PoolInfo & { text: string | null; what: string | null; end: number | null }

/** A page of what a walk examines; `condition` is about event `e`. */
async function readPage(
  db: Db,
  network: string,
  { numbers, end }: Walk,
  condition: RawBuilder<unknown>,
  page: PageOfLog,
  inWords: boolean,
): Promise<Omit<LogPage, 'head'>> {
  const { size } = page
  const order = orderOf(page)
  const { rows } = await sql<ShownRow>`
    with page as materialized (
      select w.seq, e.pool_id, ipledger.event_text(row(e.*)::ipledger.event) as text
      from (${numbers}) w join ipledger.event e on e.network_id = ${network} and e.seq = w.seq
      where ${condition}
      order by w.seq ${order} limit ${size + 1}
    )
    select page.text, v.what, ${POOL_INFO},
      case when (select count(*) from page) <= ${size} then (${end}) end as end
    from (select) one
    left join page on true
    left join ipledger_audit.event v on ${inWords}::bool and v.network = ${network} and v.seq = page.seq
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = page.pool_id
    order by page.seq ${order}
  `.execute(db)
  const found = rows.filter(({ text }) => text !== null)
  const entries = found
    .slice(0, size)
    .map(({ text, what, end: _, ...poolInfo }) => ({ event: eventOf(text!), poolInfo, what }))
  return { entries, next: found.length > size ? entries.at(-1)!.event.seq : rows[0]!.end }
}

// Events.

export type EventFilter = Range & {
  /** Only about the lease or block that contains it. */
  readonly address: IpAddress | null
  readonly ownerKind: string | null
  readonly ownerName: string | null
  readonly token: number | null
  /** Empty: all but `source.*`. */
  readonly types: readonly EventType[]
}

export async function readEvents(
  db: Db,
  network: string,
  filter: EventFilter,
  page: PageOfLog,
): Promise<LogPage | null> {
  const bounds = await readBounds(db, network, filter, page)
  if (bounds === null) return null
  const { address, ownerKind, ownerName, token, types } = filter
  const text = address && formatValue(address.family, address.value)
  const condition = sql`
    ${types.length > 0 ? sql`e.type = any(${types}::text[])` : sql`not starts_with(e.type, 'source.')`}
    and (${ownerKind}::text is null or e.owner_kind = ${ownerKind})
    and (${ownerName}::text is null or e.owner_name = ${ownerName})
    and (${token}::bigint is null or e.token = ${token})
    and (${text}::inet is null or set_masklen(e.address, e.prefix_length) >>= ${text}::inet)`
  const walk = await walkFor(db, network, filter, bounds, page)
  return { ...(await readPage(db, network, walk, condition, page, false)), head: bounds.head }
}

/** They have an index. */
const OF_NOTE: readonly EventType[] = ['lease.quarantined', 'lease.reaped', 'era.begun', 'reconcile.held']

async function walkFor(
  db: Db,
  network: string,
  { address, ownerName, token, types }: EventFilter,
  bounds: Bounds,
  page: PageOfLog,
): Promise<Walk> {
  if (token !== null) return walkOf(ofLease(network, token), bounds, page)
  if (address !== null) {
    const bases = await basesOf(db, network, formatValue(address.family, address.value))
    return walkOfChains(db, network, bases!, bounds, page)
  }
  const all = ofNetwork(network)
  if (types.length > 0 && types.every((type) => OF_NOTE.includes(type))) {
    const ofNote = sql.join(OF_NOTE.map((type) => sql.lit(type)))
    return walkOf(sql`${all} and e.type in (${ofNote}) and e.type = any(${types}::text[])`, bounds, page)
  }
  if (ownerName !== null) return walkOf(sql`${all} and e.owner_name = ${ownerName}`, bounds, page)
  // Few, and in an index.
  const isOfShape = (type: string): boolean =>
    !type.startsWith('lease.') && type !== 'source.reported' && type !== 'attachment.closed'
  if (types.length > 0 && types.every(isOfShape))
    return walkOf(sql`${all} and e.address is null and e.type = any(${types}::text[])`, bounds, page)
  return walkOf(all, bounds, page)
}

// Histories.

/** The span over which a lease was held: its first event, and its last, which ends it or not; its pool as it is now. */
export type Holder = { readonly first: LeaseEvent; readonly last: LeaseEvent; readonly pool: string }

/** `holders`: the leases that were held during the numbers of this page, oldest first. */
export type HistoryPage = LogPage & { readonly holders: readonly Holder[] }

export async function readAddressHistory(
  db: Db,
  network: string,
  block: Cidr,
  range: Range,
  page: PageOfLog,
): Promise<HistoryPage | null> {
  const bounds = await readBounds(db, network, range, page)
  if (bounds === null) return null
  const cidr = formatCidr(block)
  const bases = await basesOf(db, network, cidr)
  const walk =
    bases === null
      ? walkOf(ofNetwork(network), bounds, page)
      : await walkOfChains(db, network, bases, bounds, page)
  const about = sql`set_masklen(e.address, e.prefix_length) && ${cidr}::inet`
  const { entries, next } = await readPage(db, network, walk, about, page, true)
  const tokens = new Set(entries.map(({ event }) => (event as LeaseEvent).record.token))
  if (bases !== null) {
    const lowest = page.descending && next !== null ? next - 1 : bounds.after
    const { rows } = await sql<{ token: number }>`
      select e.fencing_token as token from ipledger_audit.last_events(${network}, ${cidr}::inet, ${lowest}::bigint) e
      where e.state <> 'FREE'`.execute(db)
    for (const { token } of rows) tokens.add(token)
  }
  return { entries, holders: await readHolders(db, network, [...tokens]), next, head: bounds.head }
}

/** Undefined: no lease has this token. */
export async function readLeaseHistory(
  db: Db,
  network: string,
  token: number,
  page: PageOfLog,
): Promise<HistoryPage | undefined | null> {
  const all = { afterSeq: token - 1, beforeSeq: null, from: null, to: null }
  const bounds = await readBounds(db, network, all, page)
  if (bounds === null) return null
  const holders = await readHolders(db, network, [token])
  if (holders.length === 0) return undefined
  const walk = walkOf(ofLease(network, token), bounds, page)
  return { ...(await readPage(db, network, walk, sql`true`, page, true)), holders, head: bounds.head }
}

/** Oldest first. */
async function readHolders(db: Db, network: string, tokens: readonly number[]): Promise<readonly Holder[]> {
  if (tokens.length === 0) return []
  const { rows } = await sql<{ token: number; text: string; pool: string }>`
    select e.token, ipledger.event_text(row(e.*)::ipledger.event) as text, coalesce(p.name, '') as pool
    from ipledger.event made
    left join lateral (
      select x.seq from ipledger.event x
      where x.network_id = ${network} and x.address = made.address and x.previous >= made.seq and x.state = 'FREE'
      order by x.previous limit 1) ended on true
    join ipledger.event e on e.network_id = ${network} and e.address = made.address and e.token = made.seq
      and e.previous >= made.previous and e.previous < coalesce(ended.seq, 9223372036854775807)
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = e.pool_id
    where made.network_id = ${network} and made.seq = any(${tokens}::bigint[]) and e.type <> 'lease.updated'
    order by e.seq
  `.execute(db)
  return [...Map.groupBy(rows, ({ token }) => token).values()].map((life) => {
    const [first, last] = [life[0]!, life.at(-1)!].map(({ text }) => eventOf(text) as LeaseEvent)
    return { first: first!, last: last!, pool: life[0]!.pool }
  })
}

// As it was.

/** A number, or a time of which the last event counts. Both null: now. */
export type Moment = { readonly seq: number | null; readonly at: number | null }
/** The number is beyond the head. */
export type Beyond = { readonly beyond: number }
/** `at` is null before the first event. */
type Position = { readonly seq: number; readonly at: number | null; readonly head: number }

export async function readPosition(
  db: Db,
  network: string,
  { seq, at }: Moment,
): Promise<Position | Beyond | null> {
  const { rows } = await sql<Position | { head: null }>`
    select head.seq as head, m.seq, (
      select e.at from ipledger.event e where e.network_id = ${network} and e.seq <= m.seq order by e.seq desc limit 1) as at
    from (select ${headOf(network)} as seq) head
    cross join lateral (select coalesce(${seq}::bigint, ${lastBy(network, at)}, head.seq) as seq) m
  `.execute(db)
  const position = rows[0]!
  if (position.head === null) return null
  return position.seq > position.head ? { beyond: position.head } : position
}

/** As they were; what their pool is called and offers is as now. `pool`: only leases of the one that has this name now; `poolUnknown`: there is none, and never was. */
export async function readLeasesAsOf(
  db: Db,
  network: string,
  moment: Moment,
  { pool, ...page }: PageByAddress & { readonly pool: string | null },
): Promise<(Position & LeasePage & { readonly poolUnknown: boolean }) | Beyond | null> {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const ids = pool === null ? null : await poolsNamed(db, network, pool)
  if (ids?.length === 0) return { ...position, leases: [], next: null, poolUnknown: true }
  const ofEvent = ids === null ? [] : [sql<SqlBool>`e.pool_id = any(${ids}::bigint[])`]
  const found = await readLeasePage(db, network, page, { ofRow: [], ofEvent }, position.seq)
  return { ...position, ...found, poolUnknown: false }
}

/** The pool that has this name, and those that were made by it and are gone. */
async function poolsNamed(db: Db, network: string, name: string): Promise<readonly number[]> {
  const { rows } = await sql<{ pool_id: number }>`
    select p.pool_id from ipledger.pool p where p.network_id = ${network} and p.name = ${name}
    union
    select e.pool_id from ipledger.event e
    where e.network_id = ${network} and e.address is null and e.type = 'pool.created' and e.details ->> 'name' = ${name}
      and not exists (select from ipledger.pool p where p.network_id = ${network} and p.pool_id = e.pool_id)
  `.execute(db)
  return rows.map(({ pool_id }) => pool_id)
}

/** The time asked about, and at most now; for a number the time of its event. */
export function timeAt({ at }: Position, moment: Moment): RawBuilder<unknown> {
  if (moment.seq !== null) return sql`to_timestamp(${at ?? 0}::float8 / 1000)`
  return sql`least(to_timestamp(${moment.at}::float8 / 1000), now())`
}

type Step = {
  readonly seq: number
  readonly at: number
  readonly what: string
  readonly evidence: Details | null
}

/** `state`: FREE, COOLING, RESERVED, ACTIVE, QUARANTINED, EXCLUDED, OUTSIDE. */
export async function readExplanation(db: Db, network: string, { family, value }: IpAddress, moment: Moment) {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const { rows } = await sql<Step>`
    select x.at, x.seq, x.what, x.evidence
    from ipledger_audit.explain_address(${network}, ${formatValue(family, value)}::inet, ${timeAt(position, moment)}, ${position.seq}::bigint) x
    order by x.step
  `.execute(db)
  const [answer, ...steps] = rows
  const { state, position: _, ...evidence } = answer!.evidence ?? {}
  return {
    ...position,
    at: position.seq === 0 ? null : answer!.at,
    answer: answer!.what,
    state: String(state),
    evidence,
    steps,
  }
}
