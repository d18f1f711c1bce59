/**
 * Counts a whole pool in short transactions while it is written to, and says what the count is at one head.
 *
 * Leases, released addresses and untouched space are counted in slices, each at the head its transaction saw. Then
 * the count catches up: for every address with events since its slice was counted, what it was at that head is taken
 * off and what it is at a later one is put on; the log says both, whatever is written meanwhile. Catching up reads
 * events faster than they can be written, so the rest soon fits into the transaction that compares the sums. A pool
 * that is counted in one transaction needs none of this.
 */
import type pg from 'pg'
import { blockSize, formatValue } from '../core/address.ts'
import { addressValue } from '../core/books.ts'
import type { Pool } from '../core/pool.ts'
import { contains, intersect, type Range, size } from '../core/ranges.ts'
import {
  type Cursor,
  effective,
  type Position,
  readLeaseEvent,
  readPositions,
  readSpaces,
  type Standing,
  standingAfter,
} from './fold.ts'
import type { EventRow } from './rows.ts'
import { readAddress } from './rows.ts'
import { advanceShape, epochsOf, type Shape } from './shape.ts'
import { createPace, inSnapshot, type Pace } from './transaction.ts'

export type Counts = {
  readonly reserved: number
  readonly active: number
  readonly quarantined: number
  readonly released: number
  /** In leases: blocks of the pool's prefix length. */
  readonly untouched: bigint
}

export type Tally = {
  readonly pool: Pool
  readonly head: number
  readonly counts: Counts
  readonly position: Position | undefined
  /** The stored range that begins lowest, and the one that the cursor names. */
  readonly lowest: Range | null
  readonly cursorRow: Range | null
  /** Of the released address that is reused first. */
  readonly earliestAvailableAt: number | null
}

/** Counted up to this address, as it was at this head. */
type Mark = { readonly last: bigint; readonly head: number }
type Kind = 'held' | 'released' | 'untouched'
const KINDS: readonly Kind[] = ['held', 'released', 'untouched']

type Counting = {
  readonly counts: { -readonly [K in keyof Counts]: Counts[K] }
  readonly marks: Record<Kind, Mark[]>
}

/** Events left to the transaction that compares: a fraction of a slice of those before it. Not measured. */
const LEFT_TO_THE_END = 4_000
const MOST_ROUNDS = 200
const MOST_RESHAPES = 20

/** The pool's shape changed while it was counted: what was counted means something else now. */
type Counted<T> = { readonly kind: 'done'; readonly value: T } | { readonly kind: 'gone' | 'reshaped' }
type Ending<T> = (work: () => Promise<Counted<T>>) => Promise<Counted<T>>

export type TallyOptions<T> = {
  /** The transaction in which the count is used; without one, a snapshot. */
  readonly end?: Ending<T>
  readonly signal?: AbortSignal | undefined
  /** For tests: rows or events per transaction. */
  readonly slice?: number | undefined
}

/**
 * Counts a pool and hands the sums to `use`, in a transaction that sees them and the last position at one head.
 * Null: the pool is gone.
 */
export async function tallyPool<T>(
  client: pg.Client,
  shape: Shape,
  poolId: number,
  use: (tally: Tally) => Promise<T>,
  options: TallyOptions<T> = {},
): Promise<T | null> {
  for (let attempt = 0; attempt < MOST_RESHAPES; attempt += 1) {
    const counted = await attemptTally(client, shape, poolId, use, options)
    if (counted.kind === 'done') return counted.value
    if (counted.kind === 'gone') return null
  }
  throw new Error(`pool ${poolId} of network ${shape.networkName} was reshaped each time it was counted`)
}

async function attemptTally<T>(
  client: pg.Client,
  shape: Shape,
  poolId: number,
  use: (tally: Tally) => Promise<T>,
  { end, signal, slice }: TallyOptions<T>,
): Promise<Counted<T>> {
  const counting: Counting = {
    counts: { reserved: 0, active: 0, quarantined: 0, released: 0, untouched: 0n },
    marks: { held: [], released: [], untouched: [] },
  }
  const pace = createPace(50_000, 200_000, slice)
  let epochs: number | undefined
  /** Every transaction begins here; without a pool there is nothing left to count. */
  const withPool = async <R>(
    work: (pool: Pool) => Promise<R>,
  ): Promise<R | { readonly kind: 'gone' | 'reshaped' }> => {
    signal?.throwIfAborted()
    await advanceShape(client, shape)
    const pool = shape.pools.get(poolId)
    if (pool === undefined) return { kind: 'gone' }
    epochs ??= epochsOf(shape, poolId)
    return epochsOf(shape, poolId) === epochs ? work(pool) : { kind: 'reshaped' }
  }
  const finish = async (pool: Pool): Promise<Counted<T>> => {
    await catchUp(
      client,
      shape,
      pool,
      counting,
      shape.head,
      (work) => work(),
      createPace(20_000, 20_000, slice),
    )
    return { kind: 'done', value: await use(await close(client, shape, pool, counting)) }
  }

  for (let complete = false; !complete; ) {
    const step = await inSnapshot(client, () =>
      withPool(async (pool): Promise<Counted<T> | { readonly kind: 'counting' }> => {
        complete = await countSlice(client, shape, pool, counting, pace)
        const atOnce = complete && end === undefined && earliest(counting) === shape.head
        return atOnce ? finish(pool) : { kind: 'counting' }
      }),
    )
    if (step.kind !== 'counting') return step
  }
  const events = createPace(5_000, 20_000, slice)
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const step = await inSnapshot(client, () =>
      withPool(async (pool) => ({ kind: 'counting' as const, pool })),
    )
    if (step.kind !== 'counting') return step
    if (shape.head - earliest(counting) <= (slice ?? LEFT_TO_THE_END)) break
    await catchUp(client, shape, step.pool, counting, shape.head, (work) => inSnapshot(client, work), events)
  }
  return end === undefined ? inSnapshot(client, () => withPool(finish)) : end(() => withPool(finish))
}

function earliest({ marks }: Counting): number {
  return Math.min(...KINDS.flatMap((kind) => marks[kind].map(({ head }) => head)))
}

const HELD = `select count(*) filter (where s.state = 'RESERVED' and s.pool_id = $5) as reserved,
    count(*) filter (where s.state = 'ACTIVE' and s.pool_id = $5) as active,
    count(*) filter (where s.state = 'QUARANTINED' and s.pool_id = $5) as quarantined,
    count(*) as rows, max(s.address) as last
  from (select l.address, l.state, l.pool_id from ipledger.lease l
    where l.network_id = $1 and l.address between $2::inet and $3::inet order by l.address limit $4) s`
const RELEASED = `select count(*) filter (where s.pool_id = $5) as released, count(*) as rows, max(s.address) as last
  from (select r.address, r.pool_id from ipledger.released_address r
    where r.network_id = $1 and r.address between $2::inet and $3::inet order by r.address limit $4) s`

type HeldRow = {
  reserved: number
  active: number
  quarantined: number
  released: number
  rows: number
  last: string | null
}

/** Counts the next slice of each kind that is not at the pool's end; true when all are. */
async function countSlice(
  client: pg.Client,
  shape: Shape,
  pool: Pool,
  counting: Counting,
  pace: Pace,
): Promise<boolean> {
  const { counts, marks } = counting
  const next = (kind: Kind) => {
    const last = marks[kind].at(-1)?.last
    return last === undefined ? pool.range.first : last + 1n
  }
  const mark = (kind: Kind, last: bigint) => marks[kind].push({ last, head: shape.head })
  const begun = performance.now()
  for (const [kind, text] of [
    ['held', HELD],
    ['released', RELEASED],
  ] as const) {
    if (next(kind) > pool.range.last) continue
    const { rows } = await client.query<HeldRow>(text, [
      shape.networkName,
      formatValue(pool.family, next(kind)),
      formatValue(pool.family, pool.range.last),
      pace.size(),
      pool.poolId,
    ])
    const row = rows[0]!
    counts.reserved += row.reserved ?? 0
    counts.active += row.active ?? 0
    counts.quarantined += row.quarantined ?? 0
    counts.released += row.released ?? 0
    mark(kind, row.rows < pace.size() ? pool.range.last : addressValue(readAddress(row.last!)))
  }
  const first = next('untouched')
  if (first <= pool.range.last) {
    const most = Math.min(20_000, pace.size())
    const stretch = { pool, interval: { first, last: pool.range.last } }
    const [space] = await readSpaces(client, shape.networkName, [stretch], most)
    const { rows, cursor } = space!
    const full = rows.filter((row) => row.first >= first).length === most
    // Ranges that lie over each other would be walked for ever.
    const end = full ? greater(rows.at(-1)!.last, first) : pool.range.last
    const interval = intersect([pool.range], [{ first, last: end }])[0]!
    counts.untouched += blocks(pool, effective(rows, cursor), interval)
    mark('untouched', interval.last)
  }
  pace.took(performance.now() - begun)
  return KINDS.every((kind) => next(kind) > pool.range.last)
}

function blocks(pool: Pool, ranges: readonly Range[], interval: Range): bigint {
  let total = 0n
  for (const range of ranges) total += size(intersect([range], [interval]))
  return total / blockSize(pool.family, pool.prefixLength)
}

function greater(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}

const EVENTS = `select seq, pool_id, address from ipledger.event
  where network_id = $1 and seq > $2 and seq <= $3 order by seq limit $4`
const AT_HEAD = `select a.place, e.* from unnest($2::inet[], $3::bigint[], $4::int[]) as a (address, head, place)
  cross join lateral (
    select seq, type, address, pool_id, prefix_length, fencing_token, state from ipledger.event
     where event.network_id = $1 and event.address = a.address and event.seq <= a.head
     order by event.seq desc limit 1) e`

/** Brings the count from the heads it was made at to one head. */
async function catchUp(
  client: pg.Client,
  shape: Shape,
  pool: Pool,
  counting: Counting,
  to: number,
  transaction: (work: () => Promise<number>) => Promise<number>,
  pace: Pace,
): Promise<void> {
  for (let from = earliest(counting); from < to; ) {
    const begun = performance.now()
    from = await transaction(() =>
      catchUpSlice(client, shape, pool, counting, { from, to, most: pace.size() }),
    )
    pace.took(performance.now() - begun)
  }
  for (const kind of KINDS)
    counting.marks[kind].splice(0, Number.POSITIVE_INFINITY, { last: pool.range.last, head: to })
}

async function catchUpSlice(
  client: pg.Client,
  shape: Shape,
  pool: Pool,
  { counts, marks }: Counting,
  span: { readonly from: number; readonly to: number; readonly most: number },
): Promise<number> {
  const { rows } = await client.query<{ seq: number; pool_id: number | null; address: string | null }>(
    EVENTS,
    [shape.networkName, span.from, span.to, span.most],
  )
  const until = rows.length < span.most ? span.to : rows.at(-1)!.seq
  const addresses = new Set<string>()
  for (const row of rows) if (row.pool_id === pool.poolId && row.address !== null) addresses.add(row.address)
  const now = await standingsAt(
    client,
    shape,
    [...addresses].map((address) => ({ address, head: span.to })),
  )
  const asked: { address: string; head: number; kind: Kind; after: Standing }[] = []
  for (const after of now) {
    // Its last event comes in a later slice, and with it its turn.
    if (after === undefined || after.seq > until) continue
    for (const kind of KINDS) {
      const head = marks[kind].find((mark) => mark.last >= after.value)?.head ?? span.to
      if (after.seq > head) asked.push({ address: after.address, head, kind, after })
    }
  }
  const before = await standingsAt(client, shape, asked)
  for (const [index, { kind, after }] of asked.entries()) {
    add(counts, pool, kind, after.value, before[index], -1)
    add(counts, pool, kind, after.value, after, 1)
  }
  return until
}

/** What each address was at a head; undefined where no event had touched it. */
async function standingsAt(
  client: pg.Client,
  shape: Shape,
  asked: readonly { readonly address: string; readonly head: number }[],
): Promise<readonly (Standing | undefined)[]> {
  if (asked.length === 0) return []
  const { rows } = await client.query<Partial<EventRow> & { place: number }>(AT_HEAD, [
    shape.networkName,
    asked.map(({ address }) => address),
    asked.map(({ head }) => head),
    asked.map((_, place) => place),
  ])
  const found: (Standing | undefined)[] = new Array(asked.length).fill(undefined)
  for (const { place, ...row } of rows) found[place] = standingAfter(shape, readLeaseEvent(row))
  return found
}

function add(
  counts: Counting['counts'],
  pool: Pool,
  kind: Kind,
  value: bigint,
  standing: Standing | undefined,
  by: 1 | -1,
): void {
  const book = standing?.poolId === pool.poolId ? standing.book : { lease: null, released: null }
  switch (kind) {
    case 'held':
      if (book.lease?.state === 'RESERVED') counts.reserved += by
      else if (book.lease?.state === 'ACTIVE') counts.active += by
      else if (book.lease?.state === 'QUARANTINED') counts.quarantined += by
      return
    case 'released':
      if (book.released !== null) counts.released += by
      return
    case 'untouched':
      if (book.lease === null && book.released === null && contains(pool.allocatable, value)) {
        counts.untouched += BigInt(by)
      }
      return
  }
}

/** The sums beside what is stored of the pool as a whole; one transaction, one head. */
async function close(client: pg.Client, shape: Shape, pool: Pool, counting: Counting): Promise<Tally> {
  const key = [shape.networkName, pool.poolId]
  const position = (await readPositions(client, shape.networkName, [pool.poolId])).get(pool.poolId)
  const lowest = await readRange(
    client,
    `select first_address, last_address from ipledger.untouched_range
      where network_id = $1 and pool_id = $2 order by first_address limit 1`,
    key,
  )
  const cursorRow =
    position?.cursor == null
      ? null
      : await readRange(
          client,
          `select first_address, last_address from ipledger.untouched_range
            where network_id = $1 and pool_id = $2 and first_address = $3::inet`,
          [...key, formatValue(pool.family, position.cursor.first)],
        )
  const { rows } = await client.query<{ available_at: number }>(
    `select available_at from ipledger.released_address
      where network_id = $1 and pool_id = $2 order by available_at, released_seq limit 1`,
    key,
  )
  return {
    pool,
    head: shape.head,
    counts: counting.counts,
    position,
    lowest,
    cursorRow,
    earliestAvailableAt: rows[0]?.available_at ?? null,
  }
}

async function readRange(client: pg.Client, text: string, values: readonly unknown[]): Promise<Range | null> {
  const { rows } = await client.query<{ first_address: string; last_address: string }>(text, [...values])
  const row = rows[0]
  if (row === undefined) return null
  return {
    first: addressValue(readAddress(row.first_address)),
    last: addressValue(readAddress(row.last_address)),
  }
}

export type WrongBound = { readonly column: string; readonly why: string }

/** What the last position says about where free space begins, where that hides some of it or names none. */
export function wrongBounds(tally: Tally): readonly WrongBound[] {
  const { position, lowest, earliestAvailableAt, pool } = tally
  if (position === undefined) return []
  const { lowFirst, reuseAfter, cursor } = position
  const wrong: WrongBound[] = []
  if (lowFirst !== null && lowest !== null && addressValue(lowFirst) > lowest.first) {
    const first = formatValue(pool.family, lowest.first)
    wrong.push({
      column: 'low_first',
      why: `untouched space is looked for from ${lowFirst} on, but begins at ${first}`,
    })
  }
  if (reuseAfter !== null && earliestAvailableAt !== null && reuseAfter > earliestAvailableAt) {
    wrong.push({
      column: 'reuse_after',
      why: `released addresses are looked for from ${iso(reuseAfter)} on, but the first of them is free at ${iso(earliestAvailableAt)}`,
    })
  }
  if (cursor !== null && !isSound(cursor, tally)) {
    const first = formatValue(pool.family, cursor.first)
    wrong.push({
      column: 'cursor_first',
      why: `its cursor names ${first}, where no stored range begins that it is in`,
    })
  }
  return wrong
}

function isSound(cursor: NonNullable<Cursor>, { cursorRow }: Tally): boolean {
  return cursorRow !== null && cursor.next > cursorRow.first && cursor.next <= cursorRow.last
}

function iso(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString() : String(ms)
}
