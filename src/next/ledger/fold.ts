/**
 * What the tables must say by the log, as SQL: one query a table, of rows as the table has them. `verify.ts` compares them
 * with what is there, `rebuild.ts` writes them. They say in SQL what `core/evolve.ts` says of the image; a test holds the two
 * together.
 *
 * Parameters: $1 the network; of sources and sightings $2, the ids of the sources that are wanted. Of a sighting that has
 * vanished the lease decides whether it is kept, so leases and pools must be right before sightings are.
 */

/** The source of an event about sources, as the index `event_about_no_address` has it. */
const ABOUT = `coalesce(e.details ->> 'source', e.details ->> 'id')`

/** From one address to the next, and of each the last event: two looks at an index, however many events there are. */
const LEASE = `
  with recursive touched (address) as (
    (select e.address from ipledger.event e where e.network_id = $1 and e.address is not null order by e.address limit 1)
    union all
    select (select e.address from ipledger.event e
             where e.network_id = $1 and e.address > t.address order by e.address limit 1)
      from touched t where t.address is not null
  )
  select l.* from touched t
   cross join lateral (
     select e.network_id, e.address, e.seq, e.pool_id, e.state, e.confirm_by, e.available_at from ipledger.event e
      where e.network_id = $1 and e.address = t.address order by e.previous desc limit 1) l`

const POOL = `
  select p.network_id, p.pool_id, p.details ->> 'name' as name, (p.details ->> 'cidr')::cidr as cidr,
         (p.details ->> 'prefixLength')::smallint as prefix_length, p.details as settings, p.seq as version,
         (select c.at from ipledger.event c where c.network_id = $1 and c.seq = p.pool_id) as created_at, p.at as updated_at
    from (select distinct on (e.pool_id) e.* from ipledger.event e
           where e.network_id = $1 and e.address is null and e.type in ('pool.created', 'pool.updated', 'pool.deleted')
           order by e.pool_id, e.seq desc) p
   where p.type <> 'pool.deleted'`

const NETWORK = `
  with about as materialized (
    select e.seq, e.type, e.at, e.details from ipledger.event e
     where e.network_id = $1 and e.address is null
       and e.type in ('network.created', 'network.updated', 'era.begun', 'recovery.ended', 'reconcile.held', 'reconcile.resumed')
  ),
  ended as (select max(a.seq) as seq, max(a.at) as at from about a where a.type = 'recovery.ended')
  select $1 as network_id, s.details ->> 'description' as description, s.details -> 'labels' as labels,
         coalesce((i.details ->> 'era')::integer, 0) as era, coalesce(i.details ->> 'identity', '') as identity,
         (select max(a.seq) from about a
           where a.type = 'era.begun' and a.details ->> 'recovering' = 'true' and a.seq > coalesce(d.seq, 0)) as recovering,
         d.at as recovered_at,
         coalesce((
           select json_object_agg(h.hold, json_build_object('seq', h.seq, 'at', (date_part('epoch', h.at) * 1000)::bigint, 'details', h.details))
             from (select distinct on (a.details ->> 'hold') a.details ->> 'hold' as hold, a.seq, a.at, a.details
                     from about a where a.type = 'reconcile.held' order by a.details ->> 'hold', a.seq desc) h
            where not exists (
              select from about r where r.type = 'reconcile.resumed' and r.seq > h.seq and (r.details -> 'holds')::jsonb ? h.hold)), '{}') as holds,
         l.seq as version, c.at as created_at, l.at as updated_at
    from (select a.* from about a where a.type = 'network.created' order by a.seq limit 1) c
   cross join (select a.* from about a where a.type like 'network.%' order by a.seq desc limit 1) s
   cross join (select a.* from about a where a.type in ('network.created', 'era.begun') order by a.seq desc limit 1) i
   cross join (select a.* from about a order by a.seq desc limit 1) l
   cross join ended d`

const SOURCE = `
  select r.network_id, r.id as source_id, r.details as declaration,
         case when x.seq is not null then 'RETIRED' when n.seq is not null then 'ENABLED' else 'REGISTERED' end as state,
         greatest(r.seq, n.seq, x.seq) as version, r.at as registered_at, r.actor as registered_by,
         n.at as enabled_at, n.actor as enabled_by, n.seq as enabled_seq, x.at as retired_at,
         o.epoch, o.seq as epoch_seq, o.head as epoch_head, o.at as epoch_at
    from (select distinct on (${ABOUT}) e.*, ${ABOUT} as id from ipledger.event e
           where e.network_id = $1 and e.address is null and e.type = 'source.registered' and ${ABOUT} = any($2::text[])
           order by ${ABOUT}, e.seq desc) r
    left join lateral (
      select e.seq, e.at from ipledger.event e
       where e.network_id = $1 and e.address is null and e.type = 'source.retired' and ${ABOUT} = r.id
       order by e.seq desc limit 1) t on true
    left join lateral (select t.seq, t.at where t.seq > r.seq) x on true
    left join lateral (
      select e.seq, e.at, e.actor from ipledger.event e
       where e.network_id = $1 and e.address is null and e.type = 'source.enabled' and ${ABOUT} = r.id and e.seq > r.seq
       order by e.seq desc limit 1) n on true
    left join lateral (
      select e.seq, e.at, (e.details ->> 'head')::bigint as head,
             case when e.details ->> 'closed' = 'true' then '' else e.details ->> 'epoch' end as epoch
        from ipledger.event e
       where e.network_id = $1 and e.address is null and e.type = 'source.reported' and ${ABOUT} = r.id
         and e.seq > coalesce(t.seq, 0) and (e.details ->> 'opened' = 'true' or e.details ->> 'closed' = 'true')
       order by e.seq desc limit 1) o on true`

/** What an owner was listed for, from when it appeared until it vanished, is one life; the last one counts. */
const SIGHTING = `
  with report as (
    select e.* from ipledger.event e
     where e.network_id = $1 and e.address is null and e.type = 'source.reported' and ${ABOUT} = any($2::text[])
  ),
  retired as (
    select ${ABOUT} as source_id, max(e.seq) as seq from ipledger.event e
     where e.network_id = $1 and e.address is null and e.type = 'source.retired' and ${ABOUT} = any($2::text[]) group by 1
  ),
  listed as (
    select w.source_id, w.seq, w.at, w.head, w.gone, w.address::inet as address, coalesce(w.kind, '') as owner_kind,
           case when w.kind is null then '' else coalesce(w.name, w.uid, '') end as owner_name,
           case when w.kind is null then '' else coalesce(w.uid, w.name, '') end as owner_uid,
           case when w.kind is null then '' else coalesce(w.incarnation, '') end as owner_incarnation,
           case when w.kind is null then '' else coalesce(w.interface, '') end as owner_interface,
           coalesce(w.node, '') as node, coalesce(w.state, '') as state
      from (select r.details ->> 'source' as source_id, r.seq, r.at, (r.details ->> 'head')::bigint as head, false as gone, x.*
              from report r cross join lateral json_to_recordset(r.details -> 'appeared')
                as x (address text, kind text, name text, uid text, incarnation text, interface text, node text, state text)
            union all
            select r.details ->> 'source', r.seq, r.at, null, true, x.*
              from report r cross join lateral json_to_recordset(r.details -> 'vanished')
                as x (address text, kind text, name text, uid text, incarnation text, interface text, node text, state text)) w
      left join retired x on x.source_id = w.source_id
     where w.seq > coalesce(x.seq, 0)
  ),
  life as (
    select l.*, count(*) filter (where l.gone) over (owner order by l.seq, l.gone rows between unbounded preceding and 1 preceding) as life
      from listed l
    window owner as (partition by l.source_id, l.address, l.owner_kind, l.owner_uid, l.owner_incarnation, l.owner_interface)
  ),
  last as (
    select l.*, max(l.life) filter (where not l.gone) over owner as last_life,
           max(l.seq) filter (where not l.gone and l.state <> 'terminal') over (owner_life) as alive_seq
      from life l
    window owner as (partition by l.source_id, l.address, l.owner_kind, l.owner_uid, l.owner_incarnation, l.owner_interface),
           owner_life as (partition by l.source_id, l.address, l.owner_kind, l.owner_uid, l.owner_incarnation, l.owner_interface, l.life)
  ),
  sighting as (
    select l.source_id, l.address, l.owner_kind, l.owner_uid, l.owner_incarnation, l.owner_interface,
           (array_agg(l.owner_name order by l.gone, l.seq desc))[1] as owner_name,
           (array_agg(l.node order by l.gone, l.seq desc))[1] as node,
           (array_agg(l.state order by l.gone, l.seq desc))[1] as state,
           min(l.seq) filter (where not l.gone) as appeared_seq,
           (array_agg(l.head order by l.gone, l.seq))[1] as appeared_head,
           max(l.seq) filter (where l.gone) as vanished_seq,
           min(l.seq) filter (where not l.gone and l.seq > coalesce(l.alive_seq, 0)) as terminal_seq,
           min(l.at) filter (where not l.gone and l.seq > coalesce(l.alive_seq, 0)) as terminal_at
      from last l
     where l.life = l.last_life
     group by l.source_id, l.address, l.owner_kind, l.owner_uid, l.owner_incarnation, l.owner_interface
  )
  select $1 as network_id, s.address, s.source_id, s.owner_kind, s.owner_name, s.owner_uid, s.owner_incarnation, s.owner_interface,
         s.node, s.state, s.appeared_seq, s.appeared_head, s.vanished_seq, s.terminal_seq, s.terminal_at
    from sighting s
   where s.vanished_seq is null
      or exists (
        select from ipledger.pool p
          join ipledger.lease l on l.network_id = $1 and l.address = set_masklen(network(set_masklen(s.address, p.prefix_length))::inet, -1)
          join ipledger.event e on e.network_id = $1 and e.seq = l.seq
         where p.network_id = $1 and p.cidr >>= s.address and l.state <> 'FREE' and e.token <= s.vanished_seq)`

/** In an order in which they can be written. */
export const FOLDS = {
  lease: LEASE,
  pool: POOL,
  network: NETWORK,
  source: SOURCE,
  sighting: SIGHTING,
} as const

export type FoldedTable = keyof typeof FOLDS

/** The columns that tell its rows apart. */
export const FOLD_KEYS: Readonly<Record<FoldedTable, readonly string[]>> = {
  lease: ['network_id', 'address'],
  pool: ['network_id', 'pool_id'],
  network: ['network_id'],
  source: ['network_id', 'source_id'],
  sighting: [
    'network_id',
    'address',
    'source_id',
    'owner_kind',
    'owner_uid',
    'owner_incarnation',
    'owner_interface',
  ],
}

/** Every source that the log knows. */
export const SOURCES_OF_LOG = `
  select distinct ${ABOUT} as id from ipledger.event e
   where e.network_id = $1 and e.address is null and e.type = 'source.registered'`
