/**
 * The load generator as the bench sees it: a process of its own that keeps a number of callers busy, each with one
 * call in flight, for a bounded time, and says per interval how many came back and how long they took. One run at a
 * time. Any answer but the expected one ends the run with an error: a rate of failures is not a rate.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Target } from './keep-alive.ts'

export type Place = { readonly network: string; readonly pool: string }

export type Work =
  /** `grpc.health.v1.Health/Check`, which asks nobody: what HTTP, JSON and routing cost. So many calls count as one. */
  | { readonly kind: 'check'; readonly times: number }
  /** One fresh owner after the other. */
  | { readonly kind: 'reserve'; readonly places: readonly Place[] }
  /** Reserve of a server that has no ledger. */
  | { readonly kind: 'echo'; readonly places: readonly Place[] }
  /** Reserve, then Release by lease id. */
  | { readonly kind: 'pair'; readonly places: readonly Place[] }
  /** The same; what counts and is timed is Reserve, so that leases stay as few as callers. */
  | { readonly kind: 'pass'; readonly places: readonly Place[] }
  /** Each caller holds so many leases; it reserves one and releases its oldest. */
  | { readonly kind: 'churn'; readonly places: readonly Place[]; readonly hold: number }
  | { readonly kind: 'batch'; readonly places: readonly Place[]; readonly size: number }
  /** Reserve in a pool that has nothing left. */
  | { readonly kind: 'exhausted'; readonly places: readonly Place[] }
  /** One row, one commit: what the database itself costs. */
  | { readonly kind: 'insert'; readonly url: string }

export type Run = {
  readonly work: Work
  readonly callers: number
  /** Callers are dealt out in turn. */
  readonly targets: readonly Target[]
  /** Begins every owner's name, and makes them those of this run. */
  readonly name: string
  readonly warmUpMs: number
  /** Null: an interval ends when it is cut. */
  readonly intervalMs: number | null
  readonly intervals: number
  /** A run ends early when it has made so many calls. */
  readonly mostCalls: number
}

export type Interval = {
  /** Calls that came back; of pairs and churn, pairs; of batches, batches. */
  readonly count: number
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** Of the generator, in cores. */
  readonly cpu: number
}

export type RunResult = {
  readonly intervals: readonly Interval[]
  /** Leases that were handed out, warm-up included. */
  readonly acknowledged: number
}

export type ToLoad =
  | { readonly type: 'run'; readonly run: Run }
  | { readonly type: 'cut' }
  | { readonly type: 'stop' }
export type FromLoad =
  | { readonly type: 'ready' }
  | { readonly type: 'begun' }
  | { readonly type: 'interval'; readonly interval: Interval }
  | { readonly type: 'done'; readonly acknowledged: number }
  | { readonly type: 'failed'; readonly message: string }

export type Load = {
  readonly pid: number
  run(
    run: Run,
    hear?: { readonly begun?: () => void; readonly interval?: (interval: Interval) => void },
  ): Promise<RunResult>
  /** Ends the interval of a run whose intervals have no length of their own. */
  cut(): void
  stop(): Promise<void>
}

export async function startLoad(signal: AbortSignal): Promise<Load> {
  const child = fork(fileURLToPath(new URL('load-process.ts', import.meta.url)), {
    execArgv: [],
    serialization: 'advanced',
  })
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const abort = () => child.kill('SIGKILL')
  signal.addEventListener('abort', abort, { once: true })
  await hear(child, (message: FromLoad) => (message.type === 'ready' ? { value: undefined } : undefined))
  return {
    pid: child.pid!,
    async run(run, listeners = {}) {
      const intervals: Interval[] = []
      child.send({ type: 'run', run } satisfies ToLoad)
      const acknowledged = await hear(child, (message: FromLoad) => {
        if (message.type === 'begun') listeners.begun?.()
        if (message.type === 'interval') {
          intervals.push(message.interval)
          listeners.interval?.(message.interval)
        }
        if (message.type === 'failed') throw new Error(`${run.name}: ${message.message}`)
        return message.type === 'done' ? { value: message.acknowledged } : undefined
      })
      return { intervals, acknowledged }
    },
    cut() {
      child.send({ type: 'cut' } satisfies ToLoad)
    },
    async stop() {
      signal.removeEventListener('abort', abort)
      if (child.connected) child.send({ type: 'stop' } satisfies ToLoad)
      await exited
    },
  }
}

/** Listens until `take` has what it waits for; rejects when it throws or the process ends. */
export function hear<M, T>(
  child: ChildProcess,
  take: (message: M) => { readonly value: T } | undefined,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => {
      child.off('message', onMessage)
      child.off('exit', onExit)
      settle()
    }
    const onMessage = (message: unknown) => {
      try {
        const taken = take(message as M)
        if (taken !== undefined) end(() => resolve(taken.value))
      } catch (error) {
        end(() => reject(error))
      }
    }
    const onExit = () => end(() => reject(new Error('a process of the bench ended')))
    child.on('message', onMessage)
    child.on('exit', onExit)
  })
}
