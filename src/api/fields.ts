/**
 * What every field of a request must be, whatever the message: lengths in UTF-8 bytes, characters, forms, ranges.
 * Each check answers with the value in canonical form or throws INVALID_FIELD with the field's path in JSON spelling.
 * What depends on the state of a network is the core's business.
 */
import type { DescEnum } from '@bufbuild/protobuf'
import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt'
import {
  addressMeant,
  type Cidr,
  formatAddress,
  formatCidr,
  type IpAddress,
  isMalformed,
  parseAddress,
  parseCidr,
} from '../core/address.ts'
import { parseLeaseId } from '../core/event.ts'
import type { Labels } from '../core/owner.ts'
import { invalidField } from './errors.ts'

export const DEFAULT_NETWORK = 'default'
export const DEFAULT_INTERFACE = 'eth0'

export const LIMITS = {
  requestId: 128,
  nameBytes: 253,
  networkBytes: 63,
  interfaceBytes: 63,
  labels: 64,
  labelKey: 63,
  labelValue: 253,
  whyBytes: 1_024,
  descriptionBytes: 1_024,
  claims: 8,
  poolsOfClaim: 8,
  liveAddresses: 4_096,
  poolsOfFilter: 64,
  routes: 64,
  resolvers: 16,
  batch: 1_000,
  page: 1_000,
  defaultPage: 100,
} as const

const LONGEST_MS = 30 * 24 * 3_600_000

export const NETWORK_NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/
const POOL = /^[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?$/
const KIND = /^[a-z][a-z0-9-]{0,62}$/
const LABEL_KEY = /^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$/

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/

/** Text without control characters, at most `limit` bytes; may be empty. */
export function text(value: string, path: string, limit: number): string {
  // Most are short: three bytes a character at most.
  if (3 * value.length > limit && Buffer.byteLength(value) > limit)
    throw invalidField(path, `is longer than ${limit} bytes`)
  if (CONTROL.test(value)) throw invalidField(path, 'must not contain control characters')
  if (!value.isWellFormed()) throw invalidField(path, 'is not well-formed Unicode: half of a surrogate pair')
  return value
}

export function requiredText(value: string, path: string, limit: number): string {
  if (value === '') throw invalidField(path, 'required')
  return text(value, path, limit)
}

export function networkName(value: string, path: string): string {
  if (value === '') return DEFAULT_NETWORK
  if (!NETWORK_NAME.test(value)) {
    throw invalidField(
      path,
      `must be 1 to ${LIMITS.networkBytes} of a-z, 0-9, dot, dash and underscore, with a letter or digit at both ends`,
    )
  }
  return value
}

export function requiredNetworkName(value: string, path: string): string {
  if (value === '') throw invalidField(path, 'required')
  return networkName(value, path)
}

export function poolName(value: string, path: string): string {
  if (value === '') throw invalidField(path, 'required')
  if (!POOL.test(value)) {
    throw invalidField(
      path,
      `must be 1 to ${LIMITS.nameBytes} of a-z, 0-9, dot, dash and underscore, with a letter or digit at both ends`,
    )
  }
  return value
}

export function ownerKind(value: string, path: string): string {
  if (value === '') throw invalidField(path, 'required')
  if (!KIND.test(value)) {
    throw invalidField(path, 'must be 1 to 63 of a-z, 0-9 and dash, beginning with a letter')
  }
  return value
}

/** Without `|`, which separates the parts of the keys that attachments are looked up by. */
export function interfaceName(value: string, path: string): string {
  text(value, path, LIMITS.interfaceBytes)
  if (value.includes('|')) throw invalidField(path, 'must not contain |')
  return value
}

/** Keys ascending, so that equal labels are equal text. */
export function labels(given: Readonly<Record<string, string>>, path: string): Labels {
  const keys = Object.keys(given)
  if (keys.length === 0) return NO_LABELS
  if (keys.length > LIMITS.labels) throw invalidField(path, `has more than ${LIMITS.labels} entries`)
  const sorted: Record<string, string> = {}
  for (const key of keys.sort()) {
    if (!LABEL_KEY.test(key)) {
      throw invalidField(
        `${path}[${JSON.stringify(key.slice(0, LIMITS.labelKey))}]`,
        `a key must be 1 to ${LIMITS.labelKey} of A-Z, a-z, 0-9, dot, dash, underscore and slash, with a letter or digit at both ends`,
      )
    }
    sorted[key] = text(given[key]!, `${path}[${JSON.stringify(key)}]`, LIMITS.labelValue)
  }
  return sorted
}

const NO_LABELS: Labels = {}

export function ipAddress(value: string, path: string): IpAddress {
  const parsed = parseAddress(value)
  if (isMalformed(parsed)) throw invalidField(path, parsed.malformed)
  return parsed
}

export function address(value: string, path: string): string {
  return formatAddress(ipAddress(value, path))
}

/** One that is in use: a spelling that can only mean one address is that address, so that it spoils no list. */
export function addressInUse(value: string, path: string): string {
  const meant = addressMeant(value)
  return meant === null ? address(value, path) : formatAddress(meant)
}

export function optionalText(value: string, path: string): string | null {
  return value === '' ? null : text(value, path, LIMITS.nameBytes)
}

/** A CIDR, or an address for the block of that one address. */
export function cidrOrAddress(value: string, path: string): Cidr {
  const parsed = parseCidr(value.includes('/') ? value : wholeLength(ipAddress(value, path)))
  if (isMalformed(parsed)) throw invalidField(path, parsed.malformed)
  return parsed
}

export function optionalCidr(value: string, path: string): Cidr | null {
  return value === '' ? null : cidrOrAddress(value, path)
}

function wholeLength(one: IpAddress): string {
  return `${formatAddress(one)}/${one.family === 4 ? 32 : 128}`
}

export function cidr(value: string, path: string): string {
  const parsed = parseCidr(value)
  if (isMalformed(parsed)) throw invalidField(path, parsed.malformed)
  return formatCidr(parsed)
}

/** Milliseconds; null when absent. Finer than a millisecond is rounded. */
export function duration(
  value: Duration | undefined,
  path: string,
  leastMs: number,
  mostMs: number = LONGEST_MS,
): number | null {
  if (value === undefined) return null
  const ms = Number(value.seconds) * 1000 + Math.round(value.nanos / 1_000_000)
  const mixed = (value.seconds > 0n && value.nanos < 0) || (value.seconds < 0n && value.nanos > 0)
  if (mixed || Math.abs(value.nanos) > 999_999_999) {
    throw invalidField(path, 'nanos must be below one second and of the sign of seconds')
  }
  if (!(ms >= leastMs && ms <= mostMs)) {
    throw invalidField(path, `must be between ${leastMs / 1000}s and ${mostMs / 1000}s`)
  }
  return ms
}

/** The years 1 to 9999, as protobuf has it. */
const FIRST_SECOND = -62_135_596_800n
const LAST_SECOND = 253_402_300_799n

/** Milliseconds since 1970; what is finer is cut off, and what was earlier was before every log. */
export function instant({ seconds, nanos }: Timestamp, path: string): number {
  const sound = seconds >= FIRST_SECOND && seconds <= LAST_SECOND && nanos >= 0 && nanos <= 999_999_999
  if (!sound) throw invalidField(path, 'is no time of the years 1 to 9999')
  return Math.max(0, Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000))
}

export function optionalInstant(time: Timestamp | undefined, path: string): number | null {
  return time === undefined ? null : instant(time, path)
}

/** A number of the log: version, token, position. All of them are below 2^53. */
export function ledgerNumber(value: bigint, path: string): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER))
    throw invalidField(path, 'is 2^53 or more, which no log reaches')
  return Number(value)
}

/** The name of an enum's value. Protobuf hands over numbers that the enum does not know; JSON may have them, too. */
export function known(value: number, type: DescEnum, path: string): string {
  const found = type.value[value]
  if (found !== undefined) return found.name
  throw invalidField(path, `${value} is unknown; it must be one of ${namesOf(type)}`)
}

/** Names of a filter, each once. None: all. */
export function specifiedNames<N extends string>(
  values: readonly number[],
  type: DescEnum,
  path: string,
): readonly N[] {
  atMost(values.length, type.values.length, path)
  return [...new Set(values.map((value, index) => specified(value, type, `${path}[${index}]`) as N))]
}

/** Texts of which each must be one of those known. Of a misspelt one nothing would seem to be there. */
export function knownTexts<T extends string>(
  given: readonly string[],
  all: readonly T[],
  path: string,
): readonly T[] {
  atMost(given.length, all.length, path)
  const read = given.map((one, index) => {
    const found = all.find((known) => known === one)
    if (found !== undefined) return found
    throw invalidField(`${path}[${index}]`, `must be one of ${all.join(', ')}`)
  })
  return [...new Set(read)]
}

/** One that says something: neither unknown nor `…_UNSPECIFIED`. */
export function specified(value: number, type: DescEnum, path: string): string {
  if (value === 0) throw invalidField(path, `must be one of ${namesOf(type)}`)
  return known(value, type, path)
}

function namesOf(type: DescEnum): string {
  return type.values
    .filter((one) => one.number !== 0)
    .map((one) => one.name)
    .join(', ')
}

export function optionalNumber(value: bigint | undefined, path: string): number | null {
  return value === undefined ? null : ledgerNumber(value, path)
}

export function requestId(value: string): string | null {
  return value === '' ? null : text(value, 'requestId', LIMITS.requestId)
}

export function pageSize(value: number): number {
  if (value === 0) return LIMITS.defaultPage
  if (value > LIMITS.page) throw invalidField('pageSize', `must be at most ${LIMITS.page}`)
  return value
}

type LeaseKey = { readonly network: string; readonly token: number }

/** A lease id contains its network; one named beside it must agree. */
export function leaseKey(id: string, network: string): LeaseKey {
  const parsed = parseLeaseId(id)
  if (parsed === undefined || !NETWORK_NAME.test(parsed.network)) {
    throw invalidField('leaseId', 'must be <network>/<fencing token>, as in default/42')
  }
  if (network !== '' && network !== parsed.network) {
    throw invalidField('network', `the lease id names network ${parsed.network}`)
  }
  return parsed
}

export function atMost(count: number, limit: number, path: string): void {
  if (count > limit) throw invalidField(path, `has more than ${limit} entries`)
}
