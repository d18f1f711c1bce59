/**
 * Reads what sources see and how they stand, under the network's lock and in the same trips as the rest (load.ts).
 *
 * What is seen in untouched space comes with its pieces, what is seen at released addresses with these, so that a Reserve
 * takes no trip more than without sources; nearly always there is nothing. Evidence for free addresses is bounded, and
 * what lies beyond the bound counts as not read, never as not seen.
 *
 * Where no source is, a look at the head says so, and nothing else is asked: the last batch's guess it. A guess that is
 * wrong costs a trip.
 *
 * These tables are written while a batch runs, by reports that never wait for it: what is reported after it was read
 * here is older than what the batch does, or is judged against it.
 */
import { blockBase, blockSize, type Family, formatValue, maxPrefix } from '../core/address.ts'
import {
  addressValue,
  type Books,
  bootKey,
  type LastHolder,
  type LiveSighting,
  NEVER_SEEN,
  type PoolBook,
  placeKey,
  type SourceBook,
} from '../core/books.ts'
import { type Lease, SIGHTING_REASONS } from '../core/lease.ts'
import { lastListing, type Report } from '../core/listed.ts'
import { firstSeqOfEra } from '../core/policy.ts'
import type { Range } from '../core/ranges.ts'
import { ABSENCE_SINCE, type AbsenceRow, countAbsence, lastRemembered, remember } from './absence.ts'
import type { Ask } from './load.ts'
import {
  FENCE_COLUMNS,
  type FenceRow,
  HOLD_COLUMNS,
  type HoldRow,
  MOST_OF_ONE,
  type ReleasedRow,
  readAddress,
  readFence,
  readHold,
  reasonsOf,
} from './rows.ts'
import { changeOf, type Slice } from './slice.ts'

/** Sightings in a piece of untouched space that are read with it. There should be none: what is seen is adopted. */
export const SIGHTED_AT_FIRST = 64
/** And at a time when those were not all. */
const MORE_SIGHTED = 4_096
/** Sources that a refusal names. */
const SOURCES_NAMED = 20
/** Sources that see one node: its own, and those of the whole network. */
const MOST_ASKING = 1_000

/** Live sightings from one address to another, but of sources that are retired; lowest first. */
const liveFrom = (first: string, last: string, most: number | string) => `
      select s.*, o.node as source_node, o.epoch as source_epoch, o.warm, o.last_sequence, o.last_begun_at,
        o.complete_sequence, o.complete_head, o.complete_at
      from ipledger.sighting s
      left join lateral (
        select b.* from ipledger.source b
        where b.network_id = $1 and b.source_id >= s.source_id and b.source_id <= s.source_id
        order by b.source_id limit 1) o on true
      where s.network_id = $1 and s.address >= ${first} and s.address <= ${last} and s.live
        and o.state is distinct from 'RETIRED'
      order by s.address limit ${most}`

const ms = (time: string) => `(extract(epoch from ${time}) * 1000)::bigint`

/** The same as `SeenCells`, null for none. */
const seenFrom = (first: string, last: string, more = '') => `case when exists (
        select 1 from ipledger.sighting s
        where s.network_id = $1 and s.address >= ${first} and s.address <= ${last} and s.live)
      then (
        select json_agg(json_build_array(
          host(t.address), t.source_id, t.owner_kind, t.owner_name, t.owner_uid, t.owner_uid_named, t.owner_incarnation,
          t.owner_interface, t.node, t.boot,
          t.appeared_sequence, t.appeared_head, ${ms('t.appeared_at')}, t.source_node, t.source_epoch, t.warm,
          t.last_sequence, ${ms('t.last_begun_at')}, t.complete_sequence, t.complete_head, ${ms('t.complete_at')}${more}))
        from (${liveFrom(first, last, MOST_OF_ONE)}) t) end`

/** Whose lease ended with a number, and where: `LastHolderCells`. */
export const holderEndedAt = (seq: string) => `(
            select json_build_array(e.owner_kind, e.owner_name, e.owner_uid, e.owner_uid_named, e.owner_incarnation,
              e.owner_interface, e.node, e.settings is not null)
            from ipledger.event e
            where e.network_id = $1 and e.seq >= ${seq} and e.seq <= ${seq} order by e.seq limit 1)`
/** Numbers of the fence of the boot that something was seen in. */
export const fenceOfSeen = (seen: string) => `(
            select json_build_array(f.fenced_seq, coalesce(f.fenced_head, f.fenced_seq)) from ipledger.fence f
            where f.network_id = $1 and f.node = ${seen}.node and f.boot = ${seen}.boot order by f.node, f.boot limit 1)`

/**
 * One column more beside a row of `released_address`: what is seen live at it, or in its block; and, of what is seen there,
 * what may refute it (core/books.ts).
 */
export const SEEN_AT_RELEASED = `, ${seenFrom(
  'r.address',
  'set_masklen(broadcast(set_masklen(r.address, r.prefix_length)), -1)',
  `, ${fenceOfSeen('t')}, case when r.removal_confirmed then ${holderEndedAt('r.released_seq')} end`,
)} as seen`

/** One column more beside a piece of untouched space, of which the position says where it begins: below, all is held and seen. */
export const SIGHTED_IN_PIECE = `, (
        select json_agg(host(t.address)) from (${liveFrom(
          'case when r.first_address = x.cursor_first then x.cursor_next else r.first_address end',
          'r.last_address',
          'c.most_sighted',
        )}) t) as sighted`

const NOT_FENCED = `(
          select 1 from ipledger.fence f
          where f.network_id = $1 and f.node = s.node and f.boot = s.epoch order by f.node, f.boot limit 1) is null
        and (
          select 1 from unnest($3::text[], $4::text[]) as f (node, boot)
          where f.node = s.node and f.boot = s.epoch limit 1) is null`
const THIS_ERA = '(select n.era from ipledger.network n where n.network_id = $1)'
/** Asked for by era, so that only one index serves. */
const enabled = (era: string, most: number, but: string) => `(
        select s.source_id from ipledger.source s
        where s.network_id = $1 and s.state = 'ENABLED' and s.era ${era}${but}
        order by s.era, s.source_id limit ${most})`
/** Their first lists may be of a moment before the world was put back into them (cilium#9888). */
const warmingUp = (but: string) => `(
        select s.source_id from ipledger.source s
        where s.network_id = $1 and s.state = 'ENABLED' and not s.warm${but}
        order by s.source_id limit ${SOURCES_NAMED})`
/** Of thousands of sources a few are looked at: whether there is any is all that their number says. */
const reportedYet = (but: string) => `(
        select count(*) from (${enabled('is null', 1, but)} union all ${enabled('>= 0', 1, but)}) few) as sources,
      (select json_agg(u.source_id) from (
        ${['is null', `< ${THIS_ERA}`, `> ${THIS_ERA}`].map((era) => enabled(era, SOURCES_NAMED, but)).join(' union all ')}
        union ${warmingUp(but)}) u) as unreported`
/** Called for while the books recover, and known to none of them, or in dry run (liveness/unknown-sources.ts). */
const UNKNOWN = `(
        select x.source_id from ipledger.unknown_source x
        where x.network_id = $1 and x.era = ${THIS_ERA} and coalesce((
          select s.state from ipledger.source s
          where s.network_id = $1 and s.source_id >= x.source_id and s.source_id <= x.source_id
          order by s.source_id limit 1), 'REGISTERED') = 'REGISTERED'
        order by x.source_id limit ${SOURCES_NAMED})`
const seeing = (node: string) => `(
        select s.source_id, s.report_interval_ms, s.complete_at, s.era, s.warm from ipledger.source s
        where s.network_id = $1 and s.node >= ${node} and s.node <= ${node} and s.state = 'ENABLED' and ${NOT_FENCED}
        order by s.node, s.source_id limit ${MOST_ASKING})`

/** Beside `h`, the head: the slowest of the sources that are not retired. */
export const SLOWEST_INTERVAL = `coalesce((
        select s.report_interval_ms from ipledger.source s
        where s.network_id = $1 and s.state <> 'RETIRED' order by s.report_interval_ms desc limit 1), 0) as slowest_interval`

/**
 * Of the event that began the last era with a recovery; null: none did. Whatever was acknowledged before it may be lost.
 * Eras are few, and each begins with its own first number.
 */
export const LAST_RECOVERY = (column: 'seq' | 'at') => `(
      select b.${column} from generate_series(1, n.era) as k (era)
      cross join lateral (
        select e.seq, e.at, e.settings from ipledger.event e
        where e.network_id = $1 and e.seq >= k.era * ${firstSeqOfEra(1)} and e.seq <= k.era * ${firstSeqOfEra(1)}
        order by e.seq limit 1) b
      where (b.settings ->> 'recovering')::boolean order by b.seq desc limit 1)`

/** When a boot was last heard of: by a source that is in it, or that was, or beside the one it is in; retired or not. */
export const REPORTED_FROM = (fence: string) => `greatest((
          select max(b.last_begun_at) from (
            select x.epoch, x.last_begun_at from ipledger.source x
            where x.network_id = $1 and x.node >= ${fence}.node and x.node <= ${fence}.node
            order by x.node, x.source_id limit ${MOST_OF_ONE}) b
          where b.epoch = ${fence}.boot), (
          select max(b.reported_at) from (
            select x.reported_at from ipledger.boot_report x
            where x.network_id = $1 and x.node = ${fence}.node and x.boot = ${fence}.boot
            order by x.node, x.boot, x.source_id limit ${MOST_OF_ONE}) b))`

export const SEEN_READS = {
  // When an address was seen last, its newest interval says; in a block any address may have it.
  sightings: `select k.place, ${seenFrom('k.first_address', 'k.last_address')} as seen,
      case when k.first_address = k.last_address then (
        select e.last_seen_at from ipledger.sighting e
        where e.network_id = $1 and e.address >= k.first_address and e.address <= k.first_address
          and e.vanished_sequence is not null and e.state <> 'terminal'
        order by e.address desc, e.last_seen_at desc limit 1)
      else (
        select max(e.last_seen_at) from ipledger.sighting e
        where e.network_id = $1 and e.address >= k.first_address and e.address <= k.last_address
          and e.vanished_sequence is not null and e.state <> 'terminal') end as last_seen_at
    from unnest($2::inet[], $3::inet[]) with ordinality as k (first_address, last_address, place)`,
  lastHolders: `select k.seq, ${holderEndedAt('k.seq')} as holder from unnest($2::bigint[]) as k (seq)`,
  sightedIn: `select g.place, s.address
    from unnest($2::inet[], $3::inet[]) with ordinality as g (first_address, last_address, place)
    cross join lateral (${liveFrom('g.first_address', 'g.last_address', MORE_SIGHTED)}) s`,
  sources: `select o.source_id, o.state, o.epoch, o.warm, o.era, o.size
    from unnest($2::text[]) as k (id)
    cross join lateral (
      select b.* from ipledger.source b
      where b.network_id = $1 and b.source_id >= k.id and b.source_id <= k.id order by b.source_id limit 1) o`,
  quarantinesBySource: `select a.source, q.count
    from unnest($2::text[]) as a (source)
    cross join lateral (
      select count(*) as count from ipledger.lease l
      where l.network_id = $1 and l.quarantined_by = a.source
        and l.quarantine_reason in (${reasonsOf(SIGHTING_REASONS)})
        and l.state = 'QUARANTINED') q`,
  // With the last report from that boot: one that reports is not over (6.3).
  fences: `select ${FENCE_COLUMNS.map((column) => `o.${column}`).join(', ')}, ${REPORTED_FROM('o')} as reported_at
    from unnest($2::text[], $3::text[]) as k (node, boot)
    cross join lateral (
      select f.* from ipledger.fence f
      where f.network_id = $1 and f.node = k.node and f.boot = k.boot order by f.node, f.boot limit 1) o`,
  holds: `select ${HOLD_COLUMNS.map((column) => `o.${column}`).join(', ')}
    from unnest($2::text[]) as k (source)
    cross join lateral (
      select h.* from ipledger.hold h
      where h.network_id = $1 and h.source_id >= k.source and h.source_id <= k.source order by h.source_id limit 1) o`,
  absence: ABSENCE_SINCE,
  heldLeases: `select coalesce(sum(x.reserved + x.active + x.quarantined), 0)::bigint as held
    from (
      select o.pool_id from ipledger.pool o where o.network_id = $1 order by o.pool_id limit ${MOST_OF_ONE}) p
    cross join lateral (
      select q.reserved, q.active, q.quarantined from ipledger.pool_position q
      where q.network_id = $1 and q.pool_id = p.pool_id order by q.seq desc limit 1) x`,
  // Leases do not overlap: of those that begin before an address only the nearest can contain it.
  leasesSeen: `select k.source, k.up_to, w.entries, w.leases
    from unnest($2::text[], $3::int[]) as k (source, up_to)
    cross join lateral (
      select count(*)::int as entries, count(distinct h.address)::int as leases
      from (
        select s.address, s.live from ipledger.sighting s
        where s.network_id = $1 and s.source_id >= k.source and s.source_id <= k.source and s.vanished_sequence is null
        order by s.source_id, s.entry_key limit k.up_to) e
      left join lateral (
        select l.address, l.prefix_length from ipledger.lease l
        where l.network_id = $1 and l.address <= e.address
        order by l.address desc limit 1) h
      on e.live and (h.address = e.address or set_masklen(h.address, h.prefix_length) >>= e.address)) w`,
  strictness: `select k.node,
      ${reportedYet(` and ${NOT_FENCED}`)},
      (select json_agg(json_build_array(
          n.source_id, n.report_interval_ms,
          case when n.era = ${THIS_ERA} and n.warm then ${ms('n.complete_at')} end))
        from (${seeing("''")} union all ${seeing("nullif(k.node, '')")}) n) as asking
    from unnest($2::text[]) as k (node)`,
  unobserved: `select
      ${reportedYet('')},
      (select json_agg(u.source_id) from ${UNKNOWN} u) as unknown`,
  lastRecovery: `select n.recovery_seq from (
      select ${LAST_RECOVERY('seq')} as recovery_seq from ipledger.network n where n.network_id = $1) n`,
} as const

/** A live sighting as it travels. */
export type SeenCells = readonly [
  address: string,
  source: string,
  kind: string | null,
  name: string,
  uid: string,
  uidNamed: boolean,
  incarnation: string,
  on: string,
  node: string,
  boot: string,
  appearedSequence: number,
  /** 0: not proven. */
  appearedHead: number,
  appearedAt: number,
  sourceNode: string,
  epoch: string,
  warm: boolean,
  lastSequence: number,
  lastBegunAt: number | null,
  completeSequence: number | null,
  completeHead: number | null,
  completeAt: number | null,
  // Beside a released address alone.
  fence?: FenceCells | null,
  lastHolder?: LastHolderCells | null,
]
export type FenceCells = readonly [seq: number, head: number]
export type LastHolderCells = readonly [
  kind: string | null,
  name: string,
  uid: string,
  uidNamed: boolean,
  incarnation: string,
  on: string,
  node: string,
  /** Where other nodes asked for it, its events have settings. */
  isMoved: boolean,
]
/** Without the column where nobody was expected to see anything. */
export type SeenReleasedRow = ReleasedRow & { seen?: readonly SeenCells[] | null }
export type SightedPieceRow = { pool_id: number; last_address: string; sighted?: readonly string[] | null }

type SourceBookRow = {
  source_id: string
  state: string
  epoch: string
  warm: boolean
  era: number | null
  size: number
}
type LeasesSeenRow = {
  readonly source: string
  readonly up_to: number
  readonly entries: number
  readonly leases: number
}
type StrictnessRow = {
  node: string
  sources: number
  unreported: readonly string[] | null
  asking: readonly (readonly [source: string, intervalMs: number, completeAt: number | null])[] | null
}

type UnobservedRow = {
  readonly sources: number
  readonly unreported: readonly string[] | null
  readonly unknown: readonly string[] | null
}

/** What of the needs is answered here. */
export type WantedSeen = {
  /** By `placeKey`. */
  readonly sightings: Map<string, { readonly address: string; readonly prefixLength: number }>
  /** By the number of the end of their lease. */
  readonly lastHolders: Set<number>
  readonly sightedIn: { readonly poolId: number; readonly ranges: readonly Range[] }[]
  readonly sources: Set<string>
  readonly quarantiningSources: Set<string>
  /** By `bootKey`. */
  readonly fences: Map<string, { readonly node: string; readonly boot: string }>
  readonly holds: Set<string>
  readonly absence: Set<string>
  heldLeases: boolean
  /** By source: among how many entries. */
  readonly leasesSeen: Map<string, number>
  readonly strictness: Set<string>
  unobserved: boolean
  lastRecovery: boolean
}

export function wantNothingSeen(): WantedSeen {
  return {
    sightings: new Map(),
    lastHolders: new Set(),
    sightedIn: [],
    sources: new Set(),
    quarantiningSources: new Set(),
    fences: new Map(),
    holds: new Set(),
    absence: new Set(),
    heldLeases: false,
    leasesSeen: new Map(),
    strictness: new Set(),
    unobserved: false,
    lastRecovery: false,
  }
}

export function askForSeen(slice: Slice, wanted: WantedSeen): readonly Ask[] {
  const { books } = slice
  const network = books.networkName
  const asks: Ask[] = []
  if (wanted.sightings.size > 0) asks.push(askForSightings(books, [...wanted.sightings.values()]))
  if (wanted.lastHolders.size > 0) {
    const numbers = [...wanted.lastHolders]
    asks.push(
      read<{ seq: number; holder: LastHolderCells | null }>('lastHolders', [network, numbers], (rows) => {
        for (const { seq, holder } of rows)
          if (!books.lastHolders.has(seq))
            books.lastHolders.set(seq, holder === null ? null : readLastHolder(holder))
      }),
    )
  }
  for (const { poolId, ranges } of wanted.sightedIn) asks.push(askForSighted(books, poolId, ranges))
  if (wanted.sources.size > 0) {
    const ids = [...wanted.sources]
    asks.push(
      read<SourceBookRow>('sources', [network, ids], (rows) => {
        for (const row of rows) books.sources.set(row.source_id, readSourceBook(row))
        for (const id of ids) if (!books.sources.has(id)) books.sources.set(id, null)
      }),
    )
  }
  if (wanted.quarantiningSources.size > 0) {
    const sources = [...wanted.quarantiningSources]
    asks.push(
      read<{ source: string; count: number }>('quarantinesBySource', [network, sources], (rows) => {
        for (const { source, count } of rows) {
          if (books.quarantinesBySource.has(source)) continue
          const mine = ({ quarantine }: Lease) =>
            quarantine?.by === source && SIGHTING_REASONS.includes(quarantine.reason)
          books.quarantinesBySource.set(source, count + changeOf(slice, mine))
        }
      }),
    )
  }
  if (wanted.fences.size > 0) {
    const boots = [...wanted.fences.values()]
    const values = [network, boots.map(({ node }) => node), boots.map(({ boot }) => boot)]
    asks.push(
      read<FenceRow & { reported_at: number | null }>('fences', values, (rows) => {
        const found = new Map(rows.map((row) => [bootKey(row.node, row.boot), row]))
        for (const key of wanted.fences.keys()) {
          const row = found.get(key)
          if (!books.fences.has(key)) books.fences.set(key, row === undefined ? null : readFence(row))
          if (!books.fencedReports.has(key)) books.fencedReports.set(key, row?.reported_at ?? null)
        }
      }),
    )
  }
  if (wanted.holds.size > 0) {
    const sources = [...wanted.holds]
    asks.push(
      read<HoldRow>('holds', [network, sources], (rows) => {
        const found = new Map(rows.map((row) => [row.source_id, readHold(row)]))
        for (const source of sources)
          if (!books.holds.has(source)) books.holds.set(source, found.get(source) ?? null)
      }),
    )
  }
  if (wanted.absence.size > 0) {
    const { seq, at } = lastRemembered(slice.absence)
    asks.push(
      read<AbsenceRow>('absence', [network, seq, at], (rows) => {
        remember(slice.absence, rows, books.now)
        for (const source of wanted.absence) {
          if (books.absenceReaps.has(source)) continue
          books.absenceReaps.set(source, countAbsence(slice.absence, slice.events, source, books.now))
        }
      }),
    )
  }
  if (wanted.heldLeases) {
    asks.push(
      read<{ held: number }>('heldLeases', [network], ([row]) => {
        books.heldLeases ??= row!.held + changeOf(slice, () => true)
      }),
    )
  }
  if (wanted.leasesSeen.size > 0) {
    const values = [network, [...wanted.leasesSeen.keys()], [...wanted.leasesSeen.values()]]
    asks.push(
      read<LeasesSeenRow>('leasesSeen', values, (rows) => {
        // Nothing of a batch is in it, so that a longer look takes the place of a shorter one.
        for (const { source, up_to: upTo, entries, leases } of rows)
          books.leasesSeen.set(source, { upTo, entries, leases })
      }),
    )
  }
  if (wanted.strictness.size > 0) asks.push(askForStrictness(books, [...wanted.strictness]))
  if (wanted.unobserved) {
    asks.push(
      read<UnobservedRow>('unobserved', [network], ([row]) => {
        const { sources, unreported, unknown } = row!
        books.unobserved = {
          sources,
          unreported: (unreported ?? []).slice(0, SOURCES_NAMED),
          unknown: unknown ?? [],
        }
      }),
    )
  }
  if (wanted.lastRecovery) {
    asks.push(
      read<{ recovery_seq: number | null }>('lastRecovery', [network], ([row]) => {
        // Of an era that began in this batch its event has said it.
        books.lastRecovery ??= row?.recovery_seq ?? 0
      }),
    )
  }
  return asks
}

function read<Row>(
  name: keyof typeof SEEN_READS,
  values: readonly unknown[],
  apply: (rows: readonly Row[]) => void,
): Ask {
  return {
    statement: { name: `read_${name}`, text: SEEN_READS[name], values },
    apply: (rows) => apply(rows as readonly Row[]),
  }
}

function askForStrictness(books: Books, nodes: readonly string[]): Ask {
  // Those of this batch are in no table yet.
  const fences = [...books.fences.values()].flatMap((fence) => fence ?? [])
  const values = [books.networkName, nodes, fences.map(({ node }) => node), fences.map(({ boot }) => boot)]
  return read<StrictnessRow>('strictness', values, (rows) => {
    for (const { node, sources, unreported: named, asking } of rows) {
      books.strictness.set(node, {
        sources,
        unreported: (named ?? []).slice(0, SOURCES_NAMED),
        asking: (asking ?? []).map(([source, intervalMs, completeAt]) => ({
          source,
          intervalMs,
          completeAt,
        })),
      })
    }
  })
}

function readSourceBook(row: SourceBookRow): SourceBook {
  const { source_id: source, epoch, warm, era, size } = row
  return { source, state: row.state as SourceBook['state'], epoch, warm, era, size }
}

// Sightings.

type Place = { readonly address: string; readonly prefixLength: number }

function askForSightings(books: Books, places: readonly Place[]): Ask {
  const firsts = places.map(({ address }) => address)
  const lasts = places.map(lastAddress)
  return read<{ place: number; seen: readonly SeenCells[] | null; last_seen_at: number | null }>(
    'sightings',
    [books.networkName, firsts, lasts],
    (rows) => {
      for (const { place, seen, last_seen_at: lastSeenAt } of rows) {
        const { address, prefixLength } = places[place - 1]!
        const key = placeKey(address, prefixLength)
        if (books.sightings.has(key)) continue
        const live = seen ?? []
        const times = [...live.map((cells) => cells[12]), ...(lastSeenAt === null ? [] : [lastSeenAt])]
        books.sightings.set(key, {
          live: live.map(readSighting),
          lastSeenAt: times.length === 0 ? null : Math.max(...times),
        })
      }
    },
  )
}

function lastAddress({ address, prefixLength }: Place): string {
  const family: Family = address.includes(':') ? 6 : 4
  if (prefixLength === maxPrefix(family)) return address
  return formatValue(family, addressValue(address) + blockSize(family, prefixLength) - 1n)
}

function readSighting(cells: SeenCells): LiveSighting {
  const [address, source, kind, name, uid, uidNamed, incarnation, on, node, boot, ...of] = cells
  const [sequence, head, begunAt, sourceNode, epoch, warm, lastSequence, lastBegunAt, ...rest] = of
  const [completeSequence, completeHead, completeAt] = rest
  const listing = lastListing(
    { sequence, head, begunAt },
    { warm, lastSequence, lastBegunAt, complete: readComplete([completeSequence, completeHead, completeAt]) },
  )
  // A node's older boot lists nothing any more.
  const mayBeListed = sourceNode === '' || boot === epoch
  return {
    source,
    address: readAddress(address),
    owner: kind === null ? null : { kind, name, uid, uidNamed, incarnation, interface: on },
    node,
    boot,
    head: listing?.head ?? null,
    listedAt: mayBeListed ? Math.max(begunAt, lastBegunAt ?? 0) : begunAt,
  }
}

function readComplete([sequence, head, begunAt]: readonly (number | null)[]): Report | null {
  return sequence == null ? null : { sequence, head: head!, begunAt: begunAt! }
}

export function readLastHolder(cells: LastHolderCells): LastHolder {
  const [kind, name, uid, uidNamed, incarnation, on, node, isMoved] = cells
  return {
    owner: kind === null ? null : { kind, name, uid, uidNamed, incarnation, interface: on },
    node,
    isMoved,
  }
}

/** When it was seen last is not asked of an address that nobody holds. */
export function addSeen({ books, watched }: Slice, row: SeenReleasedRow): void {
  const { address, prefix_length, released_seq, seen } = row
  for (const cells of seen ?? []) {
    const { 8: node, 9: boot, 21: fence, 22: holder } = cells
    const key = bootKey(node, boot)
    // Of one that is fenced more is known than its numbers: it is read by itself.
    if (fence === null && !books.fences.has(key)) books.fences.set(key, null)
    if (holder != null && !books.lastHolders.has(released_seq))
      books.lastHolders.set(released_seq, readLastHolder(holder))
  }
  const key = placeKey(readAddress(address), prefix_length)
  if (books.sightings.has(key) || (watched && seen === undefined)) return
  books.sightings.set(key, seen == null ? NEVER_SEEN : { live: seen.map(readSighting), lastSeenAt: null })
}

// Sightings in untouched space.

function askForSighted(books: Books, poolId: number, ranges: readonly Range[]): Ask {
  const { family } = books.pools.get(poolId)!.pool
  const firsts = ranges.map((range) => formatValue(family, range.first))
  const lasts = ranges.map((range) => formatValue(family, range.last))
  return read<{ place: number; address: string }>('sightedIn', [books.networkName, firsts, lasts], (rows) => {
    const byPlace = Map.groupBy(rows, ({ place }) => place)
    const pieces = ranges.map(({ last }, index) => ({
      last,
      addresses: (byPlace.get(index + 1) ?? []).map(({ address }) => address),
    }))
    addSighted(books.pools.get(poolId)!, pieces, MORE_SIGHTED)
  })
}

/** Pieces of a pool that were read in order, the first one behind those that were read before; with its sightings. */
export function addSightedInOrder({ watched }: Slice, book: PoolBook, all: readonly SightedPieceRow[]): void {
  const { untouchedUpTo, sightedUpTo } = book
  const rows = all.filter((row) => row.pool_id === book.pool.poolId)
  if (watched && rows.some(({ sighted }) => sighted === undefined)) return
  const pieces = rows.map((row) => ({
    last: addressValue(readAddress(row.last_address)),
    addresses: row.sighted ?? [],
  }))
  // Where what was read before is not known to its end, it is asked for by itself, and this with it.
  const isNext = sightedUpTo === null || (untouchedUpTo !== null && untouchedUpTo <= sightedUpTo)
  if (isNext) addSighted(book, pieces, SIGHTED_AT_FIRST)
}

/** What lies above the last of as many as were asked for is not known; nor is a piece behind one that is not. */
function addSighted(
  book: PoolBook,
  pieces: readonly { readonly last: bigint; readonly addresses: readonly string[] }[],
  most: number,
): void {
  const { family, prefixLength } = book.pool
  for (const { last, addresses } of pieces) {
    let upTo = last
    for (const address of addresses) {
      const block = blockBase(family, addressValue(readAddress(address)), prefixLength)
      book.sighted.add(formatValue(family, block))
      if (addresses.length === most) upTo = block + blockSize(family, prefixLength) - 1n
    }
    if (book.sightedUpTo !== null && book.sightedUpTo < upTo) book.sightedUpTo = upTo
    if (addresses.length === most) return
  }
}
