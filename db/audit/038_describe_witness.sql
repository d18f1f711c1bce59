create or replace function ipledger_audit.describe_witness(proof jsonb, witness jsonb) returns text
  language sql stable
as $$
  select concat('source ', witness ->> 'source',
           case witness ->> 'why'
             when 'SIGHTED' then case when proof ->> 'cause' = 'SEEN_ALONE' then '' else ', which had seen it,' end
             when 'NAMED' then ', which Reserve had named as witness,'
             when 'COVERS' then ', which covers its kind and node,' else '' end,
           case when proof ->> 'cause' = 'PREVIOUS_BOOT' then concat(
                  ' reports boot ', witness #>> '{bootEnded,newBoot}', ' of the node since ', ipledger_audit.moment(witness #> '{bootEnded,at}'),
                  ', which ended all of boot ', witness #>> '{bootEnded,boot}', ', where the lease was placed')
                when witness #>> '{live,state}' is not null then concat(
                  ' listed ', ipledger_audit.describe_owner(witness -> 'about'), ' there as ', witness #>> '{live,state}',
                  ' on node ' || nullif(witness #>> '{live,node}', ''), ' and nobody else')
                else concat(
                  ' missed ', case when witness #>> '{about,kind}' is null then 'it' else ipledger_audit.describe_owner(witness -> 'about') end,
                  ' in ', m.misses, ' complete snapshots (numbers ', m.sequences, ', begun at heads ', m.heads, ', the last ',
                  ipledger_audit.moment(m.last), ')') end,
           case when proof ->> 'cause' = 'SEEN_ALONE' and witness #>> '{lookup,answer}' is null then ''
                when witness #>> '{listedTerminal,since}' is not null then concat(
                  '; it lists it as ended since ', ipledger_audit.moment(witness #> '{listedTerminal,since}'))
                when witness #>> '{lookup,answer}' = 'terminal' then concat(
                  '; asked ', ipledger_audit.moment(witness #> '{lookup,at}'), ' it said ended, since ',
                  ipledger_audit.moment(witness #> '{lookup,since}'), ' (' || nullif(witness #>> '{lookup,detail}', '') || ')')
                when witness #>> '{lookup,answer}' is not null then concat(
                  '; asked ', ipledger_audit.moment(witness #> '{lookup,at}'), ' it said ', witness #>> '{lookup,answer}',
                  ' (' || nullif(witness #>> '{lookup,detail}', '') || ')')
                when witness #>> '{about,kind}' is null then '; there was nobody to ask after' else '' end)
    from (select count(*) as misses, string_agg(c.sequence::text, ', ' order by c.sequence) as sequences,
                 string_agg(c.head::text, ', ' order by c.sequence) as heads, max(c.begun_at) as last
            from ipledger_audit.counted_misses(proof, witness) c) m
$$;
comment on function ipledger_audit.describe_witness(jsonb, jsonb) is
$$What one source contributed to a proof, in words: which snapshots missed the workload, at which heads, and what the source said when
it was asked. `proof` is evidence -> 'proof' of the event, `witness` one element of its `sources`.

Example:
  select describe_witness(e.evidence -> 'proof', w) from log e, jsonb_array_elements(e.evidence #> '{proof,sources}') w
   where e.network_id = 'default' and e.type = 'lease.reaped' limit 1;$$;
