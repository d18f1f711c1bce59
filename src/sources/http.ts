/**
 * Any orchestrator, asked at two URLs of its own. What it must answer:
 *
 *   GET listUrl → 200
 *     {"epoch": "…",         the life of its books, 1 to 253 bytes: a new one closes the older ones for good
 *      "complete": true,     everything that the source declares to see is in the list, all its pages together
 *      "entries": [{"address": "10.0.0.5", "kind": "vm", "name": "web-0", "uid": "…",
 *                   "network": "", "incarnation": "", "interface": "", "node": "", "state": "running"}],
 *      "next": "…"}          the next page: a URL of the same origin, relative or not; absent, null, empty: the last
 *
 *     `address` is required, the rest as in SnapshotEntry. `state` is free, and alive, but for "terminal": ended for good.
 *     The pages of a list must be of one moment, of which their URLs may carry the name. One whose epoch differs from the
 *     first one's makes the list partial, as does one that cannot be had or read.
 *
 *   GET lookUpUrl, with {kind}, {name} and {uid} filled in, percent-encoded → 200, or 404 for "gone"
 *     {"answer": "live" | "terminal" | "gone" | "unknown",
 *      "uid": "…",           the uid it was asked for
 *      "name": "…",          the name it was asked for; required where the owner gave one of the two
 *      "since": "2026-01-31T12:00:00Z",    with "terminal": since when; one of 1970 or before is none
 *      "epoch": "…",         worth giving: that of the list; from another one, "gone" and "terminal" count for nothing
 *      "detail": "…"}        for people
 *
 *     Of an owner that gave a name only, or a uid only, {uid} and {name} are the same, and its uid cannot be told from its
 *     name: "gone" and "terminal" then count with that `name`, and otherwise with the `uid`. A 404 without such a body,
 *     which any proxy, typing error or half-started server gives, is not "gone" but an error, which means alive; so
 *     is everything that is not said here.
 *
 * Answers are JSON in UTF-8, a page of at most 32 MiB, a look-up of 64 KiB. Redirects are not followed.
 */
import { z } from 'zod'
import type { Owner } from '../core/owner.ts'
import { createGetJson, readAnswer } from './get-json.ts'
import type { HttpSettings, Secrets } from './settings.ts'
import {
  type AskedSource,
  draftOf,
  endedAt,
  type GivenEntry,
  type Listing,
  type LookUp,
  MOST_ENTRIES,
  type Question,
} from './source.ts'

const LARGEST_PAGE = 32 * 1024 * 1024
const LARGEST_ANSWER = 64 * 1024
const MOST_PAGES = 1_000
/** As a part of a path, however encoded, it is a step, and leads to somebody else. */
const STEP = /^\.{1,2}$/

const text = z.string().optional()
const entry = z.object({
  address: z.string().min(1),
  network: text,
  kind: text,
  name: text,
  uid: text,
  incarnation: text,
  interface: text,
  node: text,
  state: text,
})
const addressed = z.object({ address: z.string() })
const page = z.object({
  epoch: z.string().min(1),
  complete: z.boolean(),
  entries: z.array(z.unknown()),
  next: z.string().nullish(),
})
const answer = z.object({
  answer: z.string(),
  uid: z.string().nullish(),
  name: z.string().nullish(),
  since: z.iso.datetime({ offset: true }).nullish(),
  epoch: z.string().nullish(),
  detail: z.string().nullish(),
})

export function openHttp(settings: HttpSettings, secrets: Secrets | undefined): AskedSource {
  const getJson = createGetJson(secrets)
  const token = secrets?.token
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }

  async function list(signal: AbortSignal): Promise<Listing> {
    const first = new URL(settings.listUrl)
    const draft = draftOf(entry, addressesOf, ({ address: _, ...rest }) => rest as GivenEntry)
    const seen = new Set<string>()
    let epoch = ''
    let complete = true
    const listing = (because: string): Listing => draft.listing(epoch, because)
    for (let url = first; ; ) {
      seen.add(url.href)
      let read: z.infer<typeof page>
      try {
        read = readAnswer(page, await getJson(url, LARGEST_PAGE, signal, { headers }))
      } catch (error) {
        if (url === first) throw error
        // What was read so far protects.
        return listing(`page ${seen.size}: ${(error as Error).message}`)
      }
      if (url === first) epoch = read.epoch
      complete &&= read.complete
      read.entries.forEach(draft.add)
      if (read.epoch !== epoch) {
        return listing(`page ${seen.size} is of epoch ${read.epoch}, and the first of ${epoch}`)
      }
      if (!read.next) return listing(complete ? '' : 'it says so itself')
      const next = URL.canParse(read.next, url) ? new URL(read.next, url) : null
      if (next?.origin !== first.origin) return listing(`page ${seen.size} names a next one elsewhere`)
      if (seen.has(next.href)) return listing(`page ${seen.size} names a next one that was read already`)
      if (seen.size >= MOST_PAGES) return listing(`it has more than ${MOST_PAGES} pages`)
      if (draft.entries.length > MOST_ENTRIES) return listing(`it lists more than ${MOST_ENTRIES} entries`)
      url = next
    }
  }

  async function lookUp({ owner, epoch }: Question, signal: AbortSignal): Promise<LookUp> {
    if (STEP.test(owner.uid) || STEP.test(owner.name)) {
      return { answer: 'unknown', detail: `${owner.name} cannot be asked for in a URL` }
    }
    const url = new URL(fill(settings.lookUpUrl, owner))
    const { status, body } = await getJson(url, LARGEST_ANSWER, signal, { headers })
    const read = readAnswer(answer, { status: status === 404 ? 200 : status, body })
    const detail = read.detail ?? ''
    const unknown = (why: string): LookUp => ({ answer: 'unknown', detail: `${why} ${detail}`.trim() })
    if (read.answer === 'live') return { answer: 'live', detail }
    if (read.answer !== 'gone' && read.answer !== 'terminal') return unknown(`"${read.answer}".`)
    const isIt = owner.uid === owner.name ? read.name === owner.name : read.uid === owner.uid
    if (!isIt) return unknown(`"${read.answer}" of another than was asked for.`)
    if (read.epoch && read.epoch !== epoch)
      return unknown(`"${read.answer}" of another epoch than was listed.`)
    if (read.answer === 'gone') return { answer: 'gone', detail }
    if (status !== 200) return unknown('"terminal" with 404.')
    return endedAt(read.since ? Date.parse(read.since) : 0, detail)
  }

  return { list, lookUp }
}

function addressesOf(item: unknown): readonly string[] {
  const { data } = addressed.safeParse(item)
  return data === undefined ? [] : [data.address]
}

function fill(template: string, owner: Owner): string {
  return template.replace(/\{(kind|name|uid)\}/g, (_, field: 'kind' | 'name' | 'uid') =>
    encodeURIComponent(owner[field]),
  )
}
