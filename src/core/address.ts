/**
 * IPv4 and IPv6 addresses as numbers, and the one rule by which text becomes an address and an address text.
 *
 * Two spellings of one address are one address. What could be read as two addresses, or as something else, is refused: leading
 * zeros of an octet (octal to some), zone ids, IPv4-mapped IPv6 (a second name of an IPv4 address), a prefix length on an
 * address, host bits in a network, white space. All that enters is read here, and stored and compared as what comes out.
 */
export type Family = 4 | 6

export type IpAddress = { readonly family: Family; readonly value: bigint }

/** Addresses from `first` to `last`, both included. */
export type IpRange = { readonly family: Family; readonly first: bigint; readonly last: bigint }

/** A network: `first` is its base (no host bits), `last` its highest address. */
export type Cidr = IpRange & { readonly prefixLength: number }

/** Text that was refused: a sentence that quotes it, names what is wrong and says what to write instead. */
export type Malformed = { readonly malformed: string }

export function isMalformed(x: object): x is Malformed {
  return 'malformed' in x
}

export function mustParse<T extends object>(parsed: T | Malformed): T {
  if (isMalformed(parsed)) throw new Error(parsed.malformed)
  return parsed
}

/** The longest spelling of an address has 45 characters. Longer text is refused unread and never quoted. */
const MAX_TEXT = 64
const EXAMPLE = '10.0.0.5 or fd00::5'

const LOW_32_BITS = 0xffff_ffffn

export function maxPrefix(family: Family): 32 | 128 {
  return family === 4 ? 32 : 128
}

export function parseAddress(text: string): IpAddress | Malformed {
  const read = readAddress(text)
  if (read === null) return refuse(text, whyNot(text))
  if (!isMapped(read)) return read
  const inner = formatValue(4, read.value & LOW_32_BITS)
  return refuse(text, `is an IPv4-mapped IPv6 address; write the IPv4 address ${inner}`)
}

/**
 * The one address that a refused spelling can only mean: an IPv4-mapped one, or one with the prefix length of its interface,
 * as CNI results have it. Null: none. For what is in use, and for nothing else.
 */
export function parseLenientAddress(text: string): IpAddress | null {
  const slash = text.indexOf('/')
  const read = readAddress((slash < 0 ? text : text.slice(0, slash)).trim())
  if (read === null || !isMapped(read)) return read
  return { family: 4, value: read.value & LOW_32_BITS }
}

/** A network with its prefix length. A bare address is refused: it could mean the address or its network. */
export function parseCidr(text: string): Cidr | Malformed {
  const slash = text.indexOf('/')
  const read = readAddress(slash < 0 ? text : text.slice(0, slash))
  if (read === null) return refuse(text, whyNot(slash < 0 ? text : text.slice(0, slash)))
  const { family, value } = read
  const limit = maxPrefix(family)
  if (slash < 0)
    return refuse(text, `has no prefix length; write ${formatAddress(read)}/${limit} for this one address`)
  const digits = text.slice(slash + 1)
  const prefixLength = /^(?:0|[1-9][0-9]{0,2})$/.test(digits) ? Number(digits) : Number.NaN
  if (!(prefixLength <= limit))
    return refuse(text, `has a wrong prefix length; write a plain number from 0 to ${limit}`)
  const first = blockBase(family, value, prefixLength)
  const last = first + blockSize(family, prefixLength) - 1n
  const cidr = { family, first, last, prefixLength }
  if (first === value) return cidr
  return refuse(text, `has bits set behind its prefix length; write ${formatCidr(cidr)} for the network`)
}

export function parseRange(text: string): IpRange | Malformed {
  const ends = text.split('-')
  if (ends.length === 1 && text.includes('/')) return parseCidr(text)
  const first = parseAddress(ends[0]!)
  if (isMalformed(first)) return first
  const last = ends.length === 1 ? first : parseAddress(ends.slice(1).join('-'))
  if (isMalformed(last)) return last
  if (first.family !== last.family)
    return refuse(text, 'mixes IPv4 and IPv6; write a first and a last address of one family')
  if (first.value > last.value)
    return refuse(text, `ends before it begins; write ${formatAddress(last)}-${formatAddress(first)}`)
  return { family: first.family, first: first.value, last: last.value }
}

/** Canonical text: IPv4 as a dotted quad, IPv6 by RFC 5952 and never with a dotted tail. */
export function formatAddress(address: IpAddress): string {
  return formatValue(address.family, address.value)
}

export function formatCidr(cidr: Cidr): string {
  return `${formatValue(cidr.family, cidr.first)}/${cidr.prefixLength}`
}

/** `10.0.0.5-10.0.0.9`, or one address alone. */
export function formatRange({ family, first, last }: IpRange): string {
  return [...new Set([first, last])].map((value) => formatValue(family, value)).join('-')
}

export function formatValue(family: Family, value: bigint): string {
  return family === 4 ? formatV4(value) : formatV6(value)
}

export function blockSize(family: Family, prefixLength: number): bigint {
  return 1n << BigInt(maxPrefix(family) - prefixLength)
}

export function blockBase(family: Family, value: bigint, prefixLength: number): bigint {
  const bits = BigInt(maxPrefix(family) - prefixLength)
  return (value >> bits) << bits
}

function isMapped({ family, value }: IpAddress): boolean {
  return family === 6 && value >> 32n === 0xffffn
}

function refuse(text: string, reason: string): Malformed {
  return { malformed: `${text.length > MAX_TEXT ? 'the text' : JSON.stringify(text)} ${reason}` }
}

function whyNot(text: string): string {
  if (text.length > MAX_TEXT)
    return `has more than ${MAX_TEXT} characters; write an address such as ${EXAMPLE}`
  return `is not an IP address; write one such as ${EXAMPLE}, without zone id, prefix length or leading zeros`
}

/** Also what `parseAddress` refuses: an IPv4-mapped address. Null: it is none. */
export function readAddress(text: string): IpAddress | null {
  if (text.length > MAX_TEXT) return null
  if (V4.test(text)) return { family: 4, value: BigInt(readV4(text)) }
  return isV6(text) ? { family: 6, value: readV6(text) } : null
}

const V4 = /^(?:(?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.(?!$)|$)){4}$/
const GROUP = /^[0-9a-f]{1,4}$/i

function isV6(text: string): boolean {
  const tail = text.slice(text.lastIndexOf(':') + 1)
  const isDotted = tail.includes('.')
  if (isDotted && !V4.test(tail)) return false
  const halves = (isDotted ? `${text.slice(0, -tail.length)}0:0` : text).split('::')
  const groups = halves.flatMap((half) => (half === '' ? [] : half.split(':')))
  if (!groups.every((group) => GROUP.test(group))) return false
  return halves.length === 1 ? groups.length === 8 : halves.length === 2 && groups.length < 8
}

function readV4(text: string): number {
  let value = 0
  let octet = 0
  for (let i = 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 48
    if (digit >= 0) octet = octet * 10 + digit
    else {
      value = value * 256 + octet
      octet = 0
    }
  }
  return value * 256 + octet
}

/** Of a text that is an IPv6 address. By words of 32 bits: one BigInt operation a group took 2 µs an address. */
function readV6(text: string): bigint {
  const groups: number[] = []
  let gap = -1
  for (let start = 0; start <= text.length; ) {
    const colon = text.indexOf(':', start)
    const end = colon < 0 ? text.length : colon
    if (end > start) {
      const part = text.slice(start, end)
      if (part.includes('.')) {
        const tail = readV4(part)
        groups.push(Math.floor(tail / 65536), tail % 65536)
      } else groups.push(Number.parseInt(part, 16))
    } else if (gap < 0 && start > 0) gap = groups.length
    start = end + 1
  }
  if (gap >= 0) groups.splice(gap, 0, ...ZEROS.slice(groups.length))
  const word = (at: number) => BigInt(groups[at]! * 65536 + groups[at + 1]!)
  return (((((word(0) << 32n) | word(2)) << 32n) | word(4)) << 32n) | word(6)
}

const ZEROS: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0]

function formatV4(value: bigint): string {
  const number = Number(value)
  // `>>>` would wrap a larger value round to another address.
  if (!(number >= 0 && number <= 0xffff_ffff)) throw new RangeError(`not an IPv4 address: ${value}`)
  return `${number >>> 24}.${(number >>> 16) & 255}.${(number >>> 8) & 255}.${number & 255}`
}

function formatV6(value: bigint): string {
  if (value < 0n || value >> 128n !== 0n) throw new RangeError(`not an IPv6 address: ${value}`)
  const digits = value.toString(16).padStart(32, '0')
  const groups = [0, 4, 8, 12, 16, 20, 24, 28].map((at) => Number.parseInt(digits.slice(at, at + 4), 16))
  const text = groups.map((group) => group.toString(16)).join(':')
  // The longest run of zeros, the first of equals; a single zero is not compressed.
  const runs = text.match(/\b0(?::0)+\b/g) ?? []
  const longest = runs.reduce((one, other) => (other.length > one.length ? other : one), '')
  return longest === '' ? text : text.replace(new RegExp(`(?:^|:)${longest}(?::|$)`), '::')
}
