-- Rights to what people query.

revoke all on schema ipledger_audit from public, ipledger_service, ipledger_jobs, ipledger_auditor;
grant usage on schema ipledger_audit to ipledger_service, ipledger_auditor;
grant select on all tables in schema ipledger_audit to ipledger_service, ipledger_auditor;
revoke execute on all functions in schema ipledger_audit from public;
grant execute on all functions in schema ipledger_audit to ipledger_service, ipledger_auditor;
