/**
 * Time for tests. The ledger's clock is the database's, and no test may stop it; what a test can do without lying to
 * the books is to have begun earlier: every time of a network, in the log and in all that was projected from it, is
 * moved into the past by the same amount. The fold of the log is then still the projection, and `verify` still holds.
 */

import pg from 'pg'
import { withClient } from './database.ts'

const TABLES = [
  'network',
  'event',
  'pool',
  'lease',
  'released_address',
  'pool_position',
  'request',
  'closed_attachment',
] as const

/** Only while nobody writes to the network. */
export async function moveToThePast(
  database: Readonly<{ adminUrl: string }>,
  ms: number,
  network = 'default',
): Promise<void> {
  await withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query<{ name: string; columns: readonly string[] }>(
      `select table_name as name, array_agg(column_name::text) as columns
         from information_schema.columns
        where table_schema = 'ipledger' and data_type = 'timestamp with time zone' and table_name = any($1)
        group by table_name`,
      [TABLES],
    )
    await admin.query('begin')
    for (const { name, columns } of rows) {
      const earlier = columns.map((column) => {
        const quoted = pg.escapeIdentifier(column)
        return `${quoted} = ${quoted} - $2::bigint * interval '1 millisecond'`
      })
      await admin.query(
        `update ipledger.${pg.escapeIdentifier(name)} set ${earlier.join(', ')} where network_id = $1`,
        [network, ms],
      )
    }
    await admin.query('commit')
  })
}
