/**
 * The queue of one network. Commands collect while the batch before is in flight; there is no timer. Callers go
 * before the reconciler. The queue is bounded. Every caller is answered by its deadline: a command that waits by then
 * is dropped and holds nothing; of one that was decided nobody knows, and its batch goes on. A batch that fails before
 * its writes were sent returns whole to the front of the queue and is tried again until its commands' deadlines; one
 * the database vetoed is run again command by command.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { StartRefused } from '../config.ts'
import type { Command } from '../core/command.ts'
import { isShapeCommand } from '../core/command.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import {
  apart,
  type BatchObserved,
  beginBatch,
  countCommand,
  type Origin,
  originOfCommand,
} from '../telemetry.ts'
import { weightOf } from './anticipate.ts'
import { type BatchResult, refusedOutcome } from './batch.ts'
import type { Outcome, SubmitOptions } from './ledger.ts'
import { Unsound } from './slice.ts'

export type BatcherLimits = {
  /** Commands that may wait, per lane. */
  readonly queued: number
  /** Leases one batch may touch. */
  readonly leasesPerBatch: number
  readonly defaultDeadlineMs: number
}

/** Callers go before the reconciler. */
const LANES = ['caller', 'reconciler'] as const
type Lane = (typeof LANES)[number]

type Waiting = {
  readonly command: Command
  readonly lane: Lane
  readonly deadline: number
  readonly origin: Origin | null
  readonly resolve: (outcome: Outcome) => void
  /**
   * Waiting: nothing was decided, so that its caller may still be told that it holds nothing. Decided: its batch may
   * commit it, whether its inserts were sent or not.
   */
  standing: 'waiting' | 'decided' | 'answered'
}

/** `decides` is asked as a command's turn comes; false: its caller was told that it holds nothing. */
export type Run = (
  commands: readonly Command[],
  decides: (index: number) => boolean,
  signal: AbortSignal,
  observed: BatchObserved | null,
) => Promise<BatchResult>

export type BatcherEvents = {
  /** The database refused a row that the books allow. True if its address is set aside from now on. */
  readonly onVeto: (error: unknown, command: Command) => boolean
  readonly onFailure: (result: BatchResult) => void
  readonly onRefused: (refused: Refusal, command: Command) => void
  /** Decisions and rules must not throw; a command that makes them is a defect, and only it fails. */
  readonly onDefect: (error: unknown, command: Command) => void
}

export type Batcher = {
  submit(command: Command, options: SubmitOptions): Promise<Outcome>
  /** True when nothing waits and nothing is in flight. */
  idle(): boolean
  /** Resolves once everything queued has been answered. */
  drained(): Promise<void>
  /** Commands that no batch has taken yet. */
  queued(): number
}

/** Addresses in a row that the database may veto for one command before it is refused. */
const MOST_VETOES = 32
const FIRST_BACKOFF_MS = 20
const LONGEST_BACKOFF_MS = 1_000
/** Well beyond what the role's settings let a statement take: by then the connection is taken for dead. No measurement. */
const LONGEST_BATCH_MS = 12_000

/** A batch takes milliseconds: one this old waits for a database that does not answer. No measurement. */
const UNANSWERED_MS = 2_000

export function createBatcher(run: Run, limits: BatcherLimits, events: BatcherEvents): Batcher {
  const lanes: Record<Lane, Waiting[]> = { caller: [], reconciler: [] }
  let running = false
  /** Taken from the lanes and not put back: with one that is run alone, those whose turn comes later. */
  let inFlight: readonly Waiting[] = []
  let inFlightSince = 0
  let failing: unknown
  let onDrained: (() => void)[] = []
  let sweeper: NodeJS.Timeout | undefined

  function submit(command: Command, options: SubmitOptions): Promise<Outcome> {
    const name = options.lane ?? 'caller'
    const lane = lanes[name]
    if (lane.length >= limits.queued) {
      countCommand(command.type, 'OVERLOADED')
      return Promise.resolve(
        refusedOutcome(
          refusal(
            'OVERLOADED',
            `${lane.length} commands wait for network ${command.network}, the limit; try again later`,
            { network: command.network, limit: String(limits.queued) },
            100,
          ),
        ),
      )
    }
    return new Promise((resolve) => {
      lane.push({
        command,
        lane: name,
        deadline: options.deadline ?? performance.now() + limits.defaultDeadlineMs,
        origin: originOfCommand(),
        resolve,
        standing: 'waiting',
      })
      // After what has arrived was read: when this process stood still, the answer may be there already.
      sweeper ??= setInterval(() => setImmediate(sweep), 50).unref()
      if (!running) {
        running = true
        // After the callers of this turn of the event loop have queued theirs.
        apart(() => setImmediate(() => void work()))
      }
    })
  }

  async function work(): Promise<void> {
    let backoff = FIRST_BACKOFF_MS
    let answered = Promise.resolve()
    for (;;) {
      inFlight = []
      const batch = take()
      if (batch.length === 0) break
      inFlight = batch
      const result = await guarded(batch)
      if (result.kind === 'committed') {
        failing = undefined
        backoff = FIRST_BACKOFF_MS
        const answerAll = () => {
          for (const [index, one] of batch.entries()) answer(one, result.outcomes[index]!)
        }
        // Where others wait, their batch goes out first: the database works while the answers are written.
        if (lanes.caller.length + lanes.reconciler.length === 0) answerAll()
        else answered = new Promise((resolve) => setImmediate(() => resolve(answerAll())))
        continue
      }
      events.onFailure(result)
      if (result.kind === 'defect') {
        const one = batch[result.index]!
        events.onDefect(result.error, one.command)
        answer(one, refusedOutcome(contradiction(one.command)))
        putBack(batch)
        continue
      }
      if (result.kind !== 'unknown' && concernsOne(result.error)) {
        await oneByOne(batch)
        continue
      }
      if (result.kind === 'unsent') {
        failing = result.error
        putBack(batch)
        await delay(backoff)
        backoff = Math.min(backoff * 2, LONGEST_BACKOFF_MS)
        continue
      }
      for (const one of batch) answer(one, outcomeUnknown(one.command))
    }
    await answered
    if (lanes.caller.length + lanes.reconciler.length > 0) return work()
    running = false
    if (sweeper !== undefined && lanes.caller.length + lanes.reconciler.length === 0) {
      clearInterval(sweeper)
      sweeper = undefined
    }
    for (const resolve of onDrained) resolve()
    onDrained = []
  }

  /** After a veto each command stands alone, so that only the one it is about is refused. */
  async function oneByOne(batch: readonly Waiting[]): Promise<void> {
    waitAgain(batch)
    for (const [index, one] of batch.entries()) {
      if (one.standing === 'answered') continue
      if (!(await alone(one))) {
        putBack(batch.slice(index))
        return
      }
    }
  }

  /** False when the database went away meanwhile and the command has to wait. */
  async function alone(one: Waiting): Promise<boolean> {
    for (let attempt = 0; ; attempt += 1) {
      const result = await guarded([one])
      if (result.kind === 'committed') {
        failing = undefined
        answer(one, result.outcomes[0]!)
        return true
      }
      events.onFailure(result)
      if (result.kind === 'unknown' || (result.kind === 'rolledBack' && !isVeto(result.error))) {
        answer(one, outcomeUnknown(one.command))
        return true
      }
      if (result.kind === 'unsent' && !concernsOne(result.error)) {
        failing = result.error
        return false
      }
      // The address is set aside from now on: the same command finds another.
      if (result.kind === 'rolledBack' && attempt < MOST_VETOES && events.onVeto(result.error, one.command)) {
        if (waitAgain([one]).length === 0) return true
        continue
      }
      events.onDefect(result.error, one.command)
      answer(one, refusedOutcome(contradiction(one.command)))
      return true
    }
  }

  async function guarded(batch: readonly Waiting[]): Promise<BatchResult> {
    const abort = new AbortController()
    const watchdog = setTimeout(
      () => abort.abort(new Error('the database does not answer')),
      LONGEST_BATCH_MS,
    )
    inFlightSince = performance.now()
    const observed = beginBatch(
      batch[0]!.command.network,
      batch.map(({ origin }) => origin),
    )
    const ran = () =>
      run(
        batch.map(({ command }) => command),
        (index) => decides(batch[index]!),
        abort.signal,
        observed,
      )
    let result: BatchResult
    try {
      result = await (observed === null ? ran() : observed.run(ran))
    } catch (error) {
      result = { kind: 'unsent', error }
    } finally {
      clearTimeout(watchdog)
    }
    observed?.end(result.kind, result.kind === 'committed' ? undefined : result.error)
    return result
  }

  /** A deadline that passed while the batch waited for a connection or the lock counts as one in the queue. */
  function decides(one: Waiting): boolean {
    if (one.standing === 'waiting' && one.deadline <= performance.now())
      answer(one, missedDeadline(one.command))
    if (one.standing === 'answered') return false
    one.standing = 'decided'
    return true
  }

  function answer(one: Waiting, outcome: Outcome): void {
    if (one.standing === 'answered') return
    one.standing = 'answered'
    countCommand(one.command.type, outcome.ok ? null : outcome.refusal.reason)
    if (!outcome.ok) events.onRefused(outcome.refusal, one.command)
    one.resolve(outcome)
  }

  /** The next batch: callers first, at least one of the reconciler's, commands of shape alone. */
  function take(): readonly Waiting[] {
    const batch: Waiting[] = []
    let weight = 0
    const now = performance.now()
    for (const name of LANES) {
      const lane = lanes[name]
      let taken = 0
      for (const one of lane) {
        if (one.deadline <= now) {
          taken += 1
          answer(one, missedDeadline(one.command))
          continue
        }
        if (isShapeCommand(one.command)) {
          if (batch.length > 0) break
          lane.splice(0, taken + 1)
          return [one]
        }
        const own = weightOf(one.command)
        const promised = one.lane === 'reconciler' && taken === 0
        if (batch.length > 0 && weight + own > limits.leasesPerBatch && !promised) break
        batch.push(one)
        weight += own
        taken += 1
      }
      lane.splice(0, taken)
      if (batch.length > 0 && lane.length > 0 && isShapeCommand(lane[0]!.command)) break
    }
    return batch
  }

  /** Those still to be answered, of whom nothing was committed and nothing will be. */
  function waitAgain(batch: readonly Waiting[]): readonly Waiting[] {
    const open = batch.filter((one) => one.standing !== 'answered')
    for (const one of open) one.standing = 'waiting'
    return open
  }

  function putBack(batch: readonly Waiting[]): void {
    inFlight = []
    const open = waitAgain(batch)
    // Copied: a call can be given a hundred thousand arguments, and no more.
    for (const name of LANES) lanes[name] = [...open.filter((one) => one.lane === name), ...lanes[name]]
  }

  /** Ends commands whose deadline passes while the database is away or busy. */
  function sweep(): void {
    const now = performance.now()
    for (const one of inFlight) {
      if (one.standing === 'answered' || one.deadline > now) continue
      answer(one, one.standing === 'decided' ? outcomeUnknown(one.command) : missedDeadline(one.command))
    }
    for (const name of LANES) {
      const lane = lanes[name]
      if (!lane.some((one) => one.deadline <= now)) continue
      const late = lane.filter((one) => one.deadline <= now)
      lanes[name] = lane.filter((one) => one.deadline > now)
      for (const one of late) answer(one, missedDeadline(one.command))
    }
  }

  function unanswered(): boolean {
    return inFlight.length > 0 && performance.now() - inFlightSince > UNANSWERED_MS
  }

  function missedDeadline(command: Command): Outcome {
    return refusedOutcome(
      failing === undefined && !unanswered()
        ? refusal(
            'OVERLOADED',
            'the deadline passed while the call waited; it holds nothing',
            { network: command.network },
            100,
          )
        : refusal(
            'DATABASE_UNAVAILABLE',
            `${whyUnavailable(failing)}; the call holds nothing`,
            { network: command.network },
            1_000,
          ),
    )
  }

  return {
    submit,
    idle: () => !running,
    queued: () => lanes.caller.length + lanes.reconciler.length,
    drained: () => (running ? new Promise((resolve) => onDrained.push(resolve)) : Promise.resolve()),
  }
}

/** A server that must not be written to, such as a standby, says so itself. */
function whyUnavailable(failing: unknown): string {
  return failing instanceof StartRefused
    ? `the database takes no writes (${failing.message.replace(/\.$/, '')})`
    : 'the database did not answer before the deadline'
}

/** The fault lies with one command's rows; the others may go on without it. */
function concernsOne(error: unknown): boolean {
  return isVeto(error) || error instanceof Unsound
}

/** Data exceptions and integrity violations: the database has judged a row, so the rest of the batch may go on. */
export function isVeto(error: unknown): boolean {
  const code = sqlState(error)
  return code !== undefined && (code.startsWith('22') || code.startsWith('23'))
}

export function sqlState(error: unknown): string | undefined {
  const code = error !== null && typeof error === 'object' && 'code' in error ? error.code : undefined
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined
}

function outcomeUnknown(command: Command): Outcome {
  return refusedOutcome(
    refusal(
      'OUTCOME_UNKNOWN',
      'the call was decided and its commit not answered in time; repeat it with the same requestId, which is safe',
      { network: command.network },
      100,
    ),
  )
}

function contradiction(command: Command): Refusal {
  return refusal(
    'NETWORK_RECOVERING',
    `the books of network ${command.network} contradict themselves or the database here; the call holds nothing, run ipledger verify`,
    { network: command.network },
  )
}
