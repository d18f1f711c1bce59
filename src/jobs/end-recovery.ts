/**
 * Networks that recover after a new era, once each of their enabled sources has said in that era what is live. The ledger
 * judges that itself, under the lock: what a job saw may be of the era before. What the sources listed protects from then
 * on, whether it has been adopted yet or not.
 *
 * And networks that nobody has written to since the database became another: their eras begin here at the latest.
 */

import { beginDueEras } from '../ledger/eras.ts'
import type { Job } from './job.ts'

export const RECOVERY_ACTOR = 'job:end-recovery'

const LIST_RECOVERING = `
  select network_id, era from ipledger.network where state = 'RECOVERING' order by network_id`

export const endRecovery: Job = async ({ database, ledger, signal }) => {
  const looked = await beginDueEras(ledger, database)
  const { rows } = await database.query<{ network_id: string; era: number }>(LIST_RECOVERING)
  let ended = 0
  for (const { network_id: network, era } of rows) {
    if (signal.aborted) break
    const outcome = await ledger.submit(
      {
        type: 'endRecovery',
        network,
        actor: { name: RECOVERY_ACTOR, node: null },
        cause: 'OBSERVED',
        requestId: null,
        fingerprint: null,
        traceId: null,
        why: `every enabled source has reported completely in era ${era}`,
        observed: true,
      },
      { lane: 'reconciler' },
    )
    // Refused, it is waiting for a source still, or the ledger cannot be asked now.
    if (outcome.ok) ended += 1
  }
  return { looked: looked.length, ended }
}
