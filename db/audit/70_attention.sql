-- Verification of the log, and attention.

create view ipledger_audit.verification as
  select n.network_id as network, v.verified_seq as looked_up_to, encode(v.digest, 'hex') as digest, v.started_at,
         v.finished_at as all_looked_at,
         case when v.network_id is null or v.finished_at >= v.started_at then '' else coalesce(split_part(v.part, ' ', 1), 'log') end as now_at,
         coalesce(json_array_length(v.findings), 0) as findings
    from ipledger.network_lock n
    left join ipledger.verification v on v.network_id = n.network_id;
comment on view ipledger_audit.verification is $$How far the log of each network was verified, and when: all of it, again and again. Findings are in `verify_findings`.
Columns: network; looked_up_to (number of the last verified event) and its digest (hexadecimal: kept elsewhere, it finds a missing tail
with `ipledger verify --against`); started_at (of this run); all_looked_at (end of the last whole run); now_at (its part: log, lease, shape,
source; empty: it rests); findings (how many are known).
Example: select network, looked_up_to, all_looked_at, findings from verification order by all_looked_at nulls first;$$;

create view ipledger_audit.verify_findings as
  select v.network_id as network, f ->> 'what' as what, (f ->> 'address')::inet as address, (f ->> 'seq')::bigint as seq,
         f ->> 'expected' as expected, f ->> 'found' as found, f ->> 'message' as message,
         to_timestamp((f ->> 'foundAt')::float8 / 1000) as found_at, to_timestamp((f ->> 'seenAt')::float8 / 1000) as seen_at
    from ipledger.verification v
   cross join lateral json_array_elements(v.findings) f;
comment on view ipledger_audit.verify_findings is $$Where a log and its tables differ, or a log is not whole: the first hundred findings that the last whole run did not clear. Empty: no
difference is known; `verification` says when that was verified.
Columns: network; what (EVENT_ALTERED, LEASE_DIFFERS, …); address, seq (null: not about one); expected (by the log); found (in the table);
message (a sentence); found_at (first), seen_at (last).
Example: select what, address, seq, message, found_at from verify_findings where network = 'default' order by found_at;$$;

create view ipledger_audit.attention as
  select a.network_id as network, a.rank, a.severity, a.code, a.source_id as source, a.count, a.since, now() - a.since as age, a.address,
         a.lease_id, a.what, a.true_at
    from ipledger.attention a;
comment on view ipledger_audit.attention is $$Matters that wait for a person, as a job judged them once a minute: a row for each network, code and source. `ipledger attention` judges
now, and with --each it lists the leases behind a row.
Columns: network; rank (1: the worst); severity (page or ticket); code (see `ipledger attention --help`); source (empty: none); count (leases,
addresses or findings; the next columns are of the oldest); since; age; address, lease_id (null: not about one); what (a sentence); true_at
(when it was judged).
Example: select severity, code, source, count, age, what from attention where network = 'default' order by rank, source;$$;
