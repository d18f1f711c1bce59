-- The look at all of a network (0014) looks at tenures, at checkpoints and at the seals too, each as a part of its own with a
-- position: what was tampered with in a stretch that was found in order once is seen by nothing else.

alter table ipledger.verification
  drop constraint verification_is_at_a_part,
  add constraint verification_is_at_a_part check (
    part in ('numbers', 'addresses', 'requests', 'pools', 'tenures', 'checkpoints', 'seals', 'closings'));
comment on column ipledger.verification.after_seq is
  'Of numbers and tenures the last event that was looked at, of checkpoints and seals the last one, of pools the last pool, '
  'of addresses the event of from_address after which to go on.';

-- Who seals hashes thousands of events: two who seal the same stretch do it twice, and one of them for nothing.
create table ipledger.seal_lock (
  network_id text collate "C" not null,
  constraint seal_lock_has_one_row_per_network primary key (network_id)
);
comment on table ipledger.seal_lock is
  'One row per network, locked for no key update by who seals a stretch of its log; never updated, referenced by nothing.';

grant select, insert on ipledger.seal_lock to ipledger_service;
-- `for no key update` needs the right to update one column; nothing ever does.
grant update (network_id) on ipledger.seal_lock to ipledger_service;

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.seal_lock alter network_id set (n_distinct = -1);
insert into ipledger.seal_lock values ('sample');
analyze ipledger.seal_lock;
savepoint sampled;
truncate ipledger.seal_lock;
release savepoint sampled;
