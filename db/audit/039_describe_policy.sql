create or replace function ipledger_audit.describe_policy(policy jsonb) returns text
  language sql immutable
as $$
  select concat(policy ->> 'misses', ' misses, minimum age ', trim_scale((policy ->> 'minimumAgeMs')::numeric / 1000), ' s, unwitnessed ',
           trim_scale((policy ->> 'unwitnessedAgeMs')::numeric / 1000), ' s, grace after an end ', trim_scale((policy ->> 'terminalGraceMs')::numeric / 1000),
           ' s, answers no older than ', trim_scale((policy ->> 'proofAgeMs')::numeric / 1000), ' s')
$$;
comment on function ipledger_audit.describe_policy(jsonb) is
$$The policy that a proof was judged by, in words. `policy` is evidence #> '{proof,policy}' of the event.

Example:
  select describe_policy('{"misses": 3, "minimumAgeMs": 300000, "unwitnessedAgeMs": 3600000, "terminalGraceMs": 300000, "proofAgeMs": 60000}'::jsonb);$$;
