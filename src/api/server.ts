/**
 * Two ports. HTTP/1.1: Connect with JSON and binary, gRPC-Web, and the pages for probes. HTTP/2 without TLS (h2c): gRPC
 * and Connect, health with Watch, reflection. With `tls` both speak it, and nothing else.
 *
 * Stopping: no new connections, probes say so, what is in flight is answered and its connection closed, and after
 * `LONGEST_DRAIN_MS` whatever is left is cut.
 */
import * as http from 'node:http'
import type * as http2 from 'node:http2'
import * as https from 'node:https'
import { setTimeout as delay } from 'node:timers/promises'
import type { ConnectRouter } from '@connectrpc/connect'
import type { Config } from '../config.ts'
import { Health } from '../gen/grpc/health/v1/health_pb.ts'
import { createLogLimit } from '../log-limit.ts'
import type { Logger } from '../telemetry.ts'
import { createBodies } from './bodies.ts'
import type { Backend } from './call.ts'
import { createConnectLane } from './connect-lane.ts'
import { type Front, methodsOf, SERVICES } from './dispatch.ts'
import { createHealth, type HealthOptions } from './health.ts'
import { createHttp2Server } from './http2-server.ts'
import { closeServer, createPages, listen, type Pages, page, refuseHost, refuseMethod } from './pages.ts'
import { createPlainLane } from './plain-lane.ts'
import { addReflection } from './reflection.ts'
import { ASKING, keepTls, readTls } from './tls.ts'
import type { Tokens } from './tokens.ts'
import { watchLeases } from './watch.ts'

/** Longer than the pools of callers keep theirs: who closes first must not be the one who is about to be asked. */
const KEEP_ALIVE_MS = 65_000
/** Connections of gRPC are few and kept for long. */
const HTTP2_IDLE_MS = 300_000
const HEADERS_WITHIN_MS = 10_000
const REQUEST_WITHIN_MS = 60_000
const HEADER_BYTES = 16 * 1024
const LONGEST_DRAIN_MS = 15_000
const TAKEN_WITHIN_MS = 30_000

type Asking = Pick<http.IncomingMessage, 'url' | 'method'> | http2.Http2ServerRequest
type Answering = http.ServerResponse | http2.Http2ServerResponse

export type RunningServer = Awaited<ReturnType<typeof startServer>>

/** @throws StartRefused when a port cannot be had */
export async function startServer(
  options: Backend & {
    readonly tokens: Tokens
    readonly config: Pick<Config, 'host' | 'port' | 'grpcPort' | 'deadlineMs'> & Partial<Pick<Config, 'tls'>>
    readonly logger: Logger
    /** What Prometheus reads; by default nobody asked for it. */
    readonly metrics?: Pages['metrics']
    /** A caller of a stream that takes nothing for so long is cut off. */
    readonly takenWithinMs?: number
  } & Pick<HealthOptions, 'worker' | 'loaded'>,
) {
  const { reads, tokens, config, logger: log, metrics = null, worker, loaded } = options
  const stopping = new AbortController()
  const health = createHealth({
    look: () => reads.condition(),
    services: SERVICES.map(({ typeName }) => typeName),
    stopping: stopping.signal,
    worker,
    loaded,
  })
  const answerPage = createPages({ health, tokens, metrics, log })
  const watch = watchLeases(options)
  const front: Front = {
    methods: methodsOf(options),
    streams: [watch],
    stopping: stopping.signal,
    takenWithinMs: options.takenWithinMs ?? TAKEN_WITHIN_MS,
    tokens,
    countFor: createBodies(),
    logLimit: createLogLimit(),
    defaultDeadlineMs: config.deadlineMs,
    log,
  }
  /** Answers that are owed. Streams are not: they end when the server stops. */
  const owed = new Set<object>()

  const open = (router: ConnectRouter) => {
    router.service(Health, health.service)
    addReflection(router, [...SERVICES, Health])
  }
  const plain = createPlainLane(front, () => stopping.signal.aborted)
  const overHttp1 = createConnectLane(front, { grpc: false }, open)
  const overHttp2 = createConnectLane(front, { grpc: true }, open)
  const unary = new Set(front.methods.map(({ path }) => path))
  const isRefused = ({ url, method }: Asking, host: string | undefined, response: Answering): boolean =>
    (tokens.everyoneIsAdmin && refuseHost(host, response)) ||
    (unary.has(url!) && method !== 'POST' && refuseMethod(response, 'POST'))

  const tls = config.tls && { ...readTls(config.tls), ...ASKING }
  const settings = {
    noDelay: true,
    keepAlive: true,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: HEADERS_WITHIN_MS,
    requestTimeout: REQUEST_WITHIN_MS,
    maxHeaderSize: HEADER_BYTES,
  }
  const httpServer =
    tls === undefined ? http.createServer(settings) : https.createServer({ ...settings, ...tls })
  httpServer.on('request', (request: http.IncomingMessage, response: http.ServerResponse) => {
    if (isRefused(request, request.headers.host, response)) return
    if (unary.has(request.url!)) {
      owed.add(response)
      response.once('close', () => owed.delete(response))
    }
    if (plain(request, response) || overHttp1(request, response)) return
    void answerPage(request, response)
  })
  const { server: grpcServer, sessions } = createHttp2Server(
    (request, response) => {
      if (isRefused(request, request.authority, response)) return
      const { stream } = response
      if (unary.has(request.url)) {
        owed.add(stream)
        // A caller may go on sending what nobody reads; it has its answer.
        for (const event of ['finish', 'close']) stream.once(event, () => owed.delete(stream))
      }
      if (!overHttp2(request, response)) page(response, 404, 'there is no such method\n')
    },
    { requestWithinMs: REQUEST_WITHIN_MS, idleMs: HTTP2_IDLE_MS },
    log,
    tls,
  )
  const forget = config.tls && keepTls(config.tls, [httpServer, grpcServer], log)

  const httpPort = await listen(httpServer, config.host, config.port, 'IPLEDGER_PORT')
  let grpcPort: number
  try {
    grpcPort = await listen(grpcServer, config.host, config.grpcPort, 'IPLEDGER_GRPC_PORT')
  } catch (error) {
    httpServer.close()
    throw error
  }
  if (tokens.everyoneIsAdmin) {
    log.warn({ host: config.host }, 'without a token file every caller on this machine is admin')
  }

  let closed: Promise<void> | undefined
  async function drain(): Promise<void> {
    stopping.abort()
    forget?.()
    const ended = Promise.all([closeServer(httpServer), closeServer(grpcServer)])
    for (const session of sessions) session.close()
    const late = AbortSignal.timeout(LONGEST_DRAIN_MS)
    while (owed.size > 0 && !late.aborted) {
      httpServer.closeIdleConnections()
      await delay(20)
    }
    // A turn for the last answers to reach their sockets; connections without a request are idle and go at once.
    await delay(10)
    httpServer.closeAllConnections()
    for (const session of sessions) session.destroy()
    await ended
  }

  return {
    httpPort,
    grpcPort,
    watches: watch.watches,
    close: (): Promise<void> => {
      closed ??= drain()
      return closed
    },
  }
}
