/**
 * `rebuild`: writes the tables that follow from the log again. One transaction holds the network's lock: writers wait, and
 * readers see the old tables until it commits. Reports of sources, look-ups, requests and samples stay: they do not follow
 * from events. It does not check the log; `verify` does.
 */
import type pg from 'pg'
import { TABLES } from '../gen/tables.ts'
import { setLimits } from '../postgres/limits.ts'
import { FOLDS, type FoldedTable, SOURCES_OF_LOG } from './fold.ts'
import { lastEvent } from './sql/head.ts'

type Rebuilt = {
  readonly head: number
  readonly rows: Readonly<Record<FoldedTable, number>>
}

/** The log is enough to make this row again, too. */
const LOCK_ROW = `
  insert into ipledger.network_lock (network_id)
  select $1 where exists (select from ipledger.event e where e.network_id = $1) on conflict do nothing`
const LOCK = 'select from ipledger.network_lock l where l.network_id = $1 for no key update'
const HEAD = `select (${lastEvent('$1')}) as head`

/** With the login of an owner of the tables. Null: the log has no such network. */
export async function rebuildNetwork(
  client: pg.Client,
  network: string,
  onTable: (table: FoldedTable, done: number, all: number) => void = () => {},
): Promise<Rebuilt | null> {
  await client.query('begin isolation level read committed')
  try {
    await setLimits(client, '0')
    await client.query("set local work_mem = '128MB'")
    await client.query(LOCK_ROW, [network])
    const { rowCount } = await client.query(LOCK, [network])
    if (rowCount === 0) {
      await client.query('rollback')
      return null
    }
    const ids = (await client.query<{ id: string }>(SOURCES_OF_LOG, [network])).rows.map(({ id }) => id)
    const written: Partial<Record<FoldedTable, number>> = {}
    const tables = Object.keys(FOLDS) as FoldedTable[]
    for (const [done, table] of tables.entries()) {
      onTable(table, done, tables.length)
      await client.query(`delete from ipledger.${table} where network_id = $1`, [network])
      const fold = FOLDS[table]
      const columns = Object.keys(TABLES[table]).join(', ')
      const { rowCount } = await client.query(
        `insert into ipledger.${table} (${columns}) select ${columns} from (${fold}) f`,
        fold.includes('$2') ? [network, ids] : [network],
      )
      written[table] = rowCount ?? 0
    }
    const { rows } = await client.query<{ head: number }>(HEAD, [network])
    await client.query('commit')
    return { head: rows[0]!.head, rows: written as Record<FoldedTable, number> }
  } catch (error) {
    await client.query('rollback').catch(() => {})
    throw error
  }
}
