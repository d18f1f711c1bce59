-- What the checkpoint before the number holds, and every event since: the last of each address counts. No join of the two,
-- since whoever asks may have a planner that takes both for small. The settings keep events from being read otherwise than
-- by number, and what is sorted in memory.
create or replace function ipledger_audit.leases_as_of(network text, seq bigint, after inet default null, most bigint default null)
  returns setof ipledger_audit.lease language sql stable rows 1000
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = on set enable_memoize = off set jit = off
  set max_parallel_workers_per_gather = 0 set work_mem = '128MB'
as $$
  with base as materialized (
    select coalesce((
      select c.seq from ipledger_audit.checkpoint c
       where c.network = leases_as_of.network and c.seq <= leases_as_of.seq order by c.seq desc limit 1), 0) as seq
  ),
  names as materialized (
    select coalesce(jsonb_object_agg(p.pool_id, p.pool), '{}') as names from ipledger_audit.pool p where p.network = leases_as_of.network
  )
  select h.network_id, set_masklen(h.address, h.prefix_length),
         coalesce(names.names ->> h.pool_id::text, ipledger_audit.pool_name(h.network_id, h.pool_id)), h.state,
         h.network_id || '/' || h.fencing_token, h.fencing_token, h.seq, h.owner_kind, h.owner_name, h.owner_uid, h.owner_incarnation,
         h.owner_interface, h.node, h.boot, h.labels, h.reserved_at, h.confirmed_at, h.confirm_by, h.quarantine_reason, h.quarantined_at,
         h.quarantined_by, h.quarantine_why,
         case when h.seq = h.fencing_token then h.at
              else (select b.at from ipledger_audit.log b where b.network_id = h.network_id and b.seq = h.fencing_token) end
    from names
    cross join (
      select distinct on (e.address) e.*
        from (
          select l.*
            from ipledger_audit.checkpoint_part p
            join ipledger_audit.log l on l.network_id = leases_as_of.network and l.seq = any(p.events)
           where p.network = leases_as_of.network and p.seq = (select base.seq from base)
             and (leases_as_of.after is null or p.last_address > leases_as_of.after)
          union all
          (select l.* from ipledger_audit.log l
            where l.network_id = leases_as_of.network and l.seq > (select base.seq from base) and l.seq <= leases_as_of.seq
              and l.type like 'lease.%'
            order by l.seq)) e
       where leases_as_of.after is null or e.address > leases_as_of.after
       order by e.address, e.seq desc) h
   where h.type not in ('lease.released', 'lease.reaped')
   order by h.address
   limit leases_as_of.most
$$;
comment on function ipledger_audit.leases_as_of(text, bigint, inet, bigint) is
$$The whole table of leases of a network as it was after an event: who held what then, in order of address. A number beyond the last one
means now. For one address or a CIDR use who_had. `after` and `most` page through it: leases behind that address, and how many.

Columns as of view lease: network; address (a block with its mask); pool; state (RESERVED, ACTIVE, QUARANTINED); lease_id; fencing_token;
version (number of the event that made it so); owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface (null: nobody known);
node; boot; labels; reserved_at; confirmed_at; confirm_by; quarantine_reason, quarantined_at, quarantined_by, quarantine_why; since.

Example:
  select address, state, owner_name from leases_as_of('default', 120000);$$;

create or replace function ipledger_audit.leases_as_of(network text, at timestamptz, after inet default null, most bigint default null)
  returns setof ipledger_audit.lease language sql stable rows 1000
as $$
  select l.* from ipledger_audit.leases_as_of(
    leases_as_of.network, ipledger_audit.position_at(leases_as_of.network, leases_as_of.at), leases_as_of.after, leases_as_of.most) l
$$;
comment on function ipledger_audit.leases_as_of(text, timestamptz, inet, bigint) is
$$The whole table of leases of a network as it was at a time: after the last event at or before it. Otherwise as with a number. A time is
written as one: timestamptz '2026-01-01 03:12Z', or now() - interval '1 hour'.

Example:
  select address, state, owner_name from leases_as_of('default', now() - interval '1 hour');$$;
