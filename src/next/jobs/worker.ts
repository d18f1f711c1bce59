/**
 * Runs the schedule with graphile-worker, in as many processes as one likes: each slot of a job is run by one of them, beside
 * everything else that its process does.
 *
 * - Every slot is a fresh job without queue or key, tried once: the next slot is its retry. A killed worker's job stays locked
 *   for four hours, and nothing waits for it. Every job is run once right after the start; slots that were missed are not made
 *   up for.
 * - While the database is away the runner may end; it is started again for as long as it takes.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { parseCronItems, type Runner, run, type Task } from 'graphile-worker'
import type pg from 'pg'
import { createPool } from '../postgres/connect.ts'
import { JOBS_SCHEMA, jobsLogger } from '../postgres/migrate.ts'
import type { Logger } from '../telemetry.ts'
import type { JobContext } from './job.ts'
import { createSchedule, type Scheduled } from './schedule.ts'

export type Worker = {
  /** Resolves once the slices that are being worked on are done. */
  stop(): Promise<void>
  /** Null: it runs. Else since when it does not, in milliseconds since 1970. */
  trouble(): { readonly since: number } | null
}

export type WorkerOptions = Pick<JobContext, 'ledger' | 'intake' | 'asked' | 'log' | 'observer'> & {
  /** Of the role that owns graphile-worker's schema and nothing else. */
  readonly jobsUrl: string
  readonly serviceUrl: string
  /** For graphile-worker: two, and one for each job that runs. */
  readonly connections: number
}

/** Jobs that stay hold none while they wait. */
const SERVICE_CONNECTIONS = 4
/** Of the jobs' role: one listens, one schedules. */
const RUNNER_CONNECTIONS = 2
/** Jobs are announced; this is for announcements that got lost. */
const POLL_MS = 5_000
const COUNT_EVERY_MS = 10_000
const RESTART_MS = 2_000
/** A slice takes a fraction of a second; what is not done by then is done by the next run. */
const LONGEST_STOP_MS = 8_000
const CLEAN_UP = 'clean-up'

/** @throws when the first start fails */
export async function startWorker(options: WorkerOptions): Promise<Worker> {
  const { jobsUrl, serviceUrl, connections, log, ledger, intake, asked, observer } = options
  const onLost = (error: Error): void => log.warn({ err: error }, 'a connection of the jobs was lost')
  const named = { applicationName: 'ipledger jobs', onLost }
  const jobs = createPool({ ...named, url: jobsUrl, max: connections })
  const database = createPool({ ...named, url: serviceUrl, max: SERVICE_CONNECTIONS })
  const stopping = new AbortController()
  const { signal } = stopping
  const context: JobContext = { database, ledger, intake, asked, log, observer, signal }
  const schedule = createSchedule()
  const start = () =>
    startRunner(jobs, log, connections, schedule, ([name, one]) => taskOf(context, name, one))
  let trouble: { readonly since: number } | null = null
  let runner = await start()
  const running = keepRunning()
  const counting = setInterval(() => void countJobs(jobs, context), COUNT_EVERY_MS)

  async function keepRunning(): Promise<void> {
    for (;;) {
      const error = await runner.promise.then(
        () => new Error('graphile-worker stopped by itself'),
        (thrown: unknown) => thrown,
      )
      if (signal.aborted) return
      trouble = { since: Date.now() }
      log.error({ err: error }, 'jobs do not run, and are started again')
      for (;;) {
        await delay(RESTART_MS, undefined, { signal }).catch(() => undefined)
        if (signal.aborted) return
        try {
          runner = await start()
          break
        } catch (failure) {
          log.error({ err: failure }, 'jobs cannot be started yet')
        }
      }
      trouble = null
      if (signal.aborted) await runner.stop()
    }
  }

  return {
    async stop() {
      stopping.abort()
      clearInterval(counting)
      // It rejects where the runner has ended by itself.
      const ended = runner.stop().catch(() => undefined)
      await Promise.race([Promise.all([ended, running]), delay(LONGEST_STOP_MS, undefined, { ref: false })])
      await Promise.all([jobs.end(), database.end()])
    },
    trouble: () => trouble,
  }
}

async function startRunner(
  jobs: pg.Pool,
  log: Logger,
  connections: number,
  schedule: ReturnType<typeof createSchedule>,
  task: (scheduled: [string, Scheduled]) => Task,
): Promise<Runner> {
  const entries = Object.entries(schedule)
  const taskList = {
    ...Object.fromEntries(entries.map((one) => [one[0], task(one)])),
    [CLEAN_UP]: () => cleanUp(jobs),
  }
  const slots = (name: string, everyMinutes: number) => ({
    task: name,
    match: ({ min }: { readonly min: number }) => min % everyMinutes === 0,
    options: { maxAttempts: 1 },
  })
  const runner = await run({
    pgPool: forgiving(jobs, log),
    schema: JOBS_SCHEMA,
    logger: jobsLogger(log),
    concurrency: Math.max(1, connections - RUNNER_CONNECTIONS),
    pollInterval: POLL_MS,
    noHandleSignals: true,
    taskList,
    parsedCronItems: parseCronItems([
      ...entries.map(([name, { everyMinutes }]) => slots(name, everyMinutes)),
      slots(CLEAN_UP, 60),
    ]),
  })
  for (const name of Object.keys(taskList)) await runner.addJob(name, {}, { maxAttempts: 1 })
  return runner
}

function taskOf(context: JobContext, name: string, { run: work, stays }: Scheduled): Task {
  const { observer, log } = context
  const observe = observer.run ?? ((_job, run) => run())
  return () =>
    observe(name, async () => {
      const begun = performance.now()
      const done = await work(context)
      const ms = Math.round(performance.now() - begun)
      // Of one that stays it is no time that the work took.
      const fields = { job: name, ...done, ...(stays === true ? { stayedMs: ms } : { ms }) }
      if (Object.values(done).some((count) => count > 0)) log.info(fields, 'job done')
      else log.debug(fields, 'job had nothing to do')
    })
}

/**
 * graphile-worker (0.18) waits for nobody when it says that a job is done, so that a connection that is lost meanwhile is a
 * rejection that nobody handles, which ends the process. Such a failure is said here and goes no further: the job stays locked
 * as if its worker had been killed.
 */
function forgiving(jobs: pg.Pool, log: Logger): pg.Pool {
  const isLast = (text: string): boolean => /^\s*(?:delete from|update|with)\b[^;]*_private_jobs/i.test(text)
  const query = (work: Promise<unknown>, text: string): Promise<unknown> =>
    work.catch((error: unknown) => {
      if (!isLast(text)) throw error
      log.warn({ err: error }, 'the end of a job could not be written down')
      return { rows: [], rowCount: 0 }
    })
  const textOf = (asked: string | { readonly text: string }): string =>
    typeof asked === 'string' ? asked : asked.text
  const connect = async () => {
    const client = await jobs.connect().catch((error: unknown) => ({
      query: () => Promise.reject(error),
      release: () => undefined,
    }))
    return {
      query: (asked: string, values?: unknown[]) =>
        query(client.query(asked, values) as Promise<unknown>, textOf(asked)),
      release: () => client.release(),
    }
  }
  return new Proxy(jobs, {
    get(pool, key) {
      if (key !== 'connect') {
        const value: unknown = Reflect.get(pool, key)
        return typeof value === 'function' ? value.bind(pool) : value
      }
      return (callback?: Parameters<pg.Pool['connect']>[0]) =>
        callback === undefined ? connect() : pool.connect(callback)
    },
  })
}

/** What is to be done and is not begun, and what failed since the last cleaning up. */
async function countJobs(jobs: pg.Pool, { observer, log }: JobContext): Promise<void> {
  if (observer.jobs === undefined) return
  try {
    const { rows } = await jobs.query<{ waiting: number; failing: number }>(
      `select count(*) filter (where locked_at is null and attempts < max_attempts and run_at <= now()) as waiting,
              count(*) filter (where locked_at is null and attempts >= max_attempts) as failing
         from ${JOBS_SCHEMA}._private_jobs`,
    )
    observer.jobs(rows[0]!)
  } catch (error) {
    log.debug({ err: error }, 'jobs could not be counted')
  }
}

/** A job that failed stays in graphile-worker's table for ever. */
async function cleanUp(jobs: pg.Pool): Promise<void> {
  await jobs.query(
    `delete from ${JOBS_SCHEMA}._private_jobs where attempts >= max_attempts and locked_at is null`,
  )
}
