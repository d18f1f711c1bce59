/**
 * The tail of the log of each network that somebody watches, read once a process and given to all who watch. Watches pull, one
 * message at a time: a slow one keeps that and its position, and reads from the database what the tail no longer has. (1,400
 * that kept a page each held 3.4 GB.) A number becomes visible
 * after all before it, since a writer holds the network's lock until its commit is over; so a tail skips none.
 *
 * A position is a number and the digest of its event. One that the log no longer has, or has with another digest, is of a log that
 * a restore has set back: whoever was told more than there is begins anew.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { Place, Tailed } from '../ledger/read-tail.ts'
import { type Reads, ReadsUnavailable } from '../ledger/reads.ts'
import { limitTo } from '../limit-to.ts'

/** How often the heads of watched networks are asked for: what comes together goes in one message. */
const LOOK_MS = 50
const AWAY_MS = 500
/** Bookmarks, so that a filtered or idle watch advances and is seen to live. */
const BOOKMARK_MS = 5_000
/** Events a page; of one who reads by himself, who keeps a message of them; and as many as the tail of a network keeps. */
const PAGE = 2_000
const LATE_PAGE = 500
/** Watches that read at a time, of all: other reads share their connections. (10,000 late ones kept /readyz for half a minute.) */
const READING = 2
const KEPT = 20_000
/** Changes a message. */
export const CHANGES = 50

export type Watch<Message> = {
  readonly network: string
  readonly from: Place
  /** A number: what happened up to it is told without delay, be it nothing. */
  readonly upTo: number
  /** Only leases of it; empty: of all. */
  readonly node: string
  readonly wants: (item: Tailed) => boolean
  /** What happened up to `position`, at most `CHANGES` of it. */
  readonly message: (items: readonly Tailed[], position: Place) => Message
}

/** What happened up to `position`. */
type Found = { readonly items: readonly Tailed[]; readonly position: Place }

/** A watch that cannot go on. */
export class WatchEnded extends Error {
  readonly refusal: Refusal
  constructor(refused: Refusal) {
    super(refused.message)
    this.refusal = refused
  }
}

type Waiting = {
  readonly node: string
  /** What it has read from the database may be more than the tail has. */
  readonly position: number
  readonly wants: (item: Tailed) => boolean
  readonly until: number
  readonly resolve: (items: readonly Tailed[]) => void
  readonly reject: (error: unknown) => void
}

type Tail = {
  /** What happened after `floor`, up to `head`. */
  readonly items: Tailed[]
  floor: number
  head: Place
  /** By the node that they watch, since thousands may wait that each look at one. */
  readonly waiting: Map<string, Set<Waiting>>
  watches: number
  /** It cannot be read on: it is of another log, or a newer process writes what this one does not know. */
  failed?: unknown
}

export function createWatchHub(reads: Pick<Reads, 'heads' | 'tail'>) {
  const tails = new Map<string, Tail>()
  const reading = limitTo(READING)
  let isLooking = false

  async function look(): Promise<void> {
    if (isLooking) return
    isLooking = true
    while (tails.size > 0) {
      let pause = LOOK_MS
      try {
        for (const [network, head] of await reads.heads([...tails.keys()])) await follow(network, head)
      } catch (error) {
        if (!(error instanceof ReadsUnavailable))
          for (const [network, tail] of tails) fail(network, tail, error)
        pause = AWAY_MS
      }
      const now = performance.now()
      for (const tail of tails.values())
        for (const one of waitingOf(tail)) if (now >= one.until) answer(tail, one, [])
      await delay(pause)
    }
    isLooking = false
  }

  async function follow(network: string, head: Place): Promise<void> {
    for (let isCut = true; isCut; ) {
      const tail = tails.get(network)
      if (tail === undefined || head.digest === tail.head.digest) return
      const page = await reads.tail(network, tail.head.seq, PAGE)
      if (page.digest !== tail.head.digest) return fail(network, tail, lost(tail.head.seq))
      isCut = page.isCut
      tail.head = page.position
      tail.items.push(...page.items)
      if (tail.items.length > 2 * KEPT)
        tail.floor = tail.items.splice(0, tail.items.length - KEPT).at(-1)!.event.seq
      const told = new Map<Waiting, Tailed[]>()
      for (const item of page.items)
        for (const node of nodesOf(item))
          for (const one of tail.waiting.get(node) ?? [])
            if (item.event.seq > one.position && one.wants(item))
              told.getOrInsertComputed(one, () => []).push(item)
      for (const [one, items] of told) answer(tail, one, items)
    }
  }

  function fail(network: string, tail: Tail, error: unknown): void {
    if (tails.get(network) === tail) tails.delete(network)
    tail.failed = error
    for (const one of waitingOf(tail)) one.reject(error)
  }

  /** Does nothing for one that was answered before. */
  function answer({ waiting }: Tail, one: Waiting, items: readonly Tailed[]): void {
    const there = waiting.get(one.node)
    there?.delete(one)
    if (there?.size === 0) waiting.delete(one.node)
    one.resolve(items)
  }

  /** What is wanted after `position`: of the tail, of the database, or what comes. */
  async function next(
    { network, node, wants, upTo }: Watch<unknown>,
    tail: Tail,
    position: Place,
    signal: AbortSignal,
  ): Promise<Found> {
    if (tail.failed !== undefined) throw tail.failed
    const { seq } = position
    if (seq < tail.floor) {
      // One that has ended meanwhile reads nothing.
      const page = await reading(async () => (signal.aborted ? null : reads.tail(network, seq, LATE_PAGE)))
      if (page === null) return { items: [], position }
      return { items: page.items.filter(wants), position: page.position }
    }
    if (seq < tail.head.seq) {
      // Found at once: who watches is seldom far behind.
      const begin = tail.items.findLastIndex(({ event }) => event.seq <= seq) + 1
      const items = tail.items.slice(begin, begin + PAGE)
      const end = begin + PAGE < tail.items.length ? placeOf(items.at(-1)!) : tail.head
      return { items: items.filter(wants), position: end }
    }
    const { promise, resolve, reject } = Promise.withResolvers<readonly Tailed[]>()
    const until = performance.now() + (seq < upTo ? 0 : BOOKMARK_MS)
    const one = { position: seq, node, wants, until, resolve, reject }
    const stop = () => answer(tail, one, [])
    tail.waiting.getOrInsertComputed(node, () => new Set()).add(one)
    signal.addEventListener('abort', stop, { once: true })
    const items = await promise
    signal.removeEventListener('abort', stop)
    return { items, position: tail.head.seq > seq ? tail.head : position }
  }

  /** Null: nothing yet. In a function of its own, so that a watch that is not read keeps no more than the message. */
  async function tell<Message>(
    watch: Watch<Message>,
    tail: Tail,
    from: Place,
    toldAt: number,
    signal: AbortSignal,
  ): Promise<{ readonly message: Message | null; readonly position: Place }> {
    const { items, position } = cut(await next(watch, tail, from, signal))
    const isDue = from.seq < watch.upTo || performance.now() - toldAt >= BOOKMARK_MS
    return { message: items.length > 0 || isDue ? watch.message(items, position) : null, position }
  }

  return {
    /** Where a watch goes on after a number. `digest`: what was told beside it, if that is known. @throws WatchEnded */
    async place(network: string, seq: number, digest: string): Promise<Place> {
      const found = await reading(() => reads.tail(network, seq, 0))
      if (found.digest === null || (digest !== '' && found.digest !== digest)) throw lost(seq)
      return { seq, digest: found.digest }
    },
    /** Everything that is wanted, in order, until the signal. @throws WatchEnded */
    async *watch<Message>(watch: Watch<Message>, signal: AbortSignal): AsyncGenerator<Message, void> {
      const { network, from } = watch
      const head = tails.get(network)?.head ?? (await reading(() => reads.heads([network]))).get(network)!
      const tail = tails.get(network) ?? {
        items: [],
        floor: head.seq,
        head,
        waiting: new Map(),
        watches: 0,
      }
      tails.set(network, tail)
      tail.watches += 1
      void look()
      try {
        let position = from
        let toldAt = performance.now()
        while (!signal.aborted) {
          let told: Awaited<ReturnType<typeof tell<Message>>>
          try {
            told = await tell(watch, tail, position, toldAt, signal)
          } catch (error) {
            if (!(error instanceof ReadsUnavailable)) throw error
            await delay(AWAY_MS, undefined, { signal }).catch(() => {})
            continue
          }
          position = told.position
          if (told.message === null) continue
          toldAt = performance.now()
          yield told.message
        }
      } finally {
        tail.watches -= 1
        if (tail.watches === 0 && tails.get(network) === tail) tails.delete(network)
      }
    },
  }
}

/** What a message takes; the rest is found again after it. */
function cut({ items, position }: Found): Found {
  const some = items.slice(0, CHANGES)
  return { items: some, position: some.length < items.length ? placeOf(some.at(-1)!) : position }
}

function* waitingOf({ waiting }: Tail): Generator<Waiting> {
  for (const some of waiting.values()) yield* some
}

const placeOf = ({ event: { seq }, digest }: Tailed): Place => ({ seq, digest })

/** Watches of which nodes an item may be for: where the lease is and was. */
function nodesOf({ event: { record }, before }: Tailed): Iterable<string> {
  return new Set(['', record.node, before?.node ?? ''])
}

/** Who watches knows of leases that never were. */
function lost(seq: number): WatchEnded {
  return new WatchEnded(
    refusal(
      'VERSION_MISMATCH',
      `the log up to number ${seq} is not the one that was watched: a restore set it back; watch anew with sendInitialState`,
      { number: String(seq) },
    ),
  )
}
