/**
 * Facts of a network's log, in the past tense. An event about an address carries the full state of the address after it,
 * so the last event of an address says all there is to know about it, and the image is the fold of the log.
 */
import type { Labels, Owner } from './owner.ts'
import type { PoolSettings } from './pool.ts'

export const QUARANTINE_REASONS = [
  'SUPERSEDED',
  'REMOVAL_UNCONFIRMED',
  'CONFLICT',
  'OPERATOR',
  'RELEASED_BUT_LIVE',
  'FOREIGN',
  'IN_USE',
] as const
export type QuarantineReason = (typeof QUARANTINE_REASONS)[number]

export type LeaseState = 'RESERVED' | 'ACTIVE' | 'QUARANTINED'

export type Quarantine = {
  readonly reason: QuarantineReason
  readonly at: number
  /** The actor whose command quarantined it, or the source that saw it. */
  readonly by: string
  /** The node that this actor's token is bound to, or that this source sees; empty: none. It counts against the node's limit. */
  readonly node: string
  readonly why: string
}

/** What the caller of Reserve sets on a lease beside its owner. */
export type LeaseSettings = { readonly node: string; readonly labels: Labels }

/** What an address is after its last event: held as one lease, or free again. Immutable. */
export type AddressRecord = LeaseSettings & {
  /** Canonical text of the address, or of the first address of the block. */
  readonly address: string
  readonly prefixLength: number
  /** The pool it was leased from; of a FREE address, the pool it was last leased from. */
  readonly poolId: number
  readonly state: LeaseState | 'FREE'
  /** Number of the last event about the address: the version of its lease. */
  readonly seq: number
  readonly at: number
  /** Number of the event that made the lease, of a FREE address its last one: the fencing token. */
  readonly token: number
  /** Null only in a quarantine without an owner, and FREE after it. */
  readonly owner: Owner | null
  readonly reservedAt: number
  readonly confirmedAt: number | null
  readonly confirmBy: number | null
  /** Only of QUARANTINED, and kept when that lease ended. */
  readonly quarantine: Quarantine | null
  /** Only of FREE: cooling until then. */
  readonly availableAt: number | null
  /** Only of FREE: RELEASED by its owner, or REAPED. */
  readonly ended: 'RELEASED' | 'REAPED' | null
}

/** A new lease begins as this. */
export const BLANK: AddressRecord = {
  address: '',
  prefixLength: 0,
  poolId: 0,
  state: 'RESERVED',
  seq: 0,
  at: 0,
  token: 0,
  owner: null,
  node: '',
  labels: {},
  reservedAt: 0,
  confirmedAt: null,
  confirmBy: null,
  quarantine: null,
  availableAt: null,
  ended: null,
}

type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }
export type Details = { readonly [key: string]: Json }

export type EventHeader = {
  readonly seq: number
  /** The ledger's clock: the database's, never before the event before it; milliseconds since 1970. */
  readonly at: number
  readonly actor: string
  readonly cause: string
  readonly requestId: string | null
  readonly traceId: string | null
}

/** Each type of event, and the table that it changes. Closings are in the log only. */
export const EVENT_TABLES = {
  'network.created': 'network',
  'network.updated': 'network',
  'era.begun': 'network',
  'recovery.extended': 'network',
  'recovery.ended': 'network',
  'pool.created': 'pool',
  'pool.updated': 'pool',
  'pool.deleted': 'pool',
  'lease.reserved': 'lease',
  'lease.confirmed': 'lease',
  'lease.updated': 'lease',
  'lease.released': 'lease',
  'lease.quarantined': 'lease',
  'lease.reaped': 'lease',
  'lease.adopted': 'lease',
  'attachment.closed': null,
  'source.registered': 'source',
  'source.enabled': 'source',
  'source.retired': 'source',
  'source.reported': 'source',
  'reconcile.held': 'network',
  'reconcile.resumed': 'network',
} as const
export type EventType = keyof typeof EVENT_TABLES
export const EVENT_TYPES = Object.keys(EVENT_TABLES) as readonly EventType[]
export type LeaseEventType = Extract<EventType, `lease.${string}`>

export type NetworkSettings = { readonly description: string; readonly labels: Labels }

/** push: it reports. ipledger polls the others. */
export type SourceKind = 'push' | 'docker' | 'kubernetes' | 'http'

/** Its silence says nothing of what it does not declare to see (calico#5044). */
export type SourceDeclaration = {
  readonly id: string
  readonly kind: SourceKind
  /** The node it sees; empty: the whole network. */
  readonly node: string
  readonly ownerKinds: readonly string[]
  readonly families: readonly (4 | 6)[]
  readonly intervalMs: number
  /** Of a source that is polled: where and how, as its kind reads it. Never a secret. */
  readonly settings: Details
}

/** The state of a workload that has ended and is still listed; every other state means alive. */
export const TERMINAL = 'terminal'

/** What a source lists at an address. Empty fields are left out, so that logs stay small. */
export type Entry = {
  readonly address: string
  /** Absent: in use by an unknown owner. Then the other fields of the owner are absent as well. */
  readonly kind?: string
  readonly name?: string
  readonly uid?: string
  readonly incarnation?: string
  /** Absent: not known. */
  readonly interface?: string
  readonly node?: string
  readonly state?: string
  /** Of what is listed live no more: only this attachment gets the address before. */
  readonly restsUntil?: number
}

export type HoldCause = 'CLOCK' | 'TOO_MANY_REAPS' | 'SOURCE_AHEAD'

export type LedgerEvent = EventHeader &
  (
    | {
        readonly type: LeaseEventType
        readonly record: AddressRecord
        /** Number of the address's event before this one; 0: this is its first. */
        readonly previous: number
        readonly details: Details | null
      }
    | {
        readonly type: 'network.created' | 'network.updated'
        /** `identity` is the life of the database that wrote it. */
        readonly details: NetworkSettings & { readonly closed: boolean; readonly identity: string }
      }
    | {
        readonly type: 'era.begun'
        readonly details: {
          readonly era: number
          readonly recovering: boolean
          readonly identity: string
          readonly after: number
          readonly why: string
        }
      }
    | {
        /** A source that is not registered has called: it was registered after the dump that this log is of. */
        readonly type: 'recovery.extended'
        /** `node`: of its caller's token; empty: none. */
        readonly details: { readonly source: string; readonly node: string }
      }
    | { readonly type: 'recovery.ended'; readonly details: { readonly why: string } }
    | {
        readonly type: 'pool.created' | 'pool.updated' | 'pool.deleted'
        readonly poolId: number
        /** After the event; of a deleted pool, as it was last. */
        readonly details: PoolSettings
      }
    | {
        readonly type: 'attachment.closed'
        readonly owner: Owner
        /** That the caller's token is bound to: the attachment is closed there. Empty: everywhere. */
        readonly node: string
      }
    | { readonly type: 'source.registered'; readonly details: SourceDeclaration }
    | { readonly type: 'source.enabled' | 'source.retired'; readonly details: { readonly id: string } }
    | {
        /** What a report changed of what its source lists. An unchanged report leaves no event. */
        readonly type: 'source.reported'
        readonly details: {
          readonly source: string
          readonly epoch: string
          readonly sequence: number
          readonly head: number
          /** Listed now: new, or changed between alive and ended. */
          readonly appeared: readonly Entry[]
          readonly vanished: readonly Entry[]
          readonly opened?: true
          /** An operator's Reap of the node ended the epoch and what it listed. */
          readonly closed?: true
        }
      }
    | {
        readonly type: 'reconcile.held'
        readonly details: {
          readonly hold: HoldCause
          readonly why: string
          /** CLOCK: addresses that cooled beyond this cool on, and the hold ends by itself at `until`. */
          readonly before?: number
          readonly until?: number
          /** SOURCE_AHEAD: the number that was proven; the next era begins above it. */
          readonly number?: number
        }
      }
    | {
        readonly type: 'reconcile.resumed'
        readonly details: { readonly holds: readonly HoldCause[]; readonly why: string }
      }
  )

export type EventOf<T extends EventType> = Extract<LedgerEvent, { readonly type: T }>
export type LeaseEvent = EventOf<LeaseEventType>
/** Events that change a table. */
export type EventIn<T extends string> = EventOf<
  { [E in EventType]: (typeof EVENT_TABLES)[E] extends T ? E : never }[EventType]
>

export function leaseId(network: string, token: number): string {
  return `${network}/${token}`
}
