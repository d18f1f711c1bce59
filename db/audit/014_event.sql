create or replace view ipledger_audit.event as
  select l.network_id as network, l.seq, l.at, l.type, set_masklen(l.address, l.prefix_length) as address,
         l.network_id || '/' || l.fencing_token as lease_id, p.pool, l.state,
         l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface, l.node, l.boot,
         l.actor, l.cause, l.quarantine_reason, ipledger_audit.event_sentence(l, p.pool) as what, l.evidence, l.request_id, l.trace_id
    from ipledger_audit.log l
    cross join lateral (
      select case when l.pool_id is null then null
                  when l.type like 'pool.%' then l.settings #>> '{pool,name}'
                  else coalesce((select n.name from ipledger.pool n where n.network_id = l.network_id and n.pool_id = l.pool_id),
                                (select c.settings #>> '{pool,name}' from ipledger.event c where c.network_id = l.network_id and c.seq = l.pool_id),
                                '') end as pool) p;
comment on view ipledger_audit.event is
$$Everything that happened, one row an event: the history of all networks. Filter by network, and by seq, at (a range) or owner_name, or
it reads everything; for one address, lease or owner use address_history, lease_history, owner_history.

Columns: network; seq (number of the event in its network); at; type; address (a block with its mask) and lease_id it is about; pool (its
name now, or as it was made if it is gone); state of the lease after it; owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface, node, boot of the holder after it; actor (token or job that did it); cause (call or finding); quarantine_reason; what (a
sentence); evidence (what the decision rested on); request_id; trace_id. Null where the event has none.

Example:
  select seq, at, what from event where network = 'default' and at > now() - interval '1 hour' order by seq;$$;
