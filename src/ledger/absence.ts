/**
 * Reaps that rest on absence, and who resumed them since: what the rolling caps count (DESIGN §4).
 *
 * A mass reap has tens of thousands within the hour, each with a proof of some kilobytes, and every batch of it counts
 * them under the lock. The log never changes, so a process remembers what it has read of it and reads on from there.
 * That it is still the same log is asked with every read: one that was restored in the meantime has another event, or
 * none, where the memory ends, and is read anew.
 *
 * Limit: the first batch of a process that reaps on absence reads the whole hour (0.2 s for 20,000, not measured).
 */
import type { LedgerEvent } from '../core/event.ts'
import { POLICY } from '../core/policy.ts'

type Entry = {
  readonly seq: number
  readonly at: number
} & (
  | { readonly was: 'reaped'; readonly sources: readonly string[] }
  /** Empty: of the whole network. */
  | { readonly was: 'resumed'; readonly source: string }
)

export type AbsenceMemory = {
  /** In order; nothing before the window. */
  entries: readonly Entry[]
}

export type AbsenceRow = {
  /** Where the read began: 0 if the memory was of no use. */
  after: number
  seq: number | null
  at: number | null
  type: string | null
  sources: readonly string[] | null
  source: string | null
}

/** ($2, $3): number and time of the last entry that is remembered. Answers at least one row. */
export const ABSENCE_SINCE = `select m.after, e.seq, e.at, e.type, e.sources, e.source
    from (
      select case when (
          select k.at from ipledger.event k
          where k.network_id = $1 and k.seq >= $2::bigint and k.seq <= $2::bigint order by k.seq limit 1)
        = to_timestamp($3::float8 / 1000) then $2::bigint else 0 end as after offset 0) m
    left join lateral (
      select o.seq, o.at, o.type, o.evidence -> 'sources' as sources, o.evidence ->> 'source' as source
      from ipledger.event o
      where o.network_id = $1
        and ((o.type = 'lease.reaped' and o.cause = 'PROVEN_ABSENT') or o.type = 'reconcile.resumed')
        and o.at >= greatest(
          case when m.after > 0 then to_timestamp($3::float8 / 1000) end,
          statement_timestamp() - ${POLICY.holdWindowMs} * interval '1 millisecond')
        and o.seq > m.after
      order by o.at, o.seq) e on true`

export function newAbsenceMemory(): AbsenceMemory {
  return { entries: [] }
}

export function lastRemembered({ entries }: AbsenceMemory): { readonly seq: number; readonly at: number } {
  return entries.at(-1) ?? { seq: 0, at: 0 }
}

export function remember(memory: AbsenceMemory, rows: readonly AbsenceRow[], now: number): void {
  const known = rows[0]!.after > 0 ? memory.entries : []
  const fresh = rows.flatMap((row) => entryOf(row) ?? [])
  memory.entries = [...known, ...fresh].filter(({ at }) => isRecent(at, now))
}

/** Of a source, or of the network without one: those in the memory, and those of this batch. */
export function countAbsence(
  memory: AbsenceMemory,
  events: readonly LedgerEvent[],
  source: string,
  now: number,
): number {
  let count = 0
  for (const entry of [...memory.entries, ...events.flatMap((event) => entryOfEvent(event) ?? [])]) {
    if (entry.was === 'resumed') {
      if (entry.source === source) count = 0
    } else if (isRecent(entry.at, now) && (source === '' || entry.sources.includes(source))) count += 1
  }
  return count
}

function isRecent(at: number, now: number): boolean {
  return at > now - POLICY.holdWindowMs
}

function entryOf({ seq, at, type, sources, source }: AbsenceRow): Entry | undefined {
  if (seq === null || at === null) return undefined
  return type === 'reconcile.resumed'
    ? { seq, at, was: 'resumed', source: source ?? '' }
    : { seq, at, was: 'reaped', sources: sources ?? [] }
}

function entryOfEvent(event: LedgerEvent): Entry | undefined {
  const { seq, at } = event
  if (event.type === 'reconcile.resumed') return { seq, at, was: 'resumed', source: event.evidence.source }
  if (event.type !== 'lease.reaped' || event.cause !== 'PROVEN_ABSENT') return undefined
  return { seq, at, was: 'reaped', sources: (event.evidence?.sources ?? []) as readonly string[] }
}
