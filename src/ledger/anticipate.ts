/**
 * What a command will most likely ask the books, so that one trip reads it all. A guess only: whatever is missing
 * is read by another trip before the command is decided.
 */
import { formatAddress, isMalformed, maxPrefix, parseAddress } from '../core/address.ts'
import { type Books, bootKey, type Need, placeKey, workloadKey } from '../core/books.ts'
import { type Command, type Reserve, type Sight, type SightedEntry, TERMINAL } from '../core/command.ts'
import type { Proof } from '../core/judge.ts'
import type { Lease } from '../core/lease.ts'
import { attachmentKey, holderKey } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import type { Pool } from '../core/pool.ts'

/** What earlier batches of this process saw; trusted for nothing but guesses. */
export type Hints = {
  defaultPools: readonly string[]
  /** Pools with so much untouched space that released addresses will not be needed. */
  readonly roomy: Set<string>
  /** Pools that hand out only while the sources of the asking node are fresh. */
  readonly strict: Set<string>
  /** Whether any source may see something. */
  watched: boolean
}

export function newHints(): Hints {
  return { defaultPools: [], roomy: new Set(), strict: new Set(), watched: true }
}

export function anticipate(command: Command, hints: Hints): readonly Need[] {
  const needs: Need[] = []
  if (command.requestId !== null) needs.push({ what: 'request', id: command.requestId })
  switch (command.type) {
    case 'reserve':
      anticipateReserve(command, hints, needs)
      break
    case 'allOrNothing':
      for (const item of command.items) needs.push(...anticipate(item, hints))
      break
    case 'confirm':
    case 'release':
      if (command.lease.token !== null) needs.push({ what: 'token', token: command.lease.token })
      else {
        const key = attachmentKey(command.lease.owner)
        needs.push({ what: 'attachment', key }, { what: 'closings', key })
      }
      break
    case 'quarantine':
      if ('token' in command.target) needs.push({ what: 'token', token: command.target.token })
      else needs.push({ what: 'poolAt', address: command.target.address })
      break
    case 'reap':
    case 'expire':
    case 'updateLabels':
      needs.push({ what: 'token', token: command.token })
      break
    case 'sight':
      anticipateSight(command, needs)
      break
    case 'reapProven':
    case 'restore':
      needs.push({ what: 'token', token: command.token })
      anticipateProof(command.proof, needs)
      break
    case 'resumeHold':
      needs.push({ what: 'hold', source: command.source ?? '' })
      break
    case 'createPool':
      needs.push({ what: 'pool', name: command.pool.name })
      break
    case 'updatePool':
    case 'deletePool':
      needs.push({ what: 'pool', name: command.name })
      break
    case 'endRecovery':
      if (command.observed) needs.push({ what: 'unobserved' })
      break
    case 'createNetwork':
    case 'updateNetwork':
    case 'beginEra':
    case 'fenceNode':
      break
  }
  return needs
}

function anticipateReserve(command: Reserve, hints: Hints, needs: Need[]): void {
  const key = attachmentKey(command.owner)
  needs.push({ what: 'holder', key: holderKey(command.owner) }, { what: 'attachment', key })
  if (command.owner.incarnation !== '') needs.push({ what: 'closings', key })
  if (command.liveAddresses.length > 0) needs.push({ what: 'quarantinesBy', actor: command.actor.name })
  const pools = command.claims.flatMap((claim) => claim.pools)
  if ([...pools, ...(pools.length === 0 ? hints.defaultPools : [])].some((pool) => hints.strict.has(pool)))
    needs.push({ what: 'strictness', node: command.placement.node })
  if (command.claims.length === 0) {
    needs.push({ what: 'defaultPools' })
    for (const pool of hints.defaultPools) needs.push(candidatesOf(pool, 1, hints))
  }
  for (const claim of command.claims) {
    for (const name of claim.pools) needs.push({ what: 'pool', name })
    if (claim.address !== null) {
      const parsed = parseAddress(claim.address)
      if (isMalformed(parsed)) continue
      const address = formatAddress(parsed)
      if (claim.pools.length === 0) needs.push({ what: 'poolAt', address })
      needs.push({ what: 'address', address }, sightingsOf(address))
      continue
    }
    const first = claim.pools[0]
    if (first === undefined) needs.push({ what: 'defaultPools' })
    else needs.push(candidatesOf(first, 1 + Math.min(POLICY.skips, command.liveAddresses.length), hints))
    if (claim.preferPrevious)
      needs.push({ what: 'previous', key: holderKey(command.owner), owner: command.owner })
  }
}

function candidatesOf(pool: string, count: number, hints: Hints): Need {
  return { what: 'candidates', pool, ranges: count, released: hints.roomy.has(pool) ? 0 : count }
}

/** Leases a command touches at most: what a batch is limited by. */
export function weightOf(command: Command): number {
  switch (command.type) {
    case 'reserve':
      return Math.max(1, command.claims.length)
    case 'allOrNothing':
      return command.items.reduce((sum, item) => sum + weightOf(item), 0)
    case 'sight':
      return Math.max(1, command.entries.length)
    default:
      return 1
  }
}

// What sources see.

/** Leases are single addresses as a rule; of a block it is read again, as a whole. */
function sightingsOf(address: string): Need {
  return { what: 'sightings', address, prefixLength: maxPrefix(address.includes(':') ? 6 : 4) }
}

/** Mostly of reservations that are seen for the first time; what is asked of free addresses comes with `alike`. */
function anticipateSight(command: Sight, needs: Need[]): void {
  const { source } = command
  needs.push({ what: 'source', source }, { what: 'quarantinesBySource', source })
  for (const { address, state } of command.entries) {
    if (state === TERMINAL) continue
    needs.push({ what: 'poolAt', address }, { what: 'address', address }, sightingsOf(address))
  }
}

function anticipateProof({ cause, lease, sources, fencedBy }: Proof, needs: Need[]): void {
  const { address, prefixLength, owner } = lease
  needs.push({ what: 'sightings', address, prefixLength }, { what: 'hold', source: '' })
  if (owner !== null && owner.incarnation !== '')
    needs.push(
      { what: 'closings', key: attachmentKey(owner) },
      { what: 'attachment', key: attachmentKey(owner) },
    )
  if (fencedBy !== null) needs.push({ what: 'fence', node: fencedBy.node, boot: fencedBy.boot })
  for (const { source } of sources) needs.push({ what: 'source', source }, { what: 'hold', source })
  if (cause !== 'PROVEN_ABSENT') return
  needs.push({ what: 'heldLeases' })
  for (const source of ['', ...sources.map((one) => one.source)]) needs.push({ what: 'absenceReaps', source })
}

/**
 * What one command misses the next ones of the batch will miss too: the closings of everybody whose lease was read, and
 * what else they hold, which says how long a closing binds.
 * One at a time, an all-or-nothing batch of 600 successors took 600 trips and was decided anew after each. So it is
 * with releases of what is released already, which come in storms, and with what is seen of leases and of addresses
 * that only turned out when they were read.
 */
export function alikeOf(books: Books, need: Need, commands: readonly Command[]): readonly Need[] {
  const all = commands.flatMap((command): readonly Command[] =>
    command.type === 'allOrNothing' ? command.items : [command],
  )
  switch (need.what) {
    case 'endings':
      return all.flatMap((command) => releaseOfNothing(books, command))
    case 'sightings':
      return [
        ...[...books.pools.values()].flatMap(({ cooled }) =>
          [...cooled.values()].flatMap((one) => unseen(books, one)),
        ),
        ...all.flatMap((command) => sightingsOfKnown(books, command)),
      ]
    case 'fence':
    case 'closedLives':
    case 'holder':
      return all.flatMap((command) =>
        command.type === 'sight'
          ? command.entries.flatMap((entry) => ownerSeenFree(books, entry))
          : fencesOfKnown(books, command),
      )
    case 'closings':
    case 'attachment':
      return closingsOfKnown(books)
    default:
      return []
  }
}

function closingsOfKnown(books: Books): readonly Need[] {
  const owners = [...books.addresses.values()].flatMap(({ lease }) => lease?.owner ?? [])
  return [...new Set(owners.map(attachmentKey))].flatMap((key): readonly Need[] => [
    ...(books.closings.has(key) ? [] : [{ what: 'closings', key } as const]),
    ...(books.byAttachment.has(key) ? [] : [{ what: 'attachment', key } as const]),
  ])
}

function releaseOfNothing(books: Books, command: Command): readonly Need[] {
  if (command.type !== 'release' || command.lease.token !== null) return []
  const { owner } = command.lease
  const known = books.endings.has(attachmentKey(owner))
  const holdsNothing = books.byAttachment.get(attachmentKey(owner))?.size === 0
  return holdsNothing && !known ? [{ what: 'endings', owner }] : []
}

/** Of leases that a command names, of named addresses, and of what a successor may be handed on. */
function sightingsOfKnown(books: Books, command: Command): readonly Need[] {
  switch (command.type) {
    case 'expire':
    case 'reapProven':
    case 'restore': {
      const found = books.byToken.get(command.token)
      const lease = found != null && 'address' in found ? books.addresses.get(found.address)?.lease : null
      return lease == null ? [] : unseen(books, lease)
    }
    case 'reserve': {
      const held = books.byHolder.get(holderKey(command.owner)) ?? []
      return [
        ...command.claims.flatMap(({ address }) => placeOf(books, address)),
        ...[...held].flatMap((address): readonly Lease[] => {
          const lease = books.addresses.get(address)?.lease
          return lease == null ? [] : [lease]
        }),
      ].flatMap((place) => unseen(books, place))
    }
    default:
      return []
  }
}

/** Of leases that may be promised again. */
function fencesOfKnown(books: Books, command: Command): readonly Need[] {
  return leasesSaidAgain(books, command).flatMap(({ placement: { node, boot } }): readonly Need[] =>
    node === '' || boot === '' || books.fences.has(bootKey(node, boot))
      ? []
      : [{ what: 'fence', node, boot }],
  )
}

function leasesSaidAgain(books: Books, command: Command): readonly Lease[] {
  if (command.type !== 'reserve' && command.type !== 'confirm') return []
  const { token, owner } = command.type === 'confirm' ? command.lease : { token: null, owner: command.owner }
  const found = token === null ? undefined : books.byToken.get(token)
  const named = found != null && 'address' in found ? [found.address] : []
  const held = token === null ? (books.byAttachment.get(attachmentKey(owner)) ?? []) : named
  return [...held].flatMap((address) => books.addresses.get(address)?.lease ?? [])
}

type Place = { readonly address: string; readonly prefixLength: number }

function unseen(books: Books, { address, prefixLength }: Place): readonly Need[] {
  return books.sightings.has(placeKey(address, prefixLength))
    ? []
    : [{ what: 'sightings', address, prefixLength }]
}

function placeOf(books: Books, text: string | null): readonly Place[] {
  const parsed = text === null ? undefined : parseAddress(text)
  if (parsed === undefined || isMalformed(parsed)) return []
  const over = ({ family, range }: Pool) =>
    family === parsed.family && range.first <= parsed.value && parsed.value <= range.last
  const book = [...books.pools.values()].find(({ pool }) => over(pool))
  return book === undefined ? [] : [{ address: formatAddress(parsed), prefixLength: book.pool.prefixLength }]
}

/** Whether an owner that is seen at an address which is free may have it; or confirms it, where it is reserved. */
function ownerSeenFree(books: Books, { address, owner, node, boot, state }: SightedEntry): readonly Need[] {
  if (state === TERMINAL || books.poolsAt.get(address) == null) return []
  const needs: Need[] = []
  if (node !== '' && boot !== '' && !books.fences.has(bootKey(node, boot)))
    needs.push({ what: 'fence', node, boot })
  const lease = books.addresses.get(address)?.lease
  if (lease != null) return lease.state === 'RESERVED' ? needs : []
  if (owner === null || !owner.uidNamed) return needs
  const { kind, uid } = owner
  if (!books.closedLives.has(workloadKey(kind, uid))) needs.push({ what: 'closedLives', kind, uid })
  if (owner.interface === '') return needs
  const holder = holderKey(owner)
  const attachment = attachmentKey(owner)
  if (!books.byHolder.has(holder)) needs.push({ what: 'holder', key: holder })
  if (!books.byAttachment.has(attachment)) needs.push({ what: 'attachment', key: attachment })
  return needs
}
