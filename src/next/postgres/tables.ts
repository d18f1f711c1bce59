/**
 * Rows of schema `ipledger` as the driver hands them over (values.ts: int8 and timestamptz are numbers, json is parsed),
 * for reads that are put together with Kysely. The migration says what the columns mean.
 */

type Labels = Readonly<Record<string, string>>

export type NetworkLockTable = { network_id: string }

export type EventTable = {
  network_id: string
  seq: number
  format: number
  type: string
  at: number
  actor: string
  cause: string
  request_id: string | null
  trace_id: string | null
  pool_id: number | null
  address: string | null
  previous: number | null
  prefix_length: number | null
  token: number | null
  state: string | null
  ended: string | null
  owner_kind: string | null
  owner_name: string | null
  owner_uid: string | null
  owner_incarnation: string | null
  owner_interface: string | null
  node: string | null
  labels: Labels | null
  reserved_at: number | null
  confirmed_at: number | null
  confirm_by: number | null
  available_at: number | null
  quarantine_reason: string | null
  quarantined_at: number | null
  quarantined_by: string | null
  quarantine_why: string | null
  details: unknown
  digest: Buffer
}

export type LeaseTable = {
  network_id: string
  address: string
  seq: number
  pool_id: number
  state: string
  confirm_by: number | null
  available_at: number | null
}

export type NetworkTable = {
  network_id: string
  description: string
  labels: Labels
  era: number
  identity: string
  recovering: number | null
  recovered_at: number | null
  holds: unknown
  version: number
  created_at: number
  updated_at: number
}

export type PoolTable = {
  network_id: string
  pool_id: number
  name: string
  cidr: string
  prefix_length: number
  settings: unknown
  version: number
  created_at: number
  updated_at: number
}

export type SourceTable = {
  network_id: string
  source_id: string
  declaration: unknown
  state: string
  version: number
  registered_at: number
  registered_by: string
  enabled_at: number | null
  enabled_by: string | null
  enabled_seq: number | null
  retired_at: number | null
  epoch: string | null
  epoch_seq: number | null
  epoch_head: number | null
  epoch_at: number | null
}

export type SourceReportTable = {
  network_id: string
  source_id: string
  epoch: string
  era: number
  warm: boolean
  sequence: number
  digest: string
  entries: number
  counted: readonly (readonly [sequence: number, head: number, begunAt: number])[]
  counted_total: number
  reported_at: number
  complete_at: number | null
  complete_head: number | null
  partial_since: number | null
  partial_because: unknown
}

export type SightingTable = {
  network_id: string
  address: string
  source_id: string
  owner_kind: string
  owner_name: string
  owner_uid: string
  owner_incarnation: string
  owner_interface: string
  node: string
  state: string
  appeared_seq: number
  appeared_head: number
  vanished_seq: number | null
  terminal_seq: number | null
  terminal_at: number | null
}

export type LookupTable = {
  network_id: string
  source_id: string
  owner_kind: string
  owner_name: string
  owner_uid: string
  address: string
  answer: string
  terminal_since: number | null
  detail: string
  head: number
  asked_at: number
  attempts: number
}

export type RequestTable = {
  network_id: string
  request_id: string
  fingerprint: string
  method: string
  seq: number
  at: number
  answer: unknown
}

export type PoolSampleTable = {
  network_id: string
  pool_id: number
  at: number
  size: string
  excluded: string
  free: string
  cooling: string
  reserved: number
  active: number
  quarantined: number
}

export type VerificationTable = {
  network_id: string
  verified_seq: number
  digest: Buffer | null
  part: string | null
  started_at: number
  finished_at: number | null
  findings: unknown
}

export type Tables = {
  network_lock: NetworkLockTable
  event: EventTable
  lease: LeaseTable
  network: NetworkTable
  pool: PoolTable
  source: SourceTable
  source_report: SourceReportTable
  sighting: SightingTable
  lookup: LookupTable
  request: RequestTable
  pool_sample: PoolSampleTable
  verification: VerificationTable
}
