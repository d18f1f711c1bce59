/**
 * What a source is: something that can say what is alive. One contract for all kinds; whether a source reports by
 * itself or is asked is the only difference between them.
 *
 * The rules that every kind keeps, because a lease may be taken back on what it says:
 *
 * - A list is of one moment after it was begun, from the authority and not from a cache of it (mirendev#856).
 * - It is `complete` only if everything of the declared scope is in it. What could not be asked, paged to its end or
 *   read makes it incomplete; an incomplete one only protects.
 * - A workload that is stopped, paused, restarting, or in a phase nobody knows is alive. `terminal` is said only of one
 *   that has ended for good and is listed all the same.
 * - `gone` is the authority's own "no such thing" for this very uid. Everything else that is not a clear answer (an
 *   error, a time-out, a missing attribute) is not `gone` (M-08, M-09).
 */
import type { Family } from '../core/address.ts'
import type { Owner } from '../core/owner.ts'

/** push: an agent or orchestrator reports over LivenessService. The others are asked by ipledger. */
export type SourceKind = 'push' | 'docker' | 'kubernetes' | 'http'
export const SOURCE_KINDS: readonly SourceKind[] = ['push', 'docker', 'kubernetes', 'http']

/** REGISTERED: dry run. Its sightings protect; it proves nothing, and nothing is done at its word. */
export type SourceState = 'REGISTERED' | 'ENABLED' | 'RETIRED'

/** What a source can see. Of what it cannot see, its silence says nothing (calico#5044). */
export type Sight = {
  /** The node it sees; empty: the whole network. Its epochs are then the boots of that node. */
  readonly node: string
  readonly ownerKinds: readonly string[]
  readonly families: readonly Family[]
  /** Stopped workloads that keep their address are in its lists. */
  readonly seesStopped: boolean
  /** A new boot of its node proves that everything of the older ones ended. */
  readonly bootEndsAll: boolean
  readonly intervalMs: number
}

export type SourceDeclaration = Sight & {
  readonly id: string
  readonly kind: SourceKind
  /** Of a source that is asked: where and how, as its kind reads it. Never a secret. */
  readonly settings: Readonly<Record<string, unknown>>
}

/** An entry as a source gives it: text that nobody has read yet. Empty and absent are the same. */
export type GivenEntry = {
  readonly address: string
  /** Of a source that sees several networks: the one this entry is of. Another than the report's is ignored. */
  readonly network?: string
  readonly kind?: string
  readonly name?: string
  readonly uid?: string
  readonly incarnation?: string
  /** Empty: not told. */
  readonly interface?: string
  readonly node?: string
  readonly boot?: string
  /** The source's word: `running`, `paused`. Only `terminal` means anything else than alive. */
  readonly state?: string
}

/** What a source that is asked answers to "what is there?". */
export type Listing = {
  /** The life of the source: what it was asked in, as its kind knows it. */
  readonly epoch: string
  readonly complete: boolean
  /** Why not, for people. */
  readonly incompleteBecause: string
  readonly entries: readonly GivenEntry[]
}

/** A point look-up: does this workload exist, whatever address it has (W-03)? */
export type Question = {
  readonly owner: Owner
  readonly address: string
  /** Where its lease was placed; for display and for sources that ask a node. */
  readonly node: string
  /** The life of the source in which it missed the workload: who answers from another one knows nothing of it (5.1). */
  readonly epoch: string
}

export type LookUpReply =
  /** It exists, in whatever state. */
  | { readonly answer: 'live'; readonly detail: string }
  /** It exists and has ended for good, since then by the source's clock. */
  | { readonly answer: 'terminal'; readonly since: number; readonly detail: string }
  /** The authority knows no such workload; of a source of a node: not here. */
  | { readonly answer: 'gone'; readonly detail: string }
  /** It was answered, but not clearly. Means alive. */
  | { readonly answer: 'unknown'; readonly detail: string }
  /** It could not be asked. Means alive. */
  | { readonly answer: 'error'; readonly detail: string }

/** A source that is asked. `list` and `lookUp` reject only when there is no answer at all, and end with the signal. */
/** Year 1 and 1970 are how a time is written that was never set: its grace would be over before it began (M-07). */
export function endedSince(since: number, detail: string): LookUpReply {
  return since > 0
    ? { answer: 'terminal', since, detail }
    : { answer: 'unknown', detail: `"terminal" without since when. ${detail}`.trim() }
}

export type AskedSource = {
  list(signal: AbortSignal): Promise<Listing>
  lookUp(question: Question, signal: AbortSignal): Promise<LookUpReply>
  close(): Promise<void>
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what it replaces
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f]+/g

/** What a source said of itself, for people: PostgreSQL's text holds no NUL, and one source's words must stop no other. */
export function printable(said: string): string {
  return said.toWellFormed().replace(CONTROL_CHARACTERS, ' ')
}
