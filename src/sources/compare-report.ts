/** Compares a report with the one before, and with the image. */
import type { Command, Freshness } from '../core/command.ts'
import { freshnessAfter, isNews, isSpaced } from '../core/decide-report.ts'
import type { Entry } from '../core/event.ts'
import { isSame, ownerOf } from '../core/evolve.ts'
import type { Image } from '../core/image.ts'
import { entryOf } from '../core/judge.ts'
import { eraOf, POLICY } from '../core/policy.ts'
import { inSteps } from '../in-slices.ts'
import type { Report } from './report.ts'
import type { StoredSource } from './stored-source.ts'

type Begun = Pick<Report, 'epoch' | 'sequence' | 'head' | 'begunAt' | 'complete'>
type Stored = Omit<StoredSource, 'questions' | 'secret'>

/** How a source stands after a report whose only news are its sequence and its time; null: it is another. */
export function freshnessIfUnchanged(
  report: Begun,
  digest: string,
  stored: Stored,
  now: number,
): Freshness | null {
  const { source, fresh } = stored
  if (!report.complete || !isStored(report, digest, stored) || !isInSequence(report, stored)) return null
  const last = { entries: fresh!.entries, digest, after: fresh!.sequence }
  // Only the list of a source that is believed has a digest.
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
  yield* inSteps(entries, (entry) => {
    if (isNews(image, source, entry)) news.push(entry)
    const there = listed.get(entry.address)
    if (there === undefined) listed.set(entry.address, [entry])
    else there.push(entry)
  })
  const vanished: Entry[] = []
  yield* inSteps(isComplete ? (image.listedBy.get(source) ?? []) : [], (sighting) => {
    if (!listed.get(sighting.address)?.some((entry) => isSame(sighting, source, ownerOf(entry))))
      vanished.push(entryOf(sighting))
  })
  const count = news.length + vanished.length
  return Array.from({ length: Math.max(1, Math.ceil(count / most)) }, (_, index) => {
    const [from, to] = [index * most, (index + 1) * most]
    return {
      entries: news.slice(from, to),
      vanished: vanished.slice(Math.max(0, from - news.length), Math.max(0, to - news.length)),
      last: to >= count ? last : null,
    }
  })
}
