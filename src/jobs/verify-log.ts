/**
 * The books are verified without anybody asking (ledger/verification.ts): of each network what is new, then a piece of the look
 * at all of it, the one whose turn was longest ago first. What is found is written down and said once, at error.
 *
 * It is never in a hurry: after each piece it rests, and a run ends after `SLOT_MS` wherever it is. Measured with a log of
 * 970,000 events and 50,000 leases, on 2 cores that had other work: new events take 13 µs of CPU each (in Node and PostgreSQL together), and a run
 * follows 7,000 a second (its lag shows in ipledger_verify_age_seconds); a network with nothing new 1.5 ms a minute. All of it, measured later
 * with 400,000 events and 50,000 leases: 22 µs an event, of which tenures are 10 and seals 5; 45,000 events a second while it works, which
 * is a twelfth of the time at most. A look at 100 million events is done in 8 hours by that, and the next one begins 12 hours later;
 * one at a million takes five minutes, and the next begins after seven.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { networksWithoutRow } from '../ledger/shape-rows.ts'
import { type Looked, type LookOptions, lookAtAll, lookAtRecent } from '../ledger/verification.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { inEachNetwork, type Job, type JobContext } from './job.ts'

/** Of the minute between two runs. */
const SLOT_MS = 20_000
/** What new events may take of it. */
const RECENT_MS = 12_000
/** Of a piece: a connection is not held for longer by one that can be divided. */
const PIECE_MS = 500
/** Pauses, in times of the piece before. */
const REST_AFTER_RECENT = 0.5
const REST_AFTER_WHOLE = 3
/** Said one by one; of the rest how many there are. */
const MOST_SAID = 20

/** Of those that have no row nothing is left but what others remember: they are looked at too, so that somebody says so. */
const TURNS = `
  select k.network_id from unnest($1::text[]) as k (network_id)
    left join ipledger.network n on n.network_id = k.network_id
    left join ipledger.verification v on v.network_id = k.network_id
   where n.state is distinct from 'REBUILDING'
   order by v.worked_at nulls first, k.network_id`

export type VerifyLogOptions = {
  readonly slotMs?: number
  readonly pieceMs?: number
  /** For tests: rows per transaction. */
  readonly slice?: number
}

export function createVerifyLog({ slotMs = SLOT_MS, pieceMs = PIECE_MS, slice }: VerifyLogOptions = {}): Job {
  return async (context) => {
    const begun = performance.now()
    const run: Run = {
      ...context,
      by: randomUUID(),
      pieceMs,
      slice,
      left: () => slotMs - (performance.now() - begun),
      done: { verified: 0, found: 0 },
      failure: null,
    }
    const networks = await inTurn(context)
    const most = Math.min(slotMs, RECENT_MS)
    const isNewTime = () => slotMs - run.left() < most
    await takeTurns(run, networks, { look: lookAtRecent, rest: REST_AFTER_RECENT, inTime: isNewTime })
    await takeTurns(run, networks, { look: lookAtAll, rest: REST_AFTER_WHOLE, inTime: () => run.left() > 0 })
    // The others were looked at all the same.
    if (run.failure !== null && !context.signal.aborted) throw run.failure.error
    return run.done
  }
}

type Run = JobContext & {
  readonly by: string
  readonly pieceMs: number
  readonly slice: number | undefined
  readonly left: () => number
  readonly done: { verified: number; found: number }
  failure: { readonly error: unknown } | null
}

/** Of one that is being rebuilt the projections are known to be wrong. */
async function inTurn(context: JobContext): Promise<readonly string[]> {
  const names: string[] = []
  await inEachNetwork(context, async (network) => {
    names.push(network)
    return {}
  })
  names.push(...(await networksWithoutRow(context.database)))
  const { rows } = await context.database.query<{ network_id: string }>(TURNS, [names])
  return rows.map(({ network_id }) => network_id)
}

type Turn = Readonly<{
  look: (client: pg.Client, network: string, options: LookOptions) => Promise<Looked | null>
  rest: number
  inTime: () => boolean
}>

/** A piece of each, and again of those that have more: a long log holds up no other. */
async function takeTurns(run: Run, networks: readonly string[], { look, rest, inTime }: Turn): Promise<void> {
  const { database, signal, by, slice, pieceMs: workMs, left } = run
  for (let behind = networks; behind.length > 0; ) {
    const more: string[] = []
    for (const network of behind) {
      if (signal.aborted || !inTime()) return
      const begun = performance.now()
      try {
        const looked = await onConnection(database, (client) =>
          look(client, network, { by, workMs, signal, slice }),
        )
        if (looked === null) continue
        tell(run, network, looked)
        if (looked.more) more.push(network)
      } catch (error) {
        if (signal.aborted) return
        run.log.error({ network, err: error }, 'a network could not be verified')
        run.failure ??= { error }
      }
      const pause = Math.min(rest * (performance.now() - begun), left())
      if (pause > 0) await delay(pause, undefined, { signal }).catch(() => undefined)
    }
    behind = more
  }
}

function tell({ log, done }: Run, network: string, { events, found, leftOut }: Looked): void {
  done.verified += events
  done.found += found.length
  for (const { message, network: _, ...finding } of found.slice(0, MOST_SAID))
    log.error({ network, ...finding }, `the books differ: ${message}`)
  if (found.length > MOST_SAID)
    log.error(
      { network, more: found.length - MOST_SAID },
      'the books differ: see ipledger_audit.verify_findings',
    )
  for (const what of leftOut)
    log.warn({ network, what }, 'too much to be verified in passing: run "ipledger verify --full"')
}
