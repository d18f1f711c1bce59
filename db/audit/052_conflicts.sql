create or replace view ipledger_audit.conflicts as
  select l.network, l.address, l.pool, l.state, l.lease_id, l.fencing_token, l.version, l.owner_kind, l.owner_name, l.owner_uid,
         l.owner_incarnation, l.owner_interface, l.node, l.boot, l.labels, l.reserved_at, l.confirmed_at, l.confirm_by, l.quarantine_reason,
         l.quarantined_at, l.quarantined_by, l.quarantine_why, l.quarantined_at as since, p.parties, p.seen_by,
         concat(abbrev(l.address), ' (lease ', l.lease_id, ') is in use by more than one since ', ipledger_audit.moment(l.quarantined_at), ': ',
                'the books have ', ipledger_audit.describe_owner(l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface),
                ', and it was ', l.quarantine_why, '. ',
                case when cardinality(p.seen_by) > 0 then concat('Seen live there by ', array_to_string(p.seen_by, ', '), '. ') else 'Nobody is seen there now. ' end,
                ipledger_audit.quarantine_exit(l.quarantine_reason, l.owner_kind is not null), '.') as what
    from (select x.*, host(x.address)::inet as first, set_masklen(broadcast(x.address), -1) as last from ipledger_audit.lease x
           where x.state = 'QUARANTINED' and x.quarantine_reason = 'CONFLICT') l
    cross join lateral (
      select jsonb_agg(jsonb_build_object('role', s.role, 'owner', s.owner, 'node', s.node, 'source', s.source, 'state', s.state, 'since', s.since)
                       order by s.role, s.since) as parties,
             coalesce(array_agg(distinct s.source) filter (where s.role = 'seen'), '{}') as seen_by
        from (select 'holder' as role, l.node, null as source, l.state, l.since,
                     ipledger_audit.describe_owner(l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface) as owner
              union all
              select 'found', c.evidence #>> '{seen,node}', c.evidence ->> 'source', c.evidence #>> '{seen,state}', c.at,
                     ipledger_audit.describe_owner(c.evidence #> '{seen,owner}')
                from (select f.evidence, f.at from ipledger_audit.log f
                       where f.network_id = l.network and (f.address, f.seq) >= (l.first, l.fencing_token) and (f.address, f.seq) <= (l.first, l.version)
                         and f.type = 'lease.quarantined' and f.evidence ? 'seen'
                       order by f.address desc, f.seq desc limit 1) c
              union all
              select 'seen', v.node, v.source, v.state, v.appeared_at,
                     ipledger_audit.describe_owner(v.owner_kind, v.owner_name, v.owner_uid, v.owner_incarnation, v.owner_interface)
                from ipledger_audit.sightings v
               where v.network = l.network and v.address >= l.first and v.address <= l.last and v.live) s) p;
comment on view ipledger_audit.conflicts is
$$Addresses that more than one workload uses, as far as sources saw: held as CONFLICT and handed to nobody.

Columns: those of view `lease`; since (when the conflict was found); parties (the holder by the books, the one that was found, and everybody
who is seen there now: role holder, found or seen; owner, node, source, state, since); seen_by (sources that see somebody there now); what (a
sentence).

Example:
  select address, since, seen_by, what from conflicts where network = 'default';$$;
