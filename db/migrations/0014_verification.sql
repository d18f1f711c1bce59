-- What verification found, and where the job that verifies again and again stands (ledger/verification.ts, ledger/findings.ts):
-- that the books are in order is worth knowing before anybody asks.

create table ipledger.verify_finding (
  network_id text collate "C" not null,
  finding_key text collate "C" not null,
  what text collate "C" not null,
  message text not null,
  address inet,
  lease_id text collate "C",
  pool text collate "C",
  seq bigint,
  expected text,
  found text,
  found_at timestamptz not null,
  seen_at timestamptz not null,
  constraint finding_is_kept_once primary key (network_id, finding_key),
  constraint finding_is_found_before_it_is_seen_again check (seen_at >= found_at)
-- What is not repaired is rewritten with every look.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table ipledger.verify_finding is
  'Differences between a log and its projections, or within a log, that a verification found and no later look at all of it has missed. At most 1,000 of a network.';
comment on column ipledger.verify_finding.finding_key is 'A digest of what it is about: the same difference found again is the same row.';
comment on column ipledger.verify_finding.what is 'What kind of difference: LEASE_DIFFERS, EVENT_MISSING, …';
comment on column ipledger.verify_finding.message is 'A sentence for people.';
comment on column ipledger.verify_finding.expected is 'By the log.';
comment on column ipledger.verify_finding.found is 'In the projections.';
comment on column ipledger.verify_finding.seen_at is 'When it was found last.';

create table ipledger.verification (
  network_id text collate "C" not null,
  seq bigint not null,
  looked_at timestamptz,
  part text collate "C" not null,
  after_seq bigint not null,
  from_address inet,
  begins_at timestamptz not null,
  events bigint not null,
  worked_ms bigint not null,
  worked_at timestamptz,
  finished_at timestamptz,
  finished_events bigint,
  finished_ms bigint,
  claimed_by text collate "C" not null,
  claimed_until timestamptz not null,
  constraint network_is_verified_once_at_a_time primary key (network_id),
  constraint verification_is_at_a_part check (part in ('numbers', 'addresses', 'requests', 'pools', 'closings')),
  constraint verification_tells_all_of_what_finished check (num_nulls(finished_at, finished_events, finished_ms) in (0, 3))
-- Rewritten every minute, and with each piece of work.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table ipledger.verification is
  'How far a job has verified a network: new events as they come, and all of it again and again, a piece at a time.';
comment on column ipledger.verification.seq is 'New events: looked at up to this one, whatever was found.';
comment on column ipledger.verification.looked_at is 'When that was.';
comment on column ipledger.verification.part is 'All of it: what is being looked at; it begins with numbers and ends with closings.';
comment on column ipledger.verification.after_seq is
  'Of numbers the last event that was looked at, of pools the last pool, of addresses the event of from_address after which to go on.';
comment on column ipledger.verification.from_address is 'Of addresses the one to go on with; null: the first of all.';
comment on column ipledger.verification.begins_at is 'When the look at all of it began; or, if that lies ahead, when it will.';
comment on column ipledger.verification.events is 'Events that it has walked so far.';
comment on column ipledger.verification.worked_ms is 'Milliseconds that it has worked so far.';
comment on column ipledger.verification.worked_at is 'When the last piece of it ended: whose turn was longest ago comes first.';
comment on column ipledger.verification.finished_at is 'When all of it was last looked at; beside it how many events that were, and how long it worked.';
comment on column ipledger.verification.claimed_by is 'The run that is at a piece; whoever comes after claimed_until goes on where the last piece ended.';

grant select, insert, update, delete on ipledger.verify_finding, ipledger.verification to ipledger_service;

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.verify_finding
  alter network_id set (n_distinct = 1), alter finding_key set (n_distinct = -1), alter seen_at set (n_distinct = 2);
alter table ipledger.verification
  alter network_id set (n_distinct = -1);

insert into ipledger.verify_finding values
  ('sample', 'sample', 'sample', 'sample', '192.0.2.1', 'sample', 'sample', 1, 'sample', 'sample', now(), now());
insert into ipledger.verification values
  ('sample', 1, now(), 'addresses', 1, '192.0.2.1', now(), 1, 1, now(), now(), 1, 1, '', now());
analyze ipledger.verify_finding, ipledger.verification;
savepoint sampled;
truncate ipledger.verify_finding, ipledger.verification;
release savepoint sampled;
