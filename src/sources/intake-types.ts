/**
 * What sources report: BeginSnapshot, ReportSnapshot, ReportVerdicts. `intake.ts` implements it.
 *
 * Who may report for which source is the API's business: it hands over `mayReport`, which is asked with the declaration of
 * the source before anything else is told of it.
 */
import type { SourceDeclaration } from '../core/event.ts'
import type { Owner } from '../core/owner.ts'
import type { Refusal } from '../core/refusal.ts'
import type { GivenEntry } from './source.ts'

export type Reporting = {
  readonly network: string
  readonly source: string
  readonly traceId: string | null
  /** `performance.now()` after which nobody waits for the answer. */
  readonly deadline: number
  readonly mayReport: (source: SourceDeclaration) => Refusal | null
}

/** What a report is begun at. */
export type Begin = {
  readonly sequence: number
  readonly head: number
  /** Milliseconds since 1970, by the ledger's clock. */
  readonly begunAt: number
}

export type Begun = Begin & { readonly era: number; readonly intervalMs: number }

export type ReportGiven = Reporting &
  Begin & {
    readonly epoch: string
    readonly complete: boolean
    /** The entries as they were sent, or the digest of an earlier answer that they still have. */
    readonly content: { readonly entries: readonly GivenEntry[] } | { readonly unchanged: string }
  }

/** A look-up that a source is asked for with the answer to its report. */
export type Verification = {
  /** Quoted back with the verdict. */
  readonly id: string
  readonly owner: Owner
  readonly node: string
  readonly address: string
  readonly leaseId: string
}

export type Reported = {
  readonly complete: boolean
  readonly counted: boolean
  readonly because: readonly string[]
  /** `unchanged` is not the digest of what is listed: the entries are wanted, and nothing else was done. */
  readonly resend: boolean
  /** To be sent as `unchanged` while the list stays as it is; empty: it cannot. */
  readonly digest: string
  readonly unreadable: number
  readonly verifications: readonly Verification[]
  /** For the next report, if its source begins to look after this answer. */
  readonly next: Begin
}

export type Verdict = {
  readonly id: string
  readonly answer: 'live' | 'terminal' | 'gone' | 'unknown' | 'error'
  /** Of terminal: since when. */
  readonly terminalSince: number | null
  readonly detail: string
}

export type VerdictsGiven = Reporting & { readonly epoch: string; readonly verdicts: readonly Verdict[] }
export type VerdictsTaken = { readonly accepted: number; readonly ignored: number }

export type Intake = {
  begin(asked: Reporting): Promise<Begun | Refusal>
  report(given: ReportGiven): Promise<Reported | Refusal>
  verdicts(given: VerdictsGiven): Promise<VerdictsTaken | Refusal>
}
