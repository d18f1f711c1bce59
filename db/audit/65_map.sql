-- How the addresses of a CIDR were, all at once.

-- As explain_address says it of each; a test compares them.
create function ipledger_audit.addresses_at(network text, cidr inet, at timestamptz default now(), upto bigint default null)
  returns table (address inet, prefix_length smallint, state text, lease_id text, owner_kind text, owner_name text, node text)
  language sql stable rows 1000 as $$
  with asked as materialized (
    select coalesce(addresses_at.upto, ipledger_audit.position_at(addresses_at.network, addresses_at.at)) as upto,
           ipledger_audit.rested_by(addresses_at.network, addresses_at.at) as rested_by,
           (select l.seq from ipledger_audit.log l where l.network_id = addresses_at.network order by l.seq desc limit 1) as head
  )
  select e.address, e.prefix_length,
         case when e.state <> 'FREE' then e.state
              when e.available_at > a.rested_by or (a.upto = a.head and exists (
                select from ipledger_audit.sightings v
                 where v.network = addresses_at.network and v.address >= e.address
                   and v.address <= set_masklen(broadcast(set_masklen(e.address, e.prefix_length)), masklen(e.address))
                   and v.rests_until > a.rested_by)) then 'COOLING'
              else 'FREE' end,
         e.network_id || '/' || e.fencing_token, e.owner_kind, e.owner_name, nullif(e.node, '')
    from asked a
   cross join lateral ipledger_audit.last_events(addresses_at.network, ipledger_audit.plain_address(addresses_at.cidr), a.upto) e
   order by e.address
$$;
comment on function ipledger_audit.addresses_at(text, inet, timestamptz, bigint) is $$The addresses of a CIDR at which a lease had begun by a time, as they were then. `upto` is the last event that counts, of several that
have this time. What its pool excludes is in pool_exclusions.
Columns: address (of a block the first one); prefix_length (of the lease); state (FREE, COOLING, RESERVED, ACTIVE, QUARANTINED); lease_id (of a
free one the last lease); owner_kind, owner_name, node (of that lease).
Example: select address, state, owner_name from addresses_at('default', '10.8.64.0/24', now() - interval '1 hour') where state <> 'FREE';$$;
