/**
 * Whether locks are locks. A pooler that lends a connection for one transaction mixes up the sessions that share it: their advisory
 * locks, settings and prepared statements. Some engines that speak PostgreSQL's protocol lock nothing.
 */
import { randomInt } from 'node:crypto'
import type pg from 'pg'
import { StartRefused } from '../config.ts'
import { place, withClient } from './connect.ts'

/**
 * Each is compared with each, because an address may be that of several poolers: of five sessions two are in one of four. PgBouncer by
 * transaction, with a pool of 20. One: 6 of 12,000 starts missed it beside 5 or 19 busy clients, none of 200 without. Two behind a balancer:
 * 9 of 2,000, none of 200.
 */
const SESSIONS = 5
const LOCK_ROW = 'select from ipledger.network_lock where network_id = $1 for no key update skip locked'

/** @throws StartRefused */
export const checkSessions = (url: string): Promise<void> =>
  withSessions(url, SESSIONS, async (sessions) => {
    for (const [index, one] of sessions.entries()) {
      // Of no other start, because it may stay where a pooler keeps the connection.
      const key = [randomInt(2 ** 47)]
      const ask = async (client: pg.Client, what: string): Promise<boolean> =>
        (await client.query(`select pg_${what}($1) as is`, key)).rows[0].is
      await ask(one, 'try_advisory_lock')
      // A pooler that lends by turns does not find it again. One that lends the last connection first lets another have it, too.
      let isShared = !(await ask(one, 'advisory_unlock'))
      await ask(one, 'try_advisory_lock')
      for (const other of sessions.slice(index + 1)) isShared ||= await ask(other, 'try_advisory_lock')
      if (isShared)
        throw new StartRefused(
          `Two sessions share one advisory lock of ${place(url)}: if that is a pooler, set its pool_mode = session, or let DATABASE_URL and DATABASE_ADMIN_URL name the server itself; if it is the server, take one whose advisory locks work.`,
        )
    }
  })

/** By the row of a network. @throws StartRefused */
export const checkRowLocks = (url: string, network: string): Promise<void> =>
  withSessions(url, 2, async ([one, other]) => {
    const locks = async (client: pg.Client) => (await client.query(LOCK_ROW, [network])).rowCount === 1
    await one!.query('begin')
    if ((await locks(one!)) && (await locks(other!)))
      throw new StartRefused(
        `Two sessions share one row lock of ${place(url)}, so two processes could hand out one address: let DATABASE_URL name a PostgreSQL whose "select … for no key update" waits.`,
      )
  })

function withSessions(
  url: string,
  count: number,
  work: (sessions: readonly pg.Client[]) => Promise<void>,
  open: readonly pg.Client[] = [],
): Promise<void> {
  if (open.length === count) return work(open)
  const target = { url, applicationName: 'ipledger start' }
  return withClient(target, (one) => withSessions(url, count, work, [...open, one]))
}
