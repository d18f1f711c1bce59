/**
 * Bounds the calls that a process works on at a time. Calls beyond the bound are not refused but not read: HTTP/2 connections are
 * paused, and an HTTP/1.1 connection waits with its call. (100,000 calls at once took 4 GB, and starved the event loop until every
 * time limit had passed.)
 *
 * A call counts from the arrival of its message until its handler ends, so that no counted call waits for unread bytes. When no
 * call ends for a while, as without a database, reading goes on and calls beyond the bound are refused.
 */
import type { Socket } from 'node:net'
import { afterRunning } from '../../time-limit.ts'
import { overloaded } from '../codec/errors.ts'

/** A call takes some 40 KB over HTTP/2. */
const MOST_IN_FLIGHT = 4_096
/** Calls begun in one iteration of the event loop: some 10 ms. */
const BEGUN_TOGETHER = 64
/** Calls that were read and wait. One packet of a connection may bring 100. */
const MOST_WAITING = 256
/** Connections that are resumed at a time. */
const RESUMED_TOGETHER = 4
/** A probe waits no longer than this. */
const STUCK_MS = 500

export class Admission {
  readonly #most: number
  #inFlight = 0
  #done = 0
  /** No call has ended for `STUCK_MS`. */
  #isStuck = false
  #isPumping = false
  #waiting: (() => void)[] = []
  readonly #reading = new Set<Socket>()
  /** In the order in which they were paused. */
  readonly #paused = new Set<Socket>()

  constructor(most = MOST_IN_FLIGHT) {
    this.#most = most
  }

  get #isFull(): boolean {
    return this.#inFlight >= this.#most && !this.#isStuck
  }

  /** A call over HTTP/1.1 may begin at once. */
  get isOpen(): boolean {
    return !this.#isFull && this.#waiting.length === 0
  }

  /** An HTTP/2 connection, to be paused with all others. */
  add(socket: Socket): void {
    this.#reading.add(socket)
    socket.once('close', () => {
      this.#reading.delete(socket)
      this.#paused.delete(socket)
    })
  }

  /** Over HTTP/1.1. */
  beginPaused(socket: Socket, call: () => void): void {
    socket.pause()
    this.beginLater(() => {
      socket.resume()
      call()
    })
  }

  /** Over HTTP/2, where a packet may begin many calls and cancel them again. */
  beginLater(call: () => void): void {
    this.#waiting.push(call)
    if (this.#waiting.length >= MOST_WAITING || this.#isFull) this.#pause()
    this.#pump()
  }

  /** The message of a call has arrived. @throws Refused OVERLOADED */
  enter(): void {
    if (this.#isStuck && this.#inFlight >= this.#most)
      throw overloaded(`works on ${this.#most} calls, and none of them comes to an end`)
    this.#inFlight += 1
    if (this.#inFlight === this.#most) this.#watch()
  }

  leave(): void {
    this.#inFlight -= 1
    this.#done += 1
    this.#isStuck = false
    if (this.#waiting.length + this.#paused.size > 0) this.#pump()
  }

  #pump(): void {
    if (this.#isPumping) return
    this.#isPumping = true
    setImmediate(() => {
      this.#isPumping = false
      if (this.#isFull) return this.#pause()
      const some = this.#waiting.splice(0, BEGUN_TOGETHER)
      for (const call of some) call()
      if (this.#waiting.length === 0) this.#resume()
      if (this.#waiting.length + this.#paused.size > 0) this.#pump()
    })
  }

  /** All at once: the event loop reads every connection that is not paused in one iteration. */
  #pause(): void {
    for (const socket of this.#reading) {
      handleOf(socket)?.readStop()
      this.#paused.add(socket)
    }
    this.#reading.clear()
  }

  #resume(): void {
    for (const socket of this.#paused.values().take(RESUMED_TOGETHER)) {
      this.#paused.delete(socket)
      this.#reading.add(socket)
      handleOf(socket)?.readStart()
    }
  }

  #watch(): void {
    const done = this.#done
    afterRunning(STUCK_MS, () => {
      if (this.#inFlight < this.#most) return
      if (this.#done > done) return this.#watch()
      this.#isStuck = true
      this.#pump()
    })
  }
}

/** `pause()` does not stop the reading of an HTTP/2 socket; these are what it calls for HTTP/1.1. */
function handleOf(socket: Socket): { readStart(): void; readStop(): void } | null {
  return (socket as unknown as { readonly _handle: ReturnType<typeof handleOf> })._handle
}
