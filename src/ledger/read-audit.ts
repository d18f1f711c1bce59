/**
 * What happened to addresses and leases, and how the leases were. The sentences, the past at a number and the reasons
 * are those of schema `ipledger_audit`; here they are paged, each page with a bound.
 *
 * A history follows the index by address, from the number where the page before ended, at every address where a lease
 * about the wanted ones could begin. Each of them is read as far as its share of `MOST_EXAMINED` goes; what lies beyond
 * the first that was cut off is left to the next page, so that pages are in order of number and neither skip nor repeat.
 */
import { type Kysely, sql } from 'kysely'
import {
  blockBase,
  type Cidr,
  formatCidr,
  formatValue,
  type IpAddress,
  isMalformed,
  maxPrefix,
  parseAddress,
} from '../core/address.ts'
import type { Evidence, Json, LedgerEvent } from '../core/event.ts'
import type { Lease } from '../core/lease.ts'
import type { Tables } from '../postgres/tables.ts'
import { type Holder, holdersOf } from './holders.ts'
import { type EventFilter, type EventShown, readEvents } from './read-events.ts'
import { MOST_EXAMINED, type PoolFace, possibleBases } from './read-leases.ts'
import { EVENT_COLUMNS, type EventRow, readAddress, readEvent } from './rows.ts'

/** Addresses of a CIDR whose histories are merged by index; of one with more that were ever held, the log is walked. */
export const MOST_MERGED = 1_000
/** Of the events in which a lease changed its state or owner: the newest. No lease is known that has a tenth of it. */
const MOST_TURNS = 100

type Face = Omit<PoolFace, 'options'>

/** A number, or a time of which the last event counts. Both null: now. */
export type Moment = { readonly seq: number | null; readonly at: number | null }

/** All bounds are meant at once. Numbers are exclusive, times inclusive. */
export type Range = {
  readonly afterSeq: number
  readonly beforeSeq: number | null
  readonly from: number | null
  readonly to: number | null
}

export type Entry = EventShown & { readonly what: string }
export type HolderShown = { readonly holder: Holder; readonly face: Face }

export type HistoryPage = {
  readonly entries: readonly Entry[]
  readonly holders: readonly HolderShown[]
  /** Number after which the next page goes on; null after the last one. */
  readonly next: number | null
  readonly head: number
}

/** `position` is where the page before ended. */
export type HistoryAsked = {
  readonly descending: boolean
  readonly size: number
  readonly position: number | null
  /** Events looked at instead of `MOST_EXAMINED`: for tests of the seams. */
  readonly examined?: number
}

/** `after`: the last address of the page before. */
export type AsOfAsked = {
  readonly pool: string | null
  readonly after: string | null
  readonly size: number
  /** Leases looked at instead of `MOST_EXAMINED`: for tests of the seams. */
  readonly examined?: number
}

export type LeasesAsOf = {
  readonly leases: readonly { readonly lease: Lease; readonly face: Face }[]
  readonly next: string | null
  readonly seq: number
  /** Null: before the first event. */
  readonly at: number | null
  readonly head: number
  readonly poolUnknown: boolean
}

export type Explained = {
  readonly answer: string
  readonly state: string
  readonly seq: number
  readonly at: number | null
  readonly evidence: { readonly [key: string]: Json }
  readonly steps: readonly Step[]
  readonly head: number
}

export type Step = {
  readonly seq: number
  readonly at: number
  readonly what: string
  readonly evidence: Evidence | null
}

/** The number is beyond the head. */
export type Beyond = { readonly beyond: number }

// Histories.

/** Numbers in (after, before), of which (after, hi] were looked at upwards, or [lo, before) downwards. */
type Walked = { readonly seqs: readonly number[]; readonly next: number | null }

/** Null here and below: there is no such network. */
export async function readAddressHistory(
  db: Kysely<Tables>,
  network: string,
  cidr: Cidr,
  range: Range,
  asked: HistoryAsked,
): Promise<HistoryPage | null> {
  const found = await readBounds(db, network, range)
  if (found === null) return null
  const { head } = found
  const { descending, position } = asked
  const after = descending || position === null ? found.after : Math.max(found.after, position)
  const before = !descending || position === null ? found.before : Math.min(found.before, position)
  const bases = await basesOf(db, network, cidr)
  if (bases === null) return walkLog(db, network, cidr, { after, before, head }, asked)
  const walked = await merge(db, network, cidr, bases, { after, before }, asked)
  const lowest = descending ? (walked.next === null ? after : walked.next - 1) : after
  const entries = await readEntries(db, network, walked.seqs, descending)
  const tokens = new Set([
    ...(await heldAt(db, network, cidr, bases, lowest)),
    ...entries.flatMap(({ event }) => tokenOf(event) ?? []),
  ])
  const highest = descending ? before - 1 : (walked.next ?? before - 1)
  const holders = (await readHolders(db, network, [...tokens])).filter(
    ({ holder }) => holder.from.seq <= highest && (holder.until === null || holder.until.seq > lowest),
  )
  return { entries, holders, next: walked.next, head }
}

/** Undefined: no lease has this token. */
export async function readLeaseHistory(
  db: Kysely<Tables>,
  network: string,
  token: number,
  { descending, size, position }: HistoryAsked,
): Promise<HistoryPage | undefined | null> {
  const found = await readBounds(db, network, { afterSeq: 0, beforeSeq: null, from: null, to: null })
  if (found === null) return null
  const { head } = found
  const last = await readEnd(db, network, token)
  if (last === undefined) return token > head ? { entries: [], holders: [], next: null, head } : undefined
  const after = descending || position === null ? token - 1 : Math.max(token - 1, position)
  const upto = last.end ?? Number.MAX_SAFE_INTEGER - 1
  const before = !descending || position === null ? upto + 1 : Math.min(upto + 1, position)
  const rows = await readSeqs(db, network, [last.address], { after, before }, descending, size + 1)
  const seqs = rows.slice(0, size).map(({ seq }) => seq)
  return {
    entries: await readEntries(db, network, seqs, descending),
    holders: await readHolders(db, network, [token]),
    next: rows.length > size ? seqs.at(-1)! : null,
    head,
  }
}

/** Exclusive. */
export type Bounds = { readonly after: number; readonly before: number; readonly head: number }

/** The narrower of what numbers and times say. */
export async function readBounds(db: Kysely<Tables>, network: string, range: Range): Promise<Bounds | null> {
  const { afterSeq, beforeSeq, from, to } = range
  const { rows } = await sql<{ head: number | null; before_from: number | null; upto: number | null }>`
    select (select max(e.seq) from ipledger.event e where e.network_id = ${network}) as head,
      case when ${from === null}::bool then 0 else ipledger_audit.position_at(${network},
        to_timestamp(${from ?? 0}::float8 / 1000) - interval '1 microsecond') end as before_from,
      case when ${to === null}::bool then null else ipledger_audit.position_at(${network},
        to_timestamp(${to ?? 0}::float8 / 1000)) end as upto
  `.execute(db)
  const { head, before_from: beforeFrom, upto } = rows[0]!
  if (head === null) return null
  return {
    after: Math.max(afterSeq, beforeFrom ?? 0),
    before: Math.min(
      beforeSeq ?? Number.MAX_SAFE_INTEGER,
      upto === null ? Number.MAX_SAFE_INTEGER : upto + 1,
    ),
    head,
  }
}

/** Where leases that overlap the CIDR begin, or could. Null: too many. */
async function basesOf(db: Kysely<Tables>, network: string, cidr: Cidr): Promise<readonly string[] | null> {
  const { family, first, prefixLength } = cidr
  const bases = possibleBases({ family, value: first })
  if (prefixLength === maxPrefix(family)) return bases
  const { rows } = await sql<{ address: string }>`
    select k.address from ipledger_audit.known_addresses(${network}, ${formatCidr(cidr)}::inet) as k (address)
    limit ${MOST_MERGED + 1}
  `.execute(db)
  if (rows.length > MOST_MERGED) return null
  return [...new Set([...bases, ...rows.map(({ address }) => readAddress(address))])]
}

async function merge(
  db: Kysely<Tables>,
  network: string,
  cidr: Cidr,
  bases: readonly string[],
  bounds: { readonly after: number; readonly before: number },
  { descending, size, examined = MOST_EXAMINED }: HistoryAsked,
): Promise<Walked> {
  const share = Math.max(1, Math.floor(examined / bases.length))
  const rows = await readSeqs(db, network, bases, bounds, descending, share)
  const counts = new Map<string, number>()
  let horizon: number | null = null
  for (const { address, seq } of rows) {
    const count = (counts.get(address) ?? 0) + 1
    counts.set(address, count)
    if (count < share) continue
    if (horizon === null) horizon = seq
    else horizon = descending ? Math.max(horizon, seq) : Math.min(horizon, seq)
  }
  const within = rows.filter(({ seq }) => horizon === null || (descending ? seq >= horizon : seq <= horizon))
  const seqs = within
    .filter((row) => overlaps(cidr, row))
    .map(({ seq }) => seq)
    .sort((one, other) => (descending ? other - one : one - other))
  if (seqs.length > size) return { seqs: seqs.slice(0, size), next: seqs[size - 1]! }
  return { seqs, next: horizon }
}

type SeqRow = { readonly address: string; readonly seq: number; readonly prefix_length: number }

/**
 * Events at some addresses, of each the first or last in (after, before). Address and number are compared together, so
 * that only the index by address serves.
 */
async function readSeqs(
  db: Kysely<Tables>,
  network: string,
  bases: readonly string[],
  { after, before }: { readonly after: number; readonly before: number },
  descending: boolean,
  most: number,
): Promise<readonly SeqRow[]> {
  const order = descending ? sql`desc` : sql`asc`
  const { rows } = await sql<SeqRow>`
    select e.address, e.seq, e.prefix_length
    from unnest(${bases}::inet[]) as b (address)
    cross join lateral (
      select x.address, x.seq, x.prefix_length from ipledger.event x
      where x.network_id = ${network} and x.address >= b.address and x.address <= b.address
        and (x.address, x.seq) > (b.address, ${after}::bigint) and (x.address, x.seq) < (b.address, ${before}::bigint)
      order by x.address ${order}, x.seq ${order} limit ${most}) e
  `.execute(db)
  return rows
}

function overlaps({ family, first, last }: Cidr, { address, prefix_length: prefixLength }: SeqRow): boolean {
  const { value } = parsed(address)
  return value > first ? value <= last : blockBase(family, first, prefixLength) === value
}

/** Tokens of the leases that were held after an event. */
async function heldAt(
  db: Kysely<Tables>,
  network: string,
  cidr: Cidr,
  bases: readonly string[],
  upto: number,
): Promise<readonly number[]> {
  const { rows } = await sql<SeqRow & { type: string; fencing_token: number }>`
    select e.address, e.seq, e.prefix_length, e.type, e.fencing_token
    from unnest(${bases}::inet[]) as b (address)
    cross join lateral (
      select x.address, x.seq, x.prefix_length, x.type, x.fencing_token from ipledger.event x
      where x.network_id = ${network} and x.address >= b.address and (x.address, x.seq) <= (b.address, ${upto}::bigint)
      order by x.address desc, x.seq desc limit 1) e
  `.execute(db)
  return rows
    .filter((row) => row.type !== 'lease.released' && row.type !== 'lease.reaped' && overlaps(cidr, row))
    .map((row) => row.fencing_token)
}

/** Of a CIDR with too many addresses: by number, as ListEvents does. */
async function walkLog(
  db: Kysely<Tables>,
  network: string,
  cidr: Cidr,
  { after, before, head }: Bounds,
  { descending, size }: HistoryAsked,
): Promise<HistoryPage | null> {
  const filter: EventFilter = {
    afterSeq: after,
    beforeSeq: before === Number.MAX_SAFE_INTEGER ? null : before,
    address: null,
    cidr,
    ownerKind: null,
    ownerName: null,
    token: null,
    types: [],
  }
  const page = await readEvents(db, network, filter, { descending, size })
  if (page === null) return null
  const seqs = page.events.map(({ event }) => event.seq)
  const entries = await readEntries(db, network, seqs, descending)
  const tokens = new Set(entries.flatMap(({ event }) => tokenOf(event) ?? []))
  return { entries, holders: await readHolders(db, network, [...tokens]), next: page.next, head }
}

type FaceRow = { pool_name: string | null; pool_subnet: string | null; pool_gateway: string | null }

const EVENT = sql.raw(EVENT_COLUMNS.map((column) => `e.${column}`).join(', '))
const FACE = sql.raw(
  `p.name as pool_name, p.settings->>'subnet' as pool_subnet, p.settings->>'gateway' as pool_gateway`,
)

async function readEntries(
  db: Kysely<Tables>,
  network: string,
  seqs: readonly number[],
  descending: boolean,
): Promise<readonly Entry[]> {
  if (seqs.length === 0) return []
  const { rows } = await sql<EventRow & FaceRow & { what: string }>`
    select ${EVENT}, v.what, ${FACE}
    from unnest(${seqs}::bigint[]) as s (seq)
    join ipledger.event e on e.network_id = ${network} and e.seq = s.seq
    join ipledger_audit.event v on v.network = ${network} and v.seq = s.seq
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = e.pool_id
  `.execute(db)
  return rows
    .map((row) => ({ event: readEvent(row), face: faceOf(row), what: row.what }))
    .sort((one, other) => (descending ? other.event.seq - one.event.seq : one.event.seq - other.event.seq))
}

/** The event that ended the lease of event `b`, as `x`. */
function endOf(network: string) {
  return sql`left join lateral (
      select n.seq from ipledger.event n
      where n.network_id = ${network} and n.address >= b.address and n.address <= b.address
        and (n.address, n.seq) > (b.address, b.seq)
        and n.type in ('lease.released', 'lease.reaped')
      order by n.address, n.seq limit 1) x on true`
}

async function readEnd(
  db: Kysely<Tables>,
  network: string,
  token: number,
): Promise<{ readonly address: string; readonly end: number | null } | undefined> {
  const { rows } = await sql<{ address: string; end: number | null }>`
    select b.address, x.seq as end
    from ipledger.event b
    ${endOf(network)}
    where b.network_id = ${network} and b.seq = ${token} and b.fencing_token = ${token}
  `.execute(db)
  return rows[0]
}

/** The spans of leases. A lease's events between its first and its end are the only ones at its address. */
async function readHolders(
  db: Kysely<Tables>,
  network: string,
  tokens: readonly number[],
): Promise<readonly HolderShown[]> {
  if (tokens.length === 0) return []
  const { rows } = await sql<EventRow & FaceRow>`
    select ${EVENT}, ${FACE}
    from unnest(${tokens}::bigint[]) as t (token)
    join ipledger.event b on b.network_id = ${network} and b.seq = t.token
    ${endOf(network)}
    cross join lateral (
      select * from (select b.*) first
      union all
      (select n.* from ipledger.event n
       where n.network_id = ${network} and n.address >= b.address and n.address <= b.address
         and (n.address, n.seq) > (b.address, b.seq)
         and (n.address, n.seq) <= (b.address, coalesce(x.seq, 9223372036854775807)) and n.type <> 'lease.updated'
       order by n.address desc, n.seq desc limit ${MOST_TURNS})) e
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = b.pool_id
  `.execute(db)
  const lives = Map.groupBy(rows, (row) => row.fencing_token!)
  return [...lives.values()]
    .flatMap((life) => {
      const face = faceOf(life[0]!)
      const events = life.sort((one, other) => one.seq - other.seq).map(readEvent)
      return holdersOf(events).map((holder) => ({ holder, face }))
    })
    .sort((one, other) => one.holder.from.seq - other.holder.from.seq)
}

// As it was.

type Position = { readonly seq: number; readonly at: number | null; readonly head: number }

/** A number is itself, a time the last event at or before it. */
async function readPosition(
  db: Kysely<Tables>,
  network: string,
  moment: Moment,
): Promise<Position | Beyond | null> {
  const { rows } = await sql<{ head: number | null; seq: number | null; at: number | null }>`
    select head.seq as head, m.seq, (
      select e.at from ipledger.event e where e.network_id = ${network} and e.seq <= m.seq order by e.seq desc limit 1) as at
    from (select max(e.seq) as seq from ipledger.event e where e.network_id = ${network}) head
    cross join lateral (select case
      when ${moment.seq !== null}::bool then ${moment.seq ?? 0}::bigint
      when ${moment.at !== null}::bool then
        ipledger_audit.position_at(${network}, to_timestamp(${moment.at ?? 0}::float8 / 1000))
      else head.seq end as seq) m
  `.execute(db)
  const { head, seq, at } = rows[0]!
  if (head === null) return null
  return seq! > head ? { beyond: head } : { seq: seq!, at, head }
}

export async function readLeasesAsOf(
  db: Kysely<Tables>,
  network: string,
  moment: Moment,
  asked: AsOfAsked,
): Promise<LeasesAsOf | Beyond | null> {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const { pool, after, size, examined = MOST_EXAMINED } = asked
  if (pool !== null && !(await wasPool(db, network, pool))) {
    return { ...position, leases: [], next: null, poolUnknown: true }
  }
  const most = pool === null ? size + 1 : examined
  const { rows } = await sql<{ address: string; version: number; pool: string }>`
    select host(l.address)::inet as address, l.version, l.pool
    from ipledger_audit.leases_as_of(${network}, ${position.seq}::bigint, ${after}::inet, ${most}::bigint) l
  `.execute(db)
  const wanted = pool === null ? rows : rows.filter((row) => row.pool === pool)
  const shown = wanted.slice(0, size)
  const last = wanted.length > size ? shown.at(-1) : rows.length === most ? rows.at(-1) : undefined
  const leases = await readLeasesMadeBy(db, network, shown)
  return {
    ...position,
    leases,
    next: last === undefined ? null : readAddress(last.address),
    poolUnknown: false,
  }
}

/** Leases as the events of these numbers left them. */
async function readLeasesMadeBy(
  db: Kysely<Tables>,
  network: string,
  shown: readonly { readonly version: number; readonly pool: string }[],
): Promise<LeasesAsOf['leases']> {
  if (shown.length === 0) return []
  const { rows } = await sql<EventRow & FaceRow>`
    select ${EVENT}, ${FACE}
    from unnest(${shown.map(({ version }) => version)}::bigint[]) as s (seq)
    join ipledger.event e on e.network_id = ${network} and e.seq = s.seq
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = e.pool_id
  `.execute(db)
  const found = new Map(rows.map((row) => [row.seq, row]))
  return shown.map(({ version, pool }) => {
    const row = found.get(version)!
    const event = readEvent(row)
    if (!('lease' in event)) throw new Error(`event ${version} of network ${network} leaves no lease`)
    return { lease: event.lease, face: { ...faceOf(row), pool } }
  })
}

/** There is one of this name, or was. */
async function wasPool(db: Kysely<Tables>, network: string, pool: string): Promise<boolean> {
  const { rows } = await sql<{ was: boolean }>`
    select exists (select from ipledger.pool p where p.network_id = ${network} and p.name = ${pool})
      or exists (select from ipledger.event e where e.network_id = ${network} and e.type = 'pool.created'
        and e.settings #>> '{pool,name}' = ${pool}) as was
  `.execute(db)
  return rows[0]!.was
}

type StepRow = { step: number; at: number; seq: number | null; what: string; evidence: Evidence | null }

export async function readExplanation(
  db: Kysely<Tables>,
  network: string,
  address: IpAddress,
  moment: Moment,
): Promise<Explained | Beyond | null> {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const text = formatValue(address.family, address.value)
  const at =
    moment.seq !== null
      ? sql`${position.at === null ? null : new Date(position.at).toISOString()}::timestamptz`
      : sql`least(now(), to_timestamp(${moment.at}::float8 / 1000))`
  const { rows } = await sql<StepRow>`
    select x.step, x.at, x.seq, x.what, x.evidence
    from ipledger_audit.explain_address(${network}, ${text}::inet, coalesce(${at}, '-infinity'), ${position.seq}::bigint) x
  `.execute(db)
  const [answer, ...steps] = rows.toSorted((one, other) => one.step - other.step)
  const { state, position: _, ...evidence } = (answer!.evidence ?? {}) as { readonly [key: string]: Json }
  return {
    answer: answer!.what,
    state: String(state ?? 'OUTSIDE'),
    seq: position.seq,
    at: position.seq === 0 || !Number.isFinite(answer!.at) ? null : answer!.at,
    evidence,
    steps: steps.map(({ seq, at, what, evidence }) => ({ seq: seq!, at, what, evidence })),
    head: position.head,
  }
}

function tokenOf(event: LedgerEvent): number | null {
  if ('lease' in event) return event.lease.fencingToken
  return 'ended' in event ? event.ended.lease.fencingToken : null
}

function parsed(address: string): IpAddress {
  const value = parseAddress(address)
  if (isMalformed(value)) throw new Error(`stored address ${address}: ${value.malformed}`)
  return value
}

function faceOf(row: FaceRow): Face {
  return { pool: row.pool_name ?? '', subnet: row.pool_subnet ?? '', gateway: row.pool_gateway ?? '' }
}
