/**
 * Which report of its source an entry that is listed is evidence of, and so of which head of the ledger (DESIGN §4).
 *
 * An entry that stays is written down once, when it appears; which reports listed it since, only some reports tell. The
 * last complete one of a warm source listed it, or would have ended it. One with holes, one of a source that warms up,
 * and one that proves no beginning may have listed it or not, and end nothing. After such a report nobody knows how new
 * the evidence is: it protects, however old it may be, and decides nothing. Taken for as old as the last report that
 * tells, it would hand out an address that every report since then lists.
 */

export type Report = { readonly sequence: number; readonly head: number; readonly begunAt: number }

/** As the entry appeared; at head 0 nothing proves when that report was begun. */
export type Appeared = Report

/** How its source stands, as far as it tells. */
export type Reports = {
  readonly warm: boolean
  readonly lastSequence: number
  /** When the last report, whichever, was begun; of one that proves no beginning, when it arrived. */
  readonly lastBegunAt: number | null
  /** The last complete one. */
  readonly complete: Report | null
}

/** Null: nothing tells. */
export function lastListing(appeared: Appeared, source: Reports): Report | null {
  const { warm, complete } = source
  const listing = warm && complete !== null && complete.sequence > appeared.sequence ? complete : appeared
  return listing.head > 0 && isLast(listing, source) ? listing : null
}

/**
 * Whether an entry that is listed as ended is believed. An end frees, so nothing does for it but a complete report of a
 * warm source that listed it, and only as long as that report is the last (INV-6); one of a closed epoch never is.
 */
export function provesEnd(appeared: Appeared, source: Reports): boolean {
  const listing = source.warm ? lastListing(appeared, source) : null
  return listing !== null && listing.sequence === source.complete?.sequence
}

function isLast({ sequence, begunAt }: Report, { lastSequence, lastBegunAt }: Reports): boolean {
  return sequence === lastSequence && (lastBegunAt === null || begunAt >= lastBegunAt)
}
