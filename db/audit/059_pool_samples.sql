create or replace view ipledger_audit.pool_samples as
  select s.network_id as network, s.pool_id, s.at, s.size, s.allocatable, s.allocatable - s.cooling - s.reserved - s.active - s.quarantined as free,
         s.cooling, s.reserved, s.active, s.quarantined, s.excluded
    from ipledger.pool_sample s;
comment on view ipledger_audit.pool_samples is
$$How full each pool was, once a minute, for 90 days. By name and with the ratio: pool_usage_history.

Columns: network; pool_id (number of the event that made it); at (the minute); size, allocatable, free, cooling, reserved, active,
quarantined, excluded (leases).

Example:
  select max(at) from pool_samples where network = 'default';$$;
