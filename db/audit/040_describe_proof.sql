create or replace function ipledger_audit.describe_proof(evidence jsonb) returns text
  language sql stable
as $$
  select concat(
           case evidence ->> 'reason'
             when 'FENCED' then concat(
               evidence #>> '{proof,fencedBy,by}', ' vouched ', ipledger_audit.moment(evidence #> '{proof,fencedBy,at}'), ' that boot ',
               evidence #>> '{proof,fencedBy,boot}', ' of node ', evidence #>> '{proof,fencedBy,node}', ' is over (',
               evidence #>> '{proof,fencedBy,why}', '), and it was placed nowhere else')
             else w.words end,
           '; policy: ' || ipledger_audit.describe_policy(evidence #> '{proof,policy}'))
    from (select string_agg(ipledger_audit.describe_witness(evidence -> 'proof', s.witness), '; ' order by s.place) as words
            from jsonb_array_elements(evidence #> '{proof,sources}') with ordinality as s (witness, place)
           where evidence -> 'sources' ? (s.witness ->> 'source')) w
$$;
comment on function ipledger_audit.describe_proof(jsonb) is
$$Why a lease was taken back, or given back, on proof, in words: each source that the proof rests on, and the policy then in force.
`evidence` is that of the event.

Example:
  select describe_proof(evidence) from log where network_id = 'default' and type = 'lease.reaped' and evidence ? 'proof' limit 1;$$;
