/**
 * Two ports. HTTP/1.1: Connect with JSON and binary, gRPC-Web, and the pages for probes. HTTP/2 without TLS (h2c): gRPC
 * and Connect, health with Watch, reflection. With `tls` both speak it, and nothing else.
 *
 * Stopping: no new connections, probes say so, what is in flight is answered and its connection closed, and after
 * `LONGEST_DRAIN_MS` whatever is left is cut; streams, whose caller may take nothing, after `STREAMS_DRAIN_MS`.
 */
import * as http from 'node:http'
import type * as http2 from 'node:http2'
import * as https from 'node:https'
import { setTimeout as delay } from 'node:timers/promises'
import type { Config } from '../../config.ts'
import { Health } from '../../gen/grpc/health/v1/health_pb.ts'
import type { Logger } from '../../telemetry.ts'
import { WatchLeases } from '../handlers/watch-leases.ts'
import type { Backend } from '../method.ts'
import { METHODS, RpcServer, SERVICES } from '../rpc-server.ts'
import type { Tokens } from '../tokens.ts'
import { Admission } from './admission.ts'
import { ConnectRpc } from './connect-rpc.ts'
import { type HealthOptions, HealthState } from './health.ts'
import { createHttp2Server } from './http2-server.ts'
import {
  closeServer,
  createPages,
  listen,
  type Pages,
  refuseHost,
  refuseMethod,
  refusePath,
} from './pages.ts'
import { addReflection } from './reflection.ts'
import { RequestBytes } from './request-bytes.ts'
import { keepTls, readTls } from './tls.ts'
import { UnaryHttp } from './unary-http.ts'

/** Longer than callers' pools keep connections, so that the server does not close one on which a request is about to come. */
const KEEP_ALIVE_MS = 65_000
/** Connections of gRPC are few and kept for long. */
const HTTP2_IDLE_MS = 300_000
const HEADERS_WITHIN_MS = 10_000
const REQUEST_WITHIN_MS = 60_000
const HEADER_BYTES = 16 * 1024
const LONGEST_DRAIN_MS = 15_000
/** A watch that reads from the database ends after its read. */
const STREAMS_DRAIN_MS = 1_000
const TAKEN_WITHIN_MS = 30_000
const HTTP1 = {
  noDelay: true,
  keepAlive: true,
  keepAliveTimeout: KEEP_ALIVE_MS,
  headersTimeout: HEADERS_WITHIN_MS,
  requestTimeout: REQUEST_WITHIN_MS,
  maxHeaderSize: HEADER_BYTES,
}

type Options = Backend & {
  readonly tokens: Tokens
  readonly config: Pick<Config, 'host' | 'port' | 'grpcPort' | 'deadlineMs'> & Partial<Pick<Config, 'tls'>>
  readonly logger: Logger
  /** What Prometheus reads; by default off. */
  readonly metrics?: Pages['metrics']
  /** A caller of a stream that takes nothing for so long is cut off. */
  readonly takenWithinMs?: number
  readonly callsInFlight?: number
  readonly mostWatches?: number
} & Pick<HealthOptions, 'worker' | 'loaded'>

export class ApiServer {
  readonly watches: () => number
  readonly #options: Options
  readonly #stopping = new AbortController()
  readonly #admission: Admission
  readonly #unary: UnaryHttp
  readonly #overHttp1: ConnectRpc
  readonly #overHttp2: ConnectRpc
  readonly #answerPage: ReturnType<typeof createPages>
  readonly #http1: http.Server | https.Server
  readonly #http2: ReturnType<typeof createHttp2Server>
  /** Answers that are owed, and streams and pages: these end when the server stops. */
  readonly #owed = new Set<object>()
  readonly #ending = new Set<object>()
  readonly #forgetTls: (() => void) | undefined
  #httpPort = 0
  #grpcPort = 0
  #closed: Promise<void> | undefined

  private constructor(options: Options) {
    const { reads, tokens, config, logger: log, metrics = null, worker, loaded } = options
    const { takenWithinMs = TAKEN_WITHIN_MS } = options
    const stopping = this.#stopping.signal
    const services = SERVICES.map(({ typeName }) => typeName)
    const health = new HealthState({ reads, services, stopping, worker, loaded })
    const admission = new Admission(options.callsInFlight)
    const bytes = new RequestBytes()
    const rpc = new RpcServer({ backend: options, tokens, admission, deadlineMs: config.deadlineMs, log })
    const watch = new WatchLeases(options)
    const connect = (grpc: boolean) =>
      new ConnectRpc({ rpc, bytes, stopping, takenWithinMs, log }, { grpc }, [watch], (router) => {
        router.service(Health, health.service)
        addReflection(router, [...SERVICES, Health])
      })
    const tls = config.tls && {
      ...readTls(config.tls),
      requestCert: true,
      rejectUnauthorized: config.tls.clientRequired,
    }
    this.watches = watch.watches
    this.#options = options
    this.#admission = admission
    this.#overHttp1 = connect(false)
    this.#unary = new UnaryHttp({ rpc, bytes, stopping, library: this.#overHttp1 })
    this.#overHttp2 = connect(true)
    this.#answerPage = createPages({ health, tokens, metrics, log })
    this.#http1 = tls === undefined ? http.createServer(HTTP1) : https.createServer({ ...HTTP1, ...tls })
    this.#http1.on('request', this.#onHttp1)
    const limits = { requestWithinMs: REQUEST_WITHIN_MS, idleMs: HTTP2_IDLE_MS }
    this.#http2 = createHttp2Server(this.#onHttp2, limits, log, admission, tls)
    this.#forgetTls = config.tls && keepTls(config.tls, [this.#http1, this.#http2.server], log)
  }

  /** @throws StartRefused when a port cannot be had */
  static async start(options: Options): Promise<ApiServer> {
    const server = new ApiServer(options)
    const { config, tokens, logger: log } = options
    const { host, port, grpcPort } = config
    server.#httpPort = await listen(server.#http1, host, port, 'IPLEDGER_PORT')
    try {
      server.#grpcPort = await listen(server.#http2.server, host, grpcPort, 'IPLEDGER_GRPC_PORT')
    } catch (error) {
      server.#http1.close()
      throw error
    }
    if (tokens.everyoneIsAdmin)
      log.warn({ host }, 'without a token file every caller on this machine is admin')
    return server
  }

  get httpPort(): number {
    return this.#httpPort
  }

  get grpcPort(): number {
    return this.#grpcPort
  }

  readonly #onHttp1 = (request: http.IncomingMessage, response: http.ServerResponse): void => {
    if (this.#options.tokens.everyoneIsAdmin && refuseHost(request.headers.host, response)) return
    const method = METHODS.get(request.url!)
    const open = method === undefined ? this.#ending : this.#owed
    open.add(response)
    response.once('close', () => open.delete(response))
    if (method === undefined) {
      if (!this.#overHttp1.take(request, response)) void this.#answerPage(request, response)
    } else if (request.method !== 'POST') refuseMethod(response, 'POST')
    else if (this.#admission.isOpen) void this.#unary.serve(method, request, response)
    else
      this.#admission.beginPaused(request.socket, () => {
        if (!response.destroyed) void this.#unary.serve(method, request, response)
      })
  }

  readonly #onHttp2 = (
    request: http2.Http2ServerRequest,
    response: http2.Http2ServerResponse,
    isRead: () => void,
  ): void => {
    if (this.#options.tokens.everyoneIsAdmin && refuseHost(request.authority, response)) return void isRead()
    const isUnary = METHODS.has(request.url)
    const { stream } = response
    // It may have been given up meanwhile.
    const take = () => {
      if (stream.destroyed) return
      isRead()
      if (!this.#overHttp2.take(request, response)) refusePath(request.url, response)
    }
    const open = isUnary ? this.#owed : this.#ending
    open.add(stream)
    // Of a caller that has its answer and goes on sending, only the end is waited for.
    for (const event of ['finish', 'close']) stream.once(event, () => open.delete(stream))
    if (!isUnary) return void setImmediate(take)
    this.#admission.beginLater(take)
  }

  close(): Promise<void> {
    this.#closed ??= this.#drain()
    return this.#closed
  }

  async #drain(): Promise<void> {
    this.#stopping.abort()
    this.#forgetTls?.()
    const { server, sessions } = this.#http2
    const ended = Promise.all([closeServer(this.#http1), closeServer(server)])
    for (const session of sessions) session.close()
    const late = AbortSignal.timeout(LONGEST_DRAIN_MS)
    const cut = AbortSignal.timeout(STREAMS_DRAIN_MS)
    while ((this.#owed.size > 0 && !late.aborted) || (this.#ending.size > 0 && !cut.aborted)) {
      this.#http1.closeIdleConnections()
      await delay(20)
    }
    // Time for the last answers to reach their sockets; connections without a request are idle and go at once.
    await delay(10)
    this.#http1.closeAllConnections()
    for (const session of sessions) session.destroy()
    await ended
  }
}
