/**
 * Rows of schema `ipledger` as the driver hands them over (see values.ts: int8 and timestamptz are numbers, json is
 * parsed), for queries that are put together with Kysely. `db/schema.sql` says what the columns mean.
 */

type Labels = Readonly<Record<string, string>>

type OwnerColumns = {
  owner_kind: string | null
  owner_name: string | null
  owner_uid: string | null
  owner_uid_named: boolean | null
  owner_incarnation: string | null
  owner_interface: string | null
}

export type NetworkTable = {
  network_id: string
  description: string
  labels: Labels
  state: string
  era: number
  version: number
  created_at: number
  updated_at: number
}

export type EventTable = OwnerColumns & {
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
  evidence: unknown
}

export type PoolTable = {
  network_id: string
  pool_id: number
  name: string
  version: number
  family: number
  cidr: string
  is_default: boolean
  settings: unknown
  created_at: number
  updated_at: number
}

export type LeaseTable = OwnerColumns & {
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
  holder_key: string | null
  attachment_key: string | null
  node: string
  boot: string
  labels: Labels
  witness: string
  asked_from: string
  reserved_at: number
  confirmed_at: number | null
  confirm_by: number | null
}

export type ReleasedAddressTable = {
  network_id: string
  address: string
  pool_id: number
  prefix_length: number
  available_at: number
  released_seq: number
  holder_key: string
  removal_confirmed: boolean
}

export type PoolPositionTable = {
  network_id: string
  pool_id: number
  seq: number
  low_first: string | null
  cursor_first: string | null
  cursor_next: string | null
  reuse_after: number | null
  reserved: number
  active: number
  quarantined: number
  released: number
}

export type RequestTable = {
  network_id: string
  request_id: string
  fingerprint: string
  method: string
  at: number
  seq: number
  answer: unknown
}

/** The tables that reads are put together from; the write path spells its statements out. */
export type Tables = {
  network: NetworkTable
  event: EventTable
  pool: PoolTable
  lease: LeaseTable
  released_address: ReleasedAddressTable
  pool_position: PoolPositionTable
  request: RequestTable
}
