create or replace function ipledger_audit.address_history(
    network text, address inet, "from" timestamptz default '-infinity', "to" timestamptz default 'infinity')
  returns setof ipledger_audit.event language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  with span as materialized (
    select ipledger_audit.plain_address(address_history.address) as address,
           set_masklen(network(ipledger_audit.plain_address(address_history.address))::inet, -1) as first,
           ipledger_audit.position_at(address_history.network, address_history."from" - interval '1 microsecond') as after,
           ipledger_audit.position_at(address_history.network, address_history."to") as upto
  ),
  about as materialized (
    select l.seq from span s cross join lateral ipledger_audit.possible_bases(s.first) as b (base)
     cross join lateral (
       select l.seq, l.address, l.prefix_length from ipledger_audit.log l
        where l.network_id = address_history.network and l.address = b.base and l.seq > s.after and l.seq <= s.upto) l
     where set_masklen(l.address, l.prefix_length) >>= s.first
    union all
    select l.seq from span s cross join lateral ipledger_audit.known_addresses(address_history.network, s.address) as k (address)
     cross join lateral (
       select l.seq from ipledger_audit.log l
        where l.network_id = address_history.network and l.address = k.address and l.seq > s.after and l.seq <= s.upto) l
  )
  select e.* from about a join ipledger_audit.event e on e.network = address_history.network and e.seq = a.seq
   order by e.seq
$$;
comment on function ipledger_audit.address_history(text, inet, timestamptz, timestamptz) is
$$Everything that happened to an address, or to the addresses of a CIDR, between two times (both included; without them, ever), in order.
Blocks that hold the address count. No row: nothing ever happened there, or there is no such network. An IPv4 address that is written as
IPv6 (::ffff:10.8.64.2) means the IPv4 one.

Columns: those of view `event`.

Example:
  select seq, at, what from address_history('default', '10.8.64.2', now() - interval '1 day');$$;
