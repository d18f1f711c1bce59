/**
 * One batch in two trips (DESIGN §2): lock and read; decide; append and commit. What comes out says how far it
 * got, because that decides what may be repeated: nothing sent, rolled back for certain, or unknown.
 */
import type pg from 'pg'
import { blockSize } from '../core/address.ts'
import type { Answer, BeginEra, Command } from '../core/command.ts'
import { decide } from '../core/decide.ts'
import type { LedgerEvent } from '../core/event.ts'
import { evolve } from '../core/evolve.ts'
import type { Refusal } from '../core/refusal.ts'
import { type Answered, BEGIN, COMMIT, type Statement, trip } from '../postgres/trip.ts'
import { type BatchObserved, onTrip } from '../telemetry.ts'
import type { AbsenceMemory } from './absence.ts'
import { alikeOf, anticipate, type Hints } from './anticipate.ts'
import { type NewRequest, writeBatch } from './append.ts'
import { isVeto } from './batcher.ts'
import type { ClockWatch } from './clock.ts'
import { type EraRules, eraDue, lostAfter } from './eras.ts'
import type { Outcome } from './ledger.ts'
import { currentLife, type DatabaseLife, isSameLife, storeLife } from './life.ts'
import { type Ask, ask, askFor, askHead } from './load.ts'
import { emptySlice, type Slice, Unsound } from './slice.ts'

export type BatchResult =
  /** Null: the command was not decided, because its caller has been answered. */
  | { readonly kind: 'committed'; readonly outcomes: readonly (Outcome | null)[] }
  /** Deciding one command failed, which is a defect: the others may run again without it. */
  | { readonly kind: 'defect'; readonly index: number; readonly error: unknown }
  /** Nothing was written: the whole batch may run again. */
  | { readonly kind: 'unsent'; readonly error: unknown }
  /** The database refused the writes and says it rolled back; it may run again, or its commands one by one. */
  | { readonly kind: 'rolledBack'; readonly error: unknown }
  /** The commit went out and no answer says what became of it. */
  | { readonly kind: 'unknown'; readonly error: unknown }

/** Leases in the lowest untouched range that spare the next batch a look at released addresses. */
const ROOMY = 4_096n
/**
 * A plan made while a table was empty, all indexes being equal, walks the table when it is not: 360 pairs a second
 * instead of 2,900 with 30,000 leases held, until the next autoanalyze. Making them anew costs a batch some 3 ms.
 */
const PLANS_LAST_MS = 5_000
const plannedAt = new WeakMap<pg.Client, number>()
/** A trip more for a decision that asks and asks would be a loop. */
const MOST_TRIPS_PER_COMMAND = 2_000

export async function runBatch(
  client: pg.Client,
  network: string,
  commands: readonly Command[],
  options: {
    readonly hints: Hints
    readonly absence: AbsenceMemory
    readonly setAside: ReadonlySet<string>
    readonly decides: (index: number) => boolean
    readonly eras: EraRules
    readonly clock?: ClockWatch
    readonly observed?: BatchObserved | null
  },
): Promise<BatchResult> {
  const slice = emptySlice(network, options.setAside, options.absence, options.hints.watched)
  const { eras } = options
  let decided: Decided
  let writes: readonly Statement[]
  try {
    const needs = commands.flatMap((command) => anticipate(command, options.hints))
    const asks = [
      ...replan(client),
      asIs(BEGIN),
      ...commands.filter((command) => command.type === 'createNetwork').map(() => lockRowOf(network)),
      ...askHead(slice),
      ...askFor(slice, needs),
    ]
    const asked = performance.now()
    await onTrip('load', asks.length, () => ask(client, asks))
    options.clock?.(slice.clock, asked, performance.now())
    const life = await currentLife(client, slice.database!)
    const { era = 0 } = slice.books.network ?? {}
    const endedAt = await lostAfter(client, network, eras.seen.head, era)
    const due = eraDue(slice, life, eras, commands, endedAt)
    if (due !== null) {
      await turnEra(client, slice, due, life)
      eras.onBegun(due)
      // What was read for the commands was read in the old era.
      return await runBatch(client, network, commands, options)
    }
    decided = await decideAll(client, slice, commands, options.decides)
    writes = toWrite(slice, decided, life)
  } catch (error) {
    await rollBack(client)
    return error instanceof Defect
      ? { kind: 'defect', index: error.index, error: error.cause }
      : { kind: 'unsent', error }
  }
  takeHints(slice, options.hints)
  const failed = await commit(client, writes)
  if (failed !== undefined) return failed
  eras.seen.head = Math.max(eras.seen.head, slice.books.head)
  options.observed?.committed(decided.events)
  return { kind: 'committed', outcomes: decided.outcomes }
}

/** A batch of its own, before the one that found out; whatever becomes of it, nothing of that one was decided. */
async function turnEra(client: pg.Client, slice: Slice, due: BeginEra, life: DatabaseLife): Promise<void> {
  const cannot = `era ${due.era} of network ${due.network} cannot be begun`
  const decided = await decideAll(client, slice, [due], () => true).catch((error: unknown) => {
    // None of the commands is to blame.
    throw error instanceof Defect ? new Error(cannot, { cause: error.cause }) : error
  })
  if (decided.events.length === 0) throw new Error(cannot)
  const failed = await commit(client, toWrite(slice, decided, life))
  if (failed !== undefined) throw failed.error
}

const DISCARD_PLANS: Statement = { name: 'discard_plans', text: 'discard plans', values: [] }

function asIs(statement: Statement): Ask {
  return { statement, apply: () => undefined }
}

function lockRowOf(network: string): Ask {
  const text = 'insert into ipledger.network_lock (network_id) values ($1) on conflict do nothing'
  return asIs({ name: 'write_lock', text, values: [network] })
}

function replan(client: pg.Client): readonly Ask[] {
  const now = performance.now()
  const planned = plannedAt.get(client)
  if (planned !== undefined && now - planned < PLANS_LAST_MS) return []
  plannedAt.set(client, now)
  return planned === undefined ? [] : [asIs(DISCARD_PLANS)]
}

function toWrite(slice: Slice, decided: Decided, life: DatabaseLife): readonly Statement[] {
  try {
    return [...writeBatch(slice, decided.events, decided.requests), ...lifeToStore(slice, life)]
  } catch (error) {
    throw new Unsound('the events cannot be written', { cause: error })
  }
}

function lifeToStore({ books, database }: Slice, life: DatabaseLife): readonly Statement[] {
  if (books.network === null || isSameLife(database!.stored, life)) return []
  return [storeLife(books.networkName, life, books.now)]
}

function takeHints(slice: Slice, hints: Hints): void {
  const { books } = slice
  if (books.defaultPools !== undefined) {
    hints.defaultPools = books.defaultPools.flatMap((id) => books.pools.get(id)?.pool.name ?? [])
  }
  hints.watched = slice.watched
  for (const { pool, untouched, untouchedUpTo } of books.pools.values()) {
    if (pool.liveness === 'STRICT') hints.strict.add(pool.name)
    else hints.strict.delete(pool.name)
    // Nothing was asked of its space.
    if (untouchedUpTo === -1n) continue
    const lowest = untouched[0]
    if (
      lowest !== undefined &&
      (lowest.last - lowest.first) / blockSize(pool.family, pool.prefixLength) > ROOMY
    ) {
      hints.roomy.add(pool.name)
    } else hints.roomy.delete(pool.name)
  }
}

type Decided = {
  readonly outcomes: readonly (Outcome | null)[]
  readonly events: readonly LedgerEvent[]
  readonly requests: readonly NewRequest[]
}

/** Decides in order; each command sees the events of those before it, refused ones leave only quarantines. */
async function decideAll(
  client: pg.Client,
  slice: Slice,
  commands: readonly Command[],
  decides: (index: number) => boolean,
): Promise<Decided> {
  const { books, events } = slice
  const outcomes: (Outcome | null)[] = []
  const requests: NewRequest[] = []
  for (const [index, command] of commands.entries()) {
    if (!decides(index)) {
      outcomes.push(null)
      continue
    }
    let decision = sound(index, () => decide(books, command))
    for (let trip = 0; decision.kind === 'missing'; trip += 1) {
      if (trip === MOST_TRIPS_PER_COMMAND) {
        throw new Defect(index, new Error(`${command.type} asks for ${decision.need.what} for ever`))
      }
      const { need, alike } = decision
      const needs = [need, ...alike, ...alikeOf(books, need, commands.slice(index))]
      const asks = askFor(slice, needs)
      await onTrip('loadMore', asks.length, () => ask(client, asks))
      decision = sound(index, () => decide(books, command))
    }
    const decided = decision.events
    sound(index, () => {
      for (const event of decided) evolve(books, event)
    })
    events.push(...decision.events)
    if (decision.kind === 'refused') {
      outcomes.push(refusedOutcome(decision.refusal))
      continue
    }
    outcomes.push({ ok: true, answer: decision.answer, replayed: decision.replayed })
    if (command.requestId !== null && !decision.replayed && !isDryRun(command)) {
      requests.push(remember(slice, command, command.requestId, decision.answer))
    }
  }
  return { outcomes, events, requests }
}

/** Rules and folds must not throw; which command made them is what isolates it (Azure#4449: one record blocked all). */
class Defect extends Error {
  readonly index: number
  constructor(index: number, cause: unknown) {
    super('a decision failed', { cause })
    this.index = index
  }
}

function sound<T>(index: number, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw new Defect(index, error)
  }
}

export function refusedOutcome(refusal: Refusal): Outcome {
  return { ok: false, refusal }
}

function isDryRun(command: Command): boolean {
  return command.type === 'reserve' && command.validateOnly
}

function remember(slice: Slice, command: Command, requestId: string, answer: Answer): NewRequest {
  const { books } = slice
  const request: NewRequest = {
    requestId,
    fingerprint: command.fingerprint ?? '',
    method: command.cause,
    seq: books.head,
    answer: JSON.stringify(answer),
  }
  books.requests.set(requestId, { ...request, at: books.now })
  return request
}

/**
 * Committed means that every statement was answered, the last with COMMIT. A statement that the server refuses makes it
 * skip the rest of the trip, the commit too, so that a rollback which is answered settles it: for what it says of a row.
 * Any other error may have come after the commit (an administrator's cancel while it was logged). Everything else once
 * the trip was sent leaves the outcome unknown. Undefined means committed.
 */
async function commit(
  client: pg.Client,
  writes: readonly Statement[],
): Promise<Extract<BatchResult, { kind: 'rolledBack' | 'unknown' }> | undefined> {
  let answered: readonly Answered[]
  try {
    answered = await onTrip('commit', writes.length + 1, () => trip(client, [...writes, COMMIT]))
  } catch (error) {
    const over = await rollBack(client)
    return { kind: over && isVeto(error) ? 'rolledBack' : 'unknown', error }
  }
  const { command } = answered.at(-1)!
  if (command === 'COMMIT') return undefined
  const error = new Error(`commit was answered with ${command}`)
  return { kind: command === 'ROLLBACK' ? 'rolledBack' : 'unknown', error }
}

/** Whether the server says that the transaction is over without a commit. */
async function rollBack(client: pg.Client): Promise<boolean> {
  try {
    const { command } = await client.query('rollback')
    return command === 'ROLLBACK'
  } catch {
    return false
  }
}
