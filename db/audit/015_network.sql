create or replace view ipledger_audit.network as
  select n.network_id as network, n.state, n.era,
         (select max(e.seq) from ipledger.event e where e.network_id = n.network_id) as head,
         n.description, n.labels, n.created_at, n.updated_at
    from ipledger.network n;
comment on view ipledger_audit.network is
$$The networks that are there.

Columns: network; state (READY, REBUILDING, RECOVERING); era (life of the ledger; its numbers begin at era × 2^40); head (number of the
last event); description; labels; created_at; updated_at.

Example:
  select network, state, head from network;$$;
