/**
 * What may be asked of a network. Commands arrive valid in shape (lengths, characters and limits are the API's business);
 * what depends on the state of the network is decided. `Known` is what the image lacks and the loop reads for a batch.
 */
import type {
  AddressRecord,
  Entry,
  HoldCause,
  LeaseState,
  NetworkSettings,
  Quarantine,
  SourceDeclaration,
} from './event.ts'
import type { NetworkState, SourceState } from './image.ts'
import type { Labels, Owner } from './owner.ts'
import type { ReapPolicy } from './policy.ts'
import type { Liveness, PoolInput, PoolOptions, PoolSettings } from './pool.ts'

export type Actor = {
  readonly name: string
  /** A token bound to a node acts on leases placed there only. */
  readonly node: string | null
}

type Envelope = {
  readonly network: string
  readonly actor: Actor
  /** The event's cause: the RPC's name, or a job's finding. */
  readonly cause: string
  readonly requestId: string | null
  /** Digest of the request's content; the same id with another is REQUEST_ID_REUSED. */
  readonly fingerprint: string | null
  readonly traceId: string | null
}

export type Claim = {
  /** Names in order of preference; empty stands for the default pool of each family. */
  readonly pools: readonly string[]
  readonly address: string | null
  readonly preferPrevious: boolean
}

export type Reserve = Envelope & {
  readonly type: 'reserve'
  readonly owner: Owner
  readonly node: string
  readonly labels: Labels
  readonly claims: readonly Claim[]
  /** Canonical addresses that the caller sees in use. */
  readonly liveAddresses: readonly string[]
  readonly confirmWithinMs: number | null
  readonly confirmed: boolean
  readonly validateOnly: boolean
}

/** A lease by its token, or all leases of an attachment. An owner beside a token must match. */
export type LeaseReference =
  | { readonly token: number; readonly owner: Owner | null }
  | { readonly token: null; readonly owner: Owner }

export type Confirm = Envelope & { readonly type: 'confirm'; readonly lease: LeaseReference }
export type Release = Envelope & {
  readonly type: 'release'
  readonly lease: LeaseReference
  readonly removalConfirmed: boolean
}
/** Several commands that hold all or nothing. */
export type AllOrNothing = Envelope & {
  readonly type: 'allOrNothing'
  readonly items: readonly (Reserve | Confirm | Release)[]
}
export type QuarantineAddress = Envelope & {
  readonly type: 'quarantine'
  readonly target: { readonly token: number } | { readonly address: string }
  readonly why: string
}
export type Reap = Envelope & {
  readonly type: 'reap'
  readonly token: number
  readonly version: number
  readonly why: string
}
/** An operator's word that a node is gone for good: ends what is placed there up to `head`. */
export type ReapNode = Envelope & {
  readonly type: 'reapNode'
  readonly node: string
  readonly head: number
  readonly why: string
}
export type UpdateLabels = Envelope & {
  readonly type: 'updateLabels'
  readonly token: number
  readonly version: number | null
  readonly labels: Labels
}

/** A job's finding that a promise was broken. */
export type Expire = Envelope & { readonly type: 'expire'; readonly token: number; readonly version: number }
/** The judge's finding that nothing uses the lease; it is judged again in full. */
export type ReapProven = Envelope & {
  readonly type: 'reapProven'
  readonly token: number
  readonly version: number
}
/** Listed addresses that may be free, or held by another: looked at again. */
export type Recheck = Envelope & { readonly type: 'recheck'; readonly addresses: readonly string[] }

export type CreateNetwork = Envelope & { readonly type: 'createNetwork'; readonly settings: NetworkSettings }
export type UpdateNetwork = Envelope & {
  readonly type: 'updateNetwork'
  readonly version: number | null
  readonly description: string | null
  readonly labels: Labels | null
  /** After a failover that lost nothing: the life of the database that goes on. */
  readonly identity?: string
}
export type EndRecovery = Envelope & { readonly type: 'endRecovery'; readonly why: string }
/** The log is not the one that was written: restored, or failed over without its last commits (calico#4374, patroni#1894). */
export type BeginEra = Envelope & {
  readonly type: 'beginEra'
  /** The greatest number known to anybody; the new era is above it. */
  readonly above: number
  /** False where the deployment declares that a failover loses no commit. */
  readonly recovering: boolean
  readonly why: string
}
export type Hold = Envelope & {
  readonly type: 'hold'
  readonly hold: HoldCause
  readonly why: string
  /** CLOCK: how far the clock was stepped forward. */
  readonly stepMs?: number
}
export type ResumeHold = Envelope & {
  readonly type: 'resumeHold'
  /** Null: all of them. */
  readonly hold: HoldCause | null
  readonly why: string
}
export type CreatePool = Envelope & { readonly type: 'createPool'; readonly pool: PoolInput }
/** Only what is present changes; null clears. */
export type PoolChange = {
  readonly name?: string
  readonly cidr?: string
  readonly subnet?: string
  readonly gateway?: string | null
  readonly exclude?: readonly string[]
  readonly cooldownMs?: number
  readonly confirmWithinMs?: number | null
  readonly liveness?: Liveness
  readonly ownerLimit?: number
  readonly isDefault?: boolean
  readonly draining?: boolean
  readonly options?: PoolOptions
  readonly labels?: Labels
  /** What is absent in it stays; null: everything as by default. */
  readonly reapPolicy?: Partial<ReapPolicy> | null
}
export type UpdatePool = Envelope & {
  readonly type: 'updatePool'
  readonly name: string
  readonly version: number | null
  readonly change: PoolChange
}
export type DeletePool = Envelope & {
  readonly type: 'deletePool'
  readonly name: string
  readonly version: number | null
}

export type RegisterSource = Envelope & {
  readonly type: 'registerSource'
  readonly declaration: SourceDeclaration
}
export type EnableSource = Envelope & { readonly type: 'enableSource'; readonly id: string }
export type RetireSource = Envelope & { readonly type: 'retireSource'; readonly id: string }

/**
 * A slice of a report: at most 1,000 entries that are news, or vanished ones. Only the last one counts the report and
 * advances its sequence.
 */
export type Report = Envelope & {
  readonly type: 'report'
  readonly source: string
  readonly epoch: string
  readonly sequence: number
  /** What the report was begun at: number of the log, and time. */
  readonly head: number
  readonly begunAt: number
  /** Everything that the source declares to see is in it. */
  readonly complete: boolean
  /** Why it is not complete: stable codes. */
  readonly because: readonly string[]
  readonly entries: readonly Entry[]
  /** Listed until now and not in the report. */
  readonly vanished: readonly Entry[]
  /** `after`: the report before, which a list that is said to be unchanged, or was compared, must follow. */
  readonly last: { readonly entries: number; readonly digest: string; readonly after: number } | null
}

export type ShapeCommand =
  | CreateNetwork
  | UpdateNetwork
  | EndRecovery
  | BeginEra
  | Hold
  | ResumeHold
  | CreatePool
  | UpdatePool
  | DeletePool
export type SourceCommand = RegisterSource | EnableSource | RetireSource | Report | Recheck
export type LeaseCommand =
  | Reserve
  | Confirm
  | Release
  | AllOrNothing
  | QuarantineAddress
  | Reap
  | ReapNode
  | UpdateLabels
  | Expire
  | ReapProven
export type Command = LeaseCommand | SourceCommand | ShapeCommand

// What the image lacks.

/** A report that counted. */
export type Counted = { readonly sequence: number; readonly head: number; readonly at: number }

/** How a source stands by its reports: a row of `source_report`. */
export type Freshness = {
  readonly source: string
  readonly epoch: string
  readonly era: number
  /** Two complete reports of this epoch, the second with no more entries than the first (cilium#9888). */
  readonly warm: boolean
  /** Of the last report in order. */
  readonly sequence: number
  readonly digest: string
  readonly entries: number
  /** The last of them, newest last. */
  readonly counted: readonly Counted[]
  readonly countedTotal: number
  readonly reportedAt: number
  readonly completeAt: number | null
  readonly completeHead: number | null
  readonly partialSince: number | null
  readonly partialBecause: readonly string[]
}

/** The last answer of a source about a workload at an address. */
export type LookUp = {
  readonly source: string
  readonly address: string
  readonly owner: { readonly kind: string; readonly name: string; readonly uid: string }
  /** `wanted`: asked, and not answered yet. */
  readonly answer: 'wanted' | 'live' | 'terminal' | 'gone' | 'unknown' | 'error'
  readonly terminalSince: number | null
  readonly detail: string
  /** Head of the log when it was asked. */
  readonly head: number
  readonly askedAt: number
  readonly attempts: number
}

export type Remembered = {
  readonly fingerprint: string
  readonly method: string
  readonly answer: Answer
}

/** A lease that has ended and whose address went on to another: what it was last. */
export type Ended = AddressRecord

export type Needs = {
  readonly requests: readonly string[]
  readonly tokens: readonly number[]
  /** Owners whose last endings a repeated Release asks for. */
  readonly owners: readonly Owner[]
  /** Sources whose freshness is needed. */
  readonly sources: readonly string[]
  /** Addresses whose look-ups are needed. */
  readonly lookUps: readonly string[]
}

/** Has an entry for whatever was asked. */
export type Known = {
  /** Life of the database. */
  readonly identity: string
  readonly requests: ReadonlyMap<string, Remembered>
  /** Null: no lease of this token has ended. */
  readonly endedByToken: ReadonlyMap<number, Ended | null>
  /** By attachment key. */
  readonly endedByOwner: ReadonlyMap<string, readonly Ended[]>
  /** Null: the source has not reported. */
  readonly freshness: ReadonlyMap<string, Freshness | null>
  /** By address. */
  readonly lookUps: ReadonlyMap<string, readonly LookUp[]>
}

// What comes out.

/** A lease as callers see it: the same shape from Reserve, Get and List, and in remembered answers. Plain JSON. */
export type LeaseView = {
  readonly leaseId: string
  readonly network: string
  readonly poolId: number
  readonly pool: string
  readonly address: string
  readonly prefixLength: number
  readonly subnet: string
  readonly gateway: string
  readonly options: PoolOptions
  /** RELEASED and REAPED: it has ended. */
  readonly state: LeaseState | 'RELEASED' | 'REAPED'
  readonly quarantine: Quarantine | null
  readonly version: number
  readonly fencingToken: number
  readonly owner: Owner | null
  readonly node: string
  readonly labels: Labels
  readonly reservedAt: number
  readonly confirmedAt: number | null
  readonly confirmBy: number | null
  readonly endedAt: number | null
  readonly availableAt: number | null
  readonly reused: boolean
}

export type PoolView = {
  readonly poolId: number
  readonly version: number
  readonly createdAt: number
  readonly updatedAt: number
  readonly settings: PoolSettings
}

/** How a report was taken. */
export type Taken = {
  readonly complete: boolean
  /** What it does not list was missed. */
  readonly counted: boolean
  /** Why it did neither: stable codes. */
  readonly because: readonly string[]
  readonly appeared: number
  readonly vanished: number
}

/** What an accepted command answers; remembered, and said again to whoever repeats the request. Plain JSON. */
export type Answer = {
  readonly leases: readonly LeaseView[]
  readonly pool?: PoolView
  readonly network?: { readonly name: string; readonly network: NetworkState; readonly head: number }
  readonly source?: SourceState
  /** RetireSource: leases that lose their last witness, and free addresses that only it listed. */
  readonly unwitnessed?: number
  readonly unlisted?: number
  readonly report?: Taken
  readonly items?: readonly Answer[]
}
