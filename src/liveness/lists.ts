/**
 * What is known of sources, for people and programs that look and do not write: how sources stand, what they reported,
 * what they see, and whose proofs are held.
 *
 * Every list follows a key from the last row of the page before, so that no page skips or repeats what is there
 * throughout. Sightings are walked in order of address, at most `MOST_WALKED` a page: such a page may come out short, or
 * empty, and still not be the last. What one source lists now is found by its own index and sorted, which is bounded by
 * the size of a snapshot.
 */

import type pg from 'pg'
import { formatValue, type IpAddress, isMalformed, maxPrefix, parseAddress } from '../core/address.ts'
import type { Hold } from '../core/books.ts'
import type { Owner } from '../core/owner.ts'
import { ERA_BITS } from '../core/policy.ts'
import {
  HOLD_COLUMNS,
  type HoldRow,
  OWNER_COLUMNS,
  type OwnerRow,
  readAddress,
  readHold,
  readOwner,
} from '../ledger/rows.ts'
import { ask } from '../postgres/on-connection.ts'
import { MOST_SOURCES } from './register.ts'
import type { SourceState } from './source.ts'
import { readSource, SOURCE_COLUMNS, type Source, type SourceRow } from './source-rows.ts'
import type { UncountedReason } from './standing.ts'

/** Why a complete snapshot did not count. */
const WARM_UP = 'WARM_UP' satisfies UncountedReason
const TOO_SOON = 'TOO_SOON' satisfies UncountedReason

/** As many leases are walked for a page of them. */
export const MOST_WALKED = 10_000

const HELD = `exists (
    select from ipledger.hold h where h.network_id = $1 and h.source_id = any(array['', s.source_id]))`

const SOURCE = `select ${SOURCE_COLUMNS.map((column) => `s.${column}`).join(', ')}, ${HELD} as held
    from ipledger.source s`

const SOURCES = `${SOURCE}
   where s.network_id = $1 and s.source_id > $2 and s.state = any($3::text[])
   order by s.source_id limit $4`

const SOURCES_OF_NODE = `${SOURCE}
   where s.network_id = $1 and s.source_id > $2 and s.state = any($3::text[]) and s.node = $5
   order by s.source_id limit $4`

const SOURCE_NAMED = `${SOURCE} where s.network_id = $1 and s.source_id = $2`

/** Reports before one that are looked at for the last that counted. */
const MOST_BEFORE = 64

// Why a complete one did not count is not kept; this much follows (standing.ts). The first of an epoch warms it up, and so
// did all of one that is cold still. Once one of it counted it is warm, and stays so in its era: then one that does not
// count came too soon after the last that did. What is left is not told.
const UNCOUNTED = `case when s.complete and not s.counted then case
           when e.begun_sequence = s.sequence or (o.epoch = s.epoch and o.era = s.era and not o.warm) then '${WARM_UP}'
           when exists (
             select from (
               select x.epoch, x.era, x.counted from ipledger.snapshot x
                where x.network_id = $1 and x.source_id = $2 and x.sequence < s.sequence and x.sequence >= e.begun_sequence
                order by x.sequence desc, x.reported_at desc limit ${MOST_BEFORE}) x
              where x.counted and x.epoch = s.epoch and x.era = s.era)
             or (o.epoch = s.epoch and exists (
               select from json_to_recordset(o.recent) as r (sequence bigint, head bigint)
                where r.sequence between e.begun_sequence and s.sequence - 1 and r.head >> ${ERA_BITS} = s.era))
           then '${TOO_SOON}' end end as uncounted_because`

const SNAPSHOTS = `
  select s.source_id, s.sequence, s.epoch, s.era, s.head, s.begun_at, s.reported_at, s.complete, s.counted,
         s.partial_because, ${UNCOUNTED}, s.entries, s.unreadable, s.ignored, s.appeared, s.vanished
    from ipledger.snapshot s
    left join lateral (
      select x.begun_sequence from ipledger.source_epoch x
       where x.network_id = $1 and x.source_id = $2 and x.epoch >= s.epoch and x.epoch <= s.epoch
       order by x.epoch limit 1) e on true
    left join lateral (
      select x.epoch, x.era, x.warm, x.recent from ipledger.source x
       where x.network_id = $1 and x.source_id >= $2 and x.source_id <= $2 order by x.source_id limit 1) o on true
   where s.network_id = $1 and s.source_id = $2 and s.sequence >= $3::bigint
     and (s.sequence, s.reported_at) < ($4::bigint, to_timestamp($5::float8 / 1000))
   order by s.sequence desc, s.reported_at desc limit $6`

const SIGHTING_COLUMNS = [
  'address',
  'source_id',
  'entry_key',
  'appeared_sequence',
  ...OWNER_COLUMNS,
  'node',
  'boot',
  'state',
  'appeared_at',
  'vanished_sequence',
  'vanished_at',
] as const satisfies readonly (keyof SightingRow)[]

const seen = SIGHTING_COLUMNS.map((column) => `s.${column}`).join(', ')
const KEY = 's.address, s.source_id, s.entry_key, s.appeared_sequence'
const AFTER = `(${KEY}) > ($2::inet, $4::text, $5::text, $6::bigint)`

const SIGHTINGS = `
  with bound as (
    select s.address from ipledger.sighting s
     where s.network_id = $1 and s.address <= $3::inet and ${AFTER}
     order by ${KEY} offset ${MOST_WALKED - 1} limit 1)
  select bound.address as bound, ${seen}
    from (select 1) one
    left join bound on true
    left join lateral (
      select ${seen} from ipledger.sighting s
       where s.network_id = $1 and s.address <= coalesce((select address from bound), $3::inet) and ${AFTER}
         and ($7::boolean or s.vanished_sequence is null)
         and ($8::text = '' or s.source_id = $8::text)
         and ($9::bigint = 0 or s.appeared_sequence = $9::bigint or s.vanished_sequence = $9::bigint)
       order by ${KEY} limit $10) s on true
   order by ${KEY}`

const LISTED = `
  select null::inet as bound, ${seen}
    from (
      select ${seen} from ipledger.sighting s
       where s.network_id = $1 and s.source_id = $7 and s.vanished_sequence is null
      offset 0) s
   where s.address <= $3::inet and ${AFTER}
     and ($8::bigint = 0 or s.appeared_sequence = $8::bigint)
   order by ${KEY} limit $9`

const HOLDS = `
  select ${HOLD_COLUMNS.map((column) => `h.${column}`).join(', ')}
    from ipledger.hold h where h.network_id = $1 order by h.source_id limit ${MOST_SOURCES + 1}`

const FENCED = `
  select f.fenced_seq,
         (select count(*) from ipledger.lease l
           where l.network_id = $1 and l.node = $2 and l.node <> '' and l.boot = $3
             and l.fencing_token <= coalesce(f.fenced_head, f.fenced_seq)) as leases
    from ipledger.fence f where f.network_id = $1 and f.node = $2 and f.boot = $3`

/** For the test of their plans. */
export const LIST_STATEMENTS = {
  sources: SOURCES,
  sourcesOfNode: SOURCES_OF_NODE,
  sourceNamed: SOURCE_NAMED,
  snapshots: SNAPSHOTS,
  sightings: SIGHTINGS,
  listed: LISTED,
  holds: HOLDS,
  fenced: FENCED,
} as const

export type Page<T, Position> = {
  readonly found: readonly T[]
  /** Where the next page goes on; null after the last one. */
  readonly next: Position | null
}

// Sources.

/** `held`: its proofs of absence, or those of the whole network, reap nothing. */
export type SourceListed = Source & { readonly held: boolean }

/** By id, after `after`. */
export async function readSources(
  database: pg.Pool,
  wanted: {
    readonly network: string
    readonly node: string | null
    readonly states: readonly SourceState[]
    readonly after: string
    readonly size: number
  },
): Promise<Page<SourceListed, string>> {
  const { network, node, states, after, size } = wanted
  const values = [network, after, states, size + 1]
  const rows =
    node === null
      ? await ask<ListedRow>(database, SOURCES, values)
      : await ask<ListedRow>(database, SOURCES_OF_NODE, [...values, node])
  const found = rows.slice(0, size).map(readListed)
  return { found, next: rows.length > size ? found.at(-1)!.id : null }
}

export async function readSourceNamed(
  database: pg.Pool,
  network: string,
  id: string,
): Promise<SourceListed | null> {
  const [row] = await ask<ListedRow>(database, SOURCE_NAMED, [network, id])
  return row === undefined ? null : readListed(row)
}

type ListedRow = SourceRow & { held: boolean }

function readListed(row: ListedRow): SourceListed {
  return { ...readSource(row), held: row.held }
}

// Snapshots.

export type SnapshotKept = {
  readonly source: string
  readonly sequence: number
  readonly epoch: string
  readonly era: number
  /** 0: nothing proves one. */
  readonly head: number
  readonly begunAt: number | null
  readonly reportedAt: number
  readonly complete: boolean
  readonly counted: boolean
  /** Why it is partial, or did not count; of one that did not, empty where what is kept does not tell. */
  readonly because: readonly string[]
  readonly entries: number
  readonly unreadable: number
  readonly ignored: number
  readonly appeared: number
  readonly vanished: number
}

export type SnapshotPosition = { readonly sequence: number; readonly reportedAt: number }

type SnapshotRow = {
  source_id: string
  sequence: number
  epoch: string
  era: number
  head: number
  begun_at: number | null
  reported_at: number
  complete: boolean
  counted: boolean
  partial_because: string[]
  uncounted_because: string | null
  entries: number
  unreadable: number
  ignored: number
  appeared: number
  vanished: number
}

/** 9999-12-31, later than any report. */
const NEVER_MS = 253_402_300_799_000

/** The latest first. */
export async function readSnapshots(
  database: pg.Pool,
  wanted: {
    readonly network: string
    readonly source: string
    /** Null: every one. */
    readonly sequence: number | null
    readonly after: SnapshotPosition | null
    readonly size: number
  },
): Promise<Page<SnapshotKept, SnapshotPosition>> {
  const { network, source, sequence, size } = wanted
  const after = wanted.after ?? { sequence: sequence ?? Number.MAX_SAFE_INTEGER, reportedAt: NEVER_MS }
  const values = [network, source, sequence ?? 0, after.sequence, after.reportedAt, size + 1]
  const rows = await ask<SnapshotRow>(database, SNAPSHOTS, values)
  const found = rows.slice(0, size).map(readSnapshot)
  return { found, next: rows.length > size ? found.at(-1)! : null }
}

function readSnapshot(row: SnapshotRow): SnapshotKept {
  return {
    source: row.source_id,
    sequence: row.sequence,
    epoch: row.epoch,
    era: row.era,
    head: row.head,
    begunAt: row.begun_at,
    reportedAt: row.reported_at,
    complete: row.complete,
    counted: row.counted,
    because: row.uncounted_because === null ? row.partial_because : [row.uncounted_because],
    entries: row.entries,
    unreadable: row.unreadable,
    ignored: row.ignored,
    appeared: row.appeared,
    vanished: row.vanished,
  }
}

// Sightings.

export type SightingKept = {
  readonly source: string
  readonly address: string
  readonly owner: Owner | null
  readonly node: string
  readonly boot: string
  readonly state: string
  readonly appearedSequence: number
  readonly appearedAt: number
  /** Null: it is listed. */
  readonly vanished: { readonly sequence: number; readonly at: number } | null
}

/** The key of a sighting; with empty text and 0, whatever is at this address or after it. */
export type SightingPosition = {
  readonly address: string
  readonly source: string
  readonly entry: string
  readonly sequence: number
}

type SightingRow = OwnerRow & {
  address: string
  source_id: string
  entry_key: string
  appeared_sequence: number
  node: string
  boot: string
  state: string
  appeared_at: number
  vanished_sequence: number | null
  vanished_at: number | null
}
type FoundRow = { bound: string | null } & (SightingRow | { [K in keyof SightingRow]: null })

/** Addresses from the first to the last. */
export type Range = { readonly first: string; readonly last: string }
const EVERYWHERE: Range = { first: '0.0.0.0', last: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' }

/** By address, v4 first. */
export async function readSightings(
  database: pg.Pool,
  wanted: {
    readonly network: string
    /** Null: by any. */
    readonly source: string | null
    /** Null: anywhere. */
    readonly range: Range | null
    /** Also those that vanished. */
    readonly vanished: boolean
    /** Only those that this snapshot began or ended; null: all. */
    readonly sequence: number | null
    readonly after: SightingPosition | null
    readonly size: number
  },
): Promise<Page<SightingKept, SightingPosition>> {
  const { network, source, vanished, size } = wanted
  const { first, last } = wanted.range ?? EVERYWHERE
  const after = wanted.after ?? { address: first, source: '', entry: '', sequence: 0 }
  const from = [network, after.address, last, after.source, after.entry, after.sequence]
  const sequence = wanted.sequence ?? 0
  const rows =
    source !== null && !vanished && wanted.range === null
      ? await ask<FoundRow>(database, LISTED, [...from, source, sequence, size + 1])
      : await ask<FoundRow>(database, SIGHTINGS, [...from, vanished, source ?? '', sequence, size + 1])
  const bound = rows[0]?.bound ?? null
  const held = rows.flatMap((row) => (row.address === null ? [] : [row]))
  const found = held.slice(0, size).map(readSighting)
  if (held.length > size) {
    const { address, source_id, entry_key, appeared_sequence } = held[size - 1]!
    const next = {
      address: readAddress(address),
      source: source_id,
      entry: entry_key,
      sequence: appeared_sequence,
    }
    return { found, next }
  }
  return { found, next: bound === null ? null : behind(readAddress(bound)) }
}

/** Everything at this address was walked; null: there is none behind it. */
function behind(address: string): SightingPosition | null {
  const next = successor(parsed(address))
  return next === null ? null : { address: next, source: '', entry: '', sequence: 0 }
}

function successor({ family, value }: IpAddress): string | null {
  if (value + 1n < 1n << BigInt(maxPrefix(family))) return formatValue(family, value + 1n)
  return family === 4 ? '::' : null
}

function parsed(address: string): IpAddress {
  const value = parseAddress(address)
  if (isMalformed(value)) throw new Error(`stored address ${address}: ${value.malformed}`)
  return value
}

function readSighting(row: SightingRow): SightingKept {
  return {
    source: row.source_id,
    address: readAddress(row.address),
    owner: readOwner(row),
    node: row.node,
    boot: row.boot,
    state: row.state,
    appearedSequence: row.appeared_sequence,
    appearedAt: row.appeared_at,
    vanished:
      row.vanished_sequence === null ? null : { sequence: row.vanished_sequence, at: row.vanished_at! },
  }
}

// Holds and fences.

/** By source, that of the network first. */
export async function readHolds(database: pg.Pool, network: string): Promise<readonly Hold[]> {
  const rows = await ask<HoldRow>(database, HOLDS, [network])
  return rows.map(readHold)
}

/** The last statement that this boot is over, and how many leases it is about. */
export async function readFence(
  database: pg.Pool,
  fenced: { readonly network: string; readonly node: string; readonly boot: string },
): Promise<{ readonly seq: number; readonly leases: number } | null> {
  const { network, node, boot } = fenced
  const [row] = await ask<{ fenced_seq: number; leases: number }>(database, FENCED, [network, node, boot])
  return row === undefined ? null : { seq: row.fenced_seq, leases: row.leases }
}
