/**
 * `grpc.health.v1` and the text of `/healthz` and `/readyz`. gRPC health, also of the empty service name, says what `/readyz` does.
 * Probes need no token, so an answer names no network, host or role.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Code, ConnectError, type ServiceImpl } from '@connectrpc/connect'
import {
  type Health,
  HealthCheckResponse_ServingStatus as Status,
} from '../../gen/grpc/health/v1/health_pb.ts'
import { type Condition, type Reads, ReadsUnavailable } from '../../ledger/reads.ts'
import { INSUFFICIENT_PRIVILEGE } from '../../postgres/connection-lost.ts'

/** The database is asked no more often: probes need no token. */
const FRESH_MS = 1_000
const WATCH_EVERY_MS = 2_000

/** A worker that failed and does not run yet: since when, in milliseconds since 1970. */
export type WorkerTrouble = { readonly since: number }

export type HealthOptions = {
  readonly reads: Pick<Reads, 'condition'>
  readonly services: readonly string[]
  readonly stopping: AbortSignal
  /** Whether the images that are loaded at start are there. By default an image is loaded at first use. */
  readonly loaded?: (() => boolean) | undefined
  /** Null: it runs, or is not of this process. */
  readonly worker?: (() => WorkerTrouble | null) | undefined
}

type Readiness = { readonly ready: boolean; readonly text: string; readonly condition?: Condition }

export class HealthState {
  readonly #options: HealthOptions
  #last: { readonly at: number; readonly readiness: Promise<Readiness> } | undefined
  #failingSince: number | undefined

  constructor(options: HealthOptions) {
    this.#options = options
  }

  async #readiness(): Promise<Readiness> {
    const { reads, loaded } = this.#options
    try {
      const condition = await reads.condition()
      this.#failingSince = undefined
      if (loaded?.() === false)
        return { ready: false, text: 'not ready: it loads the images of its networks' }
      return { ready: true, text: 'ready: the database answers', condition }
    } catch (error) {
      this.#failingSince ??= Date.now()
      return { ready: false, text: `not ready: ${whyNot(error, this.#failingSince)}` }
    }
  }

  #recentReadiness(): Promise<Readiness> {
    const now = performance.now()
    if (this.#last === undefined || now - this.#last.at > FRESH_MS)
      this.#last = { at: now, readiness: this.#readiness() }
    return this.#last.readiness
  }

  async #statusOf(service: string): Promise<Status> {
    const { services, stopping } = this.#options
    if (service !== '' && !services.includes(service)) return Status.SERVICE_UNKNOWN
    if (stopping.aborted) return Status.NOT_SERVING
    return (await this.#recentReadiness()).ready ? Status.SERVING : Status.NOT_SERVING
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

  live(): string {
    return `ipledger is up${this.#options.stopping.aborted ? ' and stopping' : ''}\n${this.#warnings()}`
  }

  async report(): Promise<{ readonly ready: boolean; readonly text: string }> {
    if (this.#options.stopping.aborted)
      return { ready: false, text: 'ipledger is not ready: it is stopping\n' }
    const { ready, text, condition } = await this.#recentReadiness()
    return { ready, text: `ipledger is ${text}\n${this.#warnings(condition)}` }
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

/** A relation, schema or column is missing. */
const NO_TABLES: ReadonlySet<string> = new Set(['42P01', '3F000', '42703'])

function whyNot(error: unknown, since: number): string {
  // A SQLSTATE or a code of the system; a message may name hosts and roles.
  const thrown = error instanceof ReadsUnavailable ? error.cause : error
  const { code = '' }: { readonly code?: string } = Object(thrown)
  const at = `since ${new Date(since).toISOString()}`
  if (NO_TABLES.has(code)) return `the database lacks tables of ipledger ${at}: run ipledger migrate`
  if (code === INSUFFICIENT_PRIVILEGE)
    return `the database refuses its own role what it needs ${at}: run ipledger migrate`
  return `the database does not answer ${at}${code === '' ? '' : ` (${code})`}`
}
