create or replace function ipledger_audit.describe_owner(kind text, name text, uid text, incarnation text, interface text) returns text
  language sql immutable
as $$
  select case when kind is null then 'nobody known'
              else concat(kind, ' ', name, ' uid ' || nullif(uid, name), ' incarnation ' || nullif(incarnation, ''), ' (' || nullif(interface, '') || ')') end
$$;
comment on function ipledger_audit.describe_owner(text, text, text, text, text) is
$$An owner as sentences name it: kind, name, and what else tells it apart.

Example:
  select describe_owner('pod', 'default/web-0', 'b5c0', '1', 'eth0');$$;

create or replace function ipledger_audit.describe_owner(owner jsonb) returns text
  language sql immutable
as $$
  select ipledger_audit.describe_owner(owner ->> 'kind', owner ->> 'name', owner ->> 'uid', owner ->> 'incarnation', owner ->> 'interface')
$$;
comment on function ipledger_audit.describe_owner(jsonb) is
$$An owner as evidence stores it, as sentences name it.

Example:
  select describe_owner('{"kind": "pod", "name": "default/web-0", "uid": "b5c0", "incarnation": "", "interface": "eth0"}'::jsonb);$$;
