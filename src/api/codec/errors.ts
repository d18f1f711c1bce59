/**
 * The one table from reasons of refusals to RPC codes and to what the caller should do.
 *
 * A refusal is thrown as a `Refused`, a Connect error with google.rpc.ErrorInfo (domain `ipledger`, reason, metadata) and,
 * where waiting helps, google.rpc.RetryInfo. Its texts are well-formed and of bounded length, as gRPC puts them into a header.
 */
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { invalid, type Reason, type Refusal, refusal } from '../../core/refusal.ts'
import { ErrorInfoSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.ts'
import type { ItemError } from '../../gen/ipledger/v1/types_pb.ts'
import type { View } from './encode-response.ts'

const DOMAIN = 'ipledger'

type Meaning = {
  readonly code: Code
  readonly caller: string
}

export const MEANINGS: Readonly<Record<Reason, Meaning>> = {
  ...meaning(Code.ResourceExhausted, {
    POOL_EXHAUSTED:
      'Name another pool. Wait for RetryInfo if there is one: the next address has cooled then.',
    ALL_CANDIDATES_LIVE: 'Do not retry at once: 32 free addresses in a row are in your liveAddresses.',
    OWNER_LIMIT: 'End one of the leases in the metadata: Release with confirmed removal.',
    NODE_LIMIT:
      'Do not retry at once: release what the node no longer uses, or have the limit of the pool raised.',
  }),
  ...meaning(Code.AlreadyExists, {
    ALREADY_EXISTS: 'Update it, or create it under another name: what differs is in the message.',
    ADDRESS_TAKEN: 'Take another address; the holder is in the metadata.',
  }),
  ...meaning(Code.FailedPrecondition, {
    ADDRESS_COOLING: 'Wait for RetryInfo, or take another address.',
    ADDRESS_QUARANTINED: 'Take another address; who saw it, and why it is held, is in the metadata.',
    ADDRESS_EXCLUDED:
      'Take another address: this one is a gateway, a first or last address, or excluded from the pool.',
    ILLEGAL_STATE: 'Read the lease: its state, which is in the metadata, does not allow this.',
    ATTACHMENT_CLOSED:
      'Unconfigure: a Release or a newer incarnation overtook this call. A new life needs a new incarnation.',
    LEASE_LOST: 'Unconfigure the address and reserve anew, with a new requestId.',
    LIVENESS_STALE: 'Retry later, or use a pool that is not STRICT.',
    NETWORK_RECOVERING: 'Retry later.',
    NETWORK_CLOSED: 'Use another network, or have it opened by UpdateNetwork.',
    POOL_DRAINING: 'Name another pool.',
    POOL_IN_USE:
      'End the leases in the message. Wait for RetryInfo if only cooling addresses are in the way.',
  }),
  ...meaning(Code.Aborted, {
    VERSION_MISMATCH: 'Read it again and decide anew; do not repeat the call as it is.',
  }),
  ...meaning(Code.NotFound, {
    NETWORK_NOT_FOUND: 'Correct the name, or create the network.',
    POOL_NOT_FOUND: 'Correct the name: the pool was renamed, deleted, or never existed.',
    LEASE_NOT_FOUND: 'For Confirm: unconfigure. For Release: nothing is held.',
    SOURCE_NOT_FOUND: 'Register the source, and have it enabled.',
  }),
  ...meaning(Code.InvalidArgument, {
    INVALID_FIELD: 'Correct the request: the metadata name the field and what is wrong with it.',
    REQUEST_ID_REUSED:
      'Use a new requestId for a new request, and the same one only for the very same request.',
  }),
  ...meaning(Code.DeadlineExceeded, {
    DEADLINE_EXCEEDED: 'Nothing was done. Repeat it with a longer deadline, or with more time between tries.',
  }),
  ...meaning(Code.Unavailable, {
    OUTCOME_UNKNOWN: 'Repeat the same request: it was committed or it was not, and repeating is safe.',
    OVERLOADED: 'Nothing was done. Retry after RetryInfo, with more time between tries.',
    DATABASE_UNAVAILABLE: 'Nothing was done. Retry after RetryInfo.',
  }),
  ...meaning(Code.Unauthenticated, {
    UNAUTHENTICATED: 'Send `Authorization: Bearer <token>` with a token that the server knows.',
  }),
  ...meaning(Code.PermissionDenied, {
    PERMISSION_DENIED: 'Do not retry: the token lacks this right, network or node.',
    SOURCE_MISMATCH: 'Report as a source that the token may speak for.',
  }),
}

function meaning<R extends Reason>(code: Code, callers: Readonly<Record<R, string>>) {
  return Object.fromEntries(
    Object.entries<string>(callers).map(([reason, caller]) => [reason, { code, caller }]),
  ) as Record<R, Meaning>
}

/** A call that is refused by the API or by the core. Each protocol writes it in its way. */
export class Refused extends ConnectError {
  readonly refusal: Refusal
  constructor(refused: Refusal) {
    const { reason, message, metadata, retryAfterMs } = refused
    super(presentable(message), MEANINGS[reason].code, undefined, [
      { desc: ErrorInfoSchema, value: { reason, domain: DOMAIN, metadata: presentableMetadata(metadata) } },
      ...(retryAfterMs === undefined
        ? []
        : [{ desc: RetryInfoSchema, value: { retryDelay: durationFromMs(retryAfterMs) } }]),
    ])
    this.refusal = refused
  }

  /** ConnectError's own takes every ConnectError for an instance. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return value instanceof Error && 'refusal' in value
  }
}

export function refused(...args: Parameters<typeof refusal>): Refused {
  return new Refused(refusal(...args))
}

/** `path`: of the field in JSON spelling, as in `claims[0].address`. */
export function invalidField(path: string, why: string): Refused {
  return new Refused(path === '' ? refusal('INVALID_FIELD', why, { field: '', why }) : invalid(path, why))
}

export function overloaded(why: string): Refused {
  return refused('OVERLOADED', `the server ${why}; ask another`, {}, 1_000)
}

export function itemErrorView(error: Refused): View<ItemError> {
  const { reason, message, metadata, retryAfterMs } = error.refusal
  return {
    code: codeToString(MEANINGS[reason].code),
    reason,
    message: presentable(message),
    metadata: presentableMetadata(metadata),
    retryAfterMs,
  }
}

const INTERNAL = 'internal error; the log of the server says more'

export function internalError(): ConnectError {
  return new ConnectError(INTERNAL, Code.Internal)
}

/** False: Connect made it. */
export function isOurs(error: ConnectError): boolean {
  return error instanceof Refused || error.rawMessage === INTERNAL
}

/** Of the whole message a header may hold some 8 KiB, and percent-encoding triples a character. */
const LONGEST_TEXT = 2_000

function presentable(text: string): string {
  const cut = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text
  return cut.toWellFormed().replace(/\p{Cc}/gu, '\ufffd')
}

function presentableMetadata(metadata: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, presentable(value)]))
}
