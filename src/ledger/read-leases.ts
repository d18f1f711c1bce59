/**
 * Leases that are held now. A page follows the primary key from the last address of the page before, so that no page skips or
 * repeats a lease that is held throughout. Rows of `lease` have state, node and pool; the rest of a lease is in the event that its
 * row names.
 */
import {
  type AliasedExpression,
  type Expression,
  expressionBuilder,
  type RawBuilder,
  type SqlBool,
  sql,
} from 'kysely'
import { type Cidr, formatValue, type IpAddress } from '../core/address.ts'
import { viewOf } from '../core/batch.ts'
import type { LeaseView } from '../core/command.ts'
import type { AddressRecord, LeaseState, QuarantineReason } from '../core/event.ts'
import type { Labels } from '../core/owner.ts'
import type { PoolSettings } from '../core/pool.ts'
import { recordOfText } from './event-text.ts'
import { type Db, MOST_EXAMINED, readHead } from './read-db.ts'
import { headOf } from './sql/head.ts'
import type { RowOf } from './tables.ts'

const EXAMINE_FOR_MS = 800

/** `after`: last address of the page before. */
export type PageByAddress = { readonly after: string | null; readonly size: number }

export type LeaseFilter = {
  readonly states: readonly LeaseState[]
  readonly quarantineReasons: readonly QuarantineReason[]
  readonly ownerKind: string | null
  readonly ownerName: string | null
  readonly ownerUid: string | null
  readonly node: string | null
  readonly labels: Labels
  readonly pools: readonly string[]
  readonly cidr: Cidr | null
}

export const EVERY_LEASE: LeaseFilter = {
  states: [],
  quarantineReasons: [],
  ownerKind: null,
  ownerName: null,
  ownerUid: null,
  node: null,
  labels: {},
  pools: [],
  cidr: null,
}

/** `lease`: it is held. `ended`: what is left of it. Neither: there is none. */
export type LeaseFound = {
  readonly lease: LeaseView | null
  readonly ended: AddressRecord | null
  readonly head: number
}

/** The lease as callers see it, with its pool as it is now. */
function showLease(network: string, record: AddressRecord, pool: PoolSettings | null): LeaseView {
  const pools = { get: () => (pool === null ? undefined : { pool }) }
  return viewOf({ name: network, pools }, record)
}

/** First address of the block that an address is in, by the pool that has it now. */
export function blockAt(network: string, address: string): RawBuilder<string> {
  return sql`coalesce((
    select set_masklen(network(set_masklen(${address}::inet, p.prefix_length))::inet, -1) from ipledger.pool p
    where p.network_id = ${network} and p.cidr >>= ${address}::inet), ${address}::inet)`
}

export type LeasePage = {
  readonly leases: readonly LeaseView[]
  readonly next: string | null
  readonly head: number
}

const leaseIs = expressionBuilder<{ l: RowOf<'lease'> }, 'l'>()
const eventIs = expressionBuilder<{ e: RowOf<'event'> }, 'e'>()
type Filters = readonly Expression<SqlBool>[]

/**
 * A page of the leases that were held as of a number of the log; null: now. Without an index for a filter rows are scanned, at
 * most `MOST_EXAMINED` a statement, until the page is full, nothing is left, or its time is up: then the page is short,
 * and the next goes on where it stopped (`next`; null after the last one).
 */
export async function readLeasePage(
  db: Db,
  network: string,
  { after, size }: PageByAddress,
  { ofRow, ofEvent }: { readonly ofRow: Filters; readonly ofEvent: Filters },
  asOf: number | null,
): Promise<Omit<LeasePage, 'head'>> {
  const end = performance.now() + EXAMINE_FOR_MS
  const leases: LeaseView[] = []
  for (let at = after; ; ) {
    const walk = db
      .selectFrom('ipledger.lease as l')
      .select(['l.address', 'l.seq'])
      .where((eb) => eb.and([leaseIs('l.network_id', '=', network), ...ofRow]))
      .$if(at !== null, (query) => query.where('l.address', '>', at))
      .orderBy('l.address')
    const examined = walk.limit(MOST_EXAMINED)
    const lastEvents = sql<{ address: string; seq: number }>`(
      select t.address, last.seq from (${examined}) t
      cross join lateral (
        select x.seq from ipledger.event x
        where x.network_id = ${network} and x.address = t.address and x.previous < ${asOf} and x.seq <= ${asOf}
        order by x.previous desc limit 1) last)`
    const events: AliasedExpression<{ address: string; seq: number }, 'w'> =
      asOf === null ? examined.as('w') : lastEvents.as('w')
    const missing = size - leases.length
    const rows = await db
      .selectFrom(events)
      .innerJoin('ipledger.event as e', (join) =>
        join.on('e.network_id', '=', network).onRef('e.seq', '=', 'w.seq'),
      )
      .leftJoin('ipledger.pool as p', (join) =>
        join.on('p.network_id', '=', network).onRef('p.pool_id', '=', 'e.pool_id'),
      )
      .select([sql<string>`ipledger.event_text(row(e.*)::ipledger.event)`.as('text'), 'p.settings'])
      .where('e.state', '<>', 'FREE')
      .where((eb) => eb.and(ofEvent))
      .orderBy('w.address')
      .limit(missing + 1)
      .execute()
    for (const { text, settings } of rows.slice(0, missing))
      leases.push(showLease(network, recordOfText(text), settings as PoolSettings | null))
    if (rows.length > missing) return { leases, next: leases.at(-1)!.address }
    if (asOf === null && ofEvent.length === 0) return { leases, next: null }
    const last = await walk
      .offset(MOST_EXAMINED - 1)
      .limit(1)
      .executeTakeFirst()
    if (last === undefined || performance.now() >= end) return { leases, next: last?.address ?? null }
    at = last.address
  }
}

export async function readLeases(
  pool: Db,
  network: string,
  filter: LeaseFilter,
  page: PageByAddress,
): Promise<(LeasePage & { readonly unknownPools: readonly string[] }) | null> {
  const transaction = pool.transaction().setIsolationLevel('repeatable read').setAccessMode('read only')
  return transaction.execute(async (db) => {
    const head = await readHead(db, network)
    if (head === null) return null
    const { rows } = await sql<{ name: string }>`
      select named.name from unnest(${filter.pools}::text[]) as named (name)
      where not exists (select from ipledger.pool p where p.network_id = ${network} and p.name = named.name)
    `.execute(db)
    const addresses = await addressesOf(db, network, filter.ownerName)
    const filters = { ofRow: filtersOfRow(network, filter, addresses), ofEvent: filtersOfEvent(filter) }
    const found = await readLeasePage(db, network, page, filters, null)
    return { ...found, head, unknownPools: rows.map(({ name }) => name) }
  })
}

/** Where an owner of this name ever held something; null: at too many addresses. */
async function addressesOf(db: Db, network: string, name: string | null): Promise<readonly string[] | null> {
  if (name === null) return null
  const { rows } = await sql<{ address: string }>`
    select distinct host(m.address) as address from (
      select e.address from ipledger.event e
      where e.network_id = ${network} and e.owner_name = ${name} and e.address is not null limit ${MOST_EXAMINED + 1}) m
  `.execute(db)
  return rows.length > MOST_EXAMINED ? null : rows.map(({ address }) => address)
}

/** What rows of `lease` have. Address and node have an index; for the rest a million leases are scanned in 0.2 s. */
function filtersOfRow(
  network: string,
  { states, quarantineReasons, node, cidr, pools }: LeaseFilter,
  addresses: readonly string[] | null,
): Filters {
  const named = sql`ipledger.pool p where p.network_id = ${network} and p.name = any(${pools}::text[])`
  const isNamed = pools.length > 0
  return [
    leaseIs('l.state', '<>', 'FREE'),
    states.length > 0 && leaseIs('l.state', 'in', states),
    quarantineReasons.length > 0 && leaseIs('l.state', '=', 'QUARANTINED'),
    node !== null && leaseIs('l.node', '=', node),
    addresses !== null && leaseIs('l.address', '=', sql<string>`any(${addresses}::inet[])`),
    cidr !== null && leaseIs('l.address', '>=', blockAt(network, formatValue(cidr.family, cidr.first))),
    cidr !== null && leaseIs('l.address', '<=', formatValue(cidr.family, cidr.last)),
    isNamed && leaseIs('l.address', '>=', sql<string>`(select min(host(p.cidr)::inet) from ${named})`),
    isNamed &&
      leaseIs('l.address', '<=', sql<string>`(select max(host(broadcast(p.cidr))::inet) from ${named})`),
    isNamed && leaseIs('l.pool_id', '=', sql<number>`any(array(select p.pool_id from ${named}))`),
  ].filter((one) => one !== false)
}

/** What only the event has. */
function filtersOfEvent(filter: LeaseFilter): Filters {
  const { quarantineReasons, ownerKind, ownerName, ownerUid, labels } = filter
  return [
    quarantineReasons.length > 0 && eventIs('e.quarantine_reason', 'in', quarantineReasons),
    ownerKind !== null && eventIs('e.owner_kind', '=', ownerKind),
    ownerName !== null && eventIs('e.owner_name', '=', ownerName),
    ownerUid !== null && eventIs('e.owner_uid', '=', ownerUid),
    Object.keys(labels).length > 0 && sql<SqlBool>`e.labels::jsonb @> ${JSON.stringify(labels)}::jsonb`,
  ].filter((one) => one !== false)
}

/** The lease of a token; of one that ended, how and when. */
export function readLeaseByToken(db: Db, network: string, token: number): Promise<LeaseFound | null> {
  const seq = sql`
    select coalesce(ended.seq, l.seq) from ipledger.event made
    join ipledger.lease l on l.network_id = ${network} and l.address = made.address
    join ipledger.event last on last.network_id = ${network} and last.seq = l.seq
    left join lateral (
      select x.seq from ipledger.event x
      where x.network_id = ${network} and x.address = made.address and x.previous >= made.seq and x.state = 'FREE'
        and last.token <> made.seq
      order by x.previous limit 1) ended on true
    where made.network_id = ${network} and made.seq = ${token} and made.token = made.seq`
  return readLease(db, network, seq)
}

/** The lease that has an address. */
export function readLeaseAt(db: Db, network: string, at: IpAddress): Promise<LeaseFound | null> {
  const block = blockAt(network, formatValue(at.family, at.value))
  const seq = sql`
    select l.seq from ipledger.lease l
    where l.network_id = ${network} and l.address = ${block} and l.state <> 'FREE'`
  return readLease(db, network, seq)
}

/** `seq`: a select of the number of its event. */
async function readLease(db: Db, network: string, seq: RawBuilder<unknown>): Promise<LeaseFound | null> {
  const { rows } = await sql<{ head: number | null; text: string | null; settings: PoolSettings | null }>`
    select ${headOf(network)} as head, case when e.seq is not null then ipledger.event_text(row(e.*)::ipledger.event) end as text, p.settings
    from (select) one
    left join ipledger.event e on e.network_id = ${network} and e.seq = (${seq})
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = e.pool_id
  `.execute(db)
  const { head, text, settings } = rows[0]!
  if (head === null) return null
  const record = text === null ? null : recordOfText(text)
  if (record === null || record.state === 'FREE') return { lease: null, ended: record, head }
  return { lease: showLease(network, record, settings), ended: null, head }
}
