/**
 * Callers, in processes of their own, so that what they cost is seen. A run has a number of callers, each with one call in
 * flight; it warms up and is then measured in intervals.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Target } from './keep-alive.ts'
import { SERVICE_FLAGS } from './service.ts'

/** What is called: a ledger opened in the callers' process, a service, or a table as anybody would write it (the floor). */
export type Through =
  | { readonly kind: 'ledger'; readonly url: string }
  | { readonly kind: 'service'; readonly target: Target }
  | { readonly kind: 'table'; readonly url: string }

export type Work =
  | { readonly kind: 'insert' }
  /** Each with a request id of its own, if `isKeyed`. */
  | { readonly kind: 'reserve'; readonly isKeyed?: boolean }
  /** A Reserve, and the Release of what it gave. */
  | { readonly kind: 'pair' }
  | { readonly kind: 'batch'; readonly size: number }

export type Run = {
  readonly through: Through
  readonly network: string
  readonly work: Work
  readonly callers: number
  /** Begins the name of every owner, and makes them those of this run. */
  readonly name: string
  readonly warmUpMs: number
  readonly intervalMs: number
  readonly intervals: number
}

export type Interval = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** Of this process, in cores. */
  readonly cpu: number
}

/** Of a ledger that has nothing in memory yet. */
export type LoadedImage = { readonly ms: number; readonly records: number; readonly mostMb: number }

export type ToLoad =
  | { readonly type: 'run'; readonly run: Run }
  | { readonly type: 'image'; readonly url: string; readonly network: string }
export type FromLoad =
  | { readonly type: 'begun' }
  | { readonly type: 'interval'; readonly interval: Interval }
  | { readonly type: 'done' }
  | { readonly type: 'image'; readonly image: LoadedImage }
  | { readonly type: 'failed'; readonly message: string }

export type Load = {
  readonly pid: number
  run(run: Run, hear?: (message: FromLoad) => void): Promise<void>
  image(url: string, network: string): Promise<LoadedImage>
  stop(): void
}

export function startLoad(profile?: string): Load {
  const child = fork(fileURLToPath(new URL('load-process.ts', import.meta.url)), {
    execArgv: [
      ...SERVICE_FLAGS,
      ...(profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]),
    ],
    serialization: 'advanced',
  })
  return {
    pid: child.pid!,
    async run(run, hear = () => {}) {
      await ask(child, { type: 'run', run }, (message) => {
        hear(message)
        return message.type === 'done' || undefined
      })
    },
    image: (url, network) =>
      ask(child, { type: 'image', url, network }, (message) =>
        message.type === 'image' ? message.image : undefined,
      ),
    stop: () => child.disconnect(),
  }
}

/** Sends and listens until `take` has what it waits for; rejects when the work fails or the process ends. */
function ask<T>(
  child: ChildProcess,
  message: ToLoad,
  take: (message: FromLoad) => T | undefined,
): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>()
  const onExit = () => reject(new Error('a process of the bench ended'))
  const onMessage = (said: FromLoad) => {
    if (said.type === 'failed') reject(new Error(said.message))
    const taken = take(said)
    if (taken !== undefined) resolve(taken)
  }
  child.on('message', onMessage)
  child.on('exit', onExit)
  child.send(message)
  return promise.finally(() => {
    child.off('message', onMessage)
    child.off('exit', onExit)
  })
}
