/**
 * The only writer of a network's ledger, as the rest of the house sees it: submit a command, get what was
 * committed or why it was refused. Batching, locking and recovery are behind it.
 */
import type { Answer, Command } from '../core/command.ts'
import type { Refusal } from '../core/refusal.ts'

export type Outcome =
  | { readonly ok: true; readonly answer: Answer; readonly replayed: boolean }
  | { readonly ok: false; readonly refusal: Refusal }

export type SubmitOptions = {
  /**
   * `performance.now()` by which it is answered: a command still queued is dropped and holds nothing, one whose commit
   * was not answered is OUTCOME_UNKNOWN.
   */
  readonly deadline?: number
  /** Callers go before the reconciler. */
  readonly lane?: 'caller' | 'reconciler'
}

export type Ledger = {
  submit(command: Command, options?: SubmitOptions): Promise<Outcome>
  /** Refuses new commands, finishes what is queued, closes its connections. */
  close(): Promise<void>
}
