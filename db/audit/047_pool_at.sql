create or replace function ipledger_audit.pool_at(network text, address inet, upto bigint) returns setof ipledger_audit.log
  language sql stable rows 1
as $$
  select p.*
    from (select distinct on (l.pool_id) l.* from ipledger_audit.log l
           where l.network_id = pool_at.network and l.seq <= pool_at.upto and l.type in ('pool.created', 'pool.updated', 'pool.deleted')
           order by l.pool_id, l.seq desc) p
   where (p.settings #>> '{pool,cidr}')::inet >>= pool_at.address
   order by p.type = 'pool.deleted', p.seq desc limit 1
$$;
comment on function ipledger_audit.pool_at(text, inet, bigint) is
$$The pool that an address belonged to after an event, or else the one that was deleted last of those it had belonged to: its last event up
to then, of type pool.deleted if it is gone. Rows of view `log`.

Example:
  select type, settings from pool_at('default', '10.8.64.2', 1000);$$;
