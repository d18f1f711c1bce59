/**
 * `ipledger rebuild`: the projections of a network made anew from its log, whatever became of them: altered, truncated,
 * even the row that batches lock.
 *
 * First everything is compared without a lock, slice by slice, as `fold.ts` says: the fold of a slice's addresses and
 * the rows stored for them, read in one snapshot; once rows prove to be lost, slices that lack most of theirs are not
 * folded for that. Then the slices that differ are folded under the network's lock, at its head, and the rows that
 * differ are replaced: events that came in between are in that fold, so there is nothing to catch up with and nothing
 * stale to write. Between two slices the service writes; while more than one is outstanding the network is REBUILDING
 * and refuses Reserve. It does not end by itself: a rebuild that breaks off leaves it so, and the next one ends it; so
 * does a service that finds projections lost when it starts (`closeIfLost`). Right rows are never touched, so a
 * rebuild of sound projections changes nothing.
 *
 * The shadow of DESIGN §5 is a slice in memory, not tables: writing what was folded to tables of the same shape took
 * 85 % as long again as folding and comparing it (65,534 addresses, 1.16 million events), and each event since would
 * have to be folded into them too.
 *
 * What an address came to is the payload of its last event, which an index finds; whether the events before it were
 * legal is `verify`'s question. A log with a gap is refused: the lost event may have made a pool, or given an address
 * out, and projections without it would give that address to somebody else. `request` and `database_life` are no
 * projections and stay.
 */
import type pg from 'pg'
import type { Family } from '../core/address.ts'
import { formatValue } from '../core/address.ts'
import { BrokenBooks } from '../core/books.ts'
import { eraOf, firstSeqOfEra } from '../core/policy.ts'
import { poolSize } from '../core/pool.ts'
import { normalise, type Range, subtract } from '../core/ranges.ts'
import { connect } from '../postgres/connect.ts'
import {
  CLOSED,
  FENCE,
  HOLD,
  LEASE,
  networkCells,
  POSITION,
  RANGE,
  RELEASED,
  values,
  WRITES,
} from './append.ts'
import { sqlState } from './batcher.ts'
import { type ClosingDifference, walkClosings } from './closings.ts'
import {
  addressOfCells,
  type Cells,
  compareRows,
  compareSpaces,
  looksLost,
  nextAddresses,
  type RowDifference,
  readPositions,
  readRowsAt,
  readSlice,
  readStandings,
  type Slice,
  type SpaceDifference,
  type Wanted,
  wholeFamily,
} from './fold.ts'
import { type Odd, walkNumbers } from './numbers.ts'
import { readAddress } from './rows.ts'
import { advanceShape, newShape, type Shape } from './shape.ts'
import { compareShape, type ShapeDifference } from './shape-rows.ts'
import { type Tally, tallyPool, wrongBounds } from './tally.ts'
import { createPace, inSnapshot, transact, underLock } from './transaction.ts'

export type RebuildOptions = {
  /** The owner's login. The service's is enough but for a lost row of `network_lock`. */
  readonly adminUrl: string
  readonly network: string
  /** Compares only. */
  readonly dryRun?: boolean | undefined
  readonly onProgress?: ((progress: RebuildProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
  /** Addresses per transaction instead of what proves fast enough: for tests of the seams. */
  readonly slice?: number | undefined
}

export type RebuildProgress = {
  readonly network: string
  readonly what: 'comparing' | 'replacing'
  /** Addresses compared, or slices replaced. */
  readonly done: number
  /** Unknown while it is null. */
  readonly of: number | null
}

export type ProjectionTable =
  | 'network_lock'
  | 'network'
  | 'pool'
  | 'lease'
  | 'released_address'
  | 'untouched_range'
  | 'closed_attachment'
  | 'pool_position'
  | 'hold'
  | 'fence'

export type ProjectionDifference = {
  readonly table: ProjectionTable
  /** What the row is about: an address, a pool, an attachment. */
  readonly about: string
  readonly what: 'missing' | 'unexplained' | 'differs'
  readonly columns: readonly string[]
}

export type RebuildReport = {
  readonly network: string
  readonly head: number
  readonly events: number
  readonly addresses: number
  /** Differing rows, or stretches of untouched space, found without a lock. */
  readonly counts: Readonly<Record<ProjectionTable, number>>
  /** The first thousand of them. */
  readonly differences: readonly ProjectionDifference[]
  /** Rows removed or written. */
  readonly replaced: number
  /** Transactions under the lock, and the longest of them. */
  readonly locked: number
  readonly longestLockMs: number
}

const MOST_NAMED = 1_000

type Dirty = { readonly family: Family; readonly interval: Range }

type Run = {
  readonly client: pg.Client
  readonly network: string
  readonly shape: Shape
  readonly counts: Record<ProjectionTable, number>
  readonly differences: ProjectionDifference[]
  /** Intervals of addresses that hold differences, in order. */
  readonly dirty: Dirty[]
  /** The same, but nobody looked which: they are noted when they are replaced. */
  readonly lost: Dirty[]
  /** Some slice lacked most of its rows. */
  lossy: boolean
  /** Pools whose position is to be written again if it is wrong when all else is right. */
  readonly pools: Set<number>
  readonly progress: (what: RebuildProgress['what'], done: number, of: number | null) => void
  readonly signal: AbortSignal | undefined
  readonly slice: number | undefined
  /** Rows of the network or its pools differ. */
  shaped: boolean
  addresses: number
  replaced: number
  locked: number
  longestLockMs: number
}

/** @throws BrokenBooks when the log has a gap, or its network or pools cannot be folded; then nothing was replaced */
export async function rebuild(options: RebuildOptions): Promise<RebuildReport> {
  const { network, onProgress } = options
  const client = await connect({ url: options.adminUrl, applicationName: 'ipledger rebuild' })
  const run: Run = {
    client,
    network,
    shape: newShape(network),
    counts: {
      network_lock: 0,
      network: 0,
      pool: 0,
      lease: 0,
      released_address: 0,
      untouched_range: 0,
      closed_attachment: 0,
      pool_position: 0,
      hold: 0,
      fence: 0,
    },
    differences: [],
    dirty: [],
    lost: [],
    lossy: false,
    pools: new Set(),
    progress: (what, done, of) => onProgress?.({ network, what, done, of }),
    signal: options.signal,
    slice: options.slice,
    shaped: false,
    addresses: 0,
    replaced: 0,
    locked: 0,
    longestLockMs: 0,
  }
  try {
    await compare(run, options.dryRun === true)
    const { head } = run.shape
    if (options.dryRun !== true) await replace(run)
    return {
      network,
      head,
      events: await countEvents(client, network, head),
      addresses: run.addresses,
      counts: run.counts,
      differences: run.differences,
      replaced: run.replaced,
      locked: run.locked,
      longestLockMs: run.longestLockMs,
    }
  } finally {
    await client.end()
  }
}

/** From the numbers alone: an era's are without a gap, as was asked before. */
async function countEvents(client: pg.Client, network: string, head: number): Promise<number> {
  let events = 0
  for (let era = 0; era <= eraOf(head); era += 1) {
    const { rows } = await client.query<{ last: number | null }>(
      'select max(seq) as last from ipledger.event where network_id = $1 and seq >= $2 and seq < $3',
      [network, firstSeqOfEra(era), firstSeqOfEra(era + 1)],
    )
    const last = rows[0]!.last
    if (last !== null) events += last - firstSeqOfEra(era) + 1
  }
  return events
}

// Comparing, without a lock.

async function compare(run: Run, dryRun: boolean): Promise<void> {
  const { client, shape, signal, slice } = run
  await inSnapshot(client, () => advanceShape(client, shape))
  await requireWhole(run)
  await inSnapshot(client, async () => {
    await advanceShape(client, shape)
    requireSound(shape)
    for (const difference of await compareShape(client, shape)) noteShape(run, difference)
  })
  for (const family of [4, 6] as const) {
    await walk(
      run,
      { family, interval: wholeFamily(family) },
      MOST_COMPARED,
      (work) => inSnapshot(client, work),
      async (slice) => {
        const rows = compareRows(slice.standings, slice)
        const spaces = compareSpaces(slice)
        for (const difference of rows) noteRow(run, difference)
        for (const difference of spaces) noteSpace(run, difference)
        const addresses = slice.settled.length + slice.standings.length
        run.addresses += addresses
        run.progress('comparing', run.addresses, null)
        if (rows.length > 0 || spaces.length > 0) run.dirty.push({ family, interval: slice.interval })
        addOverlaps(run, spaces)
        // Addresses without a row may be those of a pool that is gone: that these are not, the fold has said.
        if (2 * rows.filter(({ found }) => found === null).length > addresses) run.lossy ||= !dryRun
      },
      async (wanted) => {
        if (!run.lossy || !(await looksLost(client, shape, family, wanted))) return false
        run.lost.push({ family, interval: wanted.interval })
        run.addresses += wanted.addresses.length
        run.progress('comparing', run.addresses, null)
        return true
      },
    )
  }
  await walkClosings(client, shape, {
    guarded: true,
    signal,
    slice,
    use: async (differences) => {
      for (const difference of differences) noteClosing(run, difference)
    },
  })
  for (const poolId of [...shape.pools.keys()]) {
    await tallyPool(client, shape, poolId, async (tally) => noteTally(run, tally), { signal, slice })
  }
}

/** Numbers alone say that an event is lost; those that come later are numbered under the lock. */
async function requireWhole({ client, network, shape, signal, slice }: Run): Promise<void> {
  const use = ({ message }: Odd) => {
    throw new BrokenBooks(
      `${message}. Nothing is rebuilt from such a log: what the lost events gave out would be given again. ` +
        'Restore them to ipledger.event from a backup first',
    )
  }
  await walkNumbers(client, network, { from: 0, head: shape.head }, { use, times: false, signal, slice })
}

/** What cannot be folded cannot be rebuilt from, and half of it must not be written. */
function requireSound(shape: Shape): void {
  const [broken] = shape.broken
  if (broken !== undefined) throw new BrokenBooks(broken.why)
  if (shape.network === null) {
    const why = shape.head === 0 ? 'has no events' : 'was never created by an event'
    throw new BrokenBooks(`network ${shape.networkName} ${why}; there is nothing to rebuild it from`)
  }
}

/** Addresses of a slice: 8,000 took 0.06 to 0.7 s to compare, 1 s to write under the lock (2 cores, busy with other work). */
const ADDRESSES_AT_FIRST = 1_000
const MOST_COMPARED = 8_000
const MOST_REPLACED = 3_000

/** Reads an interval slice by slice, each in a transaction of its own, in which `use` sees it. */
async function walk(
  run: Run,
  { family, interval }: Dirty,
  most: number,
  transaction: (work: () => Promise<Range>) => Promise<Range>,
  use: (slice: Slice) => Promise<void>,
  passes: (wanted: Wanted) => Promise<boolean> = async () => false,
): Promise<void> {
  const { client, shape, network } = run
  const pace = createPace(ADDRESSES_AT_FIRST, most, run.slice)
  for (let { first } = interval; first <= interval.last; ) {
    run.signal?.throwIfAborted()
    const begun = performance.now()
    const { last } = await transaction(async () => {
      await advanceShape(client, shape)
      requireSound(shape)
      const wanted = await nextAddresses(client, network, family, { first, last: interval.last }, pace.size())
      if (await passes(wanted)) return wanted.interval
      const slice = await readSlice(client, shape, family, wanted, pace.size())
      await use(slice)
      return slice.interval
    })
    pace.took(performance.now() - begun)
    first = last + 1n
  }
}

/** A range that lies over others may reach into slices where only the others were seen. */
function addOverlaps(run: Run, spaces: readonly SpaceDifference[]): void {
  for (const { pool, overlaps } of spaces) {
    if (overlaps) run.dirty.push({ family: pool.family, interval: pool.range })
  }
}

/** What is outstanding, in order and without repetition. */
function inOrder(outstanding: readonly Dirty[]): readonly Dirty[] {
  return ([4, 6] as const).flatMap((family) =>
    normalise(outstanding.filter((one) => one.family === family).map(({ interval }) => interval)).map(
      (interval) => ({ family, interval }),
    ),
  )
}

function note(
  run: Run,
  table: ProjectionTable,
  about: string,
  { expected, found, columns }: Pick<ShapeDifference, 'expected' | 'found' | 'columns'>,
): void {
  run.counts[table] += 1
  if (run.differences.length >= MOST_NAMED) return
  const what = found === null ? 'missing' : expected === null ? 'unexplained' : 'differs'
  run.differences.push({ table, about, what, columns })
}

function noteShape(run: Run, difference: ShapeDifference): void {
  const { what, name } = difference
  if (what !== 'lock') run.shaped = true
  if (what === 'lock') note(run, 'network_lock', name, { ...difference, found: null })
  else if (what === 'rebuilding') note(run, 'network', name, { expected: [], found: [], columns: ['state'] })
  else if (what === 'ranges') note(run, 'untouched_range', `pool ${name}`, { ...difference, found: [] })
  else note(run, what, name, difference)
}

function noteRow(run: Run, difference: RowDifference): void {
  const { table, address, expected, found, standing } = difference
  note(run, table, address, difference)
  if (standing !== undefined) run.pools.add(standing.poolId)
  const columns = table === 'lease' ? LEASE : RELEASED
  const poolId = columns.findIndex(({ name }) => name === 'pool_id')
  for (const cells of [expected, found]) if (cells !== null) run.pools.add(cells[poolId] as number)
}

function noteSpace(run: Run, { pool, interval, missing, extra }: SpaceDifference): void {
  const first = [...missing, ...extra][0]?.first ?? interval.first
  note(run, 'untouched_range', `pool ${pool.name} at ${formatValue(pool.family, first)}`, {
    expected: [],
    found: extra.length === 0 && missing.length > 0 ? null : [],
    columns: [],
  })
  run.pools.add(pool.poolId)
}

function noteClosing(run: Run, difference: ClosingDifference): void {
  note(run, 'closed_attachment', difference.attachment, difference)
}

function noteTally(run: Run, tally: Tally): void {
  const columns = wrongColumns(tally)
  if (columns.length === 0) return
  const { pool, position } = tally
  note(run, 'pool_position', `pool ${pool.name}`, {
    expected: [],
    found: position === undefined ? null : [],
    columns: position === undefined ? [] : columns,
  })
  run.pools.add(pool.poolId)
}

const COUNTS = ['reserved', 'active', 'quarantined', 'released'] as const

function wrongColumns(tally: Tally): readonly string[] {
  const { position, counts, head } = tally
  if (position === undefined) return ['seq']
  const columns: string[] = COUNTS.filter((name) => position[name] !== counts[name])
  if (position.seq > head) columns.push('seq')
  columns.push(...wrongBounds(tally).map(({ column }) => column))
  return columns
}

// Replacing, under the network's lock.

async function replace(run: Run): Promise<void> {
  const { client, shape, counts } = run
  if (run.lost.length === 0 && Object.values(counts).every((count) => count === 0)) return
  if (counts.network_lock > 0) await restoreLock(run)
  const lost = inOrder(run.lost)
  const closings = () => counts.closed_attachment > 0 || counts.lease > 0
  const outstanding =
    (run.shaped ? 1 : 0) + lost.length + run.dirty.length + (closings() ? 1 : 0) + run.pools.size
  const many = outstanding > 1
  const locked = <T>(work: () => Promise<T>) => underItsLock(run, work)

  if (run.shaped || many) {
    await locked(async () => {
      await advanceShape(client, shape)
      requireSound(shape)
      await replaceShape(run, many)
    })
  }
  for (const [index, interval] of lost.entries()) {
    await walk(run, interval, MOST_REPLACED, locked, (slice) => replaceSlice(run, slice, true))
    run.progress('replacing', index + 1, outstanding)
  }
  // What lies over others is known only now, where it was lost to be looked for.
  for (const [index, interval] of inOrder(run.dirty).entries()) {
    await walk(run, interval, MOST_REPLACED, locked, (slice) => replaceSlice(run, slice, false))
    run.progress('replacing', lost.length + index + 1, outstanding)
  }
  if (closings()) {
    await walkClosings(client, shape, {
      guarded: true,
      begin: locked,
      signal: run.signal,
      slice: run.slice,
      use: (differences) => replaceClosings(run, differences),
    })
  }
  for (const poolId of run.pools) {
    await tallyPool(client, shape, poolId, (tally) => replacePosition(run, tally), {
      end: locked,
      signal: run.signal,
      slice: run.slice,
    })
  }
  // A service that started meanwhile may have closed the network for what is mended now.
  if (many || (await saysRebuilding(run))) {
    await locked(async () => {
      await advanceShape(client, shape)
      requireSound(shape)
      await setNetwork(run, false)
    })
  }
  run.progress('replacing', outstanding, outstanding)
}

async function saysRebuilding({ client, network }: Run): Promise<boolean> {
  const { rowCount } = await client.query(
    `select 1 from ipledger.network where network_id = $1 and state = 'REBUILDING'`,
    [network],
  )
  return rowCount === 1
}

async function underItsLock<T>(run: Run, work: () => Promise<T>): Promise<T> {
  let begun = 0
  const result = await underLock(run.client, run.network, () => {
    begun = performance.now()
    return work()
  })
  run.locked += 1
  run.longestLockMs = Math.max(run.longestLockMs, performance.now() - begun)
  return result
}

/**
 * Without its row every batch passes unlocked. The table's lock waits for those that did, since each of them holds the
 * table until it commits, and keeps the next ones waiting until the row is there.
 */
async function restoreLock(run: Run): Promise<void> {
  await transact(run.client, 'begin', async () => {
    await run.client.query('lock table ipledger.network_lock in exclusive mode')
    await run.client.query(
      'insert into ipledger.network_lock (network_id) values ($1) on conflict do nothing',
      [run.network],
    )
  })
  run.replaced += 1
}

async function write(run: Run, text: string, given: readonly unknown[]): Promise<void> {
  const { rowCount } = await run.client.query(text, [...given])
  run.replaced += rowCount ?? 0
}

/** The rows of the network and its pools; with `rebuilding` the network's says so from now on. */
async function replaceShape(run: Run, rebuilding: boolean): Promise<void> {
  const { client, network, shape } = run
  const differences = await compareShape(client, shape)
  const wrong = differences.some(({ what }) => what === 'network' || what === 'rebuilding')
  if (rebuilding || wrong) await setNetwork(run, rebuilding)
  if (wrong) run.replaced += 1
  const pools = differences.filter(({ what }) => what === 'pool')
  for (const { what, expected, found } of differences) {
    if (what === 'hold') await replaceHold(run, expected, found)
    else if (what === 'fence') await replaceFence(run, expected, found)
  }
  // Wrong ones first: a right row may not stand beside them.
  for (const { poolId, found } of pools)
    if (found !== null) await write(run, WRITES.poolGone, [network, poolId])
  for (const { expected } of pools) if (expected !== null) await write(run, WRITES.poolSet, expected)
  for (const { what, poolId } of differences) {
    if (what === 'ranges') await write(run, WRITES.rangesOfPoolGone, [network, poolId])
  }
}

async function replaceHold(run: Run, expected: Cells | null, found: Cells | null): Promise<void> {
  const { network } = run
  if (expected === null) await write(run, WRITES.holdsGone, [network, [found![0]]])
  else
    await write(
      run,
      WRITES.holdsSet,
      values(network, HOLD, [expected], (cells) => cells),
    )
}

async function replaceFence(run: Run, expected: Cells | null, found: Cells | null): Promise<void> {
  const { network } = run
  const gone = 'delete from ipledger.fence where network_id = $1 and node = $2 and boot = $3'
  if (expected === null) await write(run, gone, [network, ...found!.slice(0, 2)])
  else
    await write(
      run,
      WRITES.fencesSet,
      values(network, FENCE, [expected], (cells) => cells),
    )
}

// A rebuild that broke off goes on being the same one.
const REBUILDING_SINCE = `
  update ipledger.network set rebuilding_since = case state when 'REBUILDING' then coalesce(rebuilding_since, clock_timestamp()) end
   where network_id = $1`

async function setNetwork(
  { client, shape }: Pick<Run, 'client' | 'shape'>,
  rebuilding: boolean,
): Promise<void> {
  const network = shape.network!
  const state = rebuilding ? 'REBUILDING' : network.state
  await client.query(WRITES.networkSet, [...networkCells({ ...network, state })])
  await client.query(REBUILDING_SINCE, [network.network])
  await client.query(
    `update ipledger.network set created_at = to_timestamp($2::float8 / 1000)
      where network_id = $1 and created_at <> to_timestamp($2::float8 / 1000)`,
    [network.network, network.createdAt],
  )
}

const LEASES_GONE = 'delete from ipledger.lease where network_id = $1 and address = any($2::inet[])'
const RELEASED_GONE =
  'delete from ipledger.released_address where network_id = $1 and address = any($2::inet[])'

async function replaceSlice(run: Run, slice: Slice, unnoted: boolean): Promise<void> {
  const { network } = run
  const rows = compareRows(slice.standings, slice)
  const spaces = compareSpaces(slice)
  if (unnoted) {
    for (const difference of rows) noteRow(run, difference)
    for (const difference of spaces) noteSpace(run, difference)
    addOverlaps(run, spaces)
  }
  for (const [table, columns, gone, added] of [
    ['lease', LEASE, LEASES_GONE, WRITES.leasesBegin],
    ['released_address', RELEASED, RELEASED_GONE, WRITES.releasedAdded],
  ] as const) {
    const mine = rows.filter((row) => row.table === table)
    const found = mine.flatMap((row) => (row.found === null ? [] : [addressOfCells(row.found)]))
    const expected = mine.flatMap((row) => (row.expected === null ? [] : [row.expected]))
    if (found.length > 0) await write(run, gone, [network, found])
    if (expected.length > 0)
      await write(
        run,
        added,
        values(network, columns, expected, (cells: Cells) => cells),
      )
  }
  for (const difference of spaces) await replaceSpace(run, difference)
}

/** Stores a stretch as it should be; what lies beside it in the same rows stays as it is. */
async function replaceSpace(run: Run, { pool, interval, expected, space }: SpaceDifference): Promise<void> {
  const { network } = run
  if (space.cursor !== null) await clearCursor(run, pool.poolId)
  const text = (value: bigint) => formatValue(pool.family, value)
  const involved = space.rows.filter(
    (row) => row.last >= interval.first - 1n && row.first <= interval.last + 1n,
  )
  const kept = involved.flatMap((row) => {
    // The row that the cursor names begins there, and from now on by itself.
    const first = space.cursor?.first === row.first ? space.cursor.next : row.first
    return first > row.last ? [] : subtract([{ first, last: row.last }], [interval])
  })
  const wanted = normalise([...kept, ...expected])
  const gone = involved.map(({ first }) => text(first))
  if (gone.length > 0) await write(run, WRITES.rangesGone, [network, pool.poolId, gone])
  if (wanted.length > 0) {
    await write(
      run,
      WRITES.rangesSet,
      values(network, RANGE, wanted, ({ first, last }) => [pool.poolId, text(first), text(last)]),
    )
  }
  // A cursor into another row keeps its meaning by being written into that row.
  if (space.cursor !== null && !involved.some(({ first }) => first === space.cursor!.first)) {
    const { first, next } = space.cursor
    await write(
      run,
      `update ipledger.untouched_range set first_address = $4::inet
        where network_id = $1 and pool_id = $2 and first_address = $3::inet and last_address >= $4::inet`,
      [network, pool.poolId, text(first), text(next)],
    )
  }
}

/** A position at the head like the last one, but without bounds: rows change under them until the pool is counted. */
async function clearCursor(run: Run, poolId: number): Promise<void> {
  const { client, network, shape } = run
  const position = (await readPositions(client, network, [poolId])).get(poolId)
  if (position === undefined) return
  const { reserved, active, quarantined, released } = position
  await setPosition(run, [
    poolId,
    shape.head,
    null,
    null,
    null,
    null,
    reserved,
    active,
    quarantined,
    released,
  ])
}

/** Cells of a position; one at the same number or after it is replaced. */
async function setPosition(run: Run, cells: Cells): Promise<void> {
  const { network } = run
  await write(
    run,
    'delete from ipledger.pool_position where network_id = $1 and pool_id = $2 and seq >= $3',
    [network, cells[0], cells[1]],
  )
  await write(
    run,
    WRITES.positions,
    values(network, POSITION, [cells], (one) => one),
  )
}

async function replaceClosings(run: Run, differences: readonly ClosingDifference[]): Promise<void> {
  const { network } = run
  const found = differences.filter((one) => one.found !== null)
  const expected = differences.flatMap((one) => (one.expected === null ? [] : [one.expected]))
  for (const { attachment, poolId } of found) {
    await write(
      run,
      'delete from ipledger.closed_attachment where network_id = $1 and attachment_key = $2 and pool_id = $3',
      [network, attachment, poolId],
    )
  }
  if (expected.length > 0)
    await write(
      run,
      WRITES.closingsSet,
      values(network, CLOSED, expected, (cells) => cells),
    )
}

async function replacePosition(run: Run, tally: Tally): Promise<void> {
  const wrong = wrongColumns(tally)
  if (wrong.length === 0) return
  const { pool, counts, position, lowest, earliestAvailableAt } = tally
  const { shape } = run
  const text = (value: bigint | undefined) => (value === undefined ? null : formatValue(pool.family, value))
  const cursor = wrong.includes('cursor_first') ? undefined : (position?.cursor ?? undefined)
  await setPosition(run, [
    pool.poolId,
    shape.head,
    text(lowest?.first),
    text(cursor?.first),
    text(cursor?.next),
    // No later release is free before its own event, which is not before the last one.
    earliestAvailableAt === null ? null : Math.min(earliestAvailableAt, shape.headAt),
    counts.reserved,
    counts.active,
    counts.quarantined,
    counts.released,
  ])
}

// For the service's start.

/**
 * In a network whose projections are lost Reserve is refused from now on, until a rebuild has ended; answers why, or
 * nothing if they are there. Needs no more than the service's rights.
 *
 * What was seen is looked at again under the lock: a rebuild may have ended meanwhile, and nobody would open what is
 * closed after it.
 */
export async function closeIfLost(client: pg.Client, network: string): Promise<readonly string[]> {
  const { whole } = await projectionsLookWhole(client, network)
  if (whole) return []
  await client.query('insert into ipledger.network_lock (network_id) values ($1) on conflict do nothing', [
    network,
  ])
  return underLock(client, network, async () => {
    const shape = newShape(network)
    const why = await whyLost(client, shape)
    if (why.length > 0) await close(client, shape)
    return why
  })
}

/** As it stands, where the log does not say what the network is. Without a row it is closed already. */
async function close(client: pg.Client, shape: Shape): Promise<void> {
  if (shape.network !== null && shape.broken.length === 0) {
    await setNetwork({ client, shape }, true)
    return
  }
  await client.query(`update ipledger.network set state = 'REBUILDING' where network_id = $1`, [
    shape.networkName,
  ])
  await client.query(REBUILDING_SINCE, [shape.networkName])
}

/**
 * Whether a network's projections are there at all: a look a pool that the log has, not a comparison. A table that was
 * truncated or half restored is seen, a lost row is not (`verify` finds it); nor are lost closed attachments, without
 * which late calls are answered, but no address is given twice. The service asks before it serves: with projections
 * lost it would take the held addresses for free.
 */
export async function projectionsLookWhole(
  client: pg.Client,
  network: string,
): Promise<{ readonly whole: boolean; readonly why: readonly string[] }> {
  const why = await inSnapshot(client, () => whyLost(client, newShape(network)))
  return { whole: why.length === 0, why }
}

/** A log that cannot be folded is the trouble of its network, not of all that are looked at (azure#4449). */
async function whyLost(client: pg.Client, shape: Shape): Promise<readonly string[]> {
  const why: string[] = []
  try {
    await advanceShape(client, shape)
    for (const { what, name, expected, found, columns } of await compareShape(client, shape)) {
      if (what === 'rebuilding') why.push(`a rebuild of network ${name} did not end`)
      else if (what === 'lock') why.push(`network ${name} has no row in network_lock`)
      else if (found === null) why.push(`${what} ${name} has no row`)
      else if (expected === null) why.push(`${what} ${name} has a row and no event that made it`)
      else if (what === 'pool') why.push(`pool ${name} differs from its events in ${columns.join(', ')}`)
    }
    for (const stock of await readStocks(client, shape)) why.push(...missingStock(shape, stock))
    why.push(...(await missingLast(client, shape)))
  } catch (error) {
    if (!(error instanceof Error) || sqlState(error) !== undefined) throw error
    why.push(`its log cannot be folded: ${error.message}`)
  }
  return why
}

/** Projections that end before the log does: a table restored from an older copy. */
async function missingLast(client: pg.Client, shape: Shape): Promise<readonly string[]> {
  const { networkName: network, head } = shape
  const { rows } = await client.query<{ address: string | null }>(
    'select address from ipledger.event where network_id = $1 and seq = $2',
    [network, head],
  )
  const address = rows[0]?.address ?? null
  if (address === null) return []
  const standings = await readStandings(client, shape, [readAddress(address)])
  const differences = compareRows(standings, await readRowsAt(client, network, [readAddress(address)]))
  return differences.length === 0 ? [] : [`what event ${head} left at ${address} is not what is stored there`]
}

const STOCKS = `select p.pool_id,
    x.reserved + x.active + x.quarantined as held, x.released,
    exists (select from ipledger.lease l
      where l.network_id = $1 and l.address between p.first_address and p.last_address) as has_lease,
    exists (select from ipledger.released_address r
      where r.network_id = $1 and r.pool_id = p.pool_id) as has_released,
    exists (select from ipledger.untouched_range u
      where u.network_id = $1 and u.pool_id = p.pool_id) as has_untouched
  from unnest($2::bigint[], $3::inet[], $4::inet[]) as p (pool_id, first_address, last_address)
  left join lateral (
    select q.reserved, q.active, q.quarantined, q.released from ipledger.pool_position q
     where q.network_id = $1 and q.pool_id = p.pool_id order by q.seq desc limit 1) x on true`

type Stock = {
  pool_id: number
  held: number | null
  released: number | null
  has_lease: boolean
  has_released: boolean
  has_untouched: boolean
}

async function readStocks(client: pg.Client, shape: Shape): Promise<readonly Stock[]> {
  const pools = [...shape.pools.values()]
  const { rows } = await client.query<Stock>(STOCKS, [
    shape.networkName,
    pools.map(({ poolId }) => poolId),
    pools.map(({ family, range }) => formatValue(family, range.first)),
    pools.map(({ family, range }) => formatValue(family, range.last)),
  ])
  return rows
}

function missingStock(shape: Shape, stock: Stock): readonly string[] {
  const pool = shape.pools.get(stock.pool_id)!
  const { held, released } = stock
  if (held === null || released === null) return [`pool ${pool.name} has no position`]
  const why: string[] = []
  const untouched = poolSize(pool).allocatable - BigInt(held + released)
  if (held > 0 !== stock.has_lease)
    why.push(`pool ${pool.name} counts ${held} leases and has ${some(stock.has_lease)}`)
  if (released > 0 !== stock.has_released)
    why.push(`pool ${pool.name} counts ${released} released addresses and has ${some(stock.has_released)}`)
  if (untouched > 0n !== stock.has_untouched)
    why.push(
      `pool ${pool.name} should have ${untouched} untouched addresses and has ${some(stock.has_untouched)}`,
    )
  return why
}

function some(has: boolean): string {
  return has ? 'some' : 'none'
}
