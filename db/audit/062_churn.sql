create or replace function ipledger_audit.churn("from" timestamptz default now() - interval '1 hour', "to" timestamptz default now())
  returns table (network text, by text, key text, reserved bigint, released bigint, reaped bigint, adopted bigint, quarantined bigint)
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  select c.network_id,
         case when c.by_owner = 0 then 'owner' when c.by_node = 0 then 'node' else 'pool' end,
         case when c.by_owner = 0 then c.owner when c.by_node = 0 then c.node else ipledger_audit.pool_name(c.network_id, c.pool_id) end,
         c.reserved, c.released, c.reaped, c.adopted, c.quarantined
    from (select e.network_id, e.owner, e.node, e.pool_id, grouping(e.owner) as by_owner, grouping(e.node) as by_node,
                 count(*) filter (where e.type = 'lease.reserved') as reserved, count(*) filter (where e.type = 'lease.released') as released,
                 count(*) filter (where e.type = 'lease.reaped') as reaped, count(*) filter (where e.type = 'lease.adopted') as adopted,
                 count(*) filter (where e.type = 'lease.quarantined') as quarantined
            from (select l.network_id, l.type, l.owner_kind || ' ' || l.owner_name as owner, nullif(l.node, '') as node, l.pool_id
                    from ipledger_audit.network n
                    cross join lateral (
                      select x.network_id, x.type, x.owner_kind, x.owner_name, x.node, x.pool_id from ipledger_audit.log x
                       where x.network_id = n.network and x.at >= churn."from" and x.at <= churn."to"
                       order by x.at, x.seq) l
                   where l.type in ('lease.reserved', 'lease.released', 'lease.reaped', 'lease.adopted', 'lease.quarantined')) e
           group by grouping sets ((e.network_id, e.owner), (e.network_id, e.node), (e.network_id, e.pool_id))) c
   where (c.by_owner = 0 and c.owner is not null) or (c.by_node = 0 and c.node is not null) or (c.by_owner = 1 and c.by_node = 1)
   order by c.network_id, 2, c.reserved + c.released + c.reaped + c.adopted + c.quarantined desc, 3
$$;
comment on function ipledger_audit.churn(timestamptz, timestamptz) is
$$How many leases came and went between two times (both included; without them the last hour), three times over: by owner, by node and by
pool, the busiest first. Reads every event of that time.

Columns: network; by (owner, node or pool); key (kind and name of the owner, the node, the pool); reserved, released, reaped, adopted,
quarantined (events).

Example:
  select key, reserved, released, reaped from churn() where network = 'default' and by = 'owner' limit 20;$$;
