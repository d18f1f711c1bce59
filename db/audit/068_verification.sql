create or replace view ipledger_audit.verification as
  select coalesce(n.network_id, v.network_id) as network, c.seq as in_order_up_to, c.at as in_order_at, v.seq as looked_up_to, v.looked_at,
         v.finished_at as all_looked_at, v.finished_events as all_events, v.finished_ms * interval '1 millisecond' as all_worked,
         case when v.begins_at <= now() then v.part else '' end as now_at, v.events as now_events, v.begins_at as begins_at
    from ipledger.network n
    full join ipledger.verification v on v.network_id = n.network_id
    left join ipledger.verify_checkpoint c on c.network_id = coalesce(n.network_id, v.network_id);
comment on view ipledger_audit.verification is
$$How far the books were verified, and when: the events that are new, within minutes, and all of each network again and again (job
`verify-log`). What was found is in `verify_findings`.

Columns: network; in_order_up_to, in_order_at (the last time nothing was wrong, and with which event the log ended); looked_up_to, looked_at (new events,
whatever was found); all_looked_at, all_events, all_worked (the last look at all of it: when it ended, events, time it worked);
now_at, now_events (the part it is at now, and events so far; empty: it rests); begins_at (of that look, or of the next).

Example:
  select network, in_order_at, all_looked_at, now_at from verification order by in_order_at nulls first;$$;
