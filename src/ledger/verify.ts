/**
 * `ipledger verify`: everything that can be asked of the database about its ledgers. The log of each network is
 * numbered without a gap in each era and its times never go back; the fold of every address is legal; the projections
 * are the fold; what is untouched is exactly what nobody ever held; the parts of each pool sum up to its size.
 *
 * It runs beside the service. Every slice reads events and rows in one snapshot of a fraction of a second, so what is
 * being written can't look like a difference, no old snapshot is held, and memory is bounded by the slice. What a
 * single snapshot cannot hold, the sums of a large pool, is counted as `tally.ts` says.
 *
 * With `full` every event is walked and every row compared. Without, only the events since the checkpoint and the
 * addresses they are about, and the sums of every pool, which miss or exceed when an older row was lost. The
 * checkpoint moves only when nothing was found. What was found is written down (`findings.ts`) until a later look at all
 * of it finds it no more.
 *
 * That tokens are unique and no version is beyond the head needs no question of its own: a row that equals its event
 * has the number of an event of its own address. Asked only with `seals`: whether an event between others was altered in a way that leaves the
 * log legal and its last state as it was (`verify-seals.ts`).
 */
import type pg from 'pg'
import { type Family, formatValue } from '../core/address.ts'
import { type AddressBook, addressValue, BrokenBooks, UNTOUCHED } from '../core/books.ts'
import type { HeldType, LeaseEvent } from '../core/event.ts'
import { addressOf, evolveAddress } from '../core/evolve.ts'
import { type Lease, leaseId } from '../core/lease.ts'
import { type Pool, poolSize } from '../core/pool.ts'
import { contains, type Range } from '../core/ranges.ts'
import { connect } from '../postgres/connect.ts'
import { CLOSED_NAMES, type ClosingDifference, walkClosings } from './closings.ts'
import { CODES_OF_SEALS, forgetFindings, keepFindings, leaveFindings, readClock } from './findings.ts'
import {
  type Cells,
  compareRows,
  compareSpaces,
  familyOf,
  LEASE_NAMES,
  RELEASED_NAMES,
  type RowDifference,
  readRowsAt,
  readSlice,
  readStandings,
  readUntouchedAt,
  type Settled,
  type Slice,
  type SpaceDifference,
  type Standing,
  stateAfter,
  wholeFamily,
} from './fold.ts'
import { walkNumbers } from './numbers.ts'
import { readAddress } from './rows.ts'
import type { SealFinding, SealFindingCode } from './seal-chain.ts'
import { advanceShape, misplaced, newShape, poolOver, type Shape } from './shape.ts'
import { CELLS_OF, compareShape, networksWithoutRow, type ShapeDifference } from './shape-rows.ts'
import { type Tally, tallyPool, wrongBounds } from './tally.ts'
import { checkCheckpoints, checkTenure, type TenureOdd } from './tenure-check.ts'
import { createPace, inSnapshot } from './transaction.ts'
import { type Exported, type SealsVerified, walkExported, walkSeals } from './verify-seals.ts'

export type VerifyOptions = {
  /** The service's login is enough: nothing but `verify_checkpoint` and `verify_finding` is written. */
  readonly url: string
  /** Without one, every network the database knows of. */
  readonly network?: string | undefined
  /** From the first event; otherwise from where the last clean run ended. */
  readonly full?: boolean | undefined
  /** Whether the log is still what was sealed, from the first seal on. */
  readonly seals?: boolean | undefined
  /** Whether it is what these digests say, that were exported before. */
  readonly against?: readonly Exported[] | undefined
  readonly onProgress?: ((progress: VerifyProgress) => void) | undefined
  /** As soon as it is known, for a run that may not come to its end. */
  readonly onFinding?: ((finding: Finding) => void) | undefined
  readonly signal?: AbortSignal | undefined
  /** Rows per transaction instead of what proves fast enough: for tests of the seams. */
  readonly slice?: number | undefined
}

export type VerifyProgress = {
  readonly network: string
  readonly what:
    | 'numbers'
    | 'addresses'
    | 'closed attachments'
    | 'requests'
    | 'pools'
    | 'tenures'
    | 'seals'
    | 'exported digests'
  readonly done: number
  /** How many there are; unknown while it is null. */
  readonly of: number | null
}

export type VerifyReport = { readonly networks: readonly NetworkVerified[] }

export type NetworkVerified = {
  readonly network: string
  readonly head: number
  /** Events up to this one were taken as found in order before. */
  readonly from: number
  readonly eventsChecked: number
  /** Null: they were not asked about. */
  readonly seals: SealsVerified | null
  /** Exported digests of the network that it was held against. */
  readonly exported: number
  readonly findings: readonly Finding[]
  /** Findings beyond the first thousand. */
  readonly omitted: number
}

export type FindingCode =
  | 'EVENT_MISSING'
  | 'ERA_WRONG'
  | 'TIME_GOES_BACK'
  | 'EVENT_ILLEGAL'
  | 'LOG_SHORTER_THAN_BEFORE'
  | 'LOCK_ROW_MISSING'
  | 'NETWORK_MISSING'
  | 'NETWORK_UNEXPLAINED'
  | 'NETWORK_DIFFERS'
  | 'NETWORK_IS_REBUILDING'
  | 'POOL_MISSING'
  | 'POOL_UNEXPLAINED'
  | 'POOL_DIFFERS'
  | 'LEASE_MISSING'
  | 'LEASE_UNEXPLAINED'
  | 'LEASE_DIFFERS'
  | 'LEASE_MISPLACED'
  | 'RELEASED_MISSING'
  | 'RELEASED_UNEXPLAINED'
  | 'RELEASED_DIFFERS'
  | 'UNTOUCHED_MISSING'
  | 'UNTOUCHED_UNEXPLAINED'
  | 'UNTOUCHED_OVERLAPS'
  | 'POSITION_MISSING'
  | 'POSITION_WRONG'
  | 'COUNT_DIFFERS'
  | 'PARTITION_DIFFERS'
  | 'CLOSING_MISSING'
  | 'CLOSING_UNEXPLAINED'
  | 'CLOSING_DIFFERS'
  | 'REQUEST_AFTER_HEAD'
  | 'HOLD_MISSING'
  | 'HOLD_UNEXPLAINED'
  | 'HOLD_DIFFERS'
  | 'FENCE_MISSING'
  | 'FENCE_UNEXPLAINED'
  | 'FENCE_DIFFERS'
  | TenureOdd['what']
  | SealFindingCode

export type Finding = {
  readonly network: string
  readonly what: FindingCode
  /** A sentence for people. */
  readonly message: string
  readonly address: string | null
  readonly leaseId: string | null
  readonly pool: string | null
  readonly seq: number | null
  /** By the log. */
  readonly expected: string | null
  /** In the projections. */
  readonly found: string | null
}

export const MOST_FINDINGS = 1_000

type Report = (
  what: FindingCode,
  message: string,
  fields?: Partial<Omit<Finding, 'network' | 'what' | 'message'>>,
) => void

/** One network's verification on its way. */
export type Run = {
  readonly client: pg.Client
  readonly network: string
  readonly shape: Shape
  /** Pools that events name and none created, as far as they were reported. */
  readonly unknownPools: Set<number>
  readonly report: Report
  /**
   * The same, of what is not written down: what was found against exported digests, which nobody looks at again by himself, that
   * something is not sealed yet, and a rebuild that is on its way, which say so themselves.
   */
  readonly tell: Report
  readonly progress: (what: VerifyProgress['what'], done: number, of: number | null) => void
  readonly signal: AbortSignal | undefined
  readonly slice: number | undefined
}

export async function verify(options: VerifyOptions): Promise<VerifyReport> {
  const client = await connect({ url: options.url, applicationName: 'ipledger verify' })
  try {
    const exported = (options.against ?? []).map(({ network }) => network)
    const all = options.network === undefined ? await knownNetworks(client, exported) : [options.network]
    const networks: NetworkVerified[] = []
    for (const network of all) {
      options.signal?.throwIfAborted()
      networks.push(await verifyNetwork(client, network, options))
    }
    return { networks }
  } finally {
    await client.end()
  }
}

/** With those that only seals, positions or exported digests know of: their rows and events are gone. */
async function knownNetworks(client: pg.Client, exported: readonly string[]): Promise<readonly string[]> {
  const { rows } = await client.query<{ network_id: string }>('select network_id from ipledger.network')
  const others = await networksWithoutRow(client)
  return [...new Set([...rows.map((row) => row.network_id), ...others, ...exported])].sort()
}

/** On a connection of the caller's. */
export async function verifyNetwork(
  client: pg.Client,
  network: string,
  options: Omit<VerifyOptions, 'url' | 'network'>,
): Promise<NetworkVerified> {
  const { run, findings, kept, omitted } = newRun(client, network, options)
  const { report } = run
  const looksAtAll = options.full === true
  const begun = await readClock(client)
  const checkpoint = await readCheckpoint(client, network)
  await inSnapshot(client, () => advanceShape(client, run.shape))
  const { head } = run.shape
  if (checkpoint.seq > head) {
    report(
      'LOG_SHORTER_THAN_BEFORE',
      `the log of network ${network} ends at ${head}; an earlier verification found it in order up to ${checkpoint.seq}`,
      { seq: head, expected: String(checkpoint.seq), found: String(head) },
    )
  }
  const full = looksAtAll || checkpoint.seq > head || checkpoint.seq === 0
  const from = full ? 0 : checkpoint.seq
  const events = await walkNumbers(
    client,
    network,
    { from, head },
    {
      use: ({ what, message, seq, expected, found }) => report(what, message, { seq, expected, found }),
      times: true,
      onProgress: (events) => run.progress('numbers', events, head - from),
      signal: run.signal,
      slice: run.slice,
    },
  )
  await checkShape(run)
  if (full) for (const family of [4, 6] as const) await walkAddresses(run, family, { total: events })
  else await walkEvents(run, from, head)
  await checkClosings(run, full)
  await checkRequests(run, full ? null : checkpoint.at)
  await checkPools(run)
  await checkTenures(run, looksAtAll)
  const seals = options.seals === true ? await checkSeals(run) : null
  const exported = (options.against ?? []).filter((one) => one.network === network)
  await checkExported(run, exported)
  await keepFindings(client, network, kept())
  if (omitted() === 0) {
    if (looksAtAll && seals === null) await leaveFindings(client, network, { codes: CODES_OF_SEALS })
    if (looksAtAll) await forgetFindings(client, network, begun)
    else if (seals !== null) await forgetFindings(client, network, begun, CODES_OF_SEALS)
  }
  if (findings.length === 0)
    await writeCheckpoint(client, network, head, events + (full ? 0 : checkpoint.events))
  return {
    network,
    head,
    from,
    eventsChecked: events,
    seals,
    exported: exported.length,
    findings,
    omitted: omitted(),
  }
}

/** What a look at a network is told, and what it finds. */
export function newRun(
  client: pg.Client,
  network: string,
  options: Pick<VerifyOptions, 'onProgress' | 'onFinding' | 'signal' | 'slice'>,
): {
  readonly run: Run
  readonly findings: readonly Finding[]
  /** Those that are to be written down. */
  readonly kept: () => readonly Finding[]
  readonly omitted: () => number
} {
  const findings: Finding[] = []
  const toldOnly = new Set<Finding>()
  let omitted = 0
  const add = (...[what, message, fields = {}]: Parameters<Report>): Finding | null => {
    if (findings.length >= MOST_FINDINGS) {
      omitted += 1
      return null
    }
    const finding = {
      network,
      what,
      message,
      address: null,
      leaseId: null,
      pool: null,
      seq: null,
      expected: null,
      found: null,
      ...fields,
    }
    findings.push(finding)
    options.onFinding?.(finding)
    return finding
  }
  const run: Run = {
    client,
    network,
    shape: newShape(network),
    unknownPools: new Set(),
    report: (...said) => void add(...said),
    tell: (...said) => {
      const finding = add(...said)
      if (finding !== null) toldOnly.add(finding)
    },
    progress: (what, done, of) => options.onProgress?.({ network, what, done, of }),
    signal: options.signal,
    slice: options.slice,
  }
  const kept = () => findings.filter((finding) => !toldOnly.has(finding))
  return { run, findings, kept, omitted: () => omitted }
}

type Checkpoint = { readonly seq: number; readonly events: number; readonly at: number }

export async function readCheckpoint(client: pg.Client, network: string): Promise<Checkpoint> {
  const { rows } = await client.query<Checkpoint>(
    'select seq, events, at from ipledger.verify_checkpoint where network_id = $1',
    [network],
  )
  return rows[0] ?? { seq: 0, events: 0, at: 0 }
}

export async function writeCheckpoint(
  client: pg.Client,
  network: string,
  seq: number,
  events: number,
  isHead = true,
): Promise<void> {
  if (seq === 0) return
  // Of what came after it nothing is known yet.
  const at = isHead
    ? 'clock_timestamp()'
    : '(select e.at from ipledger.event e where e.network_id = $1 and e.seq <= $2 order by e.seq desc limit 1)'
  await client.query(
    `insert into ipledger.verify_checkpoint (network_id, seq, events, at) values ($1, $2, $3, ${at})
      on conflict (network_id) do update set seq = excluded.seq, events = excluded.events, at = excluded.at`,
    [network, seq, events],
  )
}

export async function checkShape(run: Run): Promise<void> {
  const { client, shape, report } = run
  await inSnapshot(client, async () => {
    await advanceShape(client, shape)
    for (const difference of await compareShape(client, shape)) reportShape(run, difference)
  })
  for (const { seq, why } of shape.broken) report('EVENT_ILLEGAL', why, { seq })
}

function reportShape({ network, report, tell }: Run, difference: ShapeDifference): void {
  const { what, name, seq, columns, expected, found } = difference
  const names = CELLS_OF[what]
  const fields = { seq, expected: describe(expected, names, columns), found: describe(found, names, columns) }
  switch (what) {
    case 'lock':
      report(
        'LOCK_ROW_MISSING',
        `network ${network} has no row in network_lock: its batches do not wait for each other`,
      )
      return
    case 'rebuilding':
      tell(
        'NETWORK_IS_REBUILDING',
        `network ${network} is being rebuilt, or a rebuild broke off: run ipledger rebuild`,
      )
      return
    case 'network':
      if (expected === null) {
        const why = found === null ? 'there is no such network' : 'no event made it'
        report(
          found === null ? 'NETWORK_MISSING' : 'NETWORK_UNEXPLAINED',
          `network ${network}: ${why}`,
          fields,
        )
      } else if (found === null) report('NETWORK_MISSING', `network ${network} has events and no row`, fields)
      else
        report(
          'NETWORK_DIFFERS',
          `network ${network} differs from its events in ${columns.join(', ')}`,
          fields,
        )
      return
    case 'pool':
      if (expected === null)
        report('POOL_UNEXPLAINED', `pool ${name} of network ${network} has a row and no event that made it`, {
          ...fields,
          pool: name,
        })
      else if (found === null)
        report('POOL_MISSING', `pool ${name} of network ${network} has no row`, { ...fields, pool: name })
      else
        report(
          'POOL_DIFFERS',
          `pool ${name} of network ${network} differs from its events in ${columns.join(', ')}`,
          {
            ...fields,
            pool: name,
          },
        )
      return
    case 'hold':
    case 'fence': {
      const kind = what === 'hold' ? 'HOLD' : 'FENCE'
      const about = `network ${network}: the ${what} ${name}`
      if (expected === null)
        report(`${kind}_UNEXPLAINED`, `${about} is stored; no event made it, or it was resumed`, fields)
      else if (found === null)
        report(`${kind}_MISSING`, `${about} is not stored; event ${seq} made it`, fields)
      else report(`${kind}_DIFFERS`, `${about} differs from event ${seq} in ${columns.join(', ')}`, fields)
      return
    }
    case 'ranges':
      report(
        'UNTOUCHED_UNEXPLAINED',
        `network ${network} stores untouched space of pool ${name}, which does not exist`,
        {
          pool: name,
          found: name,
        },
      )
      return
  }
}

// Addresses: all of them, in their order.

const LINKS = `select e.address, e.seq, e.type, e.fencing_token, e.pool_id from ipledger.event e
  where e.network_id = $1 and e.address between $2::inet and $4::inet and (e.address, e.seq) > ($2::inet, $3::bigint)
  order by e.address, e.seq limit $5`

/**
 * An event as far as the legality of a fold goes: its type, its number, the lease's token and pool. What else it says
 * is read of the last one alone, whose state is the address's: reading all events whole took 3.6 times as long.
 */
type Link = readonly [address: string, seq: number, type: string, token: number, poolId: number]

function linkEvent(network: string, [address, seq, type, token, poolId]: Link): LeaseEvent {
  const header = { network, seq, at: 0, actor: '', cause: '', requestId: null, traceId: null, evidence: null }
  const lease: Lease = {
    network,
    poolId,
    address,
    prefixLength: 0,
    fencingToken: token,
    version: seq,
    state: 'RESERVED',
    quarantine: null,
    owner: null,
    placement: NOWHERE,
    witness: '',
    reservedAt: 0,
    confirmedAt: null,
    confirmBy: null,
  }
  switch (type) {
    case 'lease.released':
    case 'lease.reaped':
      return {
        ...header,
        type,
        ended: { lease, how: type, seq, endedAt: 0, availableAt: 0, removalConfirmed: false },
      }
    default:
      return { ...header, type: type as HeldType, lease }
  }
}

const NOWHERE = { node: '', boot: '', labels: {} }

/** Events of a slice: 40,000 took 0.2 s, folded and compared; the worst 0.46 s (2 cores, busy with other work). */
const EVENTS_AT_FIRST = 10_000
const MOST_EVENTS = 40_000

/** Where the walk is in the events of an address that did not fit into one slice. */
type Chain = { readonly address: string; readonly seq: number; readonly book: AddressBook }

/** Where a walk goes on: with this address, of whose events those up to `seq` are folded; 0: none is. */
export type WalkedTo = { readonly first: bigint; readonly seq: number }

type AddressWalk = {
  readonly total: number | null
  readonly from?: WalkedTo
  /** Asked after each slice: whether the rest is for another time. */
  readonly enough?: () => boolean
}

/** Null: all of them were looked at. */
export async function walkAddresses(
  run: Run,
  family: Family,
  { total, from: begin, enough = () => false }: AddressWalk,
): Promise<WalkedTo | null> {
  const { client, network, shape } = run
  const { last } = wholeFamily(family)
  const end = formatValue(family, last)
  const pace = createPace(EVENTS_AT_FIRST, MOST_EVENTS, run.slice)
  let first = begin?.first ?? 0n
  let chain: Chain | null = await readChain(run, family, begin)
  let walked = 0
  for (;;) {
    run.signal?.throwIfAborted()
    const begun = performance.now()
    const from = chain ?? { address: formatValue(family, first), seq: 0 }
    const read = await inSnapshot(client, async () => {
      await advanceShape(client, shape)
      const most = pace.size()
      const { rows } = await client.query<[...Link]>({
        rowMode: 'array',
        text: LINKS,
        values: [network, from.address, from.seq, end, most],
      })
      const exhausted = rows.length < most
      const trailing = rows.at(-1)
      const stop = exhausted ? last : addressValue(readAddress(trailing![0])) - 1n
      // All of it is one address's history, and there is more.
      if (stop < first) return { links: rows, slice: null }
      const addresses = distinct(rows, chain)
      if (!exhausted) addresses.pop()
      const slice = await readSlice(
        client,
        shape,
        family,
        { addresses, interval: { first, last: stop } },
        most,
      )
      return { links: rows, slice, cut: slice.interval.last < stop, exhausted }
    })
    pace.took(performance.now() - begun)
    const until = read.slice === null ? last : read.cut ? read.slice.interval.last : last
    chain = foldLinks(run, read.links, chain, until)
    walked += read.links.length
    run.progress('addresses', walked, total)
    if (read.slice === null) {
      if (enough()) return { first, seq: chain!.seq }
      continue
    }
    checkSlice(run, read.slice)
    first = read.slice.interval.last + 1n
    // The chain goes on with the address that did not fit, unless rows cut the slice short before it.
    if (read.cut) chain = null
    else if (read.exhausted) return null
    if (first > last) return null
    if (enough()) return { first, seq: 0 }
  }
}

const LINK = `select e.address, e.seq, e.type, e.fencing_token, e.pool_id from ipledger.event e
  where e.network_id = $1 and e.address = $2::inet and e.seq = $3`

async function readChain(run: Run, family: Family, begin: WalkedTo | undefined): Promise<Chain | null> {
  if (begin === undefined || begin.seq === 0) return null
  const address = formatValue(family, begin.first)
  const { rows } = await run.client.query<[...Link]>({
    rowMode: 'array',
    text: LINK,
    values: [run.network, address, begin.seq],
  })
  // Gone since: it is missed by number, and its address is folded from its first event again.
  const link = rows[0]
  return link === undefined
    ? null
    : { address: link[0], seq: begin.seq, book: stateAfter(linkEvent(run.network, link)) }
}

function distinct(links: readonly Link[], chain: Chain | null): string[] {
  const addresses: string[] = chain === null ? [] : [chain.address]
  let before = chain?.address
  for (const [address] of links) {
    if (address === before) continue
    before = address
    addresses.push(address)
  }
  return addresses.map(readAddress)
}

/** Folds every address's events; answers where the last address stands. */
function foldLinks(run: Run, links: readonly Link[], chain: Chain | null, until: bigint): Chain | null {
  let current: Chain | null = chain
  for (const link of links) {
    const [address, seq] = link
    if (current?.address !== address && addressValue(readAddress(address)) > until) break
    const before: AddressBook = current?.address === address ? current.book : UNTOUCHED
    current = { address, seq, book: foldLegally(run, before, linkEvent(run.network, link)) }
  }
  return current
}

function foldLegally(run: Run, before: AddressBook, event: LeaseEvent): AddressBook {
  const { poolId } = addressOf(event)
  if (!run.shape.histories.has(poolId) && !run.unknownPools.has(poolId)) {
    // Said once: of a pool whose creation is lost every event says it.
    run.unknownPools.add(poolId)
    const about = `event ${event.network}/${event.seq} (${event.type})`
    run.report('EVENT_ILLEGAL', `${about}: it names pool ${poolId}, which was never created`, {
      address: readAddress(addressOf(event).address),
      pool: String(poolId),
      seq: event.seq,
    })
  }
  try {
    return evolveAddress(before, event)
  } catch (error) {
    if (!(error instanceof BrokenBooks)) throw error
    const { address } = addressOf(event)
    run.report('EVENT_ILLEGAL', `${error.message}; it is about ${readAddress(address)}`, {
      address: readAddress(address),
      seq: event.seq,
    })
    // Whatever was before, the event says what was after it.
    return stateAfter(event)
  }
}

function checkSlice(run: Run, slice: Slice): void {
  for (const { lease, ...at } of slice.settled) checkPlace(run, at, lease)
  checkStandings(run, slice.standings)
  for (const difference of compareRows(slice.standings, slice)) reportRow(run, difference)
  for (const difference of compareSpaces(slice)) reportSpace(run, difference)
}

function checkStandings(run: Run, standings: readonly Standing[]): void {
  for (const { book, ...at } of standings) checkPlace(run, at, book.lease)
}

function checkPlace(
  { network, shape, report }: Run,
  { address, value, seq }: Pick<Standing, 'address' | 'value' | 'seq'>,
  lease: Settled['lease'],
): void {
  if (lease === null) return
  const why = misplaced(shape, lease, value)
  if (why === null) return
  const id = leaseId(network, lease.fencingToken)
  report('LEASE_MISPLACED', `lease ${id} holds ${address}, but ${why}`, {
    address,
    seq,
    leaseId: id,
    pool: shape.pools.get(lease.poolId)?.name ?? String(lease.poolId),
  })
}

function reportRow({ network, shape, report }: Run, difference: RowDifference): void {
  const { table, address, expected, found, columns, standing } = difference
  const names = table === 'lease' ? LEASE_NAMES : RELEASED_NAMES
  const lease = table === 'lease' ? ((expected ?? found)![names.indexOf('fencing_token')] as number) : null
  const poolId = standing?.poolId
  const fields = {
    address,
    seq: standing?.seq ?? null,
    leaseId: lease === null ? null : leaseId(network, lease),
    pool: poolId === undefined ? null : (shape.pools.get(poolId)?.name ?? String(poolId)),
    expected: describe(expected, names, columns),
    found: describe(found, names, columns),
  }
  const kind = table === 'lease' ? 'LEASE' : 'RELEASED'
  const row = table === 'lease' ? `lease row of ${address}` : `released row of ${address}`
  if (found === null)
    report(`${kind}_MISSING`, `network ${network} lacks the ${row} that event ${standing!.seq} left`, fields)
  else if (expected === null) {
    const why = standing === undefined ? 'no event is about it' : `event ${standing.seq} left none`
    report(`${kind}_UNEXPLAINED`, `network ${network} has a ${row}; ${why}`, fields)
  } else {
    report(
      `${kind}_DIFFERS`,
      `network ${network}: the ${row} differs from event ${standing!.seq} in ${columns.join(', ')}`,
      fields,
    )
  }
}

function reportSpace(
  { network, report }: Run,
  difference: Omit<SpaceDifference, 'expected' | 'space'>,
): void {
  const { pool, missing, extra, overlaps } = difference
  const about = (ranges: readonly Range[]) => ({
    pool: pool.name,
    address: formatValue(pool.family, ranges[0]!.first),
    ...{ expected: null, found: null },
  })
  const list = (ranges: readonly Range[]) => describeRanges(pool, ranges)
  if (missing.length > 0) {
    report(
      'UNTOUCHED_MISSING',
      `pool ${pool.name} of network ${network} forgets untouched ${list(missing)}`,
      {
        ...about(missing),
        expected: list(missing),
      },
    )
  }
  if (extra.length > 0) {
    report(
      'UNTOUCHED_UNEXPLAINED',
      `pool ${pool.name} of network ${network} stores ${list(extra)} as untouched`,
      {
        ...about(extra),
        found: list(extra),
      },
    )
  }
  if (overlaps) {
    report(
      'UNTOUCHED_OVERLAPS',
      `pool ${pool.name} of network ${network} stores untouched ranges over each other`,
      {
        ...about([difference.interval]),
        found: list([difference.interval]),
      },
    )
  }
}

// Addresses that recent events are about.

const RECENT = `select e.address, e.seq, e.type, e.fencing_token, e.pool_id
  from ipledger.event e where e.network_id = $1 and e.seq > $2 and e.seq <= $3 order by e.seq limit $4`
const BEFORE = `select e.address, e.seq, e.type, e.fencing_token, e.pool_id
  from unnest($2::inet[]) as a (address)
  cross join lateral (
    select * from ipledger.event f
     where f.network_id = $1 and f.address = a.address and f.seq <= $3 order by f.seq desc limit 1) e`

export async function walkEvents(run: Run, from: number, head: number): Promise<void> {
  const { client, network, shape } = run
  const pace = createPace(5_000, 10_000, run.slice)
  for (let after = from; after < head; ) {
    run.signal?.throwIfAborted()
    const begun = performance.now()
    const read = await inSnapshot(client, async () => {
      await advanceShape(client, shape)
      const most = pace.size()
      const { rows } = await client.query<[...Link]>({
        rowMode: 'array',
        text: RECENT,
        values: [network, after, head, most],
      })
      const until = rows.length < most ? head : rows.at(-1)![1]
      const links = rows.filter((link) => link[0] !== null)
      const addresses = [...new Set(links.map(([address]) => readAddress(address)))]
      const before = await client.query<[...Link]>({
        rowMode: 'array',
        text: BEFORE,
        values: [network, addresses, after],
      })
      const last = await readStandings(client, shape, addresses)
      // An address with a later event of this run is compared when that one's turn comes.
      const standings = last.filter(({ seq }) => seq <= until || seq > head)
      const at = standings.map(({ address }) => address)
      const rowsAt = await readRowsAt(client, network, at)
      const storedAsUntouched = await readUntouchedAt(client, shape, standings)
      return { until, links, before: before.rows, standings, rowsAt, storedAsUntouched }
    })
    pace.took(performance.now() - begun)
    const books = new Map(
      read.before.map((link) => [readAddress(link[0]), stateAfter(linkEvent(network, link))]),
    )
    for (const link of read.links) {
      const address = readAddress(link[0])
      books.set(address, foldLegally(run, books.get(address) ?? UNTOUCHED, linkEvent(network, link)))
    }
    checkStandings(run, read.standings)
    for (const difference of compareRows(read.standings, read.rowsAt)) reportRow(run, difference)
    checkUntouched(run, read.standings, read.storedAsUntouched)
    after = read.until
    run.progress('addresses', after - from, head - from)
  }
}

function checkUntouched(run: Run, standings: readonly Standing[], stored: ReadonlySet<string>): void {
  for (const { address, value, book, poolId } of standings) {
    const pool = poolOver(run.shape, familyOf(address), value)
    if (pool === undefined) continue
    const held = pool.poolId === poolId && (book.lease !== null || book.released !== null)
    const untouched = !held && contains(pool.allocatable, value)
    if (untouched === stored.has(address)) continue
    const range = [{ first: value, last: value }]
    reportSpace(run, {
      pool,
      interval: range[0]!,
      missing: untouched ? range : [],
      extra: untouched ? [] : range,
      overlaps: false,
    })
  }
}

// What is beside the addresses.

export async function checkClosings(run: Run, full: boolean, signal = run.signal): Promise<void> {
  let found = 0
  await walkClosings(run.client, run.shape, {
    guarded: full,
    signal,
    slice: run.slice,
    use: async (differences) => {
      for (const difference of differences) reportClosing(run, difference)
      found += differences.length
    },
  })
  run.progress('closed attachments', found, found)
}

function reportClosing({ network, report }: Run, difference: ClosingDifference): void {
  const { attachment, poolId, seq, expected, found, columns } = difference
  const where = poolId === 0 ? 'in every pool' : `in pool ${poolId}`
  const fields = {
    seq,
    expected: describe(expected, CLOSED_NAMES, columns),
    found: describe(found, CLOSED_NAMES, columns),
  }
  const about = `closed attachment ${attachment} ${where} of network ${network}`
  if (found === null) report('CLOSING_MISSING', `${about} is not stored; event ${seq} closed it`, fields)
  else if (expected === null)
    report('CLOSING_UNEXPLAINED', `${about} is stored; no event closed it, or it was opened again`, fields)
  else report('CLOSING_DIFFERS', `${about} differs from its event in ${columns.join(', ')}`, fields)
}

const REQUESTS = `select count(*) as requests, max(s.at)::text as last, min(s.request_id) filter (where s.seq > $4) as late,
    count(*) filter (where s.seq > $4) as late_count
  from (select q.request_id, q.at, q.seq from ipledger.request q
    where q.network_id = $1 and q.at > $2::timestamptz order by q.at fetch first $3 rows with ties) s`

type RequestsRow = { requests: number; last: string | null; late: string | null; late_count: number }

/** Requests remembered since a time, or all: none may name a number that the log has not reached. */
export async function checkRequests(run: Run, since: number | null): Promise<void> {
  const { client, network, shape } = run
  const pace = createPace(20_000, 100_000, run.slice)
  let checked = 0
  let after = since === null ? '-infinity' : new Date(since).toISOString()
  for (;;) {
    run.signal?.throwIfAborted()
    const begun = performance.now()
    const row = await inSnapshot(client, async () => {
      await advanceShape(client, shape)
      const { rows } = await client.query<RequestsRow>(REQUESTS, [network, after, pace.size(), shape.head])
      return rows[0]!
    })
    if (row.late !== null) {
      run.report(
        'REQUEST_AFTER_HEAD',
        `${row.late_count} remembered requests of network ${network}, ${row.late} among them, name a number after the head ${shape.head}`,
        { expected: `at most ${shape.head}` },
      )
    }
    checked += row.requests
    run.progress('requests', checked, null)
    if (row.last === null) return
    after = row.last
    pace.took(performance.now() - begun)
  }
}

async function checkPools(run: Run): Promise<void> {
  const ids = [...run.shape.pools.keys()]
  for (const [index, poolId] of ids.entries()) {
    await checkPool(run, poolId)
    run.progress('pools', index + 1, ids.length)
  }
}

export async function checkPool(run: Run, poolId: number, signal = run.signal): Promise<void> {
  const { client, shape, slice } = run
  await tallyPool(client, shape, poolId, async (tally) => checkTally(run, tally), { signal, slice })
}

function checkTally({ network, report }: Run, tally: Tally): void {
  const { pool, counts, position, head } = tally
  const about = `pool ${pool.name} of network ${network}`
  const fields = { pool: pool.name, seq: position?.seq ?? null }
  const { size, allocatable } = poolSize(pool)
  const held = counts.reserved + counts.active + counts.quarantined
  const parts = counts.untouched + BigInt(held + counts.released)
  if (parts !== allocatable) {
    report(
      'PARTITION_DIFFERS',
      `${about}: ${counts.untouched} untouched, ${counts.released} released, ${counts.reserved} reserved, ${counts.active} active, ` +
        `${counts.quarantined} quarantined and ${size - allocatable} excluded are ${parts + size - allocatable} of ${size}`,
      { ...fields, expected: String(size), found: String(parts + size - allocatable) },
    )
  }
  if (position === undefined) {
    report('POSITION_MISSING', `${about} has no position`, fields)
    return
  }
  if (position.seq > head) {
    report('POSITION_WRONG', `${about} has a position at ${position.seq}, after the head ${head}`, fields)
  }
  for (const name of ['reserved', 'active', 'quarantined', 'released'] as const) {
    if (position[name] === counts[name]) continue
    report(
      'COUNT_DIFFERS',
      `${about}: ${counts[name]} addresses are ${name}, its last position says ${position[name]}`,
      {
        ...fields,
        expected: String(counts[name]),
        found: String(position[name]),
      },
    )
  }
  for (const { why } of wrongBounds(tally)) report('POSITION_WRONG', `${about}: ${why}`, fields)
}

function checkSeals(run: Run): Promise<SealsVerified> {
  const { client, network, shape, tell, signal, slice } = run
  return walkSeals(client, network, {
    use: ofSeals(run),
    useLate: ({ what, message, ...fields }) => tell(what, message, fields),
    onProgress: (events) => run.progress('seals', events, shape.head),
    signal,
    slice,
  })
}

async function checkExported(run: Run, exported: readonly Exported[]): Promise<void> {
  const { client, network, tell, signal, slice } = run
  await walkExported(client, network, exported, {
    use: ({ what, message, ...fields }) => tell(what, message, fields),
    onProgress: (stretches, of) => run.progress('exported digests', stretches, of),
    signal,
    slice,
  })
}

/** Each goes on from where it was found in order itself: it follows the log, and may be made anew meanwhile. */
async function checkTenures(run: Run, full: boolean): Promise<void> {
  const { client, network, progress, signal, slice } = run
  const options = {
    full,
    use: ofTenure(run),
    onProgress: (events: number) => progress('tenures', events, null),
    signal,
    slice,
  }
  await checkTenure(client, network, options)
  await checkCheckpoints(client, network, options)
}

export function ofTenure({ report }: Run): (odd: TenureOdd) => void {
  return ({ what, message, ...fields }) => report(what, message, fields)
}

export function ofSeals({ report }: Run): (finding: SealFinding) => void {
  return ({ what, message, ...fields }) => report(what, message, fields)
}

// Words.

/** A row as `name=value`, or only the columns that differ. */
function describe(cells: Cells | null, names: readonly string[], columns: readonly string[]): string | null {
  if (cells === null) return null
  const shown = names.flatMap((name, index) => {
    const value = cells[index]
    if (columns.length > 0 ? !columns.includes(name) : value === null) return []
    return [`${name}=${typeof value === 'number' && name.endsWith('_at') ? iso(value) : String(value)}`]
  })
  return shown.join(' ')
}

function describeRanges(pool: Pool, ranges: readonly Range[]): string {
  const shown = ranges.slice(0, 3).map(({ first, last }) => {
    const from = formatValue(pool.family, first)
    return first === last ? from : `${from}-${formatValue(pool.family, last)}`
  })
  return ranges.length > 3 ? `${shown.join(', ')} and ${ranges.length - 3} ranges more` : shown.join(', ')
}

function iso(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString() : String(ms)
}
