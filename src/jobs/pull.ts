/**
 * Asks the sources that are asked, each when its interval is over. The report is begun first, then the source lists what is
 * there, and the intake takes the list like the report of any other source. A source that does not answer has said nothing:
 * it is silent. Why is logged and stored, for whoever looks at the source. No part of an answer is ever taken for the whole.
 *
 * Intervals may be shorter than a minute, so a run stays for as long as some source comes due. One that hangs holds up no
 * other. Two workers may ask one source at once: the sequence orders their lists.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { SourceDeclaration } from '../core/event.ts'
import { POLICY } from '../core/policy.ts'
import type { Refusal } from '../core/refusal.ts'
import { sourceOf } from '../ledger/tables.ts'
import { limitTo } from '../limit-to.ts'
import { ask } from '../postgres/on-connection.ts'
import { sentence } from '../sources/source.ts'
import { withinRunning } from '../time-limit.ts'
import { inEachNetwork, type Job, type JobContext } from './job.ts'

/** Sources asked at a time by one worker: many, since one that hangs takes a place for as long as a list may take. Not measured. */
const AT_ONCE = 32
/** Of a list, all its pages together; with the default cooldown its beginning counts for 60 s. */
const LIST_TIMEOUT_MS = 45_000
const REPORT_WITHIN_MS = 30_000
/** The job runs each minute; what comes due later than this, and sources that are new, are the next run's. */
const STAY_MS = 55_000

const ASKED = `
  select s.*, r.reported_at from ipledger.source s
    left join ipledger.source_report r on r.network_id = s.network_id and r.source_id = s.source_id
   where s.network_id = $1 and s.state <> 'RETIRED' and s.declaration ->> 'kind' <> 'push'`

const PULL = { name: 'job:pull', node: null }

type Turn = {
  readonly network: string
  readonly declaration: SourceDeclaration
  /** When this process began to ask it last, and why it failed; empty: it did not; null: it was not asked yet. */
  askedAt: number
  failure: string | null
}

const FAILED = `
  insert into ipledger.source_failure as f (network_id, source_id, since, why) values ($1, $2, clock_timestamp(), $3)
  on conflict (network_id, source_id) do update set why = excluded.why where f.why <> excluded.why`
const RECOVERED = 'delete from ipledger.source_failure where network_id = $1 and source_id = $2'

export function createPull({ stayMs = STAY_MS }: { readonly stayMs?: number } = {}): Job {
  let turns = new Map<string, Turn>()

  return async (context) => {
    const { signal, ledger } = context
    const end = performance.now() + stayMs
    const limited = limitTo(AT_ONCE)
    const done = { pulled: 0, failed: 0 }
    const pullUntilEnd = async (turn: Turn): Promise<void> => {
      for (;;) {
        const wait = Math.max(0, turn.askedAt + turn.declaration.intervalMs - ledger.now())
        if (signal.aborted || performance.now() + wait >= end) return
        await delay(wait, undefined, { signal }).catch(() => undefined)
        const failure = await limited(() => {
          turn.askedAt = ledger.now()
          return pull(context, turn)
        })
        if (signal.aborted) return
        await tell(context, turn, failure)
        done[failure === '' ? 'pulled' : 'failed'] += 1
      }
    }
    turns = await listTurns(context, turns)
    await Promise.all([...turns.values()].map(pullUntilEnd))
    return done
  }
}

async function listTurns(context: JobContext, before: ReadonlyMap<string, Turn>): Promise<Map<string, Turn>> {
  const turns = new Map<string, Turn>()
  const list = async (network: string) => {
    for (const row of await ask<Record<string, unknown>>(context.database, ASKED, [network])) {
      const { declaration } = sourceOf(row)
      const key = `${network}/${declaration.id}`
      const { askedAt = 0, failure = null } = before.get(key) ?? {}
      const reportedAt = (row.reported_at as number | null) ?? 0
      turns.set(key, { network, declaration, askedAt: Math.max(askedAt, reportedAt), failure })
    }
    return {}
  }
  // What one network lacks is said, and the others are asked.
  await inEachNetwork(context, list).catch(() => undefined)
  return turns
}

/** Why it said nothing, or not all; empty: its list was complete. */
async function pull({ asked, intake, signal }: JobContext, { network, declaration }: Turn): Promise<string> {
  try {
    const mayReport = () => null
    const reporting = (withinMs: number) => ({
      network,
      source: declaration.id,
      traceId: null,
      actor: PULL,
      mayReport,
      deadline: performance.now() + withinMs,
    })
    // Begun first: what is listed afterwards is evidence of it.
    const {
      era: _,
      intervalMs: __,
      ...begin
    } = settled(await intake.begin(reporting(POLICY.lookUpTimeoutMs)))
    const source = asked.get(network, declaration)
    const listed = await withinRunning(LIST_TIMEOUT_MS, signal, (limit) => source.list(limit))
    const { epoch, complete, because, entries } = listed
    const content = { entries }
    settled(await intake.report({ ...reporting(REPORT_WITHIN_MS), ...begin, epoch, complete, content }))
    return because
  } catch (error) {
    return sentence(error) || 'it failed'
  }
}

function settled<T extends object>(result: T | Refusal): T {
  if ('reason' in result) throw new Error(`${result.reason}: ${(result as Refusal).message}`)
  return result
}

async function tell({ log, database }: JobContext, turn: Turn, failure: string): Promise<void> {
  const before = turn.failure
  if (failure === before) return
  const { network, declaration } = turn
  const about = { network, source: declaration.id }
  if (failure !== '') log.warn({ ...about, why: failure }, 'a source did not list all that is there')
  else if (before !== null) log.info(about, 'a source answers again')
  if (failure === '') await ask(database, RECOVERED, [network, declaration.id])
  else await ask(database, FAILED, [network, declaration.id, failure])
  turn.failure = failure
}
