/**
 * What all protocols share: the table of methods, how a call begins (who, may they, until when), and what becomes of
 * whatever a handler throws. Nothing is written to the log for a call that went as it should, above debug.
 */
import { setTimeout as delay } from 'node:timers/promises'
import {
  type DescMethod,
  type DescService,
  fromJson,
  type JsonObject,
  type Message,
} from '@bufbuild/protobuf'
import { ConnectError } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { refusal } from '../core/refusal.ts'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { ReadsUnavailable } from '../ledger/reads.ts'
import type { LogLimit } from '../log-limit.ts'
import { beginRpc, type Logger, type RpcSystem } from '../telemetry.ts'
import { readerOf } from './asked.ts'
import { auditHandlers } from './audit-handlers.ts'
import type { CountFor } from './bodies.ts'
import type { Backend, Call, Method } from './call.ts'
import { codeOf, internalError, invalidField, Refused } from './errors.ts'
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
  readonly tokens: Tokens
  readonly countFor: CountFor
  readonly logLimit: LogLimit
  readonly defaultDeadlineMs: number
  readonly log: Logger
}

export function methodsOf(backend: Backend): readonly Method[] {
  return [
    ...table(NetworkService, networkHandlers(backend)),
    ...table(PoolService, poolHandlers(backend)),
    ...table(LeaseService, leaseHandlers(backend)),
    ...table(LivenessService, livenessHandlers(backend)),
    ...table(AuditService, auditHandlers(backend)),
  ]
}

function table(service: DescService, handlers: object): readonly Method[] {
  const handles = handlers as Readonly<Record<string, (asked: object, call: Call) => Promise<object>>>
  return service.methods.filter(isUnary).map((desc) => {
    const handle = handles[desc.localName]
    const name = `${service.typeName}/${desc.name}`
    const roles = RIGHTS[name]
    if (handle === undefined || roles === undefined) throw new Error(`${name} has no handler or no rights`)
    const [read, write] = [readerOf(desc.input), writerOf(desc.output)]
    return {
      path: `/${name}`,
      desc,
      roles,
      handle: async (message, call) => write(await handle(read(message), call)),
    }
  })
}

function isUnary(desc: DescMethod): desc is Method['desc'] {
  return desc.methodKind === 'unary'
}

/** What its header says of a call. */
export type Header = {
  readonly system: RpcSystem
  readonly authorization: string | undefined
  /** What the caller asked for. */
  readonly timeoutMs: number | undefined
  readonly traceparent: string | undefined
}

/** Everything that can be refused before the body is read. */
export function beginCall(front: Front, method: Method, header: Header): Call {
  const { desc, roles } = method
  const rpc = beginRpc(method.path.slice(1), header.system, header.traceparent)
  try {
    const caller = front.tokens.authenticate(header.authorization)
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
    if (error instanceof Refused) rpc.end(statusOf(error), error.refusal.reason)
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
  for (;;) {
    try {
      return await method.handle(message, call)
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

/** What a handler answers, for whoever wants more than its JSON. */
export function messageOf({ desc }: Method, answered: object): Message {
  return fromJson(desc.output, answered as JsonObject)
}

export function deadlinePassed(): Refused {
  return new Refused(
    refusal('DEADLINE_EXCEEDED', 'the deadline passed before the call was begun; nothing was done', {}),
  )
}

/** `refusalOf` for a call, with which it ends. Null: it had not begun. */
export function refuse(
  front: Front,
  method: Method,
  call: Call | null,
  error: unknown,
): Refused | ConnectError {
  const rpc = call?.rpc
  const tell = () => refusalOf(front, error, method.desc.name, call?.caller.name ?? '')
  const told = rpc === undefined ? tell() : rpc.run(tell)
  rpc?.end(statusOf(told), told instanceof Refused ? told.refusal.reason : statusOf(told))
  return told
}

/** As gRPC spells its codes. */
export function statusOf(told: Refused | ConnectError): string {
  return codeToString(told instanceof Refused ? codeOf(told) : told.code).toUpperCase()
}

/** What a caller is told of whatever was thrown. A defect of ours goes to the log and is told as such. */
function refusalOf(
  { log, logLimit }: Front,
  error: unknown,
  method: string,
  caller: string,
): Refused | ConnectError {
  const about = { method, caller }
  if (error instanceof Refused) {
    const { reason, metadata } = error.refusal
    if (metadata.beyondHead === undefined) log.debug({ ...about, reason }, error.message)
    // Somebody was given that number: the database may be an older copy.
    else logLimit(caller, (more) => log.error({ ...about, reason, ...metadata, ...more }, error.message))
    return error
  }
  if (error instanceof ConnectError) return error
  if (error instanceof ReadsUnavailable) {
    logLimit(caller, (more) => log.warn({ ...about, err: error.cause, ...more }, error.message))
    return new Refused(refusal('DATABASE_UNAVAILABLE', NO_DATABASE, {}, 1_000))
  }
  logLimit(caller, (more) => log.error({ ...about, err: error, ...more }, 'a handler failed'))
  return internalError()
}

const NO_DATABASE =
  'the database did not answer before the deadline; ask again, and see /readyz for since when'

export function timeoutOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  if (!/^[0-9]{1,10}$/.test(header)) {
    throw invalidField('Connect-Timeout-Ms', 'this header must be a whole number of milliseconds')
  }
  return Number(header)
}
