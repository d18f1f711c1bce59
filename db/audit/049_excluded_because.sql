create or replace function ipledger_audit.excluded_because(settings jsonb, address inet) returns text
  language sql immutable
as $$
  select string_agg(distinct x.why, '; ')
    from (select set_masklen(network(b.block)::inet, -1) as first, set_masklen(broadcast(b.block), -1) as last
            from (select set_masklen(address, (settings ->> 'prefixLength')::int) as block) b) b
    cross join ipledger_audit.pool_exclusions(settings) x
   where x.first <= b.last and x.last >= b.first
$$;
comment on function ipledger_audit.excluded_because(jsonb, inet) is
$$Why a pool never hands out an address, or the block that it lies in; null if it does. `settings` is that of view `pool`.

Example:
  select excluded_because(settings, '10.8.64.1') from pool where network = 'default';$$;
