/** What waits for a person in a network now, as the core judges it. A job writes it for SQL and metrics. */
import {
  ATTENTION,
  ATTENTION_CODES,
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
import type { Ask } from './pages.ts'
import { readFreshness } from './read-sources.ts'
import { FAILED_LOOK_UPS } from './sql/look-ups.ts'
import { lookUpOf } from './tables.ts'

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

const WRITE = `
  insert into ipledger.attention as a select * from json_populate_recordset(null::ipledger.attention, $1)
  on conflict (network_id, code, source_id) do update
    set count = excluded.count, since = excluded.since, address = excluded.address, lease_id = excluded.lease_id, what = excluded.what,
        true_at = excluded.true_at`
const FORGET = 'delete from ipledger.attention where network_id = $1 and true_at < $2'

export async function writeAttention(
  ask: Ask,
  network: string,
  items: readonly Attention[],
  now: number,
): Promise<void> {
  const trueAt = new Date(now).toISOString()
  const rows = items.map(({ code, source, count, since, address, leaseId, text }) => ({
    network_id: network,
    code,
    source_id: source,
    rank: ATTENTION_CODES.indexOf(code) + 1,
    severity: ATTENTION[code][0],
    count,
    since: new Date(since).toISOString(),
    address: address || null,
    lease_id: leaseId || null,
    what: text,
    true_at: trueAt,
  }))
  await ask(WRITE, [JSON.stringify(rows)])
  await ask(FORGET, [network, trueAt])
}
