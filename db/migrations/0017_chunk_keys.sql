-- The last chunk of a snapshot is told from the keys of all, and asks for entries only where some are new.
alter table ipledger.snapshot_part add column keys text collate "C";
alter table ipledger.snapshot_part alter keys set storage external;
comment on column ipledger.snapshot_part.keys is
  'Keys of its entries, 24 characters each, one after the other. Null: written before 0017; the snapshot it is a part of is partial.';
