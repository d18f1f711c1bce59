/** A database with servers on it, and networks made as they are needed. */
import type pg from 'pg'
import { createClient } from '../src/client/client.ts'
import { connect } from '../src/postgres/connect.ts'
import { type History, settle, writeHistory } from './history.ts'
import type { Place } from './load.ts'
import type { Scratch, ScratchDatabase } from './scratch.ts'
import { type Server, startServer } from './server.ts'

export type Stage = {
  readonly database: ScratchDatabase
  /** Of the database's owner. */
  readonly admin: pg.Client
  readonly servers: readonly Server[]
  /** Leases that servers of this stage acknowledged; the log must have as many. */
  acknowledged: number
  /** A new network with one pool, whose released addresses do not cool unless told otherwise. */
  place(cidr: string, history?: History, cooldownSeconds?: number): Promise<Place>
  /** Another server on the same database. */
  join(): Promise<Server>
  /** Stops the servers. The database stays to be verified. */
  close(): Promise<void>
}

export async function openStage(
  scratch: Scratch,
  options: { readonly purpose: string; readonly worker: boolean },
  signal: AbortSignal,
): Promise<Stage> {
  const database = await scratch.create(options.purpose)
  const admin = await connect({ url: database.adminUrl, applicationName: 'ipledger bench' })
  await admin.query(ONE_ROW)
  const start = () => startServer({ database, worker: options.worker }, signal)
  const servers: Server[] = []
  try {
    servers.push(await start())
  } catch (error) {
    await admin.end()
    throw error
  }
  const client = createClient({ url: servers[0]!.url })
  let networks = 0
  let closed: Promise<void> | undefined
  return {
    database,
    admin,
    servers,
    acknowledged: 0,
    async place(cidr, history, cooldownSeconds = 0) {
      networks += 1
      const place = { network: `bench-${networks}`, pool: 'pool' }
      await client.networks.createNetwork({ name: place.network }, { signal })
      await client.pools.createPool(
        {
          network: place.network,
          name: place.pool,
          cidr,
          cooldown: { seconds: BigInt(cooldownSeconds), nanos: 0 },
        },
        { signal },
      )
      if (history !== undefined) {
        await writeHistory(admin, place, history, signal)
        await settle(admin)
      }
      return place
    },
    async join() {
      const server = await start()
      servers.push(server)
      return server
    },
    close() {
      closed ??= Promise.all([admin.end(), ...servers.map((server) => server.stop())]).then(() => {})
      return closed
    },
  }
}

/** What somebody would write who wants an address to have one holder, and nothing more. */
const ONE_ROW = `
  create schema bench;
  create table bench.one_row (
    network_id text not null,
    name text not null,
    address inet not null,
    at timestamptz not null,
    primary key (network_id, name)
  )`
