create or replace view ipledger_audit.stuck as
  select s.network_id as network, s.code, s.source_id as source, s.network_id || '/' || s.fencing_token as lease_id, s.address,
         coalesce(s.pool, '') as pool, s.since, s.observed_at - s.since as age, s.what, s.observed_at
    from ipledger.stuck_item s;
comment on view ipledger_audit.stuck is
$$What waits for a person, or for an answer that does not come, as a job found it within the last minutes (`ipledger stuck` asks anew).

Columns: network; code (what kind: HELD, SOURCE_SILENT, PROOF_BLOCKED, …); source (empty: none); lease_id, address, pool (null, null and
empty: about none); since; age (when it was observed); what (a sentence); observed_at.

Example:
  select code, source, address, age, what from stuck where network = 'default' order by since;$$;
