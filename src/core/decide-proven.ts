/**
 * What follows from the judge's proofs, and who may stop it. A proof was made outside the lock, from tables that go on
 * changing and with answers that took seconds; here it is looked at a second time under the lock, and whatever changed
 * meanwhile wins: the lease, a sighting, the standing of a source, a hold, the era, or only time (mirendev#856 freed on
 * a verdict nobody looked at again). Refused with VERSION_MISMATCH means: judge anew.
 *
 * Reaps that rest on absence are capped by the hour, for each source they rest on and for the network. Beyond, the
 * reap is refused and leaves a hold, which an operator resumes (cilium#9888, aws#3876, calico#5044: mass releases).
 */
import {
  absenceReapsOf,
  type Books,
  type Fence,
  fencedReportOf,
  fenceOf,
  heldLeasesOf,
  holdOf,
  isBeforeFence,
  type LiveSighting,
  leaseByToken,
  leasesSeenOf,
  poolById,
  sightingsAt,
  sourceNamed,
} from './books.ts'
import type { FenceNode, ReapProven, Restore, ResumeHold } from './command.ts'
import type { Verdict } from './decide.ts'
import {
  closedIn,
  confirmDraft,
  endDraft,
  endedMetadata,
  idOf,
  illegal,
  illegalBecause,
  leaseNotFound,
  recovering,
  settle,
  stateMetadata,
  versionMismatch,
} from './decide-lease.ts'
import { seenFor } from './decide-sighting.ts'
import { type Draft, number } from './draft.ts'
import { type Proof, rejudge } from './judge.ts'
import type { Lease } from './lease.ts'
import { stateOf, transition } from './lifecycle.ts'
import { describeOwner } from './owner.ts'
import { judgePolicy, POLICY } from './policy.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'

export function decideReapProven(books: Books, command: ReapProven): Verdict {
  const looked = lookAgain(books, command, 'reap')
  if ('reason' in looked) return refused(looked)
  const { lease, sources } = looked
  const { proof } = command
  const bad = recovering(books)
  if (bad !== null) return refused(bad)
  if (transition(stateOf(lease), 'REAP_PROVEN') === undefined)
    return refused(illegal(lease, 'reaped on proof'))
  const stopped =
    heldBack(books, lease, sources) ??
    seenSince(books, lease, proof) ??
    reportedSinceFenced(books, lease, proof)
  if (stopped !== null) return refused(stopped)
  if (proof.cause === 'PROVEN_ABSENT') {
    const holds = beyondCaps(books, lease, sources)
    if (holds.length > 0) {
      return {
        events: number(
          books,
          command,
          holds.map(({ draft }) => draft),
        ),
        refused: holds[0]!.refusal,
      }
    }
  }
  const evidence = { reason: proof.cause, sources, proof }
  const draft = endDraft(lease, 'lease.reaped', books, { removalConfirmed: false, evidence })
  const reaped: Draft = { ...draft, event: (header) => draft.event({ ...header, cause: proof.cause }) }
  return settle(books, command, [reaped], [lease])
}

export function decideRestore(books: Books, command: Restore): Verdict {
  const looked = lookAgain(books, command, 'restore')
  if ('reason' in looked) return refused(looked)
  const { lease, sources } = looked
  const { owner } = lease
  if (transition(stateOf(lease), 'SEEN_ALONE') === undefined || owner === null)
    return refused(illegal(lease, 'given back to an owner'))
  if (closedIn(books, owner, lease.poolId)) {
    return refused(
      changed(lease, `${describeOwner(owner)} was released or superseded, and does not get it back`),
    )
  }
  const { live } = sightingsAt(books, lease.address, lease.prefixLength)
  const { pool } = poolById(books, lease.poolId)
  // As it was seen when it was set aside: whatever is in a block on its holder's node is the holder's.
  const other = live.find((seen) => seenFor(pool, lease, seen) !== 'SIGHTED')
  if (other !== undefined) return refused(seenLive(lease, other))
  if (live.length === 0) return refused(changed(lease, `${describeOwner(owner)} is seen there no more`))
  const evidence = { reason: command.proof.cause, sources, proof: command.proof }
  return settle(books, command, [confirmDraft(lease, books.now, evidence)], [lease])
}

/** Resuming what is not held is what the first call did. Reaps of before count no more. */
export function decideResumeHold(books: Books, command: ResumeHold): Verdict {
  const source = command.source ?? ''
  if (holdOf(books, source) === null) return settle(books, command, [], [])
  const evidence = { source, why: command.why }
  return settle(
    books,
    command,
    [{ evidence, event: (header) => ({ ...header, type: 'reconcile.resumed', evidence }) }],
    [],
  )
}

/** Said again, what was said last counts: of all leases up to now, or up to the head that it names. */
export function decideFenceNode(books: Books, command: FenceNode): Verdict {
  const { node, boot, head, why } = command
  if (node === '') return refused(invalid('node', 'required: the node whose boot is over'))
  // Without it the statement would cover the boot that the node comes back with.
  if (boot === '') return refused(invalid('boot', 'required: the boot of the node that is over'))
  if (head !== null && head > books.head) {
    const message = `head ${head} is beyond this ledger's last number ${books.head}; if it was ever answered, the database is an older copy`
    return refused(refusal('VERSION_MISMATCH', message, { beyondHead: String(books.head) }))
  }
  const evidence = { node, boot, why, ...(head === null ? {} : { head }) }
  return settle(
    books,
    command,
    [{ evidence, event: (header) => ({ ...header, type: 'node.fenced', evidence }) }],
    [],
  )
}

// The second look.

type Looked = {
  readonly lease: Lease
  /** Those the proof rests on. */
  readonly sources: readonly string[]
}

function lookAgain(
  books: Books,
  command: ReapProven | Restore,
  wanted: 'reap' | 'restore',
): Looked | Refusal {
  const found = leaseByToken(books, command.token)
  if (found === null) return leaseNotFound(books, command.token)
  if ('ended' in found) {
    const { lease } = found.ended
    return refusal('LEASE_LOST', `lease ${idOf(lease)} has ended already`, endedMetadata(found.ended))
  }
  const { lease } = found
  const { proof } = command
  const stale = versionMismatch(lease, command.version) ?? versionMismatch(lease, proof.version)
  if (stale !== null) return stale
  if (proof.token !== lease.fencingToken) return invalid('proof', `is about lease ${proof.token}`)
  const { era } = books.network!
  if (proof.era !== era)
    return changed(lease, `the evidence is of era ${proof.era}, the ledger is in era ${era}`)
  // Whichever clock is wrong, it is not fresh.
  if (Math.abs(books.now - proof.at) > POLICY.proofAgeMs)
    return changed(lease, `the evidence is older than ${POLICY.proofAgeMs / 1_000} s`)
  const verdict = rejudge(proof)
  if (verdict.verdict !== wanted)
    return invalid('proof', `comes to ${verdict.verdict} when it is judged again, not to ${wanted}`)
  const { pool } = poolById(books, lease.poolId)
  // Stricter since: what changed meanwhile wins.
  if (rejudge(proof, judgePolicy(pool.reapPolicy)).verdict !== wanted)
    return changed(lease, `it is not enough for the reap policy that pool ${pool.name} has now`)
  const sources = [...new Set(verdict.because.flatMap(({ source }) => source ?? []))]
  for (const source of sources) {
    const fallen = standsNoMore(books, lease, proof, source)
    if (fallen !== null) return fallen
  }
  return { lease, sources }
}

/** A source that was retired, or began anew, since it was read (cilium#9888). */
function standsNoMore(books: Books, lease: Lease, proof: Proof, source: string): Refusal | null {
  const book = sourceNamed(books, source)
  if (book === null || book.state !== 'ENABLED') return changed(lease, `source ${source} is not enabled`)
  const { epoch } = proof.sources.find((witness) => witness.source === source)!
  if (book.epoch !== epoch)
    return changed(lease, `source ${source} is in epoch ${book.epoch}, its evidence is of ${epoch}`)
  if (book.era !== books.network!.era)
    return changed(lease, `source ${source} has not reported completely in era ${books.network!.era}`)
  return book.warm ? null : changed(lease, `source ${source} is warming up`)
}

function heldBack(books: Books, lease: Lease, sources: readonly string[]): Refusal | null {
  for (const source of ['', ...sources]) {
    const hold = holdOf(books, source)
    if (hold !== null) return onHold(lease, source, hold.why)
  }
  return null
}

/** Somebody sees it, or has seen it since the evidence was read: the sharp case of a worker that was paused. */
function seenSince(books: Books, lease: Lease, proof: Proof): Refusal | null {
  const { live, lastSeenAt } = sightingsAt(books, lease.address, lease.prefixLength)
  const seen = live.find((one) => !isOfFencedBoot(books, proof, one))
  if (seen !== undefined) return seenLive(lease, seen)
  if (lastSeenAt !== null && lastSeenAt > (proof.lastSightedAt ?? Number.NEGATIVE_INFINITY))
    return changed(lease, 'it was seen since the evidence was read')
  return null
}

/**
 * What a fenced boot listed before it was fenced is not life. If it has reported since, completely or not, warm or not, it
 * may be, and the fence was false (6.3).
 */
function isOfFencedBoot(books: Books, proof: Proof, seen: LiveSighting): boolean {
  const { node, boot, head, listedAt } = seen
  const fenced = proof.fencedBy
  if (proof.cause !== 'FENCED' || fenced === null || node !== fenced.node || boot !== fenced.boot)
    return false
  const fence = fenceOf(books, node, boot)
  if (fence === null) return false
  return head === null ? listedAt < fencedSince(fence, fenced) : isBeforeFence(fence, head)
}

/** Said again since the evidence was read, of all up to then, it is said in the knowledge of what was reported before. */
function fencedSince(fence: Fence | null, { at, since = at }: NonNullable<Proof['fencedBy']>): number {
  if (fence === null) return since
  return fence.at > at && fence.head === fence.seq ? fence.at : Math.min(since, fence.at)
}

/** The fenced boot reports, whatever it lists: the statement is false for all of its leases (6.3). */
function reportedSinceFenced(books: Books, lease: Lease, { cause, fencedBy }: Proof): Refusal | null {
  if (cause !== 'FENCED' || fencedBy === null) return null
  const { node, boot } = fencedBy
  const since = fencedSince(fenceOf(books, node, boot), fencedBy)
  const reportedAt = fencedReportOf(books, node, boot) ?? since
  return reportedAt > since
    ? changed(lease, `boot ${boot} of ${node}, which was fenced, has reported since`)
    : null
}

/**
 * Beyond a cap, for whom: more than a few and more than a share of what they could be. For the network those are its
 * leases, for a source those that it lists, and those that were taken; what else it lists makes nothing safer (5.4).
 */
function beyondCaps(
  books: Books,
  lease: Lease,
  sources: readonly string[],
): readonly { readonly draft: Draft; readonly refusal: Refusal }[] {
  return ['', ...sources].flatMap((source) => {
    const before = absenceReapsOf(books, source)
    const reaps = before + 1
    if (reaps <= POLICY.heldAboveReaps) return []
    const enough = Math.ceil(reaps / POLICY.heldAboveShare)
    const leases =
      source === ''
        ? heldLeasesOf(books) + before
        : leasesSeenOf(books, sourceNamed(books, source)!, enough) + reaps
    if (reaps <= POLICY.heldAboveShare * leases) return []
    const whose = source === '' ? 'the network' : `source ${source}`
    const why = `${reaps} of ${leases} leases of ${whose} would be reaped on absence within ${POLICY.holdWindowMs / 60_000} min`
    const evidence = { source, why, reaps, leases, leaseId: idOf(lease) }
    const draft: Draft = {
      evidence,
      event: (header) => ({ ...header, type: 'reconcile.held', evidence }),
    }
    return [{ draft, refusal: onHold(lease, source, why) }]
  })
}

// Refusals.

function onHold(lease: Lease, source: string, why: string): Refusal {
  const whose = source === '' ? `network ${lease.network}` : `source ${source}`
  return refusal('ILLEGAL_STATE', `reaping for ${whose} is on hold until an operator resumes it: ${why}`, {
    ...stateMetadata(lease),
    held: source === '' ? lease.network : source,
  })
}

function seenLive(lease: Lease, { source, owner }: LiveSighting): Refusal {
  const whom = owner === null ? '' : ` for ${describeOwner(owner)}`
  const seen = illegalBecause(lease, `${lease.address} is seen live by ${source}${whom}`)
  return { ...seen, metadata: { ...seen.metadata, seenBy: source } }
}

function changed(lease: Lease, why: string): Refusal {
  return refusal('VERSION_MISMATCH', `lease ${idOf(lease)}: ${why}; judge it anew`, stateMetadata(lease))
}

function refused(reason: Refusal): Verdict {
  return { events: [], refused: reason }
}
