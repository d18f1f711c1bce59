/**
 * An image as plain data in one order: two images are the same if and only if these are. Free space is shown as what it
 * hands out, one after the other, and beside it what the records say it must hand out.
 */
import { blockSize, formatValue } from '../../src/core/address.ts'
import {
  addressValue,
  blockAt,
  compareFreed,
  type Image,
  isListed,
  type PoolState,
  pushFree,
  readyAt,
  recordsIn,
  restedBy,
  takeCandidate,
} from '../../src/core/image.ts'
import { POLICY } from '../../src/core/policy.ts'
import { poolSize } from '../../src/core/pool.ts'
import { contains } from '../../src/core/ranges.ts'

const sorted = <V>(entries: Iterable<readonly [string | number, V]>) =>
  [...entries].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))

export function canonical(image: Image, now: number) {
  return {
    network: image.network,
    head: image.head,
    at: image.at,
    records: sorted(image.records),
    byToken: sorted(image.byToken).map(([token, { address }]) => [token, address]),
    sources: sorted(image.sources),
    slowestIntervalMs: image.slowestIntervalMs,
    sightings: sorted(image.sightings).map(([address, all]) => [
      address,
      sorted(all.map((one) => [JSON.stringify(one), one])),
    ]),
    listedBy: sorted(image.listedBy).flatMap(([source, listed]) =>
      listed.size === 0 ? [] : [[source, [...listed].map((one) => JSON.stringify(one)).sort()]],
    ),
    quarantinedBy: sorted(image.quarantinedBy),
    closings: sorted(image.closings).filter(([, at]) => at + POLICY.retryHorizonMs > now),
    reaps: image.reaps.filter((at) => at > now - POLICY.holdWindowMs),
    pools: [...image.pools.values()]
      .sort((a, b) => a.pool.poolId - b.pool.poolId)
      .map((poolState) => ({
        pool: poolState.pool.settings,
        version: poolState.pool.version,
        counts: { ...poolState.counts },
        heldOn: sorted(poolState.heldOn),
        next: nextCandidates(image, poolState, now, 6),
      })),
    poolsInOrder: image.poolsInOrder.map(({ pool }) => pool.cidr),
  }
}

/** What the pool hands out next, in order; all of it is given back. */
export function nextCandidates(
  image: Image,
  poolState: PoolState,
  now: number,
  most: number,
): readonly string[] {
  const taken: string[] = []
  while (taken.length < most) {
    const address = takeCandidate(image, poolState, now)
    if (address === null) break
    if (!taken.includes(address)) taken.push(address)
    else break
  }
  for (const address of taken) pushFree(image, poolState, address)
  return taken
}

/** What it must hand out next, worked out from the records alone: lowest untouched, then longest rested. */
export function expectedCandidates(
  image: Image,
  poolState: PoolState,
  now: number,
  most: number,
): readonly string[] {
  const { pool } = poolState
  const untouched: string[] = []
  const size = blockSize(pool.family, pool.prefixLength)
  for (const { first, last } of pool.allocatable) {
    for (let value = first; value <= last && untouched.length < most; value += size) {
      const address = formatValue(pool.family, value)
      if (!image.records.has(address) && !isListed(image, address) && readyAt(image, address) === null)
        untouched.push(address)
    }
  }
  const blocks = new Set([
    ...[...recordsIn(image, pool)].map(({ address }) => address),
    ...[...image.sightings.keys()].filter((block) => blockAt(image, block)?.poolState === poolState),
  ])
  const rested = [...blocks]
    .map((address) => ({
      address,
      availableAt: readyAt(image, address) ?? Number.POSITIVE_INFINITY,
      seq: image.records.get(address)?.seq ?? 0,
    }))
    .filter(
      ({ address, availableAt }) =>
        availableAt <= restedBy(image, now) &&
        contains(pool.allocatable, addressValue(address).value) &&
        !isListed(image, address),
    )
    .sort(compareFreed)
    .map(({ address }) => address)
  return [...untouched, ...rested].slice(0, most)
}

/** `free + cooling + reserved + active + quarantined + excluded = size`, counted one by one. Returns what is wrong. */
export function partitionFault(image: Image, poolState: PoolState): string | null {
  const { size, allocatable } = poolSize(poolState.pool)
  const counts = { RESERVED: 0, ACTIVE: 0, QUARANTINED: 0, FREE: 0 }
  let outside = 0
  for (const record of recordsIn(image, poolState.pool)) {
    counts[record.state] += 1
    if (record.state !== 'FREE' && !contains(poolState.pool.allocatable, addressValue(record.address).value))
      outside += 1
  }
  for (const state of ['RESERVED', 'ACTIVE', 'QUARANTINED', 'FREE'] as const)
    if (poolState.counts[state] !== counts[state])
      return `pool ${poolState.pool.name} counts ${JSON.stringify(poolState.counts)}, its records say ${JSON.stringify(counts)}`
  if (outside > 0) return `pool ${poolState.pool.name} holds ${outside} leases that it cannot lease`
  const held = counts.RESERVED + counts.ACTIVE + counts.QUARANTINED
  if (BigInt(held) > allocatable || allocatable > size)
    return `pool ${poolState.pool.name} of ${size} has ${held} held`
  return null
}
