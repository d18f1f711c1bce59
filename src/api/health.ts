/**
 * Is it up, and can it do its work? `grpc.health.v1` and the two pages for probes.
 *
 * The empty service name and `/healthz` are about the process: it runs and is not stopping. A named service and
 * `/readyz` are about what it serves with: the database answers too. An orchestrator that restarts what is not live
 * must not do so because a database is away.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Code, ConnectError, type HandlerContext } from '@connectrpc/connect'
import {
  type Health,
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthCheckResponse_ServingStatus as Status,
} from '../gen/grpc/health/v1/health_pb.ts'
import type { Handlers } from './call.ts'

/** An answer of the database stands for this long: probes come from anybody. */
const FRESH_MS = 1_000
const WATCH_EVERY_MS = 2_000

export type HealthState = {
  /** False also while stopping. */
  ready(): Promise<boolean>
  readonly handlers: Pick<Handlers<typeof Health>, 'check' | 'list'>
  watch(request: HealthCheckRequest, context: HandlerContext): AsyncIterable<HealthCheckResponse>
}

export function createHealth(options: {
  readonly ping: () => Promise<void>
  readonly services: readonly string[]
  readonly stopping: AbortSignal
}): HealthState {
  const { ping, services, stopping } = options
  let asked = { at: Number.NEGATIVE_INFINITY, answer: Promise.resolve(false) }

  async function ready(): Promise<boolean> {
    if (stopping.aborted) return false
    if (performance.now() - asked.at > FRESH_MS) {
      asked = {
        at: performance.now(),
        answer: ping().then(
          () => true,
          () => false,
        ),
      }
    }
    return asked.answer
  }

  async function statusOf(service: string): Promise<Status> {
    if (service !== '' && !services.includes(service)) return Status.SERVICE_UNKNOWN
    if (stopping.aborted) return Status.NOT_SERVING
    return service === '' || (await ready()) ? Status.SERVING : Status.NOT_SERVING
  }

  return {
    ready,
    handlers: {
      check: async ({ service }) => {
        const status = await statusOf(service)
        if (status === Status.SERVICE_UNKNOWN)
          throw new ConnectError('there is no such service', Code.NotFound)
        return message(status)
      },
      list: async () => ({
        $typeName: 'grpc.health.v1.HealthListResponse',
        statuses: Object.fromEntries(
          await Promise.all(
            ['', ...services].map(async (name) => [name, message(await statusOf(name))] as const),
          ),
        ),
      }),
    },
    async *watch({ service }, { signal }) {
      const until = AbortSignal.any([signal, stopping])
      let last: Status | undefined
      while (!signal.aborted) {
        const status = await statusOf(service)
        if (status !== last) yield message(status)
        last = status
        if (stopping.aborted) return
        await delay(WATCH_EVERY_MS, undefined, { signal: until }).catch(() => {})
      }
    },
  }
}

function message(status: Status): HealthCheckResponse {
  return { $typeName: 'grpc.health.v1.HealthCheckResponse', status }
}
