/** Sources and their reports. `$1`: the network. */
import { lastEvent } from './head.ts'
import { QUESTIONS } from './look-ups.ts'

export const REPORTS = 'select * from ipledger.source_report where network_id = $1'
export const REPORTS_OF = `${REPORTS} and source_id = any ($2::text[])`

/** What a report of source $2 is compared with. A network without that source is a row whose `source_id` is null. */
export const STORED_SOURCE = `select s.*, n.era as network_era, n.recovering is not null as is_recovering, k.secret,
    (${lastEvent('$1')}) as head, ${QUESTIONS} as questions,
    r.epoch as report_epoch, r.era, r.warm, r.sequence, r.digest, r.entries, r.counted, r.counted_total, r.reported_at,
    r.complete_at, r.complete_head, r.partial_since, r.partial_because
  from ipledger.network n
  join ipledger.network_lock k on k.network_id = n.network_id
  left join ipledger.source s on s.network_id = n.network_id and s.source_id = $2
  left join ipledger.source_report r on r.network_id = n.network_id and r.source_id = $2
 where n.network_id = $1`

/**
 * Prepared, because planning takes longer than running it. The commit does not wait for the disk: a crash only forgets that a list
 * was unchanged. 2,000 agents an interval of 30 s: 0.18 cores with neither, 0.08 prepared, 0.06 with both.
 */
export const TOUCH = {
  name: 'touch',
  text: `with touched as (update ipledger.source_report set sequence = $4, warm = $5, counted = $6, counted_total = $7,
    reported_at = to_timestamp($8::float8 / 1000), complete_at = to_timestamp($9::float8 / 1000), complete_head = $10,
    partial_since = null, partial_because = null
  where network_id = $1 and source_id = $2 and sequence = $3 and digest = $11 and epoch = $12 and era = $13
    and exists (select from ipledger.source where network_id = $1 and source_id = $2 and version = $14 and epoch = $12)
    and exists (select from ipledger.network where network_id = $1 and era = $13)
  returning source_id)
  select set_config('synchronous_commit', 'off', true), (${lastEvent('$1')}) as head, ${QUESTIONS} as questions from touched`,
}

export const PULLED = `
  select s.*, r.reported_at from ipledger.source s
    left join ipledger.source_report r on r.network_id = s.network_id and r.source_id = s.source_id
   where s.network_id = $1 and s.state <> 'RETIRED' and s.declaration ->> 'kind' <> 'push'`

export const FAILED = `
  insert into ipledger.source_failure as f (network_id, source_id, since, why) values ($1, $2, clock_timestamp(), $3)
  on conflict (network_id, source_id) do update set why = excluded.why where f.why <> excluded.why`
export const RECOVERED = 'delete from ipledger.source_failure where network_id = $1 and source_id = $2'
