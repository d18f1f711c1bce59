/**
 * One attempt to settle a batch, in two round trips: lock and catch up; write and commit. Between them the commands are decided
 * in memory.
 */
import type { Batch } from '../core/batch.ts'
import type { Command, Known } from '../core/command.ts'
import { decide, type Outcome } from '../core/decide.ts'
import type { Image } from '../core/image.ts'
import type { Clock, LogTime } from './clock.ts'
import type { ImageCache } from './image-cache.ts'
import type { Log, Transaction, Write } from './log.ts'
import type { LoopChecks } from './loop-options.ts'
import { isEmpty, isKnown, prefetchOf } from './prefetch.ts'
import type { Queue, Waiting } from './queue.ts'
import { type SetBack, systemCommands } from './system-commands.ts'
import { writeOf } from './write.ts'

/** What an attempt works with. */
export type Parts = {
  readonly network: string
  readonly log: Log
  readonly clock: Clock
  readonly time: LogTime
  readonly queue: Queue
  readonly cache: ImageCache
  readonly checks: LoopChecks
  readonly losesNothing: boolean
}

/** What the attempts before it have found out. */
export type Before = {
  /** A batch whose commit may have taken effect. */
  readonly pending: Decision | null
  readonly setBack: SetBack | null
  readonly hasCommitted: boolean
  /** When the last step of the clock was seen that the network is held for. */
  readonly heldFor: number
}

/** Holds the lock, on an image that has caught up. */
export type Attempt = {
  readonly image: Image
  readonly transaction: Transaction
  readonly sent: number
  readonly locked: number
  readonly now: number
  readonly batch: readonly Waiting[]
  readonly known: Known
  /** The batch before, which is in the log: it is answered once this transaction has committed, alone. */
  readonly found: Decision | null
}

export type Decision = {
  readonly decided: readonly { readonly waiting: Waiting; readonly outcome: Outcome }[]
  readonly write: Write
  readonly at: number
  readonly heldFor: number
}

export type Ending =
  | { readonly kind: 'notBegun'; readonly why: 'behind' | 'anotherLog' }
  | { readonly kind: 'notBegun'; readonly why: 'away'; readonly error: unknown }
  | { readonly kind: 'settled'; readonly attempt: Attempt; readonly decision: Decision }
  | { readonly kind: 'rolledBack' | 'vetoed'; readonly attempt: Attempt; readonly error: unknown }
  | {
      readonly kind: 'unknown'
      readonly attempt: Attempt
      readonly decision: Decision
      readonly error: unknown
    }

const IMAGE: Outcome = { ok: true, answer: { leases: [] }, replayed: false }

export async function attemptBatch(parts: Parts, before: Before, taken: readonly Waiting[]): Promise<Ending> {
  const attempt = await begin(parts, before, taken)
  if ('kind' in attempt) return attempt
  const { checks } = parts
  const { transaction } = attempt
  try {
    const decision = decideBatch(parts, before, attempt)
    for (const { waiting } of decision.decided) waiting.isSent = true
    const result = await transaction.commit(decision.write)
    if (result.kind === 'committed' && !(result.isWarned && checks.WARNED_COMMIT_IS_UNKNOWN))
      return { kind: 'settled', attempt, decision }
    // The next primary may not have a commit that came with a warning.
    const error = 'error' in result ? result.error : new Error('the commit was not confirmed by a standby')
    if (result.kind === 'vetoed') return { kind: 'vetoed', attempt, error }
    if (result.kind === 'rolledBack' || !checks.UNKNOWN_OUTCOME_IS_LOOKED_UP)
      return { kind: 'rolledBack', attempt, error }
    return { kind: 'unknown', attempt, decision, error }
  } catch (error) {
    // A defect of ours counts as refused by the database: it must not wedge the network.
    await transaction.abandon()
    return { kind: 'vetoed', attempt, error }
  }
}

/** Locks and catches up. */
async function begin(parts: Parts, before: Before, taken: readonly Waiting[]): Promise<Attempt | Ending> {
  const { network, log, clock, cache } = parts
  let transaction: Transaction | undefined
  try {
    const image = await cache.open()
    const { commands, creates } = commandsOf(taken)
    const sent = clock.now()
    const expectedSeq = before.pending?.write.events.at(-1)?.event.seq ?? null
    const prefetch = prefetchOf(image, commands)
    transaction = await log.begin(network, { after: image.head, prefetch, creates, expectedSeq })
    const locked = clock.now()
    const why = cache.catchUp(image, transaction.caught)
    if (why === 'caughtUp') return await prepare(parts, before, taken, { image, transaction, sent, locked })
    await transaction.abandon()
    return { kind: 'notBegun', why }
  } catch (error) {
    await transaction?.abandon()
    return { kind: 'notBegun', why: 'away', error }
  }
}

/** What is to be decided, at what time, and what the image lacks for it. */
async function prepare(
  parts: Parts,
  { pending }: Before,
  taken: readonly Waiting[],
  lock: Pick<Attempt, 'image' | 'transaction' | 'sent' | 'locked'>,
): Promise<Attempt> {
  const { image, transaction, sent, locked } = lock
  const { caught } = transaction
  const isNews = caught.tail.length > 0
  // One clock for all nodes: the coordinator's, as last compared.
  const clock =
    caught.clock === null ? parts.clock.atLeast() : parts.clock.observe(caught.clock, sent, locked)
  const now = parts.checks.CLOCK_NEVER_GOES_BACK ? parts.time.after(image.at, isNews, clock, locked) : clock
  const found = pending?.write.events.at(-1)?.digest === caught.expectedDigest ? pending : null
  const batch = found === null ? join(parts.queue, image, taken) : []
  const attempt = { ...lock, now, batch, known: caught.known, found }
  if (!isNews) return attempt
  // After news it may be more than was asked for.
  const prefetch = prefetchOf(image, commandsOf(batch).commands)
  if (isKnown(prefetch, caught.known)) return attempt
  const { requests } = caught.known
  return { ...attempt, known: { ...(await transaction.know(prefetch)), requests } }
}

/** What came while the lock was waited for, and needs nothing that was not read, goes with the batch. */
function join(queue: Queue, image: Image, taken: readonly Waiting[]): readonly Waiting[] {
  const batch: Waiting[] = []
  for (const waiting of taken) if (!queue.isOver(waiting)) batch.push(waiting)
  const late = queue.more(batch)
  const { commands, creates } = commandsOf(late)
  return creates || !isEmpty(prefetchOf(image, commands)) ? batch : batch.concat(late)
}

function decideBatch(parts: Parts, before: Before, attempt: Attempt): Decision {
  const { clock, checks, losesNothing } = parts
  const { image, transaction, locked, now, batch, known } = attempt
  const { digest } = image
  // From here on it can be undone.
  image.journal = []
  const work: Batch = {
    image,
    now,
    known,
    events: [],
    freshness: new Map(),
    remembered: new Map(),
    guards: checks.guards,
  }
  const steps = clock.steps(locked)
  const heldFor = steps.at(-1)?.at ?? before.heldFor
  const found = {
    now,
    identity: transaction.caught.identity,
    stepsToHold: heldFor > before.heldFor ? steps : [],
    setBack: before.setBack,
    hasCommitted: before.hasCommitted,
    losesNothing,
  }
  let refused: Outcome | null = null
  for (const command of systemCommands(image, found, checks)) {
    const outcome = decide(work, command)
    // Only an era beyond the last is refused; then nothing may be written to this log.
    if (!outcome.ok) refused = outcome
  }
  const decided = []
  for (const waiting of batch) {
    const { command } = waiting
    decided.push({ waiting, outcome: refused ?? (command === null ? IMAGE : decide(work, command)) })
  }
  const write = writeOf(work, digest)
  image.digest = write.events.at(-1)?.digest ?? digest
  return { decided, write, heldFor, at: clock.now() }
}

function commandsOf(batch: readonly Waiting[]) {
  const commands: Command[] = []
  let creates = false
  for (const { command, isAnswered } of batch) {
    if (command === null || isAnswered) continue
    commands.push(command)
    creates ||= command.type === 'createNetwork'
  }
  return { commands, creates }
}
