import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  blockSize,
  type Cidr,
  formatValue,
  isMalformed,
  maxPrefix,
  parseAddress,
  parseCidr,
  parseRange,
} from '../../src/core/address.ts'
import {
  allocatable,
  contains,
  countLeases,
  intersect,
  normalise,
  type Range,
  size,
  subtract,
  union,
} from '../../src/core/ranges.ts'

const UNIVERSE = 24
/** Where the small universe lies: at both ends of each family and across the powers of two. */
const OFFSETS = [0n, 2n ** 32n - 24n, 2n ** 53n - 12n, 2n ** 64n - 12n, 2n ** 127n - 12n, 2n ** 128n - 24n]

/** A set by enumeration, to check the ranges against. */
type Model = ReadonlySet<bigint>

function enumerate(ranges: readonly Range[]): Model {
  const values = new Set<bigint>()
  for (const { first, last } of ranges) for (let value = first; value <= last; value++) values.add(value)
  return values
}

function rangesOf(model: Model): Range[] {
  const ranges: Range[] = []
  for (const value of [...model].sort((a, b) => (a < b ? -1 : 1))) {
    const previous = ranges.at(-1)
    if (previous !== undefined && previous.last + 1n === value) {
      ranges[ranges.length - 1] = { first: previous.first, last: value }
    } else {
      ranges.push({ first: value, last: value })
    }
  }
  return ranges
}

function anyRange(offset: bigint): fc.Arbitrary<Range> {
  const point = fc.nat(UNIVERSE - 1).map((value) => offset + BigInt(value))
  return fc.tuple(point, point).map(([a, b]) => (a <= b ? { first: a, last: b } : { first: b, last: a }))
}

const anyOffset = fc.constantFrom(...OFFSETS)
const anyList = (offset: bigint) => fc.array(anyRange(offset), { maxLength: 6 })
/** Every subset of the universe is as likely as any other: many short ranges, adjacent to each other or not. */
const anySet = (offset: bigint) =>
  fc
    .array(fc.boolean(), { minLength: UNIVERSE, maxLength: UNIVERSE })
    .map((bits) => rangesOf(new Set(bits.flatMap((bit, i) => (bit ? [offset + BigInt(i)] : [])))))
const anyNormal = (offset: bigint) => fc.oneof(anyList(offset).map(normalise), anySet(offset))

const list = anyOffset.chain(anyList)
const pair = anyOffset.chain((offset) => fc.tuple(anyNormal(offset), anyNormal(offset)))

describe('range algebra against enumerated sets', () => {
  test('normalise: the same set, sorted, disjoint, not adjacent', () => {
    fc.assert(
      fc.property(list, (ranges) => {
        const before = structuredClone(ranges)
        expect(normalise(ranges)).toEqual(rangesOf(enumerate(ranges)))
        expect(ranges).toEqual(before)
      }),
      { numRuns: 500 },
    )
  })

  test('union', () => {
    fc.assert(
      fc.property(pair, ([a, b]) => {
        expect(union(a, b)).toEqual(rangesOf(new Set([...enumerate(a), ...enumerate(b)])))
      }),
      { numRuns: 500 },
    )
  })

  test('subtract', () => {
    fc.assert(
      fc.property(pair, ([a, b]) => {
        const holes = enumerate(b)
        expect(subtract(a, b)).toEqual(rangesOf(new Set([...enumerate(a)].filter((v) => !holes.has(v)))))
      }),
      { numRuns: 500 },
    )
  })

  test('intersect', () => {
    fc.assert(
      fc.property(pair, ([a, b]) => {
        const other = enumerate(b)
        expect(intersect(a, b)).toEqual(rangesOf(new Set([...enumerate(a)].filter((v) => other.has(v)))))
      }),
      { numRuns: 500 },
    )
  })

  test('contains and size', () => {
    const probe = anyOffset.chain((offset) =>
      fc.tuple(
        anyNormal(offset),
        fc.integer({ min: -1, max: UNIVERSE }).map((i) => offset + BigInt(i)),
      ),
    )
    fc.assert(
      fc.property(probe, ([ranges, value]) => {
        expect(contains(ranges, value)).toBe(enumerate(ranges).has(value))
        expect(size(ranges)).toBe(BigInt(enumerate(ranges).size))
      }),
      { numRuns: 500 },
    )
  })
})

describe('range algebra at full size', () => {
  const whole: readonly Range[] = [{ first: 0n, last: 2n ** 128n - 1n }]

  test('the whole of IPv6 less its ends and its middle', () => {
    const holes = normalise([0n, 2n ** 127n, 2n ** 128n - 1n].map((v) => ({ first: v, last: v })))
    const rest = subtract(whole, holes)
    expect(rest).toEqual([
      { first: 1n, last: 2n ** 127n - 1n },
      { first: 2n ** 127n + 1n, last: 2n ** 128n - 2n },
    ])
    expect(size(rest)).toBe(2n ** 128n - 3n)
    expect(union(rest, holes)).toEqual(whole)
    expect(intersect(rest, holes)).toEqual([])
  })

  test('the empty set', () => {
    expect(normalise([])).toEqual([])
    expect(union([], [])).toEqual([])
    expect(union(whole, [])).toEqual(whole)
    expect(subtract([], whole)).toEqual([])
    expect(subtract(whole, whole)).toEqual([])
    expect(contains([], 0n)).toBe(false)
    expect(size([])).toBe(0n)
  })

  test('a range that ends before it begins is a mistake of the caller', () => {
    expect(() => normalise([{ first: 2n, last: 1n }])).toThrow(RangeError)
  })

  test('one pass: a hundred thousand ranges on each side', () => {
    // Quadratic, this is 10^10 steps: minutes, beyond the test runner's limit.
    const every = (offset: bigint) =>
      Array.from({ length: 100_000 }, (_, i) => ({
        first: BigInt(i) * 4n + offset,
        last: BigInt(i) * 4n + offset + 1n,
      }))
    const a = every(0n)
    const b = every(1n)
    expect(size(union(a, b))).toBe(300_000n)
    expect(size(intersect(a, b))).toBe(100_000n)
    expect(size(subtract(a, b))).toBe(100_000n)
    expect(size(subtract([{ first: 0n, last: 399_999n }], b))).toBe(200_000n)
    const coarse = [0n, 200_000n].map((first) => ({ first, last: first + 199_998n }))
    expect(size(subtract(coarse, b))).toBe(199_998n)
    expect(normalise([...a, ...b].reverse())).toEqual(union(a, b))
  })
})

function cidr(text: string): Cidr {
  const parsed = parseCidr(text)
  if (isMalformed(parsed)) throw new Error(parsed.malformed)
  return parsed
}

/** A pool as a person would write it; the answer too. */
function leasable(pool: {
  readonly cidr: string
  readonly subnet?: string
  readonly prefixLength?: number
  readonly gateway?: string
  readonly exclude?: readonly string[]
}): readonly string[] {
  const network = cidr(pool.cidr)
  const { family } = network
  const gateway = pool.gateway === undefined ? null : parseAddress(pool.gateway)
  if (gateway !== null && isMalformed(gateway)) throw new Error(gateway.malformed)
  const exclude = (pool.exclude ?? []).map((text) => {
    const range = parseRange(text)
    if (isMalformed(range)) throw new Error(range.malformed)
    return range
  })
  const ranges = allocatable({
    family,
    cidr: network,
    subnet: cidr(pool.subnet ?? pool.cidr),
    prefixLength: pool.prefixLength ?? maxPrefix(family),
    gateway: gateway === null ? null : gateway.value,
    exclude,
  })
  return ranges.map(({ first, last }) => `${formatValue(family, first)}-${formatValue(family, last)}`)
}

describe('allocatable: pools of single addresses', () => {
  test.each([
    ['a /24', { cidr: '10.0.0.0/24' }, ['10.0.0.1-10.0.0.254']],
    ['its gateway', { cidr: '10.0.0.0/24', gateway: '10.0.0.1' }, ['10.0.0.2-10.0.0.254']],
    [
      'a gateway in the middle',
      { cidr: '10.0.0.0/24', gateway: '10.0.0.100' },
      ['10.0.0.1-10.0.0.99', '10.0.0.101-10.0.0.254'],
    ],
    ['a /30', { cidr: '10.0.0.4/30' }, ['10.0.0.5-10.0.0.6']],
    ['a /31 has both', { cidr: '10.0.0.4/31' }, ['10.0.0.4-10.0.0.5']],
    ['a /31 less its gateway', { cidr: '10.0.0.4/31', gateway: '10.0.0.4' }, ['10.0.0.5-10.0.0.5']],
    ['a /32', { cidr: '10.0.0.5/32' }, ['10.0.0.5-10.0.0.5']],
    ['a /32 that is the gateway', { cidr: '10.0.0.5/32', gateway: '10.0.0.5' }, []],
    ['all of IPv4', { cidr: '0.0.0.0/0' }, ['0.0.0.1-255.255.255.254']],
    ['the end of IPv4', { cidr: '255.255.255.254/31' }, ['255.255.255.254-255.255.255.255']],
    ['a /64', { cidr: 'fd00::/64' }, ['fd00::1-fd00::ffff:ffff:ffff:ffff']],
    ['a /126', { cidr: 'fd00::4/126' }, ['fd00::5-fd00::7']],
    ['a /127 has both', { cidr: 'fd00::4/127' }, ['fd00::4-fd00::5']],
    ['a /128', { cidr: 'fd00::/128' }, ['fd00::-fd00::']],
    [
      'the end of IPv6',
      { cidr: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124' },
      ['ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ],
    [
      'a subnet around it: its own ends are usable',
      { cidr: '10.0.0.64/26', subnet: '10.0.0.0/24', gateway: '10.0.0.1' },
      ['10.0.0.64-10.0.0.127'],
    ],
    [
      'the low part of a subnet',
      { cidr: '10.0.0.0/25', subnet: '10.0.0.0/24', gateway: '10.0.0.254' },
      ['10.0.0.1-10.0.0.127'],
    ],
    [
      'the high part of a subnet',
      { cidr: '10.0.0.128/25', subnet: '10.0.0.0/24' },
      ['10.0.0.128-10.0.0.254'],
    ],
    ['a /31 at the low end of a /24', { cidr: '10.0.0.0/31', subnet: '10.0.0.0/24' }, ['10.0.0.1-10.0.0.1']],
    ['a /32 that is the broadcast of a /24', { cidr: '10.0.0.255/32', subnet: '10.0.0.0/24' }, []],
    ['a /127 at the low end of a /64', { cidr: 'fd00::/127', subnet: 'fd00::/64' }, ['fd00::1-fd00::1']],
    [
      'exclusions in any order, overlapping, partly and wholly outside',
      {
        cidr: '10.0.1.0/24',
        exclude: ['10.0.1.250-10.0.2.9', '10.0.1.8/29', '10.0.0.0/24', '10.0.1.10-10.0.1.20', '10.0.1.7'],
      },
      ['10.0.1.1-10.0.1.6', '10.0.1.21-10.0.1.249'],
    ],
    ['everything excluded', { cidr: '10.0.0.0/24', exclude: ['0.0.0.0/0'] }, []],
  ])('%s', (_name, pool, expected) => {
    expect(leasable(pool)).toEqual(expected)
  })
})

describe('allocatable: pools of blocks', () => {
  test.each([
    [
      'a /28 per node: both ends of the subnet count',
      { cidr: '10.0.0.0/24', prefixLength: 28 },
      ['10.0.0.0-10.0.0.255'],
    ],
    [
      'the block of the gateway',
      { cidr: '10.0.0.0/24', prefixLength: 28, gateway: '10.0.0.1' },
      ['10.0.0.16-10.0.0.255'],
    ],
    [
      'a gateway outside',
      { cidr: '10.0.0.64/26', subnet: '10.0.0.0/24', prefixLength: 28, gateway: '10.0.0.1' },
      ['10.0.0.64-10.0.0.127'],
    ],
    [
      'one address excludes its block',
      { cidr: '10.0.0.0/24', prefixLength: 28, exclude: ['10.0.0.37'] },
      ['10.0.0.0-10.0.0.31', '10.0.0.48-10.0.0.255'],
    ],
    [
      'a range over a boundary excludes both blocks',
      { cidr: '10.0.0.0/24', prefixLength: 28, exclude: ['10.0.0.47-10.0.0.48'] },
      ['10.0.0.0-10.0.0.31', '10.0.0.64-10.0.0.255'],
    ],
    [
      'exclusions next to the pool touch no block of it',
      { cidr: '10.0.1.0/24', prefixLength: 28, exclude: ['10.0.0.255', '10.0.2.0'] },
      ['10.0.1.0-10.0.1.255'],
    ],
    ['a pool of one block', { cidr: '10.0.0.16/28', prefixLength: 28 }, ['10.0.0.16-10.0.0.31']],
    ['a block greater than the pool', { cidr: '10.0.0.16/28', prefixLength: 27 }, []],
    ['blocks of two', { cidr: '10.0.0.0/30', prefixLength: 31 }, ['10.0.0.0-10.0.0.3']],
    [
      'a /64 per VM: the first one is a block like any other',
      { cidr: 'fd00::/48', prefixLength: 64, exclude: ['fd00:0:0:1::5'] },
      ['fd00::-fd00::ffff:ffff:ffff:ffff', 'fd00:0:0:2::-fd00::ffff:ffff:ffff:ffff:ffff'],
    ],
    [
      '/32 is a block in IPv6',
      { cidr: 'fd00::/31', prefixLength: 32 },
      ['fd00::-fd00:1:ffff:ffff:ffff:ffff:ffff:ffff'],
    ],
  ])('%s', (_name, pool, expected) => {
    expect(leasable(pool)).toEqual(expected)
  })
})

describe('allocatable against an enumeration of leases', () => {
  const TOP = { 4: 2n ** 32n, 6: 2n ** 128n } as const

  /** Small pools at both ends of a family: up to 64 addresses in a subnet of up to 256. */
  const anyPool = fc
    .record({
      family: fc.constantFrom(4 as const, 6 as const),
      atTheTop: fc.boolean(),
      subnetBits: fc.integer({ min: 0, max: 8 }),
      cidrBits: fc.integer({ min: 0, max: 6 }),
      leaseBits: fc.integer({ min: 0, max: 4 }),
      place: fc.nat(255),
      gateway: fc.option(fc.nat(255)),
      exclude: fc.array(fc.tuple(fc.nat(300), fc.nat(20)), { maxLength: 4 }),
    })
    .map((drawn) => {
      const { family } = drawn
      const bits = maxPrefix(family)
      const cidrBits = Math.min(drawn.cidrBits, drawn.subnetBits)
      const subnetSize = 2n ** BigInt(drawn.subnetBits)
      const cidrSize = 2n ** BigInt(cidrBits)
      const base = drawn.atTheTop ? TOP[family] - subnetSize : 0n
      const first = base + ((BigInt(drawn.place) % subnetSize) / cidrSize) * cidrSize
      return {
        family,
        subnet: { family, first: base, last: base + subnetSize - 1n, prefixLength: bits - drawn.subnetBits },
        cidr: { family, first, last: first + cidrSize - 1n, prefixLength: bits - cidrBits },
        prefixLength: bits - Math.min(drawn.leaseBits, cidrBits),
        gateway: drawn.gateway === null ? null : base + (BigInt(drawn.gateway) % subnetSize),
        exclude: drawn.exclude.map(([from, length]) => {
          const start = base + (BigInt(from) % (subnetSize + 40n)) - 20n
          return {
            first: start < 0n ? 0n : start,
            last: start + BigInt(length) < 0n ? 0n : start + BigInt(length),
          }
        }),
      }
    })

  test('a lease is in it exactly if no address of it is excluded', () => {
    fc.assert(
      fc.property(anyPool, (pool) => {
        const { family, cidr, subnet, prefixLength } = pool
        const step = blockSize(family, prefixLength)
        const pointToPoint = subnet.last - subnet.first <= 1n
        const excluded = (address: bigint) =>
          address === pool.gateway ||
          pool.exclude.some(({ first, last }) => first <= address && address <= last) ||
          (step === 1n &&
            !pointToPoint &&
            (address === subnet.first || (family === 4 && address === subnet.last)))
        const expected = new Set<bigint>()
        let leases = 0n
        for (let base = cidr.first; base <= cidr.last; base += step) {
          const addresses = Array.from({ length: Number(step) }, (_, i) => base + BigInt(i))
          if (addresses.some(excluded)) continue
          leases++
          for (const address of addresses) expected.add(address)
        }
        const ranges = allocatable(pool)
        expect(ranges).toEqual(rangesOf(expected))
        expect(countLeases(ranges, family, prefixLength)).toBe(leases)
      }),
      { numRuns: 2000 },
    )
  })
})

describe('countLeases', () => {
  test('great pools', () => {
    const v6 = cidr('fd00::/48')
    const pool = { family: 6, cidr: v6, subnet: v6, gateway: null, exclude: [] } as const
    expect(countLeases(allocatable({ ...pool, prefixLength: 128 }), 6, 128)).toBe(2n ** 80n - 1n)
    expect(countLeases(allocatable({ ...pool, prefixLength: 64 }), 6, 64)).toBe(2n ** 16n)
    expect(countLeases([{ first: 0n, last: 2n ** 128n - 1n }], 6, 0)).toBe(1n)
    expect(countLeases([{ first: 0n, last: 2n ** 32n - 1n }], 4, 28)).toBe(2n ** 28n)
    expect(countLeases([], 4, 32)).toBe(0n)
  })

  test('ranges that cut a block are a mistake of the caller', () => {
    // Together as long as one block, and yet no lease.
    const halves = [
      { first: 8n, last: 15n },
      { first: 32n, last: 39n },
    ]
    expect(() => countLeases(halves, 4, 28)).toThrow(RangeError)
    expect(() => countLeases([{ first: 0n, last: 7n }], 4, 28)).toThrow(RangeError)
    expect(() => countLeases([{ first: 8n, last: 15n }], 4, 28)).toThrow(RangeError)
  })

  test('a pool whose networks are of another family is a mistake of the caller', () => {
    const v4 = cidr('10.0.0.0/24')
    const pool = { cidr: v4, subnet: v4, gateway: null, exclude: [] }
    expect(() => allocatable({ ...pool, family: 6, prefixLength: 128 })).toThrow(RangeError)
  })
})
