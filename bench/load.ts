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

/** `keyed`: with a request id. `pair`: a Reserve, and the Release of what it gave. `batch`: `BATCH` of them in one call. */
export type Work = 'reserve' | 'keyed' | 'pair' | 'batch'
export const BATCH = 100

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

/** Of a ledger that has nothing in memory yet. */
export type LoadedImage = { readonly ms: number; readonly mostMb: number }

export type ToLoad =
  | { readonly type: 'run'; readonly run: Run }
  | { readonly type: 'image'; readonly url: string; readonly network: string }
export type FromLoad =
  | { readonly type: 'begun' }
  | { readonly type: 'done'; readonly answer: Measured | LoadedImage }
  | { readonly type: 'failed'; readonly message: string }

export type Load = {
  /** `onBegun`: it is warm. */
  run(run: Run, onBegun: () => void): Promise<Measured>
  image(url: string, network: string): Promise<LoadedImage>
  stop(): void
}

export function startLoad(): Load {
  // The package has .js files.
  const child = fork(join(import.meta.dirname, `load-process${extname(import.meta.filename)}`), {
    execArgv: SERVICE_FLAGS,
  })
  async function ask(task: ToLoad, onBegun = () => {}): Promise<Measured | LoadedImage> {
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
    image: async (url, network) => (await ask({ type: 'image', url, network })) as LoadedImage,
    stop: () => child.disconnect(),
  }
}
