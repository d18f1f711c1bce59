/**
 * Leases that are held now. A page follows the primary key from the last address of the page before, so that no page skips or
 * repeats a lease that is held throughout; the rest of a lease is in the event that its row names. Only a name of an owner is
 * answered by an index; everything else is filtered on the way.
 */
import { type Kysely, type RawBuilder, sql } from 'kysely'
import { type Cidr, formatValue, type IpAddress } from '../core/address.ts'
import { viewOf } from '../core/batch.ts'
import type { LeaseView } from '../core/command.ts'
import type { AddressRecord, LeaseState, QuarantineReason } from '../core/event.ts'
import type { Image } from '../core/image.ts'
import type { Labels } from '../core/owner.ts'
import type { PoolSettings } from '../core/pool.ts'
import { recordOfText } from './event-text.ts'
import { headOf } from './read-pools.ts'

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

export type LeasePage = {
  readonly leases: readonly LeaseView[]
  /** Where the next page goes on; null after the last one. */
  readonly next: string | null
  readonly head: number
}

/** `lease`: it is held. `ended`: what is left of it. Neither: there is none. */
export type LeaseFound = {
  readonly lease: LeaseView | null
  readonly ended: AddressRecord | null
  readonly head: number
}

/** Rows that a page looks at. */
export const MOST_EXAMINED = 10_000

/** The lease as callers see it, with its pool as it is now. */
function showLease(network: string, record: AddressRecord, pool: PoolSettings | null): LeaseView {
  const pools = new Map(pool === null ? [] : [[record.poolId, { pool }]])
  return viewOf({ name: network, pools } as unknown as Image, record)
}

/** First address of the lease that an address is in, by the pool that has it now. */
export function unitOf(network: string, address: string): RawBuilder<string> {
  return sql`coalesce((
    select set_masklen(network(set_masklen(${address}::inet, p.prefix_length))::inet, -1) from ipledger.pool p
    where p.network_id = ${network} and p.cidr >>= ${address}::inet), ${address}::inet)`
}

type Looked = {
  /** Addresses `w` in order, so that no more are looked at than the page needs, and the last event `e` of each. */
  readonly from: RawBuilder<unknown>
  readonly conditions: readonly RawBuilder<unknown>[]
  /** Of the last address that is looked at, if there may be more: the next page goes on there. */
  readonly end: RawBuilder<unknown>
  readonly size: number
}

/** A page of leases in order of address, with their pools as they are now. */
export async function readLeasePage(
  db: Kysely<unknown>,
  network: string,
  { from, conditions, end, size }: Looked,
): Promise<LeasePage | null> {
  const { rows } = await sql<OneRow & { end: string | null }>`
    with page as materialized (
      select e.address, e.pool_id, ipledger.event_text(e) as text
      from ${from} where ${sql.join([sql`e.state <> 'FREE'`, ...conditions], sql` and `)}
      order by w.address limit ${size + 1}
    )
    select ${headOf(network)} as head, page.text, p.settings,
      case when (select count(*) from page) <= ${size} then (${end}) end as end
    from (select) one
    left join page on true
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = page.pool_id
    order by page.address
  `.execute(db)
  const { head, end: last } = rows[0]!
  if (head === null) return null
  const found = rows.flatMap(({ text, settings }) =>
    text === null ? [] : showLease(network, recordOfText(text), settings),
  )
  const leases = found.slice(0, size)
  return { leases, next: found.length > size ? leases.at(-1)!.address : last, head }
}

export async function readLeases(
  db: Kysely<unknown>,
  network: string,
  filter: LeaseFilter,
  page: PageByAddress,
): Promise<(LeasePage & { readonly unknownPools: readonly string[] }) | null> {
  const { walk, isBounded } = await walkFor(db, network, filter, page)
  const found = await readLeasePage(db, network, {
    from: sql`(${walk}) w join ipledger.event e on e.network_id = ${network} and e.seq = w.seq`,
    conditions: matching(network, filter),
    end: isBounded ? sql`select w.address from (${walk}) w offset ${MOST_EXAMINED - 1}` : sql`null::inet`,
    size: page.size,
  })
  if (found === null) return null
  const { rows } = await sql<{ name: string }>`
    select named.name from unnest(${filter.pools}::text[]) as named (name)
    where not exists (select from ipledger.pool p where p.network_id = ${network} and p.name = named.name)
  `.execute(db)
  return { ...found, unknownPools: rows.map(({ name }) => name) }
}

/** Address and number of the leases that are looked at, in order of address. */
async function walkFor(
  db: Kysely<unknown>,
  network: string,
  filter: LeaseFilter,
  { after }: PageByAddress,
): Promise<{ readonly walk: RawBuilder<unknown>; readonly isBounded: boolean }> {
  const { ownerName, cidr, pools } = filter
  const range = [sql`l.network_id = ${network}`]
  if (after !== null) range.push(sql`l.address > ${after}::inet`)
  if (cidr !== null) {
    range.push(
      sql`l.address >= ${unitOf(network, formatValue(cidr.family, cidr.first))}`,
      sql`l.address <= ${formatValue(cidr.family, cidr.last)}::inet`,
    )
  }
  if (pools.length > 0) {
    const named = sql`ipledger.pool p where p.network_id = ${network} and p.name = any(${pools}::text[])`
    range.push(
      sql`l.address >= (select min(host(p.cidr)::inet) from ${named})`,
      sql`l.address <= (select max(host(broadcast(p.cidr))::inet) from ${named})`,
    )
  }
  if (ownerName !== null) {
    const mine = sql`select e.address, e.seq from ipledger.event e
      where e.network_id = ${network} and e.owner_name = ${ownerName} and e.address is not null`
    const { rows } = await sql<{ events: number }>`
      select count(*) as events from (${mine} order by e.seq desc limit ${MOST_EXAMINED + 1}) m`.execute(db)
    // Of one that had more its leases are looked for among all of them.
    if (rows[0]!.events <= MOST_EXAMINED) {
      const walk = sql`select l.address, l.seq from (${mine} order by e.seq desc limit ${MOST_EXAMINED}) m
        join ipledger.lease l on l.address = m.address and l.seq = m.seq and ${sql.join(range, sql` and `)}`
      return { walk, isBounded: false }
    }
  }
  const walk = sql`select l.address, l.seq from ipledger.lease l where ${sql.join(range, sql` and `)}
    order by l.address limit ${MOST_EXAMINED}`
  return { walk, isBounded: true }
}

/** Of the event `e`, which is the last of its address. */
function matching(network: string, filter: LeaseFilter): readonly RawBuilder<unknown>[] {
  const conditions: RawBuilder<unknown>[] = []
  const { states, quarantineReasons, ownerKind, ownerName, ownerUid, node, labels, pools } = filter
  if (states.length > 0) conditions.push(sql`e.state = any(${states}::text[])`)
  if (quarantineReasons.length > 0) {
    conditions.push(sql`e.state = 'QUARANTINED' and e.quarantine_reason = any(${quarantineReasons}::text[])`)
  }
  if (ownerKind !== null) conditions.push(sql`e.owner_kind = ${ownerKind}`)
  if (ownerName !== null) conditions.push(sql`e.owner_name = ${ownerName}`)
  if (ownerUid !== null) conditions.push(sql`e.owner_uid = ${ownerUid}`)
  if (node !== null) conditions.push(sql`e.node = ${node}`)
  if (Object.keys(labels).length > 0)
    conditions.push(sql`e.labels::jsonb @> ${JSON.stringify(labels)}::jsonb`)
  if (pools.length > 0) {
    conditions.push(
      sql`e.pool_id = any(array(
        select p.pool_id from ipledger.pool p where p.network_id = ${network} and p.name = any(${pools}::text[])))`,
    )
  }
  return conditions
}

type OneRow = { head: number | null; text: string | null; settings: PoolSettings | null }

/** The lease of a token; of one that ended, how and when. */
export async function readLeaseByToken(
  db: Kysely<unknown>,
  network: string,
  token: number,
): Promise<LeaseFound | null> {
  const { rows } = await sql<OneRow>`
    select ${headOf(network)} as head, case when e.seq is not null then ipledger.event_text(e) end as text, p.settings
    from (select) one
    left join ipledger.event made
      on made.network_id = ${network} and made.seq = ${token} and made.token = made.seq
    left join ipledger.lease l on l.network_id = ${network} and l.address = made.address
    left join ipledger.event last on last.network_id = ${network} and last.seq = l.seq
    left join lateral (
      select x.seq from ipledger.event x
      where x.network_id = ${network} and x.address = made.address and x.previous >= made.seq and x.state = 'FREE'
        and last.token <> made.seq
      order by x.previous limit 1) ended on true
    left join ipledger.event e on e.network_id = ${network} and e.seq = coalesce(ended.seq, l.seq)
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = e.pool_id
  `.execute(db)
  return found(network, rows[0]!)
}

/** The lease that has an address. */
export async function readLeaseAt(
  db: Kysely<unknown>,
  network: string,
  { family, value }: IpAddress,
): Promise<LeaseFound | null> {
  const { rows } = await sql<OneRow>`
    select ${headOf(network)} as head, case when e.seq is not null then ipledger.event_text(e) end as text, p.settings
    from (select) one
    left join ipledger.lease l
      on l.network_id = ${network} and l.address = ${unitOf(network, formatValue(family, value))} and l.state <> 'FREE'
    left join ipledger.event e on e.network_id = ${network} and e.seq = l.seq
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = l.pool_id
  `.execute(db)
  return found(network, rows[0]!)
}

function found(network: string, { head, text, settings }: OneRow): LeaseFound | null {
  if (head === null) return null
  const record = text === null ? null : recordOfText(text)
  const isEnded = record?.state === 'FREE'
  const lease = record === null || isEnded ? null : showLease(network, record, settings)
  return { lease, ended: isEnded ? record : null, head }
}
