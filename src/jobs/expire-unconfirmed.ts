/**
 * Reservations whose caller promised to confirm and did not: once the deadline and its grace are over, the ledger is
 * asked to reap them, with the version that was judged. It decides by its own clock and books; what happened to a
 * lease since it was listed (a confirm, a longer deadline) makes it refuse, and nothing is lost. A lease without a
 * deadline is never listed, nor one of before a recovery: that has none any more (ops/decisions/0008-eras.md).
 */

import { POLICY } from '../core/policy.ts'
import type { Outcome } from '../ledger/ledger.ts'
import { LAST_RECOVERY } from '../ledger/load-seen.ts'
import { type Done, inEachNetwork, type Job, type JobContext } from './job.ts'

const EXPIRE_ACTOR = 'job:expire-unconfirmed'

/** Half a batch of the ledger, so that callers who wait behind one never wait long. Not measured. */
const PAGE = 500
const PAGES = 200

type DueRow = Readonly<{ fencing_token: number; version: number; address: string; confirm_by: string }>

/** Of the pools that set a grace of their own it is read once a page, so that the list is one walk along the deadlines. */
export const LIST_DUE = `
  select l.fencing_token, l.version, l.address, l.confirm_by::text as confirm_by
    from ipledger.lease l
   where l.network_id = $1
     and l.confirm_by < now()
     and l.fencing_token >= coalesce((
           select ${LAST_RECOVERY('seq')} from ipledger.network n where n.network_id = $1), 0)
     and l.confirm_by < now() - interval '1 millisecond' * coalesce(
           ((select jsonb_object_agg(p.pool_id, p.settings #> '{reapPolicy,confirmGraceMs}')
               from ipledger.pool p
              where p.network_id = $1 and p.settings #> '{reapPolicy,confirmGraceMs}' is not null
            ) ->> l.pool_id::text)::bigint, $2::bigint)
     and (l.confirm_by, l.address) > ($3::timestamptz, $4::inet)
   order by l.confirm_by, l.address
   limit $5`

export const expireUnconfirmed: Job = (context) =>
  inEachNetwork(context, (network) => expireInNetwork(context, network))

async function expireInNetwork(
  { database, ledger, log, signal }: JobContext,
  network: string,
): Promise<Done> {
  let reaped = 0
  let after: Pick<DueRow, 'confirm_by' | 'address'> = { confirm_by: '-infinity', address: '0.0.0.0' }
  for (let page = 0; page < PAGES && !signal.aborted; page++) {
    const { rows } = await database.query<DueRow>(LIST_DUE, [
      network,
      POLICY.confirmGraceMs,
      after.confirm_by,
      after.address,
      PAGE,
    ])
    const outcomes = await Promise.all(
      rows.map((row) =>
        ledger.submit(
          {
            type: 'expire',
            network,
            actor: { name: EXPIRE_ACTOR, node: null },
            cause: 'NEVER_CONFIRMED',
            requestId: null,
            fingerprint: null,
            traceId: null,
            token: row.fencing_token,
            version: row.version,
          },
          { lane: 'reconciler' },
        ),
      ),
    )
    reaped += outcomes.filter((outcome) => outcome.ok).length
    const busy = outcomes.find(isBusy)
    if (busy !== undefined) {
      log.warn({ network, reason: busy.refusal.reason }, 'expiring is left to the next run')
      break
    }
    if (rows.length < PAGE) break
    after = rows.at(-1)!
  }
  return { reaped }
}

/** The ledger cannot be asked now. Every other refusal is its judgement of one lease. */
function isBusy(outcome: Outcome): outcome is Extract<Outcome, { ok: false }> {
  if (outcome.ok) return false
  const { reason } = outcome.refusal
  return reason === 'OVERLOADED' || reason === 'DATABASE_UNAVAILABLE' || reason === 'OUTCOME_UNKNOWN'
}
