create or replace function ipledger_audit.address_at(family int, number numeric) returns inet
  language sql immutable
as $$
  select case family
           when 4 then '0.0.0.0'::inet + number::bigint
           else (select string_agg(lpad(to_hex(mod(div(number, power(65536::numeric, 7 - w.place)), 65536)::int), 4, '0'), ':' order by w.place)
                   from generate_series(0, 7) as w (place))::inet end
$$;
comment on function ipledger_audit.address_at(int, numeric) is
$$The address of a number, 0 to 2^32 - 1 in family 4 or 2^128 - 1 in family 6: what address_number is of an address.

Example:
  select address_at(4, address_number('10.8.64.2') + 1);$$;
