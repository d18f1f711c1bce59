/**
 * The dry run: what would be done about leases now, and why. The judge on the image, by leases in order of address; nothing
 * is done. A page judges at most `MOST_JUDGED` leases, `SLICE` at a time, so that nobody else is kept waiting.
 */
import { coverageOf, suspensionsOf } from '../../core/attention.ts'
import { viewOf } from '../../core/batch.ts'
import type { LeaseView } from '../../core/command.ts'
import { expiresAt } from '../../core/decide-lease.ts'
import type { Details } from '../../core/event.ts'
import { GUARDS } from '../../core/guards.ts'
import { type Image, isHeld } from '../../core/image.ts'
import { judge } from '../../core/judge.ts'
import type { Ledger } from '../../ledger/ledger.ts'
import type { LeaseFilter } from '../../ledger/read-leases.ts'
import type { Reads } from '../../ledger/reads.ts'

/** About 10 ms of the process. */
const SLICE = 500
const MOST_JUDGED = 10_000

export type Wanted = {
  readonly network: string
  readonly leases: LeaseFilter
  /** Only what this source lists, or is a witness of. */
  readonly source: string | null
  /** Also what nothing would be done about. */
  readonly kept: boolean
  /** Address of the last lease of the page before. */
  readonly after: string | null
  readonly size: number
  readonly deadline: number
}

export type Found = {
  readonly lease: LeaseView
  readonly verdict: 'keep' | 'ask' | 'reap' | 'expire'
  readonly because: readonly { readonly code: string; readonly source: string; readonly text: string }[]
  readonly evidence: Details
}

/** Null: there is no such network. */
export async function reconcile(
  { ledger, reads }: { readonly ledger: Ledger; readonly reads: Reads },
  { network, leases, source, kept, after, size, deadline }: Wanted,
) {
  const freshness = await reads.freshness(network)
  const findings: Found[] = []
  let place = after
  for (let judged = 0; ; judged += SLICE) {
    const page = await reads.leases(network, leases, { after: place, size: SLICE })
    if (page === null) return null
    const addresses = page.leases.map(({ address }) => address)
    const lookUps = await reads.lookUps(network, addresses)
    const image = await ledger.image(network, { deadline })
    if (image === null) return null
    const coverage = coverageOf(image)
    const { unknownPools } = page
    const found = (next: string | null) => ({ findings, next, head: image.head, unknownPools })
    for (const address of addresses) {
      if (findings.length === size) return found(place)
      place = address
      const record = image.records.get(address)
      if (!isHeld(record)) continue
      const now = ledger.now()
      const evidence = {
        image,
        now,
        freshness: (id: string) => freshness.get(id),
        lookUps: lookUps.get(address) ?? [],
        guards: GUARDS,
      }
      const { verdict, because, proof } = judge(evidence, record, coverage)
      const parties = [...proof.witnesses.map(({ id }) => id), ...proof.sightings.map((one) => one.source)]
      if (source !== null && !parties.includes(source)) continue
      const lease = viewOf(image, record)
      const due = expiresAt({ image, guards: GUARDS }, record)
      const judgement: Found =
        due === null || now <= due
          ? { lease, verdict, because, evidence: proof as unknown as Details }
          : { lease, verdict: 'expire', because: [], evidence: { confirmBy: record.confirmBy, due } }
      const done = heldBack(image, judgement, now)
      // Detached, because the image goes on.
      if (kept || done.verdict !== 'keep')
        findings.push({ ...done, evidence: JSON.parse(JSON.stringify(done.evidence)) })
    }
    place = page.next
    if (place === null || judged + SLICE >= MOST_JUDGED) return found(place)
  }
}

/** What is not done while the network recovers or is held. */
function heldBack(image: Image, found: Found, now: number): Found {
  if (found.verdict === 'keep' || found.verdict === 'ask') return found
  const [suspension] = suspensionsOf(image, now, found.verdict === 'reap' ? 'REAP_ABSENT' : 'REAP')
  if (suspension === undefined) return found
  return {
    ...found,
    verdict: 'keep',
    because: [{ code: suspension.code, source: '', text: suspension.text }],
  }
}
