-- Leases that begin before the CIDR and reach into it can only be blocks that hold its first address.
create or replace function ipledger_audit.held_at(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable
as $$
  select e.*
    from ipledger_audit.last_events(held_at.network, set_masklen(network(held_at.address)::inet, -1), held_at.upto) e
   where e.type not in ('lease.released', 'lease.reaped')
  union all
  select e.*
    from ipledger_audit.known_addresses(held_at.network, held_at.address) as k (address)
    cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = held_at.network and l.address >= k.address and (l.address, l.seq) <= (k.address, held_at.upto)
       order by l.address desc, l.seq desc limit 1) e
   where e.type not in ('lease.released', 'lease.reaped')
$$;
comment on function ipledger_audit.held_at(text, inet, bigint) is
$$The leases that were held after an event, of an address or of a CIDR, each as the event that made it so. Rows of view `log`. Costs two
looks at an index for each address of the CIDR that was ever held; for a whole network leases_as_of is cheaper.

Example:
  select seq, address, owner_name from held_at('default', '10.8.64.0/24', 1000);$$;
