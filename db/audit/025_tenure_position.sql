create or replace view ipledger_audit.tenure_position as
  select n.network_id as network, coalesce(p.seq, 0) as seq, p.at, coalesce(h.seq, 0) as head, next.at as waiting_since
    from ipledger.network n
    left join ipledger.tenure_position p on p.network_id = n.network_id
    left join lateral (
      select e.seq from ipledger.event e where e.network_id = n.network_id order by e.seq desc limit 1) h on true
    left join lateral (
      select e.at from ipledger.event e where e.network_id = n.network_id and e.seq > coalesce(p.seq, 0) order by e.seq limit 1) next on true;
comment on view ipledger_audit.tenure_position is
$$Up to where view tenure is the log, for each network.

Columns: network; seq (number of the last event it takes account of; 0: none); at (time of that event); head (number of the last event of
the log); waiting_since (time of the first event it does not take account of; null: there is none).

Example:
  select network, head - seq as events, now() - waiting_since as behind from tenure_position;$$;
