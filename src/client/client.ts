/**
 * The SDK: ipledger's services as typed functions (Connect over HTTP/1.1). It adds two things to the generated
 * clients: failures are a `CallFailed` with the server's reason, and calls that are safe to repeat are repeated a few times
 * when the server is away for a moment.
 *
 * In messages a number of the log is a bigint, a duration is `{ seconds: 30n, nanos: 0 }`, a time is
 * `{ seconds, nanos }` since 1970. Each field is described in `proto/ipledger/v1`. Examples of these files are run by a test, with
 * everything of `ipledger/client` imported, a `client`, and a pool `web` of 10.0.0.0/24.
 */

import { setTimeout as delay } from 'node:timers/promises'
import type { DescService } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel as Idempotency } from '@bufbuild/protobuf/wkt'
import {
  type CallOptions,
  type Client,
  Code,
  ConnectError,
  createClient as createConnectClient,
  type Interceptor,
  type Transport,
} from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { CallFailed, errorInfo, isLostConnection, retryAfterMs } from './call-failed.ts'

export type { LeaseChange } from '../gen/ipledger/v1/lease_pb.ts'
export { LookUpAnswer, SourceKind, SourceState, SourceStatus } from '../gen/ipledger/v1/liveness_pb.ts'
export { HoldCause, NetworkState } from '../gen/ipledger/v1/network_pb.ts'
export { PoolLiveness } from '../gen/ipledger/v1/pool_pb.ts'
export { type Lease, LeaseState, type Owner, QuarantineReason, Removal } from '../gen/ipledger/v1/types_pb.ts'
export { type AnyOwner, isKept, LeaseMirror } from './mirror.ts'
export { type Watched, type WatchOptions, watchLeases } from './watch.ts'
export { CallFailed }

const SERVICES = {
  networks: NetworkService,
  pools: PoolService,
  leases: LeaseService,
  liveness: LivenessService,
  audit: AuditService,
}

/**
 * Each method takes its request (absent fields have the defaults the contract states) and resolves with the answer, or rejects with
 * `CallFailed`. A second argument may have `timeoutMs` or `signal`; without either it waits 30 s.
 */
export type IpledgerClient = { readonly [K in keyof typeof SERVICES]: Client<(typeof SERVICES)[K]> }

/** Where the service is, and who calls. */
export type ClientOptions = Readonly<{
  /** `http://127.0.0.1:8080` */
  url: string
  /** Bearer token. Undefined: none is sent. */
  token?: string | undefined
  /** For `https`: contents of PEM files. The CA of the server's certificate, and a certificate that may stand for a token. */
  tls?: Readonly<{ ca?: string; cert?: string; key?: string }>
}>

const ATTEMPTS = 3
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 2_000

/** Of a call that names neither `timeoutMs` nor `signal`; the server's own deadline is 10 s unless configured. */
const PATIENCE_MS = 30_000

/**
 * Opens nothing until the first call. Calls reject with `CallFailed`.
 *
 * Repeated up to twice, after 100 ms and 200 ms or what the server asks for, when the server is unavailable or the connection broke:
 * requests with a `requestId`, and methods with an `idempotency_level` in the contract. All others are the caller's to repeat.
 *
 * ```ts
 * const client = createClient({ url: 'http://127.0.0.1:8080', token: process.env.IPLEDGER_TOKEN })
 * const owner = { kind: 'container', name: 'node-1/api', incarnation: 'start-17', interface: 'eth0', node: 'node-1' }
 * const { leases } = await client.leases.reserve({
 *   owner,
 *   claims: [{ pool: 'web' }],
 *   confirmWithin: { seconds: 60n },
 *   requestId: 'start-17/eth0',
 * })
 * // Configure the address of each lease, then:
 * for (const { leaseId, address, prefixLength } of leases) {
 *   await client.leases.confirm({ leaseId })
 *   console.log(`${address}/${prefixLength}`) // 10.0.0.1/32
 * }
 * await client.leases.release({ owner, removal: Removal.CONFIRMED })
 * ```
 */
export function createClient(options: ClientOptions): IpledgerClient {
  const transport = createConnectTransport({
    baseUrl: options.url,
    httpVersion: '1.1',
    ...(options.tls !== undefined && { nodeOptions: options.tls }),
    interceptors: [...(options.token === undefined ? [] : [bearer(options.token)]), repeatIfSafe],
  })
  const clients = Object.entries(SERVICES).map(([name, service]) => [name, connectTo(service, transport)])
  return Object.fromEntries(clients) as IpledgerClient
}

type Call<A> = (request: object, options?: CallOptions) => A
const unary = (call: Call<Promise<object>>): Call<Promise<object>> => {
  return async (request, options = {}) => {
    const isLimited = options.signal !== undefined || options.timeoutMs !== undefined
    try {
      return await call(
        request,
        isLimited ? options : { ...options, signal: AbortSignal.timeout(PATIENCE_MS) },
      )
    } catch (error) {
      throw new CallFailed(ConnectError.from(error))
    }
  }
}
const streaming = (call: Call<AsyncIterable<object>>): Call<AsyncIterable<object>> => {
  return async function* (request, options) {
    try {
      yield* call(request, options)
    } catch (error) {
      throw new CallFailed(ConnectError.from(error))
    }
  }
}

function connectTo(service: DescService, transport: Transport): object {
  const calls = createConnectClient(service, transport) as unknown as Readonly<Record<string, never>>
  return Object.fromEntries(
    service.methods.map(({ localName, methodKind }) => [
      localName,
      (methodKind === 'unary' ? unary : streaming)(calls[localName]!),
    ]),
  )
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set('authorization', `Bearer ${token}`)
    return next(request)
  }
}

const repeatIfSafe: Interceptor = (next) => async (request) => {
  const { stream, method, message } = request
  const isSafe =
    !stream &&
    (method.idempotency !== Idempotency.IDEMPOTENCY_UNKNOWN ||
      ('requestId' in message && message.requestId !== ''))
  for (let attempt = 1; ; attempt++) {
    try {
      return await next(request)
    } catch (error) {
      const failure = ConnectError.from(error)
      // While its database is away the server itself waits.
      const hasWaited = errorInfo(failure)?.reason === 'DATABASE_UNAVAILABLE'
      const passing = (failure.code === Code.Unavailable && !hasWaited) || isLostConnection(failure)
      if (!isSafe || !passing || attempt === ATTEMPTS) throw error
      const wait = retryAfterMs(failure) ?? FIRST_WAIT_MS * attempt
      await delay(Math.min(wait, LONGEST_WAIT_MS), undefined, { signal: request.signal })
    }
  }
}
