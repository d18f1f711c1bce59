/**
 * Events of a network by number, upwards or downwards. One statement a page, and as with leases: what no index answers
 * is filtered while walking the log, at most `MOST_EXAMINED` events a page.
 */
import { type Kysely, type RawBuilder, sql } from 'kysely'
import { type Cidr, formatCidr, formatValue, type IpAddress } from '../core/address.ts'
import type { EventType, LedgerEvent } from '../core/event.ts'
import type { Tables } from '../postgres/tables.ts'
import { MOST_EXAMINED, type PoolFace, possibleBases } from './read-leases.ts'
import { EVENT_COLUMNS, type EventRow, readEvent } from './rows.ts'

export type EventFilter = {
  /** Exclusive. */
  readonly afterSeq: number
  /** Exclusive. */
  readonly beforeSeq: number | null
  readonly address: IpAddress | null
  readonly cidr: Cidr | null
  readonly ownerKind: string | null
  readonly ownerName: string | null
  readonly token: number | null
  readonly types: readonly EventType[]
}

/** An event, and what its pool is called at present. */
export type EventShown = { readonly event: LedgerEvent; readonly face: Omit<PoolFace, 'options'> }

export type EventPage = {
  readonly events: readonly EventShown[]
  /** Number after which the next page goes on; null after the last one. */
  readonly next: number | null
  readonly head: number
}

type ShownRow = EventRow & {
  pool_name: string | null
  pool_subnet: string | null
  pool_gateway: string | null
}
type PageRow = { head: number | null; bound: number | null } & (ShownRow | { [K in keyof ShownRow]: null })

const EVENT = sql.raw(EVENT_COLUMNS.map((column) => `e.${column}`).join(', '))
const PAGE = sql.raw(EVENT_COLUMNS.map((column) => `page.${column}`).join(', '))

/** Null: there is no such network. */
export async function readEvents(
  db: Kysely<Tables>,
  network: string,
  filter: EventFilter,
  page: { readonly descending: boolean; readonly size: number },
): Promise<EventPage | null> {
  const order = page.descending ? sql`desc` : sql`asc`
  const start = [sql`e.network_id = ${network}`, sql`e.seq > ${filter.afterSeq}`]
  if (filter.beforeSeq !== null) start.push(sql`e.seq < ${filter.beforeSeq}`)
  const { indexed, filtered, selective } = conditions(network, filter)
  const walked = sql.join([...start, ...indexed], sql` and `)
  const matching = [walked, ...filtered]
  const bounded = !selective && filtered.length > 0
  if (bounded) {
    matching.push(
      page.descending
        ? sql`e.seq >= coalesce((select seq from bound), 0)`
        : sql`e.seq <= coalesce((select seq from bound), ${Number.MAX_SAFE_INTEGER})`,
    )
  }
  const { rows } = await sql<PageRow>`
    with bound as (${
      bounded
        ? sql`select e.seq from ipledger.event e where ${walked}
              order by e.seq ${order} offset ${MOST_EXAMINED - 1} limit 1`
        : sql`select null::bigint as seq`
    }),
    page as (
      select ${EVENT} from ipledger.event e
      where ${sql.join(matching, sql` and `)}
      order by e.seq ${order} limit ${page.size + 1}
    ),
    face as materialized (
      select p.pool_id, p.name as pool_name, p.settings->>'subnet' as pool_subnet,
        p.settings->>'gateway' as pool_gateway
      from ipledger.pool p
      where p.network_id = ${network} and p.pool_id = any(array(select distinct pool_id from page))
    )
    select head.seq as head, (select seq from bound) as bound, ${PAGE},
      face.pool_name, face.pool_subnet, face.pool_gateway
    from (select max(seq) as seq from ipledger.event where network_id = ${network}) head
    left join page on true
    left join face on face.pool_id = page.pool_id
    order by page.seq ${order}
  `.execute(db)
  const { head, bound } = rows[0]!
  if (head === null) return null
  const found = rows.filter((row) => row.seq !== null)
  const events = found.slice(0, page.size).map((row) => ({
    event: readEvent(row),
    face: { pool: row.pool_name ?? '', subnet: row.pool_subnet ?? '', gateway: row.pool_gateway ?? '' },
  }))
  return { events, next: found.length > page.size ? events.at(-1)!.event.seq : bound, head }
}

type Conditions = {
  readonly indexed: readonly RawBuilder<unknown>[]
  readonly filtered: readonly RawBuilder<unknown>[]
  /** So few events that the walk needs no bound. */
  readonly selective: boolean
}

function conditions(network: string, filter: EventFilter): Conditions {
  const indexed: RawBuilder<unknown>[] = []
  const filtered: RawBuilder<unknown>[] = []
  let selective = false
  if (filter.token !== null) {
    indexed.push(
      sql`e.address = (select c.address from ipledger.event c
        where c.network_id = ${network} and c.seq = ${filter.token})`,
    )
    filtered.push(sql`e.fencing_token = ${filter.token}`)
    selective = true
  }
  if (filter.address !== null) {
    const { family, value } = filter.address
    indexed.push(sql`e.address = any(${possibleBases(filter.address)}::inet[])`)
    filtered.push(sql`set_masklen(e.address, e.prefix_length) >>= ${formatValue(family, value)}::inet`)
    selective = true
  }
  if (filter.ownerName !== null) indexed.push(sql`e.owner_name = ${filter.ownerName}`)
  if (filter.ownerKind !== null) filtered.push(sql`e.owner_kind = ${filter.ownerKind}`)
  if (filter.cidr !== null) {
    filtered.push(sql`set_masklen(e.address, e.prefix_length) && ${formatCidr(filter.cidr)}::inet`)
  }
  if (filter.types.length > 0) filtered.push(sql`e.type = any(${filter.types}::text[])`)
  return { indexed, filtered, selective }
}
