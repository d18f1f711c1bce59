create or replace view ipledger_audit.lease as
  select l.network_id as network, set_masklen(l.address, l.prefix_length) as address, coalesce(p.name, '') as pool, l.state,
         l.network_id || '/' || l.fencing_token as lease_id, l.fencing_token, l.version,
         l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface, l.node, l.boot, l.labels,
         l.reserved_at, l.confirmed_at, l.confirm_by, l.quarantine_reason, l.quarantined_at, l.quarantined_by, l.quarantine_why,
         (select b.at from ipledger.event b where b.network_id = l.network_id and b.seq = l.fencing_token) as since
    from ipledger.lease l
    left join ipledger.pool p on p.network_id = l.network_id and p.pool_id = l.pool_id;
comment on view ipledger_audit.lease is
$$Who holds what now. For a time in the past: leases_as_of.

Columns: network; address (a block with its mask); pool; state (RESERVED, ACTIVE, QUARANTINED); lease_id; fencing_token (number of the
event that created it); version (number of the last event about it); owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface (null: nobody known); node; boot; labels; reserved_at (when it was promised last); confirmed_at; confirm_by (deadline;
null: none); quarantine_reason, quarantined_at, quarantined_by, quarantine_why; since (begin of the lease).

Example:
  select address, state, owner_name, since from lease where network = 'default' and node = 'n1';$$;
