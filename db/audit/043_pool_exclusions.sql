-- What core/ranges.ts says can be leased; a test compares the two.
create or replace function ipledger_audit.pool_exclusions(settings jsonb) returns table (first inet, last inet, why text)
  language sql immutable
as $$
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
comment on function ipledger_audit.pool_exclusions(jsonb) is
$$What a pool never hands out, as ranges of addresses: its gateway, what its settings exclude, and, of a pool of single addresses, the
addresses of its subnet that no workload can use. A block that one of them touches is not handed out. `settings` is that of view `pool`.
Columns: first, last, why.

Example:
  select p.pool, x.* from pool p, pool_exclusions(p.settings) x where p.network = 'default';$$;
