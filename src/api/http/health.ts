/**
 * Is it up, and can it do its work? `grpc.health.v1` and, in words, the two pages for probes.
 *
 * `/healthz` is about the process: it runs and is not stopping. `/readyz` and gRPC health, also of the empty service name,
 * are about what it serves with: the database answers, has its tables, and at start the images are loaded. An orchestrator
 * that restarts what is not live asks `/healthz`, so that it does not restart ipledger because the database is away.
 *
 * Anybody may ask, so no name of a network, a host or a role is told.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Code, ConnectError, type ServiceImpl } from '@connectrpc/connect'
import {
  type Health,
  HealthCheckResponse_ServingStatus as Status,
} from '../../gen/grpc/health/v1/health_pb.ts'
import { type Condition, ReadsUnavailable } from '../../ledger/reads.ts'

/** An answer of the database stands for this long: probes come from anybody. */
const FRESH_MS = 1_000
const WATCH_EVERY_MS = 2_000

/** A worker that failed and does not run yet: since when, in milliseconds since 1970. */
export type WorkerTrouble = { readonly since: number }

export type HealthOptions = {
  readonly look: () => Promise<Condition>
  readonly services: readonly string[]
  readonly stopping: AbortSignal
  /** The images of networks that were there at start are loaded. By default they are loaded at first use. */
  readonly loaded?: (() => boolean) | undefined
  /** Null: it runs, or is not ours. */
  readonly worker?: (() => WorkerTrouble | null) | undefined
}

type Looked = { readonly ready: boolean; readonly words: string; readonly condition?: Condition }

export class HealthState {
  readonly #options: HealthOptions
  #last: { readonly at: number; readonly looked: Promise<Looked> } | undefined
  #failingSince: number | undefined

  constructor(options: HealthOptions) {
    this.#options = options
  }

  async #look(): Promise<Looked> {
    const { look, loaded } = this.#options
    try {
      const condition = await look()
      this.#failingSince = undefined
      if (loaded?.() === false)
        return { ready: false, words: 'not ready: it loads the images of its networks' }
      return { ready: true, words: 'ready: the database answers', condition }
    } catch (error) {
      this.#failingSince ??= Date.now()
      return { ready: false, words: `not ready: ${whyNot(error, this.#failingSince)}` }
    }
  }

  #recently(): Promise<Looked> {
    const now = performance.now()
    if (this.#last === undefined || now - this.#last.at > FRESH_MS)
      this.#last = { at: now, looked: this.#look() }
    return this.#last.looked
  }

  async #statusOf(service: string): Promise<Status> {
    const { services, stopping } = this.#options
    if (service !== '' && !services.includes(service)) return Status.SERVICE_UNKNOWN
    if (stopping.aborted) return Status.NOT_SERVING
    return (await this.#recently()).ready ? Status.SERVING : Status.NOT_SERVING
  }

  #warnings({ recovering, held }: Partial<Condition> = {}): string {
    const trouble = this.#options.worker?.()
    const all = [
      recovering && `${networks(recovering)} RECOVERING, with nothing handed out: ipledger attention`,
      held && `${networks(held)} held: ipledger attention`,
      trouble &&
        `the worker failed at ${new Date(trouble.since).toISOString()} and is started again: the log says why`,
    ]
    return all.map((warning) => (warning ? `warning: ${warning}\n` : '')).join('')
  }

  /** The page for "is it up?" */
  live(): string {
    return `ipledger is up${this.#options.stopping.aborted ? ' and stopping' : ''}\n${this.#warnings()}`
  }

  /** The page for "can it do its work?" */
  async report(): Promise<{ readonly ready: boolean; readonly words: string }> {
    if (this.#options.stopping.aborted)
      return { ready: false, words: 'ipledger is not ready: it is stopping\n' }
    const { ready, words, condition } = await this.#recently()
    return { ready, words: `ipledger is ${words}\n${this.#warnings(condition)}` }
  }

  /** `List` is unimplemented. */
  readonly service: Pick<ServiceImpl<typeof Health>, 'check' | 'watch'> = {
    check: async ({ service }) => {
      const status = await this.#statusOf(service)
      if (status !== Status.SERVICE_UNKNOWN) return { status }
      throw new ConnectError('there is no such service', Code.NotFound)
    },
    watch: ({ service }, { signal }) => this.#watch(service, signal),
  }

  async *#watch(service: string, signal: AbortSignal): AsyncGenerator<{ readonly status: Status }> {
    const { stopping } = this.#options
    const until = AbortSignal.any([signal, stopping])
    let last: Status | undefined
    while (!signal.aborted) {
      const status = await this.#statusOf(service)
      if (status !== last) yield { status }
      last = status
      if (stopping.aborted) return
      await delay(WATCH_EVERY_MS, undefined, { signal: until }).catch(() => {})
    }
  }
}

function networks(count: number): string {
  return `${count} ${count === 1 ? 'network is' : 'networks are'}`
}

/** Relations, schemas, columns that are not there. */
const NO_TABLES: ReadonlySet<string> = new Set(['42P01', '3F000', '42703'])
const NOT_ALLOWED = '42501'

function whyNot(error: unknown, since: number): string {
  const code = codeOf(error instanceof ReadsUnavailable ? error.cause : error)
  const at = `since ${new Date(since).toISOString()}`
  if (NO_TABLES.has(code)) return `the database lacks tables of ipledger ${at}: run ipledger migrate`
  if (code === NOT_ALLOWED)
    return `the database refuses its own role what it needs ${at}: run ipledger migrate`
  return `the database does not answer ${at}${code === '' ? '' : ` (${code})`}`
}

/** A SQLSTATE or a code of the system; no message, which may name hosts and roles. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return ''
  if (error instanceof AggregateError) return codeOf(error.errors[0])
  return 'code' in error && typeof error.code === 'string' ? error.code : ''
}
