/**
 * Closed attachments by the log beside those stored. A closing must be there while it binds: for the retry horizon,
 * and as long as a superseded or unremoved lease of its attachment stands that is not much younger; otherwise it may
 * have been pruned. One that is there must be the log's.
 *
 * The fold reads the log from where the oldest closing that binds may be, and keeps closings only: at most
 * `MOST_KEPT` of them, in several passes over the attachments where there are more.
 */

import type pg from 'pg'
import type { ClosedAttachment } from '../core/books.ts'
import { closedOrReopened, evolveClosings } from '../core/evolve.ts'
import { KEEPS_CLOSED } from '../core/lease.ts'
import { attachmentKey } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import { CLOSED, closedCells } from './append.ts'
import { type Cells, differing, names, readCells, readSparseEvent } from './fold.ts'
import { type EventRow, reasonsOf } from './rows.ts'
import { advanceShape, type Shape } from './shape.ts'
import { createPace, inSnapshot } from './transaction.ts'

export type ClosingDifference = {
  readonly attachment: string
  /** 0: in every pool. */
  readonly poolId: number
  readonly seq: number
  readonly expected: Cells | null
  readonly found: Cells | null
  readonly columns: readonly string[]
}

export type ClosingOptions = {
  /** Also those that only a quarantined lease keeps binding: their events may be anywhere in the log. */
  readonly guarded: boolean
  /** The transaction of a slice; without one, a snapshot. */
  readonly begin?: (work: () => Promise<void>) => Promise<void>
  /** Called inside it. */
  readonly use: (differences: readonly ClosingDifference[]) => Promise<void>
  readonly signal?: AbortSignal | undefined
  /** For tests: keys, rows or events per transaction, and a quarter of the closings kept at a time. */
  readonly slice?: number | undefined
}

/** A few hundred bytes each. */
const MOST_KEPT = 100_000
/** Keys or rows compared in one transaction. Not measured. */
const SLICE = 1_000

export const CLOSED_NAMES = CLOSED.map(({ name }) => name)

type Fold = {
  readonly network: string
  /** The first event that counts. */
  readonly start: number
  /** Folded up to here. */
  seq: number
  readonly closings: Map<string, readonly ClosedAttachment[]>
  readonly pass: { readonly number: number; readonly of: number }
}

export async function walkClosings(client: pg.Client, shape: Shape, options: ClosingOptions): Promise<void> {
  const from = await inSnapshot(client, () => findStart(client, shape.networkName, options.guarded))
  const { closed, start } = await countClosed(client, shape, from, options)
  const passes = Math.max(
    1,
    Math.ceil(closed / (options.slice === undefined ? MOST_KEPT : 4 * options.slice)),
  )
  for (let number = 0; number < passes; number += 1) {
    const fold: Fold = {
      network: shape.networkName,
      start,
      seq: start - 1,
      closings: new Map(),
      pass: { number, of: passes },
    }
    await walkPass(client, shape, fold, options)
  }
}

async function walkPass(client: pg.Client, shape: Shape, fold: Fold, options: ClosingOptions): Promise<void> {
  const begin = options.begin ?? ((work) => inSnapshot(client, work))
  const pace = createPace(20_000, 50_000, options.slice)
  const most = options.slice ?? SLICE
  for (let done = false; !done; ) {
    options.signal?.throwIfAborted()
    done = await inSnapshot(client, async () => {
      await advanceShape(client, shape)
      return advanceFold(client, fold, shape.head, pace.size())
    })
  }
  const slice = (work: () => Promise<readonly ClosingDifference[]>) => {
    options.signal?.throwIfAborted()
    return begin(async () => {
      await advanceShape(client, shape)
      // What came since the last slice is little.
      while (!(await advanceFold(client, fold, shape.head, pace.size())));
      const differences = await work()
      if (differences.length > 0) await options.use(differences)
    })
  }
  const keys = [...fold.closings.keys()]
  for (let index = 0; index < keys.length; index += most) {
    const some = keys.slice(index, index + most)
    await slice(() => findMissing(client, fold, some))
  }
  let after: { key: string; poolId: number } | undefined = { key: '', poolId: 0 }
  while (after !== undefined) {
    const from: { key: string; poolId: number } = after
    await slice(async () => {
      const rows = await readCells(client, ROWS_AFTER, CLOSED, [fold.network, from.key, from.poolId, most])
      after = rows.length < most ? undefined : { key: keyOf(rows.at(-1)!), poolId: poolIdOf(rows.at(-1)!) }
      return findUnexplained(client, fold, rows)
    })
  }
}

const START = `select least(
    statement_timestamp() - $2::float8 * interval '1 millisecond',
    case when $3 then (
      select min(l.quarantined_at) from ipledger.lease l
       where l.network_id = $1 and l.state = 'QUARANTINED'
         and l.quarantine_reason in (${reasonsOf(KEEPS_CLOSED)})) - $2::float8 * interval '1 millisecond'
    end) as at`
const FIRST_SINCE = `select seq from ipledger.event where network_id = $1 and at >= $2::timestamptz order by at, seq limit 1`

async function findStart(client: pg.Client, network: string, guarded: boolean): Promise<number> {
  const { rows } = await client.query<{ at: number }>(START, [network, POLICY.retryHorizonMs, guarded])
  const since = new Date(rows[0]!.at).toISOString()
  const first = await client.query<{ seq: number }>(FIRST_SINCE, [network, since])
  // Nothing since: whatever comes next does.
  return first.rows[0]?.seq ?? Number.MAX_SAFE_INTEGER
}

const COUNT = `select count(*) filter (where s.type = 'attachment.closed') as closed,
    min(s.seq) filter (where s.type = 'attachment.closed') as first, count(*) as events, max(s.seq) as last
  from (select seq, type from ipledger.event where network_id = $1 and seq > $2 order by seq limit $3) s`

/** How many closings there are from a number on, and where they begin: nothing before is folded. */
async function countClosed(
  client: pg.Client,
  shape: Shape,
  from: number,
  { signal, slice }: ClosingOptions,
): Promise<{ readonly closed: number; readonly start: number }> {
  const pace = createPace(50_000, 200_000, slice)
  let closed = 0
  let first: number | null = null
  for (let after = from - 1; ; ) {
    signal?.throwIfAborted()
    const begun = performance.now()
    const most = pace.size()
    const { rows } = await client.query<CountRow>(COUNT, [shape.networkName, after, most])
    const row = rows[0]!
    closed += row.closed
    first ??= row.first
    const last = row.last ?? after
    if (row.events < most) return { closed, start: first ?? last + 1 }
    after = last
    pace.took(performance.now() - begun)
  }
}

type CountRow = { closed: number; first: number | null; events: number; last: number | null }

const EVENTS = `select seq, type, at, pool_id, address, owner_kind, owner_name, owner_uid, owner_uid_named,
    owner_incarnation, owner_interface
  from (select * from ipledger.event where network_id = $1 and seq > $2 and seq <= $3 order by seq limit $4) e
  where type in ('attachment.closed', 'lease.reserved') and owner_incarnation <> '' order by seq`
const LAST_OF = `select max(s.seq) as last, count(*) as events
  from (select seq from ipledger.event where network_id = $1 and seq > $2 and seq <= $3 order by seq limit $4) s`

/** Folds the next events; true once all up to `head` are. */
async function advanceFold(client: pg.Client, fold: Fold, head: number, most: number): Promise<boolean> {
  if (fold.seq >= head) return true
  const span = [fold.network, fold.seq, head, most]
  const { rows } = await client.query<Partial<EventRow>>(EVENTS, span)
  for (const row of rows) {
    const event = readSparseEvent(row)
    const owner = closedOrReopened(event)
    if (owner === null) continue
    const key = attachmentKey(owner)
    if (!belongs(fold, key)) continue
    const before = fold.closings.get(key)
    if (before === undefined && event.type !== 'attachment.closed') continue
    const after = evolveClosings(before ?? [], event)
    if (after.length === 0) fold.closings.delete(key)
    else fold.closings.set(key, after)
  }
  const ends = await client.query<{ last: number | null; events: number }>(LAST_OF, span)
  const end = ends.rows[0]!
  fold.seq = end.events < most ? head : end.last!
  return fold.seq >= head
}

/** Attachments are shared out among the passes by a hash of their key (FNV-1a). */
function belongs({ pass }: Fold, key: string): boolean {
  if (pass.of === 1) return true
  let hash = 0x811c9dc5
  for (let index = 0; index < key.length; index += 1)
    hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193)
  return (hash >>> 0) % pass.of === pass.number
}

const ROWS_OF = `select ${names(CLOSED)} from ipledger.closed_attachment
  where network_id = $1 and attachment_key = any($2::text[])`
const ROWS_AFTER = `select ${names(CLOSED)} from ipledger.closed_attachment
  where network_id = $1 and (attachment_key, pool_id) > ($2, $3::bigint) order by attachment_key, pool_id limit $4`
const GUARDS = `select attachment_key, quarantined_at from ipledger.lease
  where network_id = $1 and attachment_key = any($2::text[])
    and quarantine_reason in (${reasonsOf(KEEPS_CLOSED)})`

// Columns of a closed attachment, in the order in which they are written.
const keyOf = (cells: Cells) => cells[0] as string
const poolIdOf = (cells: Cells) => cells[1] as number
const seqOf = (cells: Cells) => cells[CLOSED.findIndex(({ name }) => name === 'closed_seq')] as number

/** Closings of these attachments that bind and are not stored. */
async function findMissing(
  client: pg.Client,
  fold: Fold,
  keys: readonly string[],
): Promise<readonly ClosingDifference[]> {
  const stored = new Set(
    (await readCells(client, ROWS_OF, CLOSED, [fold.network, keys])).map(
      (row) => `${poolIdOf(row)}|${keyOf(row)}`,
    ),
  )
  const missing = keys.flatMap((key) =>
    (fold.closings.get(key) ?? []).filter((closing) => !stored.has(`${closing.poolId ?? 0}|${key}`)),
  )
  if (missing.length === 0) return []
  const { rows: clocks } = await client.query<{ now: number }>('select clock_timestamp() as now')
  const horizon = clocks[0]!.now - POLICY.retryHorizonMs
  const { rows: guards } = await client.query<{ attachment_key: string; quarantined_at: number }>(GUARDS, [
    fold.network,
    missing.map(({ owner }) => attachmentKey(owner)),
  ])
  const binds = (closing: ClosedAttachment) =>
    closing.closedAt > horizon ||
    guards.some(
      (guard) =>
        guard.attachment_key === attachmentKey(closing.owner) &&
        closing.closedAt >= guard.quarantined_at - POLICY.retryHorizonMs,
    )
  return missing.filter(binds).map((closing) => ({
    attachment: attachmentKey(closing.owner),
    poolId: closing.poolId ?? 0,
    seq: closing.closedSeq,
    expected: closedCells(closing),
    found: null,
    columns: [],
  }))
}

const CLOSED_AT = `select seq, type, at, pool_id, owner_kind, owner_name, owner_uid, owner_uid_named,
    owner_incarnation, owner_interface
  from ipledger.event where network_id = $1 and seq = any($2::bigint[]) and type = 'attachment.closed'`

/** Stored rows that the fold does not have; of those from before it begins, rows that no event made. */
async function findUnexplained(
  client: pg.Client,
  fold: Fold,
  rows: readonly Cells[],
): Promise<readonly ClosingDifference[]> {
  const mine = rows.filter((row) => belongs(fold, keyOf(row)))
  const older = mine.filter((row) => seqOf(row) < fold.start)
  const { rows: events } = await client.query<Partial<EventRow>>(CLOSED_AT, [fold.network, older.map(seqOf)])
  const madeBy = new Map<number, Cells>()
  for (const row of events) {
    for (const closing of evolveClosings([], readSparseEvent(row)))
      madeBy.set(closing.closedSeq, closedCells(closing))
  }
  return mine.flatMap((found) => {
    const attachment = keyOf(found)
    const poolId = poolIdOf(found)
    const closing = fold.closings.get(attachment)?.find((one) => (one.poolId ?? 0) === poolId)
    // A closing the fold has is the later one, wherever the stored one comes from.
    let expected = closing === undefined ? null : closedCells(closing)
    if (expected === null && seqOf(found) < fold.start) {
      const made = madeBy.get(seqOf(found))
      if (made !== undefined && keyOf(made) === attachment && poolIdOf(made) === poolId) expected = made
    }
    const columns = expected === null ? [] : differing(CLOSED_NAMES, expected, found)
    if (expected !== null && columns.length === 0) return []
    return [{ attachment, poolId, seq: seqOf(found), expected, found, columns }]
  })
}
