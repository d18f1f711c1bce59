-- What jobs write and read besides the ledger: samples of how full pools are, answers that are fresh, and who keeps dead
-- rows from being removed.

create table ipledger.pool_sample (
  network_id text collate "C" not null,
  pool_id bigint not null,
  at timestamptz not null,
  size numeric not null,
  allocatable numeric not null,
  cooling bigint not null,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  excluded numeric not null,
  constraint pool_is_sampled_once_a_minute primary key (network_id, pool_id, at),
  constraint sampled_pool_is_what_it_is_made_of check (size = allocatable + excluded),
  constraint sampled_counts_are_not_negative check (cooling >= 0 and reserved >= 0 and active >= 0 and quarantined >= 0)
);
comment on table ipledger.pool_sample is
  'How full each pool was, once a minute, for charts: an observation, kept for 90 days. Counts are leases; a v6 /48 has 2^80 of them.';
comment on column ipledger.pool_sample.at is 'The minute.';
comment on column ipledger.pool_sample.allocatable is 'Free ones are this without cooling, reserved, active and quarantined.';
create index pool_sample_by_time on ipledger.pool_sample (network_id, at);
comment on index ipledger.pool_sample_by_time is 'Pruning; a chart of a whole network.';

create index lookup_by_answer on ipledger.lookup (network_id, answered_at) where answered_at is not null;
comment on index ipledger.lookup_by_answer is 'What was answered a moment ago, and is a proof for no longer than a minute.';

-- The service sees of other roles' transactions only that they are there. Run with the rights of the schema's owner;
-- where those do not reach either, the transactions of the service itself are what is told.
create function ipledger.oldest_transaction()
  returns table (process_id integer, role name, application text, state text, begun_at timestamptz)
  language sql stable security definer set search_path = pg_catalog
  begin atomic
    select a.pid, a.usename, a.application_name, a.state, a.xact_start
      from pg_catalog.pg_stat_activity a
     where a.datname = current_database() and a.xact_start is not null and a.pid <> pg_backend_pid()
       and a.backend_type = 'client backend'
     order by a.xact_start
     limit 1;
  end;
comment on function ipledger.oldest_transaction() is
  'The transaction of this database that has been open longest, as far as the owner of the schema may see: nothing that died since is vacuumed.';

revoke all on function ipledger.oldest_transaction() from public;
grant execute on function ipledger.oldest_transaction() to ipledger_service;
grant select, insert, update, delete on ipledger.pool_sample to ipledger_service;

alter table ipledger.pool_sample
  alter network_id set (n_distinct = 1), alter pool_id set (n_distinct = -0.001), alter at set (n_distinct = -0.1);
alter table ipledger.lookup
  alter answered_at set (n_distinct = -0.5);

insert into ipledger.pool_sample values ('sample', 1, now(), 2, 1, 0, 0, 0, 0, 1);
analyze ipledger.pool_sample;
savepoint sampled;
truncate ipledger.pool_sample;
release savepoint sampled;
