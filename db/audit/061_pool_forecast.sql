create or replace view ipledger_audit.pool_forecast as
  select f.network, f.pool, f.free, f.cooling, f.leases_per_hour,
         case when f.leases_per_hour > 0 and f.free / f.leases_per_hour::numeric < 876000
              then make_interval(secs => greatest(0, f.free / f.leases_per_hour::numeric * 3600)::float8) end as exhausted_in,
         f.at
    from (select p.network_id as network, p.name as pool, r.free, r.cooling, r.leases_per_hour, r.at
            from ipledger.pool p
            cross join lateral (
              select (array_agg(s.free order by s.at desc))[1] as free, (array_agg(s.cooling order by s.at desc))[1] as cooling, max(s.at) as at,
                     case when count(*) >= 5
                          then regr_slope((s.cooling + s.reserved + s.active + s.quarantined)::float8, extract(epoch from s.at)::float8) * 3600 end as leases_per_hour
                from ipledger_audit.pool_samples s
               where s.network = p.network_id and s.pool_id = p.pool_id and s.at > now() - interval '1 hour') r
           where r.at is not null) f;
comment on view ipledger_audit.pool_forecast is
$$When each pool will have nothing free, if it goes on as in the last hour: the net rate by which held and cooling leases grew, least squares
over the samples of a minute each.

Columns: network; pool; free, cooling (by the last sample, leases); leases_per_hour (net; negative: it empties; null: fewer than five
samples); exhausted_in (from the last sample on; null: it does not fill, or not within a century); at (the last sample).

Example:
  select pool, free, leases_per_hour, exhausted_in from pool_forecast where exhausted_in < interval '1 day';$$;
