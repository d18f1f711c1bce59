/** A report of a source and its answer; look-ups that it is asked for, and its verdicts. */
import type { Actor } from '../core/command.ts'
import type { SourceDeclaration } from '../core/event.ts'
import type { Owner } from '../core/owner.ts'
import type { Refusal } from '../core/refusal.ts'
import type { GivenEntry, LookUp } from './source.ts'

export type Reporting = {
  readonly network: string
  readonly source: string
  readonly traceId: string | null
  /** `performance.now()` after which no answer is needed. */
  readonly deadline: number
  readonly actor: Actor
  readonly mayReport: (source: Pick<SourceDeclaration, 'id' | 'node'>) => Refusal | null
}

export type Begin = {
  readonly sequence: number
  readonly head: number
  /** Milliseconds since 1970, by the ledger's clock. */
  readonly begunAt: number
  /** That `head` was answered to this source. */
  readonly proof: Uint8Array
}

export type Report = Reporting &
  Begin & {
    readonly epoch: string
    readonly complete: boolean
    /** The entries as they were sent, or the digest of an earlier answer that they still have. */
    readonly content: { readonly entries: readonly GivenEntry[] } | { readonly unchanged: string }
  }

/** A look-up that a source is asked for with the answer to its report. `leaseId`: empty where there is none now. */
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
  /** `unchanged` is not the digest of the stored list: nothing was done, and the entries must be sent. */
  readonly resend: boolean
  /** To be sent as `unchanged` while the list stays as it is; empty: it cannot. */
  readonly digest: string
  readonly unreadable: number
  readonly verifications: readonly Verification[]
  /** For the next report, if its source scans after this answer. */
  readonly next: Begin
}

export type Verdict = LookUp & { readonly id: string }
