/** A pool: its settings, how they are read and checked, its blocks. */
import {
  blockBase,
  blockSize,
  type Cidr,
  type Family,
  formatCidr,
  formatRange,
  formatValue,
  type IpRange,
  isMalformed,
  maxPrefix,
  mustParse,
  parseAddress,
  parseCidr,
  parseRange,
} from './address.ts'
import type { Labels } from './owner.ts'
import { POLICY, reapPolicy as policyOf, type ReapPolicy } from './policy.ts'
import { allocatable, type Range } from './ranges.ts'
import { invalid, type Refusal } from './refusal.ts'
import { specialPurposeIn } from './special-purpose-ranges.ts'

/** AVAILABLE: hand out by the log alone. STRICT: only while every source has reported completely. */
export type Liveness = 'AVAILABLE' | 'STRICT'

type Route = { readonly destination: string; readonly gateway: string }

/** Handed to the caller beside the address; ipledger itself does not use them. `mtu` 0 means unset. */
export type PoolOptions = {
  readonly routes: readonly Route[]
  readonly dns: readonly string[]
  readonly mtu: number
}

/**
 * What a pool is, in canonical text: the form that is stored in events and compared. Sizes never appear here;
 * they follow from the addresses.
 */
export type PoolSettings = {
  readonly name: string
  readonly cidr: string
  readonly subnet: string
  readonly prefixLength: number
  readonly gateway: string
  readonly exclude: readonly string[]
  readonly cooldownMs: number
  /** Null: Reserve sets no deadline unless its caller asks for one. */
  readonly confirmWithinMs: number | null
  readonly liveness: Liveness
  readonly ownerLimit: number
  /** Addresses that a node may hold, and its callers and sources quarantine; absent: any number. */
  readonly nodeLimit?: number
  readonly isDefault: boolean
  readonly draining: boolean
  readonly options: PoolOptions
  readonly labels: Labels
  /** What it sets otherwise than the defaults; absent when nothing, as in every pool made before pools could. */
  readonly reapPolicy?: Partial<ReapPolicy>
}

export type Pool = PoolSettings & {
  readonly settings: PoolSettings
  /** Number of the event that created the pool; never used again after the pool is deleted. */
  readonly poolId: number
  readonly version: number
  readonly family: Family
  readonly range: Cidr
  /** What can be leased, as address ranges made of whole blocks. */
  readonly allocatable: readonly Range[]
  readonly createdAt: number
  readonly updatedAt: number
}

/** Input of CreatePool, as the caller wrote it; absent means default. */
export type PoolInput = Pick<PoolSettings, 'name' | 'cidr'> & Partial<PoolSettings>

export const NO_OPTIONS: PoolOptions = { routes: [], dns: [], mtu: 0 }
const LONGEST_MS = 30 * 24 * 3_600_000
const MOST_EXCLUSIONS = 1_024

/** Canonical settings, or the refusal that names the field. */
export function parsePoolSettings(input: PoolInput): PoolSettings | Refusal {
  const cidr = parseCidr(input.cidr)
  if (isMalformed(cidr)) return invalid('cidr', cidr.malformed)
  const shared = specialPurposeIn(cidr).join(', ')
  if (shared !== '')
    return invalid(
      'cidr',
      `${formatCidr(cidr)} overlaps ${shared}, which no workload has to itself; give the pool a range beside it`,
    )
  const subnet = input.subnet ? parseCidr(input.subnet) : cidr
  if (isMalformed(subnet)) return invalid('subnet', subnet.malformed)
  if (subnet.family !== cidr.family || subnet.first > cidr.first || subnet.last < cidr.last)
    return invalid('subnet', `must contain the pool's cidr ${formatCidr(cidr)}`)
  const { family } = cidr
  const prefixLength = input.prefixLength || maxPrefix(family)
  if (!isWhole(prefixLength, cidr.prefixLength, maxPrefix(family))) {
    const why = `must be between the cidr's ${cidr.prefixLength} and ${maxPrefix(family)}, the size of one lease`
    return invalid('prefixLength', why)
  }
  const gateway = parseInside(input.gateway ?? '', subnet, 'gateway', `of the subnet ${formatCidr(subnet)}`)
  if (typeof gateway !== 'string') return gateway
  const exclude: string[] = []
  if (input.exclude !== undefined && input.exclude.length > MOST_EXCLUSIONS)
    return invalid('exclude', `has more than ${MOST_EXCLUSIONS} entries; use ranges`)
  for (const [index, text] of input.exclude?.entries() ?? []) {
    const range = parseRange(text)
    if (isMalformed(range)) return invalid(`exclude[${index}]`, range.malformed)
    if (range.family !== family || range.first > cidr.last || range.last < cidr.first)
      return invalid(`exclude[${index}]`, `does not touch the pool's cidr ${formatCidr(cidr)}`)
    exclude.push(formatRange(range))
  }
  const cooldownMs = input.cooldownMs ?? POLICY.cooldownMs
  if (!(cooldownMs >= 0 && cooldownMs <= LONGEST_MS))
    return invalid('cooldown', 'must be between 0 s and 30 days')
  const confirmWithinMs = input.confirmWithinMs ?? null
  if (confirmWithinMs !== null && !(confirmWithinMs >= 1_000 && confirmWithinMs <= LONGEST_MS))
    return invalid('confirmWithin', 'must be 0 s, or 1 s to 30 days')
  const ownerLimit = input.ownerLimit || POLICY.ownerLimit
  if (!isWhole(ownerLimit, 1, 1_000_000)) return invalid('ownerLimit', 'must be between 1 and 1000000 leases')
  const nodeLimit = input.nodeLimit ?? 0
  if (!isWhole(nodeLimit, 0, 1_000_000))
    return invalid('nodeLimit', 'must be between 1 and 1000000 leases, or 0 for no limit')
  const options = parseOptions(input.options ?? NO_OPTIONS, family)
  if ('reason' in options) return options
  const reapPolicy = parseReapPolicy(input.reapPolicy ?? {})
  if ('reason' in reapPolicy) return reapPolicy
  return {
    name: input.name,
    cidr: formatCidr(cidr),
    subnet: formatCidr(subnet),
    prefixLength,
    gateway,
    exclude,
    cooldownMs: Math.round(cooldownMs),
    confirmWithinMs: confirmWithinMs === null ? null : Math.round(confirmWithinMs),
    liveness: input.liveness ?? 'AVAILABLE',
    ownerLimit,
    ...(nodeLimit > 0 && { nodeLimit }),
    isDefault: input.isDefault ?? false,
    draining: input.draining ?? false,
    options,
    labels: input.labels ?? {},
    ...(Object.keys(reapPolicy).length > 0 && { reapPolicy }),
  }
}

function isWhole(value: number, least: number, most: number): boolean {
  return Number.isInteger(value) && value >= least && value <= most
}

/** Canonical text of an address of a range, which `where` names; empty stays empty. */
function parseInside(text: string, range: IpRange, field: string, where: string): string | Refusal {
  if (text === '') return ''
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) return invalid(field, parsed.malformed)
  if (parsed.family !== range.family || parsed.value < range.first || parsed.value > range.last)
    return invalid(field, `must be an address ${where}`)
  return formatValue(parsed.family, parsed.value)
}

/** What differs from the defaults, so that there is one spelling of a pool that sets nothing. */
function parseReapPolicy(given: Partial<ReapPolicy>): Partial<ReapPolicy> | Refusal {
  const set: { -readonly [K in keyof ReapPolicy]?: ReapPolicy[K] } = {}
  for (const key of Object.keys(policyOf()) as (keyof ReapPolicy)[]) {
    const value = given[key]
    if (value === undefined) continue
    const field = `reapPolicy.${key.replace(/Ms$/, '')}`
    // More misses than reports are kept could never be proven.
    if (key === 'misses' && !isWhole(value, 1, POLICY.recentReports))
      return invalid(field, `must be a whole number between 1 and ${POLICY.recentReports} snapshots`)
    if (key !== 'misses' && !(value >= 1_000 && value <= LONGEST_MS))
      return invalid(field, 'must be between 1 s and 30 days')
    if (Math.round(value) !== POLICY[key]) set[key] = Math.round(value)
  }
  const { minimumAgeMs, unwitnessedAgeMs } = policyOf(set)
  if (unwitnessedAgeMs >= minimumAgeMs) return set
  // What was never listed is kept at least as long as what was missed.
  const why = `is ${unwitnessedAgeMs / 1_000} s and must not be less than minimumAge, ${minimumAgeMs / 1_000} s`
  return invalid('reapPolicy.unwitnessedAge', why)
}

function parseOptions({ dns, routes, mtu }: PoolOptions, family: Family): PoolOptions | Refusal {
  const servers: string[] = []
  for (const [index, text] of dns.entries()) {
    const address = parseAddress(text)
    if (isMalformed(address)) return invalid(`options.dns[${index}]`, address.malformed)
    servers.push(formatValue(address.family, address.value))
  }
  const ways: Route[] = []
  const whole = { family, first: 0n, last: blockSize(family, 0) - 1n }
  for (const [index, route] of routes.entries()) {
    const field = `options.routes[${index}]`
    const destination = parseCidr(route.destination)
    if (isMalformed(destination)) return invalid(`${field}.destination`, destination.malformed)
    if (destination.family !== family)
      return invalid(`${field}.destination`, `must be of the pool's family, IPv${family}`)
    const gateway = parseInside(
      route.gateway,
      whole,
      `${field}.gateway`,
      `of the pool's family, IPv${family}`,
    )
    if (typeof gateway !== 'string') return gateway
    ways.push({ destination: formatCidr(destination), gateway })
  }
  if (mtu !== 0 && !isWhole(mtu, 68, 65_535))
    return invalid('options.mtu', 'must be between 68 and 65535 bytes, or 0 for unset')
  return { routes: ways, dns: servers, mtu }
}

/** The pool with its arithmetic; settings come from an event or a row and were canonical when they were stored. */
export function buildPool(
  settings: PoolSettings,
  at: { poolId: number; version: number; createdAt: number; updatedAt: number },
): Pool {
  const range = mustParse(parseCidr(settings.cidr))
  const subnet = mustParse(parseCidr(settings.subnet))
  const gateway = settings.gateway === '' ? null : mustParse(parseAddress(settings.gateway)).value
  const exclude = settings.exclude.map((text) => mustParse(parseRange(text)))
  return {
    ...at,
    ...settings,
    settings,
    family: range.family,
    range,
    allocatable: allocatable(range, subnet, settings.prefixLength, gateway, exclude),
  }
}

export function poolSize({ range, family, prefixLength, allocatable: ranges }: Pool): {
  readonly size: bigint
  readonly allocatable: bigint
} {
  const block = blockSize(family, prefixLength)
  const leases = (all: readonly Range[]) =>
    all.reduce((sum, { first, last }) => sum + last - first + 1n, 0n) / block
  return { size: leases([range]), allocatable: leases(ranges) }
}

export function blockOf(pool: Pool, value: bigint): bigint {
  return blockBase(pool.family, value, pool.prefixLength)
}

export function isSingle(pool: Pool): boolean {
  return pool.prefixLength === maxPrefix(pool.family)
}
