-- A recovery, and a pool that is STRICT, wait for sources that are warming up: the first lists of a new epoch may be of a
-- moment before the world was put back into them (cilium#9888). Of thousands of sources they are few, and are looked for
-- under the network's lock.

-- A report changes `warm` twice in an epoch; all others stay in their page.
create index source_warming_up on ipledger.source (network_id, source_id) where state = 'ENABLED' and not warm;
comment on index ipledger.source_warming_up is 'Enabled sources whose lists do not count yet: recovery, STRICT.';

comment on column ipledger.sighting.appeared_head is
  'Head of the ledger at which that snapshot was begun; 0: not proven, and it decides nothing. What it is evidence of later '
  'only the last report of its source tells: of complete_head, where that is a complete one of a warm source; of this, where '
  'it appeared in it; otherwise of none, and it protects.';
comment on column ipledger.source.complete_head is
  'Head of the ledger when its last complete snapshot was begun: what a warm source listed before and lists still is evidence '
  'of that head, until a report comes that is not complete.';
