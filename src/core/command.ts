import type { Proof } from './judge.ts'
import type { LeaseState, QuarantineReason } from './lease.ts'
import type { Network, NetworkSettings } from './network.ts'
import type { Labels, Owner, Placement } from './owner.ts'
import type { ReapPolicy } from './policy.ts'
import type { PoolInput, PoolOptions, PoolSettings } from './pool.ts'

/**
 * What may be asked of a network's ledger, in the imperative. Commands arrive validated in shape (lengths,
 * characters, limits are the API's business); what depends on the books is decided in `decide.ts`.
 */
export type Actor = {
  readonly name: string
  /** A token bound to a node may touch only leases placed there. */
  readonly node: string | null
}

type Envelope = {
  readonly network: string
  readonly actor: Actor
  /** What this is for, stored as the event's cause: the RPC's name, or a job's. */
  readonly cause: string
  readonly requestId: string | null
  /** Digest of the request's content; the same id with another digest is REQUEST_ID_REUSED. */
  readonly fingerprint: string | null
  readonly traceId: string | null
}

export type Claim = {
  /** Names in order of preference; empty stands for the default pool of each family. */
  readonly pools: readonly string[]
  readonly address: string | null
  readonly preferPrevious: boolean
}

export type Supersedes = {
  readonly uid: string | null
  readonly incarnation: string | null
  readonly removalConfirmed: boolean
}

export type Reserve = Envelope & {
  readonly type: 'reserve'
  readonly owner: Owner
  readonly placement: Placement
  readonly claims: readonly Claim[]
  /** Canonical addresses its caller sees in use. */
  readonly liveAddresses: readonly string[]
  readonly confirmWithinMs: number | null
  readonly confirmed: boolean
  readonly supersedes: Supersedes | null
  readonly reopen: boolean
  readonly witness: string
  readonly validateOnly: boolean
}

/** Several commands of one kind that hold all or nothing. */
export type AllOrNothing = Envelope & {
  readonly type: 'allOrNothing'
  readonly items: readonly (Reserve | Confirm | Release)[]
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
/** A job's question: is this reservation past its deadline and grace? */
export type Expire = Envelope & { readonly type: 'expire'; readonly token: number; readonly version: number }
export type UpdateLabels = Envelope & {
  readonly type: 'updateLabels'
  readonly token: number
  readonly version: number | null
  readonly labels: Labels
}
/** A source's word for a workload that has ended and is listed all the same; every other word, known or not, is alive. */
export const TERMINAL = 'terminal'

/** What a source lists at an address, in canonical form. */
export type SightedEntry = {
  readonly address: string
  /** Null: in use, and whose it is is not known. An interface that was not told is empty. */
  readonly owner: Owner | null
  readonly node: string
  readonly boot: string
  readonly state: string
}

/** What a source lists that the books do not say: at once, row by row of DESIGN §3. */
export type Sight = Envelope & {
  readonly type: 'sight'
  readonly source: string
  readonly epoch: string
  /** Of the snapshot that the entries were read from. What counts is what the source lists under the lock. */
  readonly sequence: number
  readonly begunAt: number
  /** Answers what it would come to, and leaves no trace; so it is with a source that is not enabled. */
  readonly dryRun: boolean
  readonly entries: readonly SightedEntry[]
}
/** The judge's verdict that nothing uses the lease, to be looked at a second time under the lock. */
export type ReapProven = Envelope & {
  readonly type: 'reapProven'
  readonly token: number
  readonly version: number
  readonly proof: Proof
}
/** The judge's verdict that only its owner is left in a quarantine. */
export type Restore = Envelope & {
  readonly type: 'restore'
  readonly token: number
  readonly version: number
  readonly proof: Proof
}
export type ResumeHold = Envelope & {
  readonly type: 'resumeHold'
  /** Null: the hold of the whole network. */
  readonly source: string | null
  readonly why: string
}
/** Somebody answers for it that a node's boot is gone for good (spiderpool#2967). */
export type FenceNode = Envelope & {
  readonly type: 'fenceNode'
  readonly node: string
  readonly boot: string
  /** Up to which number the caller had seen the ledger; null: up to the statement. */
  readonly head: number | null
  readonly why: string
}
export type CreateNetwork = Envelope & { readonly type: 'createNetwork'; readonly settings: NetworkSettings }
export type UpdateNetwork = Envelope & {
  readonly type: 'updateNetwork'
  readonly version: number | null
  readonly description: string | null
  readonly labels: Labels | null
}
export type EndRecovery = Envelope & {
  readonly type: 'endRecovery'
  readonly why: string
  /** A job's word that every enabled source has reported in this era; absent: an operator's word. */
  readonly observed?: true
}
/** The database is older than itself: restored, or failed over without its last commits (calico#4374, patroni#1894). */
export type BeginEra = Envelope & {
  readonly type: 'beginEra'
  readonly era: number
  /** False where the deployment declares that no commit is ever lost. */
  readonly recovering: boolean
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
  readonly liveness?: 'AVAILABLE' | 'STRICT'
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

export type LeaseCommand =
  | Reserve
  | AllOrNothing
  | Confirm
  | Release
  | QuarantineAddress
  | Reap
  | Expire
  | UpdateLabels
/** What follows from what sources say, and what people say of that. */
export type FindingCommand = Sight | ReapProven | Restore | ResumeHold | FenceNode
/** These change what other commands rest on, so they make a batch of their own. */
export type ShapeCommand =
  | CreateNetwork
  | UpdateNetwork
  | EndRecovery
  | BeginEra
  | CreatePool
  | UpdatePool
  | DeletePool
export type Command = LeaseCommand | FindingCommand | ShapeCommand

export function isShapeCommand(command: Command): command is ShapeCommand {
  switch (command.type) {
    case 'createNetwork':
    case 'updateNetwork':
    case 'endRecovery':
    case 'beginEra':
    case 'createPool':
    case 'updatePool':
    case 'deletePool':
      return true
    default:
      return false
  }
}

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
  /** RELEASED and REAPED only in answers about leases that ended. */
  readonly state: LeaseState | 'RELEASED' | 'REAPED'
  readonly quarantine: {
    readonly reason: QuarantineReason
    readonly at: number
    readonly by: string
    readonly why: string
  } | null
  readonly version: number
  readonly fencingToken: number
  readonly owner: Owner | null
  readonly placement: Placement
  readonly witness: string
  readonly reservedAt: number
  readonly confirmedAt: number | null
  readonly confirmBy: number | null
  readonly endedAt: number | null
  readonly availableAt: number | null
  readonly reused: boolean
}

/** What became of one sighting, or why nothing did. */
export type Finding = {
  /** As the source lists it. */
  readonly address: string
  readonly because:
    | 'CONFIRMED'
    | 'ADOPTED'
    | QuarantineReason
    /** The books say so already, or hold it for a reason that a sighting does not end. */
    | 'AS_BOOKED'
    | 'TERMINAL'
    /** In no pool; it is remembered for the pool that may be made there. */
    | 'OUTSIDE'
    /** On a gateway or an exclusion: an anomaly, and no change of the pool. */
    | 'EXCLUDED'
    | 'SET_ASIDE'
    /** Not any more: what was listed when the job began is gone from the list. */
    | 'LISTED_NO_MORE'
    /** Nothing proves at which head it was seen. */
    | 'NOT_PROVEN'
    | 'OLDER_THAN_THE_BOOKS'
    /** Seen before its node's boot was fenced. */
    | 'FENCED'
    /** Not recorded, and not handed out either. */
    | 'CAPPED'
}

/** A pool as a command left it, or as it was before it was deleted: what it is follows from its settings. Plain JSON. */
export type PoolView = {
  readonly network: string
  readonly poolId: number
  readonly version: number
  readonly createdAt: number
  readonly updatedAt: number
  readonly settings: PoolSettings
}

/** A network as a command left it, and the number of its last event. Plain JSON. */
export type NetworkView = { readonly network: Network; readonly head: number }

/**
 * What an accepted command answers; it is remembered, and said again to whoever repeats the request. `items` belongs to
 * AllOrNothing, `findings` to Sight, one an entry; `pool` and `network` to the commands about them.
 */
export type Answer = {
  readonly leases: readonly LeaseView[]
  readonly poolId?: number
  readonly pool?: PoolView
  readonly network?: NetworkView
  readonly items?: readonly Answer[]
  readonly findings?: readonly Finding[]
}
