/**
 * Logs, metrics and spans: the logger, all names of metrics and spans, and the functions by which the rooms report. No other
 * file spells such a name.
 *
 * It imports @opentelemetry/api and no SDK; `telemetry-export.ts` loads one if the configuration asks for it. Until then no
 * metric has an instrument, and spans record nothing.
 *
 * Names follow the semantic conventions where these have one (RPC, Node.js), with the unit at the end, since exporters for
 * Prometheus add none: there a dot is an underscore, and a counter ends in `_total`.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import {
  type Attributes,
  type BatchObservableResult,
  type Counter,
  context,
  type Histogram,
  isSpanContextValid,
  metrics,
  type Observable,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api'
import {
  ATTR_ERROR_TYPE,
  ATTR_RPC_METHOD,
  ATTR_RPC_STATUS_CODE,
  ATTR_RPC_SYSTEM_NAME,
  METRIC_RPC_SERVER_CALL_DURATION,
} from '@opentelemetry/semantic-conventions'
import { pino } from 'pino'
import type { LogLevel } from './config.ts'

const SCOPE = 'ipledger'
/** Of every process, unless OTEL_SERVICE_NAME says otherwise. */
export const SERVICE_NAME = 'ipledger'

// The log.

export type Logger = pino.Logger

/** JSON lines on stderr, with the ids of the current span; stdout has only the output of commands. */
export function createLogger(level: LogLevel): Logger {
  return pino(
    { name: 'ipledger', level, base: { pid: process.pid }, mixin: idsOfSpan, serializers: { err: errorOf } },
    pino.destination({ fd: 2, sync: true }),
  )
}

/** Only these fields: pg adds its client to an error, with the key that cancels a query. */
function errorOf(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { name: type, message, stack, cause } = error
  return {
    type,
    message,
    ...('code' in error && { code: error.code }),
    stack,
    ...(cause !== undefined && { cause: errorOf(cause) }),
  }
}

/** A context outlives its span where a connection was opened in it; lines of the log name no span that has ended. */
function idsOfSpan(): object {
  const span = trace.getActiveSpan()
  if (!span?.isRecording()) return {}
  const { traceId, spanId } = span.spanContext()
  return { trace_id: traceId, span_id: spanId }
}

// Metrics: their names.

const RPC_DURATION = `${METRIC_RPC_SERVER_CALL_DURATION}.seconds` as const
const RPC_LABELS = `{${ATTR_RPC_METHOD},${ATTR_RPC_STATUS_CODE},${ATTR_ERROR_TYPE}}` as const
/** Few, since each is a series of each method; a Reserve takes half a millisecond, and alerts look at 50 ms and 1 s. */
const SECONDS = [0.001, 0.005, 0.05, 0.25, 1]
const JOB_SECONDS = [0.1, 1, 10, 60]

/** By kind, each with its labels in the order of the values that are given. Observable ones are read when they are collected. */
const TABLE = {
  Counter: {
    'ipledger.events{network,type,cause}': 'Events this process committed to the log',
    [`ipledger.calls.failed${RPC_LABELS}` as const]: 'Calls answered with another status than OK',
    'ipledger.reaps{network,cause}':
      "Leases taken back, by NEVER_CONFIRMED, PROVEN_ABSENT or an operator's Reap",
    'ipledger.eras_begun{network}': 'Eras that this process began, for another log than it knew',
    'ipledger.batches{outcome}': 'Batches by outcome; all but committed did nothing or were undone in memory',
    'ipledger.reports{network,complete}': 'Reports of sources, those that are asked included',
    'ipledger.judgements{network,verdict}': 'Suspects judged by the job: keep, ask or reap',
    'ipledger.lookups{source_kind,answer}': 'Answers of sources to "does this workload exist?"',
    'ipledger.unique_violations{network}':
      'Batches that a constraint of the database refused: a defect, or a second writer',
    'ipledger.clock_jumps{direction}': "Steps of the database's clock by more than 2 s",
  },
  Histogram: {
    [`${RPC_DURATION}{${ATTR_RPC_METHOD}}` as const]: 'Calls, from their header to their answer',
    'ipledger.batch.duration.seconds': 'Committed batches, from the lock to the answer of the commit',
    'ipledger.batch.phase.duration.seconds{phase}':
      'Parts of a batch: lock (and catch up), decide, write (and commit)',
    'ipledger.batch.commands': 'Commands in a batch',
    'ipledger.image.load.duration.seconds': 'Loads of the image of a network, until it has caught up',
    'ipledger.report.duration.seconds{network}': 'Reports of sources, from the list to the last answer',
    'ipledger.job.duration.seconds{job_name,outcome}': 'Runs of jobs; outcome is done or failed',
  },
  Gauge: {
    'ipledger.job.last_success.timestamp.seconds{job_name}':
      'Last success of the job in this process, since 1970',
    'ipledger.jobs_waiting': 'Runs of jobs that are due and not begun',
    'ipledger.jobs_failing': 'Runs of jobs that failed within the last hour or so',
  },
  ObservableCounter: {
    'process.cpu.seconds': 'User and system CPU time',
  },
  ObservableGauge: {
    'ipledger.queue.commands{network}': 'Commands that wait for a batch in this process',
    'ipledger.watches': 'Watches of leases that are open in this process',
    'ipledger.image.records{network}': 'Touched addresses of the network in the memory of this process',
    'nodejs.eventloop.delay.p99.seconds': 'p99 of the delay of the event loop since the last collection',
    'process.resident_memory.bytes': 'Resident memory of the process',
    'process.start_time.seconds': 'When the process was started, since 1970',
    'ipledger.build_info{version,node_version}': '1; its labels say what runs',
    'ipledger.series.left_out{of}': 'Networks, pools or sources beyond the limit, without gauges',
    'ipledger.database.up': '1 if the gauges of the database could be read last time, a minute ago at most',
    'ipledger.pool.addresses{network,pool,state}': 'Leases of the pool by state; their sum is its size',
    'ipledger.pool.draining{network,pool}': '1 for a pool that is draining: it hands out nothing',
    'ipledger.pool.exhausted_in.seconds{network,pool}':
      'Until the pool is exhausted at the net rate of the last hour',
    'ipledger.quarantined_leases{network,reason}': 'Leases that are quarantined now',
    'ipledger.holds{network,hold}': '1 for each hold in force, during which nothing is reaped',
    'ipledger.source.lag.seconds{network,source}': 'Since the source last reported, or was registered',
    'ipledger.source.interval.seconds{network,source}': 'How often the source is to report',
    'ipledger.sources{network,status}':
      'Sources by status: registered (dry run), retired; if enabled silent, partial, cold or good',
    'ipledger.attention{network,code}': 'Leases, sources or findings that wait for a person or an answer',
    'ipledger.suspects{network,answer}': 'Questions about leases that no source lists, by their last answer',
    'ipledger.era{network}': 'Era of the log',
    'ipledger.era.begun.timestamp.seconds{network}': 'When the era began, since 1970; the first one has none',
    'ipledger.network.state{network,state}': '1 for the state the network is in, 0 for the others',
    'ipledger.verify.age.seconds{network}': 'Since a verification last ended, or the network was created',
    'ipledger.verify.differences{network}': 'Differences that verification found and has not cleared',
  },
} as const

type Kind = keyof typeof TABLE
type NameOf<K extends Kind> = K extends Kind ? Named<keyof (typeof TABLE)[K]> : never
type Named<Text> = Text extends `${infer Name}{${string}` ? Name : Text
export type ReadMetric = NameOf<'ObservableGauge' | 'ObservableCounter'>

/** Of histograms; `SECONDS` of the others. */
const BUCKETS: { readonly [name: string]: readonly number[] } = {
  'ipledger.batch.commands': [1, 4, 16, 64, 256, 1_024],
  'ipledger.image.load.duration.seconds': JOB_SECONDS,
  'ipledger.job.duration.seconds': JOB_SECONDS,
}

type Metric = { readonly kind: Kind; readonly labels: readonly string[]; readonly is: string }

export const METRICS: ReadonlyMap<string, Metric> = new Map(
  Object.entries(TABLE).flatMap(([kind, all]) =>
    Object.entries(all).map(([text, is]): [string, Metric] => {
      const [name, labels] = text.split(/[{}]/)
      return [name!, { kind: kind as Kind, labels: labels?.split(',') ?? [], is }]
    }),
  ),
)

// Metrics: what is counted.

/** Networks, pools and sources that have gauges: of each so many. */
export const MOST_SERIES = 1_000

const instruments = new Map<string, Counter | Histogram | Observable>()

function note(name: NameOf<'Counter' | 'Histogram' | 'Gauge'>, labels: readonly string[], value = 1): void {
  const instrument = instruments.get(name)
  if (instrument === undefined) return
  if ('add' in instrument) instrument.add(value, attributesOf(name, labels))
  else if ('record' in instrument) instrument.record(value, attributesOf(name, labels))
}

function attributesOf(name: string, values: readonly string[]): Attributes {
  const attributes: Record<string, string> = {}
  for (const [index, label] of METRICS.get(name)!.labels.entries())
    if (values[index] !== '') attributes[label] = values[index]!
  return attributes
}

export type Reading = readonly [metric: ReadMetric, labels: readonly string[], value: number]

/** Until the returned function is called. `read` runs when metrics are collected. */
export function addGauges(read: () => readonly Reading[] | Promise<readonly Reading[]>): () => void {
  const observe = async (result: BatchObservableResult): Promise<void> => {
    for (const [name, labels, value] of await read())
      result.observe(instruments.get(name) as Observable, value, attributesOf(name, labels))
  }
  const all = [...instruments.values()].filter((one) => 'addCallback' in one) as Observable[]
  const meter = metrics.getMeter(SCOPE)
  meter.addBatchObservableCallback(observe, all)
  return () => meter.removeBatchObservableCallback(observe, all)
}

/** Makes the instruments, when there is a meter provider; the returned function ends it. */
export function startCounting(version: string): () => void {
  const meter = metrics.getMeter(SCOPE)
  for (const [name, { kind, is }] of METRICS) {
    const explicitBucketBoundaries = [...(BUCKETS[name] ?? SECONDS)]
    const advice = kind === 'Histogram' && { advice: { explicitBucketBoundaries } }
    instruments.set(name, meter[`create${kind}`](name, { description: is, ...advice }))
  }
  const delays = monitorEventLoopDelay({ resolution: 10 })
  delays.enable()
  addGauges(() => {
    const late = delays.count === 0 ? 0 : delays.percentile(99) / 1e9
    delays.reset()
    const { user, system } = process.cpuUsage()
    return [
      ['nodejs.eventloop.delay.p99.seconds', [], late],
      ['process.resident_memory.bytes', [], process.memoryUsage.rss()],
      ['process.cpu.seconds', [], (user + system) / 1e6],
      ['process.start_time.seconds', [], performance.timeOrigin / 1_000],
      ['ipledger.build_info', [version, process.version], 1],
    ]
  })
  for (const direction of ['forward', 'back']) note('ipledger.clock_jumps', [direction], 0)
  return () => {
    delays.disable()
    instruments.clear()
  }
}

// What the rooms report.

/** A rate needs two numbers: with a zero before it, the first reap of a network shows. */
export function expectNetwork(network: string): void {
  note('ipledger.unique_violations', [network], 0)
  for (const cause of ['NEVER_CONFIRMED', 'PROVEN_ABSENT', 'Reap'])
    note('ipledger.reaps', [network, cause], 0)
}

const FAILED = {
  begin: 'not_begun',
  load: 'not_loaded',
  rolledBack: 'rolled_back',
  vetoed: 'vetoed',
  unknown: 'unknown',
} as const

type LoggedEvent = { readonly type: string; readonly cause: string; readonly details?: unknown }
type Batch = Readonly<Record<'commands' | 'events' | 'lockMs' | 'decideMs' | 'writeMs', number>>

/** What the loops of a ledger report. */
export const observeLedger = (log: Logger) => ({
  batch(_network: string, { commands, lockMs, decideMs, writeMs }: Batch) {
    // Once the callers have their answers.
    setImmediate(() => {
      note('ipledger.batches', ['committed'])
      note('ipledger.batch.commands', [], commands)
      note('ipledger.batch.duration.seconds', [], (lockMs + decideMs + writeMs) / 1_000)
      note('ipledger.batch.phase.duration.seconds', ['lock'], lockMs / 1_000)
      note('ipledger.batch.phase.duration.seconds', ['decide'], decideMs / 1_000)
      note('ipledger.batch.phase.duration.seconds', ['write'], writeMs / 1_000)
    })
  },
  loaded(network: string, { ms }: Readonly<Record<'records' | 'ms', number>>) {
    expectNetwork(network)
    note('ipledger.image.load.duration.seconds', [], ms / 1_000)
  },
  failed(network: string, what: keyof typeof FAILED, err: unknown) {
    note('ipledger.batches', [FAILED[what]])
    if (what === 'vetoed') note('ipledger.unique_violations', [network])
    log.warn({ network, what, err }, 'a batch failed')
  },
  defect(network: string, { type: command }: { readonly type: string }, err: unknown) {
    log.error({ network, command, err }, 'the database refuses what the ledger allows')
  },
  event(network: string, { type, cause, details }: LoggedEvent) {
    note('ipledger.events', [network, type, cause])
    if (type === 'lease.reaped') note('ipledger.reaps', [network, cause])
    else if (type === 'era.begun') {
      note('ipledger.eras_begun', [network])
      log.error({ network, ...(details as object) }, 'a new era begins')
    }
  },
  nodeAway(node: string, err: unknown) {
    log.warn({ node, err }, 'a node of Citus is not reached: its networks go through the coordinator')
  },
  /** The database's clock was set, by so much. */
  clockStep(byMs: number) {
    note('ipledger.clock_jumps', [byMs > 0 ? 'forward' : 'back'])
    log.error({ byMs: Math.round(byMs) }, "the database's clock was set")
  },
})

export function countReport(network: string, complete: boolean, ms: number): void {
  note('ipledger.reports', [network, complete ? 'yes' : 'no'])
  note('ipledger.report.duration.seconds', [network], ms / 1_000)
}

export function countJudgement(network: string, verdict: string): void {
  note('ipledger.judgements', [network, verdict])
}

export function countLookup(sourceKind: string, answer: string): void {
  note('ipledger.lookups', [sourceKind, answer])
}

export function recordJobs(jobs: { readonly waiting: number; readonly failing: number }): void {
  note('ipledger.jobs_waiting', [], jobs.waiting)
  note('ipledger.jobs_failing', [], jobs.failing)
}

// Spans.

/** Of the call or job that is running; null where there is none, or nothing is traced. */
export function currentTraceId(): string | null {
  const span = trace.getActiveSpan()
  return span?.isRecording() ? span.spanContext().traceId : null
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/

export type RpcSystem = 'connectrpc' | 'grpc'

/** Codes that are the server's fault, as the conventions for gRPC have it. */
const SERVER_FAULTS: ReadonlySet<string> = new Set([
  'UNKNOWN',
  'DEADLINE_EXCEEDED',
  'UNIMPLEMENTED',
  'INTERNAL',
  'UNAVAILABLE',
  'DATA_LOSS',
])

export class RpcSpan {
  /** Its events name it. Where nothing is traced it is the caller's. */
  readonly traceId: string | null
  readonly #method: string
  readonly #begun = performance.now()
  readonly #span: Span
  #hasEnded = false

  /** `method` is `package.Service/Method`; `traceparent` is the caller's, as W3C has it. A malformed one is none. */
  constructor(method: string, system: RpcSystem, traceparent: string | undefined) {
    const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent ?? '') ?? []
    const parent =
      traceId === undefined
        ? ROOT_CONTEXT
        : trace.setSpanContext(ROOT_CONTEXT, {
            traceId,
            spanId: spanId!,
            traceFlags: Number.parseInt(flags!, 16),
            isRemote: true,
          })
    const attributes = { [ATTR_RPC_SYSTEM_NAME]: system, [ATTR_RPC_METHOD]: method }
    this.#method = method
    this.#span = trace.getTracer(SCOPE).startSpan(method, { kind: SpanKind.SERVER, attributes }, parent)
    const own = this.#span.spanContext()
    this.traceId = isSpanContextValid(own) ? own.traceId : null
  }

  run<T>(work: () => T): T {
    return context.with(trace.setSpan(context.active(), this.#span), work)
  }

  /** `status` is a code of gRPC; `reason` is empty after a success. Only the first end counts. */
  end(status: string, reason: string): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    note(RPC_DURATION, [this.#method], (performance.now() - this.#begun) / 1_000)
    if (status !== 'OK') note('ipledger.calls.failed', [this.#method, status, reason])
    this.#span.setAttribute(ATTR_RPC_STATUS_CODE, status)
    if (reason !== '') this.#span.setAttribute(ATTR_ERROR_TYPE, reason)
    if (SERVER_FAULTS.has(status)) this.#span.setStatus({ code: SpanStatusCode.ERROR })
    this.#span.end()
  }
}

/** A run of a job has a trace of its own, which its events name. */
export async function onJob<T>(job: string, work: () => Promise<T>): Promise<T> {
  const begun = performance.now()
  const span = trace
    .getTracer(SCOPE)
    .startSpan(`job ${job}`, { attributes: { 'ipledger.job': job } }, ROOT_CONTEXT)
  let outcome = 'failed'
  try {
    const result = await context.with(trace.setSpan(context.active(), span), work)
    outcome = 'done'
    note('ipledger.job.last_success.timestamp.seconds', [job], Date.now() / 1_000)
    return result
  } catch (error) {
    span.setAttribute(ATTR_ERROR_TYPE, typeOf(error))
    span.setStatus({ code: SpanStatusCode.ERROR })
    throw error
  } finally {
    span.end()
    note('ipledger.job.duration.seconds', [job, outcome], (performance.now() - begun) / 1_000)
  }
}

/** A SQLSTATE, a code of the system, or the name of the error. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'error'
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name
}

/** Waits for work until it ends, fails, or has taken so long: telemetry holds nothing up. */
export async function noLongerThan(ms: number, work: Promise<void>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  await Promise.race([work.catch(() => {}), promise])
  clearTimeout(timer)
}
