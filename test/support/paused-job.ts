/**
 * A worker that is stopped in the middle of a job, by itself: `paused-job.ts URL NETWORK JOB WHERE`. It runs the job once,
 * says `paused` and stops (SIGSTOP) before the first of `WHERE`: `look`, a query of the job; `evidence`, between two trips
 * of one reading; `listed`, what a source that was asked has answered; `write`, an insert or delete of the job; `submit`, a
 * command for the network. Resumed, it goes on, and says what it did.
 */
import type pg from 'pg'
import type { JobContext } from '../../src/jobs/job.ts'
import { createPullSources } from '../../src/jobs/pull-sources.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { createAskedSources } from '../../src/liveness/asked.ts'
import type { AskedSource } from '../../src/liveness/source.ts'
import type { Source } from '../../src/liveness/source-rows.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { createLogger } from '../../src/telemetry.ts'

const [url, network, name, where] = process.argv.slice(2) as [string, string, string, string]
const LIST_NETWORKS = 'select network_id from ipledger.network order by network_id'

let paused = false

function pauseAt(place: string): void {
  if (paused || place !== where) return
  paused = true
  process.stdout.write('paused\n')
  process.kill(process.pid, 'SIGSTOP')
}

const log = createLogger('silent')
const ledger = openLedger({ url, log, connections: 1 })
const connections = createPool({ url, applicationName: 'paused job', max: 2 })

const database = {
  async query(text: string, values?: unknown[]) {
    if (text === LIST_NETWORKS) return { rows: [{ network_id: network }] }
    pauseAt(/^\s*(insert|delete)/.test(text) ? 'write' : 'look')
    return connections.query(text, values)
  },
  async connect() {
    const client = await connections.connect()
    const query = client.query.bind(client) as (...args: unknown[]) => unknown
    let trips = 0
    return Object.create(client, {
      query: {
        value: (...args: unknown[]) => {
          trips += 1
          if (trips === 2) pauseAt('evidence')
          return query(...args)
        },
      },
    })
  },
} as unknown as pg.Pool

const sources = createAskedSources({ log, secrets: {} })

function pausing(source: Source): AskedSource {
  const asked = sources.get(source)
  const list: AskedSource['list'] = async (signal) => {
    const listing = await asked.list(signal)
    pauseAt('listed')
    return listing
  }
  return { list, lookUp: (...given) => asked.lookUp(...given), close: () => asked.close() }
}

const context: JobContext = {
  database,
  ledger: {
    ...ledger,
    submit: (command, options) => {
      if (command.network === network) pauseAt('submit')
      return ledger.submit(command, options)
    },
  },
  intake: { database, log },
  asked: { get: pausing, close: () => sources.close() },
  log,
  signal: new AbortController().signal,
}

const schedule = {
  ...createSchedule(),
  'verify-suspects': { run: createVerifySuspects({ stayMs: 0 }) },
  'pull-sources': { run: createPullSources({ slotMs: 0 }) },
}
const job = (schedule as Readonly<Record<string, { readonly run: (given: JobContext) => Promise<object> }>>)[
  name
]
if (job === undefined) throw new Error(`there is no job ${name}`)
try {
  process.stdout.write(`${JSON.stringify(await job.run(context))}\n`)
} catch (error) {
  // What the database ended while it was stopped is the next run's.
  process.stdout.write(
    `${JSON.stringify({ failed: error instanceof Error ? error.message : String(error) })}\n`,
  )
}
await sources.close()
await ledger.close()
await connections.end()
