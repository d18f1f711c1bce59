create or replace view ipledger_audit.fences as
  select f.network_id as network, f.node, f.boot, f.fenced_seq as seq, f.fenced_at as at, f.fenced_by as actor, f.why
    from ipledger.fence f;
comment on view ipledger_audit.fences is
$$Boots of nodes that somebody vouches are over: what was placed there, up to the event, and nowhere else is taken back.

Columns: network; node; boot; seq, at (of the event); actor (who said so); why.

Example:
  select node, boot, at, actor, why from fences where network = 'default';$$;
