/** Who had an address, a lease, or was an owner: holders drawn over time, and what happened. */
import { create, toJson } from '@bufbuild/protobuf'
import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import { isMalformed, parseCidr } from '../core/address.ts'
import {
  AuditService,
  type Event,
  GetAddressHistoryResponseSchema,
  GetLeaseHistoryResponseSchema,
  type HistoryEntry,
  type Holder,
  ListEventsResponseSchema,
} from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseState } from '../gen/ipledger/v1/types_pb.ts'
import { Unclear } from './failure.ts'
import { iso, JSON_ANSWERS, lineWidth, printJson, prose, time } from './print.ts'
import { fromOf, toOf, WHEN_HELP, type When, whenOption, whole } from './readers.ts'
import { addressOf, holderOf } from './show-lease.ts'
import { type Drawn, drawTimeline, type Mark } from './timeline.ts'
import { ask } from './verb.ts'

type Options = {
  readonly network: string
  readonly owner?: string
  readonly from?: When
  readonly to?: When
  readonly pageSize: number
  readonly pageToken?: string
  readonly json?: boolean
}

type Entry = Pick<HistoryEntry, 'event' | 'what'>
/** Newest first, as it is read. */
type Story = {
  readonly about: string
  readonly entries: readonly Entry[]
  readonly holders: readonly Holder[]
  readonly nextPageToken: string
  readonly json: () => unknown
}
type Page = { readonly pageSize: number; readonly pageToken: string; readonly descending: true }

const { method } = AuditService

export function historyCommand(program: Command): void {
  program
    .command('history [address|cidr|lease-id]')
    .description('who had it: holders drawn over time, and what happened')
    .option('--network <name>', 'network', 'default')
    .option('--owner <name>', 'leases of owners of this name, instead')
    .option('--from <when>', 'from then on', whenOption)
    .option('--to <when>', 'up to then', whenOption)
    .option('--page-size <n>', 'events shown, the newest first found; at most 1000', whole, 100)
    .option('--page-token <token>', 'continue with older ones where the page before ended')
    .option('--json', 'print the answer as the API gives it')
    .addHelpText(
      'after',
      `${WHEN_HELP}

Examples:
  ipledger history 10.8.64.2
  ipledger history 10.8.64.2 --from "2026-11-20 03:00" --to "2026-11-20 03:30"
  ipledger history 10.8.64.0/28 --from -1h
  ipledger history default/42
  ipledger history --owner default/web-0`,
    )
    .action(async (target: string | undefined, options: Options) => {
      if ((target === undefined) === (options.owner === undefined))
        throw new Unclear('Name an address, a CIDR or a lease id, or --owner with a name: one of them.')
      const story = await storyOf(target, options)
      if (options.json === true) return printJson(story.json())
      console.log(told(story, options))
      if (story.nextPageToken !== '') console.error(`There is more: --page-token ${story.nextPageToken}`)
    })
}

async function storyOf(target: string | undefined, options: Options): Promise<Story> {
  if (target === undefined) return ownerStory(options.owner!, options)
  const isLease = target.includes('/') && isMalformed(parseCidr(target))
  return isLease ? leaseStory(target, options) : addressStory(target, options)
}

async function addressStory(target: string, options: Options): Promise<Story> {
  const { network } = options
  const place = target.includes('/') ? { cidr: target } : { address: target }
  const { pages, nextPageToken } = await collect(options, (page) =>
    ask(method.getAddressHistory, { network, ...place, ...rangeOf(options), ...page }),
  )
  const story = { entries: pages.flatMap((one) => one.entries), holders: once(pages), nextPageToken }
  const answer = create(GetAddressHistoryResponseSchema, { ...story, head: pages[0]!.head })
  const json = () => toJson(GetAddressHistoryResponseSchema, answer, JSON_ANSWERS)
  return { about: `${target} of network ${network}`, ...story, json }
}

async function leaseStory(leaseId: string, options: Options): Promise<Story> {
  if (options.from !== undefined || options.to !== undefined)
    throw new Unclear('A lease is shown from its beginning to its end: leave --from and --to away.')
  const { pages, nextPageToken } = await collect(options, (page) =>
    ask(method.getLeaseHistory, { leaseId, ...page }),
  )
  const story = { entries: pages.flatMap((one) => one.entries), holders: once(pages), nextPageToken }
  const answer = create(GetLeaseHistoryResponseSchema, { ...story, head: pages[0]!.head })
  const json = () => toJson(GetLeaseHistoryResponseSchema, answer, JSON_ANSWERS)
  return { about: `lease ${leaseId}`, ...story, json }
}

async function ownerStory(ownerName: string, options: Options): Promise<Story> {
  const { network } = options
  const { pages, nextPageToken } = await collect(options, async (page) => {
    const found = await ask(method.listEvents, { network, ownerName, ...rangeOf(options), ...page })
    return { ...found, entries: found.events }
  })
  const events = pages.flatMap((one) => one.entries)
  const answer = create(ListEventsResponseSchema, { events, nextPageToken, head: pages[0]!.head })
  const json = () => toJson(ListEventsResponseSchema, answer, JSON_ANSWERS)
  // What lists of events do not say: their sentences, and the spans of the leases they are about.
  const ids = options.json === true ? [] : new Set(events.flatMap(({ lease }) => lease?.leaseId ?? []))
  const lives = await Promise.all(
    [...ids].map((leaseId) => ask(method.getLeaseHistory, { leaseId, pageSize: 1_000, descending: true })),
  )
  const sentences = new Map(
    lives.flatMap((life) => life.entries).map(({ event, what }) => [event!.seq, what]),
  )
  return {
    about: `owners ${ownerName} of network ${network}`,
    entries: events.map((event) => ({ event, what: sentences.get(event.seq) ?? closingOf(event) })),
    holders: once(lives).filter(({ owner }) => owner?.name === ownerName),
    nextPageToken,
    json,
  }
}

function rangeOf({ from, to }: Options): object {
  return { ...(from !== undefined && fromOf(from)), ...(to !== undefined && toOf(to)) }
}

function closingOf({ type, actor, cause, closed }: Event): string {
  if (closed === undefined) return `${type} by ${actor} (${cause})`
  return `Late calls for ${holderOf(closed)} incarnation ${closed.owner?.incarnation} are refused, by ${actor} (${cause}).`
}

/** As many as were asked for, of as many pages as it takes. */
async function collect<P extends { readonly entries: readonly unknown[]; readonly nextPageToken: string }>(
  { pageSize, pageToken = '' }: Options,
  get: (page: Page) => Promise<P>,
): Promise<{ readonly pages: readonly P[]; readonly nextPageToken: string }> {
  const pages: P[] = []
  let missing = pageSize
  for (let token = pageToken; ; ) {
    const page = await get({ pageSize: missing, pageToken: token, descending: true })
    pages.push(page)
    missing -= page.entries.length
    token = page.nextPageToken
    if (token === '' || missing <= 0) return { pages, nextPageToken: token }
  }
}

/** Each span once, oldest first. */
function once(pages: readonly { readonly holders: readonly Holder[] }[]): Holder[] {
  const all = pages.flatMap(({ holders }) => holders)
  return [...new Map(all.map((one) => [one.fromSeq, one])).values()].sort((one, other) =>
    Number(one.fromSeq - other.fromSeq),
  )
}

function told(story: Story, options: Options): string {
  const { about, holders } = story
  const entries = story.entries.toReversed()
  if (entries.length === 0 && holders.length === 0) return `Nothing happened to ${about}, and nobody held it.`
  const width = lineWidth()
  const rows = entries.map(({ event, what }) => [String(event!.seq), time(event!.time), what])
  return [
    holders.length === 0 ? 'Nobody held it.' : timeline(story, options, width),
    '',
    rows.length === 0 ? 'No events.' : prose(['SEQ', 'TIME', 'WHAT'], rows, width),
  ].join('\n')
}

/** What was asked for, or from the first to the last thing shown; of a page between others, its events. */
function timeline(
  { about, entries, holders, nextPageToken }: Story,
  options: Options,
  width: number,
): string {
  const { pageToken } = options
  const now = Date.now()
  const asked = (when: When | undefined) => (when !== undefined && 'ms' in when ? when.ms : undefined)
  const [from, to] = [asked(options.from), asked(options.to)]
  const times = entries.map(({ event }) => ms(event!.time)!)
  const spans = drawnOf(holders, new Set(holders.map((one) => one.address)).size > 1)
  const first = Math.min(...times, ...spans.map((one) => one.from))
  const last = Math.max(...times, ...spans.map((one) => one.coolsUntil ?? one.until ?? now))
  const isMiddle = pageToken !== undefined && times.length > 0
  const isCut = nextPageToken !== '' || options.from !== undefined
  const begin = from ?? (isCut && times.length > 0 ? Math.min(...times) : first)
  const shown = isMiddle ? Math.max(...times) : (to ?? (from === undefined ? last : now))
  const end = Math.max(begin, Math.min(shown, Math.max(now, ...times)))
  const titles = ['ADDRESS', 'LEASE', 'OWNER']
  return `${about}, ${iso(begin)} to ${iso(end)}\n\n${drawTimeline({ titles, spans, from: begin, to: end, width })}`
}

const MARKS: Readonly<Partial<Record<LeaseState, Mark>>> = {
  [LeaseState.RESERVED]: 'reserved',
  [LeaseState.ACTIVE]: 'active',
  [LeaseState.QUARANTINED]: 'quarantined',
}

/** As they follow each other. An address that was handed on before its time (`preferPrevious`) cools no more. */
export function drawnOf(holders: readonly Holder[], withAddress: boolean): Drawn[] {
  return holders.map((holder, at) => {
    const next = holders.slice(at + 1).find(({ address }) => address === holder.address)
    const cool = ms(holder.availableAt)
    return {
      cells: [withAddress ? addressOf(holder) : '', holder.leaseId, holderOf(holder) || 'nobody known'],
      from: ms(holder.fromTime)!,
      until: ms(holder.untilTime) ?? null,
      coolsUntil: cool === undefined ? null : Math.min(cool, ms(next?.fromTime) ?? cool),
      states: holder.states.map(({ state, time: since }) => ({
        mark: MARKS[state] ?? 'active',
        at: ms(since)!,
      })),
    }
  })
}

function ms(at: Timestamp | undefined): number | undefined {
  return at === undefined ? undefined : timestampMs(at)
}
