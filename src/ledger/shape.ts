/**
 * A network and its pools as the log made them, with what each pool could lease at every number, and what was said of
 * reaping: the little of a ledger that is kept in memory while its addresses are walked in slices. Pools, holds and
 * fences are few; their events are found by an index of their own.
 *
 * A released address that left its pool with an edit and came back with a later one is untouched again. Which ones
 * those are is asked of `evolveUntouched`, the rule by which the write path reshapes a pool.
 */
import type pg from 'pg'
import { type Family, isBlockBase } from '../core/address.ts'
import { BrokenBooks, bootKey, type Fence, type Hold } from '../core/books.ts'
import type { LedgerEvent } from '../core/event.ts'
import { evolveFence, evolveHold, evolveNetwork, evolvePool, evolveUntouched } from '../core/evolve.ts'
import type { Network } from '../core/network.ts'
import type { Pool } from '../core/pool.ts'
import { contains, type Range } from '../core/ranges.ts'
import { EVENT_COLUMNS, type EventRow, readEvent } from './rows.ts'

/** What a pool could lease from this number on; nothing once it is deleted. */
type Epoch = { readonly seq: number; readonly allocatable: readonly Range[] }

type PoolHistory = {
  readonly epochs: Epoch[]
  /** By epoch: what became untouched again from it on, of everything that was touched before it. */
  readonly regained: Map<number, readonly Range[]>
}

export type Shape = {
  readonly networkName: string
  /** Number and time of the last event when the shape was last advanced. */
  head: number
  headAt: number
  network: Network | null
  readonly pools: Map<number, Pool>
  /** The same, by family and address. */
  ordered: readonly Pool[]
  readonly histories: Map<number, PoolHistory>
  /** By source; the network's without one. */
  readonly holds: Map<string, Hold>
  /** By `bootKey`. */
  readonly fences: Map<string, Fence>
  /** Events the fold could not take, with the reason. */
  readonly broken: { readonly seq: number; readonly why: string }[]
}

/** The condition of the index `event_of_shape`. */
export const IS_SHAPE = `type in ('network.created', 'network.updated', 'era.begun', 'pool.created', 'pool.updated', 'pool.deleted',
  'node.fenced', 'reconcile.held', 'reconcile.resumed')`
const PAGE = 2_000

export function newShape(network: string): Shape {
  return {
    networkName: network,
    head: 0,
    headAt: 0,
    network: null,
    pools: new Map(),
    ordered: [],
    histories: new Map(),
    holds: new Map(),
    fences: new Map(),
    broken: [],
  }
}

/** Folds what came since, up to the head that this transaction sees. */
export async function advanceShape(client: pg.Client, shape: Shape): Promise<void> {
  const { rows: heads } = await client.query<{ seq: number; at: number }>(
    'select e.seq, e.at from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1',
    [shape.networkName],
  )
  const head = heads[0]
  if (head === undefined || head.seq <= shape.head) return
  let after = shape.head
  for (;;) {
    const { rows } = await client.query<EventRow>(
      `select ${EVENT_COLUMNS.join(', ')} from ipledger.event
        where network_id = $1 and seq > $2 and ${IS_SHAPE} order by seq limit $3`,
      [shape.networkName, after, PAGE],
    )
    for (const row of rows) takeEvent(shape, row)
    if (rows.length < PAGE) break
    after = rows.at(-1)!.seq
  }
  shape.head = head.seq
  shape.headAt = head.at
}

function takeEvent(shape: Shape, row: EventRow): void {
  try {
    const event = readEvent(row)
    shape.network = evolveNetwork(shape.network, event)
    if ('pool' in event) takePool(shape, event)
    else takeStatement(shape, event)
  } catch (error) {
    // Settings that were canonical when they were stored and are not now, or a change of what never was.
    if (!(error instanceof Error)) throw error
    const why =
      error instanceof BrokenBooks
        ? error.message
        : `event ${row.network_id}/${row.seq} (${row.type}): ${error.message}`
    shape.broken.push({ seq: row.seq, why })
  }
}

function takeStatement(shape: Shape, event: LedgerEvent): void {
  switch (event.type) {
    case 'reconcile.held':
    case 'reconcile.resumed': {
      const hold = evolveHold(event)
      if (hold === null) shape.holds.delete(event.evidence.source)
      else shape.holds.set(hold.source, hold)
      return
    }
    case 'node.fenced': {
      const fence = evolveFence(event)
      shape.fences.set(bootKey(fence.node, fence.boot), fence)
      return
    }
    default:
      return
  }
}

function takePool(shape: Shape, event: LedgerEvent & { readonly poolId: number }): void {
  const { poolId } = event
  const pool = evolvePool(shape.pools.get(poolId) ?? null, event)
  if (pool === null) shape.pools.delete(poolId)
  else shape.pools.set(poolId, pool)
  shape.ordered = [...shape.pools.values()].sort(byPlace)
  const allocatable = pool?.allocatable ?? []
  const history: PoolHistory = shape.histories.get(poolId) ?? { epochs: [], regained: new Map() }
  shape.histories.set(poolId, history)
  const last = history.epochs.at(-1)
  if (last !== undefined && equalRanges(last.allocatable, allocatable)) return
  history.epochs.push({ seq: event.seq, allocatable })
  history.regained.clear()
}

function byPlace(a: Pool, b: Pool): number {
  if (a.family !== b.family) return a.family - b.family
  return a.range.first < b.range.first ? -1 : a.range.first > b.range.first ? 1 : 0
}

function equalRanges(a: readonly Range[], b: readonly Range[]): boolean {
  return (
    a.length === b.length &&
    a.every((range, index) => range.first === b[index]!.first && range.last === b[index]!.last)
  )
}

/** Grows when what a pool can lease changes. */
export function epochsOf(shape: Shape, poolId: number): number {
  return shape.histories.get(poolId)?.epochs.length ?? 0
}

/** Whether an address that an event touched is still remembered by its pool, or left it since. */
export function stillTouched(shape: Shape, poolId: number, value: bigint, seq: number): boolean {
  const history = shape.histories.get(poolId)
  if (history === undefined) return false
  const { epochs } = history
  const next = epochs.findIndex((epoch) => epoch.seq > seq)
  if (next < 0) return true
  return contains(epochs.at(-1)!.allocatable, value) && !contains(regainedFrom(history, next), value)
}

function regainedFrom(history: PoolHistory, from: number): readonly Range[] {
  const known = history.regained.get(from)
  if (known !== undefined) return known
  let untouched: readonly Range[] = []
  for (let index = from; index < history.epochs.length; index += 1) {
    const before = history.epochs[index - 1]?.allocatable ?? []
    untouched = evolveUntouched(untouched, before, history.epochs[index]!.allocatable)
  }
  history.regained.set(from, untouched)
  return untouched
}

/** The pool whose range holds this address. */
export function poolOver(shape: Shape, family: Family, value: bigint): Pool | undefined {
  const index = firstEndingAtOrAfter(shape.ordered, family, value)
  const pool = shape.ordered[index]
  return pool !== undefined && pool.family === family && pool.range.first <= value ? pool : undefined
}

/** Pools that share addresses with an interval, in order, at most so many. */
export function poolsIn(shape: Shape, family: Family, interval: Range, most: number): readonly Pool[] {
  const found: Pool[] = []
  for (
    let index = firstEndingAtOrAfter(shape.ordered, family, interval.first);
    found.length < most;
    index += 1
  ) {
    const pool = shape.ordered[index]
    if (pool === undefined || pool.family !== family || pool.range.first > interval.last) break
    found.push(pool)
  }
  return found
}

function firstEndingAtOrAfter(ordered: readonly Pool[], family: Family, value: bigint): number {
  let low = 0
  let high = ordered.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const pool = ordered[middle]!
    if (pool.family < family || (pool.family === family && pool.range.last < value)) low = middle + 1
    else high = middle
  }
  return low
}

/** A lease that stands where its pool does not reach, or not as a whole block of it; said as a sentence's end. */
export function misplaced(
  shape: Shape,
  lease: { readonly poolId: number; readonly prefixLength: number },
  value: bigint,
): string | null {
  const pool = shape.pools.get(lease.poolId)
  if (pool === undefined) return `pool ${lease.poolId} does not exist`
  if (lease.prefixLength !== pool.prefixLength) {
    return `pool ${pool.name} leases /${pool.prefixLength}, not /${lease.prefixLength}`
  }
  if (!contains(pool.allocatable, value)) return `pool ${pool.name} (${pool.cidr}) cannot lease it`
  return isBlockBase(pool.family, value, pool.prefixLength)
    ? null
    : `no /${pool.prefixLength} of pool ${pool.name} begins there`
}
