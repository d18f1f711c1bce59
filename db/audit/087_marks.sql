create or replace function ipledger_audit.marks("from" timestamptz, "to" timestamptz)
  returns table (network text, seq bigint, at timestamptz, mark text, what text)
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
  select n.network, e.seq, e.at,
         case e.type when 'lease.reaped' then 'reap' when 'lease.quarantined' then 'conflict' when 'era.begun' then 'era'
                     when 'node.fenced' then 'fence' else 'hold' end,
         e.what
    from ipledger_audit.network n
    cross join lateral (
      select l.seq, l.at, l.type, l.what, l.quarantine_reason from ipledger_audit.event l
       where l.network = n.network and l.at >= marks."from" and l.at <= marks."to"
         and l.type in ('lease.reaped', 'lease.quarantined', 'era.begun', 'node.fenced', 'reconcile.held', 'reconcile.resumed')) e
   where e.type <> 'lease.quarantined' or e.quarantine_reason = 'CONFLICT'
$$;
comment on function ipledger_audit.marks(timestamptz, timestamptz) is
$$What a chart marks: reaps, conflicts, new eras, fences, holds and their ends, between two times (both included).
Columns: network; seq; at; mark (reap, conflict, era, fence, hold); what (a sentence).

Example:
  select at, mark, what from marks(now() - interval '1 day', now()) where network = 'default' order by at;$$;
