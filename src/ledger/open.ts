/** Opens the ledger on PostgreSQL: a loop for each network that is used, on a few connections that they share. */
import type pg from 'pg'
import type { Command } from '../core/command.ts'
import type { Image } from '../core/image.ts'
import { refusal } from '../core/refusal.ts'
import { checkServer, createPool } from '../postgres/connect.ts'
import { type ClockWatch, watchClock } from './clock.ts'
import type { Ledger } from './ledger.ts'
import type { Log } from './log.ts'
import { createLoop, type Loop, type LoopLimits, type Observer } from './loop.ts'
import { createPgLog } from './pg-log.ts'

export type LedgerOptions = {
  readonly url: string
  readonly limits?: Partial<LoopLimits>
  /** Connections that networks share; a network uses one at a time. */
  readonly connections?: number
  /** Declared by the deployment: a failover loses nothing that was acknowledged. */
  readonly losesNothing?: boolean
  readonly observer?: Observer & { clockStep?(byMs: number): void }
  readonly traceId?: () => string | null
  /** Another clock than the database's, for tests: milliseconds since 1970. */
  readonly clock?: () => number
  /** By how much a test has moved time, in milliseconds: it passed, and no clock was set. */
  readonly movedBy?: () => number
  /** How long a network that nobody uses stays in memory. */
  readonly idleMs?: number
}

const CONNECTIONS = 8
const IDLE_MS = 600_000
/** How often the database's clock is compared, deadlines are looked at, idle images are dropped. */
const CLOCK_MS = 1_000
const SWEEP_MS = 50
/**
 * Plans of prepared statements are made while tables are small, and kept: a scan and a sort that were cheap then. All that the
 * hot path asks for is in an index, in order. (At 30,000 events: 5.6 ms for the first round trip, 0.6 with these.)
 */
const NEVER_SCAN = `set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off;
  set plan_cache_mode = force_generic_plan; set jit = off`

export type OpenLedger = Ledger & {
  readonly log: Log
  stats(): readonly { network: string; queued: number; records: number }[]
}

export async function openLedger(options: LedgerOptions): Promise<OpenLedger> {
  const { observer = {}, idleMs = IDLE_MS } = options
  const monotonic = () => performance.now()
  const pool = createLedgerPool(options.url, options.connections ?? CONNECTIONS)
  const { movedBy = () => 0 } = options
  const log = withClock(createPgLog(pool), options.clock, movedBy)
  const loops = new Map<string, Loop>()
  // Held at once, also where nobody asks now: another process may serve the network meanwhile.
  const seen = watchClock((byMs) => {
    observer.clockStep?.(byMs)
    for (const loop of loops.values()) if (loop.records > 0) loop.image().catch(() => {})
  })
  const watch: ClockWatch = {
    ...seen,
    observe: (clock, sent, received) => seen.observe(clock - movedBy(), sent, received),
    at: (now) => seen.at(now) + movedBy(),
  }
  let isClosing = false
  let isComparing = false

  async function compare(): Promise<void> {
    if (isComparing) return
    isComparing = true
    const sent = monotonic()
    try {
      watch.observe(await log.clock(), sent, monotonic())
    } catch {
      // The loops say that the database is away.
    }
    isComparing = false
  }

  function loopOf(network: string): Loop {
    const known = loops.get(network)
    if (known !== undefined) return known
    const loop = createLoop(network, {
      log,
      clock: watch,
      monotonic,
      pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
      observer,
      ...(options.limits !== undefined && { limits: options.limits }),
      ...(options.losesNothing !== undefined && { losesNothing: options.losesNothing }),
    })
    loops.set(network, loop)
    return loop
  }

  const sweeping = setInterval(() => {
    for (const [network, loop] of loops) {
      loop.sweep()
      if (loop.isIdle(idleMs)) loops.delete(network)
    }
  }, SWEEP_MS)
  const comparing = setInterval(() => void compare(), CLOCK_MS)
  await compare()

  return {
    log,
    submit(command: Command, { deadline } = {}) {
      if (isClosing)
        return Promise.resolve({
          ok: false,
          refusal: refusal('OVERLOADED', 'the server is stopping; ask another', {}, 1_000),
        })
      const traceId = command.traceId ?? options.traceId?.() ?? null
      return loopOf(command.network).submit(
        traceId === command.traceId ? command : { ...command, traceId },
        deadline,
      )
    },
    image: (network, { deadline } = {}): Promise<Image | null> => loopOf(network).image(deadline),
    now: () => watch.at(monotonic()),
    stats: () => [...loops].map(([network, { queued, records }]) => ({ network, queued, records })),
    async close() {
      isClosing = true
      clearInterval(comparing)
      await Promise.all([...loops.values()].map((loop) => loop.drained()))
      clearInterval(sweeping)
      if (!pool.ending) await pool.end()
    },
  }
}

/** A test's clock in the place of the database's. */
function withClock(log: Log, clock: (() => number) | undefined, movedBy: () => number): Log {
  return {
    ...log,
    clock: async () => (clock?.() ?? (await log.clock())) + movedBy(),
    async begin(...args) {
      const transaction = await log.begin(...args)
      const { caught } = transaction
      return { ...transaction, caught: { ...caught, clock: (clock?.() ?? caught.clock) + movedBy() } }
    },
  }
}

/** Every new connection is checked: a failover can end on a server that forgets acknowledged commits. */
export function createLedgerPool(url: string, max: number): pg.Pool {
  return createPool({
    url,
    applicationName: 'ipledger ledger',
    max,
    async prepare(client) {
      await checkServer(client)
      await client.query(NEVER_SCAN)
    },
  })
}
