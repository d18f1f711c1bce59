/** Rows of `source` as they arrive and as they are written, and what they mean. */
import type { Family } from '../core/address.ts'
import { OF_NETWORK } from '../ledger/append.ts'
import type { SourceDeclaration, SourceKind, SourceState } from './source.ts'
import type { CountedSnapshot, PartialReason, Standing } from './standing.ts'

export type Source = SourceDeclaration & {
  readonly network: string
  readonly state: SourceState
  readonly registeredAt: number
  readonly registeredBy: string
  readonly enabledAt: number | null
  readonly enabledBy: string | null
  /** Head of the ledger when it was enabled. */
  readonly enabledHead: number | null
  readonly retiredAt: number | null
  readonly retiredBy: string | null
  readonly standing: Standing
}

export type SourceRow = {
  network_id: string
  source_id: string
  kind: string
  node: string
  owner_kinds: string[]
  families: number[]
  sees_stopped: boolean
  boot_ends_all: boolean
  report_interval_ms: number
  settings: Readonly<Record<string, unknown>>
  state: string
  registered_at: number
  registered_by: string
  enabled_at: number | null
  enabled_by: string | null
  enabled_head: number | null
  retired_at: number | null
  retired_by: string | null
  epoch: string
  epoch_begun_at: number | null
  warm: boolean
  warming_size: number | null
  warming_at: number | null
  warming_snapshots: number | null
  era: number | null
  last_sequence: number
  last_begun_at: number | null
  reported_at: number | null
  complete_sequence: number | null
  complete_head: number | null
  complete_at: number | null
  size: number
  digest: string
  counted: number
  streak_from: number
  recent: readonly CountedSnapshot[]
  partial_since: number | null
  partial_because: string[]
}

export const SOURCE_COLUMNS = [
  'network_id',
  'source_id',
  'kind',
  'node',
  'owner_kinds',
  'families',
  'sees_stopped',
  'boot_ends_all',
  'report_interval_ms',
  'settings',
  'state',
  'registered_at',
  'registered_by',
  'enabled_at',
  'enabled_by',
  'enabled_head',
  'retired_at',
  'retired_by',
  'epoch',
  'epoch_begun_at',
  'warm',
  'warming_size',
  'warming_at',
  'warming_snapshots',
  'era',
  'last_sequence',
  'last_begun_at',
  'reported_at',
  'complete_sequence',
  'complete_head',
  'complete_at',
  'size',
  'digest',
  'counted',
  'streak_from',
  'recent',
  'partial_since',
  'partial_because',
] as const satisfies readonly (keyof SourceRow)[]

export function readSource(row: SourceRow): Source {
  return {
    network: row.network_id,
    id: row.source_id,
    kind: row.kind as SourceKind,
    node: row.node,
    ownerKinds: row.owner_kinds,
    families: row.families as Family[],
    seesStopped: row.sees_stopped,
    bootEndsAll: row.boot_ends_all,
    intervalMs: row.report_interval_ms,
    settings: row.settings,
    state: row.state as SourceState,
    registeredAt: row.registered_at,
    registeredBy: row.registered_by,
    enabledAt: row.enabled_at,
    enabledBy: row.enabled_by,
    enabledHead: row.enabled_head,
    retiredAt: row.retired_at,
    retiredBy: row.retired_by,
    standing: {
      epoch: row.epoch,
      epochBegunAt: row.epoch_begun_at,
      warm: row.warm,
      warming:
        row.warming_size === null
          ? null
          : { size: row.warming_size, begunAt: row.warming_at!, snapshots: row.warming_snapshots! },
      lastSequence: row.last_sequence,
      lastBegunAt: row.last_begun_at,
      reportedAt: row.reported_at,
      complete:
        row.complete_sequence === null
          ? null
          : {
              sequence: row.complete_sequence,
              head: row.complete_head!,
              begunAt: row.complete_at!,
              era: row.era!,
            },
      size: row.size,
      digest: row.digest,
      counted: row.counted,
      streakFrom: row.streak_from,
      recent: row.recent,
      partialSince: row.partial_since,
      partialBecause: row.partial_because as PartialReason[],
    },
  }
}

type StandingColumn = {
  readonly name: keyof SourceRow
  readonly type: 'text' | 'bigint' | 'integer' | 'boolean' | 'time' | 'json' | 'text[]'
  readonly cell: (standing: Standing) => unknown
}

const STANDING: readonly StandingColumn[] = [
  { name: 'epoch', type: 'text', cell: (s) => s.epoch },
  { name: 'epoch_begun_at', type: 'time', cell: (s) => s.epochBegunAt },
  { name: 'warm', type: 'boolean', cell: (s) => s.warm },
  { name: 'warming_size', type: 'integer', cell: (s) => s.warming?.size ?? null },
  { name: 'warming_at', type: 'time', cell: (s) => s.warming?.begunAt ?? null },
  { name: 'warming_snapshots', type: 'integer', cell: (s) => s.warming?.snapshots ?? null },
  { name: 'era', type: 'integer', cell: (s) => s.complete?.era ?? null },
  { name: 'last_sequence', type: 'bigint', cell: (s) => s.lastSequence },
  { name: 'last_begun_at', type: 'time', cell: (s) => s.lastBegunAt },
  { name: 'reported_at', type: 'time', cell: (s) => s.reportedAt },
  { name: 'complete_sequence', type: 'bigint', cell: (s) => s.complete?.sequence ?? null },
  { name: 'complete_head', type: 'bigint', cell: (s) => s.complete?.head ?? null },
  { name: 'complete_at', type: 'time', cell: (s) => s.complete?.begunAt ?? null },
  { name: 'size', type: 'integer', cell: (s) => s.size },
  { name: 'digest', type: 'text', cell: (s) => s.digest },
  { name: 'counted', type: 'bigint', cell: (s) => s.counted },
  { name: 'streak_from', type: 'bigint', cell: (s) => s.streakFrom },
  { name: 'recent', type: 'json', cell: (s) => JSON.stringify(s.recent) },
  { name: 'partial_since', type: 'time', cell: (s) => s.partialSince },
  { name: 'partial_because', type: 'text[]', cell: (s) => s.partialBecause },
]

/** ($1 network, $2 source, then the cells of `standingCells`). Touches no column that an index has. */
export const UPDATE_STANDING = `update ipledger.source set ${STANDING.map(
  ({ name, type }, index) =>
    `${name} = ${type === 'time' ? `to_timestamp($${index + 3}::float8 / 1000)` : `$${index + 3}::${type}`}`,
).join(', ')} where network_id = $1 and source_id = $2`

export function standingCells(standing: Standing): readonly unknown[] {
  return STANDING.map(({ cell }) => cell(standing))
}

/** An array's elements are not arrays: a list of reasons travels as one text. */
const SENT: Readonly<Record<StandingColumn['type'], string>> = {
  text: 'text',
  bigint: 'bigint',
  integer: 'integer',
  boolean: 'boolean',
  time: 'float8',
  json: 'text',
  'text[]': 'text',
}

function received({ name, type }: StandingColumn): string {
  switch (type) {
    case 'time':
      return `to_timestamp(v.${name} / 1000)`
    case 'json':
      return `v.${name}::json`
    case 'text[]':
      return `string_to_array(v.${name}, ',')`
    default:
      return `v.${name}`
  }
}

/** The same of several, each once: ($1 network, then what `standingColumns` makes). */
export const UPDATE_STANDINGS = `
  update ipledger.source s
     set ${STANDING.map((column) => `${column.name} = ${received(column)}`).join(', ')}
    from unnest($2::text[], ${STANDING.map(({ type }, index) => `$${index + 3}::${SENT[type]}[]`).join(', ')})
           as v (source_id, ${STANDING.map(({ name }) => name).join(', ')})
    cross join lateral (
      select x.ctid as row_id from ipledger.source x
       where x.network_id = $1 and x.source_id >= v.source_id and x.source_id <= v.source_id order by x.source_id limit 1) w
   where s.ctid = w.row_id and ${OF_NETWORK}`

/** Per column an array, in which the sources come in the same order. */
export function standingColumns(
  standings: readonly (readonly [source: string, standing: Standing])[],
): readonly (readonly unknown[])[] {
  return [
    standings.map(([source]) => source),
    ...STANDING.map(({ type, cell }) =>
      standings.map(([, standing]) => {
        const value = cell(standing)
        return type === 'text[]' ? (value as readonly string[]).join(',') : value
      }),
    ),
  ]
}
