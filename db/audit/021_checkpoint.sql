create or replace view ipledger_audit.checkpoint as
  select c.network_id as network, c.seq, c.leases, c.parts, c.made_at
    from ipledger.lease_checkpoint c;
comment on view ipledger_audit.checkpoint is
$$Numbers of the log at which the whole table of leases is kept, so that leases_as_of reads one of them and the events after it. A job
makes the next one when half as many events have come as leases were held (at least 20,000, at most 250,000).

Columns: network; seq (number of the last event it takes account of); leases (held then); parts (rows of view checkpoint_part); made_at.

Example:
  select seq, leases from checkpoint where network = 'default' order by seq desc limit 5;$$;
