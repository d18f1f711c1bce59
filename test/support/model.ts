/**
 * A reference model of one network, written from DESIGN.md and not from `src/core`: plain maps, addresses listed one
 * by one, every question a scan. It says what each command must come to; `model-walk.ts` asks.
 *
 * Its addresses lie in 10.0.0.0/24 and fd00::/112. It knows no eras, no rebuilding and no sightings.
 */
import type {
  Actor,
  Claim,
  Command,
  Confirm,
  CreatePool,
  DeletePool,
  Expire,
  LeaseReference,
  QuarantineAddress,
  Reap,
  Release,
  Reserve,
  Supersedes,
  UpdateLabels,
  UpdatePool,
} from '../../src/core/command.ts'
import type { Labels, Owner } from '../../src/core/owner.ts'

// Addresses as numbers.

type Space = {
  readonly family: 4 | 6
  readonly first: number
  readonly last: number
  readonly prefix: number
}

function numberOf(address: string): { readonly family: 4 | 6; readonly value: number } {
  if (address.includes(':')) {
    const tail = address.slice('fd00::'.length)
    return { family: 6, value: tail === '' ? 0 : Number.parseInt(tail, 16) }
  }
  return { family: 4, value: address.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0) }
}

function textOf(family: 4 | 6, value: number): string {
  if (family === 6) return value === 0 ? 'fd00::' : `fd00::${value.toString(16)}`
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.')
}

function spaceOf(cidr: string): Space {
  const [address, prefix] = cidr.split('/')
  const { family, value } = numberOf(address!)
  const size = 2 ** ((family === 4 ? 32 : 128) - Number(prefix))
  return { family, first: value, last: value + size - 1, prefix: Number(prefix) }
}

/** `10.0.0.1` or `10.0.0.1-10.0.0.4`: what exclusions of the generator look like. */
function rangeOf(text: string): { readonly first: number; readonly last: number } {
  const [first, last] = text.split('-')
  return { first: numberOf(first!).value, last: numberOf(last ?? first!).value }
}

// What is known.

export type ModelLease = {
  readonly poolId: number
  readonly address: string
  readonly token: number
  version: number
  state: 'RESERVED' | 'ACTIVE' | 'QUARANTINED'
  reason: string | null
  by: string | null
  owner: Owner | null
  node: string
  labels: Labels
  confirmBy: number | null
}

type Rest = {
  readonly availableAt: number
  readonly seq: number
  readonly holder: string
  readonly removed: boolean
}

type Ended = { readonly lease: ModelLease; readonly state: 'RELEASED' | 'REAPED'; readonly at: number }

export type ModelPool = {
  readonly id: number
  version: number
  name: string
  cidr: string
  subnet: string
  readonly prefixLength: number
  gateway: string
  exclude: readonly string[]
  cooldownMs: number
  confirmWithinMs: number | null
  ownerLimit: number
  isDefault: boolean
  draining: boolean
  strict: boolean
}

type Closing = { readonly attachment: string; readonly poolId: number | null; readonly at: number }

type State = {
  head: number
  pools: ModelPool[]
  leases: Map<string, ModelLease>
  resting: Map<string, Rest & { readonly poolId: number }>
  ended: Map<number, Ended>
  closings: Closing[]
  requests: Map<
    string,
    { readonly fingerprint: string; readonly expected: Accepted; readonly tokens: readonly number[] }
  >
}

export type ExpectedLease = Pick<
  ModelLease,
  'address' | 'token' | 'version' | 'state' | 'reason' | 'owner' | 'confirmBy'
> & {
  readonly shown: 'RESERVED' | 'ACTIVE' | 'QUARANTINED' | 'RELEASED' | 'REAPED'
  readonly reused: boolean
}
type Accepted = {
  readonly ok: true
  readonly leases: readonly ExpectedLease[]
  readonly items: readonly (readonly ExpectedLease[])[] | null
}
export type Expectation = { readonly events: readonly string[] } & (
  | Accepted
  | { readonly ok: false; readonly reason: string }
)

class Refused extends Error {
  readonly reason: string
  constructor(reason: string) {
    super(reason)
    this.reason = reason
  }
}

const HORIZON_MS = 120_000
const GRACE_MS = 60_000
const SKIPS = 32
const PER_CALLER = 64

const attachmentOf = (owner: Owner) =>
  JSON.stringify([owner.kind, owner.uid, owner.incarnation, owner.interface])
export const holderOf = (owner: Owner) => JSON.stringify([owner.kind, owner.name, owner.interface])

export type Model = {
  readonly state: State
  /** What this command must come to at this time; the model goes on from there. */
  apply(command: Command, at: number): Expectation
  /** All addresses of a pool that may be leased, in order. */
  leasable(pool: ModelPool): readonly string[]
  poolNamed(name: string): ModelPool | undefined
}

export function createModel(): Model {
  let state: State = {
    head: 0,
    pools: [],
    leases: new Map(),
    resting: new Map(),
    ended: new Map(),
    closings: [],
    requests: new Map(),
  }
  let now = 0
  let events: string[] = []

  function apply(command: Command, at: number): Expectation {
    now = Math.max(now, at)
    events = []
    const before = structuredClone(state)
    try {
      const replay = replayOf(command)
      const expected = replay ?? decide(command)
      if (command.type === 'reserve' && command.validateOnly) {
        state = before
        return { ...expected, events: [] }
      }
      if (command.requestId !== null && replay === null) {
        state.requests.set(command.requestId, {
          fingerprint: command.fingerprint ?? '',
          expected,
          tokens: handsOut(command)
            ? [expected.leases, ...(expected.items ?? [])].flat().map((one) => one.token)
            : [],
        })
      }
      return { ...expected, events }
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      state = before
      // A refused Reserve leaves nothing but what its caller saw live.
      events = []
      if (error instanceof RefusedAfterSeeing && !(command.type === 'reserve' && command.validateOnly))
        for (const seen of error.seen)
          if (!state.leases.has(seen.address))
            quarantineFree(seen.pool, seen.address, 'SEEN_BY_CALLER', command.actor)
      return { ok: false, reason: error.reason, events }
    }
  }

  function handsOut(command: Command): boolean {
    return (
      command.type === 'reserve' || (command.type === 'allOrNothing' && command.items[0]?.type === 'reserve')
    )
  }

  function replayOf(command: Command): Accepted | null {
    if (command.requestId === null) return null
    const request = state.requests.get(command.requestId)
    if (request === undefined) return null
    if (request.fingerprint !== command.fingerprint) throw new Refused('REQUEST_ID_REUSED')
    for (const token of request.tokens) {
      const lease = leaseOf(token)
      if (lease === undefined || lease.state === 'QUARANTINED') throw new Refused('LEASE_LOST')
    }
    return request.expected
  }

  function decide(command: Command): Accepted {
    switch (command.type) {
      case 'createNetwork':
        emit('network.created')
        return accepted([])
      case 'createPool':
        return createPool(command)
      case 'updatePool':
        return updatePool(command)
      case 'deletePool':
        return deletePool(command)
      case 'reserve':
        return reserve(command)
      case 'confirm':
        return confirm(command)
      case 'release':
        return release(command)
      case 'quarantine':
        return quarantine(command)
      case 'reap':
        return reap(command)
      case 'expire':
        return expire(command)
      case 'updateLabels':
        return updateLabels(command)
      case 'allOrNothing': {
        const items = command.items.map((item) => {
          try {
            return decide(item).leases
          } catch (error) {
            if (error instanceof Refused) throw new Refused(error.reason)
            throw error
          }
        })
        return { ok: true, leases: [], items }
      }
      default:
        throw new Error(`the model knows no ${command.type}`)
    }
  }

  function emit(line: string): number {
    state.head += 1
    events.push(line)
    return state.head
  }

  // Pools.

  function poolNamed(name: string): ModelPool | undefined {
    return state.pools.find((one) => one.name === name)
  }

  function poolOf(id: number): ModelPool {
    return state.pools.find((one) => one.id === id)!
  }

  function poolWith(address: string): ModelPool | undefined {
    const { family, value } = numberOf(address)
    return state.pools.find((one) => {
      const space = spaceOf(one.cidr)
      return space.family === family && space.first <= value && value <= space.last
    })
  }

  function blockOf(pool: ModelPool, address: string): string {
    const { family, value } = numberOf(address)
    const size = 2 ** ((family === 4 ? 32 : 128) - pool.prefixLength)
    return textOf(family, value - (value % size))
  }

  function leasable(pool: ModelPool): readonly string[] {
    const space = spaceOf(pool.cidr)
    const subnet = spaceOf(pool.subnet)
    const whole = space.family === 4 ? 32 : 128
    const block = 2 ** (whole - pool.prefixLength)
    const excluded = (value: number) => {
      if (pool.exclude.some((text) => rangeOf(text).first <= value && value <= rangeOf(text).last))
        return true
      if (pool.gateway !== '' && numberOf(pool.gateway).value === value) return true
      if (block > 1 || subnet.prefix >= whole - 1) return false
      return value === subnet.first || (space.family === 4 && value === subnet.last)
    }
    const found: string[] = []
    for (let value = space.first; value <= space.last; value += block) {
      const values = Array.from({ length: block }, (_, n) => value + n)
      if (!values.some(excluded)) found.push(textOf(space.family, value))
    }
    return found
  }

  function checkSettings(pool: ModelPool): void {
    const space = spaceOf(pool.cidr)
    const subnet = spaceOf(pool.subnet)
    const inside = (value: number, where: Space) => where.first <= value && value <= where.last
    if (!inside(space.first, subnet) || !inside(space.last, subnet)) throw new Refused('INVALID_FIELD')
    if (pool.prefixLength < space.prefix) throw new Refused('INVALID_FIELD')
    if (pool.gateway !== '' && !inside(numberOf(pool.gateway).value, subnet))
      throw new Refused('INVALID_FIELD')
    for (const text of pool.exclude) {
      const { first, last } = rangeOf(text)
      if (first > space.last || last < space.first) throw new Refused('INVALID_FIELD')
    }
    for (const other of state.pools) {
      const there = spaceOf(other.cidr)
      if (other.id === pool.id || there.family !== space.family) continue
      if (there.first <= space.last && space.first <= there.last) throw new Refused('INVALID_FIELD')
    }
  }

  function createPool({ pool: input }: CreatePool): Accepted {
    const pool: ModelPool = {
      id: state.head + 1,
      version: state.head + 1,
      name: input.name,
      cidr: input.cidr,
      subnet: input.subnet ?? input.cidr,
      prefixLength: input.prefixLength ?? (input.cidr.includes(':') ? 128 : 32),
      gateway: input.gateway ?? '',
      exclude: input.exclude ?? [],
      cooldownMs: input.cooldownMs ?? 120_000,
      confirmWithinMs: input.confirmWithinMs ?? null,
      ownerLimit: input.ownerLimit ?? 4,
      isDefault: input.isDefault ?? false,
      draining: input.draining ?? false,
      strict: input.liveness === 'STRICT',
    }
    if (poolNamed(pool.name) !== undefined) throw new Refused('INVALID_FIELD')
    checkSettings(pool)
    state.pools.push(pool)
    emit(`pool.created ${pool.name}`)
    return accepted([])
  }

  function updatePool({ name, version, change }: UpdatePool): Accepted {
    const pool = poolNamed(name)
    if (pool === undefined) throw new Refused('POOL_NOT_FOUND')
    if (version !== null && version !== pool.version) throw new Refused('VERSION_MISMATCH')
    const cidr = change.cidr ?? pool.cidr
    const edited: ModelPool = {
      ...pool,
      name: change.name ?? pool.name,
      cidr,
      subnet: change.subnet ?? (pool.subnet === pool.cidr ? cidr : pool.subnet),
      gateway: change.gateway === undefined ? pool.gateway : (change.gateway ?? ''),
      exclude: change.exclude ?? pool.exclude,
      cooldownMs: change.cooldownMs ?? pool.cooldownMs,
      confirmWithinMs: change.confirmWithinMs === undefined ? pool.confirmWithinMs : change.confirmWithinMs,
      ownerLimit: change.ownerLimit ?? pool.ownerLimit,
      isDefault: change.isDefault ?? pool.isDefault,
      draining: change.draining ?? pool.draining,
      strict: change.liveness === undefined ? pool.strict : change.liveness === 'STRICT',
    }
    checkSettings(edited)
    if (JSON.stringify(edited) === JSON.stringify(pool)) return accepted([])
    const namesake = poolNamed(edited.name)
    if (namesake !== undefined && namesake.id !== pool.id) throw new Refused('INVALID_FIELD')
    forget(pool, leasable(edited))
    edited.version = emit(`pool.updated ${edited.name}`)
    state.pools = state.pools.map((one) => (one.id === pool.id ? edited : one))
    return accepted([])
  }

  function deletePool({ name, version }: DeletePool): Accepted {
    const pool = poolNamed(name)
    if (pool === undefined) throw new Refused('POOL_NOT_FOUND')
    if (version !== null && version !== pool.version) throw new Refused('VERSION_MISMATCH')
    forget(pool, [])
    state.pools = state.pools.filter((one) => one.id !== pool.id)
    emit(`pool.deleted ${name}`)
    return accepted([])
  }

  /** What leaves a pool must be neither held nor cooling; what has cooled is forgotten. */
  function forget(pool: ModelPool, staying: readonly string[]): void {
    const leaving = leasable(pool).filter((address) => !staying.includes(address))
    for (const address of leaving) {
      const rest = state.resting.get(address)
      if (state.leases.has(address) || (rest !== undefined && rest.availableAt > now))
        throw new Refused('POOL_IN_USE')
    }
    for (const address of leaving) state.resting.delete(address)
  }

  // Reserve.

  type Wish = {
    readonly pools: readonly ModelPool[]
    readonly address: string | null
    readonly previous: boolean
  }
  type Seen = { readonly pool: ModelPool; readonly address: string }

  function reserve(command: Reserve): Accepted {
    const { owner } = command
    const wishes = wishesOf(command)
    const mine = heldBy((one) => attachmentOf(one) === attachmentOf(owner)).filter(
      (one) => one.state !== 'QUARANTINED',
    )
    if (!command.reopen)
      for (const { pools } of wishes)
        for (const pool of pools) if (closed(owner, pool.id)) throw new Refused('ATTACHMENT_CLOSED')
    const met = wishes.map((wish) => mine.find((one) => wish.pools.some((pool) => pool.id === one.poolId)))
    for (const [n, wish] of wishes.entries())
      if (met[n] !== undefined && wish.address !== null && wish.address !== met[n]!.address)
        throw new Refused('ILLEGAL_STATE')

    // Caps go by what was quarantined before the call.
    const quarantinedIn = (pool: ModelPool) =>
      [...state.leases.values()].filter((one) => one.poolId === pool.id && one.state === 'QUARANTINED').length
    const capOf = new Map(
      state.pools.map((pool) => [
        pool.id,
        Math.max(1, Math.floor(leasable(pool).length / 10)) - quarantinedIn(pool),
      ]),
    )
    let leftToCaller =
      PER_CALLER -
      [...state.leases.values()].filter(
        (one) => one.reason === 'SEEN_BY_CALLER' && one.by === command.actor.name,
      ).length
    const before = new Map([...state.leases].map(([address, lease]) => [address, { ...lease }]))

    const handedOn = supersede(command, met.includes(undefined))
    const seen: Seen[] = []
    const seenAddresses = new Set<string>()
    let skips = 0
    const live = (pool: ModelPool, address: string) =>
      command.liveAddresses.some((text) => poolWith(text)?.id === pool.id && blockOf(pool, text) === address)
    const see = (pool: ModelPool, address: string) => {
      seenAddresses.add(address)
      if (capOf.get(pool.id)! <= 0 || leftToCaller <= 0) return
      capOf.set(pool.id, capOf.get(pool.id)! - 1)
      leftToCaller -= 1
      seen.push({ pool, address })
    }
    // What is refused leaves only sightings of addresses that nobody held before.
    const refuse = (reason: string) =>
      new RefusedAfterSeeing(
        reason,
        seen.filter(({ address }) => !before.has(address)),
      )

    const bar = (pool: ModelPool) => {
      if (pool.draining) return 'POOL_DRAINING'
      if (pool.strict) return 'LIVENESS_STALE'
      const holds = heldBy((one) => holderOf(one) === holderOf(owner)).filter((one) => one.poolId === pool.id)
      return holds.length >= pool.ownerLimit ? 'OWNER_LIMIT' : null
    }
    const mayHaveBack = (rest: Rest) =>
      rest.availableAt <= now || (rest.removed && rest.holder === holderOf(owner))

    const pickNamed = (address: string, pool: ModelPool): string => {
      if (!leasable(pool).includes(address)) throw refuse('ADDRESS_EXCLUDED')
      // A refused Reserve supersedes nothing: who is superseded by it alone still has its address.
      const lease = handedOn.includes(address) ? undefined : before.get(address)
      if (lease?.state === 'QUARANTINED') throw refuse('ADDRESS_QUARANTINED')
      if (lease !== undefined) throw refuse('ADDRESS_TAKEN')
      const barred = bar(pool)
      if (barred !== null) throw refuse(barred)
      const rest = state.resting.get(address)
      if (rest !== undefined && !mayHaveBack(rest)) throw refuse('ADDRESS_COOLING')
      if (live(pool, address)) {
        see(pool, address)
        throw refuse('ADDRESS_QUARANTINED')
      }
      return address
    }

    const pickFrom = (pool: ModelPool, previous: boolean): string | null => {
      const free = leasable(pool).filter((one) => !state.leases.has(one) && !seenAddresses.has(one))
      const untouched = free.filter((one) => !state.resting.has(one))
      const rested = (addresses: readonly string[]) =>
        addresses
          .filter((one) => state.resting.has(one))
          .map((one) => ({ address: one, ...state.resting.get(one)! }))
      const reusable = rested(free)
        .filter((one) => one.availableAt <= now)
        .sort((a, b) => a.availableAt - b.availableAt || a.seq - b.seq)
        .map((one) => one.address)
      const order = [...untouched, ...reusable]
      if (previous) {
        const before = rested(leasable(pool))
          .filter((one) => one.holder === holderOf(owner) && mayHaveBack(one))
          .sort((a, b) => b.seq - a.seq)
        const first = handedOn.find((one) => poolWith(one)!.id === pool.id) ?? before[0]?.address
        if (first !== undefined && !seenAddresses.has(first)) order.unshift(first)
      }
      for (const address of order) {
        if (seenAddresses.has(address)) continue
        if (!live(pool, address)) return address
        see(pool, address)
        skips += 1
        if (skips === SKIPS) throw refuse('ALL_CANDIDATES_LIVE')
      }
      return null
    }

    const pick = (wish: Wish): string => {
      if (wish.address !== null)
        return pickNamed(wish.address, wish.pools.find((pool) => poolWith(wish.address!)?.id === pool.id)!)
      let exhausted = false
      for (const pool of wish.pools) {
        const barred = bar(pool)
        if (barred === 'POOL_DRAINING') continue
        if (barred !== null) throw refuse(barred)
        const address = pickFrom(pool, wish.previous)
        if (address !== null) return address
        exhausted = true
      }
      throw refuse(exhausted ? 'POOL_EXHAUSTED' : 'POOL_DRAINING')
    }

    const picked = wishes.map((wish, n) => (met[n] === undefined ? pick(wish) : null))
    for (const { pool, address } of seen) quarantineFree(pool, address, 'SEEN_BY_CALLER', command.actor)
    return accepted(
      wishes.map((_wish, n) => {
        const lease = met[n]
        if (lease !== undefined) {
          const { version } = lease
          const again = expected(reuse(command, lease), true)
          return command.validateOnly ? { ...again, version } : again
        }
        return expected(take(command, picked[n]!), false)
      }),
      command.validateOnly,
    )
  }

  function take(command: Reserve, address: string): ModelLease {
    const pool = poolWith(address)!
    const token = emit(`lease.reserved ${address}`)
    const within = command.confirmWithinMs ?? pool.confirmWithinMs
    const lease: ModelLease = {
      poolId: pool.id,
      address,
      token,
      version: token,
      state: command.confirmed ? 'ACTIVE' : 'RESERVED',
      reason: null,
      by: null,
      owner: command.owner,
      node: command.placement.node,
      labels: command.placement.labels,
      confirmBy: command.confirmed || within === null ? null : now + within,
    }
    state.leases.set(address, lease)
    state.resting.delete(address)
    const attachment = attachmentOf(command.owner)
    state.closings = state.closings.filter(
      (one) => one.attachment !== attachment || (one.poolId !== null && one.poolId !== pool.id),
    )
    return lease
  }

  function reuse(command: Reserve, lease: ModelLease): ModelLease {
    const { node } = command.actor
    if (lease.state === 'ACTIVE' || (node !== null && node !== lease.node)) return lease
    if (command.confirmed) return change(lease, 'lease.confirmed', { state: 'ACTIVE', confirmBy: null })
    if (lease.confirmBy === null) return lease
    const within = command.confirmWithinMs ?? poolOf(lease.poolId).confirmWithinMs
    const confirmBy = within === null ? null : Math.max(lease.confirmBy, now + within)
    return confirmBy === lease.confirmBy ? lease : change(lease, 'lease.updated', { confirmBy })
  }

  function wishesOf(command: Reserve): readonly Wish[] {
    const defaults = ([4, 6] as const).flatMap((family) => {
      const all = state.pools.filter((one) => spaceOf(one.cidr).family === family)
      const named = all.filter((one) => one.isDefault)
      return named.length > 0 ? named : all.length === 1 ? all : []
    })
    if (command.claims.length === 0) {
      const families = defaults.map((one) => spaceOf(one.cidr).family)
      if (defaults.length === 0 || new Set(families).size < families.length)
        throw new Refused('INVALID_FIELD')
      return defaults.map((pool) => ({ pools: [pool], address: null, previous: false }))
    }
    const used = new Set<number>()
    return command.claims.map((claim) => {
      const pools = poolsOf(claim, defaults)
      for (const pool of pools) if (used.has(pool.id)) throw new Refused('INVALID_FIELD')
      for (const pool of pools) used.add(pool.id)
      if (claim.address !== null) {
        const there = pools.find((pool) => poolWith(claim.address!)?.id === pool.id)
        if (there === undefined || blockOf(there, claim.address) !== claim.address)
          throw new Refused('INVALID_FIELD')
      }
      return { pools, address: claim.address, previous: claim.preferPrevious }
    })
  }

  function poolsOf(claim: Claim, defaults: readonly ModelPool[]): readonly ModelPool[] {
    if (claim.pools.length > 0)
      return [...new Set(claim.pools)].map((name) => {
        const pool = poolNamed(name)
        if (pool === undefined) throw new Refused('POOL_NOT_FOUND')
        return pool
      })
    if (claim.address !== null) {
      const pool = poolWith(claim.address)
      if (pool === undefined) throw new Refused('INVALID_FIELD')
      return [pool]
    }
    if (defaults.length !== 1) throw new Refused('INVALID_FIELD')
    return defaults
  }

  /** Deals with older incarnations and uids of the name; the addresses they let go of. */
  function supersede(command: Reserve, takes: boolean): readonly string[] {
    const { owner, supersedes } = command
    const handedOn: string[] = []
    const closedNow = new Set<string>()
    for (const lease of heldBy((one) => holderOf(one) === holderOf(owner))) {
      const holder = lease.owner!
      if (attachmentOf(holder) === attachmentOf(owner)) continue
      const named = supersedes !== null && names(supersedes, holder)
      const removed = named && supersedes.removalConfirmed
      const alive = lease.state !== 'QUARANTINED'
      if (alive && owner.incarnation === '' && holder.incarnation !== '') throw new Refused('ILLEGAL_STATE')
      const elsewhere =
        lease.node !== '' && command.placement.node !== '' && lease.node !== command.placement.node
      if (alive && holder.uid !== owner.uid && elsewhere && owner.kind !== 'pod' && !named)
        throw new Refused('ILLEGAL_STATE')
      if (removed && (alive || lease.reason === 'SUPERSEDED' || lease.reason === 'REMOVAL_UNCONFIRMED')) {
        mayTouch(command.actor, lease)
        end(lease, 'lease.released')
        handedOn.push(lease.address)
      } else if (alive) quarantineHeld(lease, 'SUPERSEDED', command.actor)
      // What stays as it is belongs to a life that is over all the same, if the newcomer's can be told to be newer and
      // does not only say again what it holds.
      else if (!takes || owner.incarnation === '' || closed(holder, null)) continue
      if (!closedNow.has(attachmentOf(holder))) close(holder, null)
      closedNow.add(attachmentOf(holder))
    }
    return handedOn
  }

  function names(supersedes: Supersedes, holder: Owner): boolean {
    const { uid, incarnation } = supersedes
    if (uid === null && incarnation === null) return false
    return (
      (uid === null || uid === holder.uid) && (incarnation === null || incarnation === holder.incarnation)
    )
  }

  // One lease.

  function confirm(command: Confirm): Accepted {
    const all = referred(command.lease)
    if (!Array.isArray(all)) throw new Refused('LEASE_LOST')
    if (all.length === 0)
      throw new Refused(closed(command.lease.owner!, null) ? 'ATTACHMENT_CLOSED' : 'LEASE_NOT_FOUND')
    const fresh = (poolId: number) => all.some((one) => one.poolId === poolId && one.state !== 'QUARANTINED')
    const leases = all.filter((one) => one.state !== 'QUARANTINED' || !fresh(one.poolId))
    for (const lease of leases) {
      mayTouch(command.actor, lease)
      matches(command.lease, lease)
      if (lease.state !== 'ACTIVE' && lease.owner !== null && closed(lease.owner, lease.poolId))
        throw new Refused('ATTACHMENT_CLOSED')
      if (lease.state === 'QUARANTINED') throw new Refused('ILLEGAL_STATE')
    }
    return accepted(
      leases.map((lease) =>
        expected(
          lease.state === 'ACTIVE'
            ? lease
            : change(lease, 'lease.confirmed', { state: 'ACTIVE', confirmBy: null }),
        ),
      ),
    )
  }

  function release(command: Release): Accepted {
    const { owner } = command.lease
    if (command.lease.token === null && (owner!.incarnation === '' || owner!.interface === ''))
      throw new Refused('INVALID_FIELD')
    const found = referred(command.lease)
    if (!Array.isArray(found)) {
      mayTouch(command.actor, found.lease)
      matches(command.lease, found.lease)
      return accepted([shownEnded(found)])
    }
    if (command.lease.token === null && found.length === 0) return releaseAgain(command, owner!)
    for (const lease of found) {
      mayTouch(command.actor, lease)
      matches(command.lease, lease)
      if (lease.reason === 'CONFLICT' && !command.removalConfirmed) throw new Refused('ILLEGAL_STATE')
      if ((lease.reason === 'FOREIGN' || lease.reason === 'SEEN_BY_CALLER') && command.removalConfirmed)
        throw new Refused('ILLEGAL_STATE')
    }
    const from = events.length
    // Who has a fresh lease beside the quarantined one that is named is not closed there.
    const holders = found
      .filter(
        (lease) =>
          lease.owner === null || lease.state !== 'QUARANTINED' || !livesOn(lease.owner, lease.poolId),
      )
      .map((lease) => ({ owner: lease.owner, poolId: lease.poolId }))
    const keeps = (lease: ModelLease) =>
      lease.state === 'QUARANTINED' && lease.reason !== 'SUPERSEDED' && lease.reason !== 'REMOVAL_UNCONFIRMED'
    const letGo = (lease: ModelLease): ExpectedLease => {
      if (!command.removalConfirmed)
        return expected(
          lease.state === 'QUARANTINED' ? lease : quarantineHeld(lease, 'REMOVAL_UNCONFIRMED', command.actor),
        )
      if (!keeps(lease)) {
        end(lease, 'lease.released')
        return { ...expected(lease), version: state.head, shown: 'RELEASED', confirmBy: null }
      }
      if (lease.owner === null) return expected(lease)
      return expected(change(lease, 'lease.quarantined', { owner: null }))
    }
    // In the log, what ends stands before what stays.
    const inOrder = [...found.filter((lease) => !keeps(lease)), ...found.filter(keeps)]
    const done = new Map(inOrder.map((lease) => [lease.address, letGo(lease)]))
    const after = found.map((lease) => done.get(lease.address)!)
    const changed = events.length > from
    if (command.lease.token === null) {
      if (changed || !closed(owner!, null)) close(owner!, null)
    } else
      for (const one of holders)
        if (one.owner !== null && (changed || !closed(one.owner, one.poolId))) close(one.owner, one.poolId)
    return accepted(after)
  }

  /** By an owner that holds nothing: what it held last, and closed unless that was released and is long past. */
  function releaseAgain(command: Release, owner: Owner): Accepted {
    const all = [...state.ended.values()].filter(
      ({ lease }) => lease.owner !== null && attachmentOf(lease.owner) === attachmentOf(owner),
    )
    // The number of the event that ended it is the last version.
    const numbers = new Set(all.map(({ lease }) => lease.version))
    let first = Math.max(...numbers)
    while (numbers.has(first - 1)) first -= 1
    const last = all
      .filter(({ lease }) => lease.version >= first)
      .sort((a, b) => a.lease.version - b.lease.version)
    for (const { lease } of last) mayTouch(command.actor, lease)
    const released = last.length > 0 && last.every((one) => one.state === 'RELEASED')
    if (!closed(owner, null) && !(released && last[0]!.at + HORIZON_MS <= now)) close(owner, null)
    return accepted(last.map(shownEnded))
  }

  function shownEnded(ended: Ended): ExpectedLease {
    return { ...expected(ended.lease), shown: ended.state, confirmBy: null }
  }

  function quarantine(command: QuarantineAddress): Accepted {
    const { target } = command
    let lease: ModelLease | undefined
    if ('token' in target) {
      const found = byToken(target.token)
      if ('lease' in found) throw new Refused('LEASE_LOST')
      lease = found
    } else {
      const pool = poolWith(target.address)
      if (pool === undefined) throw new Refused('INVALID_FIELD')
      const address = blockOf(pool, target.address)
      if (!leasable(pool).includes(address)) throw new Refused('ADDRESS_EXCLUDED')
      lease = state.leases.get(address)
      if (lease === undefined)
        return accepted([expected(quarantineFree(pool, address, 'OPERATOR', command.actor))])
    }
    mayTouch(command.actor, lease)
    if (lease.reason === 'OPERATOR') return accepted([expected(lease)])
    return accepted([expected(quarantineHeld(lease, 'OPERATOR', command.actor))])
  }

  function reap(command: Reap): Accepted {
    const lease = heldLease(command.token)
    if (lease.version !== command.version) throw new Refused('VERSION_MISMATCH')
    end(lease, 'lease.reaped')
    return accepted([{ ...expected(lease), version: state.head, shown: 'REAPED', confirmBy: null }])
  }

  function expire(command: Expire): Accepted {
    const lease = heldLease(command.token)
    if (lease.version !== command.version) throw new Refused('VERSION_MISMATCH')
    if (lease.state !== 'RESERVED' || lease.confirmBy === null || now <= lease.confirmBy + GRACE_MS)
      throw new Refused('ILLEGAL_STATE')
    end(lease, 'lease.reaped')
    return accepted([{ ...expected(lease), version: state.head, shown: 'REAPED', confirmBy: null }])
  }

  function updateLabels(command: UpdateLabels): Accepted {
    const lease = heldLease(command.token)
    mayTouch(command.actor, lease)
    if (command.version !== null && command.version !== lease.version) throw new Refused('VERSION_MISMATCH')
    const sorted = (labels: Labels) => JSON.stringify(Object.entries(labels).sort())
    if (sorted(lease.labels) === sorted(command.labels)) return accepted([expected(lease)])
    return accepted([expected(change(lease, 'lease.updated', { labels: command.labels }))])
  }

  // What becomes of an address.

  function change(lease: ModelLease, type: string, fields: Partial<ModelLease>): ModelLease {
    Object.assign(lease, fields)
    const nobody = type === 'lease.quarantined' && lease.owner === null ? ' (nobody)' : ''
    const reason = type === 'lease.quarantined' ? ` ${lease.reason}${nobody}` : ''
    lease.version = emit(`${type} ${lease.address}${reason}`)
    return lease
  }

  function quarantineHeld(lease: ModelLease, reason: string, actor: Actor): ModelLease {
    return change(lease, 'lease.quarantined', {
      state: 'QUARANTINED',
      reason,
      by: actor.name,
      confirmBy: null,
    })
  }

  function quarantineFree(pool: ModelPool, address: string, reason: string, actor: Actor): ModelLease {
    const token = state.head + 1
    const lease: ModelLease = {
      poolId: pool.id,
      address,
      token,
      version: token,
      state: 'QUARANTINED',
      reason,
      by: actor.name,
      owner: null,
      node: '',
      labels: {},
      confirmBy: null,
    }
    state.leases.set(address, lease)
    state.resting.delete(address)
    return change(lease, 'lease.quarantined', {})
  }

  function end(lease: ModelLease, type: 'lease.released' | 'lease.reaped'): void {
    const seq = emit(`${type} ${lease.address}`)
    const pool = poolOf(lease.poolId)
    state.leases.delete(lease.address)
    state.resting.set(lease.address, {
      poolId: pool.id,
      availableAt: now + pool.cooldownMs,
      seq,
      holder: lease.owner === null ? '' : holderOf(lease.owner),
      removed: type === 'lease.released',
    })
    state.ended.set(lease.token, {
      lease: { ...lease, version: seq },
      state: type === 'lease.released' ? 'RELEASED' : 'REAPED',
      at: now,
    })
  }

  function close(owner: Owner, poolId: number | null): void {
    if (owner.incarnation === '') return
    const attachment = attachmentOf(owner)
    state.closings = state.closings.filter((one) => one.attachment !== attachment || one.poolId !== poolId)
    state.closings.push({ attachment, poolId, at: now })
    const where = poolId === null ? 'everywhere' : `in ${poolOf(poolId).name}`
    emit(`attachment.closed ${owner.uid}#${owner.incarnation} ${where}`)
  }

  // Questions.

  function heldBy(fits: (owner: Owner) => boolean): ModelLease[] {
    return [...state.leases.values()]
      .filter((one) => one.owner !== null && fits(one.owner))
      .sort((a, b) => a.token - b.token)
  }

  function livesOn(owner: Owner, poolId: number): boolean {
    return heldBy((one) => attachmentOf(one) === attachmentOf(owner)).some(
      (one) => one.poolId === poolId && one.state !== 'QUARANTINED',
    )
  }

  function closed(owner: Owner, poolId: number | null): boolean {
    if (owner.incarnation === '') return false
    const attachment = attachmentOf(owner)
    const closings = state.closings.filter(
      (one) => one.attachment === attachment && (one.poolId === null || one.poolId === poolId),
    )
    if (closings.length === 0) return false
    return (
      closings.some((one) => now < one.at + HORIZON_MS) ||
      heldBy((one) => attachmentOf(one) === attachment).some(
        (one) => one.reason === 'SUPERSEDED' || one.reason === 'REMOVAL_UNCONFIRMED',
      )
    )
  }

  function leaseOf(token: number): ModelLease | undefined {
    return [...state.leases.values()].find((one) => one.token === token)
  }

  function byToken(token: number): ModelLease | Ended {
    const found = leaseOf(token) ?? state.ended.get(token)
    if (found === undefined) throw new Refused(token > state.head ? 'VERSION_MISMATCH' : 'LEASE_NOT_FOUND')
    return found
  }

  function heldLease(token: number): ModelLease {
    const found = byToken(token)
    if ('lease' in found) throw new Refused('LEASE_LOST')
    return found
  }

  function referred(reference: LeaseReference): ModelLease[] | Ended {
    if (reference.token === null) return heldBy((one) => attachmentOf(one) === attachmentOf(reference.owner))
    const found = byToken(reference.token)
    return 'lease' in found ? found : [found]
  }

  function mayTouch(actor: Actor, lease: ModelLease): void {
    if (actor.node !== null && actor.node !== lease.node) throw new Refused('PERMISSION_DENIED')
  }

  function matches(reference: LeaseReference, lease: ModelLease): void {
    if (reference.token === null || reference.owner === null) return
    if (lease.owner === null || attachmentOf(lease.owner) !== attachmentOf(reference.owner))
      throw new Refused('ILLEGAL_STATE')
  }

  return {
    get state() {
      return state
    },
    apply,
    leasable,
    poolNamed,
  }
}

class RefusedAfterSeeing extends Refused {
  readonly seen: readonly { readonly pool: ModelPool; readonly address: string }[]
  constructor(reason: string, seen: RefusedAfterSeeing['seen']) {
    super(reason)
    this.seen = seen
  }
}

function accepted(leases: readonly ExpectedLease[], dry = false): Accepted {
  const shown = dry ? leases.map((one) => (one.reused ? one : { ...one, token: 0, version: 0 })) : leases
  return { ok: true, leases: shown, items: null }
}

function expected(lease: ModelLease, reused = false): ExpectedLease {
  const { address, token, version, state, reason, owner, confirmBy } = lease
  return { address, token, version, state, reason, owner, confirmBy, shown: state, reused }
}
