// Written by "npm run generate" from the migration; do not edit. A type with ? may be null.
export const TABLES = {
  "attention": {
    "network_id": "text",
    "code": "text",
    "source_id": "text",
    "rank": "smallint",
    "severity": "text",
    "count": "bigint",
    "since": "timestamptz",
    "address": "inet?",
    "lease_id": "text?",
    "what": "text",
    "true_at": "timestamptz"
  },
  "event": {
    "network_id": "text",
    "seq": "bigint",
    "format": "smallint",
    "type": "text",
    "at": "timestamptz",
    "actor": "text",
    "cause": "text",
    "request_id": "text?",
    "trace_id": "text?",
    "pool_id": "bigint?",
    "address": "inet?",
    "previous": "bigint?",
    "prefix_length": "smallint?",
    "token": "bigint?",
    "state": "text?",
    "ended": "text?",
    "owner_kind": "text?",
    "owner_name": "text?",
    "owner_uid": "text?",
    "owner_incarnation": "text?",
    "owner_interface": "text?",
    "node": "text?",
    "labels": "json?",
    "reserved_at": "timestamptz?",
    "confirmed_at": "timestamptz?",
    "confirm_by": "timestamptz?",
    "available_at": "timestamptz?",
    "quarantine_reason": "text?",
    "quarantined_at": "timestamptz?",
    "quarantined_by": "text?",
    "quarantine_node": "text?",
    "quarantine_why": "text?",
    "details": "json?",
    "digest": "bytea"
  },
  "lease": {
    "network_id": "text",
    "address": "inet",
    "seq": "bigint",
    "pool_id": "bigint",
    "state": "text",
    "node": "text",
    "confirm_by": "timestamptz?",
    "available_at": "timestamptz?"
  },
  "lookup": {
    "network_id": "text",
    "source_id": "text",
    "owner_kind": "text",
    "owner_name": "text",
    "owner_uid": "text",
    "address": "inet",
    "answer": "text",
    "terminal_since": "timestamptz?",
    "detail": "text",
    "head": "bigint",
    "asked_at": "timestamptz",
    "attempts": "integer"
  },
  "network": {
    "network_id": "text",
    "description": "text",
    "labels": "json",
    "closed": "boolean",
    "era": "integer",
    "identity": "text",
    "recovering": "bigint?",
    "unknown_sources": "json",
    "recovered_at": "timestamptz?",
    "holds": "json",
    "version": "bigint",
    "created_at": "timestamptz",
    "updated_at": "timestamptz"
  },
  "network_lock": {
    "network_id": "text",
    "secret": "bytea"
  },
  "pool": {
    "network_id": "text",
    "pool_id": "bigint",
    "name": "text",
    "cidr": "cidr",
    "prefix_length": "smallint",
    "settings": "json",
    "version": "bigint",
    "created_at": "timestamptz",
    "updated_at": "timestamptz"
  },
  "pool_sample": {
    "network_id": "text",
    "pool_id": "bigint",
    "at": "timestamptz",
    "size": "numeric",
    "excluded": "numeric",
    "free": "numeric",
    "cooling": "numeric",
    "reserved": "bigint",
    "active": "bigint",
    "quarantined": "bigint"
  },
  "request": {
    "network_id": "text",
    "node": "text",
    "request_id": "text",
    "fingerprint": "text",
    "method": "text",
    "seq": "bigint",
    "at": "timestamptz",
    "answer": "json"
  },
  "sighting": {
    "network_id": "text",
    "address": "inet",
    "source_id": "text",
    "owner_kind": "text",
    "owner_name": "text",
    "owner_uid": "text",
    "owner_incarnation": "text",
    "owner_interface": "text",
    "node": "text",
    "state": "text",
    "appeared_seq": "bigint",
    "appeared_at": "timestamptz",
    "appeared_head": "bigint",
    "vanished_seq": "bigint?",
    "terminal_seq": "bigint?",
    "terminal_at": "timestamptz?",
    "rests_until": "timestamptz?"
  },
  "source": {
    "network_id": "text",
    "source_id": "text",
    "declaration": "json",
    "state": "text",
    "version": "bigint",
    "registered_at": "timestamptz",
    "registered_by": "text",
    "enabled_at": "timestamptz?",
    "enabled_by": "text?",
    "enabled_seq": "bigint?",
    "retired_at": "timestamptz?",
    "epoch": "text?",
    "epoch_seq": "bigint?",
    "epoch_head": "bigint?",
    "epoch_at": "timestamptz?"
  },
  "source_failure": {
    "network_id": "text",
    "source_id": "text",
    "since": "timestamptz",
    "why": "text"
  },
  "source_report": {
    "network_id": "text",
    "source_id": "text",
    "epoch": "text",
    "era": "integer",
    "warm": "boolean",
    "sequence": "bigint",
    "digest": "text",
    "entries": "integer",
    "counted": "json",
    "counted_total": "bigint",
    "reported_at": "timestamptz",
    "complete_at": "timestamptz?",
    "complete_head": "bigint?",
    "partial_since": "timestamptz?",
    "partial_because": "json?"
  },
  "verification": {
    "network_id": "text",
    "verified_seq": "bigint",
    "digest": "bytea?",
    "part": "text?",
    "started_at": "timestamptz",
    "finished_at": "timestamptz?",
    "findings": "json"
  }
} as const

export const KEYS = {
  "attention": [
    "network_id",
    "code",
    "source_id"
  ],
  "event": [
    "network_id",
    "seq"
  ],
  "lease": [
    "network_id",
    "address"
  ],
  "lookup": [
    "network_id",
    "address",
    "source_id",
    "owner_kind",
    "owner_uid"
  ],
  "network": [
    "network_id"
  ],
  "network_lock": [
    "network_id"
  ],
  "pool": [
    "network_id",
    "pool_id"
  ],
  "pool_sample": [
    "network_id",
    "pool_id",
    "at"
  ],
  "request": [
    "network_id",
    "node",
    "request_id"
  ],
  "sighting": [
    "network_id",
    "address",
    "source_id",
    "owner_kind",
    "owner_uid",
    "owner_incarnation",
    "owner_interface"
  ],
  "source": [
    "network_id",
    "source_id"
  ],
  "source_failure": [
    "network_id",
    "source_id"
  ],
  "source_report": [
    "network_id",
    "source_id"
  ],
  "verification": [
    "network_id"
  ]
} as const
