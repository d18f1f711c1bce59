/**
 * What is true of a network now: whether addresses are handed out and taken back, what a recovery waits for, the status of a
 * source, the witnesses of a lease, and what waits for a person. These judgements are made only here. Pure: the image, what is
 * known of the reports of its sources, the time.
 */
import type { Freshness, LookUp } from './command.ts'
import { type AddressRecord, type HoldCause, leaseId, type SourceDeclaration } from './event.ts'
import {
  addressValue,
  blockAt,
  evidenceAt,
  type HeldRecord,
  type Hold,
  type Image,
  isHeld,
  isLive,
  type Sighting,
  type SourceState,
  sightingsOf,
} from './image.ts'
import { exitsOf, mayFollow } from './lifecycle.ts'
import { describeOwner, isListedAs, RESERVE_KIND } from './owner.ts'
import { eraOf, POLICY } from './policy.ts'
import { isSingle } from './pool.ts'

export type Present = {
  readonly image: Image
  readonly now: number
  /** Of the reports of a source; undefined: it has not reported. */
  readonly freshness: (source: string) => Freshness | undefined
}

// Handing out and taking back.

/** What suspends each use. REAP_ABSENT: a lease that its witnesses miss. */
const SUSPENDED_BY = {
  RESERVE: ['RECOVERING', 'SOURCE_AHEAD'],
  REAP: ['RECOVERING', 'SOURCE_AHEAD', 'CLOCK'],
  REAP_ABSENT: ['RECOVERING', 'SOURCE_AHEAD', 'CLOCK', 'TOO_MANY_REAPS'],
} as const satisfies Readonly<Record<string, readonly ('RECOVERING' | HoldCause)[]>>

export type Use = keyof typeof SUSPENDED_BY

export type Suspension = {
  readonly code: 'NETWORK_RECOVERING' | 'HELD'
  readonly since: number
  /** What is not done, and what ends that. */
  readonly text: string
  /** When to try again. Null: only an operator ends it. */
  readonly retryAfterMs: number | null
}

export function suspensionsOf(image: Image, now: number, use: Use): readonly Suspension[] {
  const { recovering, holds } = image.network!
  const found: Suspension[] = []
  for (const cause of SUSPENDED_BY[use])
    if (cause === 'RECOVERING') {
      if (recovering !== null) found.push(byRecovery(image, recovering.at))
    } else if (holds[cause] !== undefined) found.push(byHold(image.name, cause, holds[cause], now))
  return found
}

function byRecovery(image: Image, since: number): Suspension {
  const { name, network } = image
  const why = needsOperator(image)
  const end =
    why === null
      ? `until every enabled source has sent two counted reports in era ${network!.era}; see: ipledger network get ${name}`
      : `and because ${why}, only an operator ends that: ipledger recover --end ${name}`
  const text = `network ${name} is RECOVERING: nothing is handed out or taken back ${end}`
  return { code: 'NETWORK_RECOVERING', since, text, retryAfterMs: why === null ? 1_000 : null }
}

function byHold(name: string, cause: HoldCause, { at: since, details }: Hold, now: number): Suspension {
  const { why, until = null } = details
  const isAhead = cause === 'SOURCE_AHEAD'
  const what = isAhead ? 'handed out or taken back' : 'taken back'
  const end = until === null ? '' : `${new Date(until).toISOString()}, or until `
  const command = `${isAhead ? `ipledger recover ${name}, or ` : ''}ipledger network resume ${name} --why …`
  const text = `network ${name} is held (${cause}): ${why}. Nothing is ${what} until ${end}an operator ends the hold: ${command}`
  return { code: 'HELD', since, text, retryAfterMs: until === null ? null : Math.max(0, until - now) }
}

// Recovery.

export type Recovery = {
  /** It does not end before. */
  readonly notBefore: number
  readonly needsOperator: boolean
  /** Enabled sources, and those that have not sent two counted reports in this era, the second begun after `notBefore`. */
  readonly sources: number
  readonly unreported: readonly string[]
  /** Sources that called, and are not registered or have not sent a complete report: what they would list is in use. */
  readonly unknown: readonly string[]
}

/** What a recovery waits for; null: the network does not recover. */
export function recoveryOf(present: Present): Recovery | null {
  const { image, freshness } = present
  const { recovering, unknownSources, era } = image.network!
  if (recovering === null) return null
  const notBefore = recoveryEnd(image)
  const enabled = [...image.sources.values()].filter(({ state }) => state === 'ENABLED')
  const isUnreported = (source: SourceState) => {
    const fresh = currentReports(era, source, freshness(source.declaration.id))
    const counted = fresh?.counted.filter(({ head }) => eraOf(head) === era) ?? []
    return counted.length < 2 || counted.at(-1)!.at < notBefore
  }
  // One in dry run has reported once it has listed all that it sees: that is never handed out.
  const isUnknown = (id: string) => {
    const source = image.sources.get(id)
    if (source?.state !== 'REGISTERED') return source === undefined
    return (currentReports(era, source, freshness(id))?.completeAt ?? null) === null
  }
  return {
    notBefore,
    needsOperator: needsOperator(image) !== null,
    sources: enabled.length,
    unreported: enabled.filter(isUnreported).map(({ declaration }) => declaration.id),
    unknown: unknownSources.map(({ source }) => source).filter(isUnknown),
  }
}

/** Why no source's report can end a recovery; null: one can. */
function needsOperator({ network, slowestIntervalMs }: Image): string | null {
  const { unknownSources } = network!
  if (slowestIntervalMs === 0) return 'no source is enabled'
  if (unknownSources.length < POLICY.unknownSources) return null
  return `${unknownSources.length} unknown sources have called`
}

/** Before it no recovery ends: at first lists may lack what was promised before the era. 0: none is under way. */
export function recoveryEnd({ network, pools, records }: Image): number {
  const { recovering } = network!
  if (recovering === null) return 0
  let longest: number = POLICY.recoveryMs
  for (const { pool } of pools.values()) longest = Math.max(longest, pool.confirmWithinMs ?? 0)
  for (const { state, confirmBy, at } of records.values())
    if (state === 'RESERVED' && confirmBy !== null) longest = Math.max(longest, confirmBy - at)
  return recovering.at + longest
}

// Sources.

/** What is known of a source by reports of its present epoch, in this era. */
export function currentReports(
  era: number,
  { epoch }: SourceState,
  fresh: Freshness | undefined,
): Freshness | undefined {
  return fresh?.epoch === epoch?.name && fresh?.era === era ? fresh : undefined
}

export type SourceStatus = 'SILENT' | 'PARTIAL' | 'COLD' | 'GOOD'

/**
 * SILENT: it has not reported for two of its intervals. PARTIAL: its last reports are not complete. COLD: it is not warm, or has not
 * reported in this era. GOOD: it has reported completely within two intervals, with its warm-up behind it.
 */
export function sourceStatus(
  source: SourceState,
  reports: Freshness | undefined,
  { era, now }: { readonly era: number; readonly now: number },
): SourceStatus {
  const { declaration, registeredAt } = source
  if (isLate(now, reports?.reportedAt ?? registeredAt, declaration)) return 'SILENT'
  const fresh = currentReports(era, source, reports)
  if (!fresh?.warm) return (fresh?.partialSince ?? null) === null ? 'COLD' : 'PARTIAL'
  return isLate(now, fresh.completeAt ?? 0, declaration) ? 'PARTIAL' : 'GOOD'
}

export function isLate(now: number, at: number, { intervalMs }: SourceDeclaration): boolean {
  return now - at > POLICY.freshIntervals * intervalMs
}

// Witnesses.

/**
 * Enabled sources that cover a lease. One of the whole network covers what was made after it was enabled; one of a node also what
 * was placed there before, because it sees all of its node.
 */
export type Coverage = (record: HeldRecord) => readonly SourceState[]

export function coverageOf(image: Image): Coverage {
  const enabled = [...image.sources.values()].filter(({ state }) => state === 'ENABLED')
  const byNode = Map.groupBy(enabled, ({ declaration }) => declaration.node)
  return (record) => {
    const { node, token } = record
    return [...(byNode.get('') ?? []), ...(node === '' ? [] : (byNode.get(node) ?? []))].filter(
      ({ declaration, enabledSeq }) =>
        (declaration.node !== '' || enabledSeq! < token) && seesLease(image, declaration, record),
    )
  }
}

/** By the kind of its owner, and its family. */
function seesLease(image: Image, declaration: SourceDeclaration, { owner, poolId }: AddressRecord): boolean {
  const { family } = image.pools.get(poolId)!.pool
  return declaration.families.includes(family) && (owner === null || seesKind(declaration, owner.kind))
}

/** What it declares; and a node's agent, its spares. */
export function seesKind({ kind, node, ownerKinds }: SourceDeclaration, seen: string): boolean {
  return ownerKinds.includes(seen) || (seen === RESERVE_KIND && node !== '' && kind === 'push')
}

/** What was placed on a source's node and is held, and how much of it the source lists. Of no node: nothing. */
export function placedBefore(image: Image, { declaration }: SourceState): { placed: number; listed: number } {
  const { id, node } = declaration
  const count = { placed: 0, listed: 0 }
  if (node === '') return count
  for (const record of image.records.values()) {
    if (record.state === 'FREE' || record.node !== node || !seesLease(image, declaration, record)) continue
    count.placed++
    const lists = (one: Sighting) => one.source === id && isLive(one)
    if (sightingsOf(image, record.address).some(lists)) count.listed++
  }
  return count
}

export function coversNode({ node: seen }: SourceDeclaration, node: string): boolean {
  return seen === '' || seen === node
}

/** Sources that could say that a lease's owner is gone: they cover the lease, or have listed its owner there. */
export function witnessesOf(image: Image, record: HeldRecord, coverage: Coverage): ReadonlySet<string> {
  const ids = new Set(coverage(record).map(({ declaration }) => declaration.id))
  for (const one of evidenceAt(image, record.address))
    if (couldSee(image.sources.get(one.source)!, record, one)) ids.add(one.source)
  return ids
}

/** Whether the source listed the lease's owner there, and sees the node where the lease is placed now. */
function couldSee({ declaration }: SourceState, { node, owner }: HeldRecord, listed: Sighting): boolean {
  if (node !== '' && !coversNode(declaration, node)) return false
  return owner === null || (listed.owner !== null && isListedAs(owner, listed.owner))
}

export function isOfAnotherNode(image: Image, { source }: Sighting, { node }: AddressRecord): boolean {
  const seen = image.sources.get(source)!.declaration.node
  return seen !== '' && seen !== node
}

// What waits for a person.

const KEPT = 'nothing that it watches is taken back'

/** The worst first: the severity of its alert, and what is so. */
export const ATTENTION = {
  PROJECTION_DIFFERS: ['page', () => 'Verification found differences between the log and its tables'],
  NETWORK_RECOVERING: ['page', () => 'Nothing is handed out or taken back until the sources have reported'],
  HELD: ['page', () => 'Nothing is taken back until an operator resumes the network'],
  LISTED_ELSEWHERE: ['page', (it) => `${it} lists another owner at the address of another node's lease`],
  SOURCE_UNKNOWN: ['ticket', (it) => `${it} calls, and the recovery waits until it is registered`],
  SOURCE_SILENT: ['ticket', (it) => `${it} has not reported for two intervals: ${KEPT}`],
  SOURCE_PARTIAL: ['ticket', (it) => `${it} sends incomplete lists: ${KEPT}`],
  SOURCE_COLD: ['ticket', (it) => `${it} is still warming up: ${KEPT}`],
  LOOKUP_FAILING: ['ticket', (it) => `${it} gives no clear answer about a workload, so its lease is kept`],
  NODE_LIMIT: ['ticket', (it) => `${it} lists more than a node may hold: the rest is not handed out`],
  LISTS_FREE_ADDRESSES: ['ticket', (it) => `${it} lists many free addresses: they are not handed out`],
  OPERATOR_ONLY: ['ticket', () => 'Only an operator ends this quarantine'],
  NO_WITNESS: ['ticket', () => 'No source watches this lease, so nothing notices when its workload ends'],
} as const satisfies Readonly<Record<string, readonly ['page' | 'ticket', (source: string) => string]>>

export type AttentionCode = keyof typeof ATTENTION
export const ATTENTION_CODES = Object.keys(ATTENTION) as readonly AttentionCode[]

export type Attention = {
  readonly code: AttentionCode
  /** Empty here and below: it is not about one. */
  readonly source: string
  readonly address: string
  readonly leaseId: string
  readonly since: number
  readonly text: string
  readonly count: number
  /** Up to so many are not shown. */
  readonly limit: number
}

/** What neither the image nor reports say. */
export type Findings = {
  readonly lookUps: readonly LookUp[]
  readonly differences: readonly { readonly message: string; readonly foundAt: number }[]
}

function item(code: AttentionCode, since: number, detail: string, about: Partial<Attention> = {}): Attention {
  const text = ATTENTION[code][1](about.source ?? '') + detail
  return { source: '', address: '', leaseId: '', count: 1, limit: 0, text, ...about, code, since }
}

export function* attentionOf(present: Present & Findings): Generator<Attention> {
  const { image, now, freshness, lookUps, differences } = present
  const { era, unknownSources } = image.network!
  for (const { message, foundAt } of differences)
    yield item('PROJECTION_DIFFERS', foundAt, `, the first: ${message}`)
  for (const { code, since, text } of suspensionsOf(image, now, 'REAP_ABSENT'))
    yield item(code, since, '', { text })
  const unknown = recoveryOf(present)?.unknown ?? []
  for (const { source, node, at } of unknownSources)
    if (unknown.includes(source))
      yield item('SOURCE_UNKNOWN', at, node === '' ? '' : ` (it called from node ${node})`, { source })
  for (const [id, source] of image.sources) {
    const reports = freshness(id)
    const status = source.state === 'ENABLED' ? sourceStatus(source, reports, { era, now }) : 'GOOD'
    if (status === 'GOOD') continue
    const { reportedAt = source.registeredAt, partialSince = null, partialBecause = [] } = reports ?? {}
    const since = status === 'COLD' ? (source.epoch?.at ?? source.enabledAt!) : reportedAt
    const why = partialBecause.length === 0 ? '' : ` (${partialBecause.join(', ')})`
    yield item(`SOURCE_${status}`, partialSince ?? since, why, { source: id })
  }
  for (const { source, address, owner, answer, detail, head, askedAt, attempts } of lookUps) {
    const record = image.records.get(address)
    if (!isHeld(record) || record.seq > head) continue
    const why = ` (${owner.kind} ${owner.name} at ${address}, asked ${attempts} times: ${answer} ${detail})`
    yield item('LOOKUP_FAILING', askedAt, why, {
      source,
      address,
      leaseId: leaseId(image.name, record.token),
    })
  }
}

/** Of a held lease; the image alone says it. */
export function* attentionToLease(
  image: Image,
  coverage: Coverage,
  record: HeldRecord,
): Generator<Attention> {
  const { address, at, state, quarantine, owner, node, confirmBy, token } = record
  const kind = owner?.kind ?? null
  const lease = { address, leaseId: leaseId(image.name, token) }
  if (state === 'QUARANTINED') {
    const { reason, why, at: since } = quarantine!
    if (exitsOf(reason, kind).length === 0) yield item('OPERATOR_ONLY', since, ` (${reason}: ${why})`, lease)
  } else if (isSingle(image.pools.get(record.poolId)!.pool)) {
    for (const one of sightingsOf(image, address)) {
      if (!isLive(one) || one.owner === null || isListedAs(owner!, one.owner)) continue
      if (!isOfAnotherNode(image, one, record)) continue
      const { source } = one
      const there = `on node ${image.sources.get(source)!.declaration.node}`
      const here = node === '' ? 'on no node' : `on node ${node}`
      const why = `: ${describeOwner(owner!)} holds ${address} ${here} and keeps every right, and ${describeOwner(one.owner)} is listed there ${there}; end one of the two`
      yield item('LISTED_ELSEWHERE', one.appearedAt, why, { ...lease, source })
    }
  }
  if (confirmBy !== null || kind === 'infrastructure' || !mayFollow('proveAbsent', record)) return
  if (image.slowestIntervalMs === 0 || witnessesOf(image, record, coverage).size > 0) return
  yield item('NO_WITNESS', at, '', lease)
}

/** Of an address that sources list and that may have no lease. */
export function* attentionToListed(image: Image, address: string): Generator<Attention> {
  const poolState = blockAt(image, address)?.poolState
  if (poolState === undefined || isHeld(image.records.get(address))) return
  const { name, nodeLimit = Infinity } = poolState.pool
  const limit = Math.min(POLICY.quarantinesPerCaller, nodeLimit)
  for (const { source, node, appearedAt } of sightingsOf(image, address).filter(isLive)) {
    yield item('LISTS_FREE_ADDRESSES', appearedAt, '', { source, address, limit })
    const held = poolState.heldOn.get(node) ?? 0
    const why = ` (node ${node} holds ${held} of pool ${name})`
    if (held >= nodeLimit) yield item('NODE_LIMIT', appearedAt, why, { source, address })
  }
}

/** What waits, the worst first: of each code and source their count and the oldest; or each lease and address by itself. */
export class AttentionList {
  readonly #page
  #items = new Map<string, Attention>()

  constructor(page: { readonly isEach?: boolean; readonly after?: string; readonly size?: number } = {}) {
    this.#page = { isEach: false, after: '', size: Infinity, ...page }
  }

  add(one: Attention): void {
    const position = this.positionOf(one)
    const { isEach, after, size } = this.#page
    if (position <= after) return
    const before = this.#items.get(position) ?? { ...one, count: 0 }
    const count = before.count + one.count
    const limit = Math.min(before.limit, one.limit)
    this.#items.set(position, { ...(one.since < before.since ? one : before), count, limit })
    if (isEach && this.#items.size > 2 * size) this.#items = new Map(this.#sorted().slice(0, size))
  }

  /** In order of its text; the next page begins after it. */
  positionOf({ code, source, address }: Attention): string {
    const rank = String(ATTENTION_CODES.indexOf(code)).padStart(2, '0')
    if (!this.#page.isEach || address === '') return `${rank}/${source}`
    const { family, value } = addressValue(address)
    return `${rank}/${source}/${family}/${value.toString(16).padStart(32, '0')}`
  }

  items(): readonly Attention[] {
    const { isEach, size } = this.#page
    const shown = this.#sorted().filter(([, { count, limit }]) => isEach || count > limit)
    return shown.slice(0, size).map(([, one]) => one)
  }

  #sorted(): readonly (readonly [string, Attention])[] {
    return [...this.#items].sort(([a], [b]) => (a < b ? -1 : 1))
  }
}
