/**
 * The tail of the log of each network that somebody watches, read once a process and given to all who watch. Watches pull: a
 * slow one keeps nothing but its position, and reads from the database what the tail no longer has. A number becomes visible
 * after all before it, since a writer holds the network's lock until its commit is over; so a tail skips none.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { LeaseTailed, Tailed } from '../ledger/read-tail.ts'
import { type Reads, ReadsUnavailable } from '../ledger/reads.ts'

/** How often the heads of watched networks are asked for: what comes together goes in one message. */
const LOOK_MS = 50
const AWAY_MS = 500
/** Bookmarks, so that a filtered or idle watch advances and is seen to live. */
const BOOKMARK_MS = 5_000
/** Events a page, and as many as the tail of a network keeps. */
const PAGE = 2_000
const KEPT = 20_000

/** What happened up to `position`. */
export type Told = { readonly items: readonly LeaseTailed[]; readonly position: number }
/** `node`: only leases of it; empty: of all. */
export type Filter = { readonly node: string; readonly wants: (item: LeaseTailed) => boolean }

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
  head: number
  /** By the node that they watch, since thousands may wait that each look at one. */
  readonly waiting: Map<string, Set<Waiting>>
  watches: number
  /** It cannot be read on: a newer process writes what this one does not know. */
  failed?: unknown
}

export function createWatchHub(reads: Pick<Reads, 'heads' | 'tail'>) {
  const tails = new Map<string, Tail>()
  let isLooking = false

  async function look(): Promise<void> {
    if (isLooking) return
    isLooking = true
    while (tails.size > 0) {
      let pause = LOOK_MS
      try {
        for (const [network, head] of await reads.heads([...tails.keys()])) await follow(network, head)
      } catch (error) {
        if (!(error instanceof ReadsUnavailable)) fail(error)
        pause = AWAY_MS
      }
      const now = performance.now()
      for (const tail of tails.values())
        for (const one of waitingOf(tail)) if (now >= one.until) answer(tail, one, [])
      await delay(pause)
    }
    isLooking = false
  }

  async function follow(network: string, head: number): Promise<void> {
    for (let isCut = true; isCut; ) {
      const tail = tails.get(network)
      if (tail === undefined || head <= tail.head) return
      const page = await reads.tail(network, tail.head, PAGE)
      isCut = page.isCut
      tail.head = page.position
      tail.items.push(...page.items)
      if (tail.items.length > 2 * KEPT)
        tail.floor = tail.items.splice(0, tail.items.length - KEPT).at(-1)!.event.seq
      const told = new Map<Waiting, Tailed[]>()
      for (const item of page.items)
        for (const node of nodesOf(item, tail))
          for (const one of tail.waiting.get(node) ?? [])
            if (item.event.seq > one.position && one.wants(item))
              told.getOrInsertComputed(one, () => []).push(item)
      for (const [one, items] of told) answer(tail, one, items)
    }
  }

  function fail(error: unknown): void {
    for (const [network, tail] of tails) {
      tails.delete(network)
      tail.failed = error
      for (const one of waitingOf(tail)) one.reject(error)
    }
  }

  /** One that was answered before is answered no more. */
  function answer({ waiting }: Tail, one: Waiting, items: readonly Tailed[]): void {
    const there = waiting.get(one.node)
    there?.delete(one)
    if (there?.size === 0) waiting.delete(one.node)
    one.resolve(items)
  }

  /** What is wanted after `position`: of the tail, of the database, or what comes. */
  async function next(
    network: string,
    tail: Tail,
    position: number,
    { node, wants }: Pick<Waiting, 'node' | 'wants'>,
    signal: AbortSignal,
  ): Promise<{ readonly items: readonly Tailed[]; readonly position: number }> {
    if (tail.failed !== undefined) throw tail.failed
    if (position < tail.floor) {
      const page = await reads.tail(network, position, PAGE)
      return { items: page.items.filter(wants), position: page.position }
    }
    if (position < tail.head) {
      // Found at once: who watches is seldom far behind.
      const begin = tail.items.findLastIndex(({ event }) => event.seq <= position) + 1
      const items = tail.items.slice(begin, begin + PAGE)
      const end = begin + PAGE < tail.items.length ? items.at(-1)!.event.seq : tail.head
      return { items: items.filter(wants), position: end }
    }
    const { promise, resolve, reject } = Promise.withResolvers<readonly Tailed[]>()
    const one = { position, node, wants, until: performance.now() + BOOKMARK_MS, resolve, reject }
    const stop = () => answer(tail, one, [])
    tail.waiting.getOrInsertComputed(node, () => new Set()).add(one)
    signal.addEventListener('abort', stop, { once: true })
    const items = await promise
    signal.removeEventListener('abort', stop)
    return { items, position: Math.max(position, tail.head) }
  }

  return {
    /** Everything that the filter lets through after `position`, in order, until the signal. @throws WatchEnded */
    async *watch(
      network: string,
      from: number,
      filter: Filter,
      signal: AbortSignal,
    ): AsyncGenerator<Told, void> {
      const head = tails.get(network)?.head ?? (await reads.heads([network])).get(network)!
      const tail = tails.get(network) ?? { items: [], floor: head, head, waiting: new Map(), watches: 0 }
      tails.set(network, tail)
      const wanted = { node: filter.node, wants: (item: Tailed) => !('face' in item) || filter.wants(item) }
      tail.watches += 1
      void look()
      try {
        let position = from
        let toldAt = performance.now()
        while (!signal.aborted) {
          let found: Awaited<ReturnType<typeof next>>
          try {
            found = await next(network, tail, position, wanted, signal)
          } catch (error) {
            if (!(error instanceof ReadsUnavailable)) throw error
            await delay(AWAY_MS, undefined, { signal }).catch(() => {})
            continue
          }
          for (const item of found.items) if (!('face' in item)) checkEra(item.event.details.after, position)
          position = found.position
          const items = found.items.filter((item) => 'face' in item)
          if (items.length === 0 && performance.now() - toldAt < BOOKMARK_MS) continue
          toldAt = performance.now()
          yield { items, position }
        }
      } finally {
        tail.watches -= 1
        if (tail.watches === 0 && tails.get(network) === tail) tails.delete(network)
      }
    },
    watches: () => [...tails.values()].reduce((sum, { watches }) => sum + watches, 0),
  }
}

function* waitingOf({ waiting }: Tail): Generator<Waiting> {
  for (const some of waiting.values()) yield* some
}

/** Watches of which nodes an item may be for: where the lease is and was; a new era is for all. */
function nodesOf(item: Tailed, { waiting }: Tail): Iterable<string> {
  return 'face' in item ? new Set(['', item.event.record.node, item.before?.node ?? '']) : waiting.keys()
}

/** A restore lost what was told: who watches knows of leases that never were. */
function checkEra(last: number, position: number): void {
  if (last >= position) return
  throw new WatchEnded(
    refusal(
      'VERSION_MISMATCH',
      `what followed number ${last} was lost when the database was restored; watch anew with sendInitialState`,
      { number: String(position), lostAfter: String(last) },
    ),
  )
}
