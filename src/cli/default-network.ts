import type { Ledger } from '../ledger/ledger.ts'
import { connect } from '../postgres/connect.ts'
import type { Logger } from '../telemetry.ts'

const NAME = 'default'

/** The network that calls mean when they name none. Made once, through the ledger like every other. */
export async function ensureDefaultNetwork(ledger: Ledger, serviceUrl: string, log: Logger): Promise<void> {
  if (await exists(serviceUrl)) return
  const outcome = await ledger.submit({
    type: 'createNetwork',
    network: NAME,
    actor: { name: 'migrate', node: null },
    cause: 'migrate',
    requestId: null,
    fingerprint: null,
    traceId: null,
    settings: { description: '', labels: {} },
  })
  if (outcome.ok) {
    log.info({ network: NAME }, 'network created')
    return
  }
  // Another starter may have been faster.
  if (await exists(serviceUrl)) return
  throw new Error(`network ${NAME} could not be created: ${outcome.refusal.message}`)
}

async function exists(serviceUrl: string): Promise<boolean> {
  const client = await connect({ url: serviceUrl, applicationName: 'ipledger start' })
  try {
    const { rowCount } = await client.query('select 1 from ipledger.network where network_id = $1', [NAME])
    return rowCount === 1
  } finally {
    await client.end()
  }
}
