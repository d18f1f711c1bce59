/**
 * The answers of a pulled source of any kind. Leases are taken back on them, so every kind keeps these rules:
 *
 * - A list is of one moment after it was begun, from the authority and not from a cache of it (mirendev#856).
 * - It is complete only if everything of its scope is in it. If anything could not be asked, paged to its end or read, it is
 *   partial, and a partial list only protects.
 * - A workload that is stopped, paused, restarting or in an unknown phase is alive. `terminal` has ended, and is still listed.
 * - `gone` is the authority's own "no such thing" for this very workload. Every other answer (an error, a time-out, a
 *   missing attribute) is not `gone`.
 * - An epoch is one life of the authority: of Docker the engine, of Kubernetes the cluster, of http what it answers. `gone` and
 *   `terminal` from another one than listed, behind the same address, are `unknown`.
 */
import { z } from 'zod'
import type { Entry } from '../core/event.ts'
import type { Owner } from '../core/owner.ts'

/** An entry as a source gives it: text that is not read yet. Empty and absent are the same. */
export type GivenEntry = Entry & {
  /** Of a source that sees several networks: the one this entry is of. */
  readonly network?: string
}

export type Listing = {
  readonly epoch: string
  readonly complete: boolean
  /** Why it is not complete; empty: it is. */
  readonly because: string
  readonly entries: readonly GivenEntry[]
}

/** Whether this workload exists, with this address or another. */
export type Question = {
  readonly owner: Owner
  readonly address: string
  /** Where its lease was placed. */
  readonly node: string
  /** The source's present epoch: the authority that missed the workload. */
  readonly epoch: string
}

export type LookUp =
  /**
   * live: it exists, in any state. gone: the authority knows no such workload; of a source of a node: not here.
   * unknown: answered, but not clearly. error: it could not be asked. All but gone mean alive.
   */
  | { readonly answer: 'live' | 'gone' | 'unknown' | 'error'; readonly detail: string }
  /** It exists and ended for good, at `since` (milliseconds since 1970) by the source's clock. */
  | { readonly answer: 'terminal'; readonly since: number; readonly detail: string }

/** `list` rejects when there is no answer at all. Both end with the signal. */
export type PulledSource = {
  list(signal: AbortSignal): Promise<Listing>
  lookUp(question: Question, signal: AbortSignal): Promise<LookUp>
}

export const MOST_ENTRIES = 200_000

/** Unreadable items that a sentence names. */
const MOST_NAMED = 3

/** A list in the making. Each item becomes an entry for each of its addresses. */
export function draftOf(
  description: z.ZodType<Omit<GivenEntry, 'address'>>,
  addresses: z.ZodType<readonly string[]>,
) {
  const entries: GivenEntry[] = []
  const unread: string[] = []
  return {
    entries,
    /** Keeps the addresses of an item that cannot be read; the list is then partial. */
    add(item: unknown): void {
      const { data, error } = description.safeParse(item)
      if (error !== undefined) {
        const named = unread.length < MOST_NAMED
        unread.push(named ? `${JSON.stringify(item).slice(0, 100)}: ${z.prettifyError(error)}` : '')
      }
      for (const address of new Set(addresses.safeParse(item).data)) entries.push({ ...data, address })
    },
    /** `because`: why it is not complete, beside what could not be read. */
    listing(epoch: string, because = ''): Listing {
      const named = unread.slice(0, MOST_NAMED).join('; ')
      const why = because || (unread.length === 0 ? '' : `${unread.length} cannot be read: ${named}`)
      return { epoch, complete: why === '', because: why, entries }
    },
  }
}

/** `moment`: what all pages of a list must be of. `next` reads the page after this one; null: there is none. */
export type Page = {
  readonly moment: string
  readonly items: readonly unknown[]
  readonly next: (() => Promise<Page>) | null
}

/** Reads a list to its end. `because`: why that failed; the pages before are kept. @throws when the first page cannot be read */
export async function readPages(
  { entries, add }: Pick<ReturnType<typeof draftOf>, 'entries' | 'add'>,
  readFirst: () => Promise<Page>,
): Promise<{ readonly moment: string; readonly because: string }> {
  let page = await readFirst()
  const { moment } = page
  const because = (why: string) => ({ moment, because: why })
  for (let number = 1; ; number += 1) {
    page.items.forEach(add)
    if (page.moment !== moment)
      return because(`page ${number} is of ${page.moment}, and the first of ${moment}`)
    if (page.next === null) return because('')
    if (entries.length > MOST_ENTRIES) return because(`it lists more than ${MOST_ENTRIES} entries`)
    try {
      page = await page.next()
    } catch (error) {
      return because(`page ${number + 1}: ${(error as Error).message}`)
    }
  }
}

/** A time in year 1 or 1970 was never set: its grace would be over before it began. */
export function endedAt(since: number, detail: string): LookUp {
  return since > 0
    ? { answer: 'terminal', since, detail }
    : { answer: 'unknown', detail: `"terminal" without since when. ${detail}`.trim() }
}

const LONGEST_SENTENCE = 500

/** The text of a source or of an error as one short line that PostgreSQL takes (without NUL). */
export function sentence(input: unknown): string {
  const cause = input instanceof Error && input.cause instanceof Error ? `: ${input.cause.message}` : ''
  const text = `${input instanceof Error ? input.message : input}${cause}`.trim()
  const short = text.length > LONGEST_SENTENCE ? `${text.slice(0, LONGEST_SENTENCE)}…` : text
  return short.toWellFormed().replace(/\p{Cc}+/gu, ' ')
}
