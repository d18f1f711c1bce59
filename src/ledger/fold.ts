/**
 * The tables as they follow from the log: one query a table. `verify.ts` compares their rows with the table, `rebuild.ts` writes
 * them. A test compares them with the image that `core/evolve.ts` makes.
 *
 * Parameters: $1 the network; of sources and sightings $2, the ids of the sources that are wanted. Of a sighting that has
 * vanished the lease decides whether it is kept, so leases and pools must be right before sightings are.
 */
import { EVENT_TABLES, EVENT_TYPES } from '../core/event.ts'

const typesIn = (table: 'pool' | 'network') =>
  EVENT_TYPES.flatMap((type) => (EVENT_TABLES[type] === table ? `'${type}'` : [])).join(', ')

/** The source of an event about sources, as the index `event_about_no_address` has it. */
const ABOUT = `coalesce(e.details ->> 'source', e.details ->> 'id')`

/** The row of an address `t`, by its last event. */
export const LEASE_OF_ADDRESS = `
  select e.network_id, e.address, e.seq, e.pool_id, e.state, e.node, e.confirm_by, e.available_at from ipledger.event e
   where e.network_id = $1 and e.address = t.address order by e.previous desc limit 1`

/** From one address to the next: two looks at an index for each, however many events there are. */
const LEASE = `
  with recursive touched (address) as (
    (select e.address from ipledger.event e where e.network_id = $1 and e.address is not null order by e.address limit 1)
    union all
    select (select e.address from ipledger.event e
             where e.network_id = $1 and e.address > t.address order by e.address limit 1)
      from touched t where t.address is not null
  )
  select l.* from touched t cross join lateral (${LEASE_OF_ADDRESS}) l`

const POOL = `
  select p.network_id, p.pool_id, p.details ->> 'name' as name, (p.details ->> 'cidr')::cidr as cidr,
         (p.details ->> 'prefixLength')::smallint as prefix_length, p.details as settings, p.seq as version,
         (select c.at from ipledger.event c where c.network_id = $1 and c.seq = p.pool_id) as created_at, p.at as updated_at
    from (select distinct on (e.pool_id) e.* from ipledger.event e
           where e.network_id = $1 and e.address is null and e.type in (${typesIn('pool')})
           order by e.pool_id, e.seq desc) p
   where p.type <> 'pool.deleted'`

const NETWORK = `
  with about as materialized (
    select e.seq, e.type, e.at, e.details from ipledger.event e
     where e.network_id = $1 and e.address is null
       and e.type in (${typesIn('network')})
  ),
  ended as (select max(a.seq) as seq, max(a.at) as at from about a where a.type = 'recovery.ended')
  select $1 as network_id, s.details ->> 'description' as description, s.details -> 'labels' as labels,
         (s.details ->> 'closed')::boolean as closed,
         coalesce((select max((a.details ->> 'era')::integer) from about a where a.type = 'era.begun'), 0) as era,
         coalesce(i.details ->> 'identity', '') as identity,
         (select max(a.seq) from about a
           where a.type = 'era.begun' and a.details ->> 'recovering' = 'true' and a.seq > coalesce(d.seq, 0)) as recovering,
         coalesce((
           select json_agg(json_build_object('source', a.details ->> 'source', 'node', a.details ->> 'node',
                                             'at', (date_part('epoch', a.at) * 1000)::bigint) order by a.seq)
             from about a where a.type = 'recovery.extended' and a.seq > coalesce(d.seq, 0)), '[]') as unknown_sources,
         d.at as recovered_at,
         coalesce((
           select json_object_agg(h.hold, json_build_object('seq', h.seq, 'at', (date_part('epoch', h.at) * 1000)::bigint, 'details', h.details))
             from (select distinct on (a.details ->> 'hold') a.details ->> 'hold' as hold, a.seq, a.at, a.details
                     from about a where a.type = 'reconcile.held' order by a.details ->> 'hold', a.seq desc) h
            where not exists (
              select from about r where r.type = 'reconcile.resumed' and r.seq > h.seq and (r.details -> 'holds')::jsonb ? h.hold)), '{}') as holds,
         l.seq as version, c.at as created_at, l.at as updated_at
    from (select a.* from about a where a.type = 'network.created' order by a.seq limit 1) c
   cross join (select a.* from about a where a.type in ('network.created', 'network.updated') order by a.seq desc limit 1) s
   cross join (select a.* from about a where a.details ->> 'identity' is not null order by a.seq desc limit 1) i
   cross join (select a.* from about a order by a.seq desc limit 1) l
   cross join ended d`

const SOURCE = `
  select r.network_id, s.id as source_id, r.details as declaration,
         case when x.seq is not null then 'RETIRED' when n.seq is not null then 'ENABLED' else 'REGISTERED' end as state,
         greatest(r.seq, n.seq, x.seq) as version, r.at as registered_at, r.actor as registered_by,
         n.at as enabled_at, n.actor as enabled_by, n.seq as enabled_seq, x.at as retired_at,
         o.epoch, o.seq as epoch_seq, o.head as epoch_head, o.at as epoch_at
    from (select ${ABOUT} as id, max(e.seq) filter (where e.type = 'source.registered') as registered,
                 max(e.seq) filter (where e.type = 'source.enabled') as enabled, max(e.seq) filter (where e.type = 'source.retired') as retired
            from ipledger.event e
           where e.network_id = $1 and e.address is null and e.type in ('source.registered', 'source.enabled', 'source.retired')
             and ${ABOUT} = any($2::text[])
           group by 1) s
    join ipledger.event r on r.network_id = $1 and r.seq = s.registered
    left join ipledger.event n on n.network_id = $1 and n.seq = s.enabled and s.enabled > s.registered
    left join ipledger.event x on x.network_id = $1 and x.seq = s.retired and s.retired > s.registered
    left join lateral (
      select e.seq, e.at, (e.details ->> 'head')::bigint as head,
             case when e.details ->> 'closed' = 'true' then '' else e.details ->> 'epoch' end as epoch
        from ipledger.event e
       where e.network_id = $1 and e.address is null and e.type = 'source.reported' and ${ABOUT} = s.id
         and e.seq > coalesce(s.retired, 0)
         -- Most reports do neither, and a search in the text is cheaper than parsing it.
         and case when e.details::text like '%"opened"%' or e.details::text like '%"closed"%'
                  then e.details ->> 'opened' = 'true' or e.details ->> 'closed' = 'true' end
       order by e.seq desc limit 1) o on true`

const OWNER = 'source_id, address, owner_kind, owner_uid, owner_incarnation, owner_interface'

/**
 * An owner at an address is listed from when it appears until it vanishes; the last time counts. Most have vanished for good,
 * so those are dropped before the rest is put in order.
 */
const SIGHTING = `
  with listed as materialized (
    select w.source_id, w.seq, w.at, w.head, w.gone, (w.entry ->> 'address')::inet as address, coalesce(w.entry ->> 'kind', '') as owner_kind,
           case when w.entry ? 'kind' then coalesce(w.entry ->> 'name', w.entry ->> 'uid', '') else '' end as owner_name,
           case when w.entry ? 'kind' then coalesce(w.entry ->> 'uid', w.entry ->> 'name', '') else '' end collate "C" as owner_uid,
           case when w.entry ? 'kind' then coalesce(w.entry ->> 'incarnation', '') else '' end as owner_incarnation,
           case when w.entry ? 'kind' then coalesce(w.entry ->> 'interface', '') else '' end as owner_interface,
           coalesce(w.entry ->> 'node', '') as node, coalesce(w.entry ->> 'state', '') as state,
           to_timestamp((w.entry ->> 'restsUntil')::float8 / 1000) as rests_until
      from (select r.details ->> 'source' as source_id, r.seq, r.at, (r.details ->> 'head')::bigint as head, x.gone, x.entry
              from (select e.seq, e.at, e.details::jsonb as details from ipledger.event e
                     where e.network_id = $1 and e.address is null and e.type = 'source.reported' and ${ABOUT} = any($2::text[]) offset 0) r
             cross join lateral (
               select false as gone, a as entry from jsonb_array_elements(r.details -> 'appeared') a
               union all
               select true, v from jsonb_array_elements(r.details -> 'vanished') v) x) w
  ),
  last as (
    select ${OWNER}, max(owner_name) as owner_name, max(seq) filter (where gone) as gone_seq, max(seq) filter (where not gone) as seen_seq,
           (array_agg(rests_until order by seq desc) filter (where gone))[1] as rests_until
      from listed group by ${OWNER}
  ),
  -- One that has vanished is kept while the lease is held that it was listed for, or, if it was of another than that lease's owner, the
  -- CONFLICT without an owner that followed. At a free address it is kept until it has rested and any source reports without a CLOCK hold.
  kept as (
    select k.* from last k
     where k.gone_seq is null or k.gone_seq < k.seen_seq
        or (k.seen_seq is not null and exists (
          select from ipledger.pool p
            left join ipledger.lease l on l.network_id = $1
                 and l.address = set_masklen(network(set_masklen(k.address, p.prefix_length))::inet, -1)
            left join ipledger.event e on e.network_id = $1 and e.seq = l.seq
            left join ipledger.event m on m.network_id = $1 and m.seq = e.token
                 and m.quarantine_reason = 'CONFLICT' and m.owner_kind is null
            left join ipledger.event b on b.network_id = $1 and b.seq = m.previous
           where p.network_id = $1 and p.cidr >>= k.address
             and case when l.state <> 'FREE' then coalesce(b.token, e.token) <= k.gone_seq
                  and (k.gone_seq < b.seq and k.owner_kind = b.owner_kind
                       and (k.owner_uid = b.owner_uid or (b.owner_uid = b.owner_name and b.owner_name = k.owner_name))
                       and (b.owner_incarnation = '' or k.owner_incarnation in ('', b.owner_incarnation))
                       and k.owner_interface in ('', b.owner_interface)) is not true
                 else coalesce(l.seq, 0) <= k.gone_seq
                  and k.rests_until > coalesce((
                    select r.at from ipledger.event r
                     where r.network_id = $1 and r.address is null and r.type = 'source.reported'
                       and not exists (
                         select from ipledger.event h
                          where h.network_id = $1 and h.address is null and h.type = 'reconcile.held'
                            and h.details ->> 'hold' = 'CLOCK' and h.seq < r.seq
                            and not exists (
                              select from ipledger.event u
                               where u.network_id = $1 and u.address is null and u.type = 'reconcile.resumed'
                                 and u.details::jsonb -> 'holds' ? 'CLOCK' and u.seq between h.seq and r.seq))
                     order by r.seq desc limit 1), '-infinity') end))
  ),
  lives as (
    select l.*, k.seen_seq, k.gone_seq, max(l.seq) filter (where l.gone and l.seq < k.seen_seq) over (partition by ${OWNER}) as ended_seq,
           max(l.seq) filter (where not l.gone and l.state <> 'terminal') over (partition by ${OWNER}) as alive_seq
      from kept k join listed l using (${OWNER})
  )
  select $1 as network_id, address, source_id, owner_kind, max(owner_name) filter (where seq = seen_seq and not gone) as owner_name, owner_uid,
         owner_incarnation, owner_interface, max(node) filter (where seq = seen_seq and not gone) as node,
         max(state) filter (where seq = seen_seq and not gone) as state, min(seq) filter (where not gone) as appeared_seq,
         min(at) filter (where not gone) as appeared_at,
         (array_agg(head order by seq, gone))[1] as appeared_head, min(seq) filter (where gone) as vanished_seq,
         min(seq) filter (where not gone and seq > coalesce(alive_seq, 0)) as terminal_seq,
         min(at) filter (where not gone and seq > coalesce(alive_seq, 0)) as terminal_at,
         case when bool_or(gone) then max(rests_until) filter (where gone)
              else max(rests_until) filter (where not gone and seq > coalesce(alive_seq, 0)) end as rests_until
    from lives
   where seq > coalesce(ended_seq, 0) and (not gone or seq >= seen_seq)
   group by ${OWNER}`

/** In an order in which they can be written. */
export const FOLDS = {
  lease: LEASE,
  pool: POOL,
  network: NETWORK,
  source: SOURCE,
  sighting: SIGHTING,
} as const

export type FoldedTable = keyof typeof FOLDS

/** Every source that the log knows. */
export const SOURCES_OF_LOG = `
  select distinct ${ABOUT} as id from ipledger.event e
   where e.network_id = $1 and e.address is null and e.type = 'source.registered'`
