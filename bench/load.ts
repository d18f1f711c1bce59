/**
 * Callers, in processes of their own, so that what they cost is seen. A run has a number of callers, each with one call in
 * flight; it warms up and is then measured.
 */
import { fork } from 'node:child_process'
import { on } from 'node:events'
import { extname, join } from 'node:path'
import type { Target } from './keep-alive.ts'
import { SERVICE_FLAGS } from './service.ts'

/** What is called: a service, or a table as anybody would write it (the floor). */
export type Through =
  | ({ readonly kind: 'service' } & Target)
  | { readonly kind: 'table'; readonly url: string }

/** `keyed`: with a request id. `pair`: a Reserve, and the Release of what it gave. `batch`: 100 of them in one call. */
export type Work = 'reserve' | 'keyed' | 'pair' | 'batch'

export type Shape = { readonly warmUpMs: number; readonly measureMs: number }

export type Run = Shape & {
  readonly through: Through
  readonly network: string
  readonly work: Work
  readonly callers: number
}

export type Measured = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** Of the callers' process, in cores. */
  readonly cpu: number
}

/** `batches`: BatchReserves over HTTP/1.1. `process`: to a ledger in the callers' process. */
export type BurstWay = 'http1' | 'http2' | 'batches' | 'process'

/** `count` Reserves at once. */
export type Burst = {
  readonly way: BurstWay
  readonly connections: number
  /** Null, and `url` instead: no service is called. */
  readonly target: Target | null
  readonly url: string
  readonly network: string
  readonly count: number
  readonly withinMs: number
}

export type Bursted = Omit<Measured, 'perSecond'> & { readonly ms: number; readonly mostMb: number }

/** Of a ledger that has nothing in memory yet. */
export type LoadedImage = { readonly ms: number; readonly mostMb: number }

export type ToLoad =
  | { readonly type: 'run'; readonly run: Run }
  | { readonly type: 'burst'; readonly burst: Burst }
  | { readonly type: 'image'; readonly url: string; readonly network: string }
type Answer = Measured | LoadedImage | Bursted
export type FromLoad =
  | { readonly type: 'begun' }
  | { readonly type: 'done'; readonly answer: Answer }
  | { readonly type: 'failed'; readonly message: string }

export type Load = {
  /** `onBegun`: it is warm. */
  run(run: Run, onBegun: () => void): Promise<Measured>
  burst(burst: Burst): Promise<Bursted>
  image(url: string, network: string): Promise<LoadedImage>
  stop(): void
}

export function startLoad(): Load {
  // The package has .js files.
  const child = fork(join(import.meta.dirname, `load-process${extname(import.meta.filename)}`), {
    execArgv: SERVICE_FLAGS,
  })
  async function ask(task: ToLoad, onBegun = () => {}): Promise<Answer> {
    child.send(task)
    for await (const [said] of on(child, 'message', { close: ['exit'] })) {
      const message = said as FromLoad
      if (message.type === 'failed') throw new Error(message.message)
      if (message.type === 'done') return message.answer
      onBegun()
    }
    throw new Error('a process of the bench ended')
  }
  return {
    run: async (run, onBegun) => (await ask({ type: 'run', run }, onBegun)) as Measured,
    burst: async (burst) => (await ask({ type: 'burst', burst })) as Bursted,
    image: async (url, network) => (await ask({ type: 'image', url, network })) as LoadedImage,
    stop: () => child.disconnect(),
  }
}
