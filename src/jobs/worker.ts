/**
 * Runs the schedule with graphile-worker, in any number of processes: each slot of a job is run by one of them, beside everything
 * else that its process does.
 *
 * - Every slot is a fresh job without queue or key, tried once: the next slot is its retry. A killed worker's job stays locked
 *   for four hours, and nothing waits for it. Every job is run once right after the start; slots that were missed are not made
 *   up for.
 * - The runner outlives a database that is away. A newer graphile-worker, which changed its schema, ends it: then this process
 *   runs no jobs until it is started anew.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Runner, run } from 'graphile-worker'
import type pg from 'pg'
import { COUNT_JOBS, DELETE_FAILED } from '../ledger/sql/jobs.ts'
import { JOBS_SCHEMA, jobsLogger } from '../postgres/migrate.ts'
import { type Logger, onJob, recordJobs } from '../telemetry.ts'
import type { Job, JobContext } from './job.ts'
import { createSchedule, type Schedule } from './schedule.ts'

type WorkerOptions = Omit<JobContext, 'signal'> & {
  /** Of the role that owns graphile-worker's schema and nothing else: two, and one for each job that runs. */
  readonly jobs: pg.Pool
  readonly schedule?: Schedule
}

/** Of the jobs' role: one listens, one schedules. */
const RUNNER_CONNECTIONS = 2
/** Jobs are announced; this is for announcements that do not arrive. */
const POLL_MS = 5_000
const COUNT_EVERY_MS = 10_000
/** A slice takes a fraction of a second; what is not done by then is done by the next run. */
const LONGEST_STOP_MS = 8_000
const CLEAN_UP = 'clean-up'

export class Worker {
  readonly #stopping = new AbortController()
  #runner: Runner | undefined
  #counting: NodeJS.Timeout | undefined
  #trouble: { readonly since: number } | null = null

  /** Null: it runs. Else since when it does not, in milliseconds since 1970. */
  readonly trouble = () => this.#trouble

  /** The pools stay the caller's, to be closed after the worker. @throws when the first start fails */
  async start({ jobs, schedule = createSchedule(), ...given }: WorkerOptions): Promise<this> {
    const context: JobContext = { ...given, signal: this.#stopping.signal }
    this.#runner = await startRunner(jobs, context, schedule)
    const onEnd = (err?: unknown): void => {
      if (context.signal.aborted) return
      this.#trouble = { since: Date.now() }
      context.log.error({ err }, 'graphile-worker stopped: this process runs no jobs; start it anew')
    }
    this.#runner.promise.then(() => onEnd(), onEnd)
    this.#counting = setInterval(() => void countJobs(jobs, context), COUNT_EVERY_MS)
    return this
  }

  /** Resolves once the slices that are being worked on are done. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    clearInterval(this.#counting)
    const stopped = Promise.allSettled([this.#runner?.stop(), this.#runner?.promise])
    await Promise.race([stopped, delay(LONGEST_STOP_MS, undefined, { ref: false })])
  }
}

async function startRunner(jobs: pg.Pool, context: JobContext, schedule: Schedule): Promise<Runner> {
  const { log } = context
  const runs = Object.entries(schedule)
  const tasks = runs.map(([name, one]) => [name, () => onJob(name, () => runJob(context, name, one.run))])
  const cleanUp = async () => void (await jobs.query(DELETE_FAILED))
  const taskList = { ...Object.fromEntries(tasks), [CLEAN_UP]: cleanUp }
  const slots = runs.map(([name, { everyMinutes }]) => `*/${everyMinutes} * * * * ${name} ?max=1`)
  const runner = await run({
    pgPool: ignoreCompletionErrors(jobs, log),
    schema: JOBS_SCHEMA,
    logger: jobsLogger(log),
    concurrency: Math.max(1, jobs.options.max - RUNNER_CONNECTIONS),
    pollInterval: POLL_MS,
    noHandleSignals: true,
    taskList,
    crontab: [...slots, `0 * * * * ${CLEAN_UP} ?max=1`].join('\n'),
  })
  for (const name of Object.keys(taskList)) {
    await runner
      .addJob(name, {}, { maxAttempts: 1 })
      .catch((err: unknown) => log.warn({ err, job: name }, 'a job waits for its first slot'))
  }
  return runner
}

async function runJob(context: JobContext, name: string, work: Job): Promise<void> {
  const { log } = context
  const begun = performance.now()
  const done = await work(context)
  const fields = { job: name, ...done, ms: Math.round(performance.now() - begun) }
  if (Object.values(done).some((count) => count > 0)) log.info(fields, 'job done')
  else log.debug(fields, 'job had nothing to do')
}

/**
 * graphile-worker (0.18) does not wait when it marks a job as done, so a connection that breaks meanwhile is an unhandled
 * rejection, which ends the process. Such a failure is only logged: the job stays locked as if its worker had been killed.
 */
function ignoreCompletionErrors(jobs: pg.Pool, log: Logger): pg.Pool {
  type Query = { readonly name?: string }
  const ignore = (query: Query) => (error: unknown) => {
    if (!/^(?:complete|fail)_job\//.test(query.name ?? '')) throw error
    log.warn({ err: error }, 'the end of a job could not be written down')
    return { rows: [], rowCount: 0 }
  }
  const connect = async () => {
    const failing = (error: unknown) => ({ query: () => Promise.reject(error), release: () => undefined })
    const client = (await jobs.connect().catch(failing)) as pg.PoolClient
    const query = (query: Query, values?: unknown[]) =>
      client.query(query as pg.QueryConfig, values).catch(ignore(query))
    return { query, release: () => client.release() }
  }
  return new Proxy(jobs, {
    get(pool, key) {
      if (key === 'connect')
        return (callback?: Parameters<pg.Pool['connect']>[0]) =>
          callback ? pool.connect(callback) : connect()
      const value: unknown = Reflect.get(pool, key)
      return typeof value === 'function' ? value.bind(pool) : value
    },
  })
}

/** Jobs that are due and not begun, and jobs that failed since the last clean-up. */
async function countJobs(jobs: pg.Pool, { log }: JobContext): Promise<void> {
  try {
    const { rows } = await jobs.query<{ waiting: number; failing: number }>(COUNT_JOBS)
    recordJobs(rows[0]!)
  } catch (error) {
    log.debug({ err: error }, 'jobs could not be counted')
  }
}
