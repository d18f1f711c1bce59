-- What waits for a person, for people who look at the database: a job writes down once a minute what `ipledger stuck` would
-- say (liveness/stuck.ts). An observation: nothing is decided by it, and what was not found again is removed.

create table ipledger.stuck_item (
  network_id text collate "C" not null,
  code text collate "C" not null,
  source_id text collate "C" not null,
  item_key text collate "C" not null,
  fencing_token bigint,
  address inet,
  prefix_length smallint,
  pool text collate "C",
  since timestamptz not null,
  what text not null,
  observed_at timestamptz not null,
  constraint stuck_item_is_kept_once primary key (network_id, code, source_id, item_key),
  constraint stuck_lease_has_an_address check (num_nulls(fencing_token, address, prefix_length) in (0, 3)),
  constraint stuck_address_is_a_host check (masklen(address) = case family(address) when 4 then 32 else 128 end)
-- Rewritten every minute.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table ipledger.stuck_item is 'What waited for a person, or for an answer that does not come, when it was last looked for.';
comment on column ipledger.stuck_item.code is 'What kind of thing waits: HELD, SOURCE_SILENT, PROOF_BLOCKED, …';
comment on column ipledger.stuck_item.source_id is 'Empty: it is about none.';
comment on column ipledger.stuck_item.item_key is 'The fencing token of the lease it is about; of others a digest of what is said.';
comment on column ipledger.stuck_item.pool is 'Its name; null: it is about none.';
comment on column ipledger.stuck_item.since is 'Since when it waits.';
comment on column ipledger.stuck_item.observed_at is 'When the job that found it last began to look.';

grant select, insert, update, delete on ipledger.stuck_item to ipledger_service;

-- What is seldom is what is asked for after an incident: of a log of millions a month of it is one short walk. The types
-- that are left out are those of every workload's life.
create index event_seldom on ipledger.event (network_id, type, at, seq)
  where type not in ('lease.reserved', 'lease.confirmed', 'lease.released', 'lease.adopted', 'lease.updated', 'attachment.closed');
comment on index ipledger.event_seldom is 'Reaps, quarantines, eras, fences, holds and changes of pools between two times.';

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.stuck_item
  alter network_id set (n_distinct = 1), alter code set (n_distinct = 10), alter source_id set (n_distinct = -0.1),
  alter item_key set (n_distinct = -1), alter observed_at set (n_distinct = 2);

insert into ipledger.stuck_item values ('sample', 'sample', 'sample', 'sample', 1, '192.0.2.1', 32, 'sample', now(), 'sample', now());
analyze ipledger.stuck_item;
savepoint sampled;
truncate ipledger.stuck_item;
release savepoint sampled;
