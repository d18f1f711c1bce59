/**
 * How many calls a process works on at a time. What is beyond it is not refused but not read: connections of HTTP/2 are
 * paused, and over HTTP/1.1 a connection waits with the call that it has brought. (100,000 calls at once took 4 GB, and starved
 * the event loop until every time limit had passed.)
 *
 * A call counts from when its message is there until its handler is done, so none that counts waits for something unread. If
 * none is done for a while, as without a database, reading goes on, and what is beyond the bound is refused.
 */
import type { Socket } from 'node:net'
import { afterRunning } from '../../time-limit.ts'
import { overloaded } from '../codec/errors.ts'

/** One takes some 40 KB over HTTP/2. */
const MOST_IN_FLIGHT = 4_096
/** Begun in one turn of the event loop: some 10 ms. */
const A_TURN = 64
/** Calls that were read and wait; one packet of a connection may bring 100. */
const MOST_WAITING = 256
/** Connections that are read again at a time. */
const READ_AGAIN = 4
/** Probes wait no longer for their answers. */
const STUCK_MS = 500

export class Admission {
  readonly #most: number
  #inFlight = 0
  /** Calls done so far. */
  #done = 0
  /** No call is done any more. */
  #isStuck = false
  #isPumping = false
  #waiting: (() => void)[] = []
  readonly #reading = new Set<Socket>()
  /** Whoever waits for longest is read first. */
  readonly #paused = new Set<Socket>()

  constructor(most = MOST_IN_FLIGHT) {
    this.#most = most
  }

  get #isShut(): boolean {
    return this.#inFlight >= this.#most && !this.#isStuck
  }

  /** A call over HTTP/1.1 begins at once, because none waits. */
  get isOpen(): boolean {
    return !this.#isShut && this.#waiting.length === 0
  }

  /** A connection of HTTP/2, which is paused with all others. */
  add(socket: Socket): void {
    this.#reading.add(socket)
    socket.once('close', () => {
      this.#reading.delete(socket)
      this.#paused.delete(socket)
    })
  }

  /** Over HTTP/1.1: its connection waits with it. */
  beginPaused(socket: Socket, call: () => void): void {
    socket.pause()
    this.beginLater(() => {
      socket.resume()
      call()
    })
  }

  /** Over HTTP/2, where a packet may begin many calls, and give them up again. */
  beginLater(call: () => void): void {
    this.#waiting.push(call)
    if (this.#waiting.length >= MOST_WAITING || this.#isShut) this.#pause()
    this.#pump()
  }

  /** A call begins to be worked on: its message is there. @throws Refused OVERLOADED */
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
      if (this.#isShut) return this.#pause()
      const some = this.#waiting.splice(0, A_TURN)
      for (const call of some) call()
      if (this.#waiting.length === 0) this.#read()
      if (this.#waiting.length + this.#paused.size > 0) this.#pump()
    })
  }

  /** The event loop reads from whatever is not paused, in one turn. */
  #pause(): void {
    for (const socket of this.#reading) {
      handleOf(socket)?.readStop()
      this.#paused.add(socket)
    }
    this.#reading.clear()
  }

  #read(): void {
    for (const socket of this.#paused.values().take(READ_AGAIN)) {
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

/** Sockets of HTTP/2 have no pause() of their own that stops reading; this is what that of HTTP/1.1 calls. */
function handleOf(socket: Socket): { readStart(): void; readStop(): void } | null {
  return (socket as unknown as { readonly _handle: ReturnType<typeof handleOf> })._handle
}
