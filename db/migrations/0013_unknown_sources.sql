-- What the books of a restored database do not know (DESIGN §4 "New era"): a source that was registered after the dump was
-- made. It asks to report and is told that nobody knows it; until somebody registers it, what it sees is protected by
-- nothing, so the recovery waits for it. And what a fence is about, and since when a rebuild has been on its way.

create table ipledger.unknown_source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  era bigint not null,
  node text collate "C" not null,
  heard_from text collate "C" not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  constraint unknown_source_is_kept_once primary key (network_id, source_id),
  constraint unknown_source_is_heard_first_before_last check (last_at >= first_at)
-- Rewritten with every call of it.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table ipledger.unknown_source is
  'Who asked to report while its network recovered, and was no source of it. An observation; removed once the network is READY.';
comment on column ipledger.unknown_source.source_id is 'As it calls itself.';
comment on column ipledger.unknown_source.era is 'In which it was heard last: the recovery of another era does not wait for it.';
comment on column ipledger.unknown_source.node is 'That its token is bound to; empty: none.';
comment on column ipledger.unknown_source.heard_from is 'Whose token it was.';

grant select, insert, update, delete on ipledger.unknown_source to ipledger_service;

alter table ipledger.fence add column fenced_head bigint,
  add constraint fence_is_of_leases_before_it check (fenced_head < fenced_seq);
comment on column ipledger.fence.fenced_head is
  'As far as who said it had seen the ledger: of leases with a token up to this. Null: up to fenced_seq.';
comment on table ipledger.fence is 'Projection: boots of nodes that somebody vouches are over (node.fenced).';

alter table ipledger.network add column rebuilding_since timestamptz;
comment on column ipledger.network.rebuilding_since is
  'Since when it is REBUILDING; null: it is not. Of the database and not of the log, so it is no part of what is compared.';

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.unknown_source
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -1);

insert into ipledger.unknown_source values ('sample', 'sample', 0, '', 'sample', now(), now());
analyze ipledger.unknown_source;
savepoint sampled;
truncate ipledger.unknown_source;
release savepoint sampled;
