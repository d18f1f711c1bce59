/**
 * Reservations whose caller promised to confirm and did not: once the deadline and its grace are over, the ledger is asked to
 * reap them at the version that was judged. What happened to a lease since makes it refuse, and nothing is lost.
 */
import { expiresAt } from '../core/decide-lease.ts'
import { ask } from '../postgres/on-connection.ts'
import { commandOf, type Done, inEachNetwork, isShut, type Job, type JobContext } from './job.ts'

/** Half a batch of the ledger, so that callers who wait behind one never wait long. Not measured. */
const PAGE = 500

/** Promises that never expire (their workload was listed, or their era is over) stay where they are: pages go past them. */
const DUE = `
  select host(l.address) as address, l.confirm_by from ipledger.lease l
   where l.network_id = $1 and l.confirm_by < to_timestamp($2::float8 / 1000)
     and (l.confirm_by, l.address) > (to_timestamp($3::float8 / 1000), $4::inet)
   order by l.confirm_by, l.address limit $5`

export const expire: Job = (context) => inEachNetwork(context, (network) => expireIn(context, network))

async function expireIn({ database, ledger, signal }: JobContext, network: string): Promise<Done> {
  let reaped = 0
  for (let after = { confirm_by: 0, address: '0.0.0.0' }; !signal.aborted; ) {
    const now = ledger.now()
    const rows = await ask<typeof after>(database, DUE, [network, now, after.confirm_by, after.address, PAGE])
    if (rows.length === 0) break
    const image = await ledger.image(network)
    if (image === null || isShut(image)) break
    const due = rows.flatMap(({ address }) => {
      const record = image.records.get(address)
      const at = record === undefined ? null : expiresAt({ image, without: new Set() }, record)
      return at === null || at >= now ? [] : record!
    })
    const outcomes = await Promise.all(
      due.map(({ token, seq: version }) =>
        ledger.submit({ ...commandOf(network, 'expire', 'NEVER_CONFIRMED'), type: 'expire', token, version }),
      ),
    )
    reaped += outcomes.filter(({ ok }) => ok).length
    if (rows.length < PAGE) break
    after = rows.at(-1)!
  }
  return { reaped }
}
