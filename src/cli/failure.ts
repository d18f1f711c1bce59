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

/** It was tried, and cannot be done; the message says why. Without one, the command has printed it. */
export class CommandFailed extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode = REFUSED) {
    super(message)
    this.exitCode = exitCode
  }
}

/** The command line can't be followed; the message says what to write instead. */
export class UsageError extends CommandFailed {
  constructor(message: string) {
    super(message, USAGE)
  }
}

/** There is nothing more to print. */
export class SilentExit extends CommandFailed {
  constructor(exitCode = REFUSED) {
    super('', exitCode)
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

/** For people: reason and message, details from the server, what to do, when to try again. */
export async function failureText(failure: CallFailed, url: string): Promise<string> {
  const { reason, message, metadata, retryAfterMs } = failure
  if (reason === undefined) return unanswered(failure, url)
  return [
    `ipledger: ${reason}: ${message}`,
    ...Object.entries(metadata)
      .filter(([, value]) => value !== '' && !message.includes(value))
      .map(([key, value]) => `  ${key}: ${value}`),
    ...(retryAfterMs === undefined ? [] : [`  try again in ${milliseconds(retryAfterMs)}`]),
    ...(await remedy(reason, metadata)).map((text) => `  ${text}`),
  ].join('\n')
}

async function remedy(
  reason: string,
  { beyondHead, address }: CallFailed['metadata'],
): Promise<readonly string[]> {
  if (beyondHead !== undefined)
    return [
      'Check what you typed. If ipledger did give out this number, the database was set back: see "ipledger recover --help".',
    ]
  // A reader has nothing to unconfigure, which is the remedy of the table.
  if (reason === 'LEASE_NOT_FOUND' && address !== undefined)
    return [`"ipledger explain ${address}" says who had it, and how that ended.`]
  if (reason === 'UNAUTHENTICATED')
    return ['Set IPLEDGER_TOKEN to a token that the server knows; "ipledger token create" makes one.']
  const { MEANINGS } = await import('../api/codec/errors.ts')
  // A newer server may know reasons that this table does not.
  return Object.hasOwn(MEANINGS, reason) ? [MEANINGS[reason as Reason].caller] : []
}

function unanswered({ cause, code, message }: CallFailed, url: string): string {
  const system = systemCode(cause)
  if (/CERT|VERIFY_LEAF/.test(system))
    return `ipledger: the certificate of ${url} is not accepted (${message}). Nothing was sent. IPLEDGER_CA names the file of the CA that signed it.`
  const toRecover =
    process.argv[2] === 'recover' ? ' If nothing serves the database yet, say --database.' : ''
  const unknown = `the host of ${url} is unknown. Correct IPLEDGER_URL.`
  const texts: Readonly<Record<string, string>> = {
    ECONNREFUSED: `nothing listens at ${url}. Start it with "ipledger serve", or set IPLEDGER_URL.${toRecover}`,
    ENOTFOUND: unknown,
    EAI_AGAIN: unknown,
    HPE_INVALID_CONSTANT: `what listens at ${url} does not speak HTTP/1.1: is it the port of gRPC? Correct IPLEDGER_URL.`,
  }
  return `ipledger: ${texts[system] ?? `no answer from ${url} (${code}: ${message}). A write may have been done; repeating it is safe, surely so with --request-id.`}`
}

function systemCode(error: unknown): string {
  for (let at = error, left = 10; at instanceof Error && left > 0; at = at.cause, left--)
    if ('code' in at && typeof at.code === 'string') return at.code
  return ''
}
