/**
 * Reaps reservations that were not confirmed as promised, once the deadline and its grace are over. The command names the version
 * that was judged, so the ledger refuses it if anything has happened to the lease since.
 */
import { suspensionsOf } from '../core/attention.ts'
import { ownCommand } from '../core/command.ts'
import { expiresAt } from '../core/decide-lease.ts'
import type { AddressRecord } from '../core/event.ts'
import { GUARDS, type Guards } from '../core/guards.ts'
import type { Image } from '../core/image.ts'
import { scanInSlices } from '../in-slices.ts'
import { inEachImage, type Job } from './job.ts'

/** Half a batch of the ledger, so that callers behind it wait briefly. Not measured. */
const AT_ONCE = 500

export const expire: Job = (context) =>
  inEachImage(context, async (network, image) => {
    const { ledger, signal } = context
    const pick = (record: AddressRecord) => (isOverdue(image, record, ledger.now()) ? record : null)
    let reaped = 0
    for await (const due of scanInSlices(image.records.values(), pick, AT_ONCE, signal)) {
      const command = { ...ownCommand(network, 'job:expire', 'NEVER_CONFIRMED'), type: 'expire' } as const
      const outcomes = await Promise.all(
        due.map(({ token, seq: version }) => ledger.submit({ ...command, token, version })),
      )
      reaped += outcomes.filter(({ ok }) => ok).length
    }
    return { reaped }
  })

export function isOverdue(
  image: Image,
  record: AddressRecord,
  now: number,
  guards: Guards = GUARDS,
): boolean {
  const due = expiresAt({ image, guards }, record)
  return due !== null && now > due && suspensionsOf(image, now, 'REAP').length === 0
}
