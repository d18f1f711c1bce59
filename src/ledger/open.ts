/** Opens the ledger on PostgreSQL: a loop for each network that is used, on a few connections that they share. */
import type { Command } from '../core/command.ts'
import type { Image } from '../core/image.ts'
import { refusal } from '../core/refusal.ts'
import { Clock } from './clock.ts'
import type { Ledger, Outcome, SubmitOptions } from './ledger.ts'
import type { Log } from './log.ts'
import { Loop } from './loop.ts'
import type { LoopOptions, Observer } from './loop-options.ts'
import { Nodes } from './nodes.ts'
import { createPgLog } from './pg-log.ts'

export type LedgerOptions = Omit<LoopOptions, 'log' | 'clock' | 'observer'> & {
  readonly url: string
  /** Connections that networks share; a network uses one at a time. */
  readonly connections?: number
  readonly observer?: Observer & {
    clockStep?(byMs: number): void
    nodeAway?(node: string, error: unknown): void
  }
  readonly traceId?: () => string | null
  /** Tests have others. */
  readonly clock?: Clock | undefined
  /** How long an unused network stays in memory. */
  readonly idleMs?: number
}

const CONNECTIONS = 8
const IDLE_MS = 600_000
/** How often the database's clock is compared, deadlines are checked, idle images are dropped. */
const CLOCK_MS = 1_000
const SWEEP_MS = 50
export type OpenLedger = Ledger & {
  readonly log: Log
  stats(): readonly { network: string; queued: number; records: number }[]
}

export async function openLedger(options: LedgerOptions): Promise<OpenLedger> {
  const ledger = new PgLedger(options)
  await ledger.compareClocks()
  return ledger
}

class PgLedger implements OpenLedger {
  readonly log: Log
  readonly #nodes: Nodes
  readonly #clock: Clock
  readonly #loops = new Map<string, Loop>()
  readonly #loopOptions: LoopOptions
  readonly #traceId: () => string | null
  readonly #timers: readonly NodeJS.Timeout[]
  #isClosing = false
  #isComparing = false

  constructor(options: LedgerOptions) {
    const { url, connections = CONNECTIONS, clock = new Clock(), idleMs = IDLE_MS, ...more } = options
    const { observer = {}, traceId = () => null, ...ofLoops } = more
    this.#nodes = new Nodes(url, { connections, onAway: observer.nodeAway })
    this.log = createPgLog(this.#nodes)
    this.#clock = clock
    this.#loopOptions = { ...ofLoops, log: this.log, clock, observer }
    this.#traceId = traceId
    // Held at once, also without callers here: another process may serve the network.
    clock.onStep = (byMs) => {
      observer.clockStep?.(byMs)
      for (const loop of this.#loops.values()) if (loop.records > 0) loop.image().catch(() => {})
    }
    this.#timers = [
      setInterval(() => this.#sweep(idleMs), SWEEP_MS),
      setInterval(() => void this.compareClocks(), CLOCK_MS),
    ]
  }

  submit(command: Command, { deadline }: SubmitOptions = {}): Promise<Outcome> {
    if (this.#isClosing) {
      const stopping = refusal('OVERLOADED', 'the server is stopping; ask another', {}, 1_000)
      return Promise.resolve({ ok: false, refusal: stopping })
    }
    const traceId = command.traceId ?? this.#traceId()
    const traced = traceId === command.traceId ? command : { ...command, traceId }
    return this.#loopOf(command.network).submit(traced, deadline)
  }

  image(network: string, { deadline }: SubmitOptions = {}): Promise<Image | null> {
    return this.#loopOf(network).image(deadline)
  }

  now(): number {
    return this.#clock.database()
  }

  stats() {
    return [...this.#loops].map(([network, { queue, records }]) => ({ network, queued: queue.size, records }))
  }

  async close(): Promise<void> {
    this.#isClosing = true
    const [sweeping, comparing] = this.#timers
    clearInterval(comparing)
    await Promise.all([...this.#loops.values()].map((loop) => loop.drained()))
    clearInterval(sweeping)
    await this.#nodes.end()
  }

  async compareClocks(): Promise<void> {
    if (this.#isComparing) return
    this.#isComparing = true
    const sent = this.#clock.now()
    try {
      this.#clock.observe(await this.log.clock(), sent, this.#clock.now())
      await this.#nodes.refresh()
    } catch {
      // The loops say that the database is away.
    }
    this.#isComparing = false
  }

  #loopOf(network: string): Loop {
    return this.#loops.getOrInsertComputed(network, () => new Loop(network, this.#loopOptions))
  }

  #sweep(idleMs: number): void {
    for (const [network, loop] of this.#loops) {
      loop.queue.sweep()
      if (!loop.isIdle(idleMs)) continue
      this.#loops.delete(network)
      this.#nodes.forget(network)
    }
  }
}
