/**
 * How far a source is to be believed, and how that changes with each of its reports. Pure: the shell reads the standing
 * under the lock of the source's row, asks here, and writes what comes out.
 *
 * - *Partial evidence only protects*: a report that was not provably begun (no token, a late one, another era's), came
 *   out of order, belongs to a closed epoch, was declared incomplete or could not be read in full neither counts nor
 *   resets anything.
 * - A new *epoch* closes the older ones for good and starts *warm-up*: two complete snapshots whose size has stopped
 *   growing (cilium#9888: an empty map published while it was being restored).
 *   Until then what it does not list stays listed: the first list after a start takes no address back into use (INV-6).
 *   A new *era* starts it as well: that its source was warm is said by books that are older than the world (12.1), and
 *   what it lists now ends a recovery.
 * - A complete snapshot of a warm epoch *counts* if it was begun at least half an interval after the last counted one:
 *   k misses are k looks, not one look reported k times.
 * - The *streak* is what misses are counted in. It begins anew after a gap, with a new epoch, era or enabling.
 */
import { POLICY } from '../core/policy.ts'

/** Why a report is only partial. */
export type PartialReason =
  /** Nothing signed says when it was begun. */
  | 'NO_TOKEN'
  | 'TOKEN_INVALID'
  | 'TOKEN_OF_ANOTHER_SOURCE'
  | 'TOKEN_EXPIRED'
  | 'OTHER_ERA'
  /** Signed by us, with numbers this ledger has not reached, or had not when their era ended. */
  | 'BEYOND_HEAD'
  /** A newer one, or this very one, was accepted before. */
  | 'OUT_OF_SEQUENCE'
  | 'CLOSED_EPOCH'
  /** Its source says so. */
  | 'DECLARED'
  | 'UNREADABLE_ENTRY'
  | 'CHUNK_MISSING'
  | 'DIGEST_DIFFERS'

/** Why a complete one is no miss of what it does not list. */
export type UncountedReason =
  /** Its epoch was not warm yet. */
  | 'WARM_UP'
  /** Begun less than half an interval after the last that counted. */
  | 'TOO_SOON'

export type CountedSnapshot = {
  /** What `counted` was with it. */
  readonly counted: number
  readonly sequence: number
  readonly head: number
  readonly begunAt: number
}

export type Standing = {
  /** Empty before the first snapshot. */
  readonly epoch: string
  readonly epochBegunAt: number | null
  readonly warm: boolean
  /** While it warms up: what the next complete snapshot is compared with, and how many have not grown so far. */
  readonly warming: { readonly size: number; readonly begunAt: number; readonly snapshots: number } | null
  readonly lastSequence: number
  /** When the last report, complete or not, was begun; of one that proves no beginning, when it arrived. */
  readonly lastBegunAt: number | null
  readonly reportedAt: number | null
  /** The last complete snapshot. */
  readonly complete: {
    readonly sequence: number
    readonly head: number
    readonly begunAt: number
    readonly era: number
  } | null
  /** Of the last complete snapshot. */
  readonly size: number
  /** Of the set that is listed; empty when it is not known. */
  readonly digest: string
  readonly counted: number
  readonly streakFrom: number
  /** Oldest first. */
  readonly recent: readonly CountedSnapshot[]
  readonly partialSince: number | null
  readonly partialBecause: readonly PartialReason[]
}

export const NEW_STANDING: Standing = {
  epoch: '',
  epochBegunAt: null,
  warm: false,
  warming: null,
  lastSequence: 0,
  lastBegunAt: null,
  reportedAt: null,
  complete: null,
  size: 0,
  digest: '',
  counted: 0,
  streakFrom: 0,
  recent: [],
  partialSince: null,
  partialBecause: [],
}

/** A report as it arrived. */
export type ReportFacts = {
  /** What its token proves; null when nothing does. */
  readonly begun: { readonly sequence: number; readonly head: number; readonly begunAt: number } | null
  readonly reportedAt: number
  /** Of the ledger, now. */
  readonly era: number
  readonly epoch: string
  /** Whether this source closed that epoch before. */
  readonly epochClosed: boolean
  readonly intervalMs: number
  /** Entries of the set, and its digest. */
  readonly size: number
  readonly digest: string
  /** What its reading found already, `begun` being null included. */
  readonly problems: readonly PartialReason[]
}

export type Assessment = {
  /** Empty: complete. */
  readonly because: readonly PartialReason[]
  readonly complete: boolean
  /** The first of a new epoch; the one before, if any, is closed with it. */
  readonly opensEpoch: boolean
  readonly counted: boolean
  /** Null: it counted, or was partial. */
  readonly uncounted: UncountedReason | null
  /** What it does not list is listed no more. */
  readonly ends: boolean
  /** What it lists is what is listed already: there is nothing to compare. */
  readonly unchanged: boolean
}

/** What a report did to the set that is listed. */
export type Change = {
  /** Entries it began. */
  readonly added: number
  /** Entries that it does not list, and did not end. */
  readonly kept: number
}

export function assess(before: Standing, facts: ReportFacts): Assessment {
  const standing = inEra(before, facts)
  const because = [...facts.problems]
  const inOrder = facts.begun !== null && facts.begun.sequence > standing.lastSequence
  if (facts.begun !== null && !inOrder) because.push('OUT_OF_SEQUENCE')
  if (facts.epochClosed) because.push('CLOSED_EPOCH')
  const complete = because.length === 0
  const opensEpoch = inOrder && !facts.epochClosed && facts.epoch !== standing.epoch
  const uncounted = complete ? whyUncounted(standing, facts, opensEpoch) : null
  return {
    because,
    complete,
    opensEpoch,
    counted: complete && uncounted === null,
    uncounted,
    ends: complete && !opensEpoch && warmUp(standing, facts).warm,
    unchanged: facts.digest !== '' && facts.digest === standing.digest,
  }
}

function whyUncounted(standing: Standing, facts: ReportFacts, opensEpoch: boolean): UncountedReason | null {
  if (opensEpoch || !standing.warm) return 'WARM_UP'
  return isSpaced(lastCountedAt(standing), facts) ? null : 'TOO_SOON'
}

export function advance(
  before: Standing,
  facts: ReportFacts,
  assessment: Assessment,
  { added, kept }: Change,
): Standing {
  const standing = inEra(before, facts)
  const { begun, reportedAt } = facts
  const inEpoch: Standing = assessment.opensEpoch
    ? {
        ...standing,
        epoch: facts.epoch,
        epochBegunAt: reportedAt,
        warm: false,
        warming: null,
        streakFrom: standing.counted,
      }
    : standing
  const heard: Standing = {
    ...inEpoch,
    lastSequence: Math.max(inEpoch.lastSequence, begun?.sequence ?? 0),
    lastBegunAt: Math.max(inEpoch.lastBegunAt ?? 0, begun?.begunAt ?? reportedAt),
    reportedAt,
  }
  if (begun === null || !assessment.complete) {
    return {
      ...heard,
      // Listed is now more than the last complete snapshot.
      digest: added > 0 ? '' : heard.digest,
      partialSince: heard.partialSince ?? reportedAt,
      partialBecause: assessment.because,
    }
  }
  const { sequence, head, begunAt } = begun
  const counted = heard.counted + (assessment.counted ? 1 : 0)
  const recent = assessment.counted ? [...heard.recent, { counted, sequence, head, begunAt }] : heard.recent
  return {
    ...heard,
    ...warmUp(heard, facts),
    complete: { sequence, head, begunAt, era: facts.era },
    size: facts.size,
    digest: kept > 0 ? '' : facts.digest,
    counted,
    streakFrom: breaksStreak(heard, facts, begunAt) ? heard.counted : heard.streakFrom,
    recent: recent.slice(-POLICY.recentSnapshots),
    partialSince: null,
    partialBecause: [],
  }
}

function inEra(standing: Standing, { era }: ReportFacts): Standing {
  const { complete } = standing
  return complete === null || complete.era === era ? standing : { ...standing, warm: false, warming: null }
}

/** By an operator's word the source may testify from now on: what it did not list before proves nothing. */
export function startStreak(standing: Standing): Standing {
  return { ...standing, streakFrom: standing.counted }
}

/** While the set grows it is still being put together, and a look too soon after the last is the same look. */
function warmUp({ warm, warming }: Standing, facts: ReportFacts): Pick<Standing, 'warm' | 'warming'> {
  if (warm || facts.begun === null) return { warm, warming }
  const { size, begun } = facts
  if (warming === null || size > warming.size) {
    return { warm, warming: { size, begunAt: begun.begunAt, snapshots: 1 } }
  }
  if (!isSpaced(warming.begunAt, facts)) return { warm, warming }
  const snapshots = warming.snapshots + 1
  return snapshots < POLICY.warmUpSnapshots
    ? { warm, warming: { size, begunAt: begun.begunAt, snapshots } }
    : { warm: true, warming: null }
}

function breaksStreak({ complete }: Standing, facts: ReportFacts, begunAt: number): boolean {
  return (
    complete === null ||
    complete.era !== facts.era ||
    begunAt > complete.begunAt + POLICY.gapIntervals * facts.intervalMs
  )
}

function lastCountedAt({ recent }: Standing): number | null {
  return recent.at(-1)?.begunAt ?? null
}

function isSpaced(after: number | null, { begun, intervalMs }: ReportFacts): boolean {
  return (
    begun !== null && (after === null || begun.begunAt >= after + POLICY.countedAfterIntervals * intervalMs)
  )
}
