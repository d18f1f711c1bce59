/**
 * Truth: sources, what they list, and what follows from it. A report is compared with what the image has of its source; what
 * changed is one `source.reported`, and a lease event for each lease that it confirms, adopts or quarantines. A report that
 * is partial, out of order, of a closed epoch or era, or of a source that is not enabled or not warm only adds to what is
 * listed: that protects, and decides nothing.
 */
import { isDeepStrictEqual } from 'node:util'
import { coverageOf, currentReports, placedBefore, recoveryOf, witnessesOf } from './attention.ts'
import { type Batch, type By, blank, change, emit, freshnessOf, presentOf, viewOf } from './batch.ts'
import type { Answer, Command, Foreseen, Freshness } from './command.ts'
import { closeLists, confirm, end, evidenceOf, judged, quarantineListed, unlisted } from './decide-lease.ts'
import {
  type AddressRecord,
  type Details,
  type Entry,
  type EventType,
  type SourceDeclaration,
  TERMINAL,
} from './event.ts'
import { isSame, ownerOf } from './evolve.ts'
import { isElsewhere, isNodeFull, quarantineQuotaReached } from './guards.ts'
import {
  blockAt,
  type HeldRecord,
  type Image,
  isClosed,
  isHeld,
  isLive,
  type PoolState,
  type Sighting,
  type SourceState,
  sightingsAt,
  sightingsOf,
} from './image.ts'
import { judge } from './judge.ts'
import { isListedAs, type Owner, RESERVE_KIND } from './owner.ts'
import { eraOf, POLICY } from './policy.ts'
import { isSingle } from './pool.ts'
import { contains } from './ranges.ts'
import { type Refusal, refusal } from './refusal.ts'

type Report = Command<'report'>

const MOST_FORESEEN = 10_000

// Sources.

export function decideRegisterSource(batch: Batch, command: Command<'registerSource'>): Answer | Refusal {
  const { image } = batch
  const { declaration } = command
  const { id } = declaration
  const before = image.sources.get(id)
  if (before?.state === 'RETIRED') return retired(id)
  if (before !== undefined && isDeepStrictEqual(before.declaration, declaration))
    return { leases: [], source: before }
  const identity = ({ kind, node, settings }: SourceDeclaration) => [kind, node, settings]
  if (before !== undefined && !isDeepStrictEqual(identity(before.declaration), identity(declaration))) {
    const why = 'what it has listed there would be missed here; register another id, then retire this one'
    const message = `source ${id} is known with another kind, node or settings: ${why}`
    return refusal('ILLEGAL_STATE', message, { source: id })
  }
  if (before === undefined && image.sources.size >= POLICY.sources)
    return refusal('ILLEGAL_STATE', `network ${image.name} has ${POLICY.sources} sources, its limit`)
  emit(batch, command, { type: 'source.registered', details: declaration })
  return { leases: [], source: image.sources.get(id)! }
}

/** Says how many leases of its node it is a witness of from now on, and how many of them it lists. */
export function decideEnableSource(batch: Batch, command: Command<'enableSource'>): Answer | Refusal {
  const { image } = batch
  const { id } = command
  const source = sourceNamed(batch, id)
  if ('reason' in source) return source
  if (source.state === 'ENABLED') return { leases: [], source, placed: 0, listed: 0 }
  const { placed, listed } = placedBefore(image, source)
  if (2 * listed < placed && !command.acceptUnlisted) {
    const { node } = source.declaration
    const metadata = { source: id, placed: String(placed), listed: String(listed) }
    const message =
      `source ${id} would be a witness of ${placed} leases that are placed on node ${node}, and lists ${listed} of them. ` +
      `So it looks when leases were imported under a wrong node's name: then import them again under the right one. ` +
      `If it has not reported since they were made, wait for its list. If the others are leaks, enable it with acceptUnlisted: ` +
      `they are taken back by proof, an hour later at the earliest`
    return refusal('ILLEGAL_STATE', message, metadata)
  }
  emit(batch, command, { type: 'source.enabled', details: { id } })
  return { leases: [], source: image.sources.get(id)!, placed, listed }
}

/** What the next list of a source that is enabled now would do, if it were as the last one. Only a dry run does it. */
export function foresee(batch: Batch, command: Command<'enableSource'>): Foreseen {
  const { image } = batch
  const { id } = command
  const before = batch.events.length
  const addresses = [...new Set([...(image.listedBy.get(id) ?? [])].map(({ address }) => address))]
  for (const address of addresses.slice(0, MOST_FORESEEN))
    reconcileAddress(batch, command, address, ({ source }) => (source === id ? image.head : null))
  const made = Map.groupBy(batch.events.slice(before), ({ type }) => type)
  const count = (type: EventType) => made.get(type)?.length ?? 0
  return {
    adopted: count('lease.adopted'),
    quarantined: count('lease.quarantined'),
    confirmed: count('lease.confirmed'),
    omitted: Math.max(0, addresses.length - MOST_FORESEEN),
  }
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
    ([block, all]) =>
      blockAt(image, block) !== null &&
      !isHeld(image.records.get(block)) &&
      all.some(({ source, vanishedSeq }) => source === id && vanishedSeq === null) &&
      !all.some((one) => isLive(one) && one.source !== id),
  ).length
  const listed = [...(image.listedBy.get(id) ?? [])]
  if (listed.length > 0) closeLists(batch, command, id, image.head, listed)
  emit(batch, command, { type: 'source.retired', details: { id } })
  return { leases: [], source: image.sources.get(id)!, unwitnessed, unlisted }
}

/** An unregistered source that calls may be missing from the dump: what it would list is in use. Only a recovery waits for it. */
export function decideUnknownSource(batch: Batch, command: Command<'unknownSource'>): Answer {
  const { image } = batch
  const { source, actor } = command
  const { recovering, unknownSources } = image.network!
  const isNews = !image.sources.has(source) && !unknownSources.some((one) => one.source === source)
  if (recovering !== null && isNews && unknownSources.length < POLICY.unknownSources)
    emit(batch, command, { type: 'recovery.extended', details: { source, node: actor.node ?? '' } })
  return { leases: [] }
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
  const isKnown = epoch === source.epoch?.name
  const opens = !isKnown && head > (source.epoch?.head ?? -1)
  const isPresent = isKnown || opens
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
    !batch.guards.ONLY_COUNTED_REPORTS_DECIDE ||
    (flaws.length === 0 && source.state === 'ENABLED' && present.warm)

  // A list that is not trusted ends nothing: it may be late, and the workload may run again.
  const appeared = command.entries
    .filter((entry) => (trusts || entry.state !== TERMINAL) && isNews(image, id, entry))
    .map((entry) => (entry.state === TERMINAL ? unlisted(batch, entry) : entry))
  const vanished = trusts
    ? command.vanished
        .filter((entry) => listedAs(image, id, entry) !== undefined)
        .map((entry) => unlisted(batch, entry))
    : []
  if (appeared.length > 0 || vanished.length > 0 || opens) {
    const details = { source: id, epoch, sequence, head, appeared, vanished, ...(opens && { opened: opens }) }
    emit(batch, command, { type: 'source.reported', details })
  }
  for (const entry of trusts ? command.entries : []) {
    const owner = ownerOf(entry)
    reconcileAddress(batch, command, entry.address, (one) => (isSame(one, id, owner) ? head : null))
  }
  const taken = { complete: flaws.length === 0, appeared: appeared.length, vanished: vanished.length }
  if (last === null) {
    if (opens) batch.freshness.set(id, present)
    return { leases: [], report: { ...taken, counted: false, because: flaws } }
  }
  const counted = trusts && isSpaced(source, present, command.begunAt)
  batch.freshness.set(id, freshnessAfter(present, command, { now, flaws, trusts, counted }))
  if (counted) endRecovery(batch, command)
  const doubt = trusts ? 'TOO_SOON' : source.state === 'ENABLED' ? 'WARM_UP' : 'NOT_ENABLED'
  return { leases: [], report: { ...taken, counted, because: flaws.length > 0 || counted ? flaws : [doubt] } }
}

/**
 * Its list is of a later log than this one: this may be a restored copy, and an agent must not be able to burn eras, nor to hold
 * the network by a number that it made up.
 */
function ahead(batch: Batch, command: Report, source: SourceState): Answer {
  const { image } = batch
  const taken = { complete: false, counted: false, appeared: 0, vanished: 0 }
  if (!command.proven && batch.guards.NUMBER_BEYOND_NEEDS_A_PROOF)
    return { leases: [], report: { ...taken, because: ['UNPROVEN_HEAD'] } }
  if (source.state === 'ENABLED' && image.network!.holds.SOURCE_AHEAD === undefined) {
    const why = `source ${command.source} has seen number ${command.head}, this log ends at ${image.head}: it may be an older copy`
    const details = { hold: 'SOURCE_AHEAD', why, number: command.head } as const
    emit(batch, command, { type: 'reconcile.held', details })
  }
  return { leases: [], report: { ...taken, because: ['BEYOND_HEAD'] } }
}

function listedAs(image: Image, source: string, entry: Entry): Sighting | undefined {
  const owner = ownerOf(entry)
  return sightingsAt(image, entry.address).find(
    (one) => one.vanishedSeq === null && isSame(one, source, owner),
  )
}

/** New, or changed between alive and ended. Other states mean alive and are not compared. */
export function isNews(image: Image, source: string, entry: Entry): boolean {
  const known = listedAs(image, source, entry)
  if (known === undefined || known.node !== (entry.node ?? '')) return true
  return (known.state === TERMINAL) !== (entry.state === TERMINAL)
}

function newFreshness(
  { image, now }: Batch,
  { source, epoch }: Report,
  before: Freshness | undefined,
): Freshness {
  const { era } = image.network!
  const countedTotal = before?.era === era ? before.countedTotal : 0
  return { ...COLD, source, epoch, era, sequence: before?.sequence ?? 0, countedTotal, reportedAt: now }
}
const COLD = {
  warm: false,
  digest: '',
  entries: -1,
  counted: [],
  completeAt: null,
  completeHead: null,
  partialSince: null,
  partialBecause: [],
}

/** A report counts at least half an interval after the last one that did: k misses are k looks. */
export function isSpaced({ declaration }: SourceState, { counted }: Freshness, begunAt: number): boolean {
  const last = counted.at(-1)
  return last === undefined || begunAt - last.at >= POLICY.countedAfterIntervals * declaration.intervalMs
}

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
    // What it no longer lists has not ended yet, if it was not trusted: then the whole list must come again.
    digest: trusts ? digest : '',
    entries,
    // Two complete reports, the second with no more entries than the first: it is not still filling its list.
    warm: before.warm || entries <= before.entries,
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
  const recovery = recoveryOf(presentOf(batch))
  if (recovery === null) return
  if (batch.guards.recovery.some(({ keeps }) => keeps(recovery, batch.image.network!))) return
  const details = { why: 'every enabled source has reported' }
  emit(batch, { ...command, cause: 'OBSERVED' }, { type: 'recovery.ended', details })
}

// What follows from what is listed.

export function decideRecheck(batch: Batch, command: Command<'recheck'>): Answer {
  const again = batch.guards.LISTED_IS_LOOKED_AT_AGAIN ? command.addresses : []
  for (const address of again) reconcileAddress(batch, command, address, (one) => believedHead(batch, one))
  return { leases: [] }
}

/**
 * The newest counted head of a source that is enabled and warm, for an entry of its counted list. Null: the entry only
 * protects; a partial or late list has added it since.
 */
export function believedHead(
  batch: Pick<Batch, 'image' | 'known' | 'freshness'>,
  { source: id, appearedSeq, appearedHead }: Sighting,
): number | null {
  const { image } = batch
  const source = image.sources.get(id)!
  if (source.state !== 'ENABLED') return null
  const fresh = currentReports(image.network!.era, source, freshnessOf(batch, id))
  const last = fresh?.warm ? fresh.counted.at(-1) : undefined
  if (last === undefined) return null
  return appearedSeq <= last.head || appearedHead === last.head ? last.head : null
}

/** What sources list live at an address, if something may follow from it. A spare's entry only protects. */
export function listedAt(image: Image, address: string) {
  const block = blockAt(image, address)
  if (block === null || !contains(block.poolState.pool.allocatable, block.value)) return null
  const record = image.records.get(block.address)
  const sightings = sightingsOf(image, block.address).filter(
    (one) => isLive(one) && one.owner?.kind !== RESERVE_KIND,
  )
  const isNews = ({ owner }: Sighting): boolean => {
    if (!isHeld(record)) return true
    if (!isSingle(block.poolState.pool) || record.state === 'QUARANTINED' || owner === null) return false
    return record.state === 'RESERVED' || !isListedAs(record.owner!, owner)
  }
  return sightings.some(isNews) ? { block, record, sightings } : null
}

/** A live entry, and the head that a list with it was begun at. */
type Believed = { readonly sighting: Sighting; readonly head: number }

/**
 * What the lists that are believed say of one address. They decide only on what has not changed since the head they were
 * begun at.
 */
function reconcileAddress(
  batch: Batch,
  by: By,
  address: string,
  believed: (one: Sighting) => number | null,
): void {
  const { image } = batch
  const listed = listedAt(image, address)
  if (listed === null) return
  const { block, record } = listed
  const seen = listed.sightings.flatMap((sighting): readonly Believed[] => {
    const head = believed(sighting)
    if (head === null) return []
    return [{ sighting, head: batch.guards.OLDER_LISTS_ONLY_PROTECT ? head : Infinity }]
  })
  const taker = isHeld(record) ? takerOf(batch, record, seen) : undefined
  if (isHeld(record) && taker === undefined) {
    const known = seen.filter(({ sighting }) => sighting.owner !== null)
    const isOwn = ({ sighting }: Believed) => isListedAs(record.owner!, sighting.owner!)
    const other = known.find(
      (one) =>
        !isOwn(one) && one.head >= record.token && mayContest(batch, block.poolState, record, one.sighting),
    )
    if (other !== undefined && batch.guards.OTHER_OWNER_IS_A_CONFLICT) {
      quarantineListed(batch, by, 'conflict', record, other.sighting)
    } else if (record.state === 'RESERVED') {
      const isPlaced = ({ sighting }: Believed) => record.node === '' || !isElsewhere(batch, sighting, record)
      const own = known.find((one) => isOwn(one) && one.head >= record.seq && isPlaced(one))
      if (own !== undefined) confirm(batch, by, record, evidenceOf(own.sighting))
    }
    return
  }
  const current = seen.filter(({ head }) => head >= (record?.seq ?? 0)).map(({ sighting }) => sighting)
  const isSpent = ({ source: by, node }: Sighting) =>
    taker === undefined && quarantineQuotaReached(batch, block.poolState, { by, node })
  const found = taker ?? current.find((one) => !isSpent(one)) ?? current[0]
  if (found === undefined) return
  if (isHeld(record)) end(batch, by, 'giveSpare', record, { ...evidenceOf(found), reason: 'TAKEN' }, null)
  const fresh = blank(batch, block.poolState, block.address)
  const { node } = found
  const owner = adoptable(batch, found)
  if (owner === null || !isSingle(block.poolState.pool)) {
    if (!isSpent(found)) quarantineListed(batch, by, 'listedForNobody', fresh, found)
    return
  }
  const adopted = { ...fresh, owner, node }
  const wasHis = record?.owner != null && isListedAs(record.owner, owner)
  const isGivenUp =
    isClosed(image, owner, node, batch.now) ||
    (wasHis && (record.ended === 'RELEASED' || record.quarantine?.reason === 'SUPERSEDED'))
  if (isGivenUp && batch.guards.RELEASED_BUT_LIVE_IS_KEPT) {
    if (!isSpent(found)) quarantineListed(batch, by, 'listedAfterRelease', adopted, found)
    return
  }
  if (taker === undefined && isNodeFull(batch, block.poolState, node)) return
  change(batch, by, 'adopt', adopted, { confirmedAt: batch.now }, evidenceOf(found))
}

/**
 * The owner that adopts a free address; null: none. A node's source speaks for the kinds that it declares, and never for
 * infrastructure. An entry without an interface has the default of Reserve.
 */
function adoptable({ image, guards }: Batch, { source, owner }: Sighting): Owner | null {
  if (owner === null) return null
  const { node, ownerKinds } = image.sources.get(source)!.declaration
  const isDeclared = ownerKinds.includes(owner.kind) && owner.kind !== 'infrastructure'
  if (node !== '' && !isDeclared && guards.ONE_NODE_TOUCHES_ITS_OWN) return null
  return owner.interface === '' ? { ...owner, interface: 'eth0' } : owner
}

/** A spare that is listed on its own node for a workload: the workload has it, whichever source of the node or of all says so first. */
function takerOf(batch: Batch, record: HeldRecord, seen: readonly Believed[]): Sighting | undefined {
  if (record.owner!.kind !== RESERVE_KIND) return undefined
  if (!batch.guards.SPARE_IS_ADOPTED) return undefined
  return seen.find(
    ({ sighting, head }) =>
      head >= record.token &&
      sighting.node === record.node &&
      record.node !== '' &&
      adoptable(batch, sighting) !== null,
  )?.sighting
}

/**
 * Whether a list of another owner takes a lease from its holder. Of a node's source it does on its own node, of a promise, and
 * while an older copy of the log may lack the lease that the source sees.
 */
function mayContest(batch: Batch, poolState: PoolState, record: HeldRecord, sighting: Sighting): boolean {
  const { image } = batch
  const { era, recovering } = image.network!
  const { source: id } = sighting
  const { node } = image.sources.get(id)!.declaration
  if (node === '' || recovering !== null) return true
  // Of any epoch: a source that begins epoch after epoch would spoil others' leases for ever.
  const hasCounted = (freshnessOf(batch, id)?.countedTotal ?? 0) >= 2
  if (eraOf(record.token) < era && !hasCounted) return true
  if (isElsewhere(batch, sighting, record) && record.state !== 'RESERVED') return false
  return !quarantineQuotaReached(batch, poolState, { by: id, node: node === record.node ? '' : node })
}

/** The judge again, in full, on what is read under the lock. */
export function decideReapProven(batch: Batch, command: Command<'reapProven'>): Answer | Refusal {
  const { image, now, guards, known } = batch
  const record = judged(batch, command, 'REAP_ABSENT')
  if ('reason' in record) return record
  const lookUps = known.lookUps.get(record.address) ?? []
  const { verdict, because, proof } = judge({ ...presentOf(batch), lookUps }, record)
  if (verdict !== 'reap') {
    const why = because.map(({ text }) => text).join('; ')
    return refusal('ILLEGAL_STATE', `it is kept: ${why}`, { address: record.address })
  }
  const recent = image.reaps.filter((at) => at > now - POLICY.holdWindowMs).length + 1
  let held = 0
  for (const { counts } of image.pools.values()) held += counts.RESERVED + counts.ACTIVE + counts.QUARANTINED
  const isMany = recent > POLICY.heldAboveReaps && recent > POLICY.heldAboveShare * held
  if (isMany && guards.MANY_REAPS_HOLD) {
    const why = `${recent} leases of ${held} would have been reaped as absent within an hour; look at the sources, then resume`
    emit(batch, command, { type: 'reconcile.held', details: { hold: 'TOO_MANY_REAPS', why } })
    return { leases: [] }
  }
  const by = { ...command, cause: 'PROVEN_ABSENT' }
  const reaped = end(batch, by, 'proveAbsent', record, { proof: proof as unknown as Details }, null)
  return { leases: [viewOf(image, reaped)] }
}
