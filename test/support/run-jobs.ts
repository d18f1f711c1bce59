/** The jobs of the worker, each run when a test says so, with a ledger and connections of their own as in its thread. */
import type pg from 'pg'
import type { Done, Job, JobContext } from '../../src/jobs/job.ts'
import { createProjectTenure } from '../../src/jobs/project-tenure.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { createAskedSources } from '../../src/liveness/asked.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { createLogger } from '../../src/telemetry.ts'
import { openTestLedger } from './ledger.ts'

export type TestJobs = {
  readonly context: JobContext
  /** By its name in the schedule, in one network. */
  run(name: string, network: string, context?: JobContext): Promise<Done>
  close(): Promise<void>
}

export function openJobs(serviceUrl: string): TestJobs {
  const log = createLogger('silent')
  const ledger = openTestLedger({ url: serviceUrl })
  const database = createPool({ url: serviceUrl, applicationName: 'test jobs', max: 4 })
  const asked = createAskedSources({ log, secrets: {} })
  // It judges what is there: a test answers between two runs.
  const schedule: Readonly<Record<string, { readonly run: Job }>> = {
    ...createSchedule(),
    'verify-suspects': { run: createVerifySuspects({ stayMs: 0 }) },
    'project-tenure': { run: createProjectTenure({ slotMs: 0 }) },
  }
  const context: JobContext = {
    database,
    ledger,
    intake: { database, log },
    asked,
    log,
    signal: new AbortController().signal,
  }
  return {
    context,
    async run(name, network, given = context) {
      const job = schedule[name]
      if (job === undefined) throw new Error(`there is no job ${name}`)
      return job.run({ ...given, database: within(given.database, network) })
    },
    async close() {
      await asked.close()
      await ledger.close()
      await database.end()
    },
  }
}

const LIST_NETWORKS = 'select network_id from ipledger.network order by network_id'

/** The same connections, in a world of one network: what other scenes of the file have left is not walked again. */
function within(database: pg.Pool, network: string): pg.Pool {
  const query = (text: string, cells?: unknown[]) =>
    text === LIST_NETWORKS ? { rows: [{ network_id: network }] } : database.query(text, cells)
  // Not derived from it: of what a derived pool forgets when it was idle for long the other waits for the end.
  return { query, connect: () => database.connect() } as unknown as pg.Pool
}
