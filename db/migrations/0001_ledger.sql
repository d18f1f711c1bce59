-- The ledger of every network and its projections (DESIGN §5).
--
-- Every key begins with network_id, and a write touches one network: the schema can be spread by that column.
-- The service's role owns nothing: of `event` it may read and insert, never change. `network_lock` is locked by
-- every batch and updated by none, so its row never grows versions under a snapshot held open.

create extension if not exists btree_gist with schema public;

create schema ipledger;
comment on schema ipledger is 'Event-sourced IP address allocation: the log, and what it says now.';

create table ipledger.network_lock (
  network_id text collate "C" not null,
  constraint network_lock_has_one_row_per_network primary key (network_id)
);
comment on table ipledger.network_lock is
  'One row per network, locked for no key update by each batch; never updated, referenced by nothing.';

create table ipledger.network (
  network_id text collate "C" not null,
  description text not null,
  labels jsonb not null,
  state text collate "C" not null,
  era integer not null,
  system_identifier text collate "C",
  timeline integer,
  version bigint not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint network_name_is_unique primary key (network_id),
  constraint network_name_is_a_dns_like_label check (network_id ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'),
  constraint network_state_is_known check (state in ('READY', 'REBUILDING', 'RECOVERING')),
  constraint network_era_is_not_negative check (era >= 0)
);
comment on table ipledger.network is 'Projection: networks as their last network event left them.';
comment on column ipledger.network.state is 'READY; REBUILDING: projections are being replaced; RECOVERING: a new era has not been observed yet.';
comment on column ipledger.network.era is 'Life of the ledger; numbers of era e begin at e × 2^40.';
comment on column ipledger.network.system_identifier is 'Of the database that began the era; another one means a restore.';
comment on column ipledger.network.timeline is 'Of the database that began the era; a greater one means a failover.';
comment on column ipledger.network.version is 'Number of the last event about the network itself.';

create table ipledger.event (
  network_id text collate "C" not null,
  seq bigint not null,
  type text collate "C" not null,
  at timestamptz not null,
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
  quarantined_at timestamptz,
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
  reserved_at timestamptz,
  confirmed_at timestamptz,
  confirm_by timestamptz,
  available_at timestamptz,
  removal_confirmed boolean,
  settings json,
  evidence jsonb,
  constraint event_is_numbered_once_per_network primary key (network_id, seq),
  constraint event_number_is_positive check (seq > 0),
  -- Every statement that writes reads a check anew from its stored tree: counted nulls are short, spelled out they cost a
  -- lone lease 30 µs. Patterns are shorter still than lists and cost every row 4 µs.
  constraint event_type_is_known check (type in (
    'network.created', 'network.updated', 'era.begun', 'pool.created', 'pool.updated', 'pool.deleted',
    'lease.reserved', 'lease.confirmed', 'lease.released', 'lease.quarantined', 'lease.reaped',
    'lease.adopted', 'lease.updated', 'attachment.closed', 'node.fenced', 'reconcile.held', 'reconcile.resumed')),
  constraint event_about_a_lease_names_it check (
    type not like 'lease.%' or num_nulls(pool_id, address, prefix_length, fencing_token, state, reserved_at) = 0),
  constraint event_that_ends_a_lease_says_when_it_cools check (
    type not in ('lease.released', 'lease.reaped') or num_nulls(available_at, removal_confirmed) = 0),
  constraint event_address_is_a_host check (masklen(address) = case family(address) when 4 then 32 else 128 end)
);
comment on table ipledger.event is
  'The log: append-only by privilege, numbered without a gap per network and era. Each row carries the full state after it.';
comment on column ipledger.event.seq is 'Number in the network; also the version of the lease it is about, and its token if it created it.';
comment on column ipledger.event.at is 'Database clock under the network''s lock, never before the previous event.';
comment on column ipledger.event.actor is 'Token name or job.';
comment on column ipledger.event.cause is 'RPC or finding.';
comment on column ipledger.event.address is 'The address, or the first address of the block.';
comment on column ipledger.event.fencing_token is 'Number of the event that created the lease.';
comment on column ipledger.event.state is 'State of the lease after the event; of an ended lease, its last one.';
comment on column ipledger.event.available_at is 'When the released or reaped address has cooled.';
comment on column ipledger.event.removal_confirmed is 'Whether the holder said that the address is unconfigured; false after a reap.';
comment on column ipledger.event.settings is 'Of a pool or network event: the settings after it.';
comment on column ipledger.event.evidence is 'What the decision rested on.';
create index event_by_address on ipledger.event (network_id, address, seq) where address is not null;
comment on index ipledger.event_by_address is 'History of an address; the fold of one address.';
create index event_by_time on ipledger.event (network_id, at, seq);
comment on index ipledger.event_by_time is 'Turns a time into a position of the log.';
create index event_by_owner on ipledger.event (network_id, owner_name, seq) where owner_name is not null;
comment on index ipledger.event_by_owner is 'History of an owner; its previous address.';

create table ipledger.pool (
  network_id text collate "C" not null,
  pool_id bigint not null,
  name text collate "C" not null,
  version bigint not null,
  family smallint not null,
  cidr cidr not null,
  is_default boolean not null,
  settings json not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint pool_id_is_unique_in_its_network primary key (network_id, pool_id),
  constraint pool_name_is_unique_in_its_network unique (network_id, name),
  constraint pools_of_a_network_never_overlap exclude using gist (network_id with =, cidr inet_ops with &&),
  constraint pool_family_is_that_of_its_cidr check (family = family(cidr))
);
comment on table ipledger.pool is 'Projection: pools as their last pool event left them.';
comment on column ipledger.pool.pool_id is 'Number of the event that created it.';
comment on column ipledger.pool.settings is
  'Canonical settings as in the event: cidr, subnet, prefixLength, gateway, exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels.';

create table ipledger.lease (
  network_id text collate "C" not null,
  address inet not null,
  prefix_length smallint not null,
  pool_id bigint not null,
  fencing_token bigint not null,
  version bigint not null,
  state text collate "C" not null,
  quarantine_reason text collate "C",
  quarantined_at timestamptz,
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
  reserved_at timestamptz not null,
  confirmed_at timestamptz,
  confirm_by timestamptz,
  constraint address_has_one_lease primary key (network_id, address),
  constraint lease_address_is_a_host check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  constraint lease_state_is_known check (state in ('RESERVED', 'ACTIVE', 'QUARANTINED')),
  constraint quarantined_lease_has_a_known_reason check (
    num_nulls(quarantine_reason, quarantined_at, quarantined_by) = case state when 'QUARANTINED' then 0 else 3 end
    and quarantine_reason in (
      'SUPERSEDED', 'REMOVAL_UNCONFIRMED', 'CONFLICT', 'OPERATOR', 'RELEASED_BUT_LIVE', 'FOREIGN',
      'SECOND_ADDRESS', 'SEEN_BY_CALLER')),
  -- A quarantined one may have none: all of these are null, or none is.
  constraint held_lease_has_an_owner check (
    num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key)
    = case when state = 'QUARANTINED' and owner_kind is null then 8 else 0 end),
  constraint only_reserved_leases_have_a_deadline check (confirm_by is null or state = 'RESERVED'),
  constraint lease_version_is_not_before_its_token check (version >= fencing_token)
) with (fillfactor = 85);
comment on table ipledger.lease is
  'Projection: who holds what now. The primary key is the promise that one address has one holder.';
comment on column ipledger.lease.fencing_token is 'Number of the event that created the lease.';
comment on column ipledger.lease.version is 'Number of the last event about the lease.';
comment on column ipledger.lease.holder_key is 'kind|interface|name: supersession and the owner limit go by it.';
comment on column ipledger.lease.attachment_key is 'kind|interface|incarnation|uid: retries, Release and closing go by it.';
comment on column ipledger.lease.node is 'For display and scope; where a workload is seen is what counts.';
comment on column ipledger.lease.confirm_by is 'The caller''s promise not to use the address later unless confirmed; null: held until released or proven gone.';
create index lease_by_holder on ipledger.lease (network_id, holder_key);
comment on index ipledger.lease_by_holder is 'Supersession, the owner limit.';
create index lease_by_token on ipledger.lease (network_id, fencing_token);
comment on index ipledger.lease_by_token is
  'A token is given once: no dead rows stand before the living one, as they do at a recycled address while a snapshot is held open.';
create index lease_by_attachment on ipledger.lease (network_id, attachment_key);
comment on index ipledger.lease_by_attachment is 'Retries, Release by owner.';
create index lease_by_node on ipledger.lease (network_id, node, address) where node <> '';
comment on index ipledger.lease_by_node is 'What is on a node: listing, fencing.';
create index lease_by_deadline on ipledger.lease (network_id, confirm_by) where confirm_by is not null;
comment on index ipledger.lease_by_deadline is 'Reservations that may have expired.';
create index lease_by_quarantiner on ipledger.lease (network_id, quarantined_by, quarantine_reason) where state = 'QUARANTINED';
comment on index ipledger.lease_by_quarantiner is 'The cap on quarantines of one caller or source; listing of quarantines.';

create table ipledger.released_address (
  network_id text collate "C" not null,
  address inet not null,
  pool_id bigint not null,
  prefix_length smallint not null,
  available_at timestamptz not null,
  released_seq bigint not null,
  holder_key text collate "C" not null,
  removal_confirmed boolean not null,
  constraint address_is_released_once primary key (network_id, address),
  constraint released_address_is_a_host check (masklen(address) = case family(address) when 4 then 32 else 128 end)
);
comment on table ipledger.released_address is
  'Free space, part one: addresses somebody held before, cooling until available_at, then reused in that order.';
comment on column ipledger.released_address.holder_key is 'Its last holder, kind|interface|name; empty if it had none.';
create index released_in_order_of_reuse on ipledger.released_address (network_id, pool_id, available_at, released_seq);
comment on index ipledger.released_in_order_of_reuse is 'Longest-free first.';

create table ipledger.untouched_range (
  network_id text collate "C" not null,
  pool_id bigint not null,
  first_address inet not null,
  last_address inet not null,
  constraint untouched_range_starts_once primary key (network_id, pool_id, first_address),
  constraint untouched_range_is_not_empty check (first_address <= last_address)
);
comment on table ipledger.untouched_range is
  'Free space, part two: ranges nobody ever held. The range named by the pool''s last position begins at its cursor instead.';

create table ipledger.pool_position (
  network_id text collate "C" not null,
  pool_id bigint not null,
  seq bigint not null,
  low_first inet,
  cursor_first inet,
  cursor_next inet,
  reuse_after timestamptz,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  released bigint not null,
  constraint pool_has_one_position_per_batch primary key (network_id, pool_id, seq),
  constraint pool_cursor_is_whole check ((cursor_first is null) = (cursor_next is null)),
  constraint pool_counts_are_not_negative check (reserved >= 0 and active >= 0 and quarantined >= 0 and released >= 0)
);
comment on table ipledger.pool_position is
  'Where each pool stands after a batch; the row with the greatest seq counts, older ones are pruned. Appended, never updated: '
  'a row rewritten by every batch collapses while anyone holds a snapshot open (2,270 batches a second fell to 239).';
comment on column ipledger.pool_position.low_first is 'No untouched_range of the pool starts below this.';
comment on column ipledger.pool_position.cursor_first is 'The untouched_range that begins at cursor_next instead of its first address.';
comment on column ipledger.pool_position.reuse_after is 'No released_address of the pool has an earlier available_at.';
comment on column ipledger.pool_position.released is 'Released addresses, cooling or cooled.';

create table ipledger.request (
  network_id text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text collate "C" not null,
  method text collate "C" not null,
  at timestamptz not null,
  seq bigint not null,
  answer json not null,
  constraint request_id_is_remembered_once primary key (network_id, request_id)
);
comment on table ipledger.request is 'Answers of committed commands, for a day: the same id gives the same answer. Refusals are not remembered.';
comment on column ipledger.request.seq is 'Head of the ledger after the command.';
create index request_by_time on ipledger.request (network_id, at);

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
  closed_at timestamptz not null,
  closed_seq bigint not null,
  constraint attachment_is_closed_once_per_pool primary key (network_id, attachment_key, pool_id)
);
comment on table ipledger.closed_attachment is 'Incarnations that were released or superseded: late calls for them hold nothing.';
comment on column ipledger.closed_attachment.pool_id is '0: in every pool.';
create index closed_attachment_by_time on ipledger.closed_attachment (network_id, closed_at);

create table ipledger.verify_checkpoint (
  network_id text collate "C" not null,
  seq bigint not null,
  events bigint not null,
  at timestamptz not null,
  constraint network_has_one_checkpoint primary key (network_id)
);
comment on table ipledger.verify_checkpoint is 'Up to where the log and its projections were found in order.';

-- What §4 of the design observes: not facts about leases, pruned by age.

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  kind text collate "C" not null,
  node text collate "C" not null,
  boot text collate "C" not null,
  owner_kinds text[] not null,
  families smallint[] not null,
  sees_stopped boolean not null,
  boot_ends_all boolean not null,
  report_interval_ms bigint not null,
  state text collate "C" not null,
  enabled_at timestamptz,
  settings json not null,
  epoch text collate "C" not null,
  epoch_begun_at timestamptz,
  warm boolean not null,
  last_sequence bigint not null,
  last_snapshot_at timestamptz,
  last_head bigint not null,
  last_digest text collate "C" not null,
  counted integer not null,
  registered_at timestamptz not null,
  updated_at timestamptz not null,
  constraint source_id_is_unique_in_its_network primary key (network_id, source_id),
  constraint source_state_is_known check (state in ('REGISTERED', 'ENABLED', 'RETIRED')),
  constraint source_interval_is_positive check (report_interval_ms > 0)
);
comment on table ipledger.source is 'What can say which addresses are live, and how it stands.';

create table ipledger.snapshot (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text collate "C" not null,
  sequence bigint not null,
  head bigint not null,
  begun_at timestamptz not null,
  reported_at timestamptz not null,
  complete boolean not null,
  counted boolean not null,
  entries integer not null,
  digest text collate "C" not null,
  partial_because text,
  constraint snapshot_is_numbered_once_per_epoch primary key (network_id, source_id, epoch, sequence)
);
comment on table ipledger.snapshot is 'Reports of sources: when, complete or not, and the head of the ledger they were begun at.';
create index snapshot_by_time on ipledger.snapshot (network_id, reported_at);

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  appeared_sequence bigint not null,
  owner_key text collate "C" not null,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  state text collate "C" not null,
  node text collate "C" not null,
  appeared_at timestamptz not null,
  vanished_sequence bigint,
  vanished_at timestamptz,
  constraint sighting_begins_once primary key (network_id, address, source_id, owner_key, appeared_sequence)
);
comment on table ipledger.sighting is 'Who saw which address for which owner, from which snapshot to which.';
create index sighting_by_source on ipledger.sighting (network_id, source_id, vanished_sequence);

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  fencing_token bigint not null,
  asked_at timestamptz not null,
  answered_at timestamptz,
  answer text collate "C",
  detail text,
  attempts integer not null,
  next_at timestamptz,
  constraint lookup_is_kept_once_per_lease_and_source primary key (network_id, source_id, fencing_token)
);
comment on table ipledger.lookup is 'Point look-ups at the authority: the last answer about a lease, and when to ask again.';

-- Rights. The service may read everything and change what the write path projects; of the log it may only append.

revoke all on schema ipledger from public;
grant usage on schema ipledger to ipledger_service, ipledger_jobs;
grant select on all tables in schema ipledger to ipledger_service;
grant insert on ipledger.event to ipledger_service;
grant insert on ipledger.network_lock to ipledger_service;
-- `for no key update` needs the right to update one column; nothing ever does.
grant update (network_id) on ipledger.network_lock to ipledger_service;
grant insert, update, delete on
  ipledger.network, ipledger.pool, ipledger.lease, ipledger.released_address, ipledger.untouched_range,
  ipledger.pool_position, ipledger.request, ipledger.closed_attachment, ipledger.verify_checkpoint,
  ipledger.source, ipledger.snapshot, ipledger.sighting, ipledger.lookup
  to ipledger_service;

-- Leases and free space turn over completely; the planner and vacuum must not wait for a fifth of a table to change.
alter table ipledger.lease set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.released_address set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.untouched_range set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.pool_position set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.closed_attachment set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.request set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Plans are made once per connection and kept, often while a network is empty. Every index begins with network_id,
-- and without statistics the planner finds any of them as good as the right one: with 40,000 leases held, a plan
-- made when there were none walked them all for each release (124 reserve and release pairs a second instead of 2,800). So the planner is
-- told from the start that network_id narrows nothing and that keys do: by the distinct counts below, which hold
-- for every later analyze too, and by one sample row analysed and removed. Truncate resets the size of a table
-- to unknown and keeps what is known of its columns; but only in another (sub)transaction than created the table,
-- else the size is known to be nothing and every index ties again.

alter table ipledger.event
  alter network_id set (n_distinct = 1), alter seq set (n_distinct = -1), alter address set (n_distinct = -0.2),
  alter owner_name set (n_distinct = -0.2), alter at set (n_distinct = -0.1), alter fencing_token set (n_distinct = -0.5);
alter table ipledger.lease
  alter network_id set (n_distinct = 1), alter address set (n_distinct = -1), alter holder_key set (n_distinct = -1),
  alter attachment_key set (n_distinct = -1), alter fencing_token set (n_distinct = -1),
  alter node set (n_distinct = -0.05), alter confirm_by set (n_distinct = -0.5), alter quarantined_by set (n_distinct = -0.1);
alter table ipledger.released_address
  alter network_id set (n_distinct = 1), alter address set (n_distinct = -1), alter pool_id set (n_distinct = 2),
  alter available_at set (n_distinct = -0.1), alter released_seq set (n_distinct = -1);
alter table ipledger.untouched_range
  alter network_id set (n_distinct = 1), alter pool_id set (n_distinct = 2), alter first_address set (n_distinct = -1);
alter table ipledger.pool
  alter network_id set (n_distinct = 1), alter pool_id set (n_distinct = -1), alter name set (n_distinct = -1);
alter table ipledger.pool_position
  alter network_id set (n_distinct = 1), alter pool_id set (n_distinct = 2), alter seq set (n_distinct = -1);
alter table ipledger.request
  alter network_id set (n_distinct = 1), alter request_id set (n_distinct = -1), alter at set (n_distinct = -0.1);
alter table ipledger.closed_attachment
  alter network_id set (n_distinct = 1), alter attachment_key set (n_distinct = -1), alter closed_at set (n_distinct = -0.1);

insert into ipledger.event
  (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state, owner_kind, owner_name,
   owner_uid, owner_uid_named, owner_incarnation, owner_interface, node, boot, labels, witness, reserved_at)
  values ('sample', 1, 'lease.reserved', now(), 'sample', 'sample', 1, '192.0.2.1', 32, 1, 'RESERVED', 'pod', 'sample/sample',
   'sample', true, '', 'eth0', 'sample', '', '{}', '', now());
insert into ipledger.lease
  (network_id, address, prefix_length, pool_id, fencing_token, version, state, quarantine_reason, quarantined_at, quarantined_by,
   owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key,
   node, boot, labels, witness, reserved_at, confirm_by)
  values
  ('sample', '192.0.2.1', 32, 1, 1, 1, 'RESERVED', null, null, null, 'pod', 'sample/sample', 'sample', true, '', 'eth0',
   'pod|eth0|sample/sample', 'pod|eth0||sample', 'sample', '', '{}', '', now(), now()),
  ('sample', '192.0.2.2', 32, 1, 2, 2, 'QUARANTINED', 'OPERATOR', now(), 'sample', 'pod', 'sample/sample', 'sample', true, '', 'eth0',
   'pod|eth0|sample/sample', 'pod|eth0||sample', 'sample', '', '{}', '', now(), null);
insert into ipledger.released_address values ('sample', '192.0.2.1', 1, 32, now(), 1, 'pod|eth0|sample/sample', true);
insert into ipledger.untouched_range values ('sample', 1, '192.0.2.1', '192.0.2.2');
insert into ipledger.pool values ('sample', 1, 'sample', 1, 4, '192.0.2.0/24', false, '{}', now(), now());
insert into ipledger.pool_position values ('sample', 1, 1, null, null, null, null, 0, 0, 0, 0);
insert into ipledger.request values ('sample', 'sample', 'sample', 'sample', now(), 1, '{}');
insert into ipledger.closed_attachment
  values ('sample', 'pod|eth0||sample', 0, 'pod', 'sample/sample', 'sample', true, 'a', 'eth0', now(), 1);
analyze ipledger.event, ipledger.lease, ipledger.released_address, ipledger.untouched_range, ipledger.pool,
  ipledger.pool_position, ipledger.request, ipledger.closed_attachment;
savepoint sampled;
truncate ipledger.event, ipledger.lease, ipledger.released_address, ipledger.untouched_range, ipledger.pool,
  ipledger.pool_position, ipledger.request, ipledger.closed_attachment;
release savepoint sampled;
