/** What waits for a person in a network now, as the core judges it. A job writes it for SQL and metrics. */
import {
  type Attention,
  attentionToLease,
  attentionToListed,
  coverageOf,
  type Findings,
  type Present,
} from '../core/attention.ts'
import type { AddressRecord } from '../core/event.ts'
import { type Image, isHeld } from '../core/image.ts'
import { scanInSlices } from '../in-slices.ts'
import type { Ask } from './read-db.ts'
import { readFreshness } from './read-sources.ts'
import { FAILED_LOOK_UPS } from './sql/look-ups.ts'
import { ATTENTION_ROWS, lookUpOf } from './tables.ts'

const DIFFERENCES = `
  select d.message, d."foundAt" from ipledger.verification v
   cross join json_to_recordset(v.findings) as d (message text, "foundAt" float8)
   where v.network_id = $1 order by d."foundAt"`

/** Addresses of a slice. */
const AT_ONCE = 1_000

export async function readFindings(
  ask: Ask,
  network: string,
): Promise<Findings & Pick<Present, 'freshness'>> {
  const freshness = await readFreshness(ask, network)
  const lookUps = await ask(FAILED_LOOK_UPS, [network])
  const differences = await ask(DIFFERENCES, [network])
  return {
    freshness: (source) => freshness.get(source),
    lookUps: lookUps.map(lookUpOf),
    differences: differences as Findings['differences'],
  }
}

/** Of leases and of what is listed, in slices. */
export async function* attentionToLeases(image: Image, signal?: AbortSignal): AsyncGenerator<Attention[]> {
  const coverage = coverageOf(image)
  const ofRecord = (record: AddressRecord) =>
    isHeld(record) ? [...attentionToLease(image, coverage, record)] : null
  const ofListed = (address: string) => [...attentionToListed(image, address)]
  for await (const items of scanInSlices(image.records.values(), ofRecord, AT_ONCE, signal))
    yield items.flat()
  for await (const items of scanInSlices(image.sightings.keys(), ofListed, AT_ONCE, signal))
    yield items.flat()
}

const FORGET = `delete from ipledger.attention where network_id = $1 and true_at < to_timestamp($2::float8 / 1000)`

export async function writeAttention(
  ask: Ask,
  network: string,
  items: readonly Attention[],
  now: number,
): Promise<void> {
  const rows = items.map((item) => ({ ...item, now }))
  for (const { text, values } of ATTENTION_ROWS.write(network, rows)) await ask(text, values)
  await ask(FORGET, [network, now])
}
