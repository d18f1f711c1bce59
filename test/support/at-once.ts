/** What sources do slice by slice, done in one go. */
import type { Entry } from '../../src/core/event.ts'
import { digestingList, readingEntries, type Scope } from '../../src/sources/entries.ts'
import type { GivenEntry } from '../../src/sources/source.ts'

export const readEntries = (given: Iterable<GivenEntry>, scope: Scope) => atOnce(readingEntries(given, scope))
export const listDigest = (entries: Iterable<Entry>): string => atOnce(digestingList(entries))

function atOnce<T>(work: Generator<void, T>): T {
  for (;;) {
    const { done, value } = work.next()
    if (done) return value
  }
}
