/** Statements of the background jobs. */
import { JOBS_SCHEMA } from '../../postgres/migrate.ts'

export const NETWORK_NAMES = 'select network_id from ipledger.network order by network_id'

/** Of networks that were not verified to their end within 5 minutes, the one that was begun longest ago first. */
export const TO_VERIFY = `
  select l.network_id from ipledger.network_lock l
    left join ipledger.verification v on v.network_id = l.network_id
   where v.network_id is null or v.finished_at is null or v.finished_at < v.started_at
      or v.finished_at < clock_timestamp() - interval '5 minutes'
   order by v.started_at nulls first, l.network_id`

/** Rows are pruned by stretches: of an hour's requests at 5,000 a second, 300,000 rows. Not measured. */
const STRETCH = '1 minute'

/** Begin of the oldest stretch: it goes first, so that what is dead but not yet vacuumed is not walked again. */
export const oldest = (table: string): string => `
  select min(x.at)::text as at from ipledger.${table} x where x.network_id = $1 and x.at < now() - $2 * interval '1 millisecond'`
export const pruneStretch = (table: string): string => `
  delete from ipledger.${table} x
   where x.network_id = $1 and x.at < now() - $2 * interval '1 millisecond'
     and x.at >= $3::timestamptz and x.at < $3::timestamptz + interval '${STRETCH}'`

// Of graphile-worker.

/** A job that failed stays in its table for ever. */
export const DELETE_FAILED = `delete from ${JOBS_SCHEMA}._private_jobs where attempts >= max_attempts and locked_at is null`
export const COUNT_JOBS = `
  select count(*) filter (where locked_at is null and attempts < max_attempts and run_at <= now()) as waiting,
         count(*) filter (where locked_at is null and attempts >= max_attempts) as failing
    from ${JOBS_SCHEMA}._private_jobs`
