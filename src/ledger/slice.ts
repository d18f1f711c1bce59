/**
 * A batch's working copy: the books that decisions read, and beside them how the rows they came from are stored,
 * which only the shell needs: positions of free space, and what stood at each address before the batch.
 */
import type { AddressBook, Books, ClosedAttachment } from '../core/books.ts'
import { emptyBooks, UNTOUCHED } from '../core/books.ts'
import type { LedgerEvent } from '../core/event.ts'
import type { Lease } from '../core/lease.ts'
import type { Range } from '../core/ranges.ts'
import { type AbsenceMemory, newAbsenceMemory } from './absence.ts'
import type { DatabaseSeen } from './life.ts'

/** How a pool's free space is stored; see `pool_position` and `untouched_range`. */
export type PoolStorage = {
  /** No stored range starts below. */
  lowFirst: bigint | null
  /** The stored range that begins at `cursorNext` instead of `cursorFirst`. */
  cursor: { readonly first: bigint; readonly next: bigint } | null
  reuseAfter: number | null
  /** Stored rows that were read, by their first address. */
  readonly ranges: Map<bigint, Range>
  /** Keyset of the last candidates read. */
  lastRange: bigint | null
  lastReleased: { readonly availableAt: number; readonly releasedSeq: number } | null
}

export type Slice = {
  readonly books: Books
  readonly storage: Map<number, PoolStorage>
  /** Ranges read around an address before their pool was; filed as soon as it is. */
  readonly strayRanges: Map<number, Range[]>
  /** What was read at each address, before this batch's events. */
  readonly before: Map<string, AddressBook>
  /** Where the row lies that was read at an address: of the lease, or of the released address. */
  readonly rowIds: Map<string, string>
  readonly closingsBefore: Map<string, readonly ClosedAttachment[]>
  /** Of this batch, so far. */
  readonly events: LedgerEvent[]
  /** Of this process. */
  readonly absence: AbsenceMemory
  /** Whether there is a source that is not retired: at first a guess, once the head is read the truth. */
  watched: boolean
  /** Read with the head. */
  database: DatabaseSeen | null
  /** What the database's clock said then, before it was made monotonic. */
  clock: number
}

/**
 * Rows that are there and cannot be read, or events that cannot be written: a defect of whichever command needs
 * them, and of no other (Azure#4449: one record blocked all).
 */
export class Unsound extends Error {}

export function emptySlice(
  network: string,
  setAside: ReadonlySet<string>,
  absence: AbsenceMemory = newAbsenceMemory(),
  watched = true,
): Slice {
  return {
    books: emptyBooks(network, setAside),
    storage: new Map(),
    strayRanges: new Map(),
    before: new Map(),
    rowIds: new Map(),
    closingsBefore: new Map(),
    events: [],
    absence,
    watched,
    database: null,
    clock: 0,
  }
}

/**
 * By how much this batch has changed a count of leases, so far: the database counts those of before it, whenever it is
 * asked.
 */
export function changeOf(slice: Slice, counts: (lease: Lease) => boolean): number {
  let change = 0
  for (const [address, { lease }] of slice.books.addresses) {
    // What was not read at an address was read as untouched space around it.
    const before = (slice.before.get(address) ?? UNTOUCHED).lease
    if (lease === before) continue
    if (lease !== null && counts(lease)) change += 1
    if (before !== null && counts(before)) change -= 1
  }
  return change
}
