/**
 * A connection of a pool for one piece of work, and no longer than it may take. The role's time-out ends a statement, but
 * of a database that went silent nobody hears: then the connection is broken, and its place in the pool is free again.
 * Whatever fails in the middle of the work ends with its connection.
 */
import type pg from 'pg'
import { sever } from './trip.ts'

/** Far more than the largest report takes; not measured. */
const WORK_WITHIN_MS = 60_000
/** Longer than the role's own time-out of a statement: then nobody is there who would say so. */
const STATEMENT_WITHIN_MS = 7_000

export async function onConnection<T>(
  database: pg.Pool,
  work: (client: pg.Client) => Promise<T>,
  withinMs = WORK_WITHIN_MS,
): Promise<T> {
  // A pool's client is one of the driver's own.
  const client = (await database.connect()) as unknown as pg.Client & pg.PoolClient
  const patience = setTimeout(() => sever(client), withinMs)
  let failed = true
  try {
    const result = await work(client)
    failed = false
    return result
  } finally {
    clearTimeout(patience)
    client.release(failed)
  }
}

/** The rows of one statement. */
export function ask<Row>(
  database: pg.Pool,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly Row[]> {
  return onConnection(
    database,
    async (client) => (await client.query(text, [...values])).rows as Row[],
    STATEMENT_WITHIN_MS,
  )
}
