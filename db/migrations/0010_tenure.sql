-- Who held what over which span of the log, under constraints by which the database itself proves that no two ever held
-- one address at once; and checkpoints of the whole table of leases, from which it is read as it was at any number. Both
-- are derived from the log by jobs, a little behind it, and can be made anew (`ipledger rebuild --tenure`). Nothing that
-- decides anything reads them.

create table ipledger.tenure (
  network_id text collate "C" not null,
  first_seq bigint not null,
  fencing_token bigint not null,
  pool_id bigint not null,
  address inet not null,
  span int8range not null,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  began_at timestamptz not null,
  ended_at timestamptz,
  began_as text collate "C" not null,
  ended_as text collate "C",
  constraint tenure_begins_once_at_a_number primary key (network_id, first_seq),
  -- Whatever ended shares no number with anything else that ended, and nothing began in it; of what is open still this
  -- index has the number at which it began, and the unique one below allows an address one. With whole open spans no index
  -- of this kind can tell them apart by number, nor leases by address where a pool is handed out from its beginning on: an
  -- end and a begin took 180 to 340 µs of the database's processor, like this 53 (60,000 open; on PostgreSQL 15 210 to 300
  -- and 45). With the network first, which the rows share, all of it takes twice as long.
  constraint no_two_owners_hold_one_address exclude using gist (
    address inet_ops with &&, network_id with =, int8range(first_seq, coalesce(upper(span), first_seq + 1)) with &&),
  constraint tenure_span_begins_at_its_first_number check (not isempty(span) and lower(span) is not distinct from first_seq),
  constraint tenure_is_open_until_something_ends_it check (
    num_nulls(ended_at, ended_as) = case when upper_inf(span) then 2 else 0 end),
  constraint tenure_owner_is_whole check (
    num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface) in (0, 6)),
  constraint tenure_is_not_before_its_lease check (fencing_token <= first_seq)
);
comment on table ipledger.tenure is
  'Who held which address over which span of the log, in quarantine too. A lease is one tenure for as long as its owner is one; '
  'it begins with the event `first_seq` and ends before the event `upper(span)`.';
comment on column ipledger.tenure.fencing_token is 'Of the lease. The first tenure of a lease begins at it.';
comment on column ipledger.tenure.address is 'What was held, as a block: its prefix length is the mask.';
comment on column ipledger.tenure.span is 'Numbers over which it was held: [first, number of the event that ended it). Open: it is held still.';
comment on column ipledger.tenure.owner_kind is 'Null: quarantined, and nobody known holds it.';
comment on column ipledger.tenure.began_as is 'Type and cause of its first event: lease.reserved/Reserve.';
comment on column ipledger.tenure.ended_as is 'Type and cause of the event that ended it. Of one that went on with another owner: how that one began.';
create unique index one_address_has_one_open_tenure on ipledger.tenure (network_id, address) where upper_inf(span);
comment on index ipledger.one_address_has_one_open_tenure is 'No two hold one address now. Blocks of other sizes over it are found when either ends, and by whoever writes it.';
create index tenure_by_address on ipledger.tenure (network_id, address, first_seq);
comment on index ipledger.tenure_by_address is 'Holders of an address in order: whether the one before had ended, also where the constraint is missing.';
-- Nearly empty: the other tenures of a lease are found by their primary key.
create index tenure_of_another_owner on ipledger.tenure (network_id, fencing_token, first_seq) where first_seq <> fencing_token;
comment on index ipledger.tenure_of_another_owner is 'Tenures of a lease after its owner changed.';

create table ipledger.tenure_position (
  network_id text collate "C" not null,
  seq bigint not null,
  at timestamptz not null,
  verified_seq bigint not null,
  constraint network_has_one_tenure_position primary key (network_id),
  constraint tenure_position_is_not_negative check (seq >= 0 and verified_seq between 0 and seq)
) with (fillfactor = 50);
comment on table ipledger.tenure_position is
  'Up to where tenure is the log. Locked by who goes on from there.';
comment on column ipledger.tenure_position.seq is 'The last number it takes account of; 0: nothing, and what is there is removed first.';
comment on column ipledger.tenure_position.at is 'Time of that event: another log than this one has another there.';
comment on column ipledger.tenure_position.verified_seq is 'Up to where verify found it to be the log; it goes on from there.';

create table ipledger.tenure_overlap (
  network_id text collate "C" not null,
  first_seq bigint not null,
  fencing_token bigint not null,
  pool_id bigint not null,
  address inet not null,
  span int8range not null,
  other_first_seq bigint not null,
  other_fencing_token bigint not null,
  other_address inet not null,
  found_at timestamptz not null,
  constraint overlap_is_found_once primary key (network_id, first_seq)
);
comment on table ipledger.tenure_overlap is
  'Tenures by the log that were refused: while they were held, somebody else held the same address. There is never to be one.';
comment on column ipledger.tenure_overlap.other_first_seq is 'The tenure that was there.';

create table ipledger.lease_checkpoint (
  network_id text collate "C" not null,
  seq bigint not null,
  leases bigint not null,
  parts integer not null,
  made_at timestamptz not null,
  verified_at timestamptz,
  constraint checkpoint_is_made_once_at_a_number primary key (network_id, seq)
);
comment on table ipledger.lease_checkpoint is
  'Numbers at which the whole table of leases is kept, as `lease_checkpoint_part` has it. The row comes with the last part: without it the parts say nothing.';
comment on column ipledger.lease_checkpoint.seq is '0: where nothing is held. All others are made from the one before.';
comment on column ipledger.lease_checkpoint.leases is 'Held after that event.';
comment on column ipledger.lease_checkpoint.verified_at is 'When verify found it to hold what was held. Null: it did not look yet.';

create table ipledger.lease_checkpoint_part (
  network_id text collate "C" not null,
  seq bigint not null,
  part integer not null,
  first_address inet not null,
  last_address inet not null,
  leases integer not null,
  events bigint[] not null,
  constraint checkpoint_part_is_kept_once primary key (network_id, seq, part),
  constraint checkpoint_part_is_not_empty check (leases > 0 and leases = cardinality(events) and first_address <= last_address)
);
comment on table ipledger.lease_checkpoint_part is
  'A thousand leases of a checkpoint: for each the number of the last event about it up to there, in order of address.';
comment on column ipledger.lease_checkpoint_part.part is 'From 0, in order of address.';

-- Only jobs and rebuild write them; the ledger's write path does not know of them.
grant select, insert, update, delete on
  ipledger.tenure, ipledger.tenure_position, ipledger.tenure_overlap, ipledger.lease_checkpoint, ipledger.lease_checkpoint_part
  to ipledger_service;

-- Each tenure is written twice and then never again.
alter table ipledger.tenure set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.tenure_position set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.tenure
  alter network_id set (n_distinct = 1), alter first_seq set (n_distinct = -1), alter fencing_token set (n_distinct = -1),
  alter address set (n_distinct = -0.2);
alter table ipledger.tenure_position
  alter network_id set (n_distinct = -1);
alter table ipledger.tenure_overlap
  alter network_id set (n_distinct = 1), alter first_seq set (n_distinct = -1);
alter table ipledger.lease_checkpoint
  alter network_id set (n_distinct = 1), alter seq set (n_distinct = -1);
alter table ipledger.lease_checkpoint_part
  alter network_id set (n_distinct = 1), alter seq set (n_distinct = -0.01), alter part set (n_distinct = -0.5),
  alter last_address set (n_distinct = -0.5);

insert into ipledger.tenure values
  ('sample', 1, 1, 1, '192.0.2.1', '[1,2)', 'pod', 'sample/sample', 'sample', true, '', 'eth0', now(), now(), 'sample', 'sample'),
  ('sample', 4, 3, 1, '192.0.2.2', '[4,)', null, null, null, null, null, null, now(), null, 'sample', null);
insert into ipledger.tenure_position values ('sample', 1, now(), 0);
insert into ipledger.tenure_overlap values ('sample', 1, 1, 1, '192.0.2.1', '[1,2)', 1, 1, '192.0.2.1', now());
insert into ipledger.lease_checkpoint values ('sample', 1, 1, 1, now(), null);
insert into ipledger.lease_checkpoint_part values ('sample', 1, 0, '192.0.2.1', '192.0.2.1', 1, '{1}');
analyze ipledger.tenure, ipledger.tenure_position, ipledger.tenure_overlap, ipledger.lease_checkpoint, ipledger.lease_checkpoint_part;
savepoint sampled;
truncate ipledger.tenure, ipledger.tenure_position, ipledger.tenure_overlap, ipledger.lease_checkpoint, ipledger.lease_checkpoint_part;
release savepoint sampled;
