/**
 * The commands that wait for a network, in the order in which they came. A batch is the front of the queue and stays there
 * until it is answered, so that what failed is taken again, in the same order.
 */
import type { Command } from '../core/command.ts'
import type { Outcome } from '../core/decide.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { Clock } from './clock.ts'
import type { LoopLimits } from './loop-options.ts'

export type Waiting = {
  /** Null: the caller wants the image. */
  readonly command: Command | null
  readonly deadline: number
  /** How many commands it is: one that holds several, in however many levels, counts as all of them. */
  readonly weight: number
  /** Memory that it takes, by estimate. */
  readonly bytes: number
  readonly resolve: (outcome: Outcome) => void
  isAnswered: boolean
  /** A commit with it was sent, and its rollback is not confirmed. */
  isSent: boolean
}

/** What a command takes beside itself: its entry here and its promise (measured: 410). */
const ENTRY_BYTES = 400
const MB = 1024 * 1024
/** Answered commands at the front that are kept until they are cut off. */
const ANSWERED = 1_024

export class Queue {
  readonly #network: string
  readonly #clock: Clock
  readonly #limits: LoopLimits
  /** Those that are answered may still be in it. */
  #waiting: Waiting[] = []
  /** Before it all are answered. */
  #first = 0
  /** After the batch that was taken last. */
  #next = 0
  #bytes = 0
  /** Commands that wait, those of the batch included. */
  size = 0
  /** No deadline is before this. */
  #earliest = Number.POSITIVE_INFINITY
  /** After a veto the next so many commands go one by one, so that the refused one holds up no other. */
  oneByOne = 0
  /** Why the last attempt failed; null: a batch was committed since. */
  failure: unknown = null

  constructor(network: string, clock: Clock, limits: LoopLimits) {
    this.#network = network
    this.#clock = clock
    this.#limits = limits
  }

  add(command: Command | null, deadline: number): Promise<Outcome> {
    if (this.#bytes >= this.#limits.queuedMb * MB) {
      const why = `commands of ${this.#limits.queuedMb} MB wait for network ${this.#network}, the limit; nothing was done`
      return Promise.resolve({ ok: false, refusal: refusal('OVERLOADED', why, {}, 1_000) })
    }
    const { promise, resolve } = Promise.withResolvers<Outcome>()
    const bytes = ENTRY_BYTES + (command === null ? 0 : bytesOf(command))
    const weight = command !== null && 'items' in command ? weightOf(command) : 1
    const state = { isAnswered: false, isSent: false }
    this.#waiting.push({ command, deadline, weight, bytes, resolve, ...state })
    this.size += 1
    this.#bytes += bytes
    this.#earliest = Math.min(this.#earliest, deadline)
    return promise
  }

  /** The next batch. */
  take(): Waiting[] {
    while (this.#waiting[this.#first]?.isAnswered) this.#first += 1
    if (this.#first >= ANSWERED) this.#first -= this.#waiting.splice(0, this.#first).length
    this.#next = this.#first
    return this.more([])
  }

  /** What follows the batch and fits in it. */
  more(batch: readonly Waiting[]): Waiting[] {
    const now = this.#clock.now()
    const more: Waiting[] = []
    let weight = 0
    for (const one of batch) weight += one.weight
    for (; this.#next < this.#waiting.length; this.#next += 1) {
      const waiting = this.#waiting[this.#next]!
      if (this.isOver(waiting, now)) continue
      weight += waiting.weight
      const isFull = weight > this.#limits.batch || this.oneByOne > 0
      if (isFull && batch.length + more.length > 0) break
      more.push(waiting)
    }
    return more
  }

  answer(waiting: Waiting, outcome: Outcome): void {
    if (waiting.isAnswered) return
    waiting.isAnswered = true
    this.size -= 1
    this.#bytes -= waiting.bytes
    if (this.oneByOne > 0) this.oneByOne -= 1
    waiting.resolve(outcome)
  }

  refuse(waiting: Waiting, reason: Refusal): void {
    this.answer(waiting, { ok: false, refusal: reason })
  }

  /** Whether it is answered. After its deadline it is answered here. */
  isOver(waiting: Waiting, now = this.#clock.now()): boolean {
    if (!waiting.isAnswered && waiting.deadline <= now) this.refuse(waiting, this.#tooLate(waiting))
    return waiting.isAnswered
  }

  /** Answers commands after their deadline; called every now and then. It checks them only once the earliest has passed. */
  sweep(): void {
    const now = this.#clock.now()
    if (now < this.#earliest) return
    const isOpen = (waiting: Waiting) => !this.isOver(waiting, now)
    const taken = this.#waiting.slice(0, this.#next).filter(isOpen)
    this.#waiting = taken.concat(this.#waiting.slice(this.#next).filter(isOpen))
    this.#first = 0
    this.#next = taken.length
    this.#earliest = Number.POSITIVE_INFINITY
    for (const { deadline } of this.#waiting) this.#earliest = Math.min(this.#earliest, deadline)
  }

  #tooLate({ isSent }: Waiting): Refusal {
    if (isSent) {
      const why =
        'the deadline passed before it was known whether this was committed; repeat the same request'
      return refusal('OUTCOME_UNKNOWN', why)
    }
    if (this.failure === null) {
      const why = `the deadline passed while this waited for network ${this.#network}; nothing was done`
      return refusal('DEADLINE_EXCEEDED', why)
    }
    const why = this.failure instanceof Error ? this.failure.message : String(this.failure)
    const message = `the database cannot be used, and nothing was done: ${why}`
    return refusal('DATABASE_UNAVAILABLE', message, {}, 1_000)
  }
}

function weightOf(command: Command): number {
  if (!('items' in command)) return 1
  return command.items.reduce((sum: number, item: Command) => sum + weightOf(item), 0)
}

/** An estimate in 0.6 µs for a Reserve, which takes some 900 bytes. */
function bytesOf(value: object): number {
  let bytes = 48
  for (const inner of Array.isArray(value) ? value : Object.values(value))
    if (typeof inner === 'string') bytes += 24 + inner.length
    else if (typeof inner === 'object' && inner !== null) bytes += bytesOf(inner)
    else bytes += 8
  return bytes
}
