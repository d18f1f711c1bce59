/** Once a minute, for charts, metrics and SQL: how full pools are, and what waits for a person. */
import { type Attention, AttentionList, attentionOf } from '../core/attention.ts'
import type { Image } from '../core/image.ts'
import { attentionToLeases, readFindings, writeAttention } from '../ledger/read-attention.ts'
import { SAMPLE_POOLS, sizesOf } from '../ledger/read-pools.ts'
import type { Row } from '../ledger/tables.ts'
import { ask } from '../postgres/on-connection.ts'
import { type Done, inEachImage, type Job, type JobContext } from './job.ts'

/** Attention to the leases of a network. It stays the same until the log grows. */
type OfLeases = { readonly digest: string; readonly items: readonly Attention[] }

export class Sample {
  readonly #ofLeases = new Map<string, OfLeases>()

  readonly run: Job = (context) =>
    inEachImage(context, (network, image) => this.#write(context, network, image))

  async #write({ database, ledger, signal }: JobContext, network: string, image: Image): Promise<Done> {
    const query = (text: string, values: readonly unknown[]) => ask<Row>(database, text, values)
    // By its digest, since a batch that is undone gives its numbers back.
    const { digest } = image
    const sampled = (await query(SAMPLE_POOLS, [network, sizesOf(image.pools.values())])).length
    if (this.#ofLeases.get(network)?.digest !== digest) {
      const list = new AttentionList()
      for await (const items of attentionToLeases(image, signal)) for (const one of items) list.add(one)
      if (signal.aborted) return { sampled }
      this.#ofLeases.set(network, { digest, items: list.items() })
    }
    const list = new AttentionList()
    const now = ledger.now()
    const found = await readFindings(query, network)
    for (const one of attentionOf({ image, now, ...found })) list.add(one)
    const items = [...list.items(), ...this.#ofLeases.get(network)!.items]
    await writeAttention(query, network, items, now)
    return { sampled, waiting: items.length }
  }
}
