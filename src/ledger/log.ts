/**
 * What the loop needs of a log. PostgreSQL has one (`pg-log.ts`), the simulator's memory another;
 * one contract suite passes on both.
 *
 * A transaction holds the lock of its network from `begin` to its end, so its tail is the end of the log. What is written is
 * one transaction: events, projections, answers to requests. The log refuses a number that is taken and a second event with
 * the same predecessor, even if an image is wrong.
 */
import type { Freshness, Known, PoolView, Remembered, RequestName } from '../core/command.ts'
import type { AddressRecord, LedgerEvent } from '../core/event.ts'
import type { Image, NetworkState, Sighting, SourceState } from '../core/image.ts'
import type { PoolSettings } from '../core/pool.ts'
import type { Prefetch } from './prefetch.ts'

/** An event with the digest of the log up to it, in hexadecimal. */
export type Chained = { readonly event: LedgerEvent; readonly digest: string }

export type CatchUp = {
  /** Head of the image. */
  readonly after: number
  readonly prefetch: Prefetch
  /** The network is to be created: its lock may have to be made first. */
  readonly creates: boolean
  /** Another number whose digest is wanted: the last of a batch whose outcome is unknown. */
  readonly expectedSeq: number | null
}

export type Caught = {
  /** The database's clock, in whole milliseconds; null: of Citus only that of the coordinator counts. */
  readonly clock: number | null
  /** Life of the database: system identifier, database, table of the log, timeline. */
  readonly identity: string
  /** Digest of the event `after`; null: it is not in the log. 64 zeros for 0. */
  readonly digest: string | null
  /** Digest of the event `expectedSeq`; null: it is not in the log. */
  readonly expectedDigest: string | null
  /** The first page of events after `after`, in order. */
  readonly tail: readonly Chained[]
  /** There are more than that. */
  readonly isCut: boolean
  readonly known: Known
}

/** What a batch writes. Projections are whole rows, as the image has them after the batch. */
export type Write = {
  /** `text`: what the digest is of. */
  readonly events: readonly (Chained & { readonly text: string })[]
  /** Last record of each address that an event is about. */
  readonly records: readonly AddressRecord[]
  readonly pools: readonly PoolRow[]
  readonly network: NetworkState | null
  readonly sources: readonly SourceState[]
  readonly freshness: readonly Freshness[]
  /** What is listed now at each address where that changed. */
  readonly sightings: ReadonlyMap<string, readonly Sighting[]>
  readonly requests: readonly RequestRow[]
}

/** Without settings the pool is deleted. */
export type PoolRow = Omit<PoolView, 'settings'> & { readonly settings: PoolSettings | null }

export type RequestRow = Remembered & Omit<RequestName, 'key'> & { readonly seq: number; readonly at: number }

export type Committed =
  /** `isWarned`: the commit came with a warning, so no standby has confirmed it; its outcome counts as unknown. */
  | { readonly kind: 'committed'; readonly isWarned: boolean }
  /** Rolled back, confirmed; vetoed: a constraint refused it. Unknown: the answer is lost. */
  | { readonly kind: 'rolledBack' | 'vetoed' | 'unknown'; readonly error: unknown }

export type Transaction = {
  readonly caught: Caught
  /** What turned out to be missing after catching up. */
  know(missing: Prefetch): Promise<Known>
  /** @throws when it cannot be sent: nothing was done, and it is to be abandoned */
  commit(write: Write): Promise<Committed>
  /** Ends it without a write. Never rejects. */
  abandon(): Promise<void>
}

export type Loaded = Readonly<Pick<Image, 'head' | 'at' | 'digest' | 'network'>> & {
  readonly pools: readonly PoolRow[]
  readonly sources: readonly SourceState[]
  readonly sightings: readonly Sighting[]
  /** In pages, so that other work runs between them. */
  readonly records: AsyncIterable<readonly AddressRecord[]>
  /** Events of the last hour that closings and the breaker follow from, in order. */
  readonly recent: AsyncIterable<readonly Chained[]>
}

/** The projections are not the fold of the log: the greatest number in `lease` is not the log's last about an address. */
export class NeedsRebuild extends Error {
  constructor(network: string) {
    super(
      `the projections of network ${network} are not the fold of its log: run ipledger rebuild --network ${network}`,
    )
  }
}
/** The log holds events of a format that this process does not know: a newer one writes it. */
export class UnknownFormat extends Error {}

export type Log = {
  /** @throws when the lock could not be had: nothing was done */
  begin(network: string, catchUp: CatchUp): Promise<Transaction>
  /** A page of events after a number, without the lock: for an image that is far behind. */
  tail(
    network: string,
    after: number,
  ): Promise<{ readonly tail: readonly Chained[]; readonly isCut: boolean }>
  /** Reads an image at one head and hands it to `build`. */
  load<T>(network: string, build: (loaded: Loaded) => Promise<T>): Promise<T>
  /** The database's clock, for the watch on it. */
  clock(): Promise<number>
}
