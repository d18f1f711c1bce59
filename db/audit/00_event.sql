-- Written by "npm run generate" from src/core/event-columns.ts and src/core/lifecycle.ts; do not edit.

-- An event as one text: src/ledger/event-text.ts. `stable`, so that the server reads it into the statement: 2.2 µs an event, where
-- a call costs 8.
create or replace function ipledger.event_text(e ipledger.event) returns text
  language sql stable parallel safe
  return concat_ws(E'\u001f',
    coalesce(e.network_id, E'\u001e'), coalesce(e.seq::text, E'\u001e'), coalesce(e.format::text, E'\u001e'), coalesce(e.type,
    E'\u001e'), coalesce(((date_part('epoch', e.at) * 1000)::bigint)::text, E'\u001e'), coalesce(e.actor, E'\u001e'), coalesce(e.cause,
    E'\u001e'), coalesce(e.request_id, E'\u001e'), coalesce(e.trace_id, E'\u001e'), coalesce(e.pool_id::text, E'\u001e'),
    coalesce(host(e.address), E'\u001e'), coalesce(e.previous::text, E'\u001e'), coalesce(e.prefix_length::text, E'\u001e'),
    coalesce(e.token::text, E'\u001e'), coalesce(e.state, E'\u001e'), coalesce(e.ended, E'\u001e'), coalesce(e.owner_kind, E'\u001e'),
    coalesce(e.owner_name, E'\u001e'), coalesce(e.owner_uid, E'\u001e'), coalesce(e.owner_incarnation, E'\u001e'),
    coalesce(e.owner_interface, E'\u001e'), coalesce(e.node, E'\u001e'), coalesce(e.labels::text, E'\u001e'),
    coalesce(((date_part('epoch', e.reserved_at) * 1000)::bigint)::text, E'\u001e'), coalesce(((date_part('epoch',
    e.confirmed_at) * 1000)::bigint)::text, E'\u001e'), coalesce(((date_part('epoch', e.confirm_by) * 1000)::bigint)::text, E'\u001e'),
    coalesce(((date_part('epoch', e.available_at) * 1000)::bigint)::text, E'\u001e'), coalesce(e.quarantine_reason, E'\u001e'),
    coalesce(((date_part('epoch', e.quarantined_at) * 1000)::bigint)::text, E'\u001e'), coalesce(e.quarantined_by, E'\u001e'),
    coalesce(e.quarantine_node, E'\u001e'), coalesce(e.quarantine_why, E'\u001e'), coalesce(e.details::text,
    E'\u001e'));

create view ipledger_audit.log as
  select e.network_id, e.seq, e.format, e.type, e.at, e.actor, e.cause, e.trace_id, e.pool_id, e.address, e.previous, e.prefix_length,
    e.token as fencing_token, e.state, e.ended, e.owner_kind, e.owner_name, e.owner_uid, e.owner_incarnation, e.owner_interface,
    e.node, e.labels::jsonb as labels, e.reserved_at, e.confirmed_at, e.confirm_by, e.available_at, e.quarantine_reason,
    e.quarantined_at, e.quarantined_by, e.quarantine_node, e.quarantine_why, e.details::jsonb as evidence,
    e.digest
    from ipledger.event e;

create view ipledger_audit.lease as
  select e.network_id as network, set_masklen(e.address, e.prefix_length) as address, coalesce(p.name, '') as pool, e.state,
    e.network_id || '/' || e.token as lease_id, e.token as fencing_token, e.seq as version, e.owner_kind, e.owner_name, e.owner_uid,
    e.owner_incarnation, e.owner_interface, e.node, e.labels::jsonb as labels, e.reserved_at, e.confirmed_at, e.confirm_by,
    e.quarantine_reason, e.quarantined_at, e.quarantined_by, e.quarantine_node, e.quarantine_why, coalesce(b.at,
    e.at) as since
    from ipledger.lease l
    join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq
    left join ipledger.event b on b.network_id = e.network_id and b.seq = nullif(e.token, e.seq)
    left join ipledger.pool p on p.network_id = l.network_id and p.pool_id = l.pool_id
   where l.state <> 'FREE';
comment on view ipledger_audit.lease is $$Leases that are held now. In the past: leases_as_of.
Columns: network, address (a block with its mask), pool, state (RESERVED, ACTIVE, QUARANTINED), lease_id,
fencing_token (number of the event that made it), version (number of its last event), owner_kind, owner_name, owner_uid,
owner_incarnation, owner_interface (null: not known), node, labels, reserved_at, confirmed_at, confirm_by (deadline; null: none),
quarantine_reason, quarantined_at, quarantined_by, quarantine_node (of that caller or source), quarantine_why,
since (begin of the lease).
Example: select address, state, owner_name, since from lease where network = 'default' and node = 'n1';$$;

create function ipledger_audit.lease_after(e ipledger_audit.log, pool text, since timestamptz) returns setof ipledger_audit.lease
  language sql stable rows 1 as $$
  select e.network_id as network, set_masklen(e.address, e.prefix_length) as address, pool as pool, e.state,
    e.network_id || '/' || e.fencing_token as lease_id, e.fencing_token as fencing_token, e.seq as version, e.owner_kind, e.owner_name,
    e.owner_uid, e.owner_incarnation, e.owner_interface, e.node, e.labels::jsonb as labels, e.reserved_at, e.confirmed_at,
    e.confirm_by, e.quarantine_reason, e.quarantined_at, e.quarantined_by, e.quarantine_node, e.quarantine_why,
    since as since
$$;

create type ipledger_audit.past_lease as (
  network text, address inet, pool text, state text, lease_id text, fencing_token bigint, version bigint, owner_kind text,
    owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, labels jsonb, reserved_at timestamptz,
    confirmed_at timestamptz, confirm_by timestamptz, quarantine_reason text, quarantined_at timestamptz, quarantined_by text,
    quarantine_node text, quarantine_why text, since timestamptz, seq bigint, given_by text, given_cause text, until timestamptz,
    ended_as text);

create function ipledger_audit.quarantine_exit(reason text, owner_kind text) returns text
  language sql immutable as $$
  select 'It ends by ' || case reason
    when 'SUPERSEDED' then case owner_kind when 'infrastructure' then 'its own Release with confirmed removal or an operator: Reap' else 'its own Release with confirmed removal or proof of absence or an operator: Reap' end
    when 'REMOVAL_UNCONFIRMED' then case owner_kind when 'infrastructure' then 'its own Release with confirmed removal or an operator: Reap' else 'its own Release with confirmed removal or proof of absence or an operator: Reap' end
    when 'CONFLICT' then case owner_kind when 'infrastructure' then 'an operator: Reap' else 'proof of absence or an operator: Reap' end
    when 'OPERATOR' then 'an operator: Reap'
    when 'RELEASED_BUT_LIVE' then case owner_kind when 'infrastructure' then 'its own Release with confirmed removal or an operator: Reap' else 'its own Release with confirmed removal or proof of absence or an operator: Reap' end
    when 'FOREIGN' then case owner_kind when 'infrastructure' then 'an operator: Reap' else 'proof of absence or an operator: Reap' end
    when 'IN_USE' then 'an operator: Reap' end
$$;
