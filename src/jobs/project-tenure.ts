/**
 * Tenure follows the log (ledger/tenure.ts): looked at every second, for as long as the slot lasts, so that it is never
 * behind by much more. A slice of each network in turn: one with a long log to read holds up no other. Whoever finds
 * another at a network leaves it to that one. A network in which it fails is left to the next run, and said; the others
 * are followed on.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { networksBehind, OtherLog, projectSlice } from '../ledger/tenure.ts'
import { createPace, type Pace } from '../ledger/transaction.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { collectFailures, type Job, type JobContext } from './job.ts'

const LOOK_EVERY_MS = 1_000
/** The job runs each minute; what comes later is the next run's. */
const SLOT_MS = 55_000

/** Events of a slice. */
const AT_FIRST = 2_000
const MOST = 40_000

/** `slotMs`: how long a run stays for what is written meanwhile; 0: it takes what is there. */
export function createProjectTenure({ slotMs = SLOT_MS }: { readonly slotMs?: number } = {}): Job {
  return async (context) => {
    const { database, signal } = context
    const end = performance.now() + slotMs
    const run: Run = {
      ...context,
      paces: new Map(),
      refused: new Set(),
      failures: collectFailures(context.log),
      done: { tenures: 0, overlaps: 0 },
    }
    for (;;) {
      let behind: readonly string[] = await networksBehind(database)
      while (behind.length > 0 && !signal.aborted) behind = await takeTurns(run, behind)
      const left = end - performance.now()
      if (signal.aborted || left <= 0) return run.failures.end(run.done)
      await delay(Math.min(LOOK_EVERY_MS, left), undefined, { signal }).catch(() => undefined)
    }
  }
}

type Run = Pick<JobContext, 'database' | 'log' | 'signal'> & {
  readonly paces: Map<string, Pace>
  /** Networks whose log is another than the one their tenure was made from, or that fail: said once a run. */
  readonly refused: Set<string>
  readonly failures: ReturnType<typeof collectFailures>
  readonly done: { tenures: number; overlaps: number }
}

/** A slice of each; answers which have more. */
async function takeTurns(run: Run, networks: readonly string[]): Promise<readonly string[]> {
  const more: string[] = []
  for (const network of networks) {
    if (run.signal.aborted || run.refused.has(network)) continue
    try {
      if (!(await takeTurn(run, network))) more.push(network)
    } catch (error) {
      if (run.signal.aborted) throw error
      run.refused.add(network)
      if (error instanceof OtherLog) run.log.error({ network, err: error }, 'tenure cannot follow the log')
      else run.failures.add(network, error)
    }
  }
  return more
}

async function takeTurn({ database, log, paces, done }: Run, network: string): Promise<boolean> {
  const pace = paces.get(network) ?? createPace(AT_FIRST, MOST)
  paces.set(network, pace)
  const begun = performance.now()
  const slice = await onConnection(database, (client) => projectSlice(client, network, pace.size()))
  pace.took(performance.now() - begun)
  done.tenures += slice.begun + slice.ended
  done.overlaps += slice.overlaps
  if (slice.overlaps > 0) {
    log.error(
      { network, overlaps: slice.overlaps },
      'two held one address at once: see ipledger_audit.tenure_overlaps',
    )
  }
  if (slice.strays > 0)
    log.error({ network, rows: slice.strays }, 'rows of tenure that are not of the log were removed')
  return slice.done
}
