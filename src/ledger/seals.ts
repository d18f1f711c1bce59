/**
 * Seals of the log (db/migrations/0011_seals.sql): digests of closed stretches, each naming the one before, so that an
 * event that is changed or removed later no longer fits what was sealed. The digests are made by functions of the
 * database, where the events lie; no event travels. Here is how the next stretch is found and sealed, and how seals are
 * read; `verify-seals.ts` asks whether they still hold.
 *
 * An event that is committed is final: the log is written under a lock, numbered without a gap, and nothing is committed
 * before a lower number was. So whoever seals the events after the last seal seals the same ones as anybody else, and
 * of two at once one inserts nothing; a lock sees to it that it does not hash them for that either. A seal never reaches over the end of an era. Over a gap there is none: sealing
 * stops there, because a seal would say that nothing is missing.
 *
 * What it does not prove: that nobody made all seals anew after a change. Digests that were kept elsewhere do.
 */
import type pg from 'pg'
import { ERA_BITS, eraOf, firstSeqOfEra } from '../core/policy.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { sqlState } from './batcher.ts'
import { inTransaction } from './transaction.ts'

/**
 * Events of a seal: 16 bytes each and some 250 for the seal, 17 bytes an event in all. Sealing 4,096 took 58 ms, 0.3 s at
 * worst beside other work (2 cores): 70,000 events/s.
 */
export const EVENTS_PER_SEAL = 4_096
/** A stretch that is not full is sealed when its first event is this old. Not measured: a network with one event in five minutes gets a seal for each. */
export const SEAL_AFTER_MS = 300_000

/** The digest that the first seal of a network names. */
export const NO_DIGEST = '00'.repeat(32)
export const LEAF_BYTES = 16

/** A stretch as it was sealed, digests as hexadecimal text; the shape of exported digests. */
export type SealedStretch = {
  readonly network: string
  readonly first: number
  readonly last: number
  readonly digest: string
  readonly previousDigest: string
}

export type Seal = SealedStretch & { readonly sealedAt: number }

const CHECK_VIOLATION = '23514'

/** For the test of their plans. */
export const SEAL_STATEMENTS = {
  /** The last seal, the event after it, the end of the log within that event's era, and the head. */
  next: `
    select s.last_seq as sealed, s.digest, f.seq as first, f.at as first_at, l.seq as last, h.seq as head, now() as now
      from (select 1) one
      left join lateral (
        select o.last_seq, encode(o.digest, 'hex') as digest from ipledger.seal o
         where o.network_id = $1 order by o.first_seq desc limit 1) s on true
      left join lateral (
        select e.seq, e.at from ipledger.event e
         where e.network_id = $1 and e.seq > coalesce(s.last_seq, 0) order by e.seq limit 1) f on true
      left join lateral (
        select e.seq from ipledger.event e
         where e.network_id = $1 and e.seq < ((f.seq >> ${ERA_BITS}) + 1) << ${ERA_BITS} order by e.seq desc limit 1) l on true
      left join lateral (
        select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) h on true`,
  lock: 'select 1 from ipledger.seal_lock where network_id = $1 for no key update skip locked',
  lockRow: 'insert into ipledger.seal_lock (network_id) values ($1) on conflict do nothing',
  /** Only behind the seal that was read. */
  seal: `
    insert into ipledger.seal (network_id, first_seq, last_seq, leaves, digest, previous_digest, sealed_at)
    select $1, $2, $3, l.leaves, ipledger.seal_digest(p.digest, $1, $2, $3, l.leaves), p.digest, clock_timestamp()
      from (select decode($4, 'hex') as digest) p,
           (select string_agg(x.leaf, ''::bytea) as leaves
              from (select ipledger.event_leaf(e) as leaf from ipledger.event e
                     where e.network_id = $1 and e.seq >= $2 and e.seq <= $3 order by e.seq) x) l
     where $4 = coalesce((
       select encode(o.digest, 'hex') from ipledger.seal o
        where o.network_id = $1 and o.first_seq < $2 order by o.first_seq desc limit 1), '${NO_DIGEST}')
    on conflict do nothing`,
  list: `
    select s.first_seq, s.last_seq, encode(s.digest, 'hex') as digest, encode(s.previous_digest, 'hex') as previous_digest,
           s.sealed_at
      from ipledger.seal s
     where s.network_id = $1 and s.first_seq > $2 and s.first_seq <= $3
     order by s.first_seq limit $4`,
  /** The seal that begins at or before a number. */
  around: `
    select s.first_seq, s.last_seq from ipledger.seal s
     where s.network_id = $1 and s.first_seq <= $2 order by s.first_seq desc limit 1`,
} as const

type NextRow = {
  readonly sealed: number | null
  readonly digest: string | null
  readonly first: number | null
  readonly first_at: number | null
  readonly last: number | null
  readonly head: number | null
  readonly now: number
}

/** What one look came to: sealed so many events; nothing to seal yet; another is at it; or sealing stops, and why. */
export type SealOutcome =
  | { readonly sealed: number }
  | { readonly waiting: true }
  | { readonly busy: true }
  | { readonly stopped: string }

type Limits = { readonly events: number; readonly afterMs: number }
type Next = { readonly first: number; readonly upTo: number; readonly digest: string }

/** Seals the next stretch of a network, if one is closed: in a transaction that others do not wait for. */
export async function sealNext(
  database: pg.Pool,
  network: string,
  limits: Limits = { events: EVENTS_PER_SEAL, afterMs: SEAL_AFTER_MS },
): Promise<SealOutcome> {
  // Most of the time there is nothing to seal, and nothing to lock.
  const next = await findNext(database, network, limits)
  if (!('first' in next)) return next
  return onConnection(database, async (client) => {
    await client.query(SEAL_STATEMENTS.lockRow, [network])
    let stretch = next
    try {
      return await inTransaction(client, async (): Promise<SealOutcome> => {
        const { rows } = await client.query(SEAL_STATEMENTS.lock, [network])
        if (rows.length === 0) return { busy: true }
        // Whoever had the lock before has sealed what was next then.
        const found = await findNext(client, network, limits)
        if (!('first' in found)) return found
        stretch = found
        const { first, upTo, digest } = found
        const { rowCount } = await client.query(SEAL_STATEMENTS.seal, [network, first, upTo, digest])
        return { sealed: rowCount === 0 ? 0 : upTo - first + 1 }
      })
    } catch (error) {
      if (sqlState(error) !== CHECK_VIOLATION) throw error
      return { stopped: `events are missing between ${stretch.first} and ${stretch.upTo}` }
    }
  })
}

async function findNext(
  database: Pick<pg.Pool | pg.Client, 'query'>,
  network: string,
  limits: Limits,
): Promise<Next | Exclude<SealOutcome, { readonly sealed: number }>> {
  const { rows } = await database.query<NextRow>(SEAL_STATEMENTS.next, [network])
  const { sealed, digest, first, first_at, last, head, now } = rows[0]!
  if (sealed !== null && (head ?? 0) < sealed)
    return { stopped: `the log ends at ${head ?? 0}, and was sealed up to ${sealed}` }
  if (first === null || last === null || first_at === null) return { waiting: true }
  if (!follows(sealed, first))
    return {
      stopped: `after ${sealed === null ? 'the beginning' : `event ${sealed}`} the log goes on with ${first}`,
    }
  const full = first + limits.events - 1
  const upTo = Math.min(last, full)
  // Full, or of an era that is over; else it is waited for more.
  const isClosed = upTo === full || last < head!
  if (!isClosed && now - first_at < limits.afterMs) return { waiting: true }
  return { first, upTo, digest: digest ?? NO_DIGEST }
}

/** Whether an event may come next after a sealed one: the next number, or the first of a later era. */
export function follows(sealed: number | null, first: number): boolean {
  if (sealed === null) return first === firstSeqOfEra(eraOf(first))
  return first === sealed + 1 || (eraOf(first) > eraOf(sealed) && first === firstSeqOfEra(eraOf(first)))
}

type SealRow = {
  readonly first_seq: number
  readonly last_seq: number
  readonly digest: string
  readonly previous_digest: string
  readonly sealed_at: number
}

/** Rows of a page. */
const PAGE = 500

/** Seals of a network that begin in (after, upTo], in order. */
export async function* readSeals(
  client: Pick<pg.Client, 'query'>,
  network: string,
  { after, upTo, most }: { readonly after: number; readonly upTo: number; readonly most?: number },
): AsyncGenerator<Seal> {
  for (let from = after; ; ) {
    const { rows } = await client.query<SealRow>(SEAL_STATEMENTS.list, [network, from, upTo, most ?? PAGE])
    for (const row of rows) {
      yield {
        network,
        first: row.first_seq,
        last: row.last_seq,
        digest: row.digest,
        previousDigest: row.previous_digest,
        sealedAt: row.sealed_at,
      }
    }
    const end = rows.at(-1)
    if (end === undefined || rows.length < PAGE || most !== undefined) return
    from = end.first_seq
  }
}
