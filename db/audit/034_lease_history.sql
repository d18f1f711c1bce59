-- Leases of an address follow one another, so those of one lie between its first event and its end.
create or replace function ipledger_audit.lease_history(lease_id text)
  returns setof ipledger_audit.event language sql stable rows 10
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  with named as materialized (
    select split_part(lease_history.lease_id, '/', 1) as network, split_part(lease_history.lease_id, '/', 2)::bigint as token
     where lease_history.lease_id ~ '^[^/]{1,63}/[1-9][0-9]{0,15}$'
  ),
  span as materialized (
    select b.network_id, b.address, b.seq as first, coalesce(ended.seq, 9223372036854775807) as last
      from named n
      join ipledger_audit.log b on b.network_id = n.network and b.seq = n.token and b.fencing_token = n.token
      left join lateral (
        select x.seq from ipledger_audit.log x
         where x.network_id = b.network_id and x.address <= b.address and (x.address, x.seq) > (b.address, b.seq)
           and x.type in ('lease.released', 'lease.reaped')
         order by x.address, x.seq limit 1) ended on true
  ),
  about as materialized (
    select s.network_id, l.seq from span s cross join lateral (
      select l.seq, l.fencing_token from ipledger_audit.log l
       where l.network_id = s.network_id and l.address = s.address and l.seq >= s.first and l.seq <= s.last) l
     where l.fencing_token = s.first
  )
  select e.* from about a join ipledger_audit.event e on e.network = a.network_id and e.seq = a.seq
   order by e.seq
$$;
comment on function ipledger_audit.lease_history(text) is
$$The life of one lease, from its first event to its end, in order. The id names network and fencing token: 'default/42'.

Columns: those of view `event`.

Example:
  select seq, at, state, what from lease_history('default/42');$$;
