-- Sources, their status and their lists, and what follows from them.

create view ipledger_audit.holds as
  select n.network_id as network, h.key as hold, (h.value ->> 'seq')::bigint as seq, e.at, h.value #>> '{details,why}' as why,
         to_timestamp((h.value #>> '{details,until}')::float8 / 1000) as until, h.value -> 'details' as details
    from ipledger.network n
   cross join lateral jsonb_each(n.holds::jsonb) h
    left join ipledger.event e on e.network_id = n.network_id and e.seq = (h.value ->> 'seq')::bigint;
comment on view ipledger_audit.holds is $$Networks in which nothing is taken back, or handed out, until an operator resumes them (ipledger network resume).
Columns: network; hold (CLOCK: the clock of the database was set; TOO_MANY_REAPS; SOURCE_AHEAD: a source knows a later log); seq, at (of the
event that held it); why; until (when it ends by itself; null: it does not); details (of that event).
Example: select network, hold, at, why from holds where network = 'default';$$;

create view ipledger_audit.sources as
  select s.network_id as network, s.source_id as source, s.declaration ->> 'kind' as kind, s.declaration ->> 'node' as node, s.state, s.epoch,
         lower(case when s.state <> 'ENABLED' then s.state else coalesce(substr(a.code, 8), 'good') end) as status, r.era,
         (s.declaration ->> 'intervalMs')::float8 * interval '1 millisecond' as interval,
         r.reported_at, now() - coalesce(r.reported_at, s.registered_at) as lag,
         r.complete_at, now() - coalesce(r.complete_at, s.registered_at) as complete_lag, r.sequence, nullif(r.entries, -1) as listed,
         r.counted_total as counted, coalesce(r.partial_because::jsonb, '[]') as partial_because,
         f.since as failing_since, f.why as failure
    from ipledger.source s
    left join ipledger.source_report r on r.network_id = s.network_id and r.source_id = s.source_id
    left join ipledger.source_failure f on f.network_id = s.network_id and f.source_id = s.source_id and s.state <> 'RETIRED'
    left join ipledger.attention a on a.network_id = s.network_id and a.source_id = s.source_id
         and a.code in ('SOURCE_SILENT', 'SOURCE_PARTIAL', 'SOURCE_COLD');
comment on view ipledger_audit.sources is $$Sources, and their status.
Columns: network; source; kind (push: it reports; docker, kubernetes, http: it is asked); node (empty: the whole network); state (REGISTERED:
dry run; ENABLED; RETIRED); epoch (its present life); status (registered, retired; of an enabled one, as a job judged it once a minute:
silent, partial, cold, good); era (of its last report); interval (between reports); reported_at and lag (since its last report, or its
registration); complete_at and complete_lag (the same of a complete one); sequence (of its last report); listed (entries of the last
complete one; null: there was none); counted (reports that counted, ever); partial_because (why the last one was not complete);
failing_since and failure (of a source that is asked: since when its lists fail or are not complete, and why).
Example: select source, state, lag, complete_lag, listed, partial_because from sources where network = 'default' order by lag desc;$$;

create view ipledger_audit.sightings as
  select s.network_id as network, s.address, s.source_id as source, nullif(s.owner_kind, '') as owner_kind, s.owner_name, s.owner_uid,
         s.owner_incarnation, s.owner_interface, s.node, s.state, s.vanished_seq is null and s.state <> 'terminal' as live,
         s.appeared_at, s.appeared_seq,
         s.appeared_head,
         r.complete_at as last_seen_at, e.at as vanished_at, s.vanished_seq, s.terminal_at, s.rests_until
    from ipledger.sighting s
    left join ipledger.source_report r on r.network_id = s.network_id and r.source_id = s.source_id and s.vanished_seq is null
    left join ipledger.event e on e.network_id = s.network_id and e.seq = s.vanished_seq;
comment on view ipledger_audit.sightings is $$Entries of the sources' lists: those of now, and vanished ones whose lease is held or whose address rests. Older ones are in the log:
events source.reported.
Columns: network; address; source; owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (kind null: owner not known;
interface empty: not known); node; state (as the source writes it; only `terminal` means ended); live (listed now, and not as terminal);
appeared_at, appeared_seq, appeared_head (the event with which it was listed, and the head at which that list was begun); last_seen_at (the
source's last complete list; null: none, or vanished); vanished_at, vanished_seq (the event with which it vanished; null: still listed);
terminal_at (since when it is listed as ended); rests_until (of a free address: before that only this owner gets it).
Example: select source, owner_name, node, state, appeared_at, last_seen_at from sightings where network = 'default' and address = '10.8.64.2';$$;

create view ipledger_audit.suspects as
  select q.network_id as network, set_masklen(l.address, e.prefix_length) as address, q.network_id || '/' || e.token as lease_id,
         q.owner_kind, q.owner_name, q.owner_uid, q.source_id as source, q.asked_at as question_at, q.answer, q.attempts, now() - e.at as waiting,
         concat(q.source_id, ' was asked ', ipledger_audit.moment(q.asked_at), ' after ',
                ipledger_audit.describe_owner(q.owner_kind, q.owner_name, q.owner_uid, '', ''), ' at ', host(q.address),
                case q.answer when 'wanted' then ' and has not answered yet' else ' and answered ' || q.answer end,
                ' since ' || ipledger_audit.moment(q.terminal_since), ' (' || nullif(q.detail, '') || ')', '.') as what
    from ipledger.lookup q
    join ipledger.lease l on l.network_id = q.network_id and l.address = q.address and l.state <> 'FREE'
    join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq and e.seq <= q.head;
comment on view ipledger_audit.suspects is $$Leases that are kept though no source lists them live: the questions to the sources, with the last answer.
Columns: network; address (a block with its mask); lease_id; owner_kind, owner_name, owner_uid (in question: the holder, or another owner
that was listed there); source; question_at; answer (wanted: none yet; live, terminal, gone, unknown, error); attempts; waiting (since the
lease's last change); what (a sentence).
Example: select address, owner_name, source, answer, waiting, what from suspects where network = 'default' order by waiting desc;$$;
