create or replace view ipledger_audit.checkpoint_part as
  select p.network_id as network, p.seq, p.part, p.first_address, p.last_address, p.leases, p.events
    from ipledger.lease_checkpoint_part p;
comment on view ipledger_audit.checkpoint_part is
$$What the checkpoints hold, for leases_as_of. Parts of a number that view checkpoint does not have are not finished and say nothing.

Columns: network; seq (of the checkpoint); part (from 0, in order of address); first_address, last_address; leases; events (for each lease
the number of the last event about it, in order of address).

Example:
  select part, first_address, last_address, leases from checkpoint_part where network = 'default' and seq = 20000 order by part;$$;
