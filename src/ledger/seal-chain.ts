/**
 * What seals say of the events they cover: the same comparison for seals in the database, digests that were exported,
 * and a file of lines that knows no database (`verify-seals.ts`, `check-export.ts`).
 *
 * A seal that does not fit its events leaves two explanations, that the events changed or that the seal did. Where the
 * digest fits the events, the leaves beside it were altered; where what follows fits the events, the seal was.
 */
import { createHash, hash } from 'node:crypto'
import { eraOf, firstSeqOfEra } from '../core/policy.ts'
import { follows, LEAF_BYTES, NO_DIGEST, type SealedStretch } from './seals.ts'

export type SealFindingCode =
  | 'EVENT_ALTERED'
  | 'EVENTS_DELETED'
  | 'SEAL_ALTERED'
  | 'SEAL_MISSING'
  | 'SEAL_DOES_NOT_FOLLOW'
  | 'EXPORT_DIFFERS'
  | 'EXPORT_ALTERED'

export type SealFinding = {
  readonly what: SealFindingCode
  /** A sentence for people. */
  readonly message: string
  readonly seq: number
  readonly expected: string | null
  readonly found: string | null
}

/** A number and the leaf of its event, as hexadecimal text, in order of number. */
export type Leaf = readonly [seq: number, leaf: string]

/** As `event_leaf()` does in the database. */
export function leafOf(line: string | Uint8Array): string {
  return hash('sha256', line, 'hex').slice(0, 2 * LEAF_BYTES)
}

/** As `seal_digest()` does in the database. */
export function sealDigest(
  stretch: Pick<SealedStretch, 'network' | 'first' | 'last' | 'previousDigest'>,
  leaves: string,
): string {
  return createHash('sha256')
    .update(stretch.previousDigest, 'hex')
    .update(`${stretch.network} ${stretch.first} ${stretch.last}\n`)
    .update(leaves, 'hex')
    .digest('hex')
}

export type Run = { readonly first: number; readonly last: number }

export type Compared = {
  /** Without its leaves nobody can say which. */
  readonly altered: readonly number[] | 'unknown'
  readonly deleted: readonly Run[]
  /** Why it is the seal that is wrong, beside the events or instead of them. */
  readonly sealAltered: string | null
  /** What the next seal should name. */
  readonly digest: string
}

/**
 * One seal against the events that are there. `leaves` is what was kept with it, null if only the digest was;
 * `followedBy` is the digest that the next seal names.
 */
export function compareSeal(
  stretch: SealedStretch,
  {
    leaves,
    followedBy,
    events,
  }: {
    readonly leaves: string | null
    readonly followedBy: string | null
    readonly events: readonly Leaf[]
  },
): Compared {
  const whole = 2 * LEAF_BYTES * (stretch.last - stretch.first + 1)
  const ofEvents = sealDigest(stretch, events.map(([, leaf]) => leaf).join(''))
  const isOwn = leaves === null || sealDigest(stretch, leaves) === stretch.digest
  const { digest } = stretch
  if (ofEvents === digest) {
    const sealAltered = isOwn ? null : 'its leaves are not those that its digest was made of'
    return { altered: [], deleted: [], sealAltered, digest }
  }
  if (ofEvents === followedBy)
    return {
      altered: [],
      deleted: [],
      sealAltered: 'the next seal names what its events are',
      digest: ofEvents,
    }
  const deleted = gaps(stretch, events)
  const sealAltered = isOwn ? null : 'its digest is not that of its leaves'
  if (leaves === null || leaves.length !== whole)
    return { altered: deleted.length > 0 ? [] : 'unknown', deleted, sealAltered, digest }
  const altered = events.flatMap(([seq, leaf]) => {
    const at = 2 * LEAF_BYTES * (seq - stretch.first)
    return leaves.slice(at, at + 2 * LEAF_BYTES) === leaf ? [] : [seq]
  })
  return { altered, deleted, sealAltered, digest }
}

function gaps({ first, last }: Run, events: readonly Leaf[]): Run[] {
  const runs: Run[] = []
  let next = first
  for (const [seq] of events) {
    if (seq > next) runs.push({ first: next, last: seq - 1 })
    next = seq + 1
  }
  if (next <= last) runs.push({ first: next, last })
  return runs
}

/** Seals one after the other: each begins where the one before ended, and names its digest. */
export type Chain = {
  /** Of a seal whose events fit the next one, the digest that it should have. */
  add(stretch: SealedStretch, digest?: string): SealFinding | null
}

/**
 * `whole`: the first is the first of its network; else it is taken as it comes, or follows `after`, where a piece of the chain
 * was looked at before.
 */
export function createChain({
  whole,
  after = null,
}: {
  readonly whole: boolean
  readonly after?: SealedStretch | null
}): Chain {
  let before: (Run & { readonly digest: string }) | null = after
  let begun = after !== null
  return {
    add(stretch, digest = stretch.digest) {
      const finding = begun || whole ? followingOf(before, stretch) : null
      begun = true
      before = { first: stretch.first, last: stretch.last, digest }
      return finding
    },
  }
}

function followingOf(
  before: (Run & { readonly digest: string }) | null,
  stretch: SealedStretch,
): SealFinding | null {
  const { network, first, previousDigest } = stretch
  const about = `the seal of ${events(network, stretch)}`
  const expected = before?.digest ?? NO_DIGEST
  const fields = { seq: first, expected, found: previousDigest }
  if (before !== null && first <= before.last)
    return {
      what: 'SEAL_DOES_NOT_FOLLOW',
      message: `${about} covers events that the seal up to ${before.last} covers`,
      ...fields,
    }
  if (!follows(before?.last ?? null, first)) {
    const from =
      before === null || eraOf(before.last) < eraOf(first) ? firstSeqOfEra(eraOf(first)) : before.last + 1
    const gap = { first: from, last: first - 1 }
    return {
      what: 'SEAL_MISSING',
      message: `no seal covers ${events(network, gap)}, and one covers those after`,
      ...fields,
    }
  }
  if (previousDigest === expected) return null
  if (before === null)
    return {
      what: 'SEAL_MISSING',
      message: `${about} names a digest before it, and there is no seal before it`,
      ...fields,
    }
  return {
    what: 'SEAL_DOES_NOT_FOLLOW',
    message: `${about} does not name the digest of the seal up to ${before.last}: one of the two was made anew`,
    ...fields,
  }
}

/** Runs that lie side by side in two seals are one. */
export type Deleted = {
  add(run: Run & { readonly sealedAt: number | null }): SealFinding | null
  end(): SealFinding | null
}

export function createDeleted(network: string): Deleted {
  let open: (Run & { readonly sealedAt: number | null }) | null = null
  const told = (): SealFinding | null => {
    if (open === null) return null
    const { first, last, sealedAt } = open
    const since = sealedAt === null ? '' : ` at ${new Date(sealedAt).toISOString()}`
    return {
      what: 'EVENTS_DELETED',
      message: `${events(network, open)} ${first === last ? 'is' : 'are'} gone, and ${first === last ? 'was' : 'were'} sealed${since}`,
      seq: first,
      expected: first === last ? String(first) : `${first} to ${last}`,
      found: null,
    }
  }
  return {
    add(run) {
      if (open !== null && run.first === open.last + 1) {
        open = { ...open, last: run.last }
        return null
      }
      const finding = told()
      open = run
      return finding
    },
    end() {
      const finding = told()
      open = null
      return finding
    },
  }
}

/** Further numbers named beside the first. */
const MOST_NAMED = 10

/** The first altered event of a seal, how it reads now, and which others. */
export function alteredFinding(
  stretch: SealedStretch,
  {
    altered,
    line,
    sealedAt,
  }: {
    readonly altered: readonly number[]
    readonly line: string | null
    readonly sealedAt: number | null
  },
): SealFinding {
  const [first, ...others] = altered
  const since = sealedAt === null ? '' : ` at ${new Date(sealedAt).toISOString()}`
  const named = others.slice(0, MOST_NAMED).join(', ')
  const more = others.length > MOST_NAMED ? ` and ${others.length - MOST_NAMED} more` : ''
  const rest =
    others.length === 0 ? '' : `; altered are also ${named}${more} of ${events(stretch.network, stretch)}`
  return {
    what: 'EVENT_ALTERED',
    message: `event ${stretch.network}/${first} is not what was sealed${since}${rest}; it reads now: ${line ?? ''}`,
    seq: first!,
    expected: null,
    found: line,
  }
}

export function sealAlteredFinding(stretch: SealedStretch, why: string): SealFinding {
  return {
    what: 'SEAL_ALTERED',
    message: `the seal of ${events(stretch.network, stretch)} was altered: ${why}`,
    seq: stretch.first,
    expected: null,
    found: stretch.digest,
  }
}

export function events(network: string, { first, last }: Run): string {
  return first === last ? `event ${network}/${first}` : `events ${network}/${first} to ${last}`
}
