/** How a command that did not succeed ends: a sentence on stderr for people, one line of JSON after `--json`. */

import { create, toJson } from '@bufbuild/protobuf'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { MEANINGS } from '../api/errors.ts'
import { JSON_ANSWERS } from '../api/plain-lane.ts'
import type { CallFailed } from '../client/call-failed.ts'
import type { Reason } from '../core/refusal.ts'
import { ItemErrorSchema } from '../gen/ipledger/v1/types_pb.ts'
import { milliseconds } from './print.ts'

/** What was asked for cannot be done as it was said; the message says what to say instead. */
export class Unclear extends Error {
  override readonly name = 'Unclear'
}

/** The command has said already what is wrong. */
export class Unsuccessful extends Error {
  override readonly name = 'Unsuccessful'
  readonly exitCode: number

  constructor(exitCode: number) {
    super(`exit code ${exitCode}`)
    this.exitCode = exitCode
  }
}

/** For programs: the API's ItemError. */
export function failureJson(failure: CallFailed): string {
  const { code, reason, message, metadata, retryAfterMs } = failure
  const error = create(ItemErrorSchema, {
    code,
    reason: reason ?? '',
    message,
    metadata: { ...metadata },
    ...(retryAfterMs === undefined ? {} : { retryAfter: durationFromMs(retryAfterMs) }),
  })
  return JSON.stringify(toJson(ItemErrorSchema, error, JSON_ANSWERS))
}

/** For people: reason and message, what the server says about it, what to do, when to try again. */
export function failureText(failure: CallFailed, url: string): string {
  const { reason, message, metadata, retryAfterMs } = failure
  if (reason === undefined) return unanswered(failure, url)
  return [
    `ipledger: ${reason}: ${message}`,
    ...Object.entries(metadata)
      // What the message says already is not said twice.
      .filter(([, value]) => value !== '' && !message.includes(value))
      .map(([key, value]) => `  ${key}: ${value}`),
    ...(retryAfterMs === undefined ? [] : [`  try again in ${milliseconds(retryAfterMs)}`]),
    ...remedy(reason, failure),
  ].join('\n')
}

/** What a person at this command line does otherwise than a program that calls. */
const HERE: Readonly<Partial<Record<Reason, string>>> = {
  UNAUTHENTICATED: 'Set IPLEDGER_TOKEN to a token that the server knows; "ipledger token create" makes one.',
}

/** A newer server may know reasons that this table does not. */
function remedy(reason: string, { metadata: { beyondHead, address } }: CallFailed): readonly string[] {
  if (beyondHead !== undefined) return [`  ${BEYOND}`]
  // Whoever looked, and did not confirm or release, has nothing to unconfigure.
  if (reason === 'LEASE_NOT_FOUND' && address !== undefined)
    return [`  "ipledger explain ${address}" says who had it, and how that ended.`]
  const here = Object.hasOwn(HERE, reason) ? HERE[reason as Reason] : undefined
  if (here !== undefined) return [`  ${here}`]
  const meaning = Object.hasOwn(MEANINGS, reason) ? MEANINGS[reason as Reason] : undefined
  return meaning === undefined ? [] : [`  ${meaning.caller}`]
}

const BEYOND =
  'Check what you typed. If ipledger did give out this number, the database was set back: see "ipledger recover --help".'

function unanswered(failure: CallFailed, url: string): string {
  const causes = chain(failure.cause)
  const code = causes.find((cause): cause is Error & { code: string } => {
    return cause instanceof Error && 'code' in cause && typeof cause.code === 'string'
  })?.code
  switch (code) {
    case 'ECONNREFUSED':
      return `ipledger: nothing listens at ${url}. Start it with "ipledger serve", or set IPLEDGER_URL.`
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `ipledger: the host of ${url} is unknown. Correct IPLEDGER_URL.`
    default:
      return `ipledger: no answer from ${url} (${failure.code}: ${failure.message}). What became of a write is unknown; repeating it is safe, surely so with --request-id.`
  }
}

function chain(error: unknown): readonly unknown[] {
  const found: unknown[] = []
  for (let at = error; at instanceof Error && !found.includes(at); at = at.cause) found.push(at)
  return found
}
