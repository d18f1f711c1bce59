-- Sources that ipledger asks (DESIGN §4: docker, kubernetes, http), and whose turn it is to ask them. A job that was
-- killed keeps nothing locked: its turn is over at a time that is in the row.

create table ipledger.turn (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  taken_at timestamptz not null,
  taken_by text collate "C" not null,
  next_at timestamptz not null,
  failure text not null,
  constraint source_is_asked_by_one_at_a_time primary key (network_id, source_id),
  constraint next_turn_comes_after_this_one check (next_at >= taken_at)
);
comment on table ipledger.turn is 'When each source that is asked was asked last, and from when on it may be asked again.';
comment on column ipledger.turn.taken_by is 'Who took the turn: one run of one worker. Only that one ends it early.';
comment on column ipledger.turn.next_at is
  'Nobody else asks before. While the source is being asked: the end of that turn, whatever became of the worker; afterwards: its next turn.';
comment on column ipledger.turn.failure is 'Why the last turn came to nothing, for people; empty: it did not.';

grant select, insert, update, delete on ipledger.turn to ipledger_service;

-- Rewritten at every turn.
alter table ipledger.turn set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- No column of it is one that a report changes, so that reports stay in their page.
create index source_that_is_asked on ipledger.source (network_id, source_id) where kind <> 'push' and state <> 'RETIRED';
comment on index ipledger.source_that_is_asked is 'The few sources that are asked, beside thousands that report.';

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.turn
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -1);

insert into ipledger.turn values ('sample', 'sample', now(), 'sample', now(), '');
analyze ipledger.turn;
savepoint sampled;
truncate ipledger.turn;
release savepoint sampled;
