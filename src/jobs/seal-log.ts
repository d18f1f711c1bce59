/**
 * Seals what of each network's log is closed (`ledger/seals.ts`), stretch after stretch, each in a statement of its own.
 * Where the last run stopped is where the last seal ends.
 *
 * Where the log has lost events nothing is sealed any more: said at every run, and told apart from a network with
 * nothing to seal by how far its seals lag behind its head.
 */
import { sealNext } from '../ledger/seals.ts'
import { inEachNetwork, type Job } from './job.ts'

/** Of a run, for one network: 40 million events. What is left is left to the next run. */
const MOST_SEALS = 10_000

export const sealLog: Job = (context) =>
  inEachNetwork(context, async (network) => {
    const { database, log, signal } = context
    const done = { seals: 0, sealed: 0, stopped: 0 }
    for (let look = 0; look < MOST_SEALS && !signal.aborted; look += 1) {
      const outcome = await sealNext(database, network)
      if ('stopped' in outcome) {
        log.error(
          { network, why: outcome.stopped },
          'nothing is sealed: the log has lost events, run "ipledger verify"',
        )
        return { ...done, stopped: 1 }
      }
      if ('waiting' in outcome) return done
      if (outcome.sealed > 0) done.seals += 1
      done.sealed += outcome.sealed
    }
    return done
  })
