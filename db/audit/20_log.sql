-- The log as a table and in sentences, and places in it. Functions read the view `log`: they run with the rights of their caller.

comment on view ipledger_audit.log is $$The events of all networks as they are stored; view `event` is the same for people. Columns as in ipledger.event, without request_id;
`evidence` is its `details`. Keys that have an index: (network_id, seq), (network_id, address, previous), (network_id, owner_name, seq),
(network_id, type) of events without an address, and (network_id, seq) of lease.quarantined, lease.reaped, era.begun and reconcile.held.
Example: select seq, type, address, evidence from log where network_id = 'default' and seq = 1;$$;

create view ipledger_audit.standby as
  select x.is_standby, x.as_of, now() - x.as_of as lag
    from (select s.is_standby, case when s.is_standby then pg_last_xact_replay_timestamp() else now() end as as_of
            from (select pg_is_in_recovery() as is_standby) s) x;
comment on view ipledger_audit.standby is $$How old what this server answers may be.
Columns: is_standby; as_of (time of the last transaction that has arrived; null: none has since the standby started); lag (age of that).
ipledger writes once a minute at least, so a standby that is well shows a lag of up to a minute.
Example: select is_standby, as_of, lag from standby;$$;

create view ipledger_audit.network as
  select n.network_id as network, case when n.recovering is null then 'READY' else 'RECOVERING' end as state, n.era,
         h.seq as head, n.description, n.labels::jsonb as labels, n.created_at, n.updated_at
    from ipledger.network n
   cross join lateral (select e.seq from ipledger.event e where e.network_id = n.network_id order by e.seq desc limit 1) h;
comment on view ipledger_audit.network is $$The networks.
Columns: network; state (READY, RECOVERING); era (life of the database; its numbers begin at era × 2^40); head (number of the last
event); description; labels; created_at; updated_at.
Example: select network, state, head from network;$$;

create view ipledger_audit.pool as
  select p.network_id as network, p.name as pool, p.pool_id, family(p.cidr)::smallint as family, p.cidr, p.settings::jsonb as settings,
         p.version, p.created_at, p.updated_at
    from ipledger.pool p;
comment on view ipledger_audit.pool is $$The pools. How full they are: pool_usage.
Columns: network; pool (its name); pool_id (number of the event that made it); family (4, 6); cidr; settings (subnet, prefixLength, gateway,
exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels, reapPolicy); version (number of its last event);
created_at; updated_at.
Example: select pool, cidr, settings ->> 'gateway' as gateway from pool where network = 'default';$$;

create view ipledger_audit.pool_names as
  select e.network_id as network, e.seq as pool_id, coalesce(p.name, e.details ->> 'name') as pool
    from ipledger.event e
    left join ipledger.pool p on p.network_id = e.network_id and p.pool_id = e.seq
   where e.address is null and e.type = 'pool.created';
comment on view ipledger_audit.pool_names is $$Every pool that there ever was, by its number. A helper of other views; view `event` has the name.
Columns: network; pool_id (number of the event that made it); pool (its present name, or its first one if it is deleted).
Example: select pool from pool_names where network = 'default' and pool_id = 2;$$;

-- In PL/pgSQL, which keeps the plans of its expressions for the session: as one SQL expression a sentence cost 90 µs.
create function ipledger_audit.event_sentence(event ipledger_audit.log, pool text) returns text
  language plpgsql stable as $$
declare
  lease text := concat(abbrev(set_masklen(event.address, event.prefix_length)), ' of pool ' || nullif(pool, ''),
                       ' (lease ' || event.network_id || '/' || event.fencing_token || ')');
  owner text := ipledger_audit.describe_owner(event.owner_kind, event.owner_name, event.owner_uid, event.owner_incarnation, event.owner_interface);
  place text := coalesce(' on node ' || nullif(event.node, ''), '');
  doer text := concat(' by ', event.actor, ' (', event.cause, ')');
  source text := coalesce(event.evidence ->> 'source', event.evidence ->> 'id');
  quarantine text := '; it was in quarantine as ' || event.quarantine_reason || ' since ' || ipledger_audit.moment(event.quarantined_at);
  kept text := case when event.evidence ->> 'contested' = 'true' then '; another was listed there, so the address is kept'
                    when event.evidence ->> 'reason' = 'TAKEN' and event.type = 'lease.reaped' then ''
                    else '; the address cools until ' || ipledger_audit.moment(event.available_at) end;
begin
  return case event.type
    when 'lease.reserved' then concat(lease, ' was reserved for ', owner, place, doer,
      case when event.state = 'ACTIVE' then '; it was confirmed at once'
           when event.confirm_by is not null then '; it must be confirmed by ' || ipledger_audit.moment(event.confirm_by)
           else '; there is no deadline to confirm' end)
    when 'lease.confirmed' then concat(lease, ' was confirmed for ', owner,
      case when event.evidence ? 'seen' then ': ' || ipledger_audit.describe_seen(event.evidence) else doer end)
    when 'lease.updated' then concat(lease, ', held for ', owner,
      case when event.cause = 'UpdateLabels' then ', was labelled ' || event.labels::text else ', was promised again' || place end, doer,
      case when event.state <> 'RESERVED' then ''
           when event.confirm_by is not null then '; it must be confirmed by ' || ipledger_audit.moment(event.confirm_by)
           else '; there is no deadline to confirm' end)
    when 'lease.adopted' then concat(lease, ' was adopted for ', owner, place, ', since no workload held it: ', ipledger_audit.describe_seen(event.evidence))
    when 'lease.released' then concat(lease, ', held for ', owner, ', was released', doer, quarantine, kept)
    when 'lease.reaped' then concat(lease, ', held for ', owner, ', was reaped',
      case when event.evidence ? 'proof' then doer || ': ' || ipledger_audit.describe_proof(event.evidence)
           when event.evidence ? 'due' then concat(doer, ': it was never confirmed by its deadline ', ipledger_audit.moment(event.evidence -> 'confirmBy'),
             ' nor in the grace until ', ipledger_audit.moment(event.evidence -> 'due'), ', and nobody had listed it')
           when event.evidence ->> 'reason' = 'TAKEN' then concat(', a spare that a workload got: ', ipledger_audit.describe_seen(event.evidence))
           else concat(' by an operator', doer, ', with node ' || (event.evidence ->> 'node'), ': ', event.evidence ->> 'why') end, quarantine, kept)
    when 'lease.quarantined' then concat(lease, ' was set aside as ', event.quarantine_reason, doer, ', held for ', owner, ': ', event.quarantine_why,
      case when event.evidence ? 'seen' then '; ' || ipledger_audit.describe_seen(event.evidence) end)
    when 'attachment.closed' then concat('Late calls for ', owner, ' are refused', doer, ': it was released')
    when 'source.registered' then concat('Source ', source, ' was registered as ', event.evidence ->> 'kind', doer, ', for ',
      coalesce('node ' || nullif(event.evidence ->> 'node', ''), 'the whole network'), ', in dry run')
    when 'source.enabled' then concat('Source ', source, ' was enabled', doer, ': its silence counts from now on')
    when 'source.retired' then concat('Source ', source, ' was retired', doer, ', and what it listed is listed no more')
    when 'source.reported' then concat('Source ', source, ' listed ', jsonb_array_length(event.evidence -> 'appeared'), ' new entries and ',
      jsonb_array_length(event.evidence -> 'vanished'), ' no more, in report ', event.evidence ->> 'sequence', ' begun at head ', event.evidence ->> 'head', doer,
      case when event.evidence ->> 'opened' = 'true' then '; with it epoch ' || (event.evidence ->> 'epoch') || ' began'
           when event.evidence ->> 'closed' = 'true' then '; its epoch ended' end)
    when 'reconcile.held' then concat('Network ', event.network_id, ' was held (', event.evidence ->> 'hold', ')', doer, ': ', event.evidence ->> 'why')
    when 'reconcile.resumed' then concat('Network ', event.network_id, ' was resumed (', ipledger_audit.listed(event.evidence -> 'holds'), ')', doer, ': ', event.evidence ->> 'why')
    when 'network.created' then concat('Network ', event.network_id, ' was created', doer)
    when 'network.updated' then concat('Settings of network ', event.network_id, ' were changed', doer,
      case when event.evidence ->> 'closed' = 'true' then '; it is closed, and hands out nothing new' end)
    when 'recovery.extended' then concat('Source ', source, ' called', doer, coalesce(' from node ' || nullif(event.evidence ->> 'node', ''), ''),
      ' and is not registered: the recovery of network ', event.network_id, ' waits until it is, and has reported')
    when 'recovery.ended' then concat('The recovery of network ', event.network_id, ' ended', doer, ': ', event.evidence ->> 'why')
    when 'era.begun' then concat('Era ', event.evidence ->> 'era', ' of network ', event.network_id, ' began', doer, ': ', event.evidence ->> 'why',
      '; the era before it ends at number ', event.evidence ->> 'after',
      case when event.evidence ->> 'recovering' = 'true' then '; the network recovers, and nothing is handed out or taken back meanwhile' end)
    else case when event.type in ('pool.created', 'pool.updated', 'pool.deleted') then
      concat('Pool ', pool, ' was ', split_part(event.type, '.', 2), doer, ': ', event.evidence ->> 'cidr', ' in leases of /',
        event.evidence ->> 'prefixLength', ', cooldown ', ipledger_audit.seconds(event.evidence ->> 'cooldownMs'),
        ', gateway ' || nullif(event.evidence ->> 'gateway', ''), ', excluded ' || ipledger_audit.listed(event.evidence -> 'exclude'),
        case when event.evidence ->> 'draining' = 'true' then ', draining' end) end
    end || '.';
end
$$;
comment on function ipledger_audit.event_sentence(ipledger_audit.log, text) is $$An event as a sentence, column `what` of view `event`. `pool` is the name of its pool.
Example: select event_sentence(l, 'default') from log l where network_id = 'default' and seq = 1;$$;

create view ipledger_audit.event as
  select l.network_id as network, l.seq, l.at, l.type, set_masklen(l.address, l.prefix_length) as address,
         l.network_id || '/' || l.fencing_token as lease_id, p.pool, l.state,
         l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface, l.node,
         l.actor, l.cause, l.quarantine_reason, ipledger_audit.event_sentence(row(l.*)::ipledger_audit.log, p.pool) as what, l.evidence,
         l.trace_id
    from ipledger_audit.log l
    left join ipledger_audit.pool_names n on n.network = l.network_id and n.pool_id = l.pool_id
   cross join lateral (select case when l.type like 'pool.%' then l.evidence ->> 'name' else n.pool end as pool) p;
comment on view ipledger_audit.event is $$Everything that happened, a row an event, in all networks. Filter by network and by seq, at (a range) or owner_name, or it reads
everything. For an address, lease or owner use address_history, lease_history, owner_history.
Columns: network; seq (number of the event in its network); at; type; address (a block with its mask) and lease_id; pool (its present name,
or its first one if it is deleted); state of the address after it (FREE, RESERVED, ACTIVE, QUARANTINED); owner_kind, owner_name,
owner_uid, owner_incarnation, owner_interface, node (of the holder after it; of a FREE address of the last one); actor (token or job);
cause (call or finding); quarantine_reason; what (a sentence); evidence (the basis of the decision, or the new settings); trace_id. Null:
the event has none.
Example: select seq, at, what from event where network = 'default' and at > now() - interval '1 hour' order by seq;$$;

-- Times never go back along the numbers, so it halves the range; numbers have gaps between eras.
create function ipledger_audit.position_at(network text, at timestamptz) returns bigint
  language sql stable as $$
  with recursive search (low, high) as (
    (select case when l.at <= position_at.at then l.seq else 0 end, l.seq
       from ipledger_audit.log l where l.network_id = position_at.network order by l.seq desc limit 1)
    union all
    select case when e.at <= position_at.at then e.seq else s.low end, case when e.at <= position_at.at then s.high else m.middle - 1 end
      from search s
     cross join lateral (select s.low + (s.high - s.low + 1) / 2 as middle) m
     cross join lateral (
       select l.seq, l.at from ipledger_audit.log l
        where l.network_id = position_at.network and l.seq >= m.middle order by l.seq limit 1) e
     where s.low < s.high
  )
  select coalesce(max(s.low), 0) from search s
$$;
comment on function ipledger_audit.position_at(text, timestamptz) is $$The number of the last event of a network at or before a time; 0: none. Several events may have one time.
Example: select position_at('default', now() - interval '1 hour');$$;

-- `offset 0`: the planner computes the places once, not for each event.
create function ipledger_audit.events_between(network text, "from" timestamptz, "to" timestamptz) returns setof ipledger_audit.log
  language sql stable rows 10000 as $$
  select l.*
    from (select ipledger_audit.position_at(events_between.network, events_between."from" - interval '1 microsecond') as after,
                 ipledger_audit.position_at(events_between.network, events_between."to") as upto offset 0) s
   cross join lateral (
     select x.* from ipledger_audit.log x
      where x.network_id = events_between.network and x.seq > s.after and x.seq <= s.upto order by x.seq offset 0) l
$$;
comment on function ipledger_audit.events_between(text, timestamptz, timestamptz) is $$The events of a network between two times (both included), found by their numbers. Rows of view `log`.
Example: select type, count(*) from events_between('default', now() - interval '1 hour', now()) group by type;$$;
