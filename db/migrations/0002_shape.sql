-- The few events that give a network its shape, found without reading the log: what verify and rebuild fold first,
-- and what a starting service asks to see whether its projections are all there.
create index event_of_shape on ipledger.event (network_id, seq) where type in (
  'network.created', 'network.updated', 'era.begun', 'pool.created', 'pool.updated', 'pool.deleted');
comment on index ipledger.event_of_shape is 'History of a network and its pools.';
