/** The end of the log, for those who follow it: without the lock, in order of number. */
import { type Kysely, sql } from 'kysely'
import type { EventOf, LeaseEvent } from '../core/event.ts'
import { eventOf } from './event-text.ts'
import { FACE, type Face } from './read-log.ts'

/** An event about a lease. `before`: how the same lease was before it; null: the event made it. */
export type LeaseTailed = {
  readonly event: LeaseEvent
  readonly face: Face
  readonly before: { readonly state: string; readonly node: string } | null
}
/** A new era: numbers after `details.after` that were given out before it are lost. */
export type Tailed = LeaseTailed | { readonly event: EventOf<'era.begun'> }

export type TailPage = {
  readonly items: readonly Tailed[]
  /** Up to here. Fewer than `size` events: it is the head. */
  readonly position: number
  readonly isCut: boolean
}

/** Last numbers of networks, by name; 0: there is no such network. */
export async function readHeads(
  db: Kysely<unknown>,
  networks: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const { rows } = await sql<{ network: string; head: number }>`
    select n.network, coalesce((select e.seq from ipledger.event e where e.network_id = n.network
      order by e.seq desc limit 1), 0) as head
    from unnest(${networks}::text[]) as n (network)
  `.execute(db)
  return new Map(rows.map(({ network, head }) => [network, head]))
}

type TailRow = Face & {
  seq: number
  text: string | null
  before_state: string | null
  before_node: string | null
}

export async function readTail(
  db: Kysely<unknown>,
  network: string,
  after: number,
  size: number,
): Promise<TailPage> {
  const { rows } = await sql<TailRow>`
    select t.seq, t.text, ${FACE}, b.state as before_state, b.node as before_node
    from (
      select e.seq, e.pool_id, e.previous, e.token,
        case when e.address is not null or e.type = 'era.begun' then ipledger.event_text(e) end as text
      from ipledger.event e where e.network_id = ${network} and e.seq > ${after} order by e.seq limit ${size}) t
    left join ipledger.event b on b.network_id = ${network} and b.seq = t.previous and b.token = t.token
    left join ipledger.pool p on p.network_id = ${network} and p.pool_id = t.pool_id
    order by t.seq
  `.execute(db)
  const items = rows.flatMap(({ text, before_state: state, before_node: node, ...row }): Tailed | [] => {
    if (text === null) return []
    const event = eventOf(text)
    if (event.type === 'era.begun') return { event }
    const before = state === null ? null : { state, node: node ?? '' }
    const { pool, subnet, gateway } = row
    return { event: event as LeaseEvent, face: { pool, subnet, gateway }, before }
  })
  return { items, position: rows.at(-1)?.seq ?? after, isCut: rows.length === size }
}
