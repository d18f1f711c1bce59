/**
 * Callers that report for a source which the books do not know, or know only in dry run, while these recover: the source may
 * have been registered, or enabled, after the copy was made that they are restored from (12.1, calico#4374). What it sees is kept by nothing, so the end of
 * the recovery waits until somebody has registered and enabled it and it has reported, or ends it by hand.
 *
 * Whoever calls has the right to report; that the source is one, an operator says. So many are remembered and no more:
 * as long as one of them is left the network is closed, and the rest is heard again with its next call.
 *
 * Nothing is decided by it but the wait. In a network that is READY nobody is remembered; the job that prunes removes what
 * is left.
 */
import type pg from 'pg'
import { OF_NETWORK } from '../ledger/append.ts'
import { ask } from '../postgres/on-connection.ts'

/** Of one network. As many rows are walked with each batch that asks what a recovery waits for. */
const MOST_UNKNOWN = 1_000

const IS_KNOWN = (id: string, where = 'true') => `exists (
           select from (
             select s.state from ipledger.source s
              where s.network_id = $1 and s.source_id >= ${id} and s.source_id <= ${id} order by s.source_id limit 1) s
            where ${where})`

const REMEMBER = `
  insert into ipledger.unknown_source as u (network_id, source_id, era, node, heard_from, first_at, last_at)
  select $1, $2, n.era, $3, $4, clock_timestamp(), clock_timestamp()
    from ipledger.network n
   where n.network_id = $1 and n.state = 'RECOVERING' and not ${IS_KNOWN('$2', "s.state <> 'REGISTERED'")}
     and ((select count(*) from (select 1 from ipledger.unknown_source x where x.network_id = $1 limit ${MOST_UNKNOWN}) few) < ${MOST_UNKNOWN}
       or exists (select from ipledger.unknown_source x where x.network_id = $1 and x.source_id = $2))
  on conflict (network_id, source_id) do update
    set era = excluded.era, node = excluded.node, heard_from = excluded.heard_from,
        first_at = case when u.era = excluded.era then u.first_at else excluded.first_at end, last_at = excluded.last_at
  returning u.source_id`

const LIST = `
  select u.source_id, u.node, u.heard_from, u.first_at, u.last_at
    from ipledger.unknown_source u
    cross join lateral (
      select n.state, n.era from ipledger.network n where n.network_id = $1 order by n.network_id limit 1) n
   where u.network_id = $1 and n.state = 'RECOVERING' and u.era = n.era and not ${IS_KNOWN('u.source_id')}
   order by u.source_id limit $2`

const FORGET = `
  delete from ipledger.unknown_source
   where ${OF_NETWORK} and ctid = any(array(
     select u.ctid from ipledger.unknown_source u
      where u.network_id = $1
        and (select n.state from ipledger.network n where n.network_id = $1 order by n.network_id limit 1) = 'READY'
      order by u.source_id limit ${MOST_UNKNOWN} for update skip locked))`

/** For the test of their plans. */
export const UNKNOWN_STATEMENTS = {
  unknownRemember: REMEMBER,
  unknownList: LIST,
  unknownForget: FORGET,
} as const

export type UnknownSource = {
  readonly id: string
  /** That the token of its caller is bound to; empty: none. */
  readonly node: string
  readonly heardFrom: string
  readonly firstAt: number
  readonly lastAt: number
}

/** Whether the recovery waits for it from now on. */
export async function rememberUnknown(
  database: pg.Pool,
  { network, id, node, by }: { readonly [key in 'network' | 'id' | 'node' | 'by']: string },
): Promise<boolean> {
  return (await ask(database, REMEMBER, [network, id, node, by])).length > 0
}

type UnknownRow = {
  readonly source_id: string
  readonly node: string
  readonly heard_from: string
  readonly first_at: number
  readonly last_at: number
}

/** Those that nobody has registered so far, by id. */
export async function readUnknown(
  database: pg.Pool,
  network: string,
  limit: number,
): Promise<readonly UnknownSource[]> {
  const rows = await ask<UnknownRow>(database, LIST, [network, limit])
  return rows.map(({ source_id: id, node, heard_from: heardFrom, first_at: firstAt, last_at: lastAt }) => {
    return { id, node, heardFrom, firstAt, lastAt }
  })
}

/** Once the network is READY: how many. */
export async function forgetUnknown(database: Pick<pg.Pool, 'query'>, network: string): Promise<number> {
  return (await database.query(FORGET, [network])).rowCount ?? 0
}
