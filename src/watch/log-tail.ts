/**
 * Follows the logs of all watched networks: one poll in a process reads for all watches. A watch takes one message at a time. A
 * slow watch keeps that message and its position, and reads from the database what the tail has dropped. (1,400 slow watches that
 * kept a page each held 3.4 GB.) A writer holds the network's lock until its commit ends, so events become visible in order and
 * none is skipped.
 *
 * A position is a number and the digest of its event. If the log has no such event any more, a restore has set the log back: the
 * watch ends, and its caller begins anew.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { refusal } from '../core/refusal.ts'
import { Unavailable } from '../ledger/ledger.ts'
import type { LogPosition, TailItem } from '../ledger/read-tail.ts'
import { type Reads, ReadsUnavailable } from '../ledger/reads.ts'
import { limitTo } from '../limit-to.ts'
import { NetworkTail, PAGE, positionOf, type Selection } from './network-tail.ts'

/** Between two polls: events that come within it go in one message. */
const POLL_MS = 50
const AWAY_MS = 500
/** A watch without events advances this often, and its caller sees that it lives. */
const BOOKMARK_MS = 5_000
/** Events that a late watch reads for one message. */
const LATE_PAGE = 500
/** Reads at a time of all watches; other reads share their connections. (10,000 late watches kept /readyz for half a minute.) */
const CONCURRENT_READS = 2
/** Changes a message. */
export const CHANGES = 50

export type Watch<Message> = Selection & {
  readonly network: string
  readonly from: LogPosition
  /** Messages up to this number are sent without delay, even if nothing matches. */
  readonly upTo: number
  /** Of at most `CHANGES` items, which are all that match up to `position`. */
  readonly message: (items: readonly TailItem[], position: LogPosition) => Message
}

export class LogTail {
  readonly #reads: Pick<Reads, 'heads' | 'tail'>
  readonly #tails = new Map<string, NetworkTail>()
  readonly #limited = limitTo(CONCURRENT_READS)
  #isPolling = false

  constructor(reads: Pick<Reads, 'heads' | 'tail'>) {
    this.#reads = reads
  }

  /** `digest`: of the event with this number, if the caller knows it; else empty. @throws Unavailable */
  async positionAt(network: string, seq: number, digest: string): Promise<LogPosition> {
    const found = await this.#limited(() => this.#reads.tail(network, seq, 0))
    if (found.digest === null || (digest !== '' && found.digest !== digest)) throw logSetBack(seq)
    return { seq, digest: found.digest }
  }

  /** Everything that matches, in order, until the signal. @throws Unavailable */
  async *stream<Message>(watch: Watch<Message>, signal: AbortSignal): AsyncGenerator<Message, void> {
    const tail = await this.#open(watch.network)
    try {
      let position = watch.from
      let sentAt = performance.now()
      while (!signal.aborted) {
        const due = position.seq < watch.upTo ? 0 : sentAt + BOOKMARK_MS
        const next = await this.#nextMessage(watch, tail, position, due, signal)
        position = next.position
        if (next.message === null) continue
        sentAt = performance.now()
        yield next.message
      }
    } finally {
      tail.watches -= 1
      if (tail.watches === 0) this.#remove(watch.network, tail)
    }
  }

  async #open(network: string): Promise<NetworkTail> {
    const known = this.#tails.get(network)?.head
    const head = known ?? (await this.#limited(() => this.#reads.heads([network]))).get(network)!
    const tail = this.#tails.getOrInsertComputed(network, () => new NetworkTail(head))
    tail.watches += 1
    void this.#poll()
    return tail
  }

  /** Another tail may have replaced it. */
  #remove(network: string, tail: NetworkTail): void {
    if (this.#tails.get(network) === tail) this.#tails.delete(network)
  }

  #fail(network: string, tail: NetworkTail, error: unknown): void {
    this.#remove(network, tail)
    tail.fail(error)
  }

  async #poll(): Promise<void> {
    if (this.#isPolling) return
    this.#isPolling = true
    while (this.#tails.size > 0) {
      let pause = POLL_MS
      try {
        const heads = await this.#reads.heads([...this.#tails.keys()])
        for (const [network, head] of heads) await this.#follow(network, head)
      } catch (error) {
        if (!(error instanceof ReadsUnavailable))
          for (const [network, tail] of this.#tails) this.#fail(network, tail, error)
        pause = AWAY_MS
      }
      for (const tail of this.#tails.values()) tail.answerDue()
      await delay(pause)
    }
    this.#isPolling = false
  }

  async #follow(network: string, head: LogPosition): Promise<void> {
    for (let isCut = true; isCut; ) {
      const tail = this.#tails.get(network)
      if (tail === undefined || head.digest === tail.head.digest) return
      const { seq, digest } = tail.head
      const page = await this.#reads.tail(network, seq, PAGE)
      if (page.digest !== digest) return this.#fail(network, tail, logSetBack(seq))
      isCut = page.isCut
      tail.append(page)
    }
  }

  /** A function of its own, so that a watch whose caller does not read keeps no page. Null: nothing to send yet. */
  async #nextMessage<Message>(
    watch: Watch<Message>,
    tail: NetworkTail,
    from: LogPosition,
    due: number,
    signal: AbortSignal,
  ): Promise<{ readonly message: Message | null; readonly position: LogPosition }> {
    const late = async () =>
      signal.aborted ? { items: [], position: from } : this.#reads.tail(watch.network, from.seq, LATE_PAGE)
    try {
      const page = (await tail.next(watch, from, due, signal)) ?? (await this.#limited(late))
      const all = page.items.filter(watch.matches)
      const items = all.slice(0, CHANGES)
      const position = items.length < all.length ? positionOf(items.at(-1)!) : page.position
      const isDue = items.length > 0 || performance.now() >= due
      return { message: isDue ? watch.message(items, position) : null, position }
    } catch (error) {
      if (!(error instanceof ReadsUnavailable)) throw error
      await delay(AWAY_MS, undefined, { signal }).catch(() => {})
      return { message: null, position: from }
    }
  }
}

function logSetBack(seq: number): Unavailable {
  const why = `the log up to number ${seq} is not the one that was watched: a restore set it back`
  const text = `${why}; watch anew with sendInitialState`
  return new Unavailable(refusal('VERSION_MISMATCH', text, { number: String(seq) }))
}
