/**
 * One exclusion more or less, without losing the others. The API knows only the whole list (UpdatePool replaces it, and a
 * list typed anew forgets what it does not repeat: those addresses would be handed out), so the pool is read, and what is
 * sent holds only for the version that was read.
 */

import { formatValue, type IpRange, isMalformed, parseRange } from '../core/address.ts'
import { normalise, subtract } from '../core/ranges.ts'
import type { Pool } from '../gen/ipledger/v1/pool_pb.ts'
import { Unclear } from './failure.ts'

export type ExclusionOptions = Readonly<{
  exclude?: readonly string[] | false
  addExclude?: readonly string[]
  removeExclude?: readonly string[]
  requestId?: string
}>

/** What is to be changed from what is there; anything else needs no reading. */
export function changesExclusions(options: ExclusionOptions): boolean {
  const { exclude, addExclude, removeExclude, requestId } = options
  if (addExclude === undefined && removeExclude === undefined) return false
  if (exclude !== undefined) {
    throw new Unclear(
      '--exclude and --no-exclude say all of it: leave --add-exclude and --remove-exclude away.',
    )
  }
  // A repeat reads another list and another version: under the same id it would be another request.
  if (requestId !== undefined) {
    throw new Unclear(
      '--add-exclude and --remove-exclude read the pool anew each time, and need no --request-id.',
    )
  }
  return true
}

/** The whole list, without what is to be removed and with what is to be added; what is excluded already is no error. */
export function changedExclusions(pool: Pool, options: ExclusionOptions): readonly string[] {
  let entries: readonly IpRange[] = pool.exclude.map(range)
  for (const text of options.removeExclude ?? []) entries = without(pool, entries, range(text))
  for (const text of options.addExclude ?? []) entries = withRange(entries, range(text))
  return entries.map(written)
}

function withRange(entries: readonly IpRange[], added: IpRange): readonly IpRange[] {
  const there = normalise(entries.filter(({ family }) => family === added.family))
  const isThere = subtract([added], there).length === 0
  return isThere ? entries : [...entries, added]
}

/** Taken out of each entry, which may leave two. Of what no entry has, nothing can be taken: a typing error. */
function without(pool: Pool, entries: readonly IpRange[], removed: IpRange): readonly IpRange[] {
  const left = entries.flatMap((entry) =>
    entry.family === removed.family
      ? subtract([entry], [removed]).map((rest) => ({ family: entry.family, ...rest }))
      : [entry],
  )
  const sizeOf = (list: readonly IpRange[]) =>
    list.reduce((sum, { first, last }) => sum + last - first + 1n, 0n)
  if (sizeOf(left) === sizeOf(entries)) {
    const have = pool.exclude.join(', ') || 'nothing'
    throw new Unclear(
      `${written(removed)} is not among the exclusions of pool ${pool.name}, which are: ${have}.`,
    )
  }
  return left
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
