import { closeIfLost } from '../ledger/rebuild.ts'
import { networksInLog } from '../ledger/shape-rows.ts'
import { connect } from '../postgres/connect.ts'
import type { Logger } from '../telemetry.ts'

/**
 * Before anything is served: a network whose projections are lost would take its held addresses for free (incident
 * 7.1). It is closed for Reserve until a rebuild has ended; the others are served.
 */
export async function closeBrokenNetworks(serviceUrl: string, log: Logger): Promise<void> {
  const client = await connect({ url: serviceUrl, applicationName: 'ipledger start' })
  try {
    for (const network of await networksInLog(client)) {
      const why = await closeIfLost(client, network)
      if (why.length === 0) continue
      log.error(
        { network, why },
        `projections are lost; Reserve is refused until "ipledger rebuild --network ${network}" has run`,
      )
    }
  } finally {
    await client.end()
  }
}
