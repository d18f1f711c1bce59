/**
 * Reserve. In order: may this attachment reserve at all; what it holds already; which lives it supersedes; then an address for
 * each claim that is not satisfied yet. A refused Reserve leaves nothing but the quarantine of addresses that its caller sees
 * live: the caller has nothing to clean up.
 */
import { type Batch, blank, change, presentOf, quarantine, viewOf } from './batch.ts'
import type { Answer, Claim, Command, LeaseView } from './command.ts'
import { confirm, renew, reporterOf } from './decide-lease.ts'
import type { AddressRecord, LedgerEvent } from './event.ts'
import {
  type AddressGuard,
  type Asking,
  exhausted,
  illegal,
  isNodeFull,
  isPlacedFor,
  mayTouch,
  nodeLimit,
  quarantineQuotaReached,
  SEEN_BY_CALLER,
} from './guards.ts'
import {
  blockAt,
  freedByHolder,
  type HeldRecord,
  type Image,
  leasesOfAttachment,
  leasesOfHolder,
  type PoolState,
  poolNamed,
  pushFree,
  takeCandidate,
} from './image.ts'
import { describeOwner, sameAttachment } from './owner.ts'
import { POLICY } from './policy.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'

type Reserve = Command<'reserve'>

type OpenClaim = Claim & { readonly path: string; readonly poolStates: readonly PoolState[] }

export function decideReserve(batch: Batch, command: Reserve): Answer | Refusal {
  const { image, guards } = batch
  const { owner, actor } = command
  const live = new Set(command.liveAddresses.map((address) => blockAt(image, address)?.address ?? address))
  const asking = { ...presentOf(batch), command, live }
  for (const { refuses } of guards.reserve) {
    const refused = refuses(asking)
    if (refused !== null) return refused
  }
  const claims = openClaims(image, command)
  if ('reason' in claims) return claims

  const own = leasesOfAttachment(image, owner).filter(
    (one) => one.state !== 'QUARANTINED' && isPlacedFor(guards, actor, one),
  )
  const satisfied = new Map<OpenClaim, HeldRecord>()
  for (const claim of claims) {
    const record = own.find(({ poolId }) => claim.poolStates.some(({ pool }) => pool.poolId === poolId))
    if (record === undefined || !guards.RETRY_GETS_THE_SAME_LEASE) continue
    const bad = mayHaveAgain(image, command, claim, record)
    if (bad !== null) return bad
    satisfied.set(claim, record)
  }
  const stopped = supersede(batch, command)
  if (stopped !== null) return stopped

  const skipped: string[] = []
  const leases: LeaseView[] = []
  for (const claim of claims) {
    const held = satisfied.get(claim)
    const record = held === undefined ? pick(batch, asking, claim, skipped) : renewLease(batch, command, held)
    if ('reason' in record) return record
    leases.push(viewOf(image, record, held !== undefined))
  }
  return { leases }
}

/** What a refused Reserve leaves: candidates that its caller sees live are not offered again. */
export function quarantineSeen(batch: Batch, command: Reserve, undone: readonly LedgerEvent[]): void {
  for (const event of undone) {
    if (!('record' in event) || event.record.quarantine?.reason !== 'FOREIGN') continue
    const { poolId, address } = event.record
    seenByCaller(batch, command, batch.image.pools.get(poolId)!, address)
  }
}

function openClaims(image: Image, command: Reserve): readonly OpenClaim[] | Refusal {
  if (command.claims.length === 0) {
    if (image.defaultPools.length === 0) return noDefault(image, 'claims')
    const claim = { pools: [], address: null, preferPrevious: false }
    return image.defaultPools.map((poolState, index) => ({
      ...claim,
      path: `claims[${index}]`,
      poolStates: [poolState],
    }))
  }
  const open: OpenClaim[] = []
  for (const [index, claim] of command.claims.entries()) {
    const path = `claims[${index}]`
    const poolStates = poolsOf(image, claim, path)
    if ('reason' in poolStates) return poolStates
    const both = poolStates.find((poolState) => open.some((other) => other.poolStates.includes(poolState)))
    if (both !== undefined)
      return invalid(`${path}.pools`, `two claims may not share a pool, and another has ${both.pool.name}`)
    open.push({ ...claim, path, poolStates })
  }
  return open
}

function noDefault(image: Image, field: string): Refusal {
  const names = image.defaultPools.map(({ pool }) => pool.name)
  const why = names.length === 0 ? 'no default pool' : `a default pool of each family (${names.join(', ')})`
  return invalid(field, `required: network ${image.name} has ${why}; name a pool`)
}

function poolsOf(image: Image, claim: Claim, path: string): readonly PoolState[] | Refusal {
  const found = new Set<PoolState>()
  for (const [index, name] of claim.pools.entries()) {
    const poolState = poolNamed(image, name)
    if (poolState === undefined) {
      const field = `${path}.pools[${index}]`
      const message = `${field}: there is no pool ${name} in network ${image.name}`
      return refusal('POOL_NOT_FOUND', message, { field, pool: name })
    }
    found.add(poolState)
  }
  if (claim.address === null) {
    const poolStates = found.size > 0 ? [...found] : image.defaultPools
    return claim.pools.length === 0 && poolStates.length !== 1 ? noDefault(image, `${path}.pool`) : poolStates
  }
  const { address } = claim
  const block = blockAt(image, address)
  if (block === null || (found.size > 0 && !found.has(block.poolState))) {
    const where = [...found].map(({ pool }) => `${pool.name} (${pool.cidr})`).join(', ')
    return invalid(`${path}.address`, `${address} is not in ${where || `a pool of network ${image.name}`}`)
  }
  if (block.address === address) return [block.poolState, ...found]
  const { name, prefixLength } = block.poolState.pool
  const why = `leases of pool ${name} are /${prefixLength} blocks; did you mean ${block.address}?`
  return invalid(`${path}.address`, why)
}

/**
 * Quarantines what other lives of the same (kind, name, interface) hold: they may still run. The life that reserves last is the
 * newer one, because closed attachments are refused; strings are never compared.
 */
function supersede(batch: Batch, command: Reserve): Refusal | null {
  const { image } = batch
  const { owner, settings, actor } = command
  if (!batch.guards.NEWER_LIFE_SUPERSEDES) return null
  for (const record of leasesOfHolder(image, owner)) {
    const holder = record.owner!
    if (record.state === 'QUARANTINED' || sameAttachment(holder, owner)) continue
    if (!isPlacedFor(batch.guards, actor, record)) continue
    const isElsewhere = record.node !== '' && settings.node !== '' && record.node !== settings.node
    if (holder.uid !== owner.uid && owner.kind !== 'pod' && isElsewhere) {
      const holds = `${describeOwner(holder)} holds ${record.address} on node ${record.node}`
      return illegal(image, record, `${holds}; release it first if it is gone`)
    }
    const bad = mayTouch(image, actor, record)
    if (bad !== null) return bad
    const why = `superseded by ${describeOwner(owner)}`
    quarantine(batch, command, 'supersede', record, { ...reporterOf(actor), why })
  }
  return null
}

function mayHaveAgain(image: Image, command: Reserve, claim: OpenClaim, record: HeldRecord): Refusal | null {
  const { owner, actor } = command
  if (record.owner!.name !== owner.name) {
    const why = 'two names with one uid are two workloads; give each its own uid'
    return illegal(image, record, `${record.address} is held by ${describeOwner(record.owner!)}: ${why}`)
  }
  const bad = mayTouch(image, actor, record)
  if (bad !== null || claim.address === null || claim.address === record.address) return bad
  const why = `${describeOwner(owner)} holds ${record.address} already; release it to have ${claim.address}`
  return illegal(image, record, `${claim.path}.address: ${why}`)
}

/** A retry changes nothing but a deadline, which moves out or goes, and where the workload is. */
function renewLease(batch: Batch, command: Reserve, record: HeldRecord): AddressRecord | Refusal {
  const { image, now } = batch
  const poolState = image.pools.get(record.poolId)!
  const node = command.settings.node === '' ? record.node : command.settings.node
  if (node !== record.node && isNodeFull(batch, poolState, node)) return nodeLimit(poolState, node)
  if (record.state === 'RESERVED' && command.confirmed)
    return confirm(batch, command, { ...record, node }, null)
  const within = command.confirmWithinMs ?? poolState.pool.confirmWithinMs
  const confirmBy =
    record.confirmBy === null || within === null ? null : Math.max(record.confirmBy, now + within)
  if (confirmBy === record.confirmBy && node === record.node) return renew(batch, command, record)
  return change(batch, command, 'renew', record, { confirmBy, node })
}

function pick(batch: Batch, asking: Asking, claim: OpenClaim, skipped: string[]): AddressRecord | Refusal {
  const { guards } = batch
  if (claim.address !== null) {
    const [poolState] = claim.poolStates
    const refused = refusedBy(guards.named, asking, poolState!, claim.address)
    if (refused === null) return reserve(batch, asking.command, poolState!, claim.address)
    if (refused.name === SEEN_BY_CALLER.name) seenByCaller(batch, asking.command, poolState!, claim.address)
    return refused.refusal
  }
  let last: Refusal | undefined
  for (const poolState of claim.poolStates) {
    const refused = refusedBy(guards.pool, asking, poolState, '')?.refusal
    if (refused !== undefined && refused.reason !== 'POOL_DRAINING') return refused
    const picked = refused ?? pickFrom(batch, asking, poolState, claim.preferPrevious, skipped)
    if (!('reason' in picked) || picked.reason === 'ALL_CANDIDATES_LIVE') return picked
    last = picked
  }
  return last!
}

function refusedBy(
  guards: readonly AddressGuard[],
  asking: Asking,
  poolState: PoolState,
  address: string,
): { readonly name: string; readonly refusal: Refusal } | null {
  for (const { name, refuses } of guards) {
    const refusal = refuses(asking, poolState, address)
    if (refusal !== null) return { name, refusal }
  }
  return null
}

function pickFrom(
  batch: Batch,
  asking: Asking,
  poolState: PoolState,
  preferPrevious: boolean,
  skipped: string[],
): AddressRecord | Refusal {
  const { image, now, guards } = batch
  const { command } = asking
  const { pool } = poolState
  if (preferPrevious) {
    const previous = freedByHolder(image, command.owner).find(
      (one) =>
        one.poolId === pool.poolId &&
        isPlacedFor(guards, command.actor, one) &&
        refusedBy(guards.previous, asking, poolState, one.address) === null,
    )
    if (previous !== undefined) return reserve(batch, command, poolState, previous.address)
  }
  const passed: string[] = []
  try {
    for (;;) {
      const address = takeCandidate(image, poolState, now)
      if (address === null) return exhausted(image, now, poolState)
      const refused = refusedBy(guards.candidate, asking, poolState, address)
      if (refused === null) return reserve(batch, command, poolState, address)
      passed.push(address)
      if (refused.name !== SEEN_BY_CALLER.name) return refused.refusal
      skipped.push(address)
      seenByCaller(batch, command, poolState, address)
      if (skipped.length < POLICY.skips) continue
      return refusal(
        'ALL_CANDIDATES_LIVE',
        `${skipped.length} free addresses in a row are in your liveAddresses; another allocator may use pool ${pool.name}`,
        { pool: pool.name, skips: String(skipped.length), skipped: skipped.join(',') },
      )
    }
  } finally {
    for (const address of passed) pushFree(image, poolState, address)
  }
}

/** Quarantines a candidate that the caller sees in use, unless it has reported too many already. */
function seenByCaller(batch: Batch, command: Reserve, poolState: PoolState, address: string): void {
  const reporter = reporterOf(command.actor)
  if (quarantineQuotaReached(batch, poolState, reporter)) return
  const why = 'in the liveAddresses of a Reserve'
  quarantine(batch, command, 'listedForNobody', blank(batch, poolState, address), { ...reporter, why })
}

function reserve(batch: Batch, command: Reserve, poolState: PoolState, address: string): AddressRecord {
  const { now } = batch
  const within = command.confirmWithinMs ?? poolState.pool.confirmWithinMs
  const finding = command.confirmed ? 'reserveConfirmed' : 'reserve'
  return change(batch, command, finding, blank(batch, poolState, address), {
    owner: command.owner,
    ...command.settings,
    confirmedAt: command.confirmed ? now : null,
    confirmBy: command.confirmed || within === null ? null : now + within,
  })
}
