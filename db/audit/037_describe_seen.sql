create or replace function ipledger_audit.describe_seen(evidence jsonb) returns text
  language sql stable
as $$
  select concat('source ', evidence ->> 'source', ' listed ',
           case when evidence #> '{seen,owner}' is null or jsonb_typeof(evidence #> '{seen,owner}') = 'null' then 'somebody unknown'
                else ipledger_audit.describe_owner(evidence #> '{seen,owner}') end,
           ' at ', evidence #>> '{seen,address}', ' as ', evidence #>> '{seen,state}',
           ' on node ' || nullif(evidence #>> '{seen,node}', ''), ' (boot ' || nullif(evidence #>> '{seen,boot}', '') || ')',
           ' in snapshot ', evidence ->> 'sequence', ', begun ', ipledger_audit.moment((evidence ->> 'begunAt')::timestamptz),
           ' at head ', evidence ->> 'head')
$$;
comment on function ipledger_audit.describe_seen(jsonb) is
$$What a source listed, in words, from the evidence of an event that followed at once from a sighting.

Example:
  select describe_seen(evidence) from log where network_id = 'default' and type = 'lease.adopted' limit 1;$$;
