/**
 * IPv4 and IPv6 addresses as numbers, and the one rule by which text becomes an address and an address text.
 *
 * The rule: two spellings of one address are one address, and what could be read as two addresses, or as
 * something other than an address, is refused. So upper case, zero compression, leading zeros of an IPv6 group
 * and a dotted tail (`64:ff9b::1.2.3.4`) are read. Leading zeros of an octet (octal to some), zone ids,
 * IPv4-mapped IPv6 in any spelling (a second name of an IPv4 address), prefix lengths on an address, host bits
 * in a network, and white space are refused, each with its own sentence.
 *
 * Everything that enters (requests, reports, configuration, rows) is read here and nowhere else, and compared
 * and stored as what comes out. PostgreSQL prints `::a00:5` as `::10.0.0.5`: its text is input, too.
 */

export type Family = 4 | 6

export type IpAddress = { readonly family: Family; readonly value: bigint }

/** A network: `first` is its base (no host bits), `last` its highest address. */
export type Cidr = {
  readonly family: Family
  readonly first: bigint
  readonly last: bigint
  readonly prefixLength: number
}

/** Addresses from `first` to `last`, both included. */
export type IpRange = { readonly family: Family; readonly first: bigint; readonly last: bigint }

/** Text that was refused: a sentence that quotes it, names what is wrong and says what to write instead. */
export type Malformed = { readonly malformed: string }

export function isMalformed(x: object): x is Malformed {
  return 'malformed' in x
}

/** The longest spelling of an address has 45 characters. Longer text is refused unread and never quoted. */
const MAX_TEXT = 64
const MAX_RANGE_TEXT = 2 * MAX_TEXT + 1

const EXAMPLE = '10.0.0.5 or fd00::5'

const MAPPED_FIRST = 0xffff_0000_0000n
const MAPPED_LAST = 0xffff_ffff_ffffn
const LOW_32_BITS = 0xffff_ffffn

export function maxPrefix(family: Family): 32 | 128 {
  return family === 4 ? 32 : 128
}

export function parseAddress(text: string): IpAddress | Malformed {
  if (text.length > MAX_TEXT) return tooLong(text, MAX_TEXT)
  const read = readAddress(text)
  if (typeof read === 'string') return refuse(text, read)
  if (isMapped(read)) {
    const inner = formatValue(4, read.value & LOW_32_BITS)
    return refuse(text, `is an IPv4-mapped IPv6 address; write the IPv4 address ${inner}`)
  }
  return read
}

/**
 * The one address that a refused spelling can only mean: an IPv4-mapped one, or one with the prefix length of its
 * interface, as CNI results have it. Null: none, or it could be read as two. For what is in use, and for nothing else.
 */
export function addressMeant(text: string): IpAddress | null {
  if (text.length > MAX_TEXT) return null
  const slash = text.indexOf('/')
  const read = readAddress((slash < 0 ? text : text.slice(0, slash)).trim())
  if (typeof read === 'string') return null
  return isMapped(read) ? { family: 4, value: read.value & LOW_32_BITS } : read
}

/** A network with its prefix length. A bare address is refused: it could mean the address or its network. */
export function parseCidr(text: string): Cidr | Malformed {
  return readCidr(text, false)
}

/** Where a route leads: as a network, but it may reach around the IPv4-mapped addresses, as ::/0 does. */
export function parseDestination(text: string): Cidr | Malformed {
  return readCidr(text, true)
}

function readCidr(text: string, mappedInside: boolean): Cidr | Malformed {
  if (text.length > MAX_TEXT) return tooLong(text, MAX_TEXT)
  const slash = text.indexOf('/')
  const read = readAddress(slash < 0 ? text : text.slice(0, slash))
  if (typeof read === 'string') return refuse(text, read)
  const { family, value } = read
  const limit = maxPrefix(family)
  if (slash < 0) {
    return refuse(text, `has no prefix length; write ${formatAddress(read)}/${limit} for this one address`)
  }
  const digits = text.slice(slash + 1)
  const prefixLength = /^(?:0|[1-9][0-9]{0,2})$/.test(digits) ? Number(digits) : Number.NaN
  if (!(prefixLength <= limit)) {
    const wrong = JSON.stringify(digits)
    return refuse(text, `has ${wrong} as prefix length; write a plain number from 0 to ${limit}`)
  }
  const first = blockBase(family, value, prefixLength)
  const last = first + blockSize(family, prefixLength) - 1n
  if (isMapped(read) && prefixLength >= 96) {
    const inner = `${formatValue(4, first & LOW_32_BITS)}/${prefixLength - 96}`
    return refuse(text, `is an IPv4-mapped IPv6 network; write the IPv4 network ${inner}`)
  }
  if (!mappedInside && overlapsMapped(family, first, last)) return refuse(text, OVERLAPS_MAPPED)
  const cidr = { family, first, last, prefixLength }
  if (first !== value) {
    return refuse(text, `has bits set behind its prefix length; write ${formatCidr(cidr)} for the network`)
  }
  return cidr
}

/** What an exclusion may be: an address, a network, or `first-last` (both included, one family). */
export function parseRange(text: string): IpRange | Malformed {
  if (text.length > MAX_RANGE_TEXT) return tooLong(text, MAX_RANGE_TEXT)
  const dash = text.indexOf('-')
  if (dash < 0) {
    if (text.includes('/')) {
      const cidr = parseCidr(text)
      return isMalformed(cidr) ? cidr : { family: cidr.family, first: cidr.first, last: cidr.last }
    }
    const address = parseAddress(text)
    return isMalformed(address)
      ? address
      : { family: address.family, first: address.value, last: address.value }
  }
  if (dash === 0 || dash === text.length - 1) {
    return refuse(
      text,
      'lacks one of its ends; write the first and the last address, as in 10.0.0.5-10.0.0.9',
    )
  }
  const first = parseAddress(text.slice(0, dash))
  if (isMalformed(first)) return first
  const last = parseAddress(text.slice(dash + 1))
  if (isMalformed(last)) return last
  if (first.family !== last.family) {
    return refuse(text, 'mixes IPv4 and IPv6; write a first and a last address of one family')
  }
  if (first.value > last.value) {
    return refuse(text, `ends before it begins; write ${formatAddress(last)}-${formatAddress(first)}`)
  }
  if (overlapsMapped(first.family, first.value, last.value)) return refuse(text, OVERLAPS_MAPPED)
  return { family: first.family, first: first.value, last: last.value }
}

/** Canonical text: IPv4 as a dotted quad, IPv6 by RFC 5952 and never with a dotted tail. */
export function formatAddress(address: IpAddress): string {
  return formatValue(address.family, address.value)
}

export function formatCidr(cidr: Cidr): string {
  return `${formatValue(cidr.family, cidr.first)}/${cidr.prefixLength}`
}

export function formatValue(family: Family, value: bigint): string {
  return family === 4 ? formatV4(value) : formatV6(value)
}

/** How many addresses a block of this prefix length has. */
export function blockSize(family: Family, prefixLength: number): bigint {
  return 1n << hostBits(family, prefixLength)
}

/** First address of the block of this prefix length that contains `value`. */
export function blockBase(family: Family, value: bigint, prefixLength: number): bigint {
  const bits = hostBits(family, prefixLength)
  return (value >> bits) << bits
}

export function isBlockBase(family: Family, value: bigint, prefixLength: number): boolean {
  return blockBase(family, value, prefixLength) === value
}

function hostBits(family: Family, prefixLength: number): bigint {
  const limit = maxPrefix(family)
  // A negative shift is a shift the other way, silently. (A fraction has no BigInt.)
  if (prefixLength < 0 || prefixLength > limit) {
    throw new RangeError(`an IPv${family} prefix length is from 0 to ${limit}: ${prefixLength}`)
  }
  return BigInt(limit - prefixLength)
}

const OVERLAPS_MAPPED =
  'contains IPv4-mapped addresses (::ffff:0:0/96), which are refused; write a part that leaves them out'

function isMapped(address: IpAddress): boolean {
  return overlapsMapped(address.family, address.value, address.value)
}

function overlapsMapped(family: Family, first: bigint, last: bigint): boolean {
  return family === 6 && first <= MAPPED_LAST && last >= MAPPED_FIRST
}

function refuse(text: string, reason: string): Malformed {
  return { malformed: `${JSON.stringify(text)} ${reason}` }
}

function tooLong(text: string, limit: number): Malformed {
  return {
    malformed: `the text has ${text.length} characters, more than the limit of ${limit}; write an address such as ${EXAMPLE}`,
  }
}

// The readers answer with a value, or with a string: the reason of the refusal, to follow the quoted text.

function readAddress(text: string): IpAddress | string {
  if (text.length === 0) return `is empty; write an address such as ${EXAMPLE}`
  if (text.includes(':')) {
    const value = readV6(text)
    return typeof value === 'string' ? value : { family: 6, value }
  }
  const value = readV4(text, 0)
  return typeof value === 'string' ? value : { family: 4, value: BigInt(value) }
}

const DOT = 0x2e
const COLON = 0x3a
const ZERO = 0x30
const LOWER_A = 0x61
const LOWER_F = 0x66

/** The dotted quad from `start` to the end of the text. */
function readV4(text: string, start: number): number | string {
  let value = 0
  let octets = 0
  let octet = -1
  let octetStart = start
  for (let i = start; i <= text.length; i++) {
    const code = i === text.length ? DOT : text.charCodeAt(i)
    const digit = code - ZERO
    if (digit >= 0 && digit <= 9) {
      if (octet === 0) {
        const wrong = leadingDigits(text, octetStart)
        return `has the octet ${wrong} with a leading zero, which some read as octal; write it in decimal without leading zeros`
      }
      octet = octet < 0 ? digit : octet * 10 + digit
      if (octet > 255) {
        return `has the octet ${leadingDigits(text, octetStart)}; write octets from 0 to 255`
      }
    } else if (code === DOT) {
      if (octet < 0) return 'has an empty octet; write four octets such as 10.0.0.5'
      value = value * 256 + octet
      octets++
      octet = -1
      octetStart = i + 1
    } else {
      return strayCharacter(text, i)
    }
  }
  if (octets !== 4) {
    const found = octets === 1 ? '1 octet' : `${octets} octets`
    return `has ${found} instead of 4; write four octets such as 10.0.0.5`
  }
  return value
}

function readV6(text: string): bigint | string {
  const groups: number[] = []
  // Where `::` stands, as a number of groups before it.
  let gap = -1
  let i = 0
  if (text.startsWith('::')) {
    gap = 0
    i = 2
  } else if (text.charCodeAt(0) === COLON) {
    return 'begins with a single colon; write :: for groups of zeros'
  }
  while (i < text.length) {
    const start = i
    let group = 0
    for (; i < text.length; i++) {
      const digit = hexDigit(text.charCodeAt(i))
      if (digit < 0) break
      group = group * 16 + digit
    }
    if (i < text.length && text.charCodeAt(i) === DOT) {
      const tail = readV4(text, start)
      if (typeof tail === 'string') return tail
      groups.push(Math.floor(tail / 65536), tail % 65536)
      break
    }
    if (i < text.length && text.charCodeAt(i) !== COLON) return strayCharacter(text, i)
    if (i === start) return 'has three colons in a row; write :: once for groups of zeros'
    if (i - start > 4) return `has the group ${text.slice(start, i)}; write at most four digits a group`
    groups.push(group)
    if (i === text.length) break
    i++
    if (i === text.length) return 'ends with a single colon; write :: for groups of zeros'
    if (text.charCodeAt(i) === COLON) {
      if (gap >= 0) return 'has :: twice; write it once'
      gap = groups.length
      i++
    }
  }
  if (gap < 0 && groups.length !== 8) {
    const found = groups.length === 1 ? '1 group' : `${groups.length} groups`
    return `has ${found} instead of 8; write eight, or :: once for groups of zeros`
  }
  if (gap >= 0) {
    if (groups.length > 7) {
      return `has ${groups.length} groups beside ::, which stands for at least one; write 8 groups in all`
    }
    groups.splice(gap, 0, ...ZEROS.slice(groups.length))
  }
  let value = 0n
  for (let pair = 0; pair < 8; pair += 2) {
    value = (value << 32n) | BigInt(groups[pair]! * 65536 + groups[pair + 1]!)
  }
  return value
}

const ZEROS: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0]

function hexDigit(code: number): number {
  const digit = code - ZERO
  if (digit >= 0 && digit <= 9) return digit
  const lower = code | 0x20
  return lower >= LOWER_A && lower <= LOWER_F ? lower - LOWER_A + 10 : -1
}

function leadingDigits(text: string, start: number): string {
  let end = start
  while (end < text.length && text.charCodeAt(end) >= ZERO && text.charCodeAt(end) < ZERO + 10) end++
  return text.slice(start, end)
}

function strayCharacter(text: string, at: number): string {
  const character = String.fromCodePoint(text.codePointAt(at)!)
  if (/\s/.test(character)) return 'contains white space; write the address without it'
  switch (character) {
    case '%':
      return 'has a zone id, which has a meaning on one host only; write the address without it'
    case '/':
      return 'has a prefix length where one address is expected; write the address alone'
    case ':':
      return 'has a colon after a dotted quad; write the address alone, without a port'
    default:
      return `has the character ${JSON.stringify(character)} where it cannot stand; write an address such as ${EXAMPLE}`
  }
}

function formatV4(value: bigint): string {
  const number = Number(value)
  // `>>>` would wrap a larger value round to another address.
  if (!(number >= 0 && number <= 0xffff_ffff)) throw new RangeError(`not an IPv4 address: ${value}`)
  return `${number >>> 24}.${(number >>> 16) & 255}.${(number >>> 8) & 255}.${number & 255}`
}

function formatV6(value: bigint): string {
  if (value < 0n || value >> 128n !== 0n) throw new RangeError(`not an IPv6 address: ${value}`)
  const groups: number[] = []
  for (let shift = 96n; shift >= 0n; shift -= 32n) {
    const word = Number((value >> shift) & LOW_32_BITS)
    groups.push(word >>> 16, word & 0xffff)
  }
  // The longest run of zeros, the first of equals; a single zero is not compressed.
  let runStart = -1
  let runLength = 1
  for (let i = 0; i < 8; i++) {
    const start = i
    while (i < 8 && groups[i] === 0) i++
    if (i - start > runLength) {
      runStart = start
      runLength = i - start
    }
  }
  const runEnd = runStart < 0 ? -1 : runStart + runLength
  let text = ''
  for (let i = 0; i < 8; i++) {
    if (i === runStart) {
      text += '::'
      i = runEnd - 1
    } else {
      if (i > 0 && i !== runEnd) text += ':'
      text += groups[i]!.toString(16)
    }
  }
  return text
}
