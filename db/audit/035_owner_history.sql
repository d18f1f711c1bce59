create or replace function ipledger_audit.owner_history(network text, name text)
  returns setof ipledger_audit.event language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  with about as materialized (
    select l.seq from ipledger_audit.log l
     where l.network_id = owner_history.network and l.owner_name = owner_history.name
     order by l.owner_name, l.seq
  )
  select e.* from about a join ipledger_audit.event e on e.network = owner_history.network and e.seq = a.seq
   order by e.seq
$$;
comment on function ipledger_audit.owner_history(text, text) is
$$Everything that happened to leases of owners of a name, of whatever kind, uid and incarnation, in order, with the closings of its
attachments.

Columns: those of view `event`.

Example:
  select at, address, owner_incarnation, what from owner_history('default', 'default/web-0');$$;
