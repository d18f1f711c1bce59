-- Why an address is as it is: the answer in a sentence, and the events that led there.

create function ipledger_audit.pools_at(network text, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 10 as $$
  select distinct on (l.pool_id) l.* from ipledger_audit.log l
   where l.network_id = pools_at.network and l.address is null and l.seq <= pools_at.upto
     and l.type in ('pool.created', 'pool.updated', 'pool.deleted')
   order by l.pool_id, l.seq desc
$$;
comment on function ipledger_audit.pools_at(text, bigint) is $$The last event, up to a number, of every pool that there was by then; of one that was deleted its type is pool.deleted. Rows of view `log`.
Example: select evidence ->> 'name' as pool, evidence ->> 'cidr' as cidr from pools_at('default', 1000) where type <> 'pool.deleted';$$;

create function ipledger_audit.pool_at(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 1 as $$
  select p.*
    from ipledger_audit.pools_at(pool_at.network, pool_at.upto) p
   where (p.evidence ->> 'cidr')::inet >>= pool_at.address
   order by p.type = 'pool.deleted', p.seq desc limit 1
$$;
comment on function ipledger_audit.pool_at(text, inet, bigint) is $$The last event, up to a number, of the pool that contained an address then, or else of the one that was deleted last (its type is
pool.deleted). Rows of view `log`.
Example: select type, evidence from pool_at('default', '10.8.64.2', 1000);$$;

create function ipledger_audit.describe_lease(event ipledger_audit.log, at timestamptz) returns text
  language sql stable as $$
  select case
    when event.state = 'FREE' then concat(
      case when event.available_at > describe_lease.at then concat('is free and cooling until ', ipledger_audit.moment(event.available_at))
           else concat('is free, and has cooled since ', ipledger_audit.moment(event.available_at)) end,
      ': ', s.lease, ', held for ', s.owner, ', was ', lower(event.ended), ' ', ipledger_audit.moment(event.at), ' by ', event.actor, ' (', event.cause, ')',
      case when event.available_at <= describe_lease.at then ''
           when event.ended = 'RELEASED' and event.owner_kind is not null then '; until then only its last holder may have it back'
           else '; until then nobody gets it' end)
    when event.state = 'QUARANTINED' then concat(
      'is set aside: ', s.lease, ' is QUARANTINED as ', event.quarantine_reason, ' since ', ipledger_audit.moment(event.quarantined_at), ' by ',
      event.quarantined_by, ', held for ', s.owner, s.place, ' (', event.quarantine_why, '). ',
      ipledger_audit.quarantine_exit(event.quarantine_reason, event.owner_kind))
    else concat(
      'is held: ', s.lease, ' is ', event.state, ' for ', s.owner, s.place, ' since ', ipledger_audit.moment(b.at), ', given by ', b.actor,
      ' (', b.cause, ')',
      case when event.state = 'ACTIVE' then ', confirmed ' || ipledger_audit.moment(event.confirmed_at)
           when event.confirm_by is not null then ', not confirmed yet, which it must be by ' || ipledger_audit.moment(event.confirm_by)
           else ', not confirmed; it has no deadline, and is held until it is released or proven gone' end)
    end
    from (select concat(case when event.prefix_length < masklen(event.address) then 'block ' || abbrev(set_masklen(event.address, event.prefix_length)) || ', ' end,
                        'lease ', event.network_id, '/', event.fencing_token) as lease,
                 ipledger_audit.describe_owner(event.owner_kind, event.owner_name, event.owner_uid, event.owner_incarnation, event.owner_interface) as owner,
                 coalesce(' on node ' || nullif(event.node, ''), '') as place) s
    left join ipledger_audit.log b on b.network_id = event.network_id and b.seq = event.fencing_token
$$;
comment on function ipledger_audit.describe_lease(ipledger_audit.log, timestamptz) is $$The state of an address at a time by the last event of its lease, as the rest of a sentence that begins with the address.
Example: select describe_lease(l, now()) from last_events('default', '10.8.64.2', 1000) l;$$;

-- The answer, then the present or last lease and the one before it. If no lease explains it, the pool does.
create function ipledger_audit.explain_address(
    network text, address inet, out step integer, inout at timestamptz default now(), out seq bigint, out what text, out evidence jsonb,
    upto bigint default null)
  returns setof record language sql stable rows 10 set plan_cache_mode = force_generic_plan as $$
  with asked as materialized (
    select set_masklen(p.address, -1) as address, p.address as given, masklen(p.address) < case family(p.address) when 4 then 32 else 128 end as is_range,
           coalesce(explain_address.upto, ipledger_audit.position_at(explain_address.network, explain_address.at)) as upto,
           (select l.seq from ipledger_audit.log l where l.network_id = explain_address.network order by l.seq desc limit 1) as head,
           ipledger_audit.rested_by(explain_address.network, explain_address.at) as rested_by,
           (select l.at from ipledger_audit.log l where l.network_id = explain_address.network order by l.seq limit 1) as begun_at
      from (select ipledger_audit.plain_address(explain_address.address) as address) p
     where p.address is not null
  ),
  last as materialized (
    select e.* from asked a cross join lateral ipledger_audit.last_events(explain_address.network, a.address, a.upto) e order by e.seq desc limit 1
  ),
  before as materialized (
    select e.* from last x cross join asked a
     cross join lateral ipledger_audit.last_events(explain_address.network, a.address, x.fencing_token - 1) e order by e.seq desc limit 1
  ),
  pool as materialized (
    select p.* from asked a cross join lateral ipledger_audit.pool_at(explain_address.network, a.address, a.upto) p
  ),
  -- The block that it is handed out with.
  block as materialized (
    select set_masklen(network(w.block)::inet, -1) as first, set_masklen(broadcast(w.block), -1) as last
      from (select set_masklen(a.address, coalesce((select x.prefix_length::int from last x where x.state <> 'FREE'),
                     (select (p.evidence ->> 'prefixLength')::int from pool p where p.type <> 'pool.deleted'), masklen(a.address))) as block
              from asked a) w
  ),
  seen as materialized (
    select count(*) as sightings, bool_or(s.live) as alive, jsonb_agg(to_jsonb(s) - 'place' order by s.appeared_at) as list,
           string_agg(concat('Source ', s.source, ' lists ', ipledger_audit.describe_owner(s.owner_kind, s.owner_name, s.owner_uid, s.owner_incarnation, s.owner_interface),
                             case when s.address = (select a.address from asked a) then ' there' else ' at ' || host(s.address) || ' in its block' end,
                             ' as ' || nullif(s.state, ''), ' on node ' || nullif(s.node, ''), ' since ', ipledger_audit.moment(s.appeared_at)), '; ' order by s.appeared_at)
             filter (where s.place <= 5) as words
      from (select v.*, row_number() over (order by v.appeared_seq desc) as place
              from asked a cross join block b
              join ipledger_audit.sightings v on v.network = explain_address.network and v.address >= b.first and v.address <= b.last
             where v.appeared_seq <= a.upto and (v.vanished_seq > a.upto) is not false
             order by v.appeared_seq desc limit 20) s
  ),
  -- Of now only: vanished entries that keep it resting.
  rests as materialized (
    select max(v.rests_until) as until,
           string_agg(concat(' Source ', v.source, ' listed ', ipledger_audit.describe_owner(v.owner_kind, v.owner_name, v.owner_uid, v.owner_incarnation, v.owner_interface),
                             ' there until ', ipledger_audit.moment(v.vanished_at), ': nobody else gets it before ', ipledger_audit.moment(v.rests_until), '.'), '' order by v.rests_until) as words
      from asked a cross join block b
      join ipledger_audit.sightings v on v.network = explain_address.network and v.address >= b.first and v.address <= b.last
     where a.upto = a.head and v.vanished_seq is not null and v.rests_until > a.rested_by
  ),
  -- Of now only: questions to sources about it.
  waits as materialized (
    select string_agg(s.what, ' ' order by s.question_at) as words, jsonb_agg(to_jsonb(s)) as list
      from asked a join ipledger_audit.suspects s on s.network = explain_address.network and s.address >>= a.address where a.upto = a.head
  ),
  answer as (
    select concat('At ', ipledger_audit.moment(explain_address.at), ' ',
             case
               when k.is_range then concat(k.given, ' is a range: who_had says who has its addresses, and this function explains one of them')
               when k.head is null then concat('there was no network ', explain_address.network)
               when k.upto = 0 then concat('nothing was known of ', host(k.address), ': network ', explain_address.network, ' was begun ', ipledger_audit.moment(k.begun_at))
               else concat(host(k.address), case when p.type <> 'pool.deleted' then ' of pool ' || (p.evidence ->> 'name') end, ' ',
                 case
                   when x.state <> 'FREE' then ipledger_audit.describe_lease(row(x.*)::ipledger_audit.log, k.rested_by)
                   when p.seq is null then concat('is in no pool of network ', explain_address.network)
                   when p.type = 'pool.deleted' then concat('is in no pool: pool ', p.evidence ->> 'name', ' (', p.evidence ->> 'cidr', '), which it was in, was deleted ',
                     ipledger_audit.moment(p.at), ' by ', p.actor, case when x.seq is null then '' else '; before that it ' || ipledger_audit.describe_lease(row(x.*)::ipledger_audit.log, k.rested_by) end)
                   when w.excluded is not null then concat('is never handed out: it is ', w.excluded)
                   when x.seq is not null then ipledger_audit.describe_lease(row(x.*)::ipledger_audit.log, k.rested_by)
                   else 'is free, and nobody has ever held it' end,
                 case when (x.state <> 'FREE') is not true and p.type <> 'pool.deleted' and p.evidence ->> 'draining' = 'true' then '; the pool is draining and hands nothing out' end,
                 case when (x.state <> 'FREE') is not true and p.type <> 'pool.deleted' and (
                   select l.evidence ->> 'closed' from ipledger_audit.log l
                    where l.network_id = explain_address.network and l.address is null and l.seq <= k.upto and l.type in ('network.created', 'network.updated')
                    order by l.seq desc limit 1) = 'true' then '; the network is closed and hands nothing out' end) end, '.',
             case when s.sightings > 0 then concat(' ', s.words, case when s.sightings > 5 then concat('; and ', s.sightings - 5, ' more') end, '.',
               case when s.alive and (x.state <> 'FREE') is not true then ' It is seen live though nobody holds it, and is not handed out while it is listed.' end) end,
             case when (x.state <> 'FREE') is not true then r.words end, ' ' || q.words) as what,
           coalesce(x.seq, p.seq) as seq,
           jsonb_strip_nulls(jsonb_build_object('position', k.upto, 'sightings', s.list, 'lookUps', q.list, 'state',
             case when x.state <> 'FREE' then x.state
                  when p.seq is null or p.type = 'pool.deleted' then 'OUTSIDE'
                  when w.excluded is not null then 'EXCLUDED'
                  when greatest(x.available_at, r.until) > k.rested_by then 'COOLING'
                  else 'FREE' end)) as evidence
      from asked k cross join seen s cross join waits q cross join rests r
      left join last x on true
      left join pool p on true
      left join lateral (
        select string_agg(distinct x.why, '; ') as excluded from block b cross join ipledger_audit.pool_exclusions(p.evidence) x
         where x.first <= b.last and x.last >= b.first) w on p.type <> 'pool.deleted'
  ),
  story as materialized (
    select l.seq from (select x.* from last x union all select b.* from before b) x cross join lateral (
      select l.seq from ipledger_audit.chain(x.network_id, x.address, x.fencing_token - 1, x.seq) l order by l.previous desc limit 100) l
    union
    select p.seq from pool p where not exists (select from last x where x.seq > p.seq)
  )
  select 0, explain_address.at, a.seq, a.what, a.evidence from answer a
  union all
  select row_number() over (order by l.seq)::int, l.at, l.seq, ipledger_audit.event_sentence(row(l.*)::ipledger_audit.log, p.pool), l.evidence
    from story s join ipledger_audit.log l on l.network_id = explain_address.network and l.seq = s.seq
    left join ipledger_audit.pool_names p on p.network = explain_address.network and p.pool_id = l.pool_id
   where not (select a.is_range from asked a)
   order by 1
$$;
comment on function ipledger_audit.explain_address(text, inet, timestamptz, bigint) is $$Why an address is free, cooling, held, in quarantine, or was taken back, now or at a time. Step 0 is the answer in a sentence, with the
entries of sources there and in its block (of the past only those that are still listed) and, of now, the questions to sources. The next
steps are the events that led there, oldest first: of the present or last lease, of the one before it (at most 100 each), and of its pool
if that was changed since, or deleted. `upto` is the last event that counts, of several that have this time. ::ffff:10.8.64.2 is
10.8.64.2; null has no row.
Columns: step; at (of step 0 the time asked about, then of the event); seq (number of the event); what (a sentence); evidence (of step 0:
position in the log, state (FREE, COOLING, RESERVED, ACTIVE, QUARANTINED, EXCLUDED, or OUTSIDE every pool), sightings, lookUps; of an
event its evidence).
Example: select step, at, what from explain_address('default', '10.8.64.2');$$;
