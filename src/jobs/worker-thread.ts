/**
 * The thread of `worker.ts`: graphile-worker's runner with the schedule.
 *
 * - Every slot is a fresh job without queue or key, tried once: the next slot is its retry. A killed worker's job
 *   stays locked for four hours, and nothing waits for it.
 * - Every job is run once right after the start.
 * - Slots missed while no worker ran are not made up for: jobs look at what is to be done now.
 */

import { parentPort, workerData } from 'node:worker_threads'
import { parseCronItems, type Runner, run, type Task, type TaskList } from 'graphile-worker'
import { openLedger } from '../ledger/open.ts'
import { createAskedSources } from '../liveness/asked.ts'
import { createPool } from '../postgres/connect.ts'
import { JOBS_SCHEMA, jobsLogger } from '../postgres/migrate.ts'
import { createLogger, isCounting, keepJobs, onJob } from '../telemetry.ts'
import { startThreadTelemetry } from '../telemetry-export.ts'
import type { JobContext } from './job.ts'
import { createSchedule, type Scheduled } from './schedule.ts'
import type { FromThread, WorkerInput } from './worker.ts'

/** Two jobs may each hold one for most of a slot: tenures of a long log, and what is verified. */
const SERVICE_CONNECTIONS = 4
const LEDGER_CONNECTIONS = 2
/** A list of 100,000 entries holds one for seconds. */
const INTAKE_CONNECTIONS = 2
/** Of the jobs' role: one listens, one schedules. */
const RUNNER_CONNECTIONS = 2
/** Jobs are announced; this is for announcements that got lost. */
const POLL_MS = 5_000
/** How often it is looked how many jobs wait, while somebody counts. */
const COUNT_JOBS_EVERY_MS = 10_000
const CLEANUP = 'clean-up-jobs'
const CLEANUP_EVERY_MINUTES = 60

const { jobsUrl, serviceUrl, config, secrets } = workerData as WorkerInput
const log = createLogger(config.logLevel)
const onLost = (error: Error): void => log.warn({ err: error }, 'a connection of the worker was lost')

// First, so that what is opened next is seen.
const telemetry = await startThreadTelemetry(config.telemetry, log, (measured) =>
  parentPort!.postMessage({ measured } satisfies FromThread),
)

const jobs = createPool({
  url: jobsUrl,
  applicationName: 'ipledger jobs',
  max: config.jobConnections,
  onLost,
})
const database = createPool({
  url: serviceUrl,
  applicationName: 'ipledger jobs',
  max: SERVICE_CONNECTIONS,
  onLost,
})
const ledger = openLedger({
  url: serviceUrl,
  connections: LEDGER_CONNECTIONS,
  commitsAreNeverLost: config.commitsAreNeverLost,
  limits: {
    queued: config.maxQueuedCommands,
    leasesPerBatch: config.batchLeases,
    defaultDeadlineMs: config.deadlineMs,
  },
  log,
})
const intakeConnections = createPool({
  url: serviceUrl,
  applicationName: 'ipledger intake of jobs',
  max: INTAKE_CONNECTIONS,
  onLost,
})
const asked = createAskedSources({ log, secrets })
const stopping = new AbortController()
const context: JobContext = {
  database,
  ledger,
  intake: { database: intakeConnections, log },
  asked,
  log,
  signal: stopping.signal,
}

const runner = await startRunner()
const countingJobs = isCounting() ? setInterval(() => void countJobs(), COUNT_JOBS_EVERY_MS) : undefined
parentPort!.postMessage({ started: true } satisfies FromThread)
parentPort!.once('message', () => void stop())
await runner.promise
if (!stopping.signal.aborted) throw new Error('graphile-worker stopped by itself')

async function stop(): Promise<void> {
  stopping.abort()
  clearInterval(countingJobs)
  await runner.stop()
  await asked.close()
  await ledger.close()
  await Promise.all([jobs.end(), database.end(), intakeConnections.end()])
  await telemetry.close()
  process.exit(0)
}

async function startRunner(): Promise<Runner> {
  const schedule = createSchedule()
  const taskList: TaskList = {
    ...Object.fromEntries(Object.entries(schedule).map(([name, one]) => [name, taskOf(name, one)])),
    [CLEANUP]: cleanUp,
  }
  const started = await run({
    pgPool: jobs,
    schema: JOBS_SCHEMA,
    logger: jobsLogger(log),
    concurrency: Math.max(1, config.jobConnections - RUNNER_CONNECTIONS),
    pollInterval: POLL_MS,
    noHandleSignals: true,
    taskList,
    parsedCronItems: parseCronItems([
      ...Object.entries(schedule).map(([name, { everyMinutes }]) => slotsOf(name, everyMinutes)),
      slotsOf(CLEANUP, CLEANUP_EVERY_MINUTES),
    ]),
  })
  for (const name of Object.keys(taskList)) await started.addJob(name, {}, { maxAttempts: 1 })
  return started
}

function slotsOf(task: string, everyMinutes: number) {
  return {
    task,
    match: ({ min }: Readonly<{ min: number }>) => min % everyMinutes === 0,
    options: { maxAttempts: 1 },
  }
}

function taskOf(name: string, { run: work, stays }: Scheduled): Task {
  return () =>
    onJob(name, async () => {
      const begun = performance.now()
      const done = await work(context)
      const ms = Math.round(performance.now() - begun)
      // Of one that stays it is no time that the work took.
      const fields = { job: name, ...done, ...(stays === true ? { stayedMs: ms } : { ms }) }
      if (Object.values(done).some((count) => count > 0)) log.info(fields, 'job done')
      else log.debug(fields, 'job had nothing to do')
    })
}

/** What is to be done and is not begun, and what failed since the last cleaning up. */
async function countJobs(): Promise<void> {
  try {
    const { rows } = await jobs.query<{ waiting: number; failing: number }>(
      `select count(*) filter (where locked_at is null and attempts < max_attempts and run_at <= now()) as waiting,
              count(*) filter (where locked_at is null and attempts >= max_attempts) as failing
         from ${JOBS_SCHEMA}._private_jobs`,
    )
    keepJobs(rows[0]!)
  } catch (error) {
    log.debug({ err: error }, 'jobs could not be counted')
  }
}

/** A job that failed stays in graphile-worker's table for ever. */
async function cleanUp(): Promise<void> {
  await jobs.query(
    `delete from ${JOBS_SCHEMA}._private_jobs where attempts >= max_attempts and locked_at is null`,
  )
}
