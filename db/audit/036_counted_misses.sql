-- The rules of core/judge.ts (COUNTS_AS_MISS), which decided by them; a test compares the two.
create or replace function ipledger_audit.counted_misses(proof jsonb, witness jsonb)
  returns table (sequence bigint, head bigint, begun_at timestamptz)
  language sql immutable
as $$
  select distinct on (s.sequence) s.sequence, s.head, to_timestamp(s."begunAt" / 1000)
    from jsonb_to_recordset(witness -> 'misses') as s (sequence bigint, head bigint, "begunAt" float8)
   where s.head >= (proof ->> 'version')::bigint
     and s.head / 1099511627776 = (proof ->> 'era')::bigint
     and s."begunAt" > coalesce((proof ->> 'lastSightedAt')::float8, '-infinity')
   order by s.sequence
$$;
comment on function ipledger_audit.counted_misses(jsonb, jsonb) is
$$The snapshots of one source that a proof counted as misses: complete, begun after anybody's last sighting, at a head that knew the
lease. `proof` is evidence -> 'proof' of a reap, `witness` one element of its `sources`. Columns: sequence (number of the snapshot),
head (number of the ledger it was begun at), begun_at.

Example:
  select m.* from log e, jsonb_array_elements(e.evidence #> '{proof,sources}') w, counted_misses(e.evidence -> 'proof', w) m
   where e.network_id = 'default' and e.type = 'lease.reaped';$$;
