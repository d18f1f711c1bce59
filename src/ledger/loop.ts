/**
 * The loop: the one way by which a network changes. One loop a network and process; commands gather while the previous batch is
 * in flight, and while the lock is waited for. A batch is two round trips: lock and catch up, then write and commit; between
 * them the commands are decided in memory, and the answers are sent after the commit.
 *
 * - Whatever others wrote is folded under the lock, so commands are always decided on the present state.
 * - A write that was rolled back is undone. Was it a constraint, the image is loaded afresh and commands go one by one, so
 *   that none wedges the network. Was it the database, it is tried again until the deadlines.
 * - A commit whose outcome is unknown is looked up: its transaction held the lock that the next one gets, so by then it is
 *   over, and the log says by digest what became of it. Nobody is told that nothing was done once a commit was sent.
 * - An image that is not a prefix of the log tells that the log is not the one that was written: a new era begins.
 */
import type { Batch } from '../core/batch.ts'
import type { Command, Freshness, Known } from '../core/command.ts'
import { decide, type Outcome } from '../core/decide.ts'
import type { AddressRecord, LedgerEvent } from '../core/event.ts'
import { evolve } from '../core/evolve.ts'
import { type Image, type NetworkState, rollback, type SourceState, sightingsAt } from '../core/image.ts'
import { attachmentKey } from '../core/owner.ts'
import { eraOf, POLICY } from '../core/policy.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { RuleName } from '../core/rules.ts'
import type { ClockWatch, Step } from './clock.ts'
import { cellsOf, digestOf, textOf } from './event-text.ts'
import { buildImage } from './load.ts'
import {
  type Chained,
  type Committed,
  type Log,
  NeedsRebuild,
  type PoolRow,
  type Transaction,
  UnknownFormat,
  type Write,
} from './log.ts'
import { type Needs, needsOf } from './needs.ts'

export type LoopLimits = {
  /** Commands waiting; more are OVERLOADED. */
  readonly queued: number
  /** Commands a batch; a command that holds several counts as many. */
  readonly batch: number
  /** Events behind which an image is loaded anew. */
  readonly behind: number
  /** Touched addresses of a network in this process's memory. */
  readonly touched: number
  readonly deadlineMs: number
}

export const LIMITS: LoopLimits = {
  queued: 20_000,
  batch: 1_000,
  behind: 50_000,
  touched: 1_000_000,
  deadlineMs: 10_000,
}

/** What a loop tells of itself, for metrics and the log. */
export type Observer = {
  batch?(
    network: string,
    done: { commands: number; events: number; lockMs: number; decideMs: number; writeMs: number },
  ): void
  loaded?(network: string, done: { records: number; ms: number }): void
  eraBegun?(network: string, era: number, why: string): void
  failed?(network: string, what: 'begin' | 'load' | 'rolledBack' | 'vetoed' | 'unknown', error: unknown): void
  /** The database refuses, of one command alone, what was decided. */
  defect?(network: string, command: Command, error: unknown): void
  event?(network: string, event: LedgerEvent): void
}

type LoopOptions = {
  readonly log: Log
  readonly clock: ClockWatch
  /** The process's own clock, in milliseconds. */
  readonly monotonic: () => number
  readonly pause: (ms: number) => Promise<void>
  readonly limits?: Partial<LoopLimits>
  readonly observer?: Observer
  /** Declared by the deployment: a failover loses nothing that was acknowledged. */
  readonly losesNothing?: boolean
  readonly without?: ReadonlySet<RuleName>
}

type Waiting = {
  /** Null: whoever waits wants the image. */
  readonly command: Command | null
  readonly deadline: number
  readonly resolve: (outcome: Outcome) => void
  isAnswered: boolean
  /** A commit with it was sent, and its rollback is not confirmed. */
  isSent: boolean
}

/** A batch whose commit may have taken effect. */
type Pending = {
  readonly head: number
  readonly digest: string
  readonly decided: readonly Decided[]
}

type Decided = { readonly waiting: Waiting; readonly outcome: Outcome }

export type Loop = {
  submit(command: Command, deadline?: number): Promise<Outcome>
  /** The image, caught up; null: there is no such network. */
  image(deadline?: number): Promise<Image | null>
  /** Answers those whose deadline has passed; called every now and then. */
  sweep(): void
  readonly queued: number
  /** Nothing waits, and nothing has for so long. */
  isIdle(forMs: number): boolean
  readonly records: number
  drained(): Promise<void>
}

const LEDGER = { name: 'ledger', node: null }
const ENVELOPE = { actor: LEDGER, requestId: null, fingerprint: null, traceId: null } as const

export function createLoop(name: string, options: LoopOptions): Loop {
  const { log, clock, monotonic, pause, observer = {}, losesNothing = false } = options
  const without = options.without ?? new Set<RuleName>()
  const limits = { ...LIMITS, ...options.limits }
  let image: Image | null = null
  let queue: Waiting[] = []
  let isRunning = false
  let pending: Pending | null = null
  /** The greatest number that this process knows of a log that is no more. */
  let lostHead = 0
  let era: { readonly above: number; readonly recovering: boolean; readonly why: string } | null = null
  let lastNow = { now: 0, at: 0 }
  let hasCommitted = false
  /** When the last step was seen that the network is held for. */
  let heldFor = Number.NEGATIVE_INFINITY
  /** Commands of a batch that a constraint refused; they go one by one. */
  let oneByOne = 0
  /** Of this attempt; and of the last that failed, until a batch is committed. */
  let failure: unknown = null
  let lastFailure: unknown = null
  let inFlight: readonly Waiting[] = []
  let idleSince = monotonic()
  let whenIdle: (() => void)[] = []

  function enqueue(command: Command | null, deadline: number): Promise<Outcome> {
    if (queue.length >= limits.queued)
      return Promise.resolve(
        refuse(
          refusal(
            'OVERLOADED',
            `${limits.queued} commands wait for network ${name}; nothing was done`,
            {},
            1_000,
          ),
        ),
      )
    const { promise, resolve } = Promise.withResolvers<Outcome>()
    queue.push({ command, deadline, resolve, isAnswered: false, isSent: false })
    if (!isRunning) {
      isRunning = true
      queueMicrotask(run)
    }
    return promise
  }

  async function run(): Promise<void> {
    let waits = 0
    while (queue.length > 0 || pending !== null) {
      failure = null
      const batch = take()
      inFlight = batch
      let isDone = false
      try {
        isDone = await attempt(batch)
      } catch (error) {
        failure = error
        observer.failed?.(name, image === null ? 'load' : 'begin', error)
        if (error instanceof NeedsRebuild || error instanceof UnknownFormat)
          for (const waiting of batch)
            answer(waiting, refuse(refusal('NETWORK_RECOVERING', error.message, { network: name }, 5_000)))
      }
      inFlight = []
      if (isDone) waits = 0
      else {
        queue = [...batch.filter(({ isAnswered }) => !isAnswered), ...queue]
        lastFailure = failure ?? lastFailure
        sweep()
        if (failure !== null && queue.length + (pending === null ? 0 : 1) > 0) {
          waits += 1
          await pause(Math.min(20 * 2 ** Math.min(waits, 6), 1_000))
        }
      }
    }
    isRunning = false
    idleSince = monotonic()
    // Names of networks that do not exist come from callers and must not pile up.
    if (image?.network === null) image = null
    for (const resolve of whenIdle) resolve()
    whenIdle = []
  }

  function take(): Waiting[] {
    sweep()
    if (pending?.decided.every(({ waiting }) => waiting.isAnswered)) pending = null
    return queue.splice(0, fitting([]))
  }

  /** How many from the front of the queue have a place in a batch beside these. */
  function fitting(beside: readonly Waiting[]): number {
    const weigh = (sum: number, { command }: Waiting): number =>
      sum + (command?.type === 'allOrNothing' ? command.items.length : 1)
    let weight = beside.reduce(weigh, 0)
    let count = 0
    for (const waiting of queue) {
      weight = weigh(weight, waiting)
      if (beside.length + count > 0 && (weight > limits.batch || oneByOne > 0)) break
      count += 1
    }
    return count
  }

  /** What came while the lock was waited for, and lacks nothing, need not wait for the next batch. */
  function join(into: Image, batch: Waiting[]): void {
    sweep()
    const late = queue.slice(0, fitting(batch))
    const needs = needsOf(into, commandsOf(late))
    const isReady = Object.values(needs).every(({ length }) => length === 0)
    if (!isReady || late.some(({ command }) => command?.type === 'createNetwork')) return
    batch.push(...queue.splice(0, late.length))
  }

  /** True: everybody of the batch is answered, or will be by `pending`. */
  async function attempt(batch: Waiting[]): Promise<boolean> {
    image ??= await load()
    const commands = commandsOf(batch)
    const sent = monotonic()
    const transaction = await log.begin(name, {
      after: image.head,
      needs: needsOf(image, [
        ...commandsOf(pending?.decided.map(({ waiting }) => waiting) ?? []),
        ...commands,
      ]),
      creates: commands.some(({ type }) => type === 'createNetwork'),
      sought: pending?.head ?? null,
    })
    const locked = monotonic()
    try {
      const state = catchUp(image, transaction)
      if (state !== 'caught up') {
        await transaction.abandon()
        if (state === 'reload' || !(await follow(image))) image = null
        return false
      }
      clock.observe(transaction.caught.clock, sent, locked)
      join(image, batch)
      return await decideAndWrite(image, transaction, batch, { sent, locked })
    } catch (error) {
      await transaction.abandon()
      if (image?.journal) {
        rollback(image, 0)
        image.journal = null
      }
      throw error
    }
  }

  async function load(): Promise<Image> {
    const begun = monotonic()
    const loaded = await log.load(name, (found) => buildImage(name, found, limits.touched))
    await follow(loaded)
    observer.loaded?.(name, { records: loaded.records.size, ms: monotonic() - begun })
    return loaded
  }

  function fold(into: Image, { event, digest }: Chained): void {
    evolve(into, event)
    into.head = event.seq
    into.at = event.at
    into.digest = digest
  }

  /** Without the lock: who is far behind must not keep the others. False: it is quicker to load anew. */
  async function follow(into: Image): Promise<boolean> {
    for (let behind = 0, isCut = true; isCut; ) {
      const page = await log.tail(name, into.head)
      const [first] = page.tail
      // The tail of another log, after a failover: the digest at the head will tell, under the lock.
      if (first !== undefined && digestOf(into.digest, textOf(cellsOf(name, first.event))) !== first.digest)
        break
      for (const one of page.tail) fold(into, one)
      behind += page.tail.length
      ;({ isCut } = page)
      if (isCut && behind > limits.behind) return false
    }
    into.dirtySightings.clear()
    return true
  }

  function catchUp(into: Image, { caught }: Transaction): 'caught up' | 'behind' | 'reload' {
    const isOurs =
      without.has('DIGEST_AT_THE_HEAD') || (caught.digest === into.digest && caught.head >= into.head)
    if (!isOurs) {
      lostHead = Math.max(lostHead, into.head, pending?.head ?? 0)
      era = {
        above: lostHead,
        recovering: true,
        why: `number ${into.head} is not in the log as this process knows it`,
      }
      return 'reload'
    }
    if (without.has('CATCHES_UP_UNDER_THE_LOCK')) return 'caught up'
    for (const one of caught.tail) fold(into, one)
    into.dirtySightings.clear()
    return caught.isCut ? 'behind' : 'caught up'
  }

  async function decideAndWrite(
    into: Image,
    transaction: Transaction,
    batch: readonly Waiting[],
    times: { readonly sent: number; readonly locked: number },
  ): Promise<boolean> {
    const { caught } = transaction
    const settled = pending !== null && caught.soughtDigest === pending.digest ? pending : null
    // What is in the log is answered once this transaction has committed, alone. What took no effect is decided again, first.
    const again = pending?.decided.map(({ waiting }) => waiting) ?? []
    const waitings = (settled === null ? [...again, ...batch] : []).filter(({ isAnswered }) => !isAnswered)
    // Set back, time goes on from the last event, whoever wrote it: of no event may more time seem to have passed than has.
    if (caught.tail.length > 0 || into.at > lastNow.now) lastNow = { now: into.at, at: times.locked }
    const now = nowOf(into, caught.clock, times.locked)
    const steps = clock.steps(times.locked)
    const system = systemCommands(into, caught.identity, now, steps)
    const known = await completeKnown(into, transaction, [...system, ...commandsOf(waitings)])
    const work: Batch = {
      image: into,
      now,
      known,
      events: [],
      freshness: new Map(),
      remembered: new Map(),
      without,
    }
    into.journal = []
    const before = { head: into.head, digest: into.digest }
    const undo = (): void => {
      if (!without.has('UNDOES_WHAT_FAILED')) rollback(into, 0)
      into.journal = null
      into.dirtySightings.clear()
    }
    const rolledBack = (isVeto: boolean, error: unknown): false => {
      undo()
      failure = error
      observer.failed?.(name, isVeto ? 'vetoed' : 'rolledBack', error)
      for (const waiting of waitings) waiting.isSent = false
      if (settled === null) {
        pending = null
        queue = [...again.filter(({ isAnswered }) => !isAnswered), ...queue]
      }
      if (isVeto) vetoed(waitings, error)
      return false
    }
    const made = decideBatch(work, system, waitings, before.digest)
    if ('error' in made) {
      await transaction.abandon()
      return rolledBack(true, made.error)
    }
    const { decided, write } = made
    const written = monotonic()
    for (const waiting of waitings) waiting.isSent = true
    let result: Committed
    try {
      result = await transaction.commit(write)
    } catch (error) {
      await transaction.abandon()
      return rolledBack(true, error)
    }
    if (result.kind === 'committed' && (!result.isWarned || without.has('WARNED_COMMIT_IS_UNKNOWN'))) {
      into.journal = null
      into.dirtySightings.clear()
      pending = null
      era = null
      lostHead = 0
      lastFailure = null
      heldFor = steps.at(-1)?.at ?? heldFor
      oneByOne = Math.max(0, oneByOne - batch.length)
      lastNow = { now, at: times.locked }
      hasCommitted = true
      for (const { waiting, outcome } of [...(settled?.decided ?? []), ...decided]) answer(waiting, outcome)
      observe(write, batch.length, times, written)
      return settled === null
    }
    if (result.kind === 'rolledBack') return rolledBack(result.isVeto, result.error)
    undo()
    // Also a commit that came with a warning: whoever is the primary next may not have it.
    failure =
      result.kind === 'unknown' ? result.error : new Error('the commit was not confirmed by a standby')
    observer.failed?.(name, 'unknown', failure)
    if (without.has('UNKNOWN_OUTCOME_IS_LOOKED_UP')) {
      for (const waiting of waitings) waiting.isSent = false
      return false
    }
    // Without an event the log cannot say what became of it: decided again.
    const { event, digest = '' } = write.events.at(-1) ?? {}
    pending = settled ?? { head: event?.seq ?? before.head, digest, decided }
    await pause(20)
    return settled === null
  }

  /** What throws is a defect of ours, and must not wedge the network: it counts as refused by the database. */
  function decideBatch(
    work: Batch,
    system: readonly Command[],
    waitings: readonly Waiting[],
    digest: string,
  ): { readonly decided: readonly Decided[]; readonly write: Write } | { readonly error: unknown } {
    try {
      // Only an era beyond the last is refused; then nothing may be written to this log.
      const refused = system.map((command) => decide(work, command)).find(({ ok }) => !ok)
      const decided = waitings.map((waiting) => ({
        waiting,
        outcome:
          refused ??
          (waiting.command === null
            ? { ok: true as const, answer: { leases: [] }, replayed: false }
            : decide(work, waiting.command)),
      }))
      return { decided, write: writeOf(work, digest) }
    } catch (error) {
      return { error }
    }
  }

  /** What was refused by a constraint is decided anew on a fresh image, one command at a time. */
  function vetoed(waitings: readonly Waiting[], error: unknown): void {
    image = null
    failure = null
    const [only] = waitings
    if (oneByOne > 0 && waitings.length === 1 && only !== undefined && only.command !== null) {
      observer.defect?.(name, only.command, error)
      answer(
        only,
        refuse(
          refusal(
            'ILLEGAL_STATE',
            'the database refuses what the ledger allows, and nothing was done: ask an operator to run ipledger verify',
            { network: name },
          ),
        ),
      )
    }
    oneByOne = Math.max(oneByOne, waitings.length)
  }

  /** The database's clock, never before the last event. Set back, time goes on at the pace of this process's own clock. */
  function nowOf(into: Image, databaseClock: number, at: number): number {
    if (without.has('CLOCK_NEVER_GOES_BACK')) return databaseClock
    const isBack = databaseClock < lastNow.now - POLICY.clockStepMs
    const paced = isBack ? Math.floor(lastNow.now + (at - lastNow.at)) : databaseClock
    return Math.max(paced, into.at)
  }

  /** What the ledger itself has to write before anything else is decided: a new era, a hold for its clock, the end of one. */
  function systemCommands(
    into: Image,
    identity: string,
    now: number,
    steps: readonly Step[],
  ): readonly Command[] {
    const { network } = into
    if (network === null) return []
    const commands: Command[] = []
    // Begun already by a process that found out first.
    const lost = era !== null && eraOf(era.above) >= network.era ? era : null
    const due = lost ?? otherLife(into, network, identity)
    if (due !== null) {
      if ('identity' in due) commands.push(due)
      else {
        observer.eraBegun?.(name, network.era + 1, due.why)
        commands.push({ ...ENVELOPE, ...due, type: 'beginEra', network: name, cause: 'ERA' })
      }
    }
    if (steps.length > 0 && steps.at(-1)!.at > heldFor && !without.has('CLOCK_STEP_HOLDS')) {
      // Of several all have to elapse: a small one must not end the hold of a great one.
      const stepMs = Math.ceil(steps.reduce((sum, { byMs }) => sum + byMs, 0))
      const why = `the clock of the database was set forward by ${stepMs} ms`
      commands.push({ ...ENVELOPE, type: 'hold', network: name, cause: 'CLOCK', hold: 'CLOCK', why, stepMs })
    }
    const until = network.holds.CLOCK?.details.until
    if (until !== undefined && now >= until && commands.length === 0) {
      const why = 'the clock has advanced by the step once more'
      commands.push({ ...ENVELOPE, type: 'resumeHold', network: name, cause: 'CLOCK', hold: 'CLOCK', why })
    }
    return commands
  }

  /** The database is another than the one that wrote the log: restored, or failed over. */
  function otherLife(into: Image, { identity: stored }: NetworkState, identity: string) {
    if (stored === identity || without.has('ANOTHER_DATABASE_IS_ANOTHER_ERA')) return null
    const isFailover = withoutTimeline(stored) === withoutTimeline(identity)
    // Its last committed event is in the log: the failover lost nothing, as the deployment declares.
    if (isFailover && losesNothing && hasCommitted) {
      return {
        ...ENVELOPE,
        type: 'updateNetwork' as const,
        network: name,
        cause: 'FAILED_OVER',
        version: null,
        description: null,
        labels: null,
        identity,
      }
    }
    const why = isFailover
      ? `the log was written in ${stored}, this is ${identity}: a failover, or a recovery to a point in time`
      : `the log was written in ${stored}, this is ${identity}: a restored copy`
    return { above: Math.max(into.head, lostHead), recovering: true, why }
  }

  async function completeKnown(
    into: Image,
    transaction: Transaction,
    commands: readonly Command[],
  ): Promise<Known> {
    const { known } = transaction.caught
    const needs = needsOf(into, commands)
    const lacking: Needs = {
      requests: [],
      tokens: needs.tokens.filter((token) => !known.endedByToken.has(token)),
      owners: needs.owners.filter((owner) => !known.endedByOwner.has(attachmentKey(owner))),
      sources: needs.sources.filter((source) => !known.freshness.has(source)),
      lookUps: needs.lookUps.filter((address) => !known.lookUps.has(address)),
    }
    if (lacking.tokens.length + lacking.owners.length + lacking.sources.length + lacking.lookUps.length === 0)
      return known
    const more = await transaction.know(lacking)
    return {
      ...known,
      endedByToken: new Map([...known.endedByToken, ...more.endedByToken]),
      endedByOwner: new Map([...known.endedByOwner, ...more.endedByOwner]),
      freshness: new Map([...known.freshness, ...more.freshness]),
      lookUps: new Map([...known.lookUps, ...more.lookUps]),
    }
  }

  function writeOf({ image: into, events, freshness, remembered, now }: Batch, digestBefore: string): Write {
    let digest = digestBefore
    const chained = events.map((event) => {
      const text = textOf(cellsOf(name, event))
      digest = digestOf(digest, text)
      return { event, digest, text }
    })
    into.digest = digest
    const records = new Map<string, AddressRecord>()
    const pools = new Map<number, PoolRow>()
    const sources = new Map<string, SourceState>()
    let network: NetworkState | null = null
    for (const event of events) {
      if ('record' in event) records.set(event.record.address, event.record)
      else if ('poolId' in event) {
        const pool = into.pools.get(event.poolId)?.pool
        pools.set(event.poolId, {
          poolId: event.poolId,
          settings: pool?.settings ?? null,
          version: event.seq,
          createdAt: pool?.createdAt ?? event.at,
          updatedAt: event.at,
        })
      } else if (event.type.startsWith('source.')) {
        const { details } = event as Extract<LedgerEvent, { type: `source.${string}` }>
        const id = 'source' in details ? details.source : details.id
        sources.set(id, into.sources.get(id)!)
      } else network = into.network
    }
    return {
      events: chained,
      records: [...records.values()],
      pools: [...pools.values()],
      network,
      sources: [...sources.values()],
      freshness: [...freshness.values()] as readonly Freshness[],
      sightings: new Map([...into.dirtySightings].map((address) => [address, sightingsAt(into, address)])),
      requests: [...remembered].map(([requestId, { fingerprint, method, seq, answer }]) => ({
        requestId,
        fingerprint,
        method,
        seq,
        at: now,
        answer,
      })),
    }
  }

  function observe(
    { events }: Write,
    commands: number,
    { sent, locked }: { readonly sent: number; readonly locked: number },
    written: number,
  ): void {
    observer.batch?.(name, {
      commands,
      events: events.length,
      lockMs: locked - sent,
      decideMs: written - locked,
      writeMs: monotonic() - written,
    })
    if (observer.event !== undefined) for (const { event } of events) observer.event(name, event)
  }

  function sweep(): void {
    const now = monotonic()
    let isAny = false
    for (const waiting of [...(pending?.decided.map((one) => one.waiting) ?? []), ...inFlight, ...queue]) {
      if (waiting.isAnswered || waiting.deadline > now) continue
      isAny = true
      answer(waiting, refuse(tooLate(waiting)))
    }
    if (isAny) queue = queue.filter(({ isAnswered }) => !isAnswered)
  }

  function tooLate({ isSent }: Waiting): Refusal {
    if (isSent) {
      return refusal(
        'OUTCOME_UNKNOWN',
        'the deadline passed before it was known whether this was committed; repeat the same request',
      )
    }
    const reason = failure ?? lastFailure
    if (reason === null)
      return refusal(
        'DEADLINE_EXCEEDED',
        `the deadline passed while this waited for network ${name}; nothing was done`,
      )
    const why = reason instanceof Error ? reason.message : String(reason)
    return refusal(
      'DATABASE_UNAVAILABLE',
      `the database cannot be used, and nothing was done: ${why}`,
      {},
      1_000,
    )
  }

  return {
    submit: (command, deadline = monotonic() + limits.deadlineMs) => enqueue(command, deadline),
    async image(deadline = monotonic() + limits.deadlineMs) {
      const outcome = await enqueue(null, deadline)
      if (!outcome.ok) throw new Unavailable(outcome.refusal)
      return image?.network ? image : null
    },
    sweep,
    get queued() {
      return queue.length + inFlight.length
    },
    isIdle: (forMs) => !isRunning && (image === null || monotonic() - idleSince >= forMs),
    get records() {
      return image?.records.size ?? 0
    },
    drained: () => (isRunning ? new Promise((resolve) => whenIdle.push(resolve)) : Promise.resolve()),
  }
}

/** The image could not be had. */
export class Unavailable extends Error {
  readonly refusal: Refusal
  constructor(reason: Refusal) {
    super(reason.message)
    this.refusal = reason
  }
}

function commandsOf(waitings: readonly Waiting[]): readonly Command[] {
  return waitings.flatMap(({ command, isAnswered }) => (command === null || isAnswered ? [] : command))
}

function answer(waiting: Waiting, outcome: Outcome): void {
  if (waiting.isAnswered) return
  waiting.isAnswered = true
  waiting.resolve(outcome)
}

function refuse(reason: Refusal): Outcome {
  return { ok: false, refusal: reason }
}

function withoutTimeline(identity: string): string {
  return identity.slice(0, identity.lastIndexOf('/'))
}
