create or replace function ipledger_audit.pool_name(network text, pool_id bigint) returns text
  language sql stable
as $$
  select coalesce(
           (select p.pool from ipledger_audit.pool p where p.network = pool_name.network and p.pool_id = pool_name.pool_id),
           (select c.settings #>> '{pool,name}' from ipledger_audit.log c where c.network_id = pool_name.network and c.seq = pool_name.pool_id),
           '')
$$;
comment on function ipledger_audit.pool_name(text, bigint) is
$$The name of a pool by its number: as it is now, or as it was made if it is gone; empty if nothing is known of it.

Example:
  select pool_name('default', 1);$$;
