create or replace function ipledger_audit.plain_address(address inet) returns inet
  language sql immutable
as $$
  select case when family(address) = 6 and masklen(address) >= 96 and address <<= '::ffff:0:0/96'
              then set_masklen('0.0.0.0'::inet + (set_masklen(address, 128) - '::ffff:0:0'::inet), masklen(address) - 96)
              else address end
$$;
comment on function ipledger_audit.plain_address(inet) is
$$An address or a CIDR as the log writes it: an IPv4 one that is written as IPv6 (::ffff:10.8.64.2) is the IPv4 one.

Example:
  select plain_address('::ffff:10.8.64.2');$$;
