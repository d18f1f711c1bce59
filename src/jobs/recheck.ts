/**
 * Addresses that are listed and free, or held by another, or promised and not confirmed: looked at again under the newest
 * counted report of each source, so that what a release left behind is found though no list changes. Only what the ledger
 * may act on is handed to it.
 */
import { listedAt } from '../core/decide-report.ts'
import type { Image } from '../core/image.ts'
import { commandOf, inEachImage, type Job, sift } from './job.ts'

/** Addresses of one command. */
const AT_ONCE = 200

export const recheck: Job = (context) =>
  inEachImage(context, async (network, image) => {
    const { ledger, signal } = context
    const pick = (address: string) => (isToBeLookedAt(image, address) ? address : null)
    const command = { ...commandOf(network, 'recheck', 'RECHECK'), type: 'recheck' } as const
    let rechecked = 0
    for await (const addresses of sift(image.sightings.keys(), pick, AT_ONCE, signal)) {
      const outcome = await ledger.submit({ ...command, addresses })
      if (!outcome.ok) break
      rechecked += addresses.length
    }
    return { rechecked }
  })

export function isToBeLookedAt(image: Image, address: string): boolean {
  const sightings = listedAt(image, address)?.sightings ?? []
  return sightings.some(({ source }) => image.sources.get(source)!.state === 'ENABLED')
}
