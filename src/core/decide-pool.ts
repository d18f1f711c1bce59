/**
 * Commands that change the shape of a network: its own settings, its eras and the end of a recovery, its pools. A pool edit is
 * accepted only if no held or cooling address would leave (INV-19); otherwise the answer lists what is in the way.
 */
import { isMalformed, parseCidr } from './address.ts'
import {
  type Books,
  Missing,
  occupantsOf,
  type PoolBook,
  poolById,
  poolNamed,
  poolsOverlapping,
  unobservedIn,
} from './books.ts'
import type {
  Answer,
  BeginEra,
  Command,
  CreateNetwork,
  CreatePool,
  DeletePool,
  EndRecovery,
  UpdateNetwork,
  UpdatePool,
} from './command.ts'
import type { Verdict } from './decide.ts'
import { idOf } from './decide-lease.ts'
import { type Draft, number } from './draft.ts'
import { evolveNetwork, evolvePool } from './evolve.ts'
import { nowhereIn } from './nowhere.ts'
import { firstSeqOfEra, POLICY } from './policy.ts'
import { buildPool, type PoolInput, type PoolSettings, parsePoolSettings, settingsOf } from './pool.ts'
import { type Range, subtract } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'
import { viewPool } from './view.ts'

const NOTHING: Answer = { leases: [] }
/** A run of the job that clears, and the time until it begins. */
const UNTIL_CLEARED_MS = 60_000

export function decideCreateNetwork(books: Books, command: CreateNetwork): Verdict {
  if (books.network !== null) {
    return refused(
      invalid('name', `network ${command.network} exists already; pick another name or update it`),
    )
  }
  return settle(books, command, [
    {
      evidence: null,
      event: (header) => ({
        ...header,
        type: 'network.created',
        settings: command.settings,
        recoveryEnded: false,
      }),
    },
  ])
}

export function decideUpdateNetwork(books: Books, command: UpdateNetwork): Verdict {
  const network = books.network!
  const { version } = command
  if (version !== null && version !== network.version) {
    return refused(
      refusal(
        'VERSION_MISMATCH',
        `network ${network.network} is at version ${network.version}, not ${version}; read it again and decide anew`,
        { network: network.network, version: String(network.version), expected: String(version) },
      ),
    )
  }
  const settings = {
    description: command.description ?? network.description,
    labels: command.labels ?? network.labels,
  }
  if (same(settings, { description: network.description, labels: network.labels }))
    return settle(books, command, [])
  return settle(books, command, [
    {
      evidence: null,
      event: (header) => ({ ...header, type: 'network.updated', settings, recoveryEnded: false }),
    },
  ])
}

export function decideEndRecovery(books: Books, command: EndRecovery): Verdict {
  const network = books.network!
  if (network.state === 'REBUILDING') {
    return refused(
      refusal(
        'ILLEGAL_STATE',
        `network ${network.network} is being rebuilt, or a rebuild broke off: ipledger rebuild ends it`,
        {
          state: network.state,
        },
      ),
    )
  }
  if (network.state === 'READY') return settle(books, command, [])
  const unobserved = command.observed === true ? notObserved(books) : null
  if (unobserved !== null) return refused(unobserved)
  return settle(books, command, [
    {
      evidence: { why: command.why },
      event: (header) => ({
        ...header,
        type: 'network.updated',
        settings: { description: network.description, labels: network.labels },
        recoveryEnded: true,
      }),
    },
  ])
}

/** What a job saw may be of the era before: another restore, while it was paused (INV-24). */
function notObserved(books: Books): Refusal | null {
  const { network, era } = books.network!
  const { sources, unreported, unknown } = unobservedIn(books)
  if (sources > 0 && unreported.length === 0 && unknown.length === 0) return null
  const why =
    sources === 0
      ? 'it has no enabled source'
      : unreported.length > 0
        ? `${unreported.join(', ')} has not reported completely, or is warming up`
        : // Registered after the copy was made (12.1): what it sees is in no book.
          `${unknown.join(', ')} has called, and is not registered and enabled`
  return refusal('LIVENESS_STALE', `network ${network} has not been observed in era ${era}: ${why}`, {
    network,
    sources: [...unreported, ...unknown].join(','),
  })
}

/**
 * The database is an older copy of itself: all later numbers are greater than any that was known or lost (INV-24). Begun
 * already, which several processes may find out at the same time, it is begun.
 */
export function decideBeginEra(books: Books, command: BeginEra): Verdict {
  const { era, recovering, why } = command
  const network = books.network!
  if (era <= network.era) return settle(books, command, [])
  const draft: Draft = {
    evidence: { why, lostAfter: books.head },
    event: (header) => ({ ...header, seq: firstSeqOfEra(era), type: 'era.begun', era, recovering }),
  }
  return settle(books, command, [draft])
}

export function decideCreatePool(books: Books, command: CreatePool): Verdict {
  const settings = parsePoolSettings(command.pool)
  if ('reason' in settings) return refused(settings)
  if (poolNamed(books, settings.name) !== null) {
    return refused(invalid('name', `pool ${settings.name} exists already in network ${command.network}`))
  }
  const overlap =
    overlapping(books, settings, null, 'cidr') ?? nowhere(settings) ?? uncleared(books, settings)
  if (overlap !== null) return refused(overlap)
  const draft: Draft = {
    evidence: null,
    event: (header) => ({ ...header, type: 'pool.created', poolId: header.seq, pool: settings }),
  }
  return settle(books, command, [draft])
}

export function decideUpdatePool(books: Books, command: UpdatePool): Verdict {
  const book = poolNamed(books, command.name)
  if (book === null) return refused(poolNotFound(command))
  const { pool } = book
  const stale = versionMismatch(book, command.version)
  if (stale !== null) return refused(stale)
  const { change } = command
  const cidr = change.cidr ?? pool.cidr
  const input: PoolInput = {
    name: change.name ?? pool.name,
    cidr,
    // A subnet that was simply the pool's range stays that when the range changes.
    subnet: change.subnet ?? (pool.subnet === pool.cidr ? cidr : pool.subnet),
    prefixLength: pool.prefixLength,
    gateway: change.gateway === undefined ? pool.gateway : (change.gateway ?? ''),
    exclude: change.exclude ?? pool.exclude,
    cooldownMs: change.cooldownMs ?? pool.cooldownMs,
    confirmWithinMs: change.confirmWithinMs === undefined ? pool.confirmWithinMs : change.confirmWithinMs,
    liveness: change.liveness ?? pool.liveness,
    ownerLimit: change.ownerLimit ?? pool.ownerLimit,
    isDefault: change.isDefault ?? pool.isDefault,
    draining: change.draining ?? pool.draining,
    options: change.options ?? pool.options,
    labels: change.labels ?? pool.labels,
    reapPolicy: change.reapPolicy === null ? {} : { ...pool.reapPolicy, ...change.reapPolicy },
  }
  const settings = parsePoolSettings(input, 'exclude.entries')
  if ('reason' in settings) return refused(settings)
  const before = settingsOf(pool)
  if (same(settings, before)) return settle(books, command, [], pool.poolId)
  if (settings.name !== pool.name && poolNamed(books, settings.name) !== null) {
    return refused(invalid('newName', `pool ${settings.name} exists already in network ${command.network}`))
  }
  const { network, poolId, version, createdAt, updatedAt } = pool
  const after = buildPool(settings, { network, poolId, version, createdAt, updatedAt })
  if (after.family !== pool.family)
    return refused(invalid('cidr', `pool ${pool.name} is IPv${pool.family} and stays so`))
  if (settings.cidr !== pool.cidr) {
    const overlap =
      overlapping(books, settings, pool.poolId, 'cidr') ?? nowhere(settings) ?? uncleared(books, settings)
    if (overlap !== null) return refused(overlap)
  }
  const leaving = subtract(pool.allocatable, after.allocatable)
  if (leaving.length > 0 || subtract(after.allocatable, pool.allocatable).length > 0)
    requireWholeFreeSpace(book)
  if (leaving.length > 0) {
    const blocked = inTheWay(books, book, leaving, { whole: false }) ?? tooManyLeave(books, book, leaving)
    if (blocked !== null) return refused(blocked)
  }
  const draft: Draft = {
    evidence: null,
    event: (header) => ({ ...header, type: 'pool.updated', poolId: pool.poolId, pool: settings }),
  }
  return settle(books, command, [draft], pool.poolId)
}

export function decideDeletePool(books: Books, command: DeletePool): Verdict {
  const book = poolNamed(books, command.name)
  if (book === null) return refused(poolNotFound(command))
  const { pool } = book
  const stale = versionMismatch(book, command.version)
  if (stale !== null) return refused(stale)
  const blocked = inTheWay(books, book, pool.allocatable, { whole: true })
  if (blocked !== null) return refused(blocked)
  const draft: Draft = {
    evidence: null,
    event: (header) => ({ ...header, type: 'pool.deleted', poolId: pool.poolId, pool: settingsOf(pool) }),
  }
  return settle(books, command, [draft], pool.poolId)
}

/** A change of shape needs every piece of the untouched space, or what is unread would be forgotten. */
function requireWholeFreeSpace(book: PoolBook): void {
  if (book.untouchedUpTo !== null) throw new Missing({ what: 'wholeFreeSpace', pool: book.pool.name })
}

/** Held or cooling addresses in these ranges: the pool cannot let go of them. */
function inTheWay(
  books: Books,
  book: PoolBook,
  ranges: readonly Range[],
  { whole }: { readonly whole: boolean },
): Refusal | null {
  const { pool } = book
  const { held, cooling } = occupantsOf(books, pool.poolId, ranges, whole)
  if (held.length === 0 && cooling.length === 0) return null
  const blockers = [
    ...held.map((lease) => `${lease.address} ${lease.state} ${idOf(lease)}`),
    ...cooling.map((one) => `${one.address} COOLING until ${new Date(one.availableAt).toISOString()}`),
  ].slice(0, POLICY.listedBlockers)
  const last = Math.max(...cooling.map(({ availableAt }) => availableAt))
  return refusal(
    'POOL_IN_USE',
    `pool ${pool.name}: ${upToAPage(held)} held and ${upToAPage(cooling)} cooling addresses ${whole ? 'are in it' : 'would leave it'}: ${blockers.join('; ')}; set draining to let it run empty`,
    {
      pool: pool.name,
      held: upToAPage(held),
      cooling: upToAPage(cooling),
      blockers: blockers.join('; '),
    },
    held.length === 0 ? last - books.now : undefined,
  )
}

function upToAPage(found: readonly unknown[]): string {
  return found.length > POLICY.listedBlockers ? `${POLICY.listedBlockers} and more` : String(found.length)
}

/**
 * What leaves a pool that stays is forgotten with the change itself: a row left behind in its queue would have to be told
 * from the others by every Reserve.
 */
function tooManyLeave(books: Books, { pool }: PoolBook, ranges: readonly Range[]): Refusal | null {
  if (occupantsOf(books, pool.poolId, ranges, false).cooledCount <= POLICY.forgottenAtOnce) return null
  return refusal(
    'POOL_IN_USE',
    `pool ${pool.name}: more than ${POLICY.forgottenAtOnce} addresses that were held before would leave it at once; let fewer go with each change`,
    { pool: pool.name, held: '0', cooling: '0', forgotten: `${POLICY.forgottenAtOnce} and more` },
  )
}

/** Of a large pool that was deleted rows are left for a while: those of another would be taken for them. */
function uncleared(books: Books, settings: PoolSettings): Refusal | null {
  if (!books.uncleared.has(settings.cidr)) return null
  return refusal(
    'POOL_IN_USE',
    `${settings.cidr}: what is left of a pool that was deleted there is still being removed, which a worker does once a minute`,
    { pool: settings.name, held: '0', cooling: '0' },
    UNTIL_CLEARED_MS,
  )
}

function overlapping(
  books: Books,
  settings: PoolSettings,
  except: number | null,
  field: string,
): Refusal | null {
  const others = poolsOverlapping(books, settings.cidr).filter(({ pool }) => pool.poolId !== except)
  if (others.length === 0) return null
  const names = others.map(({ pool }) => `${pool.name} (${pool.cidr})`).join(', ')
  return invalid(field, `${settings.cidr} overlaps ${names}; pools of a network never overlap`)
}

/** Nobody's sighting of them would keep them. A pool that has them already may go on, and be emptied. */
function nowhere({ cidr }: PoolSettings): Refusal | null {
  const range = parseCidr(cidr)
  if (isMalformed(range)) throw new Error(`canonical settings: ${range.malformed}`)
  const found = nowhereIn(range)
  if (found.length === 0) return null
  return invalid(
    'cidr',
    `${cidr} overlaps ${found.join(', ')}, which no workload has to itself and of which no sighting counts; give the pool a range beside it`,
  )
}

function poolNotFound(command: UpdatePool | DeletePool): Refusal {
  return refusal('POOL_NOT_FOUND', `there is no pool ${command.name} in network ${command.network}`, {
    pool: command.name,
  })
}

function versionMismatch(book: PoolBook, version: number | null): Refusal | null {
  const { pool } = book
  if (version === null || pool.version === version) return null
  return refusal(
    'VERSION_MISMATCH',
    `pool ${pool.name} is at version ${pool.version}, not ${version}; read it again and decide anew`,
    { pool: pool.name, version: String(pool.version), expected: String(version) },
  )
}

function refused(reason: Refusal): Verdict {
  return { events: [], refused: reason }
}

/** Answers with what the command is about as its events leave it; a pool that they delete, as it was. */
function settle(books: Books, command: Command, drafts: readonly Draft[], poolId?: number): Verdict {
  const events = number(books, command, drafts)
  const [event] = events
  if (poolId === undefined && event?.type !== 'pool.created') {
    const network = event === undefined ? books.network : evolveNetwork(books.network, event)
    return { events, answer: { ...NOTHING, network: { network: network!, head: event?.seq ?? books.head } } }
  }
  const before = poolId === undefined ? null : poolById(books, poolId).pool
  const pool = (event === undefined ? null : evolvePool(before, event)) ?? before!
  return { events, answer: { ...NOTHING, poolId: pool.poolId, pool: viewPool(pool) } }
}

/** Settings compare by content; keys of maps may come in any order. */
function same(a: unknown, b: unknown): boolean {
  return canonical(a) === canonical(b)
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([x], [y]) => (x < y ? -1 : 1)))
      : inner,
  )
}
