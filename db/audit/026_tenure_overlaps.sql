create or replace view ipledger_audit.tenure_overlaps as
  select o.network_id as network, o.address, o.network_id || '/' || o.fencing_token as lease_id,
         o.network_id || '/' || o.other_fencing_token as other_lease_id, o.span, o.found_at,
         concat('Lease ', o.network_id, '/', o.fencing_token, ' on ', abbrev(o.address), ' began with event ', o.first_seq,
           case when upper_inf(o.span) then ' and is held still' else ' and ended with event ' || upper(o.span) end, '; lease ', o.network_id, '/',
           o.other_fencing_token, ' on ', abbrev(o.other_address), ', which began with event ', o.other_first_seq, ', was held then.') as what
    from ipledger.tenure_overlap o
  union all
  select v.network_id, v.address, v.lease_id, null, null, v.found_at, v.message
    from ipledger.verify_finding v
   where v.what = 'TENURE_OVERLAPS'
     and not exists (
       select from ipledger.tenure_overlap o
        where o.network_id = v.network_id and v.lease_id = o.network_id || '/' || o.fencing_token);
comment on view ipledger_audit.tenure_overlaps is
$$Addresses that two held at once: tenures by the log that the constraint of table tenure refused, and those that verification found in the
table, put there past ipledger. There is never to be a row: one is a defect, or a database that was tampered with.

Columns: network; address and lease_id of the later one; other_lease_id; span (numbers of the log over which the later one was held; both
null: found in the table, and what names them); found_at; what (a sentence).

Example:
  select found_at, what from tenure_overlaps where network = 'default';$$;
