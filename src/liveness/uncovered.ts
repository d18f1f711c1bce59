/**
 * What a source leaves when it is retired: leases that only it could miss. They are held until somebody releases or reaps
 * them (DESIGN §4), and who retires a source should hear of it then and not by a pool that runs full.
 *
 * Counted by what sources declare, kind, family and node, and not by what they saw. So many leases are looked at and no
 * more; beyond, the answer says so.
 */
import type pg from 'pg'
import { MOST_OF_ONE } from '../ledger/rows.ts'
import { ask } from '../postgres/on-connection.ts'
import type { Source } from './source-rows.ts'

/** Leases looked at; on as many nodes, some 0.2 s of the database (not measured). */
const MOST_LOOKED_AT = 10_000

/** By node, kind and family: whether the source covered these, and whether one that is enabled does. */
const countIn = (leases: string) => `
  select coalesce(sum(g.leases), 0) > ${MOST_LOOKED_AT} as at_least,
         coalesce(sum(g.leases) filter (where g.covered and c.source_id is null), 0)::bigint as leases
    from (
      select l.node, l.owner_kind, family(l.address) as family, count(*) as leases,
             (l.owner_kind is null or l.owner_kind = any($3::text[])) and family(l.address) = any($4::int[]) as covered
        from (${leases} limit ${MOST_LOOKED_AT + 1}) l
       group by l.node, l.owner_kind, family(l.address)) g
    left join lateral (
      select s.source_id
        from unnest(array['', g.node]) as k (node)
        cross join lateral (
          select x.* from ipledger.source x
           where x.network_id = $1 and x.node >= k.node and x.node <= k.node
           order by x.node, x.source_id limit ${MOST_OF_ONE}) s
       where g.covered and s.state = 'ENABLED' and g.family = any(s.families)
         and (g.owner_kind is null or g.owner_kind = any(s.owner_kinds))
       limit 1) c on true`

// The second parameter has its place in both.
const EVERYWHERE = countIn(`
    select x.address, x.node, x.owner_kind from ipledger.lease x
     where x.network_id = $1 and $2::text = '' order by x.address`)
const ON_NODE = countIn(`
    select x.address, x.node, x.owner_kind from ipledger.lease x
     where x.network_id = $1 and x.node >= $2 and x.node <= $2 and x.node <> '' order by x.node, x.address`)

/** For the test of their plans. */
export const UNCOVERED_STATEMENTS = { uncoveredEverywhere: EVERYWHERE, uncoveredOnNode: ON_NODE } as const

export type Uncovered = { readonly leases: number; readonly atLeast: boolean }

/** Of a source that was never enabled nobody expected anything. */
export async function countUncovered(database: pg.Pool, source: Source): Promise<Uncovered> {
  const { network, node, ownerKinds, families, enabledAt } = source
  if (enabledAt === null) return { leases: 0, atLeast: false }
  const values = [network, node, ownerKinds, families]
  const text = node === '' ? EVERYWHERE : ON_NODE
  const [row] = await ask<{ leases: number; at_least: boolean }>(database, text, values)
  return { leases: row!.leases, atLeast: row!.at_least }
}
