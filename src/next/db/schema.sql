-- The schemas "ipledger" and "ipledger_audit" as db/migrations, db/audit and db/grants.sql make them. Written by "npm run generate"; do not edit.

create extension btree_gist;

create table ipledger.event (
  network_id text collate "C" not null,
  seq bigint not null,
  format smallint not null,
  type text collate "C" not null,
  at timestamp with time zone not null,
  actor text collate "C" not null,
  cause text collate "C" not null,
  request_id text collate "C",
  trace_id text collate "C",
  pool_id bigint,
  address inet,
  previous bigint,
  prefix_length smallint,
  token bigint,
  state text collate "C",
  ended text collate "C",
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C",
  labels json,
  reserved_at timestamp with time zone,
  confirmed_at timestamp with time zone,
  confirm_by timestamp with time zone,
  available_at timestamp with time zone,
  quarantine_reason text collate "C",
  quarantined_at timestamp with time zone,
  quarantined_by text collate "C",
  quarantine_why text collate "C",
  details json,
  digest bytea not null,
  constraint address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint chain_goes_by_address CHECK ((address IS NULL) = (previous IS NULL)),
  constraint chain_goes_forward CHECK (previous >= 0 AND previous < seq),
  constraint digest_is_sha256 CHECK (octet_length(digest) = 32),
  constraint history_of_an_address_never_forks UNIQUE (network_id, address, previous),
  constraint number_is_given_once PRIMARY KEY (network_id, seq),
  constraint number_is_positive CHECK (seq > 0)
);

create table ipledger.lease (
  network_id text collate "C" not null,
  address inet not null,
  seq bigint not null,
  pool_id bigint not null,
  state text collate "C" not null,
  confirm_by timestamp with time zone,
  available_at timestamp with time zone,
  constraint address_has_one_lease PRIMARY KEY (network_id, address)
) with (fillfactor=70);

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  address inet not null,
  answer text collate "C" not null,
  terminal_since timestamp with time zone,
  detail text not null,
  head bigint not null,
  asked_at timestamp with time zone not null,
  attempts integer not null,
  constraint question_has_one_answer PRIMARY KEY (network_id, source_id, address, owner_kind, owner_uid)
);

create table ipledger.migration (
  version integer not null,
  name text not null,
  checksum text not null,
  applied_at timestamp with time zone not null default clock_timestamp(),
  constraint migration_is_applied_once PRIMARY KEY (version)
);

create table ipledger.network (
  network_id text collate "C" not null,
  description text not null,
  labels json not null,
  era integer not null,
  identity text not null,
  recovering bigint,
  recovered_at timestamp with time zone,
  holds json not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint network_has_one_name PRIMARY KEY (network_id)
);

create table ipledger.network_lock (
  network_id text collate "C" not null,
  constraint network_has_one_lock PRIMARY KEY (network_id)
);

create table ipledger.pool (
  network_id text collate "C" not null,
  pool_id bigint not null,
  name text collate "C" not null,
  cidr cidr not null,
  prefix_length smallint not null,
  settings json not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint pool_has_one_id PRIMARY KEY (network_id, pool_id),
  constraint pool_name_is_taken_once UNIQUE (network_id, name),
  constraint pools_never_overlap EXCLUDE USING gist (network_id WITH =, cidr inet_ops WITH &&)
);

create table ipledger.pool_sample (
  network_id text collate "C" not null,
  pool_id bigint not null,
  at timestamp with time zone not null,
  size numeric not null,
  excluded numeric not null,
  free numeric not null,
  cooling numeric not null,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  constraint pool_is_sampled_once PRIMARY KEY (network_id, pool_id, at)
);

create table ipledger.request (
  network_id text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text not null,
  method text not null,
  seq bigint not null,
  at timestamp with time zone not null,
  answer json not null,
  constraint request_is_answered_once PRIMARY KEY (network_id, request_id)
);

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  node text collate "C" not null,
  state text collate "C" not null,
  appeared_seq bigint not null,
  appeared_head bigint not null,
  vanished_seq bigint,
  terminal_seq bigint,
  terminal_at timestamp with time zone,
  constraint source_lists_an_owner_once PRIMARY KEY (network_id, address, source_id, owner_kind, owner_uid, owner_incarnation, owner_interface)
);

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  declaration json not null,
  state text collate "C" not null,
  version bigint not null,
  registered_at timestamp with time zone not null,
  registered_by text not null,
  enabled_at timestamp with time zone,
  enabled_by text,
  enabled_seq bigint,
  retired_at timestamp with time zone,
  epoch text,
  epoch_seq bigint,
  epoch_head bigint,
  epoch_at timestamp with time zone,
  constraint source_has_one_id PRIMARY KEY (network_id, source_id)
);

create table ipledger.source_report (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text not null,
  era integer not null,
  warm boolean not null,
  sequence bigint not null,
  digest text not null,
  entries integer not null,
  counted json not null,
  counted_total bigint not null,
  reported_at timestamp with time zone not null,
  complete_at timestamp with time zone,
  complete_head bigint,
  partial_since timestamp with time zone,
  partial_because json,
  constraint source_reports_in_one_row PRIMARY KEY (network_id, source_id)
);

create table ipledger.verification (
  network_id text collate "C" not null,
  verified_seq bigint not null,
  digest bytea,
  part text,
  started_at timestamp with time zone not null,
  finished_at timestamp with time zone,
  findings json not null,
  constraint network_has_one_verification PRIMARY KEY (network_id)
);

CREATE INDEX event_about_no_address ON ipledger.event USING btree (network_id, type, COALESCE((details ->> 'source'::text), (details ->> 'id'::text)), seq) WHERE (address IS NULL);

CREATE INDEX event_by_owner ON ipledger.event USING btree (network_id, owner_name, seq) WHERE (owner_name IS NOT NULL);

CREATE INDEX event_by_time ON ipledger.event USING brin (at);

CREATE INDEX lease_to_expire ON ipledger.lease USING btree (network_id, confirm_by) WHERE (confirm_by IS NOT NULL);

CREATE INDEX pool_sample_by_time ON ipledger.pool_sample USING brin (at);

CREATE INDEX request_by_time ON ipledger.request USING brin (at);

function ipledger.event_text(e ipledger.event) returns text

comment on table ipledger.migration is 'Which files of db/migrations this database has seen, and their SHA-256.';

grant usage on schema ipledger to ipledger_service;

grant usage on schema ipledger_audit to ipledger_auditor;

grant usage on schema ipledger_audit to ipledger_service;

grant insert, select on table ipledger.event to ipledger_service;

grant insert, select, update on table ipledger.lease to ipledger_service;

grant delete, insert, select, update on table ipledger.lookup to ipledger_service;

grant select on table ipledger.migration to ipledger_service;

grant insert, select, update on table ipledger.network to ipledger_service;

grant insert, select on table ipledger.network_lock to ipledger_service;

grant update on table ipledger.network_lock (network_id) to ipledger_service;

grant delete, insert, select, update on table ipledger.pool to ipledger_service;

grant delete, insert, select, update on table ipledger.pool_sample to ipledger_service;

grant delete, insert, select, update on table ipledger.request to ipledger_service;

grant delete, insert, select, update on table ipledger.sighting to ipledger_service;

grant insert, select, update on table ipledger.source to ipledger_service;

grant insert, select, update on table ipledger.source_report to ipledger_service;

grant insert, select, update on table ipledger.verification to ipledger_service;
