/**
 * Addresses that are listed and free, or held by another, or promised and not confirmed: looked at again under the newest
 * counted report of each source, so that what a release left behind is found though no list changes. Only what the ledger
 * may act on is handed to it.
 */
import { type Image, isHeld, isLive, sightingsOf, unitAt } from '../core/image.ts'
import { isListedAs } from '../core/owner.ts'
import { isSingle } from '../core/pool.ts'
import { contains } from '../core/ranges.ts'
import { commandOf, inEachImage, type Job, sift } from './job.ts'

/** Addresses of one command. */
const AT_ONCE = 200

export const recheck: Job = (context) =>
  inEachImage(context, async (network, image) => {
    const { ledger, signal } = context
    const pick = (address: string) => (mayBeActedOn(image, address) ? address : null)
    const command = { ...commandOf(network, 'recheck', 'RECHECK'), type: 'recheck' } as const
    let rechecked = 0
    for await (const addresses of sift(image.sightings.keys(), pick, AT_ONCE, signal)) {
      const outcome = await ledger.submit({ ...command, addresses })
      if (!outcome.ok) break
      rechecked += addresses.length
    }
    return { rechecked }
  })

/** As `follow` of core/decide-report.ts has it, if the sources that are enabled are believed. */
export function mayBeActedOn(image: Image, address: string): boolean {
  const unit = unitAt(image, address)
  if (unit === null || !contains(unit.place.pool.allocatable, unit.value)) return false
  const record = image.records.get(unit.address)
  const seen = sightingsOf(image, unit.address).filter(
    (one) => isLive(one) && image.sources.get(one.source)?.state === 'ENABLED',
  )
  if (!isHeld(record)) return seen.length > 0
  if (!isSingle(unit.place.pool) || record.state === 'QUARANTINED') return false
  return seen.some(
    ({ owner }) => owner !== null && (record.state === 'RESERVED' || !isListedAs(record.owner!, owner)),
  )
}
