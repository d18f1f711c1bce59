create or replace function ipledger_audit.who_had(
    inout network text, inout address inet, at timestamptz,
    out pool text, out state text, out lease_id text, out fencing_token bigint, out version bigint,
    out owner_kind text, out owner_name text, out owner_uid text, out owner_incarnation text, out owner_interface text,
    out node text, out boot text, out labels jsonb, out reserved_at timestamptz, out confirmed_at timestamptz, out confirm_by timestamptz,
    out quarantine_reason text, out quarantined_at timestamptz, out quarantined_by text, out quarantine_why text, out since timestamptz,
    out seq bigint, out given_by text, out given_cause text, out until timestamptz, out ended_as text)
  returns setof record language sql stable rows 1
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  select e.network_id, set_masklen(e.address, e.prefix_length), coalesce(p.pool, ipledger_audit.pool_name(e.network_id, e.pool_id)), e.state,
         e.network_id || '/' || e.fencing_token, e.fencing_token, e.seq, e.owner_kind, e.owner_name, e.owner_uid, e.owner_incarnation,
         e.owner_interface, e.node, e.boot, e.labels, e.reserved_at, e.confirmed_at, e.confirm_by, e.quarantine_reason, e.quarantined_at,
         e.quarantined_by, e.quarantine_why, b.at, e.seq, b.actor, b.cause, u.at, u.type || '/' || u.cause
    from ipledger_audit.held_at(who_had.network, ipledger_audit.plain_address(who_had.address), ipledger_audit.position_at(who_had.network, who_had.at)) e
    left join ipledger_audit.pool p on p.network = e.network_id and p.pool_id = e.pool_id
    left join ipledger_audit.log b on b.network_id = e.network_id and b.seq = e.fencing_token
    left join lateral (
      select n.at, n.type, n.cause from ipledger_audit.log n
       where n.network_id = e.network_id and n.address <= e.address and (n.address, n.seq) > (e.address, e.seq)
         and n.type in ('lease.released', 'lease.reaped')
       order by n.address, n.seq limit 1) u on true
   order by e.address
$$;
comment on function ipledger_audit.who_had(text, inet, timestamptz) is
$$Who held an address at a time, or every address of a CIDR: one row a lease that was held then, in quarantine too. No row: nobody held
it then, or there is no such network (view `network` has those that are). A time means the last event at or before it. An IPv4 address
that is written as IPv6 (::ffff:10.8.64.2) means the IPv4 one.

Columns: network; address (a block with its mask); pool; state; lease_id; fencing_token; version and seq (number of the event that made it
so); owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (null: nobody known); node; boot; labels; reserved_at;
confirmed_at; confirm_by; quarantine_reason, quarantined_at, quarantined_by, quarantine_why; since (begin of the lease); given_by and
given_cause (who gave it away, by which call or finding); until (its end; null: held still) and ended_as (type/cause of the end).

Example:
  select owner_name, node, since, given_by, until, ended_as from who_had('default', '10.8.64.2', now() - interval '1 day');$$;
