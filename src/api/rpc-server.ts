/**
 * The part that all protocols share: the table of methods, the begin of a call (caller, rights, deadline), its answer, its errors.
 * A call that succeeds writes nothing to the log above debug.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type DescService, fromJson, type JsonObject, type Message } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel as Idempotency } from '@bufbuild/protobuf/wkt'
import { ConnectError } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { ServerService } from '../gen/ipledger/v1/server_pb.ts'
import { Unavailable } from '../ledger/ledger.ts'
import { ReadsUnavailable } from '../ledger/reads.ts'
import { createLogLimit } from '../log-limit.ts'
import { type Logger, RpcSpan, type RpcSystem } from '../telemetry.ts'
import { afterRunning } from '../time-limit.ts'
import { decoderOf } from './codec/decode-request.ts'
import { encoderOf } from './codec/encode-response.ts'
import { internalError, invalidField, Refused, refused } from './codec/errors.ts'
import { auditMethods } from './handlers/audit.ts'
import { leaseMethods } from './handlers/leases.ts'
import { livenessMethods } from './handlers/liveness.ts'
import { networkMethods } from './handlers/networks.ts'
import { poolMethods } from './handlers/pools.ts'
import { serverMethods } from './handlers/server.ts'
import { WATCH_LEASES } from './handlers/watch-leases.ts'
import type { Admission } from './http/admission.ts'
import {
  type Backend,
  type Call,
  commandOf,
  dryRun,
  type Method,
  type Stream,
  scoped,
  submit,
} from './method.ts'
import { checkRole } from './rights.ts'
import type { Tokens } from './tokens.ts'

/**
 * A message blocks the process while it is decoded and decided: the worst legal ones of this size take tens of milliseconds. The
 * largest single Reserve has some 300 KiB. Only reports may be longer (large-report.ts).
 */
export const MOST_REQUEST_BYTES = 512 * 1024
/** A longer deadline is this one: a waiting call keeps its place in the queue. */
const LONGEST_DEADLINE_MS = 600_000

export const SERVICES: readonly DescService[] = [
  NetworkService,
  PoolService,
  LeaseService,
  LivenessService,
  AuditService,
  ServerService,
]

const DECLARED: Readonly<Record<string, Method['declared']>> = {
  ...networkMethods,
  ...poolMethods,
  ...leaseMethods,
  ...livenessMethods,
  ...auditMethods,
  ...serverMethods(() => [...METHODS.values(), WATCH_LEASES]),
}

/** By path. */
export const METHODS: ReadonlyMap<string, Method> = new Map(
  SERVICES.flatMap((service) => service.methods)
    .filter((desc): desc is Method['desc'] => desc.methodKind === 'unary')
    .map((desc): [string, Method] => {
      const declared = DECLARED[desc.localName]!
      const path = `/${desc.parent.typeName}/${desc.name}`
      const isRead = desc.idempotency === Idempotency.NO_SIDE_EFFECTS
      const [decoder, encode] = [decoderOf(desc.input), encoderOf(desc.output)]
      return [path, { path, desc, roles: declared.roles, declared, isRead, decoder, encode }]
    }),
)

export type Header = {
  readonly system: RpcSystem
  readonly authorization: string | undefined
  /** Of the caller's certificate. */
  readonly subject: string | null
  readonly timeoutMs: number | undefined
  readonly traceparent: string | undefined
}

/** Fields of a request that is a command. */
type Commanded = { readonly requestId: string; readonly validateOnly?: boolean }

const RETRY_MS = 250
/** Reads that wait; the ledger's queue bounds the writes that do. */
const MOST_WAITING = 1_000
/** A database that is silent is noticed later than some deadlines. */
const LATE_MS = 250

const NO_DATABASE =
  'the database did not answer before the deadline; ask again, and see /readyz for since when'

type Options = {
  readonly backend: Backend
  readonly tokens: Tokens
  readonly admission: Admission
  /** Of calls that name none. */
  readonly deadlineMs: number
  readonly log: Logger
}

export class RpcServer {
  readonly #options: Options
  readonly #logLimit = createLogLimit()
  #waiting = 0

  constructor(options: Options) {
    this.#options = options
  }

  /** Everything that can be refused before the body is read. */
  authorize(method: Method | Stream, header: Header): Call {
    const { tokens, deadlineMs } = this.#options
    const { desc, path, roles } = method
    const span = new RpcSpan(path.slice(1), header.system, header.traceparent)
    try {
      const caller = tokens.authenticate(header.authorization, header.subject)
      checkRole(caller, roles, desc.name)
      const deadline = performance.now() + Math.min(header.timeoutMs ?? deadlineMs, LONGEST_DEADLINE_MS)
      return { caller, method: desc.name, deadline, traceId: span.traceId, span }
    } catch (error) {
      endCall(span, error)
      throw error
    }
  }

  /** The JSON of the answer. Throws what the handler throws; `toConnectError` says what the caller gets. */
  async answer(method: Method, request: object, call: Call): Promise<object> {
    const { admission, backend } = this.#options
    const { declared } = method
    if (performance.now() >= call.deadline) throw deadlinePassed()
    for (;;) {
      try {
        const view = call.span.run(async () => {
          admission.enter()
          try {
            const about = scoped(call, request)
            if ('answer' in declared) return await declared.answer(request, about, backend)
            const content = declared.decode(request, about, backend)
            const { requestId, validateOnly = false } = request as Commanded
            const command = commandOf(about, requestId, content)
            const [answer] = validateOnly
              ? await dryRun(backend, [command], about)
              : [await submit(backend, command, call)]
            if (answer instanceof Refused) throw answer
            return await declared.view(answer!, about, backend)
          } finally {
            admission.leave()
          }
        })
        return method.encode(await (method.isRead ? beforeDeadline(view, call) : view))
      } catch (error) {
        const isLast = performance.now() + RETRY_MS >= call.deadline || this.#waiting >= MOST_WAITING
        if (isLast || !(error instanceof ReadsUnavailable)) throw error
      }
      // Reads wait for the database until their deadline, as commands do.
      this.#waiting += 1
      await delay(RETRY_MS)
      this.#waiting -= 1
    }
  }

  /** The error that the caller gets; the call ends with it. Null: the call had not begun. */
  toConnectError(method: Method | Stream, call: Call | null, error: unknown): ConnectError {
    const about = { method: method.desc.name, caller: call?.caller.name ?? '' }
    if (call === null) return this.#convert(error, about)
    const converted = call.span.run(() => this.#convert(error, about))
    endCall(call.span, converted)
    return converted
  }

  /** Defects of the service go to the log, and the caller gets none of their text. */
  #convert(thrown: unknown, about: { readonly method: string; readonly caller: string }): ConnectError {
    const { log } = this.#options
    const limit = (write: (more: object) => void) => this.#logLimit(about.caller, write)
    const error = thrown instanceof Unavailable ? new Refused(thrown.refusal) : thrown
    if (error instanceof Refused) {
      const { reason, message } = error.refusal
      log.debug({ ...about, reason }, message)
      return error
    }
    if (error instanceof ConnectError) return error
    if (error instanceof ReadsUnavailable) {
      limit((more) => log.warn({ ...about, err: error.cause, ...more }, error.message))
      return refused('DATABASE_UNAVAILABLE', NO_DATABASE, {}, 1_000)
    }
    limit((more) => log.error({ ...about, err: error, ...more }, 'a handler failed'))
    return internalError()
  }
}

async function beforeDeadline<T>(answered: Promise<T>, { deadline }: Call): Promise<T> {
  const { promise: passed, reject } = Promise.withResolvers<never>()
  const inTime = afterRunning(Math.max(0, deadline + LATE_MS - performance.now()), () =>
    reject(new ReadsUnavailable('no answer before the deadline of the call')),
  )
  try {
    return await Promise.race([answered, passed])
  } finally {
    inTime()
    answered.catch(() => {})
  }
}

/** An answer as a message, for protocols that need more than its JSON. */
export function messageOf({ desc }: Method, json: object): Message {
  return fromJson(desc.output, json as JsonObject)
}

export function deadlinePassed(): Refused {
  return refused('DEADLINE_EXCEEDED', 'the deadline passed before the call was begun; nothing was done', {})
}

/** Of a caller that went away, `error` is no ConnectError. */
export function endCall(span: RpcSpan, error: unknown): void {
  const status = error instanceof ConnectError ? codeToString(error.code).toUpperCase() : 'CANCELLED'
  const reason = status === 'INVALID_ARGUMENT' ? 'INVALID_FIELD' : status
  span.end(status, error instanceof Refused ? error.refusal.reason : reason)
}

export function tooLarge(most: number): Refused {
  return invalidField('', `the request is larger than ${most} bytes, the limit`)
}
