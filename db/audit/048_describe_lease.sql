create or replace function ipledger_audit.describe_lease(event ipledger_audit.log, at timestamptz) returns text
  language sql stable
as $$
  select case
    when event.type in ('lease.released', 'lease.reaped') then concat(
      case when event.available_at > describe_lease.at then concat('is free and cooling until ', ipledger_audit.moment(event.available_at))
           else concat('is free, and has cooled since ', ipledger_audit.moment(event.available_at)) end,
      ': ', s.lease, ', held for ', s.owner, ', was ', split_part(event.type, '.', 2), ' ', ipledger_audit.moment(event.at), ' by ', event.actor,
      ' (', event.cause, ')',
      case when event.available_at <= describe_lease.at then ''
           when event.removal_confirmed and event.owner_kind is not null then '; until then only its last holder may have it back'
           else '; until then nobody gets it' end)
    when event.state = 'QUARANTINED' then concat(
      'is set aside: ', s.lease, ' is QUARANTINED as ', event.quarantine_reason, ' since ', ipledger_audit.moment(event.quarantined_at), ' by ',
      event.quarantined_by, ', held for ', s.owner, s.place, ' (', event.quarantine_why, '). ',
      ipledger_audit.quarantine_exit(event.quarantine_reason, event.owner_kind is not null))
    else concat(
      'is held: ', s.lease, ' is ', event.state, ' for ', s.owner, s.place, ' since ', ipledger_audit.moment(b.at), ', given by ', b.actor,
      ' (', b.cause, ')',
      case when event.state = 'ACTIVE' then ', confirmed ' || ipledger_audit.moment(event.confirmed_at)
           when event.confirm_by is not null then ', not confirmed yet, which it must be by ' || ipledger_audit.moment(event.confirm_by)
           else ', not confirmed; it has no deadline, and is held until it is released or proven gone' end)
    end
    from (select concat(case when event.prefix_length < masklen(event.address) then 'block ' || abbrev(set_masklen(event.address, event.prefix_length)) || ', ' end,
                        'lease ', event.network_id, '/', event.fencing_token) as lease,
                 ipledger_audit.describe_owner(event.owner_kind, event.owner_name, event.owner_uid, event.owner_incarnation, event.owner_interface) as owner,
                 concat(' on node ' || nullif(event.node, ''), ' (boot ' || nullif(event.boot, '') || ')') as place) s
    left join ipledger_audit.log b on b.network_id = event.network_id and b.seq = event.fencing_token
$$;
comment on function ipledger_audit.describe_lease(ipledger_audit.log, timestamptz) is
$$What the last event of a lease makes of its address at a time, as the rest of a sentence that begins with the address.

Example:
  select describe_lease(l, now()) from last_events('default', '10.8.64.2', 1000) l;$$;
