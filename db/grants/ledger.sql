-- Rights of each role to what the log is kept in. graphile-worker's own schema belongs to ipledger_jobs.

revoke all on schema ipledger from public, ipledger_service, ipledger_jobs, ipledger_auditor;
revoke all on all tables in schema ipledger from public, ipledger_service, ipledger_jobs, ipledger_auditor;

grant usage on schema ipledger to ipledger_service;
grant select on all tables in schema ipledger to ipledger_service;

-- The log is append-only: only its owner may change or delete an event.
grant insert on ipledger.event to ipledger_service;
-- `for no key update` needs the right to update one column. Nothing ever updates it.
grant insert, update (network_id) on ipledger.network_lock to ipledger_service;
grant insert, update on
  ipledger.lease, ipledger.network, ipledger.pool, ipledger.source, ipledger.source_report, ipledger.sighting,
  ipledger.source_failure, ipledger.lookup, ipledger.request, ipledger.pool_sample, ipledger.attention,
  ipledger.verification
  to ipledger_service;
grant delete on
  ipledger.pool, ipledger.source_failure, ipledger.sighting, ipledger.lookup, ipledger.request, ipledger.pool_sample, ipledger.attention
  to ipledger_service;
