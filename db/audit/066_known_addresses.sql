-- From one address to the next: one look at the index for each, whatever happened to it.
create or replace function ipledger_audit.known_addresses(network text, address inet) returns setof inet
  language sql stable
as $$
  with recursive bounds as (
    select set_masklen(network(known_addresses.address)::inet, -1) as first, set_masklen(broadcast(known_addresses.address), -1) as last
  ),
  known (address) as (
    (select l.address from bounds b cross join lateral (
       select l.address from ipledger_audit.log l
        where l.network_id = known_addresses.network and l.address > b.first and l.address <= b.last
        order by l.address, l.seq limit 1) l)
    union all
    select n.address from known k cross join bounds b cross join lateral (
      select l.address from ipledger_audit.log l
       where l.network_id = known_addresses.network and l.address > k.address and l.address <= b.last
       order by l.address, l.seq limit 1) n
  )
  select k.address from known k
$$;
comment on function ipledger_audit.known_addresses(text, inet) is
$$The addresses of a CIDR, but for its first, at which a lease ever began.

Example:
  select count(*) from known_addresses('default', '10.8.64.0/24');$$;
