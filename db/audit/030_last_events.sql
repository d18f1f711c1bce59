-- Both columns of the order are compared together, so that only the index by address serves, and begins at the number
-- asked for, whatever came to the address since.
create or replace function ipledger_audit.last_events(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 1
as $$
  select e.*
    from ipledger_audit.possible_bases(last_events.address) as b (base)
    cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = last_events.network and l.address >= b.base and (l.address, l.seq) <= (b.base, last_events.upto)
       order by l.address desc, l.seq desc limit 1) e
   where set_masklen(e.address, e.prefix_length) >>= last_events.address
$$;
comment on function ipledger_audit.last_events(text, inet, bigint) is
$$The last event, up to a number, of every lease that ever began where one that holds the address could. At most one of them is of a lease
that was held then. Rows of view `log`.

Example:
  select seq, type, address from last_events('default', '10.8.64.2', 1000);$$;
