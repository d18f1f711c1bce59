/**
 * Everything that waits for a person, or for an answer that does not come. A lease that is kept in doubt is a leak, and
 * this list is what bounds it: nothing gives up by itself, so somebody must be able to see what is being tried (M-18).
 *
 * The network first, then its sources by id, then leases and sightings by address. Nothing here is stored; all of it
 * is read and judged when it is asked for, page by page.
 */

import type pg from 'pg'
import { isMalformed, parseAddress } from '../core/address.ts'
import {
  changedAt,
  EFFECT,
  judgeHeld,
  type LeaseEvidence,
  type ReasonCode,
  type Verdict,
} from '../core/judge.ts'
import type { Lease } from '../core/lease.ts'
import { describeOwner } from '../core/owner.ts'
import { type JudgePolicy, judgePolicy, POLICY } from '../core/policy.ts'
import type { Pool } from '../core/pool.ts'
import { contains } from '../core/ranges.ts'
import type { Refusal } from '../core/refusal.ts'
import { ask } from '../postgres/on-connection.ts'
import { EVIDENCE_STATEMENTS, type EvidenceRead, takeEvidence } from './evidence.ts'
import { readHolds } from './lists.ts'
import { isAfter, noNetwork, readWindow } from './plan.ts'
import { listSources } from './register.ts'
import { HIGHEST, LOWEST, type Unbooked } from './sighted.ts'
import type { Source } from './source-rows.ts'
import { readPoolsOf } from './suspects.ts'
import { readUnknown } from './unknown-sources.ts'

const NETWORK_CODES = [
  'NETWORK_RECOVERING',
  'NETWORK_REBUILDING',
  'SOURCE_UNKNOWN',
  'BOOKS_DIFFER',
  'HELD',
  'OLD_TRANSACTION',
  'CLOCK_AHEAD',
] as const
const SOURCE_CODES = [
  'SOURCE_NOT_ENABLED',
  'SOURCE_SILENT',
  'SOURCE_PARTIAL',
  'SOURCE_COLD',
  'SOURCE_SELDOM',
  'FENCE_CONTRADICTED',
  'STALE_SIGHTING',
] as const
const LEASE_CODES = [
  'PROOF_BLOCKED',
  'LOOKUP_FAILING',
  'LOOKUP_WAITING',
  'OWNER_LIVES_ELSEWHERE',
  'NOBODY_CAN_TELL',
  'NO_EXIT',
  'NEVER_SIGHTED',
  'SIGHTING_EXCLUDED',
  'SIGHTING_NOT_RECORDED',
] as const

/** All of them. */
export const STUCK_CODES = [...NETWORK_CODES, ...SOURCE_CODES, ...LEASE_CODES] as const

export type StuckCode = (typeof STUCK_CODES)[number]

export type StuckItem = {
  readonly code: StuckCode
  readonly since: number
  /** Empty: none. */
  readonly source: string
  readonly lease: Lease | null
  readonly pool: Pool | null
  readonly text: string
}

export type StuckWanted = {
  readonly network: string
  readonly codes: readonly string[]
  readonly after: string | null
  readonly limit: number
}

export type StuckPage = { readonly stuck: readonly StuckItem[]; readonly next: string | null }

/** A transaction that is open for longer keeps dead rows from being removed; the service's own take a fraction of it. */
const OLD_TRANSACTION_MS = 60_000
/** The books' time never goes back: behind an event of the future everything that waits for a time stands still. */
const CLOCK_AHEAD_MS = 10_000
/** A rebuild of 10 million events takes longer (DESIGN §7); that its network is closed is worth knowing before. */
const REBUILDING_MS = 60_000
/** Callers that a recovery waits for, each by itself; of more the last says so. */
const UNKNOWN_NAMED = 100
/** What is answered within so many intervals was only under way. */
const WAITING_INTERVALS = 5
const SOURCES_AT_ONCE = 500
/** Addresses of a silent source that are looked at, and of these that are named. */
const STALE_AT_MOST = 200
const STALE_NAMED = 5
/** Windows of one page. */
const MOST_WINDOWS = 4

const NETWORK = `
  select n.state, n.updated_at, coalesce(n.rebuilding_since, n.updated_at) as rebuilding_since, clock_timestamp() as now,
         (select e.at from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) as head_at,
         (select s.source_id from ipledger.source s where s.network_id = $1 order by s.source_id limit 1) is not null as had_sources
    from ipledger.network n where n.network_id = $1`

const OLDEST_TRANSACTION = `
  select o.process_id, o.role::text as role, o.application, o.state, o.begun_at from ipledger.oldest_transaction() o`

const DIFFERENCES = `
  select v.message, v.found_at, count(*) over () as differences from ipledger.verify_finding v
   where v.network_id = $1 order by v.found_at, v.finding_key limit 1`

const FAILURES = `
  select t.source_id, t.failure from unnest($2::text[]) as k (source)
    cross join lateral (
      select x.source_id, x.failure from ipledger.turn x
       where x.network_id = $1 and x.source_id >= k.source and x.source_id <= k.source order by x.source_id limit 1) t
   where t.failure <> ''`

// What a silent source listed last is listed for ever; whoever has the address now, on another boot, is kept for it.
const STALE = `
  select k.source_id, host(w.address) as address
    from unnest($2::text[]) as k (source_id)
    cross join lateral (
      select s.address, s.node, s.boot from (
        select x.address, x.node, x.boot, x.live from ipledger.sighting x
         where x.network_id = $1 and x.source_id >= k.source_id and x.source_id <= k.source_id and x.vanished_sequence is null
         order by x.source_id, x.entry_key limit ${STALE_AT_MOST}) s
       where s.live and s.node <> '' and s.boot <> '') w
    cross join lateral (
      select l.node, l.boot from ipledger.lease l
       where l.network_id = $1 and l.address >= w.address and l.address <= w.address order by l.address limit 1) l
   where l.node <> '' and l.boot <> '' and (l.node <> w.node or l.boot <> w.boot)
   order by k.source_id, w.address`

/** For the test of their plans. */
export const STUCK_STATEMENTS = {
  stuckNetwork: NETWORK,
  stuckDifferences: DIFFERENCES,
  stuckFailures: FAILURES,
  stuckStale: STALE,
} as const

/** Where a page ends: behind a source, or behind an address. */
type Mark =
  | { readonly in: 'sources'; readonly after: string }
  | { readonly in: 'leases'; readonly after: string }

export async function listStuck(database: pg.Pool, wanted: StuckWanted): Promise<StuckPage | Refusal> {
  const { network, codes, limit } = wanted
  const [ground] = await ask<NetworkRow>(database, NETWORK, [network])
  if (ground === undefined) return noNetwork(network)
  const isWanted = (code: StuckCode) => codes.length === 0 || codes.includes(code)
  const stuck: StuckItem[] = []
  const add = (items: readonly StuckItem[]) => stuck.push(...items.filter(({ code }) => isWanted(code)))
  let mark = readMark(wanted.after)
  if (wanted.after === null && NETWORK_CODES.some(isWanted)) add(await ofNetwork(database, network, ground))
  if (mark.in === 'sources') {
    if (SOURCE_CODES.some(isWanted)) {
      for (;;) {
        const sources = await listSources(database, { network, after: mark.after, limit: SOURCES_AT_ONCE })
        const about = await readAbout(database, network, sources, ground.now)
        for (const source of sources) {
          const items = ofSource(source, ground.now, about.get(source.id)).filter(({ code }) =>
            isWanted(code),
          )
          // A source's items stay on one page.
          if (stuck.length > 0 && stuck.length + items.length > limit) return { stuck, next: writeMark(mark) }
          stuck.push(...items)
          mark = { in: 'sources', after: source.id }
        }
        if (sources.length < SOURCES_AT_ONCE) break
      }
    }
    mark = { in: 'leases', after: LOWEST }
  }
  const others = [...NETWORK_CODES, ...SOURCE_CODES].filter((code) => code !== 'FENCE_CONTRADICTED')
  if (codes.length > 0 && codes.every((code) => (others as readonly string[]).includes(code)))
    return { stuck, next: null }
  for (let windows = 0; windows < MOST_WINDOWS; windows += 1) {
    if (stuck.length >= limit) return { stuck, next: writeMark(mark) }
    const found = await ofWindow(database, network, mark.after, ground)
    for (const { item, address } of found.items) {
      if (!isWanted(item.code)) continue
      // What is said of one address stays on one page.
      if (stuck.length >= limit && address !== mark.after) return { stuck, next: writeMark(mark) }
      stuck.push(item)
      mark = { in: 'leases', after: address }
    }
    if (found.next === null) return { stuck, next: null }
    mark = { in: 'leases', after: found.next }
  }
  return { stuck, next: writeMark(mark) }
}

function readMark(after: string | null): Mark {
  if (after === null) return { in: 'sources', after: '' }
  const place = after.slice(1)
  return after.startsWith('a') ? { in: 'leases', after: place } : { in: 'sources', after: place }
}

function writeMark({ in: of, after }: Mark): string {
  return `${of === 'leases' ? 'a' : 's'}${after}`
}

// The network.

type NetworkRow = {
  readonly state: string
  readonly updated_at: number
  readonly rebuilding_since: number
  readonly now: number
  readonly head_at: number | null
  /** Has, or had: where nobody ever looks, nobody is awaited. */
  readonly had_sources: boolean
}

async function ofNetwork(
  database: pg.Pool,
  network: string,
  ground: NetworkRow,
): Promise<readonly StuckItem[]> {
  const items: StuckItem[] = []
  const ofNobody = { source: '', lease: null, pool: null }
  if (ground.state === 'RECOVERING') {
    const text =
      'the network recovers: nothing is reserved and nothing taken back before each of its enabled sources has ' +
      'reported completely, or an operator ends it (ipledger recover --end)'
    items.push({ ...ofNobody, code: 'NETWORK_RECOVERING', since: ground.updated_at, text })
  }
  if (ground.state === 'REBUILDING' && ground.now - ground.rebuilding_since > REBUILDING_MS) {
    const text =
      'the books are being rebuilt from the log for more than a minute: nothing is reserved, adopted or taken back; if no ' +
      'rebuild is running any more it broke off, and the next one ends it (ipledger rebuild)'
    items.push({ ...ofNobody, code: 'NETWORK_REBUILDING', since: ground.rebuilding_since, text })
  }
  items.push(...(await ofUnknown(database, network)))
  const [difference] = await ask<DifferenceRow>(database, DIFFERENCES, [network])
  if (difference !== undefined) {
    const { message, found_at: since, differences } = difference
    const more = differences === 1 ? '' : `, and ${differences - 1} more`
    const text = `the books are not in order: ${message}${more}; ipledger verify --full, or ipledger_audit.verify_findings`
    items.push({ ...ofNobody, code: 'BOOKS_DIFFER', since, text })
  }
  for (const { source, at: since, why } of await readHolds(database, network)) {
    const resume = `ipledger hold resume${source === '' ? '' : ` ${source}`}`
    items.push({ ...ofNobody, source, code: 'HELD', since, text: `${why}; look at them, then ${resume}` })
  }
  const ahead = (ground.head_at ?? 0) - ground.now
  if (ahead > CLOCK_AHEAD_MS) {
    const text = `the last event is ${Math.round(ahead / 1_000)} s ahead of the database's clock: until then nothing cools, no deadline passes and no proof is young enough; look at the clocks of its hosts`
    items.push({ ...ofNobody, code: 'CLOCK_AHEAD', since: ground.now, text })
  }
  const oldest = await ask<TransactionRow>(database, OLDEST_TRANSACTION)
  for (const { process_id, role, application, state, begun_at: since } of oldest) {
    if (ground.now - since < OLD_TRANSACTION_MS) continue
    const text = `process ${process_id} of ${role} (${application}, ${state}) has a transaction open: what dies meanwhile is not vacuumed`
    items.push({ ...ofNobody, code: 'OLD_TRANSACTION', since, text })
  }
  return items
}

type DifferenceRow = { readonly message: string; readonly found_at: number; readonly differences: number }

/** Who has called while the network recovers, and is in no book. */
async function ofUnknown(database: pg.Pool, network: string): Promise<readonly StuckItem[]> {
  const unknown = await readUnknown(database, network, UNKNOWN_NAMED + 1)
  const more = unknown.length > UNKNOWN_NAMED ? '; and there are more' : ''
  return unknown.slice(0, UNKNOWN_NAMED).map(({ id, node, heardFrom, firstAt: since }, index) => {
    const whose = `${heardFrom}${node === '' ? '' : ` of node ${node}`}`
    const text = `${whose} reports for it, and these books do not know it: they are older than it, and the recovery waits for what it sees; register and enable it (ipledger source register, source enable), or end the recovery by hand (ipledger recover --end)${index === UNKNOWN_NAMED - 1 ? more : ''}`
    return { code: 'SOURCE_UNKNOWN', since, source: id, lease: null, pool: null, text }
  })
}

type TransactionRow = {
  readonly process_id: number
  readonly role: string
  readonly application: string
  readonly state: string
  readonly begun_at: number
}

// Sources.

/** What other tables say of it. */
type AboutSource = {
  /** Why it could not be asked, or did not list all, the last time. */
  readonly failure?: string
  readonly fence?: FenceRow
  /** Addresses that it listed, and that were given out since on other boots. */
  readonly stale?: readonly string[]
}

type FenceRow = {
  readonly node: string
  readonly boot: string
  readonly fenced_at: number
  readonly fenced_by: string
  readonly since_at: number
  readonly reported_at: number | null
}

async function readAbout(
  database: pg.Pool,
  network: string,
  sources: readonly Source[],
  now: number,
): Promise<ReadonlyMap<string, AboutSource>> {
  const standing = sources.filter(({ state }) => state !== 'RETIRED')
  const silent = standing.filter((one) => isSilent(one, now)).map(({ id }) => id)
  const partial = standing
    .filter(({ standing: { partialSince } }) => partialSince !== null)
    .map(({ id }) => id)
  const asked = new Set([...silent, ...partial])
  const booted = standing.filter(({ node, standing: { epoch } }) => node !== '' && epoch !== '')
  const about = new Map<string, AboutSource>()
  const add = (id: string, more: AboutSource) => about.set(id, { ...about.get(id), ...more })
  if (asked.size > 0) {
    const failures = await ask<FailureRow>(database, FAILURES, [network, [...asked]])
    for (const { source_id, failure } of failures) add(source_id, { failure })
  }
  if (silent.length > 0) {
    const stale = await ask<StaleRow>(database, STALE, [network, silent])
    for (const [id, rows] of Map.groupBy(stale, ({ source_id }) => source_id))
      add(id, { stale: rows.map(({ address }) => address) })
  }
  if (booted.length > 0) {
    const nodes = booted.map(({ node }) => node)
    const boots = booted.map((one) => one.standing.epoch)
    const fences = await ask<FenceRow>(database, EVIDENCE_STATEMENTS.evidenceFences, [network, nodes, boots])
    for (const { id, node, standing: of } of booted) {
      const fence = fences.find((row) => row.node === node && row.boot === of.epoch)
      if (fence !== undefined && (fence.reported_at ?? 0) > fence.since_at) add(id, { fence })
    }
  }
  return about
}

type FailureRow = { readonly source_id: string; readonly failure: string }
type StaleRow = { readonly source_id: string; readonly address: string }

function isSilent({ standing, registeredAt, intervalMs }: Source, now: number): boolean {
  return now - (standing.reportedAt ?? registeredAt) > POLICY.gapIntervals * intervalMs
}

/** What is wrong with a source, and what ends it. Of one that is over nothing is awaited. */
export function ofSource(source: Source, now: number, about: AboutSource = {}): readonly StuckItem[] {
  const { id, state, standing, intervalMs } = source
  if (state === 'RETIRED') return []
  const patience = POLICY.gapIntervals * intervalMs
  const items: StuckItem[] = []
  const say = (code: StuckCode, since: number, text: string) =>
    items.push({ code, since, source: id, lease: null, pool: null, text })
  if (state === 'REGISTERED') {
    const text =
      'in dry run: what it sees is not handed out, and nothing else follows; ipledger source enable'
    say('SOURCE_NOT_ENABLED', source.registeredAt, text)
  }
  const heardAt = standing.reportedAt ?? source.registeredAt
  if (isSilent(source, now)) {
    const what =
      standing.reportedAt === null
        ? 'has never reported; what only it can miss is kept'
        : 'has not reported for more than three intervals; what only it can miss is kept'
    say('SOURCE_SILENT', heardAt, about.failure === undefined ? what : `${what}: ${about.failure}`)
  }
  if (standing.partialSince !== null && now - standing.partialSince > patience) {
    say(
      'SOURCE_PARTIAL',
      standing.partialSince,
      `reports only in part: ${standing.partialBecause.join(', ')}${about.failure === undefined ? '' : `: ${about.failure}`}`,
    )
  }
  const coldSince = isColdSince(source, now)
  if (coldSince !== null) {
    const what =
      standing.epochBegunAt !== null && now - standing.epochBegunAt > patience
        ? 'its list has not stopped growing'
        : 'it begins anew before its list has stopped growing: of an agent, look why its epoch changes with every report'
    say('SOURCE_COLD', coldSince, `${what}, so it misses nothing yet`)
  }
  const seldomSince = isSeldomSince(source)
  if (seldomSince !== null) {
    const text = `its reports come further apart than three of its intervals of ${intervalMs / 1_000} s, so that no two of them count; have it report more often, or declare a longer interval (ipledger source register --interval, source enable)`
    say('SOURCE_SELDOM', seldomSince, text)
  }
  const { fence, stale } = about
  if (fence !== undefined) {
    const text = `reports from boot ${fence.boot} of ${fence.node}, which ${fence.fenced_by} fenced: it is not over, and what was freed for it may be in use; stop the node, or take the addresses from it`
    say('FENCE_CONTRADICTED', fence.fenced_at, text)
  }
  if (stale !== undefined) {
    const named = stale.slice(0, STALE_NAMED).join(', ')
    const text = `what it listed last keeps leases that others have now on other boots (${stale.length}: ${named}${stale.length > STALE_NAMED ? ', …' : ''}) until it reports or is over: ipledger source retire`
    say('STALE_SIGHTING', heardAt, text)
  }
  return items
}

/** Its last counted report was that of a warm source. Of one that goes on opening epochs each is young (5.1). */
function isColdSince({ standing, registeredAt, intervalMs }: Source, now: number): number | null {
  const { warm, epochBegunAt, recent, lastSequence } = standing
  if (warm || epochBegunAt === null) return null
  const patience = POLICY.gapIntervals * intervalMs
  if (now - epochBegunAt > patience) return epochBegunAt
  const last = recent.at(-1)
  const since = last?.begunAt ?? registeredAt
  // One that was away for long, or was registered long ago, has just come.
  const reports = lastSequence - (last?.sequence ?? 0)
  return now - since > patience && reports > POLICY.gapIntervals ? since : null
}

/** Each counted report began the streak anew, so that nothing is ever missed often enough. Since the first of them. */
function isSeldomSince({ standing: { recent }, intervalMs }: Source): number | null {
  let first = recent.length - 1
  while (first > 0 && recent[first]!.begunAt - recent[first - 1]!.begunAt > POLICY.gapIntervals * intervalMs)
    first -= 1
  return recent.length - first >= POLICY.misses ? recent[first]!.begunAt : null
}

// Leases and sightings.

type Placed = { readonly item: StuckItem; readonly address: string }

async function ofWindow(
  database: pg.Pool,
  network: string,
  after: string,
  { now, had_sources: hadSources }: NetworkRow,
): Promise<{ readonly items: readonly Placed[]; readonly next: string | null }> {
  const window = await readWindow(database, network, 'waiting', { after, upTo: HIGHEST })
  const { leases, unbooked, next } = window
  const pools = await readPoolsOf(database, network, [...leases, ...unbooked])
  const items: Placed[] = []
  const read = leases.length === 0 ? null : await takeEvidence(database, network, leases)
  for (const evidence of read?.evidence ?? []) {
    const { lease } = evidence
    const pool = pools.get(lease.poolId) ?? null
    const policy = judgePolicy(pool?.reapPolicy)
    const verdict = judgeHeld(evidence, policy)
    const item = ofLease(evidence, verdict, read!) ?? ofWaiting(evidence, verdict, read!, policy, hadSources)
    if (item !== null) items.push({ item: { ...item, lease, pool }, address: lease.address })
  }
  for (const lease of read?.unread ?? []) {
    const text = "more is seen at it than is looked at: an operator's Reap ends it"
    const pool = pools.get(lease.poolId) ?? null
    items.push({
      item: { code: 'NO_EXIT', since: changedAt(lease), source: '', lease, pool, text },
      address: lease.address,
    })
  }
  for (const one of unbooked) {
    const item = ofSighting(one, pools.get(one.poolId) ?? null, now)
    if (item !== null) items.push({ item, address: one.entry.address })
  }
  return { items: items.sort((a, b) => (isAfter(a.address, b.address) ? 1 : -1)), next }
}

/**
 * What each reason to keep is told as. Exhaustive, so that no lease waits without anybody hearing of it: `ALIVE` and
 * `PASSING` end without a person, `BESIDE` stands in the way of one ground only, and another ground says what is waited
 * for; `OF_SOURCE` is told of its source and, while that has something wrong with it, of the lease.
 */
export const TOLD_AS = {
  SEEN_LIVE: 'ALIVE',
  SEEN_ELSEWHERE: 'ALIVE',
  LOOKUP_LIVE: 'OWNER_LIVES_ELSEWHERE',
  FENCE_CONTRADICTED: 'FENCE_CONTRADICTED',
  OPERATOR_ONLY: 'NO_EXIT',
  INFRASTRUCTURE: 'NO_EXIT',
  RECOVERING: 'NETWORK_RECOVERING',
  OTHER_ERA: 'PASSING',
  NOBODY_CAN_TELL: 'NOBODY_CAN_TELL',
  CONFIRM_PENDING: 'PASSING',
  TOO_YOUNG: 'PASSING',
  ERA_NOT_REPORTED: 'OF_SOURCE',
  NOT_WARM: 'OF_SOURCE',
  TOO_FEW_MISSES: 'OF_SOURCE',
  TERMINAL_IN_GRACE: 'PASSING',
  NOT_FENCED: 'BESIDE',
  SEEN_ON_ANOTHER_NODE: 'BESIDE',
  OTHERS_WERE_SEEN: 'BESIDE',
  NOT_ENDED_BY_BOOT: 'BESIDE',
  NO_EXIT: 'NO_EXIT',
  NAMED_WITNESS_MISSING: 'PROOF_BLOCKED',
  WITNESS_RETIRED: 'NOBODY_CAN_TELL',
  NOT_ENABLED: 'PROOF_BLOCKED',
  CANNOT_SEE: 'PROOF_BLOCKED',
  HELD: 'PROOF_BLOCKED',
  IMPORTED: 'NEVER_SIGHTED',
  STOPPED_UNSEEN: 'NO_EXIT',
  PREDATES_SOURCE: 'NEVER_SIGHTED',
  LOOKUP_ERROR: 'LOOKUP_FAILING',
  LOOKUP_UNKNOWN: 'LOOKUP_FAILING',
  LOOKUP_UNANSWERED: 'LOOKUP_FAILING',
  LOOKUP_NEEDED: 'LOOKUP_WAITING',
  FENCED: 'PASSING',
  PREVIOUS_BOOT: 'PASSING',
  ABSENT: 'PASSING',
  SEEN_ALONE: 'PASSING',
  NOBODY_ELSE: 'PASSING',
} as const satisfies Readonly<Record<ReasonCode, StuckCode | 'ALIVE' | 'PASSING' | 'BESIDE' | 'OF_SOURCE'>>

/** Reasons that block until somebody acts. */
function isDoubt(code: ReasonCode): boolean {
  return EFFECT[code] === 'doubt' || code === 'OPERATOR_ONLY'
}

function codeOf(code: ReasonCode): StuckCode {
  const told = TOLD_AS[code]
  return told === 'ALIVE' || told === 'PASSING' || told === 'BESIDE' || told === 'OF_SOURCE'
    ? 'PROOF_BLOCKED'
    : told
}

const WHAT_ENDS_IT = 'Release with confirmed removal, supersedes, or Reap'
const WHAT_REPLACES_IT =
  'register and enable its successor and let it report; or fence the node, or Release with confirmed removal, or Reap'

/** What no doubt blocks, and what waits all the same: nothing that is under way will end it, or it should have by now. */
function ofWaiting(
  evidence: LeaseEvidence,
  { because }: Verdict,
  { sources, ground }: EvidenceRead,
  policy: JudgePolicy,
  hadSources: boolean,
): Omit<StuckItem, 'lease' | 'pool'> | null {
  const { lease, witnesses, fencedBy } = evidence
  const has = (...codes: readonly ReasonCode[]) => because.some(({ code }) => codes.includes(code))
  const whom = lease.owner === null ? 'nobody known' : describeOwner(lease.owner)
  const why = because.map((reason) => reason.text).join('; ')
  const since = changedAt(lease)
  if (has('TOO_YOUNG', 'CONFIRM_PENDING')) return null
  if (has('NOBODY_CAN_TELL')) {
    const lost = mayHaveBeenConfirmed(evidence)
    const because = lost
      ? `${why}, and its deadline is over, but a Confirm of it may be lost with the books of before`
      : why
    const text = `held for ${whom}, and kept for ever: ${because}; ${lost ? 'Confirm, ' : ''}${WHAT_ENDS_IT}, or a source that sees it`
    return hadSources || lost ? { code: 'NOBODY_CAN_TELL', since, source: '', text } : null
  }
  // Of one that is not retired its source's item tells.
  const isToldOf = ({ node, state, standing }: Source) =>
    state !== 'RETIRED' && node === fencedBy?.node && standing.epoch === fencedBy.boot
  if (fencedBy !== null && has('FENCE_CONTRADICTED') && ![...sources.values()].some(isToldOf)) {
    const text = `held for ${whom}: ${why}, and no source is left there that would say more; fence it again if it is over now, or ${WHAT_ENDS_IT}`
    return { code: 'FENCE_CONTRADICTED', since: fencedBy.at, source: '', text }
  }
  for (const { code, source: id } of because) {
    const source = id === undefined ? undefined : sources.get(id)
    const witness = witnesses.find((one) => one.source === id)
    if (source === undefined || witness === undefined) continue
    const lives = witness.live === null && witness.lookup?.answer === 'live'
    if (code !== 'LOOKUP_NEEDED' && !(code === 'LOOKUP_LIVE' && lives)) continue
    const age = witness.why === 'COVERS' ? policy.unwitnessedAgeMs : policy.minimumAgeMs
    const from = Math.max(since + age, witness.vanishedAt ?? 0)
    if (ground.now - from <= WAITING_INTERVALS * source.intervalMs) continue
    const said = { since: from, source: source.id }
    if (lives) {
      const text = `held for ${whom}, who is listed there no more and lives on when ${source.id} is asked (${witness.lookup!.detail}): if it has another address by now, ${WHAT_ENDS_IT}`
      return { ...said, code: 'OWNER_LIVES_ELSEWHERE', text }
    }
    return { ...said, code: 'LOOKUP_WAITING', text: `held for ${whom}: ${why}; no answer has come in time` }
  }
  return null
}

/** Of a deadline that a recovery has undone; without a source nothing but this list says so (INV-24, 12.4). */
function mayHaveBeenConfirmed({ lease, recoveredAt }: LeaseEvidence): boolean {
  return lease.confirmBy !== null && lease.reservedAt < (recoveredAt ?? 0)
}

function ofLease(
  { lease, witnesses }: LeaseEvidence,
  { verdict, because }: Verdict,
  { sources, ground }: EvidenceRead,
): Omit<StuckItem, 'lease' | 'pool'> | null {
  const doubt = because.find(({ code }) => isDoubt(code) || isKeptWithoutEnd(lease, code))
  const silent = because.find(
    ({ code, source }) =>
      TOLD_AS[code] === 'OF_SOURCE' &&
      source !== undefined &&
      sources.has(source) &&
      ofSource(sources.get(source)!, ground.now).length > 0,
  )
  const first =
    verdict === 'blocked' || (doubt !== undefined && EFFECT[doubt.code] === 'time') ? doubt : silent
  if (first === undefined) return null
  const source = first.source ?? ''
  const witness = witnesses.find((one) => one.source === source)
  const since =
    first === doubt && witness?.lookup != null ? witness.lookup.at : (witness?.vanishedAt ?? changedAt(lease))
  const whom = lease.owner === null ? 'nobody known' : describeOwner(lease.owner)
  const remedy = REMEDIES[first.code]
  const text = `held for ${whom}: ${because.map((reason) => reason.text).join('; ')}${remedy === undefined ? '' : `; ${remedy}`}`
  return { code: codeOf(first.code), since, source, text }
}

/** Infrastructure is meant to be held. What is set aside of it waits for somebody, and no source is asked. */
function isKeptWithoutEnd({ state }: Lease, code: ReasonCode): boolean {
  return code === 'INFRASTRUCTURE' && state === 'QUARANTINED'
}

const REMEDIES: Readonly<Partial<Record<ReasonCode, string>>> = {
  WITNESS_RETIRED: WHAT_REPLACES_IT,
  INFRASTRUCTURE: WHAT_ENDS_IT,
  // Listed once without an owner: nobody can be asked after it, and a list without the stopped does not say that it is over.
  STOPPED_UNSEEN: `who was seen there is not known, so nobody can be asked after: look there, then ${WHAT_ENDS_IT}`,
}

function describeStanding({ standing: { warm, partialBecause } }: Source): string {
  return [...(warm ? [] : ['WARMING_UP']), ...partialBecause].join(', ')
}

/** What is seen and never gets into the books: no allocation is at stake, and somebody has configured it. */
function ofSighting(
  { source, entry, since, at, lastEvent, held, isRefuted }: Unbooked,
  pool: Pool | null,
  now: number,
): StuckItem | null {
  if (pool === null) return null
  const whom = entry.owner === null ? 'somebody' : describeOwner(entry.owner)
  const of = { since, source: source.id, lease: null, pool }
  const parsed = parseAddress(entry.address)
  if (!held && !isMalformed(parsed) && !contains(pool.allocatable, parsed.value)) {
    const text = `${source.id} lists ${whom} at ${entry.address}, which pool ${pool.name} excludes or has as its gateway`
    return { ...of, code: 'SIGHTING_EXCLUDED', text }
  }
  const isOld = now - since > POLICY.gapIntervals * source.intervalMs
  const isOlder = at.head !== null && at.head < lastEvent
  if (source.state !== 'ENABLED' || !isOld || isRefuted || (isOlder && held)) return null
  const { node, boot } = entry
  const why = isOlder
    ? `its list is older than the end of the last lease there, which says nothing of them; it is over when ${source.id} reports again, or is retired (ipledger source retire)${node === '' || boot === '' ? '' : `, or boot ${boot} of ${node} is fenced (ipledger fence)`}`
    : at.head === null
      ? `nothing proves when it was last listed, which the next complete list of a warm source does (${describeStanding(source)})`
      : 'a cap on quarantines is reached'
  const text = `${source.id} lists ${whom} at ${entry.address}, which the books ${held ? 'have otherwise, and keep so' : 'have as free, and which is not handed out'}: ${why}`
  return { ...of, code: 'SIGHTING_NOT_RECORDED', text }
}
