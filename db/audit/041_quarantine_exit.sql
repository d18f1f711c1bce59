create or replace function ipledger_audit.quarantine_exit(reason text, has_holder boolean) returns text
  language sql immutable
as $$
  select case reason
    when 'OPERATOR' then 'It ends by an operator only: Reap'
    when 'SUPERSEDED' then 'It ends when a Release by its holder confirms the removal, on proof that its holder is gone, or by an operator: Reap'
    when 'REMOVAL_UNCONFIRMED' then 'It ends when a Release by its holder confirms the removal, on proof that its holder is gone, or by an operator: Reap'
    when 'FOREIGN' then 'It ends when enough complete snapshots in a row, of every source that saw somebody there, show nobody, or by an operator: Reap'
    when 'SEEN_BY_CALLER' then 'It ends when enough complete snapshots in a row, of every enabled source that covers the network, show nobody; without such a source by an operator: Reap'
    else concat(
      case when has_holder then 'It ends when enough complete snapshots in a row, of every source that saw it, show its holder and nobody else, who then has it, or on proof that nobody is there, or by an operator: Reap; a Release takes its holder off it, and it stays'
           else 'It ends on proof that nobody is there, or by an operator: Reap' end)
    end
$$;
comment on function ipledger_audit.quarantine_exit(text, boolean) is
$$What ends a quarantine, by its reason. How many snapshots are enough is `misses` of the pool's reapPolicy.

Example:
  select quarantine_exit('CONFLICT', true);$$;
