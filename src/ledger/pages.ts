/**
 * Pages of lists. A filter that no index answers is looked through, at most `MOST_EXAMINED` rows a statement, until the page is
 * full, nothing is left, or a second has passed: then the page is short, and the next goes on where it stopped.
 */
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

/** Rows that a statement looks at. */
export const MOST_EXAMINED = 10_000
const LOOK_FOR_MS = 1_000

/** How a list is looked through, from the place after which it goes on; null: from its begin. */
type Looks<Item, At> = {
  /** The first of what matches among the next rows, `most` at most. */
  readonly look: (after: At | null, most: number) => Promise<readonly Item[]>
  readonly placeOf: (item: Item) => At
  /** Where these rows end; null: there are no more. */
  readonly endOf: (after: At | null) => Promise<At | null>
}

/** `next`: where the next page goes on; null after the last one. */
export async function fillPage<Item, At>(
  { after, size }: { readonly after: At | null; readonly size: number },
  { look, placeOf, endOf }: Looks<Item, At>,
): Promise<{ readonly items: readonly Item[]; readonly next: At | null }> {
  const end = performance.now() + LOOK_FOR_MS
  const items: Item[] = []
  let at = after
  do {
    const missing = size - items.length
    const found = await look(at, missing + 1)
    items.push(...found.slice(0, missing))
    if (found.length > missing) return { items, next: placeOf(items.at(-1)!) }
    at = await endOf(at)
  } while (at !== null && performance.now() < end)
  return { items, next: at }
}

/** Number of the last event; null: there is no such network. */
export async function readHead(db: Db, network: string): Promise<number | null> {
  const { rows } = await sql<{ head: number | null }>`select ${headOf(network)} as head`.execute(db)
  return rows[0]!.head
}

/** What is read is of one head. Null: there is no such network. */
export function atOneHead<Found extends object>(
  db: Db,
  network: string,
  read: (db: Db) => Promise<Found>,
): Promise<(Found & { readonly head: number }) | null> {
  const transaction = db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only')
  return transaction.execute(async (db) => {
    const head = await readHead(db, network)
    return head === null ? null : { ...(await read(db)), head }
  })
}
