/**
 * The tables that follow from the log: each with its columns, how a row is made of what the image has, and how it is read back.
 * A column has the name of its field, in snake case.
 *
 * Each statement is an insert or an upsert by primary key: there is no plan to go wrong. Texts are built once; a name stands
 * for one text for ever. One row goes as parameters, several as arrays. An array a column costs the server 3 µs a column and
 * statement, so rows of events and leases go as one array of texts, each its cells joined as in the text of an event. (A batch
 * of one event: 640 µs with arrays, 480 so.)
 */
import type { Freshness, LookUp } from '../core/command.ts'
import type { AddressRecord } from '../core/event.ts'
import type { NetworkState, Sighting, SourceState } from '../core/image.ts'
import type { Statement } from '../postgres/trip.ts'
import { arrayLiteral } from '../postgres/values.ts'
import { type Cell, COLUMNS, cellsOf, SEPARATOR, textOf } from './event-text.ts'
import type { PoolRow, RequestRow, Write } from './log.ts'

export type Row = Readonly<Record<string, unknown>>

/** Besides types of PostgreSQL: `ms` is a time in milliseconds, `hex` bytes. */
type Type = 'text' | 'bigint' | 'integer' | 'smallint' | 'boolean' | 'inet' | 'cidr' | 'json' | 'ms' | 'hex'
type Columns = readonly (readonly [name: string, type: Type])[]
type Cells = readonly Cell[]

function read(type: Type, cell: string): string {
  if (type === 'ms') return `to_timestamp(${cell}::float8 / 1000)`
  if (type === 'hex') return `decode(${cell}, 'hex')`
  return type === 'text' ? cell : `${cell}::${type}`
}

function sentAs(type: Type): string {
  return type === 'ms' ? 'bigint' : type === 'json' || type === 'inet' || type === 'hex' ? 'text' : type
}

/**
 * `key`: the columns by which rows are replaced; null: they are only inserted. `join`: a row's cells as one text, where none
 * has control characters.
 */
function writer<State>(
  name: string,
  columns: Columns,
  key: readonly string[] | null,
  cells: (network: string, state: State) => Cells,
  join: ((network: string, state: State) => string) | null,
) {
  const names = columns.map((column) => column[0])
  const update = names.filter((column) => !key?.includes(column))
  const insert = `insert into ipledger.${name} (${names.join(', ')})`
  const conflict =
    key === null
      ? ''
      : ` on conflict (${key.join(', ')}) do update set ${update.map((column) => `${column} = excluded.${column}`).join(', ')}`
  const one = `${insert} values (${columns.map(([, type], at) => read(type, `$${at + 1}`)).join(', ')})${conflict}`
  // `offset 0` keeps the server from splitting the text anew for each column.
  const many =
    join !== null
      ? `${insert} select ${columns.map(([, type], at) => read(type, `r.cells[${at + 1}]`)).join(', ')}
      from (select string_to_array(u.text, E'\\u001f', E'\\u001e') as cells from unnest($1::text[]) as u (text) offset 0) r${conflict}`
      : `${insert} select ${columns.map(([column, type]) => read(type, `u.${column}`)).join(', ')}
      from unnest(${columns.map(([, type], at) => `$${at + 1}::${sentAs(type)}[]`).join(', ')}) as u (${names.join(', ')})${conflict}`
  return (network: string, states: readonly State[]): readonly Statement[] => {
    const [first] = states
    if (first === undefined) return []
    if (states.length === 1) return [{ name: `write_${name}_row`, text: one, values: cells(network, first) }]
    const rows = join === null ? states.map((state) => cells(network, state)) : []
    const values =
      join === null
        ? columns.map((_, at) => arrayLiteral(rows.map((row) => row[at]!)))
        : [arrayLiteral(states.map((state) => join(network, state)))]
    return [{ name: `write_${name}`, text: many, values }]
  }
}

export const insertEvents = writer<Write['events'][number]>(
  'event',
  [...COLUMNS, ['digest', 'hex']],
  null,
  (network, { event, digest }) => [...cellsOf(network, event), digest],
  (_, { text, digest }) => text + SEPARATOR + digest,
)

function snake(field: string): string {
  return field.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

/** `key`: what tells its rows apart besides the network. `isReplaced`: rows are deleted first, and only inserted here. */
function table<Field extends string, State>(
  name: string,
  key: readonly NoInfer<Field>[],
  fields: Readonly<Record<Field, Type>>,
  rowOf: (state: State) => Readonly<Record<NoInfer<Field>, unknown>>,
  { isJoined = false, isReplaced = false } = {},
) {
  const columns = (Object.entries(fields) as [Field, Type][]).map(
    ([field, type]) => [field, snake(field), type] as const,
  )
  const keys = ['network_id', ...key.map(snake)]
  const cellOf = (type: Type, value: unknown): Cell => {
    if (value === null || value === undefined) return null
    if (type === 'json') return JSON.stringify(value)
    return type === 'boolean' ? String(value) : (value as Cell)
  }
  const cells = (network: string, state: State): Cells => {
    const row = rowOf(state)
    return [network, ...columns.map(([field, , type]) => cellOf(type, row[field]))]
  }
  return {
    /** The primary key. */
    keys,
    write: writer(
      name,
      [['network_id', 'text'], ...columns.map(([, column, type]) => [column, type] as const)],
      isReplaced ? null : keys,
      cells,
      isJoined ? (network, state) => textOf(cells(network, state)) : null,
    ),
    read: (row: Row) =>
      Object.fromEntries(columns.map(([field, column]) => [field, row[column]])) as Record<Field, unknown>,
  }
}

const LEASE = table(
  'lease',
  ['address'],
  { address: 'inet', seq: 'bigint', poolId: 'bigint', state: 'text', confirmBy: 'ms', availableAt: 'ms' },
  (record: AddressRecord) => record,
  { isJoined: true },
)

const POOL = table(
  'pool',
  ['poolId'],
  {
    poolId: 'bigint',
    name: 'text',
    cidr: 'cidr',
    prefixLength: 'smallint',
    settings: 'json',
    version: 'bigint',
    createdAt: 'ms',
    updatedAt: 'ms',
  },
  (pool: PoolRow) => ({ ...pool.settings!, ...pool }),
)

export function poolOf(row: Row): PoolRow {
  const { name, cidr, prefixLength, ...pool } = POOL.read(row)
  return pool as PoolRow
}

const NETWORK = table(
  'network',
  [],
  {
    description: 'text',
    labels: 'json',
    era: 'integer',
    identity: 'text',
    recovering: 'bigint',
    recoveredAt: 'ms',
    holds: 'json',
    version: 'bigint',
    createdAt: 'ms',
    updatedAt: 'ms',
  },
  (network: NetworkState) => ({ ...network, recovering: network.recovering?.seq }),
)

/** A network `n` with the event by which it is RECOVERING, `b`. */
export const NETWORK_ROWS = `select n.*, b.at as recovering_at, b.details ->> 'why' as recovering_why from ipledger.network n
    left join ipledger.event b on b.network_id = n.network_id and b.seq = n.recovering`

export function networkOf(row: Row): NetworkState {
  const { recovering: seq, ...network } = NETWORK.read(row)
  const recovering = seq === null ? null : { seq, at: row.recovering_at, why: row.recovering_why ?? '' }
  return { ...network, recovering } as NetworkState
}

const SOURCE = table(
  'source',
  ['sourceId'],
  {
    sourceId: 'text',
    declaration: 'json',
    state: 'text',
    version: 'bigint',
    registeredAt: 'ms',
    registeredBy: 'text',
    enabledAt: 'ms',
    enabledBy: 'text',
    enabledSeq: 'bigint',
    retiredAt: 'ms',
    epoch: 'text',
    epochSeq: 'bigint',
    epochHead: 'bigint',
    epochAt: 'ms',
  },
  ({ epoch, ...source }: SourceState) => ({
    ...source,
    sourceId: source.declaration.id,
    epoch: epoch?.name,
    epochSeq: epoch?.seq,
    epochHead: epoch?.head,
    epochAt: epoch?.at,
  }),
)

export function sourceOf(row: Row): SourceState {
  const {
    sourceId: _,
    epoch: name,
    epochSeq: seq,
    epochHead: head,
    epochAt: at,
    ...source
  } = SOURCE.read(row)
  return { ...source, epoch: name === null ? null : { name, seq, head, at } } as SourceState
}

const SOURCE_REPORT = table(
  'source_report',
  ['sourceId'],
  {
    sourceId: 'text',
    epoch: 'text',
    era: 'integer',
    warm: 'boolean',
    sequence: 'bigint',
    digest: 'text',
    entries: 'integer',
    counted: 'json',
    countedTotal: 'bigint',
    reportedAt: 'ms',
    completeAt: 'ms',
    completeHead: 'bigint',
    partialSince: 'ms',
    partialBecause: 'json',
  },
  (fresh: Freshness) => ({
    ...fresh,
    sourceId: fresh.source,
    counted: fresh.counted.map(({ sequence, head, at }) => [sequence, head, at]),
    partialBecause: fresh.partialSince === null ? null : fresh.partialBecause,
  }),
)

export function freshnessOf(row: Row): Freshness {
  const { sourceId: source, counted, partialBecause, ...fresh } = SOURCE_REPORT.read(row)
  return {
    ...fresh,
    source,
    counted: (counted as [number, number, number][]).map(([sequence, head, at]) => ({ sequence, head, at })),
    partialBecause: (partialBecause ?? []) as readonly string[],
  } as Freshness
}

/** Nobody known is a row of empty texts, since a key can't be null. */
const SIGHTING = table(
  'sighting',
  ['address', 'sourceId', 'ownerKind', 'ownerUid', 'ownerIncarnation', 'ownerInterface'],
  {
    address: 'inet',
    sourceId: 'text',
    ownerKind: 'text',
    ownerName: 'text',
    ownerUid: 'text',
    ownerIncarnation: 'text',
    ownerInterface: 'text',
    node: 'text',
    state: 'text',
    appearedSeq: 'bigint',
    appearedHead: 'bigint',
    vanishedSeq: 'bigint',
    terminalSeq: 'bigint',
    terminalAt: 'ms',
  },
  (one: Sighting) => ({
    ...one,
    sourceId: one.source,
    ownerKind: one.owner?.kind ?? '',
    ownerName: one.owner?.name ?? '',
    ownerUid: one.owner?.uid ?? '',
    ownerIncarnation: one.owner?.incarnation ?? '',
    ownerInterface: one.owner?.interface ?? '',
  }),
  { isReplaced: true },
)

/** Field by field, since there may be a million. */
export function sightingOf(row: Row): Sighting {
  const { owner_kind: kind, owner_name: name, owner_uid: uid, owner_incarnation: incarnation } = row
  return {
    source: row.source_id,
    address: row.address,
    owner: kind === '' ? null : { kind, name, uid, incarnation, interface: row.owner_interface },
    node: row.node,
    state: row.state,
    appearedSeq: row.appeared_seq,
    appearedHead: row.appeared_head,
    vanishedSeq: row.vanished_seq,
    terminalSeq: row.terminal_seq,
    terminalAt: row.terminal_at,
  } as Sighting
}

const REQUEST = table(
  'request',
  ['requestId'],
  { requestId: 'text', fingerprint: 'text', method: 'text', seq: 'bigint', at: 'ms', answer: 'json' },
  (request: RequestRow) => request,
)

/** Written by the job that asks. */
export function lookUpOf(row: Row): LookUp {
  return {
    source: row.source_id,
    address: row.address,
    owner: { kind: row.owner_kind, name: row.owner_name, uid: row.owner_uid },
    answer: row.answer,
    terminalSince: row.terminal_since,
    detail: row.detail,
    head: row.head,
    askedAt: row.asked_at,
    attempts: row.attempts,
  } as LookUp
}

/** Primary keys of the tables that are the fold of the log. */
export const KEYS = {
  lease: LEASE.keys,
  pool: POOL.keys,
  network: NETWORK.keys,
  source: SOURCE.keys,
  sighting: SIGHTING.keys,
} as const

export function writeStatements(network: string, write: Write): readonly Statement[] {
  const kept = write.pools.filter(({ settings }) => settings !== null)
  const deleted = write.pools.filter(({ settings }) => settings === null).map(({ poolId }) => poolId)
  const clear = (
    name: string,
    type: string,
    column: string,
    values: readonly Cell[],
  ): readonly Statement[] => {
    const text = `delete from ipledger.${name} where network_id = $1 and ${column} = any ($2::${type}[])`
    return values.length === 0 ? [] : [{ name: `delete_${name}`, text, values: [network, values] }]
  }
  return [
    ...insertEvents(network, write.events),
    ...LEASE.write(network, write.records),
    ...clear('pool', 'bigint', 'pool_id', deleted),
    ...POOL.write(network, kept),
    ...NETWORK.write(network, write.network === null ? [] : [write.network]),
    ...SOURCE.write(network, write.sources),
    ...SOURCE_REPORT.write(network, write.freshness),
    ...clear('sighting', 'inet', 'address', [...write.sightings.keys()]),
    ...SIGHTING.write(network, [...write.sightings.values()].flat()),
    ...REQUEST.write(network, write.requests),
  ]
}
