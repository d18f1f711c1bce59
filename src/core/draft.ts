import type { Books } from './books.ts'
import type { Command } from './command.ts'
import type { EventHeader, Evidence, LedgerEvent } from './event.ts'

/** An event whose number is not known yet: a refusal may still drop what stands before it. */
export type Draft = {
  readonly evidence: Evidence | null
  readonly event: (header: EventHeader) => LedgerEvent
}

/** Numbers the drafts in order, as the next events of the ledger. */
export function number(books: Books, command: Command, drafts: readonly Draft[]): readonly LedgerEvent[] {
  return drafts.map((draft, index) =>
    draft.event({
      network: books.networkName,
      seq: books.head + 1 + index,
      at: books.now,
      actor: command.actor.name,
      cause: command.cause,
      requestId: command.requestId,
      traceId: command.traceId,
      evidence: draft.evidence,
    }),
  )
}
