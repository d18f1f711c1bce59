/**
 * Sets of addresses as ranges, and which part of a pool can be leased.
 *
 * A set is a list of inclusive ranges, sorted, disjoint and not adjacent, so that equal sets are equal lists.
 * `normalise` makes one of any list; the other functions expect one and answer with one. Each is a single
 * pass over its inputs: the cost goes with the number of ranges, never with the number of addresses
 * (spatiumddi#489 listed the 2^64 addresses of a /64 under a lock). Values are of one family; which one, the caller knows.
 */

import { blockBase, blockSize, type Cidr, type Family, isBlockBase, maxPrefix } from './address.ts'

/** Addresses from `first` to `last`, both included. */
export type Range = { readonly first: bigint; readonly last: bigint }

/** The same set as sorted, disjoint, non-adjacent ranges. Takes them in any order, overlapping or not. */
export function normalise(ranges: readonly Range[]): readonly Range[] {
  for (const { first, last } of ranges) {
    if (first > last) throw new RangeError(`a range ends before it begins: ${first}-${last}`)
  }
  return joinSorted([...ranges].sort(byFirst))
}

export function union(a: readonly Range[], b: readonly Range[]): readonly Range[] {
  const merged: Range[] = []
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    const left = a[i]
    const right = b[j]
    if (left !== undefined && (right === undefined || left.first <= right.first)) {
      merged.push(left)
      i++
    } else {
      merged.push(right!)
      j++
    }
  }
  return joinSorted(merged)
}

/** What is in `a` and not in `b`. */
export function subtract(a: readonly Range[], b: readonly Range[]): readonly Range[] {
  const rest: Range[] = []
  let j = 0
  for (const { first, last } of a) {
    // Up to here `a`'s range is dealt with.
    let from = first
    while (j < b.length && b[j]!.last < first) j++
    // `j` stays: the last of these may reach into the next range of `a`. The others are passed over there, once.
    for (let k = j; k < b.length && b[k]!.first <= last; k++) {
      const hole = b[k]!
      if (from < hole.first) rest.push({ first: from, last: hole.first - 1n })
      from = hole.last + 1n
    }
    if (from <= last) rest.push({ first: from, last })
  }
  return rest
}

export function intersect(a: readonly Range[], b: readonly Range[]): readonly Range[] {
  const common: Range[] = []
  let i = 0
  let j = 0
  while (i < a.length && j < b.length) {
    const left = a[i]!
    const right = b[j]!
    const first = greater(left.first, right.first)
    const last = smaller(left.last, right.last)
    if (first <= last) common.push({ first, last })
    if (left.last < right.last) i++
    else j++
  }
  return common
}

export function contains(ranges: readonly Range[], value: bigint): boolean {
  let low = 0
  let high = ranges.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (ranges[middle]!.last < value) low = middle + 1
    else high = middle
  }
  const candidate = ranges[low]
  return candidate !== undefined && candidate.first <= value
}

/** How many addresses are in the set. */
export function size(ranges: readonly Range[]): bigint {
  let total = 0n
  for (const { first, last } of ranges) total += last - first + 1n
  return total
}

/** The part of a pool that may ever be leased: whole blocks only, so each range begins and ends with a block. */
export function allocatable(pool: {
  readonly family: Family
  readonly cidr: Cidr
  readonly subnet: Cidr
  readonly prefixLength: number
  readonly gateway: bigint | null
  /** In any order, overlapping or not, also outside the pool. */
  readonly exclude: readonly Range[]
}): readonly Range[] {
  const { family, cidr, subnet, prefixLength, gateway } = pool
  if (cidr.family !== family || subnet.family !== family) {
    throw new RangeError(`the pool's networks are not both of its family, IPv${family}`)
  }
  // No block of this size fits.
  if (prefixLength < cidr.prefixLength) return []
  const excluded: Range[] = [...pool.exclude]
  if (gateway !== null) excluded.push(single(gateway))
  if (prefixLength === maxPrefix(family)) excluded.push(...unusableOf(subnet))
  const last = blockSize(family, prefixLength) - 1n
  // A block of which any part is excluded is not whole.
  const excludedBlocks = excluded.map((range) => ({
    first: blockBase(family, range.first, prefixLength),
    last: blockBase(family, range.last, prefixLength) + last,
  }))
  return subtract([{ first: cidr.first, last: cidr.last }], normalise(excludedBlocks))
}

/** How many leases fit into ranges of whole blocks. */
export function countLeases(ranges: readonly Range[], family: Family, prefixLength: number): bigint {
  for (const { first, last } of ranges) {
    if (!isBlockBase(family, first, prefixLength) || !isBlockBase(family, last + 1n, prefixLength)) {
      throw new RangeError(`not whole blocks of /${prefixLength}: ${first}-${last}`)
    }
  }
  return size(ranges) / blockSize(family, prefixLength)
}

/**
 * Addresses of a subnet that no single workload can use: in IPv4 the network and broadcast addresses (except on
 * point-to-point links, RFC 3021), in IPv6 the subnet-router anycast address (RFC 4291 2.6.1; except RFC 6164).
 */
function unusableOf(subnet: Cidr): readonly Range[] {
  if (subnet.prefixLength >= maxPrefix(subnet.family) - 1) return []
  return subnet.family === 4 ? [single(subnet.first), single(subnet.last)] : [single(subnet.first)]
}

function single(value: bigint): Range {
  return { first: value, last: value }
}

// Math.max and Math.min take no bigint.
function greater(a: bigint, b: bigint): bigint {
  if (a > b) return a
  return b
}

function smaller(a: bigint, b: bigint): bigint {
  if (a < b) return a
  return b
}

function byFirst(a: Range, b: Range): number {
  return a.first < b.first ? -1 : a.first > b.first ? 1 : 0
}

function joinSorted(ranges: readonly Range[]): readonly Range[] {
  const joined: Range[] = []
  let open: Range | undefined
  for (const range of ranges) {
    if (open === undefined || range.first > open.last + 1n) {
      if (open !== undefined) joined.push(open)
      open = range
    } else if (range.last > open.last) {
      open = { first: open.first, last: range.last }
    }
  }
  if (open !== undefined) joined.push(open)
  return joined
}
