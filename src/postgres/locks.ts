/**
 * Whether locks are locks. A pooler that lends a connection for one transaction mixes up the sessions that share it: their advisory
 * locks, settings and prepared statements. Some engines that speak PostgreSQL's protocol lock nothing.
 */
import { randomInt } from 'node:crypto'
import type pg from 'pg'
import { StartRefused } from '../config.ts'
import { place, withClient } from './connect.ts'

const LOCK = 'select pg_try_advisory_lock($1) as is'
const UNLOCK = 'select pg_advisory_unlock($1) as is'
const LOCK_ROW = 'select network_id from ipledger.network_lock for no key update skip locked'

/** While a pooler opens or closes a connection, a round may miss it. */
const ROUNDS = 5

/** @throws StartRefused */
export function checkSessions(url: string): Promise<void> {
  return withTwo(url, async (one, other) => {
    for (let round = 0; round < ROUNDS; round += 1) {
      // Of no other start, because it may stay where a pooler keeps the connection.
      const key = [randomInt(2 ** 47)]
      const ask = async (client: pg.Client, text: string) =>
        (await client.query<{ is: boolean }>(text, key)).rows[0]!.is
      await ask(one, LOCK)
      // A pooler that lends by turns does not find it again. One that lends the last connection first lets the other have it, too.
      const isKept = await ask(one, UNLOCK)
      await ask(one, LOCK)
      if (isKept && !(await ask(other, LOCK))) continue
      throw new StartRefused(
        `Two sessions share one advisory lock of ${place(url)}: if that is a pooler, set its pool_mode = session, or let ` +
          'DATABASE_URL and DATABASE_ADMIN_URL name the server itself; if it is the server, take one whose advisory locks work.',
      )
    }
  })
}

/** Where there is a network. @throws StartRefused */
export function checkRowLocks(url: string): Promise<void> {
  return withTwo(url, async (one, other) => {
    await one.query('begin')
    const { rows } = await one.query<{ network_id: string }>(`${LOCK_ROW} limit 1`)
    const again = await other.query<{ network_id: string }>(LOCK_ROW)
    if (!again.rows.some(({ network_id: network }) => network === rows[0]?.network_id)) return
    throw new StartRefused(
      `Two sessions share one row lock of ${place(url)}, so two processes could hand out one address: let DATABASE_URL ` +
        'name a PostgreSQL whose "select … for no key update" waits.',
    )
  })
}

function withTwo<T>(url: string, work: (one: pg.Client, other: pg.Client) => Promise<T>): Promise<T> {
  const target = { url, applicationName: 'ipledger start' }
  return withClient(target, (one) => withClient(target, (other) => work(one, other)))
}
