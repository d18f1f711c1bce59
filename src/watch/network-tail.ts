/** The newest events of one network, and the watches that wait for the next one. */
import type { LogPosition, TailItem, TailPage } from '../ledger/read-tail.ts'

/** Events that a tail keeps, and of which a page is looked at together. */
const KEPT = 20_000
export const PAGE = 2_000

export type Selection = {
  /** Only leases of this node; empty: of every node. */
  readonly node: string
  readonly matches: (item: TailItem) => boolean
}

type Page = Pick<TailPage, 'items' | 'position'>

type Waiting = Selection & {
  /** Beyond the head if it was read from the database. */
  readonly seq: number
  readonly until: number
  readonly resolve: (items: readonly TailItem[]) => void
  readonly reject: (error: unknown) => void
}

export class NetworkTail {
  /** Events after `#floor`, up to `head`. */
  readonly #items: TailItem[] = []
  #floor: number
  head: LogPosition
  /** By node: thousands of watches may wait, each for its own. */
  readonly #waiting = new Map<string, Set<Waiting>>()
  #error: unknown
  /** How many watches use this tail. */
  watches = 0

  constructor(head: LogPosition) {
    this.#floor = head.seq
    this.head = head
  }

  append({ items, position }: Page): void {
    this.head = position
    this.#items.push(...items)
    if (this.#items.length > 2 * KEPT)
      this.#floor = this.#items.splice(0, this.#items.length - KEPT).at(-1)!.event.seq
    const matching = new Map<Waiting, TailItem[]>()
    for (const item of items)
      for (const node of nodesOf(item))
        for (const one of this.#waiting.get(node) ?? [])
          if (item.event.seq > one.seq && one.matches(item))
            matching.getOrInsertComputed(one, () => []).push(item)
    for (const [one, some] of matching) this.#answer(one, some)
  }

  /** The log was set back, or a newer process writes events that this one cannot read. */
  fail(error: unknown): void {
    this.#error = error
    for (const one of this.#allWaiting()) one.reject(error)
  }

  answerDue(): void {
    const now = performance.now()
    for (const one of this.#allWaiting()) if (now >= one.until) this.#answer(one, [])
  }

  /** A page after `from`; at the head, the next events that match, or none at `until`. Null: dropped from the tail. */
  async next(
    { node, matches }: Selection,
    from: LogPosition,
    until: number,
    signal: AbortSignal,
  ): Promise<Page | null> {
    if (this.#error !== undefined) throw this.#error
    const { seq } = from
    if (seq < this.#floor) return null
    if (seq < this.head.seq) {
      // Searched from the end: most watches are near it.
      const begin = this.#items.findLastIndex(({ event }) => event.seq <= seq) + 1
      const items = this.#items.slice(begin, begin + PAGE)
      return { items, position: begin + PAGE < this.#items.length ? positionOf(items.at(-1)!) : this.head }
    }
    const { promise, resolve, reject } = Promise.withResolvers<readonly TailItem[]>()
    const one = { node, matches, seq, until, resolve, reject }
    const stop = () => this.#answer(one, [])
    this.#waiting.getOrInsertComputed(node, () => new Set()).add(one)
    signal.addEventListener('abort', stop, { once: true })
    const items = await promise
    signal.removeEventListener('abort', stop)
    return { items, position: this.head.seq > seq ? this.head : from }
  }

  /** Does nothing if the watch was answered before. */
  #answer(one: Waiting, items: readonly TailItem[]): void {
    const ofNode = this.#waiting.get(one.node)
    ofNode?.delete(one)
    if (ofNode?.size === 0) this.#waiting.delete(one.node)
    one.resolve(items)
  }

  *#allWaiting(): Generator<Waiting> {
    for (const some of this.#waiting.values()) yield* some
  }
}

export const positionOf = ({ event: { seq }, digest }: TailItem): LogPosition => ({ seq, digest })

/** An item may match watches of the nodes where its lease is and was. */
function nodesOf({ event: { record }, before }: TailItem): Iterable<string> {
  return new Set(['', record.node, before?.node ?? ''])
}
