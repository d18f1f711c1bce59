create or replace function ipledger_audit.moment(moment timestamptz) returns text
  language sql stable
as $$
  select case when isfinite(moment) then to_char(moment at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') || ' UTC' else moment::text end
$$;
comment on function ipledger_audit.moment(timestamptz) is
$$A time as sentences write it: UTC, to the millisecond, whatever the session's time zone.

Example:
  select moment(now());$$;

create or replace function ipledger_audit.moment(milliseconds jsonb) returns text
  language sql stable
as $$
  select ipledger_audit.moment(to_timestamp((milliseconds #>> '{}')::float8 / 1000))
$$;
comment on function ipledger_audit.moment(jsonb) is
$$A time as evidence stores it, milliseconds since 1970, as sentences write it.

Example:
  select moment('1763000000000'::jsonb);$$;
