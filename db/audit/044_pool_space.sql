create or replace function ipledger_audit.pool_space(settings jsonb, out size numeric, out allocatable numeric)
  language sql immutable
as $$
  with pool as (
    select ipledger_audit.address_number(set_masklen(network((settings ->> 'cidr')::inet)::inet, -1)) as first,
           ipledger_audit.address_number(set_masklen(broadcast((settings ->> 'cidr')::inet), -1)) as last,
           trunc(power(2::numeric, case family((settings ->> 'cidr')::inet) when 4 then 32 else 128 end - (settings ->> 'prefixLength')::int)) as block
  ),
  whole as (
    select p.first, p.last, p.block, div(p.last - p.first + 1, p.block) as size from pool p
  ),
  excluded as (
    select sum(upper(r.range) - lower(r.range)) as blocks
      from (select unnest(range_agg(numrange(div(greatest(ipledger_audit.address_number(x.first), w.first) - w.first, w.block),
                                            div(least(ipledger_audit.address_number(x.last), w.last) - w.first, w.block) + 1))) as range
              from whole w cross join ipledger_audit.pool_exclusions(settings) x
             where ipledger_audit.address_number(x.first) <= w.last and ipledger_audit.address_number(x.last) >= w.first) r
  )
  select w.size, w.size - coalesce(e.blocks, 0) from whole w cross join excluded e
$$;
comment on function ipledger_audit.pool_space(jsonb) is
$$How many leases a pool's CIDR holds, and how many of them can be handed out. `settings` is that of view `pool`. Columns: size,
allocatable; a v6 /48 holds 2^80 addresses.

Example:
  select p.pool, s.size, s.allocatable from pool p, pool_space(p.settings) s where p.network = 'default';$$;
