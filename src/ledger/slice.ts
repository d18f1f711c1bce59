/**
 * A batch's working copy: the books that decisions read, and beside them how the rows they came from are stored,
 * which only the shell needs: positions of free space, and what stood at each address before the batch.
 */
import type { AddressBook, Books, ClosedAttachment } from '../core/books.ts'
import { emptyBooks } from '../core/books.ts'
import type { Range } from '../core/ranges.ts'

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
}

/**
 * Rows that are there and cannot be read, or events that cannot be written: a defect of whichever command needs
 * them, and of no other (Azure#4449: one record blocked all).
 */
export class Unsound extends Error {}

export function emptySlice(network: string, setAside: ReadonlySet<string>): Slice {
  return {
    books: emptyBooks(network, setAside),
    storage: new Map(),
    strayRanges: new Map(),
    before: new Map(),
    rowIds: new Map(),
    closingsBefore: new Map(),
  }
}
