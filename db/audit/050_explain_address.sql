-- The answer first, then the lease that the address has or had last and the one before it: how it came to be free, and to
-- be given away. Where no lease explains it, the pool does.
create or replace function ipledger_audit.explain_address(
    network text, address inet, out step integer, inout at timestamptz default now(), out seq bigint, out what text, out evidence jsonb,
    upto bigint default null)
  returns setof record language sql stable rows 10
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  with asked as materialized (
    select explain_address.network, set_masklen(p.address, -1) as address, p.address as given,
           masklen(p.address) < case family(p.address) when 4 then 32 else 128 end as is_range, explain_address.at,
           coalesce(explain_address.upto, ipledger_audit.position_at(explain_address.network, explain_address.at)) as upto
      from (select ipledger_audit.plain_address(explain_address.address) as address) p
     where p.address is not null
  ),
  known as materialized (
    select a.*, n.head, f.at as begun_at
      from asked a
      left join ipledger_audit.network n on n.network = a.network
      left join lateral (select l.at from ipledger_audit.log l where l.network_id = a.network order by l.seq limit 1) f on true
  ),
  last as materialized (
    select e.* from asked a cross join lateral ipledger_audit.last_event_of(a.network, a.address, a.upto) e
  ),
  before as materialized (
    select e.* from last x cross join lateral ipledger_audit.last_event_of(x.network_id, (select a.address from asked a), x.fencing_token - 1) e
  ),
  pool as materialized (
    select p.*, p.settings::jsonb -> 'pool' as pool from asked a cross join lateral ipledger_audit.pool_at(a.network, a.address, a.upto) p
  ),
  -- What it is handed out with.
  block as materialized (
    select set_masklen(network(w.block)::inet, -1) as first, set_masklen(broadcast(w.block), -1) as last
      from (select set_masklen(a.address, coalesce(
                     (select x.prefix_length::int from last x where x.type not in ('lease.released', 'lease.reaped')),
                     (select (p.pool ->> 'prefixLength')::int from pool p where p.type <> 'pool.deleted'), masklen(a.address))) as block
              from asked a) w
  ),
  seen as materialized (
    select count(*) as sightings,
           string_agg(concat('Source ', s.source, ' listed ', ipledger_audit.describe_owner(s.owner_kind, s.owner_name, s.owner_uid, s.owner_incarnation, s.owner_interface),
                             case when s.address = (select a.address from asked a) then ' there' else ' at ' || host(s.address) || ' in its block' end,
                             ' as ', s.state, ' on node ' || nullif(s.node, ''), ' since ', ipledger_audit.moment(s.appeared_at)), '; ' order by s.appeared_at)
             filter (where s.place <= 5) as words,
           jsonb_agg(to_jsonb(s) - 'place' order by s.appeared_at) as list,
           bool_or(s.state <> 'terminal') as alive
      from (select v.address, v.source, v.owner_kind, v.owner_name, v.owner_uid, v.owner_incarnation, v.owner_interface, v.node, v.boot, v.state,
                   v.appeared_at, v.appeared_sequence, v.appeared_head, v.last_seen_at, row_number() over (order by v.appeared_at desc) as place
              from asked a
              cross join block b
              join ipledger_audit.sightings v on v.network = a.network and v.address >= b.first and v.address <= b.last
             where v.appeared_at <= a.at and (v.vanished_at is null or v.last_seen_at >= a.at)
             order by v.appeared_at desc limit 20) s
  ),
  waits as materialized (
    select string_agg(concat(w.code, ', observed ', ipledger_audit.moment(w.observed_at), ': ', w.what), '; ' order by w.since) as words,
           jsonb_agg(to_jsonb(w) order by w.since) as list
      from known k cross join block b join ipledger_audit.stuck w on w.network = k.network
      left join last x on true
     where k.upto = k.head and (w.address = k.address or w.lease_id = x.network_id || '/' || x.fencing_token)
       -- Observed before what refutes it.
       and (x.at > w.observed_at and x.type <> 'lease.updated') is not true
       and not exists (
         select from ipledger_audit.sightings v
          where v.network = k.network and v.address >= b.first and v.address <= b.last and v.live and w.source in ('', v.source)
            and w.code in ('NEVER_SIGHTED', 'NOBODY_CAN_TELL', 'PROOF_BLOCKED', 'LOOKUP_FAILING', 'LOOKUP_WAITING')
            and (v.appeared_at > w.observed_at or (w.code = 'NEVER_SIGHTED' and v.owner_kind = x.owner_kind and v.owner_uid = x.owner_uid)))
  ),
  is_held as (select exists (select from last x where x.type not in ('lease.released', 'lease.reaped')) as is_held),
  answer as (
    select concat('At ', ipledger_audit.moment(k.at), ' ',
             case
               when k.is_range then concat(
                 k.given, ' is a range: who_had says who has its addresses, and this function explains one of them')
               when k.head is null then concat('there was no network ', k.network)
               when k.upto = 0 then concat('nothing was known of ', host(k.address), ': network ', k.network, ' was begun ', ipledger_audit.moment(k.begun_at))
               else concat(host(k.address), case when p.type <> 'pool.deleted' then ' of pool ' || (p.pool ->> 'name') end, ' ',
                 case
                   when h.is_held then ipledger_audit.describe_lease(x, k.at)
                   when p.seq is null then concat('is in no pool of network ', k.network)
                   when p.type = 'pool.deleted' then concat('is in no pool: pool ', p.pool ->> 'name', ' (', p.pool ->> 'cidr', '), which it was in, was deleted ',
                     ipledger_audit.moment(p.at), ' by ', p.actor, case when x.seq is null then '' else '; before that it ' || ipledger_audit.describe_lease(x, k.at) end)
                   when ipledger_audit.excluded_because(p.pool, k.address) is not null then concat('is never handed out: it is ',
                     ipledger_audit.excluded_because(p.pool, k.address))
                   when x.seq is not null then ipledger_audit.describe_lease(x, k.at)
                   else 'is free, and nobody has ever held it' end,
                 case when not h.is_held and p.type <> 'pool.deleted' and p.pool ->> 'draining' = 'true' then '; the pool is draining and hands nothing out' end) end, '.',
             case when s.sightings > 0 then concat(' ', s.words, case when s.sightings > 5 then concat('; and ', s.sightings - 5, ' more') end, '.',
               case when s.alive and not h.is_held then ' It is seen live though the books have nobody there, and is not handed out while it is listed.' end) end,
             case when w.words is not null then concat(' It waits: ', w.words, '.') end) as what,
           case when h.is_held or x.seq is not null then x.seq else p.seq end as seq,
           jsonb_strip_nulls(jsonb_build_object('position', k.upto, 'sightings', s.list, 'stuck', w.list, 'state',
             case when h.is_held then x.state
                  when p.seq is null or p.type = 'pool.deleted' then 'OUTSIDE'
                  when ipledger_audit.excluded_because(p.pool, k.address) is not null then 'EXCLUDED'
                  when x.available_at > k.at then 'COOLING'
                  else 'FREE' end)) as evidence
      from known k cross join seen s cross join waits w cross join is_held h
      left join last x on true
      left join pool p on true
  ),
  story as materialized (
    select l.* from last x cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = x.network_id and l.address = x.address and l.seq >= x.fencing_token and l.seq <= x.seq
       order by l.seq desc limit 100) l
    union all
    select l.* from before x cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = x.network_id and l.address = x.address and l.seq >= x.fencing_token and l.seq <= x.seq
       order by l.seq desc limit 100) l
    union all
    select l.* from pool p join ipledger_audit.log l on l.network_id = p.network_id and l.seq = p.seq
     where not exists (select from last x where x.seq > p.seq)
  )
  select 0, k.at, a.seq, a.what, a.evidence from known k cross join answer a
  union all
  select row_number() over (order by l.seq)::int, l.at, l.seq, ipledger_audit.event_sentence(l, ipledger_audit.pool_name(l.network_id, l.pool_id)), l.evidence
    from (select s.network_id, s.seq from story s order by s.seq desc limit 200) s
    join ipledger_audit.log l on l.network_id = s.network_id and l.seq = s.seq
   where not (select a.is_range from asked a)
   order by 1
$$;
comment on function ipledger_audit.explain_address(text, inet, timestamptz, bigint) is
$$Why an address is free, cooling, held, in quarantine, or was taken back, now or at a time. Step 0 is the answer in one sentence, with what
sources saw there at that time, or elsewhere in the block that it is handed out with, and, of now, what it waits for; the steps after it
are the events that led there, oldest first: the lease it has or had last, the lease before it (at most 100 events of each), and its pool
where that was changed since, or deleted. Several events may have one time: `upto` is the number of the last that counts, if it is not to
be the last of that time. An IPv4 address that is written as IPv6 (::ffff:10.8.64.2) means the IPv4 one; of no address (null) there is no
row.

Columns: step; at (of step 0 the time asked about, then of the event); seq (number of the event); what (a sentence); evidence (of step 0:
position in the log, state (FREE, COOLING, RESERVED, ACTIVE, QUARANTINED, EXCLUDED, or OUTSIDE every pool), sightings, stuck items; of an
event what it rested on).

Example:
  select step, at, what from explain_address('default', '10.8.64.2');$$;
