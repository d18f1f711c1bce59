/**
 * Asks the sources that are asked, each in its turn. The head of the ledger is read first, then the source lists what is
 * there, and the intake takes the list like the report of any other source.
 *
 * - A turn is a row with a time: while one worker asks, no other does, and the turn of a killed one is over by itself.
 *   A worker that was stopped so long that its turn was over (SIGSTOP) reports out of sequence, which only protects.
 * - A source that does not answer has said nothing: it is silent, and why is logged and kept in its row. No part of an
 *   answer is ever taken for the whole.
 * - Intervals may be shorter than a slot of the schedule: the job stays for as long as some source is due within its
 *   slot. One that hangs holds up no other.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { POLICY } from '../core/policy.ts'
import type { Refusal } from '../core/refusal.ts'
import { beginEraBeyond } from '../ledger/eras.ts'
import { readManyEntries } from '../liveness/entries.ts'
import { beginSnapshot, isRefusal, takeSnapshot } from '../liveness/report.ts'
import { sightNews } from '../liveness/sighted.ts'
import { printable } from '../liveness/source.ts'
import type { Source } from '../liveness/source-rows.ts'
import type { Done, Job, JobContext } from './job.ts'

export const PULL_ACTOR = 'job:pull-sources'

/** Sources asked at a time by one worker. Not measured. */
const AT_ONCE = 8
/** Of these, as many that failed the last time: a rack that hangs takes no place from those that answer. Not measured. */
const FAILING_AT_ONCE = 4
/** Of a list, all its pages together; with the default cooldown its beginning counts for 60 s. */
const LIST_TIMEOUT_MS = 45_000
/** After this a worker that took a turn has ended, or hangs: a list, and time to write it down. */
const TURN_MS = 120_000
/** The job runs each minute; what comes due later than this is the next run's. */
const SLOT_MS = 55_000
/** Of a source that was never asked: before all others. */
const NEVER_ASKED_MS = -1e12
const PAGE = 1_000
const LONGEST_FAILURE = 1_000

const LIST_TURNS = `
  select s.source_id,
         coalesce(ceil(extract(epoch from t.next_at - clock_timestamp()) * 1000)::float8, $4::float8) as due_in_ms,
         coalesce(t.failure <> '', false) as failed
    from ipledger.source s
    left join lateral (
      select x.next_at, x.failure from ipledger.turn x
       where x.network_id = $1 and x.source_id = s.source_id order by x.source_id limit 1) t on true
   where s.network_id = $1 and s.source_id > $2 and s.kind <> 'push' and s.state <> 'RETIRED'
   order by s.source_id limit $3`

const TAKE_TURN = `
  insert into ipledger.turn (network_id, source_id, taken_at, taken_by, next_at, failure)
  values ($1, $2, clock_timestamp(), $3, clock_timestamp() + $4::bigint * interval '1 millisecond', '')
  on conflict (network_id, source_id) do update
    set taken_at = excluded.taken_at, taken_by = excluded.taken_by, next_at = excluded.next_at
  where turn.next_at <= excluded.taken_at
  returning source_id`

const END_TURN = `
  update ipledger.turn
     set next_at = taken_at + $4::bigint * interval '1 millisecond', failure = $5
   where network_id = $1 and source_id = $2 and taken_by = $3`

/** For the test of their plans. */
export const PULL_STATEMENTS = { listTurns: LIST_TURNS, takeTurn: TAKE_TURN, endTurn: END_TURN } as const

type Asked = { readonly network: string; readonly id: string }
type Due = Asked & {
  readonly dueInMs: number
  /** The last time it was asked. */
  readonly failed: boolean
}

/** `slotMs`: how long a run stays for sources that come due again. */
export function createPullSources({ slotMs = SLOT_MS }: { readonly slotMs?: number } = {}): Job {
  /** What was last logged of each source that fails, so that it is said once. */
  const told = new Map<string, string>()
  return (context) => pullFor(context, slotMs, told)
}

async function pullFor(context: JobContext, slotMs: number, told: Map<string, string>): Promise<Done> {
  const { database, signal } = context
  const begun = performance.now()
  const end = begun + slotMs
  const done = { pulled: 0, failed: 0, sighted: 0 }
  const running = new Map<string, Promise<void>>()
  const failing = new Set<string>()
  const hasPlace = ({ failed }: Due): boolean => !failed || failing.size < FAILING_AT_ONCE

  const start = (one: Due): void => {
    const key = keyOf(one)
    const run = pull(context, one, told)
      .then((pulled) => {
        if (pulled === 'failed') done.failed += 1
        if (typeof pulled === 'object') {
          done.pulled += 1
          done.sighted += pulled.sighted
        }
      })
      .finally(() => {
        running.delete(key)
        failing.delete(key)
      })
    // Waited for by whoever comes to it first; it fails only if the database does.
    run.catch(() => {})
    running.set(key, run)
    if (one.failed) failing.add(key)
  }

  const { rows } = await database.query<{ network_id: string }>(
    'select network_id from ipledger.network order by network_id',
  )
  let networks = rows.map(({ network_id }) => network_id)
  try {
    for (;;) {
      const turns = await listTurns(context, networks)
      // A network that gets its first one is looked at by the next run.
      networks = [...new Set(turns.map(({ network }) => network))]
      for (const one of turns) {
        if (one.dueInMs > 0 || running.has(keyOf(one)) || !hasPlace(one)) continue
        while (running.size >= AT_ONCE) await Promise.race(running.values())
        if (signal.aborted || performance.now() > begun + SLOT_MS) break
        start(one)
      }
      const left = end - performance.now()
      // Who has no place is waited for by who has one.
      const waiting = turns.filter((one) => !running.has(keyOf(one)) && (one.dueInMs > 0 || hasPlace(one)))
      const next = Math.min(...waiting.map(({ dueInMs }) => dueInMs))
      if (signal.aborted || left <= 0 || (running.size === 0 && next > left)) break
      await firstOf([...running.values()], Math.max(1, Math.min(next, left)), signal)
    }
  } finally {
    await Promise.all(running.values())
  }
  return done
}

function keyOf({ network, id }: Asked): string {
  return `${network}/${id}`
}

type TurnRow = { readonly source_id: string; readonly due_in_ms: number; readonly failed: boolean }

async function listTurns(
  { database, signal }: JobContext,
  networks: readonly string[],
): Promise<readonly Due[]> {
  const turns: Due[] = []
  for (const network of networks) {
    for (let after = ''; !signal.aborted; ) {
      const { rows } = await database.query<TurnRow>(LIST_TURNS, [network, after, PAGE, NEVER_ASKED_MS])
      turns.push(
        ...rows.map((row) => ({ network, id: row.source_id, dueInMs: row.due_in_ms, failed: row.failed })),
      )
      if (rows.length < PAGE) break
      after = rows.at(-1)!.source_id
    }
  }
  // Who has waited longest: what a run does not get to is first in the next.
  return turns.sort((a, b) => a.dueInMs - b.dueInMs)
}

/** Until one of them ends, or the time is over, or the worker stops. */
async function firstOf(running: readonly Promise<void>[], ms: number, signal: AbortSignal): Promise<void> {
  const over = new AbortController()
  const wait = delay(ms, undefined, { signal: AbortSignal.any([signal, over.signal]) }).catch(() => {})
  try {
    await Promise.race([...running, wait])
  } finally {
    over.abort()
  }
}

type Pulled = 'taken by another' | 'failed' | 'left' | { readonly sighted: number }

async function pull(context: JobContext, one: Asked, told: Map<string, string>): Promise<Pulled> {
  const { database, signal } = context
  const { network, id } = one
  const turn = randomUUID()
  const { rowCount } = await database.query(TAKE_TURN, [network, id, turn, TURN_MS])
  if (rowCount === 0) return 'taken by another'
  const end = (afterMs: number, failure: string) =>
    database.query(END_TURN, [network, id, turn, afterMs, printable(failure.slice(0, LONGEST_FAILURE))])
  let intervalMs: number = POLICY.pulledIntervalMs
  try {
    const asked = await ask(context, one, (source) => {
      intervalMs = source.intervalMs
    })
    tell(context, one, asked.incompleteBecause, told)
    await end(intervalMs, asked.incompleteBecause)
    return { sighted: asked.sighted }
  } catch (error) {
    // Stopped, not failed: another goes on at once.
    if (signal.aborted) {
      await end(0, '')
      return 'left'
    }
    const failure = messageOf(error)
    tell(context, one, failure, told)
    await end(intervalMs, failure)
    return 'failed'
  }
}

async function ask(
  { asked, database, intake, ledger, log, signal }: JobContext,
  { network, id }: Asked,
  onFound: (source: Source) => void,
): Promise<{ readonly sighted: number; readonly incompleteBecause: string }> {
  // The head first: what is listed afterwards is evidence of it (DESIGN §4).
  const beginning = settled(await beginSnapshot(intake, { network, source: id, quoted: { era: 0, head: 0 } }))
  const { begun, source } = beginning
  onFound(source)
  const listing = await asked
    .get(source)
    .list(AbortSignal.any([signal, AbortSignal.timeout(LIST_TIMEOUT_MS)]))
  const { epoch, complete, incompleteBecause } = listing
  const set = await readManyEntries(listing.entries, { network, node: source.node, epoch })
  const reported = settled(await takeSnapshot(intake, { begun, epoch, complete, set }))
  if (reported.is !== 'taken') throw new Error(`its snapshot was not taken but ${reported.is}`)
  const { ground } = reported
  if (ground.beyond !== null) {
    log.error(
      { network, source: id, ...ground },
      'the ledger was further when the source was asked: a new era begins',
    )
    await beginEraBeyond(ledger, { network, ground, actor: PULL_ACTOR })
  }
  if (reported.closedEpoch !== '') {
    log.warn({ network, source: id, epoch, closed: reported.closedEpoch }, 'a source began a new life')
  }
  const { findings } = await sightNews({ database, ledger }, network, reported, PULL_ACTOR)
  return { sighted: Object.values(findings).reduce((sum, one) => sum + one, 0), incompleteBecause }
}

function settled<T extends object>(result: T | Refusal): T {
  if (isRefusal(result)) throw new Error(`${result.reason}: ${result.message}`)
  return result
}

function tell({ log }: JobContext, { network, id }: Asked, failure: string, told: Map<string, string>): void {
  const key = keyOf({ network, id })
  if (failure === '') {
    if (told.delete(key)) log.info({ network, source: id }, 'a source answers again')
    return
  }
  if (told.get(key) === failure) return
  told.set(key, failure)
  log.warn({ network, source: id, why: failure }, 'a source did not list all that is there')
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { cause } = error
  return cause instanceof Error ? `${error.message}: ${cause.message}` : error.message
}
