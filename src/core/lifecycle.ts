import type { Lease, QuarantineReason } from './lease.ts'

/**
 * DESIGN §3 as one table: what a command or an expiry does to an address in each state. `decide` asks it before
 * every change; what it does not list is refused with ILLEGAL_STATE. Rows triggered by sightings come with the
 * judge and are not commands.
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

export type Becomes =
  | { readonly to: 'RESERVED'; readonly event: 'lease.reserved' }
  | { readonly to: 'ACTIVE'; readonly event: 'lease.confirmed' }
  | { readonly to: 'COOLING'; readonly event: 'lease.released' | 'lease.reaped' }
  | { readonly to: QuarantineReason; readonly event: 'lease.quarantined'; readonly loses?: 'owner' }
  | { readonly to: 'SAME'; readonly event: 'lease.updated' }
  /** Nothing to do, and the answer is the one the first call had. */
  | { readonly to: 'UNCHANGED' }

const reserved = { to: 'RESERVED', event: 'lease.reserved' } as const
const confirmed = { to: 'ACTIVE', event: 'lease.confirmed' } as const
const released = { to: 'COOLING', event: 'lease.released' } as const
const reaped = { to: 'COOLING', event: 'lease.reaped' } as const
const updated = { to: 'SAME', event: 'lease.updated' } as const
const unchanged = { to: 'UNCHANGED' } as const
const quarantined = (to: QuarantineReason) => ({ to, event: 'lease.quarantined' }) as const
/** Held for reasons of its own: the holder lets go, the address stays. */
const withoutHolder = (to: QuarantineReason) => ({ to, event: 'lease.quarantined', loses: 'owner' }) as const

const held = {
  RELEASE_CONFIRMED: released,
  RELEASE_UNCONFIRMED: quarantined('REMOVAL_UNCONFIRMED'),
  SUPERSEDE: quarantined('SUPERSEDED'),
  SUPERSEDE_REMOVED: released,
  QUARANTINE: quarantined('OPERATOR'),
  REAP: reaped,
  UPDATE_LABELS: updated,
} as const

const letGoOnRelease = {
  RELEASE_CONFIRMED: released,
  RELEASE_UNCONFIRMED: unchanged,
  SUPERSEDE_REMOVED: released,
  QUARANTINE: quarantined('OPERATOR'),
  REAP: reaped,
  UPDATE_LABELS: updated,
} as const

const keptOnRelease = (reason: QuarantineReason) =>
  ({
    RELEASE_CONFIRMED: withoutHolder(reason),
    RELEASE_UNCONFIRMED: unchanged,
    QUARANTINE: quarantined('OPERATOR'),
    REAP: reaped,
    UPDATE_LABELS: updated,
  }) as const

const holderless = {
  QUARANTINE: quarantined('OPERATOR'),
  REAP: reaped,
  UPDATE_LABELS: updated,
} as const

export const LIFECYCLE: Readonly<Record<AddressState, Readonly<Partial<Record<Trigger, Becomes>>>>> = {
  FREE: {
    RESERVE: reserved,
    RESERVE_BY_PREVIOUS: reserved,
    SEEN_BY_CALLER: quarantined('SEEN_BY_CALLER'),
    QUARANTINE: quarantined('OPERATOR'),
  },
  COOLING: {
    RESERVE_BY_PREVIOUS: reserved,
    SEEN_BY_CALLER: quarantined('SEEN_BY_CALLER'),
    QUARANTINE: quarantined('OPERATOR'),
  },
  RESERVED: { ...held, CONFIRM: confirmed, EXPIRE: reaped },
  ACTIVE: { ...held, CONFIRM: unchanged },
  SUPERSEDED: letGoOnRelease,
  REMOVAL_UNCONFIRMED: letGoOnRelease,
  CONFLICT: {
    RELEASE_CONFIRMED: withoutHolder('CONFLICT'),
    QUARANTINE: quarantined('OPERATOR'),
    REAP: reaped,
    UPDATE_LABELS: updated,
  },
  OPERATOR: { ...keptOnRelease('OPERATOR'), QUARANTINE: unchanged },
  SECOND_ADDRESS: keptOnRelease('SECOND_ADDRESS'),
  RELEASED_BUT_LIVE: keptOnRelease('RELEASED_BUT_LIVE'),
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
