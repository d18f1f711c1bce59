create or replace view ipledger_audit.seals as
  select s.network_id as network, s.first_seq, s.last_seq, s.last_seq - s.first_seq + 1 as events, encode(s.digest, 'hex') as digest,
         encode(s.previous_digest, 'hex') as previous_digest, s.sealed_at
    from ipledger.seal s;
comment on view ipledger_audit.seals is
$$Digests of closed stretches of each log, each of which names the one before: who alters an event later is found by `ipledger verify
--seals`, and who makes the seals anew by digests that were exported before.

Columns: network; first_seq, last_seq (the stretch); events; digest, previous_digest (hexadecimal); sealed_at.

Example:
  select first_seq, last_seq, digest from seals where network = 'default' order by first_seq desc limit 1;$$;
