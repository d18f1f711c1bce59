/** The rows of a network and its pools, of holds and fences, beside what its events made of them. */
import type pg from 'pg'
import { bootKey } from '../core/books.ts'
import type { Labels } from '../core/owner.ts'
import { FENCE, fenceCells, HOLD, holdCells, networkCells, poolCells } from './append.ts'
import { type Cells, differing } from './fold.ts'
import { readAddress } from './rows.ts'
import type { Shape } from './shape.ts'

export type ShapeDifference = {
  /**
   * `lock`: its row is not there. `rebuilding`: the row says so, and all else in it is right. `ranges`: untouched
   * space of a pool that does not exist.
   */
  readonly what: 'lock' | 'rebuilding' | 'network' | 'pool' | 'ranges' | 'hold' | 'fence'
  readonly poolId: number | null
  readonly name: string
  /** Number of the last event about it. */
  readonly seq: number | null
  readonly columns: readonly string[]
  readonly expected: Cells | null
  readonly found: Cells | null
}

// In the order of the cells that are written.
const NETWORK_CELLS = [
  'network_id',
  'description',
  'labels',
  'state',
  'era',
  'version',
  'created_at',
  'updated_at',
] as const
const LABELS = NETWORK_CELLS.indexOf('labels')
const POOL_CELLS = [
  'network_id',
  'pool_id',
  'name',
  'version',
  'family',
  'cidr',
  'is_default',
  'settings',
  'created_at',
  'updated_at',
] as const

const HOLD_CELLS = HOLD.map(({ name }) => name)
const FENCE_CELLS = FENCE.map(({ name }) => name)
/** Names of the cells of a difference. */
export const CELLS_OF: Readonly<Record<ShapeDifference['what'], readonly string[]>> = {
  lock: [],
  rebuilding: [],
  network: NETWORK_CELLS,
  pool: POOL_CELLS,
  ranges: [],
  hold: HOLD_CELLS,
  fence: FENCE_CELLS,
}

/** What is said of reaping: a row while it holds. */
const STATEMENTS = {
  hold: {
    columns: HOLD_CELLS,
    said: ({ holds }: Shape) =>
      [...holds.values()].map((hold) => ({ seq: hold.seq, cells: holdCells(hold) })),
    keyOf: ([source]: Cells) => String(source),
    nameOf: ([source]: Cells) => (source === '' ? 'of the whole network' : `of source ${source}`),
  },
  fence: {
    columns: FENCE_CELLS,
    said: ({ fences }: Shape) =>
      [...fences.values()].map((fence) => ({ seq: fence.seq, cells: fenceCells(fence) })),
    keyOf: ([node, boot]: Cells) => bootKey(String(node), String(boot)),
    nameOf: ([node, boot]: Cells) => `of node ${node}, boot ${boot}`,
  },
} as const

/** Skips from network to network. */
const NETWORKS = `with recursive named as (
    (select network_id from ipledger.event order by network_id limit 1)
    union all
    select (select e.network_id from ipledger.event e where e.network_id > named.network_id order by e.network_id limit 1)
      from named where named.network_id is not null)
  select network_id from named where network_id is not null`

/** Networks that have events, whatever the projections say. */
export async function networksInLog(client: pg.ClientBase): Promise<readonly string[]> {
  const { rows } = await client.query<{ network_id: string }>(NETWORKS)
  return rows.map((row) => row.network_id)
}

/**
 * What outlives the rows and events of a network: where it was found in order, where its tenures and its look at all of it
 * stand, its seals. One row each but for seals, where it skips from network to network.
 */
export const REMEMBERED_NETWORKS = `with recursive sealed as (
    (select network_id from ipledger.seal order by network_id limit 1)
    union all
    select (select s.network_id from ipledger.seal s where s.network_id > sealed.network_id order by s.network_id limit 1)
      from sealed where sealed.network_id is not null)
  select network_id from sealed where network_id is not null
  union select network_id from ipledger.verify_checkpoint
  union select network_id from ipledger.verification
  union select network_id from ipledger.tenure_position`

/** Networks that something knows of which has no row: all else of them may be gone. */
export async function networksWithoutRow(
  database: Pick<pg.ClientBase | pg.Pool, 'query'>,
): Promise<readonly string[]> {
  const { rows } = await database.query<{ network_id: string }>(WITHOUT_ROW)
  return rows.map((row) => row.network_id)
}
const WITHOUT_ROW = `select k.network_id from (${REMEMBERED_NETWORKS} union select l.network_id from (${NETWORKS}) l) k
   where not exists (select from ipledger.network n where n.network_id = k.network_id) order by k.network_id`

const RANGED_POOLS = `with recursive ranged as (
    (select pool_id from ipledger.untouched_range where network_id = $1 order by pool_id limit 1)
    union all
    select (select u.pool_id from ipledger.untouched_range u
             where u.network_id = $1 and u.pool_id > ranged.pool_id order by u.pool_id limit 1)
      from ranged where ranged.pool_id is not null)
  select pool_id from ranged where pool_id is not null`

/** In a transaction in which the shape was advanced. */
export async function compareShape(client: pg.ClientBase, shape: Shape): Promise<readonly ShapeDifference[]> {
  const network = shape.networkName
  const differences: ShapeDifference[] = []
  const add = (difference: Partial<ShapeDifference> & Pick<ShapeDifference, 'what' | 'name'>) =>
    differences.push({ poolId: null, seq: null, columns: [], expected: null, found: null, ...difference })

  const locks = await client.query('select 1 from ipledger.network_lock where network_id = $1', [network])
  if (locks.rowCount === 0 && shape.head > 0) add({ what: 'lock', name: network })

  const found = await readNetworkRow(client, network)
  const expected = shape.network === null ? null : inOrder(networkCells(shape.network))
  const seq = shape.network?.version ?? null
  if (expected === null || found === null) {
    if (expected !== null || found !== null || shape.head === 0)
      add({ what: 'network', name: network, seq, expected, found })
  } else {
    const rebuilding = found[NETWORK_CELLS.indexOf('state')] === 'REBUILDING'
    const columns = differing(NETWORK_CELLS, expected, found).filter(
      (name) => !(rebuilding && name === 'state'),
    )
    if (columns.length > 0) add({ what: 'network', name: network, seq, columns, expected, found })
    if (rebuilding) add({ what: 'rebuilding', name: network, seq })
  }

  const rows = await readPoolRows(client, network)
  for (const pool of shape.pools.values()) {
    const cells = poolCells(pool)
    const row = rows.get(pool.poolId)
    rows.delete(pool.poolId)
    const about = {
      what: 'pool',
      name: pool.name,
      poolId: pool.poolId,
      seq: pool.version,
      expected: cells,
    } as const
    if (row === undefined) {
      add(about)
      continue
    }
    const columns = differing(POOL_CELLS, cells, row)
    if (columns.length > 0) add({ ...about, columns, found: row })
  }
  for (const [poolId, row] of rows) {
    add({ what: 'pool', name: String(row[POOL_CELLS.indexOf('name')]), poolId, found: row })
  }
  const ranged = await client.query<{ pool_id: number }>(RANGED_POOLS, [network])
  for (const { pool_id: poolId } of ranged.rows) {
    if (!shape.pools.has(poolId)) add({ what: 'ranges', name: String(poolId), poolId })
  }

  for (const statement of ['hold', 'fence'] as const) {
    const { columns, said, keyOf, nameOf } = STATEMENTS[statement]
    const rows = await client.query<unknown[]>({
      rowMode: 'array',
      text: `select ${columns.join(', ')} from ipledger.${statement} where network_id = $1 order by 1, 2`,
      values: [network],
    })
    const stored = new Map(rows.rows.map((row) => [keyOf(row), row]))
    for (const { seq, cells } of said(shape)) {
      const row = stored.get(keyOf(cells))
      stored.delete(keyOf(cells))
      const differs = row === undefined ? [] : differing(columns, cells, row)
      if (row !== undefined && differs.length === 0) continue
      const name = nameOf(cells)
      add({ what: statement, name, seq, columns: differs, expected: cells, found: row ?? null })
    }
    for (const row of stored.values()) add({ what: statement, name: nameOf(row), found: row })
  }
  return differences
}

async function readNetworkRow(client: pg.ClientBase, network: string): Promise<Cells | null> {
  const { rows } = await client.query<unknown[]>({
    rowMode: 'array',
    text: `select ${NETWORK_CELLS.join(', ')} from ipledger.network where network_id = $1`,
    values: [network],
  })
  const [row] = rows
  return row === undefined ? null : inOrder(row)
}

/** With the labels in order: PostgreSQL keeps their keys by length, the log as they were said. */
function inOrder(cells: Cells): Cells {
  return cells.map((cell, index) => {
    if (index !== LABELS) return cell
    const labels = (typeof cell === 'string' ? JSON.parse(cell) : cell) as Labels
    return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

async function readPoolRows(client: pg.ClientBase, network: string): Promise<Map<number, Cells>> {
  const columns = POOL_CELLS.map((name) => (name === 'cidr' || name === 'settings' ? `${name}::text` : name))
  const { rows } = await client.query<unknown[]>({
    rowMode: 'array',
    text: `select ${columns.join(', ')} from ipledger.pool where network_id = $1 order by pool_id`,
    values: [network],
  })
  const cidr = POOL_CELLS.indexOf('cidr')
  for (const row of rows) {
    const [address, prefix] = (row[cidr] as string).split('/')
    row[cidr] = `${readAddress(address!)}/${prefix}`
  }
  return new Map(rows.map((row) => [row[POOL_CELLS.indexOf('pool_id')] as number, row]))
}
