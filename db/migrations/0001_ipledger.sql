-- Everything ipledger keeps. The log (`event`) is the truth; `lease`, `pool`, `network`, `source` and `sighting` are its fold
-- and can be rebuilt from it. Every key begins with network_id and every transaction is about one network, so that the
-- schema can be spread over machines by Citus. Times are kept in whole milliseconds.

create extension if not exists btree_gist;

-- One row a network. Its lock orders the writers of the network. It is never updated: a row that every batch rewrites
-- would collapse when anybody holds a snapshot open.
create table ipledger.network_lock (
  network_id text collate "C" not null,
  -- Of the proofs of numbers (src/sources/proof.ts): 244 random bits. A dump has it, no event and no view does.
  secret bytea not null default sha256(convert_to(concat(gen_random_uuid(), gen_random_uuid()), 'UTF8')),
  constraint network_has_one_lock primary key (network_id)
);

create table ipledger.event (
  network_id text collate "C" not null,
  seq bigint not null,
  format smallint not null,
  type text collate "C" not null,
  at timestamptz not null,
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
  reserved_at timestamptz,
  confirmed_at timestamptz,
  confirm_by timestamptz,
  available_at timestamptz,
  quarantine_reason text collate "C",
  quarantined_at timestamptz,
  quarantined_by text collate "C",
  -- The node that this caller's token is bound to, or that this source sees; empty: none.
  quarantine_node text collate "C",
  quarantine_why text collate "C",
  details json,
  digest bytea not null,
  constraint number_is_given_once primary key (network_id, seq),
  -- The history of an address is a chain that cannot fork: two events with one predecessor are refused here, so an address
  -- never has two owners.
  constraint history_of_an_address_never_forks unique (network_id, address, previous),
  constraint chain_goes_by_address check ((address is null) = (previous is null)),
  constraint chain_goes_forward check (previous >= 0 and previous < seq),
  constraint address_is_a_host check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  constraint digest_is_sha256 check (octet_length(digest) = 32),
  constraint number_is_positive check (seq > 0)
);

create index event_by_owner on ipledger.event (network_id, owner_name, seq) where owner_name is not null;
-- Few, and what one looks for in a long past. src/ledger/read-log.ts names the same types.
create index event_of_note on ipledger.event (network_id, seq)
  where type in ('lease.quarantined', 'lease.reaped', 'era.begun', 'reconcile.held');
create index event_by_time on ipledger.event using brin (at);

-- Few: what is about pools, the network and sources, by kind and, of a source, by its id. The fold of these and the audit read it.
create index event_about_no_address on ipledger.event
  (network_id, type, coalesce(details ->> 'source', details ->> 'id'), seq) where address is null;

create table ipledger.lease (
  network_id text collate "C" not null,
  address inet not null,
  seq bigint not null,
  pool_id bigint not null,
  state text collate "C" not null,
  node text collate "C" not null,
  confirm_by timestamptz,
  available_at timestamptz,
  constraint address_has_one_lease primary key (network_id, address)
) with (fillfactor = 70);

-- None by state: each change of a state would then write to all indexes, and a row would cost 21 µs and 409 bytes of WAL instead of
-- 12 and 228. Looking through the rows of a million leases takes 0.2 s.
create index lease_by_node on ipledger.lease (network_id, node, address);

create table ipledger.network (
  network_id text collate "C" not null,
  description text not null,
  labels json not null,
  -- It hands out nothing new.
  closed boolean not null,
  era integer not null,
  -- Life of the database that wrote the present era: system identifier, database oid, oid of `event`, timeline.
  identity text not null,
  -- Number of the era.begun after which nothing is reserved or reaped; null: READY.
  recovering bigint,
  -- Sources that called in this recovery and were not registered, in order: source, node, time in milliseconds.
  unknown_sources json not null,
  -- When the last recovery ended: ages of leases are counted anew from it.
  recovered_at timestamptz,
  -- Holds in force: cause, number and details of its reconcile.held.
  holds json not null,
  version bigint not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint network_has_one_name primary key (network_id)
);

create table ipledger.pool (
  network_id text collate "C" not null,
  pool_id bigint not null,
  name text collate "C" not null,
  cidr cidr not null,
  prefix_length smallint not null,
  -- The settings of pool.created or pool.updated, in canonical form.
  settings json not null,
  version bigint not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint pool_has_one_id primary key (network_id, pool_id),
  constraint pool_name_is_taken_once unique (network_id, name),
  constraint pools_never_overlap exclude using gist (network_id with =, cidr inet_ops with &&)
);

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  declaration json not null,
  state text collate "C" not null,
  -- Number of the last event about it but its reports.
  version bigint not null,
  registered_at timestamptz not null,
  registered_by text not null,
  enabled_at timestamptz,
  enabled_by text,
  -- Number of source.enabled: leases made before it have no witness in it unless it lists them.
  enabled_seq bigint,
  retired_at timestamptz,
  -- The present life of the reporting process, and the number and head of the report that opened it.
  epoch text,
  epoch_seq bigint,
  epoch_head bigint,
  epoch_at timestamptz,
  constraint source_has_one_id primary key (network_id, source_id)
);

create table ipledger.source_report (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text not null,
  era integer not null,
  -- Two complete reports of this epoch, the second with no more entries than the first.
  warm boolean not null,
  -- Of the last report taken in order.
  sequence bigint not null,
  -- Of the last complete report, as its source sent it; ReportUnchanged refers to it.
  digest text not null,
  entries integer not null,
  -- The last counted reports, newest last: [sequence, head, begun at in milliseconds].
  counted json not null,
  counted_total bigint not null,
  reported_at timestamptz not null,
  complete_at timestamptz,
  complete_head bigint,
  -- Since when, and why, its reports are not complete; null: the last one was.
  partial_since timestamptz,
  partial_because json,
  constraint source_reports_in_one_row primary key (network_id, source_id)
);

-- Of a source that is asked: why its last list failed or was not complete, and since when; no row: it was complete.
create table ipledger.source_failure (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  since timestamptz not null,
  why text not null,
  constraint source_fails_for_one_reason primary key (network_id, source_id)
);

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  -- Empty: the owner is not known.
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  node text collate "C" not null,
  -- As the source writes it; `terminal` means that it has ended.
  state text collate "C" not null,
  -- Number of the source.reported that began and, of one kept for a held lease, ended it; and when it turned terminal.
  appeared_seq bigint not null,
  appeared_at timestamptz not null,
  appeared_head bigint not null,
  vanished_seq bigint,
  terminal_seq bigint,
  terminal_at timestamptz,
  -- Of one that is live no more, at an address without a lease: before that only this owner gets it.
  rests_until timestamptz,
  constraint source_lists_an_owner_once primary key
    (network_id, address, source_id, owner_kind, owner_uid, owner_incarnation, owner_interface)
);

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  address inet not null,
  answer text collate "C" not null,
  terminal_since timestamptz,
  detail text not null,
  -- Head of the log when it was asked.
  head bigint not null,
  asked_at timestamptz not null,
  attempts integer not null,
  constraint question_has_one_answer primary key (network_id, address, source_id, owner_kind, owner_uid)
);

create table ipledger.request (
  network_id text collate "C" not null,
  -- Of the caller's token; empty: it is bound to none.
  node text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text not null,
  method text not null,
  seq bigint not null,
  at timestamptz not null,
  answer json not null,
  constraint request_is_answered_once primary key (network_id, node, request_id)
);

create index request_by_time on ipledger.request using brin (at);

create table ipledger.pool_sample (
  network_id text collate "C" not null,
  pool_id bigint not null,
  at timestamptz not null,
  size numeric not null,
  excluded numeric not null,
  free numeric not null,
  cooling numeric not null,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  constraint pool_is_sampled_once primary key (network_id, pool_id, at)
);

create index pool_sample_by_time on ipledger.pool_sample using brin (at);

-- Matters that wait for a person, as a job judged them last (src/core/attention.ts).
create table ipledger.attention (
  network_id text collate "C" not null,
  code text collate "C" not null,
  -- Empty: it is not about one.
  source_id text collate "C" not null,
  -- 1: the worst.
  rank smallint not null,
  severity text not null,
  -- How many; the other columns are of the oldest.
  count bigint not null,
  since timestamptz not null,
  address inet,
  lease_id text,
  what text not null,
  -- When it was judged.
  true_at timestamptz not null,
  constraint attention_is_said_once primary key (network_id, code, source_id)
);

-- How far the log of a network was verified, and what was found.
create table ipledger.verification (
  network_id text collate "C" not null,
  verified_seq bigint not null,
  digest bytea,
  -- The tables that are compared next, when the log is verified up to its head; null: it is not yet.
  part text,
  started_at timestamptz not null,
  finished_at timestamptz,
  findings json not null,
  constraint network_has_one_verification primary key (network_id)
);

-- The life of the server that runs it: system identifier, oid of the database, oid of `event`, timeline. It differs after a restore
-- (into another cluster, beside the original, or from a dump) and after a failover, and fails on a standby. On a node of Citus the number
-- of its group stands before, and dots stand for all slashes but the last. It is volatile and in PL/pgSQL: so Citus runs it on the
-- worker that has the rows it is called for.
create function ipledger.identity() returns text language plpgsql volatile as $$
declare
  node text := '';
  place text := (select system_identifier from pg_control_system())
    || '/' || (select oid from pg_database where datname = current_database()) || '/' || 'ipledger.event'::regclass::oid;
begin
  if to_regclass('pg_catalog.pg_dist_local_group') is not null then
    execute 'select groupid || '':'' from pg_catalog.pg_dist_local_group' into node;
    place := replace(place, '/', '.');
  end if;
  return node || place || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
end $$;
