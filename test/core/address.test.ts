import { isIPv4, isIPv6 } from 'node:net'
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
  isMalformed,
  type Malformed,
  maxPrefix,
  parseAddress,
  parseCidr,
  parseLenientAddress,
  parseRange,
} from '../../src/core/address.ts'

const EXAMPLE = '10.0.0.5 or fd00::5'
const NO_ADDRESS = `is not an IP address; write one such as ${EXAMPLE}, without zone id, prefix length or leading zeros`

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

/** Each quotes what was written and says what to write instead. */
function expectRefused(parsed: object, text: string): void {
  const { malformed } = parsed as Malformed
  expect(malformed).toMatch(/; write /)
  if (text !== '') expect(malformed).toContain(JSON.stringify(text))
}

describe('address: refusals', () => {
  test.each([
    ...[
      '64:ff9b::1.2.3.04',
      '10.0.0.300',
      '10.0.0',
      '167772165',
      '0x0a.0.0.5',
      '-1.0.0.5',
      'localhost',
      '[::1]',
    ],
    ...['١٠.0.0.5', '10.0.0.5😀', '10.0.0.5:80', 'fe80::1%', '0:0:0:0:0:ffff:10.0.0.5', '::ffff:a00:5'],
    ...[
      ' 10.0.0.5',
      '10.0.0.5 ',
      '64:ff9b::1.2.3.4/96',
      '',
      ':::',
      '1::2::3',
      '1:2:3:4:5:6:7',
      'fd00::00005',
    ],
  ])('%j', (text) => {
    expectRefused(parseAddress(text), text)
  })

  test.each([
    ['fe80::1%eth0', 'zone id'],
    ['::ffff:10.0.0.5', 'write the IPv4 address 10.0.0.5'],
    ['10.0.0.5/32', 'prefix length'],
    ['010.0.0.5', 'leading zero'],
  ])('%j: %s', (text, reason) => {
    expect((parseAddress(text) as Malformed).malformed).toContain(reason)
  })

  test('text beyond the limit is refused unread, and not quoted', () => {
    expect(read(parseAddress('0000:0000:0000:0000:0000:fffe:255.255.255.255')).family).toBe(6)
    for (const parse of [parseAddress, parseCidr, parseRange]) {
      expect(parse('1'.repeat(65))).toEqual({
        malformed: `the text has more than 64 characters; write an address such as ${EXAMPLE}`,
      })
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
      fc.property(anyNetwork, (cidr) => {
        expect(parseCidr(formatCidr(cidr))).toEqual(cidr)
      }),
      { numRuns: 1000 },
    )
  })

  test('host bits are refused, and the sentence names the network', () => {
    const offGrid = anyNetwork
      .filter((cidr) => cidr.first < cidr.last)
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

  test.each([
    ...[
      '10.0.0.0',
      '10.0.0.0/',
      '10.0.0.0/33',
      '10.0.0.0/024',
      '10.0.0.0/+24',
      '10.0.0.0/2e1',
      '10.0.0.0/24/8',
    ],
    ...['10.0.0.0/255.255.255.0', 'fd00::/129', '/24', ' 10.0.0.0/24', 'fe80::%eth0/64', '0.0.0.1/0'],
  ])('%j is refused', (text) => {
    expect((parseCidr(text) as Malformed).malformed).toMatch(/; write /)
  })

  test.each([
    ['10.0.0.5', '"10.0.0.5" has no prefix length; write 10.0.0.5/32 for this one address'],
    ['fd00::5', '"fd00::5" has no prefix length; write fd00::5/128 for this one address'],
    ['10.0.0/24', `"10.0.0/24" ${NO_ADDRESS}`],
    ['/24', `"/24" ${NO_ADDRESS}`],
    ['10.0.0.0/33', '"10.0.0.0/33" has a wrong prefix length; write a plain number from 0 to 32'],
    ['fd00::/129', '"fd00::/129" has a wrong prefix length; write a plain number from 0 to 128'],
    [`${'1'.repeat(65)}/8`, `the text has more than 64 characters; write an address such as ${EXAMPLE}`],
    [`${'1'.repeat(64)}/8`, `the text ${NO_ADDRESS}`],
  ])('%j is refused with its own sentence', (text, malformed) => {
    expect(parseCidr(text)).toEqual({ malformed })
  })
})

describe('what another program wrote', () => {
  test.each([
    ['10.0.0.5', '10.0.0.5'],
    ['10.0.0.5/24', '10.0.0.5'],
    [' 10.0.0.5 /24', '10.0.0.5'],
    ['::ffff:10.0.0.5/128', '10.0.0.5'],
    ['fd00::5/64', 'fd00::5'],
    ['1::', '1::'],
    ['1:0:0:2::/64', '1:0:0:2::'],
    ['1:2:3:4:5:6:0.7.0.8', '1:2:3:4:5:6:7:8'],
  ])('%j is %s', (text, address) => {
    expect(formatAddress(parseLenientAddress(text)!)).toBe(address)
  })

  test.each(['', '/24', '10.0.0', 'fe80::1%eth0/64'])('%j is no address', (text) => {
    expect(parseLenientAddress(text)).toBeNull()
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
      .filter(({ family, first, last }) => family === 4 || !(isMapped(first) || isMapped(last)))
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
    expect(parseRange('10.0.0.5')).toMatchObject({ family: 4, first: 0x0a000005n, last: 0x0a000005n })
    expect(parseRange('10.0.0.0/24')).toMatchObject({ family: 4, first: 0x0a000000n, last: 0x0a0000ffn })
    expect(parseRange('FD00::/64')).toMatchObject({
      family: 6,
      first: 0xfd00n << 112n,
      last: (0xfd00n << 112n) + 2n ** 64n - 1n,
    })
    const longest = '0000:0000:0000:0000:0000:fffe:255.255.255.25'
    expect(read(parseRange(`${longest}4-${longest}5`)).last).toBe(0xfffe_ffff_ffffn)
  })

  test.each([
    [
      'fd00::5-10.0.0.5',
      '"fd00::5-10.0.0.5" mixes IPv4 and IPv6; write a first and a last address of one family',
    ],
    ['10.0.0.5-', `"" ${NO_ADDRESS}`],
    ['-10.0.0.5', `"" ${NO_ADDRESS}`],
    ['10.0.0.5-10.0.0.0/24', `"10.0.0.0/24" ${NO_ADDRESS}`],
    ['10.0.0.6-10.0.0.5', '"10.0.0.6-10.0.0.5" ends before it begins; write 10.0.0.5-10.0.0.6'],
    ['10.0.0.5/24', '"10.0.0.5/24" has bits set behind its prefix length; write 10.0.0.0/24 for the network'],
    ['', `"" ${NO_ADDRESS}`],
  ])('%j is refused with its own sentence', (text, malformed) => {
    expect(parseRange(text)).toEqual({ malformed })
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
      }),
      { numRuns: 1000 },
    )
  })
})
