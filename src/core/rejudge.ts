/**
 * Reaps of the past, judged again from what their events store (INV-20, 15.2): by the policy of their day, which must
 * come to the same, or by another, which tells what it would have kept. The judge is the one that judges leases; here
 * is only what an event of any version says.
 *
 * A proof stored before the judge asked for something lacks it: such a field is read as what the judge took for granted
 * then. A proof that lacks more cannot be judged, and is told (INV-4, 16.8: a missing attribute proves nothing).
 */
import type { Evidence, Json } from './event.ts'
import { type Proof, rejudge, type Verdict, type WitnessEvidence } from './judge.ts'
import { leaseId } from './lease.ts'
import { type JudgePolicy, judgePolicy } from './policy.ts'

/** Of an event that ended a lease, or gave it back. */
export type StoredVerdict = {
  readonly network: string
  readonly address: string
  readonly token: number
  readonly at: number
  readonly cause: string
  readonly evidence: Evidence | null
}

export type Ground =
  | { readonly kind: 'proof'; readonly proof: Proof }
  | { readonly kind: 'neverConfirmed'; readonly confirmBy: number; readonly graceMs: number }
  /** An operator's: there is nothing to judge. */
  | { readonly kind: 'word' }
  | { readonly kind: 'unreadable'; readonly why: string }

/** What it comes to, and why, as the judge says it. */
export type JudgedAgain = {
  readonly verdict: Verdict['verdict']
  /** The ground of a reap; null where it comes to none. */
  readonly cause: string | null
  readonly because: readonly { readonly code: string; readonly text: string }[]
}

const CAUSES: readonly Proof['cause'][] = ['FENCED', 'PREVIOUS_BOOT', 'PROVEN_ABSENT', 'SEEN_ALONE']
const NEVER_CONFIRMED = 'NEVER_CONFIRMED'
const OPERATOR = 'OPERATOR'

export function groundOf(stored: StoredVerdict): Ground {
  const { evidence } = stored
  if (evidence === null) return unreadable('it has no evidence')
  if ('proof' in evidence) return proofOf(stored, evidence.proof)
  switch (evidence.reason) {
    case OPERATOR:
      return { kind: 'word' }
    case NEVER_CONFIRMED: {
      const confirmBy = Date.parse(String(evidence.confirmBy))
      const { graceMs } = evidence
      return Number.isNaN(confirmBy) || typeof graceMs !== 'number'
        ? unreadable('its evidence lacks confirmBy or graceMs')
        : { kind: 'neverConfirmed', confirmBy, graceMs }
    }
    default:
      return unreadable(`nothing is known of the reason ${JSON.stringify(evidence.reason ?? null)}`)
  }
}

/** Null: by the policy of its day. Nothing comes of a word, or of what cannot be read. */
export function judgeAgain(
  ground: Extract<Ground, { readonly kind: 'proof' | 'neverConfirmed' }>,
  at: number,
  policy: JudgePolicy | null,
): JudgedAgain {
  if (ground.kind === 'proof') {
    const verdict = rejudge(ground.proof, policy ?? ground.proof.policy)
    const cause = 'proof' in verdict ? verdict.proof.cause : null
    return { verdict: verdict.verdict, cause, because: verdict.because }
  }
  const due = ground.confirmBy + (policy?.confirmGraceMs ?? ground.graceMs)
  if (at > due)
    return {
      verdict: 'reap',
      cause: NEVER_CONFIRMED,
      because: [{ code: NEVER_CONFIRMED, text: 'never confirmed, and its deadline and grace were over' }],
    }
  const text = `may still have been confirmed for ${Math.ceil((due - at) / 1_000)} s`
  return { verdict: 'keep', cause: null, because: [{ code: 'CONFIRM_PENDING', text }] }
}

/** What the event says that it came to: by the policy of its day nothing else may. */
export function isAsStored({ verdict, cause }: JudgedAgain, ground: Ground): boolean {
  return verdict === storedVerdict(ground) && (ground.kind !== 'proof' || cause === ground.proof.cause)
}

export function storedVerdict(ground: Ground): 'reap' | 'restore' {
  return ground.kind === 'proof' && ground.proof.cause === 'SEEN_ALONE' ? 'restore' : 'reap'
}

const PROOF_FIELDS = [
  'lease',
  'era',
  'recovering',
  'lastSightedAt',
  'othersSightedAt',
  'imported',
  'ownerClosed',
  'fencedBy',
  'placements',
  'cause',
  'at',
  'token',
  'version',
  'policy',
  'sources',
] as const satisfies readonly (keyof Proof)[]

/** Asked for since: all the stopped were taken as seen, and no answer stood for longer than a proof. */
const ASKED_LATER = { seesStopped: true, answersForMs: 0 } as const satisfies Partial<WitnessEvidence>

const WITNESS_FIELDS = [
  'source',
  'scopeNode',
  'enabled',
  'epoch',
  'warm',
  'era',
  'held',
  'canSee',
  'enabledHead',
  'why',
  'about',
  'live',
  'listedTerminal',
  'vanishedAt',
  'seen',
  'misses',
  'lookup',
  'bootEnded',
] as const satisfies readonly (keyof WitnessEvidence)[]

function proofOf(stored: StoredVerdict, json: Json | undefined): Ground {
  if (!isObject(json)) return unreadable('its proof is no object')
  const lacking = lacks(json, PROOF_FIELDS)
  if (lacking !== null) return unreadable(`its proof lacks ${lacking}`)
  const { sources, lease, policy } = json
  if (!Array.isArray(sources) || !isObject(lease) || !isObject(policy) || !Array.isArray(json.placements))
    return unreadable('its proof is not of the form of a proof')
  const witnesses: Json[] = []
  for (const source of sources) {
    if (!isObject(source)) return unreadable('a source of its proof is no object')
    const missing = lacks(source, WITNESS_FIELDS)
    if (missing !== null)
      return unreadable(`source ${JSON.stringify(source.source ?? null)} of its proof lacks ${missing}`)
    witnesses.push({ ...ASKED_LATER, ...source })
  }
  if (!CAUSES.some((cause) => cause === json.cause))
    return unreadable(`nothing is known of the ground ${JSON.stringify(json.cause ?? null)}`)
  const proof = { ...json, policy: judgePolicy(policy), sources: witnesses } as unknown as Proof
  // Else the proof of another lease would speak for this one.
  if (
    proof.cause !== stored.cause ||
    proof.token !== stored.token ||
    proof.lease.address !== stored.address
  ) {
    const of = leaseId(stored.network, proof.token)
    return unreadable(`its proof is about ${of} at ${proof.lease.address}, and says ${proof.cause}`)
  }
  return { kind: 'proof', proof }
}

function lacks(json: { readonly [key: string]: Json }, names: readonly string[]): string | null {
  const missing = names.filter((name) => !(name in json))
  return missing.length === 0 ? null : missing.join(', ')
}

function isObject(json: Json | undefined): json is { readonly [key: string]: Json } {
  return typeof json === 'object' && json !== null && !Array.isArray(json)
}

function unreadable(why: string): Ground {
  return { kind: 'unreadable', why }
}
