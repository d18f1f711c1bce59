create or replace view ipledger_audit.sources as
  select s.network_id as network, s.source_id as source, s.kind, s.node, s.state, s.epoch, s.warm, s.era,
         s.report_interval_ms * interval '1 millisecond' as interval, s.reported_at, now() - coalesce(s.reported_at, s.registered_at) as lag,
         s.complete_at, now() - coalesce(s.complete_at, s.registered_at) as complete_lag, s.last_sequence as sequence, s.size as listed,
         s.partial_because, exists (select from ipledger.hold h where h.network_id = s.network_id and h.source_id in ('', s.source_id)) as held,
         coalesce((select t.failure from ipledger.turn t where t.network_id = s.network_id and t.source_id = s.source_id), '') as looks
    from ipledger.source s;
comment on view ipledger_audit.sources is
$$What can say which addresses are live, and how it stands.

Columns: network; source; kind (push: it reports; docker, kubernetes, http: it is asked); node (empty: the whole network); state (REGISTERED:
dry run; ENABLED; RETIRED); epoch (its present life); warm (whether its lists count); era (of its last complete snapshot); interval (between
reports); reported_at and lag (since its last report, or its registration); complete_at and complete_lag (the same of a complete one);
sequence (of its last snapshot); listed (entries of the last complete one); partial_because (why the last one was not complete); held
(whether its proofs, or all of the network, reap nothing); looks (of one that is asked: why the last look came to nothing; empty: it did
not).

Example:
  select source, state, lag, complete_lag, listed, partial_because from sources where network = 'default' order by lag desc;$$;
