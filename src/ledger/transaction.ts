/**
 * The kinds of short transaction in which the whole ledger is looked at. All tell the planner what the service's
 * role tells it, because an administrator's login has no such settings and no time-outs either.
 */
import type pg from 'pg'
import { SERVICE_SETTINGS } from '../postgres/roles.ts'
import { sqlState } from './batcher.ts'

const SETTINGS = Object.entries(SERVICE_SETTINGS)
  .filter(([name]) => name !== 'search_path')
  .map(([name, value]) => `set local ${name} = '${value}'`)
  .join('; ')
const SNAPSHOT = `begin isolation level repeatable read, read only; ${SETTINGS}`
const WRITE = `begin; ${SETTINGS}`

/** Everything that `work` reads is of one moment; as every batch is one transaction, no batch is seen by half. */
export function inSnapshot<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  return transact(client, SNAPSHOT, work)
}

/** For what is derived from the log and has locks of its own. */
export function inTransaction<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  return transact(client, WRITE, work)
}

/** Batches queue for the lock as we do, and one may be slow; three seconds each is the time-out of the role. */
const LOCK_ATTEMPTS = 20
const LOCK_NOT_AVAILABLE = '55P03'

/** No batch of this network runs meanwhile. The lock is a statement of its own, so that what follows sees what it waited for. */
export async function underLock<T>(client: pg.Client, network: string, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    let locked = false
    try {
      return await transact(client, WRITE, async () => {
        const { rowCount } = await client.query(
          'select 1 from ipledger.network_lock where network_id = $1 for no key update',
          [network],
        )
        if (rowCount === 0) throw new Error(`network ${network} has no row in ipledger.network_lock`)
        locked = true
        return work()
      })
    } catch (error) {
      if (locked || attempt === LOCK_ATTEMPTS || sqlState(error) !== LOCK_NOT_AVAILABLE) throw error
    }
  }
}

export async function transact<T>(client: pg.Client, begin: string, work: () => Promise<T>): Promise<T> {
  await client.query(begin)
  let result: T
  try {
    result = await work()
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  }
  const { command } = await client.query('commit')
  if (command !== 'COMMIT') throw new Error(`the transaction ended with ${command}`)
  return result
}

/** A transaction is to be this long: half of what DESIGN §5 allows, since the next one may meet slower rows. */
const WANTED_MS = 400

/** How many rows the next slice takes, so that its transaction stays short on any machine. */
export type Pace = { readonly size: () => number; readonly took: (ms: number) => void }

/** `fixed` is for tests, which look at the seams between slices. */
export function createPace(first: number, most: number, fixed?: number): Pace {
  if (fixed !== undefined) return { size: () => fixed, took: () => undefined }
  let size = first
  return {
    size: () => size,
    took(ms) {
      if (ms > 2 * WANTED_MS) size = Math.max(50, Math.floor(size / 2))
      else if (ms < WANTED_MS / 2) size = Math.min(most, size * 2)
    },
  }
}
