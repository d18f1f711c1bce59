/** The end of the log, for those who follow it: without the lock, in order of number. */
import { sql } from 'kysely'
import type { LeaseEvent } from '../core/event.ts'
import { eventOf } from './event-text.ts'
import type { Db } from './pages.ts'
import { FACE, type Face } from './read-log.ts'

/** A number of the log and the digest of its event, which tells this log from another. Before the first event: 0 and empty. */
export type Place = { readonly seq: number; readonly digest: string }

/** An event about a lease. `before`: how the same lease was before it; null: the event made it. */
export type Tailed = {
  readonly event: LeaseEvent
  readonly digest: string
  readonly face: Face
  readonly before: { readonly state: string; readonly node: string } | null
}

export type TailPage = {
  /** Of the event after which it begins; null: there is none of this number. */
  readonly digest: string | null
  readonly items: readonly Tailed[]
  /** Up to here. Fewer than `size` events: it is the head. */
  readonly position: Place
  readonly isCut: boolean
}

/** Last events of networks, by name. */
export async function readHeads(db: Db, networks: readonly string[]): Promise<ReadonlyMap<string, Place>> {
  const { rows } = await sql<Place & { network: string }>`
    select n.network, coalesce(h.seq, 0) as seq, coalesce(h.digest, '') as digest
    from unnest(${networks}::text[]) as n (network)
    left join lateral (select e.seq, encode(e.digest, 'hex') as digest from ipledger.event e
      where e.network_id = n.network order by e.seq desc limit 1) h on true
  `.execute(db)
  return new Map(rows.map(({ network, ...head }) => [network, head]))
}

type TailRow = Face & {
  seq: number
  digest: string
  text: string | null
  before_state: string | null
  before_node: string | null
}

export async function readTail(db: Db, network: string, after: number, size: number): Promise<TailPage> {
  const { rows } = await sql<TailRow>`
    select t.seq, t.digest, t.text, ${FACE}, b.state as before_state, b.node as before_node
    from (
      select e.seq, encode(e.digest, 'hex') as digest, e.pool_id, e.previous, e.token,
        case when e.address is not null and e.seq > ${after} then ipledger.event_text(e) end as text
      from ipledger.event e where e.network_id = ${network} and e.seq >= ${after} order by e.seq limit ${size + 1}) t
    left join ipledger.event b on b.network_id = ${network} and b.seq = t.previous and b.token = t.token
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = t.pool_id
    order by t.seq
  `.execute(db)
  const first = rows[0]?.seq === after ? rows.shift()! : null
  const items = rows.flatMap(({ text, digest, before_state: state, before_node: node, ...row }): Tailed[] => {
    if (text === null) return []
    const before = state === null ? null : { state, node: node ?? '' }
    const { pool, subnet, gateway } = row
    return [{ event: eventOf(text) as LeaseEvent, digest, face: { pool, subnet, gateway }, before }]
  })
  const digest = after === 0 ? '' : (first?.digest ?? null)
  const { seq, digest: last } = rows.at(-1) ?? { seq: after, digest: digest ?? '' }
  return { digest, items, position: { seq, digest: last }, isCut: rows.length >= size }
}
