/**
 * Verifies the log in the background, a piece of each network at a time, the network that was begun longest ago first. The table
 * `verification` says how far it came, so any process goes on where another stopped. After each piece it rests.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { TO_VERIFY } from '../ledger/sql/jobs.ts'
import { verifyNetwork } from '../ledger/verify.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { type Done, inEachNetwork, type JobContext, namesOf } from './job.ts'

/** Of the minute between two runs. */
const STAY_MS = 50_000
const PIECE_MS = 250
/** In times of the piece before: a sixteenth of one of PostgreSQL's processors. */
const REST = 15

export async function verify(context: JobContext, stayMs = STAY_MS): Promise<Done> {
  const { database, log, signal } = context
  const end = performance.now() + stayMs
  const done = { verified: 0, found: 0 }
  let unfinished: string[] = []
  const verifyPiece = async (network: string) => {
    const begun = performance.now()
    if (begun >= end) return {}
    const { complete, findings, omitted } = await onConnection(database, (client) =>
      verifyNetwork(client, network, { budgetMs: PIECE_MS }),
    )
    if (complete) done.verified += 1
    else unfinished.push(network)
    done.found += findings.length + omitted
    if (findings.length > 0)
      log.error(
        { network, findings, omitted },
        'the log and its tables differ: see ipledger_audit.verify_findings',
      )
    const rest = Math.min(REST * (performance.now() - begun), end - performance.now())
    await delay(Math.max(0, rest), undefined, { signal }).catch(() => undefined)
    return {}
  }
  let networks = await namesOf(database, TO_VERIFY)
  while (networks.length > 0 && performance.now() < end && !signal.aborted) {
    unfinished = []
    await inEachNetwork(context, verifyPiece, networks)
    networks = unfinished
  }
  return done
}
