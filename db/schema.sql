-- The schemas "ipledger" and "ipledger_audit" as db/migrations, db/audit and db/grants.sql make them. Written by "npm run generate"; do not edit.

create extension btree_gist;

create table ipledger.event (
  network_id text collate "C" not null,
  seq bigint not null,
  format smallint not null,
  type text collate "C" not null,
  at timestamp with time zone not null,
  actor text collate "C" not null,
  cause text collate "C" not null,
  request_id text collate "C",
  trace_id text collate "C",
  pool_id bigint,
  address inet,
  previous bigint,
  prefix_length smallint,
  token bigint,
  state text collate "C",
  ended text collate "C",
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C",
  labels json,
  reserved_at timestamp with time zone,
  confirmed_at timestamp with time zone,
  confirm_by timestamp with time zone,
  available_at timestamp with time zone,
  quarantine_reason text collate "C",
  quarantined_at timestamp with time zone,
  quarantined_by text collate "C",
  quarantine_why text collate "C",
  details json,
  digest bytea not null,
  constraint address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint chain_goes_by_address CHECK ((address IS NULL) = (previous IS NULL)),
  constraint chain_goes_forward CHECK (previous >= 0 AND previous < seq),
  constraint digest_is_sha256 CHECK (octet_length(digest) = 32),
  constraint history_of_an_address_never_forks UNIQUE (network_id, address, previous),
  constraint number_is_given_once PRIMARY KEY (network_id, seq),
  constraint number_is_positive CHECK (seq > 0)
);

create table ipledger.lease (
  network_id text collate "C" not null,
  address inet not null,
  seq bigint not null,
  pool_id bigint not null,
  state text collate "C" not null,
  confirm_by timestamp with time zone,
  available_at timestamp with time zone,
  constraint address_has_one_lease PRIMARY KEY (network_id, address)
) with (fillfactor=70);

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  address inet not null,
  answer text collate "C" not null,
  terminal_since timestamp with time zone,
  detail text not null,
  head bigint not null,
  asked_at timestamp with time zone not null,
  attempts integer not null,
  constraint question_has_one_answer PRIMARY KEY (network_id, address, source_id, owner_kind, owner_uid)
);

create table ipledger.migration (
  name character varying(255) not null,
  timestamp character varying(255) not null,
  constraint migration_pkey PRIMARY KEY (name)
);

create table ipledger.migration_lock (
  id character varying(255) not null,
  is_locked integer not null default 0,
  constraint migration_lock_pkey PRIMARY KEY (id)
);

create table ipledger.network (
  network_id text collate "C" not null,
  description text not null,
  labels json not null,
  era integer not null,
  identity text not null,
  recovering bigint,
  recovered_at timestamp with time zone,
  holds json not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint network_has_one_name PRIMARY KEY (network_id)
);

create table ipledger.network_lock (
  network_id text collate "C" not null,
  constraint network_has_one_lock PRIMARY KEY (network_id)
);

create table ipledger.pool (
  network_id text collate "C" not null,
  pool_id bigint not null,
  name text collate "C" not null,
  cidr cidr not null,
  prefix_length smallint not null,
  settings json not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint pool_has_one_id PRIMARY KEY (network_id, pool_id),
  constraint pool_name_is_taken_once UNIQUE (network_id, name),
  constraint pools_never_overlap EXCLUDE USING gist (network_id WITH =, cidr inet_ops WITH &&)
);

create table ipledger.pool_sample (
  network_id text collate "C" not null,
  pool_id bigint not null,
  at timestamp with time zone not null,
  size numeric not null,
  excluded numeric not null,
  free numeric not null,
  cooling numeric not null,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  constraint pool_is_sampled_once PRIMARY KEY (network_id, pool_id, at)
);

create table ipledger.request (
  network_id text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text not null,
  method text not null,
  seq bigint not null,
  at timestamp with time zone not null,
  answer json not null,
  constraint request_is_answered_once PRIMARY KEY (network_id, request_id)
);

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  node text collate "C" not null,
  state text collate "C" not null,
  appeared_seq bigint not null,
  appeared_head bigint not null,
  vanished_seq bigint,
  terminal_seq bigint,
  terminal_at timestamp with time zone,
  constraint source_lists_an_owner_once PRIMARY KEY (network_id, address, source_id, owner_kind, owner_uid, owner_incarnation, owner_interface)
);

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  declaration json not null,
  state text collate "C" not null,
  version bigint not null,
  registered_at timestamp with time zone not null,
  registered_by text not null,
  enabled_at timestamp with time zone,
  enabled_by text,
  enabled_seq bigint,
  retired_at timestamp with time zone,
  epoch text,
  epoch_seq bigint,
  epoch_head bigint,
  epoch_at timestamp with time zone,
  constraint source_has_one_id PRIMARY KEY (network_id, source_id)
);

create table ipledger.source_failure (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  since timestamp with time zone not null,
  why text not null,
  constraint source_fails_for_one_reason PRIMARY KEY (network_id, source_id)
);

create table ipledger.source_report (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text not null,
  era integer not null,
  warm boolean not null,
  sequence bigint not null,
  digest text not null,
  entries integer not null,
  counted json not null,
  counted_total bigint not null,
  reported_at timestamp with time zone not null,
  complete_at timestamp with time zone,
  complete_head bigint,
  partial_since timestamp with time zone,
  partial_because json,
  constraint source_reports_in_one_row PRIMARY KEY (network_id, source_id)
);

create table ipledger.verification (
  network_id text collate "C" not null,
  verified_seq bigint not null,
  digest bytea,
  part text,
  started_at timestamp with time zone not null,
  finished_at timestamp with time zone,
  findings json not null,
  constraint network_has_one_verification PRIMARY KEY (network_id)
);

CREATE INDEX event_about_no_address ON ipledger.event USING btree (network_id, type, COALESCE((details ->> 'source'::text), (details ->> 'id'::text)), seq) WHERE (address IS NULL);

CREATE INDEX event_by_owner ON ipledger.event USING btree (network_id, owner_name, seq) WHERE (owner_name IS NOT NULL);

CREATE INDEX event_by_time ON ipledger.event USING brin (at);

CREATE INDEX pool_sample_by_time ON ipledger.pool_sample USING brin (at);

CREATE INDEX request_by_time ON ipledger.request USING brin (at);

view ipledger_audit.attention (network text, code text, source text, lease_id text, address inet, pool text, since timestamp with time zone, age interval, what text)

view ipledger_audit.conflicts (network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_why text, since timestamp with time zone, parties jsonb, seen_by text[], what text)

view ipledger_audit.crash_loops (network text, owner_kind text, owner_name text, owner_interface text, pool text, lives bigint, addresses bigint, held_now bigint, first_at timestamp with time zone, last_at timestamp with time zone)

view ipledger_audit.event (network text, seq bigint, at timestamp with time zone, type text, address inet, lease_id text, pool text, state text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, actor text, cause text, quarantine_reason text, what text, evidence jsonb, trace_id text)

view ipledger_audit.holds (network text, hold text, seq bigint, at timestamp with time zone, why text, until timestamp with time zone, details jsonb)

view ipledger_audit.lease (network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_why text, since timestamp with time zone)

view ipledger_audit.log (network_id text, seq bigint, format smallint, type text, at timestamp with time zone, actor text, cause text, trace_id text, pool_id bigint, address inet, previous bigint, prefix_length smallint, fencing_token bigint, state text, ended text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, available_at timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_why text, evidence jsonb, digest bytea)

view ipledger_audit.network (network text, state text, era integer, head bigint, description text, labels jsonb, created_at timestamp with time zone, updated_at timestamp with time zone)

view ipledger_audit.pool (network text, pool text, pool_id bigint, family smallint, cidr cidr, settings jsonb, version bigint, created_at timestamp with time zone, updated_at timestamp with time zone)

view ipledger_audit.pool_forecast (network text, pool text, free numeric, cooling numeric, leases_per_hour double precision, exhausted_in interval, at timestamp with time zone)

view ipledger_audit.pool_map (network text, pool text, part integer, first_address inet, size numeric, cooling bigint, reserved bigint, active bigint, quarantined bigint, used_ratio double precision)

view ipledger_audit.pool_samples (network text, pool_id bigint, at timestamp with time zone, size numeric, allocatable numeric, free numeric, cooling numeric, reserved bigint, active bigint, quarantined bigint, excluded numeric)

view ipledger_audit.pool_usage (network text, pool text, cidr cidr, family smallint, size numeric, allocatable numeric, free numeric, cooling bigint, reserved bigint, active bigint, quarantined bigint, excluded numeric, used_ratio double precision, draining boolean)

view ipledger_audit.quarantines (network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_why text, since timestamp with time zone, age interval, exit text)

view ipledger_audit.sightings (network text, address inet, source text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, state text, live boolean, appeared_at timestamp with time zone, appeared_seq bigint, appeared_head bigint, last_seen_at timestamp with time zone, vanished_at timestamp with time zone, vanished_seq bigint, terminal_at timestamp with time zone)

view ipledger_audit.sources (network text, source text, kind text, node text, state text, epoch text, warm boolean, era integer, interval interval, reported_at timestamp with time zone, lag interval, complete_at timestamp with time zone, complete_lag interval, sequence bigint, listed integer, counted bigint, partial_because jsonb, failing_since timestamp with time zone, failure text)

view ipledger_audit.suspects (network text, address inet, lease_id text, owner_kind text, owner_name text, owner_uid text, source text, question_at timestamp with time zone, answer text, attempts integer, waiting interval, what text)

view ipledger_audit.touched (network text, address inet, state text, seq bigint, pool_id bigint, available_at timestamp with time zone)

view ipledger_audit.unwitnessed (network text, address inet, lease_id text, pool_id bigint, since timestamp with time zone, owner_kind text)

view ipledger_audit.verification (network text, looked_up_to bigint, digest text, started_at timestamp with time zone, all_looked_at timestamp with time zone, now_at text, findings integer)

view ipledger_audit.verify_findings (network text, what text, address inet, seq bigint, expected text, found text, message text, found_at timestamp with time zone, seen_at timestamp with time zone)

function ipledger.event_text(e ipledger.event) returns text

function ipledger_audit.address_at(family integer, number numeric) returns inet

function ipledger_audit.address_history(network text, address inet, "from" timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, "to" timestamp with time zone DEFAULT 'infinity'::timestamp with time zone) returns SETOF ipledger_audit.event

function ipledger_audit.address_number(address inet) returns numeric

function ipledger_audit.bases(network text, address inet) returns SETOF inet

function ipledger_audit.chain(network text, address inet, after bigint, upto bigint) returns SETOF ipledger_audit.log

function ipledger_audit.churn("from" timestamp with time zone DEFAULT (now() - '01:00:00'::interval), "to" timestamp with time zone DEFAULT now()) returns TABLE(network text, by text, key text, reserved bigint, released bigint, reaped bigint, adopted bigint, quarantined bigint)

function ipledger_audit.describe_lease(event ipledger_audit.log, at timestamp with time zone) returns text

function ipledger_audit.describe_owner(kind text, name text, uid text, incarnation text, interface text) returns text

function ipledger_audit.describe_owner(owner jsonb) returns text

function ipledger_audit.describe_proof(evidence jsonb) returns text

function ipledger_audit.describe_seen(evidence jsonb) returns text

function ipledger_audit.describe_witness(proof jsonb, witness jsonb) returns text

function ipledger_audit.event_rate("from" timestamp with time zone, "to" timestamp with time zone, step interval DEFAULT '00:01:00'::interval) returns TABLE(network text, at timestamp with time zone, type text, cause text, events bigint, per_second double precision)

function ipledger_audit.event_sentence(event ipledger_audit.log, pool text) returns text

function ipledger_audit.events_between(network text, "from" timestamp with time zone, "to" timestamp with time zone) returns SETOF ipledger_audit.log

function ipledger_audit.explain_address(network text, address inet, OUT step integer, INOUT at timestamp with time zone DEFAULT now(), OUT seq bigint, OUT what text, OUT evidence jsonb, upto bigint DEFAULT NULL::bigint) returns SETOF record

function ipledger_audit.last_event(network text, address inet, upto bigint) returns SETOF ipledger_audit.log

function ipledger_audit.last_events(network text, address inet, upto bigint) returns SETOF ipledger_audit.log

function ipledger_audit.lease_history(lease_id text) returns SETOF ipledger_audit.event

function ipledger_audit.leases_as_of(network text, at timestamp with time zone) returns SETOF ipledger_audit.lease

function ipledger_audit.leases_as_of(network text, seq bigint) returns SETOF ipledger_audit.lease

function ipledger_audit.listed(list jsonb) returns text

function ipledger_audit.marks("from" timestamp with time zone, "to" timestamp with time zone) returns TABLE(network text, seq bigint, at timestamp with time zone, mark text, what text)

function ipledger_audit.moment(milliseconds jsonb) returns text

function ipledger_audit.moment(moment timestamp with time zone) returns text

function ipledger_audit.owner_history(network text, name text) returns SETOF ipledger_audit.event

function ipledger_audit.plain_address(address inet) returns inet

function ipledger_audit.pool_at(network text, address inet, upto bigint) returns SETOF ipledger_audit.log

function ipledger_audit.pool_exclusions(settings jsonb) returns TABLE(first inet, last inet, why text)

function ipledger_audit.pool_name(network text, pool_id bigint) returns text

function ipledger_audit.pool_space(settings jsonb, OUT size numeric, OUT allocatable numeric) returns record

function ipledger_audit.pool_touched(network text, cidr cidr, prefix_length integer) returns TABLE(address inet, state text)

function ipledger_audit.pool_usage_history(INOUT network text, INOUT pool text, "from" timestamp with time zone, "to" timestamp with time zone, OUT at timestamp with time zone, OUT cidr cidr, OUT family smallint, OUT size numeric, OUT allocatable numeric, OUT free numeric, OUT cooling numeric, OUT reserved bigint, OUT active bigint, OUT quarantined bigint, OUT excluded numeric, OUT used_ratio double precision) returns SETOF record

function ipledger_audit.position_at(network text, at timestamp with time zone) returns bigint

function ipledger_audit.quarantine_exit(reason text, owner_kind text) returns text

function ipledger_audit.reaps("from" timestamp with time zone, "to" timestamp with time zone) returns TABLE(network text, seq bigint, at timestamp with time zone, address inet, lease_id text, pool text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, cause text, actor text, source text, why text, snapshots bigint[], heads bigint[], misses integer, last_sighted_at timestamp with time zone, lookup_answer text, lookup_at timestamp with time zone, lookup_detail text, policy jsonb, evidence jsonb)

function ipledger_audit.seconds(milliseconds text) returns text

function ipledger_audit.who_had(INOUT network text, INOUT address inet, at timestamp with time zone, OUT pool text, OUT state text, OUT lease_id text, OUT fencing_token bigint, OUT version bigint, OUT owner_kind text, OUT owner_name text, OUT owner_uid text, OUT owner_incarnation text, OUT owner_interface text, OUT node text, OUT labels jsonb, OUT reserved_at timestamp with time zone, OUT confirmed_at timestamp with time zone, OUT confirm_by timestamp with time zone, OUT quarantine_reason text, OUT quarantined_at timestamp with time zone, OUT quarantined_by text, OUT quarantine_why text, OUT since timestamp with time zone, OUT seq bigint, OUT given_by text, OUT given_cause text, OUT until timestamp with time zone, OUT ended_as text) returns SETOF record

comment on function ipledger_audit.address_at(integer,numeric) is 'The address of a number, 0 to 2^32 - 1 in family 4 or 2^128 - 1 in family 6: what address_number is of an address.

Example:
  select address_at(4, address_number(''10.8.64.2'') + 1);';

comment on function ipledger_audit.address_history(pg_catalog.text,pg_catalog.inet,timestamp with time zone,timestamp with time zone) is 'Everything that happened to an address, or to the addresses of a CIDR, between two times (both included; without them, ever), in order.
Blocks that hold the address count. No row: nothing ever happened there, or there is no such network. An IPv4 address that is written as
IPv6 (::ffff:10.8.64.2) means the IPv4 one.

Columns: those of view `event`.

Example:
  select seq, at, what from address_history(''default'', ''10.8.64.2'', now() - interval ''1 day'');';

comment on function ipledger_audit.address_number(pg_catalog.inet) is 'An address as a number, 0 to 2^32 - 1 or 2^128 - 1: how far two lie apart.

Example:
  select address_number(''2001:db8::1'') - address_number(''2001:db8::'');';

comment on function ipledger_audit.bases(pg_catalog.text,pg_catalog.inet) is 'Every address at which a lease that overlaps an address or a CIDR began, or could have begun.

Example:
  select bases(''default'', ''10.8.64.0/28'');';

comment on function ipledger_audit.chain(pg_catalog.text,pg_catalog.inet,bigint,bigint) is 'The events of the leases that begin at an address, behind one number and up to another, by the index of their chain. Rows of view
`log`.

Example:
  select seq, type from chain(''default'', ''10.8.64.2'', 0, 1000) order by seq;';

comment on function ipledger_audit.churn(timestamp with time zone,timestamp with time zone) is 'How many leases came and went between two times (both included; without them the last hour), three times over: by owner, by node and by
pool, the busiest first. Reads every event of that time.

Columns: network; by (owner, node or pool); key (kind and name of the owner, the node, the pool); reserved, released, reaped, adopted,
quarantined (events).

Example:
  select key, reserved, released, reaped from churn() where network = ''default'' and by = ''owner'' limit 20;';

comment on function ipledger_audit.describe_lease(ipledger_audit.log,timestamp with time zone) is 'What the last event of a lease makes of its address at a time, as the rest of a sentence that begins with the address.

Example:
  select describe_lease(l, now()) from last_events(''default'', ''10.8.64.2'', 1000) l;';

comment on function ipledger_audit.describe_owner(pg_catalog.jsonb) is 'An owner, or an entry of a list, as evidence stores it, as sentences name it.

Example:
  select describe_owner(''{"kind": "pod", "name": "default/web-0", "uid": "b5c0", "interface": "eth0"}''::jsonb);';

comment on function ipledger_audit.describe_owner(pg_catalog.text,pg_catalog.text,pg_catalog.text,pg_catalog.text,pg_catalog.text) is 'An owner as sentences name it: kind, name, and what else tells it apart.

Example:
  select describe_owner(''pod'', ''default/web-0'', ''b5c0'', ''1'', ''eth0'');';

comment on function ipledger_audit.describe_proof(pg_catalog.jsonb) is 'Why a lease was taken back on proof, in words: each source that the proof rests on, and the policy then in force. `evidence` is that of
the event.

Example:
  select describe_proof(evidence) from log where network_id = ''default'' and type = ''lease.reaped'' and evidence ? ''proof'' limit 1;';

comment on function ipledger_audit.describe_seen(pg_catalog.jsonb) is 'What a source listed, in words, from the evidence of an event that followed from a list.

Example:
  select describe_seen(evidence) from log where network_id = ''default'' and type = ''lease.adopted'' limit 1;';

comment on function ipledger_audit.describe_witness(pg_catalog.jsonb,pg_catalog.jsonb) is 'What one source contributed to a proof, in words: which reports missed the workload, at which heads, and what the source said when it was
asked. `proof` is evidence -> ''proof'' of a reap, `witness` one element of its `witnesses`.

Example:
  select describe_witness(e.evidence -> ''proof'', w) from log e, jsonb_array_elements(e.evidence #> ''{proof,witnesses}'') w
   where e.network_id = ''default'' and e.type = ''lease.reaped'' limit 1;';

comment on function ipledger_audit.event_rate(timestamp with time zone,timestamp with time zone,interval) is 'How many events there were between two times (both included), in steps. Reads every event of that time.

Columns: network; at (begin of the step, counted from 1970); type; cause (call or finding); events; per_second. Steps without events have
no row.

Example:
  select at, sum(events) from event_rate(now() - interval ''1 hour'', now(), ''5 minutes'') where network = ''default'' group by at order by at;';

comment on function ipledger_audit.event_sentence(ipledger_audit.log,pg_catalog.text) is 'One event as a sentence: what happened, to which lease of whom, who did it and on what evidence. `pool` is the name of the event''s
pool. The sentence is column `what` of view `event`.

Example:
  select event_sentence(l, ''default'') from log l where network_id = ''default'' and seq = 1;';

comment on function ipledger_audit.events_between(pg_catalog.text,timestamp with time zone,timestamp with time zone) is 'The events of a network between two times (both included), found by their numbers. Rows of view `log`.

Example:
  select type, count(*) from events_between(''default'', now() - interval ''1 hour'', now()) group by type;';

comment on function ipledger_audit.explain_address(pg_catalog.text,pg_catalog.inet,timestamp with time zone,bigint) is 'Why an address is free, cooling, held, in quarantine, or was taken back, now or at a time. Step 0 is the answer in one sentence, with what
sources list there, or elsewhere in the block that it is handed out with (of the past only what they list still), and, of now, what they
were asked; the steps after it are the events that led there, oldest first: the lease it has or had last, the lease before it (at most 100
events of each), and its pool where that was changed since, or deleted. Several events may have one time: `upto` is the number of the last
that counts, if it is not to be the last of that time. An IPv4 address that is written as IPv6 (::ffff:10.8.64.2) means the IPv4 one; of no
address (null) there is no row.

Columns: step; at (of step 0 the time asked about, then of the event); seq (number of the event); what (a sentence); evidence (of step 0:
position in the log, state (FREE, COOLING, RESERVED, ACTIVE, QUARANTINED, EXCLUDED, or OUTSIDE every pool), sightings, lookUps; of an
event what it rested on).

Example:
  select step, at, what from explain_address(''default'', ''10.8.64.2'');';

comment on function ipledger_audit.last_event(pg_catalog.text,pg_catalog.inet,bigint) is 'The last event, up to a number, of the lease that begins at an address: one look at the index of its chain. Rows of view `log`.

Example:
  select seq, type from last_event(''default'', ''10.8.64.2'', 1000);';

comment on function ipledger_audit.last_events(pg_catalog.text,pg_catalog.inet,bigint) is 'The last event, up to a number, of every lease that ever began where one that overlaps an address or a CIDR could. Of those that hold
one address at most one was held then. Rows of view `log`.

Example:
  select seq, type, address, owner_name from last_events(''default'', ''10.8.64.0/24'', 1000) where state <> ''FREE'';';

comment on function ipledger_audit.lease_history(pg_catalog.text) is 'The life of one lease, from its first event to its end, in order. The id names network and fencing token: ''default/42''.

Columns: those of view `event`.

Example:
  select seq, at, state, what from lease_history(''default/42'');';

comment on function ipledger_audit.leases_as_of(pg_catalog.text,bigint) is 'The whole table of leases of a network as it was after an event: who held what then, in order of address. A number beyond the last one
means now. For one address or a CIDR use who_had. It costs a look at an index or two for each address that was ever held. No row: nothing
was held, or there is no such network.

Columns: those of view `lease`.

Example:
  select address, state, owner_name from leases_as_of(''default'', 120000);';

comment on function ipledger_audit.leases_as_of(pg_catalog.text,timestamp with time zone) is 'The whole table of leases of a network as it was at a time: after the last event at or before it. Otherwise as with a number. A time is
written as one: timestamptz ''2026-01-01 03:12Z'', or now() - interval ''1 hour''.

Example:
  select address, state, owner_name from leases_as_of(''default'', now() - interval ''1 hour'');';

comment on function ipledger_audit.listed(pg_catalog.jsonb) is 'The texts of a list, as sentences write them; null: none.

Example:
  select listed(''["10.8.64.1", "10.8.64.8-10.8.64.15"]''::jsonb);';

comment on function ipledger_audit.marks(timestamp with time zone,timestamp with time zone) is 'What a chart marks: reaps, conflicts, new eras, holds and their ends, between two times (both included).
Columns: network; seq; at; mark (reap, conflict, era, hold); what (a sentence).

Example:
  select at, mark, what from marks(now() - interval ''1 day'', now()) where network = ''default'' order by at;';

comment on function ipledger_audit.moment(pg_catalog.jsonb) is 'A time as evidence stores it, milliseconds since 1970, as sentences write it.

Example:
  select moment(''1763000000000''::jsonb);';

comment on function ipledger_audit.moment(timestamp with time zone) is 'A time as sentences write it: UTC, to the millisecond, whatever the session''s time zone.

Example:
  select moment(now());';

comment on function ipledger_audit.owner_history(pg_catalog.text,pg_catalog.text) is 'Everything that happened to leases of owners of a name, of whatever kind, uid and incarnation, in order, with the closings of its
attachments.

Columns: those of view `event`.

Example:
  select at, address, owner_incarnation, what from owner_history(''default'', ''default/web-0'');';

comment on function ipledger_audit.plain_address(pg_catalog.inet) is 'An address or a CIDR as the log writes it: an IPv4 one that is written as IPv6 (::ffff:10.8.64.2) is the IPv4 one.

Example:
  select plain_address(''::ffff:10.8.64.2'');';

comment on function ipledger_audit.pool_at(pg_catalog.text,pg_catalog.inet,bigint) is 'The pool that an address belonged to after an event, or else the one that was deleted last of those it had belonged to: its last event up
to then, of type pool.deleted if it is gone. Rows of view `log`.

Example:
  select type, evidence from pool_at(''default'', ''10.8.64.2'', 1000);';

comment on function ipledger_audit.pool_exclusions(pg_catalog.jsonb) is 'What a pool never hands out, as ranges of addresses: its gateway, what its settings exclude, and, of a pool of single addresses, the
addresses of its subnet that no workload can use. A block that one of them touches is not handed out. `settings` is that of view `pool`.
Columns: first, last, why.

Example:
  select p.pool, x.* from pool p, pool_exclusions(p.settings) x where p.network = ''default'';';

comment on function ipledger_audit.pool_name(pg_catalog.text,bigint) is 'The name of a pool by its number: as it is now, or as it was made if it is gone; empty if nothing is known of it.

Example:
  select pool_name(''default'', 1);';

comment on function ipledger_audit.pool_space(pg_catalog.jsonb) is 'How many leases a pool''s CIDR holds, and how many of them can be handed out. `settings` is that of view `pool`. Columns: size,
allocatable; a v6 /48 holds 2^80 addresses.

Example:
  select p.pool, s.size, s.allocatable from pool p, pool_space(p.settings) s where p.network = ''default'';';

comment on function ipledger_audit.pool_touched(pg_catalog.text,pg_catalog.cidr,integer) is 'The addresses that were ever leased of which a lease of this pool can begin, as they are now. Columns: address (of a block the first one), state (FREE, COOLING,
RESERVED, ACTIVE, QUARANTINED).

Example:
  select t.state, count(*) from pool p, pool_touched(p.network, p.cidr, (p.settings ->> ''prefixLength'')::int) t group by t.state;';

comment on function ipledger_audit.pool_usage_history(pg_catalog.text,pg_catalog.text,timestamp with time zone,timestamp with time zone) is 'How full a pool was between two times (both included), a row a minute, for 90 days; of deleted pools of that name too.

Columns: those of view `pool_samples`; pool; cidr and family (4, 6) as they are now; used_ratio (as in pool_usage).

Example:
  select at, free, cooling, active from pool_usage_history(''default'', ''default'', now() - interval ''6 hours'', now());';

comment on function ipledger_audit.position_at(pg_catalog.text,timestamp with time zone) is 'The number of the last event of a network at or before a time; 0 if there is none. Several events may have one time.

Example:
  select position_at(''default'', now() - interval ''1 hour'');';

comment on function ipledger_audit.quarantine_exit(pg_catalog.text,pg_catalog.text) is 'What ends a quarantine, by its reason and the kind of its owner.

Example:
  select quarantine_exit(''CONFLICT'', ''pod'');';

comment on function ipledger_audit.reaps(timestamp with time zone,timestamp with time zone) is 'Addresses that were taken back between two times (both included), and on what evidence: one row for each source that the proof rests on;
one row without a source where it rests on none (an operator''s Reap, a deadline that passed).

Columns: network; seq, at (of the event); address (a block with its mask); lease_id; pool; owner_kind, owner_name, owner_uid,
owner_incarnation, owner_interface, node (of the last holder); cause (PROVEN_ABSENT, NEVER_CONFIRMED, Reap); actor; source; why (it is a
witness: SIGHTED, it had listed the lease, or COVERS its kind and node); snapshots (numbers of its counted reports that missed the lease),
heads (of the log, at which those were begun), misses (how many); last_sighted_at (by this source); lookup_answer, lookup_at, lookup_detail
(what it said when it was asked last); policy (in force then, times in ms); evidence (all that is stored).

Example:
  select at, address, owner_name, cause, source, snapshots, lookup_answer from reaps(now() - interval ''1 day'', now());';

comment on function ipledger_audit.seconds(pg_catalog.text) is 'A span as evidence stores it, in milliseconds, as sentences write it.

Example:
  select seconds(''120000'');';

comment on function ipledger_audit.who_had(pg_catalog.text,pg_catalog.inet,timestamp with time zone) is 'Who held an address at a time, or every address of a CIDR: one row a lease that was held then, in quarantine too. No row: nobody held
it then, or there is no such network (view `network` has those that are). A time means the last event at or before it. An IPv4 address
that is written as IPv6 (::ffff:10.8.64.2) means the IPv4 one.

Columns: those of view `lease`; seq (as version: the event that made it so); given_by and given_cause (who gave it away, by which call or
finding); until (its end; null: held still) and ended_as (type/cause of the end).

Example:
  select owner_name, node, since, given_by, until, ended_as from who_had(''default'', ''10.8.64.2'', now() - interval ''1 day'');';

comment on view ipledger_audit.attention is 'What waits for a person, or for an answer that does not come. Leases without a witness are listed where the network has an enabled
source; view `unwitnessed` has them all. Reads every lease: name the network, or codes.

Columns: network; code (NETWORK_RECOVERING, HELD, BOOKS_DIFFER, SOURCE_SILENT, SOURCE_PARTIAL, SOURCE_COLD, OPERATOR_ONLY, NO_WITNESS,
LOOKUP_FAILING); source (empty: none); lease_id, address, pool (null, null and empty: about none); since; age; what (a sentence).

Example:
  select code, source, address, age, what from attention where network = ''default'' order by since;';

comment on view ipledger_audit.conflicts is 'Addresses that more than one workload uses, as far as sources saw: held as CONFLICT and handed to nobody.

Columns: those of view `lease`; since (when the conflict was found); parties (the holder, and everybody who is seen there now: role
holder or seen; owner, node, source, state, since); seen_by (sources that see somebody there now); what (a sentence).

Example:
  select address, since, seen_by, what from conflicts where network = ''default'';';

comment on view ipledger_audit.crash_loops is 'Owners that were given leases in five lives or more within the last 15 minutes: something starts and ends again and again. What one
Reserve gave, or several of one incarnation, is one life; an owner that names no incarnation has one for each Reserve. Reads every event
of that time: name the network.

Columns: network; owner_kind, owner_name, owner_interface; pool (of the last lease); lives; addresses (different ones), held_now (leases it
has, quarantined ones included); first_at, last_at (of these leases).

Example:
  select owner_name, lives, addresses, held_now from crash_loops where network = ''default'' order by lives desc;';

comment on view ipledger_audit.event is 'Everything that happened, one row an event: the history of all networks. Filter by network, and by seq, at (a range) or owner_name, or
it reads everything; for one address, lease or owner use address_history, lease_history, owner_history.

Columns: network; seq (number of the event in its network); at; type; address (a block with its mask) and lease_id it is about; pool (its
name now, or as it was made if it is gone); state of the address after it (FREE, RESERVED, ACTIVE, QUARANTINED); owner_kind, owner_name,
owner_uid, owner_incarnation, owner_interface, node of the holder after it, of a FREE address the last one; actor (token or job that did
it); cause (call or finding); quarantine_reason; what (a sentence); evidence (what the decision rested on, or the settings it made);
trace_id. Null where the event has none.

Example:
  select seq, at, what from event where network = ''default'' and at > now() - interval ''1 hour'' order by seq;';

comment on view ipledger_audit.holds is 'Networks in which nothing is taken back, or handed out, until an operator resumes (ipledger network resume).

Columns: network; hold (CLOCK: the clock of the database was set; TOO_MANY_REAPS; SOURCE_AHEAD: a source knows a later log); seq, at (of the
event that held it); why; until (when it ends by itself; null: it does not); details (of that event).

Example:
  select network, hold, at, why from holds where network = ''default'';';

comment on view ipledger_audit.lease is 'Who holds what now. For a time in the past: leases_as_of.

Columns: network; address (a block with its mask); pool; state (RESERVED, ACTIVE, QUARANTINED); lease_id; fencing_token (number of the
event that created it); version (number of the last event about it); owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface (null: nobody known); node; labels; reserved_at; confirmed_at; confirm_by (deadline; null: none); quarantine_reason,
quarantined_at, quarantined_by, quarantine_why; since (begin of the lease).

Example:
  select address, state, owner_name, since from lease where network = ''default'' and node = ''n1'';';

comment on view ipledger_audit.log is 'The events of all networks as they are stored; view `event` is the same for people. Columns as in ipledger.event,
without request_id, by which a caller is answered again; `evidence` is its `details`. Keys that have an index: (network_id, seq),
(network_id, address, previous), (network_id, owner_name, seq), and (network_id, type) of events that have no address.

Example:
  select seq, type, address, evidence from log where network_id = ''default'' and seq = 1;';

comment on view ipledger_audit.network is 'The networks that are there.

Columns: network; state (READY, RECOVERING); era (life of the database; its numbers begin at era × 2^40); head (number of the last
event); description; labels; created_at; updated_at.

Example:
  select network, state, head from network;';

comment on view ipledger_audit.pool is 'The pools that are there now. How full they are: pool_usage.

Columns: network; pool (its name); pool_id (number of the event that made it); family (4, 6); cidr; settings (subnet, prefixLength, gateway,
exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels, reapPolicy); version (number of the last event about
it); created_at; updated_at.

Example:
  select pool, cidr, settings ->> ''gateway'' as gateway from pool where network = ''default'';';

comment on view ipledger_audit.pool_forecast is 'When each pool will have nothing free, if it goes on as in the last hour: the net rate by which held and cooling leases grew, least squares
over the samples of a minute each.

Columns: network; pool; free, cooling (by the last sample, leases); leases_per_hour (net; negative: it empties; null: fewer than five
samples); exhausted_in (from the last sample on; null: it does not fill, or not within a century); at (the last sample).

Example:
  select pool, free, leases_per_hour, exhausted_in from pool_forecast where exhausted_in < interval ''1 day'';';

comment on view ipledger_audit.pool_map is 'Where in its CIDR a pool is used now: each pool cut into up to 256 equal parts, in order of address. Ask for one pool: it counts all
of its leases.

Columns: network; pool; part (0, 1, …); first_address (of the part, which is this CIDR); size (leases that fit in it, excluded ones too);
cooling, reserved, active, quarantined (leases of it); used_ratio (those four, of size: 0 to 1).

Example:
  select part, first_address, used_ratio from pool_map where network = ''default'' and pool = ''web'' and used_ratio > 0 order by part;';

comment on view ipledger_audit.pool_samples is 'How full each pool was, once a minute, for 90 days. By name and with the ratio: pool_usage_history.

Columns: network; pool_id (number of the event that made it); at (the minute); size, allocatable, free, cooling, reserved, active,
quarantined, excluded (leases).

Example:
  select max(at) from pool_samples where network = ''default'';';

comment on view ipledger_audit.pool_usage is 'How full each pool is now. Counts are leases, of the pool''s size each; free + cooling + reserved + active + quarantined + excluded = size.
Reads a row for each address that was ever leased; for charts use pool_usage_history.

Columns: network; pool; cidr; family (4, 6); size; allocatable (size without excluded); free (cooled and not held); cooling; reserved;
active; quarantined; excluded; used_ratio (of what is allocatable, what is held: reserved, active and quarantined; 0 to 1; null: nothing is
allocatable); draining (hands nothing out).

Example:
  select pool, size, free, cooling, active, quarantined, round(100 * used_ratio) as percent from pool_usage where network = ''default'';';

comment on view ipledger_audit.quarantines is 'Addresses that ipledger itself holds, and hands to nobody.

Columns: those of view `lease`; age (since it was set aside); exit (what ends it). What stands in the way of that: view `attention`, and
`suspects` for the answers of sources.

Example:
  select address, quarantine_reason, age, exit from quarantines where network = ''default'' order by age desc;';

comment on view ipledger_audit.sightings is 'Who sees which address for which owner now, and who saw it for a lease that is held still. What was listed before is in the log: events
source.reported.

Columns: network; address; source; owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (kind null: seen, and whose it is
is not known; interface empty: not told); node; state (the source''s word; only `terminal` means ended); live (listed now, and not as
terminal); appeared_at, appeared_seq, appeared_head (the event with which it was listed, and the head at which that list was begun);
last_seen_at (the source''s last complete list; null: none, or listed no more); vanished_at, vanished_seq (the event with which it was
listed no more; null: listed still); terminal_at (since when it is listed as ended).

Example:
  select source, owner_name, node, state, appeared_at, last_seen_at from sightings where network = ''default'' and address = ''10.8.64.2'';';

comment on view ipledger_audit.sources is 'What can say which addresses are live, and how it stands.

Columns: network; source; kind (push: it reports; docker, kubernetes, http: it is asked); node (empty: the whole network); state (REGISTERED:
dry run; ENABLED; RETIRED); epoch (its present life); warm (whether its lists count); era (of its last report); interval (between
reports); reported_at and lag (since its last report, or its registration); complete_at and complete_lag (the same of a complete one);
sequence (of its last report); listed (entries of the last complete one; null: there was none); counted (reports that counted, ever); partial_because (why the
last one was not complete); failing_since and failure (of a source that is asked: since when its lists fail or are not complete, and why).

Example:
  select source, state, lag, complete_lag, listed, partial_because from sources where network = ''default'' order by lag desc;';

comment on view ipledger_audit.suspects is 'Leases that no source lists live and that are kept: the questions to the sources about them, with the last answer.

Columns: network; address (a block with its mask); lease_id; owner_kind, owner_name, owner_uid (whom the question is after: the holder, or
another who was seen there); source (that was asked); question_at; answer (wanted: none yet; live, terminal, gone, unknown, error); attempts; waiting (since
the lease''s last change); what (a sentence).

Example:
  select address, owner_name, source, answer, waiting, what from suspects where network = ''default'' order by waiting desc;';

comment on view ipledger_audit.touched is 'Every address at which a lease ever began, free ones too.

Columns: network; address (of a block the first one); state (FREE, RESERVED, ACTIVE, QUARANTINED); seq (number of its last event); pool_id
(of the last lease); available_at (until when a free one cools).

Example:
  select state, count(*) from touched where network = ''default'' group by state;';

comment on view ipledger_audit.unwitnessed is 'Leases without a witness, a deadline or an operator''s word: no source can say that they have ended, so they are held until they are
released, or an operator reaps them. Reads every lease.

Columns: network; address (a block with its mask); lease_id; pool_id; since (its last change); owner_kind.

Example:
  select count(*) from unwitnessed where network = ''default'';';

comment on view ipledger_audit.verification is 'How far the log of each network was verified, and when: all of it, again and again. What was found is in `verify_findings`.

Columns: network; looked_up_to (number of the last event that this look has read) and its digest (hexadecimal: kept elsewhere, it finds a
missing tail with `ipledger verify --against`); started_at (of this look); all_looked_at (when the last look that came to its end did);
now_at (the part it is at: log, lease, shape, source; empty: it rests); findings (how many are known).

Example:
  select network, looked_up_to, all_looked_at, findings from verification order by all_looked_at nulls first;';

comment on view ipledger_audit.verify_findings is 'Where a log and its tables differ, or a log is not whole: what verification found and no later look at all of the network has missed; the
first hundred. Empty: nothing is known to be wrong; see `verification` for when that was looked at.

Columns: network; what (EVENT_ALTERED, LEASE_DIFFERS, …); address, seq (what it is about; null: not about one); expected (by the log);
found (in the table); message (a sentence); found_at (first), seen_at (last).

Example:
  select what, address, seq, message, found_at from verify_findings where network = ''default'' order by found_at;';

grant execute on function ipledger_audit.address_at(integer,numeric) to ipledger_auditor;

grant execute on function ipledger_audit.address_at(integer,numeric) to ipledger_service;

grant execute on function ipledger_audit.address_history(text,inet,timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.address_history(text,inet,timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.address_number(inet) to ipledger_auditor;

grant execute on function ipledger_audit.address_number(inet) to ipledger_service;

grant execute on function ipledger_audit.bases(text,inet) to ipledger_auditor;

grant execute on function ipledger_audit.bases(text,inet) to ipledger_service;

grant execute on function ipledger_audit.chain(text,inet,bigint,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.chain(text,inet,bigint,bigint) to ipledger_service;

grant execute on function ipledger_audit.churn(timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.churn(timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.describe_lease(ipledger_audit.log,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.describe_lease(ipledger_audit.log,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.describe_owner(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_owner(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_owner(text,text,text,text,text) to ipledger_auditor;

grant execute on function ipledger_audit.describe_owner(text,text,text,text,text) to ipledger_service;

grant execute on function ipledger_audit.describe_proof(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_proof(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_seen(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_seen(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_witness(jsonb,jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_witness(jsonb,jsonb) to ipledger_service;

grant execute on function ipledger_audit.event_rate(timestamp with time zone,timestamp with time zone,interval) to ipledger_auditor;

grant execute on function ipledger_audit.event_rate(timestamp with time zone,timestamp with time zone,interval) to ipledger_service;

grant execute on function ipledger_audit.event_sentence(ipledger_audit.log,text) to ipledger_auditor;

grant execute on function ipledger_audit.event_sentence(ipledger_audit.log,text) to ipledger_service;

grant execute on function ipledger_audit.events_between(text,timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.events_between(text,timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.explain_address(text,inet,timestamp with time zone,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.explain_address(text,inet,timestamp with time zone,bigint) to ipledger_service;

grant execute on function ipledger_audit.last_event(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.last_event(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.last_events(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.last_events(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.lease_history(text) to ipledger_auditor;

grant execute on function ipledger_audit.lease_history(text) to ipledger_service;

grant execute on function ipledger_audit.leases_as_of(text,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.leases_as_of(text,bigint) to ipledger_service;

grant execute on function ipledger_audit.leases_as_of(text,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.leases_as_of(text,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.listed(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.listed(jsonb) to ipledger_service;

grant execute on function ipledger_audit.marks(timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.marks(timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.moment(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.moment(jsonb) to ipledger_service;

grant execute on function ipledger_audit.moment(timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.moment(timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.owner_history(text,text) to ipledger_auditor;

grant execute on function ipledger_audit.owner_history(text,text) to ipledger_service;

grant execute on function ipledger_audit.plain_address(inet) to ipledger_auditor;

grant execute on function ipledger_audit.plain_address(inet) to ipledger_service;

grant execute on function ipledger_audit.pool_at(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.pool_at(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.pool_exclusions(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.pool_exclusions(jsonb) to ipledger_service;

grant execute on function ipledger_audit.pool_name(text,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.pool_name(text,bigint) to ipledger_service;

grant execute on function ipledger_audit.pool_space(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.pool_space(jsonb) to ipledger_service;

grant execute on function ipledger_audit.pool_touched(text,cidr,integer) to ipledger_auditor;

grant execute on function ipledger_audit.pool_touched(text,cidr,integer) to ipledger_service;

grant execute on function ipledger_audit.pool_usage_history(text,text,timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.pool_usage_history(text,text,timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.position_at(text,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.position_at(text,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.quarantine_exit(text,text) to ipledger_auditor;

grant execute on function ipledger_audit.quarantine_exit(text,text) to ipledger_service;

grant execute on function ipledger_audit.reaps(timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.reaps(timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.seconds(text) to ipledger_auditor;

grant execute on function ipledger_audit.seconds(text) to ipledger_service;

grant execute on function ipledger_audit.who_had(text,inet,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.who_had(text,inet,timestamp with time zone) to ipledger_service;

grant usage on schema ipledger to ipledger_service;

grant usage on schema ipledger_audit to ipledger_auditor;

grant usage on schema ipledger_audit to ipledger_service;

grant insert, select on table ipledger.event to ipledger_service;

grant insert, select, update on table ipledger.lease to ipledger_service;

grant delete, insert, select, update on table ipledger.lookup to ipledger_service;

grant select on table ipledger.migration to ipledger_service;

grant select on table ipledger.migration_lock to ipledger_service;

grant insert, select, update on table ipledger.network to ipledger_service;

grant insert, select on table ipledger.network_lock to ipledger_service;

grant update on table ipledger.network_lock (network_id) to ipledger_service;

grant delete, insert, select, update on table ipledger.pool to ipledger_service;

grant delete, insert, select, update on table ipledger.pool_sample to ipledger_service;

grant delete, insert, select, update on table ipledger.request to ipledger_service;

grant delete, insert, select, update on table ipledger.sighting to ipledger_service;

grant insert, select, update on table ipledger.source to ipledger_service;

grant delete, insert, select, update on table ipledger.source_failure to ipledger_service;

grant insert, select, update on table ipledger.source_report to ipledger_service;

grant insert, select, update on table ipledger.verification to ipledger_service;

grant select on table ipledger_audit.attention to ipledger_auditor;

grant select on table ipledger_audit.attention to ipledger_service;

grant select on table ipledger_audit.conflicts to ipledger_auditor;

grant select on table ipledger_audit.conflicts to ipledger_service;

grant select on table ipledger_audit.crash_loops to ipledger_auditor;

grant select on table ipledger_audit.crash_loops to ipledger_service;

grant select on table ipledger_audit.event to ipledger_auditor;

grant select on table ipledger_audit.event to ipledger_service;

grant select on table ipledger_audit.holds to ipledger_auditor;

grant select on table ipledger_audit.holds to ipledger_service;

grant select on table ipledger_audit.lease to ipledger_auditor;

grant select on table ipledger_audit.lease to ipledger_service;

grant select on table ipledger_audit.log to ipledger_auditor;

grant select on table ipledger_audit.log to ipledger_service;

grant select on table ipledger_audit.network to ipledger_auditor;

grant select on table ipledger_audit.network to ipledger_service;

grant select on table ipledger_audit.pool to ipledger_auditor;

grant select on table ipledger_audit.pool to ipledger_service;

grant select on table ipledger_audit.pool_forecast to ipledger_auditor;

grant select on table ipledger_audit.pool_forecast to ipledger_service;

grant select on table ipledger_audit.pool_map to ipledger_auditor;

grant select on table ipledger_audit.pool_map to ipledger_service;

grant select on table ipledger_audit.pool_samples to ipledger_auditor;

grant select on table ipledger_audit.pool_samples to ipledger_service;

grant select on table ipledger_audit.pool_usage to ipledger_auditor;

grant select on table ipledger_audit.pool_usage to ipledger_service;

grant select on table ipledger_audit.quarantines to ipledger_auditor;

grant select on table ipledger_audit.quarantines to ipledger_service;

grant select on table ipledger_audit.sightings to ipledger_auditor;

grant select on table ipledger_audit.sightings to ipledger_service;

grant select on table ipledger_audit.sources to ipledger_auditor;

grant select on table ipledger_audit.sources to ipledger_service;

grant select on table ipledger_audit.suspects to ipledger_auditor;

grant select on table ipledger_audit.suspects to ipledger_service;

grant select on table ipledger_audit.touched to ipledger_auditor;

grant select on table ipledger_audit.touched to ipledger_service;

grant select on table ipledger_audit.unwitnessed to ipledger_auditor;

grant select on table ipledger_audit.unwitnessed to ipledger_service;

grant select on table ipledger_audit.verification to ipledger_auditor;

grant select on table ipledger_audit.verification to ipledger_service;

grant select on table ipledger_audit.verify_findings to ipledger_auditor;

grant select on table ipledger_audit.verify_findings to ipledger_service;
