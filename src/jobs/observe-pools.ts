/**
 * How full pools are, once a minute, for charts. The same minute is sampled once, whoever comes first. One after the
 * other: a pool costs a look at its last position and a count of what is cooling in it.
 */
import { poolSize } from '../core/pool.ts'
import { POOL_COLUMNS, type PoolRow, readPool } from '../ledger/rows.ts'
import { type Done, inEachNetwork, type Job, type JobContext } from './job.ts'

const PAGE = 200

const USED = `
  select ${POOL_COLUMNS.map((column) => `p.${column}`).join(', ')},
         coalesce(x.reserved, 0) as reserved, coalesce(x.active, 0) as active, coalesce(x.quarantined, 0) as quarantined,
         (select count(*) from (
            select r.address from ipledger.released_address r
             where r.network_id = $1 and r.pool_id = p.pool_id and r.available_at > now()
             order by r.available_at offset 0) c) as cooling
    from (
      select o.* from ipledger.pool o where o.network_id = $1 and o.pool_id > $2 order by o.pool_id limit $3) p
    left join lateral (
      select q.reserved, q.active, q.quarantined from ipledger.pool_position q
       where q.network_id = $1 and q.pool_id = p.pool_id order by q.seq desc limit 1) x on true
   order by p.pool_id`

const KEEP = `
  insert into ipledger.pool_sample
    (network_id, pool_id, at, size, allocatable, cooling, reserved, active, quarantined, excluded)
  select $1, v.pool_id, date_trunc('minute', now()), v.size, v.allocatable, v.cooling, v.reserved, v.active, v.quarantined,
         v.size - v.allocatable
    from unnest($2::bigint[], $3::numeric[], $4::numeric[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
         as v (pool_id, size, allocatable, cooling, reserved, active, quarantined)
  on conflict (network_id, pool_id, at) do nothing`

/** For the test of their plans. */
export const OBSERVE_STATEMENTS = { observeUsed: USED, observeKeep: KEEP } as const

type UsedRow = PoolRow & {
  readonly cooling: number
  readonly reserved: number
  readonly active: number
  readonly quarantined: number
}

export const observePools: Job = (context) =>
  inEachNetwork(context, (network) => observeNetwork(context, network))

async function observeNetwork({ database, signal }: JobContext, network: string): Promise<Done> {
  let sampled = 0
  for (let after = 0; !signal.aborted; ) {
    const { rows } = await database.query<UsedRow>(USED, [network, after, PAGE])
    if (rows.length === 0) break
    const sizes = rows.map((row) => poolSize(readPool(row)))
    const { rowCount } = await database.query(KEEP, [
      network,
      rows.map((row) => row.pool_id),
      sizes.map(({ size }) => String(size)),
      sizes.map(({ allocatable }) => String(allocatable)),
      rows.map((row) => row.cooling),
      rows.map((row) => row.reserved),
      rows.map((row) => row.active),
      rows.map((row) => row.quarantined),
    ])
    sampled += rowCount ?? 0
    if (rows.length < PAGE) break
    after = rows.at(-1)!.pool_id
  }
  return { sampled }
}
