create or replace function ipledger_audit.event_sentence(event ipledger_audit.log, pool text) returns text
  language sql stable
as $$
  select case event.type
    when 'lease.reserved' then concat(s.lease, ' was reserved for ', s.owner, s.place, s.doer,
      case when event.evidence ->> 'previous' = 'true' then ', as it had it before' end,
      case when event.state = 'ACTIVE' then '; it was confirmed at once'
           when event.confirm_by is not null then '; it must be confirmed by ' || ipledger_audit.moment(event.confirm_by)
           else '; there is no deadline to confirm' end)
    when 'lease.confirmed' then concat(s.lease,
      case when event.evidence ->> 'reason' = 'SEEN_ALONE' then concat(
             ' was given back to ', s.owner, ' and is ACTIVE; it was in quarantine as ', event.evidence #>> '{proof,lease,quarantine,reason}', '; ',
             ipledger_audit.describe_proof(event.evidence))
           when event.evidence ? 'seen' then concat(' was confirmed for ', s.owner, ': ', ipledger_audit.describe_seen(event.evidence))
           else concat(' was confirmed for ', s.owner, s.doer) end)
    when 'lease.updated' then concat(s.lease, ', held for ', s.owner,
      case when event.cause = 'UpdateLabels' then ', was labelled ' || event.labels::text else ', was promised again' end, s.doer,
      case when event.state <> 'RESERVED' then ''
           when event.confirm_by is not null then '; it must be confirmed by ' || ipledger_audit.moment(event.confirm_by)
           else '; there is no deadline to confirm' end)
    when 'lease.adopted' then concat(s.lease, ' was adopted for ', s.owner, s.place, ', since nobody held it: ',
      ipledger_audit.describe_seen(event.evidence))
    when 'lease.released' then concat(s.lease, ', held for ', s.owner,
      case when event.evidence ? 'supersededBy' then concat(', ended: ', event.evidence ->> 'supersededBy', ' superseded it, and said that it is removed')
           else ', was released' end, s.doer, s.quarantine, s.cooling)
    when 'lease.reaped' then concat(s.lease, ', held for ', s.owner, ', was reaped',
      case event.evidence ->> 'reason'
        when 'OPERATOR' then concat(' by an operator', s.doer, ': ', event.evidence ->> 'why')
        when 'NEVER_CONFIRMED' then concat(s.doer, ': it was never confirmed by its deadline ',
          ipledger_audit.moment((event.evidence ->> 'confirmBy')::timestamptz), ' and ', trim_scale((event.evidence ->> 'graceMs')::numeric / 1000),
          ' s of grace, and nobody had seen it')
        else concat(s.doer, ': ', ipledger_audit.describe_proof(event.evidence)) end, s.quarantine, s.cooling)
    when 'lease.quarantined' then concat(s.lease,
      case when event.evidence ? 'releasedBy' then concat(' stays in quarantine as ', event.quarantine_reason, ' without a holder, since ',
             event.evidence ->> 'releasedBy', ' released it', s.doer)
           else concat(' was set aside as ', event.quarantine_reason, s.doer, ', held for ', s.owner, ': ',
             case when event.evidence ? 'seen' then concat(
                    case when event.quarantine_reason = 'CONFLICT'
                         then concat('the books have ', ipledger_audit.describe_owner(event.evidence -> 'holder'), ', and ')
                         else event.quarantine_why || '; ' end, ipledger_audit.describe_seen(event.evidence))
                  when event.evidence ? 'supersededBy' then concat(event.evidence ->> 'supersededBy', ' reserved under its name, and nobody said that it is removed')
                  when event.evidence ? 'seenBy' then concat(event.evidence ->> 'seenBy', ' saw it live when it reserved for ', event.evidence ->> 'reservingFor')
                  else event.quarantine_why end) end)
    when 'attachment.closed' then concat('Late calls for ', s.owner, ' are refused', case when event.pool_id is null then ' in every pool' else ' in pool ' || pool end,
      s.doer, ': it was released or superseded')
    when 'node.fenced' then concat('Boot ', event.evidence ->> 'boot', ' of node ', event.evidence ->> 'node', ' was fenced', s.doer, ': ',
      event.evidence ->> 'why', '; leases up to number ', event.seq, ' that were placed there and nowhere else are taken back')
    when 'reconcile.held' then concat('Reaping on absence for ', s.held, ' is on hold', s.doer, ': ', event.evidence ->> 'why',
      '; lease ', event.evidence ->> 'leaseId', ' was the one that went too far and is kept')
    when 'reconcile.resumed' then concat('Reaping on absence for ', s.held, ' was resumed', s.doer, ': ', event.evidence ->> 'why')
    when 'network.created' then concat('Network ', event.network_id, ' was created', s.doer)
    when 'network.updated' then case when event.settings ->> 'recoveryEnded' = 'true'
      then concat('The recovery of network ', event.network_id, ' ended', s.doer, ': ', event.evidence ->> 'why')
      else concat('Description or labels of network ', event.network_id, ' were changed', s.doer) end
    when 'era.begun' then concat('Era ', event.settings ->> 'era', ' of network ', event.network_id, ' began', s.doer, ': ', event.evidence ->> 'why',
      '; the era before it ends at number ', event.evidence ->> 'lostAfter',
      case when event.settings ->> 'recovering' = 'true' then '; the network recovers, and nothing is handed out or taken back meanwhile' end)
    else concat('Pool ', pool, ' was ', split_part(event.type, '.', 2), s.doer, ': ', event.settings #>> '{pool,cidr}', ' in leases of /',
      event.settings #>> '{pool,prefixLength}', ', cooldown ', trim_scale((event.settings #>> '{pool,cooldownMs}')::numeric / 1000), ' s',
      ', gateway ' || nullif(event.settings #>> '{pool,gateway}', ''),
      ', excluded ' || nullif((select string_agg(x.range, ', ' order by x.place)
                                 from json_array_elements_text(event.settings #> '{pool,exclude}') with ordinality as x (range, place)), ''),
      case when event.settings #>> '{pool,draining}' = 'true' then ', draining' end)
    end || '.'
    from (select concat(abbrev(set_masklen(event.address, event.prefix_length)), ' of pool ' || nullif(pool, ''),
                        ' (lease ' || event.network_id || '/' || event.fencing_token || ')') as lease,
                 ipledger_audit.describe_owner(event.owner_kind, event.owner_name, event.owner_uid, event.owner_incarnation, event.owner_interface) as owner,
                 concat(' on node ' || nullif(event.node, ''), ' (boot ' || nullif(event.boot, '') || ')') as place,
                 concat(' by ', event.actor, ' (', event.cause, ')') as doer,
                 case when event.quarantine_reason is not null then concat('; it was in quarantine as ', event.quarantine_reason, ' since ', ipledger_audit.moment(event.quarantined_at)) end as quarantine,
                 concat('; the address cools until ', ipledger_audit.moment(event.available_at)) as cooling,
                 case when event.evidence ->> 'source' = '' then 'the whole network' else 'source ' || (event.evidence ->> 'source') end as held) s
$$;
comment on function ipledger_audit.event_sentence(ipledger_audit.log, text) is
$$One event as a sentence: what happened, to which lease of whom, who did it and on what evidence. `pool` is the name of the event's
pool. The sentence is column `what` of view `event`.

Example:
  select event_sentence(l, 'default') from log l where network_id = 'default' and seq = 1;$$;
