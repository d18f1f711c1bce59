/**
 * Addresses that are listed and free, or held by another, or promised and not confirmed: looked at again under the newest
 * counted report of each source, so that what a release left behind is found though no list changes. Only what the ledger
 * would act on is handed to it.
 */
import type { Freshness, Known } from '../core/command.ts'
import { believedHead } from '../core/decide-report.ts'
import { type Image, isHeld, isLive, type Sighting, sightingsOf, unitAt } from '../core/image.ts'
import { isListedAs } from '../core/owner.ts'
import { isSingle } from '../core/pool.ts'
import { contains } from '../core/ranges.ts'
import { freshnessOf } from '../ledger/pg-log.ts'
import { ask } from '../postgres/on-connection.ts'
import { commandOf, type Done, inEachNetwork, type Job, type JobContext, sift } from './job.ts'

/** Addresses of one command. */
const AT_ONCE = 200

export const recheck: Job = (context) => inEachNetwork(context, (network) => recheckIn(context, network))

async function recheckIn({ database, ledger, signal }: JobContext, network: string): Promise<Done> {
  const image = await ledger.image(network)
  let rechecked = 0
  if (image === null || image.sightings.size === 0) return { rechecked }
  /** By what the image knows: a list that is believed could be of now. */
  const isEnabled = ({ source }: Sighting) =>
    image.sources.get(source)?.state === 'ENABLED' ? image.head : null
  const pick = (address: string) => (isActedOn(image, address, isEnabled) ? address : null)
  for await (const found of sift(image.sightings.keys(), pick, AT_ONCE, signal)) {
    const ids = found.flatMap((address) => (image.sightings.get(address) ?? []).map(({ source }) => source))
    const rows = await ask<Record<string, unknown>>(
      database,
      'select * from ipledger.source_report where network_id = $1 and source_id = any($2::text[])',
      [network, [...new Set(ids)]],
    )
    const freshness = new Map(rows.map((row) => [row.source_id as string, freshnessOf(row)]))
    const believed = believedBy(image, freshness)
    const addresses = found.filter((address) => isActedOn(image, address, believed))
    if (addresses.length === 0) continue
    const outcome = await ledger.submit({
      ...commandOf(network, 'recheck', 'RECHECK'),
      type: 'recheck',
      addresses,
    })
    if (!outcome.ok) break
    rechecked += addresses.length
  }
  return { rechecked }
}

function believedBy(image: Image, known: ReadonlyMap<string, Freshness>) {
  const batch = { image, known: { freshness: known } as unknown as Known, freshness: new Map() }
  return (one: Sighting): number | null => believedHead(batch, one)
}

/** As `follow` of core/decide-report.ts has it. */
function isActedOn(image: Image, address: string, believed: (one: Sighting) => number | null): boolean {
  const unit = unitAt(image, address)
  if (unit === null || !contains(unit.place.pool.allocatable, unit.value)) return false
  const record = image.records.get(unit.address)
  const isSeen = (since: number, of: (owner: Parameters<typeof isListedAs>[1] | null) => boolean): boolean =>
    sightingsOf(image, unit.place, unit.address).some((one) => {
      const head = isLive(one) && of(one.owner) ? believed(one) : null
      return head !== null && head >= since
    })
  if (!isHeld(record)) return isSeen(record?.seq ?? 0, () => true)
  if (!isSingle(unit.place.pool) || record.state === 'QUARANTINED') return false
  const isTheirs = (owner: Parameters<typeof isListedAs>[1] | null): boolean =>
    owner !== null && !isListedAs(record.owner!, owner)
  if (isSeen(record.token, isTheirs)) return true
  return record.state === 'RESERVED' && isSeen(record.seq, (owner) => owner !== null && !isTheirs(owner))
}
