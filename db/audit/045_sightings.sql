create or replace view ipledger_audit.sightings as
  select s.network_id as network, s.address, s.source_id as source, s.owner_kind, s.owner_name, s.owner_uid, s.owner_incarnation,
         s.owner_interface, s.node, s.boot, s.state, s.live, s.appeared_at, s.appeared_sequence, s.appeared_head, s.last_seen_at,
         s.vanished_at, s.vanished_sequence, s.vanished_head
    from ipledger.sighting s;
comment on view ipledger_audit.sightings is
$$Who saw which address for which owner, from when to when. An observation, not a fact of the ledger, and pruned by age.

Columns: network; address; source; owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (kind null: seen, and whose it is
is not known; interface empty: not told); node; boot; state (the source's word; only `terminal` means ended); live (listed now, and not as
terminal); appeared_at, appeared_sequence, appeared_head (begin, number and ledger head of the snapshot that listed it first);
last_seen_at, vanished_at, vanished_sequence, vanished_head (of the complete snapshot that listed it no more; null: listed still).

Example:
  select source, owner_name, node, state, appeared_at, last_seen_at from sightings where network = 'default' and address = '10.8.64.2';$$;
