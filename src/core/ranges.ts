/**
 * Which part of a pool can be leased, as ranges of whole blocks: sorted, disjoint and not adjacent. The cost goes with the number
 * of ranges, never with the number of addresses (spatiumddi#489 listed the 2^64 addresses of a /64 under a lock).
 */
import { blockBase, blockSize, type Cidr, maxPrefix } from './address.ts'

/** Addresses from `first` to `last`, both included; of which family, the caller knows. */
export type Range = { readonly first: bigint; readonly last: bigint }

/** Of sorted items the first that is not before what is looked for. */
export function firstFrom<T>(items: readonly T[], isBefore: (item: T) => boolean): T | undefined {
  let low = 0
  let high = items.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isBefore(items[middle]!)) low = middle + 1
    else high = middle
  }
  return items[low]
}

export function contains(ranges: readonly Range[], value: bigint): boolean {
  const found = firstFrom(ranges, ({ last }) => last < value)
  return found !== undefined && found.first <= value
}

/** The part of a pool that may ever be leased: a block of which any part is excluded is not in it. */
export function allocatable(
  cidr: Cidr,
  subnet: Cidr,
  prefixLength: number,
  gateway: bigint | null,
  exclude: readonly Range[],
): readonly Range[] {
  const { family } = cidr
  const excluded = [...exclude]
  if (gateway !== null) excluded.push({ first: gateway, last: gateway })
  if (prefixLength === maxPrefix(family)) excluded.push(...unusableOf(subnet))
  const size = blockSize(family, prefixLength)
  const blocks = excluded
    .map(({ first, last }) => ({
      first: blockBase(family, first, prefixLength),
      last: blockBase(family, last, prefixLength) + size - 1n,
    }))
    .sort((a, b) => (a.first < b.first ? -1 : 1))
  return without(cidr, blocks)
}

/** What is left of a range without others, which are sorted by where they begin. */
export function without({ first, last }: Range, others: readonly Range[]): readonly Range[] {
  const rest: Range[] = []
  let from = first
  for (const other of others) {
    if (other.last < from) continue
    if (other.first > last) break
    if (other.first > from) rest.push({ first: from, last: other.first - 1n })
    from = other.last + 1n
  }
  if (from <= last) rest.push({ first: from, last })
  return rest
}

/**
 * Addresses of a subnet that no single workload can use: in IPv4 the network and broadcast addresses (except on
 * point-to-point links, RFC 3021), in IPv6 the subnet-router anycast address (RFC 4291 2.6.1; except RFC 6164).
 */
function unusableOf({ family, prefixLength, first, last }: Cidr): readonly Range[] {
  if (prefixLength >= maxPrefix(family) - 1) return []
  const ends = family === 4 ? [first, last] : [first]
  return ends.map((value) => ({ first: value, last: value }))
}
