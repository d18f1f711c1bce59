import { createDatabase } from '../simulation/memory-log.ts'
import { logContract } from './log-contract.ts'

logContract('in memory', async () => {
  const database = createDatabase(() => Date.now())
  return { connect: () => database.connect(), close: async () => {} }
})
