import type { Owner, Placement } from './owner.ts'

/**
 * A lease: one address or block held for one attachment. There is no row for a free address; a released one
 * rests in the queue of released addresses until it has cooled.
 */
export type LeaseState = 'RESERVED' | 'ACTIVE' | 'QUARANTINED'

export type QuarantineReason =
  | 'SUPERSEDED'
  | 'REMOVAL_UNCONFIRMED'
  | 'CONFLICT'
  | 'OPERATOR'
  | 'RELEASED_BUT_LIVE'
  | 'FOREIGN'
  | 'SECOND_ADDRESS'
  | 'SEEN_BY_CALLER'

export const QUARANTINE_REASONS: readonly QuarantineReason[] = [
  'SUPERSEDED',
  'REMOVAL_UNCONFIRMED',
  'CONFLICT',
  'OPERATOR',
  'RELEASED_BUT_LIVE',
  'FOREIGN',
  'SECOND_ADDRESS',
  'SEEN_BY_CALLER',
]

/** As long as a lease of it stands in one of these, a closed attachment stays closed: nobody knows that it is gone. */
export const KEEPS_CLOSED: readonly QuarantineReason[] = ['SUPERSEDED', 'REMOVAL_UNCONFIRMED']

/** Those that a source's sighting leads to; `by` is the source. */
export const SIGHTING_REASONS: readonly QuarantineReason[] = [
  'CONFLICT',
  'RELEASED_BUT_LIVE',
  'FOREIGN',
  'SECOND_ADDRESS',
]

export type Quarantine = {
  readonly reason: QuarantineReason
  readonly at: number
  /** The actor whose command quarantined it, or the source that saw it. */
  readonly by: string
  readonly why: string
}

export type Lease = {
  readonly network: string
  readonly poolId: number
  /** Canonical text of the address, or of the first address of the block. */
  readonly address: string
  readonly prefixLength: number
  /** Number of the event that created the lease; names the lease within its network for ever. */
  readonly fencingToken: number
  /** Number of the last event about the lease. */
  readonly version: number
  readonly state: LeaseState
  readonly quarantine: Quarantine | null
  /** Null only in quarantine, where nobody known holds the address. */
  readonly owner: Owner | null
  readonly placement: Placement
  /** Other nodes that asked for it since, in order: it may run there. Absent: none. */
  readonly askedFrom?: readonly string[]
  /** A source named in Reserve that can testify about this lease; empty when none was. */
  readonly witness: string
  readonly reservedAt: number
  readonly confirmedAt: number | null
  readonly confirmBy: number | null
}

/** A lease that ended: its last state, and when its address stops cooling. */
export type EndedLease = {
  readonly lease: Lease
  readonly how: 'lease.released' | 'lease.reaped'
  /** Number of the event that ended it. */
  readonly seq: number
  readonly endedAt: number
  readonly availableAt: number
  /** False after a reap: nobody confirmed the removal, so cooling binds its previous holder too. */
  readonly removalConfirmed: boolean
}

export function leaseId(network: string, fencingToken: number): string {
  return `${network}/${fencingToken}`
}

/** Splits `<network>/<fencing token>`; undefined when it is not of that form. */
export function parseLeaseId(
  id: string,
): { readonly network: string; readonly fencingToken: number } | undefined {
  const match = /^([^/]{1,63})\/([1-9][0-9]{0,15})$/.exec(id)
  if (match === null) return undefined
  const fencingToken = Number(match[2])
  return Number.isSafeInteger(fencingToken) ? { network: match[1]!, fencingToken } : undefined
}
