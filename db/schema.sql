-- The schemas "ipledger" and "ipledger_audit" as db/migrations and db/audit make them. Written by "npm run generate"; do not edit.

create extension btree_gist with schema public;

CREATE OR REPLACE FUNCTION ipledger.event_leaf(event ipledger.event)
 RETURNS bytea
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN substr(sha256(convert_to(ipledger.event_line(event), 'UTF8'::name)), 1, 16);

CREATE OR REPLACE FUNCTION ipledger.event_line(event ipledger.event)
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN (array_to_json(ARRAY[(event).network_id, ((event).seq)::text, (event).type, (EXTRACT(epoch FROM (event).at))::text, (event).actor, (event).cause, (event).request_id, (event).trace_id, ((event).pool_id)::text, ((event).address)::text, ((event).prefix_length)::text, ((event).fencing_token)::text, (event).state, (event).quarantine_reason, (EXTRACT(epoch FROM (event).quarantined_at))::text, (event).quarantined_by, (event).quarantine_why, (event).owner_kind, (event).owner_name, (event).owner_uid, ((event).owner_uid_named)::text, (event).owner_incarnation, (event).owner_interface, (event).node, (event).boot, ((event).labels)::text, (event).witness, (EXTRACT(epoch FROM (event).reserved_at))::text, (EXTRACT(epoch FROM (event).confirmed_at))::text, (EXTRACT(epoch FROM (event).confirm_by))::text, (EXTRACT(epoch FROM (event).available_at))::text, ((event).removal_confirmed)::text, ((event).settings)::text, ((event).evidence)::text]))::text;

CREATE OR REPLACE FUNCTION ipledger.oldest_transaction()
 RETURNS TABLE(process_id integer, role name, application text, state text, begun_at timestamp with time zone)
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog'
BEGIN ATOMIC
 SELECT a.pid,
     a.usename,
     a.application_name,
     a.state,
     a.xact_start
    FROM pg_stat_activity a
   WHERE ((a.datname = current_database()) AND (a.xact_start IS NOT NULL) AND (a.pid <> pg_backend_pid()) AND (a.backend_type = 'client backend'::text))
   ORDER BY a.xact_start
  LIMIT 1;
END;

CREATE OR REPLACE FUNCTION ipledger.seal_digest(previous_digest bytea, network_id text, first_seq bigint, last_seq bigint, leaves bytea)
 RETURNS bytea
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN sha256(((previous_digest || convert_to((((((network_id || ' '::text) || (first_seq)::text) || ' '::text) || (last_seq)::text) || chr(10)), 'UTF8'::name)) || leaves));

CREATE OR REPLACE FUNCTION ipledger_audit.address_at(family integer, number numeric)
 RETURNS inet
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case family
           when 4 then '0.0.0.0'::inet + number::bigint
           else (select string_agg(lpad(to_hex(mod(div(number, power(65536::numeric, 7 - w.place)), 65536)::int), 4, '0'), ':' order by w.place)
                   from generate_series(0, 7) as w (place))::inet end
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.address_history(network text, address inet, "from" timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, "to" timestamp with time zone DEFAULT 'infinity'::timestamp with time zone)
 RETURNS SETOF ipledger_audit.event
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  with span as materialized (
    select ipledger_audit.plain_address(address_history.address) as address,
           set_masklen(network(ipledger_audit.plain_address(address_history.address))::inet, -1) as first,
           ipledger_audit.position_at(address_history.network, address_history."from" - interval '1 microsecond') as after,
           ipledger_audit.position_at(address_history.network, address_history."to") as upto
  ),
  about as materialized (
    select l.seq from span s cross join lateral ipledger_audit.possible_bases(s.first) as b (base)
     cross join lateral (
       select l.seq, l.address, l.prefix_length from ipledger_audit.log l
        where l.network_id = address_history.network and l.address = b.base and l.seq > s.after and l.seq <= s.upto) l
     where set_masklen(l.address, l.prefix_length) >>= s.first
    union all
    select l.seq from span s cross join lateral ipledger_audit.known_addresses(address_history.network, s.address) as k (address)
     cross join lateral (
       select l.seq from ipledger_audit.log l
        where l.network_id = address_history.network and l.address = k.address and l.seq > s.after and l.seq <= s.upto) l
  )
  select e.* from about a join ipledger_audit.event e on e.network = address_history.network and e.seq = a.seq
   order by e.seq
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.address_number(address inet)
 RETURNS numeric
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case family(address)
           when 4 then (set_masklen(address, 32) - '0.0.0.0'::inet)::numeric
           else ('x' || substr(w.words, 1, 8))::bit(32)::bigint * 79228162514264337593543950336
              + ('x' || substr(w.words, 9, 8))::bit(32)::bigint * 18446744073709551616
              + ('x' || substr(w.words, 17, 8))::bit(32)::bigint * 4294967296::numeric
              + ('x' || substr(w.words, 25, 8))::bit(32)::bigint end
    from (select encode(substr(inet_send(address), 5), 'hex') as words) w
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.churn("from" timestamp with time zone DEFAULT (now() - '01:00:00'::interval), "to" timestamp with time zone DEFAULT now())
 RETURNS TABLE(network text, by text, key text, reserved bigint, released bigint, reaped bigint, adopted bigint, quarantined bigint)
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  select c.network_id,
         case when c.by_owner = 0 then 'owner' when c.by_node = 0 then 'node' else 'pool' end,
         case when c.by_owner = 0 then c.owner when c.by_node = 0 then c.node else ipledger_audit.pool_name(c.network_id, c.pool_id) end,
         c.reserved, c.released, c.reaped, c.adopted, c.quarantined
    from (select e.network_id, e.owner, e.node, e.pool_id, grouping(e.owner) as by_owner, grouping(e.node) as by_node,
                 count(*) filter (where e.type = 'lease.reserved') as reserved, count(*) filter (where e.type = 'lease.released') as released,
                 count(*) filter (where e.type = 'lease.reaped') as reaped, count(*) filter (where e.type = 'lease.adopted') as adopted,
                 count(*) filter (where e.type = 'lease.quarantined') as quarantined
            from (select l.network_id, l.type, l.owner_kind || ' ' || l.owner_name as owner, nullif(l.node, '') as node, l.pool_id
                    from ipledger_audit.network n
                    cross join lateral (
                      select x.network_id, x.type, x.owner_kind, x.owner_name, x.node, x.pool_id from ipledger_audit.log x
                       where x.network_id = n.network and x.at >= churn."from" and x.at <= churn."to"
                       order by x.at, x.seq) l
                   where l.type in ('lease.reserved', 'lease.released', 'lease.reaped', 'lease.adopted', 'lease.quarantined')) e
           group by grouping sets ((e.network_id, e.owner), (e.network_id, e.node), (e.network_id, e.pool_id))) c
   where (c.by_owner = 0 and c.owner is not null) or (c.by_node = 0 and c.node is not null) or (c.by_owner = 1 and c.by_node = 1)
   order by c.network_id, 2, c.reserved + c.released + c.reaped + c.adopted + c.quarantined desc, 3
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.counted_misses(proof jsonb, witness jsonb)
 RETURNS TABLE(sequence bigint, head bigint, begun_at timestamp with time zone)
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select distinct on (s.sequence) s.sequence, s.head, to_timestamp(s."begunAt" / 1000)
    from jsonb_to_recordset(witness -> 'misses') as s (sequence bigint, head bigint, "begunAt" float8)
   where s.head >= (proof ->> 'version')::bigint
     and s.head / 1099511627776 = (proof ->> 'era')::bigint
     and s."begunAt" > coalesce((proof ->> 'lastSightedAt')::float8, '-infinity')
   order by s.sequence
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_lease(event ipledger_audit.log, at timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_owner(kind text, name text, uid text, incarnation text, interface text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case when kind is null then 'nobody known'
              else concat(kind, ' ', name, ' uid ' || nullif(uid, name), ' incarnation ' || nullif(incarnation, ''), ' (' || nullif(interface, '') || ')') end
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_owner(owner jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select ipledger_audit.describe_owner(owner ->> 'kind', owner ->> 'name', owner ->> 'uid', owner ->> 'incarnation', owner ->> 'interface')
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_policy(policy jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select concat(policy ->> 'misses', ' misses, minimum age ', trim_scale((policy ->> 'minimumAgeMs')::numeric / 1000), ' s, unwitnessed ',
           trim_scale((policy ->> 'unwitnessedAgeMs')::numeric / 1000), ' s, grace after an end ', trim_scale((policy ->> 'terminalGraceMs')::numeric / 1000),
           ' s, answers no older than ', trim_scale((policy ->> 'proofAgeMs')::numeric / 1000), ' s')
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_proof(evidence jsonb)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_seen(evidence jsonb)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  select concat('source ', evidence ->> 'source', ' listed ',
           case when evidence #> '{seen,owner}' is null or jsonb_typeof(evidence #> '{seen,owner}') = 'null' then 'somebody unknown'
                else ipledger_audit.describe_owner(evidence #> '{seen,owner}') end,
           ' at ', evidence #>> '{seen,address}', ' as ', evidence #>> '{seen,state}',
           ' on node ' || nullif(evidence #>> '{seen,node}', ''), ' (boot ' || nullif(evidence #>> '{seen,boot}', '') || ')',
           ' in snapshot ', evidence ->> 'sequence', ', begun ', ipledger_audit.moment((evidence ->> 'begunAt')::timestamptz),
           ' at head ', evidence ->> 'head')
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.describe_witness(proof jsonb, witness jsonb)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.event_rate("from" timestamp with time zone, "to" timestamp with time zone, step interval DEFAULT '00:01:00'::interval)
 RETURNS TABLE(network text, at timestamp with time zone, type text, cause text, events bigint, per_second double precision)
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  select l.network_id, date_bin(event_rate.step, l.at, 'epoch'::timestamptz), l.type, l.cause, count(*),
         count(*) / extract(epoch from event_rate.step)::float8
    from ipledger_audit.network n
    cross join lateral (
      select x.network_id, x.at, x.type, x.cause from ipledger_audit.log x
       where x.network_id = n.network and x.at >= event_rate."from" and x.at <= event_rate."to"
       order by x.at, x.seq) l
   group by 1, 2, 3, 4
   order by 1, 2, 3, 4
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.event_sentence(event ipledger_audit.log, pool text)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.excluded_because(settings jsonb, address inet)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select string_agg(distinct x.why, '; ')
    from (select set_masklen(network(b.block)::inet, -1) as first, set_masklen(broadcast(b.block), -1) as last
            from (select set_masklen(address, (settings ->> 'prefixLength')::int) as block) b) b
    cross join ipledger_audit.pool_exclusions(settings) x
   where x.first <= b.last and x.last >= b.first
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.explain_address(network text, address inet, OUT step integer, INOUT at timestamp with time zone DEFAULT now(), OUT seq bigint, OUT what text, OUT evidence jsonb, upto bigint DEFAULT NULL::bigint)
 RETURNS SETOF record
 LANGUAGE sql
 STABLE ROWS 10
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  with asked as materialized (
    select explain_address.network, set_masklen(p.address, -1) as address, p.address as given,
           masklen(p.address) < case family(p.address) when 4 then 32 else 128 end as is_range, explain_address.at,
           coalesce(explain_address.upto, ipledger_audit.position_at(explain_address.network, explain_address.at)) as upto
      from (select ipledger_audit.plain_address(explain_address.address) as address) p
     where p.address is not null
  ),
  known as materialized (
    select a.*, n.head, f.at as begun_at
      from asked a
      left join ipledger_audit.network n on n.network = a.network
      left join lateral (select l.at from ipledger_audit.log l where l.network_id = a.network order by l.seq limit 1) f on true
  ),
  last as materialized (
    select e.* from asked a cross join lateral ipledger_audit.last_event_of(a.network, a.address, a.upto) e
  ),
  before as materialized (
    select e.* from last x cross join lateral ipledger_audit.last_event_of(x.network_id, (select a.address from asked a), x.fencing_token - 1) e
  ),
  pool as materialized (
    select p.*, p.settings::jsonb -> 'pool' as pool from asked a cross join lateral ipledger_audit.pool_at(a.network, a.address, a.upto) p
  ),
  -- What it is handed out with.
  block as materialized (
    select set_masklen(network(w.block)::inet, -1) as first, set_masklen(broadcast(w.block), -1) as last
      from (select set_masklen(a.address, coalesce(
                     (select x.prefix_length::int from last x where x.type not in ('lease.released', 'lease.reaped')),
                     (select (p.pool ->> 'prefixLength')::int from pool p where p.type <> 'pool.deleted'), masklen(a.address))) as block
              from asked a) w
  ),
  seen as materialized (
    select count(*) as sightings,
           string_agg(concat('Source ', s.source, ' listed ', ipledger_audit.describe_owner(s.owner_kind, s.owner_name, s.owner_uid, s.owner_incarnation, s.owner_interface),
                             case when s.address = (select a.address from asked a) then ' there' else ' at ' || host(s.address) || ' in its block' end,
                             ' as ', s.state, ' on node ' || nullif(s.node, ''), ' since ', ipledger_audit.moment(s.appeared_at)), '; ' order by s.appeared_at)
             filter (where s.place <= 5) as words,
           jsonb_agg(to_jsonb(s) - 'place' order by s.appeared_at) as list,
           bool_or(s.state <> 'terminal') as alive
      from (select v.address, v.source, v.owner_kind, v.owner_name, v.owner_uid, v.owner_incarnation, v.owner_interface, v.node, v.boot, v.state,
                   v.appeared_at, v.appeared_sequence, v.appeared_head, v.last_seen_at, row_number() over (order by v.appeared_at desc) as place
              from asked a
              cross join block b
              join ipledger_audit.sightings v on v.network = a.network and v.address >= b.first and v.address <= b.last
             where v.appeared_at <= a.at and (v.vanished_at is null or v.last_seen_at >= a.at)
             order by v.appeared_at desc limit 20) s
  ),
  waits as materialized (
    select string_agg(concat(w.code, ', observed ', ipledger_audit.moment(w.observed_at), ': ', w.what), '; ' order by w.since) as words,
           jsonb_agg(to_jsonb(w) order by w.since) as list
      from known k cross join block b join ipledger_audit.stuck w on w.network = k.network
      left join last x on true
     where k.upto = k.head and (w.address = k.address or w.lease_id = x.network_id || '/' || x.fencing_token)
       -- Observed before what refutes it.
       and (x.at > w.observed_at and x.type <> 'lease.updated') is not true
       and not exists (
         select from ipledger_audit.sightings v
          where v.network = k.network and v.address >= b.first and v.address <= b.last and v.live and w.source in ('', v.source)
            and w.code in ('NEVER_SIGHTED', 'NOBODY_CAN_TELL', 'PROOF_BLOCKED', 'LOOKUP_FAILING', 'LOOKUP_WAITING')
            and (v.appeared_at > w.observed_at or (w.code = 'NEVER_SIGHTED' and v.owner_kind = x.owner_kind and v.owner_uid = x.owner_uid)))
  ),
  is_held as (select exists (select from last x where x.type not in ('lease.released', 'lease.reaped')) as is_held),
  answer as (
    select concat('At ', ipledger_audit.moment(k.at), ' ',
             case
               when k.is_range then concat(
                 k.given, ' is a range: who_had says who has its addresses, and this function explains one of them')
               when k.head is null then concat('there was no network ', k.network)
               when k.upto = 0 then concat('nothing was known of ', host(k.address), ': network ', k.network, ' was begun ', ipledger_audit.moment(k.begun_at))
               else concat(host(k.address), case when p.type <> 'pool.deleted' then ' of pool ' || (p.pool ->> 'name') end, ' ',
                 case
                   when h.is_held then ipledger_audit.describe_lease(x, k.at)
                   when p.seq is null then concat('is in no pool of network ', k.network)
                   when p.type = 'pool.deleted' then concat('is in no pool: pool ', p.pool ->> 'name', ' (', p.pool ->> 'cidr', '), which it was in, was deleted ',
                     ipledger_audit.moment(p.at), ' by ', p.actor, case when x.seq is null then '' else '; before that it ' || ipledger_audit.describe_lease(x, k.at) end)
                   when ipledger_audit.excluded_because(p.pool, k.address) is not null then concat('is never handed out: it is ',
                     ipledger_audit.excluded_because(p.pool, k.address))
                   when x.seq is not null then ipledger_audit.describe_lease(x, k.at)
                   else 'is free, and nobody has ever held it' end,
                 case when not h.is_held and p.type <> 'pool.deleted' and p.pool ->> 'draining' = 'true' then '; the pool is draining and hands nothing out' end) end, '.',
             case when s.sightings > 0 then concat(' ', s.words, case when s.sightings > 5 then concat('; and ', s.sightings - 5, ' more') end, '.',
               case when s.alive and not h.is_held then ' It is seen live though the books have nobody there, and is not handed out while it is listed.' end) end,
             case when w.words is not null then concat(' It waits: ', w.words, '.') end) as what,
           case when h.is_held or x.seq is not null then x.seq else p.seq end as seq,
           jsonb_strip_nulls(jsonb_build_object('position', k.upto, 'sightings', s.list, 'stuck', w.list, 'state',
             case when h.is_held then x.state
                  when p.seq is null or p.type = 'pool.deleted' then 'OUTSIDE'
                  when ipledger_audit.excluded_because(p.pool, k.address) is not null then 'EXCLUDED'
                  when x.available_at > k.at then 'COOLING'
                  else 'FREE' end)) as evidence
      from known k cross join seen s cross join waits w cross join is_held h
      left join last x on true
      left join pool p on true
  ),
  story as materialized (
    select l.* from last x cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = x.network_id and l.address = x.address and l.seq >= x.fencing_token and l.seq <= x.seq
       order by l.seq desc limit 100) l
    union all
    select l.* from before x cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = x.network_id and l.address = x.address and l.seq >= x.fencing_token and l.seq <= x.seq
       order by l.seq desc limit 100) l
    union all
    select l.* from pool p join ipledger_audit.log l on l.network_id = p.network_id and l.seq = p.seq
     where not exists (select from last x where x.seq > p.seq)
  )
  select 0, k.at, a.seq, a.what, a.evidence from known k cross join answer a
  union all
  select row_number() over (order by l.seq)::int, l.at, l.seq, ipledger_audit.event_sentence(l, ipledger_audit.pool_name(l.network_id, l.pool_id)), l.evidence
    from (select s.network_id, s.seq from story s order by s.seq desc limit 200) s
    join ipledger_audit.log l on l.network_id = s.network_id and l.seq = s.seq
   where not (select a.is_range from asked a)
   order by 1
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.held_at(network text, address inet, upto bigint)
 RETURNS SETOF ipledger_audit.log
 LANGUAGE sql
 STABLE
AS $function$
  select e.*
    from ipledger_audit.last_events(held_at.network, set_masklen(network(held_at.address)::inet, -1), held_at.upto) e
   where e.type not in ('lease.released', 'lease.reaped')
  union all
  select e.*
    from ipledger_audit.known_addresses(held_at.network, held_at.address) as k (address)
    cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = held_at.network and l.address >= k.address and (l.address, l.seq) <= (k.address, held_at.upto)
       order by l.address desc, l.seq desc limit 1) e
   where e.type not in ('lease.released', 'lease.reaped')
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.known_addresses(network text, address inet)
 RETURNS SETOF inet
 LANGUAGE sql
 STABLE
AS $function$
  with recursive bounds as (
    select set_masklen(network(known_addresses.address)::inet, -1) as first, set_masklen(broadcast(known_addresses.address), -1) as last
  ),
  known (address) as (
    (select l.address from bounds b cross join lateral (
       select l.address from ipledger_audit.log l
        where l.network_id = known_addresses.network and l.address > b.first and l.address <= b.last
        order by l.address, l.seq limit 1) l)
    union all
    select n.address from known k cross join bounds b cross join lateral (
      select l.address from ipledger_audit.log l
       where l.network_id = known_addresses.network and l.address > k.address and l.address <= b.last
       order by l.address, l.seq limit 1) n
  )
  select k.address from known k
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.last_event_of(network text, address inet, upto bigint)
 RETURNS SETOF ipledger_audit.log
 LANGUAGE sql
 STABLE ROWS 1
AS $function$
  with recursive found as (
    select e.*
      from ipledger_audit.possible_bases(last_event_of.address) as b (base)
      cross join lateral (
        select l.* from ipledger_audit.log l
         where l.network_id = last_event_of.network and l.address >= b.base and (l.address, l.seq) <= (b.base, last_event_of.upto)
         order by l.address desc, l.seq desc limit 1) e
    union all
    select e.*
      from found f
      cross join lateral (
        select l.* from ipledger_audit.log l
         where l.network_id = last_event_of.network and l.address >= f.address and (l.address, l.seq) < (f.address, f.pool_id)
         order by l.address desc, l.seq desc limit 1) e
     where not set_masklen(f.address, f.prefix_length) >>= last_event_of.address
  )
  select f.* from found f
   where set_masklen(f.address, f.prefix_length) >>= last_event_of.address
   order by f.seq desc limit 1
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.last_events(network text, address inet, upto bigint)
 RETURNS SETOF ipledger_audit.log
 LANGUAGE sql
 STABLE ROWS 1
AS $function$
  select e.*
    from ipledger_audit.possible_bases(last_events.address) as b (base)
    cross join lateral (
      select l.* from ipledger_audit.log l
       where l.network_id = last_events.network and l.address >= b.base and (l.address, l.seq) <= (b.base, last_events.upto)
       order by l.address desc, l.seq desc limit 1) e
   where set_masklen(e.address, e.prefix_length) >>= last_events.address
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.lease_history(lease_id text)
 RETURNS SETOF ipledger_audit.event
 LANGUAGE sql
 STABLE ROWS 10
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  with named as materialized (
    select split_part(lease_history.lease_id, '/', 1) as network, split_part(lease_history.lease_id, '/', 2)::bigint as token
     where lease_history.lease_id ~ '^[^/]{1,63}/[1-9][0-9]{0,15}$'
  ),
  span as materialized (
    select b.network_id, b.address, b.seq as first, coalesce(ended.seq, 9223372036854775807) as last
      from named n
      join ipledger_audit.log b on b.network_id = n.network and b.seq = n.token and b.fencing_token = n.token
      left join lateral (
        select x.seq from ipledger_audit.log x
         where x.network_id = b.network_id and x.address <= b.address and (x.address, x.seq) > (b.address, b.seq)
           and x.type in ('lease.released', 'lease.reaped')
         order by x.address, x.seq limit 1) ended on true
  ),
  about as materialized (
    select s.network_id, l.seq from span s cross join lateral (
      select l.seq, l.fencing_token from ipledger_audit.log l
       where l.network_id = s.network_id and l.address = s.address and l.seq >= s.first and l.seq <= s.last) l
     where l.fencing_token = s.first
  )
  select e.* from about a join ipledger_audit.event e on e.network = a.network_id and e.seq = a.seq
   order by e.seq
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.leases_as_of(network text, at timestamp with time zone, after inet DEFAULT NULL::inet, most bigint DEFAULT NULL::bigint)
 RETURNS SETOF ipledger_audit.lease
 LANGUAGE sql
 STABLE
AS $function$
  select l.* from ipledger_audit.leases_as_of(
    leases_as_of.network, ipledger_audit.position_at(leases_as_of.network, leases_as_of.at), leases_as_of.after, leases_as_of.most) l
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.leases_as_of(network text, seq bigint, after inet DEFAULT NULL::inet, most bigint DEFAULT NULL::bigint)
 RETURNS SETOF ipledger_audit.lease
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'on'
 SET enable_memoize TO 'off'
 SET jit TO 'off'
 SET max_parallel_workers_per_gather TO '0'
 SET work_mem TO '128MB'
AS $function$
  with recursive base as materialized (
    select coalesce((
      select c.seq from ipledger_audit.checkpoint c
       where c.network = leases_as_of.network and c.seq <= leases_as_of.seq order by c.seq desc limit 1), 0) as seq
  ),
  names as materialized (
    select coalesce(jsonb_object_agg(k.pool_id, k.pool), '{}') as names
      from (select p.pool_id, p.pool from ipledger_audit.pool p where p.network = leases_as_of.network
            union all
            select d.pool_id, ipledger_audit.pool_name(d.network_id, d.pool_id)
              from ipledger_audit.log d
             where d.network_id = leases_as_of.network and d.seq > leases_as_of.seq and d.type = 'pool.deleted') k
  ),
  asked as materialized (
    select b.seq as base, coalesce(set_masklen(leases_as_of.after, -1), '0.0.0.0/0') as after, s.steps,
           s.steps >= leases_as_of.most as is_walked
      from base b
      cross join lateral (
        select least(coalesce(max(l.seq), 0) - b.seq, 250000) / 20 as steps from (
          select l.seq from ipledger_audit.log l
           where l.network_id = leases_as_of.network and l.seq <= leases_as_of.seq order by l.seq desc limit 1) l) s
  ),
  walked (address, step) as (
    (select n.address, 1::bigint from asked a cross join lateral (
       select l.address from ipledger_audit.log l
        where l.network_id = leases_as_of.network and l.address > a.after order by l.address, l.seq limit 1) n
      where a.is_walked)
    union all
    select n.address, w.step + 1 from walked w cross join lateral (
      select l.address from ipledger_audit.log l
       where l.network_id = leases_as_of.network and l.address > w.address order by l.address, l.seq limit 1) n
     where w.step <= (select a.steps from asked a)
  ),
  page as materialized (
    select e.seq from walked w cross join lateral (
      select l.seq, l.type from ipledger_audit.log l
       where l.network_id = leases_as_of.network and l.address >= w.address and (l.address, l.seq) <= (w.address, leases_as_of.seq)
       order by l.address desc, l.seq desc limit 1) e
     where e.type not in ('lease.released', 'lease.reaped')
     limit leases_as_of.most
  ),
  is_page as materialized (
    select case when a.is_walked then
             case when (select count(*) from page) >= leases_as_of.most then true
                  else (select coalesce(max(w.step), 0) from walked w) <= a.steps end
           else false end as is_page
      from asked a
  ),
  part as (
    select p.part, p.first_address, p.last_address, p.leases from ipledger_audit.checkpoint_part p
     where p.network = leases_as_of.network and p.seq = (select a.base from asked a) and p.last_address > (select a.after from asked a)
  ),
  reach as materialized (
    select case when leases_as_of.most is null or i.is_page or (select sum(p.leases) > leases_as_of.most from part p) is not true then null else (
      select r.last_address from (
        select k.part, k.last_address, sum(greatest(k.leases - k.ended, 0)) over (order by k.part) as sure
          from (select m.part, max(m.last_address) as last_address, count(*) - 1 as ended,
                       max(m.leases) filter (where m.address > (select a.after from asked a)) as leases
                  from (select x.address, x.last_address, x.leases, max(x.part) over (order by x.address) as part
                          from (select p.first_address as address, p.part, p.last_address, p.leases from part p
                                union all
                                select distinct l.address, null::integer, null::inet, null::integer
                                  from (select l.address, l.type from ipledger_audit.log l
                                         where l.network_id = leases_as_of.network and l.seq > (select a.base from asked a) and l.seq <= leases_as_of.seq
                                         order by l.seq) l
                                 where l.type in ('lease.released', 'lease.reaped') and l.address > (select a.after from asked a)) x) m
                 group by m.part) k) r
       where r.sure >= leases_as_of.most order by r.part limit 1) end as last_address
      from is_page i
  )
  select h.network_id, set_masklen(h.address, h.prefix_length),
         coalesce((select n.names from names n) ->> h.pool_id::text, ipledger_audit.pool_name(h.network_id, h.pool_id)), h.state,
         h.network_id || '/' || h.fencing_token, h.fencing_token, h.seq, h.owner_kind, h.owner_name, h.owner_uid, h.owner_incarnation,
         h.owner_interface, h.node, h.boot, h.labels, h.reserved_at, h.confirmed_at, h.confirm_by, h.quarantine_reason, h.quarantined_at,
         h.quarantined_by, h.quarantine_why,
         case when h.seq = h.fencing_token then h.at
              else (select b.at from ipledger_audit.log b where b.network_id = h.network_id and b.seq = h.fencing_token) end
    from (
      select distinct on (e.address) e.*
        from (
          select l.*
            from ipledger_audit.checkpoint_part p
            join ipledger_audit.log l on l.network_id = leases_as_of.network and l.seq = any(p.events)
           where not (select i.is_page from is_page i)
             and p.network = leases_as_of.network and p.seq = (select a.base from asked a) and p.last_address > (select a.after from asked a)
             and ((select r.last_address from reach r) is null or p.first_address <= (select r.last_address from reach r))
          union all
          (select l.* from ipledger_audit.log l
            where not (select i.is_page from is_page i)
              and l.network_id = leases_as_of.network and l.seq > (select a.base from asked a) and l.seq <= leases_as_of.seq
              and l.type like 'lease.%'
            order by l.seq)
          union all
          select l.* from page p cross join lateral (
            select x.* from ipledger_audit.log x
             where x.network_id = leases_as_of.network and x.seq >= p.seq and x.seq <= p.seq order by x.seq limit 1) l
           where (select i.is_page from is_page i)) e
       where e.address > (select a.after from asked a)
         and ((select r.last_address from reach r) is null or e.address <= (select r.last_address from reach r))
       order by e.address, e.seq desc) h
   where h.type not in ('lease.released', 'lease.reaped')
   order by h.address
   limit leases_as_of.most
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.marks("from" timestamp with time zone, "to" timestamp with time zone)
 RETURNS TABLE(network text, seq bigint, at timestamp with time zone, mark text, what text)
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  select n.network, e.seq, e.at,
         case e.type when 'lease.reaped' then 'reap' when 'lease.quarantined' then 'conflict' when 'era.begun' then 'era'
                     when 'node.fenced' then 'fence' else 'hold' end,
         e.what
    from ipledger_audit.network n
    cross join lateral (
      select l.seq, l.at, l.type, l.what, l.quarantine_reason from ipledger_audit.event l
       where l.network = n.network and l.at >= marks."from" and l.at <= marks."to"
         and l.type in ('lease.reaped', 'lease.quarantined', 'era.begun', 'node.fenced', 'reconcile.held', 'reconcile.resumed')) e
   where e.type <> 'lease.quarantined' or e.quarantine_reason = 'CONFLICT'
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.moment(milliseconds jsonb)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  select ipledger_audit.moment(to_timestamp((milliseconds #>> '{}')::float8 / 1000))
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.moment(moment timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  select case when isfinite(moment) then to_char(moment at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') || ' UTC' else moment::text end
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.owner_history(network text, name text)
 RETURNS SETOF ipledger_audit.event
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  with about as materialized (
    select l.seq from ipledger_audit.log l
     where l.network_id = owner_history.network and l.owner_name = owner_history.name
     order by l.owner_name, l.seq
  )
  select e.* from about a join ipledger_audit.event e on e.network = owner_history.network and e.seq = a.seq
   order by e.seq
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.plain_address(address inet)
 RETURNS inet
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case when family(address) = 6 and masklen(address) >= 96 and address <<= '::ffff:0:0/96'
              then set_masklen('0.0.0.0'::inet + (set_masklen(address, 128) - '::ffff:0:0'::inet), masklen(address) - 96)
              else address end
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.pool_at(network text, address inet, upto bigint)
 RETURNS SETOF ipledger_audit.log
 LANGUAGE sql
 STABLE ROWS 1
AS $function$
  select p.*
    from (select distinct on (l.pool_id) l.* from ipledger_audit.log l
           where l.network_id = pool_at.network and l.seq <= pool_at.upto and l.type in ('pool.created', 'pool.updated', 'pool.deleted')
           order by l.pool_id, l.seq desc) p
   where (p.settings #>> '{pool,cidr}')::inet >>= pool_at.address
   order by p.type = 'pool.deleted', p.seq desc limit 1
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.pool_exclusions(settings jsonb)
 RETURNS TABLE(first inet, last inet, why text)
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select nullif(settings ->> 'gateway', '')::inet, nullif(settings ->> 'gateway', '')::inet, 'the gateway of the pool' where settings ->> 'gateway' <> ''
  union all
  select split_part(x.range, '-', 1)::inet, coalesce(nullif(split_part(x.range, '-', 2), ''), x.range)::inet, 'excluded by the pool''s settings (' || x.range || ')'
    from jsonb_array_elements_text(settings -> 'exclude') as x (range)
  union all
  select set_masklen(network(s.subnet)::inet, -1), set_masklen(network(s.subnet)::inet, -1),
         case s.family when 4 then 'the network address of its subnet' else 'the subnet-router anycast address of its subnet' end
    from (select (settings ->> 'subnet')::inet as subnet, family((settings ->> 'subnet')::inet) as family) s
   where masklen(s.subnet) < case s.family when 4 then 31 else 127 end
     and (settings ->> 'prefixLength')::int = case s.family when 4 then 32 else 128 end
  union all
  select set_masklen(broadcast((settings ->> 'subnet')::inet), -1), set_masklen(broadcast((settings ->> 'subnet')::inet), -1), 'the broadcast address of its subnet'
   where family((settings ->> 'subnet')::inet) = 4 and masklen((settings ->> 'subnet')::inet) < 31 and (settings ->> 'prefixLength')::int = 32
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.pool_name(network text, pool_id bigint)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  select coalesce(
           (select p.pool from ipledger_audit.pool p where p.network = pool_name.network and p.pool_id = pool_name.pool_id),
           (select c.settings #>> '{pool,name}' from ipledger_audit.log c where c.network_id = pool_name.network and c.seq = pool_name.pool_id),
           '')
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.pool_space(settings jsonb, OUT size numeric, OUT allocatable numeric)
 RETURNS record
 LANGUAGE sql
 IMMUTABLE
AS $function$
  with pool as (
    select ipledger_audit.address_number(set_masklen(network((settings ->> 'cidr')::inet)::inet, -1)) as first,
           ipledger_audit.address_number(set_masklen(broadcast((settings ->> 'cidr')::inet), -1)) as last,
           trunc(power(2::numeric, case family((settings ->> 'cidr')::inet) when 4 then 32 else 128 end - (settings ->> 'prefixLength')::int)) as block
  ),
  whole as (
    select p.first, p.last, p.block, div(p.last - p.first + 1, p.block) as size from pool p
  ),
  excluded as (
    select sum(upper(r.range) - lower(r.range)) as blocks
      from (select unnest(range_agg(numrange(div(greatest(ipledger_audit.address_number(x.first), w.first) - w.first, w.block),
                                            div(least(ipledger_audit.address_number(x.last), w.last) - w.first, w.block) + 1))) as range
              from whole w cross join ipledger_audit.pool_exclusions(settings) x
             where ipledger_audit.address_number(x.first) <= w.last and ipledger_audit.address_number(x.last) >= w.first) r
  )
  select w.size, w.size - coalesce(e.blocks, 0) from whole w cross join excluded e
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.pool_usage_history(INOUT network text, INOUT pool text, "from" timestamp with time zone, "to" timestamp with time zone, OUT at timestamp with time zone, OUT cidr cidr, OUT family smallint, OUT size numeric, OUT allocatable numeric, OUT free numeric, OUT cooling bigint, OUT reserved bigint, OUT active bigint, OUT quarantined bigint, OUT excluded numeric, OUT used_ratio double precision)
 RETURNS SETOF record
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  select pool_usage_history.network, pool_usage_history.pool, s.at, p.cidr, family(p.cidr)::smallint, s.size, s.allocatable, s.free, s.cooling, s.reserved,
         s.active, s.quarantined, s.excluded, ((s.reserved + s.active + s.quarantined) / nullif(s.allocatable, 0))::float8
    from (select distinct on (l.pool_id) l.pool_id, (l.settings #>> '{pool,cidr}')::cidr as cidr, l.settings #>> '{pool,name}' as name
            from ipledger_audit.log l
           where l.network_id = pool_usage_history.network and l.type in ('pool.created', 'pool.updated', 'pool.deleted')
           order by l.pool_id, l.seq desc) p
    cross join lateral (
      select x.* from ipledger_audit.pool_samples x
       where x.network = pool_usage_history.network and x.pool_id = p.pool_id
         and x.at >= pool_usage_history."from" and x.at <= pool_usage_history."to"
       order by x.at) s
   where p.name = pool_usage_history.pool
   order by s.at
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.position_at(network text, at timestamp with time zone)
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$
  select coalesce((
    select l.seq from ipledger_audit.log l
     where l.network_id = position_at.network and l.at <= position_at.at order by l.at desc, l.seq desc limit 1), 0)
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.possible_bases(address inet)
 RETURNS SETOF inet
 LANGUAGE sql
 IMMUTABLE ROWS 33
AS $function$
  select distinct set_masklen(network(set_masklen(address, bits))::inet, -1)
    from generate_series(0, case family(address) when 4 then 32 else 128 end) as bits
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.quarantine_exit(reason text, has_holder boolean)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case reason
    when 'OPERATOR' then 'It ends by an operator only: Reap'
    when 'SUPERSEDED' then 'It ends when a Release by its holder confirms the removal, on proof that its holder is gone, or by an operator: Reap'
    when 'REMOVAL_UNCONFIRMED' then 'It ends when a Release by its holder confirms the removal, on proof that its holder is gone, or by an operator: Reap'
    when 'FOREIGN' then 'It ends when enough complete snapshots in a row, of every source that saw somebody there, show nobody, or by an operator: Reap'
    when 'SEEN_BY_CALLER' then 'It ends when enough complete snapshots in a row, of every enabled source that covers the network, show nobody; without such a source by an operator: Reap'
    else concat(
      case when has_holder then 'It ends when enough complete snapshots in a row, of every source that saw it, show its holder and nobody else, who then has it, or on proof that nobody is there, or by an operator: Reap; a Release takes its holder off it, and it stays'
           else 'It ends on proof that nobody is there, or by an operator: Reap' end)
    end
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.reaps("from" timestamp with time zone, "to" timestamp with time zone)
 RETURNS TABLE(network text, seq bigint, at timestamp with time zone, address inet, lease_id text, pool text, owner_kind text, owner_name text, owner_uid text, owner_incarnation text, owner_interface text, node text, cause text, actor text, source text, why text, snapshots bigint[], heads bigint[], misses integer, last_sighted_at timestamp with time zone, lookup_answer text, lookup_at timestamp with time zone, lookup_detail text, policy jsonb, evidence jsonb)
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION ipledger_audit.who_had(INOUT network text, INOUT address inet, at timestamp with time zone, OUT pool text, OUT state text, OUT lease_id text, OUT fencing_token bigint, OUT version bigint, OUT owner_kind text, OUT owner_name text, OUT owner_uid text, OUT owner_incarnation text, OUT owner_interface text, OUT node text, OUT boot text, OUT labels jsonb, OUT reserved_at timestamp with time zone, OUT confirmed_at timestamp with time zone, OUT confirm_by timestamp with time zone, OUT quarantine_reason text, OUT quarantined_at timestamp with time zone, OUT quarantined_by text, OUT quarantine_why text, OUT since timestamp with time zone, OUT seq bigint, OUT given_by text, OUT given_cause text, OUT until timestamp with time zone, OUT ended_as text)
 RETURNS SETOF record
 LANGUAGE sql
 STABLE ROWS 1
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'on'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
  select e.network_id, set_masklen(e.address, e.prefix_length), coalesce(p.pool, ipledger_audit.pool_name(e.network_id, e.pool_id)), e.state,
         e.network_id || '/' || e.fencing_token, e.fencing_token, e.seq, e.owner_kind, e.owner_name, e.owner_uid, e.owner_incarnation,
         e.owner_interface, e.node, e.boot, e.labels, e.reserved_at, e.confirmed_at, e.confirm_by, e.quarantine_reason, e.quarantined_at,
         e.quarantined_by, e.quarantine_why, b.at, e.seq, b.actor, b.cause, u.at, u.type || '/' || u.cause
    from ipledger_audit.held_at(who_had.network, ipledger_audit.plain_address(who_had.address), ipledger_audit.position_at(who_had.network, who_had.at)) e
    left join ipledger_audit.pool p on p.network = e.network_id and p.pool_id = e.pool_id
    left join ipledger_audit.log b on b.network_id = e.network_id and b.seq = e.fencing_token
    left join lateral (
      select n.at, n.type, n.cause from ipledger_audit.log n
       where n.network_id = e.network_id and n.address <= e.address and (n.address, n.seq) > (e.address, e.seq)
         and n.type in ('lease.released', 'lease.reaped')
       order by n.address, n.seq limit 1) u on true
   order by e.address
$function$;

create table ipledger.boot_report (
  network_id text collate "C" not null,
  node text collate "C" not null,
  boot text collate "C" not null,
  source_id text collate "C" not null,
  reported_at timestamp with time zone not null,
  constraint boot_is_heard_of_once_by_a_source PRIMARY KEY (network_id, node, boot, source_id)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=90);

create table ipledger.closed_attachment (
  network_id text collate "C" not null,
  attachment_key text collate "C" not null,
  pool_id bigint not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_uid_named boolean not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  closed_at timestamp with time zone not null,
  closed_seq bigint not null,
  constraint attachment_is_closed_once_per_pool PRIMARY KEY (network_id, attachment_key, pool_id)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.database_life (
  network_id text collate "C" not null,
  system_identifier text collate "C" not null,
  database_oid bigint not null,
  log_oid bigint not null,
  timeline integer not null,
  known_at timestamp with time zone not null,
  constraint network_is_written_in_one_life PRIMARY KEY (network_id)
);

create table ipledger.dropped_range (
  network_id text collate "C" not null,
  first_address inet not null,
  last_address inet not null,
  pool_id bigint not null,
  constraint dropped_range_starts_once PRIMARY KEY (network_id, first_address),
  constraint dropped_range_is_not_empty CHECK (first_address <= last_address)
);

create table ipledger.event (
  network_id text collate "C" not null,
  seq bigint not null,
  type text collate "C" not null,
  at timestamp with time zone not null,
  actor text collate "C" not null,
  cause text collate "C" not null,
  request_id text collate "C",
  trace_id text collate "C",
  pool_id bigint,
  address inet,
  prefix_length smallint,
  fencing_token bigint,
  state text collate "C",
  quarantine_reason text collate "C",
  quarantined_at timestamp with time zone,
  quarantined_by text collate "C",
  quarantine_why text,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C",
  boot text collate "C",
  labels jsonb,
  witness text collate "C",
  reserved_at timestamp with time zone,
  confirmed_at timestamp with time zone,
  confirm_by timestamp with time zone,
  available_at timestamp with time zone,
  removal_confirmed boolean,
  settings json,
  evidence jsonb,
  constraint event_is_numbered_once_per_network PRIMARY KEY (network_id, seq),
  constraint event_about_a_lease_names_it CHECK (type !~~ 'lease.%'::text OR num_nulls(pool_id, address, prefix_length, fencing_token, state, reserved_at) = 0),
  constraint event_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint event_number_is_positive CHECK (seq > 0),
  constraint event_that_ends_a_lease_says_when_it_cools CHECK ((type <> ALL (ARRAY['lease.released'::text, 'lease.reaped'::text])) OR num_nulls(available_at, removal_confirmed) = 0),
  constraint event_type_is_known CHECK (type = ANY (ARRAY['network.created'::text, 'network.updated'::text, 'era.begun'::text, 'pool.created'::text, 'pool.updated'::text, 'pool.deleted'::text, 'lease.reserved'::text, 'lease.confirmed'::text, 'lease.released'::text, 'lease.quarantined'::text, 'lease.reaped'::text, 'lease.adopted'::text, 'lease.updated'::text, 'attachment.closed'::text, 'node.fenced'::text, 'reconcile.held'::text, 'reconcile.resumed'::text]))
);

create table ipledger.fence (
  network_id text collate "C" not null,
  node text collate "C" not null,
  boot text collate "C" not null,
  fenced_seq bigint not null,
  fenced_at timestamp with time zone not null,
  fenced_by text collate "C" not null,
  why text not null,
  fenced_head bigint,
  constraint boot_is_fenced_once PRIMARY KEY (network_id, node, boot),
  constraint fence_is_of_leases_before_it CHECK (fenced_head < fenced_seq)
);

create table ipledger.hold (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  held_seq bigint not null,
  held_at timestamp with time zone not null,
  why text not null,
  reaps integer not null,
  leases bigint not null,
  constraint source_is_held_once PRIMARY KEY (network_id, source_id)
);

create table ipledger.lease (
  network_id text collate "C" not null,
  address inet not null,
  prefix_length smallint not null,
  pool_id bigint not null,
  fencing_token bigint not null,
  version bigint not null,
  state text collate "C" not null,
  quarantine_reason text collate "C",
  quarantined_at timestamp with time zone,
  quarantined_by text collate "C",
  quarantine_why text,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  holder_key text collate "C",
  attachment_key text collate "C",
  node text collate "C" not null,
  boot text collate "C" not null,
  labels jsonb not null,
  witness text collate "C" not null,
  reserved_at timestamp with time zone not null,
  confirmed_at timestamp with time zone,
  confirm_by timestamp with time zone,
  asked_from text collate "C" not null default ''::text,
  constraint address_has_one_lease PRIMARY KEY (network_id, address),
  constraint held_lease_has_an_owner CHECK (num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key) =
CASE
    WHEN state = 'QUARANTINED'::text AND owner_kind IS NULL THEN 8
    ELSE 0
END),
  constraint lease_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint lease_state_is_known CHECK (state = ANY (ARRAY['RESERVED'::text, 'ACTIVE'::text, 'QUARANTINED'::text])),
  constraint lease_version_is_not_before_its_token CHECK (version >= fencing_token),
  constraint only_reserved_leases_have_a_deadline CHECK (confirm_by IS NULL OR state = 'RESERVED'::text),
  constraint quarantined_lease_has_a_known_reason CHECK (num_nulls(quarantine_reason, quarantined_at, quarantined_by) =
CASE state
    WHEN 'QUARANTINED'::text THEN 0
    ELSE 3
END AND (quarantine_reason = ANY (ARRAY['SUPERSEDED'::text, 'REMOVAL_UNCONFIRMED'::text, 'CONFLICT'::text, 'OPERATOR'::text, 'RELEASED_BUT_LIVE'::text, 'FOREIGN'::text, 'SECOND_ADDRESS'::text, 'SEEN_BY_CALLER'::text])))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=85);

create table ipledger.lease_checkpoint (
  network_id text collate "C" not null,
  seq bigint not null,
  leases bigint not null,
  parts integer not null,
  made_at timestamp with time zone not null,
  verified_at timestamp with time zone,
  constraint checkpoint_is_made_once_at_a_number PRIMARY KEY (network_id, seq)
);

create table ipledger.lease_checkpoint_part (
  network_id text collate "C" not null,
  seq bigint not null,
  part integer not null,
  first_address inet not null,
  last_address inet not null,
  leases integer not null,
  events bigint[] not null,
  constraint checkpoint_part_is_kept_once PRIMARY KEY (network_id, seq, part),
  constraint checkpoint_part_is_not_empty CHECK (leases > 0 AND leases = cardinality(events) AND first_address <= last_address)
);

create table ipledger.lookup (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  fencing_token bigint not null,
  attachment_key text collate "C" not null,
  version bigint not null,
  address inet not null,
  owner_kind text collate "C" not null,
  owner_name text collate "C" not null,
  owner_uid text collate "C" not null,
  owner_uid_named boolean not null,
  owner_incarnation text collate "C" not null,
  owner_interface text collate "C" not null,
  node text collate "C" not null,
  wanted_at timestamp with time zone not null,
  asked_at timestamp with time zone,
  answered_at timestamp with time zone,
  answer text collate "C",
  terminal_since timestamp with time zone,
  epoch text collate "C" not null,
  detail text not null,
  attempts integer not null,
  next_at timestamp with time zone,
  constraint lookup_is_kept_once_per_lease_owner_and_source PRIMARY KEY (network_id, source_id, fencing_token, attachment_key),
  constraint lookup_attempts_are_counted CHECK (attempts >= 0),
  constraint lookup_has_a_known_answer CHECK (answer = ANY (ARRAY['live'::text, 'terminal'::text, 'gone'::text, 'unknown'::text, 'error'::text, 'unanswered'::text])),
  constraint lookup_is_answered_after_it_was_asked CHECK ((answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL OR asked_at IS NOT NULL)),
  constraint only_a_terminal_workload_ended_at_a_time CHECK ((terminal_since IS NOT NULL) = (answer IS NOT NULL AND answer = 'terminal'::text))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.migration (
  version integer not null,
  name text not null,
  checksum text not null,
  applied_at timestamp with time zone not null default clock_timestamp(),
  constraint migration_is_applied_once PRIMARY KEY (version)
);

create table ipledger.network (
  network_id text collate "C" not null,
  description text not null,
  labels jsonb not null,
  state text collate "C" not null,
  era integer not null,
  version bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  rebuilding_since timestamp with time zone,
  constraint network_name_is_unique PRIMARY KEY (network_id),
  constraint network_era_is_not_negative CHECK (era >= 0),
  constraint network_name_is_a_dns_like_label CHECK (network_id ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'::text),
  constraint network_state_is_known CHECK (state = ANY (ARRAY['READY'::text, 'REBUILDING'::text, 'RECOVERING'::text]))
);

create table ipledger.network_lock (
  network_id text collate "C" not null,
  constraint network_lock_has_one_row_per_network PRIMARY KEY (network_id)
);

create table ipledger.pool (
  network_id text collate "C" not null,
  pool_id bigint not null,
  name text collate "C" not null,
  version bigint not null,
  family smallint not null,
  cidr cidr not null,
  is_default boolean not null,
  settings json not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint pool_id_is_unique_in_its_network PRIMARY KEY (network_id, pool_id),
  constraint pool_name_is_unique_in_its_network UNIQUE (network_id, name),
  constraint pool_family_is_that_of_its_cidr CHECK (family = family(cidr::inet)),
  constraint pools_of_a_network_never_overlap EXCLUDE USING gist (network_id WITH =, cidr inet_ops WITH &&)
);

create table ipledger.pool_position (
  network_id text collate "C" not null,
  pool_id bigint not null,
  seq bigint not null,
  low_first inet,
  cursor_first inet,
  cursor_next inet,
  reuse_after timestamp with time zone,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  released bigint not null,
  constraint pool_has_one_position_per_batch PRIMARY KEY (network_id, pool_id, seq),
  constraint pool_counts_are_not_negative CHECK (reserved >= 0 AND active >= 0 AND quarantined >= 0 AND released >= 0),
  constraint pool_cursor_is_whole CHECK ((cursor_first IS NULL) = (cursor_next IS NULL))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.pool_sample (
  network_id text collate "C" not null,
  pool_id bigint not null,
  at timestamp with time zone not null,
  size numeric not null,
  allocatable numeric not null,
  cooling bigint not null,
  reserved bigint not null,
  active bigint not null,
  quarantined bigint not null,
  excluded numeric not null,
  constraint pool_is_sampled_once_a_minute PRIMARY KEY (network_id, pool_id, at),
  constraint sampled_counts_are_not_negative CHECK (cooling >= 0 AND reserved >= 0 AND active >= 0 AND quarantined >= 0),
  constraint sampled_pool_is_what_it_is_made_of CHECK (size = (allocatable + excluded))
);

create table ipledger.released_address (
  network_id text collate "C" not null,
  address inet not null,
  pool_id bigint not null,
  prefix_length smallint not null,
  available_at timestamp with time zone not null,
  released_seq bigint not null,
  holder_key text collate "C" not null,
  removal_confirmed boolean not null,
  constraint address_is_released_once PRIMARY KEY (network_id, address),
  constraint released_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.request (
  network_id text collate "C" not null,
  request_id text collate "C" not null,
  fingerprint text collate "C" not null,
  method text collate "C" not null,
  at timestamp with time zone not null,
  seq bigint not null,
  answer json not null,
  constraint request_id_is_remembered_once PRIMARY KEY (network_id, request_id)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.seal (
  network_id text collate "C" not null,
  first_seq bigint not null,
  last_seq bigint not null,
  leaves bytea not null,
  digest bytea not null,
  previous_digest bytea not null,
  sealed_at timestamp with time zone not null,
  constraint event_is_sealed_once PRIMARY KEY (network_id, first_seq),
  constraint seal_covers_some_events CHECK (first_seq > 0 AND last_seq >= first_seq),
  constraint seal_digest_is_of_its_leaves CHECK (digest = ipledger.seal_digest(previous_digest, network_id, first_seq, last_seq, leaves)),
  constraint seal_has_a_leaf_for_each_event CHECK (octet_length(leaves) = (16 * (last_seq - first_seq + 1))),
  constraint seal_is_short_enough_to_be_read_at_once CHECK ((last_seq - first_seq) < 16384),
  constraint seal_names_a_digest_before_it CHECK (octet_length(previous_digest) = 32),
  constraint seal_stays_within_an_era CHECK ((first_seq >> 40) = (last_seq >> 40))
);

create table ipledger.seal_lock (
  network_id text collate "C" not null,
  constraint seal_lock_has_one_row_per_network PRIMARY KEY (network_id)
);

create table ipledger.sighting (
  network_id text collate "C" not null,
  address inet not null,
  source_id text collate "C" not null,
  entry_key text collate "C" not null,
  appeared_sequence bigint not null,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  node text collate "C" not null,
  boot text collate "C" not null,
  state text collate "C" not null,
  live boolean not null,
  epoch text collate "C" not null,
  appeared_head bigint not null,
  appeared_at timestamp with time zone not null,
  last_seen_at timestamp with time zone,
  vanished_sequence bigint,
  vanished_head bigint,
  vanished_at timestamp with time zone,
  constraint sighting_begins_once PRIMARY KEY (network_id, address, source_id, entry_key, appeared_sequence),
  constraint live_is_what_is_listed_and_has_not_ended CHECK (live = (vanished_sequence IS NULL AND state <> 'terminal'::text)),
  constraint sighted_owner_is_whole CHECK (num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface) = ANY (ARRAY[0, 6])),
  constraint sighting_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint sighting_ends_after_it_began CHECK (vanished_sequence > appeared_sequence),
  constraint sighting_vanishes_as_a_whole CHECK (num_nulls(last_seen_at, vanished_sequence, vanished_head, vanished_at) = ANY (ARRAY[0, 4]))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.signing_key (
  network_id text collate "C" not null,
  secret text collate "C" not null,
  made_at timestamp with time zone not null,
  constraint network_has_one_signing_key PRIMARY KEY (network_id),
  constraint signing_key_has_256_bits CHECK (secret ~ '^[A-Za-z0-9_-]{43}$'::text)
);

create table ipledger.snapshot (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  sequence bigint not null,
  reported_at timestamp with time zone not null,
  epoch text collate "C" not null,
  era integer not null,
  head bigint not null,
  begun_at timestamp with time zone,
  complete boolean not null,
  counted boolean not null,
  partial_because text[] not null,
  entries integer not null,
  unreadable integer not null,
  ignored integer not null,
  appeared integer not null,
  vanished integer not null,
  digest text collate "C" not null,
  constraint report_is_kept_once PRIMARY KEY (network_id, source_id, sequence, reported_at),
  constraint only_complete_snapshots_count CHECK (complete OR NOT counted),
  constraint only_complete_snapshots_end_sightings CHECK (complete OR vanished = 0),
  constraint partial_snapshot_says_why CHECK (complete = (cardinality(partial_because) = 0))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.snapshot_part (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  begun_at timestamp with time zone not null,
  part integer not null,
  received_at timestamp with time zone not null,
  epoch text collate "C" not null,
  entries json not null,
  given integer not null,
  digest text collate "C" not null,
  unreadable integer not null,
  ignored integer not null,
  keys text collate "C",
  constraint part_of_a_snapshot_is_kept_once PRIMARY KEY (network_id, source_id, begun_at, part),
  constraint part_is_numbered_from_nothing CHECK (part >= 0)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  kind text collate "C" not null,
  node text collate "C" not null,
  owner_kinds text[] not null,
  families smallint[] not null,
  sees_stopped boolean not null,
  boot_ends_all boolean not null,
  report_interval_ms bigint not null,
  settings json not null,
  state text collate "C" not null,
  registered_at timestamp with time zone not null,
  registered_by text collate "C" not null,
  enabled_at timestamp with time zone,
  enabled_by text collate "C",
  enabled_head bigint,
  retired_at timestamp with time zone,
  retired_by text collate "C",
  epoch text collate "C" not null,
  epoch_begun_at timestamp with time zone,
  warm boolean not null,
  warming_size integer,
  warming_at timestamp with time zone,
  warming_snapshots integer,
  era integer,
  last_sequence bigint not null,
  last_begun_at timestamp with time zone,
  reported_at timestamp with time zone,
  complete_sequence bigint,
  complete_head bigint,
  complete_at timestamp with time zone,
  size integer not null,
  digest text collate "C" not null,
  counted bigint not null,
  streak_from bigint not null,
  recent json not null,
  partial_since timestamp with time zone,
  partial_because text[] not null,
  constraint source_id_is_unique_in_its_network PRIMARY KEY (network_id, source_id),
  constraint enabled_source_says_from_which_number CHECK (state <> 'ENABLED'::text OR num_nulls(enabled_at, enabled_by, enabled_head) = 0),
  constraint only_the_source_of_a_node_knows_its_boots CHECK (NOT boot_ends_all OR node <> ''::text),
  constraint retired_source_says_since_when CHECK ((state = 'RETIRED'::text) = (num_nulls(retired_at, retired_by) = 0)),
  constraint source_interval_is_positive CHECK (report_interval_ms > 0),
  constraint source_is_named CHECK (source_id <> ''::text),
  constraint source_kind_is_known CHECK (kind = ANY (ARRAY['push'::text, 'docker'::text, 'kubernetes'::text, 'http'::text])),
  constraint source_last_complete_snapshot_is_whole CHECK (num_nulls(complete_sequence, complete_head, complete_at, era) = ANY (ARRAY[0, 4])),
  constraint source_sees_some_family CHECK (families <@ ARRAY[4::smallint, 6::smallint] AND cardinality(families) > 0),
  constraint source_sees_some_kind_of_owner CHECK (cardinality(owner_kinds) > 0),
  constraint source_state_is_known CHECK (state = ANY (ARRAY['REGISTERED'::text, 'ENABLED'::text, 'RETIRED'::text])),
  constraint source_warm_up_is_whole CHECK (num_nulls(warming_size, warming_at, warming_snapshots) = ANY (ARRAY[0, 3])),
  constraint streak_is_counted CHECK (streak_from >= 0 AND streak_from <= counted)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.source_epoch (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  epoch text collate "C" not null,
  begun_at timestamp with time zone not null,
  begun_sequence bigint not null,
  begun_head bigint not null,
  closed_at timestamp with time zone,
  closed_by text collate "C",
  constraint epoch_is_begun_once_per_source PRIMARY KEY (network_id, source_id, epoch),
  constraint closed_epoch_names_its_successor CHECK ((closed_at IS NULL) = (closed_by IS NULL))
);

create table ipledger.stuck_item (
  network_id text collate "C" not null,
  code text collate "C" not null,
  source_id text collate "C" not null,
  item_key text collate "C" not null,
  fencing_token bigint,
  address inet,
  prefix_length smallint,
  pool text collate "C",
  since timestamp with time zone not null,
  what text not null,
  observed_at timestamp with time zone not null,
  constraint stuck_item_is_kept_once PRIMARY KEY (network_id, code, source_id, item_key),
  constraint stuck_address_is_a_host CHECK (masklen(address) =
CASE family(address)
    WHEN 4 THEN 32
    ELSE 128
END),
  constraint stuck_lease_has_an_address CHECK (num_nulls(fencing_token, address, prefix_length) = ANY (ARRAY[0, 3]))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.tenure (
  network_id text collate "C" not null,
  first_seq bigint not null,
  fencing_token bigint not null,
  pool_id bigint not null,
  address inet not null,
  span int8range not null,
  owner_kind text collate "C",
  owner_name text collate "C",
  owner_uid text collate "C",
  owner_uid_named boolean,
  owner_incarnation text collate "C",
  owner_interface text collate "C",
  began_at timestamp with time zone not null,
  ended_at timestamp with time zone,
  began_as text collate "C" not null,
  ended_as text collate "C",
  constraint tenure_begins_once_at_a_number PRIMARY KEY (network_id, first_seq),
  constraint tenure_is_not_before_its_lease CHECK (fencing_token <= first_seq),
  constraint tenure_is_open_until_something_ends_it CHECK (num_nulls(ended_at, ended_as) =
CASE
    WHEN upper_inf(span) THEN 2
    ELSE 0
END),
  constraint tenure_owner_is_whole CHECK (num_nulls(owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface) = ANY (ARRAY[0, 6])),
  constraint tenure_span_begins_at_its_first_number CHECK (NOT isempty(span) AND NOT lower(span) IS DISTINCT FROM first_seq),
  constraint no_two_owners_hold_one_address EXCLUDE USING gist (address inet_ops WITH &&, network_id WITH =, int8range(first_seq, COALESCE(upper(span), first_seq + 1)) WITH &&)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.tenure_overlap (
  network_id text collate "C" not null,
  first_seq bigint not null,
  fencing_token bigint not null,
  pool_id bigint not null,
  address inet not null,
  span int8range not null,
  other_first_seq bigint not null,
  other_fencing_token bigint not null,
  other_address inet not null,
  found_at timestamp with time zone not null,
  constraint overlap_is_found_once PRIMARY KEY (network_id, first_seq)
);

create table ipledger.tenure_position (
  network_id text collate "C" not null,
  seq bigint not null,
  at timestamp with time zone not null,
  verified_seq bigint not null,
  constraint network_has_one_tenure_position PRIMARY KEY (network_id),
  constraint tenure_position_is_not_negative CHECK (seq >= 0 AND verified_seq >= 0 AND verified_seq <= seq)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.turn (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  taken_at timestamp with time zone not null,
  taken_by text collate "C" not null,
  next_at timestamp with time zone not null,
  failure text not null,
  constraint source_is_asked_by_one_at_a_time PRIMARY KEY (network_id, source_id),
  constraint next_turn_comes_after_this_one CHECK (next_at >= taken_at)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.unknown_source (
  network_id text collate "C" not null,
  source_id text collate "C" not null,
  era bigint not null,
  node text collate "C" not null,
  heard_from text collate "C" not null,
  first_at timestamp with time zone not null,
  last_at timestamp with time zone not null,
  constraint unknown_source_is_kept_once PRIMARY KEY (network_id, source_id),
  constraint unknown_source_is_heard_first_before_last CHECK (last_at >= first_at)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.untouched_range (
  network_id text collate "C" not null,
  pool_id bigint not null,
  first_address inet not null,
  last_address inet not null,
  constraint untouched_range_starts_once PRIMARY KEY (network_id, pool_id, first_address),
  constraint untouched_range_is_not_empty CHECK (first_address <= last_address)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

create table ipledger.verification (
  network_id text collate "C" not null,
  seq bigint not null,
  looked_at timestamp with time zone,
  part text collate "C" not null,
  after_seq bigint not null,
  from_address inet,
  begins_at timestamp with time zone not null,
  events bigint not null,
  worked_ms bigint not null,
  worked_at timestamp with time zone,
  finished_at timestamp with time zone,
  finished_events bigint,
  finished_ms bigint,
  claimed_by text collate "C" not null,
  claimed_until timestamp with time zone not null,
  constraint network_is_verified_once_at_a_time PRIMARY KEY (network_id),
  constraint verification_is_at_a_part CHECK (part = ANY (ARRAY['numbers'::text, 'addresses'::text, 'requests'::text, 'pools'::text, 'tenures'::text, 'checkpoints'::text, 'seals'::text, 'closings'::text])),
  constraint verification_tells_all_of_what_finished CHECK (num_nulls(finished_at, finished_events, finished_ms) = ANY (ARRAY[0, 3]))
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger.verify_checkpoint (
  network_id text collate "C" not null,
  seq bigint not null,
  events bigint not null,
  at timestamp with time zone not null,
  constraint network_has_one_checkpoint PRIMARY KEY (network_id)
);

create table ipledger.verify_finding (
  network_id text collate "C" not null,
  finding_key text collate "C" not null,
  what text collate "C" not null,
  message text not null,
  address inet,
  lease_id text collate "C",
  pool text collate "C",
  seq bigint,
  expected text,
  found text,
  found_at timestamp with time zone not null,
  seen_at timestamp with time zone not null,
  constraint finding_is_kept_once PRIMARY KEY (network_id, finding_key),
  constraint finding_is_found_before_it_is_seen_again CHECK (seen_at >= found_at)
) with (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

create table ipledger_audit.applied (
  object text collate "C" not null,
  identity text collate "C" not null,
  place integer not null,
  digest text collate "C" not null,
  applied_at timestamp with time zone not null default clock_timestamp(),
  constraint object_is_applied_once PRIMARY KEY (object)
);

CREATE INDEX closed_attachment_by_time ON ipledger.closed_attachment USING btree (network_id, closed_at);

CREATE INDEX closed_attachment_by_workload ON ipledger.closed_attachment USING btree (network_id, owner_uid, owner_kind);

CREATE INDEX event_by_address ON ipledger.event USING btree (network_id, address, seq) WHERE (address IS NOT NULL);

CREATE INDEX event_by_owner ON ipledger.event USING btree (network_id, owner_name, seq) WHERE (owner_name IS NOT NULL);

CREATE INDEX event_by_time ON ipledger.event USING btree (network_id, at, seq);

CREATE INDEX event_of_absence ON ipledger.event USING btree (network_id, at, seq) WHERE (((type = 'lease.reaped'::text) AND (cause = 'PROVEN_ABSENT'::text)) OR (type = 'reconcile.resumed'::text));

CREATE INDEX event_of_shape ON ipledger.event USING btree (network_id, seq) WHERE (type = ANY (ARRAY['network.created'::text, 'network.updated'::text, 'era.begun'::text, 'pool.created'::text, 'pool.updated'::text, 'pool.deleted'::text, 'node.fenced'::text, 'reconcile.held'::text, 'reconcile.resumed'::text]));

CREATE INDEX event_seldom ON ipledger.event USING btree (network_id, type, at, seq) WHERE (type <> ALL (ARRAY['lease.reserved'::text, 'lease.confirmed'::text, 'lease.released'::text, 'lease.adopted'::text, 'lease.updated'::text, 'attachment.closed'::text]));

CREATE INDEX lease_by_attachment ON ipledger.lease USING btree (network_id, attachment_key);

CREATE INDEX lease_by_deadline ON ipledger.lease USING btree (network_id, confirm_by) WHERE (confirm_by IS NOT NULL);

CREATE INDEX lease_by_holder ON ipledger.lease USING btree (network_id, holder_key);

CREATE INDEX lease_by_node ON ipledger.lease USING btree (network_id, node, address) WHERE (node <> ''::text);

CREATE INDEX lease_by_quarantiner ON ipledger.lease USING btree (network_id, quarantined_by, quarantine_reason) WHERE (state = 'QUARANTINED'::text);

CREATE INDEX lease_by_token ON ipledger.lease USING btree (network_id, fencing_token);

CREATE INDEX lookup_by_answer ON ipledger.lookup USING btree (network_id, answered_at) WHERE (answered_at IS NOT NULL);

CREATE INDEX lookup_by_next_time ON ipledger.lookup USING btree (network_id, next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX lookup_waits_for_its_source ON ipledger.lookup USING btree (network_id, source_id, wanted_at) WHERE (answer IS NULL);

CREATE INDEX pool_sample_by_time ON ipledger.pool_sample USING btree (network_id, at);

CREATE INDEX released_in_order_of_reuse ON ipledger.released_address USING btree (network_id, pool_id, available_at, released_seq);

CREATE INDEX request_by_time ON ipledger.request USING btree (network_id, at);

CREATE INDEX sighting_by_its_end ON ipledger.sighting USING btree (network_id, vanished_at) WHERE (vanished_at IS NOT NULL);

CREATE INDEX sighting_by_last_seen ON ipledger.sighting USING btree (network_id, address, last_seen_at) WHERE ((vanished_sequence IS NOT NULL) AND (state <> 'terminal'::text));

CREATE INDEX sighting_live ON ipledger.sighting USING btree (network_id, address) WHERE live;

CREATE UNIQUE INDEX source_lists_an_entry_once ON ipledger.sighting USING btree (network_id, source_id, entry_key) WHERE (vanished_sequence IS NULL);

CREATE INDEX snapshot_by_time ON ipledger.snapshot USING btree (network_id, reported_at);

CREATE INDEX snapshot_part_by_time ON ipledger.snapshot_part USING btree (network_id, received_at);

CREATE INDEX source_by_era ON ipledger.source USING btree (network_id, era, source_id) WHERE (state = 'ENABLED'::text);

CREATE INDEX source_by_interval ON ipledger.source USING btree (network_id, report_interval_ms) WHERE (state <> 'RETIRED'::text);

CREATE INDEX source_by_node ON ipledger.source USING btree (network_id, node, source_id);

CREATE INDEX source_that_is_asked ON ipledger.source USING btree (network_id, source_id) WHERE ((kind <> 'push'::text) AND (state <> 'RETIRED'::text));

CREATE INDEX source_warming_up ON ipledger.source USING btree (network_id, source_id) WHERE ((state = 'ENABLED'::text) AND (NOT warm));

CREATE UNIQUE INDEX one_address_has_one_open_tenure ON ipledger.tenure USING btree (network_id, address) WHERE upper_inf(span);

CREATE INDEX tenure_by_address ON ipledger.tenure USING btree (network_id, address, first_seq);

CREATE INDEX tenure_of_another_owner ON ipledger.tenure USING btree (network_id, fencing_token, first_seq) WHERE (first_seq <> fencing_token);

create view ipledger_audit.checkpoint as
 SELECT network_id AS network,
    seq,
    leases,
    parts,
    made_at
   FROM ipledger.lease_checkpoint c;

create view ipledger_audit.checkpoint_part as
 SELECT network_id AS network,
    seq,
    part,
    first_address,
    last_address,
    leases,
    events
   FROM ipledger.lease_checkpoint_part p;

create view ipledger_audit.conflicts as
 SELECT l.network,
    l.address,
    l.pool,
    l.state,
    l.lease_id,
    l.fencing_token,
    l.version,
    l.owner_kind,
    l.owner_name,
    l.owner_uid,
    l.owner_incarnation,
    l.owner_interface,
    l.node,
    l.boot,
    l.labels,
    l.reserved_at,
    l.confirmed_at,
    l.confirm_by,
    l.quarantine_reason,
    l.quarantined_at,
    l.quarantined_by,
    l.quarantine_why,
    l.quarantined_at AS since,
    p.parties,
    p.seen_by,
    concat(abbrev(l.address), ' (lease ', l.lease_id, ') is in use by more than one since ', ipledger_audit.moment(l.quarantined_at), ': ', 'the books have ', ipledger_audit.describe_owner(l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface), ', and it was ', l.quarantine_why, '. ',
        CASE
            WHEN cardinality(p.seen_by) > 0 THEN concat('Seen live there by ', array_to_string(p.seen_by, ', '::text), '. ')
            ELSE 'Nobody is seen there now. '::text
        END, ipledger_audit.quarantine_exit(l.quarantine_reason, l.owner_kind IS NOT NULL), '.') AS what
   FROM ( SELECT x.network,
            x.address,
            x.pool,
            x.state,
            x.lease_id,
            x.fencing_token,
            x.version,
            x.owner_kind,
            x.owner_name,
            x.owner_uid,
            x.owner_incarnation,
            x.owner_interface,
            x.node,
            x.boot,
            x.labels,
            x.reserved_at,
            x.confirmed_at,
            x.confirm_by,
            x.quarantine_reason,
            x.quarantined_at,
            x.quarantined_by,
            x.quarantine_why,
            x.since,
            host(x.address)::inet AS first,
            set_masklen(broadcast(x.address), '-1'::integer) AS last
           FROM ipledger_audit.lease x
          WHERE x.state = 'QUARANTINED'::text AND x.quarantine_reason = 'CONFLICT'::text) l
     CROSS JOIN LATERAL ( SELECT jsonb_agg(jsonb_build_object('role', s.role, 'owner', s.owner, 'node', s.node, 'source', s.source, 'state', s.state, 'since', s.since) ORDER BY s.role, s.since) AS parties,
            COALESCE(array_agg(DISTINCT s.source) FILTER (WHERE s.role = 'seen'::text), '{}'::text[]) AS seen_by
           FROM ( SELECT 'holder'::text AS role,
                    l.node,
                    NULL::text AS source,
                    l.state,
                    l.since,
                    ipledger_audit.describe_owner(l.owner_kind, l.owner_name, l.owner_uid, l.owner_incarnation, l.owner_interface) AS owner
                UNION ALL
                 SELECT 'found'::text,
                    c.evidence #>> '{seen,node}'::text[],
                    c.evidence ->> 'source'::text,
                    c.evidence #>> '{seen,state}'::text[],
                    c.at,
                    ipledger_audit.describe_owner(c.evidence #> '{seen,owner}'::text[]) AS describe_owner
                   FROM ( SELECT f.evidence,
                            f.at
                           FROM ipledger_audit.log f
                          WHERE f.network_id = l.network AND ((ROW(f.address, f.seq) >= ROW(l.first, l.fencing_token))) AND ((ROW(f.address, f.seq) <= ROW(l.first, l.version))) AND f.type = 'lease.quarantined'::text AND f.evidence ? 'seen'::text
                          ORDER BY f.address DESC, f.seq DESC
                         LIMIT 1) c
                UNION ALL
                 SELECT 'seen'::text,
                    v.node,
                    v.source,
                    v.state,
                    v.appeared_at,
                    ipledger_audit.describe_owner(v.owner_kind, v.owner_name, v.owner_uid, v.owner_incarnation, v.owner_interface) AS describe_owner
                   FROM ipledger_audit.sightings v
                  WHERE v.network = l.network AND v.address >= l.first AND v.address <= l.last AND v.live) s) p;

create view ipledger_audit.crash_loops as
 SELECT network,
    owner_kind,
    owner_name,
    owner_interface,
    ipledger_audit.pool_name(network, pool_id) AS pool,
    lives,
    addresses,
    ( SELECT count(*) AS count
           FROM ipledger.lease h
          WHERE h.network_id = r.network AND h.holder_key = concat(r.owner_kind, '|', r.owner_interface, '|', r.owner_name)) AS held_now,
    first_at,
    last_at
   FROM ( SELECT o.network,
            o.owner_kind,
            o.owner_name,
            o.owner_interface,
            g.pool_id,
            g.lives,
            g.addresses,
            g.first_at,
            g.last_at
           FROM ( SELECT n.network,
                    l.owner_kind,
                    l.owner_name,
                    l.owner_interface,
                    array_agg(l.seq) AS seqs
                   FROM ipledger_audit.network n
                     CROSS JOIN LATERAL ( SELECT x.seq,
                            x.at,
                            x.type,
                            x.owner_kind,
                            x.owner_name,
                            x.owner_interface
                           FROM ipledger_audit.log x
                          WHERE x.network_id = n.network AND x.at > (now() - '00:15:00'::interval)
                          ORDER BY x.at, x.seq) l
                  WHERE l.type = 'lease.reserved'::text
                  GROUP BY n.network, l.owner_kind, l.owner_name, l.owner_interface
                 HAVING count(*) >= 5) o
             CROSS JOIN LATERAL ( SELECT (array_agg(l.pool_id ORDER BY l.seq DESC))[1] AS pool_id,
                    count(DISTINCT l.address) AS addresses,
                    min(l.at) AS first_at,
                    max(l.at) AS last_at,
                    count(DISTINCT concat_ws('|'::text, l.owner_uid, l.owner_incarnation,
                        CASE
                            WHEN l.owner_incarnation = ''::text THEN l.at
                            ELSE NULL::timestamp with time zone
                        END)) AS lives
                   FROM unnest(o.seqs) s(seq)
                     JOIN ipledger_audit.log l ON l.network_id = o.network AND l.seq = s.seq) g
          WHERE g.lives >= 5) r;

create view ipledger_audit.event as
 SELECT l.network_id AS network,
    l.seq,
    l.at,
    l.type,
    set_masklen(l.address, l.prefix_length::integer) AS address,
    (l.network_id || '/'::text) || l.fencing_token AS lease_id,
    p.pool,
    l.state,
    l.owner_kind,
    l.owner_name,
    l.owner_uid,
    l.owner_incarnation,
    l.owner_interface,
    l.node,
    l.boot,
    l.actor,
    l.cause,
    l.quarantine_reason,
    ipledger_audit.event_sentence(l.*, p.pool) AS what,
    l.evidence,
    l.request_id,
    l.trace_id
   FROM ipledger_audit.log l
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN l.pool_id IS NULL THEN NULL::text
                    WHEN l.type ~~ 'pool.%'::text THEN l.settings #>> '{pool,name}'::text[]
                    ELSE COALESCE(( SELECT n.name
                       FROM ipledger.pool n
                      WHERE n.network_id = l.network_id AND n.pool_id = l.pool_id), ( SELECT c.settings #>> '{pool,name}'::text[]
                       FROM ipledger.event c
                      WHERE c.network_id = l.network_id AND c.seq = l.pool_id), ''::text)
                END AS pool) p;

create view ipledger_audit.fences as
 SELECT network_id AS network,
    node,
    boot,
    fenced_seq AS seq,
    fenced_at AS at,
    fenced_by AS actor,
    why
   FROM ipledger.fence f;

create view ipledger_audit.holds as
 SELECT network_id AS network,
    source_id AS source,
    held_seq AS seq,
    held_at AS at,
    why,
    reaps,
    leases
   FROM ipledger.hold h;

create view ipledger_audit.lease as
 SELECT l.network_id AS network,
    set_masklen(l.address, l.prefix_length::integer) AS address,
    COALESCE(p.name, ''::text) AS pool,
    l.state,
    (l.network_id || '/'::text) || l.fencing_token AS lease_id,
    l.fencing_token,
    l.version,
    l.owner_kind,
    l.owner_name,
    l.owner_uid,
    l.owner_incarnation,
    l.owner_interface,
    l.node,
    l.boot,
    l.labels,
    l.reserved_at,
    l.confirmed_at,
    l.confirm_by,
    l.quarantine_reason,
    l.quarantined_at,
    l.quarantined_by,
    l.quarantine_why,
    ( SELECT b.at
           FROM ipledger.event b
          WHERE b.network_id = l.network_id AND b.seq = l.fencing_token) AS since
   FROM ipledger.lease l
     LEFT JOIN ipledger.pool p ON p.network_id = l.network_id AND p.pool_id = l.pool_id;

create view ipledger_audit.log as
 SELECT network_id,
    seq,
    type,
    at,
    actor,
    cause,
    request_id,
    trace_id,
    pool_id,
    address,
    prefix_length,
    fencing_token,
    state,
    quarantine_reason,
    quarantined_at,
    quarantined_by,
    quarantine_why,
    owner_kind,
    owner_name,
    owner_uid,
    owner_uid_named,
    owner_incarnation,
    owner_interface,
    node,
    boot,
    labels,
    witness,
    reserved_at,
    confirmed_at,
    confirm_by,
    available_at,
    removal_confirmed,
    settings,
    evidence
   FROM ipledger.event e;

create view ipledger_audit.network as
 SELECT network_id AS network,
    state,
    era,
    ( SELECT max(e.seq) AS max
           FROM ipledger.event e
          WHERE e.network_id = n.network_id) AS head,
    description,
    labels,
    created_at,
    updated_at
   FROM ipledger.network n;

create view ipledger_audit.pool as
 SELECT network_id AS network,
    name AS pool,
    pool_id,
    family,
    cidr,
    settings::jsonb AS settings,
    version,
    created_at,
    updated_at
   FROM ipledger.pool p;

create view ipledger_audit.pool_forecast as
 SELECT network,
    pool,
    free,
    cooling,
    leases_per_hour,
        CASE
            WHEN leases_per_hour > 0::double precision AND (free / leases_per_hour::numeric) < 876000::numeric THEN make_interval(secs => GREATEST(0::numeric, free / leases_per_hour::numeric * 3600::numeric)::double precision)
            ELSE NULL::interval
        END AS exhausted_in,
    at
   FROM ( SELECT p.network_id AS network,
            p.name AS pool,
            r.free,
            r.cooling,
            r.leases_per_hour,
            r.at
           FROM ipledger.pool p
             CROSS JOIN LATERAL ( SELECT (array_agg(s.free ORDER BY s.at DESC))[1] AS free,
                    (array_agg(s.cooling ORDER BY s.at DESC))[1] AS cooling,
                    max(s.at) AS at,
                        CASE
                            WHEN count(*) >= 5 THEN regr_slope((s.cooling + s.reserved + s.active + s.quarantined)::double precision, EXTRACT(epoch FROM s.at)::double precision) * 3600::double precision
                            ELSE NULL::double precision
                        END AS leases_per_hour
                   FROM ipledger_audit.pool_samples s
                  WHERE s.network = p.network_id AND s.pool_id = p.pool_id AND s.at > (now() - '01:00:00'::interval)) r
          WHERE r.at IS NOT NULL) f;

create view ipledger_audit.pool_map as
 SELECT p.network_id AS network,
    p.name AS pool,
    m.part,
    set_masklen(ipledger_audit.address_at(p.family::integer, d.first + m.part::numeric * d.step), masklen(p.cidr::inet) + d.bits) AS first_address,
    d.size,
    m.cooling,
    m.reserved,
    m.active,
    m.quarantined,
    ((m.cooling + m.reserved + m.active + m.quarantined)::numeric / d.size)::double precision AS used_ratio
   FROM ipledger.pool p
     CROSS JOIN LATERAL ( SELECT s.bits,
            ipledger_audit.address_number(set_masklen(network(p.cidr::inet)::inet, '-1'::integer)) AS first,
            trunc(power(2::numeric, (
                CASE p.family
                    WHEN 4 THEN 32
                    ELSE 128
                END - masklen(p.cidr::inet) - s.bits)::numeric)) AS step,
            trunc(power(2::numeric, (s.prefix_length - masklen(p.cidr::inet) - s.bits)::numeric)) AS size
           FROM ( SELECT LEAST(8, ((p.settings ->> 'prefixLength'::text)::integer) - masklen(p.cidr::inet)) AS bits,
                    (p.settings ->> 'prefixLength'::text)::integer AS prefix_length) s) d
     CROSS JOIN LATERAL ( SELECT x.part,
            count(*) FILTER (WHERE x.state = 'COOLING'::text) AS cooling,
            count(*) FILTER (WHERE x.state = 'RESERVED'::text) AS reserved,
            count(*) FILTER (WHERE x.state = 'ACTIVE'::text) AS active,
            count(*) FILTER (WHERE x.state = 'QUARANTINED'::text) AS quarantined
           FROM ( SELECT g.part,
                    NULL::text AS state
                   FROM generate_series(0, (1 << d.bits) - 1) g(part)
                UNION ALL
                 SELECT div(ipledger_audit.address_number(t.address) - d.first, d.step)::integer AS div,
                    t.state
                   FROM ( SELECT l.address,
                            l.state
                           FROM ipledger.lease l
                          WHERE l.network_id = p.network_id AND l.pool_id = p.pool_id AND l.address >= set_masklen(network(p.cidr::inet)::inet, '-1'::integer) AND l.address <= set_masklen(broadcast(p.cidr::inet), '-1'::integer)
                        UNION ALL
                         SELECT r.address,
                            'COOLING'::text
                           FROM ipledger.released_address r
                          WHERE r.network_id = p.network_id AND r.pool_id = p.pool_id AND r.available_at > now()) t) x
          GROUP BY x.part) m;

create view ipledger_audit.pool_samples as
 SELECT network_id AS network,
    pool_id,
    at,
    size,
    allocatable,
    allocatable - cooling::numeric - reserved::numeric - active::numeric - quarantined::numeric AS free,
    cooling,
    reserved,
    active,
    quarantined,
    excluded
   FROM ipledger.pool_sample s;

create view ipledger_audit.pool_usage as
 SELECT network,
    pool,
    cidr,
    family,
    size,
    allocatable,
    allocatable - cooling::numeric - reserved::numeric - active::numeric - quarantined::numeric AS free,
    cooling,
    reserved,
    active,
    quarantined,
    size - allocatable AS excluded,
    ((reserved + active + quarantined)::numeric / NULLIF(allocatable, 0::numeric))::double precision AS used_ratio,
    draining
   FROM ( SELECT p.network_id AS network,
            p.name AS pool,
            p.cidr,
            p.family,
            s.size,
            s.allocatable,
            ( SELECT count(*) AS count
                   FROM ipledger.released_address r
                  WHERE r.network_id = p.network_id AND r.pool_id = p.pool_id AND r.available_at > now()) AS cooling,
            COALESCE(c.reserved, 0::bigint) AS reserved,
            COALESCE(c.active, 0::bigint) AS active,
            COALESCE(c.quarantined, 0::bigint) AS quarantined,
            (p.settings ->> 'draining'::text)::boolean AS draining
           FROM ipledger.pool p
             CROSS JOIN LATERAL ipledger_audit.pool_space(p.settings::jsonb) s(size, allocatable)
             LEFT JOIN LATERAL ( SELECT q.reserved,
                    q.active,
                    q.quarantined
                   FROM ipledger.pool_position q
                  WHERE q.network_id = p.network_id AND q.pool_id = p.pool_id
                  ORDER BY q.seq DESC
                 LIMIT 1) c ON true) u;

create view ipledger_audit.quarantines as
 SELECT network,
    address,
    pool,
    state,
    lease_id,
    fencing_token,
    version,
    owner_kind,
    owner_name,
    owner_uid,
    owner_incarnation,
    owner_interface,
    node,
    boot,
    labels,
    reserved_at,
    confirmed_at,
    confirm_by,
    quarantine_reason,
    quarantined_at,
    quarantined_by,
    quarantine_why,
    since,
    now() - quarantined_at AS age,
    ipledger_audit.quarantine_exit(quarantine_reason, owner_kind IS NOT NULL) AS exit,
    COALESCE(( SELECT string_agg(s.what, '; '::text ORDER BY s.since) AS string_agg
           FROM ipledger_audit.stuck s
          WHERE s.network = l.network AND s.lease_id = l.lease_id), ''::text) AS blocked_by
   FROM ipledger_audit.lease l
  WHERE state = 'QUARANTINED'::text;

create view ipledger_audit.seals as
 SELECT network_id AS network,
    first_seq,
    last_seq,
    last_seq - first_seq + 1 AS events,
    encode(digest, 'hex'::text) AS digest,
    encode(previous_digest, 'hex'::text) AS previous_digest,
    sealed_at
   FROM ipledger.seal s;

create view ipledger_audit.sightings as
 SELECT network_id AS network,
    address,
    source_id AS source,
    owner_kind,
    owner_name,
    owner_uid,
    owner_incarnation,
    owner_interface,
    node,
    boot,
    state,
    live,
    appeared_at,
    appeared_sequence,
    appeared_head,
    last_seen_at,
    vanished_at,
    vanished_sequence,
    vanished_head
   FROM ipledger.sighting s;

create view ipledger_audit.sources as
 SELECT network_id AS network,
    source_id AS source,
    kind,
    node,
    state,
    epoch,
    warm,
    era,
    report_interval_ms::double precision * '00:00:00.001'::interval AS "interval",
    reported_at,
    now() - COALESCE(reported_at, registered_at) AS lag,
    complete_at,
    now() - COALESCE(complete_at, registered_at) AS complete_lag,
    last_sequence AS sequence,
    size AS listed,
    partial_because,
    (EXISTS ( SELECT
           FROM ipledger.hold h
          WHERE h.network_id = s.network_id AND (h.source_id = ANY (ARRAY[''::text, s.source_id])))) AS held,
    COALESCE(( SELECT t.failure
           FROM ipledger.turn t
          WHERE t.network_id = s.network_id AND t.source_id = s.source_id), ''::text) AS looks
   FROM ipledger.source s;

create view ipledger_audit.stuck as
 SELECT network_id AS network,
    code,
    source_id AS source,
    (network_id || '/'::text) || fencing_token AS lease_id,
    address,
    COALESCE(pool, ''::text) AS pool,
    since,
    observed_at - since AS age,
    what,
    observed_at
   FROM ipledger.stuck_item s;

create view ipledger_audit.suspects as
 SELECT q.network_id AS network,
    set_masklen(h.address, h.prefix_length::integer) AS address,
    (q.network_id || '/'::text) || q.fencing_token AS lease_id,
    q.owner_kind,
    q.owner_name,
    q.owner_uid,
    q.owner_incarnation,
    q.owner_interface,
    q.source_id AS source,
    q.wanted_at AS question_at,
    q.answer,
    q.attempts,
    q.next_at,
    now() - q.wanted_at AS waiting,
    concat(q.source_id, ' lists ', ipledger_audit.describe_owner(q.owner_kind, q.owner_name, q.owner_uid, q.owner_incarnation, q.owner_interface), ' no more at ', host(q.address), ' and ',
        CASE
            WHEN q.answer IS NULL AND q.asked_at IS NULL THEN 'is to be asked after it'::text
            WHEN q.answer IS NULL THEN concat('was asked after it ', ipledger_audit.moment(q.asked_at), ' without an answer so far')
            ELSE concat('answered ', q.answer, ' ', ipledger_audit.moment(q.answered_at), (' ('::text || NULLIF(q.detail, ''::text)) || ')'::text)
        END, '.') AS what
   FROM ipledger.lookup q
     JOIN ipledger.lease h ON h.network_id = q.network_id AND h.fencing_token = q.fencing_token AND h.version = q.version
UNION ALL
 SELECT s.network_id AS network,
    set_masklen(s.address, s.prefix_length::integer) AS address,
    (s.network_id || '/'::text) || s.fencing_token AS lease_id,
    h.owner_kind,
    h.owner_name,
    h.owner_uid,
    h.owner_incarnation,
    h.owner_interface,
    s.source_id AS source,
    s.since AS question_at,
    NULL::text AS answer,
    NULL::integer AS attempts,
    NULL::timestamp with time zone AS next_at,
    s.observed_at - s.since AS waiting,
    s.what || '.'::text AS what
   FROM ipledger.stuck_item s
     JOIN ipledger.lease h ON h.network_id = s.network_id AND h.fencing_token = s.fencing_token
  WHERE (s.code = ANY (ARRAY['PROOF_BLOCKED'::text, 'LOOKUP_FAILING'::text, 'LOOKUP_WAITING'::text, 'OWNER_LIVES_ELSEWHERE'::text, 'NEVER_SIGHTED'::text, 'NOBODY_CAN_TELL'::text])) AND NOT (EXISTS ( SELECT
           FROM ipledger.lookup q
          WHERE q.network_id = s.network_id AND q.source_id = s.source_id AND q.fencing_token = s.fencing_token AND q.version = h.version));

create view ipledger_audit.tenure as
 SELECT network_id AS network,
    address,
    (network_id || '/'::text) || fencing_token AS lease_id,
    fencing_token,
    owner_kind,
    owner_name,
    owner_uid,
    owner_incarnation,
    owner_interface,
    span,
    first_seq,
    upper(span) AS last_seq,
    began_at,
    ended_at,
    began_as,
    ended_as
   FROM ipledger.tenure t;

create view ipledger_audit.tenure_overlaps as
 SELECT o.network_id AS network,
    o.address,
    (o.network_id || '/'::text) || o.fencing_token AS lease_id,
    (o.network_id || '/'::text) || o.other_fencing_token AS other_lease_id,
    o.span,
    o.found_at,
    concat('Lease ', o.network_id, '/', o.fencing_token, ' on ', abbrev(o.address), ' began with event ', o.first_seq,
        CASE
            WHEN upper_inf(o.span) THEN ' and is held still'::text
            ELSE ' and ended with event '::text || upper(o.span)
        END, '; lease ', o.network_id, '/', o.other_fencing_token, ' on ', abbrev(o.other_address), ', which began with event ', o.other_first_seq, ', was held then.') AS what
   FROM ipledger.tenure_overlap o
UNION ALL
 SELECT v.network_id AS network,
    v.address,
    v.lease_id,
    NULL::text AS other_lease_id,
    NULL::int8range AS span,
    v.found_at,
    v.message AS what
   FROM ipledger.verify_finding v
  WHERE v.what = 'TENURE_OVERLAPS'::text AND NOT (EXISTS ( SELECT
           FROM ipledger.tenure_overlap o
          WHERE o.network_id = v.network_id AND v.lease_id = ((o.network_id || '/'::text) || o.fencing_token)));

create view ipledger_audit.tenure_position as
 SELECT n.network_id AS network,
    COALESCE(p.seq, 0::bigint) AS seq,
    p.at,
    COALESCE(h.seq, 0::bigint) AS head,
    next.at AS waiting_since
   FROM ipledger.network n
     LEFT JOIN ipledger.tenure_position p ON p.network_id = n.network_id
     LEFT JOIN LATERAL ( SELECT e.seq
           FROM ipledger.event e
          WHERE e.network_id = n.network_id
          ORDER BY e.seq DESC
         LIMIT 1) h ON true
     LEFT JOIN LATERAL ( SELECT e.at
           FROM ipledger.event e
          WHERE e.network_id = n.network_id AND e.seq > COALESCE(p.seq, 0::bigint)
          ORDER BY e.seq
         LIMIT 1) next ON true;

create view ipledger_audit.verification as
 SELECT COALESCE(n.network_id, v.network_id) AS network,
    c.seq AS in_order_up_to,
    c.at AS in_order_at,
    v.seq AS looked_up_to,
    v.looked_at,
    v.finished_at AS all_looked_at,
    v.finished_events AS all_events,
    v.finished_ms::double precision * '00:00:00.001'::interval AS all_worked,
        CASE
            WHEN v.begins_at <= now() THEN v.part
            ELSE ''::text
        END AS now_at,
    v.events AS now_events,
    v.begins_at
   FROM ipledger.network n
     FULL JOIN ipledger.verification v ON v.network_id = n.network_id
     LEFT JOIN ipledger.verify_checkpoint c ON c.network_id = COALESCE(n.network_id, v.network_id);

create view ipledger_audit.verify_findings as
 SELECT network_id AS network,
    what,
    address,
    lease_id,
    COALESCE(pool, ''::text) AS pool,
    seq,
    expected,
    found,
    message,
    found_at,
    seen_at
   FROM ipledger.verify_finding v;

comment on column ipledger.boot_report.boot is 'The epoch of the report; of the one that its source is in, source.last_begun_at tells.';

comment on column ipledger.boot_report.reported_at is 'Begin of the last report from it; where nothing proves that, when it came.';

comment on column ipledger.closed_attachment.pool_id is '0: in every pool.';

comment on column ipledger.database_life.database_oid is 'Of the database in its cluster: another one means a copy beside the first, or a dump restored into a new database.';

comment on column ipledger.database_life.known_at is 'When the ledger was first written in it.';

comment on column ipledger.database_life.log_oid is 'Of the table `event`: another one means that a dump was restored over what was there.';

comment on column ipledger.database_life.system_identifier is 'Of the cluster: another one means that the database was restored into it.';

comment on column ipledger.database_life.timeline is 'Of the write-ahead log: another one means a failover, or recovery to a point in time.';

comment on column ipledger.dropped_range.pool_id is 'The pool that is gone, under which the rows are filed.';

comment on column ipledger.event.actor is 'Token name or job.';

comment on column ipledger.event.address is 'The address, or the first address of the block.';

comment on column ipledger.event.at is 'Database clock under the network''s lock, never before the previous event.';

comment on column ipledger.event.available_at is 'When the released or reaped address has cooled.';

comment on column ipledger.event.cause is 'RPC or finding.';

comment on column ipledger.event.evidence is 'What the decision rested on.';

comment on column ipledger.event.fencing_token is 'Number of the event that created the lease.';

comment on column ipledger.event.removal_confirmed is 'Whether the holder said that the address is unconfigured; false after a reap.';

comment on column ipledger.event.seq is 'Number in the network; also the version of the lease it is about, and its token if it created it.';

comment on column ipledger.event.settings is 'Of a pool or network event: the settings after it.';

comment on column ipledger.event.state is 'State of the lease after the event; of an ended lease, its last one.';

comment on column ipledger.fence.fenced_head is 'As far as who said it had seen the ledger: of leases with a token up to this. Null: up to fenced_seq.';

comment on column ipledger.hold.held_seq is 'Number of the event that held it.';

comment on column ipledger.hold.leases is 'Leases that those are a share of.';

comment on column ipledger.hold.reaps is 'Reaps of the hour, the refused one included.';

comment on column ipledger.hold.source_id is 'Empty: the whole network.';

comment on column ipledger.lease.asked_from is 'Other nodes that asked for it since it was placed, in order, one a line; empty: none. Events carry them in settings.';

comment on column ipledger.lease.attachment_key is 'kind|interface|incarnation|uid: retries, Release and closing go by it.';

comment on column ipledger.lease.confirm_by is 'The caller''s promise not to use the address later unless confirmed; null: held until released or proven gone.';

comment on column ipledger.lease.fencing_token is 'Number of the event that created the lease.';

comment on column ipledger.lease.holder_key is 'kind|interface|name: supersession and the owner limit go by it.';

comment on column ipledger.lease.node is 'For display and scope; where a workload is seen is what counts.';

comment on column ipledger.lease.version is 'Number of the last event about the lease.';

comment on column ipledger.lease_checkpoint.leases is 'Held after that event.';

comment on column ipledger.lease_checkpoint.seq is '0: where nothing is held. All others are made from the one before.';

comment on column ipledger.lease_checkpoint.verified_at is 'When verify found it to hold what was held. Null: it did not look yet.';

comment on column ipledger.lease_checkpoint_part.part is 'From 0, in order of address.';

comment on column ipledger.lookup.answer is 'Null: none yet. Only gone, and terminal past its grace, are proof; every other word means alive.';

comment on column ipledger.lookup.asked_at is 'When the question was handed to the source: the answer is not older than that, and no newer is claimed.';

comment on column ipledger.lookup.attachment_key is 'kind|interface|incarnation|uid of whom the question is after: the holder of the lease, or another who was seen at its address.';

comment on column ipledger.lookup.attempts is 'Since the lease was last suspected; capped, for the waits between them.';

comment on column ipledger.lookup.epoch is 'Epoch of the source that answered.';

comment on column ipledger.lookup.version is 'Version of the lease when it was suspected; an answer about an older one proves nothing.';

comment on column ipledger.lookup.wanted_at is 'When the question arose.';

comment on column ipledger.network.era is 'Life of the ledger; numbers of era e begin at e × 2^40.';

comment on column ipledger.network.rebuilding_since is 'Since when it is REBUILDING; null: it is not. Of the database and not of the log, so it is no part of what is compared.';

comment on column ipledger.network.state is 'READY; REBUILDING: projections are being replaced; RECOVERING: a new era has not been observed yet.';

comment on column ipledger.network.version is 'Number of the last event about the network itself.';

comment on column ipledger.pool.pool_id is 'Number of the event that created it.';

comment on column ipledger.pool.settings is 'Canonical settings as in the event: cidr, subnet, prefixLength, gateway, exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels.';

comment on column ipledger.pool_position.cursor_first is 'The untouched_range that begins at cursor_next instead of its first address.';

comment on column ipledger.pool_position.low_first is 'No untouched_range of the pool starts below this.';

comment on column ipledger.pool_position.released is 'Released addresses, cooling or cooled.';

comment on column ipledger.pool_position.reuse_after is 'No released_address of the pool has an earlier available_at.';

comment on column ipledger.pool_sample.allocatable is 'Free ones are this without cooling, reserved, active and quarantined.';

comment on column ipledger.pool_sample.at is 'The minute.';

comment on column ipledger.released_address.holder_key is 'Its last holder, kind|interface|name; empty if it had none.';

comment on column ipledger.request.seq is 'Head of the ledger after the command.';

comment on column ipledger.seal.digest is 'seal_digest() of the columns beside it; the next seal names it.';

comment on column ipledger.seal.last_seq is 'Its last event. The next seal begins with the event after it, which may be the first of a later era.';

comment on column ipledger.seal.leaves is 'event_leaf() of each event, in order of number: 16 bytes each.';

comment on column ipledger.seal.previous_digest is 'Of the seal before; 32 zeros before the first.';

comment on column ipledger.sighting.appeared_at is 'When that snapshot was begun.';

comment on column ipledger.sighting.appeared_head is 'Head of the ledger at which that snapshot was begun; 0: not proven, and it decides nothing. What it is evidence of later only the last report of its source tells: of complete_head, where that is a complete one of a warm source; of this, where it appeared in it; otherwise of none, and it protects.';

comment on column ipledger.sighting.entry_key is 'Digest of all that the entry says, the address included.';

comment on column ipledger.sighting.last_seen_at is 'Of one that vanished: not later than this was it seen by its source.';

comment on column ipledger.sighting.live is 'Listed now, and not as terminal. Such an address is never handed out.';

comment on column ipledger.sighting.owner_interface is 'Empty: not told.';

comment on column ipledger.sighting.owner_kind is 'Null: seen live, and whose it is is not known.';

comment on column ipledger.sighting.owner_uid_named is 'False: the source named no uid, and `owner_uid` repeats the name.';

comment on column ipledger.sighting.state is 'The source''s word for it. Only `terminal` means that the workload has ended and is listed all the same; every other word, known or not, is alive.';

comment on column ipledger.sighting.vanished_sequence is 'The complete snapshot that did not list it: its first miss, if it counted.';

comment on column ipledger.snapshot.begun_at is 'Null: nothing proves when.';

comment on column ipledger.snapshot.entries is 'Entries kept, each once.';

comment on column ipledger.snapshot.head is 'Head of the ledger at which it was begun; 0: nothing proves one, so it decides nothing.';

comment on column ipledger.snapshot.ignored is 'Entries that are valid and say nothing here: link-local, of another network.';

comment on column ipledger.snapshot_part.begun_at is 'Of the snapshot, from its token: two begun by one source are not mixed.';

comment on column ipledger.snapshot_part.digest is 'Of the entries as they were sent; the digests of all parts add up to that of the snapshot.';

comment on column ipledger.snapshot_part.entries is 'In canonical form.';

comment on column ipledger.snapshot_part.given is 'Entries as they were sent, all of them.';

comment on column ipledger.snapshot_part.keys is 'Keys of its entries, 24 characters each, one after the other. Null: written before 0017; the snapshot it is a part of is partial.';

comment on column ipledger.source.boot_ends_all is 'Whether a new boot of its node proves that everything of the older ones ended.';

comment on column ipledger.source.complete_head is 'Head of the ledger when its last complete snapshot was begun: what a warm source listed before and lists still is evidence of that head, until a report comes that is not complete.';

comment on column ipledger.source.counted is 'Its counted snapshots, for ever: complete, warm, half an interval apart.';

comment on column ipledger.source.digest is 'Of the set that its listed sightings are; empty: not known, the next complete snapshot is compared entry by entry.';

comment on column ipledger.source.enabled_head is 'Head of the ledger when it was enabled: leases up to it are not missed before they were sighted.';

comment on column ipledger.source.epoch is 'The life it is in, by its own name for it; empty before its first snapshot.';

comment on column ipledger.source.era is 'Era of its last complete snapshot.';

comment on column ipledger.source.families is '4, 6: of another family its silence says nothing (calico#5044).';

comment on column ipledger.source.kind is 'push: an agent or orchestrator reports; docker, kubernetes, http: ipledger asks.';

comment on column ipledger.source.last_begun_at is 'When its last report, complete or not, was begun; of one that does not prove that, when it arrived. Nothing it lists was seen later.';

comment on column ipledger.source.last_sequence is 'Number of the last snapshot taken in order; the next one begun is one more.';

comment on column ipledger.source.node is 'The node it sees; empty: the whole network. The epochs of a source of a node are the boots of the node.';

comment on column ipledger.source.owner_kinds is 'Kinds of owners it can see; of others its silence says nothing.';

comment on column ipledger.source.partial_since is 'Since when it has not reported completely; null: its last report was complete.';

comment on column ipledger.source.recent is 'The last 8 counted snapshots, oldest first: [{counted, sequence, head, begunAt}].';

comment on column ipledger.source.sees_stopped is 'Whether workloads that are stopped and keep their address are in its lists.';

comment on column ipledger.source.settings is 'Of a source that is asked: where and how. Never a secret.';

comment on column ipledger.source.state is 'REGISTERED: dry run, its sightings protect and prove nothing; ENABLED; RETIRED: over for good, its sightings are ended.';

comment on column ipledger.source.streak_from is 'What `counted` was when the streak began; only later ones are misses.';

comment on column ipledger.source.warm is 'Whether this epoch has had two complete snapshots whose size stopped growing; before, nothing is a miss, and nothing listed ends.';

comment on column ipledger.source.warming_size is 'While it warms up: size of the snapshot that the next one is compared with.';

comment on column ipledger.source.warming_snapshots is 'While it warms up: complete snapshots since the set grew.';

comment on column ipledger.source_epoch.begun_sequence is 'Its first snapshot.';

comment on column ipledger.source_epoch.closed_by is 'The epoch that followed it.';

comment on column ipledger.stuck_item.code is 'What kind of thing waits: HELD, SOURCE_SILENT, PROOF_BLOCKED, …';

comment on column ipledger.stuck_item.item_key is 'The fencing token of the lease it is about; of others a digest of what is said.';

comment on column ipledger.stuck_item.observed_at is 'When the job that found it last began to look.';

comment on column ipledger.stuck_item.pool is 'Its name; null: it is about none.';

comment on column ipledger.stuck_item.since is 'Since when it waits.';

comment on column ipledger.stuck_item.source_id is 'Empty: it is about none.';

comment on column ipledger.tenure.address is 'What was held, as a block: its prefix length is the mask.';

comment on column ipledger.tenure.began_as is 'Type and cause of its first event: lease.reserved/Reserve.';

comment on column ipledger.tenure.ended_as is 'Type and cause of the event that ended it. Of one that went on with another owner: how that one began.';

comment on column ipledger.tenure.fencing_token is 'Of the lease. The first tenure of a lease begins at it.';

comment on column ipledger.tenure.owner_kind is 'Null: quarantined, and nobody known holds it.';

comment on column ipledger.tenure.span is 'Numbers over which it was held: [first, number of the event that ended it). Open: it is held still.';

comment on column ipledger.tenure_overlap.other_first_seq is 'The tenure that was there.';

comment on column ipledger.tenure_position.at is 'Time of that event: another log than this one has another there.';

comment on column ipledger.tenure_position.seq is 'The last number it takes account of; 0: nothing, and what is there is removed first.';

comment on column ipledger.tenure_position.verified_seq is 'Up to where verify found it to be the log; it goes on from there.';

comment on column ipledger.turn.failure is 'Why the last turn came to nothing, for people; empty: it did not.';

comment on column ipledger.turn.next_at is 'Nobody else asks before. While the source is being asked: the end of that turn, whatever became of the worker; afterwards: its next turn.';

comment on column ipledger.turn.taken_by is 'Who took the turn: one run of one worker. Only that one ends it early.';

comment on column ipledger.unknown_source.era is 'In which it was heard last: the recovery of another era does not wait for it.';

comment on column ipledger.unknown_source.heard_from is 'Whose token it was.';

comment on column ipledger.unknown_source.node is 'That its token is bound to; empty: none.';

comment on column ipledger.unknown_source.source_id is 'As it calls itself.';

comment on column ipledger.verification.after_seq is 'Of numbers and tenures the last event that was looked at, of checkpoints and seals the last one, of pools the last pool, of addresses the event of from_address after which to go on.';

comment on column ipledger.verification.begins_at is 'When the look at all of it began; or, if that lies ahead, when it will.';

comment on column ipledger.verification.claimed_by is 'The run that is at a piece; whoever comes after claimed_until goes on where the last piece ended.';

comment on column ipledger.verification.events is 'Events that it has walked so far.';

comment on column ipledger.verification.finished_at is 'When all of it was last looked at; beside it how many events that were, and how long it worked.';

comment on column ipledger.verification.from_address is 'Of addresses the one to go on with; null: the first of all.';

comment on column ipledger.verification.looked_at is 'When that was.';

comment on column ipledger.verification.part is 'All of it: what is being looked at; it begins with numbers and ends with closings.';

comment on column ipledger.verification.seq is 'New events: looked at up to this one, whatever was found.';

comment on column ipledger.verification.worked_at is 'When the last piece of it ended: whose turn was longest ago comes first.';

comment on column ipledger.verification.worked_ms is 'Milliseconds that it has worked so far.';

comment on column ipledger.verify_finding.expected is 'By the log.';

comment on column ipledger.verify_finding.finding_key is 'A digest of what it is about: the same difference found again is the same row.';

comment on column ipledger.verify_finding.found is 'In the projections.';

comment on column ipledger.verify_finding.message is 'A sentence for people.';

comment on column ipledger.verify_finding.seen_at is 'When it was found last.';

comment on column ipledger.verify_finding.what is 'What kind of difference: LEASE_DIFFERS, EVENT_MISSING, …';

comment on column ipledger_audit.applied.identity is 'As PostgreSQL names it.';

comment on column ipledger_audit.applied.object is 'As its file names it.';

comment on column ipledger_audit.applied.place is 'In the order of dependency.';

comment on function ipledger.event_leaf(ipledger.event) is 'What a seal keeps of an event: the first 16 bytes of the SHA-256 of its line.';

comment on function ipledger.event_line(ipledger.event) is 'The canonical line of an event: a JSON array of the texts of all columns in their order, null where they are. A column that is added later goes to its end, as its name and its text, and only where it is not null: lines of before stay what they were.';

comment on function ipledger.oldest_transaction() is 'The transaction of this database that has been open longest, as far as the owner of the schema may see: nothing that died since is vacuumed.';

comment on function ipledger.seal_digest(bytea,text,bigint,bigint,bytea) is 'SHA-256 of the digest before (32 bytes, zeros before the first), a line "network first last" and the leaves one after the other.';

comment on function ipledger_audit.address_at(integer,numeric) is 'The address of a number, 0 to 2^32 - 1 in family 4 or 2^128 - 1 in family 6: what address_number is of an address.

Example:
  select address_at(4, address_number(''10.8.64.2'') + 1);';

comment on function ipledger_audit.address_history(text,inet,timestamp with time zone,timestamp with time zone) is 'Everything that happened to an address, or to the addresses of a CIDR, between two times (both included; without them, ever), in order.
Blocks that hold the address count. No row: nothing ever happened there, or there is no such network. An IPv4 address that is written as
IPv6 (::ffff:10.8.64.2) means the IPv4 one.

Columns: those of view `event`.

Example:
  select seq, at, what from address_history(''default'', ''10.8.64.2'', now() - interval ''1 day'');';

comment on function ipledger_audit.address_number(inet) is 'An address as a number, 0 to 2^32 - 1 or 2^128 - 1: how far two lie apart.

Example:
  select address_number(''2001:db8::1'') - address_number(''2001:db8::'');';

comment on function ipledger_audit.churn(timestamp with time zone,timestamp with time zone) is 'How many leases came and went between two times (both included; without them the last hour), three times over: by owner, by node and by
pool, the busiest first. Reads every event of that time.

Columns: network; by (owner, node or pool); key (kind and name of the owner, the node, the pool); reserved, released, reaped, adopted,
quarantined (events).

Example:
  select key, reserved, released, reaped from churn() where network = ''default'' and by = ''owner'' limit 20;';

comment on function ipledger_audit.counted_misses(jsonb,jsonb) is 'The snapshots of one source that a proof counted as misses: complete, begun after anybody''s last sighting, at a head that knew the
lease. `proof` is evidence -> ''proof'' of a reap, `witness` one element of its `sources`. Columns: sequence (number of the snapshot),
head (number of the ledger it was begun at), begun_at.

Example:
  select m.* from log e, jsonb_array_elements(e.evidence #> ''{proof,sources}'') w, counted_misses(e.evidence -> ''proof'', w) m
   where e.network_id = ''default'' and e.type = ''lease.reaped'';';

comment on function ipledger_audit.describe_lease(ipledger_audit.log,timestamp with time zone) is 'What the last event of a lease makes of its address at a time, as the rest of a sentence that begins with the address.

Example:
  select describe_lease(l, now()) from last_events(''default'', ''10.8.64.2'', 1000) l;';

comment on function ipledger_audit.describe_owner(jsonb) is 'An owner as evidence stores it, as sentences name it.

Example:
  select describe_owner(''{"kind": "pod", "name": "default/web-0", "uid": "b5c0", "incarnation": "", "interface": "eth0"}''::jsonb);';

comment on function ipledger_audit.describe_owner(text,text,text,text,text) is 'An owner as sentences name it: kind, name, and what else tells it apart.

Example:
  select describe_owner(''pod'', ''default/web-0'', ''b5c0'', ''1'', ''eth0'');';

comment on function ipledger_audit.describe_policy(jsonb) is 'The policy that a proof was judged by, in words. `policy` is evidence #> ''{proof,policy}'' of the event.

Example:
  select describe_policy(''{"misses": 3, "minimumAgeMs": 300000, "unwitnessedAgeMs": 3600000, "terminalGraceMs": 300000, "proofAgeMs": 60000}''::jsonb);';

comment on function ipledger_audit.describe_proof(jsonb) is 'Why a lease was taken back, or given back, on proof, in words: each source that the proof rests on, and the policy then in force.
`evidence` is that of the event.

Example:
  select describe_proof(evidence) from log where network_id = ''default'' and type = ''lease.reaped'' and evidence ? ''proof'' limit 1;';

comment on function ipledger_audit.describe_seen(jsonb) is 'What a source listed, in words, from the evidence of an event that followed at once from a sighting.

Example:
  select describe_seen(evidence) from log where network_id = ''default'' and type = ''lease.adopted'' limit 1;';

comment on function ipledger_audit.describe_witness(jsonb,jsonb) is 'What one source contributed to a proof, in words: which snapshots missed the workload, at which heads, and what the source said when
it was asked. `proof` is evidence -> ''proof'' of the event, `witness` one element of its `sources`.

Example:
  select describe_witness(e.evidence -> ''proof'', w) from log e, jsonb_array_elements(e.evidence #> ''{proof,sources}'') w
   where e.network_id = ''default'' and e.type = ''lease.reaped'' limit 1;';

comment on function ipledger_audit.event_rate(timestamp with time zone,timestamp with time zone,interval) is 'How many events there were between two times (both included), in steps. Reads every event of that time.

Columns: network; at (begin of the step, counted from 1970); type; cause (call or finding); events; per_second. Steps without events have
no row.

Example:
  select at, sum(events) from event_rate(now() - interval ''1 hour'', now(), ''5 minutes'') where network = ''default'' group by at order by at;';

comment on function ipledger_audit.event_sentence(ipledger_audit.log,text) is 'One event as a sentence: what happened, to which lease of whom, who did it and on what evidence. `pool` is the name of the event''s
pool. The sentence is column `what` of view `event`.

Example:
  select event_sentence(l, ''default'') from log l where network_id = ''default'' and seq = 1;';

comment on function ipledger_audit.excluded_because(jsonb,inet) is 'Why a pool never hands out an address, or the block that it lies in; null if it does. `settings` is that of view `pool`.

Example:
  select excluded_because(settings, ''10.8.64.1'') from pool where network = ''default'';';

comment on function ipledger_audit.explain_address(text,inet,timestamp with time zone,bigint) is 'Why an address is free, cooling, held, in quarantine, or was taken back, now or at a time. Step 0 is the answer in one sentence, with what
sources saw there at that time, or elsewhere in the block that it is handed out with, and, of now, what it waits for; the steps after it
are the events that led there, oldest first: the lease it has or had last, the lease before it (at most 100 events of each), and its pool
where that was changed since, or deleted. Several events may have one time: `upto` is the number of the last that counts, if it is not to
be the last of that time. An IPv4 address that is written as IPv6 (::ffff:10.8.64.2) means the IPv4 one; of no address (null) there is no
row.

Columns: step; at (of step 0 the time asked about, then of the event); seq (number of the event); what (a sentence); evidence (of step 0:
position in the log, state (FREE, COOLING, RESERVED, ACTIVE, QUARANTINED, EXCLUDED, or OUTSIDE every pool), sightings, stuck items; of an
event what it rested on).

Example:
  select step, at, what from explain_address(''default'', ''10.8.64.2'');';

comment on function ipledger_audit.held_at(text,inet,bigint) is 'The leases that were held after an event, of an address or of a CIDR, each as the event that made it so. Rows of view `log`. Costs two
looks at an index for each address of the CIDR that was ever held; for a whole network leases_as_of is cheaper.

Example:
  select seq, address, owner_name from held_at(''default'', ''10.8.64.0/24'', 1000);';

comment on function ipledger_audit.known_addresses(text,inet) is 'The addresses of a CIDR, but for its first, at which a lease ever began.

Example:
  select count(*) from known_addresses(''default'', ''10.8.64.0/24'');';

comment on function ipledger_audit.last_event_of(text,inet,bigint) is 'The last event, up to a number, of the lease that held the address then, or was the last to hold it: also of one in a pool that was
deleted since and whose space is leased in another size. Rows of view `log`.

Example:
  select seq, type, address from last_event_of(''default'', ''10.8.64.2'', 1000);';

comment on function ipledger_audit.last_events(text,inet,bigint) is 'The last event, up to a number, of every lease that ever began where one that holds the address could. At most one of them is of a lease
that was held then. Rows of view `log`.

Example:
  select seq, type, address from last_events(''default'', ''10.8.64.2'', 1000);';

comment on function ipledger_audit.lease_history(text) is 'The life of one lease, from its first event to its end, in order. The id names network and fencing token: ''default/42''.

Columns: those of view `event`.

Example:
  select seq, at, state, what from lease_history(''default/42'');';

comment on function ipledger_audit.leases_as_of(text,bigint,inet,bigint) is 'The whole table of leases of a network as it was after an event: who held what then, in order of address. A number beyond the last one
means now. For one address or a CIDR use who_had. `after` and `most` page through it: leases behind that address, and how many. A page
costs what is in it, or at most what the events since the last checkpoint do. No row: nothing was held, or there is no such network.

Columns as of view lease: network; address (a block with its mask); pool; state (RESERVED, ACTIVE, QUARANTINED); lease_id; fencing_token;
version (number of the event that made it so); owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (null: nobody known);
node; boot; labels; reserved_at; confirmed_at; confirm_by; quarantine_reason, quarantined_at, quarantined_by, quarantine_why; since.

Example:
  select address, state, owner_name from leases_as_of(''default'', 120000);';

comment on function ipledger_audit.leases_as_of(text,timestamp with time zone,inet,bigint) is 'The whole table of leases of a network as it was at a time: after the last event at or before it. Otherwise as with a number. A time is
written as one: timestamptz ''2026-01-01 03:12Z'', or now() - interval ''1 hour''.

Example:
  select address, state, owner_name from leases_as_of(''default'', now() - interval ''1 hour'');';

comment on function ipledger_audit.marks(timestamp with time zone,timestamp with time zone) is 'What a chart marks: reaps, conflicts, new eras, fences, holds and their ends, between two times (both included).
Columns: network; seq; at; mark (reap, conflict, era, fence, hold); what (a sentence).

Example:
  select at, mark, what from marks(now() - interval ''1 day'', now()) where network = ''default'' order by at;';

comment on function ipledger_audit.moment(jsonb) is 'A time as evidence stores it, milliseconds since 1970, as sentences write it.

Example:
  select moment(''1763000000000''::jsonb);';

comment on function ipledger_audit.moment(timestamp with time zone) is 'A time as sentences write it: UTC, to the millisecond, whatever the session''s time zone.

Example:
  select moment(now());';

comment on function ipledger_audit.owner_history(text,text) is 'Everything that happened to leases of owners of a name, of whatever kind, uid and incarnation, in order, with the closings of its
attachments.

Columns: those of view `event`.

Example:
  select at, address, owner_incarnation, what from owner_history(''default'', ''default/web-0'');';

comment on function ipledger_audit.plain_address(inet) is 'An address or a CIDR as the log writes it: an IPv4 one that is written as IPv6 (::ffff:10.8.64.2) is the IPv4 one.

Example:
  select plain_address(''::ffff:10.8.64.2'');';

comment on function ipledger_audit.pool_at(text,inet,bigint) is 'The pool that an address belonged to after an event, or else the one that was deleted last of those it had belonged to: its last event up
to then, of type pool.deleted if it is gone. Rows of view `log`.

Example:
  select type, settings from pool_at(''default'', ''10.8.64.2'', 1000);';

comment on function ipledger_audit.pool_exclusions(jsonb) is 'What a pool never hands out, as ranges of addresses: its gateway, what its settings exclude, and, of a pool of single addresses, the
addresses of its subnet that no workload can use. A block that one of them touches is not handed out. `settings` is that of view `pool`.
Columns: first, last, why.

Example:
  select p.pool, x.* from pool p, pool_exclusions(p.settings) x where p.network = ''default'';';

comment on function ipledger_audit.pool_name(text,bigint) is 'The name of a pool by its number: as it is now, or as it was made if it is gone; empty if nothing is known of it.

Example:
  select pool_name(''default'', 1);';

comment on function ipledger_audit.pool_space(jsonb) is 'How many leases a pool''s CIDR holds, and how many of them can be handed out. `settings` is that of view `pool`. Columns: size,
allocatable; a v6 /48 holds 2^80 addresses.

Example:
  select p.pool, s.size, s.allocatable from pool p, pool_space(p.settings) s where p.network = ''default'';';

comment on function ipledger_audit.pool_usage_history(text,text,timestamp with time zone,timestamp with time zone) is 'How full a pool was between two times (both included), a row a minute, for 90 days; of deleted pools of that name too.

Columns: network; pool; at (the minute); cidr and family (4, 6) as they are now; size, allocatable, free, cooling, reserved, active,
quarantined, excluded (leases); used_ratio (as in pool_usage).

Example:
  select at, free, cooling, active from pool_usage_history(''default'', ''default'', now() - interval ''6 hours'', now());';

comment on function ipledger_audit.position_at(text,timestamp with time zone) is 'The number of the last event of a network at or before a time; 0 if there is none. Several events may have one time.

Example:
  select position_at(''default'', now() - interval ''1 hour'');';

comment on function ipledger_audit.possible_bases(inet) is 'Every address at which a block that contains this one can begin, the address itself included: where the log has events about it.

Example:
  select possible_bases(''10.8.64.2'');';

comment on function ipledger_audit.quarantine_exit(text,boolean) is 'What ends a quarantine, by its reason. How many snapshots are enough is `misses` of the pool''s reapPolicy.

Example:
  select quarantine_exit(''CONFLICT'', true);';

comment on function ipledger_audit.reaps(timestamp with time zone,timestamp with time zone) is 'Addresses that were taken back between two times (both included), and on what evidence: one row for each source that the proof rests on;
one row without a source where it rests on none (an operator''s Reap, a deadline that passed, a fenced node).

Columns: network; seq, at (of the event); address (a block with its mask); lease_id; pool; owner_kind, owner_name, owner_uid,
owner_incarnation, owner_interface, node (of the last holder); cause (PROVEN_ABSENT, PREVIOUS_BOOT, FENCED, NEVER_CONFIRMED, Reap); actor;
source; why (it testified: SIGHTED, NAMED in Reserve, COVERS kind and node); snapshots (numbers of its complete snapshots that missed the
lease), heads (of the ledger, at which those were begun), misses (how many); last_sighted_at (by anybody); lookup_answer, lookup_at,
lookup_detail (what it said when it was asked); policy (in force then, times in ms); evidence (all that is stored).

Example:
  select at, address, owner_name, cause, source, snapshots, lookup_answer from reaps(now() - interval ''1 day'', now());';

comment on function ipledger_audit.who_had(text,inet,timestamp with time zone) is 'Who held an address at a time, or every address of a CIDR: one row a lease that was held then, in quarantine too. No row: nobody held
it then, or there is no such network (view `network` has those that are). A time means the last event at or before it. An IPv4 address
that is written as IPv6 (::ffff:10.8.64.2) means the IPv4 one.

Columns: network; address (a block with its mask); pool; state; lease_id; fencing_token; version and seq (number of the event that made it
so); owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (null: nobody known); node; boot; labels; reserved_at;
confirmed_at; confirm_by; quarantine_reason, quarantined_at, quarantined_by, quarantine_why; since (begin of the lease); given_by and
given_cause (who gave it away, by which call or finding); until (its end; null: held still) and ended_as (type/cause of the end).

Example:
  select owner_name, node, since, given_by, until, ended_as from who_had(''default'', ''10.8.64.2'', now() - interval ''1 day'');';

comment on index ipledger.closed_attachment_by_workload is 'Lives of a workload that are over: it is seen at an address that the books have as free.';

comment on index ipledger.event_by_address is 'History of an address; the fold of one address.';

comment on index ipledger.event_by_owner is 'History of an owner; its previous address.';

comment on index ipledger.event_by_time is 'Turns a time into a position of the log.';

comment on index ipledger.event_of_absence is 'Reaps on absence of the last hour, and from when they count anew: the rolling caps.';

comment on index ipledger.event_of_shape is 'History of a network, its pools, and what people say of reaping.';

comment on index ipledger.event_seldom is 'Reaps, quarantines, eras, fences, holds and changes of pools between two times.';

comment on index ipledger.lease_by_attachment is 'Retries, Release by owner.';

comment on index ipledger.lease_by_deadline is 'Reservations that may have expired.';

comment on index ipledger.lease_by_holder is 'Supersession, the owner limit.';

comment on index ipledger.lease_by_node is 'What is on a node: listing, fencing.';

comment on index ipledger.lease_by_quarantiner is 'The cap on quarantines of one caller or source; listing of quarantines.';

comment on index ipledger.lease_by_token is 'A token is given once: no dead rows stand before the living one, as they do at a recycled address while a snapshot is held open.';

comment on index ipledger.lookup_by_answer is 'What was answered a moment ago, and is a proof for no longer than a minute.';

comment on index ipledger.lookup_by_next_time is 'What is to be asked again.';

comment on index ipledger.lookup_waits_for_its_source is 'What the next answer to a report asks.';

comment on index ipledger.one_address_has_one_open_tenure is 'No two hold one address now. Blocks of other sizes over it are found when either ends, and by whoever writes it.';

comment on index ipledger.pool_sample_by_time is 'Pruning; a chart of a whole network.';

comment on index ipledger.released_in_order_of_reuse is 'Longest-free first.';

comment on index ipledger.sighting_by_its_end is 'Pruning.';

comment on index ipledger.sighting_by_last_seen is 'When an address was seen last: an address handed on every few minutes has hundreds of sightings a day.';

comment on index ipledger.sighting_live is 'What is not handed out; leases nobody sees.';

comment on index ipledger.snapshot_by_time is 'Pruning.';

comment on index ipledger.snapshot_part_by_time is 'Pruning of what was never finished.';

comment on index ipledger.source_by_era is 'Enabled sources that have not reported completely in this era: recovery, STRICT.';

comment on index ipledger.source_by_interval is 'The slowest: an address cools for twice as long.';

comment on index ipledger.source_by_node is 'The sources that see the node that asks (STRICT), or is fenced.';

comment on index ipledger.source_lists_an_entry_once is 'What a source lists now, compared with its next snapshot.';

comment on index ipledger.source_that_is_asked is 'The few sources that are asked, beside thousands that report.';

comment on index ipledger.source_warming_up is 'Enabled sources whose lists do not count yet: recovery, STRICT.';

comment on index ipledger.tenure_by_address is 'Holders of an address in order: whether the one before had ended, also where the constraint is missing.';

comment on index ipledger.tenure_of_another_owner is 'Tenures of a lease after its owner changed.';

comment on schema ipledger is 'Event-sourced IP address allocation: the log, and what it says now.';

comment on schema ipledger_audit is 'What people ask of the ledger: who had an address, on what evidence, what is stuck. Views and functions for psql and dashboards, read by ipledger_auditor; made anew by each version of ipledger.';

comment on table ipledger.boot_report is 'An observation: boots of nodes that a source has left for another, or that report beside the one it is in. As lasting as source_epoch.';

comment on table ipledger.closed_attachment is 'Incarnations that were released or superseded: late calls for them hold nothing.';

comment on table ipledger.database_life is 'The life of the database that a ledger was last written in. It goes with the database into its copies, and there it is wrong.';

comment on table ipledger.dropped_range is 'Ranges of deleted pools in which rows of released_address may be left; removed with the last of them. Ranges never overlap, each other or a pool.';

comment on table ipledger.event is 'The log: append-only by privilege, numbered without a gap per network and era. Each row carries the full state after it.';

comment on table ipledger.fence is 'Projection: boots of nodes that somebody vouches are over (node.fenced).';

comment on table ipledger.hold is 'Projection: whose proofs of absence reap nothing until an operator resumes (reconcile.held, reconcile.resumed).';

comment on table ipledger.lease is 'Projection: who holds what now. The primary key is the promise that one address has one holder.';

comment on table ipledger.lease_checkpoint is 'Numbers at which the whole table of leases is kept, as `lease_checkpoint_part` has it. The row comes with the last part: without it the parts say nothing.';

comment on table ipledger.lease_checkpoint_part is 'A thousand leases of a checkpoint: for each the number of the last event about it up to there, in order of address.';

comment on table ipledger.lookup is 'Point look-ups at the authority: what is to be asked about a lease, the last answer, and when to ask again.';

comment on table ipledger.migration is 'Which files of db/migrations this database has seen, and their SHA-256.';

comment on table ipledger.network is 'Projection: networks as their last network event left them.';

comment on table ipledger.network_lock is 'One row per network, locked for no key update by each batch; never updated, referenced by nothing.';

comment on table ipledger.pool is 'Projection: pools as their last pool event left them.';

comment on table ipledger.pool_position is 'Where each pool stands after a batch; the row with the greatest seq counts, older ones are pruned. Appended, never updated: a row rewritten by every batch collapses while anyone holds a snapshot open (2,270 batches a second fell to 239).';

comment on table ipledger.pool_sample is 'How full each pool was, once a minute, for charts: an observation, kept for 90 days. Counts are leases; a v6 /48 has 2^80 of them.';

comment on table ipledger.released_address is 'Free space, part one: addresses somebody held before, cooling until available_at, then reused in that order.';

comment on table ipledger.request is 'Answers of committed commands, for a day: the same id gives the same answer. Refusals are not remembered.';

comment on table ipledger.seal is 'Closed stretches of the log, without a gap within an era, in a chain per network. Inserted by a job, never changed.';

comment on table ipledger.seal_lock is 'One row per network, locked for no key update by who seals a stretch of its log; never updated, referenced by nothing.';

comment on table ipledger.sighting is 'Who sees which address for which owner: from the snapshot that first listed the entry to the complete one, of a warm epoch, that did not. What an entry says never changes: an owner on another node, or one that was paused, is another entry.';

comment on table ipledger.signing_key is 'Secret that snapshot tokens of a network are signed with. Made once; goes with the database into its copies, so that a token of a later life is still known to be ours.';

comment on table ipledger.snapshot is 'Reports that changed something: the set, the epoch, or whether the source is partial and why. The others leave their source''s row only.';

comment on table ipledger.snapshot_part is 'Chunks of snapshots whose last one has not arrived. They say nothing yet, and go with the next snapshot of their source.';

comment on table ipledger.source is 'What can say which addresses are live, what it declares that it sees, and how it stands.';

comment on table ipledger.source_epoch is 'Lives of sources. A closed one never opens again, so these rows are never pruned: one a boot.';

comment on table ipledger.stuck_item is 'What waited for a person, or for an answer that does not come, when it was last looked for.';

comment on table ipledger.tenure is 'Who held which address over which span of the log, in quarantine too. A lease is one tenure for as long as its owner is one; it begins with the event `first_seq` and ends before the event `upper(span)`.';

comment on table ipledger.tenure_overlap is 'Tenures by the log that were refused: while they were held, somebody else held the same address. There is never to be one.';

comment on table ipledger.tenure_position is 'Up to where tenure is the log. Locked by who goes on from there.';

comment on table ipledger.turn is 'When each source that is asked was asked last, and from when on it may be asked again.';

comment on table ipledger.unknown_source is 'Who asked to report while its network recovered, and was no source of it. An observation; removed once the network is READY.';

comment on table ipledger.untouched_range is 'Free space, part two: ranges nobody ever held. The range named by the pool''s last position begins at its cursor instead.';

comment on table ipledger.verification is 'How far a job has verified a network: new events as they come, and all of it again and again, a piece at a time.';

comment on table ipledger.verify_checkpoint is 'Up to where the log and its projections were found in order.';

comment on table ipledger.verify_finding is 'Differences between a log and its projections, or within a log, that a verification found and no later look at all of it has missed. At most 1,000 of a network.';

comment on table ipledger_audit.applied is 'Which views and functions of ipledger are here, and the SHA-256 of the files that made them. What is not in it is somebody else''s, and left alone.';

comment on view ipledger_audit.checkpoint is 'Numbers of the log at which the whole table of leases is kept, so that leases_as_of reads one of them and the events after it. A job
makes the next one when half as many events have come as leases were held (at least 20,000, at most 250,000).

Columns: network; seq (number of the last event it takes account of); leases (held then); parts (rows of view checkpoint_part); made_at.

Example:
  select seq, leases from checkpoint where network = ''default'' order by seq desc limit 5;';

comment on view ipledger_audit.checkpoint_part is 'What the checkpoints hold, for leases_as_of. Parts of a number that view checkpoint does not have are not finished and say nothing.

Columns: network; seq (of the checkpoint); part (from 0, in order of address); first_address, last_address; leases; events (for each lease
the number of the last event about it, in order of address).

Example:
  select part, first_address, last_address, leases from checkpoint_part where network = ''default'' and seq = 20000 order by part;';

comment on view ipledger_audit.conflicts is 'Addresses that more than one workload uses, as far as sources saw: held as CONFLICT and handed to nobody.

Columns: those of view `lease`; since (when the conflict was found); parties (the holder by the books, the one that was found, and everybody
who is seen there now: role holder, found or seen; owner, node, source, state, since); seen_by (sources that see somebody there now); what (a
sentence).

Example:
  select address, since, seen_by, what from conflicts where network = ''default'';';

comment on view ipledger_audit.crash_loops is 'Owners that were given leases in five lives or more within the last 15 minutes: something starts and ends again and again. What one
Reserve gave, or several of one incarnation, is one life; an owner that names no incarnation has one for each Reserve. Reads every event
of that time: name the network.

Columns: network; owner_kind, owner_name, owner_interface; pool (of the last lease); lives; addresses (different ones), held_now (leases it
has, quarantined ones included); first_at, last_at (of these leases).

Example:
  select owner_name, lives, addresses, held_now from crash_loops where network = ''default'' order by lives desc;';

comment on view ipledger_audit.event is 'Everything that happened, one row an event: the history of all networks. Filter by network, and by seq, at (a range) or owner_name, or
it reads everything; for one address, lease or owner use address_history, lease_history, owner_history.

Columns: network; seq (number of the event in its network); at; type; address (a block with its mask) and lease_id it is about; pool (its
name now, or as it was made if it is gone); state of the lease after it; owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface, node, boot of the holder after it; actor (token or job that did it); cause (call or finding); quarantine_reason; what (a
sentence); evidence (what the decision rested on); request_id; trace_id. Null where the event has none.

Example:
  select seq, at, what from event where network = ''default'' and at > now() - interval ''1 hour'' order by seq;';

comment on view ipledger_audit.fences is 'Boots of nodes that somebody vouches are over: what was placed there, up to the event, and nowhere else is taken back.

Columns: network; node; boot; seq, at (of the event); actor (who said so); why.

Example:
  select node, boot, at, actor, why from fences where network = ''default'';';

comment on view ipledger_audit.holds is 'Whose proofs of absence take nothing back until an operator resumes (ipledger hold resume).

Columns: network; source (empty: the whole network); seq, at (of the event that held it); why; reaps (of the hour, the refused one
included); leases (that those are a share of).

Example:
  select source, at, why from holds where network = ''default'';';

comment on view ipledger_audit.lease is 'Who holds what now. For a time in the past: leases_as_of.

Columns: network; address (a block with its mask); pool; state (RESERVED, ACTIVE, QUARANTINED); lease_id; fencing_token (number of the
event that created it); version (number of the last event about it); owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface (null: nobody known); node; boot; labels; reserved_at (when it was promised last); confirmed_at; confirm_by (deadline;
null: none); quarantine_reason, quarantined_at, quarantined_by, quarantine_why; since (begin of the lease).

Example:
  select address, state, owner_name, since from lease where network = ''default'' and node = ''n1'';';

comment on view ipledger_audit.log is 'The events of all networks as they are stored; view `event` is the same for people. Columns as in ipledger.event. Keys that
have an index: (network_id, seq), (network_id, address, seq), (network_id, at, seq), (network_id, owner_name, seq).

Example:
  select seq, type, address, settings from log where network_id = ''default'' and seq = 1;';

comment on view ipledger_audit.network is 'The networks that are there.

Columns: network; state (READY, REBUILDING, RECOVERING); era (life of the ledger; its numbers begin at era × 2^40); head (number of the
last event); description; labels; created_at; updated_at.

Example:
  select network, state, head from network;';

comment on view ipledger_audit.pool is 'The pools that are there now. How full they are: pool_usage.

Columns: network; pool (its name); pool_id (number of the event that made it); family (4, 6); cidr; settings (subnet, prefixLength, gateway,
exclude, cooldownMs, confirmWithinMs, liveness, ownerLimit, draining, options, labels, reapPolicy); version (number of the last event about
it); created_at; updated_at.

Example:
  select pool, cidr, settings ->> ''gateway'' as gateway from pool where network = ''default'';';

comment on view ipledger_audit.pool_forecast is 'When each pool will have nothing free, if it goes on as in the last hour: the net rate by which held and cooling leases grew, least squares
over the samples of a minute each.

Columns: network; pool; free, cooling (by the last sample, leases); leases_per_hour (net; negative: it empties; null: fewer than five
samples); exhausted_in (from the last sample on; null: it does not fill, or not within a century); at (the last sample).

Example:
  select pool, free, leases_per_hour, exhausted_in from pool_forecast where exhausted_in < interval ''1 day'';';

comment on view ipledger_audit.pool_map is 'Where in its CIDR a pool is used now: each pool cut into up to 256 equal parts, in order of address. Ask for one pool: it counts all
of its leases.

Columns: network; pool; part (0, 1, …); first_address (of the part, which is this CIDR); size (leases that fit in it, excluded ones too);
cooling, reserved, active, quarantined (leases of it); used_ratio (those four, of size: 0 to 1).

Example:
  select part, first_address, used_ratio from pool_map where network = ''default'' and pool = ''web'' and used_ratio > 0 order by part;';

comment on view ipledger_audit.pool_samples is 'How full each pool was, once a minute, for 90 days. By name and with the ratio: pool_usage_history.

Columns: network; pool_id (number of the event that made it); at (the minute); size, allocatable, free, cooling, reserved, active,
quarantined, excluded (leases).

Example:
  select max(at) from pool_samples where network = ''default'';';

comment on view ipledger_audit.pool_usage is 'How full each pool is now. Counts are leases, of the pool''s size each; free + cooling + reserved + active + quarantined + excluded = size.

Columns: network; pool; cidr; family (4, 6); size; allocatable (size without excluded); free (cooled and not held); cooling; reserved;
active; quarantined; excluded; used_ratio (of what is allocatable, what is held: reserved, active and quarantined; 0 to 1; null: nothing is
allocatable); draining (hands nothing out).

Example:
  select pool, size, free, cooling, active, quarantined, round(100 * used_ratio) as percent from pool_usage where network = ''default'';';

comment on view ipledger_audit.quarantines is 'Addresses that ipledger itself holds, and hands to nobody.

Columns: those of view `lease`; age (since it was set aside); exit (what ends it); blocked_by (what stands in the way of that, as it was
observed within the last minutes; empty: nothing, it waits for time).

Example:
  select address, quarantine_reason, age, exit, blocked_by from quarantines where network = ''default'' order by age desc;';

comment on view ipledger_audit.seals is 'Digests of closed stretches of each log, each of which names the one before: who alters an event later is found by `ipledger verify
--seals`, and who makes the seals anew by digests that were exported before.

Columns: network; first_seq, last_seq (the stretch); events; digest, previous_digest (hexadecimal); sealed_at.

Example:
  select first_seq, last_seq, digest from seals where network = ''default'' order by first_seq desc limit 1;';

comment on view ipledger_audit.sightings is 'Who saw which address for which owner, from when to when. An observation, not a fact of the ledger, and pruned by age.

Columns: network; address; source; owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (kind null: seen, and whose it is
is not known; interface empty: not told); node; boot; state (the source''s word; only `terminal` means ended); live (listed now, and not as
terminal); appeared_at, appeared_sequence, appeared_head (begin, number and ledger head of the snapshot that listed it first);
last_seen_at, vanished_at, vanished_sequence, vanished_head (of the complete snapshot that listed it no more; null: listed still).

Example:
  select source, owner_name, node, state, appeared_at, last_seen_at from sightings where network = ''default'' and address = ''10.8.64.2'';';

comment on view ipledger_audit.sources is 'What can say which addresses are live, and how it stands.

Columns: network; source; kind (push: it reports; docker, kubernetes, http: it is asked); node (empty: the whole network); state (REGISTERED:
dry run; ENABLED; RETIRED); epoch (its present life); warm (whether its lists count); era (of its last complete snapshot); interval (between
reports); reported_at and lag (since its last report, or its registration); complete_at and complete_lag (the same of a complete one);
sequence (of its last snapshot); listed (entries of the last complete one); partial_because (why the last one was not complete); held
(whether its proofs, or all of the network, reap nothing); looks (of one that is asked: why the last look came to nothing; empty: it did
not).

Example:
  select source, state, lag, complete_lag, listed, partial_because from sources where network = ''default'' order by lag desc;';

comment on view ipledger_audit.stuck is 'What waits for a person, or for an answer that does not come, as a job found it within the last minutes (`ipledger stuck` asks anew).

Columns: network; code (what kind: HELD, SOURCE_SILENT, PROOF_BLOCKED, …); source (empty: none); lease_id, address, pool (null, null and
empty: about none); since; age (when it was observed); what (a sentence); observed_at.

Example:
  select code, source, address, age, what from stuck where network = ''default'' order by since;';

comment on view ipledger_audit.suspects is 'Leases that somebody misses and that are kept: the questions to the sources about them, with the last answer, and, of the others, the
witness that blocks the proof, as it was observed within the last minutes.

Columns: network; address (a block with its mask); lease_id; owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (whom
the question is after: the holder, or another who was seen there); source (that is asked, or that blocks; empty: none); question_at (when
the question arose, or since when it waits); answer (the last: live, terminal, gone, unknown, error, unanswered; null: none yet);
attempts; next_at (when it is asked again); waiting; what (a sentence).

Example:
  select address, owner_name, source, answer, waiting, what from suspects where network = ''default'' order by waiting desc;';

comment on view ipledger_audit.tenure is 'Who held which address over which span of the log, in quarantine too: one row for each owner of a lease. The database refuses that two rows
of a network hold one address (or blocks that share one) over spans that share a number, if both have ended, and that an address is held
twice now. A row put past ipledger into the span of one that is held still it refuses only when that one ends; until then verification
finds it. What was refused or found is in tenure_overlaps. A job follows the log within seconds; view tenure_position says up to where.

Columns: network; address (a block with its mask); lease_id; fencing_token; owner_kind, owner_name, owner_uid, owner_incarnation,
owner_interface (null: nobody known); span (numbers of the log: from its first event to before the one that ended it); first_seq; last_seq
(number of the event that ended it; null: held still); began_at; ended_at; began_as and ended_as (type/cause of these events).

Example:
  select address, owner_name, began_at, ended_at, ended_as from tenure where network = ''default'' and address && inet ''10.8.64.0/24'';';

comment on view ipledger_audit.tenure_overlaps is 'Addresses that two held at once: tenures by the log that the constraint of table tenure refused, and those that verification found in the
table, put there past ipledger. There is never to be a row: one is a defect, or a database that was tampered with.

Columns: network; address and lease_id of the later one; other_lease_id; span (numbers of the log over which the later one was held; both
null: found in the table, and what names them); found_at; what (a sentence).

Example:
  select found_at, what from tenure_overlaps where network = ''default'';';

comment on view ipledger_audit.tenure_position is 'Up to where view tenure is the log, for each network.

Columns: network; seq (number of the last event it takes account of; 0: none); at (time of that event); head (number of the last event of
the log); waiting_since (time of the first event it does not take account of; null: there is none).

Example:
  select network, head - seq as events, now() - waiting_since as behind from tenure_position;';

comment on view ipledger_audit.verification is 'How far the books were verified, and when: the events that are new, within minutes, and all of each network again and again (job
`verify-log`). What was found is in `verify_findings`.

Columns: network; in_order_up_to, in_order_at (the last time nothing was wrong, and with which event the log ended); looked_up_to, looked_at (new events,
whatever was found); all_looked_at, all_events, all_worked (the last look at all of it: when it ended, events, time it worked);
now_at, now_events (the part it is at now, and events so far; empty: it rests); begins_at (of that look, or of the next).

Example:
  select network, in_order_at, all_looked_at, now_at from verification order by in_order_at nulls first;';

comment on view ipledger_audit.verify_findings is 'Where a log and its projections differ, or a log is not whole: what verification found, by a job or by `ipledger verify`, and no later
look at all of the network has missed. Empty: nothing is known to be wrong; see `verification` for when that was looked at.

Columns: network; what (LEASE_DIFFERS, EVENT_MISSING, …); address, lease_id, pool, seq (what it is about; null or empty: not about
one); expected (by the log); found (in the projections); message (a sentence); found_at (first), seen_at (last).

Example:
  select what, address, seq, message, found_at from verify_findings where network = ''default'' order by found_at;';

grant execute on function ipledger.oldest_transaction() to ipledger_service;

grant execute on function ipledger_audit.address_at(integer,numeric) to ipledger_auditor;

grant execute on function ipledger_audit.address_at(integer,numeric) to ipledger_service;

grant execute on function ipledger_audit.address_history(text,inet,timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.address_history(text,inet,timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.address_number(inet) to ipledger_auditor;

grant execute on function ipledger_audit.address_number(inet) to ipledger_service;

grant execute on function ipledger_audit.churn(timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.churn(timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.counted_misses(jsonb,jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.counted_misses(jsonb,jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_lease(ipledger_audit.log,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.describe_lease(ipledger_audit.log,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.describe_owner(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_owner(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_owner(text,text,text,text,text) to ipledger_auditor;

grant execute on function ipledger_audit.describe_owner(text,text,text,text,text) to ipledger_service;

grant execute on function ipledger_audit.describe_policy(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_policy(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_proof(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_proof(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_seen(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_seen(jsonb) to ipledger_service;

grant execute on function ipledger_audit.describe_witness(jsonb,jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.describe_witness(jsonb,jsonb) to ipledger_service;

grant execute on function ipledger_audit.event_rate(timestamp with time zone,timestamp with time zone,interval) to ipledger_auditor;

grant execute on function ipledger_audit.event_rate(timestamp with time zone,timestamp with time zone,interval) to ipledger_service;

grant execute on function ipledger_audit.event_sentence(ipledger_audit.log,text) to ipledger_auditor;

grant execute on function ipledger_audit.event_sentence(ipledger_audit.log,text) to ipledger_service;

grant execute on function ipledger_audit.excluded_because(jsonb,inet) to ipledger_auditor;

grant execute on function ipledger_audit.excluded_because(jsonb,inet) to ipledger_service;

grant execute on function ipledger_audit.explain_address(text,inet,timestamp with time zone,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.explain_address(text,inet,timestamp with time zone,bigint) to ipledger_service;

grant execute on function ipledger_audit.held_at(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.held_at(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.known_addresses(text,inet) to ipledger_auditor;

grant execute on function ipledger_audit.known_addresses(text,inet) to ipledger_service;

grant execute on function ipledger_audit.last_event_of(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.last_event_of(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.last_events(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.last_events(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.lease_history(text) to ipledger_auditor;

grant execute on function ipledger_audit.lease_history(text) to ipledger_service;

grant execute on function ipledger_audit.leases_as_of(text,bigint,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.leases_as_of(text,bigint,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.leases_as_of(text,timestamp with time zone,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.leases_as_of(text,timestamp with time zone,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.marks(timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.marks(timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.moment(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.moment(jsonb) to ipledger_service;

grant execute on function ipledger_audit.moment(timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.moment(timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.owner_history(text,text) to ipledger_auditor;

grant execute on function ipledger_audit.owner_history(text,text) to ipledger_service;

grant execute on function ipledger_audit.plain_address(inet) to ipledger_auditor;

grant execute on function ipledger_audit.plain_address(inet) to ipledger_service;

grant execute on function ipledger_audit.pool_at(text,inet,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.pool_at(text,inet,bigint) to ipledger_service;

grant execute on function ipledger_audit.pool_exclusions(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.pool_exclusions(jsonb) to ipledger_service;

grant execute on function ipledger_audit.pool_name(text,bigint) to ipledger_auditor;

grant execute on function ipledger_audit.pool_name(text,bigint) to ipledger_service;

grant execute on function ipledger_audit.pool_space(jsonb) to ipledger_auditor;

grant execute on function ipledger_audit.pool_space(jsonb) to ipledger_service;

grant execute on function ipledger_audit.pool_usage_history(text,text,timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.pool_usage_history(text,text,timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.position_at(text,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.position_at(text,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.possible_bases(inet) to ipledger_auditor;

grant execute on function ipledger_audit.possible_bases(inet) to ipledger_service;

grant execute on function ipledger_audit.quarantine_exit(text,boolean) to ipledger_auditor;

grant execute on function ipledger_audit.quarantine_exit(text,boolean) to ipledger_service;

grant execute on function ipledger_audit.reaps(timestamp with time zone,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.reaps(timestamp with time zone,timestamp with time zone) to ipledger_service;

grant execute on function ipledger_audit.who_had(text,inet,timestamp with time zone) to ipledger_auditor;

grant execute on function ipledger_audit.who_had(text,inet,timestamp with time zone) to ipledger_service;

grant usage on schema ipledger to ipledger_jobs;

grant usage on schema ipledger to ipledger_service;

grant usage on schema ipledger_audit to ipledger_auditor;

grant usage on schema ipledger_audit to ipledger_service;

grant delete, insert, select, update on table ipledger.boot_report to ipledger_service;

grant delete, insert, select, update on table ipledger.closed_attachment to ipledger_service;

grant insert, select, update on table ipledger.database_life to ipledger_service;

grant delete, insert, select on table ipledger.dropped_range to ipledger_service;

grant insert, select on table ipledger.event to ipledger_service;

grant delete, insert, select, update on table ipledger.fence to ipledger_service;

grant delete, insert, select, update on table ipledger.hold to ipledger_service;

grant delete, insert, select, update on table ipledger.lease to ipledger_service;

grant delete, insert, select, update on table ipledger.lease_checkpoint to ipledger_service;

grant delete, insert, select, update on table ipledger.lease_checkpoint_part to ipledger_service;

grant delete, insert, select, update on table ipledger.lookup to ipledger_service;

grant select on table ipledger.migration to ipledger_service;

grant delete, insert, select, update on table ipledger.network to ipledger_service;

grant insert, select, update (network_id) on table ipledger.network_lock to ipledger_service;

grant delete, insert, select, update on table ipledger.pool to ipledger_service;

grant delete, insert, select, update on table ipledger.pool_position to ipledger_service;

grant delete, insert, select, update on table ipledger.pool_sample to ipledger_service;

grant delete, insert, select, update on table ipledger.released_address to ipledger_service;

grant delete, insert, select, update on table ipledger.request to ipledger_service;

grant insert, select on table ipledger.seal to ipledger_service;

grant insert, select, update (network_id) on table ipledger.seal_lock to ipledger_service;

grant delete, insert, select, update on table ipledger.sighting to ipledger_service;

grant insert, select on table ipledger.signing_key to ipledger_service;

grant delete, insert, select, update on table ipledger.snapshot to ipledger_service;

grant delete, insert, select, update on table ipledger.snapshot_part to ipledger_service;

grant delete, insert, select, update on table ipledger.source to ipledger_service;

grant insert, select, update on table ipledger.source_epoch to ipledger_service;

grant delete, insert, select, update on table ipledger.stuck_item to ipledger_service;

grant delete, insert, select, update on table ipledger.tenure to ipledger_service;

grant delete, insert, select, update on table ipledger.tenure_overlap to ipledger_service;

grant delete, insert, select, update on table ipledger.tenure_position to ipledger_service;

grant delete, insert, select, update on table ipledger.turn to ipledger_service;

grant delete, insert, select, update on table ipledger.unknown_source to ipledger_service;

grant delete, insert, select, update on table ipledger.untouched_range to ipledger_service;

grant delete, insert, select, update on table ipledger.verification to ipledger_service;

grant delete, insert, select, update on table ipledger.verify_checkpoint to ipledger_service;

grant delete, insert, select, update on table ipledger.verify_finding to ipledger_service;

grant select on table ipledger_audit.applied to ipledger_auditor;

grant select on table ipledger_audit.applied to ipledger_service;

grant select on table ipledger_audit.checkpoint to ipledger_auditor;

grant select on table ipledger_audit.checkpoint to ipledger_service;

grant select on table ipledger_audit.checkpoint_part to ipledger_auditor;

grant select on table ipledger_audit.checkpoint_part to ipledger_service;

grant select on table ipledger_audit.conflicts to ipledger_auditor;

grant select on table ipledger_audit.conflicts to ipledger_service;

grant select on table ipledger_audit.crash_loops to ipledger_auditor;

grant select on table ipledger_audit.crash_loops to ipledger_service;

grant select on table ipledger_audit.event to ipledger_auditor;

grant select on table ipledger_audit.event to ipledger_service;

grant select on table ipledger_audit.fences to ipledger_auditor;

grant select on table ipledger_audit.fences to ipledger_service;

grant select on table ipledger_audit.holds to ipledger_auditor;

grant select on table ipledger_audit.holds to ipledger_service;

grant select on table ipledger_audit.lease to ipledger_auditor;

grant select on table ipledger_audit.lease to ipledger_service;

grant select on table ipledger_audit.log to ipledger_auditor;

grant select on table ipledger_audit.log to ipledger_service;

grant select on table ipledger_audit.network to ipledger_auditor;

grant select on table ipledger_audit.network to ipledger_service;

grant select on table ipledger_audit.pool to ipledger_auditor;

grant select on table ipledger_audit.pool to ipledger_service;

grant select on table ipledger_audit.pool_forecast to ipledger_auditor;

grant select on table ipledger_audit.pool_forecast to ipledger_service;

grant select on table ipledger_audit.pool_map to ipledger_auditor;

grant select on table ipledger_audit.pool_map to ipledger_service;

grant select on table ipledger_audit.pool_samples to ipledger_auditor;

grant select on table ipledger_audit.pool_samples to ipledger_service;

grant select on table ipledger_audit.pool_usage to ipledger_auditor;

grant select on table ipledger_audit.pool_usage to ipledger_service;

grant select on table ipledger_audit.quarantines to ipledger_auditor;

grant select on table ipledger_audit.quarantines to ipledger_service;

grant select on table ipledger_audit.seals to ipledger_auditor;

grant select on table ipledger_audit.seals to ipledger_service;

grant select on table ipledger_audit.sightings to ipledger_auditor;

grant select on table ipledger_audit.sightings to ipledger_service;

grant select on table ipledger_audit.sources to ipledger_auditor;

grant select on table ipledger_audit.sources to ipledger_service;

grant select on table ipledger_audit.stuck to ipledger_auditor;

grant select on table ipledger_audit.stuck to ipledger_service;

grant select on table ipledger_audit.suspects to ipledger_auditor;

grant select on table ipledger_audit.suspects to ipledger_service;

grant select on table ipledger_audit.tenure to ipledger_auditor;

grant select on table ipledger_audit.tenure to ipledger_service;

grant select on table ipledger_audit.tenure_overlaps to ipledger_auditor;

grant select on table ipledger_audit.tenure_overlaps to ipledger_service;

grant select on table ipledger_audit.tenure_position to ipledger_auditor;

grant select on table ipledger_audit.tenure_position to ipledger_service;

grant select on table ipledger_audit.verification to ipledger_auditor;

grant select on table ipledger_audit.verification to ipledger_service;

grant select on table ipledger_audit.verify_findings to ipledger_auditor;

grant select on table ipledger_audit.verify_findings to ipledger_service;
