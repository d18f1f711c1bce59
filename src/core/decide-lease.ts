/** Commands about one lease or one address: confirm, release, quarantine, reap, expire, labels. */
import { blockBase, formatValue, isMalformed, parseAddress } from './address.ts'
import {
  type Books,
  bookAt,
  closingsOf,
  cooldownOf,
  fenceOf,
  isSeenSince,
  lastEndingsOf,
  lastRecoveryOf,
  leaseByToken,
  leasesOfAttachment,
  poolAt,
  poolById,
  sightingsAt,
} from './books.ts'
import type {
  Actor,
  Answer,
  Command,
  Confirm,
  Expire,
  LeaseReference,
  LeaseView,
  QuarantineAddress,
  Reap,
  Release,
  UpdateLabels,
} from './command.ts'
import type { Verdict } from './decide.ts'
import { type Draft, number } from './draft.ts'
import type { EndedType, Evidence } from './event.ts'
import { changedAt } from './judge.ts'
import {
  type EndedLease,
  KEEPS_CLOSED,
  type Lease,
  leaseId,
  type Quarantine,
  type QuarantineReason,
} from './lease.ts'
import { type AddressState, stateOf, type Trigger, transition } from './lifecycle.ts'
import { describeOwner, isMistakenFor, type Owner, type Placement, sameAttachment } from './owner.ts'
import { judgePolicy, POLICY } from './policy.ts'
import { contains } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'
import { viewEnded, viewLease } from './view.ts'

export function decideConfirm(books: Books, command: Confirm): Verdict {
  const found = resolve(books, command.lease)
  if ('reason' in found) return refused(found)
  if ('ended' in found) {
    return refused(
      refusal(
        'LEASE_LOST',
        `lease ${idOf(found.ended.lease)} has ended; unconfigure the address`,
        endedMetadata(found.ended),
      ),
    )
  }
  const drafts: Draft[] = []
  const leases = withoutReplaced(found.leases)
  for (const lease of leases) {
    const bad = mayTouch(command.actor, lease) ?? matches(command.lease, lease)
    if (bad !== null) return refused(bad)
    if (lease.state !== 'ACTIVE' && lease.owner !== null && closedIn(books, lease.owner, lease.poolId)) {
      return refused(attachmentClosed(lease.owner, `lease ${idOf(lease)}`))
    }
    const becomes = transition(stateOf(lease), 'CONFIRM')
    if (becomes === undefined) return refused(illegal(lease, 'confirmed'))
    const draft = becomes.to === 'UNCHANGED' ? renewDraft(books, lease) : confirmDraft(lease, books.now, null)
    if (draft !== null) drafts.push(draft)
  }
  if (found.leases.length === 0) {
    const owner = command.lease.owner!
    return refused(
      closedIn(books, owner, null)
        ? attachmentClosed(owner, describeOwner(owner))
        : refusal('LEASE_NOT_FOUND', `${describeOwner(owner)} holds no lease in ${command.network}`, {
            network: command.network,
          }),
    )
  }
  return settle(books, command, drafts, leases)
}

/** An attachment's quarantined lease is no reason against the fresh one it was given in the same pool. */
function withoutReplaced(leases: readonly Lease[]): readonly Lease[] {
  const fresh = new Set(leases.filter((one) => one.state !== 'QUARANTINED').map((one) => one.poolId))
  return leases.filter((one) => one.state !== 'QUARANTINED' || !fresh.has(one.poolId))
}

export function confirmDraft(lease: Lease, now: number, evidence: Evidence | null): Draft {
  return {
    evidence,
    event: (header) => ({
      ...header,
      type: 'lease.confirmed',
      lease: {
        ...lease,
        version: header.seq,
        state: 'ACTIVE',
        quarantine: null,
        confirmedAt: now,
        confirmBy: null,
      },
    }),
  }
}

/**
 * A promise made again is life: whoever is told once more that the lease is his will use the address, and proofs that are
 * under way about it start anew, with its version and its age (2.4). Said again soon it leaves nothing: a storm of retries
 * writes nothing, and is protected by the age; but once after a fence of its boot, which knows no age (6.3). That a source
 * lists it is no protection: it may list the life before, or a boot that is fenced or over, whose leases need no misses to
 * be freed (6.3, 12.2). A deadline has rules of its own. Null: nothing to write.
 */
export function renewDraft(books: Books, lease: Lease): Draft | null {
  if (lease.confirmBy !== null || transition(stateOf(lease), 'RENEW') === undefined) return null
  const { minimumAgeMs } = judgePolicy(poolById(books, lease.poolId).pool.reapPolicy)
  const isYoung = books.now - changedAt(lease) <= minimumAgeMs * POLICY.renewedAfterShare
  if (isYoung && !isFencedSince(books, lease)) return null
  return lease.state === 'ACTIVE'
    ? confirmDraft(lease, books.now, null)
    : updateDraft({ ...lease, reservedAt: books.now })
}

function isFencedSince(books: Books, lease: Lease): boolean {
  const { node, boot } = lease.placement
  const fence = fenceOf(books, node, boot)
  return fence !== null && fence.at >= changedAt(lease)
}

export function decideRelease(books: Books, command: Release): Verdict {
  const reference = command.lease
  if (reference.token === null) {
    const { incarnation } = reference.owner
    // Without it a late call could release what a successor of the same name holds (azure#885).
    if (incarnation === '')
      return refused(invalid('owner.incarnation', 'required to release by owner; or name the lease id'))
    if (reference.owner.interface === '')
      return refused(invalid('owner.interface', 'required to release by owner; or name the lease id'))
  }
  const found = resolve(books, reference)
  if ('reason' in found) return refused(found)
  if (reference.token === null && 'leases' in found && found.leases.length === 0) {
    return releaseNothing(books, command, reference.owner)
  }
  if ('ended' in found) {
    // INV-10: a late or repeated release touches nothing but the lease it names, and that is over.
    const bad = mayTouch(command.actor, found.ended.lease) ?? matches(reference, found.ended.lease)
    if (bad !== null) return refused(bad)
    return {
      events: [],
      answer: { leases: [viewEnded(found.ended, poolOf(books, found.ended.lease.poolId))] },
    }
  }
  const trigger: Trigger = command.removalConfirmed ? 'RELEASE_CONFIRMED' : 'RELEASE_UNCONFIRMED'
  const ends: Draft[] = []
  const stays: Draft[] = []
  for (const lease of found.leases) {
    const bad = mayEnd(books, command.actor, lease) ?? matches(reference, lease)
    if (bad !== null) return refused(bad)
    const state = stateOf(lease)
    const becomes = transition(state, trigger)
    if (becomes === undefined) return refused(illegal(lease, 'released'))
    switch (becomes.to) {
      case 'UNCHANGED':
        continue
      case 'COOLING':
        ends.push(endDraft(lease, 'lease.released', books, { removalConfirmed: true, evidence: null }))
        continue
      case 'RESERVED':
      case 'ACTIVE':
      case 'SAME':
        throw new Error(`a release cannot make a lease ${becomes.to}`)
      default: {
        if ('loses' in becomes) {
          // Held for reasons of its own: without its holder it has nothing more to lose.
          if (lease.owner !== null) stays.push(loseHolderDraft(lease))
          continue
        }
        stays.push(quarantineDraft(lease, becomes.to, command, 'removal was not confirmed', null))
      }
    }
  }
  // What ends stands together in the log, and is found there when the Release is said again.
  const drafts = [...ends, ...stays]
  drafts.push(...closingDrafts(books, reference, found.leases, drafts.length > 0))
  return settle(books, command, drafts, found.leases)
}

/**
 * Release by an owner that holds nothing: said again it answers as the one that ended its leases, and one that
 * overtook its Reserve closes. Long after a release nothing of that life is on its way any more.
 */
function releaseNothing(books: Books, command: Release, owner: Owner): Verdict {
  const ended = lastEndingsOf(books, owner)
  for (const { lease } of ended) {
    const bad = mayTouch(command.actor, lease)
    if (bad !== null) return refused(bad)
  }
  const over =
    ended.length > 0 &&
    ended.every(
      ({ how, endedAt }) => how === 'lease.released' && books.now >= endedAt + POLICY.retryHorizonMs,
    )
  const drafts = over || closedIn(books, owner, null) ? [] : closeDraft(owner, null)
  return {
    events: number(books, command, drafts),
    answer: { leases: ended.map((one) => viewEnded(one, poolOf(books, one.lease.poolId))) },
  }
}

/**
 * Release by owner closes the attachment everywhere, by id or token in that lease's pool (incident 4.2), unless the
 * attachment has a fresh lease there: it lives on, and only what was quarantined is given back. One that changed
 * something closes anew, for a whole horizon: what was closed until now may be so only because of the lease that
 * this release ends.
 */
function closingDrafts(
  books: Books,
  reference: LeaseReference,
  leases: readonly Lease[],
  changed: boolean,
): readonly Draft[] {
  const close = (owner: Owner, poolId: number | null) =>
    changed || !closedIn(books, owner, poolId) ? closeDraft(owner, poolId) : []
  if (reference.token === null) return close(reference.owner, null)
  return leases.flatMap((lease) =>
    lease.owner === null || isReplaced(books, lease, lease.owner) ? [] : close(lease.owner, lease.poolId),
  )
}

/** The attachment was given a fresh lease in the pool where this one is quarantined. */
function isReplaced(books: Books, lease: Lease, owner: Owner): boolean {
  return (
    lease.state === 'QUARANTINED' &&
    leasesOfAttachment(books, owner).some((one) => one.poolId === lease.poolId && one.state !== 'QUARANTINED')
  )
}

/** An owner that names no incarnation has no lives to tell apart and is never closed. */
export function closeDraft(owner: Owner, poolId: number | null): readonly Draft[] {
  if (owner.incarnation === '') return []
  return [{ evidence: null, event: (header) => ({ ...header, type: 'attachment.closed', owner, poolId }) }]
}

export function decideQuarantine(books: Books, command: QuarantineAddress): Verdict {
  let lease: Lease | null
  let address: string
  let poolId: number
  if ('token' in command.target) {
    const found = leaseByToken(books, command.target.token)
    if (found === null) return refused(leaseNotFound(books, command.target.token))
    if ('ended' in found) {
      return refused(
        refusal(
          'LEASE_LOST',
          `lease ${idOf(found.ended.lease)} has ended; quarantine the address ${found.ended.lease.address} instead`,
          endedMetadata(found.ended),
        ),
      )
    }
    ;({ lease } = found)
    ;({ address, poolId } = lease)
  } else {
    const place = placeOf(books, command.target.address, 'address')
    if ('reason' in place) return refused(place)
    ;({ address, poolId } = place)
    lease = bookAt(books, address).lease
  }
  if (lease !== null) {
    const bad = mayTouch(command.actor, lease)
    if (bad !== null) return refused(bad)
    const becomes = transition(stateOf(lease), 'QUARANTINE')
    if (becomes === undefined) return refused(illegal(lease, 'quarantined'))
    if (becomes.to === 'UNCHANGED') return settle(books, command, [], [lease])
    return settle(books, command, [quarantineDraft(lease, 'OPERATOR', command, command.why, null)], [lease])
  }
  const draft = quarantineFreeDraft(books, command, {
    address,
    poolId,
    reason: 'OPERATOR',
    why: command.why,
    evidence: null,
  })
  return settleNew(books, command, draft)
}

export function decideReap(books: Books, command: Reap): Verdict {
  const found = leaseByToken(books, command.token)
  if (found === null) return refused(leaseNotFound(books, command.token))
  if ('ended' in found) {
    return refused(
      refusal('LEASE_LOST', `lease ${idOf(found.ended.lease)} has ended already`, endedMetadata(found.ended)),
    )
  }
  const { lease } = found
  const bad = mayTouch(command.actor, lease) ?? versionMismatch(lease, command.version) ?? recovering(books)
  if (bad !== null) return refused(bad)
  if (transition(stateOf(lease), 'REAP') === undefined) return refused(illegal(lease, 'reaped'))
  const evidence = { reason: 'OPERATOR', why: command.why, version: command.version }
  return settle(
    books,
    command,
    [endDraft(lease, 'lease.reaped', books, { removalConfirmed: false, evidence })],
    [lease],
  )
}

/**
 * Never confirmed by its deadline plus grace (DESIGN §2, the caller's contract). Only a lease that has a deadline
 * can expire, only while RESERVED, and only the version that was judged (W-02).
 */
export function decideExpire(books: Books, command: Expire): Verdict {
  const found = leaseByToken(books, command.token)
  if (found === null) return refused(leaseNotFound(books, command.token))
  if ('ended' in found) {
    return refused(
      refusal('LEASE_LOST', `lease ${idOf(found.ended.lease)} has ended already`, endedMetadata(found.ended)),
    )
  }
  const { lease } = found
  const stale = versionMismatch(lease, command.version) ?? recovering(books)
  if (stale !== null) return refused(stale)
  if (transition(stateOf(lease), 'EXPIRE') === undefined) return refused(illegal(lease, 'expired'))
  if (lease.confirmBy === null) {
    return refused(
      refusal(
        'ILLEGAL_STATE',
        `lease ${idOf(lease)} has no deadline and never expires`,
        stateMetadata(lease),
      ),
    )
  }
  const seen = seenSinceReserved(books, lease)
  if (seen !== null) return refused(seen)
  const { confirmGraceMs: graceMs } = judgePolicy(poolById(books, lease.poolId).pool.reapPolicy)
  const due = lease.confirmBy + graceMs
  if (books.now <= due) {
    return refused(
      refusal(
        'ILLEGAL_STATE',
        `lease ${idOf(lease)} may still be confirmed`,
        stateMetadata(lease),
        due - books.now + 1,
      ),
    )
  }
  // Told in the books that were lost that it is his, its caller uses it: only proof of absence ends it (INV-24, 12.4).
  if (lease.fencingToken < lastRecoveryOf(books)) {
    return refused(
      illegalBecause(
        lease,
        `lease ${idOf(lease)} was reserved before the last recovery, and its Confirm may be lost; its deadline ends it no more`,
      ),
    )
  }
  const evidence = {
    reason: 'NEVER_CONFIRMED',
    confirmBy: new Date(lease.confirmBy).toISOString(),
    graceMs,
    version: command.version,
  }
  return settle(
    books,
    command,
    [endDraft(lease, 'lease.reaped', books, { removalConfirmed: false, evidence })],
    [lease],
  )
}

/** Whoever saw it, and be it a source in dry run, keeps it: only what was never sighted expires (2.1, DESIGN §3). */
function seenSinceReserved(books: Books, lease: Lease): Refusal | null {
  const sightings = sightingsAt(books, lease.address, lease.prefixLength)
  if (
    !isSeenSince(sightings, lease.fencingToken) &&
    (sightings.lastSeenAt === null || sightings.lastSeenAt <= lease.reservedAt)
  )
    return null
  const by = sightings.live.map(({ source }) => source).join(', ')
  return refusal(
    'ILLEGAL_STATE',
    `lease ${idOf(lease)} has been seen live since it was reserved; only proof of absence ends it`,
    { ...stateMetadata(lease), seenBy: by },
  )
}

export function decideUpdateLabels(books: Books, command: UpdateLabels): Verdict {
  const found = leaseByToken(books, command.token)
  if (found === null) return refused(leaseNotFound(books, command.token))
  if ('ended' in found) {
    return refused(
      refusal('LEASE_LOST', `lease ${idOf(found.ended.lease)} has ended`, endedMetadata(found.ended)),
    )
  }
  const { lease } = found
  const bad = mayTouch(command.actor, lease)
  if (bad !== null) return refused(bad)
  const stale = command.version === null ? null : versionMismatch(lease, command.version)
  if (stale !== null) return refused(stale)
  if (transition(stateOf(lease), 'UPDATE_LABELS') === undefined) return refused(illegal(lease, 'labelled'))
  if (sameLabels(lease.placement.labels, command.labels)) return settle(books, command, [], [lease])
  const placement = { ...lease.placement, labels: command.labels }
  return settle(books, command, [updateDraft({ ...lease, placement })], [lease])
}

function sameLabels(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a)
  return (
    keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key])
  )
}

// Drafts that Reserve uses as well.

export function updateDraft(lease: Lease, evidence: Evidence | null = null): Draft {
  return {
    evidence,
    event: (header) => ({ ...header, type: 'lease.updated', lease: { ...lease, version: header.seq } }),
  }
}

export function endDraft(
  lease: Lease,
  type: EndedType,
  books: Books,
  how: { readonly removalConfirmed: boolean; readonly evidence: Evidence | null },
): Draft {
  const cooldownMs = cooldownOf(books, poolById(books, lease.poolId).pool)
  return {
    evidence: how.evidence,
    event: (header) => ({
      ...header,
      type,
      ended: {
        lease: { ...lease, version: header.seq },
        how: type,
        seq: header.seq,
        endedAt: header.at,
        availableAt: header.at + cooldownMs,
        removalConfirmed: how.removalConfirmed,
      },
    }),
  }
}

export function quarantineDraft(
  lease: Lease,
  reason: QuarantineReason,
  command: Command,
  why: string,
  evidence: Evidence | null,
  by: string = command.actor.name,
): Draft {
  return {
    evidence,
    event: (header) => ({
      ...header,
      type: 'lease.quarantined',
      lease: {
        ...lease,
        version: header.seq,
        state: 'QUARANTINED',
        quarantine: { reason, at: header.at, by, why },
        confirmBy: null,
      },
    }),
  }
}

function loseHolderDraft(lease: Lease): Draft {
  return {
    evidence: { releasedBy: lease.owner === null ? '' : describeOwner(lease.owner) },
    event: (header) => ({
      ...header,
      type: 'lease.quarantined',
      lease: { ...lease, version: header.seq, owner: null },
    }),
  }
}

/** A quarantine of an address nobody holds: a lease without an owner, unless it is known who is there. */
export function quarantineFreeDraft(
  books: Books,
  command: Command,
  at: {
    readonly address: string
    readonly poolId: number
    readonly reason: QuarantineReason
    readonly why: string
    readonly evidence: Evidence | null
    readonly by?: string
    readonly owner?: Owner | null
    readonly placement?: Placement
  },
): Draft {
  const { prefixLength } = poolById(books, at.poolId).pool
  const { reason, why, by = command.actor.name } = at
  return {
    evidence: at.evidence,
    event: (header) => {
      const quarantine: Quarantine = { reason, at: header.at, by, why }
      return {
        ...header,
        type: 'lease.quarantined',
        lease: {
          network: header.network,
          poolId: at.poolId,
          address: at.address,
          prefixLength,
          fencingToken: header.seq,
          version: header.seq,
          state: 'QUARANTINED',
          quarantine,
          owner: at.owner ?? null,
          placement: at.placement ?? { node: '', boot: '', labels: {} },
          witness: '',
          reservedAt: header.at,
          confirmedAt: null,
          confirmBy: null,
        },
      }
    },
  }
}

// Questions about the books.

/** The attachment is closed here: within the retry horizon, or while a superseded or unremoved lease of it stands. */
export function closedIn(books: Books, owner: Owner, poolId: number | null): boolean {
  if (owner.incarnation === '') return false
  const closings = closingsOf(books, owner)
  const applying = closings.filter((one) => one.poolId === null || one.poolId === poolId)
  if (applying.length === 0) return false
  if (applying.some((one) => books.now < one.closedAt + POLICY.retryHorizonMs)) return true
  return leasesOfAttachment(books, owner).some(
    ({ quarantine }) => quarantine !== null && KEEPS_CLOSED.includes(quarantine.reason),
  )
}

type Resolved = { readonly leases: readonly Lease[] } | { readonly ended: EndedLease } | Refusal

function resolve(books: Books, reference: LeaseReference): Resolved {
  if (reference.token === null) return { leases: leasesOfAttachment(books, reference.owner) }
  const found = leaseByToken(books, reference.token)
  if (found === null) return leaseNotFound(books, reference.token)
  return 'ended' in found ? found : { leases: [found.lease] }
}

/** Canonical address of the lease that covers `text`, and its pool; or why there can be none. */
function placeOf(
  books: Books,
  text: string,
  field: string,
): { readonly address: string; readonly poolId: number } | Refusal {
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) return invalid(field, parsed.malformed)
  const book = poolAt(books, formatValue(parsed.family, parsed.value))
  if (book === null) return invalid(field, `${text} is in no pool of network ${books.networkName}`)
  const { pool } = book
  const base = blockBase(pool.family, parsed.value, pool.prefixLength)
  const address = formatValue(pool.family, base)
  if (!contains(pool.allocatable, base)) {
    return refusal('ADDRESS_EXCLUDED', `${address} is excluded from pool ${pool.name} and never handed out`, {
      address,
      pool: pool.name,
    })
  }
  return { address, poolId: pool.poolId }
}

/** A token bound to a node acts for that node's leases only: those placed there, and those asked for there since. */
export function mayTouch(actor: Actor, lease: Lease): Refusal | null {
  if (actor.node === null || lease.placement.node === actor.node) return null
  if (lease.askedFrom?.includes(actor.node)) return null
  return refusal(
    'PERMISSION_DENIED',
    `this token is bound to node ${actor.node}, lease ${idOf(lease)} is on another`,
    {
      node: actor.node,
    },
  )
}

/**
 * A node speaks for itself. Of a lease that was asked for elsewhere since, the node it was placed on says no more than that
 * it is not there, as its source would, and the workload may be starting on the other (16.5). The one that asked may end it,
 * where nobody else has asked and nobody sees it on another node; after that only a token of no node.
 */
export function mayEnd(books: Books, actor: Actor, lease: Lease): Refusal | null {
  const bad = mayTouch(actor, lease)
  const { askedFrom = [] } = lease
  if (bad !== null || actor.node === null || askedFrom.length === 0) return bad
  const metadata = { ...stateMetadata(lease), node: actor.node, askedFrom: askedFrom.join(', ') }
  const remedy = "an orchestrator's token ends it"
  if (askedFrom.length > 1 || askedFrom[0] !== actor.node) {
    const who = askedFrom.length > 1 ? '' : ` a token of ${askedFrom[0]} or`
    const message = `lease ${idOf(lease)} was asked for from ${askedFrom.join(', ')} since; that it is not on node ${actor.node} ends nothing:${who} ${remedy}`
    return refusal('ILLEGAL_STATE', message, metadata)
  }
  const { live } = sightingsAt(books, lease.address, lease.prefixLength)
  const seen = live.find(({ node }) => node !== '' && node !== actor.node)
  if (seen === undefined) return null
  const message = `lease ${idOf(lease)} is seen live on ${seen.node} by ${seen.source}, and node ${actor.node} speaks for itself: nothing has ended; ${remedy}, or wait until it is not seen there`
  return refusal('ILLEGAL_STATE', message, { ...metadata, seenBy: seen.source })
}

function matches(reference: LeaseReference, lease: Lease): Refusal | null {
  if (reference.token === null) return mistaken(reference.owner, lease)
  if (reference.owner === null) return null
  if (lease.owner !== null && sameAttachment(reference.owner, lease.owner)) return null
  return illegalBecause(
    lease,
    `lease ${idOf(lease)} is held by ${lease.owner === null ? 'nobody' : describeOwner(lease.owner)}, not by ${describeOwner(reference.owner)}`,
  )
}

/** The uid of one workload may be the name of another, of which no uid is known: nobody is told another's lease. */
export function mistaken(owner: Owner, lease: Lease): Refusal | null {
  const { owner: holder } = lease
  if (holder === null || !isMistakenFor(holder, owner)) return null
  const [named, other] = holder.uidNamed ? [holder, owner] : [owner, holder]
  return illegalBecause(
    lease,
    `${lease.address} is held by ${describeOwner(holder)}: the uid of ${named.name} is the name of ${other.name}, which has none; give it a uid, or name the lease id`,
  )
}

export function versionMismatch(lease: Lease, version: number): Refusal | null {
  if (lease.version === version) return null
  return refusal(
    'VERSION_MISMATCH',
    `lease ${idOf(lease)} is at version ${lease.version}, not ${version}; read it again and decide anew`,
    { leaseId: idOf(lease), version: String(lease.version), expected: String(version) },
  )
}

/**
 * After a restore the books may be older than the world, and whoever confirmed since is unknown to them
 * (calico#4374); while they are being replaced, a row may be wrong.
 */
export function recovering(books: Books): Refusal | null {
  const { network, state } = books.network!
  if (state === 'READY') return null
  return refusal(
    'NETWORK_RECOVERING',
    `network ${network} is ${state}; nothing is reaped until its books are trusted again`,
    { network, state },
    1_000,
  )
}

export function attachmentClosed(owner: Owner, what: string): Refusal {
  return refusal(
    'ATTACHMENT_CLOSED',
    `${what}: this incarnation was released or superseded; a call that was overtaken by it holds nothing`,
    { owner: describeOwner(owner) },
  )
}

export function illegal(lease: Lease, participle: string): Refusal {
  const state: AddressState = stateOf(lease)
  return illegalBecause(lease, `lease ${idOf(lease)} is ${state} and cannot be ${participle}`)
}

export function illegalBecause(lease: Lease, message: string): Refusal {
  return refusal('ILLEGAL_STATE', message, stateMetadata(lease))
}

/** A number beyond the head was given out by a later life of this ledger: its books may be restored ones (12.1). */
export function leaseNotFound(books: Books, token: number): Refusal {
  const id = leaseId(books.networkName, token)
  if (token > books.head) {
    return refusal(
      'VERSION_MISMATCH',
      `lease ${id} is beyond this ledger's last number ${books.head}; if it was ever answered, the database is an older copy`,
      { leaseId: id, beyondHead: String(books.head) },
    )
  }
  return refusal('LEASE_NOT_FOUND', `there never was a lease ${id}`, { leaseId: id })
}

export function idOf(lease: Lease): string {
  return leaseId(lease.network, lease.fencingToken)
}

export function stateMetadata(lease: Lease): Record<string, string> {
  return {
    leaseId: idOf(lease),
    address: lease.address,
    state: lease.state,
    ...(lease.quarantine === null ? {} : { quarantineReason: lease.quarantine.reason }),
    ...(lease.owner === null ? {} : { holder: describeOwner(lease.owner) }),
  }
}

export function endedMetadata(ended: EndedLease): Record<string, string> {
  return {
    leaseId: idOf(ended.lease),
    address: ended.lease.address,
    state: ended.how === 'lease.released' ? 'RELEASED' : 'REAPED',
    endedAt: new Date(ended.endedAt).toISOString(),
  }
}

// Endings.

function refused(reason: Refusal): Verdict {
  return { events: [], refused: reason }
}

/** Numbers the drafts and answers with the named leases as they are afterwards. */
export function settle(
  books: Books,
  command: Command,
  drafts: readonly Draft[],
  leases: readonly Lease[],
): Verdict {
  const events = number(books, command, drafts)
  const answers = new Map<string, LeaseView>(
    leases.map((lease) => [lease.address, viewLease(lease, poolById(books, lease.poolId).pool)]),
  )
  for (const event of events) {
    if ('lease' in event)
      answers.set(event.lease.address, viewLease(event.lease, poolById(books, event.lease.poolId).pool))
    if ('ended' in event)
      answers.set(
        event.ended.lease.address,
        viewEnded(event.ended, poolById(books, event.ended.lease.poolId).pool),
      )
  }
  const answer: Answer = { leases: [...answers.values()] }
  return { events, answer }
}

function settleNew(books: Books, command: Command, draft: Draft): Verdict {
  return settle(books, command, [draft], [])
}

function poolOf(books: Books, poolId: number) {
  return books.pools.get(poolId)?.pool ?? null
}
