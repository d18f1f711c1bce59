import type { LeaseState, QuarantineReason } from './lease.ts'
import type { NetworkSettings } from './network.ts'
import type { Labels, Owner, Placement } from './owner.ts'
import type { PoolInput, PoolOptions } from './pool.ts'

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
export type CreateNetwork = Envelope & { readonly type: 'createNetwork'; readonly settings: NetworkSettings }
export type UpdateNetwork = Envelope & {
  readonly type: 'updateNetwork'
  readonly description: string | null
  readonly labels: Labels | null
}
export type EndRecovery = Envelope & { readonly type: 'endRecovery'; readonly why: string }
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
/** These change what other commands rest on, so they make a batch of their own. */
export type ShapeCommand = CreateNetwork | UpdateNetwork | EndRecovery | CreatePool | UpdatePool | DeletePool
export type Command = LeaseCommand | ShapeCommand
export type CommandType = Command['type']

export function isShapeCommand(command: Command): command is ShapeCommand {
  switch (command.type) {
    case 'createNetwork':
    case 'updateNetwork':
    case 'endRecovery':
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

/** What an accepted command answers. `items` belongs to AllOrNothing. */
export type Answer = {
  readonly leases: readonly LeaseView[]
  readonly poolId?: number
  readonly items?: readonly Answer[]
}
