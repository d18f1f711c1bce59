create or replace function ipledger_audit.pool_usage_history(
    inout network text, inout pool text, "from" timestamptz, "to" timestamptz,
    out at timestamptz, out cidr cidr, out family smallint, out size numeric, out allocatable numeric, out free numeric, out cooling bigint, out reserved bigint,
    out active bigint, out quarantined bigint, out excluded numeric, out used_ratio float8)
  returns setof record language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  select pool_usage_history.network, pool_usage_history.pool, s.at, p.cidr, family(p.cidr)::smallint, s.size, s.allocatable, s.free, s.cooling, s.reserved,
         s.active, s.quarantined, s.excluded, ((s.reserved + s.active + s.quarantined) / nullif(s.allocatable, 0))::float8
    from (select distinct on (l.pool_id) l.pool_id, (l.settings #>> '{pool,cidr}')::cidr as cidr, l.settings #>> '{pool,name}' as name
            from ipledger_audit.log l
           where l.network_id = pool_usage_history.network and l.type in ('pool.created', 'pool.updated', 'pool.deleted')
           order by l.pool_id, l.seq desc) p
    cross join lateral (
      select x.* from ipledger_audit.pool_samples x
       where x.network = pool_usage_history.network and x.pool_id = p.pool_id
         and x.at >= pool_usage_history."from" and x.at <= pool_usage_history."to"
       order by x.at) s
   where p.name = pool_usage_history.pool
   order by s.at
$$;
comment on function ipledger_audit.pool_usage_history(text, text, timestamptz, timestamptz) is
$$How full a pool was between two times (both included), a row a minute, for 90 days; of deleted pools of that name too.

Columns: network; pool; at (the minute); cidr and family (4, 6) as they are now; size, allocatable, free, cooling, reserved, active,
quarantined, excluded (leases); used_ratio (as in pool_usage).

Example:
  select at, free, cooling, active from pool_usage_history('default', 'default', now() - interval '6 hours', now());$$;
