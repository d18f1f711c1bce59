-- How full pools are and were, and where.

-- By the settings of any time, in words, for explain_address. What a pool has free is counted by core/ranges.ts.
create function ipledger_audit.pool_exclusions(settings jsonb) returns table (first inet, last inet, why text)
  language sql immutable as $$
  select nullif(settings ->> 'gateway', '')::inet, nullif(settings ->> 'gateway', '')::inet, 'the gateway of the pool' where settings ->> 'gateway' <> ''
  union all
  select split_part(x.range, '-', 1)::inet, coalesce(nullif(split_part(x.range, '-', 2), ''), x.range)::inet, 'excluded by the pool''s settings (' || x.range || ')'
    from jsonb_array_elements_text(settings -> 'exclude') as x (range)
  union all
  select set_masklen(network(s.subnet)::inet, -1), set_masklen(network(s.subnet)::inet, -1),
         case s.family when 4 then 'the network address of its subnet' else 'the subnet-router anycast address of its subnet' end
    from (select (settings ->> 'subnet')::inet as subnet, family((settings ->> 'subnet')::inet) as family) s
   where masklen(s.subnet) < case s.family when 4 then 31 else 127 end
     and (settings ->> 'prefixLength')::int = case s.family when 4 then 32 else 128 end
  union all
  select set_masklen(broadcast((settings ->> 'subnet')::inet), -1), set_masklen(broadcast((settings ->> 'subnet')::inet), -1), 'the broadcast address of its subnet'
   where family((settings ->> 'subnet')::inet) = 4 and masklen((settings ->> 'subnet')::inet) < 31 and (settings ->> 'prefixLength')::int = 32
$$;
comment on function ipledger_audit.pool_exclusions(jsonb) is $$The addresses that a pool never hands out, as ranges: its gateway, those that its settings exclude, and, of a pool of single addresses, those
of its subnet that no workload can use. A block that one of them touches is not handed out. `settings` is that of view `pool`.
Columns: first, last, why.
Example: select p.pool, x.* from pool p, pool_exclusions(p.settings) x where p.network = 'default';$$;

create function ipledger_audit.rested_by(network text, at timestamptz) returns timestamptz
  language sql stable as $$
  select least(rested_by.at, (select to_timestamp((h.details ->> 'before')::float8 / 1000) from ipledger_audit.holds h
                               where h.network = rested_by.network and h.hold = 'CLOCK'))
$$;
comment on function ipledger_audit.rested_by(text, timestamptz) is $$The time up to which coolings have ended at a time: that time, or during a CLOCK hold the time before the clock was set.
Example: select rested_by('default', now());$$;

-- As `readyAt` and `restedBy` of core/image.ts say it; a test compares them.
create function ipledger_audit.pool_touched(network text, cidr cidr, prefix_length int)
  returns table (address inet, state text)
  language sql stable rows 10000 as $$
  with rested as materialized (select ipledger_audit.rested_by(pool_touched.network, now()) as by),
  listed as materialized (
    select set_masklen(network(set_masklen(v.address, pool_touched.prefix_length))::inet, -1) as address
      from ipledger_audit.sightings v
     where v.network = pool_touched.network and v.address >= set_masklen(network(pool_touched.cidr)::inet, -1)
       and v.address <= set_masklen(broadcast(pool_touched.cidr), -1) and v.rests_until > (select r.by from rested r)
  )
  select t.address, case when t.state <> 'FREE' then t.state
                         when t.available_at > (select r.by from rested r) or t.address in (select x.address from listed x) then 'COOLING'
                         else 'FREE' end
    from ipledger_audit.touched t
   where t.network = pool_touched.network and t.address >= set_masklen(network(pool_touched.cidr)::inet, -1)
     and t.address <= set_masklen(broadcast(pool_touched.cidr), -1)
     and (pool_touched.prefix_length = masklen(t.address)
          or set_masklen(t.address, pool_touched.prefix_length) = network(set_masklen(t.address, pool_touched.prefix_length))::inet)
$$;
comment on function ipledger_audit.pool_touched(text, cidr, int) is $$The addresses of a CIDR that were ever leased and at which a lease of this length can begin, as they are now. Columns: address (of a block
the first one), state (FREE, COOLING, RESERVED, ACTIVE, QUARANTINED).
Example: select t.state, count(*) from pool p, pool_touched(p.network, p.cidr, (p.settings ->> 'prefixLength')::int) t group by t.state;$$;

create view ipledger_audit.pool_samples as
  select s.network_id as network, s.pool_id, s.at, s.size, s.size - s.excluded as allocatable, s.free, s.cooling, s.reserved, s.active,
         s.quarantined, s.excluded
    from ipledger.pool_sample s;
comment on view ipledger_audit.pool_samples is $$How full each pool was, once a minute, for 90 days. By name and with the ratio: pool_usage_history.
Columns: network; pool_id (number of the event that made it); at (the minute); size, allocatable, free, cooling, reserved, active,
quarantined, excluded (leases).
Example: select max(at) from pool_samples where network = 'default';$$;

create view ipledger_audit.pool_usage as
  select p.network_id as network, p.name as pool, p.cidr, family(p.cidr)::smallint as family, s.size, s.allocatable, s.free, s.cooling,
         s.reserved, s.active, s.quarantined, s.excluded, ((s.reserved + s.active + s.quarantined) / nullif(s.allocatable, 0))::float8 as used_ratio,
         (p.settings ->> 'draining')::boolean as draining, s.at
    from ipledger.pool p
   cross join lateral (
     select x.* from ipledger_audit.pool_samples x where x.network = p.network_id and x.pool_id = p.pool_id order by x.at desc limit 1) s;
comment on view ipledger_audit.pool_usage is $$How full each pool is, counted by a job once a minute; a new pool appears within a minute. Counts are leases, of the pool's size each;
free + cooling + reserved + active + quarantined + excluded = size. For this moment: `ipledger pool list`.
Columns: network; pool; cidr; family (4, 6); size; allocatable (size without excluded); free (cooled and not held); cooling; reserved;
active; quarantined; excluded; used_ratio (reserved, active and quarantined of allocatable: 0 to 1; null: nothing is allocatable); draining
(hands nothing out); at (the minute).
Example: select pool, size, free, cooling, active, quarantined, round(100 * used_ratio) as percent from pool_usage where network = 'default';$$;

create function ipledger_audit.pool_usage_history(
    inout network text, inout pool text, "from" timestamptz, "to" timestamptz,
    out at timestamptz, out cidr cidr, out family smallint, out size numeric, out allocatable numeric, out free numeric, out cooling numeric, out reserved bigint,
    out active bigint, out quarantined bigint, out excluded numeric, out used_ratio float8)
  returns setof record language sql stable as $$
  select pool_usage_history.network, pool_usage_history.pool, s.at, p.cidr, family(p.cidr)::smallint, s.size, s.allocatable, s.free, s.cooling, s.reserved,
         s.active, s.quarantined, s.excluded, ((s.reserved + s.active + s.quarantined) / nullif(s.allocatable, 0))::float8
    from (select distinct on (l.pool_id) l.pool_id, (l.evidence ->> 'cidr')::cidr as cidr, l.evidence ->> 'name' as name
            from ipledger_audit.log l
           where l.network_id = pool_usage_history.network and l.address is null and l.type in ('pool.created', 'pool.updated', 'pool.deleted')
           order by l.pool_id, l.seq desc) p
    join ipledger_audit.pool_samples s on s.network = pool_usage_history.network and s.pool_id = p.pool_id
                                      and s.at >= pool_usage_history."from" and s.at <= pool_usage_history."to"
   where p.name = pool_usage_history.pool
   order by s.at
$$;
comment on function ipledger_audit.pool_usage_history(text, text, timestamptz, timestamptz) is $$How full a pool was between two times (both included), a row a minute, for 90 days; of deleted pools of that name too.
Columns: those of view `pool_samples`; pool; cidr and family (4, 6) as they are now; used_ratio (as in pool_usage).
Example: select at, free, cooling, active from pool_usage_history('default', 'default', now() - interval '6 hours', now());$$;

create view ipledger_audit.pool_forecast as
  select f.network, f.pool, f.free, f.cooling, f.leases_per_hour,
         case when f.leases_per_hour > 0 and f.free / f.leases_per_hour::numeric < 876000
              then make_interval(secs => greatest(0, f.free / f.leases_per_hour::numeric * 3600)::float8) end as exhausted_in,
         f.at
    from (select p.network_id as network, p.name as pool, r.free, r.cooling, r.leases_per_hour, r.at
            from ipledger.pool p
            cross join lateral (
              select (array_agg(s.free order by s.at desc))[1] as free, (array_agg(s.cooling order by s.at desc))[1] as cooling, max(s.at) as at,
                     case when count(*) >= 5
                          then regr_slope((s.cooling + s.reserved + s.active + s.quarantined)::float8, extract(epoch from s.at)::float8) * 3600 end as leases_per_hour
                from ipledger.pool_sample s
               where s.network_id = p.network_id and s.pool_id = p.pool_id and s.at > now() - interval '1 hour') r
           where r.at is not null) f;
comment on view ipledger_audit.pool_forecast is $$When each pool will have nothing free, if it goes on as in the last hour: the net growth of held and cooling leases, least squares over
the samples of a minute each.
Columns: network; pool; free, cooling (by the last sample, leases); leases_per_hour (net; negative: it empties; null: fewer than five
samples); exhausted_in (from the last sample on; null: it does not fill, or not within a century); at (the last sample).
Example: select pool, free, leases_per_hour, exhausted_in from pool_forecast where exhausted_in < interval '1 day';$$;

create function ipledger_audit.pool_parts(cidr cidr, length int) returns table (part int, first_address inet)
  language sql immutable as $$
  with recursive x (part, first_address) as (
    select 0, set_masklen(pool_parts.cidr::inet, pool_parts.length)
    union all
    select x.part + 1, set_masklen(set_masklen(broadcast(x.first_address), -1) + 1, pool_parts.length)
      from x where x.part + 1 < 1 << (pool_parts.length - masklen(pool_parts.cidr))
  )
  select x.part, x.first_address from x
$$;
comment on function ipledger_audit.pool_parts(cidr, int) is $$The equal parts of a CIDR, by the length of their masks. A helper of pool_map. Columns: part (0, 1, …); first_address (the part's CIDR).
Example: select part, first_address from pool_parts('10.8.64.0/20', 24);$$;

create view ipledger_audit.pool_map as
  select m.network, m.pool, m.part, m.first_address, m.size, m.cooling, m.reserved, m.active, m.quarantined,
         ((m.cooling + m.reserved + m.active + m.quarantined) / m.size)::float8 as used_ratio
    from (select p.network_id as network, p.name as pool, x.part, x.first_address,
                 trunc(power(2::numeric, p.prefix_length - masklen(x.first_address))) as size, coalesce(c.cooling, 0) as cooling,
                 coalesce(c.reserved, 0) as reserved, coalesce(c.active, 0) as active, coalesce(c.quarantined, 0) as quarantined
            from ipledger.pool p
           cross join lateral ipledger_audit.pool_parts(p.cidr, least(masklen(p.cidr) + 8, p.prefix_length)) x
            left join (
              select p.network_id, p.name, network(set_masklen(t.address, least(masklen(p.cidr) + 8, p.prefix_length)))::inet as first_address,
                     count(*) filter (where t.state = 'COOLING') as cooling, count(*) filter (where t.state = 'RESERVED') as reserved,
                     count(*) filter (where t.state = 'ACTIVE') as active, count(*) filter (where t.state = 'QUARANTINED') as quarantined
                from ipledger.pool p
               cross join lateral ipledger_audit.pool_touched(p.network_id, p.cidr, p.prefix_length) t
               group by 1, 2, 3) c
              on c.network_id = p.network_id and c.name = p.name and c.first_address = x.first_address) m;
comment on view ipledger_audit.pool_map is $$Where in its CIDR a pool is used now: up to 256 equal parts, in order of address. Ask for one pool: it counts all of its leases.
Columns: network; pool; part (0, 1, …); first_address (the part's CIDR); size (leases that fit in it, excluded ones too); cooling,
reserved, active, quarantined (leases of it); used_ratio (those four, of size: 0 to 1).
Example: select part, first_address, used_ratio from pool_map where network = 'default' and pool = 'web' and used_ratio > 0 order by part;$$;
