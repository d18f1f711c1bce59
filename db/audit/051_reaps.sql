create or replace function ipledger_audit.reaps("from" timestamptz, "to" timestamptz)
  returns table (network text, seq bigint, at timestamptz, address inet, lease_id text, pool text, owner_kind text, owner_name text,
    owner_uid text, owner_incarnation text, owner_interface text, node text, cause text, actor text, source text, why text,
    snapshots bigint[], heads bigint[], misses integer, last_sighted_at timestamptz, lookup_answer text, lookup_at timestamptz,
    lookup_detail text, policy jsonb, evidence jsonb)
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off set plan_cache_mode = force_generic_plan
as $$
  select l.network_id, l.seq, l.at, set_masklen(l.address, l.prefix_length), l.network_id || '/' || l.fencing_token,
         coalesce(p.pool, ipledger_audit.pool_name(l.network_id, l.pool_id)), l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation,
         l.owner_interface, l.node, l.cause, l.actor, w.witness ->> 'source', w.witness ->> 'why', m.snapshots, m.heads,
         coalesce(cardinality(m.snapshots), 0), to_timestamp((l.evidence #>> '{proof,lastSightedAt}')::float8 / 1000),
         w.witness #>> '{lookup,answer}', to_timestamp((w.witness #>> '{lookup,at}')::float8 / 1000), w.witness #>> '{lookup,detail}',
         l.evidence #> '{proof,policy}', l.evidence
    from ipledger_audit.network n
    cross join lateral (
      select r.* from ipledger_audit.log r
       where r.network_id = n.network and r.type = 'lease.reaped' and r.at >= reaps."from" and r.at <= reaps."to"
       order by r.at, r.seq) l
    left join ipledger_audit.pool p on p.network = l.network_id and p.pool_id = l.pool_id
    left join lateral (
      select s.witness, s.place from jsonb_array_elements(l.evidence #> '{proof,sources}') with ordinality as s (witness, place)
       where l.evidence -> 'sources' ? (s.witness ->> 'source')) w on true
    left join lateral (
      select array_agg(c.sequence order by c.sequence) as snapshots, array_agg(c.head order by c.sequence) as heads
        from ipledger_audit.counted_misses(l.evidence -> 'proof', w.witness) c) m on w.witness is not null
   order by l.network_id, l.at, l.seq, w.place
$$;
comment on function ipledger_audit.reaps(timestamptz, timestamptz) is
$$Addresses that were taken back between two times (both included), and on what evidence: one row for each source that the proof rests on;
one row without a source where it rests on none (an operator's Reap, a deadline that passed, a fenced node).

Columns: network; seq, at (of the event); address (a block with its mask); lease_id; pool; owner_kind, owner_name, owner_uid,
owner_incarnation, owner_interface, node (of the last holder); cause (PROVEN_ABSENT, PREVIOUS_BOOT, FENCED, NEVER_CONFIRMED, Reap); actor;
source; why (it testified: SIGHTED, NAMED in Reserve, COVERS kind and node); snapshots (numbers of its complete snapshots that missed the
lease), heads (of the ledger, at which those were begun), misses (how many); last_sighted_at (by anybody); lookup_answer, lookup_at,
lookup_detail (what it said when it was asked); policy (in force then, times in ms); evidence (all that is stored).

Example:
  select at, address, owner_name, cause, source, snapshots, lookup_answer from reaps(now() - interval '1 day', now());$$;
