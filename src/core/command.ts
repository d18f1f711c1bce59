/**
 * The commands of a network. They arrive valid in shape (the API checks lengths, characters and limits);
 * what depends on the state of the network is decided. `Known` is what the image lacks and the loop reads for a batch.
 */
import type {
  AddressRecord,
  Entry,
  HoldCause,
  LeaseSettings,
  LeaseState,
  NetworkSettings,
  SourceDeclaration,
} from './event.ts'
import type { NetworkState, SourceState } from './image.ts'
import type { Labels, Owner } from './owner.ts'
import type { ReapPolicy } from './policy.ts'
import type { Pool, PoolInput, PoolSettings } from './pool.ts'
import type { Refusal } from './refusal.ts'

export type Actor = {
  readonly name: string
  /** The node that its token is bound to: it acts on what is placed there only. Null: none. */
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

/** The fields that a command of ipledger's own has in common with the others. */
export const ownCommand = (network: string, name: string, cause: string) => ({
  network,
  actor: { name, node: null },
  cause,
  requestId: null,
  fingerprint: null,
  traceId: null,
})

export type Claim = {
  /** Names in order of preference; empty: the default pool of each family. */
  readonly pools: readonly string[]
  readonly address: string | null
  readonly preferPrevious: boolean
}

/** A lease by its token, or all leases of an attachment. An owner beside a token must match. */
export type LeaseReference =
  | { readonly token: number; readonly owner: Owner | null }
  | { readonly token: null; readonly owner: Owner }

type Judged = { readonly token: number; readonly version: number }

export type PoolChange = Partial<Omit<PoolSettings, 'prefixLength' | 'reapPolicy'>> & {
  readonly reapPolicy?: Partial<ReapPolicy>
}

type Bodies = {
  readonly reserve: {
    readonly owner: Owner
    /** Those that are left out are as in `BLANK`. */
    readonly settings: Pick<LeaseSettings, 'node'> & Partial<LeaseSettings>
    readonly claims: readonly Claim[]
    readonly liveAddresses: readonly string[]
    readonly confirmWithinMs: number | null
    readonly confirmed: boolean
  }
  readonly confirm: { readonly lease: LeaseReference }
  readonly release: {
    readonly lease: LeaseReference
    /** IN_USE_BY_ANOTHER: another host answers for the address. */
    readonly removal: 'CONFIRMED' | 'UNCONFIRMED' | 'IN_USE_BY_ANOTHER'
  }
  readonly allOrNothing: { readonly items: readonly Command<'reserve' | 'confirm' | 'release'>[] }
  /** Decided in order, each as if alone, and undone: nothing is written or remembered. */
  readonly dryRun: { readonly items: readonly Command[] }
  readonly quarantine: {
    readonly target: { readonly token: number } | { readonly address: string }
    readonly why: string
  }
  readonly reap: Judged & { readonly why: string }
  /** An operator says that a node is gone for good: ends what is placed there up to `head`. */
  readonly reapNode: { readonly node: string; readonly head: number; readonly why: string }
  readonly updateLabels: { readonly token: number; readonly version: number | null; readonly labels: Labels }

  readonly expire: Judged
  /** The judge's finding that nothing uses the lease; it is judged again in full. */
  readonly reapProven: Judged
  /** Listed addresses that may be free, or held by another: looked at again. */
  readonly recheck: { readonly addresses: readonly string[] }

  readonly createNetwork: { readonly settings: NetworkSettings }
  readonly updateNetwork: {
    readonly version: number | null
    readonly description: string | null
    readonly labels: Labels | null
    readonly closed?: boolean | undefined
    /** After a failover that lost nothing: the life of the database that goes on. */
    readonly identity?: string
  }
  readonly endRecovery: { readonly why: string }
  /** The log is not the one that was written: restored, or failed over without its last commits (calico#4374, patroni#1894). */
  readonly beginEra: {
    /** The greatest number known to anybody; the new era is above it. */
    readonly above: number
    /** False where the deployment declares that a failover loses no commit. */
    readonly recovering: boolean
    readonly why: string
  }
  readonly hold: {
    readonly hold: HoldCause
    readonly why: string
    /** CLOCK: how far the clock was stepped forward. */
    readonly stepMs?: number
  }
  readonly resumeHold: { readonly hold: HoldCause | null; readonly why: string }
  readonly createPool: { readonly pool: PoolInput }
  readonly updatePool: { readonly name: string; readonly version: number | null; readonly change: PoolChange }
  readonly deletePool: { readonly name: string; readonly version: number | null }

  readonly registerSource: { readonly declaration: SourceDeclaration }
  readonly enableSource: {
    readonly id: string
    /** Also if it lists less than half of the leases that it becomes a witness of. */
    readonly acceptUnlisted: boolean
  }
  readonly retireSource: { readonly id: string }
  /** A source called under an id that is not registered; its caller, the actor, could report for a source of its node. */
  readonly unknownSource: { readonly source: string }
  /**
   * A slice of a report: at most 1,000 entries that are news, or vanished ones. Only the last one counts the report and
   * advances its sequence.
   */
  readonly report: {
    readonly source: string
    readonly epoch: string
    readonly sequence: number
    /** What the report was begun at: number of the log, and time. */
    readonly head: number
    readonly begunAt: number
    /** It is proven that `head` was answered to this source. It matters only beyond the log. */
    readonly proven: boolean
    /** Everything that the source declares to see is in it. */
    readonly complete: boolean
    /** Why it is not complete: stable codes. */
    readonly because: readonly string[]
    readonly entries: readonly Entry[]
    /** Listed until now and not in the report. */
    readonly vanished: readonly Entry[]
    /** `after`: the report before. An unchanged or compared list must follow it. */
    readonly last: { readonly entries: number; readonly digest: string; readonly after: number } | null
  }
}

export type Command<T extends keyof Bodies = keyof Bodies> = {
  readonly [K in T]: Envelope & { readonly type: K } & Bodies[K]
}[T]

// What the image lacks.

export type Counted = { readonly sequence: number; readonly head: number; readonly at: number }

/** What is known of a source by its reports: a row of `source_report`. */
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
  /** In this era. */
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
  readonly answer: 'wanted' | 'live' | 'terminal' | 'gone' | 'unknown' | 'error'
  readonly terminalSince: number | null
  readonly detail: string
  readonly head: number
  readonly askedAt: number
  readonly attempts: number
}

/**
 * Ids are what callers make up, so those of one node's callers mean nothing to another's. Callers without a node share theirs.
 * `key` stands for both in maps.
 */
export type RequestName = { readonly node: string; readonly requestId: string; readonly key: string }

export function requestName(node: string, requestId: string): RequestName {
  // Neither can have this character: PostgreSQL's text has no NUL.
  return { node, requestId, key: `${node}\0${requestId}` }
}

export type Remembered = {
  readonly fingerprint: string
  readonly method: string
  readonly answer: Answer
}

/** It has an entry for each key of the prefetch. */
export type Known = {
  readonly identity: string
  readonly requests: ReadonlyMap<string, Remembered>
  /** What a lease was last, before its address went on to another. Null: no lease of this token has ended. */
  readonly endedByToken: ReadonlyMap<number, AddressRecord | null>
  readonly endedByOwner: ReadonlyMap<string, readonly AddressRecord[]>
  readonly freshness: ReadonlyMap<string, Freshness | null>
  readonly lookUps: ReadonlyMap<string, readonly LookUp[]>
}

// What comes out.

/** A lease as callers see it: the same shape from Reserve, Get and List, and in remembered answers. Plain JSON. */
export type LeaseView = Omit<AddressRecord, 'state' | 'seq' | 'token' | 'at' | 'ended'> &
  Pick<PoolSettings, 'subnet' | 'gateway' | 'options'> & {
    readonly leaseId: string
    readonly network: string
    readonly pool: string
    readonly state: LeaseState | 'RELEASED' | 'REAPED'
    readonly version: number
    readonly fencingToken: number
    readonly endedAt: number | null
    readonly reused: boolean
  }

export type PoolView = Pick<Pool, 'poolId' | 'version' | 'createdAt' | 'updatedAt' | 'settings'>

export type Taken = {
  readonly complete: boolean
  /** What it does not list was missed. */
  readonly counted: boolean
  /** Why it did neither: stable codes. */
  readonly because: readonly string[]
  readonly appeared: number
  readonly vanished: number
}

/** What a source's next list would do: addresses, by what becomes of them; `omitted` were not looked at. */
export type Foreseen = Readonly<Record<'adopted' | 'quarantined' | 'confirmed' | 'omitted', number>>

/** The answer of an accepted command, remembered for a repeated request. Plain JSON. */
export type Answer = {
  readonly leases: readonly LeaseView[]
  readonly pool?: PoolView
  readonly network?: { readonly name: string; readonly network: NetworkState; readonly head: number }
  readonly source?: SourceState
  /** RetireSource: leases that lose their last witness, and free addresses that only it listed. */
  readonly unwitnessed?: number
  /** Of EnableSource: leases on the source's node, and how many of them it lists. */
  readonly placed?: number
  readonly listed?: number
  readonly unlisted?: number
  /** Of EnableSource in a dry run. */
  readonly foreseen?: Foreseen
  readonly report?: Taken
  readonly items?: readonly Answer[]
  readonly outcomes?: readonly (Answer | Refusal)[]
}
