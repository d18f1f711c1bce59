/**
 * Exports spans and metrics: a page that Prometheus reads, and OTLP over HTTP in protobuf. Only this file knows the SDK, and
 * it is imported only if the configuration asks for an export.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { context, DiagLogLevel, diag, metrics, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto'
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics'
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import {
  ATTR_SERVICE_INSTANCE_ID,
  ATTR_SERVICE_NAME,
  ATTR_SERVICE_VERSION,
} from '@opentelemetry/semantic-conventions'
import manifest from '../package.json' with { type: 'json' }
import type { TelemetryConfig } from './config.ts'
import { type Logger, noLongerThan, SERVICE_NAME, startCounting } from './telemetry.ts'

/** Answers a request of Prometheus; null: there is no page. */
type Page = ((request: IncomingMessage, response: ServerResponse) => void) | null

/** Of one metric; the SDK folds more of them into one, `otel_metric_overflow`. */
export const SERIES_OF_A_METRIC = 10_000
/** A collector that is away must not hold up the end of the service. */
const FLUSH_WITHIN_MS = 2_000
/** Spans that wait to be sent; more are dropped. */
const MOST_SPANS = 8_192

/** Closed with `open`, it sends what is left, for a moment. */
export function startTelemetry(config: TelemetryConfig, log: Logger, open: AsyncDisposableStack): Page {
  logFailures(log)
  open.defer(() => diag.disable())
  if (config.traces) startTraces(config, open)
  return config.page || config.pushed ? startMetrics(config, open) : null
}

function startTraces(config: TelemetryConfig, open: AsyncDisposableStack): void {
  const exporter = new OTLPTraceExporter()
  const provider = new TracerProvider({
    resource: describeProcess(),
    sampler: chooseSampler(config.sampler),
    spanProcessors: [new BatchSpanProcessor({ exporter, maxQueueSize: MOST_SPANS })],
  })
  trace.setGlobalTracerProvider(provider)
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  open.defer(() => {
    trace.disable()
    context.disable()
  })
  open.defer(() => noLongerThan(FLUSH_WITHIN_MS, provider.shutdown()))
}

function chooseSampler({ name, ratio }: TelemetryConfig['sampler']): Sampler {
  const share = name.endsWith('always_on') ? 1 : name.endsWith('always_off') ? 0 : ratio
  const root = new TraceIdRatioBasedSampler(share)
  return name.startsWith('parentbased') ? new ParentBasedSampler({ root }) : root
}

function startMetrics(config: TelemetryConfig, open: AsyncDisposableStack): Page {
  const named = { preventServerStart: true, withoutScopeInfo: true, withoutTargetInfo: true }
  const page = config.page ? new PrometheusExporter(named) : null
  const push = () =>
    new PeriodicExportingMetricReader({
      exporter: new OTLPMetricExporter(),
      exportIntervalMillis: config.pushEveryMs,
      exportTimeoutMillis: Math.min(config.pushEveryMs, 30_000),
    })
  const provider = new MeterProvider({
    resource: describeProcess(),
    readers: [...(page === null ? [] : [page]), ...(config.pushed ? [push()] : [])],
    views: [{ instrumentName: '*', aggregationCardinalityLimit: SERIES_OF_A_METRIC }],
  })
  metrics.setGlobalMeterProvider(provider)
  open.defer(() => metrics.disable())
  open.defer(startCounting(manifest.version))
  open.defer(() => noLongerThan(FLUSH_WITHIN_MS, provider.shutdown()))
  return page && ((request, response) => page.getMetricsRequestHandler(request, response))
}

function describeProcess() {
  const own = resourceFromAttributes({
    [ATTR_SERVICE_NAME]: SERVICE_NAME,
    [ATTR_SERVICE_VERSION]: manifest.version,
    [ATTR_SERVICE_INSTANCE_ID]: randomUUID(),
  })
  // The environment overrides ours.
  return defaultResource()
    .merge(own)
    .merge(detectResources({ detectors: [envDetector] }))
}

/** A sentence is logged again only after so long. */
const REPEAT_MS = 60_000

/** A collector that is away changes nothing else. */
function logFailures(log: Logger): void {
  const loggedAt = new Map<string, number>()
  const warn = (message: string, ...more: unknown[]) => {
    const text = message.slice(0, 300)
    if (performance.now() - (loggedAt.get(text) ?? Number.NEGATIVE_INFINITY) < REPEAT_MS) return
    if (loggedAt.size > 100) loggedAt.clear()
    loggedAt.set(text, performance.now())
    log.warn(more.length === 0 ? {} : { more }, `telemetry: ${text}`)
  }
  const nothing = () => {}
  diag.setLogger(
    { error: warn, warn, info: nothing, debug: nothing, verbose: nothing },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  )
}
