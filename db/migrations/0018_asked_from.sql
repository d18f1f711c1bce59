-- Who is told on another node that a lease is his may run there (16.5): from then on the node it was placed on can say no
-- more than that it is not there. Without a default that is computed, so that no row is rewritten.
alter table ipledger.lease add column asked_from text collate "C" not null default '';
comment on column ipledger.lease.asked_from is
  'Other nodes that asked for it since it was placed, in order, one a line; empty: none. Events carry them in settings.';
