create or replace view ipledger_audit.pool_usage as
  select u.network, u.pool, u.cidr, u.family, u.size, u.allocatable, u.allocatable - u.cooling - u.reserved - u.active - u.quarantined as free,
         u.cooling, u.reserved, u.active, u.quarantined, u.size - u.allocatable as excluded,
         ((u.reserved + u.active + u.quarantined) / nullif(u.allocatable, 0))::float8 as used_ratio, u.draining
    from (select p.network_id as network, p.name as pool, p.cidr, p.family, s.size, s.allocatable,
                 (select count(*) from ipledger.released_address r
                   where r.network_id = p.network_id and r.pool_id = p.pool_id and r.available_at > now()) as cooling,
                 coalesce(c.reserved, 0) as reserved, coalesce(c.active, 0) as active, coalesce(c.quarantined, 0) as quarantined,
                 (p.settings ->> 'draining')::boolean as draining
            from ipledger.pool p
            cross join lateral ipledger_audit.pool_space(p.settings::jsonb) s
            left join lateral (
              select q.reserved, q.active, q.quarantined from ipledger.pool_position q
               where q.network_id = p.network_id and q.pool_id = p.pool_id order by q.seq desc limit 1) c on true) u;
comment on view ipledger_audit.pool_usage is
$$How full each pool is now. Counts are leases, of the pool's size each; free + cooling + reserved + active + quarantined + excluded = size.

Columns: network; pool; cidr; family (4, 6); size; allocatable (size without excluded); free (cooled and not held); cooling; reserved;
active; quarantined; excluded; used_ratio (of what is allocatable, what is held: reserved, active and quarantined; 0 to 1; null: nothing is
allocatable); draining (hands nothing out).

Example:
  select pool, size, free, cooling, active, quarantined, round(100 * used_ratio) as percent from pool_usage where network = 'default';$$;
