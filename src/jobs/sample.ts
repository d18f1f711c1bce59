/** How full pools are, once a minute, for charts. The same minute is sampled once, whoever comes first. */
import { ask } from '../postgres/on-connection.ts'
import { inEachNetwork, type Job } from './job.ts'

const SAMPLE = `
  insert into ipledger.pool_sample (network_id, pool_id, at, size, excluded, free, cooling, reserved, active, quarantined)
  select p.network_id, p.pool_id, date_trunc('minute', now()), u.size, u.excluded, u.free, u.cooling, u.reserved, u.active, u.quarantined
    from ipledger.pool p join ipledger_audit.pool_usage u on u.network = p.network_id and u.pool = p.name
   where p.network_id = $1
     and not exists (
       select from ipledger.pool_sample s
        where s.network_id = p.network_id and s.pool_id = p.pool_id and s.at = date_trunc('minute', now()))
      on conflict (network_id, pool_id, at) do nothing
  returning pool_id`

export const sample: Job = (context) =>
  inEachNetwork(context, async (network) => ({
    sampled: (await ask(context.database, SAMPLE, [network])).length,
  }))
