/**
 * Runs the schedule with graphile-worker, in as many processes as one likes: each slot of a job is run by one of them.
 *
 * It runs in a thread of its own, with a ledger of its own. A connection that is lost while graphile-worker says that
 * a job is done is a rejection nobody handles (0.18), and its remedy, batching, can leave a shutdown hanging; so that
 * neither ends the service, the thread ends and another is started, for as long as the database is away. Nor do jobs
 * hold up the service's event loop.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { Worker as Thread } from 'node:worker_threads'
import type { Config } from '../config.ts'
import { readSourceSecrets, type SourceSecrets } from '../liveness/asked.ts'
import { addMeasurements, type Logger, type Measurements } from '../telemetry.ts'

export type Worker = Readonly<{
  /** Resolves once the slices that are being worked on are done. */
  stop: () => Promise<void>
  /** Null: it runs. Else since when it does not, in milliseconds since 1970. */
  trouble: () => { readonly since: number } | null
}>

export type WorkerOptions = Readonly<{
  /** Of the role that owns graphile-worker's schema and nothing else. */
  jobsUrl: string
  serviceUrl: string
  config: Pick<
    Config,
    | 'jobConnections'
    | 'logLevel'
    | 'batchLeases'
    | 'maxQueuedCommands'
    | 'deadlineMs'
    | 'commitsAreNeverLost'
    | 'sourceSecretsFile'
    | 'telemetry'
  >
  log: Logger
}>

/** What the thread is given. */
export type WorkerInput = Omit<WorkerOptions, 'log' | 'config'> & {
  readonly config: Omit<WorkerOptions['config'], 'sourceSecretsFile'>
  readonly secrets: SourceSecrets
}

const RESTART_MS = 2_000
/** As `serviceFlags` of package.json give the service's own thread: three semi-spaces of 8 MB (ops/decisions/0020). */
const YOUNG_GENERATION_MB = 24
/** A slice takes a fraction of a second; what is not done by then is done by the next run. */
const LONGEST_STOP_MS = 8_000

/** @throws when the first start fails, or StartRefused when the secrets of sources cannot be read; later it is started again for as long as it takes */
export async function startWorker(options: WorkerOptions): Promise<Worker> {
  const { jobsUrl, serviceUrl, config, log } = options
  const { jobConnections, logLevel, batchLeases, maxQueuedCommands, deadlineMs, commitsAreNeverLost } = config
  const { telemetry } = config
  const input: WorkerInput = {
    jobsUrl,
    serviceUrl,
    config: {
      jobConnections,
      logLevel,
      batchLeases,
      maxQueuedCommands,
      deadlineMs,
      commitsAreNeverLost,
      telemetry,
    },
    secrets: readSourceSecrets(config.sourceSecretsFile),
  }
  const stopping = new AbortController()
  let thread = await startThread(input)
  let trouble: { readonly since: number } | null = null
  const running = keepRunning()

  async function keepRunning(): Promise<void> {
    for (;;) {
      const error = await thread.ended
      if (stopping.signal.aborted) return
      trouble = { since: Date.now() }
      log.error({ err: error }, 'the worker failed and is started again')
      while (!(await startAgain())) if (stopping.signal.aborted) return
    }
  }

  async function startAgain(): Promise<boolean> {
    try {
      await delay(RESTART_MS, undefined, { signal: stopping.signal })
      thread = await startThread(input)
      trouble = null
      if (stopping.signal.aborted) await thread.stop()
      return true
    } catch (error) {
      if (!stopping.signal.aborted) log.error({ err: error }, 'the worker cannot start yet')
      return false
    }
  }

  return {
    stop: async () => {
      stopping.abort()
      await thread.stop()
      await running
    },
    trouble: () => trouble,
  }
}

/** What the thread says: once that it runs, and each second what it counted. */
export type FromThread = { readonly started: true } | { readonly measured: Measurements }

type RunningThread = Readonly<{
  /** Resolves with what ended it, never rejects. */
  ended: Promise<unknown>
  stop: () => Promise<void>
}>

async function startThread(input: WorkerInput): Promise<RunningThread> {
  const thread = new Thread(new URL('./worker-thread.ts', import.meta.url), {
    workerData: input,
    name: 'ipledger worker',
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
  })
  // Not events.once: that rejects on 'error', and both are waited for while nobody looks.
  let failure: unknown
  thread.on('error', (error) => {
    failure = error
  })
  const ended = new Promise<unknown>((resolve) => {
    thread.once('exit', (code) => resolve(failure ?? new Error(`the thread ended with code ${code}`)))
  })
  const started = new Promise<true>((resolve) => {
    thread.on('message', (said: FromThread) => {
      if ('measured' in said) addMeasurements(said.measured)
      else resolve(true)
    })
  })
  const outcome = await Promise.race([started, ended])
  if (outcome !== true) throw outcome
  return {
    ended,
    stop: async () => {
      thread.postMessage('stop')
      const late = setTimeout(() => void thread.terminate(), LONGEST_STOP_MS)
      await ended
      clearTimeout(late)
    },
  }
}
