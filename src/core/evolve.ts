/** What an event does to the image. Any event of the log can be applied. Only this and loading an image call `put…`. */
import {
  type Entry,
  type EventOf,
  type EventType,
  type LeaseEventType,
  type LedgerEvent,
  TERMINAL,
} from './event.ts'
import {
  assign,
  blockAt,
  type Image,
  isHeld,
  type NetworkState,
  put,
  putClosing,
  putPool,
  putSightings,
  putSource,
  type Sighting,
  type SourceState,
  sightingsAt,
  sightingsOf,
} from './image.ts'
import { isClosing } from './lifecycle.ts'
import { isListedAs, type Owner, sameAttachment } from './owner.ts'
import { POLICY } from './policy.ts'
import { buildPool } from './pool.ts'

export function evolve(image: Image, event: LedgerEvent): void {
  remember(image, event)
  if ('record' in event) {
    const { record } = event
    put(image, record.address, record)
    // What vanished was a witness of the lease that ended, or that another replaced; or of others, until they are proven gone.
    const isSuccessor = record.quarantine?.reason === 'CONFLICT'
    const isContested = event.details?.contested === true
    const isOver = isHeld(record) ? record.token === record.seq && !isSuccessor : !isContested
    const isIts = ({ owner }: Sighting) => owner !== null && isListedAs(record.owner!, owner)
    const isPast = (one: Sighting) => one.vanishedSeq !== null && (isOver || isIts(one))
    if (isOver || isContested) forget(image, sightingsOf(image, record.address), isPast)
    return
  }
  const change = SHAPES[event.type] as Change<EventType>
  change(image, event)
}

type Change<T> = (image: Image, event: LedgerEvent & { readonly type: T }) => void

/** Of events that are about no address. */
const SHAPES: { readonly [T in Exclude<EventType, LeaseEventType>]: Change<T> } = {
  'attachment.closed': () => {},
  'network.created': (image, { seq, at, details }) =>
    assign(image, {
      network: {
        ...details,
        era: 0,
        recovering: null,
        unknownSources: [],
        recoveredAt: null,
        holds: {},
        version: seq,
        createdAt: at,
        updatedAt: at,
      },
    }),
  'network.updated': (image, event) => changeNetwork(image, event, event.details),
  'era.begun'(image, event) {
    const { seq, at } = event
    const { era, identity, recovering, why } = event.details
    changeNetwork(image, event, { era, identity, ...(recovering && { recovering: { seq, at, why } }) })
  },
  'recovery.extended'(image, event) {
    const unknownSources = [...image.network!.unknownSources, { ...event.details, at: event.at }]
    changeNetwork(image, event, { unknownSources })
  },
  'recovery.ended': (image, event) =>
    changeNetwork(image, event, { recovering: null, unknownSources: [], recoveredAt: event.at }),
  'reconcile.held'(image, event) {
    const { seq, at, details } = event
    const holds = { ...image.network!.holds, [details.hold]: { seq, at, details } }
    changeNetwork(image, event, { holds })
  },
  'reconcile.resumed'(image, event) {
    const holds = { ...image.network!.holds }
    for (const hold of event.details.holds) delete holds[hold]
    changeNetwork(image, event, { holds })
  },
  'pool.created': changePool,
  'pool.updated': changePool,
  'pool.deleted': (image, { poolId }) => putPool(image, poolId, undefined),
  'source.registered': (image, { seq, at, actor, details }) =>
    putSource(image, details.id, {
      declaration: details,
      state: 'REGISTERED',
      version: seq,
      registeredAt: at,
      registeredBy: actor,
      enabledAt: null,
      enabledBy: null,
      enabledSeq: null,
      retiredAt: null,
      epoch: image.sources.get(details.id)?.epoch ?? null,
    }),
  'source.enabled': (image, { seq, at, actor, details }) =>
    changeSource(image, details.id, {
      state: 'ENABLED',
      version: seq,
      enabledAt: at,
      enabledBy: actor,
      enabledSeq: seq,
    }),
  'source.retired': (image, { seq, at, details }) =>
    changeSource(image, details.id, { state: 'RETIRED', version: seq, retiredAt: at, epoch: null }),
  'source.reported': report,
}

/**
 * What the last hour of the log says and no projection keeps: closings, and reaps by absence for the breaker. A Release and a
 * supersession close the attachment: what they overtook is refused (4.2).
 */
export function remember(image: Image, event: LedgerEvent): void {
  if (event.type === 'attachment.closed') putClosing(image, event.owner, event.node, event.at)
  if (event.type === 'reconcile.resumed' && event.details.holds.includes('TOO_MANY_REAPS'))
    assign(image, { reaps: [] })
  if (!('record' in event)) return
  if (event.details?.proof !== undefined)
    assign(image, { reaps: [...image.reaps.filter((at) => at > event.at - POLICY.holdWindowMs), event.at] })
  const { owner, quarantine } = event.record
  if (owner === null) return
  if (event.type === 'lease.released')
    putClosing(image, owner, (event.details?.tokenNode as string | undefined) ?? '', event.at)
  else if (event.type === 'lease.quarantined' && isClosing(event.record))
    putClosing(image, owner, quarantine!.node, event.at)
}

function changeNetwork(image: Image, event: LedgerEvent, change: Partial<NetworkState>): void {
  assign(image, { network: { ...image.network!, ...change, version: event.seq, updatedAt: event.at } })
}

function changePool(image: Image, event: LedgerEvent & { type: 'pool.created' | 'pool.updated' }): void {
  const { poolId, seq: version, at: updatedAt, details } = event
  const createdAt = image.pools.get(poolId)?.pool.createdAt ?? updatedAt
  putPool(image, poolId, buildPool(details, { poolId, version, createdAt, updatedAt }))
}

function changeSource(image: Image, id: string, change: Partial<SourceState>): void {
  putSource(image, id, { ...image.sources.get(id)!, ...change })
}

function report(image: Image, event: EventOf<'source.reported'>): void {
  const { source: id, epoch, head, appeared, vanished, opened, closed } = event.details
  if (opened || closed)
    changeSource(image, id, { epoch: { name: closed ? '' : epoch, seq: event.seq, head, at: event.at } })
  for (const entry of appeared) {
    const sightings = sightingsAt(image, entry.address)
    const owner = ownerOf(entry)
    const before = sightings.find((one) => isSame(one, id, owner))
    const still = before?.vanishedSeq === null ? before : null
    const state = entry.state ?? ''
    const hasEnded = state === TERMINAL
    const now: Sighting = {
      source: id,
      address: entry.address,
      owner,
      node: entry.node ?? '',
      state,
      appearedSeq: still?.appearedSeq ?? event.seq,
      appearedAt: still?.appearedAt ?? event.at,
      appearedHead: still?.appearedHead ?? head,
      vanishedSeq: null,
      terminalSeq: hasEnded ? (still?.terminalSeq ?? event.seq) : null,
      terminalAt: hasEnded ? (still?.terminalAt ?? event.at) : null,
      restsUntil: entry.restsUntil ?? (hasEnded ? (still?.restsUntil ?? null) : null),
    }
    putSightings(image, entry.address, [...sightings.filter((one) => one !== before), now])
  }
  for (const entry of vanished) {
    const owner = ownerOf(entry)
    // What was listed for a lease is remembered for as long as the lease is held: its source is a witness.
    const block = blockAt(image, entry.address)
    const isRemembered = isHeld(block === null ? undefined : image.records.get(block.address))
    const { restsUntil = null } = entry
    const end = { vanishedSeq: event.seq, restsUntil }
    putSightings(
      image,
      entry.address,
      sightingsAt(image, entry.address).flatMap((one) => {
        if (!isSame(one, id, owner) || one.vanishedSeq !== null) return one
        return isRemembered || restsUntil !== null ? { ...one, ...end } : []
      }),
    )
  }
  // By a clock that was set nothing has rested.
  if (image.network!.holds.CLOCK !== undefined) return
  const hasRested = ({ restsUntil, vanishedSeq }: Sighting) =>
    vanishedSeq !== null && restsUntil !== null && restsUntil <= event.at
  const rested: Sighting[] = []
  for (let one = image.resting.peek(); one !== undefined && hasRested(one); one = image.resting.peek())
    rested.push(image.resting.pop()!)
  forget(image, rested, hasRested)
}

function forget(image: Image, sightings: readonly Sighting[], isGone: (one: Sighting) => boolean): void {
  for (const { address } of sightings.filter(isGone)) {
    const kept = sightingsAt(image, address).filter((one) => !isGone(one))
    putSightings(image, address, kept)
  }
}

export function ownerOf(entry: Entry): Owner | null {
  if (entry.kind === undefined) return null
  const name = entry.name ?? entry.uid ?? ''
  return {
    kind: entry.kind,
    name,
    uid: entry.uid ?? name,
    incarnation: entry.incarnation ?? '',
    interface: entry.interface ?? '',
  }
}

export function isSame(sighting: Sighting, source: string, owner: Owner | null): boolean {
  if (sighting.source !== source) return false
  return owner === null || sighting.owner === null
    ? owner === sighting.owner
    : sameAttachment(sighting.owner, owner)
}
