-- What needs a person.

create view ipledger_audit.verification as
  select n.network_id as network, v.verified_seq as looked_up_to, encode(v.digest, 'hex') as digest, v.started_at,
         v.finished_at as all_looked_at,
         case when v.network_id is null or v.finished_at >= v.started_at then '' else coalesce(split_part(v.part, ' ', 1), 'log') end as now_at,
         coalesce(json_array_length(v.findings), 0) as findings
    from ipledger.network_lock n
    left join ipledger.verification v on v.network_id = n.network_id;
comment on view ipledger_audit.verification is $$How far the log of each network was verified, and when: all of it, again and again. What was found is in `verify_findings`.

Columns: network; looked_up_to (number of the last event that this look has read) and its digest (hexadecimal: kept elsewhere, it finds a
missing tail with `ipledger verify --against`); started_at (of this look); all_looked_at (when the last look that came to its end did);
now_at (the part it is at: log, lease, shape, source; empty: it rests); findings (how many are known).

Example:
  select network, looked_up_to, all_looked_at, findings from verification order by all_looked_at nulls first;$$;

create view ipledger_audit.verify_findings as
  select v.network_id as network, f.what, f.address::inet as address, f.seq, f.expected, f.found, f.message,
         to_timestamp(f."foundAt" / 1000) as found_at, to_timestamp(f."seenAt" / 1000) as seen_at
    from ipledger.verification v
   cross join lateral json_to_recordset(v.findings)
     as f (what text, address text, seq bigint, expected text, found text, message text, "foundAt" float8, "seenAt" float8);
comment on view ipledger_audit.verify_findings is $$Where a log and its tables differ, or a log is not whole: what verification found and no later look at all of the network has missed; the
first hundred. Empty: nothing is known to be wrong; see `verification` for when that was looked at.

Columns: network; what (EVENT_ALTERED, LEASE_DIFFERS, …); address, seq (what it is about; null: not about one); expected (by the log);
found (in the table); message (a sentence); found_at (first), seen_at (last).

Example:
  select what, address, seq, message, found_at from verify_findings where network = 'default' order by found_at;$$;

-- The judge's word for who is a witness (core/judge.ts): whoever has listed the owner there, and whoever is enabled, covers the
-- lease, and was before it was made.
create view ipledger_audit.unwitnessed as
  with covering as materialized (
    select s.network_id, s.declaration ->> 'node' as node, s.enabled_seq, s.declaration::jsonb -> 'ownerKinds' as kinds,
           s.declaration::jsonb -> 'families' as families
      from ipledger.source s where s.state = 'ENABLED'
  ),
  wide as materialized (select c.* from covering c where c.node = ''),
  -- A few looks at indexes for each lease, whatever the planner thinks.
  held as materialized (
    select e.* from ipledger.lease l
     cross join lateral (
       select x.network_id, x.address, x.prefix_length, x.token, x.pool_id, x.at, x.owner_kind, x.owner_uid, x.node,
              l.state = 'QUARANTINED' and x.quarantine_reason = 'OPERATOR' as by_operator
         from ipledger.event x where x.network_id = l.network_id and x.seq = l.seq offset 0) e
     where l.state <> 'FREE' and l.confirm_by is null
       and (select v.address from ipledger.sighting v
             where v.network_id = l.network_id and v.address >= l.address
               and v.address <= set_masklen(broadcast(set_masklen(l.address, e.prefix_length)), -1)
               and (e.owner_kind is null or v.owner_kind = e.owner_kind and v.owner_uid = e.owner_uid)
             order by v.network_id, v.address limit 1) is null
  )
  select e.network_id as network, set_masklen(e.address, e.prefix_length) as address, e.network_id || '/' || e.token as lease_id, e.pool_id,
         e.at as since, e.owner_kind
    from held e
   where not e.by_operator and e.owner_kind is distinct from 'infrastructure'
     and not exists (
       select from wide c
        where c.network_id = e.network_id and c.enabled_seq < e.token and c.families @> to_jsonb(family(e.address))
          and (e.owner_kind is null or c.kinds ? e.owner_kind))
     and not exists (
       select from covering c
        where c.network_id = e.network_id and c.node = e.node and c.node <> '' and c.enabled_seq < e.token
          and c.families @> to_jsonb(family(e.address)) and (e.owner_kind is null or c.kinds ? e.owner_kind));
comment on view ipledger_audit.unwitnessed is $$Leases without a witness, a deadline or an operator's word: no source can say that they have ended, so they are held until they are
released, or an operator reaps them. Reads every lease.

Columns: network; address (a block with its mask); lease_id; pool_id; since (its last change); owner_kind.

Example:
  select count(*) from unwitnessed where network = 'default';$$;

create view ipledger_audit.attention as
  select a.network, a.code, a.source, a.lease_id, a.address, coalesce(ipledger_audit.pool_name(a.network, a.pool_id), '') as pool, a.since,
         now() - a.since as age, a.what
    from (
      select n.network_id as network, 'NETWORK_RECOVERING' as code, '' as source, null as lease_id, null::inet as address, null::bigint as pool_id,
             n.updated_at as since, concat('era ', n.era, ' is recovering: nothing is handed out or taken back until every enabled source has reported twice, or an operator ends it') as what
        from ipledger.network n where n.recovering is not null
      union all
      select h.network, 'HELD', '', null, null, null, h.at, concat('held (', h.hold, '): ', h.why, '; ',
             case when h.until is null then 'an operator resumes it' else 'it ends ' || ipledger_audit.moment(h.until) || ', or an operator resumes it' end)
        from ipledger_audit.holds h
      union all
      select v.network, 'BOOKS_DIFFER', '', null, null, null, min(v.found_at), concat(count(*), ' findings of verify, the first: ', min(v.message))
        from ipledger_audit.verify_findings v group by v.network
      union all
      select s.network, c.code, s.source, null, null, null, c.since, c.what
        from ipledger_audit.sources s
       cross join lateral (
         select 'SOURCE_SILENT', now() - s.lag, 'has not reported for more than two intervals; what it listed stays barred, and nothing that it is a witness of is taken back'
                || coalesce('; it is asked in vain: ' || s.failure, '')
          where s.lag > 2 * s.interval
         union all
         select 'SOURCE_PARTIAL', now() - s.complete_lag, 'reports, and its lists are not complete (' || (s.partial_because #>> '{}') || '), so nothing is missed in them'
          where s.lag <= 2 * s.interval and s.complete_lag > 3 * s.interval
         union all
         select 'SOURCE_COLD', now() - s.complete_lag, 'reports, and is not warm: two complete reports of one epoch are wanted, the second with no more entries than the first'
          where s.lag <= 2 * s.interval and s.complete_lag <= 3 * s.interval and not s.warm) as c (code, since, what)
       where s.state = 'ENABLED'
      union all
      select q.network, 'OPERATOR_ONLY', '', q.lease_id, q.address, p.pool_id, q.quarantined_at, concat('set aside as ', q.quarantine_reason, ' (', q.quarantine_why, '): ', q.exit)
        from ipledger_audit.quarantines q left join ipledger_audit.pool p on p.network = q.network and p.pool = q.pool
       where q.quarantine_reason = 'OPERATOR' or q.owner_kind = 'infrastructure'
      union all
      select u.network, 'NO_WITNESS', '', u.lease_id, u.address, u.pool_id, u.since, 'no source can say when it has ended: it is held until it is released, or an operator reaps it'
        from ipledger_audit.unwitnessed u
       where exists (select from ipledger.source s where s.network_id = u.network and s.state = 'ENABLED')
      union all
      select q.network, 'LOOKUP_FAILING', q.source, q.lease_id, q.address, null, q.question_at, q.what
        from ipledger_audit.suspects q where q.answer in ('error', 'unknown', 'wanted') and q.attempts >= 3) a;
comment on view ipledger_audit.attention is $$What waits for a person, or for an answer that does not come. Leases without a witness are listed where the network has an enabled
source; view `unwitnessed` has them all. Reads every lease: name the network, or codes.

Columns: network; code (NETWORK_RECOVERING, HELD, BOOKS_DIFFER, SOURCE_SILENT, SOURCE_PARTIAL, SOURCE_COLD, OPERATOR_ONLY, NO_WITNESS,
LOOKUP_FAILING); source (empty: none); lease_id, address, pool (null, null and empty: about none); since; age; what (a sentence).

Example:
  select code, source, address, age, what from attention where network = 'default' order by since;$$;
