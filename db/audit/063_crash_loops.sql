create or replace view ipledger_audit.crash_loops as
  select r.network, r.owner_kind, r.owner_name, r.owner_interface, ipledger_audit.pool_name(r.network, r.pool_id) as pool, r.lives, r.addresses,
         (select count(*) from ipledger.lease h
           where h.network_id = r.network and h.holder_key = concat(r.owner_kind, '|', r.owner_interface, '|', r.owner_name)) as held_now,
         r.first_at, r.last_at
    from (select o.network, o.owner_kind, o.owner_name, o.owner_interface, g.pool_id, g.lives, g.addresses, g.first_at, g.last_at
            from (select n.network, l.owner_kind, l.owner_name, l.owner_interface, array_agg(l.seq) as seqs
                    from ipledger_audit.network n
                    cross join lateral (
                      select x.seq, x.at, x.type, x.owner_kind, x.owner_name, x.owner_interface from ipledger_audit.log x
                       where x.network_id = n.network and x.at > now() - interval '15 minutes'
                       order by x.at, x.seq) l
                   where l.type = 'lease.reserved'
                   group by n.network, l.owner_kind, l.owner_name, l.owner_interface
                  having count(*) >= 5) o
            -- Few are left.
            cross join lateral (
              select (array_agg(l.pool_id order by l.seq desc))[1] as pool_id, count(distinct l.address) as addresses,
                     min(l.at) as first_at, max(l.at) as last_at,
                     count(distinct concat_ws('|', l.owner_uid, l.owner_incarnation, case when l.owner_incarnation = '' then l.at end)) as lives
                from unnest(o.seqs) as s (seq)
                join ipledger_audit.log l on l.network_id = o.network and l.seq = s.seq) g
           where g.lives >= 5) r;
comment on view ipledger_audit.crash_loops is
$$Owners that were given leases in five lives or more within the last 15 minutes: something starts and ends again and again. What one
Reserve gave, or several of one incarnation, is one life; an owner that names no incarnation has one for each Reserve. Reads every event
of that time: name the network.

Columns: network; owner_kind, owner_name, owner_interface; pool (of the last lease); lives; addresses (different ones), held_now (leases it
has, quarantined ones included); first_at, last_at (of these leases).

Example:
  select owner_name, lives, addresses, held_now from crash_loops where network = 'default' order by lives desc;$$;
