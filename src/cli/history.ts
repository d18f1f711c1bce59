import { create } from '@bufbuild/protobuf'
import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import { isMalformed, parseCidr } from '../core/address.ts'
import {
  type Event,
  GetAddressHistoryResponseSchema,
  GetLeaseHistoryResponseSchema,
  type HistoryEntry,
  type Holder,
  ListEventsResponseSchema,
} from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseState } from '../gen/ipledger/v1/types_pb.ts'
import { type Connection, connect } from './connection.ts'
import { Unclear } from './failure.ts'
import { type CallOptions, given, isLeaseId, whole, withJson, withNetwork } from './options.ts'
import { lineWidth, printAnswer, printMore, prose, time } from './print.ts'
import { type Drawn, drawTimeline, type Mark } from './timeline.ts'
import { rangeOf, WHEN_HELP, type When, whenOption } from './when.ts'

type Options = CallOptions &
  Readonly<{ owner?: string; from?: When; to?: When; pageSize?: number; pageToken?: string }>

/** What is shown: what happened, who held, how to go on. */
type Story = {
  readonly about: string
  readonly entries: readonly Pick<HistoryEntry, 'event' | 'what'>[]
  readonly holders: readonly Holder[]
}

const PAGE = 100

export function historyCommand(program: Command): void {
  withJson(
    withNetwork(
      program.command('history').description('who had it: holders drawn over time, and what happened'),
    ),
  )
    .argument('[address|cidr|lease-id]', 'what it is about')
    .option('--owner <name>', 'leases of owners of this name, instead')
    .option('--from <when>', 'from then on', whenOption)
    .option('--to <when>', 'up to then', whenOption)
    .option('--page-size <n>', `events shown, the newest first found; at most 1000 (default: ${PAGE})`, whole)
    .option('--page-token <token>', 'continue with older ones where the page before ended')
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
      if ((target === undefined) === (options.owner === undefined)) {
        throw new Unclear('Name an address, a CIDR or a lease id, or --owner with a name: one of them.')
      }
      if (target === undefined) await ownerHistory(connect(), options.owner!, options)
      else if (isLeaseId(target) && isMalformed(parseCidr(target)))
        await leaseHistory(connect(), target, options)
      else await addressHistory(connect(), target, options)
    })
}

async function addressHistory(client: Connection, target: string, options: Options): Promise<void> {
  const { network, from, to } = options
  const place = target.includes('/') ? { cidr: target } : { address: target }
  const { pages, nextPageToken } = await collect(options, (pageSize, pageToken) =>
    client.audit.getAddressHistory({
      ...given({ network, pageToken }),
      ...place,
      ...rangeOf({ from, to }),
      pageSize,
      descending: true,
    }),
  )
  const answer = create(GetAddressHistoryResponseSchema, {
    entries: pages.flatMap((page) => page.entries),
    holders: once(pages.flatMap((page) => page.holders)),
    nextPageToken,
    head: pages[0]!.head,
  })
  printAnswer(options, GetAddressHistoryResponseSchema, answer, ({ entries, holders }) =>
    told(
      { about: `${target} of network ${network}`, entries: entries.toReversed(), holders },
      options,
      nextPageToken,
    ),
  )
  printMore(options, nextPageToken)
}

async function leaseHistory(client: Connection, leaseId: string, options: Options): Promise<void> {
  if (options.from !== undefined || options.to !== undefined) {
    throw new Unclear('A lease is shown from its beginning to its end: leave --from and --to away.')
  }
  const { pages, nextPageToken } = await collect(options, (pageSize, pageToken) =>
    client.audit.getLeaseHistory({ ...given({ pageToken }), leaseId, pageSize, descending: true }),
  )
  const answer = create(GetLeaseHistoryResponseSchema, {
    entries: pages.flatMap((page) => page.entries),
    holders: once(pages.flatMap((page) => page.holders)),
    nextPageToken,
    head: pages[0]!.head,
  })
  printAnswer(options, GetLeaseHistoryResponseSchema, answer, ({ entries, holders }) =>
    told({ about: `lease ${leaseId}`, entries: entries.toReversed(), holders }, options, ''),
  )
  printMore(options, nextPageToken)
}

async function ownerHistory(client: Connection, ownerName: string, options: Options): Promise<void> {
  const { network, from, to } = options
  const { pages, nextPageToken } = await collect(options, async (pageSize, pageToken) => {
    const page = await client.audit.listEvents({
      ...given({ network, pageToken }),
      ...rangeOf({ from, to }),
      ownerName,
      pageSize,
      descending: true,
    })
    return { ...page, entries: page.events }
  })
  const events = pages.flatMap((page) => page.events)
  const answer = create(ListEventsResponseSchema, { events, nextPageToken, head: pages[0]!.head })
  if (options.json === true) {
    printAnswer(options, ListEventsResponseSchema, answer, () => '')
    return
  }
  const { sentences, holders } = await lives(client, events)
  const entries = events
    .toReversed()
    .map((event) => ({ event, what: sentences.get(event.seq) ?? closingOf(event) }))
  const about = `owners ${ownerName} of network ${network}`
  console.log(
    told(
      { about, entries, holders: holders.filter((one) => one.owner?.name === ownerName) },
      options,
      nextPageToken,
    ),
  )
  printMore(options, nextPageToken)
}

/** What the lists of events do not say: their sentences, and the spans of the leases they are about. */
async function lives(
  client: Connection,
  events: readonly Event[],
): Promise<{ readonly sentences: ReadonlyMap<bigint, string>; readonly holders: readonly Holder[] }> {
  const sentences = new Map<bigint, string>()
  const holders: Holder[] = []
  for (const leaseId of new Set(
    events.flatMap(({ lease }) => (lease === undefined ? [] : [lease.leaseId])),
  )) {
    const life = await client.audit.getLeaseHistory({ leaseId, pageSize: 1000, descending: true })
    for (const { event, what } of life.entries) sentences.set(event!.seq, what)
    holders.push(...life.holders)
  }
  return { sentences, holders: once(holders) }
}

function closingOf({ type, actor, cause, closed }: Event): string {
  if (closed === undefined) return `${type} by ${actor} (${cause})`
  const { kind, name, incarnation } = closed.owner!
  const where = closed.pool === '' ? 'every pool' : `pool ${closed.pool}`
  return `Late calls for ${kind} ${name} incarnation ${incarnation} are refused in ${where}, by ${actor} (${cause}).`
}

/** As many as were asked for, of as many pages as it takes. */
async function collect<P extends { readonly entries: readonly unknown[]; readonly nextPageToken: string }>(
  { pageSize = PAGE, pageToken }: Options,
  get: (pageSize: number, pageToken: string | undefined) => Promise<P>,
): Promise<{ readonly pages: readonly P[]; readonly nextPageToken: string }> {
  const pages: P[] = []
  let missing = pageSize
  for (let token = pageToken; ; ) {
    const page = await get(missing, token)
    pages.push(page)
    missing -= page.entries.length
    token = page.nextPageToken
    if (token === '' || missing <= 0) return { pages, nextPageToken: token }
  }
}

/** Each span once, oldest first. */
function once(holders: readonly Holder[]): Holder[] {
  return [...new Map(holders.map((one) => [one.fromSeq, one])).values()].sort((one, other) =>
    Number(one.fromSeq - other.fromSeq),
  )
}

function told({ about, entries, holders }: Story, options: Options, nextPageToken: string): string {
  if (entries.length === 0 && holders.length === 0) return `Nothing happened to ${about}, and nobody held it.`
  const width = lineWidth()
  const drawn =
    holders.length === 0
      ? ['Nobody held it.']
      : [timeline({ about, entries, holders }, options, nextPageToken, width)]
  const events =
    entries.length === 0
      ? 'No events.'
      : prose(
          ['SEQ', 'TIME', 'WHAT'],
          entries.map(({ event, what }) => [String(event!.seq), time(event!.time), what]),
          width,
        )
  return [...drawn, '', events].join('\n')
}

/** What was asked for, or from the first to the last thing shown; of a page between others, its events. */
function timeline(
  { about, entries, holders }: Story,
  { from, to, pageToken }: Options,
  nextPageToken: string,
  width: number,
): string {
  const now = Date.now()
  const times = entries.map(({ event }) => ms(event!.time)!)
  const begins = [...times, ...holders.map((one) => ms(one.fromTime)!)]
  const isOlder = pageToken !== undefined && times.length > 0
  const addresses = new Set(holders.map((one) => one.address))
  const spans = drawnOf(holders, addresses.size > 1)
  const ends = isOlder ? times : [...times, ...spans.map((one) => one.coolsUntil ?? one.until ?? now)]
  const asked = (when: When | undefined) => (when !== undefined && 'ms' in when ? when.ms : undefined)
  const first =
    asked(from) ??
    (nextPageToken === '' && from === undefined ? Math.min(...begins) : (times[0] ?? Math.min(...begins)))
  const shown = Math.max(...ends)
  const end = isOlder ? shown : (asked(to) ?? (asked(from) === undefined ? shown : now))
  const last = Math.min(end, Math.max(now, ...times))
  const drawing = drawTimeline({
    titles: ['ADDRESS', 'LEASE', 'OWNER'],
    spans,
    from: first,
    to: Math.max(first, last),
    width,
  })
  return `${about}, ${iso(first)} to ${iso(Math.max(first, last))}\n\n${drawing}`
}

const MARKS: Readonly<Partial<Record<LeaseState, Mark>>> = {
  [LeaseState.RESERVED]: 'reserved',
  [LeaseState.ACTIVE]: 'active',
  [LeaseState.QUARANTINED]: 'quarantined',
}

/** As they follow each other. An address that was handed on before its time cools no more (DESIGN §3, `preferPrevious`). */
export function drawnOf(holders: readonly Holder[], withAddress: boolean): Drawn[] {
  return holders.map((holder, at) => {
    const next = holders.slice(at + 1).find(({ address }) => address === holder.address)
    const cool = ms(holder.availableAt)
    return {
      cells: cellsOf(holder, withAddress),
      from: ms(holder.fromTime)!,
      until: ms(holder.untilTime) ?? null,
      coolsUntil: cool === undefined ? null : Math.min(cool, ms(next?.fromTime) ?? cool),
      states: holder.states.map(({ state, time: at }) => ({ mark: MARKS[state] ?? 'active', at: ms(at)! })),
    }
  })
}

function cellsOf({ owner, address, prefixLength, leaseId }: Holder, withAddress: boolean): string[] {
  const single = address.includes(':') ? 128 : 32
  const block = prefixLength === single ? address : `${address}/${prefixLength}`
  return [
    withAddress ? block : '',
    leaseId,
    owner === undefined ? 'nobody known' : `${owner.kind} ${owner.name}`,
  ]
}

function ms(at: Timestamp | undefined): number | undefined {
  return at === undefined ? undefined : timestampMs(at)
}

function iso(at: number): string {
  return new Date(at).toISOString().replace(/\.\d+Z$/, 'Z')
}
