create or replace view ipledger_audit.pool as
  select p.network_id as network, p.name as pool, p.pool_id, p.family, p.cidr, p.settings::jsonb as settings, p.version, p.created_at, p.updated_at
    from ipledger.pool p;
comment on view ipledger_audit.pool is
$$The pools that are there now. How full they are: pool_usage.

Columns: network; pool (its name); pool_id (number of the event that made it); family (4, 6); cidr; settings (subnet, prefixLength, gateway,
exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels, reapPolicy); version (number of the last event about
it); created_at; updated_at.

Example:
  select pool, cidr, settings ->> 'gateway' as gateway from pool where network = 'default';$$;
