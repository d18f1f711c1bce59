/**
 * Reservations whose caller promised to confirm and did not: once the deadline and its grace are over, the ledger is asked to
 * reap them at the version that was judged. What happened to a lease since makes it refuse, and nothing is lost.
 */
import { barsOf } from '../core/attention.ts'
import { expiresAt } from '../core/decide-lease.ts'
import type { AddressRecord } from '../core/event.ts'
import type { Image } from '../core/image.ts'
import type { RuleName } from '../core/rules.ts'
import { commandOf, inEachImage, type Job, sift } from './job.ts'

/** Half a batch of the ledger, so that callers who wait behind one never wait long. Not measured. */
const AT_ONCE = 500

export const expire: Job = (context) =>
  inEachImage(context, async (network, image) => {
    const { ledger, signal } = context
    const pick = (record: AddressRecord) => (isOverdue(image, record, ledger.now()) ? record : null)
    let reaped = 0
    for await (const due of sift(image.records.values(), pick, AT_ONCE, signal)) {
      const command = { ...commandOf(network, 'expire', 'NEVER_CONFIRMED'), type: 'expire' } as const
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
  without: ReadonlySet<RuleName> = new Set(),
): boolean {
  const at = barsOf(image, now, 'REAP').length > 0 ? null : expiresAt({ image, without }, record)
  return at !== null && at < now
}
