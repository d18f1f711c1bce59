-- What the ledger asks about what sources see (DESIGN §4): every question by an index of its own, since all of them are
-- asked under a network's lock.

-- Holds and fences are folded from the log like the network and its pools; their events are as few.
drop index ipledger.event_of_shape;
create index event_of_shape on ipledger.event (network_id, seq) where type in (
  'network.created', 'network.updated', 'era.begun', 'pool.created', 'pool.updated', 'pool.deleted',
  'node.fenced', 'reconcile.held', 'reconcile.resumed');
comment on index ipledger.event_of_shape is 'History of a network, its pools, and what people say of reaping.';

create index event_of_absence on ipledger.event (network_id, at, seq)
  where (type = 'lease.reaped' and cause = 'PROVEN_ABSENT') or type = 'reconcile.resumed';
comment on index ipledger.event_of_absence is 'Reaps on absence of the last hour, and from when they count anew: the rolling caps.';

create index closed_attachment_by_workload on ipledger.closed_attachment (network_id, owner_uid, owner_kind);
comment on index ipledger.closed_attachment_by_workload is 'Lives of a workload that are over: it is seen at an address that the books have as free.';

create index sighting_by_last_seen on ipledger.sighting (network_id, address, last_seen_at)
  where vanished_sequence is not null and state <> 'terminal';
comment on index ipledger.sighting_by_last_seen is
  'When an address was seen last: an address handed on every few minutes has hundreds of sightings a day.';

-- Take effect with the next analyze; until then the planner goes by the sample rows of 0001 and 0003.
alter table ipledger.closed_attachment
  alter owner_uid set (n_distinct = -0.5), alter owner_kind set (n_distinct = 4);
alter table ipledger.sighting
  alter last_seen_at set (n_distinct = -0.1);
