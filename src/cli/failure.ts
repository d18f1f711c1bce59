/** How a command that did not succeed ends: a sentence on stderr for people, one line of JSON after `-o json`. */
import { create, toJson } from '@bufbuild/protobuf'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import type { CallFailed } from '../client/call-failed.ts'
import type { Reason } from '../core/refusal.ts'
import { ItemErrorSchema } from '../gen/ipledger/v1/types_pb.ts'
import { JSON_ANSWERS, milliseconds } from './print.ts'

/** Exit codes besides 0. A usage error was not even tried. */
export const REFUSED = 1
export const USAGE = 2
export const UNREACHABLE = 3

/** The command line says something that cannot be meant; the message says what to say instead. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** It was tried, and cannot be done; the message says why. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed'
}

/** The command has said already what there is to say. */
export class SilentExit extends Error {
  readonly exitCode: number

  constructor(exitCode = REFUSED) {
    super(`exit code ${exitCode}`)
    this.exitCode = exitCode
  }
}

/** As shells count: 128 and the number of SIGINT. */
export const INTERRUPTED = 130

/** For programs: the API's ItemError. */
export function failureJson({ code, reason, message, metadata, retryAfterMs }: CallFailed): string {
  const error = create(ItemErrorSchema, {
    code,
    reason: reason ?? '',
    message,
    metadata: { ...metadata },
    ...(retryAfterMs !== undefined && { retryAfter: durationFromMs(retryAfterMs) }),
  })
  return JSON.stringify(toJson(ItemErrorSchema, error, JSON_ANSWERS))
}

/** For people: reason and message, what the server says about it, what to do, when to try again. */
export async function failureText(failure: CallFailed, url: string): Promise<string> {
  const { reason, message, metadata, retryAfterMs } = failure
  if (reason === undefined) return unanswered(failure, url)
  return [
    `ipledger: ${reason}: ${message}`,
    ...Object.entries(metadata)
      // What the message says already is not said twice.
      .filter(([, value]) => value !== '' && !message.includes(value))
      .map(([key, value]) => `  ${key}: ${value}`),
    ...(retryAfterMs === undefined ? [] : [`  try again in ${milliseconds(retryAfterMs)}`]),
    ...(await remedy(reason, metadata)),
  ].join('\n')
}

async function remedy(
  reason: string,
  { beyondHead, address }: CallFailed['metadata'],
): Promise<readonly string[]> {
  if (beyondHead !== undefined)
    return [
      '  Check what you typed. If ipledger did give out this number, the database was set back: see "ipledger recover --help".',
    ]
  // Whoever looked, and did not confirm or release, has nothing to unconfigure.
  if (reason === 'LEASE_NOT_FOUND' && address !== undefined)
    return [`  "ipledger explain ${address}" says who had it, and how that ended.`]
  if (reason === 'UNAUTHENTICATED')
    return ['  Set IPLEDGER_TOKEN to a token that the server knows; "ipledger token create" makes one.']
  const { MEANINGS } = await import('../api/codec/errors.ts')
  // A newer server may know reasons that this table does not.
  return Object.hasOwn(MEANINGS, reason) ? [`  ${MEANINGS[reason as Reason].caller}`] : []
}

function unanswered(failure: CallFailed, url: string): string {
  const code = systemCode(failure.cause)
  if (code !== undefined && /CERT|VERIFY_LEAF/.test(code))
    return `ipledger: the certificate of ${url} is not accepted (${failure.message}). Nothing was sent. IPLEDGER_CA names the file of the CA that signed it.`
  switch (code) {
    case 'ECONNREFUSED':
      return `ipledger: nothing listens at ${url}. Start it with "ipledger serve", or set IPLEDGER_URL.${
        process.argv[2] === 'recover' ? ' If nothing serves the database yet, say --database.' : ''
      }`
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `ipledger: the host of ${url} is unknown. Correct IPLEDGER_URL.`
    case 'HPE_INVALID_CONSTANT':
      return `ipledger: what listens at ${url} does not speak HTTP/1.1: is it the port of gRPC? Correct IPLEDGER_URL.`
    default:
      return `ipledger: no answer from ${url} (${failure.code}: ${failure.message}). What became of a write is unknown; repeating it is safe, surely so with --request-id.`
  }
}

function systemCode(error: unknown): string | undefined {
  for (let at = error, left = 10; at instanceof Error && left > 0; at = at.cause, left--)
    if ('code' in at && typeof at.code === 'string') return at.code
  return undefined
}
