/** Once a minute, for charts, metrics and SQL: how full pools are, and what waits for a person. */
import { type Attention, AttentionList, attentionOf } from '../core/attention.ts'
import { attentionToLeases, readFindings, writeAttention } from '../ledger/read-attention.ts'
import { SAMPLE_POOLS, sizesOf } from '../ledger/read-pools.ts'
import type { Row } from '../ledger/tables.ts'
import { ask } from '../postgres/on-connection.ts'
import { inEachImage, type Job } from './job.ts'

export function createSample(): Job {
  /** What waits about leases, by network: the same until the log grows. */
  const ofLeases = new Map<string, { readonly digest: string; readonly items: readonly Attention[] }>()
  return (context) =>
    inEachImage(context, async (network, image) => {
      const { database, ledger, signal } = context
      // Not by its head: a batch that is undone gives its numbers back.
      const { digest } = image
      const query = (text: string, values: readonly unknown[]) => ask<Row>(database, text, values)
      const sampled = (await query(SAMPLE_POOLS, [network, sizesOf(image.pools.values())])).length
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
