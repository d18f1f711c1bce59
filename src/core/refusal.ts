/**
 * What a correct caller may meet. A refusal is a value: a stable reason for programs, a sentence for people, and what the
 * caller needs to act on it. `api/codec/errors.ts` maps reasons to RPC codes.
 */
import { isDeepStrictEqual } from 'node:util'

export type Reason =
  | 'POOL_EXHAUSTED'
  | 'ALL_CANDIDATES_LIVE'
  | 'OWNER_LIMIT'
  | 'NODE_LIMIT'
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
  | 'NETWORK_CLOSED'
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
  retryAfterMs: number | null = null,
): Refusal {
  return retryAfterMs === null
    ? { reason, message, metadata }
    : { reason, message, metadata, retryAfterMs: Math.max(0, Math.ceil(retryAfterMs)) }
}

export function networkNotFound(network: string): Refusal {
  return refusal('NETWORK_NOT_FOUND', `network ${network} does not exist; create it first`, { network })
}

/** Null: no version was given, or it is the present one. */
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

/** A number that the log has not reached. If it was ever given out, this database is an older copy (12.1); that is not proven. */
export function beyondHead(what: string, number: number, head: number): Refusal {
  const message = `${what} is beyond the log's head ${head}; if it was ever answered, the database is an older copy`
  return refusal('VERSION_MISMATCH', message, { number: String(number), beyondHead: String(head) })
}

export function unknownLease(leaseId: string, token: number, head: number): Refusal {
  if (token <= head) return refusal('LEASE_NOT_FOUND', `there never was a lease ${leaseId}`, { leaseId })
  const { message, metadata } = beyondHead(`lease ${leaseId}`, token, head)
  return refusal('LEASE_NOT_FOUND', message, { leaseId, beyondHead: metadata.beyondHead! })
}

/** `field` is the path in the request as the JSON caller wrote it: `claims[0].address`. */
export function invalid(field: string, why: string): Refusal {
  return refusal('INVALID_FIELD', `${field}: ${why}`, { field, why })
}

/** Null: what is to be created exists with the same settings, and is the answer. */
export function existsOtherwise<T extends object>(what: string, is: T, wanted: T): Refusal | null {
  const [before, after] = [asJson(is), asJson(wanted)]
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  const differing = fields.filter((field) => !isDeepStrictEqual(before[field], after[field]))
  if (differing.length === 0) return null
  const difference = (field: string) =>
    `${field} is ${JSON.stringify(before[field] ?? null)}, not ${JSON.stringify(after[field] ?? null)}`
  const message = `${what} exists with other settings: ${differing.map(difference).join('; ')}; update it, or use another name`
  return refusal('ALREADY_EXISTS', message, { differs: differing.join(',') })
}

function asJson(settings: object): Readonly<Record<string, unknown>> {
  const entries = Object.entries(settings).map(([key, value]): [string, unknown] => {
    if (key.endsWith('Ms')) return [key.slice(0, -'Ms'.length), value === null ? null : `${value / 1_000}s`]
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    return [key, isObject ? asJson(value) : value]
  })
  return Object.fromEntries(entries)
}
