create or replace view ipledger_audit.quarantines as
  select l.network, l.address, l.pool, l.state, l.lease_id, l.fencing_token, l.version, l.owner_kind, l.owner_name, l.owner_uid,
         l.owner_incarnation, l.owner_interface, l.node, l.boot, l.labels, l.reserved_at, l.confirmed_at, l.confirm_by, l.quarantine_reason,
         l.quarantined_at, l.quarantined_by, l.quarantine_why, l.since, now() - l.quarantined_at as age,
         ipledger_audit.quarantine_exit(l.quarantine_reason, l.owner_kind is not null) as exit,
         coalesce((select string_agg(s.what, '; ' order by s.since) from ipledger_audit.stuck s
                    where s.network = l.network and s.lease_id = l.lease_id), '') as blocked_by
    from ipledger_audit.lease l
   where l.state = 'QUARANTINED';
comment on view ipledger_audit.quarantines is
$$Addresses that ipledger itself holds, and hands to nobody.

Columns: those of view `lease`; age (since it was set aside); exit (what ends it); blocked_by (what stands in the way of that, as it was
observed within the last minutes; empty: nothing, it waits for time).

Example:
  select address, quarantine_reason, age, exit, blocked_by from quarantines where network = 'default' order by age desc;$$;
