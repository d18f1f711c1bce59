/**
 * The statements of the hot path. Each is an insert, an upsert or a look-up by primary key: there is no plan to go wrong. Texts
 * are built once; a name stands for one text for ever.
 *
 * One row goes as parameters, several as arrays. An array a column costs the server 3 µs a column and statement, so rows of
 * events and leases go as one array of texts, each its cells joined as in the text of an event. (A batch of one event: 640 µs
 * with arrays, 480 so.)
 */
import type { Statement } from '../postgres/trip.ts'
import { arrayLiteral } from '../postgres/values.ts'
import { type Cell, COLUMNS, cellsOf, textOf } from './event-text.ts'
import type { Write } from './log.ts'

/** Columns of a table in order: name, and type; `ms` is a time in milliseconds, `hex` bytes. */
type Columns = readonly (readonly [name: string, type: string])[]
type Row = readonly Cell[]

function read(type: string, cell: string): string {
  if (type === 'ms') return `to_timestamp(${cell}::float8 / 1000)`
  if (type === 'hex') return `decode(${cell}, 'hex')`
  return type === 'text' ? cell : `${cell}::${type}`
}

function sentAs(type: string): string {
  return type === 'ms' ? 'bigint' : type === 'json' || type === 'inet' || type === 'hex' ? 'text' : type
}

/**
 * `key`: the columns by which rows are replaced; null: they are only inserted. `isJoined`: no cell has control characters, so
 * that rows can go as texts.
 */
function table(name: string, columns: Columns, key: readonly string[] | null, isJoined = false) {
  const names = columns.map((column) => column[0])
  const update = names.filter((column) => !key?.includes(column))
  const insert = `insert into ipledger.${name} (${names.join(', ')})`
  const conflict =
    key === null
      ? ''
      : ` on conflict (${key.join(', ')}) do update set ${update.map((column) => `${column} = excluded.${column}`).join(', ')}`
  const one = `${insert} values (${columns.map(([, type], at) => read(type, `$${at + 1}`)).join(', ')})${conflict}`
  // `offset 0` keeps the server from splitting the text anew for each column.
  const many = isJoined
    ? `${insert} select ${columns.map(([, type], at) => read(type, `r.cells[${at + 1}]`)).join(', ')}
      from (select string_to_array(u.text, E'\\u001f', E'\\u001e') as cells from unnest($1::text[]) as u (text) offset 0) r${conflict}`
    : `${insert} select ${columns.map(([column, type]) => read(type, `u.${column}`)).join(', ')}
      from unnest(${columns.map(([, type], at) => `$${at + 1}::${sentAs(type)}[]`).join(', ')}) as u (${names.join(', ')})${conflict}`
  return (rows: readonly Row[]): readonly Statement[] => {
    const [first] = rows
    if (first === undefined) return []
    if (rows.length === 1) return [{ name: `write_${name}_row`, text: one, values: first }]
    const values = isJoined
      ? [arrayLiteral(rows.map(textOf))]
      : columns.map((_, at) => arrayLiteral(rows.map((row) => row[at]!)))
    return [{ name: `write_${name}`, text: many, values }]
  }
}

const insertEvents = table('event', [...COLUMNS, ['digest', 'hex']], null, true)

const upsertLeases = table(
  'lease',
  [
    ['network_id', 'text'],
    ['address', 'inet'],
    ['seq', 'bigint'],
    ['pool_id', 'bigint'],
    ['state', 'text'],
    ['confirm_by', 'ms'],
    ['available_at', 'ms'],
  ],
  ['network_id', 'address'],
  true,
)

const upsertPools = table(
  'pool',
  [
    ['network_id', 'text'],
    ['pool_id', 'bigint'],
    ['name', 'text'],
    ['cidr', 'cidr'],
    ['prefix_length', 'smallint'],
    ['settings', 'json'],
    ['version', 'bigint'],
    ['created_at', 'ms'],
    ['updated_at', 'ms'],
  ],
  ['network_id', 'pool_id'],
)

const upsertNetwork = table(
  'network',
  [
    ['network_id', 'text'],
    ['description', 'text'],
    ['labels', 'json'],
    ['era', 'integer'],
    ['identity', 'text'],
    ['recovering', 'bigint'],
    ['recovered_at', 'ms'],
    ['holds', 'json'],
    ['version', 'bigint'],
    ['created_at', 'ms'],
    ['updated_at', 'ms'],
  ],
  ['network_id'],
)

const upsertSources = table(
  'source',
  [
    ['network_id', 'text'],
    ['source_id', 'text'],
    ['declaration', 'json'],
    ['state', 'text'],
    ['version', 'bigint'],
    ['registered_at', 'ms'],
    ['registered_by', 'text'],
    ['enabled_at', 'ms'],
    ['enabled_by', 'text'],
    ['enabled_seq', 'bigint'],
    ['retired_at', 'ms'],
    ['epoch', 'text'],
    ['epoch_seq', 'bigint'],
    ['epoch_head', 'bigint'],
    ['epoch_at', 'ms'],
  ],
  ['network_id', 'source_id'],
)

const upsertFreshness = table(
  'source_report',
  [
    ['network_id', 'text'],
    ['source_id', 'text'],
    ['epoch', 'text'],
    ['era', 'integer'],
    ['warm', 'boolean'],
    ['sequence', 'bigint'],
    ['digest', 'text'],
    ['entries', 'integer'],
    ['counted', 'json'],
    ['counted_total', 'bigint'],
    ['reported_at', 'ms'],
    ['complete_at', 'ms'],
    ['complete_head', 'bigint'],
    ['partial_since', 'ms'],
    ['partial_because', 'json'],
  ],
  ['network_id', 'source_id'],
)

const insertSightings = table(
  'sighting',
  [
    ['network_id', 'text'],
    ['address', 'inet'],
    ['source_id', 'text'],
    ['owner_kind', 'text'],
    ['owner_name', 'text'],
    ['owner_uid', 'text'],
    ['owner_incarnation', 'text'],
    ['owner_interface', 'text'],
    ['node', 'text'],
    ['state', 'text'],
    ['appeared_seq', 'bigint'],
    ['appeared_head', 'bigint'],
    ['vanished_seq', 'bigint'],
    ['terminal_seq', 'bigint'],
    ['terminal_at', 'ms'],
  ],
  null,
)

const insertRequests = table(
  'request',
  [
    ['network_id', 'text'],
    ['request_id', 'text'],
    ['fingerprint', 'text'],
    ['method', 'text'],
    ['seq', 'bigint'],
    ['at', 'ms'],
    ['answer', 'json'],
  ],
  ['network_id', 'request_id'],
)

export function writeStatements(network: string, write: Write): readonly Statement[] {
  const { events, records, pools, sources, freshness, sightings, requests } = write
  const seen = [...sightings]
  const deleted = pools.filter(({ settings }) => settings === null)
  return [
    ...insertEvents(events.map(({ event, digest }) => [...cellsOf(network, event), digest])),
    ...upsertLeases(
      records.map((one) => [
        network,
        one.address,
        one.seq,
        one.poolId,
        one.state,
        one.confirmBy,
        one.availableAt,
      ]),
    ),
    ...(deleted.length === 0
      ? []
      : [
          {
            name: 'delete_pool',
            text: 'delete from ipledger.pool where network_id = $1 and pool_id = any ($2::bigint[])',
            values: [network, deleted.map(({ poolId }) => poolId)],
          },
        ]),
    ...upsertPools(
      pools.flatMap(({ poolId, settings, version, createdAt, updatedAt }) =>
        settings === null
          ? []
          : [
              [
                network,
                poolId,
                settings.name,
                settings.cidr,
                settings.prefixLength,
                JSON.stringify(settings),
                version,
                createdAt,
                updatedAt,
              ],
            ],
      ),
    ),
    ...networkStatement(network, write),
    ...upsertSources(
      sources.map((one) => [
        network,
        one.declaration.id,
        JSON.stringify(one.declaration),
        one.state,
        one.version,
        one.registeredAt,
        one.registeredBy,
        one.enabledAt,
        one.enabledBy,
        one.enabledSeq,
        one.retiredAt,
        one.epoch?.name ?? null,
        one.epoch?.seq ?? null,
        one.epoch?.head ?? null,
        one.epoch?.at ?? null,
      ]),
    ),
    ...upsertFreshness(
      freshness.map((one) => [
        network,
        one.source,
        one.epoch,
        one.era,
        String(one.warm),
        one.sequence,
        one.digest,
        one.entries,
        JSON.stringify(one.counted.map(({ sequence, head, at }) => [sequence, head, at])),
        one.countedTotal,
        one.reportedAt,
        one.completeAt,
        one.completeHead,
        one.partialSince,
        one.partialSince === null ? null : JSON.stringify(one.partialBecause),
      ]),
    ),
    ...(seen.length === 0
      ? []
      : [
          {
            name: 'delete_sighting',
            text: 'delete from ipledger.sighting where network_id = $1 and address = any ($2::inet[])',
            values: [network, seen.map(([address]) => address)],
          },
        ]),
    ...insertSightings(
      seen.flatMap(([address, list]) =>
        list.map((one) => [
          network,
          address,
          one.source,
          one.owner?.kind ?? '',
          one.owner?.name ?? '',
          one.owner?.uid ?? '',
          one.owner?.incarnation ?? '',
          one.owner?.interface ?? '',
          one.node,
          one.state,
          one.appearedSeq,
          one.appearedHead,
          one.vanishedSeq,
          one.terminalSeq,
          one.terminalAt,
        ]),
      ),
    ),
    ...insertRequests(
      requests.map((one) => [
        network,
        one.requestId,
        one.fingerprint,
        one.method,
        one.seq,
        one.at,
        JSON.stringify(one.answer),
      ]),
    ),
  ]
}

function networkStatement(name: string, { network }: Write): readonly Statement[] {
  if (network === null) return []
  const { description, labels, era, identity, recovering, recoveredAt, holds, version } = network
  return upsertNetwork([
    [
      name,
      description,
      JSON.stringify(labels),
      era,
      identity,
      recovering?.seq ?? null,
      recoveredAt,
      JSON.stringify(holds),
      version,
      network.createdAt,
      network.updatedAt,
    ],
  ])
}
