/** Networks and pools as they are now, with their usage. Each read is one statement and says the head it is true at. */
import { type Kysely, sql } from 'kysely'
import { formatCidr } from '../core/address.ts'
import type { NetworkState } from '../core/image.ts'
import { ERA_BITS } from '../core/policy.ts'
import { buildPool, type PoolSettings, poolSize } from '../core/pool.ts'
import type { NetworkAt, NetworkFilter, PoolFilter, PoolsAt, Recovery, Usage } from './reads-types.ts'

/** Number of the last event; null: there is no such network. */
export const headOf = (network: string) =>
  sql<
    number | null
  >`(select e.seq from ipledger.event e where e.network_id = ${network} order by e.seq desc limit 1)`

type NetworkRow = Omit<NetworkState, 'recovering' | 'recoveredAt' | 'createdAt' | 'updatedAt'> & {
  network_id: string
  head: number
  digest: string
  recovering: number | null
  recovering_at: number
  recovering_why: string | null
  recovered_at: number | null
  created_at: number
  updated_at: number
}

export async function readNetworks(
  db: Kysely<unknown>,
  { labels, only, after, limit }: NetworkFilter,
): Promise<readonly NetworkAt[]> {
  const conditions = [sql`true`]
  if (only !== null) conditions.push(sql`n.network_id = any(${only}::text[])`)
  if (after !== null) conditions.push(sql`n.network_id > ${after}`)
  if (Object.keys(labels).length > 0)
    conditions.push(sql`n.labels::jsonb @> ${JSON.stringify(labels)}::jsonb`)
  const { rows } = await sql<NetworkRow>`
    select n.*, last.seq as head, encode(last.digest, 'hex') as digest,
      b.at as recovering_at, b.details ->> 'why' as recovering_why
    from ipledger.network n
    cross join lateral (
      select e.seq, e.digest from ipledger.event e where e.network_id = n.network_id order by e.seq desc limit 1) last
    left join ipledger.event b on b.network_id = n.network_id and b.seq = n.recovering
    where ${sql.join(conditions, sql` and `)}
    order by n.network_id limit ${limit}
  `.execute(db)
  return rows.map((row) => ({
    name: row.network_id,
    network: networkOf(row),
    head: row.head,
    digest: row.digest,
  }))
}

function networkOf(row: NetworkRow): NetworkState {
  const { description, labels, era, identity, recovering, holds, version } = row
  return {
    description,
    labels,
    era,
    identity,
    recovering:
      recovering === null ? null : { seq: recovering, at: row.recovering_at, why: row.recovering_why ?? '' },
    recoveredAt: row.recovered_at,
    holds,
    version,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  }
}

/** As many as an answer names. */
const LISTED = 20

export async function readRecovery(db: Kysely<unknown>, network: string): Promise<Recovery | null> {
  const { rows } = await sql<Recovery>`
    with waiting as (
      select s.source_id,
        (r.era = n.era and r.epoch = s.epoch and (
          select count(*) from json_array_elements(r.counted) c where (c ->> 1)::bigint >> ${sql.lit(ERA_BITS)} = n.era) >= 2
        ) is not true as is_unreported
      from ipledger.network n
      join ipledger.source s on s.network_id = ${network} and s.state = 'ENABLED'
      left join ipledger.source_report r on r.network_id = ${network} and r.source_id = s.source_id
      where n.network_id = ${network}
    )
    select (select count(*) from waiting) as sources,
      array(select w.source_id from waiting w where w.is_unreported order by w.source_id limit ${LISTED}) as unreported
    from ipledger.network n where n.network_id = ${network} and n.recovering is not null
  `.execute(db)
  return rows[0] ?? null
}

type UsageRow = { cooling: number; reserved: number; active: number; quarantined: number }
type PoolsRow = UsageRow & {
  head: number | null
  pool_id: number | null
  settings: PoolSettings
  version: number
  created_at: number
  updated_at: number
}

export async function readPools(
  db: Kysely<unknown>,
  network: string,
  { name, poolId, labels = {}, cidr = null, after = null, limit }: PoolFilter,
): Promise<PoolsAt | null> {
  const conditions = [sql`p.network_id = ${network}`]
  if (name !== undefined) conditions.push(sql`p.name = ${name}`)
  if (poolId !== undefined) conditions.push(sql`p.pool_id = ${poolId}`)
  if (after !== null) conditions.push(sql`p.name > ${after}`)
  if (cidr !== null) conditions.push(sql`p.cidr && ${formatCidr(cidr)}::inet`)
  if (Object.keys(labels).length > 0)
    conditions.push(sql`(p.settings -> 'labels')::jsonb @> ${JSON.stringify(labels)}::jsonb`)
  const { rows } = await sql<PoolsRow>`
    with page as materialized (
      select p.* from ipledger.pool p where ${sql.join(conditions, sql` and `)} order by p.name limit ${limit}
    )
    select ${headOf(network)} as head, p.*, c.*
    from (select) one
    left join page p on true
    left join lateral (
      select count(*) filter (where t.state = 'COOLING') as cooling, count(*) filter (where t.state = 'RESERVED') as reserved,
        count(*) filter (where t.state = 'ACTIVE') as active, count(*) filter (where t.state = 'QUARANTINED') as quarantined
      from ipledger_audit.pool_touched(p.network_id, p.cidr, p.prefix_length) t) c on p.pool_id is not null
    order by p.name
  `.execute(db)
  const { head } = rows[0]!
  if (head === null) return null
  const pools = rows.flatMap((row) => {
    if (row.pool_id === null) return []
    const { settings, pool_id, version, created_at: createdAt, updated_at: updatedAt } = row
    const pool = buildPool(settings, { poolId: pool_id, version, createdAt, updatedAt })
    return { pool, usage: usageOf(poolSize(pool), row) }
  })
  return { pools, head }
}

function usageOf({ size, allocatable }: Pick<Usage, 'size' | 'allocatable'>, counts: UsageRow): Usage {
  const cooling = BigInt(counts.cooling)
  const reserved = BigInt(counts.reserved)
  const active = BigInt(counts.active)
  const quarantined = BigInt(counts.quarantined)
  const free = allocatable - cooling - reserved - active - quarantined
  return { size, allocatable, free, cooling, reserved, active, quarantined }
}
