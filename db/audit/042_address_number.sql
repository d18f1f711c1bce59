create or replace function ipledger_audit.address_number(address inet) returns numeric
  language sql immutable
as $$
  select case family(address)
           when 4 then (set_masklen(address, 32) - '0.0.0.0'::inet)::numeric
           else ('x' || substr(w.words, 1, 8))::bit(32)::bigint * 79228162514264337593543950336
              + ('x' || substr(w.words, 9, 8))::bit(32)::bigint * 18446744073709551616
              + ('x' || substr(w.words, 17, 8))::bit(32)::bigint * 4294967296::numeric
              + ('x' || substr(w.words, 25, 8))::bit(32)::bigint end
    from (select encode(substr(inet_send(address), 5), 'hex') as words) w
$$;
comment on function ipledger_audit.address_number(inet) is
$$An address as a number, 0 to 2^32 - 1 or 2^128 - 1: how far two lie apart.

Example:
  select address_number('2001:db8::1') - address_number('2001:db8::');$$;
