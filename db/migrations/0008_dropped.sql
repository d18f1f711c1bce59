-- What is left of pools that are gone. Deleting one with a million released addresses took longer under the network's lock
-- than a statement may; their rows stay and are removed slice by slice, by a job. Nothing reads them meanwhile: they are
-- filed under a pool that no longer is, and no pool is made over their ranges before the last one is gone
-- (ops/decisions/0010-what-is-left-of-deleted-pools.md).

create table ipledger.dropped_range (
  network_id text collate "C" not null,
  first_address inet not null,
  last_address inet not null,
  pool_id bigint not null,
  constraint dropped_range_starts_once primary key (network_id, first_address),
  constraint dropped_range_is_not_empty check (first_address <= last_address)
);
comment on table ipledger.dropped_range is
  'Ranges of deleted pools in which rows of released_address may be left; removed with the last of them. Ranges never overlap, each other or a pool.';
comment on column ipledger.dropped_range.pool_id is 'The pool that is gone, under which the rows are filed.';

grant select, insert, delete on ipledger.dropped_range to ipledger_service;

alter table ipledger.dropped_range alter network_id set (n_distinct = 1), alter first_address set (n_distinct = -1);
insert into ipledger.dropped_range values ('sample', '192.0.2.1', '192.0.2.2', 1);
analyze ipledger.dropped_range;
savepoint sampled;
truncate ipledger.dropped_range;
release savepoint sampled;
