/**
 * What follows at once from what a source lists (DESIGN §3, §4): reservations are confirmed, live addresses that the
 * books have as free are adopted or set aside, and those held for somebody else are conflicts. A sighting only ever
 * keeps an address; taking one back is `decide-proven.ts`.
 *
 * An entry counts only while its source still lists it, and only against books no younger than the evidence: whatever
 * happened to the address since the snapshot was begun wins, and the next snapshot is waited for (whereabouts#208). So
 * a job that was paused in the middle, or runs twice, does nothing wrong and nothing twice.
 */
import { blockBase, formatValue, isMalformed, maxPrefix, parseAddress } from './address.ts'
import {
  type AddressBook,
  type Books,
  bookAt,
  closedLivesOf,
  closingsOf,
  fenceOf,
  forkBooks,
  isBeforeFence,
  type LiveSighting,
  leasesOfAttachment,
  leasesOfHolder,
  type PoolBook,
  poolAt,
  poolById,
  quarantinesOfSource,
  readTogether,
  sightingsAt,
  sourceNamed,
} from './books.ts'
import type { Finding, Sight, SightedEntry } from './command.ts'
import { TERMINAL } from './command.ts'
import type { Verdict } from './decide.ts'
import { closedIn, confirmDraft, quarantineDraft, quarantineFreeDraft } from './decide-lease.ts'
import { type Draft, number } from './draft.ts'
import type { Evidence, LedgerEvent } from './event.ts'
import { evolve } from './evolve.ts'
import { isSameWorkload } from './judge.ts'
import type { Lease, QuarantineReason } from './lease.ts'
import { stateOf, type Trigger, transition } from './lifecycle.ts'
import { describeOwner, type Owner, type Placement } from './owner.ts'
import { eraOf, POLICY } from './policy.ts'
import { type Pool, quarantineCap } from './pool.ts'
import { contains } from './ranges.ts'
import { type Refusal, refusal } from './refusal.ts'
import { viewLease } from './view.ts'

type Because = Finding['because']
/** What an entry comes to, and the event that makes it so. */
type Outcome = { readonly because: Because; readonly draft: Draft | null }

export function decideSight(books: Books, command: Sight): Verdict {
  const stale = unusable(books, command)
  if (stale !== null) return { events: [], refused: stale }
  const source = sourceNamed(books, command.source)!
  // Of one in dry run the findings change nothing.
  const dry = command.dryRun || source.state !== 'ENABLED'
  readTogether(command.entries, (entry) => outcomeOf(books, command, entry))
  // One entry sees what the one before it came to.
  const trial = forkBooks(books)
  const events: LedgerEvent[] = []
  const findings: Finding[] = []
  for (const entry of command.entries) {
    const { because, draft } = outcomeOf(trial, command, entry)
    findings.push({ address: entry.address, because })
    if (draft === null) continue
    for (const event of number(trial, command, [draft])) {
      evolve(trial, event)
      events.push(event)
    }
  }
  if (dry) return { events: [], answer: { leases: [], findings } }
  const leases = events.flatMap((event) =>
    'lease' in event ? [viewLease(event.lease, poolById(books, event.lease.poolId).pool)] : [],
  )
  return { events, answer: { leases, findings } }
}

/** A life of a source that is closed says nothing any more. */
function unusable(books: Books, command: Sight): Refusal | null {
  const source = sourceNamed(books, command.source)
  if (source === null) {
    return refusal('SOURCE_NOT_FOUND', `there is no source ${command.source} in network ${command.network}`, {
      source: command.source,
    })
  }
  if (source.epoch !== command.epoch) {
    return refusal(
      'VERSION_MISMATCH',
      `source ${command.source} is in epoch ${source.epoch}, the snapshot is of ${command.epoch}; wait for the next one`,
      { source: command.source, epoch: source.epoch, expected: command.epoch },
    )
  }
  return null
}

function outcomeOf(books: Books, command: Sight, entry: SightedEntry): Outcome {
  if (entry.state === TERMINAL) return nothing('TERMINAL')
  const book = poolAt(books, entry.address)
  if (book === null) return nothing('OUTSIDE')
  const { pool } = book
  const address = leaseAddress(pool, entry.address)
  if (!contains(pool.allocatable, address.value)) return nothing('EXCLUDED')
  if (books.setAside.has(address.text)) return nothing('SET_ASIDE')
  const listed = listedNow(books, command, pool, address.text, entry)
  if (listed === undefined) return nothing('LISTED_NO_MORE')
  const { head } = listed
  if (head === null) return nothing('NOT_PROVEN')
  const standing = bookAt(books, address.text)
  // What an earlier era saw, it saw of other books.
  if (eraOf(head) !== books.network!.era || head < lastEventOf(standing))
    return nothing('OLDER_THAN_THE_BOOKS')
  return standing.lease === null
    ? seenFree(books, command, book, { entry, address: address.text, head })
    : seenHeld(books, command, book, { entry, lease: standing.lease, head })
}

function nothing(because: Because): Outcome {
  return { because, draft: null }
}

/** A lease of the pool begins here; an entry inside a delegated block is a sighting of the block. */
function leaseAddress(pool: Pool, text: string): { readonly value: bigint; readonly text: string } {
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) throw new Error(`${text} was canonical when it was reported: ${parsed.malformed}`)
  const value = blockBase(pool.family, parsed.value, pool.prefixLength)
  return { value, text: formatValue(pool.family, value) }
}

/** What a job brings was read before the lock; what the source lists is read under it. */
function listedNow(
  books: Books,
  command: Sight,
  pool: Pool,
  address: string,
  entry: SightedEntry,
): LiveSighting | undefined {
  return sightingsAt(books, address, pool.prefixLength).live.find(
    (seen) =>
      seen.source === command.source &&
      seen.address === entry.address &&
      seen.node === entry.node &&
      seen.boot === entry.boot &&
      isSameEntry(seen.owner, entry.owner),
  )
}

function isSameEntry(a: Owner | null, b: Owner | null): boolean {
  if (a === null || b === null) return a === b
  return (
    a.kind === b.kind &&
    a.name === b.name &&
    a.uid === b.uid &&
    a.incarnation === b.incarnation &&
    a.interface === b.interface
  )
}

function lastEventOf({ lease, released }: AddressBook): number {
  return lease?.version ?? released?.releasedSeq ?? 0
}

// Held addresses.

function seenHeld(
  books: Books,
  command: Sight,
  book: PoolBook,
  at: { readonly entry: SightedEntry; readonly lease: Lease; readonly head: number },
): Outcome {
  const { entry, lease } = at
  const becomes = transition(stateOf(lease), seenFor(book.pool, lease, entry))
  if (becomes === undefined || becomes.to === 'UNCHANGED') return nothing('AS_BOOKED')
  if (becomes.to === 'ACTIVE') {
    // Confirmed on it, the lease would contradict for ever what was said of that boot since (6.3).
    const fence = fenceOf(books, entry.node, entry.boot)
    if (fence !== null && isBeforeFence(fence, at.head)) return nothing('FENCED')
    return { because: 'CONFIRMED', draft: confirmDraft(lease, books.now, evidenceOf(command, at)) }
  }
  if (isCapped(books, command, book)) return nothing('CAPPED')
  const evidence = { ...evidenceOf(command, at), holder: lease.owner }
  const why = `seen live for ${describeSeen(entry)} by ${command.source}`
  return {
    because: 'CONFLICT',
    draft: quarantineDraft(lease, 'CONFLICT', command, why, evidence, command.source),
  }
}

/**
 * Whose life an entry is evidence of. What it does not tell is not held against anybody: without an identity that both
 * name, it is somebody's. A block's holder gives its addresses to whom it likes, on its own node.
 */
export function seenFor(
  pool: Pick<Pool, 'family' | 'prefixLength'>,
  lease: Lease,
  { owner, node }: Pick<SightedEntry, 'owner' | 'node'>,
): Trigger {
  const known = lease.owner !== null && owner !== null ? compare(lease.owner, owner) : 'UNKNOWN'
  if (known === 'SAME') return 'SIGHTED'
  if (isBlock(pool)) {
    const elsewhere = lease.placement.node !== '' && node !== '' && !mayBeOn(lease, node)
    return known === 'OTHER' && elsewhere ? 'SIGHTED_FOR_ANOTHER' : 'SIGHTED'
  }
  return known === 'OTHER' ? 'SIGHTED_FOR_ANOTHER' : 'SIGHTED_FOR_UNKNOWN'
}

/** Where it was placed, and where it was asked for since (16.5). */
export function mayBeOn({ placement, askedFrom = [] }: Lease, node: string): boolean {
  return placement.node === node || askedFrom.includes(node)
}

function isBlock({ family, prefixLength }: Pick<Pool, 'family' | 'prefixLength'>): boolean {
  return prefixLength < maxPrefix(family)
}

function compare(holder: Owner, seen: Owner): 'SAME' | 'OTHER' | 'UNKNOWN' {
  if (isSameWorkload(holder, seen)) return 'SAME'
  if (holder.kind !== seen.kind || (holder.uidNamed && seen.uidNamed)) return 'OTHER'
  return isNamed(holder) && isNamed(seen) && holder.name !== seen.name ? 'OTHER' : 'UNKNOWN'
}

/** Of two owners one of whom names no uid, names tell; and a name that repeats the uid was not named. */
function isNamed({ name, uid, uidNamed }: Owner): boolean {
  return !uidNamed || name !== uid
}

// Free addresses.

type SeenFree = { readonly entry: SightedEntry; readonly address: string; readonly head: number }

function seenFree(books: Books, command: Sight, book: PoolBook, at: SeenFree): Outcome {
  const { entry } = at
  const { owner, node, boot } = entry
  const fence = fenceOf(books, node, boot)
  if (fence !== null && isBeforeFence(fence, at.head)) return nothing('FENCED')
  // Whoever is inside a block is a guest of whom it was given to: the block is not his to keep, to release, or to miss
  // alone (12.1). Entries name single addresses, so that none can say that it means the block.
  if (isBlock(book.pool)) {
    return setAside(books, command, book, at, {
      trigger: 'SIGHTED_FOR_UNKNOWN',
      owner: null,
      why: `${describeSeen(entry)} at ${entry.address}, inside a block that nobody holds`,
    })
  }
  // Known is who can be asked after: (kind, uid), both named.
  if (owner === null || !owner.uidNamed) {
    return setAside(books, command, book, at, {
      trigger: 'SIGHTED_FOR_UNKNOWN',
      owner: null,
      why: 'nobody known',
    })
  }
  const named = { ...owner, interface: owner.interface === '' ? `?${at.address}` : owner.interface }
  if (fence !== null) {
    const why = `${describeSeen(entry)} on ${node}, which ${fence.by} fenced: ${fence.why}`
    return setAside(books, command, book, at, { trigger: 'SIGHTED_RELEASED', owner: named, why })
  }
  const closed = closedLife(books, owner, book.pool)
  if (closed !== undefined) {
    const why = `${describeSeen(entry)}, which was released or superseded`
    return setAside(books, command, book, at, { trigger: 'SIGHTED_RELEASED', owner: closed, why })
  }
  const other = owner.interface === '' ? undefined : leaseHere(books, owner, book.pool)
  if (other !== undefined) {
    const why = `${describeSeen(entry)}, which holds ${other.address}`
    return setAside(books, command, book, at, { trigger: 'SIGHTED_AGAIN', owner: named, why })
  }
  return adopt(command, book, at, named, stateOfFree(books, at.address))
}

/** Of the lives that it may be and that are closed here, the one that was closed last. */
function closedLife(books: Books, owner: Owner, { poolId }: Pool): Owner | undefined {
  const closedAt = (life: Owner) => Math.max(...closingsOf(books, life).map(({ closedSeq }) => closedSeq))
  return closedLivesOf(books, owner)
    .filter((life) => mayBe(life, owner) && closedIn(books, life, poolId))
    .sort((a, b) => closedAt(b) - closedAt(a))[0]
}

/** The closed life is the one that is seen, as far as the entry tells lives and interfaces. */
function mayBe(life: Owner, seen: Owner): boolean {
  return (
    (seen.incarnation === '' || seen.incarnation === life.incarnation) &&
    (seen.interface === '' || seen.interface === life.interface)
  )
}

/** A lease the workload has on that interface in the pool, in whichever of its lives and state. */
function leaseHere(books: Books, owner: Owner, pool: Pool): Lease | undefined {
  return [...leasesOfHolder(books, owner), ...leasesOfAttachment(books, owner)].find(
    (lease) =>
      lease.poolId === pool.poolId &&
      lease.owner!.interface === owner.interface &&
      isSameWorkload(lease.owner!, owner),
  )
}

function stateOfFree(books: Books, address: string): 'FREE' | 'COOLING' {
  const { released } = bookAt(books, address)
  return released !== null && released.availableAt > books.now ? 'COOLING' : 'FREE'
}

function adopt(
  command: Sight,
  book: PoolBook,
  at: SeenFree,
  owner: Owner,
  state: 'FREE' | 'COOLING',
): Outcome {
  if (transition(state, 'SIGHTED') === undefined) return nothing('AS_BOOKED')
  const { pool } = book
  return {
    because: 'ADOPTED',
    draft: {
      evidence: evidenceOf(command, at),
      event: (header) => ({
        ...header,
        type: 'lease.adopted',
        lease: {
          network: header.network,
          poolId: pool.poolId,
          address: at.address,
          prefixLength: pool.prefixLength,
          fencingToken: header.seq,
          version: header.seq,
          state: 'ACTIVE',
          quarantine: null,
          owner,
          placement: placementOf(at.entry),
          witness: '',
          reservedAt: header.at,
          confirmedAt: header.at,
          confirmBy: null,
        },
      }),
    },
  }
}

function setAside(
  books: Books,
  command: Sight,
  book: PoolBook,
  at: SeenFree,
  as: { readonly trigger: Trigger; readonly owner: Owner | null; readonly why: string },
): Outcome {
  const becomes = transition(stateOfFree(books, at.address), as.trigger)
  if (becomes === undefined || becomes.to === 'UNCHANGED') return nothing('AS_BOOKED')
  if (isCapped(books, command, book)) return nothing('CAPPED')
  const reason = becomes.to as QuarantineReason
  const draft = quarantineFreeDraft(books, command, {
    address: at.address,
    poolId: book.pool.poolId,
    reason,
    why: `${command.source} sees ${as.why}`,
    evidence: evidenceOf(command, at),
    by: command.source,
    owner: as.owner,
    placement: placementOf(at.entry),
  })
  return { because: reason, draft }
}

/** One source that cries wolf must not drain a pool, nor many of them (opnsense#10285). */
function isCapped(books: Books, command: Sight, book: PoolBook): boolean {
  return (
    quarantinesOfSource(books, command.source) >= POLICY.quarantinesPerSource ||
    book.counts.quarantined >= quarantineCap(book.pool)
  )
}

// What is written down.

function placementOf({ node, boot }: SightedEntry): Placement {
  return { node, boot, labels: {} }
}

function describeSeen({ owner, address }: SightedEntry): string {
  return owner === null ? `somebody at ${address}` : describeOwner(owner)
}

function evidenceOf(
  command: Sight,
  { entry, head }: { readonly entry: SightedEntry; readonly head: number },
): Evidence {
  const { address, owner, node, boot, state } = entry
  return {
    source: command.source,
    epoch: command.epoch,
    // Of the snapshot the job read; the evidence is as new as what the source lists now.
    sequence: command.sequence,
    begunAt: new Date(command.begunAt).toISOString(),
    head,
    seen: { address, owner, node, boot, state },
  }
}
