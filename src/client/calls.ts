/** The generated clients, with failures as `CallFailed`, and repeated where that is safe. The same on Node.js and in a browser. */
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
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { ServerService } from '../gen/ipledger/v1/server_pb.ts'
import { CallFailed, errorInfo, isLostConnection, retryAfterMs } from './call-failed.ts'
import { pause } from './pause.ts'

const SERVICES = {
  networks: NetworkService,
  pools: PoolService,
  leases: LeaseService,
  liveness: LivenessService,
  audit: AuditService,
  server: ServerService,
}

/**
 * Each method takes its request (absent fields have the defaults the contract states) and resolves with the answer, or rejects with
 * `CallFailed`. A second argument may have `timeoutMs` or `signal`; without either it waits 30 s.
 */
export type IpledgerClient = { readonly [K in keyof typeof SERVICES]: Client<(typeof SERVICES)[K]> }

const ATTEMPTS = 3
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 2_000

/** Of a call that names neither `timeoutMs` nor `signal`; the server's own deadline is 10 s unless configured. */
const PATIENCE_MS = 30_000

/** `transportOf`: over HTTP as the platform has it, with these interceptors in order. */
export function clientOver(
  token: string | undefined,
  transportOf: (interceptors: Interceptor[]) => Transport,
): IpledgerClient {
  const transport = transportOf([...(token === undefined ? [] : [bearer(token)]), repeatIfSafe])
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
      await pause(Math.min(wait, LONGEST_WAIT_MS), request.signal)
    }
  }
}
