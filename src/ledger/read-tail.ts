/** Reads the end of the log for watches: without the network's lock, in order of number. */
import { sql } from 'kysely'
import type { LeaseEvent } from '../core/event.ts'
import { eventOf } from './event-text.ts'
import type { Db } from './read-db.ts'
import { POOL_INFO, type PoolInfo } from './read-log.ts'
import { lastEvent } from './sql/head.ts'

/** A number of the log, and the digest of its event, which another log does not have there. Before the first event: 0 and empty. */
export type LogPosition = { readonly seq: number; readonly digest: string }

/** An event about a lease. `before`: the lease before this event; null: the event made it. */
export type TailItem = {
  readonly event: LeaseEvent
  readonly digest: string
  readonly poolInfo: PoolInfo
  readonly before: { readonly state: string; readonly node: string } | null
}

export type TailPage = {
  /** Digest of the event before the page; null: the log has no event of this number. */
  readonly digest: string | null
  readonly items: readonly TailItem[]
  /** Where the page ends. */
  readonly position: LogPosition
  /** The log may go on after the page. */
  readonly isCut: boolean
}

/** Last events of networks, by name. */
export async function readHeads(db: Db, names: readonly string[]): Promise<ReadonlyMap<string, LogPosition>> {
  const { rows } = await sql<LogPosition & { network: string }>`
    select n.network_id as network, h.seq, h.digest
    from ipledger.network_lock n
    cross join lateral (${sql.raw(lastEvent('n.network_id', "e.seq, encode(e.digest, 'hex') as digest"))}) h
    where n.network_id = any(${names}::text[])
  `.execute(db)
  const heads = new Map(rows.map(({ network, ...head }) => [network, head]))
  return new Map(names.map((name) => [name, heads.get(name) ?? { seq: 0, digest: '' }]))
}

type TailRow = PoolInfo & {
  seq: number
  digest: string
  text: string | null
  before_state: string | null
  before_node: string | null
}

export async function readTail(db: Db, network: string, after: number, size: number): Promise<TailPage> {
  const { rows } = await sql<TailRow>`
    select t.seq, t.digest, t.text, ${POOL_INFO}, b.state as before_state, b.node as before_node
    from (
      select e.seq, encode(e.digest, 'hex') as digest, e.pool_id, e.previous, e.token,
        case when e.address is not null and e.seq > ${after} then ipledger.event_text(row(e.*)::ipledger.event) end as text
      from ipledger.event e where e.network_id = ${network} and e.seq >= ${after} order by e.seq limit ${size + 1}) t
    left join ipledger.event b on b.network_id = ${network} and b.seq = t.previous and b.token = t.token
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = t.pool_id
    order by t.seq
  `.execute(db)
  const first = rows[0]?.seq === after ? rows.shift()! : null
  const items: TailItem[] = []
  for (const { seq: _, text, digest, before_state: state, before_node: node, ...poolInfo } of rows) {
    const before = state === null ? null : { state, node: node ?? '' }
    if (text !== null) items.push({ event: eventOf(text) as LeaseEvent, digest, poolInfo, before })
  }
  const digest = after === 0 ? '' : (first?.digest ?? null)
  const { seq, digest: last } = rows.at(-1) ?? { seq: after, digest: digest ?? '' }
  return { digest, items, position: { seq, digest: last }, isCut: rows.length >= size }
}
