-- The log as it is stored, for the functions of this schema: they read by the indexes of ipledger.event.
create or replace view ipledger_audit.log as
  select e.network_id, e.seq, e.type, e.at, e.actor, e.cause, e.request_id, e.trace_id, e.pool_id, e.address, e.prefix_length,
         e.fencing_token, e.state, e.quarantine_reason, e.quarantined_at, e.quarantined_by, e.quarantine_why, e.owner_kind,
         e.owner_name, e.owner_uid, e.owner_uid_named, e.owner_incarnation, e.owner_interface, e.node, e.boot, e.labels,
         e.witness, e.reserved_at, e.confirmed_at, e.confirm_by, e.available_at, e.removal_confirmed, e.settings, e.evidence
    from ipledger.event e;
comment on view ipledger_audit.log is
$$The events of all networks as they are stored; view `event` is the same for people. Columns as in ipledger.event. Keys that
have an index: (network_id, seq), (network_id, address, seq), (network_id, at, seq), (network_id, owner_name, seq).

Example:
  select seq, type, address, settings from log where network_id = 'default' and seq = 1;$$;
