/** Opens the ledger: batchers by network, and the few connections they take turns on. */
import type pg from 'pg'
import { LEDGER_DEFAULTS } from '../config.ts'
import { refusal } from '../core/refusal.ts'
import { connect } from '../postgres/connect.ts'
import { sever } from '../postgres/trip.ts'
import { addGauges, countClockJump, countUniqueViolation, currentTraceId, MOST_SERIES } from '../telemetry.ts'
import { newAbsenceMemory } from './absence.ts'
import { type Hints, newHints } from './anticipate.ts'
import { refusedOutcome, runBatch } from './batch.ts'
import { type Batcher, type BatcherLimits, createBatcher, sqlState } from './batcher.ts'
import { watchClock } from './clock.ts'
import type { EraRules } from './eras.ts'
import type { Ledger } from './ledger.ts'
import { readAddress } from './rows.ts'

export type LedgerOptions = {
  readonly url: string
  readonly limits?: Partial<BatcherLimits>
  /** Smaller ones for tests. */
  readonly bounds?: Partial<Bounds>
  /** Connections that batches of different networks share; one network uses one at a time. */
  readonly connections?: number
  /** Declared by the deployment: a failover loses nothing that was acknowledged, so that nothing recovers after it. */
  readonly commitsAreNeverLost?: boolean
  readonly log?: LedgerLog
}

export type LedgerLog = {
  readonly warn: (fields: object, message: string) => void
  readonly error: (fields: object, message: string) => void
}

const LIMITS: BatcherLimits = {
  queued: LEDGER_DEFAULTS.queued,
  leasesPerBatch: LEDGER_DEFAULTS.leasesPerBatch,
  defaultDeadlineMs: LEDGER_DEFAULTS.deadlineSeconds * 1_000,
}

/** What a process remembers. No measurement: a name or an address takes some hundred bytes. */
type Bounds = {
  /** Addresses set aside in one network: beyond it something is wrong that skipping does not mend. */
  readonly setAside: number
  /** Networks remembered while idle; names that do not exist come from callers and must not pile up. */
  readonly idleNetworks: number
}
const BOUNDS: Bounds = { setAside: 10_000, idleNetworks: 10_000 }

export type OpenLedger = Ledger & {
  /** Names of those that are remembered. */
  networks(): readonly string[]
}

export function openLedger(options: LedgerOptions): OpenLedger {
  const limits = { ...LIMITS, ...options.limits }
  const bounds = { ...BOUNDS, ...options.bounds }
  const connections = createConnections(options.url, options.connections ?? LEDGER_DEFAULTS.connections)
  const networks = new Map<string, { batcher: Batcher; hints: Hints; setAside: Set<string> }>()
  let closing = false

  function open(network: string) {
    const known = networks.get(network)
    if (known !== undefined) return known
    if (networks.size >= bounds.idleNetworks) {
      for (const [name, { batcher, setAside }] of networks) {
        if (batcher.idle() && setAside.size === 0) networks.delete(name)
      }
    }
    const hints = newHints()
    const absence = newAbsenceMemory()
    const setAside = new Set<string>()
    const eras: EraRules = {
      commitsAreNeverLost: options.commitsAreNeverLost ?? false,
      seen: { head: 0 },
      onBegun: ({ era, recovering, why }) =>
        options.log?.error(
          { network, era, recovering, why },
          'the database is older than itself: a new era was begun',
        ),
    }
    const clock = watchClock((byMs) => {
      countClockJump(network)
      options.log?.warn({ network, byMs: Math.round(byMs) }, "the database's clock was set")
    })
    const batcher = createBatcher(
      (commands, decides, signal, observed) =>
        connections.use(
          signal,
          (client) =>
            runBatch(client, network, commands, {
              hints,
              absence,
              setAside,
              decides,
              eras,
              clock,
              observed,
            }),
          // Whatever failed may be the connection's: a plan that a migration made stale fails for ever.
          (result) => result.kind === 'unsent' || result.kind === 'unknown',
        ),
      limits,
      {
        onVeto: (error, command) => {
          if (sqlState(error) === '23505') countUniqueViolation(network)
          const address = vetoedAddress(error)
          if (address === undefined || setAside.has(address) || setAside.size >= bounds.setAside) return false
          setAside.add(address)
          options.log?.error(
            { network, address, command: command.type, err: error },
            'the database holds a lease row that the books do not know; the address is set aside, run ipledger verify',
          )
          return true
        },
        onFailure: (result) => {
          if (result.kind !== 'committed')
            options.log?.warn({ network, kind: result.kind, err: result.error }, 'batch failed')
        },
        onRefused: (refused, command) => {
          if (refused.metadata.beyondHead === undefined) return
          options.log?.error(
            { network, command: command.type, actor: command.actor.name, ...refused.metadata },
            'a caller quotes a number this ledger never gave out: the database may be an older copy',
          )
        },
        onDefect: (error, command) =>
          options.log?.error(
            { network, command: command.type, err: error },
            'the database refuses what the books allow',
          ),
      },
    )
    const opened = { batcher, hints, setAside }
    networks.set(network, opened)
    return opened
  }

  const endGauges = addGauges(() =>
    [...networks]
      .map(([network, { batcher }]) => ['queue', [network], batcher.queued()] as const)
      .sort((a, b) => b[2] - a[2])
      .slice(0, MOST_SERIES),
  )

  return {
    submit(command, submitOptions = {}) {
      if (closing) {
        return Promise.resolve(
          refusedOutcome(refusal('OVERLOADED', 'the server is stopping; ask another', {}, 1_000)),
        )
      }
      const traceId = command.traceId ?? currentTraceId()
      const traced = traceId === command.traceId ? command : { ...command, traceId }
      return open(command.network).batcher.submit(traced, submitOptions)
    },
    networks: () => [...networks.keys()],
    async close() {
      closing = true
      endGauges()
      await Promise.all([...networks.values()].map(({ batcher }) => batcher.drained()))
      await connections.close()
    },
  }
}

type Connections = {
  use<T>(
    signal: AbortSignal,
    work: (client: pg.Client) => Promise<T>,
    spoils: (result: T) => boolean,
  ): Promise<T>
  close(): Promise<void>
}

/** A few connections, opened when needed; one that fails is replaced by the next batch. */
function createConnections(url: string, most: number): Connections {
  const idle: pg.Client[] = []
  const waiting: (() => void)[] = []
  let open = 0

  async function take(): Promise<pg.Client> {
    const client = idle.pop()
    if (client !== undefined) return client
    if (open >= most) {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return take()
    }
    open += 1
    try {
      const fresh = await connect({ url, applicationName: 'ipledger ledger' })
      fresh.on('error', () => forget(fresh))
      fresh.on('end', () => forget(fresh))
      return fresh
    } catch (error) {
      open -= 1
      waiting.shift()?.()
      throw error
    }
  }

  const gone = new WeakSet<pg.Client>()
  function forget(client: pg.Client): void {
    if (gone.has(client)) return
    gone.add(client)
    open -= 1
    const at = idle.indexOf(client)
    if (at >= 0) idle.splice(at, 1)
    waiting.shift()?.()
  }

  function destroy(client: pg.Client): void {
    forget(client)
    sever(client)
  }

  return {
    async use(signal, work, spoils) {
      const client = await orAborted(take(), signal, (late) => {
        // Nobody waits for it any more; the next batch may have it.
        if (!gone.has(late)) idle.push(late)
        waiting.shift()?.()
      })
      const abort = () => destroy(client)
      signal.addEventListener('abort', abort, { once: true })
      let clean = false
      try {
        const result = await work(client)
        clean = !spoils(result)
        return result
      } finally {
        signal.removeEventListener('abort', abort)
        if (!gone.has(client)) {
          if (clean) {
            idle.push(client)
            waiting.shift()?.()
          } else destroy(client)
        }
      }
    },
    async close() {
      await Promise.all(idle.splice(0).map((client) => client.end()))
    },
  }
}

/** Waits no longer than the signal allows; what arrives later is handed to `late`. */
async function orAborted<T>(promise: Promise<T>, signal: AbortSignal, late: (value: T) => void): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const abort = () => reject(signal.reason)
  signal.addEventListener('abort', abort, { once: true })
  if (signal.aborted) abort()
  try {
    return await Promise.race([promise, aborted])
  } catch (error) {
    if (signal.aborted) promise.then(late, () => undefined)
    throw error
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** The address in the detail of a unique violation on `lease`. */
function vetoedAddress(error: unknown): string | undefined {
  if (sqlState(error) !== '23505') return undefined
  const { constraint, detail } = error as { constraint?: string; detail?: string }
  if (constraint !== 'address_has_one_lease') return undefined
  const found = /\(network_id, address\)=\([^,]*, ([0-9a-f.:]+)\)/.exec(detail ?? '')?.[1]
  return found === undefined ? undefined : readAddress(found)
}
