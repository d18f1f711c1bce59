/** Questions to sources about workloads, and their answers. `$1`: the network. */

/** Questions handed to a source with the answer to its report. */
const MOST_QUESTIONS = 64
/** A question that failed so often waits for a person. */
const ATTEMPTS = 3

export const LOOK_UPS = 'select * from ipledger.lookup where network_id = $1 and address = any ($2::inet[])'

/** What source $2 is still to answer. Without a lease, node and lease are empty. */
export const QUESTIONS = `(select json_agg(x) from (
    select host(q.address) as address, q.head, coalesce(e.node, '') as node, coalesce(q.network_id || '/' || e.token, '') as "leaseId",
           json_build_object('kind', q.owner_kind, 'name', q.owner_name, 'uid', q.owner_uid, 'incarnation', '', 'interface', '') as owner
      from ipledger.lookup q
      left join ipledger.lease l on l.network_id = q.network_id and l.address = q.address
      left join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq
     where q.network_id = $1 and q.source_id = $2 and q.answer = 'wanted' order by q.asked_at limit ${MOST_QUESTIONS}) x)`

export const ANSWER = `update ipledger.lookup q
     set answer = a.answer, terminal_since = to_timestamp(a.since / 1000), detail = a.detail
    from json_to_recordset($3::json)
      as a (address inet, kind text, uid text, answer text, since float8, detail text, head bigint)
   where q.network_id = $1 and q.source_id = $2 and q.address = a.address and q.owner_kind = a.kind and q.owner_uid = a.uid
     and q.answer = 'wanted' and q.head = a.head returning 1`

/** Of the addresses $2 those about which nothing is awaited. */
export const ANSWERED = `select host(k.address) as address from ipledger.lookup k
  where k.network_id = $1 and k.address = any($2::inet[])
  group by k.address having bool_and(k.answer <> 'wanted')`

export const KEEP_ANSWERS = `
  insert into ipledger.lookup as k (network_id, source_id, owner_kind, owner_name, owner_uid, address, answer, terminal_since,
                                    detail, head, asked_at, attempts)
  select $1, a.source, a.kind, a.name, a.uid, a.address, a.answer, to_timestamp(a."terminalSince" / 1000), a.detail, a.head,
         to_timestamp(a."askedAt" / 1000), a.attempts
    from json_to_recordset($2::json) as a (source text, kind text, name text, uid text, address inet, answer text,
           "terminalSince" float8, detail text, head bigint, "askedAt" float8, attempts int)
  on conflict (network_id, source_id, address, owner_kind, owner_uid) do update
    set owner_name = excluded.owner_name, answer = excluded.answer, terminal_since = excluded.terminal_since,
        detail = excluded.detail, head = excluded.head, asked_at = excluded.asked_at, attempts = excluded.attempts
  where k.asked_at < excluded.asked_at`

export const FAILED_LOOK_UPS = `
  select * from ipledger.lookup
   where network_id = $1 and answer in ('wanted', 'unknown', 'error') and attempts >= ${ATTEMPTS}`

export const PRUNE_LOOK_UPS = `
  delete from ipledger.lookup k
   where k.network_id = $1 and not exists (
     select from ipledger.lease l where l.network_id = $1 and l.address = k.address and l.state <> 'FREE')`
