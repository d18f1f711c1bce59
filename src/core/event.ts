import type { EndedLease, Lease } from './lease.ts'
import type { NetworkSettings } from './network.ts'
import type { Owner } from './owner.ts'
import type { PoolSettings } from './pool.ts'

/**
 * Facts of a network's ledger, in the past tense (DESIGN §3). Each carries the full state after it, so that one
 * event is enough to know what an address was at that number, and a fold needs only the last one per address.
 */
export type EventHeader = {
  readonly network: string
  readonly seq: number
  /** Database clock under the network's lock, made monotonic; milliseconds since 1970. */
  readonly at: number
  /** Who: a token's name, or a job. */
  readonly actor: string
  /** What for: the RPC's name, or the finding of a job. */
  readonly cause: string
  readonly requestId: string | null
  readonly traceId: string | null
  readonly evidence: Evidence | null
}

/** What the decision rested on, as plain JSON. */
export type Evidence = { readonly [key: string]: Json }
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }

export type HeldType =
  | 'lease.reserved'
  | 'lease.confirmed'
  | 'lease.quarantined'
  | 'lease.adopted'
  | 'lease.updated'
export type EndedType = 'lease.released' | 'lease.reaped'

export type HeldEvent = EventHeader & { readonly type: HeldType; readonly lease: Lease }
export type EndedEvent = EventHeader & { readonly type: EndedType; readonly ended: EndedLease }
export type PoolEvent = EventHeader & {
  readonly type: 'pool.created' | 'pool.updated' | 'pool.deleted'
  readonly poolId: number
  /** After the event; of a deleted pool, as it was last. */
  readonly pool: PoolSettings
}
export type NetworkEvent = EventHeader & {
  readonly type: 'network.created' | 'network.updated'
  readonly settings: NetworkSettings
  /** True when the event ended a recovery. */
  readonly recoveryEnded: boolean
}
export type EraEvent = EventHeader & {
  readonly type: 'era.begun'
  readonly era: number
  readonly recovering: boolean
}
export type ClosedEvent = EventHeader & {
  readonly type: 'attachment.closed'
  readonly owner: Owner
  /** Null: in every pool of the network. */
  readonly poolId: number | null
}
/** Statements about reaping; they change no lease by themselves, and what they say is their evidence. */
export type FencedEvent = EventHeader & {
  readonly type: 'node.fenced'
  /** Of leases up to `head`, as its caller had seen the ledger; without it, up to its own number. */
  readonly evidence: {
    readonly node: string
    readonly boot: string
    readonly why: string
    readonly head?: number
  }
}
export type HoldEvent = EventHeader & {
  readonly type: 'reconcile.held'
  readonly evidence: {
    /** Empty: the whole network. */
    readonly source: string
    readonly why: string
    /** Reaps on absence within the window, the refused one included, and the leases they are a share of. */
    readonly reaps: number
    readonly leases: number
    /** The lease whose reap was refused. */
    readonly leaseId: string
  }
}
export type ResumedEvent = EventHeader & {
  readonly type: 'reconcile.resumed'
  readonly evidence: { readonly source: string; readonly why: string }
}
export type NoticeEvent = FencedEvent | HoldEvent | ResumedEvent

export type LeaseEvent = HeldEvent | EndedEvent
export type LedgerEvent = LeaseEvent | PoolEvent | NetworkEvent | EraEvent | ClosedEvent | NoticeEvent
export type EventType = LedgerEvent['type']

export const EVENT_TYPES: readonly EventType[] = [
  'network.created',
  'network.updated',
  'era.begun',
  'pool.created',
  'pool.updated',
  'pool.deleted',
  'lease.reserved',
  'lease.confirmed',
  'lease.released',
  'lease.quarantined',
  'lease.reaped',
  'lease.adopted',
  'lease.updated',
  'attachment.closed',
  'node.fenced',
  'reconcile.held',
  'reconcile.resumed',
]

export function isHeldEvent(event: LedgerEvent): event is HeldEvent {
  return 'lease' in event
}

export function isEndedEvent(event: LedgerEvent): event is EndedEvent {
  return 'ended' in event
}
