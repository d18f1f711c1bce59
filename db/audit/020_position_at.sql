create or replace function ipledger_audit.position_at(network text, at timestamptz) returns bigint
  language sql stable
as $$
  select coalesce((
    select l.seq from ipledger_audit.log l
     where l.network_id = position_at.network and l.at <= position_at.at order by l.at desc, l.seq desc limit 1), 0)
$$;
comment on function ipledger_audit.position_at(text, timestamptz) is
$$The number of the last event of a network at or before a time; 0 if there is none. Several events may have one time.

Example:
  select position_at('default', now() - interval '1 hour');$$;
