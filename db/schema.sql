-- Tables, views with their columns, functions with their arguments. Written by "npm run generate"; do not edit.

create table ipledger.attention (
  network_id text collate "C" not null,
  code text collate "C" not null,
  source_id text collate "C" not null,
  rank smallint not null,
  severity text not null,
  count bigint not null,
  since timestamp with time zone not null,
  address inet,
  lease_id text,
  what text not null,
  true_at timestamp with time zone not null,
  constraint attention_is_said_once PRIMARY KEY (network_id, code, source_id)
);
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
  quarantine_node text collate "C",
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
  node text collate "C" not null,
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
  name text not null,
  timestamp timestamp with time zone not null,
  constraint migration_pkey PRIMARY KEY (name)
);
create table ipledger.network (
  network_id text collate "C" not null,
  description text not null,
  labels json not null,
  closed boolean not null,
  era integer not null,
  identity text not null,
  recovering bigint,
  unknown_sources json not null,
  recovered_at timestamp with time zone,
  holds json not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint network_has_one_name PRIMARY KEY (network_id)
);
create table ipledger.network_lock (
  network_id text collate "C" not null,
  secret bytea not null default sha256(convert_to(concat(gen_random_uuid(), gen_random_uuid()), 'UTF8'::name)),
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
  node text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text not null,
  method text not null,
  seq bigint not null,
  at timestamp with time zone not null,
  answer json not null,
  constraint request_is_answered_once PRIMARY KEY (network_id, node, request_id)
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
  appeared_at timestamp with time zone not null,
  appeared_head bigint not null,
  vanished_seq bigint,
  terminal_seq bigint,
  terminal_at timestamp with time zone,
  rests_until timestamp with time zone,
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
CREATE INDEX event_of_note ON ipledger.event USING btree (network_id, seq) WHERE (type = ANY (ARRAY['lease.quarantined'::text, 'lease.reaped'::text, 'era.begun'::text, 'reconcile.held'::text]));
CREATE INDEX lease_by_node ON ipledger.lease USING btree (network_id, node, address);
CREATE INDEX pool_sample_by_time ON ipledger.pool_sample USING brin (at);
CREATE INDEX request_by_time ON ipledger.request USING brin (at);

view ipledger_audit.attention (network text, rank smallint, severity text, code text, source text, count bigint, since timestamp with time zone, age interval, address inet, lease_id text, what text, true_at timestamp with time zone)
view ipledger_audit.crash_loops (network text, owner_kind text, owner_name text, owner_interface text, pool text, lives bigint, addresses bigint, held_now bigint, first_at timestamp with time zone, last_at timestamp with time zone)
view ipledger_audit.event (network text, seq bigint, at timestamp with time zone, type text, address inet, lease_id text, pool text, state text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, actor text, cause text, quarantine_reason text, what text, evidence jsonb, trace_id text)
view ipledger_audit.holds (network text, hold text, seq bigint, at timestamp with time zone, why text, until timestamp with time zone, details jsonb)
view ipledger_audit.lease (network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_node text, quarantine_why text, since timestamp with time zone)
view ipledger_audit.log (network_id text, seq bigint, format smallint, type text, at timestamp with time zone, actor text, cause text, trace_id text, pool_id bigint, address inet, previous bigint, prefix_length smallint, fencing_token bigint, state text, ended text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, available_at timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_node text, quarantine_why text, evidence jsonb, digest bytea)
view ipledger_audit.network (network text, state text, era integer, head bigint, description text, labels jsonb, created_at timestamp with time zone, updated_at timestamp with time zone)
view ipledger_audit.pool (network text, pool text, pool_id bigint, family smallint, cidr cidr, settings jsonb, version bigint, created_at timestamp with time zone, updated_at timestamp with time zone)
view ipledger_audit.pool_forecast (network text, pool text, free numeric, cooling numeric, leases_per_hour double precision, exhausted_in interval, at timestamp with time zone)
view ipledger_audit.pool_map (network text, pool text, part integer, first_address inet, size numeric, cooling bigint, reserved bigint, active bigint, quarantined bigint, used_ratio double precision)
view ipledger_audit.pool_names (network text, pool_id bigint, pool text)
view ipledger_audit.pool_samples (network text, pool_id bigint, at timestamp with time zone, size numeric, allocatable numeric, free numeric, cooling numeric, reserved bigint, active bigint, quarantined bigint, excluded numeric)
view ipledger_audit.pool_usage (network text, pool text, cidr cidr, family smallint, size numeric, allocatable numeric, free numeric, cooling numeric, reserved bigint, active bigint, quarantined bigint, excluded numeric, used_ratio double precision, draining boolean, at timestamp with time zone)
view ipledger_audit.quarantines (network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_node text, quarantine_why text, since timestamp with time zone, age interval, exit text)
view ipledger_audit.sightings (network text, address inet, source text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, state text, live boolean, appeared_at timestamp with time zone, appeared_seq bigint, appeared_head bigint, last_seen_at timestamp with time zone, vanished_at timestamp with time zone, vanished_seq bigint, terminal_at timestamp with time zone, rests_until timestamp with time zone)
view ipledger_audit.sources (network text, source text, kind text, node text, state text, epoch text, status text, era integer, interval interval, reported_at timestamp with time zone, lag interval, complete_at timestamp with time zone, complete_lag interval, sequence bigint, listed integer, counted bigint, partial_because jsonb, failing_since timestamp with time zone, failure text)
view ipledger_audit.standby (is_standby boolean, as_of timestamp with time zone, lag interval)
view ipledger_audit.suspects (network text, address inet, lease_id text, owner_kind text, owner_name text, owner_uid text, source text, question_at timestamp with time zone, answer text, attempts integer, waiting interval, what text)
view ipledger_audit.touched (network text, address inet, state text, seq bigint, pool_id bigint, available_at timestamp with time zone)
view ipledger_audit.verification (network text, looked_up_to bigint, digest text, started_at timestamp with time zone, all_looked_at timestamp with time zone, now_at text, findings integer)
view ipledger_audit.verify_findings (network text, what text, address inet, seq bigint, expected text, found text, message text, found_at timestamp with time zone, seen_at timestamp with time zone)

function ipledger.event_text(e ipledger.event) returns text
function ipledger.identity() returns text
function ipledger_audit.address_history(network text, address inet, "from" timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, "to" timestamp with time zone DEFAULT 'infinity'::timestamp with time zone) returns SETOF ipledger_audit.event
function ipledger_audit.addresses_at(network text, cidr inet, at timestamp with time zone DEFAULT now(), upto bigint DEFAULT NULL::bigint) returns TABLE(address inet, prefix_length smallint, state text, lease_id text, owner_kind text, owner_name text, node text)
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
function ipledger_audit.lease_after(e ipledger_audit.log, pool text, since timestamp with time zone) returns SETOF ipledger_audit.lease
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
function ipledger_audit.pool_parts(cidr cidr, length integer) returns TABLE(part integer, first_address inet)
function ipledger_audit.pool_touched(network text, cidr cidr, prefix_length integer) returns TABLE(address inet, state text)
function ipledger_audit.pool_usage_history(INOUT network text, INOUT pool text, "from" timestamp with time zone, "to" timestamp with time zone, OUT at timestamp with time zone, OUT cidr cidr, OUT family smallint, OUT size numeric, OUT allocatable numeric, OUT free numeric, OUT cooling numeric, OUT reserved bigint, OUT active bigint, OUT quarantined bigint, OUT excluded numeric, OUT used_ratio double precision) returns SETOF record
function ipledger_audit.pools_at(network text, upto bigint) returns SETOF ipledger_audit.log
function ipledger_audit.position_at(network text, at timestamp with time zone) returns bigint
function ipledger_audit.quarantine_exit(reason text, owner_kind text) returns text
function ipledger_audit.reaps("from" timestamp with time zone, "to" timestamp with time zone) returns TABLE(network text, seq bigint, at timestamp with time zone, address inet, lease_id text, pool text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, cause text, actor text, source text, why text, snapshots bigint[], heads bigint[], misses integer, last_sighted_at timestamp with time zone, lookup_answer text, lookup_at timestamp with time zone, lookup_detail text, policy jsonb, evidence jsonb)
function ipledger_audit.rested_by(network text, at timestamp with time zone) returns timestamp with time zone
function ipledger_audit.seconds(milliseconds text) returns text
function ipledger_audit.who_had(network text, address inet, at timestamp with time zone) returns SETOF ipledger_audit.past_lease
