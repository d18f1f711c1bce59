-- The last event at a base hides those of older pools, whose leases were of another size: it was made in a pool that began with
-- the event `pool_id`, so that they are before that one.
create or replace function ipledger_audit.last_event_of(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 1
as $$
  with recursive found as (
    select e.*
      from ipledger_audit.possible_bases(last_event_of.address) as b (base)
      cross join lateral (
        select l.* from ipledger_audit.log l
         where l.network_id = last_event_of.network and l.address >= b.base and (l.address, l.seq) <= (b.base, last_event_of.upto)
         order by l.address desc, l.seq desc limit 1) e
    union all
    select e.*
      from found f
      cross join lateral (
        select l.* from ipledger_audit.log l
         where l.network_id = last_event_of.network and l.address >= f.address and (l.address, l.seq) < (f.address, f.pool_id)
         order by l.address desc, l.seq desc limit 1) e
     where not set_masklen(f.address, f.prefix_length) >>= last_event_of.address
  )
  select f.* from found f
   where set_masklen(f.address, f.prefix_length) >>= last_event_of.address
   order by f.seq desc limit 1
$$;
comment on function ipledger_audit.last_event_of(text, inet, bigint) is
$$The last event, up to a number, of the lease that held the address then, or was the last to hold it: also of one in a pool that was
deleted since and whose space is leased in another size. Rows of view `log`.

Example:
  select seq, type, address from last_event_of('default', '10.8.64.2', 1000);$$;
