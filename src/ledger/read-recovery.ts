/** What a network that recovers waits for: for people, since the ledger judges it anew under the lock. */
import { type Kysely, sql } from 'kysely'
import { firstSeqOfEra } from '../core/policy.ts'
import type { Tables } from '../postgres/tables.ts'

export type Recovery = {
  /** When its era began, and why. */
  readonly since: number
  readonly why: string
  /** Enabled sources. With none, only an operator ends it. */
  readonly sources: number
  /** Some of those that have not reported completely in this era, or are warming up. */
  readonly unreported: readonly string[]
  /** Some of those that have called in this era and are not registered, or in dry run: it waits for them, or for an operator. */
  readonly unknown: readonly string[]
}

/** As many as a refusal names. */
const LISTED = 20

/** Null: it does not recover, or is not there. The first event of an era is its own beginning. */
export async function readRecovery(db: Kysely<Tables>, network: string): Promise<Recovery | null> {
  const { rows } = await sql<{
    at: number
    why: string | null
    sources: number
    unreported: readonly string[]
    unknown: readonly string[]
  }>`
    with waiting as (
      select s.source_id, s.era is distinct from n.era or not s.warm as unreported
        from ipledger.network n
        join ipledger.source s on s.network_id = ${network} and s.state = 'ENABLED'
       where n.network_id = ${network} and n.state = 'RECOVERING')
    select e.at, e.evidence ->> 'why' as why,
           (select count(*) from waiting) as sources,
           array(select w.source_id from waiting w where w.unreported order by w.source_id limit ${LISTED}) as unreported,
           array(select u.source_id from ipledger.unknown_source u
                  where u.network_id = ${network} and u.era = n.era
                    and not exists (
                      select from ipledger.source s
                       where s.network_id = ${network} and s.source_id = u.source_id and s.state <> 'REGISTERED')
                  order by u.source_id limit ${LISTED}) as unknown
      from ipledger.network n
      cross join lateral (
        select b.at, b.evidence from ipledger.event b
         where b.network_id = ${network} and b.seq >= n.era * ${sql.lit(firstSeqOfEra(1))} order by b.seq limit 1) e
     where n.network_id = ${network} and n.state = 'RECOVERING'
  `.execute(db)
  const [row] = rows
  if (row === undefined) return null
  const { at: since, why, sources, unreported, unknown } = row
  return { since, why: why ?? '', sources, unreported, unknown }
}
