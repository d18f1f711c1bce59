/**
 * Any orchestrator, asked at two URLs of its own. What it must answer:
 *
 *   GET listUrl → 200
 *     {"epoch": "…",         the life of its books, 1 to 253 bytes: a new one closes the older ones for good
 *      "complete": true,     everything that the source declares to see is in the list, all its pages together
 *      "entries": [{"address": "10.0.0.5", "kind": "vm", "name": "web-0", "uid": "…",
 *                   "network": "", "incarnation": "", "interface": "", "node": "", "boot": "", "state": "running"}],
 *      "next": "…"}          the next page: a URL of the same origin, relative or not; absent, null, empty: the last
 *
 *     `address` is required, the rest as in SnapshotEntry. `state` is free, and alive, but for "terminal": ended for
 *     good. The pages of a list must be of one moment, of which their URLs may carry the name. One whose epoch differs
 *     from the first one's makes the list incomplete, as does one that cannot be had or read.
 *
 *   GET lookUpUrl, with {kind}, {name} and {uid} filled in, percent-encoded → 200, or 404 for "gone"
 *     {"answer": "live" | "terminal" | "gone" | "unknown",
 *      "uid": "…",           the uid it was asked for, or where the owner named none
 *      "name": "…",          the name it was asked for
 *      "since": "2026-01-31T12:00:00Z",    with "terminal": since when; one of 1970 or before is none
 *      "epoch": "…",         worth giving: that of the list; from another one, "gone" and "terminal" count for nothing
 *      "detail": "…"}        for people
 *
 *     Of an owner that named no uid {uid} is the name. "gone" and "terminal" count only with the uid (or name) that was
 *     asked for. So a 404 without such a body, which any proxy, typing error or half-started server gives, is not "gone"
 *     but an error, which means alive (M-09); so is everything that is not said here.
 *
 * Answers are JSON in UTF-8, of at most 64 MiB, for a look-up 64 KiB. Redirects are not followed: what is elsewhere is
 * not what was declared, and must not be told the token.
 */
import { Agent, type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps, Agent as TlsAgent } from 'node:https'
import { z } from 'zod'
import type { Owner } from '../core/owner.ts'
import type { HttpSettings, Secrets } from './asked.ts'
import { MOST_ENTRIES } from './report.ts'
import {
  type AskedSource,
  endedSince,
  type GivenEntry,
  type Listing,
  type LookUpReply,
  type Question,
} from './source.ts'

const LARGEST_PAGE = 64 * 1024 * 1024
const LARGEST_ANSWER = 64 * 1024
const MOST_PAGES = 1_000
const MOST_TOLD = 3
const LONGEST_DETAIL = 300
const FIELD = /\{(kind|name|uid)\}/g
/** As a part of a path, however encoded, it is a step, and leads to somebody else. */
const STEP = /^\.{1,2}$/

const entry = z.object({
  address: z.string().min(1),
  network: z.string().optional(),
  kind: z.string().optional(),
  name: z.string().optional(),
  uid: z.string().optional(),
  incarnation: z.string().optional(),
  interface: z.string().optional(),
  node: z.string().optional(),
  boot: z.string().optional(),
  state: z.string().optional(),
})
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

type Answered = { readonly status: number; readonly body: unknown }
type Get = (url: URL, largest: number, signal: AbortSignal) => Promise<Answered>

export function openHttp(settings: HttpSettings, secrets: Secrets): AskedSource {
  const agents = {
    'http:': new Agent({ keepAlive: true }),
    'https:': new TlsAgent({ keepAlive: true, ...tlsOf(secrets) }),
  }
  const get: Get = (url, largest, signal) => getJson(url, { agents, token: secrets.token, largest, signal })

  return {
    list: (signal) => list(get, settings, signal),
    lookUp: (question, signal) => lookUp(get, settings, question, signal),
    close: async () => {
      agents['http:'].destroy()
      agents['https:'].destroy()
    },
  }
}

async function list(get: Get, settings: HttpSettings, signal: AbortSignal): Promise<Listing> {
  const first = new URL(settings.listUrl)
  const entries: GivenEntry[] = []
  const unread: string[] = []
  const seen = new Set<string>()
  let epoch = ''
  let complete = true
  const listing = (incompleteBecause: string): Listing => ({
    epoch,
    complete: incompleteBecause === '',
    incompleteBecause,
    entries,
  })
  for (let url = first; ; ) {
    seen.add(url.href)
    let read: z.infer<typeof page>
    try {
      read = readPage(await get(url, LARGEST_PAGE, signal))
    } catch (error) {
      // What was read so far protects.
      if (url !== first) return listing(`page ${seen.size}: ${(error as Error).message}`)
      throw error
    }
    if (url === first) epoch = read.epoch
    complete &&= read.complete
    for (const given of read.entries) {
      const one = entry.safeParse(given)
      if (one.success) {
        entries.push(tidy(one.data))
        continue
      }
      unread.push(`${JSON.stringify(given).slice(0, 100)}: ${z.prettifyError(one.error)}`)
      // In use, whatever else is wrong with it.
      const address = z.object({ address: z.string() }).safeParse(given)
      if (address.success) entries.push(address.data)
    }
    if (read.epoch !== epoch)
      return listing(`page ${seen.size} is of epoch ${read.epoch}, and the first of ${epoch}`)
    if (!read.next) break
    const next = URL.canParse(read.next, url) ? new URL(read.next, url) : null
    if (next === null || next.origin !== first.origin)
      return listing(`page ${seen.size} names a next one elsewhere`)
    if (seen.has(next.href)) return listing(`page ${seen.size} names a next one that was read already`)
    if (seen.size >= MOST_PAGES) return listing(`it has more than ${MOST_PAGES} pages`)
    if (entries.length > MOST_ENTRIES) return listing(`it lists more than ${MOST_ENTRIES} entries`)
    url = next
  }
  if (unread.length > 0) {
    return listing(`${unread.length} entries cannot be read: ${unread.slice(0, MOST_TOLD).join('; ')}`)
  }
  return listing(complete ? '' : 'it says so itself')
}

function readPage({ status, body }: Answered): z.infer<typeof page> {
  if (status !== 200) throw new Error(`it answers ${status}`)
  const read = page.safeParse(body)
  if (!read.success) throw new Error(`its answer cannot be read: ${z.prettifyError(read.error)}`)
  return read.data
}

/** Absent fields absent. */
function tidy(one: z.infer<typeof entry>): GivenEntry {
  return Object.fromEntries(Object.entries(one).filter(([, value]) => value !== undefined)) as GivenEntry
}

async function lookUp(
  get: Get,
  { lookUpUrl }: HttpSettings,
  { owner, epoch }: Question,
  signal: AbortSignal,
): Promise<LookUpReply> {
  if (STEP.test(owner.uid) || STEP.test(owner.name)) {
    return { answer: 'unknown', detail: `${owner.name} cannot be asked for in a URL` }
  }
  const url = new URL(fill(lookUpUrl, owner))
  const { status, body } = await get(url, LARGEST_ANSWER, signal)
  if (status !== 200 && status !== 404) throw new Error(`it answers ${status}`)
  const read = answer.safeParse(body)
  if (!read.success) throw new Error(`its answer (${status}) is not one that is documented`)
  const { since } = read.data
  const detail = (read.data.detail ?? '').slice(0, LONGEST_DETAIL)
  const isIt = owner.uidNamed ? read.data.uid === owner.uid : read.data.name === owner.name
  const unknown = (why: string): LookUpReply => ({ answer: 'unknown', detail: `${why} ${detail}`.trim() })
  const isOfThisLife = !read.data.epoch || read.data.epoch === epoch
  switch (read.data.answer) {
    case 'live':
      return { answer: 'live', detail }
    case 'gone':
      if (!isOfThisLife) return unknown('"gone" of another epoch than was listed.')
      return isIt ? { answer: 'gone', detail } : unknown('"gone" of another than was asked for.')
    case 'terminal':
      if (status !== 200) return unknown('"terminal" with 404.')
      if (!isIt) return unknown('"terminal" of another than was asked for.')
      if (!isOfThisLife) return unknown('"terminal" of another epoch than was listed.')
      return endedSince(since ? Date.parse(since) : 0, detail)
    default:
      return unknown(`"${read.data.answer.slice(0, LONGEST_DETAIL)}".`)
  }
}

function fill(template: string, owner: Owner): string {
  return template.replace(FIELD, (_, field: 'kind' | 'name' | 'uid') => encodeURIComponent(owner[field]))
}

function tlsOf({ ca, cert, key }: Secrets) {
  return {
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
  }
}

async function getJson(
  url: URL,
  options: {
    readonly agents: Readonly<Record<'http:' | 'https:', Agent | TlsAgent>>
    readonly token: string | undefined
    readonly largest: number
    readonly signal: AbortSignal
  },
): Promise<Answered> {
  const { agents, token, largest, signal } = options
  const secure = url.protocol === 'https:'
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = (secure ? requestHttps : requestHttp)(url, {
      agent: agents[secure ? 'https:' : 'http:'],
      signal,
      headers: {
        accept: 'application/json',
        'accept-encoding': 'identity',
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
    })
    sent.once('response', resolve)
    sent.once('error', reject)
    sent.end()
  })
  const chunks: Buffer[] = []
  let size = 0
  // Throws when the answer breaks off, or the signal comes.
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > largest) throw new Error(`its answer is larger than ${largest} bytes`)
    chunks.push(chunk)
  }
  return { status: response.statusCode!, body: parse(Buffer.concat(chunks)) }
}

/** Undefined: not JSON. */
function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    return undefined
  }
}
