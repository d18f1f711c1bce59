/**
 * What is told of the service while it runs: the logger, the names of all spans and metrics, and the functions by which
 * the rooms say what happened. No other file spells such a name.
 *
 * - It knows @opentelemetry/api and nothing of an SDK; `telemetry-export.ts` loads one where somebody asked for it. Until
 *   then each function here returns after one look at a variable.
 * - Counters are sums kept here, and read when somebody collects: an `add` with three attributes takes the SDK 1.8 µs,
 *   a sum 0.03 (measured; a Reserve is worth some 100 µs of CPU).
 * - No metric has more than `MOST_SERIES` series: what comes later is left out, and a metric says so.
 * - The worker's thread has no metrics of its own: what it counts is handed to its process each second and added there,
 *   so that one page has one truth and a thread that is started again resets nothing.
 *
 * Names are those of the semantic conventions where these have one (RPC, database, Node.js); attributes of our own metrics
 * are DESIGN's words. In Prometheus a dot is an underscore, the unit is a suffix, a counter ends in `_total`.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import {
  type Attributes,
  context,
  createTraceState,
  type Histogram,
  isSpanContextValid,
  metrics,
  type Observable,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api'
import {
  ATTR_DB_OPERATION_BATCH_SIZE,
  ATTR_DB_OPERATION_NAME,
  ATTR_DB_SYSTEM_NAME,
  ATTR_ERROR_TYPE,
  ATTR_RPC_METHOD,
  ATTR_RPC_STATUS_CODE,
  ATTR_RPC_SYSTEM_NAME,
  DB_SYSTEM_NAME_VALUE_POSTGRESQL,
  METRIC_RPC_SERVER_CALL_DURATION,
} from '@opentelemetry/semantic-conventions'
import { pino } from 'pino'
import type { LogLevel } from './config.ts'
import type { LedgerEvent } from './core/event.ts'
import type { Reason } from './core/refusal.ts'

export const SCOPE = 'ipledger'
/** Of the page that Prometheus reads. */
export const PAGE_TYPE = 'text/plain; version=0.0.4; charset=utf-8'
/** Of every process, unless OTEL_SERVICE_NAME says otherwise. */
export const SERVICE_NAME = 'ipledger'

// The log.

export type Logger = pino.Logger

/** JSON lines on stderr, so that stdout carries only what a command was asked for; with the ids of the span they belong to. */
export function createLogger(level: LogLevel): Logger {
  return pino(
    { name: 'ipledger', level, base: { pid: process.pid }, mixin: idsOfSpan },
    pino.destination({ fd: 2, sync: true }),
  )
}

function idsOfSpan(): object {
  const span = currentSpan()?.spanContext()
  return span === undefined ? {} : { trace_id: span.traceId, span_id: span.spanId }
}

// Metrics: their names.

type Described = {
  readonly name: string
  readonly unit: string
  /** Names of the attributes, in the order in which values are given. */
  readonly labels: readonly string[]
  readonly is: string
}
type Kinds = Readonly<Record<string, Described>>

const COUNTERS = {
  events: {
    name: 'ipledger.events',
    unit: '{event}',
    labels: ['network', 'type', 'cause'],
    is: 'Events this process committed to the log',
  },
  commands: {
    name: 'ipledger.commands',
    unit: '{command}',
    labels: ['command', 'outcome', 'reason'],
    is: 'Commands answered by the ledger: done, refused (by the rules) or failed (queue, database, outcome unknown)',
  },
  reaps: {
    name: 'ipledger.reaps',
    unit: '{lease}',
    labels: ['network', 'cause'],
    is: 'Leases taken back by ipledger',
  },
  quarantines: {
    name: 'ipledger.quarantines',
    unit: '{lease}',
    labels: ['network', 'reason'],
    is: 'Leases quarantined, or quarantined anew',
  },
  batches: {
    name: 'ipledger.batches',
    unit: '{batch}',
    labels: ['outcome'],
    is: 'Batches by how far they got: committed, unsent, rolled_back, unknown, defect',
  },
  reports: {
    name: 'ipledger.reports',
    unit: '{report}',
    labels: ['network', 'complete'],
    is: 'Reports of sources, those that are asked included',
  },
  lookups: {
    name: 'ipledger.lookups',
    unit: '{lookup}',
    labels: ['source_kind', 'answer'],
    is: 'Answers of sources to "does this workload exist?"',
  },
  uniqueViolations: {
    name: 'ipledger.unique_violations',
    unit: '{violation}',
    labels: ['network'],
    is: 'Rows that a unique constraint of the database refused although the books allowed them: a defect, or a second writer',
  },
  clockJumps: {
    name: 'ipledger.clock_jumps',
    unit: '{jump}',
    labels: ['network'],
    is: "Times the database's clock moved otherwise than time between two batches",
  },
} as const satisfies Kinds

/** Seconds. The lowest are ours: a Reserve takes half a millisecond. */
const SECONDS = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
const JOB_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300]
const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024]

const HISTOGRAMS = {
  rpc: {
    name: METRIC_RPC_SERVER_CALL_DURATION,
    unit: 's',
    labels: [ATTR_RPC_SYSTEM_NAME, ATTR_RPC_METHOD, ATTR_RPC_STATUS_CODE, ATTR_ERROR_TYPE],
    is: 'Calls, from their header to their answer; error_type is the reason',
    buckets: SECONDS,
  },
  batch: {
    name: 'ipledger.batch.duration',
    unit: 's',
    labels: [],
    is: 'Batches, from the connection asked for to the commit answered',
    buckets: SECONDS,
  },
  batchCommands: {
    name: 'ipledger.batch.commands',
    unit: '{command}',
    labels: [],
    is: 'Commands in a batch',
    buckets: SIZES,
  },
  queueWait: {
    name: 'ipledger.queue.wait',
    unit: 's',
    labels: [],
    is: 'Commands, from their arrival until a batch took them',
    buckets: SECONDS,
  },
  database: {
    name: 'ipledger.database.duration',
    unit: 's',
    labels: ['statement'],
    is: 'Trips to the database: load (lock and read), load_more, commit (of batches), read (of the API)',
    buckets: SECONDS,
  },
  job: {
    name: 'ipledger.job.duration',
    unit: 's',
    labels: ['job_name', 'outcome'],
    is: 'Runs of jobs; outcome is done or failed',
    buckets: JOB_SECONDS,
  },
} as const satisfies Readonly<Record<string, Described & { readonly buckets: readonly number[] }>>

const GAUGES = {
  queue: {
    name: 'ipledger.queue.commands',
    unit: '{command}',
    labels: ['network'],
    is: 'Commands that wait for a batch in this process',
  },
  jobSuccess: {
    name: 'ipledger.job.last_success.timestamp',
    unit: 's',
    labels: ['job_name'],
    is: 'When a run of the job last ended well in this process, since 1970',
  },
  jobsWaiting: {
    name: 'ipledger.jobs_waiting',
    unit: '{job}',
    labels: [],
    is: 'Runs of jobs that are due and not begun',
  },
  jobsFailing: {
    name: 'ipledger.jobs_failing',
    unit: '{job}',
    labels: [],
    is: 'Runs of jobs that failed within the last hour or so, as graphile-worker keeps them',
  },
  eventLoop: {
    name: 'nodejs.eventloop.delay.p99',
    unit: 's',
    labels: [],
    is: "How late the process's event loop was, 99 % of the time, in the last ten seconds or more",
  },
  memory: { name: 'process.resident_memory', unit: 'By', labels: [], is: 'Resident memory of the process' },
  leftOut: {
    name: 'ipledger.series.left_out',
    unit: '{series}',
    labels: ['of'],
    is: 'Networks, pools or sources that gauges are without, and 1 for a metric that is without some series: there are more than it may have',
  },
  databaseUp: {
    name: 'ipledger.database.up',
    unit: '',
    labels: [],
    is: '1 when the gauges that come from the database could be read the last time, at most a minute ago',
  },
  poolAddresses: {
    name: 'ipledger.pool.addresses',
    unit: '{lease}',
    labels: ['network', 'pool', 'state'],
    is: 'Leases of the pool by state: free, cooling, reserved, active, quarantined, excluded; their sum is its size',
  },
  poolSize: {
    name: 'ipledger.pool.size',
    unit: '{lease}',
    labels: ['network', 'pool'],
    is: 'Leases the pool has room for, excluded ones included',
  },
  poolDraining: {
    name: 'ipledger.pool.draining',
    unit: '',
    labels: ['network', 'pool'],
    is: '1 for a pool that is draining: it hands out nothing, however much is free',
  },
  poolExhausted: {
    name: 'ipledger.pool.exhausted_in',
    unit: 's',
    labels: ['network', 'pool'],
    is: 'Until the pool is exhausted at the net rate of the last hour; absent where it is not falling',
  },
  quarantined: {
    name: 'ipledger.quarantined_leases',
    unit: '{lease}',
    labels: ['network', 'reason'],
    is: 'Leases that are quarantined now',
  },
  conflicts: {
    name: 'ipledger.conflicts',
    unit: '{lease}',
    labels: ['network'],
    is: 'Addresses that two workloads are seen to use',
  },
  holds: {
    name: 'ipledger.holds',
    unit: '{hold}',
    labels: ['network'],
    is: 'Sources, or the network itself, for which nothing is reaped until an operator resumes it',
  },
  sourceLag: {
    name: 'ipledger.source.lag',
    unit: 's',
    labels: ['network', 'source'],
    is: 'Since the source last reported; of one that never did, since it was registered',
  },
  sourceInterval: {
    name: 'ipledger.source.interval',
    unit: 's',
    labels: ['network', 'source'],
    is: 'How often the source is to report',
  },
  sources: {
    name: 'ipledger.sources',
    unit: '{source}',
    labels: ['network', 'state', 'standing'],
    is: 'Sources by state and standing: silent, partial, cold (what it does not list proves nothing yet), good, retired',
  },
  stuck: {
    name: 'ipledger.stuck',
    unit: '{item}',
    labels: ['network', 'code'],
    is: 'What waits for a person or an answer',
  },
  suspects: {
    name: 'ipledger.suspects',
    unit: '{lookup}',
    labels: ['network', 'answer'],
    is: 'Questions about leases that nobody lists, by their last answer; waiting where none has come',
  },
  head: { name: 'ipledger.head', unit: '', labels: ['network'], is: 'Number of the last event' },
  era: { name: 'ipledger.era', unit: '', labels: ['network'], is: 'Era of the ledger' },
  eraBegun: {
    name: 'ipledger.era.begun.timestamp',
    unit: 's',
    labels: ['network'],
    is: 'When the era began, since 1970; absent in the first one',
  },
  networkState: {
    name: 'ipledger.network.state',
    unit: '',
    labels: ['network', 'state'],
    is: '1 for the state the network is in, 0 for the others',
  },
  oldestTransaction: {
    name: 'ipledger.oldest_transaction',
    unit: 's',
    labels: [],
    is: 'Age of the oldest open transaction of the database; 0 when there is none',
  },
  tenureLagEvents: {
    name: 'ipledger.tenure.lag.events',
    unit: '{event}',
    labels: ['network'],
    is: 'Events that the projection of tenures is behind',
  },
  tenureLag: {
    name: 'ipledger.tenure.lag',
    unit: 's',
    labels: ['network'],
    is: 'Age of the first event that the projection of tenures is without; 0 when it has all',
  },
  tenureOverlaps: {
    name: 'ipledger.tenure.overlaps',
    unit: '{overlap}',
    labels: ['network'],
    is: 'Addresses that two owners held at once',
  },
  sealLagEvents: {
    name: 'ipledger.seal.lag.events',
    unit: '{event}',
    labels: ['network'],
    is: 'Events that are not sealed yet',
  },
  verifyAge: {
    name: 'ipledger.verify.age',
    unit: 's',
    labels: ['network'],
    is: 'Since a verification last found everything in order',
  },
  verifyDifferences: {
    name: 'ipledger.verify.differences',
    unit: '{difference}',
    labels: ['network'],
    is: 'Differences that verification has found and not missed since',
  },
} as const satisfies Kinds

/** Sums that the operating system keeps. */
const CPU: Described = { name: 'process.cpu', unit: 's', labels: [], is: 'User and system CPU time' }

type CounterKey = keyof typeof COUNTERS
type HistogramKey = keyof typeof HISTOGRAMS
export type GaugeKey = keyof typeof GAUGES

/** For the test that reads them all from a page. */
export const METRICS: readonly (Described & { readonly kind: 'counter' | 'histogram' | 'gauge' })[] = [
  ...[...Object.values(COUNTERS), CPU].map((one) => ({ ...one, kind: 'counter' as const })),
  ...Object.values(HISTOGRAMS).map((one) => ({ ...one, kind: 'histogram' as const })),
  ...Object.values(GAUGES).map((one) => ({ ...one, kind: 'gauge' as const })),
]

// Metrics: what is counted.

/** Of one metric. No measurement: a page of ten such metrics has a megabyte. */
export const MOST_SERIES = 1_000

let counting = false
/** In the worker's thread: values to be handed over. */
let handed: Measurements | null = null
const instruments = new Map<HistogramKey, Histogram>()

type Series = { readonly labels: readonly string[]; value: number }
type Tally = Map<string, Series>
const counts = new Map<CounterKey, Tally>()
const kept = new Map<GaugeKey, Tally>()
const leftOut = new Set<string>()

/** Counted in a worker's thread, on its way to the process. */
export type Measurements = {
  readonly counts: [metric: CounterKey, labels: readonly string[], by: number][]
  readonly values: [metric: HistogramKey, labels: readonly string[], value: number][]
  readonly gauges: [metric: GaugeKey, labels: readonly string[], value: number][]
}

/** Values that one second of a thread may hand over: batches and jobs, some thousand at most. */
const MOST_HANDED = 50_000

function seriesOf(tally: Tally, metric: string, labels: readonly string[]): Series | undefined {
  const id = labels.join('\0')
  const known = tally.get(id)
  if (known !== undefined) return known
  if (tally.size >= MOST_SERIES) {
    leftOut.add(metric)
    return undefined
  }
  const fresh = { labels, value: 0 }
  tally.set(id, fresh)
  return fresh
}

function tallyOf<K>(tallies: Map<K, Tally>, metric: K): Tally {
  let tally = tallies.get(metric)
  if (tally === undefined) {
    tally = new Map()
    tallies.set(metric, tally)
  }
  return tally
}

function add(metric: CounterKey, labels: readonly string[], by = 1): void {
  const series = seriesOf(tallyOf(counts, metric), COUNTERS[metric].name, labels)
  if (series !== undefined) series.value += by
}

function record(metric: HistogramKey, labels: readonly string[], value: number): void {
  if (handed === null) instruments.get(metric)?.record(value, attributesOf(HISTOGRAMS[metric], labels))
  else if (handed.values.length < MOST_HANDED) handed.values.push([metric, labels, value])
}

function keep(metric: GaugeKey, labels: readonly string[], value: number): void {
  const series = seriesOf(tallyOf(kept, metric), GAUGES[metric].name, labels)
  if (series !== undefined) series.value = value
}

function attributesOf({ labels: names }: Described, values: readonly string[]): Attributes {
  const attributes: Record<string, string> = {}
  for (const [index, name] of names.entries()) {
    const value = values[index]!
    // A call that went well has no type of error: an attribute that is empty says nothing.
    if (value !== '' || name !== ATTR_ERROR_TYPE) attributes[name] = value
  }
  return attributes
}

/** What is read when somebody collects. */
export type Reading = readonly [metric: GaugeKey, labels: readonly string[], value: number]
type Reader = () => readonly Reading[] | Promise<readonly Reading[]>
const readers = new Set<Reader>()

/** Until what is returned is called. Asked only when somebody collects. */
export function addGauges(reader: Reader): () => void {
  readers.add(reader)
  return () => readers.delete(reader)
}

export type EndOfCounting = () => void

/** From now on there is a meter provider to count for. */
export function startCounting(): EndOfCounting {
  counting = true
  const meter = metrics.getMeter(SCOPE)
  for (const [key, { name, unit, is, buckets }] of Object.entries(HISTOGRAMS)) {
    const advice = { explicitBucketBoundaries: [...buckets] }
    instruments.set(key as HistogramKey, meter.createHistogram(name, { unit, description: is, advice }))
  }
  for (const [key, described] of Object.entries(COUNTERS)) {
    const { name, unit, is } = described
    meter.createObservableCounter(name, { unit, description: is }).addCallback((result) => {
      for (const { labels, value } of counts.get(key as CounterKey)?.values() ?? [])
        result.observe(value, attributesOf(described, labels))
    })
  }
  meter.createObservableCounter(CPU.name, { unit: CPU.unit, description: CPU.is }).addCallback((result) => {
    const { user, system } = process.cpuUsage()
    result.observe((user + system) / 1e6)
  })
  const gauges = new Map<GaugeKey, Observable>(
    Object.entries(GAUGES).map(([key, { name, unit, is }]) => [
      key as GaugeKey,
      meter.createObservableGauge(name, { unit, description: is }),
    ]),
  )
  const delays = watchEventLoop()
  meter.addBatchObservableCallback(
    async (result) => {
      const found = await Promise.all([...readers].map(async (read) => read()))
      const readings = found.flat()
      readings.push(['memory', [], process.memoryUsage.rss()], ['eventLoop', [], delays.p99()])
      for (const [key, tally] of kept)
        for (const { labels, value } of tally.values()) readings.push([key, labels, value])
      for (const metric of leftOut) readings.push(['leftOut', [metric], 1])
      for (const [key, labels, value] of readings)
        result.observe(gauges.get(key)!, value, attributesOf(GAUGES[key], labels))
    },
    [...gauges.values()],
  )
  return () => {
    counting = false
    delays.end()
    for (const all of [instruments, counts, kept, leftOut]) all.clear()
  }
}

/** In a worker's thread: what is counted waits for `takeMeasurements`. */
export function startHandingOver(): void {
  counting = true
  handed = { counts: [], values: [], gauges: [] }
}

/** What was counted since the last time; null: nothing. */
export function takeMeasurements(): Measurements | null {
  if (handed === null) return null
  const taken = handed
  handed = { counts: [], values: [], gauges: [] }
  for (const [metric, tally] of counts)
    for (const { labels, value } of tally.values()) taken.counts.push([metric, labels, value])
  for (const [metric, tally] of kept)
    for (const { labels, value } of tally.values()) taken.gauges.push([metric, labels, value])
  counts.clear()
  kept.clear()
  return taken.counts.length + taken.values.length + taken.gauges.length === 0 ? null : taken
}

export function addMeasurements(measured: Measurements): void {
  if (!counting) return
  for (const [metric, labels, by] of measured.counts) add(metric, labels, by)
  for (const [metric, labels, value] of measured.values) record(metric, labels, value)
  for (const [metric, labels, value] of measured.gauges) keep(metric, labels, value)
}

/** Whoever asks within ten seconds hears the same, so that two who collect do not halve each other's window. */
const WINDOW_MS = 10_000

function watchEventLoop(): { readonly p99: () => number; readonly end: () => void } {
  const delays = monitorEventLoopDelay({ resolution: 10 })
  delays.enable()
  let said = 0
  let saidAt = Number.NEGATIVE_INFINITY
  return {
    p99() {
      if (performance.now() - saidAt >= WINDOW_MS) {
        said = delays.count === 0 ? 0 : delays.percentile(99) / 1e9
        saidAt = performance.now()
        delays.reset()
      }
      return said
    },
    end: () => delays.disable(),
  }
}

// What the rooms say.

/** Not the rules' word: whoever asks again may well be served. */
const FAILURES: ReadonlySet<string> = new Set<Reason>([
  'OVERLOADED',
  'DATABASE_UNAVAILABLE',
  'OUTCOME_UNKNOWN',
])

/** `reason` is null where it was done. */
export function countCommand(command: string, reason: Reason | null): void {
  if (!counting) return
  if (reason === null) add('commands', [command, 'done', ''])
  else add('commands', [command, FAILURES.has(reason) ? 'failed' : 'refused', reason])
}

/** A rate is of two numbers: the first reap of a network is one because there was a zero before. */
const REAP_CAUSES = ['NEVER_CONFIRMED', 'PROVEN_ABSENT', 'PREVIOUS_BOOT', 'FENCED', 'Reap']

/** A network that is there, so that what seldom happens in it begins at nought; as long as there is room. */
export function expectNetwork(network: string): void {
  if (!counting) return
  add('clockJumps', [network], 0)
  add('uniqueViolations', [network], 0)
  if (tallyOf(counts, 'reaps').size > MOST_SERIES / 2) return
  for (const cause of REAP_CAUSES) add('reaps', [network, cause], 0)
}

function countEvents(events: readonly LedgerEvent[]): void {
  if (events.length > 0) expectNetwork(events[0]!.network)
  for (const event of events) {
    const { network, type, cause } = event
    add('events', [network, type, cause])
    if (type === 'lease.reaped') add('reaps', [network, cause])
    if (type === 'lease.quarantined' && 'lease' in event && event.lease.quarantine !== null) {
      add('quarantines', [network, event.lease.quarantine.reason])
    }
  }
}

export function countReport(network: string, complete: boolean): void {
  if (counting) add('reports', [network, complete ? 'yes' : 'no'])
}

export function countLookup(sourceKind: string, answer: string): void {
  if (counting) add('lookups', [sourceKind, answer])
}

export function countUniqueViolation(network: string): void {
  if (counting) add('uniqueViolations', [network])
}

export function countClockJump(network: string): void {
  if (counting) add('clockJumps', [network])
}

export function keepJobs(jobs: { readonly waiting: number; readonly failing: number }): void {
  if (!counting) return
  keep('jobsWaiting', [], jobs.waiting)
  keep('jobsFailing', [], jobs.failing)
}

/** False: nobody would hear of it. */
export function isCounting(): boolean {
  return counting
}

// Spans.

let tracing = false
/** A context outlives its span where a connection was opened in it; what is over owns no line of the log. */
const over = new WeakSet<Span>()

/** From now on there is a tracer provider, and a context manager that carries the current span through awaits. */
export function startTracing(): () => void {
  tracing = true
  return () => {
    tracing = false
  }
}

const tracer = trace.getTracer(SCOPE)

function currentSpan(): Span | undefined {
  if (!tracing) return undefined
  const span = trace.getActiveSpan()
  return span === undefined || over.has(span) ? undefined : span
}

/** Of the call or job that is running; null where there is none, or nothing is traced. */
export function currentTraceId(): string | null {
  return currentSpan()?.spanContext().traceId ?? null
}

/** Work that belongs to no call, though one was the first to want it. */
export function apart<T>(work: () => T): T {
  return tracing ? context.with(ROOT_CONTEXT, work) : work()
}

function within<T>(span: Span | undefined, work: () => T): T {
  return span === undefined ? work() : context.with(trace.setSpan(context.active(), span), work)
}

function end(span: Span | undefined, errorType: string | undefined): void {
  if (span === undefined) return
  if (errorType !== undefined) {
    span.setAttribute(ATTR_ERROR_TYPE, errorType)
    span.setStatus({ code: SpanStatusCode.ERROR })
  }
  span.end()
  over.add(span)
}

/** A SQLSTATE, a code of the system, or the name of the error. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'error'
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name
}

/** The trace a caller's W3C `traceparent` belongs to; what is malformed is none. */
export function traceIdOf(traceparent: string | undefined): string | null {
  return parentOf(traceparent, undefined)?.traceId ?? null
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/
const LONGEST_TRACESTATE = 512

function parentOf(traceparent: string | undefined, tracestate: string | undefined): SpanContext | undefined {
  const found = traceparent === undefined ? null : TRACEPARENT.exec(traceparent)
  if (found === null) return undefined
  const parent = {
    traceId: found[1]!,
    spanId: found[2]!,
    traceFlags: Number.parseInt(found[3]!, 16),
    isRemote: true,
    ...(tracestate === undefined || tracestate.length > LONGEST_TRACESTATE
      ? {}
      : { traceState: createTraceState(tracestate) }),
  }
  return isSpanContextValid(parent) ? parent : undefined
}

/** A call: its span, whose trace its events name, and its duration. */
export type RpcObserved = {
  readonly traceId: string | null
  run<T>(work: () => T): T
  /** `status` is the code of gRPC, in its spelling; `reason` empty where it went well. The first one counts. */
  end(status: string, reason: string): void
}

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

/** `method` is `package.Service/Method`. Null: nobody wants to know. */
export function beginRpc(
  method: string,
  system: RpcSystem,
  parent: { readonly traceparent: string | undefined; readonly tracestate: string | undefined },
): RpcObserved | null {
  if (!counting && !tracing) return null
  const begun = performance.now()
  const remote = parentOf(parent.traceparent, parent.tracestate)
  const span = tracing ? startRpcSpan(method, system, remote) : undefined
  let ended = false
  return {
    traceId: span?.spanContext().traceId ?? remote?.traceId ?? null,
    run: (work) => within(span, work),
    end(status, reason) {
      if (ended) return
      ended = true
      if (counting) record('rpc', [system, method, status, reason], (performance.now() - begun) / 1_000)
      if (span === undefined) return
      span.setAttribute(ATTR_RPC_STATUS_CODE, status)
      if (reason !== '') span.setAttribute(ATTR_ERROR_TYPE, reason)
      end(span, SERVER_FAULTS.has(status) ? reason : undefined)
    },
  }
}

function startRpcSpan(method: string, system: RpcSystem, remote: SpanContext | undefined): Span {
  const attributes = { [ATTR_RPC_SYSTEM_NAME]: system, [ATTR_RPC_METHOD]: method }
  const parent = remote === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, remote)
  return tracer.startSpan(method, { kind: SpanKind.SERVER, attributes }, parent)
}

/** Where a command comes from, and since when it waits. */
export type Origin = { readonly at: number; readonly span: Span | undefined; waits: boolean }

/** Null: nobody wants to know. */
export function originOfCommand(): Origin | null {
  return counting || tracing ? { at: performance.now(), span: currentSpan(), waits: true } : null
}

const TRIPS = { load: 'load', loadMore: 'load_more', commit: 'commit', read: 'read' } as const
export type Trip = keyof typeof TRIPS

/** A batch: a span of its own trace, linked to those of its commands and they to it, and what it did. */
export type BatchObserved = {
  run<T>(work: () => Promise<T>): Promise<T>
  committed(events: readonly LedgerEvent[]): void
  end(outcome: BatchOutcome, error: unknown): void
}

const OUTCOMES = {
  committed: 'committed',
  unsent: 'unsent',
  rolledBack: 'rolled_back',
  unknown: 'unknown',
  defect: 'defect',
} as const
type BatchOutcome = keyof typeof OUTCOMES

/** Null: nobody wants to know. A batch is traced if any of its commands is. */
export function beginBatch(network: string, origins: readonly (Origin | null)[]): BatchObserved | null {
  if (!counting && !tracing) return null
  const begun = performance.now()
  if (counting) {
    record('batchCommands', [], origins.length)
    for (const origin of origins) {
      if (origin?.waits !== true) continue
      origin.waits = false
      record('queueWait', [], (begun - origin.at) / 1_000)
    }
  }
  const span = tracing ? startBatchSpan(network, origins) : undefined
  return {
    run: (work) => within(span, work),
    committed(events) {
      if (counting) countEvents(events)
      if (span === undefined || events.length === 0) return
      span.setAttributes({ 'ipledger.first_seq': events[0]!.seq, 'ipledger.last_seq': events.at(-1)!.seq })
    },
    end(outcome, error) {
      if (counting) {
        record('batch', [], (performance.now() - begun) / 1_000)
        add('batches', [OUTCOMES[outcome]])
      }
      span?.setAttribute('ipledger.outcome', OUTCOMES[outcome])
      end(span, outcome === 'committed' ? undefined : typeOf(error))
    },
  }
}

/** For the sampler: a span with a link to a sampled one is sampled. */
function startBatchSpan(network: string, origins: readonly (Origin | null)[]): Span | undefined {
  const spans = origins.flatMap((origin) => (origin?.span?.isRecording() === true ? [origin.span] : []))
  if (spans.length === 0) return undefined
  const span = tracer.startSpan(
    'ipledger.batch',
    {
      attributes: { 'ipledger.network': network, 'ipledger.commands': origins.length },
      links: spans.map((one) => ({ context: one.spanContext() })),
    },
    ROOT_CONTEXT,
  )
  for (const one of spans) one.addLink({ context: span.spanContext() })
  return span
}

/** One trip to the database, with so many statements. */
export async function onTrip<T>(trip: Trip, statements: number, work: () => Promise<T>): Promise<T> {
  if (!counting && !tracing) return work()
  const begun = performance.now()
  const name = TRIPS[trip]
  const span = currentSpan()?.isRecording() === true ? startTripSpan(name, statements) : undefined
  try {
    const result = await work()
    end(span, undefined)
    return result
  } catch (error) {
    end(span, typeOf(error))
    throw error
  } finally {
    if (counting) record('database', [name], (performance.now() - begun) / 1_000)
  }
}

function startTripSpan(name: string, statements: number): Span {
  return tracer.startSpan(`postgresql ${name}`, {
    kind: SpanKind.CLIENT,
    attributes: {
      [ATTR_DB_SYSTEM_NAME]: DB_SYSTEM_NAME_VALUE_POSTGRESQL,
      [ATTR_DB_OPERATION_NAME]: name,
      // The convention: only of more than one.
      ...(statements > 1 ? { [ATTR_DB_OPERATION_BATCH_SIZE]: statements } : {}),
    },
  })
}

/** A run of a job: a trace of its own, which the events it causes name. */
export async function onJob<T>(job: string, work: () => Promise<T>): Promise<T> {
  if (!counting && !tracing) return work()
  const begun = performance.now()
  const span = tracing
    ? tracer.startSpan(`job ${job}`, { attributes: { 'ipledger.job': job } }, ROOT_CONTEXT)
    : undefined
  const finish = (outcome: 'done' | 'failed', error?: unknown) => {
    if (counting) {
      record('job', [job, outcome], (performance.now() - begun) / 1_000)
      if (outcome === 'done') keep('jobSuccess', [job], Date.now() / 1_000)
    }
    end(span, outcome === 'failed' ? typeOf(error) : undefined)
  }
  try {
    const result = await within(span, work)
    finish('done')
    return result
  } catch (error) {
    finish('failed', error)
    throw error
  }
}

/** Waits for it and no longer, whatever becomes of it: what tells of the work never holds it up. */
export async function noLongerThan(ms: number, work: Promise<void>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, Math.max(0, ms))
  await Promise.race([work.catch(() => {}), promise])
  clearTimeout(timer)
}
