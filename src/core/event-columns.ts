/**
 * The shape of an event, once: each field with its column of table `event`, in the order of the text, and its SQL type. From this
 * table come the text of an event and its reading (`ledger/event-text.ts`), its insert, and in SQL the function `event_text` and
 * the view `log` (db/audit/00_event.sql). db/schema.ts compares it with the migration. An event without a field has null there.
 */
import type { AddressRecord, EventHeader, Quarantine } from './event.ts'
import type { Owner } from './owner.ts'

type Nested = { readonly owner: Owner; readonly quarantine: Quarantine }
type OfRecord = Exclude<keyof AddressRecord, 'seq' | 'at' | keyof Nested>
type OfNested = { [G in keyof Nested]: `${G}.${string & keyof Nested[G]}` }[keyof Nested]
/** A record's `seq` and `at` are its event's. */
type Field =
  | 'network'
  | 'format'
  | keyof EventHeader
  | 'type'
  | 'previous'
  | 'details'
  | `record.${OfRecord | OfNested}`

/** `few`: few different texts, of which memory has one copy each. */
type Column = readonly [
  name: string,
  type: 'text' | 'bigint' | 'smallint' | 'inet' | 'json' | 'timestamptz',
  few?: 'few',
]

export const EVENT_COLUMNS = {
  network: ['network_id', 'text'],
  seq: ['seq', 'bigint'],
  format: ['format', 'smallint'],
  type: ['type', 'text'],
  at: ['at', 'timestamptz'],
  actor: ['actor', 'text'],
  cause: ['cause', 'text'],
  requestId: ['request_id', 'text'],
  traceId: ['trace_id', 'text'],
  'record.poolId': ['pool_id', 'bigint'],
  'record.address': ['address', 'inet'],
  previous: ['previous', 'bigint'],
  'record.prefixLength': ['prefix_length', 'smallint'],
  'record.token': ['token', 'bigint'],
  'record.state': ['state', 'text', 'few'],
  'record.ended': ['ended', 'text', 'few'],
  'record.owner.kind': ['owner_kind', 'text', 'few'],
  'record.owner.name': ['owner_name', 'text'],
  'record.owner.uid': ['owner_uid', 'text'],
  'record.owner.incarnation': ['owner_incarnation', 'text'],
  'record.owner.interface': ['owner_interface', 'text', 'few'],
  'record.node': ['node', 'text', 'few'],
  'record.labels': ['labels', 'json'],
  'record.reservedAt': ['reserved_at', 'timestamptz'],
  'record.confirmedAt': ['confirmed_at', 'timestamptz'],
  'record.confirmBy': ['confirm_by', 'timestamptz'],
  'record.availableAt': ['available_at', 'timestamptz'],
  'record.quarantine.reason': ['quarantine_reason', 'text', 'few'],
  'record.quarantine.at': ['quarantined_at', 'timestamptz'],
  'record.quarantine.by': ['quarantined_by', 'text', 'few'],
  'record.quarantine.node': ['quarantine_node', 'text', 'few'],
  'record.quarantine.why': ['quarantine_why', 'text'],
  details: ['details', 'json'],
} as const satisfies Record<Field, Column>
