/**
 * Where spans and metrics go, for those who asked (`config.telemetry`): a page that Prometheus reads, OTLP over HTTP in
 * protobuf. Without being asked nothing is loaded, nothing listens and nothing is sent.
 *
 * What is sent, how often and how much of it, config.ts says. Where to, with which headers, certificates, compression
 * and time-outs, the exporters read themselves from OTEL_EXPORTER_OTLP_*; the resource from OTEL_SERVICE_NAME and
 * OTEL_RESOURCE_ATTRIBUTES.
 */
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { MetricData, ResourceMetrics } from '@opentelemetry/sdk-metrics'
import type { Sampler } from '@opentelemetry/sdk-trace'
import type { TelemetryConfig } from './config.ts'
import { type Logger, noLongerThan, SERVICE_NAME, startCounting } from './telemetry.ts'

export type Telemetry = {
  /** What Prometheus reads; null: nobody asked for a page. */
  readonly page: (() => Promise<string>) | null
  /** Sends what is left, for a moment. */
  close(): Promise<void>
}

/** Of one metric; the SDK folds more of them into one, `otel_metric_overflow`. */
export const SERIES_OF_A_METRIC = 10_000
/** Observers wait no longer for the database (`observed.ts`); this is for one that does not keep its word. */
const COLLECT_WITHIN_MS = 5_000
const FLUSH_WITHIN_MS = 2_000
/** Spans that wait to be sent; more are dropped. */
const MOST_SPANS = 8_192

export async function startTelemetry(config: TelemetryConfig, log: Logger): Promise<Telemetry> {
  const closing: (() => Promise<void> | void)[] = []
  const isAsked = config.page || config.pushed || config.traces
  if (isAsked) closing.push(await tellOfFailures(log))
  if (config.traces) closing.push(await trace(config))
  let page: Telemetry['page'] = null
  if (config.page || config.pushed) {
    const counted = await count(config, log)
    page = counted.page
    closing.push(counted.close)
  }
  return { page, close: () => closeAll(closing) }
}

async function closeAll(closing: readonly (() => Promise<void> | void)[]): Promise<void> {
  // A collector that is away must not hold up the end of the service.
  await Promise.allSettled(closing.map(async (close) => close()))
}

async function trace(config: TelemetryConfig): Promise<() => Promise<void>> {
  const [sdk, { OTLPTraceExporter }, { AsyncLocalStorageContextManager }, api] = await Promise.all([
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-proto'),
    import('@opentelemetry/context-async-hooks'),
    import('@opentelemetry/api'),
  ])
  const { BatchSpanProcessor, TracerProvider } = sdk
  const provider = new TracerProvider({
    resource: await describeProcess(),
    sampler: chooseSampler(sdk, config.sampler),
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter(), maxQueueSize: MOST_SPANS })],
  })
  api.trace.setGlobalTracerProvider(provider)
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  return async () => {
    await noLongerThan(FLUSH_WITHIN_MS, provider.shutdown())
    api.trace.disable()
    api.context.disable()
  }
}

type Samplers = Pick<
  typeof import('@opentelemetry/sdk-trace'),
  'ParentBasedSampler' | 'TraceIdRatioBasedSampler'
>

function chooseSampler(sdk: Samplers, { name, ratio }: TelemetryConfig['sampler']): Sampler {
  const share = name.endsWith('always_on') ? 1 : name.endsWith('always_off') ? 0 : ratio
  const root = new sdk.TraceIdRatioBasedSampler(share)
  return name.startsWith('parentbased') ? new sdk.ParentBasedSampler({ root }) : root
}

async function count(
  config: TelemetryConfig,
  log: Logger,
): Promise<{ readonly page: Telemetry['page']; readonly close: () => Promise<void> }> {
  const [{ MeterProvider, MetricReader, PeriodicExportingMetricReader }, { PrometheusSerializer }, api] =
    await Promise.all([
      import('@opentelemetry/sdk-metrics'),
      import('@opentelemetry/exporter-prometheus'),
      import('@opentelemetry/api'),
    ])
  /** Collects when it is asked to. */
  class PageReader extends MetricReader {
    protected override async onShutdown(): Promise<void> {}
    protected override async onForceFlush(): Promise<void> {}
  }
  const page = config.page ? new PageReader({ cardinalitySelector: () => SERIES_OF_A_METRIC }) : null
  const pushing = config.pushed
    ? new PeriodicExportingMetricReader({
        exporter: new (await import('@opentelemetry/exporter-metrics-otlp-proto')).OTLPMetricExporter(),
        exportIntervalMillis: config.pushEveryMs,
        exportTimeoutMillis: Math.min(config.pushEveryMs, 30_000),
        cardinalityLimits: { default: SERIES_OF_A_METRIC },
      })
    : null
  const provider = new MeterProvider({
    resource: await describeProcess(),
    readers: [page, pushing].filter((reader) => reader !== null),
  })
  api.metrics.setGlobalMeterProvider(provider)
  const stop = startCounting()
  const [without, isWithout] = [undefined, true]
  const serializer = new PrometheusSerializer(without, false, without, isWithout, isWithout)
  return {
    page:
      page &&
      (async () => {
        const { resourceMetrics, errors } = await page.collect({ timeoutMillis: COLLECT_WITHIN_MS })
        for (const err of errors) log.warn({ err }, 'some metrics could not be read')
        return serializer.serialize(withUnits(resourceMetrics))
      }),
    close: async () => {
      await noLongerThan(FLUSH_WITHIN_MS, provider.shutdown())
      stop()
      api.metrics.disable()
    },
  }
}

const SUFFIXES: Readonly<Record<string, string>> = { s: '.seconds', By: '.bytes' }

/** The conventions for Prometheus put the unit of a metric into its name; the serializer does not. */
function withUnits({ resource, scopeMetrics }: ResourceMetrics): ResourceMetrics {
  const rename = ({ descriptor, ...metric }: MetricData) => {
    const name = `${descriptor.name}${SUFFIXES[descriptor.unit] ?? ''}`
    return { ...metric, descriptor: { ...descriptor, name, unit: '' } } as MetricData
  }
  const renamed = scopeMetrics.map(({ scope, metrics }) => ({ scope, metrics: metrics.map(rename) }))
  return { resource, scopeMetrics: renamed }
}

async function describeProcess() {
  const { defaultResource, detectResources, envDetector, resourceFromAttributes } = await import(
    '@opentelemetry/resources'
  )
  const { ATTR_SERVICE_INSTANCE_ID, ATTR_SERVICE_NAME, ATTR_SERVICE_VERSION } = await import(
    '@opentelemetry/semantic-conventions'
  )
  const own = resourceFromAttributes({
    [ATTR_SERVICE_NAME]: SERVICE_NAME,
    [ATTR_SERVICE_VERSION]: readVersion(),
    [ATTR_SERVICE_INSTANCE_ID]: randomUUID(),
  })
  // What the environment says goes before what we say.
  return defaultResource()
    .merge(own)
    .merge(detectResources({ detectors: [envDetector] }))
}

function readVersion(): string {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return version
}

/** The same sentence again is of no use to anybody for a while. */
const REPEAT_MS = 60_000

/** A collector that is away is told of in our log, and changes nothing else. */
async function tellOfFailures(log: Logger): Promise<() => void> {
  const { diag, DiagLogLevel } = await import('@opentelemetry/api')
  const saidAt = new Map<string, number>()
  const tell = (message: string, ...more: unknown[]) => {
    const text = message.slice(0, 300)
    if (performance.now() - (saidAt.get(text) ?? Number.NEGATIVE_INFINITY) < REPEAT_MS) return
    if (saidAt.size > 100) saidAt.clear()
    saidAt.set(text, performance.now())
    log.warn(more.length === 0 ? {} : { more }, `telemetry: ${text}`)
  }
  const nothing = () => {}
  diag.setLogger(
    { error: tell, warn: tell, info: nothing, debug: nothing, verbose: nothing },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  )
  return () => diag.disable()
}
