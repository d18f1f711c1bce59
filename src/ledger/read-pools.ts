/** Networks and pools as they are now, with their usage. Each read is one statement and says the head it is true at. */
import { sql } from 'kysely'
import { type Cidr, formatCidr } from '../core/address.ts'
import type { NetworkState, PoolState } from '../core/image.ts'
import type { Labels } from '../core/owner.ts'
import { buildPool, type Pool, poolSize } from '../core/pool.ts'
import { type Db, MOST_EXAMINED } from './read-db.ts'
import { headOf, lastEvent } from './sql/head.ts'
import { NETWORK_ROWS, networkOf, poolOf, type Row } from './tables.ts'

type NetworkFilter = {
  readonly labels: Labels
  /** Only these; null: all. */
  readonly only: readonly string[] | null
  /** Last name of the page before. */
  readonly after: string | null
  readonly limit: number
}

export type NetworkAt = {
  readonly name: string
  readonly network: NetworkState
  readonly head: number
  /** Of the event `head`, in hexadecimal. */
  readonly digest: string
}

/** By name. */
export async function readNetworks(
  db: Db,
  { labels, only, after, limit }: NetworkFilter,
): Promise<readonly NetworkAt[]> {
  const { rows } = await sql<Row & Pick<NetworkAt, 'name' | 'head' | 'digest'>>`
    select n.*, n.network_id as name, last.seq as head, encode(last.digest, 'hex') as digest
    from (${sql.raw(NETWORK_ROWS)}) n
    cross join lateral (${sql.raw(lastEvent('n.network_id', 'e.seq, e.digest'))}) last
    where (${only}::text[] is null or n.network_id = any(${only}::text[])) and n.network_id > ${after ?? ''}
      and n.labels::jsonb @> ${JSON.stringify(labels)}::jsonb
    order by n.network_id limit ${limit}
  `.execute(db)
  return rows.map(({ name, head, digest, ...row }) => ({ name, network: networkOf(row), head, digest }))
}

type PoolFilter = {
  readonly name?: string | null
  readonly poolId?: number | null
  readonly labels?: Labels
  /** Only pools that overlap it. */
  readonly cidr?: Cidr | null
  readonly after?: string | null
  readonly limit: number
}

/** free + cooling + reserved + active + quarantined + (size - allocatable) = size. */
export type Usage = Readonly<
  Record<'size' | 'allocatable' | 'free' | 'cooling' | 'reserved' | 'active' | 'quarantined', bigint>
>
export type Counts = Record<'cooling' | 'reserved' | 'active' | 'quarantined', number>

export type PoolUsage = { readonly pool: Pool; readonly usage: Usage }

/** Of a pool, or of a part of one, `p`. */
export const COUNTS = `
  select count(*) filter (where t.state = 'COOLING') as cooling, count(*) filter (where t.state = 'RESERVED') as reserved,
    count(*) filter (where t.state = 'ACTIVE') as active, count(*) filter (where t.state = 'QUARANTINED') as quarantined
  from ipledger_audit.pool_touched(p.network_id, p.cidr, p.prefix_length) t`

/** The same minute is sampled once, by the first process. */
export const SAMPLE_POOLS = `
  insert into ipledger.pool_sample (network_id, pool_id, at, size, excluded, free, cooling, reserved, active, quarantined)
  select p.network_id, p.pool_id, m.at, s.size, s.size - s.allocatable,
         s.allocatable - c.cooling - c.reserved - c.active - c.quarantined, c.cooling, c.reserved, c.active, c.quarantined
    from ipledger.pool p
    join json_to_recordset($2) as s (pool_id bigint, size numeric, allocatable numeric) on s.pool_id = p.pool_id
   cross join date_trunc('minute', now()) as m (at)
   cross join lateral (${COUNTS}) c
   where p.network_id = $1
     and not exists (
       select from ipledger.pool_sample o where o.network_id = p.network_id and o.pool_id = p.pool_id and o.at = m.at)
      on conflict (network_id, pool_id, at) do nothing
  returning pool_id`

/** Their sizes, as SAMPLE_POOLS takes them. */
export function sizesOf(pools: Iterable<PoolState>): string {
  const sizes = Array.from(pools, ({ pool }) => ({ pool_id: pool.poolId, ...poolSize(pool) }))
  return JSON.stringify(sizes, (_, value) => (typeof value === 'bigint' ? String(value) : value))
}

/** In order of name. */
export async function readPools(
  db: Db,
  network: string,
  { name = null, poolId = null, labels = {}, cidr = null, after = null, limit }: PoolFilter,
): Promise<{ readonly pools: readonly PoolUsage[]; readonly head: number } | null> {
  const { rows } = await sql<Row & Counts & { head: number | null }>`
    with page as materialized (
      select p.* from ipledger.pool p
      where p.network_id = ${network} and p.name = coalesce(${name}, p.name) and p.pool_id = coalesce(${poolId}, p.pool_id)
        and p.cidr && coalesce(${cidr && formatCidr(cidr)}::inet, p.cidr) and p.name > ${after ?? ''}
        and (p.settings -> 'labels')::jsonb @> ${JSON.stringify(labels)}::jsonb
      order by p.name limit ${limit}
    )
    select ${headOf(network)} as head, p.*, c.*
    from (select) one
    left join page p on true
    left join lateral (${sql.raw(COUNTS)}) c on p.pool_id is not null
    order by p.name
  `.execute(db)
  const { head } = rows[0]!
  if (head === null) return null
  const pools = rows.flatMap((row) => {
    if (row.pool_id === null) return []
    const { settings, ...at } = poolOf(row)
    const pool = buildPool(settings!, at)
    return { pool, usage: usageOf(poolSize(pool), row) }
  })
  return { pools, head }
}

function usageOf({ size, allocatable }: Pick<Usage, 'size' | 'allocatable'>, counts: Counts): Usage {
  const cooling = BigInt(counts.cooling)
  const reserved = BigInt(counts.reserved)
  const active = BigInt(counts.active)
  const quarantined = BigInt(counts.quarantined)
  const free = allocatable - cooling - reserved - active - quarantined
  return { size, allocatable, free, cooling, reserved, active, quarantined }
}

/** How far back events are counted. */
const RATE_MS = 300_000

type TrendFilter = {
  readonly pool: string | null
  readonly after: string | null
  readonly limit: number
  /** Milliseconds; samples are of `steps` equal parts of the time between. */
  readonly from: number
  readonly to: number
  readonly steps: number
}

export type Trend = {
  readonly pool: string
  readonly cidr: string
  readonly leasesPerHour: number
  readonly exhaustedInMs: number | null
  readonly made: number
  readonly ended: number
  readonly samples: readonly { readonly time: number; readonly usage: Usage }[]
}

/** In order of name. */
export async function readTrends(
  db: Db,
  network: string,
  { pool, after, limit, from, to, steps }: TrendFilter,
): Promise<{ readonly trends: readonly Trend[]; readonly countedFrom: number } | null> {
  const { rows } = await sql<Omit<Trend, 'samples'> & { poolId: number; countedFrom: number }>`
    with head as materialized (select ${headOf(network)} as seq),
    counted as materialized (
      select greatest(now() - ${RATE_MS} * interval '1 millisecond', (
        select e.at from ipledger.event e where e.network_id = ${network} and e.seq <= h.seq - ${MOST_EXAMINED} order by e.seq desc limit 1)) as since
      from head h where h.seq is not null
    ),
    rate as materialized (
      select e.pool_id, count(*) filter (where e.seq = e.token) as made, count(*) filter (where e.state = 'FREE') as ended
      from ipledger.event e
      where e.network_id = ${network} and e.seq > (select h.seq from head h) - ${MOST_EXAMINED} and e.at > (select c.since from counted c)
        and e.address is not null
      group by e.pool_id
    )
    select c.since as "countedFrom", p.pool_id as "poolId", p.name as pool, p.cidr::text as cidr, greatest(0, round(f.leases_per_hour))::int as "leasesPerHour",
      extract(epoch from f.exhausted_in)::float8 * 1000 as "exhaustedInMs", coalesce(r.made, 0) as made, coalesce(r.ended, 0) as ended
    from counted c
    left join (
      select x.* from ipledger.pool x
      where x.network_id = ${network} and x.name = coalesce(${pool}, x.name) and x.name > ${after ?? ''}
      order by x.name limit ${limit}) p on true
    left join ipledger_audit.pool_forecast f on f.network = ${network} and f.pool = p.name
    left join rate r on r.pool_id = p.pool_id
    order by p.name`.execute(db)
  if (rows[0] === undefined) return null
  const pools = rows.filter(({ poolId }) => poolId !== null)
  const samples = await readSamples(db, network, { ids: pools.map(({ poolId }) => poolId), from, to, steps })
  const trends = pools.map(({ poolId, ...trend }) => ({ ...trend, samples: samples.get(poolId) ?? [] }))
  return { trends, countedFrom: rows[0].countedFrom }
}

type Sampled = Pick<TrendFilter, 'from' | 'to' | 'steps'> & { readonly ids: readonly number[] }

/** Of each step the last sample, by pool. */
async function readSamples(db: Db, network: string, { ids, from, to, steps }: Sampled) {
  if (steps === 0) return new Map<number, Trend['samples']>()
  const { rows } = await sql<Counts & { poolId: number; at: number; size: string; allocatable: string }>`
    select distinct on (s.pool_id, step) s.pool_id as "poolId", s.at, s.size::text, s.allocatable::text, s.cooling::float8, s.reserved, s.active,
      s.quarantined, width_bucket(extract(epoch from s.at) * 1000, ${from}::float8, ${to + 1}::float8, ${steps}::int) as step
    from ipledger_audit.pool_samples s
    where s.network = ${network} and s.pool_id = any(${ids}::bigint[])
      and s.at >= to_timestamp(${from}::float8 / 1000) and s.at <= to_timestamp(${to}::float8 / 1000)
    order by s.pool_id, step, s.at desc`.execute(db)
  const shown = rows.map(({ poolId, at, size, allocatable, ...counts }) => {
    const usage = usageOf({ size: BigInt(size), allocatable: BigInt(allocatable) }, counts)
    return { poolId, time: at, usage }
  })
  return Map.groupBy(shown, ({ poolId }) => poolId)
}
