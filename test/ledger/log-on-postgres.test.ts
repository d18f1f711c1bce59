import { createLedgerPool } from '../../src/ledger/open.ts'
import { createPgLog } from '../../src/ledger/pg-log.ts'
import { createTestDatabase } from '../support/database.ts'
import { logContract } from './log-contract.ts'

logContract('in PostgreSQL', async () => {
  const database = await createTestDatabase()
  const opened: ReturnType<typeof createLedgerPool>[] = []
  return {
    connect() {
      const connections = createLedgerPool(database.serviceUrl, 2)
      opened.push(connections)
      return createPgLog(connections)
    },
    async close() {
      await Promise.all(opened.map((one) => one.end()))
      await database.drop()
    },
  }
})
