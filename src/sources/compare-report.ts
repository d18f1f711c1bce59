/** Compares a report with the one before, and with the image. */
import type { Command, Freshness } from '../core/command.ts'
import { freshnessAfter, isNews, isSpaced } from '../core/decide-report.ts'
import type { Entry } from '../core/event.ts'
import { isSame, ownerOf } from '../core/evolve.ts'
import type { Image } from '../core/image.ts'
import { entryOf } from '../core/judge.ts'
import { eraOf, POLICY } from '../core/policy.ts'
import { STEP } from '../in-slices.ts'
import type { Report } from './report.ts'
import type { StoredSource } from './stored-source.ts'

type Begun = Pick<Report, 'epoch' | 'sequence' | 'head' | 'begunAt' | 'complete'>
type Stored = Omit<StoredSource, 'questions' | 'secret'>

/** What is known of a source after a report that changes only its sequence and its time; null: it changes more. */
export function freshnessIfUnchanged(
  report: Begun,
  digest: string,
  stored: Stored,
  now: number,
): Freshness | null {
  const { source, fresh } = stored
  if (!report.complete || !isStored(report, digest, stored) || !isInSequence(report, stored)) return null
  const last = { entries: fresh!.entries, digest, after: fresh!.sequence }
  // Only the list of a trusted source has a digest.
  const how = { now, flaws: [], trusts: true, counted: isSpaced(source, fresh!, report.begunAt) }
  return freshnessAfter(fresh!, { ...report, last }, how)
}

/** Its entries are those of the last complete list of the same life. */
export function isStored({ epoch }: Begun, digest: string, { source, fresh, era }: Stored): boolean {
  return (
    digest !== '' &&
    fresh?.digest === digest &&
    fresh.epoch === epoch &&
    source.epoch?.name === epoch &&
    fresh.era === era
  )
}

export function isInSequence(report: Begun, { fresh, head, era, isRecovering }: Stored): boolean {
  const isNext = report.sequence > (fresh?.sequence ?? 0)
  return isNext && report.head <= head && eraOf(report.head) === era && !isRecovering
}

export type Changes = Pick<Command<'report'>, 'entries' | 'vanished' | 'last'>

/** The changes of a report as commands carry them: first new entries, then vanished ones. The last one ends the report. */
export function* slicingChanges(
  image: Image,
  source: string,
  entries: readonly Entry[],
  isComplete: boolean,
  last: Command<'report'>['last'],
  most: number = POLICY.reportSlice,
): Generator<void, readonly Changes[]> {
  const listed = new Map<string, Entry[]>()
  const news: Entry[] = []
  let compared = 0
  for (const entry of entries) {
    if (isNews(image, source, entry)) news.push(entry)
    const there = listed.get(entry.address)
    if (there === undefined) listed.set(entry.address, [entry])
    else there.push(entry)
    compared += 1
    if (compared % STEP === 0) yield
  }
  const vanished: Entry[] = []
  for (const sighting of isComplete ? (image.listedBy.get(source) ?? []) : []) {
    if (!listed.get(sighting.address)?.some((entry) => isSame(sighting, source, ownerOf(entry))))
      vanished.push(entryOf(sighting))
    compared += 1
    if (compared % STEP === 0) yield
  }
  const slices: Changes[] = []
  for (let from = 0; ; from += most) {
    const to = from + most
    const isLast = to >= news.length + vanished.length
    const gone = vanished.slice(Math.max(0, from - news.length), Math.max(0, to - news.length))
    slices.push({ entries: news.slice(from, to), vanished: gone, last: isLast ? last : null })
    if (isLast) return slices
  }
}
