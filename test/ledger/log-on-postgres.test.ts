import { shareConnections } from '../../src/ledger/open.ts'
import { createPgLog } from '../../src/ledger/pg-log.ts'
import { createTestDatabase } from '../support/database.ts'
import { logContract } from './log-contract.ts'

logContract('in PostgreSQL', async () => {
  const database = await createTestDatabase()
  const opened: ReturnType<typeof shareConnections>[] = []
  return {
    connect() {
      const connections = shareConnections(database.serviceUrl, 1)
      opened.push(connections)
      return createPgLog(connections)
    },
    async close() {
      await Promise.all(opened.map((one) => one.close()))
      await database.drop()
    },
  }
})
