/** What waits for a person in a network now: the core's word, on what is read for it. A job writes it for SQL and metrics. */
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
import { type Image, isHeld } from '../core/image.ts'
import { inSlices } from '../in-slices.ts'
import type { Ask } from './pages.ts'
import { readFreshness } from './read-sources.ts'
import { FAILED_LOOK_UPS } from './sql/look-ups.ts'
import { lookUpOf } from './tables.ts'

const DIFFERENCES = `
  select d.message, d."foundAt" from ipledger.verification v
   cross join json_to_recordset(v.findings) as d (message text, "foundAt" float8)
   where v.network_id = $1 order by d."foundAt"`

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

/** Of leases and of what is listed: every record is looked at, by turns with everything else. */
export async function* attentionToLeases(image: Image, signal?: AbortSignal): AsyncGenerator<Attention[]> {
  const coverage = coverageOf(image)
  for await (const records of inSlices(image.records.values(), signal))
    yield records.filter(isHeld).flatMap((record) => [...attentionToLease(image, coverage, record)])
  for await (const addresses of inSlices(image.sightings.keys(), signal))
    yield addresses.flatMap((address) => [...attentionToListed(image, address)])
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
