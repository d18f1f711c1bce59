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

/** Each quotes what was written and says what to write instead. */
function expectRefused(parsed: object, text: string): void {
  const { malformed } = parsed as Malformed
  expect(malformed).toMatch(/; write /)
  if (text !== '') expect(malformed).toContain(JSON.stringify(text))
}

describe('address: refusals', () => {
  test.each([
    '010.0.0.5',
    '10.0.0.05',
    '10.00.0.5',
    '64:ff9b::1.2.3.04',
    '10.0.0.300',
    '256.0.0.0',
    '::1.2.3.4444444444',
    '10.0.0',
    '167772165',
    '10',
    '10.0.0.5.6',
    '10.0..5',
    '10.0.0.5.',
    '.10.0.0',
    '0x0a.0.0.5',
    '-1.0.0.5',
    'localhost',
    '[::1]',
    '::g',
    '١٠.0.0.5',
    '10.0.0.5😀',
    '10.0.0.5:80',
    '::1.2.3.4:5',
    'fe80::1%eth0',
    'fe80::1%',
    '10.0.0.5%eth0',
    '::ffff:10.0.0.5',
    '::ffff:a00:5',
    '::FFFF:0A00:0005',
    '0:0:0:0:0:ffff:10.0.0.5',
    '0000:0000:0000:0000:0000:ffff:0a00:0005',
    '0::ffff:a00:5',
    ' 10.0.0.5',
    '10.0.0.5 ',
    '10.0. 0.5',
    'fd00::5\t',
    '10.0.0.5\u00a0',
    '10.0.0.5/32',
    'fd00::5/128',
    '64:ff9b::1.2.3.4/96',
    '',
    ':',
    ':1::',
    '1::2:',
    ':::',
    '1:::2',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7:1.2.3.4',
    '1:2:3:4::5:6:7:8',
    'fd00::00005',
  ])('%j', (text) => {
    expectRefused(parseAddress(text), text)
  })

  test.each([
    ['fe80::1%eth0', 'zone id'],
    ['::ffff:10.0.0.5', 'write the IPv4 address 10.0.0.5'],
    ['10.0.0.5/32', 'write the address alone'],
    ['010.0.0.5', 'leading zero'],
  ])('%j: %s', (text, reason) => {
    expect((parseAddress(text) as Malformed).malformed).toContain(reason)
  })

  test('text beyond the limit is refused unread, and not quoted', () => {
    expect(read(parseAddress('0000:0000:0000:0000:0000:fffe:255.255.255.255')).family).toBe(6)
    for (const parse of [parseAddress, parseCidr, parseRange]) {
      const { malformed } = parse('1'.repeat(65)) as Malformed
      expect(malformed).toMatch(/^the text has more than 64 characters/)
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

  test.each([
    '10.0.0.0',
    'FD00::0',
    '10.0.0.300',
    '10.0.0.0/',
    '10.0.0.0/33',
    '10.0.0.0/024',
    '10.0.0.0/+24',
    '10.0.0.0/-1',
    '10.0.0.0/2e1',
    '10.0.0.0/24 ',
    '10.0.0.0/24/8',
    '10.0.0.0/255.255.255.0',
    'fd00::/129',
    '/24',
    ' 10.0.0.0/24',
    '10.0.0.0 /24',
    '010.0.0.0/8',
    'fe80::%eth0/64',
    '10.0.0.5/24',
    '0.0.0.1/0',
    'fd00::5/64',
    '::ffff:10.0.0.0/120',
    '::ffff:a00:5/120',
    '::ffff:10.0.0.5/128',
    '::ffff:0:0/96',
    '::ffff:10.0.0.0/95',
    '::fffe:0:0/95',
    '::/80',
    '::/0',
  ])('%j is refused', (text) => {
    expect((parseCidr(text) as Malformed).malformed).toMatch(/; write /)
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
    '10.0.0.9-10.0.0.5',
    'fd00::5-10.0.0.5',
    '10.0.0.5-',
    '-10.0.0.5',
    '::-::1:0:0:0',
    '10.0.0.5/24',
    '::/0',
    '',
  ])('%j is refused', (text) => {
    expect((parseRange(text) as Malformed).malformed).toMatch(/; write /)
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
})
