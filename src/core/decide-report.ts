/**
 * Truth: sources, what they list, and what follows from it. A report is compared with what the image has of its source; what
 * changed is one `source.reported`, and a lease event for each lease that it confirms, adopts or quarantines. A report that
 * is partial, out of order, of a closed epoch or era, or of a source that is not enabled or not warm only adds to what is
 * listed: that protects, and decides nothing.
 */
import { isDeepStrictEqual } from 'node:util'
import {
  type Batch,
  type By,
  blank,
  emit,
  emitLease,
  freshnessOf,
  isWordSpent,
  quarantine,
  setFreshness,
  viewOf,
} from './batch.ts'
import type { Answer, Command, Freshness } from './command.ts'
import { confirm, end, judged } from './decide-lease.ts'
import {
  type AddressRecord,
  type Details,
  type Entry,
  type QuarantineReason,
  type SourceDeclaration,
  TERMINAL,
} from './event.ts'
import { isSame, ownerOf } from './evolve.ts'
import {
  type Image,
  isClosed,
  isHeld,
  isLive,
  type Sighting,
  type SourceState,
  sightingsAt,
  sightingsOf,
  unitAt,
} from './image.ts'
import { coverageOf, entryOf, judge, presentOf, witnessesOf } from './judge.ts'
import { describeOwner, isListedAs, type Owner } from './owner.ts'
import { eraOf, POLICY } from './policy.ts'
import { isSingle } from './pool.ts'
import { contains } from './ranges.ts'
import { type Refusal, refusal } from './refusal.ts'

type Report = Command<'report'>

// Sources.

export function decideRegisterSource(batch: Batch, command: Command<'registerSource'>): Answer | Refusal {
  const { image } = batch
  const { declaration } = command
  const { id } = declaration
  const before = image.sources.get(id)
  if (before?.state === 'RETIRED') return retired(id)
  if (before !== undefined && isDeepStrictEqual(before.declaration, declaration))
    return { leases: [], source: before }
  const place = ({ kind, node, settings }: SourceDeclaration) => [kind, node, settings]
  if (before !== undefined && !isDeepStrictEqual(place(before.declaration), place(declaration))) {
    const why = 'what it has listed there would be missed here; register another id, then retire this one'
    const message = `source ${id} is known with another kind, node or settings: ${why}`
    return refusal('ILLEGAL_STATE', message, { source: id })
  }
  if (before === undefined && image.sources.size >= POLICY.sources)
    return refusal('ILLEGAL_STATE', `network ${image.name} has ${POLICY.sources} sources, its limit`)
  emit(batch, command, { type: 'source.registered', details: declaration })
  return { leases: [], source: image.sources.get(id)! }
}

export function decideEnableSource(batch: Batch, command: Command<'enableSource'>): Answer | Refusal {
  const source = sourceNamed(batch, command.id)
  if ('reason' in source) return source
  if (source.state === 'REGISTERED')
    emit(batch, command, { type: 'source.enabled', details: { id: command.id } })
  return { leases: [], source: batch.image.sources.get(command.id)! }
}

/** Says how many leases lose their last witness, and how many free addresses only this source listed. */
export function decideRetireSource(batch: Batch, command: Command<'retireSource'>): Answer | Refusal {
  const { image } = batch
  const { id } = command
  const found = image.sources.get(id)
  if (found?.state === 'RETIRED') return { leases: [], source: found, unwitnessed: 0, unlisted: 0 }
  const source = sourceNamed(batch, id)
  if ('reason' in source) return source
  const coverage = coverageOf(image)
  const isOnlyWitness = (record: AddressRecord) => {
    const ids = isHeld(record) ? witnessesOf(image, record, coverage) : null
    return ids?.size === 1 && ids.has(id)
  }
  const unwitnessed = [...image.records.values()].filter(isOnlyWitness).length
  const unlisted = [...image.sightings].filter(
    ([unit, all]) =>
      unitAt(image, unit) !== null &&
      !isHeld(image.records.get(unit)) &&
      all.some(({ source, vanishedSeq }) => source === id && vanishedSeq === null) &&
      !all.some((one) => isLive(one) && one.source !== id),
  ).length
  emit(batch, command, { type: 'source.retired', details: { id } })
  return { leases: [], source: image.sources.get(id)!, unwitnessed, unlisted }
}

function sourceNamed({ image }: Batch, id: string): SourceState | Refusal {
  const source = image.sources.get(id)
  const message = `there is no source ${id} in network ${image.name}; register it first`
  if (source === undefined) return refusal('SOURCE_NOT_FOUND', message, { source: id })
  return source.state === 'RETIRED' ? retired(id) : source
}

function retired(id: string): Refusal {
  const message = `source ${id} is RETIRED, for good; register another id`
  return refusal('ILLEGAL_STATE', message, { source: id, state: 'RETIRED' })
}

// Reports.

export function decideReport(batch: Batch, command: Report): Answer | Refusal {
  const { image, now } = batch
  const { source: id, epoch, sequence, head, last } = command
  const source = sourceNamed(batch, id)
  if ('reason' in source) return source
  if (head > image.head) return ahead(batch, command, source)

  const fresh = freshnessOf(batch, id)
  const opens = epoch !== source.epoch?.name && head > (source.epoch?.head ?? -1)
  const isPresent = opens || epoch === source.epoch?.name
  const isInOrder =
    sequence > (fresh?.sequence ?? 0) && (last === null || last.after === (fresh?.sequence ?? 0))
  const flaws = [
    ...(command.complete ? [] : command.because.length > 0 ? command.because : ['DECLARED']),
    ...(isPresent ? [] : ['CLOSED_EPOCH']),
    ...(eraOf(head) === image.network!.era || head === 0 ? [] : ['OTHER_ERA']),
    ...(isInOrder ? [] : ['OUT_OF_SEQUENCE']),
  ]
  const isNew = isPresent && (opens || fresh?.epoch !== epoch || fresh.era !== image.network!.era)
  const present = fresh === undefined || isNew ? newFreshness(batch, command, fresh) : fresh
  const trusts =
    batch.without.has('ONLY_COUNTED_REPORTS_DECIDE') ||
    (flaws.length === 0 && source.state === 'ENABLED' && present.warm)

  // Not trusted, its word that something has ended is none (a late list may say so of what runs again).
  const appeared = command.entries.filter(
    (entry) => (trusts || entry.state !== TERMINAL) && isNews(image, id, entry),
  )
  const vanished = trusts ? command.vanished.filter((entry) => listedAs(image, id, entry) !== undefined) : []
  if (appeared.length > 0 || vanished.length > 0 || opens) {
    const details = { source: id, epoch, sequence, head, appeared, vanished, ...(opens && { opened: opens }) }
    emit(batch, command, { type: 'source.reported', details })
  }
  for (const entry of trusts ? command.entries : []) {
    const owner = ownerOf(entry)
    follow(batch, command, entry.address, (one) => (isSame(one, id, owner) ? head : null))
  }
  const taken = { complete: flaws.length === 0, appeared: appeared.length, vanished: vanished.length }
  if (last === null) {
    if (opens) setFreshness(batch, present)
    return { leases: [], report: { ...taken, counted: false, because: flaws } }
  }
  const counted = trusts && isSpaced(source, present, command.begunAt)
  setFreshness(batch, freshnessAfter(present, command, { now, flaws, trusts, counted }))
  if (counted) endRecovery(batch, command)
  const doubt = trusts ? 'TOO_SOON' : source.state === 'ENABLED' ? 'WARM_UP' : 'NOT_ENABLED'
  return { leases: [], report: { ...taken, counted, because: flaws.length > 0 || counted ? flaws : [doubt] } }
}

/** Its list is of a later log than this one: this may be a restored copy, and an agent must not be able to burn eras. */
function ahead(batch: Batch, command: Report, source: SourceState): Answer {
  const { image } = batch
  if (source.state === 'ENABLED' && image.network!.holds.SOURCE_AHEAD === undefined) {
    const why = `source ${command.source} has seen number ${command.head}, this log ends at ${image.head}: it may be an older copy; recover, or resume`
    emit(batch, command, { type: 'reconcile.held', details: { hold: 'SOURCE_AHEAD', why } })
  }
  return {
    leases: [],
    report: { complete: false, counted: false, because: ['BEYOND_HEAD'], appeared: 0, vanished: 0 },
  }
}

/** What the source lists there now for this owner. */
function listedAs(image: Image, source: string, entry: Entry): Sighting | undefined {
  const owner = ownerOf(entry)
  return sightingsAt(image, entry.address).find(
    (one) => one.vanishedSeq === null && isSame(one, source, owner),
  )
}

/** New, or with another word for whether it has ended. Other words for being alive are not compared. */
export function isNews(image: Image, source: string, entry: Entry): boolean {
  const known = listedAs(image, source, entry)
  if (known === undefined || known.node !== (entry.node ?? '')) return true
  return (known.state === TERMINAL) !== (entry.state === TERMINAL)
}

/** Of an epoch that begins. */
function newFreshness(
  { image, now }: Batch,
  { source, epoch }: Report,
  before: Freshness | undefined,
): Freshness {
  return {
    source,
    epoch,
    era: image.network!.era,
    warm: false,
    sequence: before?.sequence ?? 0,
    digest: '',
    entries: -1,
    counted: [],
    countedTotal: before?.countedTotal ?? 0,
    reportedAt: now,
    completeAt: null,
    completeHead: null,
    partialSince: null,
    partialBecause: [],
  }
}

/** A report counts at least half an interval after the last one that did: k misses are k looks. */
export function isSpaced({ declaration }: SourceState, { counted }: Freshness, begunAt: number): boolean {
  const last = counted.at(-1)
  return last === undefined || begunAt - last.at >= POLICY.countedAfterIntervals * declaration.intervalMs
}

/** How a source stands after a report. */
export function freshnessAfter(
  before: Freshness,
  { sequence, head, begunAt, last }: Pick<Report, 'sequence' | 'head' | 'begunAt' | 'last'>,
  how: {
    readonly now: number
    readonly flaws: readonly string[]
    readonly trusts: boolean
    readonly counted: boolean
  },
): Freshness {
  const { now, flaws, trusts, counted } = how
  if (flaws.some((flaw) => flaw === 'CLOSED_EPOCH' || flaw === 'OTHER_ERA' || flaw === 'OUT_OF_SEQUENCE'))
    return { ...before, digest: '', reportedAt: now }
  if (flaws.length > 0) {
    const partialSince = before.partialSince ?? now
    return { ...before, sequence, digest: '', reportedAt: now, partialSince, partialBecause: flaws }
  }
  const { entries, digest } = last!
  return {
    ...before,
    sequence,
    // Not trusted, it ended nothing that it no longer lists; said to be unchanged, the same list never would.
    digest: trusts ? digest : '',
    entries,
    // Two complete reports, the second with no more entries than the first: it is not still filling its list.
    warm: before.warm || (before.entries >= 0 && entries <= before.entries),
    counted: counted
      ? [...before.counted, { sequence, head, at: begunAt }].slice(-POLICY.recentReports)
      : before.counted,
    countedTotal: before.countedTotal + (counted ? 1 : 0),
    reportedAt: now,
    completeAt: begunAt,
    completeHead: head,
    partialSince: null,
    partialBecause: [],
  }
}

/** The report that completes the observation of a new era ends the recovery. */
function endRecovery(batch: Batch, command: Report): void {
  const { image } = batch
  const { recovering, era } = image.network!
  if (recovering === null) return
  const since = recovering.at + Math.max(POLICY.recoveryMs, longestPromise(batch))
  for (const source of image.sources.values()) {
    if (source.state !== 'ENABLED') continue
    const fresh = presentOf(image, source, freshnessOf(batch, source.declaration.id))
    const counted = fresh?.counted.filter(({ head }) => eraOf(head) === era) ?? []
    if (counted.length < 2 || counted.at(-1)!.at < since) return
  }
  const details = { why: 'every enabled source has reported' }
  emit(batch, { ...command, cause: 'OBSERVED' }, { type: 'recovery.ended', details })
}

function longestPromise({ image }: Batch): number {
  let longest = 0
  for (const { pool } of image.pools.values()) longest = Math.max(longest, pool.confirmWithinMs ?? 0)
  for (const { state, confirmBy, at } of image.records.values())
    if (state === 'RESERVED' && confirmBy !== null) longest = Math.max(longest, confirmBy - at)
  return longest
}

// What follows from what is listed.

export function decideRecheck(batch: Batch, command: Command<'recheck'>): Answer {
  const again = batch.without.has('LISTED_IS_LOOKED_AT_AGAIN') ? [] : command.addresses
  for (const address of again) follow(batch, command, address, (one) => believedHead(batch, one))
  return { leases: [] }
}

/**
 * The newest counted head of a source that is enabled and warm, of what its counted list had; null: it only protects. What
 * a partial or late list has added since is no word of that head.
 */
export function believedHead(
  batch: Pick<Batch, 'image' | 'known' | 'freshness'>,
  { source: id, appearedSeq, appearedHead }: Sighting,
): number | null {
  const { image } = batch
  const source = image.sources.get(id)
  if (source?.state !== 'ENABLED') return null
  const fresh = presentOf(image, source, freshnessOf(batch, id))
  const head = fresh?.warm ? fresh.counted.at(-1)?.head : undefined
  return head !== undefined && (appearedSeq <= head || appearedHead === head) ? head : null
}

/**
 * What the lists that are believed say of one address. They decide only on what has not changed since the head they were
 * begun at.
 */
function follow(batch: Batch, by: By, address: string, believed: (one: Sighting) => number | null): void {
  const { image } = batch
  const unit = unitAt(image, address)
  if (unit === null || !contains(unit.place.pool.allocatable, unit.value)) return
  const record = image.records.get(unit.address)
  const seen = sightingsOf(image, unit.address).flatMap((sighting) => {
    const head = isLive(sighting) ? believed(sighting) : null
    if (head === null) return []
    return [{ sighting, head: batch.without.has('OLDER_LISTS_ONLY_PROTECT') ? Infinity : head }]
  })
  if (isHeld(record)) {
    if (!isSingle(unit.place.pool) || record.state === 'QUARANTINED') return
    const known = seen.filter(({ sighting }) => sighting.owner !== null)
    const isOwn = ({ sighting }: (typeof seen)[number]) => isListedAs(record.owner!, sighting.owner!)
    const other = known.find((one) => !isOwn(one) && one.head >= record.token)
    if (other !== undefined && !batch.without.has('OTHER_OWNER_IS_A_CONFLICT')) {
      keep(batch, by, record, 'CONFLICT', other.sighting)
    } else if (record.state === 'RESERVED') {
      const own = known.find((one) => isOwn(one) && one.head >= record.seq)
      if (own !== undefined) confirm(batch, by, record, evidenceOf(own.sighting))
    }
    return
  }
  const found = seen.find(({ head }) => head >= (record?.seq ?? 0))?.sighting
  if (found === undefined) return
  const fresh = blank(batch, unit.place, unit.address)
  const owner = found.owner === null ? null : adoptable(found.owner)
  if (owner === null || !isSingle(unit.place.pool)) {
    if (!isWordSpent(batch, found.source)) keep(batch, by, fresh, 'FOREIGN', found)
    return
  }
  const adopted = { ...fresh, owner, node: found.node }
  const wasHis = record?.owner != null && isListedAs(record.owner, owner)
  const isGivenUp =
    isClosed(image, owner, batch.now) ||
    (wasHis && (record.ended === 'RELEASED' || record.quarantine?.reason === 'SUPERSEDED'))
  if (isGivenUp && !batch.without.has('RELEASED_BUT_LIVE_IS_KEPT')) {
    if (!isWordSpent(batch, found.source)) keep(batch, by, adopted, 'RELEASED_BUT_LIVE', found)
    return
  }
  const change = { state: 'ACTIVE', confirmedAt: batch.now } as const
  emitLease(batch, by, 'lease.adopted', adopted, change, evidenceOf(found))
}

/** A source that tells no interface lists the one that Reserve takes by default. */
function adoptable(owner: Owner): Owner {
  return owner.interface === '' ? { ...owner, interface: 'eth0' } : owner
}

/** Quarantines it on a source's word. */
function keep(
  batch: Batch,
  by: By,
  record: AddressRecord,
  reason: QuarantineReason,
  sighting: Sighting,
): void {
  const { source, owner } = sighting
  const why = `${source} lists ${owner === null ? 'somebody' : describeOwner(owner)} there`
  quarantine(batch, by, record, { reason, by: source, why }, evidenceOf(sighting))
}

function evidenceOf(sighting: Sighting): Details {
  const { source, appearedSeq: appeared, appearedHead: head } = sighting
  return { source, seen: entryOf(sighting), appeared, head }
}

// Taking back.

/** The judge again, in full, on what is read under the lock. */
export function decideReapProven(batch: Batch, command: Command<'reapProven'>): Answer | Refusal {
  const { image, now, without, known } = batch
  const record = judged(batch, command)
  if ('reason' in record) return record
  const lookUps = known.lookUps.get(record.address) ?? []
  const freshness = (id: string) => freshnessOf(batch, id)
  const { verdict, because, proof } = judge({ image, now, without, freshness, lookUps }, record)
  if (verdict !== 'reap') {
    const why = because.map(({ text }) => text).join('; ')
    return refusal('ILLEGAL_STATE', `it is kept: ${why}`, { address: record.address })
  }
  if (image.network!.holds.TOO_MANY_REAPS !== undefined) {
    const message = `network ${image.name} is held: too many reaps; resume it`
    return refusal('NETWORK_RECOVERING', message, { state: 'HELD' })
  }
  const recent = image.reaps.filter((at) => at > now - POLICY.holdWindowMs).length + 1
  let held = 0
  for (const { counts } of image.pools.values()) held += counts.RESERVED + counts.ACTIVE + counts.QUARANTINED
  const isMany = recent > POLICY.heldAboveReaps && recent > POLICY.heldAboveShare * held
  if (isMany && !without.has('MANY_REAPS_HOLD')) {
    const why = `${recent} leases of ${held} would have been reaped as absent within an hour; look at the sources, then resume`
    emit(batch, command, { type: 'reconcile.held', details: { hold: 'TOO_MANY_REAPS', why } })
    return { leases: [] }
  }
  const by = { ...command, cause: 'PROVEN_ABSENT' }
  const reaped = end(batch, by, record, 'REAPED', { proof: proof as unknown as Details })
  return { leases: [viewOf(image, reaped)] }
}
