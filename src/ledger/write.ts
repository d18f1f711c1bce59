/**
 * What a batch writes: its events, chained by their digests, and the rows that they fold into. A new type of event
 * that is about no lease does not compile before it says which row is its own.
 */
import type { Batch } from '../core/batch.ts'
import type { AddressRecord } from '../core/event.ts'
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
    if ('record' in event) {
      records.set(event.record.address, event.record)
      continue
    }
    switch (event.type) {
      case 'attachment.closed':
        // Only the log has it.
        break
      case 'pool.created':
      case 'pool.updated':
      case 'pool.deleted': {
        const { settings = null, createdAt = event.at } = image.pools.get(event.poolId)?.pool ?? {}
        const { poolId, seq: version, at: updatedAt } = event
        pools.set(poolId, { poolId, settings, version, createdAt, updatedAt })
        break
      }
      case 'source.registered':
      case 'source.enabled':
      case 'source.retired':
        sources.add(event.details.id)
        break
      case 'source.reported':
        sources.add(event.details.source)
        break
      case 'network.created':
      case 'network.updated':
      case 'era.begun':
      case 'recovery.extended':
      case 'recovery.ended':
      case 'reconcile.held':
      case 'reconcile.resumed':
        isOfNetwork = true
        break
      default:
        event satisfies never
    }
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
