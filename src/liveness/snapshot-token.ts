/**
 * Snapshot tokens: what BeginSnapshot knew, handed to the source and quoted back by ReportSnapshot, so that neither
 * side keeps a thing meanwhile and a source stores no counter. The signature is what makes the head in it a proof that
 * the source looked after that head: a source cannot date its own evidence.
 *
 * The key belongs to the network's database and goes with it into every copy. So a token of numbers this ledger has not
 * reached, correctly signed, says that the database is older than itself.
 *
 * The epoch is not in it: a source that was restarted between both calls reports under its new one.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { POLICY } from '../core/policy.ts'

/** When and at which head a snapshot was begun, by the database's clock and its ledger. */
export type Begun = {
  readonly network: string
  readonly source: string
  readonly era: number
  readonly head: number
  readonly begunAt: number
  /** Number of the snapshot in its source: the last accepted one + 1. */
  readonly sequence: number
}

const FORM = /^1\.([A-Za-z0-9_-]{16,1200})\.([A-Za-z0-9_-]{43})$/
/** Text of the form, at its longest. */
const LONGEST = 1_300

/** A slow list is not of one moment, however long the cooldown. Not measured. */
const LONGEST_LIFE_MS = 600_000
/** Where pools cool for no time at all there must still be time to look; heads order what cooling does not. */
const SHORTEST_LIFE_MS = 5_000

/** 256 bits, as text. */
export function newSigningKey(): string {
  return randomBytes(32).toString('base64url')
}

/**
 * How long a token lasts: half of what an address cools at least. Within it, no address that was given back after the
 * source began to look can have been handed to another.
 */
export function tokenLifeMs(smallestCooldownMs: number | null): number {
  // Without a pool nothing cools, and nothing can be handed on.
  if (smallestCooldownMs === null) return LONGEST_LIFE_MS
  return Math.min(
    LONGEST_LIFE_MS,
    Math.max(SHORTEST_LIFE_MS, Math.floor(smallestCooldownMs * POLICY.snapshotTokenCooldowns)),
  )
}

/** For it: of the network $1, in SQL. */
export const SMALLEST_COOLDOWN = `(
  select min((p.settings ->> 'cooldownMs')::bigint) from ipledger.pool p where p.network_id = $1)`

export function signToken(begun: Begun, key: string): string {
  const { network, source, era, head, begunAt, sequence } = begun
  const content = Buffer.from(JSON.stringify([network, source, era, head, begunAt, sequence])).toString(
    'base64url',
  )
  return `1.${content}.${signature(content, key).toString('base64url')}`
}

/** Null: it is not one of ours. Whether it is late, or of another source, is for the reader to say. */
export function readToken(token: string, key: string): Begun | null {
  if (token.length > LONGEST) return null
  const found = FORM.exec(token)
  if (found === null) return null
  const [, content, given] = found
  const bytes = Buffer.from(given!, 'base64url')
  const expected = signature(content!, key)
  // In time that does not tell how much of a guess was right.
  if (bytes.length !== expected.length || !timingSafeEqual(bytes, expected)) return null
  const [network, source, era, head, begunAt, sequence] = JSON.parse(
    Buffer.from(content!, 'base64url').toString(),
  ) as [string, string, number, number, number, number]
  return { network, source, era, head, begunAt, sequence }
}

function signature(content: string, key: string): Buffer {
  return createHmac('sha256', Buffer.from(key, 'base64url')).update(`snapshot.${content}`).digest()
}
