create or replace view ipledger_audit.suspects as
  select q.network_id as network, set_masklen(h.address, h.prefix_length) as address, q.network_id || '/' || q.fencing_token as lease_id,
         q.owner_kind, q.owner_name, q.owner_uid, q.owner_incarnation, q.owner_interface, q.source_id as source, q.wanted_at as question_at,
         q.answer, q.attempts, q.next_at, now() - q.wanted_at as waiting,
         concat(q.source_id, ' lists ', ipledger_audit.describe_owner(q.owner_kind, q.owner_name, q.owner_uid, q.owner_incarnation, q.owner_interface), ' no more at ',
                host(q.address), ' and ', case when q.answer is null and q.asked_at is null then 'is to be asked after it'
                                               when q.answer is null then concat('was asked after it ', ipledger_audit.moment(q.asked_at), ' without an answer so far')
                                               else concat('answered ', q.answer, ' ', ipledger_audit.moment(q.answered_at), ' (' || nullif(q.detail, '') || ')') end, '.') as what
    from ipledger.lookup q
    join ipledger.lease h on h.network_id = q.network_id and h.fencing_token = q.fencing_token and h.version = q.version
  union all
  select s.network_id, set_masklen(s.address, s.prefix_length), s.network_id || '/' || s.fencing_token, h.owner_kind, h.owner_name,
         h.owner_uid, h.owner_incarnation, h.owner_interface, s.source_id, s.since, null, null, null, s.observed_at - s.since, s.what || '.'
    from ipledger.stuck_item s
    join ipledger.lease h on h.network_id = s.network_id and h.fencing_token = s.fencing_token
   where s.code in ('PROOF_BLOCKED', 'LOOKUP_FAILING', 'LOOKUP_WAITING', 'OWNER_LIVES_ELSEWHERE', 'NEVER_SIGHTED', 'NOBODY_CAN_TELL')
     and not exists (select from ipledger.lookup q
                      where q.network_id = s.network_id and q.source_id = s.source_id and q.fencing_token = s.fencing_token
                        and q.version = h.version);
comment on view ipledger_audit.suspects is
$$Leases that somebody misses and that are kept: the questions to the sources about them, with the last answer, and, of the others, the
witness that blocks the proof, as it was observed within the last minutes.

Columns: network; address (a block with its mask); lease_id; owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (whom
the question is after: the holder, or another who was seen there); source (that is asked, or that blocks; empty: none); question_at (when
the question arose, or since when it waits); answer (the last: live, terminal, gone, unknown, error, unanswered; null: none yet);
attempts; next_at (when it is asked again); waiting; what (a sentence).

Example:
  select address, owner_name, source, answer, waiting, what from suspects where network = 'default' order by waiting desc;$$;
