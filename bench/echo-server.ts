/**
 * The API without a ledger behind it: every Reserve is answered at once with the same lease. What Reserve costs here
 * (a request and an answer of full size, read, checked, written) is not what the ledger costs.
 */
import { startServer } from '../src/api/server.ts'
import { loopbackTokens } from '../src/api/tokens.ts'
import { readConfig } from '../src/config.ts'
import type { LeaseView } from '../src/core/command.ts'
import { createReads } from '../src/ledger/reads.ts'
import { createPool } from '../src/postgres/connect.ts'
import { createLogger } from '../src/telemetry.ts'

const LEASE: Omit<LeaseView, 'owner' | 'placement'> = {
  leaseId: 'bench-1/1234567',
  network: 'bench-1',
  poolId: 2,
  pool: 'pool',
  address: '10.123.45.67',
  prefixLength: 32,
  subnet: '10.0.0.0/8',
  gateway: '',
  options: { routes: [], dns: [], mtu: 0 },
  state: 'RESERVED',
  quarantine: null,
  version: 1_234_567,
  fencingToken: 1_234_567,
  witness: '',
  reservedAt: Date.now(),
  confirmedAt: null,
  confirmBy: null,
  endedAt: null,
  availableAt: null,
  reused: false,
}

const config = readConfig()
const pool = createPool({ url: config.databaseUrl!, applicationName: 'ipledger bench', max: 1 })
const log = createLogger(config.logLevel)
const server = await startServer({
  ledger: {
    async submit(command) {
      if (command.type !== 'reserve') throw new Error(`${command.type} has no answer without a ledger`)
      const { owner, placement } = command
      return { ok: true, answer: { leases: [{ ...LEASE, owner, placement }] }, replayed: false }
    },
    close: async () => {},
  },
  reads: createReads(pool),
  intake: { database: pool, log },
  tokens: loopbackTokens(),
  config,
  logger: log,
})
console.log(`the echo is ready: http://127.0.0.1:${server.httpPort}`)
process.once('SIGTERM', async () => {
  await server.close()
  await pool.end()
})
