-- The schema "ipledger" as db/migrations and db/audit make it. Written by "npm run generate"; do not edit.

create extension btree_gist with schema public;

CREATE OR REPLACE FUNCTION ipledger.oldest_transaction()
 RETURNS TABLE(process_id integer, role name, application text, state text, begun_at timestamp with time zone)
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog'
BEGIN ATOMIC
 SELECT a.pid,
     a.usename,
     a.application_name,
     a.state,
     a.xact_start
    FROM pg_stat_activity a
   WHERE ((a.datname = current_database()) AND (a.xact_start IS NOT NULL) AND (a.pid <> pg_backend_pid()) AND (a.backend_type = 'client backend'::text))
   ORDER BY a.xact_start
  LIMIT 1;
END;

create table ipledger.closed_attachment (
  network_id text collate "C" not null,
  attachment_key text collate "C" not null,
  pool_id bigint not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_uid_named boolean not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  closed_at timestamp with time zone not null,
  closed_seq bigint not null,
  constraint attachment_is_closed_once_per_pool PRIMARY KEY (network_id, attachment_key, pool_id)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.database_life (
  network_id text collate "C" not null,
  system_identifier text collate "C" not null,
  database_oid bigint not null,
  log_oid bigint not null,
  timeline integer not null,
  known_at timestamp with time zone not null,
  constraint network_is_written_in_one_life PRIMARY KEY (network_id)
);

create table ipledger.dropped_range (
  network_id text collate "C" not null,
  first_address inet not null,
  last_address inet not null,
  pool_id bigint not null,
  constraint dropped_range_starts_once PRIMARY KEY (network_id, first_address),
  constraint dropped_range_is_not_empty CHECK (first_address <= last_address)
);

create table ipledger.event (
  network_id text collate "C" not null,
  seq bigint not null,
  type text collate "C" not null,
  at timestamp with time zone not null,
  actor text collate "C" not null,
  cause text collate "C" not null,
  request_id text collate "C",
  trace_id text collate "C",
  pool_id bigint,
  address inet,
  prefix_length smallint,
  fencing_token bigint,
  state text collate "C",
  quarantine_reason text collate "C",
  quarantined_at timestamp with time zone,
  quarantined_by text collate "C",
  quarantine_why text,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C",
  boot text collate "C",
  labels jsonb,
  witness text collate "C",
  reserved_at timestamp with time zone,
  confirmed_at timestamp with time zone,
  confirm_by timestamp with time zone,
  available_at timestamp with time zone,
  removal_confirmed boolean,
  settings json,
  evidence jsonb,
  constraint event_is_numbered_once_per_network PRIMARY KEY (network_id, seq),
  constraint event_about_a_lease_names_it CHECK (type !~~ 'lease.%'::text OR num_nulls(pool_id, address, prefix_length, fencing_token, state, reserved_at) = 0),
  constraint event_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint event_number_is_positive CHECK (seq > 0),
  constraint event_that_ends_a_lease_says_when_it_cools CHECK ((type <> ALL (ARRAY['lease.released'::text, 'lease.reaped'::text])) OR num_nulls(available_at, removal_confirmed) = 0),
  constraint event_type_is_known CHECK (type = ANY (ARRAY['network.created'::text, 'network.updated'::text, 'era.begun'::text, 'pool.created'::text, 'pool.updated'::text, 'pool.deleted'::text, 'lease.reserved'::text, 'lease.confirmed'::text, 'lease.released'::text, 'lease.quarantined'::text, 'lease.reaped'::text, 'lease.adopted'::text, 'lease.updated'::text, 'attachment.closed'::text, 'node.fenced'::text, 'reconcile.held'::text, 'reconcile.resumed'::text]))
);

create table ipledger.fence (
  network_id text collate "C" not null,
  node text collate "C" not null,
  boot text collate "C" not null,
  fenced_seq bigint not null,
  fenced_at timestamp with time zone not null,
  fenced_by text collate "C" not null,
  why text not null,
  constraint boot_is_fenced_once PRIMARY KEY (network_id, node, boot)
);

create table ipledger.hold (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  held_seq bigint not null,
  held_at timestamp with time zone not null,
  why text not null,
  reaps integer not null,
  leases bigint not null,
  constraint source_is_held_once PRIMARY KEY (network_id, source_id)
);

create table ipledger.lease (
  network_id text collate "C" not null,
  address inet not null,
  prefix_length smallint not null,
  pool_id bigint not null,
  fencing_token bigint not null,
  version bigint not null,
  state text collate "C" not null,
  quarantine_reason text collate "C",
  quarantined_at timestamp with time zone,
  quarantined_by text collate "C",
  quarantine_why text,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  holder_key text collate "C",
  attachment_key text collate "C",
  node text collate "C" not null,
  boot text collate "C" not null,
  labels jsonb not null,
  witness text collate "C" not null,
  reserved_at timestamp with time zone not null,
  confirmed_at timestamp with time zone,
  confirm_by timestamp with time zone,
  constraint address_has_one_lease PRIMARY KEY (network_id, address),
  constraint held_lease_has_an_owner CHECK (num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key) =
CASE
    WHEN state = 'QUARANTINED'::text AND owner_kind IS NULL THEN 8
    ELSE 0
END),
  constraint lease_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint lease_state_is_known CHECK (state = ANY (ARRAY['RESERVED'::text, 'ACTIVE'::text, 'QUARANTINED'::text])),
  constraint lease_version_is_not_before_its_token CHECK (version >= fencing_token),
  constraint only_reserved_leases_have_a_deadline CHECK (confirm_by IS NULL OR state = 'RESERVED'::text),
  constraint quarantined_lease_has_a_known_reason CHECK (num_nulls(quarantine_reason, quarantined_at, quarantined_by) =
CASE state
    WHEN 'QUARANTINED'::text THEN 0
    ELSE 3
END AND (quarantine_reason = ANY (ARRAY['SUPERSEDED'::text, 'REMOVAL_UNCONFIRMED'::text, 'CONFLICT'::text, 'OPERATOR'::text, 'RELEASED_BUT_LIVE'::text, 'FOREIGN'::text, 'SECOND_ADDRESS'::text, 'SEEN_BY_CALLER'::text])))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=85);

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  fencing_token bigint not null,
  attachment_key text collate "C" not null,
  version bigint not null,
  address inet not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_uid_named boolean not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  node text collate "C" not null,
  wanted_at timestamp with time zone not null,
  asked_at timestamp with time zone,
  answered_at timestamp with time zone,
  answer text collate "C",
  terminal_since timestamp with time zone,
  epoch text collate "C" not null,
  detail text not null,
  attempts integer not null,
  next_at timestamp with time zone,
  constraint lookup_is_kept_once_per_lease_owner_and_source PRIMARY KEY (network_id, source_id, fencing_token, attachment_key),
  constraint lookup_attempts_are_counted CHECK (attempts >= 0),
  constraint lookup_has_a_known_answer CHECK (answer = ANY (ARRAY['live'::text, 'terminal'::text, 'gone'::text, 'unknown'::text, 'error'::text, 'unanswered'::text])),
  constraint lookup_is_answered_after_it_was_asked CHECK ((answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL OR asked_at IS NOT NULL)),
  constraint only_a_terminal_workload_ended_at_a_time CHECK ((terminal_since IS NOT NULL) = (answer IS NOT NULL AND answer = 'terminal'::text))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

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
  labels jsonb not null,
  state text collate "C" not null,
  era integer not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint network_name_is_unique PRIMARY KEY (network_id),
  constraint network_era_is_not_negative CHECK (era >= 0),
  constraint network_name_is_a_dns_like_label CHECK (network_id ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'::text),
  constraint network_state_is_known CHECK (state = ANY (ARRAY['READY'::text, 'REBUILDING'::text, 'RECOVERING'::text]))
);

create table ipledger.network_lock (
  network_id text collate "C" not null,
  constraint network_lock_has_one_row_per_network PRIMARY KEY (network_id)
);

create table ipledger.pool (
  network_id text collate "C" not null,
  pool_id bigint not null,
  name text collate "C" not null,
  version bigint not null,
  family smallint not null,
  cidr cidr not null,
  is_default boolean not null,
  settings json not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint pool_id_is_unique_in_its_network PRIMARY KEY (network_id, pool_id),
  constraint pool_name_is_unique_in_its_network UNIQUE (network_id, name),
  constraint pool_family_is_that_of_its_cidr CHECK (family = family(cidr::inet)),
  constraint pools_of_a_network_never_overlap EXCLUDE USING gist (network_id WITH =, cidr inet_ops WITH &&)
);

create table ipledger.pool_position (
  network_id text collate "C" not null,
  pool_id bigint not null,
  seq bigint not null,
  low_first inet,
  cursor_first inet,
  cursor_next inet,
  reuse_after timestamp with time zone,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  released bigint not null,
  constraint pool_has_one_position_per_batch PRIMARY KEY (network_id, pool_id, seq),
  constraint pool_counts_are_not_negative CHECK (reserved >= 0 AND active >= 0 AND quarantined >= 0 AND released >= 0),
  constraint pool_cursor_is_whole CHECK ((cursor_first IS NULL) = (cursor_next IS NULL))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.pool_sample (
  network_id text collate "C" not null,
  pool_id bigint not null,
  at timestamp with time zone not null,
  size numeric not null,
  allocatable numeric not null,
  cooling bigint not null,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  excluded numeric not null,
  constraint pool_is_sampled_once_a_minute PRIMARY KEY (network_id, pool_id, at),
  constraint sampled_counts_are_not_negative CHECK (cooling >= 0 AND reserved >= 0 AND active >= 0 AND quarantined >= 0),
  constraint sampled_pool_is_what_it_is_made_of CHECK (size = (allocatable + excluded))
);

create table ipledger.released_address (
  network_id text collate "C" not null,
  address inet not null,
  pool_id bigint not null,
  prefix_length smallint not null,
  available_at timestamp with time zone not null,
  released_seq bigint not null,
  holder_key text collate "C" not null,
  removal_confirmed boolean not null,
  constraint address_is_released_once PRIMARY KEY (network_id, address),
  constraint released_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.request (
  network_id text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text collate "C" not null,
  method text collate "C" not null,
  at timestamp with time zone not null,
  seq bigint not null,
  answer json not null,
  constraint request_id_is_remembered_once PRIMARY KEY (network_id, request_id)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  entry_key text collate "C" not null,
  appeared_sequence bigint not null,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C" not null,
  boot text collate "C" not null,
  state text collate "C" not null,
  live boolean not null,
  epoch text collate "C" not null,
  appeared_head bigint not null,
  appeared_at timestamp with time zone not null,
  last_seen_at timestamp with time zone,
  vanished_sequence bigint,
  vanished_head bigint,
  vanished_at timestamp with time zone,
  constraint sighting_begins_once PRIMARY KEY (network_id, address, source_id, entry_key, appeared_sequence),
  constraint live_is_what_is_listed_and_has_not_ended CHECK (live = (vanished_sequence IS NULL AND state <> 'terminal'::text)),
  constraint sighted_owner_is_whole CHECK (num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface) = ANY (ARRAY[0, 6])),
  constraint sighting_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint sighting_ends_after_it_began CHECK (vanished_sequence > appeared_sequence),
  constraint sighting_vanishes_as_a_whole CHECK (num_nulls(last_seen_at, vanished_sequence, vanished_head, vanished_at) = ANY (ARRAY[0, 4]))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.signing_key (
  network_id text collate "C" not null,
  secret text collate "C" not null,
  made_at timestamp with time zone not null,
  constraint network_has_one_signing_key PRIMARY KEY (network_id),
  constraint signing_key_has_256_bits CHECK (secret ~ '^[A-Za-z0-9_-]{43}$'::text)
);

create table ipledger.snapshot (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  sequence bigint not null,
  reported_at timestamp with time zone not null,
  epoch text collate "C" not null,
  era integer not null,
  head bigint not null,
  begun_at timestamp with time zone,
  complete boolean not null,
  counted boolean not null,
  partial_because text[] not null,
  entries integer not null,
  unreadable integer not null,
  ignored integer not null,
  appeared integer not null,
  vanished integer not null,
  digest text collate "C" not null,
  constraint report_is_kept_once PRIMARY KEY (network_id, source_id, sequence, reported_at),
  constraint only_complete_snapshots_count CHECK (complete OR NOT counted),
  constraint only_complete_snapshots_end_sightings CHECK (complete OR vanished = 0),
  constraint partial_snapshot_says_why CHECK (complete = (cardinality(partial_because) = 0))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.snapshot_part (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  begun_at timestamp with time zone not null,
  part integer not null,
  received_at timestamp with time zone not null,
  epoch text collate "C" not null,
  entries json not null,
  given integer not null,
  digest text collate "C" not null,
  unreadable integer not null,
  ignored integer not null,
  constraint part_of_a_snapshot_is_kept_once PRIMARY KEY (network_id, source_id, begun_at, part),
  constraint part_is_numbered_from_nothing CHECK (part >= 0)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  kind text collate "C" not null,
  node text collate "C" not null,
  owner_kinds text[] not null,
  families smallint[] not null,
  sees_stopped boolean not null,
  boot_ends_all boolean not null,
  report_interval_ms bigint not null,
  settings json not null,
  state text collate "C" not null,
  registered_at timestamp with time zone not null,
  registered_by text collate "C" not null,
  enabled_at timestamp with time zone,
  enabled_by text collate "C",
  enabled_head bigint,
  retired_at timestamp with time zone,
  retired_by text collate "C",
  epoch text collate "C" not null,
  epoch_begun_at timestamp with time zone,
  warm boolean not null,
  warming_size integer,
  warming_at timestamp with time zone,
  warming_snapshots integer,
  era integer,
  last_sequence bigint not null,
  last_begun_at timestamp with time zone,
  reported_at timestamp with time zone,
  complete_sequence bigint,
  complete_head bigint,
  complete_at timestamp with time zone,
  size integer not null,
  digest text collate "C" not null,
  counted bigint not null,
  streak_from bigint not null,
  recent json not null,
  partial_since timestamp with time zone,
  partial_because text[] not null,
  constraint source_id_is_unique_in_its_network PRIMARY KEY (network_id, source_id),
  constraint enabled_source_says_from_which_number CHECK (state <> 'ENABLED'::text OR num_nulls(enabled_at, enabled_by, enabled_head) = 0),
  constraint only_the_source_of_a_node_knows_its_boots CHECK (NOT boot_ends_all OR node <> ''::text),
  constraint retired_source_says_since_when CHECK ((state = 'RETIRED'::text) = (num_nulls(retired_at, retired_by) = 0)),
  constraint source_interval_is_positive CHECK (report_interval_ms > 0),
  constraint source_is_named CHECK (source_id <> ''::text),
  constraint source_kind_is_known CHECK (kind = ANY (ARRAY['push'::text, 'docker'::text, 'kubernetes'::text, 'http'::text])),
  constraint source_last_complete_snapshot_is_whole CHECK (num_nulls(complete_sequence, complete_head, complete_at, era) = ANY (ARRAY[0, 4])),
  constraint source_sees_some_family CHECK (families <@ ARRAY[4::smallint, 6::smallint] AND cardinality(families) > 0),
  constraint source_sees_some_kind_of_owner CHECK (cardinality(owner_kinds) > 0),
  constraint source_state_is_known CHECK (state = ANY (ARRAY['REGISTERED'::text, 'ENABLED'::text, 'RETIRED'::text])),
  constraint source_warm_up_is_whole CHECK (num_nulls(warming_size, warming_at, warming_snapshots) = ANY (ARRAY[0, 3])),
  constraint streak_is_counted CHECK (streak_from >= 0 AND streak_from <= counted)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.source_epoch (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text collate "C" not null,
  begun_at timestamp with time zone not null,
  begun_sequence bigint not null,
  begun_head bigint not null,
  closed_at timestamp with time zone,
  closed_by text collate "C",
  constraint epoch_is_begun_once_per_source PRIMARY KEY (network_id, source_id, epoch),
  constraint closed_epoch_names_its_successor CHECK ((closed_at IS NULL) = (closed_by IS NULL))
);

create table ipledger.turn (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  taken_at timestamp with time zone not null,
  taken_by text collate "C" not null,
  next_at timestamp with time zone not null,
  failure text not null,
  constraint source_is_asked_by_one_at_a_time PRIMARY KEY (network_id, source_id),
  constraint next_turn_comes_after_this_one CHECK (next_at >= taken_at)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.untouched_range (
  network_id text collate "C" not null,
  pool_id bigint not null,
  first_address inet not null,
  last_address inet not null,
  constraint untouched_range_starts_once PRIMARY KEY (network_id, pool_id, first_address),
  constraint untouched_range_is_not_empty CHECK (first_address <= last_address)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.verify_checkpoint (
  network_id text collate "C" not null,
  seq bigint not null,
  events bigint not null,
  at timestamp with time zone not null,
  constraint network_has_one_checkpoint PRIMARY KEY (network_id)
);

CREATE INDEX closed_attachment_by_time ON ipledger.closed_attachment USING btree (network_id, closed_at);

CREATE INDEX closed_attachment_by_workload ON ipledger.closed_attachment USING btree (network_id, owner_uid, owner_kind);

CREATE INDEX event_by_address ON ipledger.event USING btree (network_id, address, seq) WHERE (address IS NOT NULL);

CREATE INDEX event_by_owner ON ipledger.event USING btree (network_id, owner_name, seq) WHERE (owner_name IS NOT NULL);

CREATE INDEX event_by_time ON ipledger.event USING btree (network_id, at, seq);

CREATE INDEX event_of_absence ON ipledger.event USING btree (network_id, at, seq) WHERE (((type = 'lease.reaped'::text) AND (cause = 'PROVEN_ABSENT'::text)) OR (type = 'reconcile.resumed'::text));

CREATE INDEX event_of_shape ON ipledger.event USING btree (network_id, seq) WHERE (type = ANY (ARRAY['network.created'::text, 'network.updated'::text, 'era.begun'::text, 'pool.created'::text, 'pool.updated'::text, 'pool.deleted'::text, 'node.fenced'::text, 'reconcile.held'::text, 'reconcile.resumed'::text]));

CREATE INDEX lease_by_attachment ON ipledger.lease USING btree (network_id, attachment_key);

CREATE INDEX lease_by_deadline ON ipledger.lease USING btree (network_id, confirm_by) WHERE (confirm_by IS NOT NULL);

CREATE INDEX lease_by_holder ON ipledger.lease USING btree (network_id, holder_key);

CREATE INDEX lease_by_node ON ipledger.lease USING btree (network_id, node, address) WHERE (node <> ''::text);

CREATE INDEX lease_by_quarantiner ON ipledger.lease USING btree (network_id, quarantined_by, quarantine_reason) WHERE (state = 'QUARANTINED'::text);

CREATE INDEX lease_by_token ON ipledger.lease USING btree (network_id, fencing_token);

CREATE INDEX lookup_by_answer ON ipledger.lookup USING btree (network_id, answered_at) WHERE (answered_at IS NOT NULL);

CREATE INDEX lookup_by_next_time ON ipledger.lookup USING btree (network_id, next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX lookup_waits_for_its_source ON ipledger.lookup USING btree (network_id, source_id, wanted_at) WHERE (answer IS NULL);

CREATE INDEX pool_sample_by_time ON ipledger.pool_sample USING btree (network_id, at);

CREATE INDEX released_in_order_of_reuse ON ipledger.released_address USING btree (network_id, pool_id, available_at, released_seq);

CREATE INDEX request_by_time ON ipledger.request USING btree (network_id, at);

CREATE INDEX sighting_by_its_end ON ipledger.sighting USING btree (network_id, vanished_at) WHERE (vanished_at IS NOT NULL);

CREATE INDEX sighting_by_last_seen ON ipledger.sighting USING btree (network_id, address, last_seen_at) WHERE ((vanished_sequence IS NOT NULL) AND (state <> 'terminal'::text));

CREATE INDEX sighting_live ON ipledger.sighting USING btree (network_id, address) WHERE live;

CREATE UNIQUE INDEX source_lists_an_entry_once ON ipledger.sighting USING btree (network_id, source_id, entry_key) WHERE (vanished_sequence IS NULL);

CREATE INDEX snapshot_by_time ON ipledger.snapshot USING btree (network_id, reported_at);

CREATE INDEX snapshot_part_by_time ON ipledger.snapshot_part USING btree (network_id, received_at);

CREATE INDEX source_by_era ON ipledger.source USING btree (network_id, era, source_id) WHERE (state = 'ENABLED'::text);

CREATE INDEX source_by_interval ON ipledger.source USING btree (network_id, report_interval_ms) WHERE (state <> 'RETIRED'::text);

CREATE INDEX source_by_node ON ipledger.source USING btree (network_id, node, source_id);

CREATE INDEX source_that_is_asked ON ipledger.source USING btree (network_id, source_id) WHERE ((kind <> 'push'::text) AND (state <> 'RETIRED'::text));

CREATE INDEX source_warming_up ON ipledger.source USING btree (network_id, source_id) WHERE ((state = 'ENABLED'::text) AND (NOT warm));

comment on column ipledger.closed_attachment.pool_id is '0: in every pool.';

comment on column ipledger.database_life.database_oid is 'Of the database in its cluster: another one means a copy beside the first, or a dump restored into a new database.';

comment on column ipledger.database_life.known_at is 'When the ledger was first written in it.';

comment on column ipledger.database_life.log_oid is 'Of the table `event`: another one means that a dump was restored over what was there.';

comment on column ipledger.database_life.system_identifier is 'Of the cluster: another one means that the database was restored into it.';

comment on column ipledger.database_life.timeline is 'Of the write-ahead log: another one means a failover, or recovery to a point in time.';

comment on column ipledger.dropped_range.pool_id is 'The pool that is gone, under which the rows are filed.';

comment on column ipledger.event.actor is 'Token name or job.';

comment on column ipledger.event.address is 'The address, or the first address of the block.';

comment on column ipledger.event.at is 'Database clock under the network''s lock, never before the previous event.';

comment on column ipledger.event.available_at is 'When the released or reaped address has cooled.';

comment on column ipledger.event.cause is 'RPC or finding.';

comment on column ipledger.event.evidence is 'What the decision rested on.';

comment on column ipledger.event.fencing_token is 'Number of the event that created the lease.';

comment on column ipledger.event.removal_confirmed is 'Whether the holder said that the address is unconfigured; false after a reap.';

comment on column ipledger.event.seq is 'Number in the network; also the version of the lease it is about, and its token if it created it.';

comment on column ipledger.event.settings is 'Of a pool or network event: the settings after it.';

comment on column ipledger.event.state is 'State of the lease after the event; of an ended lease, its last one.';

comment on column ipledger.hold.held_seq is 'Number of the event that held it.';

comment on column ipledger.hold.leases is 'Leases that those are a share of.';

comment on column ipledger.hold.reaps is 'Reaps of the hour, the refused one included.';

comment on column ipledger.hold.source_id is 'Empty: the whole network.';

comment on column ipledger.lease.attachment_key is 'kind|interface|incarnation|uid: retries, Release and closing go by it.';

comment on column ipledger.lease.confirm_by is 'The caller''s promise not to use the address later unless confirmed; null: held until released or proven gone.';

comment on column ipledger.lease.fencing_token is 'Number of the event that created the lease.';

comment on column ipledger.lease.holder_key is 'kind|interface|name: supersession and the owner limit go by it.';

comment on column ipledger.lease.node is 'For display and scope; where a workload is seen is what counts.';

comment on column ipledger.lease.version is 'Number of the last event about the lease.';

comment on column ipledger.lookup.answer is 'Null: none yet. Only gone, and terminal past its grace, are proof; every other word means alive.';

comment on column ipledger.lookup.asked_at is 'When the question was handed to the source: the answer is not older than that, and no newer is claimed.';

comment on column ipledger.lookup.attachment_key is 'kind|interface|incarnation|uid of whom the question is after: the holder of the lease, or another who was seen at its address.';

comment on column ipledger.lookup.attempts is 'Since the lease was last suspected; capped, for the waits between them.';

comment on column ipledger.lookup.epoch is 'Epoch of the source that answered.';

comment on column ipledger.lookup.version is 'Version of the lease when it was suspected; an answer about an older one proves nothing.';

comment on column ipledger.lookup.wanted_at is 'When the question arose.';

comment on column ipledger.network.era is 'Life of the ledger; numbers of era e begin at e × 2^40.';

comment on column ipledger.network.state is 'READY; REBUILDING: projections are being replaced; RECOVERING: a new era has not been observed yet.';

comment on column ipledger.network.version is 'Number of the last event about the network itself.';

comment on column ipledger.pool.pool_id is 'Number of the event that created it.';

comment on column ipledger.pool.settings is 'Canonical settings as in the event: cidr, subnet, prefixLength, gateway, exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels.';

comment on column ipledger.pool_position.cursor_first is 'The untouched_range that begins at cursor_next instead of its first address.';

comment on column ipledger.pool_position.low_first is 'No untouched_range of the pool starts below this.';

comment on column ipledger.pool_position.released is 'Released addresses, cooling or cooled.';

comment on column ipledger.pool_position.reuse_after is 'No released_address of the pool has an earlier available_at.';

comment on column ipledger.pool_sample.allocatable is 'Free ones are this without cooling, reserved, active and quarantined.';

comment on column ipledger.pool_sample.at is 'The minute.';

comment on column ipledger.released_address.holder_key is 'Its last holder, kind|interface|name; empty if it had none.';

comment on column ipledger.request.seq is 'Head of the ledger after the command.';

comment on column ipledger.sighting.appeared_at is 'When that snapshot was begun.';

comment on column ipledger.sighting.appeared_head is 'Head of the ledger at which that snapshot was begun; 0: not proven, and it decides nothing. What it is evidence of later only the last report of its source tells: of complete_head, where that is a complete one of a warm source; of this, where it appeared in it; otherwise of none, and it protects.';

comment on column ipledger.sighting.entry_key is 'Digest of all that the entry says, the address included.';

comment on column ipledger.sighting.last_seen_at is 'Of one that vanished: not later than this was it seen by its source.';

comment on column ipledger.sighting.live is 'Listed now, and not as terminal. Such an address is never handed out.';

comment on column ipledger.sighting.owner_interface is 'Empty: not told.';

comment on column ipledger.sighting.owner_kind is 'Null: seen live, and whose it is is not known.';

comment on column ipledger.sighting.owner_uid_named is 'False: the source named no uid, and `owner_uid` repeats the name.';

comment on column ipledger.sighting.state is 'The source''s word for it. Only `terminal` means that the workload has ended and is listed all the same; every other word, known or not, is alive.';

comment on column ipledger.sighting.vanished_sequence is 'The complete snapshot that did not list it: its first miss, if it counted.';

comment on column ipledger.snapshot.begun_at is 'Null: nothing proves when.';

comment on column ipledger.snapshot.entries is 'Entries kept, each once.';

comment on column ipledger.snapshot.head is 'Head of the ledger at which it was begun; 0: nothing proves one, so it decides nothing.';

comment on column ipledger.snapshot.ignored is 'Entries that are valid and say nothing here: link-local, of another network.';

comment on column ipledger.snapshot_part.begun_at is 'Of the snapshot, from its token: two begun by one source are not mixed.';

comment on column ipledger.snapshot_part.digest is 'Of the entries as they were sent; the digests of all parts add up to that of the snapshot.';

comment on column ipledger.snapshot_part.entries is 'In canonical form.';

comment on column ipledger.snapshot_part.given is 'Entries as they were sent, all of them.';

comment on column ipledger.source.boot_ends_all is 'Whether a new boot of its node proves that everything of the older ones ended.';

comment on column ipledger.source.complete_head is 'Head of the ledger when its last complete snapshot was begun: what a warm source listed before and lists still is evidence of that head, until a report comes that is not complete.';

comment on column ipledger.source.counted is 'Its counted snapshots, for ever: complete, warm, half an interval apart.';

comment on column ipledger.source.digest is 'Of the set that its listed sightings are; empty: not known, the next complete snapshot is compared entry by entry.';

comment on column ipledger.source.enabled_head is 'Head of the ledger when it was enabled: leases up to it are not missed before they were sighted.';

comment on column ipledger.source.epoch is 'The life it is in, by its own name for it; empty before its first snapshot.';

comment on column ipledger.source.era is 'Era of its last complete snapshot.';

comment on column ipledger.source.families is '4, 6: of another family its silence says nothing (calico#5044).';

comment on column ipledger.source.kind is 'push: an agent or orchestrator reports; docker, kubernetes, http: ipledger asks.';

comment on column ipledger.source.last_begun_at is 'When its last report, complete or not, was begun; of one that does not prove that, when it arrived. Nothing it lists was seen later.';

comment on column ipledger.source.last_sequence is 'Number of the last snapshot taken in order; the next one begun is one more.';

comment on column ipledger.source.node is 'The node it sees; empty: the whole network. The epochs of a source of a node are the boots of the node.';

comment on column ipledger.source.owner_kinds is 'Kinds of owners it can see; of others its silence says nothing.';

comment on column ipledger.source.partial_since is 'Since when it has not reported completely; null: its last report was complete.';

comment on column ipledger.source.recent is 'The last 8 counted snapshots, oldest first: [{counted, sequence, head, begunAt}].';

comment on column ipledger.source.sees_stopped is 'Whether workloads that are stopped and keep their address are in its lists.';

comment on column ipledger.source.settings is 'Of a source that is asked: where and how. Never a secret.';

comment on column ipledger.source.state is 'REGISTERED: dry run, its sightings protect and prove nothing; ENABLED; RETIRED: over for good, its sightings are ended.';

comment on column ipledger.source.streak_from is 'What `counted` was when the streak began; only later ones are misses.';

comment on column ipledger.source.warm is 'Whether this epoch has had two complete snapshots whose size stopped growing; before, nothing is a miss, and nothing listed ends.';

comment on column ipledger.source.warming_size is 'While it warms up: size of the snapshot that the next one is compared with.';

comment on column ipledger.source.warming_snapshots is 'While it warms up: complete snapshots since the set grew.';

comment on column ipledger.source_epoch.begun_sequence is 'Its first snapshot.';

comment on column ipledger.source_epoch.closed_by is 'The epoch that followed it.';

comment on column ipledger.turn.failure is 'Why the last turn came to nothing, for people; empty: it did not.';

comment on column ipledger.turn.next_at is 'Nobody else asks before. While the source is being asked: the end of that turn, whatever became of the worker; afterwards: its next turn.';

comment on column ipledger.turn.taken_by is 'Who took the turn: one run of one worker. Only that one ends it early.';

comment on function ipledger.oldest_transaction() is 'The transaction of this database that has been open longest, as far as the owner of the schema may see: nothing that died since is vacuumed.';

comment on index ipledger.closed_attachment_by_workload is 'Lives of a workload that are over: it is seen at an address that the books have as free.';

comment on index ipledger.event_by_address is 'History of an address; the fold of one address.';

comment on index ipledger.event_by_owner is 'History of an owner; its previous address.';

comment on index ipledger.event_by_time is 'Turns a time into a position of the log.';

comment on index ipledger.event_of_absence is 'Reaps on absence of the last hour, and from when they count anew: the rolling caps.';

comment on index ipledger.event_of_shape is 'History of a network, its pools, and what people say of reaping.';

comment on index ipledger.lease_by_attachment is 'Retries, Release by owner.';

comment on index ipledger.lease_by_deadline is 'Reservations that may have expired.';

comment on index ipledger.lease_by_holder is 'Supersession, the owner limit.';

comment on index ipledger.lease_by_node is 'What is on a node: listing, fencing.';

comment on index ipledger.lease_by_quarantiner is 'The cap on quarantines of one caller or source; listing of quarantines.';

comment on index ipledger.lease_by_token is 'A token is given once: no dead rows stand before the living one, as they do at a recycled address while a snapshot is held open.';

comment on index ipledger.lookup_by_answer is 'What was answered a moment ago, and is a proof for no longer than a minute.';

comment on index ipledger.lookup_by_next_time is 'What is to be asked again.';

comment on index ipledger.lookup_waits_for_its_source is 'What the next answer to a report asks.';

comment on index ipledger.pool_sample_by_time is 'Pruning; a chart of a whole network.';

comment on index ipledger.released_in_order_of_reuse is 'Longest-free first.';

comment on index ipledger.sighting_by_its_end is 'Pruning.';

comment on index ipledger.sighting_by_last_seen is 'When an address was seen last: an address handed on every few minutes has hundreds of sightings a day.';

comment on index ipledger.sighting_live is 'What is not handed out; leases nobody sees.';

comment on index ipledger.snapshot_by_time is 'Pruning.';

comment on index ipledger.snapshot_part_by_time is 'Pruning of what was never finished.';

comment on index ipledger.source_by_era is 'Enabled sources that have not reported completely in this era: recovery, STRICT.';

comment on index ipledger.source_by_interval is 'The slowest: an address cools for twice as long.';

comment on index ipledger.source_by_node is 'The sources that see the node that asks (STRICT), or is fenced.';

comment on index ipledger.source_lists_an_entry_once is 'What a source lists now, compared with its next snapshot.';

comment on index ipledger.source_that_is_asked is 'The few sources that are asked, beside thousands that report.';

comment on index ipledger.source_warming_up is 'Enabled sources whose lists do not count yet: recovery, STRICT.';

comment on schema ipledger is 'Event-sourced IP address allocation: the log, and what it says now.';

comment on table ipledger.closed_attachment is 'Incarnations that were released or superseded: late calls for them hold nothing.';

comment on table ipledger.database_life is 'The life of the database that a ledger was last written in. It goes with the database into its copies, and there it is wrong.';

comment on table ipledger.dropped_range is 'Ranges of deleted pools in which rows of released_address may be left; removed with the last of them. Ranges never overlap, each other or a pool.';

comment on table ipledger.event is 'The log: append-only by privilege, numbered without a gap per network and era. Each row carries the full state after it.';

comment on table ipledger.fence is 'Projection: boots of nodes that somebody vouches are over (node.fenced); of leases with a token up to fenced_seq.';

comment on table ipledger.hold is 'Projection: whose proofs of absence reap nothing until an operator resumes (reconcile.held, reconcile.resumed).';

comment on table ipledger.lease is 'Projection: who holds what now. The primary key is the promise that one address has one holder.';

comment on table ipledger.lookup is 'Point look-ups at the authority: what is to be asked about a lease, the last answer, and when to ask again.';

comment on table ipledger.migration is 'Which files of db/migrations this database has seen, and their SHA-256.';

comment on table ipledger.network is 'Projection: networks as their last network event left them.';

comment on table ipledger.network_lock is 'One row per network, locked for no key update by each batch; never updated, referenced by nothing.';

comment on table ipledger.pool is 'Projection: pools as their last pool event left them.';

comment on table ipledger.pool_position is 'Where each pool stands after a batch; the row with the greatest seq counts, older ones are pruned. Appended, never updated: a row rewritten by every batch collapses while anyone holds a snapshot open (2,270 batches a second fell to 239).';

comment on table ipledger.pool_sample is 'How full each pool was, once a minute, for charts: an observation, kept for 90 days. Counts are leases; a v6 /48 has 2^80 of them.';

comment on table ipledger.released_address is 'Free space, part one: addresses somebody held before, cooling until available_at, then reused in that order.';

comment on table ipledger.request is 'Answers of committed commands, for a day: the same id gives the same answer. Refusals are not remembered.';

comment on table ipledger.sighting is 'Who sees which address for which owner: from the snapshot that first listed the entry to the complete one, of a warm epoch, that did not. What an entry says never changes: an owner on another node, or one that was paused, is another entry.';

comment on table ipledger.signing_key is 'Secret that snapshot tokens of a network are signed with. Made once; goes with the database into its copies, so that a token of a later life is still known to be ours.';

comment on table ipledger.snapshot is 'Reports that changed something: the set, the epoch, or whether the source is partial and why. The others leave their source''s row only.';

comment on table ipledger.snapshot_part is 'Chunks of snapshots whose last one has not arrived. They say nothing yet, and go with the next snapshot of their source.';

comment on table ipledger.source is 'What can say which addresses are live, what it declares that it sees, and how it stands.';

comment on table ipledger.source_epoch is 'Lives of sources. A closed one never opens again, so these rows are never pruned: one a boot.';

comment on table ipledger.turn is 'When each source that is asked was asked last, and from when on it may be asked again.';

comment on table ipledger.untouched_range is 'Free space, part two: ranges nobody ever held. The range named by the pool''s last position begins at its cursor instead.';

comment on table ipledger.verify_checkpoint is 'Up to where the log and its projections were found in order.';

grant execute on function ipledger.oldest_transaction() to ipledger_service;

grant usage on schema ipledger to ipledger_jobs;

grant usage on schema ipledger to ipledger_service;

grant delete, insert, select, update on table ipledger.closed_attachment to ipledger_service;

grant insert, select, update on table ipledger.database_life to ipledger_service;

grant delete, insert, select on table ipledger.dropped_range to ipledger_service;

grant insert, select on table ipledger.event to ipledger_service;

grant delete, insert, select, update on table ipledger.fence to ipledger_service;

grant delete, insert, select, update on table ipledger.hold to ipledger_service;

grant delete, insert, select, update on table ipledger.lease to ipledger_service;

grant delete, insert, select, update on table ipledger.lookup to ipledger_service;

grant select on table ipledger.migration to ipledger_service;

grant delete, insert, select, update on table ipledger.network to ipledger_service;

grant insert, select, update (network_id) on table ipledger.network_lock to ipledger_service;

grant delete, insert, select, update on table ipledger.pool to ipledger_service;

grant delete, insert, select, update on table ipledger.pool_position to ipledger_service;

grant delete, insert, select, update on table ipledger.pool_sample to ipledger_service;

grant delete, insert, select, update on table ipledger.released_address to ipledger_service;

grant delete, insert, select, update on table ipledger.request to ipledger_service;

grant delete, insert, select, update on table ipledger.sighting to ipledger_service;

grant insert, select on table ipledger.signing_key to ipledger_service;

grant delete, insert, select, update on table ipledger.snapshot to ipledger_service;

grant delete, insert, select, update on table ipledger.snapshot_part to ipledger_service;

grant delete, insert, select, update on table ipledger.source to ipledger_service;

grant insert, select, update on table ipledger.source_epoch to ipledger_service;

grant delete, insert, select, update on table ipledger.turn to ipledger_service;

grant delete, insert, select, update on table ipledger.untouched_range to ipledger_service;

grant delete, insert, select, update on table ipledger.verify_checkpoint to ipledger_service;
