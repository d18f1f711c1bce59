/**
 * The log is verified without anybody asking: a piece of each network in turn, the one whose turn was longest ago first. How
 * far it came is in the table `verification`, so any process goes on where another stopped. It is never in a hurry: after each
 * piece it rests, and a network that was looked at from end to end is left alone for a while.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { verifyNetwork } from '../ledger/verify.ts'
import { ask, onConnection } from '../postgres/on-connection.ts'
import { inEachNetwork, type Job } from './job.ts'

/** Of the minute between two runs. */
const STAY_MS = 50_000
const PIECE_MS = 250
/** In times of the piece before: a sixteenth of one of PostgreSQL's processors. */
const REST = 15
const AGAIN_AFTER = '5 minutes'

const TURNS = `
  select l.network_id from ipledger.network_lock l
    left join ipledger.verification v on v.network_id = l.network_id
   where v.network_id is null or v.finished_at is null or v.finished_at < v.started_at
      or v.finished_at < clock_timestamp() - interval '${AGAIN_AFTER}'
   order by v.started_at nulls first, l.network_id`

export function createVerify({ stayMs = STAY_MS }: { readonly stayMs?: number } = {}): Job {
  return async (context) => {
    const { database, log, signal } = context
    const end = performance.now() + stayMs
    const done = { verified: 0, found: 0 }
    const verifyPiece = (unfinished: string[]) => async (network: string) => {
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
    let turns = (await ask<{ network_id: string }>(database, TURNS)).map((row) => row.network_id)
    while (turns.length > 0 && performance.now() < end && !signal.aborted) {
      const unfinished: string[] = []
      await inEachNetwork(context, verifyPiece(unfinished), turns)
      turns = unfinished
    }
    return done
  }
}
