/**
 * What all protocols share: the table of methods, how a call begins (who, may they, until when), and what becomes of
 * whatever a handler throws. Nothing is written to the log for a call that went as it should, above debug.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type DescService, fromJson, type JsonObject, type Message } from '@bufbuild/protobuf'
import { ConnectError } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { ReadsUnavailable } from '../ledger/reads.ts'
import type { LogLimit } from '../log-limit.ts'
import { beginRpc, type Logger, type RpcObserved, type RpcSystem } from '../telemetry.ts'
import { readerOf } from './asked.ts'
import { auditHandlers } from './audit-handlers.ts'
import type { CountFor } from './bodies.ts'
import type { Backend, Call, Method, Stream } from './call.ts'
import { internalError, invalidField, Refused, refused } from './errors.ts'
import { leaseHandlers } from './lease-handlers.ts'
import { livenessHandlers } from './liveness-handlers.ts'
import { networkHandlers } from './network-handlers.ts'
import { poolHandlers } from './pool-handlers.ts'
import { checkRole, RIGHTS } from './rights.ts'
import { writerOf } from './shown.ts'
import type { Tokens } from './tokens.ts'

/**
 * What one message may hold up everybody else: reading and deciding the worst legal ones of this size takes the event loop
 * tens of milliseconds. The largest single Reserve has some 300 KiB. Only reports may be longer (large-report.ts).
 */
export const MOST_REQUEST_BYTES = 512 * 1024
/** A caller that would wait longer keeps its place in the queue no longer than this. */
const LONGEST_DEADLINE_MS = 600_000

export const SERVICES: readonly DescService[] = [
  NetworkService,
  PoolService,
  LeaseService,
  LivenessService,
  AuditService,
]

export type Front = {
  readonly methods: readonly Method[]
  readonly streams: readonly Stream[]
  readonly stopping: AbortSignal
  readonly takenWithinMs: number
  readonly tokens: Tokens
  readonly countFor: CountFor
  readonly logLimit: LogLimit
  readonly defaultDeadlineMs: number
  readonly log: Logger
}

export function methodsOf(backend: Backend): readonly Method[] {
  const handlers: Readonly<Record<string, (asked: never, call: Call) => Promise<object>>> = {
    ...networkHandlers(backend),
    ...poolHandlers(backend),
    ...leaseHandlers(backend),
    ...livenessHandlers(backend),
    ...auditHandlers(backend),
  }
  const methods = SERVICES.flatMap((service) => service.methods)
  const unary = methods.filter((desc): desc is Method['desc'] => desc.methodKind === 'unary')
  return unary.map((desc) => {
    const handle = handlers[desc.localName]
    const roles = RIGHTS.get(desc.name)
    if (handle === undefined || roles === undefined) throw new Error(`${desc} has no handler or no rights`)
    const [read, write] = [readerOf(desc.input), writerOf(desc.output)]
    return {
      path: `/${desc.parent.typeName}/${desc.name}`,
      desc,
      roles,
      handle: async (message, call) => write(await handle(read(message) as never, call)),
    }
  })
}

/** What its header says of a call. */
export type Header = {
  readonly system: RpcSystem
  readonly authorization: string | undefined
  /** Of the caller's certificate. */
  readonly subject: string | null
  /** What the caller asked for. */
  readonly timeoutMs: number | undefined
  readonly traceparent: string | undefined
}

/** Everything that can be refused before the body is read. */
export function beginCall(front: Front, method: Method | Stream, header: Header): Call {
  const { desc, roles } = method
  const rpc = beginRpc(method.path.slice(1), header.system, header.traceparent)
  try {
    const caller = front.tokens.authenticate(header.authorization, header.subject)
    checkRole(caller, roles, desc.name)
    return {
      caller,
      method: desc.name,
      deadline:
        performance.now() + Math.min(header.timeoutMs ?? front.defaultDeadlineMs, LONGEST_DEADLINE_MS),
      traceId: rpc.traceId,
      rpc,
    }
  } catch (error) {
    endCall(rpc, error)
    throw error
  }
}

/** Throws whatever the handler throws; `refuse` says what the caller is told. */
export async function answer(method: Method, message: Message, call: Call): Promise<object> {
  if (performance.now() >= call.deadline) throw deadlinePassed()
  return call.rpc.run(() => whenDatabaseAnswers(method, message, call))
}

const ASK_AGAIN_MS = 250
/** Reads that wait; the ledger's queue bounds the writes that do. */
const MOST_WAITING = 1_000
let waiting = 0

/** Reads wait for the database until their deadline, as writes do. A handler that has written something lets no read fail it. */
async function whenDatabaseAnswers(method: Method, message: Message, call: Call): Promise<object> {
  const isRead = READS.test(method.desc.name)
  for (;;) {
    try {
      return await (isRead ? within(call, method.handle(message, call)) : method.handle(message, call))
    } catch (error) {
      const isLast = performance.now() + ASK_AGAIN_MS >= call.deadline || waiting >= MOST_WAITING
      if (isLast || !(error instanceof ReadsUnavailable)) throw error
    }
    waiting += 1
    await delay(ASK_AGAIN_MS).finally(() => {
      waiting -= 1
    })
  }
}

const READS = /^(?:Get|List|Explain|Reconcile|Verify)/
/** A database that is silent is noticed later than some deadlines. */
const LATE_MS = 250

async function within<T>({ deadline }: Call, answered: Promise<T>): Promise<T> {
  const late = new AbortController()
  const { signal } = late
  const passed = delay(Math.max(0, deadline + LATE_MS - performance.now()), undefined, { signal }).then(
    () => {
      throw new ReadsUnavailable('no answer before the deadline of the call')
    },
  )
  try {
    return await Promise.race([answered, passed])
  } finally {
    late.abort()
    passed.catch(() => {})
    answered.catch(() => {})
  }
}

/** What a handler answers, for whoever wants more than its JSON. */
export function messageOf({ desc }: Method, answered: object): Message {
  return fromJson(desc.output, answered as JsonObject)
}

export function deadlinePassed(): Refused {
  return refused('DEADLINE_EXCEEDED', 'the deadline passed before the call was begun; nothing was done', {})
}

/** A call ends with what its caller is told, or because nobody waits for it. */
export function endCall(rpc: RpcObserved, told: unknown): void {
  const status = told instanceof ConnectError ? codeToString(told.code).toUpperCase() : 'CANCELLED'
  const reason = status === 'INVALID_ARGUMENT' ? 'INVALID_FIELD' : status
  rpc.end(status, told instanceof Refused ? told.refusal.reason : reason)
}

/** What the caller is told of whatever was thrown, with which its call ends. Null: it had not begun. */
export function refuse(
  front: Front,
  { desc }: Method | Stream,
  call: Call | null,
  error: unknown,
): ConnectError {
  const about = { method: desc.name, caller: call?.caller.name ?? '' }
  if (call === null) return told(front, error, about)
  const answered = call.rpc.run(() => told(front, error, about))
  endCall(call.rpc, answered)
  return answered
}

/** A defect of ours goes to the log and is told as such. */
function told(
  { log, logLimit }: Front,
  error: unknown,
  about: { readonly method: string; readonly caller: string },
): ConnectError {
  if (error instanceof Refused) {
    const { reason, message, metadata } = error.refusal
    if (metadata.beyondHead === undefined) log.debug({ ...about, reason }, message)
    // Somebody was given that number: the database may be an older copy.
    else logLimit(about.caller, (more) => log.error({ ...about, reason, ...metadata, ...more }, message))
    return error
  }
  if (error instanceof ConnectError) return error
  if (error instanceof ReadsUnavailable) {
    logLimit(about.caller, (more) => log.warn({ ...about, err: error.cause, ...more }, error.message))
    return refused('DATABASE_UNAVAILABLE', NO_DATABASE, {}, 1_000)
  }
  logLimit(about.caller, (more) => log.error({ ...about, err: error, ...more }, 'a handler failed'))
  return internalError()
}

const NO_DATABASE =
  'the database did not answer before the deadline; ask again, and see /readyz for since when'

export function tooLarge(most: number): Refused {
  return invalidField('', `the request is larger than ${most} bytes, the limit`)
}

export function timeoutOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  if (!/^[0-9]{1,10}$/.test(header)) {
    throw invalidField('Connect-Timeout-Ms', 'this header must be a whole number of milliseconds')
  }
  return Number(header)
}
