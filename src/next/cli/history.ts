/** Who had an address or a lease, or what an owner had: holders drawn over time, and what happened. */
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import { isMalformed, parseCidr } from '../core/address.ts'
import { AuditService, type Event, type HistoryEntry, type Holder } from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseState } from '../gen/ipledger/v1/types_pb.ts'
import { Unclear } from './failure.ts'
import { iso, lineWidth, prose, time } from './print.ts'
import { fromOf, toOf, WHEN_HELP, type When, whenOption, whole } from './readers.ts'
import { addressOf, holderOf } from './show-lease.ts'
import { type Drawn, drawTimeline, type Mark } from './timeline.ts'
import { ask, print } from './verb.ts'

type Options = {
  readonly network: string
  readonly owner?: string
  readonly from?: When
  readonly to?: When
  readonly pageSize: number
  readonly pageToken?: string
  readonly json?: boolean
}

/** Entries newest first, as they are read; holders oldest first. */
type Story = {
  readonly about: string
  readonly entries: readonly Pick<HistoryEntry, 'event' | 'what'>[]
  readonly holders: readonly Holder[]
}

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
      const { network, owner, from, to } = options
      const range = { ...(from !== undefined && fromOf(from)), ...(to !== undefined && toOf(to)) }
      if ((target === undefined) === (owner === undefined))
        throw new Unclear('Name an address, a CIDR or a lease id, or --owner with a name: one of them.')
      if (target === undefined) {
        const about = `owners ${owner} of network ${network}`
        const asked = { network, ownerName: owner!, ...range }
        await tell(method.listEvents, asked, options, async ({ events }) => ownerStory(about, owner!, events))
      } else if (target.includes('/') && isMalformed(parseCidr(target))) {
        if (from !== undefined || to !== undefined)
          throw new Unclear('A lease is shown from its beginning to its end: leave --from and --to away.')
        const about = `lease ${target}`
        await tell(method.getLeaseHistory, { leaseId: target }, options, async (found) => ({
          ...found,
          about,
        }))
      } else {
        const about = `${target} of network ${network}`
        const asked = { network, [target.includes('/') ? 'cidr' : 'address']: target, ...range }
        await tell(method.getAddressHistory, asked, options, async (found) => ({ ...found, about }))
      }
    })
}

type Lists = { nextPageToken: string; entries?: HistoryEntry[]; events?: Event[]; holders?: Holder[] }

/** As many as were asked for, of as many pages as it takes, as if they were one. */
async function tell<I extends DescMessage, O extends DescMessage>(
  asks: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  options: Options,
  storyOf: (answer: MessageShape<O>) => Promise<Story>,
): Promise<void> {
  const get = (pageSize: number, pageToken: string) =>
    ask(asks, { ...request, pageSize, pageToken, descending: true }) as Promise<MessageShape<O> & Lists>
  const answer = await get(options.pageSize, options.pageToken ?? '')
  for (;;) {
    const missing = options.pageSize - (answer.entries ?? answer.events)!.length
    if (missing <= 0 || answer.nextPageToken === '') break
    const {
      entries = [],
      events = [],
      holders = [],
      nextPageToken,
    } = await get(missing, answer.nextPageToken)
    answer.entries?.push(...entries)
    answer.events?.push(...events)
    answer.holders?.push(...holders)
    answer.nextPageToken = nextPageToken
  }
  if (answer.holders !== undefined) answer.holders = once(answer.holders)
  const { nextPageToken } = answer
  const story = options.json === true ? null : await storyOf(answer)
  print(options, asks, answer, () => told(story!, options, nextPageToken))
  if (story !== null && nextPageToken !== '') console.error(`There is more: --page-token ${nextPageToken}`)
}

/** With what lists of events do not say: their sentences, and the spans of the leases they are about. */
async function ownerStory(about: string, owner: string, events: readonly Event[]): Promise<Story> {
  const ids = new Set(events.flatMap(({ lease }) => lease?.leaseId ?? []))
  const lives = await Promise.all(
    [...ids].map((leaseId) => ask(method.getLeaseHistory, { leaseId, pageSize: 1_000, descending: true })),
  )
  const sentences = new Map(
    lives.flatMap((life) => life.entries).map(({ event, what }) => [event!.seq, what]),
  )
  return {
    about,
    entries: events.map((event) => ({ event, what: sentences.get(event.seq) ?? closingOf(event) })),
    holders: once(lives.flatMap((life) => life.holders)).filter((one) => one.owner?.name === owner),
  }
}

function closingOf({ type, actor, cause, closed }: Event): string {
  if (closed === undefined) return `${type} by ${actor} (${cause})`
  return `Late calls for ${holderOf(closed)} incarnation ${closed.owner?.incarnation} are refused, by ${actor} (${cause}).`
}

/** Each span once, oldest first. */
function once(holders: readonly Holder[]): Holder[] {
  return [...new Map(holders.map((one) => [one.fromSeq, one])).values()].sort((one, other) =>
    Number(one.fromSeq - other.fromSeq),
  )
}

function told(story: Story, options: Options, nextPageToken: string): string {
  const { about, holders } = story
  const entries = story.entries.toReversed()
  if (entries.length === 0 && holders.length === 0) return `Nothing happened to ${about}, and nobody held it.`
  const width = lineWidth()
  const rows = entries.map(({ event, what }) => [String(event!.seq), time(event!.time), what])
  return [
    holders.length === 0 ? 'Nobody held it.' : timeline(story, options, nextPageToken, width),
    '',
    rows.length === 0 ? 'No events.' : prose(['SEQ', 'TIME', 'WHAT'], rows, width),
  ].join('\n')
}

/** What was asked for, or from the first to the last thing shown; of a page between others, its events. */
function timeline(
  { about, entries, holders }: Story,
  options: Options,
  nextPageToken: string,
  width: number,
): string {
  const now = Date.now()
  const asked = (when: When | undefined) => (when !== undefined && 'ms' in when ? when.ms : undefined)
  const [from, to] = [asked(options.from), asked(options.to)]
  const times = entries.map(({ event }) => ms(event!.time)!)
  const spans = drawnOf(holders, new Set(holders.map((one) => one.address)).size > 1)
  const first = Math.min(...times, ...spans.map((one) => one.from))
  const last = Math.max(...times, ...spans.map((one) => one.coolsUntil ?? one.until ?? now))
  const isMiddle = options.pageToken !== undefined && times.length > 0
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
      states: holder.states.map(({ state, time: at }) => ({ mark: MARKS[state] ?? 'active', at: ms(at)! })),
    }
  })
}

function ms(at: Timestamp | undefined): number | undefined {
  return at === undefined ? undefined : timestampMs(at)
}
