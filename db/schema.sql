-- Views with their columns, functions with their arguments. Written by "npm run generate"; do not edit.

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
view ipledger_audit.pool_samples (network text, pool_id bigint, at timestamp with time zone, size numeric, allocatable numeric, free numeric, cooling numeric, reserved bigint, active bigint, quarantined bigint, excluded numeric)
view ipledger_audit.pool_usage (network text, pool text, cidr cidr, family smallint, size numeric, allocatable numeric, free numeric, cooling numeric, reserved bigint, active bigint, quarantined bigint, excluded numeric, used_ratio double precision, draining boolean, at timestamp with time zone)
view ipledger_audit.quarantines (network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamp with time zone, confirmed_at timestamp with time zone, confirm_by timestamp with time zone, quarantine_reason text, quarantined_at timestamp with time zone, quarantined_by text, quarantine_node text, quarantine_why text, since timestamp with time zone, age interval, exit text)
view ipledger_audit.sightings (network text, address inet, source text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, state text, live boolean, appeared_at timestamp with time zone, appeared_seq bigint, appeared_head bigint, last_seen_at timestamp with time zone, vanished_at timestamp with time zone, vanished_seq bigint, terminal_at timestamp with time zone, rests_until timestamp with time zone)
view ipledger_audit.sources (network text, source text, kind text, node text, state text, epoch text, status text, era integer, interval interval, reported_at timestamp with time zone, lag interval, complete_at timestamp with time zone, complete_lag interval, sequence bigint, listed integer, counted bigint, partial_because jsonb, failing_since timestamp with time zone, failure text)
view ipledger_audit.suspects (network text, address inet, lease_id text, owner_kind text, owner_name text, owner_uid text, source text, question_at timestamp with time zone, answer text, attempts integer, waiting interval, what text)
view ipledger_audit.touched (network text, address inet, state text, seq bigint, pool_id bigint, available_at timestamp with time zone)
view ipledger_audit.verification (network text, looked_up_to bigint, digest text, started_at timestamp with time zone, all_looked_at timestamp with time zone, now_at text, findings integer)
view ipledger_audit.verify_findings (network text, what text, address inet, seq bigint, expected text, found text, message text, found_at timestamp with time zone, seen_at timestamp with time zone)

function ipledger.event_text(e ipledger.event) returns text
function ipledger_audit.address_history(network text, address inet, "from" timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, "to" timestamp with time zone DEFAULT 'infinity'::timestamp with time zone) returns SETOF ipledger_audit.event
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
function ipledger_audit.pool_name(network text, pool_id bigint) returns text
function ipledger_audit.pool_touched(network text, cidr cidr, prefix_length integer) returns TABLE(address inet, state text)
function ipledger_audit.pool_usage_history(INOUT network text, INOUT pool text, "from" timestamp with time zone, "to" timestamp with time zone, OUT at timestamp with time zone, OUT cidr cidr, OUT family smallint, OUT size numeric, OUT allocatable numeric, OUT free numeric, OUT cooling numeric, OUT reserved bigint, OUT active bigint, OUT quarantined bigint, OUT excluded numeric, OUT used_ratio double precision) returns SETOF record
function ipledger_audit.position_at(network text, at timestamp with time zone) returns bigint
function ipledger_audit.quarantine_exit(reason text, owner_kind text) returns text
function ipledger_audit.reaps("from" timestamp with time zone, "to" timestamp with time zone) returns TABLE(network text, seq bigint, at timestamp with time zone, address inet, lease_id text, pool text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, cause text, actor text, source text, why text, snapshots bigint[], heads bigint[], misses integer, last_sighted_at timestamp with time zone, lookup_answer text, lookup_at timestamp with time zone, lookup_detail text, policy jsonb, evidence jsonb)
function ipledger_audit.rested_by(network text, at timestamp with time zone) returns timestamp with time zone
function ipledger_audit.seconds(milliseconds text) returns text
function ipledger_audit.who_had(network text, address inet, at timestamp with time zone) returns SETOF ipledger_audit.past_lease
