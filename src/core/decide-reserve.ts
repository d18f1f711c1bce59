/**
 * Reserve (DESIGN §2 "Retries", "The caller's contract", §3). In order: may this attachment reserve at all; what
 * it already holds; whom it supersedes; whether its holder is within the limit; then an address for each claim
 * that is not met yet. Nothing is left behind by a refused Reserve except quarantines of addresses its caller
 * sees live: the caller has nothing to clean up (M-10, INV-15).
 */
import { blockBase, formatValue, isBlockBase, isMalformed, maxPrefix, parseAddress } from './address.ts'
import {
  type AddressBook,
  type Books,
  bookAt,
  candidates,
  cooldownOf,
  defaultPools,
  isItself,
  isRefuted,
  type LiveSighting,
  lastHolderOf,
  leasesOfAttachment,
  leasesOfHolder,
  nextCooledAt,
  type PoolBook,
  poolAt,
  poolById,
  poolNamed,
  previousAddresses,
  quarantinesCausedBy,
  type ReleasedAddress,
  sightingsAt,
  strictnessFor,
  unobservedIn,
} from './books.ts'
import type { Claim, LeaseView, Reserve, Supersedes } from './command.ts'
import type { Verdict } from './decide.ts'
import {
  attachmentClosed,
  closeDraft,
  closedIn,
  confirmDraft,
  endDraft,
  idOf,
  illegalBecause,
  mayEnd,
  mayTouch,
  mistaken,
  quarantineDraft,
  quarantineFreeDraft,
  renewDraft,
  updateDraft,
} from './decide-lease.ts'
import { type Draft, number } from './draft.ts'
import type { Evidence } from './event.ts'
import type { Lease } from './lease.ts'
import { stateOf, type Trigger, transition } from './lifecycle.ts'
import { attachmentKey, describeOwner, holderKey, sameAttachment } from './owner.ts'
import { POLICY } from './policy.ts'
import { type Pool, quarantineCap } from './pool.ts'
import { contains } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'
import { viewLease } from './view.ts'

/** A claim with its pools found, and what met it. */
type OpenClaim = {
  readonly path: string
  readonly claim: Claim
  readonly books: readonly PoolBook[]
  /** Canonical address asked for, and the pool it lies in. */
  readonly named: { readonly address: string; readonly pool: PoolBook } | null
}

type Succession = {
  readonly drafts: readonly Draft[]
  /** Addresses the predecessor let go of with confirmed removal: the newcomer may have them at once. */
  readonly released: ReadonlyMap<string, Lease>
}

type Picked = { readonly address: string; readonly pool: PoolBook; readonly evidence: Evidence | null }

/** What one Reserve has set aside or taken while it picks. */
type Picking = {
  readonly taken: Set<string>
  readonly live: ReadonlySet<string>
  /** The same as leases of a pool, by pool. */
  readonly liveIn: Map<number, ReadonlySet<string>>
  readonly quarantines: { readonly address: string; readonly draft: Draft }[]
  readonly quarantinedIn: Map<number, number>
  skips: number
}

export function decideReserve(books: Books, command: Reserve): Verdict {
  const { owner } = command
  const closed = notOpen(books)
  if (closed !== null) return refused(closed)
  const claims = openClaims(books, command)
  if ('reason' in claims) return refused(claims)

  const own = leasesOfAttachment(books, owner)
  for (const { books: pools } of claims) {
    for (const { pool } of pools) {
      if (!command.reopen && closedIn(books, owner, pool.poolId)) {
        return refused(attachmentClosed(owner, describeOwner(owner)))
      }
    }
  }

  const met = new Map<OpenClaim, Lease>()
  for (const open of claims) {
    const lease = own.find(
      (one) => one.state !== 'QUARANTINED' && open.books.some(({ pool }) => pool.poolId === one.poolId),
    )
    if (lease === undefined) continue
    const bad = mistaken(owner, lease)
    if (bad !== null) return refused(bad)
    if (open.named !== null && open.named.address !== lease.address) {
      return refused(
        illegalBecause(
          lease,
          `${open.path}.address: ${describeOwner(owner)} holds ${lease.address} already; release it to have ${open.named.address}`,
        ),
      )
    }
    met.set(open, lease)
  }

  const unmet = claims.filter((open) => !met.has(open))
  const succession = supersede(books, command, unmet.length > 0)
  if ('reason' in succession) return refused(succession)

  const picking: Picking = {
    taken: new Set(),
    live: new Set(command.liveAddresses),
    liveIn: new Map(),
    quarantines: [],
    quarantinedIn: new Map(),
    skips: 0,
  }
  const picked = new Map<OpenClaim, Picked>()
  for (const open of unmet) {
    const pick = pickFor(books, command, open, succession, picking)
    if ('reason' in pick) {
      // Where a refused Reserve supersedes nothing, its predecessor's lease stands.
      const left = picking.quarantines.filter(({ address }) => !succession.released.has(address))
      return {
        events: command.validateOnly ? [] : number(books, command, draftsOf(left)),
        refused: pick,
      }
    }
    picking.taken.add(pick.address)
    picked.set(open, pick)
  }

  const drafts: Draft[] = [...succession.drafts, ...draftsOf(picking.quarantines)]
  const made = claims.map((open) => {
    const lease = met.get(open)
    if (lease !== undefined) return reuse(books, command, lease)
    const pick = picked.get(open)!
    const draft = reserveDraft(books, command, pick)
    return { address: pick.address, pool: pick.pool, drafts: [draft], lease: null }
  })
  for (const one of made) drafts.push(...one.drafts)
  const events = number(books, command, drafts)

  const views = made.map((one): LeaseView => {
    const event = events.findLast(
      (candidate) => 'lease' in candidate && candidate.lease.address === one.address,
    )
    const lease = event !== undefined && 'lease' in event ? event.lease : one.lease!
    const view = viewLease(lease, one.pool.pool, one.lease !== null)
    if (!command.validateOnly) return view
    // A dry run promises nothing that could be quoted later.
    return one.lease === null
      ? { ...view, leaseId: '', version: 0, fencingToken: 0 }
      : { ...view, version: one.lease.version }
  })
  return { events: command.validateOnly ? [] : events, answer: { leases: views } }
}

function draftsOf(quarantines: Picking['quarantines']): readonly Draft[] {
  return quarantines.map(({ draft }) => draft)
}

function refused(reason: Refusal): Verdict {
  return { events: [], refused: reason }
}

/** Finds the pools of each claim; without claims, the one default pool of each family. */
function openClaims(books: Books, command: Reserve): readonly OpenClaim[] | Refusal {
  if (command.claims.length === 0) {
    const defaults = defaultPools(books)
    for (const family of [4, 6] as const) {
      const names = defaults.filter(({ pool }) => pool.family === family).map(({ pool }) => pool.name)
      if (names.length > 1) {
        return invalid('claims', `required: IPv${family} has several default pools (${names.join(', ')})`)
      }
    }
    if (defaults.length === 0) {
      return invalid('claims', `required: network ${command.network} has no default pool`)
    }
    return defaults.map((book, index) => ({
      path: `claims[${index}]`,
      claim: { pools: [book.pool.name], address: null, preferPrevious: false },
      books: [book],
      named: null,
    }))
  }
  const open: OpenClaim[] = []
  const claimedBy = new Map<number, number>()
  for (const [index, claim] of command.claims.entries()) {
    const path = `claims[${index}]`
    const found = poolsOfClaim(books, claim, path)
    if ('reason' in found) return found
    for (const { pool } of found) {
      const other = claimedBy.get(pool.poolId)
      if (other !== undefined) {
        return invalid(
          `${path}.pools`,
          `pool ${pool.name} is in claims[${other}] already; two claims may not share a pool`,
        )
      }
    }
    for (const { pool } of found) claimedBy.set(pool.poolId, index)
    const named = claim.address === null ? null : namedIn(found, claim.address, path)
    if (named !== null && 'reason' in named) return named
    open.push({ path, claim, books: found, named })
  }
  return open
}

function poolsOfClaim(books: Books, claim: Claim, path: string): readonly PoolBook[] | Refusal {
  if (claim.pools.length === 0) return poolsByDefault(books, claim, path)
  const found: PoolBook[] = []
  for (const [index, name] of claim.pools.entries()) {
    const book = poolNamed(books, name)
    if (book === null) {
      return refusal(
        'POOL_NOT_FOUND',
        `${path}.pools[${index}]: there is no pool ${name} in network ${books.networkName}`,
        {
          field: `${path}.pools[${index}]`,
          pool: name,
        },
      )
    }
    if (!found.includes(book)) found.push(book)
  }
  return found
}

/** A claim without pools: the pool its address lies in, or else the only default pool. */
function poolsByDefault(books: Books, claim: Claim, path: string): readonly PoolBook[] | Refusal {
  if (claim.address !== null) {
    const parsed = parseAddress(claim.address)
    if (isMalformed(parsed)) return invalid(`${path}.address`, parsed.malformed)
    const book = poolAt(books, formatValue(parsed.family, parsed.value))
    return book === null
      ? invalid(`${path}.address`, `${claim.address} is in no pool of network ${books.networkName}`)
      : [book]
  }
  const fitting = defaultPools(books)
  if (fitting.length === 1) return fitting
  return invalid(
    `${path}.pool`,
    fitting.length === 0
      ? `required: network ${books.networkName} has no default pool`
      : `required: there are several default pools (${fitting.map(({ pool }) => pool.name).join(', ')})`,
  )
}

function namedIn(
  pools: readonly PoolBook[],
  text: string,
  path: string,
): { readonly address: string; readonly pool: PoolBook } | Refusal {
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) return invalid(`${path}.address`, parsed.malformed)
  const book = pools.find(
    ({ pool }) =>
      pool.family === parsed.family && pool.range.first <= parsed.value && parsed.value <= pool.range.last,
  )
  if (book === undefined) {
    const names = pools.map(({ pool }) => `${pool.name} (${pool.cidr})`).join(', ')
    return invalid(`${path}.address`, `${text} is not in ${names}`)
  }
  const { pool } = book
  if (!isBlockBase(pool.family, parsed.value, pool.prefixLength)) {
    const base = formatValue(pool.family, blockBase(pool.family, parsed.value, pool.prefixLength))
    return invalid(
      `${path}.address`,
      `leases of pool ${pool.name} are /${pool.prefixLength} blocks; did you mean ${base}?`,
    )
  }
  return { address: formatValue(pool.family, parsed.value), pool: book }
}

/**
 * Other incarnations and uids under the newcomer's (kind, name, interface), in all pools. Which one is newer is
 * decided by what is closed, never by comparing strings: a newcomer that got here is not closed, and closes what it
 * overtakes, whatever becomes of the leases; a late call of that life would supersede this one (incident 4.2).
 */
function supersede(books: Books, command: Reserve, takes: boolean): Succession | Refusal {
  const { owner, supersedes } = command
  const drafts: Draft[] = []
  const released = new Map<string, Lease>()
  const closed = new Set<string>()
  for (const lease of leasesOfHolder(books, owner)) {
    const holder = lease.owner!
    if (sameAttachment(holder, owner)) continue
    const named = supersedes !== null && names(supersedes, lease)
    const trigger: Trigger = named && supersedes.removalConfirmed ? 'SUPERSEDE_REMOVED' : 'SUPERSEDE'
    if (lease.state !== 'QUARANTINED' && owner.incarnation === '' && holder.incarnation !== '') {
      return illegalBecause(
        lease,
        `${describeOwner(holder)} holds ${lease.address}; a Reserve without an incarnation cannot tell whether it is newer`,
      )
    }
    if (
      lease.state !== 'QUARANTINED' &&
      holder.uid !== owner.uid &&
      owner.kind !== 'pod' &&
      !named &&
      lease.placement.node !== '' &&
      command.placement.node !== '' &&
      lease.placement.node !== command.placement.node
    ) {
      return illegalBecause(
        lease,
        `${describeOwner(holder)} holds ${lease.address} on node ${lease.placement.node}; name it in supersedes if it is gone`,
      )
    }
    const becomes = transition(stateOf(lease), trigger)
    if (becomes === undefined) {
      // In quarantine already, and stays as it is. Without an incarnation nobody can tell who is newer; a repeated
      // Reserve has overtaken it before.
      if (!takes || owner.incarnation === '' || closedIn(books, holder, null)) continue
    } else if (becomes.to === 'COOLING') {
      const bad = mayEnd(books, command.actor, lease)
      if (bad !== null) return bad
      drafts.push(
        endDraft(lease, 'lease.released', books, {
          removalConfirmed: true,
          evidence: { supersededBy: describeOwner(owner) },
        }),
      )
      released.set(lease.address, lease)
    } else {
      drafts.push(
        quarantineDraft(lease, 'SUPERSEDED', command, `superseded by ${describeOwner(owner)}`, {
          supersededBy: describeOwner(owner),
        }),
      )
    }
    const key = attachmentKey(holder)
    if (!closed.has(key)) drafts.push(...closeDraft(holder, null))
    closed.add(key)
  }
  return { drafts, released }
}

function names(supersedes: Supersedes, lease: Lease): boolean {
  const holder = lease.owner!
  return (
    (supersedes.uid !== null || supersedes.incarnation !== null) &&
    (supersedes.uid === null || supersedes.uid === holder.uid) &&
    (supersedes.incarnation === null || supersedes.incarnation === holder.incarnation)
  )
}

/** A free address for one claim: pools in order; the next one only when this one cannot serve anybody. */
function pickFor(
  books: Books,
  command: Reserve,
  open: OpenClaim,
  succession: Succession,
  picking: Picking,
): Picked | Refusal {
  if (open.named !== null) return pickNamed(books, command, open.named, succession, picking)
  let last: Refusal | undefined
  for (const book of open.books) {
    const barred = bars(books, command, book, succession)
    if (barred !== null && barred.reason !== 'POOL_DRAINING') return barred
    const pick = barred ?? pickFrom(books, command, book, open.claim.preferPrevious, succession, picking)
    if (!('reason' in pick)) return pick
    if (pick.reason === 'ALL_CANDIDATES_LIVE') return pick
    // Of a draining pool and an exhausted one, the exhausted one says more about when to come back.
    if (last === undefined || pick.reason === 'POOL_EXHAUSTED') last = pick
  }
  return last!
}

/** What keeps this holder out of a pool whatever its addresses: liveness, draining, the owner limit. */
function bars(books: Books, command: Reserve, book: PoolBook, succession: Succession): Refusal | null {
  const { pool } = book
  if (pool.draining) {
    return refusal('POOL_DRAINING', `pool ${pool.name} is draining and hands out nothing new`, {
      pool: pool.name,
    })
  }
  const stale = pool.liveness === 'STRICT' ? staleness(books, command, pool) : null
  if (stale !== null) return stale
  const filling = leasesOfHolder(books, command.owner).filter(
    (lease) => lease.poolId === pool.poolId && !succession.released.has(lease.address),
  )
  if (filling.length < pool.ownerLimit) return null
  const ids = filling.slice(0, POLICY.listedBlockers).map(idOf)
  return refusal(
    'OWNER_LIMIT',
    `${command.owner.kind} ${command.owner.name} (${command.owner.interface}) holds ${filling.length} leases in pool ${pool.name}, its limit is ${pool.ownerLimit}: ${ids.join(', ')}; end one by Release with confirmed removal, by supersedes, or by Reap`,
    { pool: pool.name, limit: String(pool.ownerLimit), leases: ids.join(',') },
  )
}

/** Books that are not trusted hand out nothing. What is waited for may be a person, so it is said (12.1). */
function notOpen(books: Books): Refusal | null {
  const { network, state, era } = books.network!
  if (state === 'READY') return null
  const refused = (why: string, metadata: Readonly<Record<string, string>> = {}) =>
    refusal('NETWORK_RECOVERING', `network ${network} ${why}`, { network, state, ...metadata }, 1_000)
  if (state === 'REBUILDING')
    return refused(`is ${state}; nothing is handed out until its books are trusted again`)
  const { sources, unreported, unknown } = unobservedIn(books)
  const strangers = `somebody has registered and enabled who has called and is not known: ${unknown.join(', ')}`
  const waits =
    sources === 0
      ? `an operator ends it, since no source is enabled: ipledger recover --end ${network}`
      : unreported.length === 0
        ? unknown.length > 0
          ? strangers
          : 'that is written down: every source has reported completely in it'
        : `each source has reported completely in it and is warm; still to come: ${unreported.join(', ')}${unknown.length > 0 ? `; and ${strangers}` : ''}`
  return refused(`is ${state} since era ${era} began; nothing is handed out until ${waits}`, {
    era: String(era),
    sources: [...unreported, ...unknown].join(','),
  })
}

/**
 * A STRICT pool hands out only while every enabled source has said in this era what is live, with its warm-up behind it
 * (7.1: the list of a start is empty), and those that see the asking node have said it lately (M-14). A source whose node's boot is fenced is not waited for.
 */
function staleness(books: Books, command: Reserve, pool: Pool): Refusal | null {
  const { node } = command.placement
  const { sources, unreported, asking } = strictnessFor(books, node)
  const stale = (why: string, of: readonly string[]) =>
    refusal('LIVENESS_STALE', `pool ${pool.name} is STRICT and ${why}; it hands out nothing`, {
      pool: pool.name,
      node,
      sources: of.join(','),
    })
  if (sources === 0) return stale('no source has reported what is live', [])
  if (unreported.length > 0)
    return stale(
      `${unreported.join(', ')} has not reported completely in this era, or is warming up`,
      unreported,
    )
  if (asking.length === 0)
    return stale(`no source sees ${node === '' ? 'a caller that names no node' : `node ${node}`}`, [])
  const silent = asking
    .filter(({ completeAt, intervalMs }) => {
      return completeAt === null || books.now - completeAt > POLICY.gapIntervals * intervalMs
    })
    .map(({ source }) => source)
  return silent.length > 0 ? stale(`${silent.join(', ')} has not reported completely lately`, silent) : null
}

function pickNamed(
  books: Books,
  command: Reserve,
  named: { readonly address: string; readonly pool: PoolBook },
  succession: Succession,
  picking: Picking,
): Picked | Refusal {
  const { address, pool: book } = named
  const { pool } = book
  const metadata = { address, pool: pool.name }
  const { value } = parseOrThrow(address)
  if (!contains(pool.allocatable, value)) {
    return refusal(
      'ADDRESS_EXCLUDED',
      `${address} is excluded from pool ${pool.name} and never handed out`,
      metadata,
    )
  }
  const standing = afterSuccession(books, address, succession, command)
  const { lease, released } = standing
  if (lease !== null && lease.state === 'QUARANTINED') {
    const { reason, by, why } = lease.quarantine!
    return refusal('ADDRESS_QUARANTINED', `${address} is quarantined (${reason}) by ${by}: ${why}`, {
      ...metadata,
      quarantineReason: reason,
      seenBy: by,
    })
  }
  if (lease !== null) {
    const holder = lease.owner === null ? '' : describeOwner(lease.owner)
    return refusal('ADDRESS_TAKEN', `${address} is held by ${holder}`, {
      ...metadata,
      holder,
      leaseId: idOf(lease),
    })
  }
  const barred = bars(books, command, book, succession)
  if (barred !== null) return barred
  const trigger = mayHaveBack(released, command) ? 'RESERVE_BY_PREVIOUS' : 'RESERVE'
  const cooling = released !== null && released.availableAt > books.now
  if (transition(cooling ? 'COOLING' : 'FREE', trigger) === undefined) {
    const { availableAt } = released!
    return refusal(
      'ADDRESS_COOLING',
      `${address} was released recently and rests until ${new Date(availableAt).toISOString()}`,
      { ...metadata, availableAt: new Date(availableAt).toISOString() },
      availableAt - books.now,
    )
  }
  if (isSetAside(books, picking, address)) {
    return refusal(
      'ADDRESS_TAKEN',
      `${address} is set aside: the database holds a row for it that the books do not know`,
      metadata,
    )
  }
  if (seenLive(book, picking, address)) {
    setAsideSeen(books, command, book, picking, address)
    return refusal('ADDRESS_QUARANTINED', `${address} is in your liveAddresses, so somebody uses it`, {
      ...metadata,
      quarantineReason: 'SEEN_BY_CALLER',
      seenBy: command.actor.name,
    })
  }
  // What it is seen at itself is its own, and the books have lost it: an import, say.
  const seen = seenBySources(books, command, book, standing.released, succession, address).find(
    (one) => !isItself(one, command.owner),
  )
  if (seen !== undefined) {
    const whom = seen.owner === null ? '' : ` for ${describeOwner(seen.owner)}`
    return refusal('ADDRESS_QUARANTINED', `${address} is seen live by ${seen.source}${whom}`, {
      ...metadata,
      seenBy: seen.source,
    })
  }
  return { address, pool: book, evidence: null }
}

/**
 * Whoever sees a free address live, and has not been refuted since (INV-12, azure#1259). Before it has cooled it goes on
 * to its last holder alone; nobody's own list of before is in its way.
 */
function seenBySources(
  books: Books,
  command: Reserve,
  book: PoolBook,
  released: ReleasedAddress | null,
  succession: Succession,
  address: string,
): readonly LiveSighting[] {
  const { live } = sightingsAt(books, address, book.pool.prefixLength)
  if (released === null) return live
  const handedOn = succession.released.get(address)
  const rested = released.availableAt <= books.now && handedOn === undefined
  const isOwn = (seen: LiveSighting) =>
    !rested && seen.head !== null && seen.head < released.releasedSeq && isItself(seen, command.owner)
  const holder = handedOn && lastHolderOf(handedOn)
  return live.filter((seen) => !isOwn(seen) && !isRefuted(books, seen, released, holder))
}

function pickFrom(
  books: Books,
  command: Reserve,
  book: PoolBook,
  preferPrevious: boolean,
  succession: Succession,
  picking: Picking,
): Picked | Refusal {
  const { pool } = book
  if (preferPrevious) {
    const previous = previousIn(books, command, book, succession)
    if (
      previous !== null &&
      !isSetAside(books, picking, previous) &&
      !isSeen(books, command, book, succession, previous)
    ) {
      const verdict = accept(books, command, book, picking, previous)
      if (verdict === 'taken') return { address: previous, pool: book, evidence: { previous: true } }
      if (verdict !== 'skipped') return verdict
    }
  }
  const seen = new Set<string>()
  for (const address of candidatesOf(books, command, book, succession, seen)) {
    if (isSetAside(books, picking, address)) continue
    const verdict = accept(books, command, book, picking, address)
    if (verdict === 'taken') return { address, pool: book, evidence: null }
    if (verdict !== 'skipped') return verdict
  }
  const cooling = Math.max(0, book.counts.released - cooledLoaded(books, book))
  const next = nextCooledAt(books, pool.poolId)
  return refusal(
    'POOL_EXHAUSTED',
    `pool ${pool.name} has no free address${cooling > 0 ? `; ${cooling} are cooling` : ''}${seen.size > 0 ? `; ${seen.size} are seen live by sources` : ''}`,
    {
      pool: pool.name,
      cooling: String(cooling),
      ...(seen.size === 0 ? {} : { seenLive: String(seen.size) }),
      ...(next === null ? {} : { nextAvailableAt: new Date(next).toISOString() }),
    },
    next === null ? undefined : next - books.now,
  )
}

/** Where nothing has to cool, what the predecessors let go of is free at once, behind all that was free before. */
function* candidatesOf(
  books: Books,
  command: Reserve,
  book: PoolBook,
  succession: Succession,
  seen: Set<string>,
): Generator<string> {
  yield* candidates(books, book, seen)
  if (cooldownOf(books, book.pool) > 0) return
  for (const { poolId, address } of succession.released.values()) {
    if (poolId !== book.pool.poolId) continue
    if (isSeen(books, command, book, succession, address)) seen.add(address)
    else yield address
  }
}

function isSeen(
  books: Books,
  command: Reserve,
  book: PoolBook,
  succession: Succession,
  address: string,
): boolean {
  const { released } = afterSuccession(books, address, succession, command)
  return seenBySources(books, command, book, released, succession, address).length > 0
}

/** A candidate its caller sees live is quarantined, or past the caps only skipped; never handed out (INV-12). */
function accept(
  books: Books,
  command: Reserve,
  book: PoolBook,
  picking: Picking,
  address: string,
): 'taken' | 'skipped' | Refusal {
  if (!seenLive(book, picking, address)) return 'taken'
  setAsideSeen(books, command, book, picking, address)
  picking.skips += 1
  if (picking.skips < POLICY.skips) return 'skipped'
  return refusal(
    'ALL_CANDIDATES_LIVE',
    `${picking.skips} free addresses in a row are in your liveAddresses; another allocator may use pool ${book.pool.name}`,
    { pool: book.pool.name, skips: String(picking.skips) },
  )
}

function isSetAside(books: Books, picking: Picking, address: string): boolean {
  return picking.taken.has(address) || books.setAside.has(address)
}

/** For a pool of blocks, an address in use makes its whole block live; the blocks are worked out once per pool. */
function seenLive(book: PoolBook, picking: Picking, address: string): boolean {
  if (picking.live.size === 0) return false
  const { pool } = book
  let live = picking.liveIn.get(pool.poolId)
  if (live === undefined) {
    live = liveBlocks(pool, picking.live)
    picking.liveIn.set(pool.poolId, live)
  }
  return live.has(address)
}

function liveBlocks(pool: Pool, addresses: ReadonlySet<string>): ReadonlySet<string> {
  if (pool.prefixLength === maxPrefix(pool.family)) return addresses
  const blocks = new Set<string>()
  for (const text of addresses) {
    const { family, value } = parseOrThrow(text)
    if (family !== pool.family) continue
    blocks.add(formatValue(family, blockBase(family, value, pool.prefixLength)))
  }
  return blocks
}

function setAsideSeen(
  books: Books,
  command: Reserve,
  book: PoolBook,
  picking: Picking,
  address: string,
): void {
  picking.taken.add(address)
  const inPool = picking.quarantinedIn.get(book.pool.poolId) ?? 0
  if (book.counts.quarantined + inPool >= quarantineCap(book.pool)) return
  if (
    quarantinesCausedBy(books, command.actor.name) + picking.quarantines.length >=
    POLICY.quarantinesPerCaller
  )
    return
  picking.quarantinedIn.set(book.pool.poolId, inPool + 1)
  const draft = quarantineFreeDraft(books, command, {
    address,
    poolId: book.pool.poolId,
    reason: 'SEEN_BY_CALLER',
    why: 'in the liveAddresses of a Reserve',
    evidence: { seenBy: command.actor.name, reservingFor: describeOwner(command.owner) },
  })
  picking.quarantines.push({ address, draft })
}

/** The holder's previous address in this pool, if nobody has it and it may have it back. */
function previousIn(books: Books, command: Reserve, book: PoolBook, succession: Succession): string | null {
  for (const lease of succession.released.values())
    if (lease.poolId === book.pool.poolId) return lease.address
  for (const released of previousAddresses(books, command.owner)) {
    if (released.poolId !== book.pool.poolId) continue
    if (released.availableAt <= books.now || mayHaveBack(released, command)) return released.address
  }
  return null
}

function mayHaveBack(released: ReleasedAddress | null, command: Reserve): boolean {
  if (released === null || !released.removalConfirmed) return false
  return released.holderKey === holderKey(command.owner)
}

/** What stands at an address once the predecessors named in `supersedes` have let go. */
function afterSuccession(
  books: Books,
  address: string,
  succession: Succession,
  command: Reserve,
): AddressBook {
  const lease = succession.released.get(address)
  if (lease === undefined) return bookAt(books, address)
  return {
    lease: null,
    released: {
      poolId: lease.poolId,
      address,
      prefixLength: lease.prefixLength,
      availableAt: books.now + cooldownOf(books, poolById(books, lease.poolId).pool),
      // Not numbered yet, and later than whatever was seen.
      releasedSeq: books.head + 1,
      holderKey: holderKey(command.owner),
      removalConfirmed: true,
    },
  }
}

function cooledLoaded(books: Books, book: PoolBook): number {
  let cooled = 0
  for (const entry of book.cooled.values()) if (entry.availableAt <= books.now) cooled += 1
  return cooled + (books.freed.get(book.pool.poolId)?.size ?? 0)
}

type Made = {
  readonly address: string
  readonly pool: PoolBook
  readonly drafts: readonly Draft[]
  /** The one that was there. */
  readonly lease: Lease | null
}

/**
 * The lease the attachment already has. Reuse changes neither node nor labels, and of the boot only that it is no more
 * the only one; a deadline is moved out or removed, never added, `confirmed` confirms, and a promise that has grown old
 * is written down again.
 */
function reuse(books: Books, command: Reserve, lease: Lease): Made {
  const made = { address: lease.address, pool: poolById(books, lease.poolId), lease }
  const moved = askedElsewhere(books, command, lease)
  const now = moved === null ? lease : promisedElsewhere(books, command, lease)
  // A token bound to a node that did not ask is told what its attachment holds, and changes nothing.
  const changes = mayTouch(command.actor, now) === null ? againDraft(books, command, now) : null
  return { ...made, drafts: [moved, changes].flatMap((draft) => draft ?? []) }
}

function againDraft(books: Books, command: Reserve, lease: Lease): Draft | null {
  const { pool } = poolById(books, lease.poolId)
  if (lease.state === 'RESERVED' && command.confirmed) return confirmDraft(lease, books.now, null)
  if (lease.confirmBy === null) return renewDraft(books, lease)
  const within = command.confirmWithinMs ?? pool.confirmWithinMs
  if (within === null) return updateDraft({ ...lease, confirmBy: null, reservedAt: books.now })
  const confirmBy = Math.max(lease.confirmBy, books.now + within)
  return confirmBy === lease.confirmBy ? null : updateDraft({ ...lease, confirmBy })
}

/**
 * Who is told of it on another node, or in another boot, may run there: the end of the boot it was placed on, or its
 * fencing, says nothing of it any more (6.3, 16.5). Written once for each node, and for the end of the only boot.
 */
function askedElsewhere(books: Books, command: Reserve, lease: Lease): Draft | null {
  const { placement, askedFrom = [] } = lease
  const { node, boot } = command.placement
  const isElsewhere = (node !== '' && node !== placement.node) || (boot !== '' && boot !== placement.boot)
  const isAnother = askingNodes(lease, node).length > askedFrom.length
  if (!isAnother && (placement.boot === '' || !isElsewhere)) return null
  if (transition(stateOf(lease), 'RESERVE_ELSEWHERE') === undefined) return null
  return updateDraft(promisedElsewhere(books, command, lease), { askedFrom: { node, boot } })
}

/**
 * Nodes that asked for it, in order, as long as nobody can mistake where it is: of more than one, and of the first when it
 * asks again, a late retry may be among them.
 */
function askingNodes({ placement, askedFrom = [] }: Lease, node: string): readonly string[] {
  if (node === '' || placement.node === '') return askedFrom
  const isKnown = askedFrom.includes(node) || (askedFrom.length === 0 && node === placement.node)
  return isKnown || askedFrom.length === POLICY.askingNodes ? askedFrom : [...askedFrom, node]
}

/** Promised from now on, as it is where it was (2.4); but with a deadline, which goes by when it was reserved. */
function promisedElsewhere(books: Books, { placement: { node } }: Reserve, lease: Lease): Lease {
  const reservedAt = lease.confirmBy === null ? books.now : lease.reservedAt
  const askedFrom = askingNodes(lease, node)
  const promised = { ...lease, placement: { ...lease.placement, boot: '' }, reservedAt }
  return askedFrom.length === 0 ? promised : { ...promised, askedFrom }
}

function reserveDraft(books: Books, command: Reserve, pick: Picked): Draft {
  const { pool } = pick.pool
  const within = command.confirmWithinMs ?? pool.confirmWithinMs
  return {
    evidence: pick.evidence,
    event: (header) => ({
      ...header,
      type: 'lease.reserved',
      lease: {
        network: header.network,
        poolId: pool.poolId,
        address: pick.address,
        prefixLength: pool.prefixLength,
        fencingToken: header.seq,
        version: header.seq,
        state: command.confirmed ? 'ACTIVE' : 'RESERVED',
        quarantine: null,
        owner: command.owner,
        placement: command.placement,
        witness: command.witness,
        reservedAt: books.now,
        confirmedAt: command.confirmed ? books.now : null,
        confirmBy: command.confirmed || within === null ? null : books.now + within,
      },
    }),
  }
}

function parseOrThrow(address: string) {
  const parsed = parseAddress(address)
  if (isMalformed(parsed))
    throw new Error(`${address} was canonical when it was accepted: ${parsed.malformed}`)
  return parsed
}
