/**
 * The life of an address, as rows: what a command or a finding makes of which states. `change` (batch.ts) makes the event of a
 * row; no state changes in another way. From the rows follow what `verify` takes for legal, what ends a quarantine, and the
 * tables of docs/concepts.md.
 */
import {
  type AddressRecord,
  type LeaseEventType,
  QUARANTINE_REASONS,
  type Quarantine,
  type QuarantineReason,
} from './event.ts'

/** The state of an address; of a quarantine, its reason. */
export type Condition = 'FREE' | 'RESERVED' | 'ACTIVE' | QuarantineReason

type To = 'RESERVED' | 'ACTIVE' | 'RELEASED' | 'REAPED' | null

type Row<T extends To | QuarantineReason = To | QuarantineReason> = {
  readonly from: readonly Condition[]
  readonly event: LeaseEventType
  /** Null: it stays. */
  readonly to: T
  readonly state: AddressRecord['state'] | null
  readonly when: string
}

const FREE = ['FREE'] as const
const LEASED = ['RESERVED', 'ACTIVE'] as const
const HELD: readonly Condition[] = [...LEASED, ...QUARANTINE_REASONS]
const heldBut = (...conditions: readonly Condition[]) => HELD.filter((one) => !conditions.includes(one))

function row(from: Row['from'], event: LeaseEventType, to: To, when: string): Row<To> {
  return { from, event, to, state: to === null ? null : stateOf(to), when }
}

function quarantined(to: QuarantineReason, from: Row['from'], when: string): Row<QuarantineReason> {
  return { from, event: 'lease.quarantined', to, state: 'QUARANTINED', when }
}

export const LIFECYCLE = {
  reserve: row(FREE, 'lease.reserved', 'RESERVED', 'Reserve'),
  reserveConfirmed: row(FREE, 'lease.reserved', 'ACTIVE', 'Reserve with `confirmed`'),
  renew: row(LEASED, 'lease.updated', null, 'Reserve or Confirm again'),
  label: row(HELD, 'lease.updated', null, 'UpdateLabels'),
  confirm: row(['RESERVED'], 'lease.confirmed', 'ACTIVE', 'Confirm, or a source lists it for its owner'),
  adopt: row(FREE, 'lease.adopted', 'ACTIVE', 'a source lists an owner there'),
  release: row(
    [...LEASED, 'SUPERSEDED', 'REMOVAL_UNCONFIRMED', 'RELEASED_BUT_LIVE'],
    'lease.released',
    'RELEASED',
    'its own Release with confirmed removal',
  ),
  expire: row(['RESERVED'], 'lease.reaped', 'REAPED', 'the promise to confirm it is broken'),
  proveAbsent: row(heldBut('OPERATOR', 'IN_USE'), 'lease.reaped', 'REAPED', 'proof of absence'),
  giveSpare: row(LEASED, 'lease.reaped', 'REAPED', 'it is a spare, and a source lists a workload there'),
  reap: row(HELD, 'lease.reaped', 'REAPED', 'an operator reaps it'),
  reapNode: row(heldBut('OPERATOR'), 'lease.reaped', 'REAPED', 'an operator reaps its node'),
  supersede: quarantined('SUPERSEDED', LEASED, 'another incarnation or uid reserves under its name'),
  releaseUnconfirmed: quarantined('REMOVAL_UNCONFIRMED', LEASED, 'Release with `removal: UNCONFIRMED`'),
  conflict: quarantined('CONFLICT', LEASED, 'a source lists another than its holder'),
  contest: quarantined('CONFLICT', FREE, 'its lease has ended, and another was listed there meanwhile'),
  quarantine: quarantined('OPERATOR', ['FREE', ...heldBut('OPERATOR')], 'an operator quarantines it'),
  listedAfterRelease: quarantined(
    'RELEASED_BUT_LIVE',
    FREE,
    'a source lists an owner that had released it, or was superseded',
  ),
  listedForNobody: quarantined(
    'FOREIGN',
    FREE,
    'a source lists an unknown owner, or somebody inside the block; or it is in the `liveAddresses` of a Reserve',
  ),
  inUse: quarantined('IN_USE', ['FREE', ...LEASED], 'Release with `removal: IN_USE_BY_ANOTHER`'),
} satisfies Readonly<Record<string, Row>>

export type Finding = keyof typeof LIFECYCLE
/** Findings that quarantine. */
export type Doubt = {
  [F in Finding]: (typeof LIFECYCLE)[F] extends Row<QuarantineReason> ? F : never
}[Finding]

/** Whether a finding changes an address that is as its last event made it; undefined: it has none. */
export function mayFollow(finding: Finding, record: AddressRecord | undefined): boolean {
  return LIFECYCLE[finding].from.includes(conditionOf(record))
}

export function conditionOf(record: AddressRecord | undefined): Condition {
  if (record?.state === 'QUARANTINED') return record.quarantine!.reason
  return record?.state ?? 'FREE'
}

/** Quarantined by its owner's own doing, which closes the attachment: Reserve and Confirm that it overtook are refused. */
export function isClosing(record: AddressRecord): boolean {
  return CLOSING.includes(conditionOf(record))
}
const CLOSING: readonly Condition[] = ['SUPERSEDED', 'REMOVAL_UNCONFIRMED', 'IN_USE']

/** Quarantined because one caller or source says so: there is a limit to how many. */
export function countsForReporter({ reason, node }: Quarantine): boolean {
  return reason === 'CONFLICT' ? node !== '' : REPORTED.includes(reason)
}
const REPORTED: readonly Condition[] = ['FOREIGN', 'RELEASED_BUT_LIVE', 'IN_USE']

function stateOf(one: Condition | 'RELEASED' | 'REAPED'): AddressRecord['state'] {
  if (one === 'FREE' || one === 'RELEASED' || one === 'REAPED') return 'FREE'
  return one === 'RESERVED' || one === 'ACTIVE' ? one : 'QUARANTINED'
}

/** State before, event, state after. */
export const LEGAL_CHANGES: ReadonlySet<string> = new Set(
  Object.values<Row>(LIFECYCLE).flatMap((row) =>
    row.from.map(stateOf).map((before) => `${before} ${row.event} ${row.state ?? before}`),
  ),
)

/** What ends a quarantine, beside an operator. */
export function exitsOf(reason: QuarantineReason, ownerKind: string | null): readonly string[] {
  const { release, proveAbsent } = LIFECYCLE
  // Rule OPERATOR_AND_INFRASTRUCTURE_STAY.
  const ways = ownerKind === 'infrastructure' ? [release] : [release, proveAbsent]
  return ways.filter(({ from }) => from.includes(reason)).map(({ when }) => when)
}
