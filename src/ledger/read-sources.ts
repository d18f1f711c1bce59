/** Sources, their reports, what they list, and what they answered. */
import { sql } from 'kysely'
import { formatValue, type IpAddress, isMalformed, maxPrefix, parseAddress } from '../core/address.ts'
import type { Freshness, LookUp } from '../core/command.ts'
import type { Sighting, SourceState } from '../core/image.ts'
import { KEYS } from '../gen/tables.ts'
import { type Ask, asksOf, type Db, MOST_EXAMINED, readHead } from './read-db.ts'
import { blockAt, type PageByAddress } from './read-leases.ts'
import { LOOK_UPS } from './sql/look-ups.ts'
import { REPORTS, REPORTS_OF } from './sql/sources.ts'
import { freshnessOf, lookUpOf, type Row, sightingOf, sourceOf } from './tables.ts'

type SourceFilter = {
  readonly id: string | null
  readonly node: string | null
  /** Empty: all. */
  readonly states: readonly SourceState['state'][]
  readonly after: string | null
  readonly limit: number
}

/** `freshness` is null: it has not reported. */
export type SourceRead = {
  readonly source: SourceState
  readonly freshness: Freshness | null
  /** Why its last answer failed; null: it did not. */
  readonly failure: string | null
  readonly failingSince: number | null
  /** Of the network. */
  readonly era: number
}

type SightingFilter = {
  readonly source: string | null
  /** Only at this address; inside a block that is leased as one, at its addresses. */
  readonly address: IpAddress | null
  /** Also those that vanished, as far as they are kept. */
  readonly vanished: boolean
}

/** With the time of the event that ended it. */
export type SightingRead = Sighting & { readonly vanishedAt: number | null }

export async function readSources(
  db: Db,
  network: string,
  { id, node, states, after, limit }: SourceFilter,
): Promise<readonly SourceRead[] | null> {
  const { rows } = await sql<Row>`
    select s.*, f.since, f.why, n.era from ipledger.source s
    join ipledger.network n on n.network_id = s.network_id
    left join ipledger.source_failure f
      on f.network_id = s.network_id and f.source_id = s.source_id and s.state <> 'RETIRED'
    where s.network_id = ${network} and s.source_id = coalesce(${id}, s.source_id) and s.source_id > ${after ?? ''}
      and (${node}::text is null or s.declaration ->> 'node' = ${node})
      and (${states.length === 0}::bool or s.state = any(${states}::text[]))
    order by s.source_id limit ${limit}
  `.execute(db)
  if (rows.length === 0) return (await readHead(db, network)) === null ? null : []
  const ids = rows.map((row) => row.source_id as string)
  const freshness = await readFreshness(asksOf(db), network, ids)
  return rows.map((row) => ({
    source: sourceOf(row),
    freshness: freshness.get(row.source_id as string) ?? null,
    failure: row.why as string | null,
    failingSince: row.since as number | null,
    era: row.era as number,
  }))
}

/** `ids`: only of these. */
export async function readFreshness(
  ask: Ask,
  network: string,
  ids: readonly string[] | null = null,
): Promise<ReadonlyMap<string, Freshness>> {
  const rows = await (ids === null ? ask(REPORTS, [network]) : ask(REPORTS_OF, [network, ids]))
  return new Map(rows.map((row) => [row.source_id as string, freshnessOf(row)]))
}

export async function readLookUps(
  ask: Ask,
  network: string,
  addresses: readonly string[],
): Promise<ReadonlyMap<string, readonly LookUp[]>> {
  const rows = await ask(LOOK_UPS, [network, addresses])
  return Map.groupBy(rows.map(lookUpOf), ({ address }) => address)
}

const SIGHTING_KEY = sql.raw(KEYS.sighting.slice(1).join(', '))

/** In order of their key. */
export async function readSightings(
  db: Db,
  network: string,
  { source, address, vanished }: SightingFilter,
  { after, size }: PageByAddress,
): Promise<{ readonly sightings: readonly SightingRead[]; readonly next: string | null } | null> {
  if ((await readHead(db, network)) === null) return null
  const conditions = [sql`s.network_id = ${network}`]
  if (address !== null) {
    const { family, value } = address
    const text = formatValue(family, value)
    const last = sql`coalesce((
      select set_masklen(broadcast(set_masklen(${text}::inet, p.prefix_length)), ${maxPrefix(family)}) from ipledger.pool p
      where p.network_id = ${network} and p.cidr >>= ${text}::inet), ${text}::inet)`
    conditions.push(sql`s.address >= ${blockAt(network, text)}`, sql`s.address <= ${last}`)
  }
  if (after !== null) {
    const key = keyOf(after)
    if (key === null || isMalformed(parseAddress(key[0]!))) return { sightings: [], next: null }
    const [at, ...rest] = key
    conditions.push(sql`(${SIGHTING_KEY}) > (${at}::inet, ${sql.join(rest)})`)
  }
  const walk = sql`select * from ipledger.sighting s where ${sql.join(conditions, sql` and `)}
    order by ${SIGHTING_KEY}`
  const key = sql`json_build_array(host(w.address), w.source_id, w.owner_kind, w.owner_uid, w.owner_incarnation, w.owner_interface)::text`
  const { rows } = await sql<Row & { key: string; vanished_at: number | null }>`
    select w.*, ${key} as key, v.at as vanished_at
    from (${walk} limit ${MOST_EXAMINED}) w
    left join ipledger.event v on v.network_id = ${network} and v.seq = w.vanished_seq
    where (${source}::text is null or w.source_id = ${source}) and (${vanished}::bool or w.vanished_seq is null)
    order by ${SIGHTING_KEY}
    limit ${size + 1}
  `.execute(db)
  const sightings = rows.slice(0, size).map((row) => ({ ...sightingOf(row), vanishedAt: row.vanished_at }))
  if (rows.length > size) return { sightings, next: rows[size - 1]!.key }
  const end = await sql<{ key: string }>`
    select ${key} as key from (${walk} offset ${MOST_EXAMINED - 1} limit 1) w`.execute(db)
  return { sightings, next: end.rows[0]?.key ?? null }
}

/** The text comes from a caller, and may be no key. */
function keyOf(text: string): readonly string[] | null {
  try {
    const key: unknown = JSON.parse(text)
    const isText = (one: unknown) => typeof one === 'string' && !one.includes('\0')
    return Array.isArray(key) && key.length === 6 && key.every(isText) ? key : null
  } catch {
    return null
  }
}
