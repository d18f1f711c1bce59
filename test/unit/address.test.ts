import { BlockList, isIPv4, isIPv6 } from 'node:net'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  blockBase,
  blockSize,
  type Cidr,
  type Family,
  formatAddress,
  formatCidr,
  formatValue,
  type IpAddress,
  type IpRange,
  isBlockBase,
  isMalformed,
  type Malformed,
  maxPrefix,
  parseAddress,
  parseCidr,
  parseRange,
} from '../../src/core/address.ts'

const MAX = { 4: 2n ** 32n - 1n, 6: 2n ** 128n - 1n } as const

function isMapped(value: bigint): boolean {
  return value >> 32n === 0xffffn
}

/** Values with the ones at which arithmetic breaks: both ends, powers of two and their neighbours. */
function anyValue(family: Family): fc.Arbitrary<bigint> {
  const max = MAX[family]
  const bits = maxPrefix(family)
  const nearPower = fc
    .tuple(fc.integer({ min: 0, max: bits }), fc.constantFrom(-1n, 0n, 1n))
    .map(([bit, offset]) => 2n ** BigInt(bit) + offset)
    .filter((value) => value >= 0n && value <= max)
  const values = [fc.constantFrom(0n, 1n, max, max - 1n), nearPower, fc.bigInt({ min: 0n, max })]
  return fc.oneof(...(family === 6 ? [...values, sparseV6] : values))
}

/** IPv6 values of many zero groups: runs of every length in every place. */
const sparseV6 = fc
  .array(fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.integer({ min: 0, max: 0xffff })), {
    minLength: 8,
    maxLength: 8,
  })
  .map((groups) => groups.reduce((value, group) => (value << 16n) | BigInt(group), 0n))

const anyV6 = anyValue(6).filter((value) => !isMapped(value))
const anyAddress: fc.Arbitrary<IpAddress> = fc.oneof(
  anyValue(4).map((value) => ({ family: 4 as const, value })),
  anyV6.map((value) => ({ family: 6 as const, value })),
)

function hexGroups(value: bigint): string[] {
  return value.toString(16).padStart(32, '0').match(/.{4}/g) ?? []
}

/** Any legal spelling of an IPv6 value: padding, case, where `::` stands, dotted tail. */
function anySpelling(value: bigint): fc.Arbitrary<string> {
  return fc
    .record({
      padding: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 8, maxLength: 8 }),
      upper: fc.boolean(),
      gap: fc.tuple(fc.integer({ min: 0, max: 7 }), fc.integer({ min: 1, max: 8 })),
      dotted: fc.boolean(),
    })
    .map(({ padding, upper, gap: [gapStart, gapLength], dotted }) => {
      const groups = hexGroups(value)
      const written = groups.map((group, i) => group.replace(/^0+(?=.)/, '').padStart(padding[i] ?? 1, '0'))
      const kept = dotted ? 6 : 8
      const tail = dotted ? [quad(value & 0xffff_ffffn)] : []
      const end = Math.min(gapStart + gapLength, kept)
      const zeros = gapStart < end && groups.slice(gapStart, end).every((group) => group === '0000')
      const text = zeros
        ? `${written.slice(0, gapStart).join(':')}::${[...written.slice(end, kept), ...tail].join(':')}`
        : [...written.slice(0, kept), ...tail].join(':')
      return upper ? text.toUpperCase() : text
    })
}

function quad(value: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join('.')
}

/** The canonical text of IPv6 by another hand: the URL standard's serialiser agrees with RFC 5952. */
function urlHost(text: string): string {
  return new URL(`http://[${text}]/`).hostname.slice(1, -1)
}

function read<T extends object>(parsed: T | Malformed): T {
  if (isMalformed(parsed)) throw new Error(parsed.malformed)
  return parsed
}

describe('address: text and value', () => {
  test('format, then parse, is the same address', () => {
    fc.assert(
      fc.property(anyAddress, (address) => {
        expect(parseAddress(formatAddress(address))).toEqual(address)
      }),
      { numRuns: 1000 },
    )
  })

  test('IPv4 text is the dotted quad', () => {
    fc.assert(
      fc.property(anyValue(4), (value) => {
        expect(formatValue(4, value)).toBe(quad(value))
      }),
    )
  })

  test('IPv6 text is what the URL standard makes of the eight full groups', () => {
    fc.assert(
      fc.property(anyV6, (value) => {
        expect(formatValue(6, value)).toBe(urlHost(hexGroups(value).join(':')))
      }),
      { numRuns: 2000 },
    )
  })

  test('every spelling of an IPv6 address is the one address', () => {
    const spelled = anyV6.chain((value) => fc.tuple(fc.constant(value), anySpelling(value)))
    fc.assert(
      fc.property(spelled, ([value, text]) => {
        expect(parseAddress(text)).toEqual({ family: 6, value })
      }),
      { numRuns: 2000 },
    )
  })

  test('what is accepted is what node:net accepts, without zone ids and mapped addresses', () => {
    const characters = [...'0123456789abcfABF::..%/-g ', '::', '255', '00', 'ffff', '1.2.3.4']
    const mutated = fc
      .tuple(anyAddress.map(formatAddress), fc.nat(50), fc.nat(3), fc.constantFrom('', ...characters))
      .map(([text, at, cut, insert]) => text.slice(0, at) + insert + text.slice(at + cut))
    const soup = fc.array(fc.constantFrom(...characters), { maxLength: 20 }).map((parts) => parts.join(''))
    const noise = fc.string({ unit: 'binary', maxLength: 70 })
    fc.assert(
      fc.property(fc.oneof(mutated, soup, noise), (text) => {
        const parsed = parseAddress(text)
        if (isIPv4(text)) {
          expect(formatAddress(read(parsed))).toBe(text)
        } else if (isIPv6(text) && !text.includes('%') && !/^::ffff:[^:]+:[^:]+$/.test(urlHost(text))) {
          expect(formatAddress(read(parsed))).toBe(urlHost(text))
        } else if (!isMalformed(parsed)) {
          expect.fail(`${JSON.stringify(text)} was read as ${formatAddress(parsed)}`)
        }
      }),
      { numRuns: 5000 },
    )
  })

  test.each([
    ['0.0.0.0', 4, 0n],
    ['255.255.255.255', 4, MAX[4]],
    ['127.255.255.255', 4, 2n ** 31n - 1n],
    ['128.0.0.0', 4, 2n ** 31n],
    ['10.0.0.5', 4, 0x0a000005n],
    ['::', 6, 0n],
    ['::1', 6, 1n],
    ['::a00:5', 6, 0x0a000005n],
    ['::ffff', 6, 0xffffn],
    ['::fffe:ffff:ffff', 6, 0xfffe_ffff_ffffn],
    ['::1:0:0:0', 6, 0x1_0000_0000_0000n],
    ['64:ff9b::102:304', 6, (0x64ff9bn << 96n) | 0x01020304n],
    ['7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 6, 2n ** 127n - 1n],
    ['8000::', 6, 2n ** 127n],
    ['ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 6, MAX[6]],
  ] as const)('%s is canonical', (text, family, value) => {
    expect(parseAddress(text)).toEqual({ family, value })
    expect(formatValue(family, value)).toBe(text)
  })

  test.each([
    ['2001:DB8::A', '2001:db8::a'],
    ['2001:0db8:0000:0000:0000:0000:0000:000a', '2001:db8::a'],
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'],
    ['2001:db8::1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
    ['::2:3:4:5:6:7:8', '0:2:3:4:5:6:7:8'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['0::0', '::'],
    ['64:ff9b::1.2.3.4', '64:ff9b::102:304'],
    ['1:2:3:4:5:6:1.2.3.4', '1:2:3:4:5:6:102:304'],
    // As PostgreSQL prints an inet of the long-deprecated IPv4-compatible form.
    ['::10.0.0.5', '::a00:5'],
    ['::ffff:0:10.0.0.5', '::ffff:0:a00:5'],
  ])('%s is %s', (text, canonical) => {
    expect(formatAddress(read(parseAddress(text)))).toBe(canonical)
  })

  test('a value outside its family is never formatted as another address', () => {
    for (const [family, value] of [
      [4, -1n],
      [4, MAX[4] + 1n],
      [4, MAX[6]],
      [6, -1n],
      [6, MAX[6] + 1n],
    ] as const) {
      expect(() => formatValue(family, value)).toThrow(RangeError)
    }
  })
})

const octal = 'with a leading zero, which some read as octal; write it in decimal without leading zeros'
const example = '10.0.0.5 or fd00::5'
const zone = 'has a zone id, which has a meaning on one host only; write the address without it'
const spaces = 'contains white space; write the address without it'
const alone = 'has a prefix length where one address is expected; write the address alone'
const mapped = 'is an IPv4-mapped IPv6 address; write the IPv4 address 10.0.0.5'

describe('address: refusals', () => {
  test.each([
    ['010.0.0.5', `has the octet 010 ${octal}`],
    ['10.0.0.05', `has the octet 05 ${octal}`],
    ['10.00.0.5', `has the octet 00 ${octal}`],
    ['64:ff9b::1.2.3.04', `has the octet 04 ${octal}`],
    ['10.0.0.300', 'has the octet 300; write octets from 0 to 255'],
    ['256.0.0.0', 'has the octet 256; write octets from 0 to 255'],
    ['::1.2.3.4444444444', 'has the octet 4444444444; write octets from 0 to 255'],
    ['10.0.0', 'has 3 octets instead of 4; write four octets such as 10.0.0.5'],
    ['167772165', 'has the octet 167772165; write octets from 0 to 255'],
    ['10', 'has 1 octet instead of 4; write four octets such as 10.0.0.5'],
    ['10.0.0.5.6', 'has 5 octets instead of 4; write four octets such as 10.0.0.5'],
    ['10.0..5', 'has an empty octet; write four octets such as 10.0.0.5'],
    ['10.0.0.5.', 'has an empty octet; write four octets such as 10.0.0.5'],
    ['.10.0.0', 'has an empty octet; write four octets such as 10.0.0.5'],
    ['0x0a.0.0.5', `has the character "x" where it cannot stand; write an address such as ${example}`],
    ['-1.0.0.5', `has the character "-" where it cannot stand; write an address such as ${example}`],
    ['localhost', `has the character "l" where it cannot stand; write an address such as ${example}`],
    ['[::1]', `has the character "[" where it cannot stand; write an address such as ${example}`],
    ['::g', `has the character "g" where it cannot stand; write an address such as ${example}`],
    ['١٠.0.0.5', `has the character "١" where it cannot stand; write an address such as ${example}`],
    ['10.0.0.5😀', `has the character "😀" where it cannot stand; write an address such as ${example}`],
    ['10.0.0.5:80', 'has a colon after a dotted quad; write the address alone, without a port'],
    ['::1.2.3.4:5', 'has a colon after a dotted quad; write the address alone, without a port'],
    ['fe80::1%eth0', zone],
    ['fe80::1%', zone],
    ['10.0.0.5%eth0', zone],
    ['::ffff:10.0.0.5', mapped],
    ['::ffff:a00:5', mapped],
    ['::FFFF:0A00:0005', mapped],
    ['0:0:0:0:0:ffff:10.0.0.5', mapped],
    ['0000:0000:0000:0000:0000:ffff:0a00:0005', mapped],
    ['0::ffff:a00:5', mapped],
    [' 10.0.0.5', spaces],
    ['10.0.0.5 ', spaces],
    ['10.0. 0.5', spaces],
    ['fd00::5\t', spaces],
    ['10.0.0.5\u00a0', spaces],
    ['10.0.0.5/32', alone],
    ['fd00::5/128', alone],
    ['64:ff9b::1.2.3.4/96', alone],
    ['', `is empty; write an address such as ${example}`],
    [':', 'begins with a single colon; write :: for groups of zeros'],
    [':1::', 'begins with a single colon; write :: for groups of zeros'],
    ['1::2:', 'ends with a single colon; write :: for groups of zeros'],
    [':::', 'has three colons in a row; write :: once for groups of zeros'],
    ['1:::2', 'has three colons in a row; write :: once for groups of zeros'],
    ['1::2::3', 'has :: twice; write it once'],
    ['1:2:3:4:5:6:7', 'has 7 groups instead of 8; write eight, or :: once for groups of zeros'],
    ['1:2:3:4:5:6:7:8:9', 'has 9 groups instead of 8; write eight, or :: once for groups of zeros'],
    ['1:2:3:4:5:6:7:1.2.3.4', 'has 9 groups instead of 8; write eight, or :: once for groups of zeros'],
    ['1:2:3:4::5:6:7:8', 'has 8 groups beside ::, which stands for at least one; write 8 groups in all'],
    ['fd00::00005', 'has the group 00005; write at most four digits a group'],
  ])('%j', (text, reason) => {
    expect(parseAddress(text)).toEqual({ malformed: `${JSON.stringify(text)} ${reason}` })
  })

  test('text beyond the limit is refused unread, and not quoted', () => {
    expect(read(parseAddress('0000:0000:0000:0000:0000:fffe:255.255.255.255')).family).toBe(6)
    const sentence = (length: number, limit: number) => ({
      malformed: `the text has ${length} characters, more than the limit of ${limit}; write an address such as ${example}`,
    })
    expect(parseAddress('1'.repeat(65))).toEqual(sentence(65, 64))
    expect(parseCidr('1'.repeat(65))).toEqual(sentence(65, 64))
    expect(parseRange('1'.repeat(130))).toEqual(sentence(130, 129))
    expect(parseRange('10.0.0.1-'.padEnd(129, '1'))).toEqual(sentence(120, 64))
    for (const parse of [parseAddress, parseCidr, parseRange]) {
      expect(isMalformed(parse(':'.repeat(10_000_000)))).toBe(true)
    }
  })

  test('no text makes a parser throw', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 140 }),
      fc
        .array(fc.constantFrom(...'019af:.%/- ', '10.0.0.1', '::', 'fd00::1', '/24', '-'), { maxLength: 12 })
        .map((parts) => parts.join('')),
    )
    fc.assert(
      fc.property(text, (text) => {
        for (const parse of [parseAddress, parseCidr, parseRange]) {
          const parsed = parse(text)
          if (isMalformed(parsed)) expect(parsed.malformed).toMatch(/^(".*"|the text has) .*; write .*$/su)
        }
      }),
      { numRuns: 2000 },
    )
  })
})

function network(family: Family, value: bigint, prefixLength: number): Cidr {
  const size = 2n ** BigInt(maxPrefix(family) - prefixLength)
  const first = value - (value % size)
  return { family, first, last: first + size - 1n, prefixLength }
}

function touchesMapped({ family, first, last }: IpRange): boolean {
  return family === 6 && first <= 0xffff_ffff_ffffn && last >= 0xffff_0000_0000n
}

const anyNetwork = fc
  .constantFrom<Family>(4, 6)
  .chain((family) =>
    fc
      .tuple(anyValue(family), fc.integer({ min: 0, max: maxPrefix(family) }))
      .map(([value, prefixLength]) => network(family, value, prefixLength)),
  )

describe('cidr', () => {
  test('format, then parse, is the same network', () => {
    fc.assert(
      fc.property(
        anyNetwork.filter((cidr) => !touchesMapped(cidr)),
        (cidr) => {
          expect(parseCidr(formatCidr(cidr))).toEqual(cidr)
        },
      ),
      { numRuns: 1000 },
    )
  })

  test('every prefix length at both ends of each family', () => {
    for (const family of [4, 6] as const) {
      for (let prefixLength = 0; prefixLength <= maxPrefix(family); prefixLength++) {
        for (const value of [0n, MAX[family]]) {
          const cidr = network(family, value, prefixLength)
          const parsed = parseCidr(formatCidr(cidr))
          if (touchesMapped(cidr)) expect(isMalformed(parsed)).toBe(true)
          else expect(parsed).toEqual(cidr)
        }
      }
    }
  })

  test('host bits are refused, and the sentence names the network', () => {
    const offGrid = anyNetwork
      .filter((cidr) => cidr.first < cidr.last && !touchesMapped(cidr))
      .chain((cidr) => fc.tuple(fc.constant(cidr), fc.bigInt({ min: cidr.first + 1n, max: cidr.last })))
    fc.assert(
      fc.property(offGrid, ([cidr, value]) => {
        const text = `${formatValue(cidr.family, value)}/${cidr.prefixLength}`
        expect(parseCidr(text)).toEqual({
          malformed: `"${text}" has bits set behind its prefix length; write ${formatCidr(cidr)} for the network`,
        })
      }),
    )
  })

  test('a network contains what BlockList says it contains', () => {
    const probe = anyNetwork
      .filter((cidr) => !touchesMapped(cidr) && cidr.prefixLength > 0)
      .chain((cidr) =>
        fc.tuple(
          fc.constant(cidr),
          fc
            .oneof(
              fc.constantFrom(cidr.first - 1n, cidr.first, cidr.last, cidr.last + 1n),
              anyValue(cidr.family),
            )
            .filter((value) => value >= 0n && value <= MAX[cidr.family]),
        ),
      )
    fc.assert(
      fc.property(probe, ([cidr, value]) => {
        const type = cidr.family === 4 ? 'ipv4' : 'ipv6'
        const list = new BlockList()
        list.addSubnet(formatValue(cidr.family, cidr.first), cidr.prefixLength, type)
        expect(cidr.first <= value && value <= cidr.last).toBe(
          list.check(formatValue(cidr.family, value), type),
        )
      }),
      { numRuns: 500 },
    )
  })

  const holdsMapped =
    'contains IPv4-mapped addresses (::ffff:0:0/96), which are refused; write a part that leaves them out'

  test.each([
    ['10.0.0.0', 'has no prefix length; write 10.0.0.0/32 for this one address'],
    ['FD00::0', 'has no prefix length; write fd00::/128 for this one address'],
    ['10.0.0.300', 'has the octet 300; write octets from 0 to 255'],
    ['10.0.0.0/', 'has "" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/33', 'has "33" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/024', 'has "024" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/+24', 'has "+24" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/-1', 'has "-1" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/2e1', 'has "2e1" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/24 ', 'has "24 " as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/24/8', 'has "24/8" as prefix length; write a plain number from 0 to 32'],
    ['10.0.0.0/255.255.255.0', 'has "255.255.255.0" as prefix length; write a plain number from 0 to 32'],
    ['fd00::/129', 'has "129" as prefix length; write a plain number from 0 to 128'],
    ['/24', `is empty; write an address such as ${example}`],
    [' 10.0.0.0/24', spaces],
    ['10.0.0.0 /24', spaces],
    ['010.0.0.0/8', `has the octet 010 ${octal}`],
    ['fe80::%eth0/64', zone],
    ['10.0.0.5/24', 'has bits set behind its prefix length; write 10.0.0.0/24 for the network'],
    ['0.0.0.1/0', 'has bits set behind its prefix length; write 0.0.0.0/0 for the network'],
    ['fd00::5/64', 'has bits set behind its prefix length; write fd00::/64 for the network'],
    ['::ffff:10.0.0.0/120', 'is an IPv4-mapped IPv6 network; write the IPv4 network 10.0.0.0/24'],
    ['::ffff:a00:5/120', 'is an IPv4-mapped IPv6 network; write the IPv4 network 10.0.0.0/24'],
    ['::ffff:10.0.0.5/128', 'is an IPv4-mapped IPv6 network; write the IPv4 network 10.0.0.5/32'],
    ['::ffff:0:0/96', 'is an IPv4-mapped IPv6 network; write the IPv4 network 0.0.0.0/0'],
    ['::ffff:10.0.0.0/95', holdsMapped],
    ['::fffe:0:0/95', holdsMapped],
    ['::/80', holdsMapped],
    ['::/0', holdsMapped],
  ])('%j is refused', (text, reason) => {
    expect(parseCidr(text)).toEqual({ malformed: `${JSON.stringify(text)} ${reason}` })
  })

  test.each([
    ['0.0.0.0/0', '0.0.0.0', '255.255.255.255'],
    ['10.0.0.4/31', '10.0.0.4', '10.0.0.5'],
    ['255.255.255.255/32', '255.255.255.255', '255.255.255.255'],
    ['8000::/1', '8000::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['2001:DB8::/48', '2001:db8::', '2001:db8:0:ffff:ffff:ffff:ffff:ffff'],
    ['::/96', '::', '::ffff:ffff'],
    ['::fffe:0:0/96', '::fffe:0:0', '::fffe:ffff:ffff'],
    ['::1:0:0:0/80', '::1:0:0:0', '::1:ffff:ffff:ffff'],
  ])('%s is %s to %s', (text, first, last) => {
    const cidr = read(parseCidr(text))
    expect(formatValue(cidr.family, cidr.first)).toBe(first)
    expect(formatValue(cidr.family, cidr.last)).toBe(last)
  })
})

describe('range', () => {
  test('two addresses in order are the range between them', () => {
    const pair = fc
      .constantFrom<Family>(4, 6)
      .chain((family) =>
        fc
          .tuple(anyValue(family), anyValue(family))
          .map(([a, b]) => (a <= b ? { family, first: a, last: b } : { family, first: b, last: a })),
      )
      .filter((range) => !touchesMapped(range))
    fc.assert(
      fc.property(pair, (range) => {
        const { family, first, last } = range
        expect(parseRange(`${formatValue(family, first)}-${formatValue(family, last)}`)).toEqual(range)
        if (first < last) {
          expect(isMalformed(parseRange(`${formatValue(family, last)}-${formatValue(family, first)}`))).toBe(
            true,
          )
        }
      }),
      { numRuns: 500 },
    )
  })

  test('an address and a network are ranges', () => {
    expect(parseRange('10.0.0.5')).toEqual({ family: 4, first: 0x0a000005n, last: 0x0a000005n })
    expect(parseRange('10.0.0.0/24')).toEqual({ family: 4, first: 0x0a000000n, last: 0x0a0000ffn })
    expect(parseRange('FD00::/64')).toEqual({
      family: 6,
      first: 0xfd00n << 112n,
      last: (0xfd00n << 112n) + 2n ** 64n - 1n,
    })
    const longest = '0000:0000:0000:0000:0000:fffe:255.255.255.25'
    expect(read(parseRange(`${longest}4-${longest}5`)).last).toBe(0xfffe_ffff_ffffn)
  })

  test.each([
    ['10.0.0.9-10.0.0.5', 'ends before it begins; write 10.0.0.5-10.0.0.9'],
    ['fd00::5-10.0.0.5', 'mixes IPv4 and IPv6; write a first and a last address of one family'],
    ['10.0.0.5-', 'lacks one of its ends; write the first and the last address, as in 10.0.0.5-10.0.0.9'],
    ['-10.0.0.5', 'lacks one of its ends; write the first and the last address, as in 10.0.0.5-10.0.0.9'],
    [
      '::-::1:0:0:0',
      'contains IPv4-mapped addresses (::ffff:0:0/96), which are refused; write a part that leaves them out',
    ],
    ['10.0.0.5/24', 'has bits set behind its prefix length; write 10.0.0.0/24 for the network'],
    [
      '::/0',
      'contains IPv4-mapped addresses (::ffff:0:0/96), which are refused; write a part that leaves them out',
    ],
    ['', `is empty; write an address such as ${example}`],
  ])('%j is refused', (text, reason) => {
    expect(parseRange(text)).toEqual({ malformed: `${JSON.stringify(text)} ${reason}` })
  })

  test.each([
    ['10.0.0.1 - 10.0.0.5', '10.0.0.1 ', spaces],
    ['10.0.0.0/24-10.0.1.0/24', '10.0.0.0/24', alone],
    ['10.0.0.1-10.0.0.300', '10.0.0.300', 'has the octet 300; write octets from 0 to 255'],
    ['10.0.0.1-5', '5', 'has 1 octet instead of 4; write four octets such as 10.0.0.5'],
    ['::ffff:10.0.0.5-::ffff:10.0.0.9', '::ffff:10.0.0.5', mapped],
    [
      '10.0.0.1-10.0.0.2-10.0.0.3',
      '10.0.0.2-10.0.0.3',
      `has the character "-" where it cannot stand; write an address such as ${example}`,
    ],
  ])('%j is refused for its end %j', (text, end, reason) => {
    expect(parseRange(text)).toEqual({ malformed: `${JSON.stringify(end)} ${reason}` })
  })
})

describe('blocks', () => {
  const anyBlock = fc
    .constantFrom<Family>(4, 6)
    .chain((family) =>
      fc.tuple(fc.constant(family), anyValue(family), fc.integer({ min: 0, max: maxPrefix(family) })),
    )

  test('a value lies in the one aligned block that begins at its base', () => {
    fc.assert(
      fc.property(anyBlock, ([family, value, prefixLength]) => {
        const size = blockSize(family, prefixLength)
        const base = blockBase(family, value, prefixLength)
        expect(size).toBe(2n ** BigInt(maxPrefix(family) - prefixLength))
        expect(base % size).toBe(0n)
        expect(base <= value && value < base + size).toBe(true)
        expect(isBlockBase(family, base, prefixLength)).toBe(true)
        expect(isBlockBase(family, value, prefixLength)).toBe(value === base)
      }),
      { numRuns: 1000 },
    )
  })

  test('the ends', () => {
    expect(blockSize(4, 0)).toBe(2n ** 32n)
    expect(blockSize(4, 32)).toBe(1n)
    expect(blockSize(6, 0)).toBe(2n ** 128n)
    expect(blockSize(6, 64)).toBe(2n ** 64n)
    expect(blockSize(6, 128)).toBe(1n)
    expect(blockBase(6, MAX[6], 0)).toBe(0n)
    expect(blockBase(6, MAX[6], 1)).toBe(2n ** 127n)
    expect(blockBase(6, MAX[6], 128)).toBe(MAX[6])
    expect(blockBase(4, MAX[4], 31)).toBe(MAX[4] - 1n)
  })

  test.each([
    [4, 33],
    [4, -1],
    [4, 24.5],
    [6, 129],
    [6, Number.NaN],
  ] as const)('IPv%i has no prefix length %d', (family, prefixLength) => {
    expect(() => blockSize(family, prefixLength)).toThrow(RangeError)
    expect(() => blockBase(family, 0n, prefixLength)).toThrow(RangeError)
  })
})
