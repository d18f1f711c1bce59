create or replace function ipledger_audit.possible_bases(address inet) returns setof inet
  language sql immutable rows 33
as $$
  select distinct set_masklen(network(set_masklen(address, bits))::inet, -1)
    from generate_series(0, case family(address) when 4 then 32 else 128 end) as bits
$$;
comment on function ipledger_audit.possible_bases(inet) is
$$Every address at which a block that contains this one can begin, the address itself included: where the log has events about it.

Example:
  select possible_bases('10.8.64.2');$$;
