/**
 * The loop: the one way by which a network changes. One loop a network and process; commands gather while the previous batch is
 * in flight, and while the lock is waited for. The answers are sent after the commit. An attempt (`attempt.ts`) ends in one of
 * the five ways of docs/design.md. Once a commit was sent, no answer says that nothing was done.
 */
import type { Command } from '../core/command.ts'
import type { Outcome } from '../core/decide.ts'
import type { Image } from '../core/image.ts'
import { refusal } from '../core/refusal.ts'
import { type Attempt, attemptBatch, type Before, type Decision, type Ending, type Parts } from './attempt.ts'
import { LogTime } from './clock.ts'
import { ImageCache } from './image-cache.ts'
import { Unavailable } from './ledger.ts'
import { NeedsRebuild, UnknownFormat } from './log.ts'
import { ALL_CHECKS, LIMITS, type LoopLimits, type LoopOptions, type Observer } from './loop-options.ts'
import { Queue, type Waiting } from './queue.ts'

/** A pause after a failure: at first, and at most. */
const PAUSE_MS = 20
const LONGEST_PAUSE_MS = 1_000

export class Loop {
  readonly #network: string
  readonly #limits: LoopLimits
  readonly #observer: Observer
  readonly #parts: Parts
  readonly queue: Queue
  readonly #cache: ImageCache
  #before: Before = { pending: null, setBack: null, hasCommitted: false, heldFor: Number.NEGATIVE_INFINITY }
  #running: Promise<void> | null = null
  #idleSince: number

  constructor(network: string, options: LoopOptions) {
    const { log, clock, observer = {}, checks = ALL_CHECKS, losesNothing = false } = options
    this.#network = network
    this.#limits = { ...LIMITS, ...options.limits }
    this.#observer = observer
    this.queue = new Queue(network, clock, this.#limits)
    this.#cache = new ImageCache(network, { log, limits: this.#limits, checks, observer })
    this.#parts = {
      network,
      log,
      clock,
      time: new LogTime(),
      queue: this.queue,
      cache: this.#cache,
      checks,
      losesNothing,
    }
    this.#idleSince = clock.now()
  }

  /** Null: the caller wants the image. */
  submit(
    command: Command | null,
    deadline = this.#parts.clock.now() + this.#limits.deadlineMs,
  ): Promise<Outcome> {
    const outcome = this.queue.add(command, deadline)
    this.#running ??= this.#run()
    return outcome
  }

  /** The image, caught up; null: there is no such network. */
  async image(deadline?: number): Promise<Image | null> {
    const outcome = await this.submit(null, deadline)
    if (!outcome.ok) throw new Unavailable(outcome.refusal)
    const { image } = this.#cache
    return image?.network ? image : null
  }

  get records(): number {
    return this.#cache.image?.records.size ?? 0
  }

  /** Nothing waits, and nothing has for so long. */
  isIdle(forMs: number): boolean {
    if (this.#running !== null) return false
    return this.#cache.image === null || this.#parts.clock.now() - this.#idleSince >= forMs
  }

  async drained(): Promise<void> {
    await this.#running
  }

  async #run(): Promise<void> {
    let failures = 0
    // What comes at once goes in one batch.
    await null
    while (this.queue.size > 0) {
      const taken = this.queue.take()
      const ending = await attemptBatch(this.#parts, this.#before, taken)
      this.#end(ending, taken)
      if (ending.kind === 'settled') failures = 0
      if (!('error' in ending)) continue
      this.queue.failure = ending.error
      this.queue.sweep()
      if (this.queue.size === 0) break
      await this.#parts.clock.pause(Math.min(PAUSE_MS * 2 ** failures, LONGEST_PAUSE_MS))
      failures += 1
    }
    this.#running = null
    this.#before = { ...this.#before, pending: null }
    this.#idleSince = this.#parts.clock.now()
    // Names of networks that do not exist come from callers and must not pile up.
    if (this.#cache.image?.network === null) this.#cache.image = null
  }

  #end(ending: Ending, taken: readonly Waiting[]): void {
    switch (ending.kind) {
      case 'notBegun':
        if (ending.why === 'anotherLog') this.#onSetBack()
        else if (ending.why === 'away') this.#away(taken, ending.error)
        break
      case 'settled':
        this.#settle(ending.attempt, ending.decision)
        break
      case 'rolledBack':
        this.#undo(ending)
        break
      case 'vetoed':
        this.#undo(ending)
        this.#cache.image = null
        this.#goOneByOne(ending.attempt.batch, ending.error)
        break
      case 'unknown':
        this.#cache.undo(ending.attempt.image)
        this.#before = { ...this.#before, pending: ending.attempt.found ?? ending.decision }
        this.#observer.failed?.(this.#network, 'unknown', ending.error)
        break
      default:
        ending satisfies never
    }
  }

  /** The log is not the one that was written: nothing below the greatest number of it that is known is written again. */
  #onSetBack(): void {
    const { pending, setBack } = this.#before
    const { head } = this.#cache.image!
    const above = Math.max(head, pending?.write.events.at(-1)?.event.seq ?? 0, setBack?.above ?? 0)
    const why = `number ${head} is not in the log as this process knows it`
    this.#before = { ...this.#before, setBack: { above, why } }
    this.#cache.image = null
  }

  #away(taken: readonly Waiting[], error: unknown): void {
    this.#observer.failed?.(this.#network, this.#cache.image === null ? 'load' : 'begin', error)
    if (!(error instanceof NeedsRebuild || error instanceof UnknownFormat)) return
    const reason = refusal('NETWORK_RECOVERING', error.message, { network: this.#network }, 5_000)
    for (const waiting of taken) this.queue.refuse(waiting, reason)
  }

  #settle({ image, found, now, sent, locked }: Attempt, decision: Decision): void {
    const { heldFor, at, decided, write } = decision
    this.#cache.keep(image)
    this.#parts.time.set(now, locked)
    this.#before = { pending: null, setBack: null, hasCommitted: true, heldFor }
    this.queue.failure = null
    for (const one of found === null ? [decision] : [found, decision]) {
      for (const { waiting, outcome } of one.decided) this.queue.answer(waiting, outcome)
      if (this.#observer.event !== undefined)
        for (const { event } of one.write.events) this.#observer.event(this.#network, event)
    }
    this.#observer.batch?.(this.#network, {
      commands: decided.length,
      events: write.events.length,
      lockMs: locked - sent,
      decideMs: at - locked,
      writeMs: this.#parts.clock.now() - at,
    })
  }

  /** Nothing of it was written. */
  #undo({ attempt, kind, error }: Extract<Ending, { readonly kind: 'rolledBack' | 'vetoed' }>): void {
    this.#cache.undo(attempt.image)
    for (const waiting of attempt.batch) waiting.isSent = false
    this.#before = { ...this.#before, pending: attempt.found }
    this.#observer.failed?.(this.#network, kind, error)
  }

  /** What a constraint refused is decided anew on a fresh image, one command at a time; and then refused. */
  #goOneByOne(batch: readonly Waiting[], error: unknown): void {
    const [only] = batch
    if (this.queue.oneByOne === 0 || !only?.command) {
      this.queue.oneByOne = Math.max(this.queue.oneByOne, batch.length)
      return
    }
    this.#observer.defect?.(this.#network, only.command, error)
    const why =
      'the database refuses what the ledger allows, and nothing was done: ask an operator to run ipledger verify'
    this.queue.refuse(only, refusal('ILLEGAL_STATE', why, { network: this.#network }))
  }
}
