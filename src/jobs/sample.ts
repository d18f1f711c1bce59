/** Once a minute, for charts, metrics and SQL: how full pools are, and what waits for a person. */
import { type Attention, AttentionList, attentionOf } from '../core/attention.ts'
import { attentionToLeases, readFindings, writeAttention } from '../ledger/read-attention.ts'
import type { Row } from '../ledger/tables.ts'
import { ask } from '../postgres/on-connection.ts'
import { inEachImage, type Job } from './job.ts'

/** The same minute is sampled once, whichever process comes first. */
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

export function createSample(): Job {
  /** What waits about leases, by network; it stays so until the log grows. */
  const ofLeases = new Map<string, { readonly digest: string; readonly items: readonly Attention[] }>()
  return (context) =>
    inEachImage(context, async (network, image) => {
      const { database, ledger, signal } = context
      // By its digest, since a batch that is undone gives its numbers back.
      const { digest } = image
      const sampled = (await ask(database, SAMPLE, [network])).length
      const query = (text: string, values: readonly unknown[]) => ask<Row>(database, text, values)
      if (ofLeases.get(network)?.digest !== digest) {
        const list = new AttentionList()
        for await (const items of attentionToLeases(image, signal)) for (const one of items) list.add(one)
        if (signal.aborted) return { sampled }
        ofLeases.set(network, { digest, items: list.items() })
      }
      const list = new AttentionList()
      const now = ledger.now()
      const found = await readFindings(query, network)
      for (const one of attentionOf({ image, now, ...found })) list.add(one)
      const items = [...list.items(), ...ofLeases.get(network)!.items]
      await writeAttention(query, network, items, now)
      return { sampled, waiting: items.length }
    })
}
