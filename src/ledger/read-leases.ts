/**
 * Leases that are held now, for people and programs that look and do not write.
 *
 * A page is one statement, so that its leases and the head they are true at belong together. It follows the primary
 * key from the last address of the page before, so that no page skips or repeats a lease that is held throughout,
 * whatever else comes and goes. What no index answers is filtered while walking the key, at most `MOST_EXAMINED`
 * leases a page: such a page may come out short, or empty, and still not be the last.
 */
import { type Kysely, type RawBuilder, sql } from 'kysely'
import { blockBase, type Cidr, formatValue, type IpAddress, maxPrefix } from '../core/address.ts'
import type { LeaseView } from '../core/command.ts'
import { type Lease, type LeaseState, leaseId, type QuarantineReason } from '../core/lease.ts'
import type { Labels } from '../core/owner.ts'
import type { PoolOptions } from '../core/pool.ts'
import type { Tables } from '../postgres/tables.ts'
import { LEASE_COLUMNS, type LeaseRow, readAddress, readLease } from './rows.ts'

export const MOST_EXAMINED = 10_000

/** What a lease shows of its pool. Empty when the pool is gone. */
export type PoolFace = {
  readonly pool: string
  readonly subnet: string
  readonly gateway: string
  readonly options: PoolOptions
}

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
  /** Pools named by the filter that do not exist. */
  readonly unknownPools: readonly string[]
}

export type LeaseFound =
  | { readonly is: 'held'; readonly lease: LeaseView; readonly head: number }
  | {
      readonly is: 'ended'
      readonly state: 'RELEASED' | 'REAPED'
      readonly address: string
      readonly endedAt: number
    }
  | { readonly is: 'unknown'; readonly head: number }

type FaceRow = {
  pool_name: string | null
  pool_subnet: string | null
  pool_gateway: string | null
  pool_options: PoolOptions | null
}

type Nothing<T> = { [K in keyof T]: null }
type PageRow = { head: number | null; bound: string | null; unknown_pools: string[] } & (
  | (LeaseRow & FaceRow)
  | Nothing<LeaseRow & FaceRow>
)

const LEASE = sql.raw(LEASE_COLUMNS.map((column) => `l.${column}`).join(', '))
const PAGE = sql.raw(LEASE_COLUMNS.map((column) => `page.${column}`).join(', '))
const FACE = sql.raw(
  `p.pool_id, p.name as pool_name, p.settings->>'subnet' as pool_subnet,
   p.settings->>'gateway' as pool_gateway, p.settings->'options' as pool_options`,
)
const HIGHEST = sql`'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'::inet`
const NO_OPTIONS: PoolOptions = { routes: [], dns: [], mtu: 0 }

/** Null: there is no such network. */
export async function readLeases(
  db: Kysely<Tables>,
  network: string,
  filter: LeaseFilter,
  page: { readonly after: string | null; readonly size: number },
): Promise<LeasePage | null> {
  const { start, indexed, filtered } = conditions(network, filter)
  if (page.after !== null) start.push(sql`l.address > ${page.after}::inet`)
  const walked = sql.join([...start, ...indexed.conditions], sql` and `)
  const bounded = indexed.selective || filtered.length === 0 ? null : walked
  const matching = [walked, ...filtered]
  if (bounded !== null) matching.push(sql`l.address <= coalesce((select address from bound), ${HIGHEST})`)
  const { rows } = await sql<PageRow>`
    with recursive ${indexed.with}
    bound as (${
      bounded === null
        ? sql`select null::inet as address`
        : sql`select l.address from ipledger.lease l where ${bounded}
              order by l.address offset ${MOST_EXAMINED - 1} limit 1`
    }),
    page as (
      select ${LEASE} from ipledger.lease l
      where ${sql.join(matching, sql` and `)}
      order by l.address limit ${page.size + 1}
    ),
    face as materialized (
      select ${FACE} from ipledger.pool p
      where p.network_id = ${network} and p.pool_id = any(array(select distinct pool_id from page))
    )
    select head.seq as head, (select address from bound) as bound,
      array(
        select name from unnest(${filter.pools}::text[]) as name
        where not exists (select from ipledger.pool p where p.network_id = ${network} and p.name = name.name)
      ) as unknown_pools,
      ${PAGE}, face.pool_name, face.pool_subnet, face.pool_gateway, face.pool_options
    from (select max(seq) as seq from ipledger.event where network_id = ${network}) head
    left join page on true
    left join face on face.pool_id = page.pool_id
    order by page.address
  `.execute(db)
  const { head, bound, unknown_pools: unknownPools } = rows[0]!
  if (head === null) return null
  const found = rows.filter((row) => row.address !== null)
  const leases = found.slice(0, page.size).map((row) => showLease(readLease(row), faceOf(row)))
  const next = found.length > page.size ? leases.at(-1)!.address : bound === null ? null : readAddress(bound)
  return { leases, next, head, unknownPools }
}

type Conditions = {
  /** Where the walk begins and ends. */
  readonly start: RawBuilder<unknown>[]
  /** What an index answers; selective: so few leases that the walk needs no bound. */
  readonly indexed: {
    readonly with: RawBuilder<unknown>
    readonly conditions: readonly RawBuilder<unknown>[]
    readonly selective: boolean
  }
  readonly filtered: readonly RawBuilder<unknown>[]
}

function conditions(network: string, filter: LeaseFilter): Conditions {
  const start: RawBuilder<unknown>[] = [sql`l.network_id = ${network}`]
  const filtered: RawBuilder<unknown>[] = []
  if (filter.cidr !== null) {
    const { family, first, last } = filter.cidr
    const from = formatValue(family, first)
    const text = `${from}/${filter.cidr.prefixLength}`
    // Leases do not overlap: of those that begin before the range only the nearest can reach into it.
    start.push(
      sql`l.address >= coalesce((select b.address from ipledger.lease b
        where b.network_id = ${network} and b.address <= ${from}::inet order by b.address desc limit 1), ${from}::inet)`,
      sql`l.address <= ${formatValue(family, last)}::inet`,
    )
    filtered.push(sql`set_masklen(l.address, l.prefix_length) && ${text}::inet`)
  }
  if (filter.pools.length > 0) {
    const named = sql`ipledger.pool p where p.network_id = ${network} and p.name = any(${filter.pools}::text[])`
    start.push(
      sql`l.address >= (select min(host(p.cidr)::inet) from ${named})`,
      sql`l.address <= (select max(host(broadcast(p.cidr))::inet) from ${named})`,
    )
    filtered.push(sql`l.pool_id = any(array(select p.pool_id from ${named}))`)
  }
  if (filter.states.length > 0) filtered.push(sql`l.state = any(${filter.states}::text[])`)
  if (filter.quarantineReasons.length > 0) {
    filtered.push(sql`l.quarantine_reason = any(${filter.quarantineReasons}::text[])`)
  }
  if (filter.ownerKind !== null) filtered.push(sql`l.owner_kind = ${filter.ownerKind}`)
  if (filter.ownerUid !== null) filtered.push(sql`l.owner_uid = ${filter.ownerUid}`)
  if (Object.keys(filter.labels).length > 0) {
    filtered.push(sql`l.labels @> ${JSON.stringify(filter.labels)}::jsonb`)
  }
  if (filter.ownerName !== null && filter.node !== null) filtered.push(sql`l.node = ${filter.node}`)
  return { start, indexed: indexFor(network, filter), filtered }
}

function indexFor(network: string, filter: LeaseFilter): Conditions['indexed'] {
  if (filter.ownerName !== null) {
    return {
      with: holderPrefixes(network, filter.ownerKind),
      conditions: [
        sql`l.holder_key = any(array(
        select prefix || '|' || ${filter.ownerName} from holder_prefix where prefix is not null))`,
      ],
      selective: true,
    }
  }
  if (filter.node !== null) {
    return {
      with: sql``,
      conditions: [sql`l.node <> ''`, sql`l.node = ${filter.node}`],
      selective: false,
    }
  }
  const quarantined =
    filter.quarantineReasons.length > 0 ||
    (filter.states.length > 0 && filter.states.every((state) => state === 'QUARANTINED'))
  if (quarantined) {
    // Quarantines are few and have an index of their own; walking everybody's leases for them is not worth it.
    return {
      with: sql`quarantined as materialized (
        select address from ipledger.lease where network_id = ${network} and state = 'QUARANTINED'),`,
      conditions: [sql`l.address = any(array(select address from quarantined))`],
      selective: true,
    }
  }
  return { with: sql``, conditions: [], selective: false }
}

/**
 * The `kind|interface` that holders of the network's leases have: a handful, found by skipping along the index from
 * one to the next. With them a holder is found by name alone. Kind and interface hold no `|`, whose successor is `}`.
 */
function holderPrefixes(network: string, kind: string | null): RawBuilder<unknown> {
  const within =
    kind === null ? sql`` : sql`and h.holder_key >= ${`${kind}|`} and h.holder_key < ${`${kind}}`}`
  const prefix = sql`split_part(h.holder_key, '|', 1) || '|' || split_part(h.holder_key, '|', 2)`
  return sql`holder_prefix as (
      (select ${prefix} as prefix from ipledger.lease h
       where h.network_id = ${network} and h.holder_key is not null ${within}
       order by h.holder_key limit 1)
      union all
      select (select ${prefix} from ipledger.lease h
              where h.network_id = ${network} and h.holder_key >= holder_prefix.prefix || '}' ${within}
              order by h.holder_key limit 1)
      from holder_prefix where holder_prefix.prefix is not null
    ),`
}

type OneRow = {
  head: number | null
  ended_type: 'lease.released' | 'lease.reaped' | null
  ended_at: number | null
  created_at_address: string | null
} & ((LeaseRow & FaceRow) | Nothing<LeaseRow & FaceRow>)

/** The lease of a token; of one that ended, how and when. Null: there is no such network. */
export async function readLeaseByToken(
  db: Kysely<Tables>,
  network: string,
  token: number,
): Promise<LeaseFound | null> {
  const { rows } = await sql<OneRow>`
    select head.seq as head, created.address as created_at_address,
      ended.type as ended_type, ended.at as ended_at, ${LEASE},
      p.name as pool_name, p.settings->>'subnet' as pool_subnet,
      p.settings->>'gateway' as pool_gateway, p.settings->'options' as pool_options
    from (select max(seq) as seq from ipledger.event where network_id = ${network}) head
    left join ipledger.event created on created.network_id = ${network} and created.seq = ${token}
      and created.fencing_token = created.seq
    left join ipledger.lease l on l.network_id = ${network} and l.address = created.address
      and l.fencing_token = ${token}
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = l.pool_id
    left join lateral (
      select e.type, e.at from ipledger.event e
      where e.network_id = ${network} and e.address = created.address and e.seq >= ${token}
        and e.type in ('lease.released', 'lease.reaped') and l.address is null
      order by e.seq limit 1) ended on true
  `.execute(db)
  const row = rows[0]!
  if (row.head === null) return null
  if (row.address !== null) {
    return { is: 'held', lease: showLease(readLease(row), faceOf(row)), head: row.head }
  }
  if (row.ended_type === null) return { is: 'unknown', head: row.head }
  return {
    is: 'ended',
    state: row.ended_type === 'lease.released' ? 'RELEASED' : 'REAPED',
    address: readAddress(row.created_at_address!),
    endedAt: row.ended_at!,
  }
}

/** The lease that covers an address. Null: there is no such network. */
export async function readLeaseAt(
  db: Kysely<Tables>,
  network: string,
  address: IpAddress,
): Promise<LeaseFound | null> {
  const text = formatValue(address.family, address.value)
  const { rows } = await sql<{ head: number | null } & ((LeaseRow & FaceRow) | Nothing<LeaseRow & FaceRow>)>`
    select head.seq as head, ${LEASE}, p.name as pool_name, p.settings->>'subnet' as pool_subnet,
      p.settings->>'gateway' as pool_gateway, p.settings->'options' as pool_options
    from (select max(seq) as seq from ipledger.event where network_id = ${network}) head
    left join lateral (
      select * from ipledger.lease
      where network_id = ${network} and address <= ${text}::inet order by address desc limit 1) l on true
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = l.pool_id
  `.execute(db)
  const row = rows[0]!
  if (row.head === null) return null
  if (row.address === null) return { is: 'unknown', head: row.head }
  const lease = readLease(row)
  const covers =
    row.address.includes(':') === (address.family === 6) &&
    formatValue(address.family, blockBase(address.family, address.value, lease.prefixLength)) ===
      lease.address
  return covers
    ? { is: 'held', lease: showLease(lease, faceOf(row)), head: row.head }
    : { is: 'unknown', head: row.head }
}

/** Every address at which a block that contains this one can begin. */
export function possibleBases(address: IpAddress): readonly string[] {
  const bases = new Set<string>()
  for (let prefixLength = 0; prefixLength <= maxPrefix(address.family); prefixLength++) {
    bases.add(formatValue(address.family, blockBase(address.family, address.value, prefixLength)))
  }
  return [...bases]
}

function faceOf(row: FaceRow): PoolFace {
  return {
    pool: row.pool_name ?? '',
    subnet: row.pool_subnet ?? '',
    gateway: row.pool_gateway ?? '',
    options: row.pool_options ?? NO_OPTIONS,
  }
}

/** The lease as callers see it. */
export function showLease(lease: Lease, face: PoolFace): LeaseView {
  return {
    ...lease,
    ...face,
    leaseId: leaseId(lease.network, lease.fencingToken),
    endedAt: null,
    availableAt: null,
    reused: false,
  }
}
