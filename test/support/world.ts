/**
 * What sources see, as the liveness room's tables have it: how each source stands, and intervals of sightings. Nothing
 * of it is in a ledger's history.
 */
import {
  blockBase,
  type Family,
  formatValue,
  isMalformed,
  maxPrefix,
  parseAddress,
} from '../../src/core/address.ts'
import type {
  Fence,
  LiveSighting,
  Sightings,
  SourceBook,
  Strictness,
  Unobserved,
} from '../../src/core/books.ts'
import { type SightedEntry, TERMINAL } from '../../src/core/command.ts'

export type WorldSource = SourceBook & {
  /** Empty: the whole network; otherwise its epochs are the boots of the node. */
  readonly node: string
  readonly intervalMs: number
  readonly sequence: number
  readonly complete: { readonly head: number; readonly begunAt: number } | null
  /** When its last report, complete or not, was begun. */
  readonly lastBegunAt: number | null
}

type Interval = {
  readonly source: string
  readonly entry: SightedEntry
  head: number | null
  readonly appearedAt: number
  /** Of one that ended. */
  lastSeenAt: number | null
}

export type Report = {
  /** Of the ledger, when the snapshot was begun; null: nothing proves one. */
  readonly head: number | null
  readonly begunAt: number
  readonly era: number
  readonly complete: boolean
}

export type World = {
  readonly sources: Map<string, WorldSource>
  /** Who has called while the network recovered. */
  readonly unknown: Set<string>
  /** ENABLED and warm, unless the fields say otherwise. */
  register(source: string, fields?: Partial<WorldSource>): void
  report(source: string, entries: readonly SightedEntry[], report: Report): void
  /** What it lists, terminal ones too. */
  listed(source: string): readonly SightedEntry[]
  // As the shell answers decisions.
  bookOf(source: string): SourceBook | null
  at(address: string, prefixLength: number): Sightings
  /** Blocks of this size that somebody sees live. */
  seenIn(family: Family, prefixLength: number): readonly string[]
  strictnessFor(node: string, era: number, fences: readonly Fence[]): Strictness
  unobservedIn(era: number): Unobserved
  /** When the last report from a boot of a node was begun. */
  lastReportFrom(node: string, boot: string): number | null
  slowestIntervalMs(): number
}

const LISTED = 20

export function createWorld(): World {
  const sources = new Map<string, WorldSource>()
  const unknown = new Set<string>()
  let intervals: Interval[] = []

  const isRetired = (source: string) => sources.get(source)?.state === 'RETIRED'
  const live = () =>
    intervals.filter(
      ({ source, entry, lastSeenAt }) =>
        lastSeenAt === null && entry.state !== TERMINAL && !isRetired(source),
    )

  return {
    sources,
    unknown,
    register(source, fields = {}) {
      sources.set(source, {
        source,
        state: 'ENABLED',
        epoch: 'b1',
        warm: true,
        era: null,
        size: 0,
        node: '',
        intervalMs: 30_000,
        sequence: 0,
        complete: null,
        lastBegunAt: null,
        ...fields,
      })
    },
    report(id, entries, { head, begunAt, era, complete }) {
      const source = sources.get(id)!
      const keys = new Set(entries.map((entry) => JSON.stringify(entry)))
      const open = intervals.filter((one) => one.source === id && one.lastSeenAt === null)
      const known = new Set(open.map(({ entry }) => JSON.stringify(entry)))
      // Of a list with holes, or of one that warms up, nobody can say later whether it had an entry.
      const tells = complete && source.warm
      for (const one of open) {
        one.head = null
        if (tells && keys.has(JSON.stringify(one.entry))) one.head = head
        else if (tells) one.lastSeenAt = Math.max(one.appearedAt, source.lastBegunAt ?? 0)
      }
      const appeared = entries.filter((entry) => !known.has(JSON.stringify(entry)))
      intervals = [
        ...intervals,
        ...appeared.map((entry) => ({ source: id, entry, head, appearedAt: begunAt, lastSeenAt: null })),
      ]
      const last = complete && head !== null ? { complete: { head, begunAt }, era, size: entries.length } : {}
      sources.set(id, {
        ...source,
        ...last,
        sequence: source.sequence + 1,
        lastBegunAt: Math.max(begunAt, source.lastBegunAt ?? 0),
      })
    },
    listed: (id) =>
      intervals.flatMap((one) => (one.source === id && one.lastSeenAt === null ? [one.entry] : [])),

    bookOf(id) {
      const found = sources.get(id)
      if (found === undefined) return null
      const { source, state, epoch, warm, era, size } = found
      return { source, state, epoch, warm, era, size }
    },
    at(address, prefixLength) {
      const there = (text: string) => blockOf(text, prefixLength) === address
      const seen = live().filter(({ entry }) => there(entry.address))
      const times = [
        ...seen.map(({ appearedAt }) => appearedAt),
        ...intervals.flatMap(({ entry, lastSeenAt }) =>
          lastSeenAt !== null && entry.state !== TERMINAL && there(entry.address) ? [lastSeenAt] : [],
        ),
      ]
      return {
        live: seen.map(({ source, entry, head, appearedAt }): LiveSighting => {
          const { address: at, owner, node, boot } = entry
          const { node: scope, epoch, lastBegunAt } = sources.get(source)!
          const listedAt =
            scope === '' || boot === epoch ? Math.max(appearedAt, lastBegunAt ?? 0) : appearedAt
          return { source, address: at, owner, node, boot, head, listedAt }
        }),
        lastSeenAt: times.length === 0 ? null : Math.max(...times),
      }
    },
    seenIn(family, prefixLength) {
      const blocks = live().flatMap(({ entry }) => {
        const parsed = parseAddress(entry.address)
        return isMalformed(parsed) || parsed.family !== family ? [] : [blockOf(entry.address, prefixLength)]
      })
      return [...new Set(blocks)]
    },
    strictnessFor(node, era, fences) {
      const enabled = [...sources.values()].filter(
        (one) =>
          one.state === 'ENABLED' &&
          !fences.some((fence) => one.node === fence.node && one.epoch === fence.boot),
      )
      return {
        sources: enabled.length,
        unreported: enabled
          .flatMap((one) => (one.era === era && one.warm ? [] : [one.source]))
          .slice(0, LISTED),
        asking: enabled
          .filter((one) => one.node === '' || one.node === node)
          .map((one) => ({
            source: one.source,
            intervalMs: one.intervalMs,
            completeAt: one.era === era && one.warm ? one.complete!.begunAt : null,
          })),
      }
    },
    unobservedIn(era) {
      const enabled = [...sources.values()].filter((one) => one.state === 'ENABLED')
      return {
        sources: enabled.length,
        unreported: enabled
          .flatMap((one) => (one.era === era && one.warm ? [] : [one.source]))
          .slice(0, LISTED),
        unknown: [...unknown].filter((id) => (sources.get(id)?.state ?? 'REGISTERED') === 'REGISTERED'),
      }
    },
    lastReportFrom(node, boot) {
      const times = [...sources.values()].flatMap((one) =>
        one.node === node && one.epoch === boot && one.lastBegunAt !== null ? [one.lastBegunAt] : [],
      )
      return times.length === 0 ? null : Math.max(...times)
    },
    slowestIntervalMs: () =>
      Math.max(
        0,
        ...[...sources.values()].flatMap((one) => (one.state === 'RETIRED' ? [] : [one.intervalMs])),
      ),
  }
}

function blockOf(text: string, prefixLength: number): string {
  const parsed = parseAddress(text)
  if (isMalformed(parsed)) throw new Error(parsed.malformed)
  if (prefixLength > maxPrefix(parsed.family)) return ''
  return formatValue(parsed.family, blockBase(parsed.family, parsed.value, prefixLength))
}
