/**
 * Who held an address over which span: the events of a lease, folded to its owners and states. A lease is one span for
 * as long as its owner is one, as in table `tenure`; that is behind the log by seconds and this is not.
 */

import type { LedgerEvent } from '../core/event.ts'
import { type Lease, type LeaseState, leaseId, type QuarantineReason } from '../core/lease.ts'
import type { Owner, Placement } from '../core/owner.ts'

/** An event of a lease, as it began, changed or ended something. */
export type Turn = {
  readonly seq: number
  readonly at: number
  readonly actor: string
  /** Type and cause, `lease.reserved/Reserve`. */
  readonly as: string
}

export type HeldState = {
  readonly state: LeaseState
  readonly reason: QuarantineReason | null
  readonly seq: number
  readonly at: number
}

export type Holder = {
  readonly leaseId: string
  readonly poolId: number
  readonly address: string
  readonly prefixLength: number
  /** Null: nobody known, quarantined. */
  readonly owner: Owner | null
  readonly placement: Placement
  readonly from: Turn
  /** Null: it is held still. */
  readonly until: Turn | null
  /** Null: it is held still, or the lease went on. */
  readonly availableAt: number | null
  readonly states: readonly HeldState[]
}

/** `life`: events of one lease in their order, the first of them first; those in which nothing changes may be missing. */
export function holdersOf(life: readonly LedgerEvent[]): readonly Holder[] {
  const holders: Holder[] = []
  for (const event of life) {
    const turn = { seq: event.seq, at: event.at, actor: event.actor, as: `${event.type}/${event.cause}` }
    const last = holders.at(-1)
    if ('ended' in event) {
      if (last !== undefined) {
        holders[holders.length - 1] = { ...last, until: turn, availableAt: event.ended.availableAt }
      }
      return holders
    }
    if (!('lease' in event)) continue
    const { lease } = event
    if (last === undefined) {
      holders.push(begin(lease, turn))
    } else if (isSame(last.owner, lease.owner)) {
      holders[holders.length - 1] = { ...last, states: statesWith(last.states, lease, turn) }
    } else {
      holders[holders.length - 1] = { ...last, until: turn }
      holders.push(begin(lease, turn))
    }
  }
  return holders
}

function begin(lease: Lease, turn: Turn): Holder {
  return {
    leaseId: leaseId(lease.network, lease.fencingToken),
    poolId: lease.poolId,
    address: lease.address,
    prefixLength: lease.prefixLength,
    owner: lease.owner,
    placement: lease.placement,
    from: turn,
    until: null,
    availableAt: null,
    states: statesWith([], lease, turn),
  }
}

function statesWith(states: readonly HeldState[], lease: Lease, { seq, at }: Turn): readonly HeldState[] {
  const reason = lease.quarantine?.reason ?? null
  const last = states.at(-1)
  if (last !== undefined && last.state === lease.state && last.reason === reason) return states
  return [...states, { state: lease.state, reason, seq, at }]
}

function isSame(one: Owner | null, other: Owner | null): boolean {
  if (one === null || other === null) return one === other
  return (
    one.kind === other.kind &&
    one.name === other.name &&
    one.uid === other.uid &&
    one.incarnation === other.incarnation &&
    one.interface === other.interface
  )
}
