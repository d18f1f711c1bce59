/** What a batch writes: its events, chained by their digests, and the rows that they fold into. */
import type { Batch } from '../core/batch.ts'
import { type AddressRecord, EVENT_TABLES, type EventIn, type LeaseEvent } from '../core/event.ts'
import { sightingsAt } from '../core/image.ts'
import { digestOf, textOf } from './event-text.ts'
import type { PoolRow, Write } from './log.ts'

/** `digestBefore`: of the log's last event before the batch. */
export function writeOf({ image, events, freshness, remembered, now }: Batch, digestBefore: string): Write {
  const chained: Write['events'][number][] = []
  const records = new Map<string, AddressRecord>()
  const pools = new Map<number, PoolRow>()
  const sources = new Set<string>()
  let isOfNetwork = false
  let digest = digestBefore
  for (const event of events) {
    const text = textOf(image.name, event)
    digest = digestOf(digest, text)
    chained.push({ event, digest, text })
    const table = EVENT_TABLES[event.type]
    if (table === 'lease') {
      const { record } = event as LeaseEvent
      records.set(record.address, record)
    } else if (table === 'pool') {
      const { poolId, seq: version, at: updatedAt } = event as EventIn<'pool'>
      const { settings = null, createdAt = updatedAt } = image.pools.get(poolId)?.pool ?? {}
      pools.set(poolId, { poolId, settings, version, createdAt, updatedAt })
    } else if (table === 'source') {
      const { details } = event as EventIn<'source'>
      sources.add('id' in details ? details.id : details.source)
    } else if (table === 'network') isOfNetwork = true
  }
  return {
    events: chained,
    records: [...records.values()],
    pools: [...pools.values()],
    network: isOfNetwork ? image.network : null,
    sources: [...sources].map((id) => image.sources.get(id)!),
    freshness: [...freshness.values()],
    sightings: new Map([...image.dirtySightings].map((address) => [address, sightingsAt(image, address)])),
    requests: [...remembered.values()].map(({ key: _, ...request }) => ({ ...request, at: now })),
  }
}
