create or replace function ipledger_audit.event_rate("from" timestamptz, "to" timestamptz, step interval default '1 minute')
  returns table (network text, at timestamptz, type text, cause text, events bigint, per_second float8)
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  select l.network_id, date_bin(event_rate.step, l.at, 'epoch'::timestamptz), l.type, l.cause, count(*),
         count(*) / extract(epoch from event_rate.step)::float8
    from ipledger_audit.network n
    cross join lateral (
      select x.network_id, x.at, x.type, x.cause from ipledger_audit.log x
       where x.network_id = n.network and x.at >= event_rate."from" and x.at <= event_rate."to"
       order by x.at, x.seq) l
   group by 1, 2, 3, 4
   order by 1, 2, 3, 4
$$;
comment on function ipledger_audit.event_rate(timestamptz, timestamptz, interval) is
$$How many events there were between two times (both included), in steps. Reads every event of that time.

Columns: network; at (begin of the step, counted from 1970); type; cause (call or finding); events; per_second. Steps without events have
no row.

Example:
  select at, sum(events) from event_rate(now() - interval '1 hour', now(), '5 minutes') where network = 'default' group by at order by at;$$;
