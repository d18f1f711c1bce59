/**
 * One exclusion more or less, without losing the others. The API knows only the whole list (UpdatePool replaces it, and a
 * list typed anew forgets what it does not repeat: those addresses would be handed out), so the pool is read, and what is
 * sent holds only for the version that was read.
 */
import { formatValue, type IpRange, isMalformed, parseRange } from '../core/address.ts'
import type { Pool } from '../gen/ipledger/v1/pool_pb.ts'
import { Unclear } from './failure.ts'

/** The whole list, without what is to be removed and with what is to be added; what is excluded already is no error. */
export function changedExclusions(
  pool: Pool,
  removed: readonly string[],
  added: readonly string[],
): readonly string[] {
  let entries: readonly IpRange[] = pool.exclude.map(range)
  for (const text of removed) entries = without(pool, entries, range(text))
  for (const text of added) entries = withRange(entries, range(text))
  return entries.map(written)
}

function withRange(entries: readonly IpRange[], added: IpRange): readonly IpRange[] {
  const isThere = (one: IpRange) =>
    one.family === added.family && one.first <= added.first && added.last <= one.last
  return entries.some(isThere) ? entries : [...entries, added]
}

/** Taken out of each entry, which may leave two. Of what no entry has, nothing can be taken: a typing error. */
function without(pool: Pool, entries: readonly IpRange[], removed: IpRange): readonly IpRange[] {
  const overlaps = (one: IpRange) =>
    one.family === removed.family && one.first <= removed.last && removed.first <= one.last
  if (!entries.some(overlaps)) {
    const have = pool.exclude.join(', ') || 'nothing'
    throw new Unclear(
      `${written(removed)} is not among the exclusions of pool ${pool.name}, which are: ${have}.`,
    )
  }
  return entries.flatMap((one) =>
    overlaps(one)
      ? [
          { ...one, last: removed.first - 1n },
          { ...one, first: removed.last + 1n },
        ].filter(({ first, last }) => first <= last)
      : [one],
  )
}

function range(text: string): IpRange {
  const found = parseRange(text)
  if (isMalformed(found)) throw new Unclear(`${found.malformed}.`)
  return found
}

function written({ family, first, last }: IpRange): string {
  const from = formatValue(family, first)
  return first === last ? from : `${from}-${formatValue(family, last)}`
}
