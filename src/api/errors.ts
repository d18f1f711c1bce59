/**
 * Why a call was refused, as the caller meets it: the one table from reasons to RPC codes, and what the caller should do.
 *
 * A refusal travels inside this room as a thrown `Refused` and leaves it as a Connect error with
 * google.rpc.ErrorInfo (domain `ipledger`, reason, metadata) and, where waiting helps, google.rpc.RetryInfo.
 * What leaves is well-formed text of bounded length, whatever a caller sent: gRPC puts it into a header.
 */
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeToHttpStatus, codeToString, errorToJson } from '@connectrpc/connect/protocol-connect'
import { invalid, type Reason, type Refusal, refusal } from '../core/refusal.ts'
import { ErrorInfoSchema, RetryInfoSchema } from '../gen/google/rpc/error_details_pb.ts'
import type { ItemError } from '../gen/ipledger/v1/types_pb.ts'
import type { Shown } from './shown.ts'

const DOMAIN = 'ipledger'

type Meaning = {
  readonly code: Code
  /** What the program that called should do. */
  readonly caller: string
}

export const MEANINGS: Readonly<Record<Reason, Meaning>> = {
  POOL_EXHAUSTED: {
    code: Code.ResourceExhausted,
    caller: 'Wait for RetryInfo if there is one: the next address has cooled then. Or name another pool.',
  },
  ALL_CANDIDATES_LIVE: {
    code: Code.ResourceExhausted,
    caller: 'Do not retry at once: 32 free addresses in a row are in your liveAddresses.',
  },
  OWNER_LIMIT: {
    code: Code.ResourceExhausted,
    caller: 'End one of the leases in the metadata: Release with confirmed removal.',
  },
  ALREADY_EXISTS: {
    code: Code.AlreadyExists,
    caller: 'Update it, or create it under another name: what differs is in the message.',
  },
  ADDRESS_TAKEN: {
    code: Code.AlreadyExists,
    caller: 'Take another address; the holder is in the metadata.',
  },
  ADDRESS_COOLING: {
    code: Code.FailedPrecondition,
    caller: 'Wait for RetryInfo, or take another address.',
  },
  ADDRESS_QUARANTINED: {
    code: Code.FailedPrecondition,
    caller: 'Take another address; who saw it, and why it is held, is in the metadata.',
  },
  ADDRESS_EXCLUDED: {
    code: Code.FailedPrecondition,
    caller:
      'Take another address: this one is a gateway, a first or last address, or excluded from the pool.',
  },
  ILLEGAL_STATE: {
    code: Code.FailedPrecondition,
    caller: 'Read the lease: its state, which is in the metadata, does not allow this.',
  },
  ATTACHMENT_CLOSED: {
    code: Code.FailedPrecondition,
    caller:
      'Unconfigure: a Release or a newer incarnation overtook this call. A new life needs a new incarnation.',
  },
  LEASE_LOST: {
    code: Code.FailedPrecondition,
    caller: 'Unconfigure the address and reserve anew, with a new requestId.',
  },
  LIVENESS_STALE: {
    code: Code.FailedPrecondition,
    caller: 'Retry later, or use a pool that is not STRICT.',
  },
  NETWORK_RECOVERING: {
    code: Code.FailedPrecondition,
    caller: 'Retry later.',
  },
  POOL_DRAINING: {
    code: Code.FailedPrecondition,
    caller: 'Name another pool.',
  },
  POOL_IN_USE: {
    code: Code.FailedPrecondition,
    caller:
      'Wait for RetryInfo if only cooling addresses are in the way; else end the leases in the message.',
  },
  VERSION_MISMATCH: {
    code: Code.Aborted,
    caller: 'Read it again and decide anew; do not repeat the call as it is.',
  },
  NETWORK_NOT_FOUND: {
    code: Code.NotFound,
    caller: 'Correct the name, or create the network.',
  },
  POOL_NOT_FOUND: {
    code: Code.NotFound,
    caller: 'Correct the name: the pool was renamed, deleted, or never existed.',
  },
  LEASE_NOT_FOUND: {
    code: Code.NotFound,
    caller: 'For Confirm: unconfigure. For Release: nothing is held.',
  },
  SOURCE_NOT_FOUND: {
    code: Code.NotFound,
    caller: 'Register the source, and have it enabled.',
  },
  INVALID_FIELD: {
    code: Code.InvalidArgument,
    caller: 'Correct the request: the metadata name the field and what is wrong with it.',
  },
  REQUEST_ID_REUSED: {
    code: Code.InvalidArgument,
    caller: 'Use a new requestId for a new request, and the same one only for the very same request.',
  },
  DEADLINE_EXCEEDED: {
    code: Code.DeadlineExceeded,
    caller: 'Nothing was done. Repeat it with a longer deadline, or with more time between tries.',
  },
  OUTCOME_UNKNOWN: {
    code: Code.Unavailable,
    caller: 'Repeat the same request: it was committed or it was not, and repeating is safe.',
  },
  OVERLOADED: {
    code: Code.Unavailable,
    caller: 'Nothing was done. Retry after RetryInfo, with more time between tries.',
  },
  DATABASE_UNAVAILABLE: {
    code: Code.Unavailable,
    caller: 'Nothing was done. Retry after RetryInfo.',
  },
  UNAUTHENTICATED: {
    code: Code.Unauthenticated,
    caller: 'Send `Authorization: Bearer <token>` with a token that the server knows.',
  },
  PERMISSION_DENIED: {
    code: Code.PermissionDenied,
    caller: 'Do not retry: the token lacks this right, network or node.',
  },
  SOURCE_MISMATCH: {
    code: Code.PermissionDenied,
    caller: 'Report as a source that the token may speak for.',
  },
}

/** A call that is refused: by the checks of this room, or because the core said so. */
export class Refused extends Error {
  readonly refusal: Refusal
  constructor(refused: Refusal) {
    super(refused.message)
    this.refusal = refused
  }
}

/** The field's path as a JSON caller wrote it (`claims[0].address`), and what is wrong with it. */
export function invalidField(path: string, why: string): Refused {
  return new Refused(path === '' ? refusal('INVALID_FIELD', why, { field: '', why }) : invalid(path, why))
}

export function codeOf({ refusal: { reason } }: Refused): Code {
  return MEANINGS[reason].code
}

/** For the library, which puts it on the wire as each protocol has it. */
export function toConnectError(error: Refused): ConnectError {
  const { reason, message, metadata, retryAfterMs } = error.refusal
  const connectError = new ConnectError(
    presentable(message),
    MEANINGS[reason].code,
    undefined,
    [{ desc: ErrorInfoSchema, value: { reason, domain: DOMAIN, metadata: presentableMetadata(metadata) } }],
    error,
  )
  if (retryAfterMs !== undefined) {
    connectError.details.push({
      desc: RetryInfoSchema,
      value: { retryDelay: durationFromMs(retryAfterMs) },
    })
  }
  return connectError
}

/** The same error as the body of an answer in Connect's protocol. */
export function toErrorJson(error: Refused): { readonly status: number; readonly json: string } {
  const connectError = toConnectError(error)
  return {
    status: codeToHttpStatus(connectError.code),
    json: JSON.stringify(errorToJson(connectError, undefined)),
  }
}

/** The same error inside the answer of a batch. */
export function shownItemError(error: Refused): Shown<ItemError> {
  const { reason, message, metadata, retryAfterMs } = error.refusal
  return {
    code: codeToString(MEANINGS[reason].code),
    reason,
    message: presentable(message),
    metadata: presentableMetadata(metadata),
    retryAfterMs,
  }
}

/** A defect of ours. What happened is in the log and nowhere else. */
export function internalError(): ConnectError {
  return new ConnectError('internal error; the log of the server says more', Code.Internal)
}

/** Of the whole message a header may hold some 8 KiB, and percent-encoding triples a character. */
const LONGEST_TEXT = 2_000
// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what it removes
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f]/g

function presentable(text: string): string {
  const cut = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text
  return cut.toWellFormed().replace(CONTROL_CHARACTERS, '\ufffd')
}

function presentableMetadata(metadata: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, presentable(value)]))
}
