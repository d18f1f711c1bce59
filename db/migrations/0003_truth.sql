-- What sources see (DESIGN §4): observations, not facts about leases. Nothing here is folded from the log but `hold`
-- and `fence`; nothing here is written under a network's lock but those two. Pruned by age, except what says that
-- something is over for good.
--
-- An unchanged set of a source touches its one row of `source`, whatever the size of the set: 2,000 agents that report
-- each 30 s and have nothing new to say make no table grow.

drop table ipledger.source, ipledger.snapshot, ipledger.sighting, ipledger.lookup;

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  kind text collate "C" not null,
  node text collate "C" not null,
  owner_kinds text[] not null,
  families smallint[] not null,
  sees_stopped boolean not null,
  boot_ends_all boolean not null,
  report_interval_ms bigint not null,
  settings json not null,
  state text collate "C" not null,
  registered_at timestamptz not null,
  registered_by text collate "C" not null,
  enabled_at timestamptz,
  enabled_by text collate "C",
  enabled_head bigint,
  retired_at timestamptz,
  retired_by text collate "C",
  epoch text collate "C" not null,
  epoch_begun_at timestamptz,
  warm boolean not null,
  warming_size integer,
  warming_at timestamptz,
  warming_snapshots integer,
  era integer,
  last_sequence bigint not null,
  last_begun_at timestamptz,
  reported_at timestamptz,
  complete_sequence bigint,
  complete_head bigint,
  complete_at timestamptz,
  size integer not null,
  digest text collate "C" not null,
  counted bigint not null,
  streak_from bigint not null,
  recent json not null,
  partial_since timestamptz,
  partial_because text[] not null,
  constraint source_id_is_unique_in_its_network primary key (network_id, source_id),
  constraint source_is_named check (source_id <> ''),
  constraint source_kind_is_known check (kind in ('push', 'docker', 'kubernetes', 'http')),
  constraint source_state_is_known check (state in ('REGISTERED', 'ENABLED', 'RETIRED')),
  constraint enabled_source_says_from_which_number check (state <> 'ENABLED' or num_nulls(enabled_at, enabled_by, enabled_head) = 0),
  constraint retired_source_says_since_when check ((state = 'RETIRED') = (num_nulls(retired_at, retired_by) = 0)),
  constraint source_sees_some_family check (families <@ array[4, 6]::smallint[] and cardinality(families) > 0),
  constraint source_sees_some_kind_of_owner check (cardinality(owner_kinds) > 0),
  constraint only_the_source_of_a_node_knows_its_boots check (not boot_ends_all or node <> ''),
  constraint source_interval_is_positive check (report_interval_ms > 0),
  constraint source_last_complete_snapshot_is_whole check (num_nulls(complete_sequence, complete_head, complete_at, era) in (0, 4)),
  constraint source_warm_up_is_whole check (num_nulls(warming_size, warming_at, warming_snapshots) in (0, 3)),
  constraint streak_is_counted check (streak_from between 0 and counted)
-- Rewritten by every report: with half of each page free, old versions go without a visit of vacuum.
) with (fillfactor = 50);
comment on table ipledger.source is 'What can say which addresses are live, what it declares that it sees, and how it stands.';
comment on column ipledger.source.kind is 'push: an agent or orchestrator reports; docker, kubernetes, http: ipledger asks.';
comment on column ipledger.source.node is 'The node it sees; empty: the whole network. The epochs of a source of a node are the boots of the node.';
comment on column ipledger.source.owner_kinds is 'Kinds of owners it can see; of others its silence says nothing.';
comment on column ipledger.source.families is '4, 6: of another family its silence says nothing (calico#5044).';
comment on column ipledger.source.sees_stopped is 'Whether workloads that are stopped and keep their address are in its lists.';
comment on column ipledger.source.boot_ends_all is 'Whether a new boot of its node proves that everything of the older ones ended.';
comment on column ipledger.source.settings is 'Of a source that is asked: where and how. Never a secret.';
comment on column ipledger.source.state is
  'REGISTERED: dry run, its sightings protect and prove nothing; ENABLED; RETIRED: over for good, its sightings are ended.';
comment on column ipledger.source.enabled_head is 'Head of the ledger when it was enabled: leases up to it are not missed before they were sighted.';
comment on column ipledger.source.epoch is 'The life it is in, by its own name for it; empty before its first snapshot.';
comment on column ipledger.source.warm is
  'Whether this epoch has had two complete snapshots whose size stopped growing; before, nothing is a miss, and nothing listed ends.';
comment on column ipledger.source.warming_size is 'While it warms up: size of the snapshot that the next one is compared with.';
comment on column ipledger.source.warming_snapshots is 'While it warms up: complete snapshots since the set grew.';
comment on column ipledger.source.era is 'Era of its last complete snapshot.';
comment on column ipledger.source.last_sequence is 'Number of the last snapshot taken in order; the next one begun is one more.';
comment on column ipledger.source.last_begun_at is
  'When its last report, complete or not, was begun; of one that does not prove that, when it arrived. Nothing it lists was seen later.';
comment on column ipledger.source.complete_head is
  'Head of the ledger when its last complete snapshot was begun: what a warm source lists since then is evidence of that head.';
comment on column ipledger.source.digest is 'Of the set that its listed sightings are; empty: not known, the next complete snapshot is compared entry by entry.';
comment on column ipledger.source.counted is 'Its counted snapshots, for ever: complete, warm, half an interval apart.';
comment on column ipledger.source.streak_from is 'What `counted` was when the streak began; only later ones are misses.';
comment on column ipledger.source.recent is 'The last 8 counted snapshots, oldest first: [{counted, sequence, head, begunAt}].';
comment on column ipledger.source.partial_since is 'Since when it has not reported completely; null: its last report was complete.';
-- None of these has a column that a report changes (the era, once in its life), so that a report stays in its page.
create index source_by_node on ipledger.source (network_id, node, source_id);
comment on index ipledger.source_by_node is 'The sources that see the node that asks (STRICT), or is fenced.';
create index source_by_era on ipledger.source (network_id, era, source_id) where state = 'ENABLED';
comment on index ipledger.source_by_era is 'Enabled sources that have not reported completely in this era: recovery, STRICT.';
create index source_by_interval on ipledger.source (network_id, report_interval_ms) where state <> 'RETIRED';
comment on index ipledger.source_by_interval is 'The slowest: an address cools for twice as long.';

create table ipledger.source_epoch (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text collate "C" not null,
  begun_at timestamptz not null,
  begun_sequence bigint not null,
  begun_head bigint not null,
  closed_at timestamptz,
  closed_by text collate "C",
  constraint epoch_is_begun_once_per_source primary key (network_id, source_id, epoch),
  constraint closed_epoch_names_its_successor check ((closed_at is null) = (closed_by is null))
);
comment on table ipledger.source_epoch is
  'Lives of sources. A closed one never opens again, so these rows are never pruned: one a boot.';
comment on column ipledger.source_epoch.begun_sequence is 'Its first snapshot.';
comment on column ipledger.source_epoch.closed_by is 'The epoch that followed it.';

create table ipledger.snapshot (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  sequence bigint not null,
  reported_at timestamptz not null,
  epoch text collate "C" not null,
  era integer not null,
  head bigint not null,
  begun_at timestamptz,
  complete boolean not null,
  counted boolean not null,
  partial_because text[] not null,
  entries integer not null,
  unreadable integer not null,
  ignored integer not null,
  appeared integer not null,
  vanished integer not null,
  digest text collate "C" not null,
  constraint report_is_kept_once primary key (network_id, source_id, sequence, reported_at),
  constraint partial_snapshot_says_why check (complete = (cardinality(partial_because) = 0)),
  constraint only_complete_snapshots_count check (complete or not counted),
  constraint only_complete_snapshots_end_sightings check (complete or vanished = 0)
);
comment on table ipledger.snapshot is
  'Reports that changed something: the set, the epoch, or whether the source is partial and why. The others leave their source''s row only.';
comment on column ipledger.snapshot.head is 'Head of the ledger at which it was begun; 0: nothing proves one, so it decides nothing.';
comment on column ipledger.snapshot.begun_at is 'Null: nothing proves when.';
comment on column ipledger.snapshot.entries is 'Entries kept, each once.';
comment on column ipledger.snapshot.ignored is 'Entries that are valid and say nothing here: link-local, of another network.';
create index snapshot_by_time on ipledger.snapshot (network_id, reported_at);
comment on index ipledger.snapshot_by_time is 'Pruning.';

create table ipledger.snapshot_part (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  begun_at timestamptz not null,
  part integer not null,
  received_at timestamptz not null,
  epoch text collate "C" not null,
  entries json not null,
  given integer not null,
  digest text collate "C" not null,
  unreadable integer not null,
  ignored integer not null,
  constraint part_of_a_snapshot_is_kept_once primary key (network_id, source_id, begun_at, part),
  constraint part_is_numbered_from_nothing check (part >= 0)
);
comment on table ipledger.snapshot_part is
  'Chunks of snapshots whose last one has not arrived. They say nothing yet, and go with the next snapshot of their source.';
comment on column ipledger.snapshot_part.begun_at is 'Of the snapshot, from its token: two begun by one source are not mixed.';
comment on column ipledger.snapshot_part.entries is 'In canonical form.';
comment on column ipledger.snapshot_part.given is 'Entries as they were sent, all of them.';
comment on column ipledger.snapshot_part.digest is 'Of the entries as they were sent; the digests of all parts add up to that of the snapshot.';
create index snapshot_part_by_time on ipledger.snapshot_part (network_id, received_at);
comment on index ipledger.snapshot_part_by_time is 'Pruning of what was never finished.';

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  entry_key text collate "C" not null,
  appeared_sequence bigint not null,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C" not null,
  boot text collate "C" not null,
  state text collate "C" not null,
  live boolean not null,
  epoch text collate "C" not null,
  appeared_head bigint not null,
  appeared_at timestamptz not null,
  last_seen_at timestamptz,
  vanished_sequence bigint,
  vanished_head bigint,
  vanished_at timestamptz,
  constraint sighting_begins_once primary key (network_id, address, source_id, entry_key, appeared_sequence),
  constraint sighting_address_is_a_host check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  constraint sighted_owner_is_whole check (
    num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface) in (0, 6)),
  constraint sighting_vanishes_as_a_whole check (num_nulls(last_seen_at, vanished_sequence, vanished_head, vanished_at) in (0, 4)),
  constraint sighting_ends_after_it_began check (vanished_sequence > appeared_sequence),
  constraint live_is_what_is_listed_and_has_not_ended check (live = (vanished_sequence is null and state <> 'terminal'))
);
comment on table ipledger.sighting is
  'Who sees which address for which owner: from the snapshot that first listed the entry to the complete one, of a warm epoch, that did not. '
  'What an entry says never changes: an owner on another node, or one that was paused, is another entry.';
comment on column ipledger.sighting.entry_key is 'Digest of all that the entry says, the address included.';
comment on column ipledger.sighting.owner_kind is 'Null: seen live, and whose it is is not known.';
comment on column ipledger.sighting.owner_uid_named is 'False: the source named no uid, and `owner_uid` repeats the name.';
comment on column ipledger.sighting.owner_interface is 'Empty: not told.';
comment on column ipledger.sighting.state is
  'The source''s word for it. Only `terminal` means that the workload has ended and is listed all the same; every other word, known or not, is alive.';
comment on column ipledger.sighting.live is 'Listed now, and not as terminal. Such an address is never handed out.';
comment on column ipledger.sighting.appeared_head is
  'Head of the ledger at which that snapshot was begun; 0: not proven, and it decides nothing. While its source is warm and has '
  'had a later complete snapshot (complete_sequence > appeared_sequence), which then listed it too, it is evidence of complete_head.';
comment on column ipledger.sighting.appeared_at is 'When that snapshot was begun.';
comment on column ipledger.sighting.last_seen_at is 'Of one that vanished: not later than this was it seen by its source.';
comment on column ipledger.sighting.vanished_sequence is 'The complete snapshot that did not list it: its first miss, if it counted.';
create index sighting_live on ipledger.sighting (network_id, address) where live;
comment on index ipledger.sighting_live is 'What is not handed out; leases nobody sees.';
create unique index source_lists_an_entry_once on ipledger.sighting (network_id, source_id, entry_key) where vanished_sequence is null;
comment on index ipledger.source_lists_an_entry_once is 'What a source lists now, compared with its next snapshot.';
create index sighting_by_its_end on ipledger.sighting (network_id, vanished_at) where vanished_at is not null;
comment on index ipledger.sighting_by_its_end is 'Pruning.';

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  fencing_token bigint not null,
  attachment_key text collate "C" not null,
  version bigint not null,
  address inet not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_uid_named boolean not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  node text collate "C" not null,
  wanted_at timestamptz not null,
  asked_at timestamptz,
  answered_at timestamptz,
  answer text collate "C",
  terminal_since timestamptz,
  epoch text collate "C" not null,
  detail text not null,
  attempts integer not null,
  next_at timestamptz,
  constraint lookup_is_kept_once_per_lease_owner_and_source primary key (network_id, source_id, fencing_token, attachment_key),
  constraint lookup_is_answered_after_it_was_asked check ((answer is null) = (answered_at is null) and (answer is null or asked_at is not null)),
  constraint lookup_has_a_known_answer check (answer in ('live', 'terminal', 'gone', 'unknown', 'error', 'unanswered')),
  constraint only_a_terminal_workload_ended_at_a_time check ((terminal_since is not null) = (answer is not null and answer = 'terminal')),
  constraint lookup_attempts_are_counted check (attempts >= 0)
);
comment on table ipledger.lookup is
  'Point look-ups at the authority: what is to be asked about a lease, the last answer, and when to ask again.';
comment on column ipledger.lookup.attachment_key is
  'kind|interface|incarnation|uid of whom the question is after: the holder of the lease, or another who was seen at its address.';
comment on column ipledger.lookup.version is 'Version of the lease when it was suspected; an answer about an older one proves nothing.';
comment on column ipledger.lookup.wanted_at is 'When the question arose.';
comment on column ipledger.lookup.asked_at is
  'When the question was handed to the source: the answer is not older than that, and no newer is claimed.';
comment on column ipledger.lookup.answer is
  'Null: none yet. Only gone, and terminal past its grace, are proof; every other word means alive.';
comment on column ipledger.lookup.epoch is 'Epoch of the source that answered.';
comment on column ipledger.lookup.attempts is 'Since the lease was last suspected; capped, for the waits between them.';
create index lookup_waits_for_its_source on ipledger.lookup (network_id, source_id, wanted_at) where answer is null;
comment on index ipledger.lookup_waits_for_its_source is 'What the next answer to a report asks.';
create index lookup_by_next_time on ipledger.lookup (network_id, next_at) where next_at is not null;
comment on index ipledger.lookup_by_next_time is 'What is to be asked again.';

create table ipledger.hold (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  held_seq bigint not null,
  held_at timestamptz not null,
  why text not null,
  reaps integer not null,
  leases bigint not null,
  constraint source_is_held_once primary key (network_id, source_id)
);
comment on table ipledger.hold is 'Projection: whose proofs of absence reap nothing until an operator resumes (reconcile.held, reconcile.resumed).';
comment on column ipledger.hold.source_id is 'Empty: the whole network.';
comment on column ipledger.hold.held_seq is 'Number of the event that held it.';
comment on column ipledger.hold.reaps is 'Reaps of the hour, the refused one included.';
comment on column ipledger.hold.leases is 'Leases that those are a share of.';

create table ipledger.fence (
  network_id text collate "C" not null,
  node text collate "C" not null,
  boot text collate "C" not null,
  fenced_seq bigint not null,
  fenced_at timestamptz not null,
  fenced_by text collate "C" not null,
  why text not null,
  constraint boot_is_fenced_once primary key (network_id, node, boot)
);
comment on table ipledger.fence is
  'Projection: boots of nodes that somebody vouches are over (node.fenced); of leases with a token up to fenced_seq.';

create table ipledger.signing_key (
  network_id text collate "C" not null,
  secret text collate "C" not null,
  made_at timestamptz not null,
  constraint network_has_one_signing_key primary key (network_id),
  constraint signing_key_has_256_bits check (secret ~ '^[A-Za-z0-9_-]{43}$')
);
comment on table ipledger.signing_key is
  'Secret that snapshot tokens of a network are signed with. Made once; goes with the database into its copies, so that a '
  'token of a later life is still known to be ours.';

grant select on
  ipledger.source, ipledger.source_epoch, ipledger.snapshot, ipledger.snapshot_part, ipledger.sighting, ipledger.lookup,
  ipledger.hold, ipledger.fence, ipledger.signing_key
  to ipledger_service;
grant insert, update, delete on
  ipledger.source, ipledger.snapshot, ipledger.snapshot_part, ipledger.sighting, ipledger.lookup, ipledger.hold, ipledger.fence
  to ipledger_service;
-- What is closed stays closed, what is signed stays valid.
grant insert, update on ipledger.source_epoch to ipledger_service;
grant insert on ipledger.signing_key to ipledger_service;

alter table ipledger.source set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.snapshot set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.snapshot_part set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.sighting set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table ipledger.lookup set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md): network_id narrows nothing, keys do.

alter table ipledger.source
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -1), alter node set (n_distinct = -1),
  alter era set (n_distinct = 2), alter report_interval_ms set (n_distinct = 4);
alter table ipledger.source_epoch
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -0.1), alter epoch set (n_distinct = -1);
alter table ipledger.snapshot
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -0.1), alter sequence set (n_distinct = -0.5),
  alter reported_at set (n_distinct = -0.5);
alter table ipledger.snapshot_part
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -0.1), alter begun_at set (n_distinct = -0.1),
  alter part set (n_distinct = -0.1), alter received_at set (n_distinct = -0.5);
alter table ipledger.sighting
  alter network_id set (n_distinct = 1), alter address set (n_distinct = -0.5), alter source_id set (n_distinct = -0.01),
  alter entry_key set (n_distinct = -0.5), alter appeared_sequence set (n_distinct = -0.1), alter vanished_at set (n_distinct = -0.1);
alter table ipledger.lookup
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -0.1), alter fencing_token set (n_distinct = -1),
  alter attachment_key set (n_distinct = -1), alter wanted_at set (n_distinct = -0.5), alter next_at set (n_distinct = -0.5);
alter table ipledger.hold
  alter network_id set (n_distinct = 1), alter source_id set (n_distinct = -1);
alter table ipledger.fence
  alter network_id set (n_distinct = 1), alter node set (n_distinct = -0.5), alter boot set (n_distinct = -1);
alter table ipledger.signing_key
  alter network_id set (n_distinct = -1);

insert into ipledger.source
  (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings, state,
   registered_at, registered_by, epoch, warm, last_sequence, size, digest, counted, streak_from, recent, partial_because)
  values ('sample', 'sample', 'push', 'sample', '{pod}', '{4}', false, false, 30000, '{}', 'REGISTERED',
   now(), 'sample', '', false, 0, 0, '', 0, 0, '[]', '{}');
insert into ipledger.source_epoch values ('sample', 'sample', 'sample', now(), 1, 1, null, null);
insert into ipledger.snapshot
  values ('sample', 'sample', 1, now(), 'sample', 0, 1, now(), true, false, '{}', 1, 0, 0, 1, 0, 'sample');
insert into ipledger.snapshot_part values ('sample', 'sample', now(), 0, now(), 'sample', '[]', 1, 'sample', 0, 0);
insert into ipledger.sighting
  (network_id, address, source_id, entry_key, appeared_sequence, owner_kind, owner_name, owner_uid, owner_uid_named,
   owner_incarnation, owner_interface, node, boot, state, live, epoch, appeared_head, appeared_at,
   last_seen_at, vanished_sequence, vanished_head, vanished_at)
  values
  ('sample', '192.0.2.1', 'sample', 'sample', 1, 'pod', 'sample/sample', 'sample', true, '', '', 'sample', '', 'live', true,
   'sample', 1, now(), null, null, null, null),
  ('sample', '192.0.2.2', 'sample', 'other', 1, 'pod', 'sample/other', 'other', true, '', '', 'sample', '', 'live', false,
   'sample', 1, now(), now(), 2, 1, now());
insert into ipledger.lookup
  (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation,
   owner_interface, node, wanted_at, asked_at, answered_at, answer, epoch, detail, attempts, next_at)
  values
  ('sample', 'sample', 1, 'pod|eth0||sample', 1, '192.0.2.1', 'pod', 'sample/sample', 'sample', true, '', 'eth0', '', now(), null, null, null, '', '', 0, null),
  ('sample', 'sample', 2, 'pod|eth0||other', 2, '192.0.2.2', 'pod', 'sample/other', 'other', true, '', 'eth0', '', now(), now(), now(), 'live', '', '', 1, now());
insert into ipledger.hold values ('sample', 'sample', 1, now(), 'sample', 1, 1);
insert into ipledger.fence values ('sample', 'sample', 'sample', 1, now(), 'sample', 'sample');
analyze ipledger.source, ipledger.source_epoch, ipledger.snapshot, ipledger.snapshot_part, ipledger.sighting, ipledger.lookup,
  ipledger.hold, ipledger.fence;
savepoint sampled;
truncate ipledger.source, ipledger.source_epoch, ipledger.snapshot, ipledger.snapshot_part, ipledger.sighting, ipledger.lookup,
  ipledger.hold, ipledger.fence;
release savepoint sampled;
