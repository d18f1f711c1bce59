import { Nodes } from '../../src/ledger/nodes.ts'
import { createPgLog } from '../../src/ledger/pg-log.ts'
import { createTestDatabase } from '../support/database.ts'
import { logContract } from './log-contract.ts'

logContract('in PostgreSQL', async () => {
  const database = await createTestDatabase()
  const opened: Nodes[] = []
  return {
    connect() {
      const nodes = new Nodes(database.serviceUrl, { connections: 2 })
      opened.push(nodes)
      return createPgLog(nodes)
    },
    async close() {
      await Promise.all(opened.map((one) => one.end()))
      await database.drop()
    },
  }
})
