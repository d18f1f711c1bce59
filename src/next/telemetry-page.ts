/**
 * Metrics as Prometheus reads them: its text format, version 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/), with the names that OpenTelemetry's rules for it give
 * them (https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/): `ipledger.batch.duration` in
 * seconds is `ipledger_batch_duration_seconds`, a counter ends in `_total`.
 *
 * Not the exporter of the SDK's authors: it leaves units out of the names, and labels each series with its scope.
 */
import type { DataPoint, Histogram, MetricData, ScopeMetrics } from '@opentelemetry/sdk-metrics'

const SUFFIXES: Readonly<Record<string, string>> = { s: '_seconds', By: '_bytes' }

/** The name of a metric on the page. */
export function pageName(name: string, unit: string, isCounter: boolean): string {
  return `${name.replace(/[^a-zA-Z0-9_]/g, '_')}${SUFFIXES[unit] ?? ''}${isCounter ? '_total' : ''}`
}

export function writePage(scopes: readonly ScopeMetrics[]): string {
  return scopes.flatMap(({ metrics }) => metrics.map(writeMetric)).join('')
}

function writeMetric(metric: MetricData): string {
  if (metric.dataPoints.length === 0) return ''
  const { name: given, unit, description } = metric.descriptor
  const isCounter = isSum(metric) && metric.isMonotonic
  const name = pageName(given, unit, isCounter)
  const type = isHistogram(metric) ? 'histogram' : isCounter ? 'counter' : 'gauge'
  const lines = isHistogram(metric)
    ? metric.dataPoints.flatMap((point) => histogramLines(name, point))
    : (metric.dataPoints as readonly DataPoint<number>[]).map(
        ({ attributes, value }) => `${name}${labels(attributes)} ${number(value)}`,
      )
  return `# HELP ${name} ${escapeHelp(description)}\n# TYPE ${name} ${type}\n${lines.join('\n')}\n`
}

function histogramLines(name: string, { attributes, value }: DataPoint<Histogram>): readonly string[] {
  const { boundaries, counts } = value.buckets
  let below = 0
  const buckets = counts.map((count, index) => {
    below += count
    const le = index < boundaries.length ? number(boundaries[index]!) : '+Inf'
    return `${name}_bucket${labels({ ...attributes, le })} ${below}`
  })
  const of = labels(attributes)
  return [...buckets, `${name}_sum${of} ${number(value.sum ?? 0)}`, `${name}_count${of} ${value.count}`]
}

// The values of the SDK's enum DataPointType, which only its code has.
function isHistogram(metric: MetricData): metric is MetricData & { dataPoints: DataPoint<Histogram>[] } {
  return metric.dataPointType === 0
}

function isSum(metric: MetricData): metric is Extract<MetricData, { isMonotonic: boolean }> {
  return 'isMonotonic' in metric
}

function labels(attributes: Readonly<Record<string, unknown>>): string {
  const all = Object.entries(attributes)
  if (all.length === 0) return ''
  const written = all.map(
    ([key, value]) => `${key.replace(/[^a-zA-Z0-9_]/g, '_')}="${escapeLabel(String(value))}"`,
  )
  return `{${written.join(',')}}`
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

function number(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  if (value === Number.NEGATIVE_INFINITY) return '-Inf'
  return String(value)
}
