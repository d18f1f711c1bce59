/** The ledger as other rooms see it: submit a command, get what was committed or why it was refused. */
import type { Command } from '../core/command.ts'
import type { Outcome } from '../core/decide.ts'
import type { Image } from '../core/image.ts'
import type { Refusal } from '../core/refusal.ts'

export type { Outcome } from '../core/decide.ts'

export type SubmitOptions = {
  /** `performance.now()` by which it is answered. Default: 10 s from now. */
  readonly deadline?: number
}

export type Ledger = {
  submit(command: Command, options?: SubmitOptions): Promise<Outcome>
  /**
   * The image of a network as this process has it, caught up as of this call; for dry runs, judging and freshness. It must
   * not be changed, nor kept across an `await` that matters. Null: there is no such network.
   *
   * @throws Unavailable
   */
  image(network: string, options?: SubmitOptions): Promise<Image | null>
  /** The ledger's clock now, in milliseconds since 1970: the database's, as last compared. */
  now(): number
  /** Refuses new commands, finishes what is queued, closes its connections. */
  close(): Promise<void>
}

/**
 * The image, however long loading it takes (a million leases: ten seconds); what the database refuses is said as soon as to a caller.
 *
 * @throws Unavailable
 */
export async function loadedImage(ledger: Pick<Ledger, 'image'>, network: string): Promise<Image | null> {
  for (;;)
    try {
      return await ledger.image(network)
    } catch (error) {
      // The load goes on.
      if (!(error instanceof Unavailable) || error.refusal.reason !== 'DEADLINE_EXCEEDED') throw error
    }
}

/** The image, or the log from a position on, cannot be read; the refusal says why. */
export class Unavailable extends Error {
  readonly refusal: Refusal
  constructor(reason: Refusal) {
    super(reason.message)
    this.refusal = reason
  }
}
