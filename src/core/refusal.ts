/**
 * What a correct caller may meet. A refusal is a value: a stable reason for programs, a sentence for people, and what the
 * caller needs to act on it. `api/errors.ts` maps reasons to RPC codes.
 */
export type Reason =
  | 'POOL_EXHAUSTED'
  | 'ALL_CANDIDATES_LIVE'
  | 'OWNER_LIMIT'
  | 'ALREADY_EXISTS'
  | 'ADDRESS_TAKEN'
  | 'ADDRESS_COOLING'
  | 'ADDRESS_QUARANTINED'
  | 'ADDRESS_EXCLUDED'
  | 'ILLEGAL_STATE'
  | 'ATTACHMENT_CLOSED'
  | 'LEASE_LOST'
  | 'LIVENESS_STALE'
  | 'NETWORK_RECOVERING'
  | 'POOL_DRAINING'
  | 'POOL_IN_USE'
  | 'VERSION_MISMATCH'
  | 'NETWORK_NOT_FOUND'
  | 'POOL_NOT_FOUND'
  | 'LEASE_NOT_FOUND'
  | 'SOURCE_NOT_FOUND'
  | 'SOURCE_MISMATCH'
  | 'INVALID_FIELD'
  | 'REQUEST_ID_REUSED'
  | 'DEADLINE_EXCEEDED'
  | 'OUTCOME_UNKNOWN'
  | 'OVERLOADED'
  | 'DATABASE_UNAVAILABLE'
  | 'UNAUTHENTICATED'
  | 'PERMISSION_DENIED'

export type Refusal = {
  readonly reason: Reason
  readonly message: string
  readonly metadata: Readonly<Record<string, string>>
  /** Present where waiting helps: after this many milliseconds the same call may succeed. */
  readonly retryAfterMs?: number
}

export function refusal(
  reason: Reason,
  message: string,
  metadata: Readonly<Record<string, string>> = {},
  retryAfterMs?: number,
): Refusal {
  return retryAfterMs === undefined
    ? { reason, message, metadata }
    : { reason, message, metadata, retryAfterMs: Math.max(0, Math.ceil(retryAfterMs)) }
}

/** Null: what is to be changed is at the version that was looked at, or none was said. */
export function atVersion(
  what: string,
  version: number,
  looked: number | null,
  metadata: Readonly<Record<string, string>>,
): Refusal | null {
  if (looked === null || looked === version) return null
  const message = `${what} is at version ${version}, not ${looked}; read it again and decide anew`
  return refusal('VERSION_MISMATCH', message, {
    ...metadata,
    version: String(version),
    expected: String(looked),
  })
}

/** `field` is the path in the request as the JSON caller wrote it: `claims[0].address`. */
export function invalid(field: string, why: string): Refusal {
  return refusal('INVALID_FIELD', `${field}: ${why}`, { field, why })
}
