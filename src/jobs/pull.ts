/**
 * Asks the sources that are asked, each when its interval is over. The report is begun first, then the source lists what is there,
 * and the intake takes the list like the report of any other source. No part of an answer is taken for the whole. A source that
 * does not answer is silent; the reason is logged and stored.
 *
 * Intervals may be shorter than a minute, so a run stays for as long as some source comes due. A source that hangs delays no
 * other. Two workers may ask one source at once: the sequence orders their lists.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { SourceDeclaration } from '../core/event.ts'
import { POLICY } from '../core/policy.ts'
import type { Refusal } from '../core/refusal.ts'
import { FAILED, PULLED, RECOVERED } from '../ledger/sql/sources.ts'
import { type Row, sourceOf } from '../ledger/tables.ts'
import { limitTo } from '../limit-to.ts'
import { ask } from '../postgres/on-connection.ts'
import { sentence } from '../sources/source.ts'
import { withinRunning } from '../time-limit.ts'
import { type Done, inEachNetwork, type JobContext } from './job.ts'

/** Sources asked at a time by one worker. Many, because a source that hangs keeps its slot until the time-out. Not measured. */
const AT_ONCE = 32
/** Of a list, all its pages together; with the default cooldown its beginning counts for 60 s. */
const LIST_TIMEOUT_MS = 45_000
const REPORT_WITHIN_MS = 30_000
/** The job runs each minute; what comes due later than this, and sources that are new, are the next run's. */
const STAY_MS = 55_000

const PULL = { name: 'job:pull', node: null }

/** One source that is asked. */
type Entry = {
  readonly network: string
  readonly declaration: SourceDeclaration
  /** When this process began to ask it last, and why it failed; empty: it did not; null: it was not asked yet. */
  askedAt: number
  failure: string | null
}

export class Pull {
  #entries = new Map<string, Entry>()

  readonly run = async (context: JobContext, stayMs = STAY_MS): Promise<Done> => {
    const { signal, ledger } = context
    const limited = limitTo(AT_ONCE)
    const done = { pulled: 0, failed: 0 }
    const pullUntilEnd = async (entry: Entry): Promise<void> => {
      for (;;) {
        const wait = Math.max(0, entry.askedAt + entry.declaration.intervalMs - ledger.now())
        if (signal.aborted || performance.now() + wait >= end) return
        await delay(wait, undefined, { signal }).catch(() => undefined)
        const failure = await limited(() => {
          entry.askedAt = ledger.now()
          return pull(context, entry)
        })
        if (signal.aborted) return
        await keepFailure(context, entry, failure)
        done[failure === '' ? 'pulled' : 'failed'] += 1
      }
    }
    await this.#schedule(context)
    const end = performance.now() + stayMs
    await Promise.all([...this.#entries.values()].map(pullUntilEnd))
    return done
  }

  async #schedule(context: JobContext): Promise<void> {
    const entries = new Map<string, Entry>()
    const addSources = async (network: string) => {
      for (const row of await ask<Row>(context.database, PULLED, [network])) {
        const { declaration } = sourceOf(row)
        const key = `${network}/${declaration.id}`
        const { askedAt = 0, failure = null } = this.#entries.get(key) ?? {}
        const reportedAt = (row.reported_at as number | null) ?? 0
        entries.set(key, { network, declaration, askedAt: Math.max(askedAt, reportedAt), failure })
      }
      return {}
    }
    // A network that fails is logged, and the others are asked.
    await inEachNetwork(context, addSources).catch(() => undefined)
    this.#entries = entries
  }
}

/** Why its list is missing or not complete; empty: it is complete. */
async function pull(
  { pulled, intake, signal }: JobContext,
  { network, declaration }: Entry,
): Promise<string> {
  try {
    const reporting = (withinMs: number) => ({
      network,
      source: declaration.id,
      traceId: null,
      actor: PULL,
      mayReport: () => null,
      deadline: performance.now() + withinMs,
    })
    // Begun first: what is listed afterwards is evidence of it.
    const begun = accepted(await intake.begin(reporting(POLICY.lookUpTimeoutMs)))
    const source = pulled.get(network, declaration)
    const listed = await withinRunning(LIST_TIMEOUT_MS, signal, (limit) => source.list(limit))
    const { because, epoch, complete, entries } = listed
    const { sequence, head, begunAt, proof } = begun
    const report = { epoch, complete, content: { entries }, sequence, head, begunAt, proof }
    accepted(await intake.report({ ...reporting(REPORT_WITHIN_MS), ...report }))
    return because
  } catch (error) {
    return sentence(error) || 'it failed'
  }
}

function accepted<T extends object>(result: T | Refusal): T {
  if ('reason' in result) throw new Error(`${result.reason}: ${(result as Refusal).message}`)
  return result
}

async function keepFailure({ log, database }: JobContext, entry: Entry, failure: string): Promise<void> {
  const before = entry.failure
  if (failure === before) return
  const { network, declaration } = entry
  const about = { network, source: declaration.id }
  if (failure !== '') log.warn({ ...about, why: failure }, 'a source did not list all that is there')
  else if (before !== null) log.info(about, 'a source answers again')
  if (failure === '') await ask(database, RECOVERED, [network, declaration.id])
  else await ask(database, FAILED, [network, declaration.id, failure])
  entry.failure = failure
}
