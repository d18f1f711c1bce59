/**
 * A reference model of one network, written from DESIGN.md and not from `src/core`: plain maps, addresses listed one
 * by one, every question a scan. It says what each command must come to; `model-walk.ts` asks.
 *
 * Its addresses lie in 10.0.0.0/24 and fd00::/112. It knows no eras and no rebuilding. What sources see is told to it as
 * to the system; that a proof proves something is the judge's word.
 */
import type {
  Actor,
  Claim,
  Command,
  Confirm,
  CreatePool,
  DeletePool,
  Expire,
  FenceNode,
  LeaseReference,
  QuarantineAddress,
  Reap,
  ReapProven,
  Release,
  Reserve,
  Restore,
  ResumeHold,
  Sight,
  SightedEntry,
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
  boot: string
  labels: Labels
  /** Other nodes that were told that it is theirs, the first four. */
  asked?: readonly string[]
  confirmBy: number | null
  reservedAt: number
  /** Promised, confirmed or set aside. */
  changedAt: number
}

type Rest = {
  readonly availableAt: number
  readonly seq: number
  readonly holder: string
  readonly removed: boolean
  /** Whoever was there, and on which node. */
  readonly owner: Owner | null
  readonly node: string
  readonly moved: boolean
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
  confirmGraceMs: number
}

type Closing = {
  readonly attachment: string
  readonly owner: Owner
  readonly poolId: number | null
  readonly at: number
}

export type ModelSource = {
  readonly id: string
  state: 'REGISTERED' | 'ENABLED' | 'RETIRED'
  /** Empty: the whole network. */
  readonly node: string
  readonly intervalMs: number
  epoch: string
  /** Of the last complete snapshot. */
  complete: { readonly at: number } | null
}

type Seen = {
  readonly source: string
  readonly entry: SightedEntry
  head: number | null
  readonly at: number
  /** Of one that ended. */
  lastAt: number | null
}

type State = {
  head: number
  pools: ModelPool[]
  leases: Map<string, ModelLease>
  resting: Map<string, Rest & { readonly poolId: number }>
  ended: Map<number, Ended>
  closings: Closing[]
  fences: {
    readonly node: string
    readonly boot: string
    readonly seq: number
    readonly head: number
    readonly at: number
  }[]
  held: string[]
  absences: { readonly source: string; readonly seq: number; readonly at: number }[]
  /** From which number on reaps on absence count. */
  resumed: Map<string, number>
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
/** Of the minimum age, which no pool of the walk sets otherwise. */
const HALF_THE_AGE_MS = 150_000
const SKIPS = 32
const PER_CALLER = 64
const PER_SOURCE = 64
const HOUR_MS = 3_600_000
const PROOF_AGE_MS = 60_000
const SIGHTING_REASONS = ['CONFLICT', 'RELEASED_BUT_LIVE', 'FOREIGN', 'SECOND_ADDRESS']

const attachmentOf = (owner: Owner) =>
  JSON.stringify([owner.kind, owner.uid, owner.incarnation, owner.interface])
export const holderOf = (owner: Owner) => JSON.stringify([owner.kind, owner.name, owner.interface])

export type Model = {
  readonly state: State
  readonly sources: readonly ModelSource[]
  register(source: ModelSource): void
  /** A report begun now; without proof, one of which nothing says when it was begun. */
  report(id: string, entries: readonly SightedEntry[], how: ReportHow, at: number): void
  listed(id: string): readonly SightedEntry[]
  /** When the lease's address was last seen, as far as its intervals tell. */
  lastSeenAt(address: string): number | null
  /** What this command must come to at this time; the model goes on from there. */
  apply(command: Command, at: number): Expectation
  /** All addresses of a pool that may be leased, in order. */
  leasable(pool: ModelPool): readonly string[]
  poolNamed(name: string): ModelPool | undefined
}

export type ReportHow = { readonly complete: boolean; readonly proven: boolean; readonly epoch: string }

export function createModel(): Model {
  const sources: ModelSource[] = []
  const seen: Seen[] = []
  /** When a source reported last, and be it in part. */
  const heardAt = new Map<string, number>()
  let state: State = {
    head: 0,
    pools: [],
    leases: new Map(),
    resting: new Map(),
    ended: new Map(),
    closings: [],
    fences: [],
    held: [],
    absences: [],
    resumed: new Map(),
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
          tokens: holds(command)
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
            quarantineFree(seen.pool, seen.address, 'SEEN_BY_CALLER', command.actor.name)
      if (error instanceof RefusedAndHeld)
        for (const source of error.sources) {
          state.held.push(source)
          emit(`reconcile.held ${source === '' ? 'everything' : source}`)
        }
      return { ok: false, reason: error.reason, events }
    }
  }

  /** Its answer says that leases are held. */
  function holds(command: Command): boolean {
    const { type } = command.type === 'allOrNothing' ? (command.items[0] ?? command) : command
    return type === 'reserve' || type === 'confirm'
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
      case 'sight':
        return sight(command)
      case 'reapProven':
        return reapProven(command)
      case 'restore':
        return restore(command)
      case 'resumeHold':
        return resumeHold(command)
      case 'fenceNode':
        return fenceNode(command)
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
      confirmGraceMs: input.reapPolicy?.confirmGraceMs ?? GRACE_MS,
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
      confirmGraceMs:
        change.reapPolicy === null ? GRACE_MS : (change.reapPolicy?.confirmGraceMs ?? pool.confirmGraceMs),
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
  type SeenByCaller = { readonly pool: ModelPool; readonly address: string }

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
    const seen: SeenByCaller[] = []
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
      if (pool.strict && isStale(command.placement.node)) return 'LIVENESS_STALE'
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
      if (vetoes(pool, address).some((one) => !isItself(one, owner))) throw refuse('ADDRESS_QUARANTINED')
      return address
    }
    /** Who sees a free address; not whoever said since that it is removed, nor what a boot listed that is over. */
    const vetoes = (pool: ModelPool, address: string) => {
      const rest = state.resting.get(address)
      const rested = rest !== undefined && rest.availableAt <= now && !handedOn.includes(address)
      return liveAt(pool, address).filter((seen) => {
        const { head, entry } = seen
        if (rest === undefined || head === null || head >= rest.seq) return true
        if (!rested && isItself(seen, owner)) return false
        if (rest.removed && isOfLast(pool, rest, seen)) return false
        const fence = state.fences.findLast((one) => one.node === entry.node && one.boot === entry.boot)
        return fence === undefined || entry.node === '' || head > fence.head || head >= fence.seq
      })
    }
    const isOfLast = (pool: ModelPool, rest: Rest, seen: Seen) => {
      const { node } = seen.entry
      if (rest.moved && node !== '') return false
      if (pool.prefixLength !== (spaceOf(pool.cidr).family === 4 ? 32 : 128))
        return node !== '' && node === rest.node
      const there = node === '' || rest.node === '' || node === rest.node
      return there && rest.owner !== null && isItself(seen, rest.owner)
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
        if (seenAddresses.has(address) || vetoes(pool, address).length > 0) continue
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
    for (const { pool, address } of seen) quarantineFree(pool, address, 'SEEN_BY_CALLER', command.actor.name)
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
      boot: command.placement.boot,
      labels: command.placement.labels,
      confirmBy: command.confirmed || within === null ? null : now + within,
      reservedAt: now,
      changedAt: now,
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
    askedFrom(command.placement, lease)
    if (node !== null && node !== lease.node && !lease.asked?.includes(node)) return lease
    if (lease.state === 'RESERVED' && command.confirmed)
      return change(lease, 'lease.confirmed', { state: 'ACTIVE', confirmBy: null })
    if (lease.confirmBy === null) return renew(lease)
    const within = command.confirmWithinMs ?? poolOf(lease.poolId).confirmWithinMs
    if (within === null) return promise(lease)
    const confirmBy = Math.max(lease.confirmBy, now + within)
    return confirmBy === lease.confirmBy ? lease : change(lease, 'lease.updated', { confirmBy })
  }

  /** Told on another node, or in another boot, that it is his: it may run there. */
  function askedFrom({ node, boot }: Reserve['placement'], lease: ModelLease): void {
    const elsewhere = (node !== '' && node !== lease.node) || (boot !== '' && boot !== lease.boot)
    const { asked = [] } = lease
    const another =
      node !== '' &&
      lease.node !== '' &&
      !asked.includes(node) &&
      (asked.length > 0 || node !== lease.node) &&
      asked.length < 4
    if (!another && (lease.boot === '' || !elsewhere)) return
    // A deadline goes by when it was reserved.
    const promised = lease.confirmBy === null ? { reservedAt: now, changedAt: now } : {}
    change(lease, 'lease.updated', { boot: '', ...promised, ...(another && { asked: [...asked, node] }) })
  }

  function promise(lease: ModelLease): ModelLease {
    return change(lease, 'lease.updated', { confirmBy: null, reservedAt: now, changedAt: now })
  }

  /** Promised again: written down where the promise has grown old. */
  function renew(lease: ModelLease): ModelLease {
    const fence = state.fences.findLast((one) => one.node === lease.node && one.boot === lease.boot)
    const isFencedSince = fence !== undefined && lease.boot !== '' && fence.at >= lease.changedAt
    if (now - lease.changedAt <= HALF_THE_AGE_MS && !isFencedSince) return lease
    return lease.state === 'ACTIVE' ? change(lease, 'lease.confirmed', {}) : promise(lease)
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
        mayEnd(command.actor, lease)
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
            ? renew(lease)
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
      mayEnd(command.actor, lease)
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
        return accepted([expected(quarantineFree(pool, address, 'OPERATOR', command.actor.name))])
    }
    mayTouch(command.actor, lease)
    if (lease.reason === 'OPERATOR') return accepted([expected(lease)])
    return accepted([expected(quarantineHeld(lease, 'OPERATOR', command.actor))])
  }

  function reap(command: Reap): Accepted {
    const lease = heldLease(command.token)
    mayTouch(command.actor, lease)
    if (lease.version !== command.version) throw new Refused('VERSION_MISMATCH')
    end(lease, 'lease.reaped')
    return accepted([{ ...expected(lease), version: state.head, shown: 'REAPED', confirmBy: null }])
  }

  function expire(command: Expire): Accepted {
    const lease = heldLease(command.token)
    if (lease.version !== command.version) throw new Refused('VERSION_MISMATCH')
    const { confirmGraceMs } = poolOf(lease.poolId)
    if (lease.state !== 'RESERVED' || lease.confirmBy === null || now <= lease.confirmBy + confirmGraceMs)
      throw new Refused('ILLEGAL_STATE')
    const since = liveAt(poolOf(lease.poolId), lease.address).filter(
      ({ head }) => head === null || head >= lease.token,
    )
    if (since.length > 0 || (lastSeenAt(lease.address) ?? 0) > lease.reservedAt)
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

  // What sources see.

  function register(source: ModelSource): void {
    sources.push(source)
  }

  function sourceOf(id: string): ModelSource | undefined {
    return sources.find((one) => one.id === id)
  }

  function slowest(): number {
    return Math.max(0, ...sources.filter((one) => one.state !== 'RETIRED').map((one) => one.intervalMs))
  }

  function report(id: string, entries: readonly SightedEntry[], how: ReportHow, at: number): void {
    const source = sourceOf(id)!
    source.epoch = how.epoch
    const head = how.proven ? state.head : null
    const same = (a: SightedEntry, b: SightedEntry) => JSON.stringify(a) === JSON.stringify(b)
    for (const one of seen) {
      if (one.source !== id || one.lastAt !== null) continue
      // A list with holes leaves open when any of it was listed last.
      one.head = null
      if (!how.complete) continue
      if (entries.some((entry) => same(entry, one.entry))) one.head = head
      else one.lastAt = Math.max(one.at, heardAt.get(id) ?? 0)
    }
    for (const entry of entries)
      if (!seen.some((one) => one.source === id && one.lastAt === null && same(one.entry, entry)))
        seen.push({ source: id, entry, head, at, lastAt: null })
    if (how.complete && how.proven) source.complete = { at }
    heardAt.set(id, at)
  }

  function listed(id: string): readonly SightedEntry[] {
    return seen.filter((one) => one.source === id && one.lastAt === null).map((one) => one.entry)
  }

  function isAt(one: Seen, pool: ModelPool, address: string): boolean {
    return (
      one.entry.state !== 'terminal' &&
      numberOf(one.entry.address).family === numberOf(address).family &&
      blockOf(pool, one.entry.address) === address
    )
  }

  function liveAt(pool: ModelPool, address: string): Seen[] {
    return seen.filter(
      (one) => one.lastAt === null && sourceOf(one.source)!.state !== 'RETIRED' && isAt(one, pool, address),
    )
  }

  function lastSeenAt(address: string): number | null {
    const pool = poolWith(address)
    if (pool === undefined) return null
    const times = [
      ...liveAt(pool, address).map((one) => one.at),
      ...seen.filter((one) => one.lastAt !== null && isAt(one, pool, address)).map((one) => one.lastAt!),
    ]
    return times.length === 0 ? null : Math.max(...times)
  }

  function isStale(node: string): boolean {
    const counting = sources.filter(
      (one) =>
        one.state === 'ENABLED' &&
        !state.fences.some((fence) => fence.node === one.node && fence.boot === one.epoch),
    )
    const asking = counting.filter((one) => one.node === '' || one.node === node)
    return (
      counting.length === 0 ||
      counting.some((one) => one.complete === null) ||
      asking.length === 0 ||
      asking.some((one) => now - one.complete!.at > 3 * one.intervalMs)
    )
  }

  function isSame(holder: Owner, other: Owner): boolean {
    if (holder.kind !== other.kind) return false
    return holder.uidNamed ? holder.uid === other.uid : holder.name === other.name
  }

  function isItself({ entry: { owner: who } }: Seen, claimant: Owner): boolean {
    if (who === null || !isSame(claimant, who)) return false
    return who.incarnation === '' || claimant.incarnation === '' || who.incarnation === claimant.incarnation
  }

  /** Two owners that nothing says are different may be the same. */
  function isDifferent(holder: Owner, other: Owner): boolean {
    if (isSame(holder, other)) return false
    if (holder.kind !== other.kind || (holder.uidNamed && other.uidNamed)) return true
    const toldName = (one: Owner) => !(one.uidNamed && one.name === one.uid)
    return toldName(holder) && toldName(other) && holder.name !== other.name
  }

  function sight(command: Sight): Accepted {
    const source = sourceOf(command.source)
    if (source === undefined) throw new Refused('SOURCE_NOT_FOUND')
    if (source.epoch !== command.epoch) throw new Refused('VERSION_MISMATCH')
    const before = structuredClone(state)
    const leases = command.entries.flatMap((entry) => {
      const changed = sightOne(source.id, entry)
      return changed === null ? [] : [expected(changed)]
    })
    if (source.state === 'ENABLED' && !command.dryRun) return accepted(leases)
    state = before
    events = []
    return accepted([])
  }

  function sightOne(source: string, entry: SightedEntry): ModelLease | null {
    const { owner, node, boot } = entry
    if (entry.state === 'terminal') return null
    const pool = poolWith(entry.address)
    if (pool === undefined) return null
    const address = blockOf(pool, entry.address)
    if (!leasable(pool).includes(address)) return null
    const listing = liveAt(pool, address).find(
      (one) => one.source === source && JSON.stringify(one.entry) === JSON.stringify(entry),
    )
    if (listing === undefined || listing.head === null) return null
    const lease = state.leases.get(address)
    const last = lease?.version ?? state.resting.get(address)?.seq ?? 0
    if (listing.head < last) return null
    const fence = state.fences.findLast((one) => one.node === node && one.boot === boot)
    const isFenced = fence !== undefined && listing.head <= fence.head && listing.head < fence.seq
    const quarantines = [...state.leases.values()].filter((one) => one.state === 'QUARANTINED')
    const capped =
      quarantines.filter((one) => one.by === source && SIGHTING_REASONS.includes(one.reason!)).length >=
        PER_SOURCE ||
      quarantines.filter((one) => one.poolId === pool.id).length >=
        Math.max(1, Math.floor(leasable(pool).length / 10))
    if (lease !== undefined) {
      if (lease.state === 'QUARANTINED') return null
      const single = pool.prefixLength === (spaceOf(pool.cidr).family === 4 ? 32 : 128)
      const own = lease.owner !== null && owner !== null && isSame(lease.owner, owner)
      const elsewhere = lease.node !== '' && node !== '' && lease.node !== node
      const other = owner !== null && isDifferent(lease.owner!, owner) && (single || elsewhere)
      if (other && !own) {
        if (capped) return null
        return change(lease, 'lease.quarantined', {
          state: 'QUARANTINED',
          reason: 'CONFLICT',
          by: source,
          confirmBy: null,
        })
      }
      if (lease.state === 'ACTIVE' || (single && !own) || isFenced) return null
      return change(lease, 'lease.confirmed', { state: 'ACTIVE', confirmBy: null })
    }
    if (isFenced) return null
    const aside = (reason: string, whose: Owner | null) => {
      if (capped) return null
      const made = quarantineFree(pool, address, reason, source, whose)
      made.node = node
      made.boot = boot
      return made
    }
    const inBlock = pool.prefixLength !== (spaceOf(pool.cidr).family === 4 ? 32 : 128)
    if (inBlock || owner === null || !owner.uidNamed) return aside('FOREIGN', null)
    const named = { ...owner, interface: owner.interface === '' ? `?${address}` : owner.interface }
    if (fence !== undefined) return aside('RELEASED_BUT_LIVE', named)
    const life = state.closings
      .map((one) => one.owner)
      .findLast(
        (one) =>
          one.kind === owner.kind &&
          one.uid === owner.uid &&
          (owner.incarnation === '' || owner.incarnation === one.incarnation) &&
          (owner.interface === '' || owner.interface === one.interface) &&
          closed(one, pool.id),
      )
    if (life !== undefined) return aside('RELEASED_BUT_LIVE', life)
    const has = [...state.leases.values()].some(
      (one) =>
        one.poolId === pool.id &&
        one.owner !== null &&
        one.owner.interface === owner.interface &&
        isSame(one.owner, owner) &&
        // Found by its name, or by its life.
        (one.owner.name === owner.name || attachmentOf(one.owner) === attachmentOf(owner)),
    )
    if (owner.interface !== '' && has) return aside('SECOND_ADDRESS', named)
    const token = state.head + 1
    const adopted: ModelLease = {
      poolId: pool.id,
      address,
      token,
      version: token,
      state: 'ACTIVE',
      reason: null,
      by: null,
      owner: named,
      node,
      boot,
      labels: {},
      confirmBy: null,
      reservedAt: now,
      changedAt: now,
    }
    state.leases.set(address, adopted)
    state.resting.delete(address)
    return change(adopted, 'lease.adopted', {})
  }

  // Proofs.

  function lookAgain({ token, version, proof }: ReapProven | Restore): ModelLease {
    const lease = heldLease(token)
    if (lease.version !== version || proof.version !== version) throw new Refused('VERSION_MISMATCH')
    if (Math.abs(now - proof.at) > PROOF_AGE_MS) throw new Refused('VERSION_MISMATCH')
    if (proof.cause === 'FENCED') return lease
    for (const { source: id, epoch } of proof.sources) {
      const source = sourceOf(id)
      if (source?.state !== 'ENABLED' || source.epoch !== epoch || source.complete === null)
        throw new Refused('VERSION_MISMATCH')
    }
    return lease
  }

  function reapProven(command: ReapProven): Accepted {
    const lease = lookAgain(command)
    const { proof } = command
    const scopes = ['', ...(proof.cause === 'FENCED' ? [] : proof.sources.map((one) => one.source))]
    if (lease.reason === 'OPERATOR') throw new Refused('ILLEGAL_STATE')
    if (scopes.some((one) => state.held.includes(one))) throw new Refused('ILLEGAL_STATE')
    const alive = liveAt(poolOf(lease.poolId), lease.address).filter(({ entry, head, source, at }) => {
      const { node: scope, epoch } = sourceOf(source)!
      const heard = scope === '' || entry.boot === epoch ? heardAt.get(source)! : at
      const fence = state.fences.findLast((one) => one.node === entry.node && one.boot === entry.boot)
      const over =
        proof.cause === 'FENCED' &&
        proof.fencedBy!.node === entry.node &&
        proof.fencedBy!.boot === entry.boot &&
        fence !== undefined &&
        (head === null ? heard < fence.at : head <= fence.head && head < fence.seq)
      return !over
    })
    if (alive.length > 0) throw new Refused('ILLEGAL_STATE')
    const last = lastSeenAt(lease.address)
    if (last !== null && (proof.lastSightedAt === null || last > proof.lastSightedAt))
      throw new Refused('VERSION_MISMATCH')
    if (proof.cause === 'FENCED' && reportedSinceFenced(proof.fencedBy!))
      throw new Refused('VERSION_MISMATCH')
    if (proof.cause === 'PROVEN_ABSENT') {
      const beyond = scopes.filter((scope) => {
        const taken = state.absences.filter(
          (one) =>
            one.source === scope && one.at > now - HOUR_MS && one.seq > (state.resumed.get(scope) ?? 0),
        ).length
        const of = scope === '' ? state.leases.size + taken : leasesListedBy(scope) + taken + 1
        return taken + 1 > 3 && taken + 1 > of / 5
      })
      if (beyond.length > 0) throw new RefusedAndHeld(beyond)
      for (const source of scopes) state.absences.push({ source, seq: state.head + 1, at: now })
    }
    end(lease, 'lease.reaped')
    return accepted([{ ...expected(lease), version: state.head, shown: 'REAPED', confirmBy: null }])
  }

  function leasesListedBy(id: string): number {
    const entries = listed(id).filter((entry) => entry.state !== 'terminal')
    return [...state.leases.values()].filter((lease) => {
      const pool = poolOf(lease.poolId)
      return entries.some(
        ({ address }) => poolWith(address)?.id === pool.id && blockOf(pool, address) === lease.address,
      )
    }).length
  }

  function reportedSinceFenced({ node, boot }: NonNullable<ReapProven['proof']['fencedBy']>): boolean {
    const fence = state.fences.findLast((one) => one.node === node && one.boot === boot)!
    return sources.some(
      (one) => one.node === node && one.epoch === boot && (heardAt.get(one.id) ?? 0) > fence.at,
    )
  }

  function restore(command: Restore): Accepted {
    const lease = lookAgain(command)
    const { owner } = lease
    if (!['CONFLICT', 'SECOND_ADDRESS', 'RELEASED_BUT_LIVE'].includes(lease.reason ?? '') || owner === null)
      throw new Refused('ILLEGAL_STATE')
    if (closed(owner, lease.poolId)) throw new Refused('VERSION_MISMATCH')
    const there = liveAt(poolOf(lease.poolId), lease.address).map((one) => one.entry.owner)
    if (there.some((one) => one === null || !isSame(owner, one))) throw new Refused('ILLEGAL_STATE')
    if (there.length === 0) throw new Refused('VERSION_MISMATCH')
    return accepted([
      expected(
        change(lease, 'lease.confirmed', { state: 'ACTIVE', reason: null, by: null, confirmBy: null }),
      ),
    ])
  }

  function resumeHold(command: ResumeHold): Accepted {
    const scope = command.source ?? ''
    if (!state.held.includes(scope)) return accepted([])
    state.held = state.held.filter((one) => one !== scope)
    state.resumed.set(scope, emit(`reconcile.resumed ${scope === '' ? 'everything' : scope}`))
    return accepted([])
  }

  function fenceNode({ node, boot, head }: FenceNode): Accepted {
    if (node === '' || boot === '') throw new Refused('INVALID_FIELD')
    const seq = emit(`node.fenced ${node} ${boot}`)
    state.fences.push({ node, boot, seq, head: head ?? seq, at: now })
    return accepted([])
  }

  // What becomes of an address.

  function change(lease: ModelLease, type: string, fields: Partial<ModelLease>): ModelLease {
    Object.assign(lease, fields)
    if (type !== 'lease.updated' && fields.owner === undefined) lease.changedAt = now
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

  function quarantineFree(
    pool: ModelPool,
    address: string,
    reason: string,
    by: string,
    owner: Owner | null = null,
  ): ModelLease {
    const token = state.head + 1
    const lease: ModelLease = {
      poolId: pool.id,
      address,
      token,
      version: token,
      state: 'QUARANTINED',
      reason,
      by,
      owner,
      node: '',
      boot: '',
      labels: {},
      confirmBy: null,
      reservedAt: now,
      changedAt: now,
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
      availableAt: now + Math.max(pool.cooldownMs, 2 * slowest()),
      seq,
      holder: lease.owner === null ? '' : holderOf(lease.owner),
      removed: type === 'lease.released',
      owner: lease.owner,
      node: lease.node,
      moved: lease.asked !== undefined,
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
    state.closings.push({ attachment, owner, poolId, at: now })
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
    if (actor.node !== null && actor.node !== lease.node && !lease.asked?.includes(actor.node))
      throw new Refused('PERMISSION_DENIED')
  }

  /** Of what was asked for elsewhere, the one that asked; if only it did, and nobody sees it on another node. */
  function mayEnd(actor: Actor, lease: ModelLease): void {
    mayTouch(actor, lease)
    if (actor.node === null || lease.asked === undefined) return
    const seen = liveAt(poolOf(lease.poolId), lease.address).some(
      ({ entry }) => entry.node !== '' && entry.node !== actor.node,
    )
    if (lease.asked.join() !== actor.node || seen) throw new Refused('ILLEGAL_STATE')
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
    sources,
    register,
    report,
    listed,
    lastSeenAt,
    apply,
    leasable,
    poolNamed,
  }
}

class RefusedAndHeld extends Refused {
  readonly sources: readonly string[]
  constructor(sources: readonly string[]) {
    super('ILLEGAL_STATE')
    this.sources = sources
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
