/** Gauges that come from the database, as rows of metric, labels and value. `$1`: of so many networks, pools and sources. */
import { ERA_BITS } from '../../core/policy.ts'

const N = `n as materialized (select * from ipledger.network order by network_id limit $1)`

const NETWORKS = `
  with n as materialized (
    select n.network_id, n.era, n.recovering, n.created_at, b.at as begun_at, v.finished_at, v.findings
      from ipledger.network n
      left join ipledger.event b on n.era > 0 and b.network_id = n.network_id and b.seq = n.era::bigint << ${ERA_BITS}
      left join ipledger.verification v on v.network_id = n.network_id
     order by n.network_id limit $1
  )
  select g.metric, g.labels, g.value::float8 as value
    from n
   cross join lateral (values
     ('ipledger.era', array[n.network_id], n.era::numeric),
     ('ipledger.era.begun.timestamp.seconds', array[n.network_id], extract(epoch from n.begun_at)),
     ('ipledger.network.state', array[n.network_id, 'READY'], (n.recovering is null)::int),
     ('ipledger.network.state', array[n.network_id, 'RECOVERING'], (n.recovering is not null)::int),
     ('ipledger.verify.age.seconds', array[n.network_id], greatest(0, extract(epoch from clock_timestamp() - coalesce(n.finished_at, n.created_at)))),
     ('ipledger.verify.differences', array[n.network_id], coalesce(json_array_length(n.findings), 0))) as g (metric, labels, value)
   where g.value is not null
  union all
  select 'ipledger.holds', array[h.network, h.hold], 1 from n join ipledger_audit.holds h on h.network = n.network_id
  union all
  select 'ipledger.attention', array[a.network_id, a.code], sum(a.count)
    from n join ipledger.attention a on a.network_id = n.network_id group by a.network_id, a.code
  union all
  select 'ipledger.series.left_out', array['networks'], greatest(0, count(*) - $1) from ipledger.network`

const SOURCES = `
  with ${N},
  s as materialized (
    select s.network, s.source, s.status, s.lag, s.interval from n join ipledger_audit.sources s on s.network = n.network_id
  )
  select 'ipledger.sources' as metric, array[s.network, s.status] as labels, count(*)::float8 as value
    from s group by s.network, s.status
  union all
  (select g.metric, array[s.network, s.source], extract(epoch from g.value)::float8
     from (select * from s where s.status <> 'retired' order by s.network, s.source limit $1) s
    cross join lateral (values ('ipledger.source.lag.seconds', greatest(s.lag, interval '0')), ('ipledger.source.interval.seconds', s.interval)) as g (metric, value))
  union all
  select 'ipledger.series.left_out', array['sources'], greatest(0, count(*) - $1) from ipledger.source s where s.state <> 'RETIRED'`

const STATES = ['free', 'cooling', 'reserved', 'active', 'quarantined', 'excluded']
const ADDRESSES = STATES.map(
  (state) => `('ipledger.pool.addresses', array[p.network_id, p.name, '${state}'], p.${state})`,
)

const POOLS = `
  with p as materialized (
    select p.network_id, p.name, p.settings, s.* from ipledger.pool p
      left join lateral (
        select ${STATES.join(', ')} from ipledger.pool_sample s
         where s.network_id = p.network_id and s.pool_id = p.pool_id and s.at > now() - interval '5 minutes'
         order by s.at desc limit 1) s on true
     order by p.network_id, p.pool_id limit $1
  )
  select g.metric, g.labels, g.value::float8 as value
    from p
   cross join lateral (values
     ('ipledger.pool.draining', array[p.network_id, p.name], (p.settings ->> 'draining')::boolean::int::numeric),
${ADDRESSES.join(', ')}) as g (metric, labels, value)
   where g.value is not null
  union all
  select 'ipledger.series.left_out', array['pools'], greatest(0, count(*) - $1) from ipledger.pool`

const FORECAST = `
  select 'ipledger.pool.exhausted_in.seconds' as metric, array[f.network, f.pool] as labels, extract(epoch from f.exhausted_in)::float8 as value
    from ipledger_audit.pool_forecast f where f.exhausted_in is not null limit $1`

const LEASES = `
  with ${N}
  select 'ipledger.quarantined_leases' as metric, array[q.network, q.quarantine_reason] as labels, count(*)::float8 as value
    from n join ipledger_audit.quarantines q on q.network = n.network_id group by q.network, q.quarantine_reason
  union all
  select 'ipledger.suspects', array[k.network_id, case k.answer when 'wanted' then 'waiting' else k.answer end], count(*)
    from n join ipledger.lookup k on k.network_id = n.network_id group by k.network_id, k.answer`

/** They count leases. */
export const SLOW_GAUGES = [FORECAST, LEASES]
export const GAUGES = [NETWORKS, SOURCES, POOLS]
