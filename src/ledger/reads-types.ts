/**
 * What can be asked of a network without writing to it: SQL on the projections and the log, past the loop and its lock,
 * each page at one head. `reads.ts` implements it. Null stands for a network that does not exist.
 */
import type { Cidr, IpAddress } from '../core/address.ts'
import type { Answer, Freshness, LeaseView, LookUp } from '../core/command.ts'
import type {
  Details,
  EventType,
  HoldCause,
  LeaseState,
  LedgerEvent,
  QuarantineReason,
} from '../core/event.ts'
import type { NetworkState, Sighting, SourceState } from '../core/image.ts'
import type { Labels, Owner } from '../core/owner.ts'
import type { Pool } from '../core/pool.ts'
import type { Verified } from './verify.ts'

/** The database did not answer, or said that it cannot now. Nothing is known to be wrong with the question. */
export class ReadsUnavailable extends Error {
  override readonly name = 'ReadsUnavailable'
}

export type Reads = {
  /** Whether there is a database, and what is wrong with it. */
  condition(): Promise<Condition>

  /** By name, those that the filter lets through. */
  networks(filter: NetworkFilter): Promise<readonly NetworkAt[]>
  network(name: string): Promise<NetworkAt | null>
  /** What a network that is RECOVERING waits for. */
  recovery(network: string): Promise<Recovery | null>
  /** In order of name, at most `limit`. */
  pools(network: string, filter: PoolFilter): Promise<PoolsAt | null>

  leaseByToken(network: string, token: number): Promise<LeaseFound | null>
  leaseAt(network: string, address: IpAddress): Promise<LeaseFound | null>
  leases(network: string, filter: LeaseFilter, page: PageByAddress): Promise<LeasePage | null>
  /** `found` is null when the id was never committed, or more than 24 h ago. */
  request(network: string, requestId: string): Promise<{ readonly found: RequestFound | null } | null>

  events(network: string, filter: EventFilter, page: PageOfLog): Promise<EventPage | null>
  addressHistory(network: string, cidr: Cidr, range: Range, page: PageOfLog): Promise<HistoryPage | null>
  /** Undefined: no lease has this token. */
  leaseHistory(network: string, token: number, page: PageOfLog): Promise<HistoryPage | undefined | null>
  leasesAsOf(network: string, moment: Moment, page: AsOfPage): Promise<LeasesAsOf | Beyond | null>
  explanation(network: string, address: IpAddress, moment: Moment): Promise<Explained | Beyond | null>
  /** Verifies for at most 5 s, one network at a time; whoever asks for the same network shares the answer. */
  verification(network: string): Promise<Verified | 'busy' | null>

  /** By id, at most `limit`. */
  sources(network: string, filter: SourceFilter): Promise<readonly SourceShown[] | null>
  /** By address, then source. */
  sightings(network: string, filter: SightingFilter, page: PageByText): Promise<SightingPage | null>
  /** How sources stand by their reports; absent: it has not reported. For the judge's dry run. */
  freshness(network: string): Promise<ReadonlyMap<string, Freshness>>
  /** Last answers about these addresses. */
  lookUps(network: string, addresses: readonly string[]): Promise<ReadonlyMap<string, readonly LookUp[]>>
  /** What waits for a person, or for an answer: the view `ipledger_audit.attention`. */
  attention(network: string, filter: AttentionFilter, page: PageByText): Promise<AttentionPage | null>
}

export type Condition = {
  /** Networks that are RECOVERING. */
  readonly recovering: number
  /** Networks with a hold. */
  readonly held: number
}

export type NetworkFilter = {
  readonly labels: Labels
  /** Only these; null: all. */
  readonly only: readonly string[] | null
  /** Last name of the page before. */
  readonly after: string | null
  readonly limit: number
}

export type NetworkAt = {
  readonly name: string
  readonly network: NetworkState
  readonly head: number
  /** Of the event `head`, in hexadecimal. */
  readonly digest: string
}

export type Recovery = {
  /** Enabled sources that are waited for in all. */
  readonly sources: number
  /** At most 20 of those that have not sent two counted reports in this era. */
  readonly unreported: readonly string[]
}

export type PoolFilter = {
  readonly name?: string
  readonly poolId?: number
  readonly labels?: Labels
  /** Only pools that overlap it. */
  readonly cidr?: Cidr | null
  readonly after?: string | null
  readonly limit: number
}

/** free + cooling + reserved + active + quarantined + (size - allocatable) = size. */
export type Usage = {
  readonly size: bigint
  readonly allocatable: bigint
  readonly free: bigint
  readonly cooling: bigint
  readonly reserved: bigint
  readonly active: bigint
  readonly quarantined: bigint
}

export type PoolUsage = { readonly pool: Pool; readonly usage: Usage }
export type PoolsAt = { readonly pools: readonly PoolUsage[]; readonly head: number }

/** `after`: last address of the page before. */
export type PageByAddress = { readonly after: string | null; readonly size: number }
/** `after`: `next` of the page before. Its text came from a caller, so it must be checked or bound as a parameter. */
export type PageByText = { readonly after: string | null; readonly size: number }

export type LeaseFilter = {
  readonly states: readonly LeaseState[]
  readonly quarantineReasons: readonly QuarantineReason[]
  readonly ownerKind: string | null
  readonly ownerName: string | null
  readonly ownerUid: string | null
  readonly node: string | null
  readonly labels: Labels
  readonly pools: readonly string[]
  readonly cidr: Cidr | null
}

export type LeasePage = {
  readonly leases: readonly LeaseView[]
  /** Where the next page goes on; null after the last one. */
  readonly next: string | null
  readonly head: number
  /** Pools named by the filter that do not exist. */
  readonly unknownPools: readonly string[]
}

export type LeaseFound =
  | { readonly is: 'held'; readonly lease: LeaseView; readonly head: number }
  | {
      readonly is: 'ended'
      readonly state: 'RELEASED' | 'REAPED'
      readonly address: string
      readonly endedAt: number
    }
  | { readonly is: 'unknown'; readonly head: number }

export type RequestFound = {
  readonly method: string
  readonly at: number
  readonly seq: number
  readonly answer: Answer
}

/** A page of what goes by number. */
export type PageOfLog = {
  readonly descending: boolean
  readonly size: number
  /** Number at which the page before ended; null: the first page. */
  readonly position: number | null
}

/** All bounds are meant at once. Numbers are exclusive, times (milliseconds) inclusive. */
export type Range = {
  readonly afterSeq: number
  readonly beforeSeq: number | null
  readonly from: number | null
  readonly to: number | null
}

export type EventFilter = Range & {
  /** Only about the lease or block that contains it. */
  readonly address: IpAddress | null
  /** Only about leases that overlap it. */
  readonly cidr: Cidr | null
  readonly ownerKind: string | null
  readonly ownerName: string | null
  readonly token: number | null
  /** Empty: all but `source.*`. */
  readonly types: readonly EventType[]
}

/** Of an event about a lease, the pool as it is now; empty texts when it is gone. */
export type Face = { readonly pool: string; readonly subnet: string; readonly gateway: string }
export type EventShown = { readonly event: LedgerEvent; readonly face: Face }
export type EventPage = {
  readonly events: readonly EventShown[]
  /** Number at which the next page goes on; null after the last one. */
  readonly next: number | null
  readonly head: number
}

/** `what`: the sentence of `ipledger_audit.event`. */
export type HistoryEntry = EventShown & { readonly what: string }

export type HeldState = {
  readonly state: LeaseState
  readonly reason: QuarantineReason | null
  readonly seq: number
  readonly at: number
}

/** The span over which a lease was held. */
export type Holder = {
  readonly leaseId: string
  readonly address: string
  readonly prefixLength: number
  readonly face: Face
  readonly owner: Owner | null
  readonly node: string
  readonly labels: Labels
  /** `as`: type and cause, `lease.reserved/Reserve`. */
  readonly from: {
    readonly seq: number
    readonly at: number
    readonly as: string
    readonly actor: string
  }
  /** Null: it is held still. */
  readonly until: { readonly seq: number; readonly at: number; readonly as: string } | null
  readonly availableAt: number | null
  /** Oldest first; of a lease that changed more than 100 times, the newest. */
  readonly states: readonly HeldState[]
}

export type HistoryPage = {
  readonly entries: readonly HistoryEntry[]
  /** Whoever held while the numbers of this page passed, oldest first. */
  readonly holders: readonly Holder[]
  readonly next: number | null
  readonly head: number
}

/** A number, or a time of which the last event counts. Both null: now. */
export type Moment = { readonly seq: number | null; readonly at: number | null }
/** The number is beyond the head. */
export type Beyond = { readonly beyond: number }

export type AsOfPage = {
  /** Only leases of the pool that has this name now. */
  readonly pool: string | null
  readonly after: string | null
  readonly size: number
}

export type LeasesAsOf = {
  /** As they were; what their pool is called and offers now. */
  readonly leases: readonly LeaseView[]
  readonly next: string | null
  readonly seq: number
  /** Null: before the first event. */
  readonly at: number | null
  readonly head: number
  /** There is no pool of this name, and never was. */
  readonly poolUnknown: boolean
}

export type Explained = {
  readonly answer: string
  /** FREE, COOLING, RESERVED, ACTIVE, QUARANTINED, EXCLUDED, OUTSIDE. */
  readonly state: string
  readonly seq: number
  readonly at: number | null
  readonly evidence: Details
  readonly steps: readonly Step[]
  readonly head: number
}

export type Step = {
  readonly seq: number
  readonly at: number
  readonly what: string
  readonly evidence: Details | null
}

export type SourceFilter = {
  readonly id: string | null
  readonly node: string | null
  /** Empty: all. */
  readonly states: readonly SourceState['state'][]
  readonly after: string | null
  readonly limit: number
}

export type SourceShown = { readonly source: SourceState; readonly freshness: Freshness | null }

export type SightingFilter = {
  readonly source: string | null
  /** Only at this address; inside a block that is leased as one, at its addresses. */
  readonly address: IpAddress | null
  /** Also those that vanished, as far as they are kept. */
  readonly vanished: boolean
}

/** With the times of the events that it names. */
export type SightingShown = Sighting & { readonly appearedAt: number; readonly vanishedAt: number | null }

export type SightingPage = { readonly sightings: readonly SightingShown[]; readonly next: string | null }

export const ATTENTION_CODES = [
  'NETWORK_RECOVERING',
  'HELD',
  'SOURCE_SILENT',
  'SOURCE_COLD',
  'SOURCE_PARTIAL',
  'LOOKUP_FAILING',
  'OPERATOR_ONLY',
  'NO_WITNESS',
  'BOOKS_DIFFER',
] as const
export type AttentionCode = (typeof ATTENTION_CODES)[number]

export type AttentionFilter = { readonly codes: readonly AttentionCode[] }

export type Attention = {
  readonly code: AttentionCode
  readonly since: number
  /** Empty here and below: it is not about one. */
  readonly source: string
  readonly address: string
  readonly leaseId: string
  /** What it waits for, and what ends the wait. */
  readonly text: string
}

export type AttentionPage = { readonly items: readonly Attention[]; readonly next: string | null }

/** Holds in force, as GetNetwork and ResumeHold answer them. */
export function holdsOf({ holds }: Pick<NetworkState, 'holds'>) {
  return (Object.keys(holds) as HoldCause[])
    .map((cause) => ({ cause, ...holds[cause]! }))
    .sort((a, b) => a.seq - b.seq)
}
