/**
 * Everything that waits for a person, or for an answer that does not come. A lease that is kept in doubt is a leak, and
 * this list is what bounds it: nothing gives up by itself, so somebody must be able to see what is being tried (M-18).
 *
 * The network first, then its sources by id, then leases and sightings by address. Nothing here is stored; all of it
 * is read and judged when it is asked for, page by page.
 */
import type pg from 'pg'
import { isMalformed, parseAddress } from '../core/address.ts'
import { judgeHeld, type LeaseEvidence, type ReasonCode, type Verdict } from '../core/judge.ts'
import type { Lease } from '../core/lease.ts'
import { describeOwner } from '../core/owner.ts'
import { judgePolicy, POLICY } from '../core/policy.ts'
import type { Pool } from '../core/pool.ts'
import { contains } from '../core/ranges.ts'
import type { Refusal } from '../core/refusal.ts'
import { type EvidenceRead, takeEvidence } from './evidence.ts'
import { isAfter, noNetwork, readWindow } from './plan.ts'
import { listSources } from './register.ts'
import { HIGHEST, LOWEST, type Unbooked } from './sighted.ts'
import type { Source } from './source-rows.ts'
import { readPoolsOf } from './suspects.ts'

export type StuckCode =
  | 'NETWORK_RECOVERING'
  | 'HELD'
  | 'OLD_TRANSACTION'
  | 'SOURCE_NOT_ENABLED'
  | 'SOURCE_SILENT'
  | 'SOURCE_PARTIAL'
  | 'SOURCE_COLD'
  | 'PROOF_BLOCKED'
  | 'LOOKUP_FAILING'
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

const NETWORK_CODES: readonly StuckCode[] = ['NETWORK_RECOVERING', 'HELD', 'OLD_TRANSACTION']
const SOURCE_CODES: readonly StuckCode[] = [
  'SOURCE_NOT_ENABLED',
  'SOURCE_SILENT',
  'SOURCE_PARTIAL',
  'SOURCE_COLD',
]

/** A transaction that is open for longer keeps dead rows from being removed; the service's own take a fraction of it. */
const OLD_TRANSACTION_MS = 60_000
const SOURCES_AT_ONCE = 500
/** Windows of one page. */
const MOST_WINDOWS = 4

const NETWORK = `
  select n.state, n.updated_at, clock_timestamp() as now from ipledger.network n where n.network_id = $1`

const HOLDS = `
  select h.source_id, h.held_at, h.why from ipledger.hold h where h.network_id = $1 order by h.source_id limit 1000`

const OLDEST_TRANSACTION = `
  select o.process_id, o.role::text as role, o.application, o.state, o.begun_at from ipledger.oldest_transaction() o`

/** For the test of their plans. */
export const STUCK_STATEMENTS = { stuckNetwork: NETWORK, stuckHolds: HOLDS } as const

/** Where a page ends: behind a source, or behind an address. */
type Mark =
  | { readonly in: 'sources'; readonly after: string }
  | { readonly in: 'leases'; readonly after: string }

export async function listStuck(database: pg.Pool, wanted: StuckWanted): Promise<StuckPage | Refusal> {
  const { network, codes, limit } = wanted
  const { rows } = await database.query<NetworkRow>(NETWORK, [network])
  const ground = rows[0]
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
        for (const source of sources) {
          const items = ofSource(source, ground.now).filter(({ code }) => isWanted(code))
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
  const others = [...NETWORK_CODES, ...SOURCE_CODES] as readonly string[]
  if (codes.length > 0 && codes.every((code) => others.includes(code))) return { stuck, next: null }
  for (let windows = 0; windows < MOST_WINDOWS; windows += 1) {
    if (stuck.length >= limit) return { stuck, next: writeMark(mark) }
    const found = await ofWindow(database, network, mark.after, ground.now)
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

type NetworkRow = { readonly state: string; readonly updated_at: number; readonly now: number }

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
  const holds = await database.query<{ source_id: string; held_at: number; why: string }>(HOLDS, [network])
  for (const { source_id: source, held_at: since, why } of holds.rows) {
    const resume = `ipledger hold resume${source === '' ? '' : ` ${source}`}`
    items.push({ ...ofNobody, source, code: 'HELD', since, text: `${why}; look at them, then ${resume}` })
  }
  const oldest = await database.query<TransactionRow>(OLDEST_TRANSACTION)
  for (const { process_id, role, application, state, begun_at: since } of oldest.rows) {
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

/** What is wrong with a source, and what ends it. Of one that is over nothing is awaited. */
export function ofSource(source: Source, now: number): readonly StuckItem[] {
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
  if (now - heardAt > patience) {
    const text =
      standing.reportedAt === null
        ? 'has never reported; what only it can miss is kept'
        : 'has not reported for more than three intervals; what only it can miss is kept'
    say('SOURCE_SILENT', heardAt, text)
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
  return items
}

// Leases and sightings.

type Placed = { readonly item: StuckItem; readonly address: string }

async function ofWindow(
  database: pg.Pool,
  network: string,
  after: string,
  now: number,
): Promise<{ readonly items: readonly Placed[]; readonly next: string | null }> {
  const window = await readWindow(database, network, 'waiting', { after, upTo: HIGHEST })
  const { leases, unbooked, next } = window
  const pools = await readPoolsOf(database, network, [...leases, ...unbooked])
  const items: Placed[] = []
  const read = leases.length === 0 ? null : await takeEvidence(database, network, leases)
  for (const evidence of read?.evidence ?? []) {
    const { lease } = evidence
    const pool = pools.get(lease.poolId) ?? null
    const verdict = judgeHeld(evidence, judgePolicy(pool?.reapPolicy))
    const item = ofLease(evidence, verdict, read!)
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
  NOT_ENABLED: 'PROOF_BLOCKED',
  CANNOT_SEE: 'PROOF_BLOCKED',
  HELD: 'PROOF_BLOCKED',
}

/** Reasons that time would end, if their source spoke. */
const AWAITED: readonly ReasonCode[] = ['TOO_FEW_MISSES', 'NOT_WARM', 'ERA_NOT_REPORTED']

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
  const text = `held for ${whom}: ${because.map((reason) => reason.text).join('; ')}`
  return { code: CODE_OF[first.code] ?? 'PROOF_BLOCKED', since, source, text }
}

function changedAt({ reservedAt, confirmedAt, quarantine }: Lease): number {
  return Math.max(reservedAt, confirmedAt ?? 0, quarantine?.at ?? 0)
}

/** What is seen and never gets into the books: no allocation is at stake, and somebody has configured it. */
function ofSighting(
  { source, entry, since, at, lastEvent, held }: Unbooked,
  pool: Pool | null,
  now: number,
): StuckItem | null {
  if (pool === null || held) return null
  const whom = entry.owner === null ? 'somebody' : describeOwner(entry.owner)
  const of = { since, source: source.id, lease: null, pool }
  const parsed = parseAddress(entry.address)
  if (!isMalformed(parsed) && !contains(pool.allocatable, parsed.value)) {
    const text = `${source.id} lists ${whom} at ${entry.address}, which pool ${pool.name} excludes or has as its gateway`
    return { ...of, code: 'SIGHTING_EXCLUDED', text }
  }
  const isOld = now - since > POLICY.gapIntervals * source.intervalMs
  if (source.state !== 'ENABLED' || !isOld || at.head < lastEvent) return null
  const text = `${source.id} lists ${whom} at ${entry.address}, which is free in the books and not handed out: a cap on quarantines is reached, or nothing proves when it was seen`
  return { ...of, code: 'SIGHTING_NOT_RECORDED', text }
}
