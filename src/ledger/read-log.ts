/**
 * The log: its events, the histories of addresses and leases, and how leases were. What was committed never changes, so a page
 * may be made by several statements and is still of one head. The sentences and the reasons are those of `ipledger_audit`.
 *
 * The events of an address are a chain, which the index of (address, previous) follows in order. Where a page is about several
 * addresses, each chain is read as far as its share of `MOST_EXAMINED` goes; what lies beyond the first that was cut off is
 * left to the next page, so that pages are in order of number and neither skip nor repeat.
 */
import { type Kysely, type RawBuilder, sql } from 'kysely'
import { blockBase, type Cidr, formatCidr, formatValue, type IpAddress, maxPrefix } from '../core/address.ts'
import type { Details, LeaseEvent } from '../core/event.ts'
import { leaseId } from '../core/event.ts'
import { addressValue } from '../core/image.ts'
import type { PoolSettings } from '../core/pool.ts'
import { eventOf, recordOfText } from './event-text.ts'
import { MOST_EXAMINED, showLease } from './read-leases.ts'
import { headOf } from './read-pools.ts'
import type {
  AsOfPage,
  Beyond,
  EventFilter,
  EventPage,
  Explained,
  Face,
  HeldState,
  HistoryEntry,
  HistoryPage,
  Holder,
  LeasesAsOf,
  Moment,
  PageOfLog,
  Range,
  Step,
} from './reads-types.ts'

type Db = Kysely<unknown>

/** Addresses of a CIDR whose chains are merged; of one with more that were ever held, the log is walked. */
const MOST_MERGED = 1_000
/** Of the events in which a lease changed its state: the newest. */
const MOST_STATES = 100

/** Numbers, both ends exclusive. */
type Bounds = { readonly after: number; readonly before: number; readonly head: number }

/** The narrower of what numbers, times and the page before say. */
async function readBounds(
  db: Db,
  network: string,
  { afterSeq, beforeSeq, from, to }: Range,
  { descending, position }: PageOfLog,
): Promise<Bounds | null> {
  const { rows } = await sql<{ head: number | null; before_from: number; upto: number | null }>`
    select ${headOf(network)} as head,
      case when ${from !== null}::bool then ipledger_audit.position_at(${network},
        to_timestamp(${from ?? 0}::float8 / 1000) - interval '1 microsecond') else 0 end as before_from,
      case when ${to !== null}::bool then ipledger_audit.position_at(${network}, to_timestamp(${to ?? 0}::float8 / 1000)) end as upto
  `.execute(db)
  const { head, before_from: beforeFrom, upto } = rows[0]!
  if (head === null) return null
  const after = Math.max(afterSeq, beforeFrom)
  const before = Math.min(beforeSeq ?? head + 1, (upto ?? head) + 1, head + 1)
  if (position === null) return { after, before, head }
  return descending
    ? { after, before: Math.min(before, position), head }
    : { after: Math.max(after, position), before, head }
}

/** A select of the numbers that are looked at, and the last of them if there may be more: the page goes on there. */
type Walk = { readonly numbers: RawBuilder<unknown>; readonly end: RawBuilder<unknown> }

function walkOf(select: RawBuilder<unknown>, descending: boolean): Walk {
  const order = descending ? sql`desc` : sql`asc`
  return {
    numbers: sql`${select} order by e.seq ${order} limit ${MOST_EXAMINED}`,
    end: sql`select x.seq from (${select} order by e.seq ${order} offset ${MOST_EXAMINED - 1} limit 1) x`,
  }
}

function walkOfNumbers({ seqs, next }: Chained): Walk {
  return {
    numbers: sql`select u.seq from unnest(${seqs}::bigint[]) as u (seq)`,
    end: sql`select ${next}::bigint`,
  }
}

type ShownRow = {
  text: string | null
  what: string
  name: string | null
  subnet: string | null
  gateway: string | null
  end: number | null
}

/** A page of what a walk looks at; `conditions` are about event `e`. */
async function readPage(
  db: Db,
  network: string,
  { numbers, end }: Walk,
  conditions: readonly RawBuilder<unknown>[],
  { descending, size, inWords = true }: PageOfLog & { readonly inWords?: boolean },
): Promise<{ readonly entries: readonly HistoryEntry[]; readonly next: number | null }> {
  const order = descending ? sql`desc` : sql`asc`
  const { rows } = await sql<ShownRow>`
    with page as materialized (
      select w.seq, e.pool_id, ipledger.event_text(e) as text
      from (${numbers}) w join ipledger.event e on e.network_id = ${network} and e.seq = w.seq
      where ${sql.join([sql`true`, ...conditions], sql` and `)}
      order by w.seq ${order} limit ${size + 1}
    )
    select page.text, v.what, p.name, p.settings ->> 'subnet' as subnet, p.settings ->> 'gateway' as gateway,
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
    .map((row) => ({ event: eventOf(row.text!), face: faceOf(row), what: row.what }))
  return { entries, next: found.length > size ? entries.at(-1)!.event.seq : rows[0]!.end }
}

function faceOf({ name, subnet, gateway }: Pick<ShownRow, 'name' | 'subnet' | 'gateway'>): Face {
  return { pool: name ?? '', subnet: subnet ?? '', gateway: gateway ?? '' }
}

// Events.

export async function readEvents(
  db: Db,
  network: string,
  filter: EventFilter,
  page: PageOfLog,
): Promise<EventPage | null> {
  const bounds = await readBounds(db, network, filter, page)
  if (bounds === null) return null
  const { address, cidr, ownerKind, ownerName, token, types } = filter
  const conditions: RawBuilder<unknown>[] = []
  if (ownerKind !== null) conditions.push(sql`e.owner_kind = ${ownerKind}`)
  if (ownerName !== null) conditions.push(sql`e.owner_name = ${ownerName}`)
  if (token !== null) conditions.push(sql`e.token = ${token}`)
  if (address !== null)
    conditions.push(
      sql`set_masklen(e.address, e.prefix_length) >>= ${formatValue(address.family, address.value)}::inet`,
    )
  if (cidr !== null)
    conditions.push(sql`set_masklen(e.address, e.prefix_length) && ${formatCidr(cidr)}::inet`)
  conditions.push(
    types.length > 0 ? sql`e.type = any(${types}::text[])` : sql`not starts_with(e.type, 'source.')`,
  )
  const walk = await walkFor(db, network, filter, bounds, page)
  const { entries, next } = await readPage(db, network, walk, conditions, { ...page, inWords: false })
  const events = entries.map(({ event, face }) => ({ event, face }))
  return { events, next, head: bounds.head }
}

async function walkFor(
  db: Db,
  network: string,
  { address, ownerName, token, types }: EventFilter,
  bounds: Bounds,
  { descending }: PageOfLog,
): Promise<Walk> {
  if (token !== null) {
    const made = await readMade(db, network, token)
    if (made === undefined) return walkOfNumbers({ seqs: [], next: null })
    return walkOfNumbers(await chain(db, network, [made.address], bounds, descending))
  }
  if (address !== null)
    return walkOfNumbers(await chain(db, network, possibleBases(address), bounds, descending))
  const { after, before } = bounds
  const within = sql`e.network_id = ${network} and e.seq > ${after} and e.seq < ${before}`
  if (ownerName !== null) {
    return walkOf(
      sql`select e.seq from ipledger.event e where ${within} and e.owner_name = ${ownerName}`,
      descending,
    )
  }
  // Few, and in an index.
  const isOfShape = (type: string): boolean =>
    !type.startsWith('lease.') && type !== 'source.reported' && type !== 'attachment.closed'
  if (types.length > 0 && types.every(isOfShape)) {
    const select = sql`select e.seq from ipledger.event e
      where ${within} and e.address is null and e.type = any(${types}::text[])`
    return walkOf(select, descending)
  }
  return walkOf(sql`select e.seq from ipledger.event e where ${within}`, descending)
}

// Chains.

/** Numbers in order; `next` is the last one that can be vouched for. */
type Chained = { readonly seqs: readonly number[]; readonly next: number | null }
type ChainRow = { readonly address: string; readonly seq: number; readonly prefix_length: number }

/** Events at some addresses, merged by number. */
async function chain(
  db: Db,
  network: string,
  addresses: readonly string[],
  { after, before }: Bounds,
  descending: boolean,
  isWanted: (row: ChainRow) => boolean = () => true,
): Promise<Chained> {
  const share = Math.max(1, Math.floor(MOST_EXAMINED / addresses.length))
  const order = descending ? sql`desc` : sql`asc`
  // `previous` is below the number of its event: in (after, before) lie those from the last event up to `after` on.
  const { rows } = await sql<ChainRow>`
    select host(e.address) as address, e.seq, e.prefix_length
    from unnest(${addresses}::inet[]) as b (address)
    cross join lateral (select coalesce((
      select x.seq from ipledger.event x
      where x.network_id = ${network} and x.address = b.address and x.previous < ${after} and x.seq <= ${after}
      order by x.previous desc limit 1), 0) as seq) f
    cross join lateral (
      select x.address, x.seq, x.prefix_length from ipledger.event x
      where x.network_id = ${network} and x.address = b.address and x.previous >= f.seq and x.previous < ${before}
        and x.seq > ${after} and x.seq < ${before}
      order by x.previous ${order} limit ${share}) e
  `.execute(db)
  const counts = new Map<string, number>()
  let horizon: number | null = null
  for (const { address, seq } of rows) {
    const count = (counts.get(address) ?? 0) + 1
    counts.set(address, count)
    if (count < share) continue
    horizon = horizon === null ? seq : descending ? Math.max(horizon, seq) : Math.min(horizon, seq)
  }
  const seqs = rows
    .filter(
      (row) => (horizon === null || (descending ? row.seq >= horizon : row.seq <= horizon)) && isWanted(row),
    )
    .map(({ seq }) => seq)
  return { seqs, next: horizon }
}

/** Every address at which a block that contains this one can begin. */
function possibleBases({ family, value }: IpAddress): readonly string[] {
  const bases = new Set<string>()
  for (let prefixLength = 0; prefixLength <= maxPrefix(family); prefixLength++)
    bases.add(formatValue(family, blockBase(family, value, prefixLength)))
  return [...bases]
}

/** Where leases that overlap the CIDR begin, or could; null: too many. */
async function basesOf(db: Db, network: string, cidr: Cidr): Promise<readonly string[] | null> {
  const { family, first, last } = cidr
  const bases = possibleBases({ family, value: first })
  if (first === last) return bases
  const { rows } = await sql<{ address: string }>`
    select host(l.address) as address from ipledger.lease l
    where l.network_id = ${network} and l.address > ${formatValue(family, first)}::inet
      and l.address <= ${formatValue(family, last)}::inet
    limit ${MOST_MERGED + 1}
  `.execute(db)
  return rows.length > MOST_MERGED ? null : [...bases, ...rows.map(({ address }) => address)]
}

function overlaps(
  { family, first, last }: Cidr,
  { address, prefix_length: prefixLength }: ChainRow,
): boolean {
  const { value } = addressValue(address)
  return value > first ? value <= last : blockBase(family, first, prefixLength) === value
}

type Made = { readonly address: string; readonly previous: number }

/** The event that made the lease of a token. */
async function readMade(db: Db, network: string, token: number): Promise<Made | undefined> {
  const { rows } = await sql<Made>`
    select host(e.address) as address, e.previous from ipledger.event e
    where e.network_id = ${network} and e.seq = ${token} and e.token = ${token}
  `.execute(db)
  return rows[0]
}

// Histories.

export async function readAddressHistory(
  db: Db,
  network: string,
  cidr: Cidr,
  range: Range,
  page: PageOfLog,
): Promise<HistoryPage | null> {
  const bounds = await readBounds(db, network, range, page)
  if (bounds === null) return null
  const { descending } = page
  const bases = await basesOf(db, network, cidr)
  const walk =
    bases === null
      ? walkOf(
          sql`select e.seq from ipledger.event e
            where e.network_id = ${network} and e.seq > ${bounds.after} and e.seq < ${bounds.before}`,
          descending,
        )
      : walkOfNumbers(await chain(db, network, bases, bounds, descending, (row) => overlaps(cidr, row)))
  const about = [sql`set_masklen(e.address, e.prefix_length) && ${formatCidr(cidr)}::inet`]
  const { entries, next } = await readPage(db, network, walk, about, page)
  const lowest = descending && next !== null ? next - 1 : bounds.after
  const tokens = new Set(entries.map(({ event }) => (event as LeaseEvent).record.token))
  if (bases !== null) for (const token of await heldAfter(db, network, cidr, bases, lowest)) tokens.add(token)
  return { entries, holders: await readHolders(db, network, [...tokens]), next, head: bounds.head }
}

export async function readLeaseHistory(
  db: Db,
  network: string,
  token: number,
  page: PageOfLog,
): Promise<HistoryPage | undefined | null> {
  const all = { afterSeq: token - 1, beforeSeq: null, from: null, to: null }
  const bounds = await readBounds(db, network, all, page)
  if (bounds === null) return null
  const made = await readMade(db, network, token)
  if (made === undefined) return undefined
  const chained = await chain(db, network, [made.address], bounds, page.descending)
  const { entries, next } = await readPage(
    db,
    network,
    walkOfNumbers(chained),
    [sql`e.token = ${token}`],
    page,
  )
  // The address went on to others: there is no more of this lease.
  const isOver =
    !page.descending && entries.length < page.size && entries.at(-1)?.event.seq !== chained.seqs.at(-1)
  const holders = await readHolders(db, network, [token])
  return { entries, holders, next: isOver ? null : next, head: bounds.head }
}

/** Tokens of the leases that were held after an event. */
async function heldAfter(
  db: Db,
  network: string,
  cidr: Cidr,
  bases: readonly string[],
  seq: number,
): Promise<readonly number[]> {
  const { rows } = await sql<ChainRow & { token: number; state: string }>`
    select host(e.address) as address, e.seq, e.prefix_length, e.token, e.state
    from unnest(${bases}::inet[]) as b (address)
    cross join lateral (
      select * from ipledger.event x
      where x.network_id = ${network} and x.address = b.address and x.previous < ${seq} and x.seq <= ${seq}
      order by x.previous desc limit 1) e
  `.execute(db)
  return rows.filter((row) => row.state !== 'FREE' && overlaps(cidr, row)).map(({ token }) => token)
}

type LifeRow = { token: number; text: string } & Pick<ShownRow, 'name' | 'subnet' | 'gateway'>

/** The spans over which leases were held, oldest first. */
async function readHolders(db: Db, network: string, tokens: readonly number[]): Promise<readonly Holder[]> {
  if (tokens.length === 0) return []
  const { rows } = await sql<LifeRow>`
    select b.token, ipledger.event_text(e) as text, p.name, p.settings ->> 'subnet' as subnet, p.settings ->> 'gateway' as gateway
    from unnest(${tokens}::bigint[]) as t (token)
    join ipledger.event b on b.network_id = ${network} and b.seq = t.token
    left join lateral (
      select x.seq from ipledger.event x
      where x.network_id = ${network} and x.address = b.address and x.previous >= b.seq and x.state = 'FREE'
      order by x.previous limit 1) ended on true
    cross join lateral (
      select b.seq as seq
      union all
      (select x.seq from ipledger.event x
       where x.network_id = ${network} and x.address = b.address and x.previous >= b.seq
         and x.previous < coalesce(ended.seq, 9223372036854775807) and x.type <> 'lease.updated'
       order by x.previous desc limit ${MOST_STATES})) life
    join ipledger.event e on e.network_id = ${network} and e.seq = life.seq
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = b.pool_id
  `.execute(db)
  return [...Map.groupBy(rows, ({ token }) => token).values()]
    .map((life) => holderOf(network, life))
    .sort((one, other) => one.from.seq - other.from.seq)
}

function holderOf(network: string, life: readonly LifeRow[]): Holder {
  const events = life.map(({ text }) => eventOf(text) as LeaseEvent).sort((a, b) => a.seq - b.seq)
  const first = events[0]!
  const last = events.at(-1)!
  const { address, prefixLength, token, owner, node, labels } = first.record
  const states: HeldState[] = []
  for (const { seq, at, record } of events) {
    const { state } = record
    if (state === 'FREE') continue
    const reason = state === 'QUARANTINED' ? record.quarantine!.reason : null
    const before = states.at(-1)
    if (before?.state !== state || before.reason !== reason) states.push({ state, reason, seq, at })
  }
  const isOver = last.record.state === 'FREE'
  return {
    leaseId: leaseId(network, token),
    address,
    prefixLength,
    face: faceOf(life[0]!),
    owner,
    node,
    labels,
    from: { seq: first.seq, at: first.at, as: nameOf(first), actor: first.actor },
    until: isOver ? { seq: last.seq, at: last.at, as: nameOf(last) } : null,
    availableAt: last.record.availableAt,
    states: states.slice(-MOST_STATES),
  }
}

function nameOf({ type, cause }: LeaseEvent): string {
  return `${type}/${cause}`
}

// As it was.

type Position = { readonly seq: number; readonly at: number | null; readonly head: number }

/** A number is itself, a time the last event at or before it. */
async function readPosition(db: Db, network: string, { seq, at }: Moment): Promise<Position | Beyond | null> {
  const { rows } = await sql<{ head: number | null; seq: number; at: number | null }>`
    select head.seq as head, m.seq, (
      select e.at from ipledger.event e where e.network_id = ${network} and e.seq <= m.seq order by e.seq desc limit 1) as at
    from (select ${headOf(network)} as seq) head
    cross join lateral (select case
      when ${seq !== null}::bool then ${seq ?? 0}::bigint
      when ${at !== null}::bool then ipledger_audit.position_at(${network}, to_timestamp(${at ?? 0}::float8 / 1000))
      else head.seq end as seq) m
  `.execute(db)
  const position = rows[0]!
  if (position.head === null) return null
  return position.seq > position.head ? { beyond: position.head } : (position as Position)
}

export async function readLeasesAsOf(
  db: Db,
  network: string,
  moment: Moment,
  { pool, after, size }: AsOfPage,
): Promise<LeasesAsOf | Beyond | null> {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const ids = pool === null ? null : await poolsNamed(db, network, pool)
  if (ids?.length === 0) return { ...position, leases: [], next: null, poolUnknown: true }
  const walk = sql`select l.address from ipledger.lease l
    where l.network_id = ${network} and l.address > coalesce(${after}::inet, '0.0.0.0/0'::inet)
    order by l.address`
  const { rows } = await sql<{ text: string | null; settings: PoolSettings | null; end: string | null }>`
    with page as materialized (
      select e.address, e.pool_id, ipledger.event_text(e) as text
      from (${walk} limit ${MOST_EXAMINED}) w
      cross join lateral (
        select x.seq from ipledger.event x
        where x.network_id = ${network} and x.address = w.address and x.previous < ${position.seq} and x.seq <= ${position.seq}
        order by x.previous desc limit 1) last
      join ipledger.event e on e.network_id = ${network} and e.seq = last.seq
      where e.state <> 'FREE' and (${ids}::bigint[] is null or e.pool_id = any(${ids}::bigint[]))
      order by w.address limit ${size + 1}
    )
    select page.text, p.settings,
      case when (select count(*) from page) <= ${size} then (
        select host(w.address) from (${walk} offset ${MOST_EXAMINED - 1} limit 1) w) end as end
    from (select) one
    left join page on true
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = page.pool_id
    order by page.address
  `.execute(db)
  const found = rows.filter(({ text }) => text !== null)
  const leases = found
    .slice(0, size)
    .map(({ text, settings }) => showLease(network, recordOfText(text!), settings))
  const next = found.length > size ? leases.at(-1)!.address : rows[0]!.end
  return { ...position, leases, next, poolUnknown: false }
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

type StepRow = { step: number; at: number; seq: number | null; what: string; evidence: Details | null }

export async function readExplanation(
  db: Db,
  network: string,
  { family, value }: IpAddress,
  moment: Moment,
): Promise<Explained | Beyond | null> {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const at =
    moment.seq === null
      ? sql`least(to_timestamp(${moment.at}::float8 / 1000), now())`
      : sql`to_timestamp(${position.at ?? 0}::float8 / 1000)`
  const { rows } = await sql<StepRow>`
    select x.step, x.at, x.seq, x.what, x.evidence
    from ipledger_audit.explain_address(${network}, ${formatValue(family, value)}::inet, ${at}, ${position.seq}::bigint) x
    order by x.step
  `.execute(db)
  const [answer, ...steps] = rows
  const { state, position: _, ...evidence } = answer!.evidence ?? {}
  return {
    answer: answer!.what,
    state: String(state),
    seq: position.seq,
    at: position.seq === 0 ? null : answer!.at,
    evidence,
    steps: steps.map(({ seq, at, what, evidence }): Step => ({ seq: seq!, at, what, evidence })),
    head: position.head,
  }
}
