/**
 * Addresses that are listed and free, or held by another, or promised and not confirmed are decided again under the newest counted
 * report of each source. So what a release left behind is found though no list changes.
 */
import { ownCommand } from '../core/command.ts'
import { listedAt } from '../core/decide-report.ts'
import type { Image } from '../core/image.ts'
import { scanInSlices } from '../in-slices.ts'
import { inEachImage, type Job } from './job.ts'

/** Addresses of one command. */
const AT_ONCE = 200

export const recheck: Job = (context) =>
  inEachImage(context, async (network, image) => {
    const { ledger, signal } = context
    const pick = (address: string) => (isToBeLookedAt(image, address) ? address : null)
    const command = { ...ownCommand(network, 'job:recheck', 'RECHECK'), type: 'recheck' } as const
    let rechecked = 0
    for await (const addresses of scanInSlices(image.sightings.keys(), pick, AT_ONCE, signal)) {
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
