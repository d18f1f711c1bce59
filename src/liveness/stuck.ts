/**
 * Everything that waits for a person, or for an answer that does not come. A lease that is kept in doubt is a leak, and
 * this list is what bounds it: nothing gives up by itself, so somebody must be able to see what is being tried (M-18).
 *
 * The network first, then its sources by id, then leases and sightings by address. Nothing here is stored; all of it
 * is read and judged when it is asked for, page by page.
 */

import type pg from 'pg'
import { isMalformed, parseAddress } from '../core/address.ts'
import { changedAt, judgeHeld, type LeaseEvidence, type ReasonCode, type Verdict } from '../core/judge.ts'
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

export type StuckCode =
  | 'NETWORK_RECOVERING'
  | 'HELD'
  | 'OLD_TRANSACTION'
  | 'CLOCK_AHEAD'
  | 'SOURCE_NOT_ENABLED'
  | 'SOURCE_SILENT'
  | 'SOURCE_PARTIAL'
  | 'SOURCE_COLD'
  | 'FENCE_CONTRADICTED'
  | 'STALE_SIGHTING'
  | 'PROOF_BLOCKED'
  | 'LOOKUP_FAILING'
  | 'LOOKUP_WAITING'
  | 'OWNER_LIVES_ELSEWHERE'
  | 'NOBODY_CAN_TELL'
  | 'NO_EXIT'
  | 'NEVER_SIGHTED'
  | 'SIGHTING_EXCLUDED'
  | 'SIGHTING_NOT_RECORDED'

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

const NETWORK_CODES: readonly StuckCode[] = ['NETWORK_RECOVERING', 'HELD', 'OLD_TRANSACTION', 'CLOCK_AHEAD']
const SOURCE_CODES: readonly StuckCode[] = [
  'SOURCE_NOT_ENABLED',
  'SOURCE_SILENT',
  'SOURCE_PARTIAL',
  'SOURCE_COLD',
  'FENCE_CONTRADICTED',
  'STALE_SIGHTING',
]

/** A transaction that is open for longer keeps dead rows from being removed; the service's own take a fraction of it. */
const OLD_TRANSACTION_MS = 60_000
/** The books' time never goes back: behind an event of the future everything that waits for a time stands still. */
const CLOCK_AHEAD_MS = 10_000
/** What is answered within so many intervals was only under way. */
const WAITING_INTERVALS = 5
const SOURCES_AT_ONCE = 500
/** Addresses of a silent source that are looked at, and of these that are named. */
const STALE_AT_MOST = 200
const STALE_NAMED = 5
/** Windows of one page. */
const MOST_WINDOWS = 4

const NETWORK = `
  select n.state, n.updated_at, clock_timestamp() as now,
         (select e.at from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) as head_at,
         (select s.source_id from ipledger.source s where s.network_id = $1 order by s.source_id limit 1) is not null as had_sources
    from ipledger.network n where n.network_id = $1`

const OLDEST_TRANSACTION = `
  select o.process_id, o.role::text as role, o.application, o.state, o.begun_at from ipledger.oldest_transaction() o`

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
  /** Why it could not be asked, the last time. */
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
}

async function readAbout(
  database: pg.Pool,
  network: string,
  sources: readonly Source[],
  now: number,
): Promise<ReadonlyMap<string, AboutSource>> {
  const standing = sources.filter(({ state }) => state !== 'RETIRED')
  const silent = standing.filter((one) => isSilent(one, now)).map(({ id }) => id)
  const booted = standing.filter(({ node, standing: { epoch } }) => node !== '' && epoch !== '')
  const about = new Map<string, AboutSource>()
  const add = (id: string, more: AboutSource) => about.set(id, { ...about.get(id), ...more })
  if (silent.length > 0) {
    const failures = await ask<FailureRow>(database, FAILURES, [network, silent])
    for (const { source_id, failure } of failures) add(source_id, { failure })
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
      if (fence !== undefined && (of.lastBegunAt ?? 0) > fence.fenced_at) add(id, { fence })
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
      `reports only in part: ${standing.partialBecause.join(', ')}`,
    )
  }
  if (!standing.warm && standing.epochBegunAt !== null && now - standing.epochBegunAt > patience) {
    say('SOURCE_COLD', standing.epochBegunAt, 'its list has not stopped growing, so it misses nothing yet')
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
    const text = 'more is seen at it than is looked at; an operator must'
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

const CODE_OF: Readonly<Partial<Record<ReasonCode, StuckCode>>> = {
  OPERATOR_ONLY: 'NO_EXIT',
  NO_EXIT: 'NO_EXIT',
  PREDATES_SOURCE: 'NEVER_SIGHTED',
  IMPORTED: 'NEVER_SIGHTED',
  LOOKUP_ERROR: 'LOOKUP_FAILING',
  LOOKUP_UNKNOWN: 'LOOKUP_FAILING',
  LOOKUP_UNANSWERED: 'LOOKUP_FAILING',
  NAMED_WITNESS_MISSING: 'PROOF_BLOCKED',
  WITNESS_RETIRED: 'NOBODY_CAN_TELL',
  NOT_ENABLED: 'PROOF_BLOCKED',
  CANNOT_SEE: 'PROOF_BLOCKED',
  HELD: 'PROOF_BLOCKED',
}

/** Reasons that time would end, if their source spoke. */
const AWAITED: readonly ReasonCode[] = ['TOO_FEW_MISSES', 'NOT_WARM', 'ERA_NOT_REPORTED']

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
    const text = `held for ${whom}, and kept for ever: ${why}; ${WHAT_ENDS_IT}, or a source that sees it`
    return hadSources ? { code: 'NOBODY_CAN_TELL', since, source: '', text } : null
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

function ofLease(
  { lease, witnesses }: LeaseEvidence,
  { verdict, because }: Verdict,
  { sources, ground }: EvidenceRead,
): Omit<StuckItem, 'lease' | 'pool'> | null {
  const doubt = because.find(({ code }) => CODE_OF[code] !== undefined)
  const silent = because.find(
    ({ code, source }) =>
      AWAITED.includes(code) &&
      source !== undefined &&
      sources.has(source) &&
      ofSource(sources.get(source)!, ground.now).length > 0,
  )
  const first = verdict === 'blocked' || doubt?.code === 'OPERATOR_ONLY' ? doubt : silent
  if (first === undefined) return null
  const source = first.source ?? ''
  const witness = witnesses.find((one) => one.source === source)
  const since =
    first === doubt && witness?.lookup != null ? witness.lookup.at : (witness?.vanishedAt ?? changedAt(lease))
  const whom = lease.owner === null ? 'nobody known' : describeOwner(lease.owner)
  const remedy = first.code === 'WITNESS_RETIRED' ? `; ${WHAT_REPLACES_IT}` : ''
  const text = `held for ${whom}: ${because.map((reason) => reason.text).join('; ')}${remedy}`
  return { code: CODE_OF[first.code] ?? 'PROOF_BLOCKED', since, source, text }
}

function describeStanding({ standing: { warm, partialBecause } }: Source): string {
  return [...(warm ? [] : ['WARMING_UP']), ...partialBecause].join(', ')
}

/** What is seen and never gets into the books: no allocation is at stake, and somebody has configured it. */
function ofSighting(
  { source, entry, since, at, lastEvent, held }: Unbooked,
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
  if (source.state !== 'ENABLED' || !isOld || (at.head !== null && at.head < lastEvent)) return null
  const why =
    at.head === null
      ? `nothing proves when it was last listed, which the next complete list of a warm source does (${describeStanding(source)})`
      : 'a cap on quarantines is reached'
  const text = `${source.id} lists ${whom} at ${entry.address}, which the books ${held ? 'have otherwise, and keep so' : 'have as free, and which is not handed out'}: ${why}`
  return { ...of, code: 'SIGHTING_NOT_RECORDED', text }
}
