create or replace view ipledger_audit.holds as
  select h.network_id as network, h.source_id as source, h.held_seq as seq, h.held_at as at, h.why, h.reaps, h.leases
    from ipledger.hold h;
comment on view ipledger_audit.holds is
$$Whose proofs of absence take nothing back until an operator resumes (ipledger hold resume).

Columns: network; source (empty: the whole network); seq, at (of the event that held it); why; reaps (of the hour, the refused one
included); leases (that those are a share of).

Example:
  select source, at, why from holds where network = 'default';$$;
