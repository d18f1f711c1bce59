create or replace view ipledger_audit.verify_findings as
  select v.network_id as network, v.what, v.address, v.lease_id, coalesce(v.pool, '') as pool, v.seq, v.expected, v.found, v.message,
         v.found_at, v.seen_at
    from ipledger.verify_finding v;
comment on view ipledger_audit.verify_findings is
$$Where a log and its projections differ, or a log is not whole: what verification found, by a job or by `ipledger verify`, and no later
look at all of the network has missed. Empty: nothing is known to be wrong; see `verification` for when that was looked at.

Columns: network; what (LEASE_DIFFERS, EVENT_MISSING, …); address, lease_id, pool, seq (what it is about; null or empty: not about
one); expected (by the log); found (in the projections); message (a sentence); found_at (first), seen_at (last).

Example:
  select what, address, seq, message, found_at from verify_findings where network = 'default' order by found_at;$$;
