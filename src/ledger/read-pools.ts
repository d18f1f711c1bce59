/** Networks and pools as they are now, with their usage. Each read is one statement and says the head it is true at. */
import { type Kysely, sql } from 'kysely'
import { type Cidr, formatCidr } from '../core/address.ts'
import type { Network } from '../core/network.ts'
import type { Labels } from '../core/owner.ts'
import { type Pool, poolSize } from '../core/pool.ts'
import type { Tables } from '../postgres/tables.ts'
import {
  NETWORK_COLUMNS,
  type NetworkRow,
  POOL_COLUMNS,
  type PoolRow,
  readNetwork,
  readPool,
} from './rows.ts'

export type NetworkAt = { readonly network: Network; readonly head: number }

/** Leases, not addresses; free + cooling + reserved + active + quarantined + excluded = size. */
export type Usage = {
  readonly size: bigint
  readonly allocatable: bigint
  readonly free: bigint
  readonly cooling: number
  readonly reserved: number
  readonly active: number
  readonly quarantined: number
}

export type PoolUsage = { readonly pool: Pool; readonly usage: Usage }
export type PoolsAt = { readonly pools: readonly PoolUsage[]; readonly head: number }

/** Networks by name; `only` limits them to what a caller may see. */
export async function readNetworks(
  db: Kysely<Tables>,
  filter: {
    readonly name?: string
    readonly labels: Labels
    readonly only: readonly string[] | null
    readonly after: string | null
    readonly limit: number
  },
): Promise<readonly NetworkAt[]> {
  let query = db
    .withSchema('ipledger')
    .selectFrom('network as n')
    .select(NETWORK_COLUMNS)
    .select(
      sql<number>`(select max(e.seq) from ipledger.event e where e.network_id = n.network_id)`.as('head'),
    )
    .orderBy('n.network_id')
    .limit(filter.limit)
  if (filter.name !== undefined) query = query.where('n.network_id', '=', filter.name)
  if (filter.only !== null) query = query.where('n.network_id', '=', sql<string>`any(${filter.only}::text[])`)
  if (filter.after !== null) query = query.where('n.network_id', '>', filter.after)
  if (Object.keys(filter.labels).length > 0) {
    query = query.where(sql<boolean>`n.labels @> ${JSON.stringify(filter.labels)}::jsonb`)
  }
  const rows: readonly (NetworkRow & { head: number })[] = await query.execute()
  return rows.map((row) => ({ network: readNetwork(row), head: row.head }))
}

const POOL = sql.raw(POOL_COLUMNS.map((column) => `p.${column}`).join(', '))

type UsageRow = {
  cooling: number
  reserved: number
  active: number
  quarantined: number
}
type PoolsRow = { head: number | null } & ((PoolRow & UsageRow) | { [K in keyof (PoolRow & UsageRow)]: null })

/** Pools by name. Null: there is no such network. */
export async function readPools(
  db: Kysely<Tables>,
  network: string,
  filter: {
    readonly name?: string
    readonly poolId?: number
    readonly labels?: Labels
    readonly cidr?: Cidr | null
    readonly after?: string | null
    readonly limit: number
  },
): Promise<PoolsAt | null> {
  const conditions = [sql`p.network_id = ${network}`]
  const { name, poolId, labels = {}, cidr = null, after = null } = filter
  if (name !== undefined) conditions.push(sql`p.name = ${name}`)
  if (poolId !== undefined) conditions.push(sql`p.pool_id = ${poolId}`)
  if (after !== null) conditions.push(sql`p.name > ${after}`)
  if (cidr !== null) conditions.push(sql`p.cidr && ${formatCidr(cidr)}::inet`)
  if (Object.keys(labels).length > 0) {
    conditions.push(sql`(p.settings->'labels')::jsonb @> ${JSON.stringify(labels)}::jsonb`)
  }
  const { rows } = await sql<PoolsRow>`
    with page as (
      select ${POOL} from ipledger.pool p where ${sql.join(conditions, sql` and `)}
      order by p.name limit ${filter.limit}
    )
    select head.seq as head, ${POOL},
      coalesce(x.reserved, 0) as reserved, coalesce(x.active, 0) as active,
      coalesce(x.quarantined, 0) as quarantined,
      (select count(*) from ipledger.released_address r
       where r.network_id = ${network} and r.pool_id = p.pool_id and r.available_at > now()) as cooling
    from (select max(seq) as seq from ipledger.event where network_id = ${network}) head
    left join page p on true
    left join lateral (
      select q.reserved, q.active, q.quarantined from ipledger.pool_position q
      where q.network_id = ${network} and q.pool_id = p.pool_id
      order by q.seq desc limit 1) x on true
    order by p.name
  `.execute(db)
  const { head } = rows[0]!
  if (head === null) return null
  const pools: PoolUsage[] = []
  for (const row of rows) {
    if (row.pool_id === null) continue
    const pool = readPool(row)
    pools.push({ pool, usage: usageOf(pool, row) })
  }
  return { pools, head }
}

function usageOf(pool: Pool, counts: UsageRow): Usage {
  const { size, allocatable } = poolSize(pool)
  const { cooling, reserved, active, quarantined } = counts
  return {
    size,
    allocatable,
    free: allocatable - BigInt(cooling + reserved + active + quarantined),
    cooling,
    reserved,
    active,
    quarantined,
  }
}
