/**
 * The tables that follow from the log: how a row is made of what the image has, and how it is read back. Columns and their types
 * are those of the migration (gen/tables.ts); a field has the name of its column in camel case.
 *
 * Each statement is an insert or an upsert by primary key: there is no plan to go wrong. Texts are built once; a name stands
 * for one text for ever. One row goes as parameters, several as one array of texts, each the row's cells joined as in the text of
 * an event: no text of ours has control characters. (An array a column costs the server 3 µs a column and statement; one row as a
 * text costs 30 µs more than as parameters.)
 */
import { ATTENTION, ATTENTION_CODES, type Attention } from '../core/attention.ts'
import type { Freshness, LookUp } from '../core/command.ts'
import type { AddressRecord } from '../core/event.ts'
import type { NetworkState, Sighting, SourceState } from '../core/image.ts'
import { KEYS, TABLES } from '../gen/tables.ts'
import type { Statement } from '../postgres/pipeline.ts'
import { arrayLiteral } from '../postgres/values.ts'
import { NULL, SEPARATOR } from './event-text.ts'
import type { PoolRow, RequestRow, Write } from './log.ts'

export type Row = Readonly<Record<string, unknown>>
type Table = keyof typeof TABLES
type Cell = string | number | null

type Value<Type> = Type extends `${infer T}?`
  ? Value<T> | null
  : Type extends 'bigint' | 'integer' | 'smallint' | 'timestamptz'
    ? number
    : Type extends 'json'
      ? unknown
      : Type extends 'boolean'
        ? boolean
        : string
/** A row as it arrives. */
export type RowOf<T extends Table> = {
  readonly [C in keyof (typeof TABLES)[T]]: Value<(typeof TABLES)[T][C]>
}
type Camel<S> = S extends `${infer A}_${infer B}` ? `${A}${Capitalize<Camel<B>>}` : S
type Fields<T extends Table> = {
  readonly [C in Exclude<keyof RowOf<T>, 'network_id'> as Camel<C> & string]: RowOf<T>[C]
}

const columnsOf = (table: Table) =>
  Object.entries(TABLES[table]).map(([column, type]) => ({
    column,
    field: column.replaceAll(/_(.)/g, (_, letter) => letter.toUpperCase()),
    type: type.replace('?', ''),
  }))

function read(type: string, cell: string): string {
  if (type === 'timestamptz') return `to_timestamp(${cell}::float8 / 1000)`
  if (type === 'bytea') return `decode(${cell}, 'hex')`
  return type === 'text' ? cell : `${cell}::${type}`
}

/** `key`: the columns by which rows are replaced; null: they are only inserted. */
function writer<State>(
  table: Table,
  key: readonly string[] | null,
  cellsOf: (network: string, state: State) => readonly Cell[],
  textOf: (network: string, state: State) => string,
) {
  const columns = columnsOf(table)
  const names = columns.map(({ column }) => column)
  const update = names.filter((name) => !key?.includes(name)).map((name) => `${name} = excluded.${name}`)
  const conflict = key === null ? '' : ` on conflict (${key.join(', ')}) do update set ${update.join(', ')}`
  const select = (cell: (at: number) => string) =>
    columns.map(({ type }, index) => read(type, cell(index + 1))).join(', ')
  const insert = `insert into ipledger.${table} (${names.join(', ')})`
  const one = `${insert} values (${select((at) => `$${at}`)})${conflict}`
  // `offset 0` keeps the server from splitting the text anew for each column.
  // It reads the network's row of network_lock, so that Citus runs the whole statement on the worker that has the network.
  const many = `${insert} select ${select((at) => (at === 1 ? 'k.network_id' : `r.cells[${at}]`))}
    from ipledger.network_lock k
   cross join (select string_to_array(u.text, E'\\u001f', E'\\u001e') as cells from unnest($1::text[]) as u (text) offset 0) r
   where k.network_id = $2${conflict}`
  return (network: string, states: readonly State[]): readonly Statement[] => {
    if (states.length === 0) return []
    if (states.length === 1)
      return [{ name: `write_${table}_row`, text: one, values: cellsOf(network, states[0]!) }]
    const rows = arrayLiteral(states.map((state) => textOf(network, state)))
    return [{ name: `write_${table}`, text: many, values: [rows, network] }]
  }
}

export const insertEvents = writer<Write['events'][number]>(
  'event',
  null,
  (_, { text, digest }) => [...text.split(SEPARATOR).map((cell) => (cell === NULL ? null : cell)), digest],
  (_, { text, digest }) => text + SEPARATOR + digest,
)

/** `isReplaced`: rows are deleted first, and only inserted here. */
function table<T extends Table, State>(
  name: T,
  fieldsOf: (state: State) => Readonly<Record<keyof Fields<T>, unknown>>,
  isReplaced = false,
) {
  const columns = columnsOf(name)
  const cellsOf = (network: string, state: State): readonly Cell[] => {
    const fields: Readonly<Record<string, unknown>> = { ...fieldsOf(state), networkId: network }
    const cells: Cell[] = []
    for (const { field, type } of columns) {
      const value = fields[field] ?? null
      cells.push(type === 'json' && value !== null ? JSON.stringify(value) : (value as Cell))
    }
    return cells
  }
  const textOf = (network: string, state: State): string =>
    cellsOf(network, state)
      .map((cell) => cell ?? NULL)
      .join(SEPARATOR)
  return { write: writer(name, isReplaced ? null : KEYS[name], cellsOf, textOf), read: reader(name) }
}

function reader<T extends Table>(name: T) {
  const [, ...columns] = columnsOf(name)
  return (row: Row) =>
    Object.fromEntries(columns.map(({ field, column }) => [field, row[column]])) as Fields<T>
}

const LEASE = table('lease', (record: AddressRecord) => record)

const POOL = table('pool', (pool: PoolRow) => ({ ...pool.settings!, ...pool }), true)

export function poolOf(row: Row): PoolRow {
  const { name, cidr, prefixLength, ...pool } = POOL.read(row)
  return pool as PoolRow
}

const NETWORK = table('network', (network: NetworkState) => ({
  ...network,
  recovering: network.recovering?.seq,
}))

/** A network `n` with the event by which it is RECOVERING, `b`. */
export const NETWORK_ROWS = `select n.*, b.at as recovering_at, b.details ->> 'why' as recovering_why from ipledger.network n
    left join ipledger.event b on b.network_id = n.network_id and b.seq = n.recovering`

export function networkOf(row: Row): NetworkState {
  const { recovering: seq, ...network } = NETWORK.read(row)
  const recovering = seq === null ? null : { seq, at: row.recovering_at, why: row.recovering_why ?? '' }
  return { ...network, recovering } as NetworkState
}

const SOURCE = table('source', ({ epoch, ...source }: SourceState) => ({
  ...source,
  sourceId: source.declaration.id,
  epoch: epoch?.name,
  epochSeq: epoch?.seq,
  epochHead: epoch?.head,
  epochAt: epoch?.at,
}))

export function sourceOf(row: Row): SourceState {
  const { sourceId, epoch: name, epochSeq: seq, epochHead: head, epochAt: at, ...source } = SOURCE.read(row)
  return { ...source, epoch: name === null ? null : { name, seq, head, at } } as SourceState
}

const SOURCE_REPORT = table('source_report', (fresh: Freshness) => ({
  ...fresh,
  sourceId: fresh.source,
  counted: fresh.counted.map(({ sequence, head, at }) => [sequence, head, at]),
  partialBecause: fresh.partialSince === null ? null : fresh.partialBecause,
}))

export function freshnessOf(row: Row): Freshness {
  const { sourceId: source, counted, partialBecause, ...fresh } = SOURCE_REPORT.read(row)
  return {
    ...fresh,
    source,
    counted: (counted as [number, number, number][]).map(([sequence, head, at]) => ({ sequence, head, at })),
    partialBecause: (partialBecause ?? []) as readonly string[],
  }
}

/** Nobody known is a row of empty texts, since a key can't be null. */
const NOBODY = { kind: '', name: '', uid: '', incarnation: '', interface: '' }
const SIGHTING = table(
  'sighting',
  (one: Sighting) => {
    const { kind, name, uid, incarnation, interface: on } = one.owner ?? NOBODY
    const owner = {
      ownerKind: kind,
      ownerName: name,
      ownerUid: uid,
      ownerIncarnation: incarnation,
      ownerInterface: on,
    }
    return { ...one, ...owner, sourceId: one.source }
  },
  true,
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
    appearedAt: row.appeared_at,
    appearedHead: row.appeared_head,
    vanishedSeq: row.vanished_seq,
    terminalSeq: row.terminal_seq,
    terminalAt: row.terminal_at,
    restsUntil: row.rests_until,
  } as Sighting
}

const REQUEST = table('request', (request: RequestRow) => request)

export const ATTENTION_ROWS = table(
  'attention',
  ({ now, ...item }: Attention & { readonly now: number }) => ({
    ...item,
    sourceId: item.source,
    rank: ATTENTION_CODES.indexOf(item.code) + 1,
    severity: ATTENTION[item.code][0],
    address: item.address || null,
    leaseId: item.leaseId || null,
    what: item.text,
    trueAt: now,
  }),
)

const readLookUp = reader('lookup')

/** Written by the job that asks. */
export function lookUpOf(row: Row): LookUp {
  const { sourceId: source, ownerKind: kind, ownerName: name, ownerUid: uid, ...answer } = readLookUp(row)
  return { source, owner: { kind, name, uid }, ...answer } as LookUp
}

function clear(
  table: Table,
  column: string,
  type: string,
  network: string,
  values: readonly Cell[],
): readonly Statement[] {
  const text = `delete from ipledger.${table} where network_id = $1 and ${column} = any ($2::${type}[])`
  return values.length === 0 ? [] : [{ name: `delete_${table}`, text, values: [network, values] }]
}

export function writeStatements(network: string, write: Write): readonly Statement[] {
  const { pools, sightings } = write
  const poolIds = pools.map(({ poolId }) => poolId)
  const kept = pools.filter(({ settings }) => settings !== null)
  return [
    ...insertEvents(network, write.events),
    ...LEASE.write(network, write.records),
    ...clear('pool', 'pool_id', 'bigint', network, poolIds),
    ...POOL.write(network, kept),
    ...NETWORK.write(network, write.network === null ? [] : [write.network]),
    ...SOURCE.write(network, write.sources),
    ...SOURCE_REPORT.write(network, write.freshness),
    ...clear('sighting', 'address', 'inet', network, [...sightings.keys()]),
    ...SIGHTING.write(network, [...sightings.values()].flat()),
    ...REQUEST.write(network, write.requests),
  ]
}
