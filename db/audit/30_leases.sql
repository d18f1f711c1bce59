-- Leases, now and in the past. The past of an address is its chain of events; the last one before a number is one look at the index
-- of (address, previous).

comment on function ipledger_audit.lease_after(ipledger_audit.log, text, timestamptz) is $$A lease after one of its events, with the name of its pool and its begin, as a row of view `lease`.
Example: select x.* from log l, lease_after(l, 'web', l.at) x where l.network_id = 'default' and l.seq = 3;$$;

create view ipledger_audit.touched as
  select l.network_id as network, l.address, l.state, l.seq, l.pool_id, l.available_at from ipledger.lease l;
comment on view ipledger_audit.touched is $$Every address at which a lease ever began, free ones too.
Columns: network; address (of a block the first one); state (FREE, RESERVED, ACTIVE, QUARANTINED); seq (number of its last event); pool_id
(of the last lease); available_at (end of the cooling of a free one).
Example: select state, count(*) from touched where network = 'default' group by state;$$;

-- `previous` is below the number of its event, so of those with `previous < upto` at most the first is behind `upto`.
create function ipledger_audit.last_event(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 1 as $$
  select l.* from ipledger_audit.log l
   where l.network_id = last_event.network and l.address = last_event.address and l.previous < last_event.upto and l.seq <= last_event.upto
   order by l.previous desc limit 1
$$;
comment on function ipledger_audit.last_event(text, inet, bigint) is $$The last event, up to a number, of the leases that begin at an address, by the index of their chain. Rows of view `log`.
Example: select seq, type from last_event('default', '10.8.64.2', 1000);$$;

-- From the last event before them on, since `previous` of the first of them names that one.
create function ipledger_audit.chain(network text, address inet, after bigint, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 10 as $$
  select l.* from ipledger_audit.log l
   where l.network_id = chain.network and l.address = chain.address and l.previous < chain.upto and l.seq > chain.after and l.seq <= chain.upto
     and l.previous >= coalesce((
       select x.seq from ipledger_audit.log x
        where x.network_id = chain.network and x.address = chain.address and x.previous < chain.after and x.seq <= chain.after
        order by x.previous desc limit 1), 0)
$$;
comment on function ipledger_audit.chain(text, inet, bigint, bigint) is $$The events of the leases that begin at an address, after one number and up to another, by the index of their chain. Rows of view `log`.
Example: select seq, type from chain('default', '10.8.64.2', 0, 1000) order by seq;$$;

-- Leases that begin before the CIDR and reach into it can only be blocks that hold its first address.
create function ipledger_audit.bases(network text, address inet) returns setof inet
  language sql stable rows 33 as $$
  select distinct set_masklen(network(set_masklen(network(bases.address)::inet, bits))::inet, -1)
    from generate_series(0, case family(bases.address) when 4 then 32 else 128 end) as bits
  union all
  select t.address from ipledger_audit.touched t
   where t.network = bases.network and t.address > set_masklen(network(bases.address)::inet, -1)
     and t.address <= set_masklen(broadcast(bases.address), -1)
$$;
comment on function ipledger_audit.bases(text, inet) is $$Every address at which a lease that overlaps an address or a CIDR began, or could have begun.
Example: select bases('default', '10.8.64.0/28');$$;

create function ipledger_audit.last_events(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 10 as $$
  select e.*
    from ipledger_audit.bases(last_events.network, last_events.address) as b (base)
    cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = last_events.network and l.address = b.base and l.previous < last_events.upto and l.seq <= last_events.upto
       order by l.previous desc limit 1) e
   where set_masklen(e.address, e.prefix_length) && last_events.address
$$;
comment on function ipledger_audit.last_events(text, inet, bigint) is $$The last event, up to a number, of every lease that overlaps an address or a CIDR. Of those that contain one address at most one was held
then. Rows of view `log`.
Example: select seq, type, address, owner_name from last_events('default', '10.8.64.0/24', 1000) where state <> 'FREE';$$;

create function ipledger_audit.who_had(network text, address inet, at timestamptz) returns setof ipledger_audit.past_lease
  language sql stable rows 1 set plan_cache_mode = force_generic_plan as $$
  select h.*, e.seq, b.actor, b.cause, u.at, u.type || '/' || u.cause
    from ipledger_audit.last_events(who_had.network, ipledger_audit.plain_address(who_had.address),
                                    (select ipledger_audit.position_at(who_had.network, who_had.at))) e
    left join ipledger_audit.log b on b.network_id = who_had.network and b.seq = e.fencing_token
    left join ipledger_audit.pool_names p on p.network = who_had.network and p.pool_id = e.pool_id
    left join lateral (
      select n.at, n.type, n.cause from ipledger_audit.log n
       where n.network_id = who_had.network and n.address = e.address and n.previous >= e.seq and n.state = 'FREE'
       order by n.previous limit 1) u on true
   cross join lateral ipledger_audit.lease_after(e, p.pool, b.at) h
   where e.state <> 'FREE'
   order by e.address
$$;
comment on function ipledger_audit.who_had(text, inet, timestamptz) is $$The leases of an address, or of a CIDR, at a time: a row for each that was held or in quarantine then. No row: there was none, or there is
no such network. A time means the last event at or before it. ::ffff:10.8.64.2 is 10.8.64.2.
Columns: those of view `lease`; seq (as version); given_by and given_cause (actor, and call or finding, that gave it); until (its end;
null: still held) and ended_as (type/cause of the end).
Example: select owner_name, node, since, given_by, until, ended_as from who_had('default', '10.8.64.2', now() - interval '1 day');$$;

-- The row of an address has the number of its last event. If that is later, the event is most likely among those just before, twice as
-- many as there are addresses: a lease has two events. Else the chain has it: 10 µs each with 90 events, the others take 2. A full join
-- is never nested loops. All rows are then read in order of number: 1 µs each, one at a time 3.
create function ipledger_audit.leases_as_of(network text, seq bigint)
  returns setof ipledger_audit.lease language sql stable rows 1000 as $$
  with addresses as (
    select t.address, t.seq from ipledger_audit.touched t where t.network = leases_as_of.network
  ),
  before as (
    select l.address, max(l.seq) as seq from ipledger_audit.log l
     where l.network_id = leases_as_of.network and l.seq <= leases_as_of.seq and l.seq > leases_as_of.seq - 2 * (select count(*) from addresses)
     group by l.address
  ),
  last as (
    select case when a.seq <= leases_as_of.seq then a.seq else coalesce(b.seq, (
             select l.previous from ipledger_audit.log l
              where l.network_id = leases_as_of.network and l.address = a.address and l.previous <= leases_as_of.seq
              order by l.previous desc limit 1)) end as seq
      from addresses a full join before b on b.address = a.address
  )
  select x.*
    from ipledger_audit.log h
    left join ipledger_audit.pool_names p on p.network = leases_as_of.network and p.pool_id = h.pool_id
    left join ipledger_audit.log b on b.network_id = leases_as_of.network and b.seq = nullif(h.fencing_token, h.seq)
   cross join lateral ipledger_audit.lease_after(row(h.*)::ipledger_audit.log, p.pool, coalesce(b.at, h.at)) x
   where h.network_id = leases_as_of.network and h.seq = any (array(select x.seq from last x)) and h.state <> 'FREE'
   order by h.address
$$;
comment on function ipledger_audit.leases_as_of(text, bigint) is $$All leases of a network after an event, in order of address. A number beyond the last one means now. For an address or a CIDR use who_had.
It costs one or two looks at an index for each address that was ever held. No row: there was none, or there is no such network.
Columns: those of view `lease`.
Example: select address, state, owner_name from leases_as_of('default', 120000);$$;

-- `offset 0`: the planner computes the place once, not for each lease.
create function ipledger_audit.leases_as_of(network text, at timestamptz)
  returns setof ipledger_audit.lease language sql stable rows 1000 as $$
  select l.*
    from (select ipledger_audit.position_at(leases_as_of.network, leases_as_of.at) as seq offset 0) s
   cross join lateral ipledger_audit.leases_as_of(leases_as_of.network, s.seq) l
$$;
comment on function ipledger_audit.leases_as_of(text, timestamptz) is $$The same at a time: after the last event at or before it. Write timestamptz '2026-01-01 03:12Z', or now() - interval '1 hour'.
Example: select address, state, owner_name from leases_as_of('default', now() - interval '1 hour');$$;

create function ipledger_audit.address_history(
    network text, address inet, "from" timestamptz default '-infinity', "to" timestamptz default 'infinity')
  returns setof ipledger_audit.event language sql stable as $$
  with span as materialized (
    select a.address,
           ipledger_audit.position_at(address_history.network, address_history."from" - interval '1 microsecond') as after,
           ipledger_audit.position_at(address_history.network, address_history."to") as upto
      from (select ipledger_audit.plain_address(address_history.address) as address) a
  ),
  about as materialized (
    select l.seq from span s cross join lateral ipledger_audit.bases(address_history.network, s.address) as b (base)
     cross join lateral (
       select l.seq, l.address, l.prefix_length from ipledger_audit.chain(address_history.network, b.base, s.after, s.upto) l
        order by l.previous offset 0) l
     where set_masklen(l.address, l.prefix_length) && s.address
  )
  select e.* from about a join ipledger_audit.event e on e.network = address_history.network and e.seq = a.seq
   order by e.seq
$$;
comment on function ipledger_audit.address_history(text, inet, timestamptz, timestamptz) is $$All events of an address, or of the addresses of a CIDR, between two times (both included; default: ever), in order. Blocks that contain
the address count. No row: nothing happened there, or there is no such network. ::ffff:10.8.64.2 is 10.8.64.2.
Columns: those of view `event`.
Example: select seq, at, what from address_history('default', '10.8.64.2', now() - interval '1 day');$$;

create function ipledger_audit.lease_history(lease_id text)
  returns setof ipledger_audit.event language sql stable rows 10 as $$
  with span as materialized (
    select b.address, b.seq as first, b.previous, coalesce(ended.seq, 9223372036854775807) as last
      from ipledger_audit.log b
      left join lateral (
        select x.seq from ipledger_audit.log x
         where x.network_id = split_part(lease_history.lease_id, '/', 1) and x.address = b.address and x.previous >= b.seq and x.state = 'FREE'
         order by x.previous limit 1) ended on true
     where b.network_id = split_part(lease_history.lease_id, '/', 1) and b.fencing_token = b.seq
       and b.seq = case when lease_history.lease_id ~ '^[^/]{1,63}/[1-9][0-9]{0,15}$' then split_part(lease_history.lease_id, '/', 2)::bigint end
  )
  select e.* from span s
    join ipledger_audit.log l on l.network_id = split_part(lease_history.lease_id, '/', 1) and l.address = s.address
                             and l.previous >= s.previous and l.previous < s.last and l.seq between s.first and s.last
    join ipledger_audit.event e on e.network = split_part(lease_history.lease_id, '/', 1) and e.seq = l.seq
   order by e.seq
$$;
comment on function ipledger_audit.lease_history(text) is $$The life of a lease, from its first event to its end. Its id is network/fencing token. Columns: those of view `event`.
Example: select seq, at, state, what from lease_history('default/42');$$;

create function ipledger_audit.owner_history(network text, name text)
  returns setof ipledger_audit.event language sql stable as $$
  select e.* from ipledger_audit.event e
   where e.network = owner_history.network and e.owner_name = owner_history.name
   order by e.seq
$$;
comment on function ipledger_audit.owner_history(text, text) is $$All events of the leases of owners of this name, of any kind, uid and incarnation, in order, with the closings of attachments.
Columns: those of view `event`.
Example: select at, address, owner_incarnation, what from owner_history('default', 'default/web-0');$$;

create view ipledger_audit.quarantines as
  select l.*, now() - l.quarantined_at as age, ipledger_audit.quarantine_exit(l.quarantine_reason, l.owner_kind) as exit
    from ipledger_audit.lease l
   where l.state = 'QUARANTINED';
comment on view ipledger_audit.quarantines is $$Addresses in quarantine: they are not handed out.
Columns: those of view `lease`; age (since it is in quarantine); exit (its ends). View `attention` and, for the answers of sources,
`suspects` say why it has not ended.
Example: select address, quarantine_reason, age, exit from quarantines where network = 'default' order by age desc;$$;

create function ipledger_audit.reaps("from" timestamptz, "to" timestamptz)
  returns table (network text, seq bigint, at timestamptz, address inet, lease_id text, pool text, owner_kind text, owner_name text,
    owner_uid text, owner_incarnation text, owner_interface text, node text, cause text, actor text, source text, why text,
    snapshots bigint[], heads bigint[], misses integer, last_sighted_at timestamptz, lookup_answer text, lookup_at timestamptz,
    lookup_detail text, policy jsonb, evidence jsonb)
  language sql stable as $$
  select l.network_id, l.seq, l.at, set_masklen(l.address, l.prefix_length), l.network_id || '/' || l.fencing_token,
         p.pool, l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation,
         l.owner_interface, l.node, l.cause, l.actor, w.witness ->> 'id', case when w.witness = 'null' then null when s.seq is not null then 'SIGHTED' else 'COVERS' end,
         m.snapshots, m.heads, coalesce(cardinality(m.snapshots), 0),
         b.at, a.answer ->> 'answer', to_timestamp((a.answer ->> 'askedAt')::float8 / 1000), a.answer ->> 'detail',
         l.evidence #> '{proof,policy}', l.evidence
    from ipledger_audit.network n
   cross join lateral ipledger_audit.events_between(n.network, reaps."from", reaps."to") l
   cross join lateral jsonb_array_elements(coalesce(nullif(l.evidence #> '{proof,witnesses}', '[]'), '[null]')) with ordinality as w (witness, place)
   cross join lateral (
      select max(coalesce(x ->> 'vanishedSeq', x ->> 'terminalSeq', x ->> 'appearedSeq')::bigint) as seq
        from jsonb_array_elements(l.evidence #> '{proof,sightings}') x where x ->> 'source' = w.witness ->> 'id') s
   cross join lateral (
      select array_agg((x ->> 'sequence')::bigint) as snapshots, array_agg((x ->> 'head')::bigint) as heads
        from jsonb_array_elements(w.witness -> 'missed') x) m
   cross join lateral (
      select (array_agg(x order by x ->> 'askedAt' desc))[1] as answer from jsonb_array_elements(l.evidence #> '{proof,lookUps}') x
       where x ->> 'source' = w.witness ->> 'id') a
    left join ipledger_audit.pool_names p on p.network = n.network and p.pool_id = l.pool_id
    left join ipledger_audit.log b on b.network_id = n.network and b.seq = s.seq
   where l.type = 'lease.reaped'
   order by l.network_id, l.seq, w.place
$$;
comment on function ipledger_audit.reaps(timestamptz, timestamptz) is $$Leases that were taken back between two times (both included), with the evidence: a row for each source of the proof; a row without a source
if there is no proof (an operator's Reap, a deadline that passed).
Columns: network; seq, at (of the event); address (a block with its mask); lease_id; pool; owner_kind, owner_name, owner_uid,
owner_incarnation, owner_interface, node (of the last holder); cause (PROVEN_ABSENT, NEVER_CONFIRMED, Reap); actor; source; why (it is a
witness: SIGHTED, it had listed the lease, or COVERS its kind and node); snapshots (numbers of its counted reports without the lease),
heads (of the log when those were begun), misses (how many); last_sighted_at (by this source); lookup_answer, lookup_at, lookup_detail
(its last answer); policy (then, times in ms); evidence (all that is stored).
Example: select at, address, owner_name, cause, source, snapshots, lookup_answer from reaps(now() - interval '1 day', now());$$;

create function ipledger_audit.marks("from" timestamptz, "to" timestamptz)
  returns table (network text, seq bigint, at timestamptz, mark text, what text)
  language sql stable as $$
  select n.network, l.seq, l.at,
         case l.type when 'lease.reaped' then 'reap' when 'lease.quarantined' then 'conflict' when 'era.begun' then 'era' else 'hold' end,
         ipledger_audit.event_sentence(row(l.*)::ipledger_audit.log, p.pool)
    from ipledger_audit.network n
   cross join lateral ipledger_audit.events_between(n.network, marks."from", marks."to") l
    left join ipledger_audit.pool_names p on p.network = n.network and p.pool_id = l.pool_id
   where l.type in ('lease.reaped', 'era.begun', 'reconcile.held', 'reconcile.resumed')
      or (l.type = 'lease.quarantined' and l.quarantine_reason = 'CONFLICT')
$$;
comment on function ipledger_audit.marks(timestamptz, timestamptz) is $$Marks for charts: reaps, conflicts, new eras, holds and their ends, between two times (both included).
Columns: network; seq; at; mark (reap, conflict, era, hold); what (a sentence).
Example: select at, mark, what from marks(now() - interval '1 day', now()) where network = 'default' order by at;$$;

create function ipledger_audit.churn("from" timestamptz default now() - interval '1 hour', "to" timestamptz default now())
  returns table (network text, by text, key text, reserved bigint, released bigint, reaped bigint, adopted bigint, quarantined bigint)
  language sql stable as $$
  select c.network_id, case when c.by_owner = 0 then 'owner' when c.by_node = 0 then 'node' else 'pool' end,
         case when c.by_owner = 0 then c.owner when c.by_node = 0 then c.node else p.pool end,
         c.reserved, c.released, c.reaped, c.adopted, c.quarantined
    from (select e.network_id, e.owner, e.node, e.pool_id, grouping(e.owner) as by_owner, grouping(e.node) as by_node,
                 count(*) filter (where e.type = 'lease.reserved') as reserved, count(*) filter (where e.type = 'lease.released') as released,
                 count(*) filter (where e.type = 'lease.reaped') as reaped, count(*) filter (where e.type = 'lease.adopted') as adopted,
                 count(*) filter (where e.type = 'lease.quarantined') as quarantined
            from (select l.network_id, l.type, l.owner_kind || ' ' || l.owner_name as owner, nullif(l.node, '') as node, l.pool_id
                    from ipledger_audit.network n
                   cross join lateral ipledger_audit.events_between(n.network, churn."from", churn."to") l
                   where l.type in ('lease.reserved', 'lease.released', 'lease.reaped', 'lease.adopted', 'lease.quarantined')) e
           group by grouping sets ((e.network_id, e.owner), (e.network_id, e.node), (e.network_id, e.pool_id))) c
    left join ipledger_audit.pool_names p on p.network = c.network_id and p.pool_id = c.pool_id
   where (c.by_owner = 0 and c.owner is not null) or (c.by_node = 0 and c.node is not null) or (c.by_owner = 1 and c.by_node = 1)
   order by c.network_id, 2, c.reserved + c.released + c.reaped + c.adopted + c.quarantined desc, 3
$$;
comment on function ipledger_audit.churn(timestamptz, timestamptz) is $$How many leases began and ended between two times (both included; default: the last hour), by owner, by node and by pool, the busiest
first. Reads every event of that time.
Columns: network; by (owner, node or pool); key (kind and name of the owner, the node, the pool); reserved, released, reaped, adopted,
quarantined (events).
Example: select key, reserved, released, reaped from churn() where network = 'default' and by = 'owner' limit 20;$$;

create function ipledger_audit.event_rate("from" timestamptz, "to" timestamptz, step interval default '1 minute')
  returns table (network text, at timestamptz, type text, cause text, events bigint, per_second float8)
  language sql stable as $$
  select l.network_id, date_bin(event_rate.step, l.at, 'epoch'::timestamptz), l.type, l.cause, count(*),
         count(*) / extract(epoch from event_rate.step)::float8
    from ipledger_audit.network n
   cross join lateral ipledger_audit.events_between(n.network, event_rate."from", event_rate."to") l
   group by 1, 2, 3, 4
   order by 1, 2, 3, 4
$$;
comment on function ipledger_audit.event_rate(timestamptz, timestamptz, interval) is $$How many events there were between two times (both included), in steps. Reads every event of that time.
Columns: network; at (begin of the step, counted from 1970); type; cause (call or finding); events; per_second. Steps without events have
no row.
Example: select at, sum(events) from event_rate(now() - interval '1 hour', now(), '5 minutes') where network = 'default' group by at order by at;$$;

create view ipledger_audit.crash_loops as
  select r.network, r.owner_kind, r.owner_name, r.owner_interface, p.pool, r.lives, r.addresses, coalesce(h.held_now, 0) as held_now, r.first_at, r.last_at
    from (select n.network, l.owner_kind, l.owner_name, l.owner_interface, (array_agg(l.pool_id order by l.seq desc))[1] as pool_id,
                 count(distinct l.address) as addresses, min(l.at) as first_at, max(l.at) as last_at,
                 count(distinct concat_ws('|', l.owner_uid, l.owner_incarnation, case when l.owner_incarnation = '' then l.at end)) as lives
            from ipledger_audit.network n
           cross join lateral ipledger_audit.events_between(n.network, now() - interval '15 minutes', 'infinity') l
           where l.type = 'lease.reserved'
           group by n.network, l.owner_kind, l.owner_name, l.owner_interface) r
    left join ipledger_audit.pool_names p on p.network = r.network and p.pool_id = r.pool_id
    left join (
      select l.network, l.owner_kind, l.owner_name, l.owner_interface, count(*) as held_now from ipledger_audit.lease l
       group by l.network, l.owner_kind, l.owner_name, l.owner_interface) h
      on h.network = r.network and h.owner_kind = r.owner_kind and h.owner_name = r.owner_name and h.owner_interface = r.owner_interface
   where r.lives >= 5;
comment on view ipledger_audit.crash_loops is $$Owners that got leases in five lives or more within 15 minutes: a workload restarts again and again. A Reserve is a life; several of one
incarnation are one. Reads every event of that time: name the network.
Columns: network; owner_kind, owner_name, owner_interface; pool (of the last lease); lives; addresses (different ones), held_now (leases it
has, quarantined ones included); first_at, last_at (of these leases).
Example: select owner_name, lives, addresses, held_now from crash_loops where network = 'default' order by lives desc;$$;
