-- Which database each ledger was last written on (DESIGN §4 "New era"). No event says it, so it is no projection: a rebuild
-- leaves it alone. It lies apart from `network`, so that projections which were lost take it with them no more. Written in
-- the ledger's own transaction, under the network's lock; a batch that finds another database than the one stored begins a
-- new era before it decides anything.

alter table ipledger.network drop column system_identifier, drop column timeline;

create table ipledger.database_life (
  network_id text collate "C" not null,
  system_identifier text collate "C" not null,
  database_oid bigint not null,
  log_oid bigint not null,
  timeline integer not null,
  known_at timestamptz not null,
  constraint network_is_written_in_one_life primary key (network_id)
);
comment on table ipledger.database_life is
  'The life of the database that a ledger was last written in. It goes with the database into its copies, and there it is wrong.';
comment on column ipledger.database_life.system_identifier is 'Of the cluster: another one means that the database was restored into it.';
comment on column ipledger.database_life.database_oid is 'Of the database in its cluster: another one means a copy beside the first, or a dump restored into a new database.';
comment on column ipledger.database_life.log_oid is 'Of the table `event`: another one means that a dump was restored over what was there.';
comment on column ipledger.database_life.timeline is 'Of the write-ahead log: another one means a failover, or recovery to a point in time.';
comment on column ipledger.database_life.known_at is 'When the ledger was first written in it.';

-- What is no fact of the log is still never forgotten: without it a copy would pass for the original.
grant select, insert, update on ipledger.database_life to ipledger_service;

alter table ipledger.database_life alter network_id set (n_distinct = -1);
insert into ipledger.database_life values ('sample', 'sample', 1, 1, 1, now());
analyze ipledger.database_life;
savepoint sampled;
truncate ipledger.database_life;
release savepoint sampled;
