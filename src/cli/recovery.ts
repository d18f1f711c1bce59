/** Eras that begin past the API: at every start, and by an operator's word. */

import type { Config } from '../config.ts'
import { beginDueEras, beginEra } from '../ledger/eras.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { openLedger } from '../ledger/open.ts'
import { connect } from '../postgres/connect.ts'
import { openDatabase } from '../postgres/database.ts'
import type { Logger } from '../telemetry.ts'
import { Unclear } from './failure.ts'
import { onDatabase } from './on-database.ts'
import { table } from './print.ts'

export const RECOVER_ACTOR = 'recover'

type NetworkRow = Readonly<{ network_id: string; era: number; state: string; head: number }>

const NETWORKS = `
  select n.network_id, n.era, n.state,
         (select e.seq from ipledger.event e where e.network_id = n.network_id order by e.seq desc limit 1) as head
    from ipledger.network n
   where $1::text is null or n.network_id = $1
   order by n.network_id`

/** Before anything is served: each batch looks too, but who lists networks or begins a snapshot would see the old era. */
export async function beginErasAtStart(ledger: Ledger, serviceUrl: string): Promise<void> {
  const client = await connect({ url: serviceUrl, applicationName: 'ipledger start' })
  try {
    await beginDueEras(ledger, client)
  } finally {
    await client.end()
  }
}

const openFound = (config: Config, log: Logger) => openDatabase(config, { log, embedded: 'found' })

/** One network, or all: this database may be older than the world. What cannot be told from the database itself. */
export async function runRecover(
  options: Readonly<{ network?: string; why: string; above?: number; json?: boolean }>,
): Promise<void> {
  const { network, why, above, json } = options
  await onDatabase(openFound, async ({ serviceUrl }, signal, log) => {
    await using open = new AsyncDisposableStack()
    const client = await connect({ url: serviceUrl, applicationName: 'ipledger recover' })
    open.defer(() => client.end())
    const ledger = openLedger({ url: serviceUrl, connections: 1, log })
    open.defer(() => ledger.close())
    const wanted = [network ?? null]
    const { rows: before } = await client.query<NetworkRow>(NETWORKS, wanted)
    if (network !== undefined && before.length === 0) throw new Unclear(`There is no network ${network}.`)
    for (const { network_id, era } of before) {
      signal.throwIfAborted()
      const outcome = await beginEra(ledger, {
        network: network_id,
        era,
        above: above ?? 0,
        actor: RECOVER_ACTOR,
        cause: 'recover',
        recovering: true,
        why,
      })
      if (!outcome.ok) throw new Unclear(`${outcome.refusal.reason}: ${outcome.refusal.message}`)
    }
    const { rows: after } = await client.query<NetworkRow>(NETWORKS, wanted)
    const shown = after.map((one) => ({
      network: one.network_id,
      era: one.era,
      head: String(one.head),
      state: one.state,
    }))
    console.log(
      json === true
        ? JSON.stringify({ networks: shown }, null, 2)
        : table(
            ['NETWORK', 'ERA', 'HEAD', 'STATE'],
            shown.map((one) => [one.network, String(one.era), one.head, one.state]),
          ),
    )
  })
}
