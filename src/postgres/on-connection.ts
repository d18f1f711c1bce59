/**
 * A connection of a pool for one piece of work. The role's time-out ends a statement; a database that went silent ends
 * nothing, so the connection is severed after a while. When the work fails, its connection is closed with it.
 */
import type pg from 'pg'
import { afterRunning } from '../time-limit.ts'
import { sever } from './pipeline.ts'

/** Longer than the role's own time-out of a statement: after it the server is silent. */
const STATEMENT_WITHIN_MS = 7_000
/** Far more than any piece of work takes; not measured. */
const WORK_WITHIN_MS = 60_000

export async function onConnection<T>(
  database: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
  withinMs = WORK_WITHIN_MS,
): Promise<T> {
  const client = await database.connect()
  const inTime = afterRunning(withinMs, () => sever(client))
  try {
    const result = await work(client)
    client.release()
    return result
  } catch (error) {
    discard(client)
    throw error
  } finally {
    inTime()
  }
}

/** Of no further use to its pool. A polite end would wait for a server that may be silent. */
export function discard(client: pg.PoolClient): void {
  sever(client)
  client.release(true)
}

/** The rows of one statement; one with a name is prepared once a connection. */
export function ask<Row>(
  database: pg.Pool,
  statement: string | { readonly name: string; readonly text: string },
  values: readonly unknown[] = [],
): Promise<readonly Row[]> {
  const query = typeof statement === 'string' ? { text: statement } : statement
  return onConnection(
    database,
    async (client) => (await client.query({ ...query, values: [...values] })).rows as Row[],
    STATEMENT_WITHIN_MS,
  )
}
