-- How sentences write addresses, times, owners and evidence.

create function ipledger_audit.plain_address(address inet) returns inet
  language sql immutable as $$
  select case when family(address) = 6 and masklen(address) >= 96 and address <<= '::ffff:0:0/96'
              then set_masklen('0.0.0.0'::inet + (set_masklen(address, 128) - '::ffff:0:0'::inet), masklen(address) - 96)
              else address end
$$;
comment on function ipledger_audit.plain_address(inet) is $$An address or a CIDR as the log writes it: ::ffff:10.8.64.2 is 10.8.64.2.
Example: select plain_address('::ffff:10.8.64.2');$$;

create function ipledger_audit.moment(moment timestamptz) returns text
  language sql stable as $$
  select case when isfinite(moment) then to_char(moment at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') || ' UTC' else moment::text end
$$;
comment on function ipledger_audit.moment(timestamptz) is $$A time as sentences write it: in UTC, to the millisecond.
Example: select moment(now());$$;

create function ipledger_audit.moment(milliseconds jsonb) returns text
  language sql stable as $$
  select ipledger_audit.moment(to_timestamp((milliseconds #>> '{}')::float8 / 1000))
$$;
comment on function ipledger_audit.moment(jsonb) is $$The same of a time as evidence stores it: milliseconds since 1970.
Example: select moment('1763000000000'::jsonb);$$;

create function ipledger_audit.seconds(milliseconds text) returns text
  language sql immutable as $$
  select trim_scale(milliseconds::numeric / 1000) || ' s'
$$;
comment on function ipledger_audit.seconds(text) is $$A span as sentences write it, from milliseconds.
Example: select seconds('120000');$$;

create function ipledger_audit.listed(list jsonb) returns text
  language sql immutable as $$
  select string_agg(x, ', ') from jsonb_array_elements_text(list) x
$$;
comment on function ipledger_audit.listed(jsonb) is $$A list of texts as sentences write it; null: it has none.
Example: select listed('["10.8.64.1", "10.8.64.8-10.8.64.15"]'::jsonb);$$;

create function ipledger_audit.describe_owner(kind text, name text, uid text, incarnation text, interface text) returns text
  language sql immutable as $$
  select case when nullif(kind, '') is null then 'an unknown owner'
              else concat(kind, ' ', name, ' uid ' || nullif(nullif(uid, name), ''), ' incarnation ' || nullif(incarnation, ''),
                          ' (' || nullif(interface, '') || ')') end
$$;
comment on function ipledger_audit.describe_owner(text, text, text, text, text) is $$An owner as sentences name it: kind, name, uid, incarnation, interface.
Example: select describe_owner('pod', 'default/web-0', 'b5c0', '1', 'eth0');$$;

create function ipledger_audit.describe_owner(owner jsonb) returns text
  language sql immutable as $$
  select ipledger_audit.describe_owner(owner ->> 'kind', coalesce(owner ->> 'name', owner ->> 'uid'), owner ->> 'uid', owner ->> 'incarnation', owner ->> 'interface')
$$;
comment on function ipledger_audit.describe_owner(jsonb) is $$The same of an owner, or of an entry of a list, as evidence stores it.
Example: select describe_owner('{"kind": "pod", "name": "default/web-0", "uid": "b5c0", "interface": "eth0"}'::jsonb);$$;

create function ipledger_audit.describe_seen(evidence jsonb) returns text
  language sql immutable as $$
  select concat('source ', evidence ->> 'source', ' lists ',
           case when evidence #>> '{seen,kind}' is null then 'somebody unknown' else ipledger_audit.describe_owner(evidence -> 'seen') end,
           ' at ', evidence #>> '{seen,address}', ' as ' || nullif(evidence #>> '{seen,state}', ''),
           ' on node ' || nullif(evidence #>> '{seen,node}', ''),
           ' since event ', evidence ->> 'appeared', ', in a list begun at head ', evidence ->> 'head')
$$;
comment on function ipledger_audit.describe_seen(jsonb) is $$An entry of a source's list in words, from the evidence of an event that followed from it.
Example: select describe_seen(evidence) from log where network_id = 'default' and type = 'lease.adopted' limit 1;$$;

create function ipledger_audit.describe_witness(proof jsonb, witness jsonb) returns text
  language sql stable as $$
  select concat('source ', witness ->> 'id', case when s.seen then ', which had listed it,' else ', which covers it,' end,
           ' missed it in ', m.misses, ' counted reports (numbers ', m.sequences, ', begun at heads ', m.heads, ', the last ',
           ipledger_audit.moment(to_timestamp(m.last / 1000)), ')', '; it lists as ended ' || s.ended, l.answers)
    from (select count(*) as misses, string_agg(c.sequence, ', ') as sequences, string_agg(c.head, ', ') as heads, max(c.at) as last
            from jsonb_to_recordset(witness -> 'missed') as c (sequence text, head text, at float8)) m
   cross join (select count(*) > 0 as seen,
                      string_agg(concat(ipledger_audit.describe_owner(x -> 'owner'), ' since ', ipledger_audit.moment(x -> 'terminalAt')), ', ')
                        filter (where x ->> 'state' = 'terminal' and x ->> 'vanishedSeq' is null) as ended
                 from jsonb_array_elements(proof -> 'sightings') x where x ->> 'source' = witness ->> 'id') s
   cross join (select string_agg(concat('; asked ', ipledger_audit.moment(x -> 'askedAt'), ' after ', ipledger_audit.describe_owner(x -> 'owner'),
                        ' it answered ', x ->> 'answer', ' since ' || ipledger_audit.moment(nullif(x -> 'terminalSince', 'null')),
                        ' (' || nullif(x ->> 'detail', '') || ')'), '') as answers
                 from jsonb_array_elements(proof -> 'lookUps') x where x ->> 'source' = witness ->> 'id') l
$$;
comment on function ipledger_audit.describe_witness(jsonb, jsonb) is $$The part of one source in a proof, in words: its reports that missed the workload, and its answers. `proof` is evidence -> 'proof' of a
reap, `witness` an element of its `witnesses`.
Example: select describe_witness(e.evidence -> 'proof', w) from log e, jsonb_array_elements(e.evidence #> '{proof,witnesses}') w
   where e.network_id = 'default' and e.type = 'lease.reaped' limit 1;$$;

create function ipledger_audit.describe_proof(evidence jsonb) returns text
  language sql stable as $$
  select concat(string_agg(ipledger_audit.describe_witness(evidence -> 'proof', w.witness), '; ' order by w.place),
           '; policy: ', p.policy ->> 'misses', ' misses, minimum age ', ipledger_audit.seconds(p.policy ->> 'minimumAgeMs'),
           ', of what was never listed ', ipledger_audit.seconds(p.policy ->> 'unwitnessedAgeMs'), ', grace after an end ',
           ipledger_audit.seconds(p.policy ->> 'terminalGraceMs'))
    from (select evidence #> '{proof,policy}' as policy) p
   cross join jsonb_array_elements(evidence #> '{proof,witnesses}') with ordinality as w (witness, place)
   group by p.policy
$$;
comment on function ipledger_audit.describe_proof(jsonb) is $$The proof of a reap in words: each source that it rests on, and the policy then. `evidence` is that of the event.
Example: select describe_proof(evidence) from log where network_id = 'default' and type = 'lease.reaped' and evidence ? 'proof' limit 1;$$;

comment on function ipledger_audit.quarantine_exit(text, text) is $$The ends of a quarantine, by its reason and the kind of its owner.
Example: select quarantine_exit('CONFLICT', 'pod');$$;
