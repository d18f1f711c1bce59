/** Rows of the ledger's tables as they arrive, and what they mean. The column lists stand beside their readers. */
import { formatAddress, isMalformed, parseAddress } from '../core/address.ts'
import type { Fence, Hold, ReleasedAddress } from '../core/books.ts'
import type {
  EventHeader,
  EventType,
  Evidence,
  FencedEvent,
  HoldEvent,
  LedgerEvent,
  ResumedEvent,
} from '../core/event.ts'
import type { Lease, LeaseState, QuarantineReason } from '../core/lease.ts'
import type { Network, NetworkState } from '../core/network.ts'
import type { Labels, Owner } from '../core/owner.ts'
import { buildPool, type Pool, type PoolSettings } from '../core/pool.ts'

/** Rows of one key. No bound that is ever met: a limit makes the order of the rows worth an index. */
export const MOST_OF_ONE = 1_000_000

export type OwnerRow = {
  owner_kind: string | null
  owner_name: string | null
  owner_uid: string | null
  owner_uid_named: boolean | null
  owner_incarnation: string | null
  owner_interface: string | null
}

export const OWNER_COLUMNS = [
  'owner_kind',
  'owner_name',
  'owner_uid',
  'owner_uid_named',
  'owner_incarnation',
  'owner_interface',
] as const satisfies readonly (keyof OwnerRow)[]

export type LeaseRow = OwnerRow & {
  network_id: string
  address: string
  prefix_length: number
  pool_id: number
  fencing_token: number
  version: number
  state: string
  quarantine_reason: string | null
  quarantined_at: number | null
  quarantined_by: string | null
  quarantine_why: string | null
  node: string
  boot: string
  labels: Labels
  witness: string
  asked_from: string
  reserved_at: number
  confirmed_at: number | null
  confirm_by: number | null
}

export const LEASE_COLUMNS = [
  'network_id',
  'address',
  'prefix_length',
  'pool_id',
  'fencing_token',
  'version',
  'state',
  'quarantine_reason',
  'quarantined_at',
  'quarantined_by',
  'quarantine_why',
  ...OWNER_COLUMNS,
  'node',
  'boot',
  'labels',
  'witness',
  'asked_from',
  'reserved_at',
  'confirmed_at',
  'confirm_by',
] as const satisfies readonly (keyof LeaseRow)[]

/** As a statement has them: `'CONFLICT', 'FOREIGN'`. */
export function reasonsOf(reasons: readonly QuarantineReason[]): string {
  return reasons.map((reason) => `'${reason}'`).join(', ')
}

/** No name has a control character. */
const NODES_APART = '\n'

export function writeNodes(nodes: readonly string[] = []): string {
  return nodes.join(NODES_APART)
}

export function readLease(row: LeaseRow): Lease {
  return {
    network: row.network_id,
    poolId: row.pool_id,
    address: readAddress(row.address),
    prefixLength: row.prefix_length,
    fencingToken: row.fencing_token,
    version: row.version,
    state: row.state as LeaseState,
    quarantine:
      row.quarantine_reason === null
        ? null
        : {
            reason: row.quarantine_reason as QuarantineReason,
            at: row.quarantined_at!,
            by: row.quarantined_by!,
            why: row.quarantine_why ?? '',
          },
    owner: readOwner(row),
    placement: { node: row.node, boot: row.boot, labels: row.labels },
    ...(row.asked_from === '' ? {} : { askedFrom: row.asked_from.split(NODES_APART) }),
    witness: row.witness,
    reservedAt: row.reserved_at,
    confirmedAt: row.confirmed_at,
    confirmBy: row.confirm_by,
  }
}

export function readOwner(row: OwnerRow): Owner | null {
  if (row.owner_kind === null) return null
  return {
    kind: row.owner_kind,
    name: row.owner_name!,
    uid: row.owner_uid!,
    uidNamed: row.owner_uid_named!,
    incarnation: row.owner_incarnation!,
    interface: row.owner_interface!,
  }
}

/**
 * PostgreSQL's text of an inet host is canonical but for two: it appends a prefix to none of ours, and it writes
 * ::10.0.0.5 where RFC 5952 has ::a00:5.
 */
export function readAddress(text: string): string {
  if (!text.includes(':') || !text.includes('.')) return text
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) throw new Error(`stored address ${text}: ${parsed.malformed}`)
  return formatAddress(parsed)
}

export type ReleasedRow = {
  address: string
  pool_id: number
  prefix_length: number
  available_at: number
  released_seq: number
  holder_key: string
  removal_confirmed: boolean
}

export const RELEASED_COLUMNS = [
  'address',
  'pool_id',
  'prefix_length',
  'available_at',
  'released_seq',
  'holder_key',
  'removal_confirmed',
] as const satisfies readonly (keyof ReleasedRow)[]

export function readReleased(row: ReleasedRow): ReleasedAddress {
  return {
    poolId: row.pool_id,
    address: readAddress(row.address),
    prefixLength: row.prefix_length,
    availableAt: row.available_at,
    releasedSeq: row.released_seq,
    holderKey: row.holder_key,
    removalConfirmed: row.removal_confirmed,
  }
}

export type NetworkRow = {
  network_id: string
  description: string
  labels: Labels
  state: string
  era: number
  version: number
  created_at: number
  updated_at: number
}

export const NETWORK_COLUMNS = [
  'network_id',
  'description',
  'labels',
  'state',
  'era',
  'version',
  'created_at',
  'updated_at',
] as const satisfies readonly (keyof NetworkRow)[]

export function readNetwork(row: NetworkRow): Network {
  return {
    network: row.network_id,
    description: row.description,
    labels: row.labels,
    state: row.state as NetworkState,
    era: row.era,
    version: row.version,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  }
}

export type PoolRow = {
  network_id: string
  pool_id: number
  name: string
  version: number
  settings: PoolSettings
  created_at: number
  updated_at: number
}

export const POOL_COLUMNS = [
  'network_id',
  'pool_id',
  'name',
  'version',
  'settings',
  'created_at',
  'updated_at',
] as const satisfies readonly (keyof PoolRow)[]

export function readPool(row: PoolRow): Pool {
  return buildPool(row.settings, {
    network: row.network_id,
    poolId: row.pool_id,
    version: row.version,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  })
}

export type HoldRow = {
  source_id: string
  held_seq: number
  held_at: number
  why: string
  reaps: number
  leases: number
}

export const HOLD_COLUMNS = [
  'source_id',
  'held_seq',
  'held_at',
  'why',
  'reaps',
  'leases',
] as const satisfies readonly (keyof HoldRow)[]

export function readHold(row: HoldRow): Hold {
  const { source_id: source, held_seq: seq, held_at: at, why, reaps, leases } = row
  return { source, seq, at, why, reaps, leases }
}

export type FenceRow = {
  node: string
  boot: string
  fenced_seq: number
  fenced_at: number
  fenced_by: string
  why: string
  /** Null: up to `fenced_seq`. */
  fenced_head: number | null
}

export const FENCE_COLUMNS = [
  'node',
  'boot',
  'fenced_seq',
  'fenced_at',
  'fenced_by',
  'why',
  'fenced_head',
] as const satisfies readonly (keyof FenceRow)[]

export function readFence(row: FenceRow): Fence {
  const { node, boot, fenced_seq: seq, fenced_at: at, fenced_by: by, why, fenced_head: head } = row
  return { node, boot, seq, head: head ?? seq, at, by, why }
}

export type EventRow = OwnerRow & {
  network_id: string
  seq: number
  type: string
  at: number
  actor: string
  cause: string
  request_id: string | null
  trace_id: string | null
  pool_id: number | null
  address: string | null
  prefix_length: number | null
  fencing_token: number | null
  state: string | null
  quarantine_reason: string | null
  quarantined_at: number | null
  quarantined_by: string | null
  quarantine_why: string | null
  node: string | null
  boot: string | null
  labels: Labels | null
  witness: string | null
  reserved_at: number | null
  confirmed_at: number | null
  confirm_by: number | null
  available_at: number | null
  removal_confirmed: boolean | null
  settings: unknown
  evidence: Evidence | null
}

export const EVENT_COLUMNS = [
  'network_id',
  'seq',
  'type',
  'at',
  'actor',
  'cause',
  'request_id',
  'trace_id',
  'pool_id',
  'address',
  'prefix_length',
  'fencing_token',
  'state',
  'quarantine_reason',
  'quarantined_at',
  'quarantined_by',
  'quarantine_why',
  ...OWNER_COLUMNS,
  'node',
  'boot',
  'labels',
  'witness',
  'reserved_at',
  'confirmed_at',
  'confirm_by',
  'available_at',
  'removal_confirmed',
  'settings',
  'evidence',
] as const satisfies readonly (keyof EventRow)[]

/** What has no column of its own. */
type StoredSettings = {
  readonly pool?: PoolSettings
  readonly network?: { readonly description: string; readonly labels: Labels }
  readonly recoveryEnded?: boolean
  readonly era?: number
  readonly recovering?: boolean
  /** Of a lease, if there are any. */
  readonly askedFrom?: readonly string[]
}

export function readEvent(row: EventRow): LedgerEvent {
  const header: EventHeader = {
    network: row.network_id,
    seq: row.seq,
    at: row.at,
    actor: row.actor,
    cause: row.cause,
    requestId: row.request_id,
    traceId: row.trace_id,
    evidence: row.evidence,
  }
  const type = row.type as EventType
  const settings = (row.settings ?? {}) as StoredSettings
  switch (type) {
    case 'lease.reserved':
    case 'lease.confirmed':
    case 'lease.quarantined':
    case 'lease.adopted':
    case 'lease.updated':
      return { ...header, type, lease: leaseOfEvent(row) }
    case 'lease.released':
    case 'lease.reaped':
      return {
        ...header,
        type,
        ended: {
          lease: leaseOfEvent(row),
          how: type,
          seq: row.seq,
          endedAt: row.at,
          availableAt: row.available_at!,
          removalConfirmed: row.removal_confirmed!,
        },
      }
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted':
      return { ...header, type, poolId: row.pool_id!, pool: settings.pool! }
    case 'network.created':
    case 'network.updated':
      return { ...header, type, settings: settings.network!, recoveryEnded: settings.recoveryEnded ?? false }
    case 'era.begun':
      return { ...header, type, era: settings.era!, recovering: settings.recovering ?? false }
    case 'attachment.closed':
      return { ...header, type, owner: readOwner(row)!, poolId: row.pool_id }
    case 'node.fenced':
      return { ...header, type, evidence: row.evidence as FencedEvent['evidence'] }
    case 'reconcile.held':
      return { ...header, type, evidence: row.evidence as HoldEvent['evidence'] }
    case 'reconcile.resumed':
      return { ...header, type, evidence: row.evidence as ResumedEvent['evidence'] }
  }
}

function leaseOfEvent(row: EventRow): Lease {
  const { askedFrom } = (row.settings ?? {}) as StoredSettings
  return readLease({
    ...row,
    address: row.address!,
    prefix_length: row.prefix_length!,
    pool_id: row.pool_id!,
    fencing_token: row.fencing_token!,
    version: row.seq,
    state: row.state!,
    node: row.node ?? '',
    boot: row.boot ?? '',
    labels: row.labels ?? {},
    witness: row.witness ?? '',
    asked_from: writeNodes(askedFrom),
    reserved_at: row.reserved_at!,
  })
}
