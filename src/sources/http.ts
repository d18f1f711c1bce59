/**
 * Any orchestrator, asked at two URLs of its own, as docs/sources.md says.
 *
 * A 404 without an answer in it, which a proxy or a half-started server gives, is an error, and means alive.
 */
import { z } from 'zod'
import { createGetJson, readAnswer } from './get-json.ts'
import type { HttpSettings, Secrets } from './settings.ts'
import { draftOf, endedAt, type LookUp, type Page, type PulledSource, readPages } from './source.ts'

const LARGEST_PAGE = 32 * 1024 * 1024
const LARGEST_ANSWER = 64 * 1024
const MOST_PAGES = 1_000
/** As a part of a path it leads elsewhere, also when it is encoded. */
const STEP = /^\.{1,2}$/

const text = z.string().exactOptional()
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
const addressed = z.object({ address: z.string() }).transform(({ address }) => [address])
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

export function openHttp(settings: HttpSettings, secrets: Secrets | undefined): PulledSource {
  const getJson = createGetJson(secrets)
  const token = secrets?.token
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }

  return {
    async list(signal) {
      const first = new URL(settings.listUrl)
      const draft = draftOf(entry, addressed)
      const seen = new Set<string>()
      let isComplete = true
      const readPage = async (url: URL | null): Promise<Page> => {
        if (url?.origin !== first.origin) throw new Error('its URL is of another origin')
        if (seen.has(url.href)) throw new Error('its URL was read already')
        if (seen.size >= MOST_PAGES) throw new Error(`there are more than ${MOST_PAGES} pages`)
        seen.add(url.href)
        const read = readAnswer(page, await getJson(url, LARGEST_PAGE, signal, { headers }))
        const { epoch: moment, complete, entries: items, next } = read
        isComplete &&= complete
        return { moment, items, next: next ? () => readPage(URL.parse(next, url)) : null }
      }
      const { moment: epoch, because } = await readPages(draft, () => readPage(first))
      return draft.listing(epoch, because || (isComplete ? '' : 'it declares so'))
    },

    async lookUp({ owner, epoch }, signal) {
      if (STEP.test(owner.uid) || STEP.test(owner.name))
        return { answer: 'unknown', detail: `${owner.name} cannot be asked for in a URL` }
      const filled = settings.lookUpUrl.replace(/\{(kind|name|uid)\}/g, (_, field: 'kind' | 'name' | 'uid') =>
        encodeURIComponent(owner[field]),
      )
      const { status, body } = await getJson(new URL(filled), LARGEST_ANSWER, signal, { headers })
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
    },
  }
}
