/**
 * What is told of the service while it runs: the logger, the names of all spans and metrics, and the functions by which
 * the rooms say what happened. No other file spells such a name.
 *
 * - It knows @opentelemetry/api and nothing of an SDK; `telemetry-export.ts` loads one where somebody asked for it. Until
 *   then each function here returns after one look at a variable.
 * - Counters are sums kept here, and read when somebody collects: an `add` with three attributes takes the SDK 1.8 µs,
 *   a sum 0.03 (measured; a Reserve is worth some 60 µs of CPU).
 * - No metric has more than `MOST_SERIES` series: what comes later is left out, and a metric says so.
 *
 * Names are those of the semantic conventions where these have one (RPC, database, Node.js). In Prometheus a dot is an
 * underscore, the unit is a suffix, a counter ends in `_total`.
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
  reaps: {
    name: 'ipledger.reaps',
    unit: '{lease}',
    labels: ['network', 'cause'],
    is: "Leases taken back by ipledger: NEVER_CONFIRMED, PROVEN_ABSENT, or an operator's Reap",
  },
  eras: {
    name: 'ipledger.eras_begun',
    unit: '{era}',
    labels: ['network'],
    is: 'Eras that this process began because the log was not the one it knew',
  },
  batches: {
    name: 'ipledger.batches',
    unit: '{batch}',
    labels: ['outcome'],
    is: 'Batches: committed; not_begun and not_loaded did nothing; rolled_back, vetoed and unknown were undone in memory',
  },
  reports: {
    name: 'ipledger.reports',
    unit: '{report}',
    labels: ['network', 'complete'],
    is: 'Reports of sources, those that are asked included',
  },
  judgements: {
    name: 'ipledger.judgements',
    unit: '{judgement}',
    labels: ['network', 'verdict'],
    is: 'Suspects judged by the job: keep, ask or reap',
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
    is: 'Batches that a constraint of the database refused although the rules allowed them: a defect, or a second writer',
  },
  clockJumps: {
    name: 'ipledger.clock_jumps',
    unit: '{jump}',
    labels: ['direction'],
    is: "Times the database's clock was stepped forward or back by more than 2 s",
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
    is: 'Batches that were committed, from asking for the lock to the commit answered',
    buckets: SECONDS,
  },
  phase: {
    name: 'ipledger.batch.phase.duration',
    unit: 's',
    labels: ['phase'],
    is: 'Parts of a batch: lock (lock and catch up), decide, write (write and commit)',
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
    is: 'From the arrival of the oldest command of a batch until the batch began',
    buckets: SECONDS,
  },
  load: {
    name: 'ipledger.image.load.duration',
    unit: 's',
    labels: [],
    is: 'Loads of the image of a network, until it has caught up',
    buckets: JOB_SECONDS,
  },
  database: {
    name: 'ipledger.database.duration',
    unit: 's',
    labels: ['statement'],
    is: 'Trips to the database: load (lock and read), commit (of batches), read (of the API)',
    buckets: SECONDS,
  },
  report: {
    name: 'ipledger.report.duration',
    unit: 's',
    labels: ['network'],
    is: 'Reports of sources, from the list at hand to the answer of their last slice',
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
  imageRecords: {
    name: 'ipledger.image.records',
    unit: '{record}',
    labels: ['network'],
    is: 'Touched addresses of the network in the memory of this process',
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
    labels: ['network', 'hold'],
    is: '1 for each hold in force: nothing is reaped in the network until it ends or an operator resumes it',
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
  attention: {
    name: 'ipledger.attention',
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
  era: { name: 'ipledger.era', unit: '', labels: ['network'], is: 'Era of the log' },
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
  verifyAge: {
    name: 'ipledger.verify.age',
    unit: 's',
    labels: ['network'],
    is: 'Since a verification last came to its end; of a network that never was, since it was created',
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
const instruments = new Map<HistogramKey, Histogram>()

type Series = { readonly labels: readonly string[]; value: number }
type Tally = Map<string, Series>
const counts = new Map<CounterKey, Tally>()
const kept = new Map<GaugeKey, Tally>()
const leftOut = new Set<string>()

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
  instruments.get(metric)?.record(value, attributesOf(HISTOGRAMS[metric], labels))
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

/** From now on there is a meter provider to count for, until what is returned is called. */
export function startCounting(): () => void {
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
  for (const direction of ['forward', 'back']) add('clockJumps', [direction], 0)
  return () => {
    counting = false
    delays.end()
    for (const all of [instruments, counts, kept, leftOut]) all.clear()
  }
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

/** A rate is of two numbers: the first reap of a network is one because there was a zero before. */
const REAP_CAUSES = ['NEVER_CONFIRMED', 'PROVEN_ABSENT', 'Reap']

/** A network that is there, so that what seldom happens in it begins at nought; as long as there is room. */
export function expectNetwork(network: string): void {
  if (!counting) return
  add('uniqueViolations', [network], 0)
  if (tallyOf(counts, 'reaps').size > MOST_SERIES / 2) return
  for (const cause of REAP_CAUSES) add('reaps', [network, cause], 0)
}

const FAILED = {
  begin: 'not_begun',
  load: 'not_loaded',
  rolledBack: 'rolled_back',
  vetoed: 'vetoed',
  unknown: 'unknown',
} as const

/** What the loops of a ledger tell (`ledger/loop.ts`). */
export const ledgerObserver = {
  batch(
    network: string,
    done: {
      readonly commands: number
      readonly lockMs: number
      readonly decideMs: number
      readonly writeMs: number
      /** Of the command that waited longest. */
      readonly waitedMs?: number
    },
  ): void {
    if (!counting) return
    expectNetwork(network)
    const { commands, lockMs, decideMs, writeMs, waitedMs } = done
    add('batches', ['committed'])
    record('batchCommands', [], commands)
    record('batch', [], (lockMs + decideMs + writeMs) / 1_000)
    record('phase', ['lock'], lockMs / 1_000)
    record('phase', ['decide'], decideMs / 1_000)
    record('phase', ['write'], writeMs / 1_000)
    record('database', ['load'], lockMs / 1_000)
    record('database', ['commit'], writeMs / 1_000)
    if (waitedMs !== undefined) record('queueWait', [], waitedMs / 1_000)
  },
  loaded(_network: string, done: { readonly ms: number }): void {
    if (counting) record('load', [], done.ms / 1_000)
  },
  eraBegun(network: string): void {
    if (counting) add('eras', [network])
  },
  failed(network: string, what: keyof typeof FAILED): void {
    if (!counting) return
    add('batches', [FAILED[what]])
    if (what === 'vetoed') add('uniqueViolations', [network])
  },
  event(network: string, { type, cause }: LedgerEvent): void {
    if (!counting) return
    add('events', [network, type, cause])
    if (type === 'lease.reaped') add('reaps', [network, cause])
  },
} as const

/** The database's clock was set: by so much more, or less, than time passed. */
export function countClockStep(byMs: number): void {
  if (counting) add('clockJumps', [byMs > 0 ? 'forward' : 'back'])
}

export function countReport(network: string, complete: boolean, ms: number): void {
  if (!counting) return
  add('reports', [network, complete ? 'yes' : 'no'])
  record('report', [network], ms / 1_000)
}

export function countJudgement(network: string, verdict: string): void {
  if (counting) add('judgements', [network, verdict])
}

export function countLookup(sourceKind: string, answer: string): void {
  if (counting) add('lookups', [sourceKind, answer])
}

export function keepJobs(jobs: { readonly waiting: number; readonly failing: number }): void {
  if (!counting) return
  keep('jobsWaiting', [], jobs.waiting)
  keep('jobsFailing', [], jobs.failing)
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

/** A read of the API, by one statement. */
export async function onRead<T>(work: () => Promise<T>): Promise<T> {
  if (!counting && !tracing) return work()
  const begun = performance.now()
  const span = currentSpan()?.isRecording() === true ? startReadSpan() : undefined
  try {
    const result = await work()
    end(span, undefined)
    return result
  } catch (error) {
    end(span, typeOf(error))
    throw error
  } finally {
    if (counting) record('database', ['read'], (performance.now() - begun) / 1_000)
  }
}

function startReadSpan(): Span {
  return tracer.startSpan('postgresql read', {
    kind: SpanKind.CLIENT,
    attributes: {
      [ATTR_DB_SYSTEM_NAME]: DB_SYSTEM_NAME_VALUE_POSTGRESQL,
      [ATTR_DB_OPERATION_NAME]: 'read',
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
