/** The database as `read-*.ts` use it: the tables as Kysely knows them, statements of plain SQL, the head, a bound on rows. */
import { CompiledQuery, type Kysely, sql } from 'kysely'
import type { TABLES } from '../gen/tables.ts'
import { headOf } from './sql/head.ts'
import type { Row, RowOf } from './tables.ts'

/** Rows as they are stored, by the name of their table. */
export type Tables = { [T in keyof typeof TABLES as `ipledger.${T}`]: RowOf<T> }
export type Db = Kysely<Tables>

/** The rows of one statement. */
export type Ask = (text: string, values: readonly unknown[]) => Promise<readonly Row[]>

export const asksOf =
  (db: Db): Ask =>
  async (text, values) =>
    (await db.executeQuery<Row>(CompiledQuery.raw(text, [...values]))).rows

/** Rows that one statement examines. */
export const MOST_EXAMINED = 10_000

/** Number of the last event; null: there is no such network. */
export async function readHead(db: Db, network: string): Promise<number | null> {
  const { rows } = await sql<{ head: number | null }>`select ${headOf(network)} as head`.execute(db)
  return rows[0]!.head
}
