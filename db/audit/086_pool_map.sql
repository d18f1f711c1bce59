create or replace view ipledger_audit.pool_map as
  select p.network_id as network, p.name as pool, m.part,
         set_masklen(ipledger_audit.address_at(p.family, d.first + m.part * d.step), masklen(p.cidr) + d.bits) as first_address,
         d.size, m.cooling, m.reserved, m.active, m.quarantined,
         ((m.cooling + m.reserved + m.active + m.quarantined) / d.size)::float8 as used_ratio
    from ipledger.pool p
   cross join lateral (
     select s.bits, ipledger_audit.address_number(set_masklen(network(p.cidr)::inet, -1)) as first,
            trunc(power(2::numeric, case p.family when 4 then 32 else 128 end - masklen(p.cidr) - s.bits)) as step,
            trunc(power(2::numeric, s.prefix_length - masklen(p.cidr) - s.bits)) as size
       from (select least(8, (p.settings ->> 'prefixLength')::int - masklen(p.cidr)) as bits,
                    (p.settings ->> 'prefixLength')::int as prefix_length) s) d
   cross join lateral (
     select x.part, count(*) filter (where x.state = 'COOLING') as cooling, count(*) filter (where x.state = 'RESERVED') as reserved,
            count(*) filter (where x.state = 'ACTIVE') as active, count(*) filter (where x.state = 'QUARANTINED') as quarantined
       from (select g.part, null as state from generate_series(0, (1 << d.bits) - 1) as g (part)
             union all
             select div(ipledger_audit.address_number(t.address) - d.first, d.step)::int, t.state
               from (select l.address, l.state from ipledger.lease l
                      where l.network_id = p.network_id and l.pool_id = p.pool_id
                        and l.address >= set_masklen(network(p.cidr)::inet, -1) and l.address <= set_masklen(broadcast(p.cidr)::inet, -1)
                     union all
                     select r.address, 'COOLING' from ipledger.released_address r
                      where r.network_id = p.network_id and r.pool_id = p.pool_id and r.available_at > now()) t) x
      group by x.part) m;
comment on view ipledger_audit.pool_map is
$$Where in its CIDR a pool is used now: each pool cut into up to 256 equal parts, in order of address. Ask for one pool: it counts all
of its leases.

Columns: network; pool; part (0, 1, …); first_address (of the part, which is this CIDR); size (leases that fit in it, excluded ones too);
cooling, reserved, active, quarantined (leases of it); used_ratio (those four, of size: 0 to 1).

Example:
  select part, first_address, used_ratio from pool_map where network = 'default' and pool = 'web' and used_ratio > 0 order by part;$$;
