create or replace view ipledger_audit.tenure as
  select t.network_id as network, t.address, t.network_id || '/' || t.fencing_token as lease_id, t.fencing_token,
         t.owner_kind, t.owner_name, t.owner_uid, t.owner_incarnation, t.owner_interface,
         t.span, t.first_seq, upper(t.span) as last_seq, t.began_at, t.ended_at, t.began_as, t.ended_as
    from ipledger.tenure t;
comment on view ipledger_audit.tenure is
$$Who held which address over which span of the log, in quarantine too: one row for each owner of a lease. The database refuses that two rows
of a network hold one address (or blocks that share one) over spans that share a number, if both have ended, and that an address is held
twice now. A row put past ipledger into the span of one that is held still it refuses only when that one ends; until then verification
finds it. What was refused or found is in tenure_overlaps. A job follows the log within seconds; view tenure_position says up to where.

Columns: network; address (a block with its mask); lease_id; fencing_token; owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface (null: nobody known); span (numbers of the log: from its first event to before the one that ended it); first_seq; last_seq
(number of the event that ended it; null: held still); began_at; ended_at; began_as and ended_as (type/cause of these events).

Example:
  select address, owner_name, began_at, ended_at, ended_as from tenure where network = 'default' and address && inet '10.8.64.0/24';$$;
