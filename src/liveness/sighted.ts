/**
 * What sources list, brought before the ledger: at once with every snapshot for what is new in it (`sightNews`), and
 * again and again for whatever the books do not say yet (`sightListed`). Both only ask; what an entry comes to is
 * decided under the network's lock (core/decide-sighting.ts), against what its source lists then.
 *
 * The second needs no memory of the first. It walks what is listed by address and holds it against the leases, so a
 * report whose process died, a refusal, a pool that was made later and a source that was just enabled are all met by
 * the same look. What the books say already costs a look-up in an index and reaches neither this process nor the
 * ledger.
 */
import type pg from 'pg'
import { refutes } from '../core/books.ts'
import type { Sight, SightedEntry } from '../core/command.ts'
import { TERMINAL } from '../core/command.ts'
import { lastListing } from '../core/listed.ts'
import { firstSeqOfEra } from '../core/policy.ts'
import type { Refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import {
  type FenceCells,
  fenceOfSeen,
  holderEndedAt,
  type LastHolderCells,
  readLastHolder,
} from '../ledger/load-seen.ts'
import { MOST_OF_ONE, type OwnerRow, readAddress, readOwner } from '../ledger/rows.ts'
import { ask } from '../postgres/on-connection.ts'
import type { Reported } from './report.ts'
import { readSource, SOURCE_COLUMNS, type Source, type SourceRow } from './source-rows.ts'

/** Entries of one command: half a batch of the ledger, so that callers who wait behind one never wait long. */
const MOST_ENTRIES = 500
/** Commands for one report; what is left is the job's. */
const MOST_COMMANDS = 20
/** Sightings walked by one statement: some 40 ms of the database (not measured). */
const PAGE = 5_000
/** Entries a network is asked about in one run; the next run goes on behind them. */
const MOST_OF_A_RUN = 20_000

export type Sighted = {
  /** By `Finding.because`. */
  readonly findings: Readonly<Record<string, number>>
  /** Why the rest was left to the job. */
  readonly refused: Refusal | null
}

/**
 * At once, on every snapshot. Nothing follows from the list of a source in dry run. Of much that is new, as in a first
 * list, most may be in the books already: the ledger is asked about the rest.
 */
export async function sightNews(
  { database, ledger }: { readonly database: pg.Pool; readonly ledger: Ledger },
  network: string,
  reported: Reported,
  actor: string,
): Promise<Sighted> {
  const { source, sequence, news, ground } = reported
  const tally = newTally()
  if (source.state !== 'ENABLED') return tally
  const live = news.filter(({ state }) => state !== TERMINAL)
  const entries = live.length > MOST_ENTRIES ? await withoutBooked(database, network, live) : live
  const at = {
    source: source.id,
    epoch: source.standing.epoch,
    sequence,
    begunAt: source.standing.lastBegunAt ?? ground.now,
  }
  for (const page of pagesOf(entries).slice(0, MOST_COMMANDS)) {
    await submit(ledger, sightOf(network, actor, at, page), tally)
    if (tally.refused !== null) break
  }
  return tally
}

/** What one source lists, and the snapshot it is evidence of. */
type SeenAt = Pick<Sight, 'source' | 'epoch' | 'sequence' | 'begunAt'>

export function sightOf(
  network: string,
  actor: string,
  at: SeenAt,
  entries: readonly SightedEntry[],
  dryRun = false,
): Sight {
  return {
    type: 'sight',
    network,
    actor: { name: actor, node: null },
    cause: 'SIGHTED',
    requestId: null,
    fingerprint: null,
    traceId: null,
    ...at,
    dryRun,
    entries: entries.map(({ address, owner, node, boot, state }) => ({ address, owner, node, boot, state })),
  }
}

type Tally = { findings: Record<string, number>; refused: Refusal | null }

function newTally(): Tally {
  return { findings: {}, refused: null }
}

async function submit(ledger: Ledger, command: Sight, tally: Tally): Promise<void> {
  const outcome = await ledger.submit(command, { lane: 'reconciler' })
  if (!outcome.ok) {
    tally.refused = outcome.refusal
    return
  }
  for (const { because } of outcome.answer.findings ?? []) {
    tally.findings[because] = (tally.findings[because] ?? 0) + 1
  }
}

// What the books do not say.

const BOUND = `
  select x.address from ipledger.sighting x
   where x.network_id = $1 and x.live and x.address > $2::inet and x.address <= $3::inet
   order by x.address offset $4 limit 1`

// Leases do not overlap, nor do released addresses: of those that begin before it only the nearest can contain it. Walking
// backwards to that one reads a page of the index, 70 µs; an address that is leased by itself is found in 5.
// Whom an entry is about is decide-sighting.ts's to say; here it is said of what would change nothing.
const unbookedOf = (sightings: string) => `
  select s.address, s.source_id, s.owner_kind, s.owner_name, s.owner_uid, s.owner_uid_named, s.owner_incarnation,
         s.owner_interface, s.node, s.boot, s.state, s.appeared_sequence, s.appeared_head, s.appeared_at,
         h.held, h.version, h.pool_id
    from (${sightings}) s
    left join lateral (
      (select l.* from ipledger.lease l
        where l.network_id = $1 and l.address >= s.address and l.address <= s.address order by l.address limit 1)
      union all
      (select l.* from ipledger.lease l
        where l.network_id = $1 and l.address < s.address order by l.address desc limit 1)
      limit 1) l on true
    cross join lateral (
      select coalesce(l.address = s.address or set_masklen(l.address, l.prefix_length) >>= s.address, false) as held,
             l.prefix_length < masklen(l.address) as block,
             coalesce(s.owner_kind = l.owner_kind and case when l.owner_uid_named then s.owner_uid = l.owner_uid
                                                           else s.owner_name = l.owner_name end, false) as same,
             coalesce(s.owner_kind <> l.owner_kind or (s.owner_uid_named and l.owner_uid_named)
               or (s.owner_name <> l.owner_name
                 and (not s.owner_uid_named or s.owner_name <> s.owner_uid)
                 and (not l.owner_uid_named or l.owner_name <> l.owner_uid)), false) as other,
             l.node <> '' and s.node <> '' and l.node <> s.node
               and s.node <> all(string_to_array(l.asked_from, E'\\n')) as elsewhere) w
    cross join lateral (
      select w.held, case when w.held then l.version end as version, case when w.held then l.pool_id end as pool_id
       where case
         when not w.held then true
         when l.state = 'QUARANTINED' then false
         when w.same then l.state = 'RESERVED'
         when w.other and (w.elsewhere or not w.block) then true
         else w.block and l.state = 'RESERVED'
       end) h`

const UNBOOKED = unbookedOf(`
      select x.* from ipledger.sighting x
       where x.network_id = $1 and x.live and x.address > $2::inet and x.address <= $3::inet
       order by x.address offset 0`)

const UNBOOKED_AT = unbookedOf(`
      select y.* from unnest($2::inet[]) as k (address)
       cross join lateral (
         select x.* from ipledger.sighting x
          where x.network_id = $1 and x.live and x.address >= k.address and x.address <= k.address
          order by x.address limit ${MOST_OF_ONE}) y
       offset 0`)

// Of the free ones: the pool they are in, the last event there, and what may refute them.
const FREE = `
  select k.place, p.pool_id, host(r.address) as address, r.prefix_length, r.released_seq, r.removal_confirmed,
         case when r.removal_confirmed then ${holderEndedAt('r.released_seq')} end as holder, ${fenceOfSeen('k')} as fence
    from unnest($2::int[], $3::inet[], $4::text[], $5::text[]) as k (place, address, node, boot)
    cross join lateral (
      select x.pool_id from ipledger.pool x where x.network_id = $1 and x.cidr >>= k.address limit 1) p
    left join lateral (
      select x.released_seq, x.address, x.prefix_length, x.removal_confirmed from ipledger.released_address x
       where x.network_id = $1 and x.address <= k.address order by x.address desc limit 1) r
      on r.address = k.address or set_masklen(r.address, r.prefix_length) >>= k.address`

const SOURCES = `
  select ${SOURCE_COLUMNS.join(', ')} from ipledger.source where network_id = $1 and source_id = any($2::text[])`

// One that is enabled is enough: the index by era has no other.
const GROUND = `
  select n.state, n.era,
         (select s.source_id from ipledger.source s
           where s.network_id = $1 and s.state = 'ENABLED' order by s.era, s.source_id limit 1) is not null as has_sources
    from ipledger.network n where n.network_id = $1`

/** For the test of their plans. */
export const SIGHTED_STATEMENTS = {
  sightedBound: BOUND,
  sightedUnbooked: UNBOOKED,
  sightedUnbookedAt: UNBOOKED_AT,
  sightedFree: FREE,
  sightedSources: SOURCES,
  sightedGround: GROUND,
} as const

type UnbookedRow = Readonly<OwnerRow> & {
  readonly address: string
  readonly source_id: string
  readonly node: string
  readonly boot: string
  readonly state: string
  readonly appeared_sequence: number
  readonly appeared_head: number
  readonly appeared_at: number
  readonly held: boolean
  readonly version: number | null
  readonly pool_id: number | null
}

/** Something that is listed as live, and that the books have otherwise. */
export type Unbooked = {
  readonly source: Source
  readonly entry: SightedEntry
  /** The snapshot it is evidence of; without a head, where it appeared, and nothing follows from it. */
  readonly at: SeenAt & { readonly head: number | null }
  /** When it was first listed. */
  readonly since: number
  readonly poolId: number
  readonly held: boolean
  /** Number of the last event on the address. */
  readonly lastEvent: number
  /** Of a free one: that event, or a fence, says that it is over. */
  readonly isRefuted: boolean
}

type FreeRow = {
  readonly place: number
  readonly pool_id: number
  readonly address: string | null
  readonly prefix_length: number | null
  readonly released_seq: number | null
  readonly removal_confirmed: boolean | null
  readonly holder: LastHolderCells | null
  readonly fence: FenceCells | null
}

export const LOWEST = '0.0.0.0/0'
export const HIGHEST = 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'

/** Where a page ends that begins after an address; `HIGHEST`: it is the last. */
export async function boundOf(
  database: pg.Pool,
  network: string,
  { after, upTo, size }: { readonly after: string; readonly upTo: string; readonly size: number },
): Promise<string> {
  const [row] = await ask<{ address: string }>(database, BOUND, [network, after, upTo, size - 1])
  return row === undefined ? upTo : readAddress(row.address)
}

/** In pools alone: what is seen elsewhere waits for the pool that may be made there. By address. */
export async function readUnbooked(
  database: pg.Pool,
  network: string,
  { after, upTo }: { readonly after: string; readonly upTo: string },
): Promise<readonly Unbooked[]> {
  const rows = await ask<UnbookedRow>(database, UNBOOKED, [network, after, upTo])
  if (rows.length === 0) return []
  const free = rows.flatMap((row, place) => (row.held ? [] : [{ place, row }]))
  const placed = await ask<FreeRow>(database, FREE, [
    network,
    free.map(({ place }) => place),
    free.map(({ row }) => row.address),
    free.map(({ row }) => row.node),
    free.map(({ row }) => row.boot),
  ])
  const inPool = new Map(placed.map((row) => [row.place, row]))
  const sources = new Map<string, Source>()
  const found = await ask<SourceRow>(database, SOURCES, [
    network,
    [...new Set(rows.map((row) => row.source_id))],
  ])
  for (const row of found) sources.set(row.source_id, readSource(row))
  return rows.flatMap((row, place) => {
    const source = sources.get(row.source_id)
    const poolId = row.pool_id ?? inPool.get(place)?.pool_id
    if (source === undefined || source.state === 'RETIRED' || poolId === undefined) return []
    const at = evidenceOf(row, source)
    const seen = { head: at.head, owner: readOwner(row), node: row.node }
    return [
      {
        source,
        entry: {
          address: readAddress(row.address),
          owner: seen.owner,
          node: row.node,
          boot: row.boot,
          state: row.state,
        },
        at,
        since: row.appeared_at,
        poolId,
        held: row.held,
        lastEvent: row.version ?? inPool.get(place)?.released_seq ?? 0,
        isRefuted: isOver(inPool.get(place), seen),
      },
    ]
  })
}

/** As they are listed now, whoever lists them. */
async function withoutBooked<T extends Pick<SightedEntry, 'address'>>(
  database: pg.Pool,
  network: string,
  entries: readonly T[],
): Promise<readonly T[]> {
  const unbooked = new Set<string>()
  for (let from = 0; from < entries.length; from += PAGE) {
    const addresses = entries.slice(from, from + PAGE).map(({ address }) => address)
    const rows = await ask<Pick<UnbookedRow, 'address'>>(database, UNBOOKED_AT, [network, addresses])
    for (const { address } of rows) unbooked.add(readAddress(address))
  }
  return entries.filter(({ address }) => unbooked.has(address))
}

function isOver(at: FreeRow | undefined, seen: Parameters<typeof refutes>[1]): boolean {
  if (at === undefined || at.released_seq === null) return false
  return refutes(
    {
      released: {
        address: at.address!,
        prefixLength: at.prefix_length!,
        releasedSeq: at.released_seq,
        removalConfirmed: at.removal_confirmed!,
      },
      holder: at.holder === null ? null : readLastHolder(at.holder),
      fence: at.fence === null ? null : { seq: at.fence[0], head: at.fence[1] },
    },
    seen,
  )
}

function evidenceOf(row: UnbookedRow, { id, standing }: Source): Unbooked['at'] {
  const { appeared_sequence: sequence, appeared_head: head, appeared_at: begunAt } = row
  const listing = lastListing({ sequence, head, begunAt }, standing)
  const at = listing ?? { sequence, begunAt, head: null }
  return { source: id, epoch: standing.epoch, sequence: at.sequence, begunAt: at.begunAt, head: at.head }
}

export type Network = { readonly state: string; readonly era: number; readonly hasSources: boolean }

/** One small query; null: there is no such network. */
export async function readGround(database: pg.Pool, network: string): Promise<Network | null> {
  const [row] = await ask<{ state: string; era: number; has_sources: boolean }>(database, GROUND, [network])
  return row === undefined ? null : { state: row.state, era: row.era, hasSources: row.has_sources }
}

export type Walk = {
  /** Where the run before stopped; null: at the end. */
  readonly after: string | null
  readonly signal: AbortSignal
}

/** One walk through what enabled sources list. Asks only about what can come to something now. */
export async function sightListed(
  { database, ledger }: { readonly database: pg.Pool; readonly ledger: Ledger },
  network: string,
  actor: string,
  { after: from, signal }: Walk,
): Promise<Sighted & { readonly after: string | null }> {
  const tally = newTally()
  const ground = await readGround(database, network)
  if (ground === null || !ground.hasSources || ground.state === 'REBUILDING') return { ...tally, after: null }
  let asked = 0
  for (let after = from ?? LOWEST; !signal.aborted; ) {
    const upTo = await boundOf(database, network, { after, upTo: HIGHEST, size: PAGE })
    const unbooked = await readUnbooked(database, network, { after, upTo })
    const usable = unbooked.filter((one) => isUsable(one, ground))
    for (const { at, entries } of bySnapshot(usable)) {
      for (const page of pagesOf(entries)) {
        if (signal.aborted) break
        await submit(ledger, sightOf(network, actor, at, page), tally)
        asked += page.length
        if (tally.refused !== null && isBusy(tally.refused)) return { ...tally, after }
      }
    }
    if (upTo === HIGHEST) return { ...tally, after: null }
    after = upTo
    if (asked >= MOST_OF_A_RUN) return { ...tally, after }
  }
  return { ...tally, after: null }
}

/** The next snapshot is waited for where this one is older than the books. */
function isUsable({ source, at, lastEvent }: Unbooked, { era }: Network): boolean {
  if (source.state !== 'ENABLED' || at.head === null) return false
  return at.head >= Math.max(lastEvent, firstSeqOfEra(era))
}

export function bySnapshot(
  unbooked: readonly Unbooked[],
): readonly { readonly at: SeenAt; readonly entries: readonly SightedEntry[] }[] {
  const groups = Map.groupBy(unbooked, ({ at }) => `${at.source} ${at.sequence} ${at.begunAt}`)
  return [...groups.values()].map((group) => {
    const { head: _head, ...at } = group[0]!.at
    return { at, entries: group.map(({ entry }) => entry) }
  })
}

/** The ledger cannot be asked now. Every other refusal is about one source, and its next snapshot is waited for. */
export function isBusy({ reason }: Refusal): boolean {
  return (
    reason === 'OVERLOADED' ||
    reason === 'DATABASE_UNAVAILABLE' ||
    reason === 'OUTCOME_UNKNOWN' ||
    reason === 'NETWORK_RECOVERING'
  )
}

export function pagesOf<T>(entries: readonly T[]): readonly (readonly T[])[] {
  const pages: (readonly T[])[] = []
  for (let from = 0; from < entries.length; from += MOST_ENTRIES) {
    pages.push(entries.slice(from, from + MOST_ENTRIES))
  }
  return pages
}
