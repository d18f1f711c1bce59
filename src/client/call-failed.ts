/** What a caller of ipledger meets when a call does not succeed. */

import { Code, type ConnectError } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { ErrorInfoSchema, RetryInfoSchema } from '../gen/google/rpc/error_details_pb.ts'

/**
 * A call that was refused, or that got no answer.
 *
 * `reason` is stable and for programs (`POOL_EXHAUSTED`); `message` is for people. Without a `reason` the failure is
 * not from ipledger: the server was not reached, the call ran out of time, or something else answered. Then a write
 * may or may not have happened; repeating it is safe, surely so with a `requestId`.
 *
 * ```ts
 * const owner = { kind: 'container', name: 'node-1/db', interface: 'eth0' }
 * try {
 *   await client.leases.reserve({ owner, claims: [{ address: '192.0.2.1' }] })
 * } catch (error) {
 *   if (!(error instanceof CallFailed) || error.reason === undefined) throw error
 *   console.log(error.code, error.reason) // invalid_argument INVALID_FIELD
 *   console.log(error.metadata.field, error.retryAfterMs) // claims[0].address undefined
 * }
 * ```
 */
export class CallFailed extends Error {
  override readonly name = 'CallFailed'
  /** Connect's code, `resource_exhausted`. */
  readonly code: string
  /** One of docs/callers.md. */
  readonly reason: string | undefined
  /** What the server says about it; each reason has its own keys. */
  readonly metadata: Readonly<Record<string, string>>
  /** Where waiting helps: not sooner than this many milliseconds. */
  readonly retryAfterMs: number | undefined

  constructor(error: ConnectError) {
    super(error.rawMessage, { cause: error })
    const info = errorInfo(error)
    this.code = codeToString(error.code)
    this.reason = info?.reason
    this.metadata = info?.metadata ?? {}
    this.retryAfterMs = retryAfterMs(error)
  }
}

export function errorInfo(
  error: ConnectError,
): Readonly<{ reason: string; metadata: Readonly<Record<string, string>> }> | undefined {
  return error.findDetails(ErrorInfoSchema).find((info) => info.domain === 'ipledger')
}

export function retryAfterMs(error: ConnectError): number | undefined {
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay
  return delay === undefined ? undefined : Number(delay.seconds) * 1_000 + Math.ceil(delay.nanos / 1e6)
}

/** There was no answer, or the connection broke before it. */
export function isLostConnection(error: ConnectError): boolean {
  if (errorInfo(error) !== undefined) return false
  // Node's name for writing to a connection that the other side has closed; the library takes it for a defect.
  const broken = error.cause instanceof Error && 'code' in error.cause && error.cause.code === 'EPIPE'
  return broken || error.code === Code.Unavailable || error.code === Code.Aborted
}
