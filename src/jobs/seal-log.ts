/**
 * Seals what of each network's log is closed (`ledger/seals.ts`), stretch after stretch, each in a transaction of its own.
 * Where the last run stopped is where the last seal ends. A run ends when its slot is over: a log that is long and was never
 * sealed takes several, and its network takes turns with the others meanwhile. Whoever finds another at a network leaves it
 * to that one.
 *
 * Where the log has lost events nothing is sealed any more: said at every run, and told apart from a network with
 * nothing to seal by how far its seals lag behind its head.
 */
import { sealNext } from '../ledger/seals.ts'
import { inTurns, type Job } from './job.ts'

/** The job runs each minute. One more seal begun at its end takes a fraction of a second. */
const SLOT_MS = 45_000
/** Seals of a network before the others have their turn: a second of work. */
const IN_A_ROW = 20

export function createSealLog({ slotMs = SLOT_MS }: { readonly slotMs?: number } = {}): Job {
  return async (context) => {
    const { database, log, signal } = context
    const end = performance.now() + slotMs
    const inTime = () => !signal.aborted && performance.now() < end
    const takeTurn = async (network: string) => {
      const done = { seals: 0, sealed: 0, stopped: 0 }
      for (let looks = 0; looks < IN_A_ROW && inTime(); looks += 1) {
        const outcome = await sealNext(database, network)
        if ('stopped' in outcome) {
          log.error(
            { network, why: outcome.stopped },
            'nothing is sealed: the log has lost events, run "ipledger verify"',
          )
          return { done: { ...done, stopped: 1 }, more: false }
        }
        if (!('sealed' in outcome)) return { done, more: false }
        if (outcome.sealed > 0) done.seals += 1
        done.sealed += outcome.sealed
      }
      return { done, more: true }
    }
    return inTurns(context, takeTurn, inTime)
  }
}

export const sealLog = createSealLog()
