/**
 * What reports, as the bench sees it: a process of its own with one source that lists many pods, or with many agents
 * that list few each. It is asked one thing at a time, and sends what a source would: a begin, the entries in chunks of
 * what fits a request, one after the other, or that nothing changed. Entries and digests are made before the clock
 * starts: what a source spends on them is its own. A report that is not taken as it was meant is an error.
 */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Target } from './keep-alive.ts'
import { hear, type Place } from './load.ts'

/** Those that `history.ts` has written, by their number. */
export type Pods = { readonly from: number; readonly count: number; readonly nodes: number }

export type SourcesTask =
  /** Registers and enables one, for the whole network; the reports that follow are its own. */
  | { readonly type: 'declare'; readonly source: string; readonly intervalMs: number }
  /** What it sees from now on. */
  | { readonly type: 'list'; readonly pods: Pods }
  | { readonly type: 'report'; readonly how: 'entries' | 'unchanged' }
  /** What an orchestrator does about pods that have ended. */
  | { readonly type: 'release'; readonly pods: Pods }
  | { readonly type: 'retire' }
  /** An agent on each node, that lists the pods of its node; its first report is made. */
  | { readonly type: 'enrol'; readonly nodes: number; readonly podsEach: number; readonly intervalMs: number }
  /** Registers and enables them anew, with another interval. */
  | { readonly type: 'redeclare'; readonly intervalMs: number }
  /** Each agent says so often that its set is unchanged; evenly dealt out over the interval. */
  | { readonly type: 'pace'; readonly intervalMs: number; readonly intervals: number }

export type Told = {
  /** From the first chunk sent to the answer of the last. */
  readonly ms: number
  readonly requests: number
  readonly bytes: number
  readonly counted: boolean
}

export type Paced = {
  readonly reports: number
  /** Due when the one before had not come back: left out. */
  readonly late: number
  readonly lastedMs: number
  /** Of a report; its begin came with the answer to the one before. */
  readonly p50: number
  readonly p99: number
  /** Of the process, in cores. */
  readonly cpu: number
}

export type Answers = {
  readonly declare: null
  readonly list: null
  readonly report: Told
  readonly release: null
  readonly retire: null
  readonly enrol: null
  readonly redeclare: null
  readonly pace: Paced
}

export type ToSources =
  | { readonly type: 'open'; readonly target: Target; readonly place: Place }
  | { readonly type: 'task'; readonly task: SourcesTask }
  | { readonly type: 'stop' }
export type FromSources =
  | { readonly type: 'ready' }
  | { readonly type: 'done'; readonly answer: Answers[keyof Answers] }
  | { readonly type: 'failed'; readonly message: string }

export type Sources = {
  ask<T extends SourcesTask['type']>(task: Extract<SourcesTask, { type: T }>): Promise<Answers[T]>
  stop(): Promise<void>
}

export async function startSources(target: Target, place: Place, signal: AbortSignal): Promise<Sources> {
  const child = fork(fileURLToPath(new URL('sources-process.ts', import.meta.url)), {
    execArgv: [],
    serialization: 'advanced',
  })
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const abort = () => child.kill('SIGKILL')
  signal.addEventListener('abort', abort, { once: true })
  const answered = (what: string) =>
    hear(child, (message: FromSources) => {
      if (message.type === 'failed') throw new Error(`${what}: ${message.message}`)
      return message.type === 'done' ? { value: message.answer } : undefined
    })
  await hear(child, (message: FromSources) => (message.type === 'ready' ? { value: undefined } : undefined))
  child.send({ type: 'open', target, place } satisfies ToSources)
  return {
    async ask<T extends SourcesTask['type']>(task: Extract<SourcesTask, { type: T }>) {
      signal.throwIfAborted()
      child.send({ type: 'task', task } satisfies ToSources)
      return (await answered(task.type)) as Answers[T]
    },
    async stop() {
      signal.removeEventListener('abort', abort)
      if (child.connected) child.send({ type: 'stop' } satisfies ToSources)
      await exited
    },
  }
}
