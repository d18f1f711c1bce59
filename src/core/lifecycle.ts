import type { Lease, QuarantineReason } from './lease.ts'

/**
 * DESIGN §3 as one table: what a command, an expiry or a finding does to an address in each state. `decide` asks it
 * before every change; what it does not list is refused with ILLEGAL_STATE.
 */
export type AddressState = 'FREE' | 'COOLING' | 'RESERVED' | 'ACTIVE' | QuarantineReason

export type Trigger =
  /** Reserve picks the address for somebody. */
  | 'RESERVE'
  /** Reserve, by the previous holder, of an address it released with confirmed removal. */
  | 'RESERVE_BY_PREVIOUS'
  /** The Reserve's caller sees the address live. */
  | 'SEEN_BY_CALLER'
  | 'CONFIRM'
  /** Reserve or Confirm is answered with it once more. */
  | 'RENEW'
  /** Reserve is answered with it on another node or boot than it was placed on. */
  | 'RESERVE_ELSEWHERE'
  | 'RELEASE_CONFIRMED'
  | 'RELEASE_UNCONFIRMED'
  /** Another incarnation or uid of the holder reserves. */
  | 'SUPERSEDE'
  /** The same, with the predecessor's removal confirmed. */
  | 'SUPERSEDE_REMOVED'
  | 'QUARANTINE'
  | 'REAP'
  | 'EXPIRE'
  | 'UPDATE_LABELS'
  /** A source sees it live: held, for its owner; free, for one known in full who may hold it. */
  | 'SIGHTED'
  /** Held, and seen live for another than its owner. */
  | 'SIGHTED_FOR_ANOTHER'
  /** Seen live, and for whom cannot be told. */
  | 'SIGHTED_FOR_UNKNOWN'
  /** Free, and seen live for an attachment that is closed, or on a node that was fenced. */
  | 'SIGHTED_RELEASED'
  /** Free, and seen live for one that has a lease on that interface in the pool. */
  | 'SIGHTED_AGAIN'
  /** k counted snapshots of everyone who saw it show nobody but its unclosed owner. */
  | 'SEEN_ALONE'
  /** Proof that nothing uses it. */
  | 'REAP_PROVEN'

export type Becomes =
  | { readonly to: 'RESERVED'; readonly event: 'lease.reserved' }
  | { readonly to: 'ACTIVE'; readonly event: 'lease.confirmed' | 'lease.adopted' }
  | { readonly to: 'COOLING'; readonly event: 'lease.released' | 'lease.reaped' }
  | { readonly to: QuarantineReason; readonly event: 'lease.quarantined'; readonly loses?: 'owner' }
  | { readonly to: 'SAME'; readonly event: 'lease.updated' }
  /** Nothing to do, and the answer is the one the first call had. */
  | { readonly to: 'UNCHANGED' }

const reserved = { to: 'RESERVED', event: 'lease.reserved' } as const
const confirmed = { to: 'ACTIVE', event: 'lease.confirmed' } as const
const adopted = { to: 'ACTIVE', event: 'lease.adopted' } as const
const released = { to: 'COOLING', event: 'lease.released' } as const
const reaped = { to: 'COOLING', event: 'lease.reaped' } as const
const updated = { to: 'SAME', event: 'lease.updated' } as const
const unchanged = { to: 'UNCHANGED' } as const
const quarantined = (to: QuarantineReason) => ({ to, event: 'lease.quarantined' }) as const
/** Held for reasons of its own: the holder lets go, the address stays. */
const withoutHolder = (to: QuarantineReason) => ({ to, event: 'lease.quarantined', loses: 'owner' }) as const

/** What is in use and set aside already stays so. */
const sightedAside = {
  SIGHTED: unchanged,
  SIGHTED_FOR_ANOTHER: unchanged,
  SIGHTED_FOR_UNKNOWN: unchanged,
} as const

const sightedFree = {
  SIGHTED: adopted,
  SIGHTED_RELEASED: quarantined('RELEASED_BUT_LIVE'),
  SIGHTED_FOR_UNKNOWN: quarantined('FOREIGN'),
  SIGHTED_AGAIN: quarantined('SECOND_ADDRESS'),
} as const

const held = {
  RELEASE_CONFIRMED: released,
  RELEASE_UNCONFIRMED: quarantined('REMOVAL_UNCONFIRMED'),
  SUPERSEDE: quarantined('SUPERSEDED'),
  SUPERSEDE_REMOVED: released,
  QUARANTINE: quarantined('OPERATOR'),
  REAP: reaped,
  REAP_PROVEN: reaped,
  UPDATE_LABELS: updated,
  SIGHTED_FOR_ANOTHER: quarantined('CONFLICT'),
  SIGHTED_FOR_UNKNOWN: unchanged,
} as const

const letGoOnRelease = {
  ...sightedAside,
  RELEASE_CONFIRMED: released,
  RELEASE_UNCONFIRMED: unchanged,
  SUPERSEDE_REMOVED: released,
  QUARANTINE: quarantined('OPERATOR'),
  REAP: reaped,
  REAP_PROVEN: reaped,
  UPDATE_LABELS: updated,
} as const

const keptOnRelease = (reason: QuarantineReason) =>
  ({
    ...sightedAside,
    RELEASE_CONFIRMED: withoutHolder(reason),
    RELEASE_UNCONFIRMED: unchanged,
    QUARANTINE: quarantined('OPERATOR'),
    REAP: reaped,
    UPDATE_LABELS: updated,
  }) as const

const holderless = {
  ...sightedAside,
  QUARANTINE: quarantined('OPERATOR'),
  REAP: reaped,
  REAP_PROVEN: reaped,
  UPDATE_LABELS: updated,
} as const

export const LIFECYCLE: Readonly<Record<AddressState, Readonly<Partial<Record<Trigger, Becomes>>>>> = {
  FREE: {
    ...sightedFree,
    RESERVE: reserved,
    RESERVE_BY_PREVIOUS: reserved,
    SEEN_BY_CALLER: quarantined('SEEN_BY_CALLER'),
    QUARANTINE: quarantined('OPERATOR'),
  },
  COOLING: {
    ...sightedFree,
    RESERVE_BY_PREVIOUS: reserved,
    SEEN_BY_CALLER: quarantined('SEEN_BY_CALLER'),
    QUARANTINE: quarantined('OPERATOR'),
  },
  RESERVED: {
    ...held,
    CONFIRM: confirmed,
    RENEW: updated,
    RESERVE_ELSEWHERE: updated,
    SIGHTED: confirmed,
    EXPIRE: reaped,
  },
  ACTIVE: {
    ...held,
    CONFIRM: unchanged,
    RENEW: confirmed,
    RESERVE_ELSEWHERE: updated,
    SIGHTED: unchanged,
  },
  SUPERSEDED: letGoOnRelease,
  REMOVAL_UNCONFIRMED: letGoOnRelease,
  CONFLICT: {
    ...sightedAside,
    RELEASE_CONFIRMED: withoutHolder('CONFLICT'),
    QUARANTINE: quarantined('OPERATOR'),
    REAP: reaped,
    REAP_PROVEN: reaped,
    SEEN_ALONE: confirmed,
    UPDATE_LABELS: updated,
  },
  OPERATOR: { ...keptOnRelease('OPERATOR'), QUARANTINE: unchanged },
  SECOND_ADDRESS: {
    ...keptOnRelease('SECOND_ADDRESS'),
    REAP_PROVEN: reaped,
    SEEN_ALONE: confirmed,
  },
  RELEASED_BUT_LIVE: {
    ...keptOnRelease('RELEASED_BUT_LIVE'),
    REAP_PROVEN: reaped,
    SEEN_ALONE: confirmed,
  },
  FOREIGN: { ...holderless, RELEASE_UNCONFIRMED: unchanged },
  SEEN_BY_CALLER: { ...holderless, RELEASE_UNCONFIRMED: unchanged },
}

export function stateOf(lease: Lease): AddressState {
  return lease.state === 'QUARANTINED' ? lease.quarantine!.reason : lease.state
}

/** Undefined means: not listed, refuse with ILLEGAL_STATE. */
export function transition(state: AddressState, trigger: Trigger): Becomes | undefined {
  return LIFECYCLE[state][trigger]
}
