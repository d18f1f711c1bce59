create or replace function ipledger_audit.marks("from" timestamptz, "to" timestamptz)
  returns table (network text, seq bigint, at timestamptz, mark text, what text)
  language sql stable
as $$
  select e.network, e.seq, e.at,
         case e.type when 'lease.reaped' then 'reap' when 'lease.quarantined' then 'conflict' when 'era.begun' then 'era'
                     when 'node.fenced' then 'fence' else 'hold' end,
         e.what
    from ipledger_audit.event e
   where e.at >= "from" and e.at <= "to"
     and (e.type in ('lease.reaped', 'era.begun', 'node.fenced', 'reconcile.held', 'reconcile.resumed')
          or (e.type = 'lease.quarantined' and e.quarantine_reason = 'CONFLICT'))
$$;
comment on function ipledger_audit.marks(timestamptz, timestamptz) is
$$What a chart marks: reaps, conflicts, new eras, fences, holds and their ends, in a span of time. It reads every event of the span.
Columns: network; seq; at; mark (reap, conflict, era, fence, hold); what (a sentence).

Example:
  select at, mark, what from marks(now() - interval '1 day', now()) where network = 'default' order by at;$$;
