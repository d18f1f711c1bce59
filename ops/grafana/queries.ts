/**
 * Queries as panels carry them, and the fragments that their SQL is made of.
 *
 * SQL reads ipledger_audit only, as ipledger_auditor. A variable is always quoted by Grafana (`:sqlstring`), never by
 * the text around it, and a list of them is an array, which may be empty. What a column has no type for in Grafana
 * (inet, jsonb, intervals, arrays) is text or a number in every answer: its data source would guess.
 */
import type { Builder, Dataquery } from '@grafana/grafana-foundation-sdk/cog'
import { DataqueryBuilder, PromQueryFormat } from '@grafana/grafana-foundation-sdk/prometheus'

/** As provisioning/datasources has them. */
export const POSTGRESQL = { type: 'grafana-postgresql-datasource', uid: 'ipledger-postgresql' }
export const PROMETHEUS = { type: 'prometheus', uid: 'ipledger-prometheus' }

/** A single network, and all that are chosen. */
export const NETWORK = `\${network:sqlstring}`
export const NETWORKS = `any(array[\${network:sqlstring}]::text[])`
export const POOL = `\${pool:sqlstring}`
export const SOURCES = `any(array[\${source:sqlstring}]::text[])`
/** Empty: no address has been chosen, and no row is asked for. */
export const ADDRESS = `nullif(\${address:sqlstring}, '')::inet`
export const OWNER = `nullif(\${owner:sqlstring}, '')`
export const LEASE = `nullif(\${lease:sqlstring}, '')`
export const FROM = '$__timeFrom()::timestamptz'
export const TO = '$__timeTo()::timestamptz'

/** In PromQL: label values that are chosen. In backticks: in quotes the `\.` that a dot becomes is no escape, and an error. */
export const IN_NETWORKS = `network=~\`\${network:regex}\``
export const IN_SOURCES = `source=~\`\${source:regex}\``
export const IN_INSTANCES = `instance=~\`\${instance:regex}\``

/** The model of Grafana's PostgreSQL data source, for which the SDK has no type. */
type PostgresqlQuery = {
  readonly datasource: typeof POSTGRESQL
  readonly editorMode: 'code'
  readonly format: 'table' | 'time_series'
  readonly rawQuery: true
  readonly rawSql: string
  readonly refId: string
  _implementsDataqueryVariant(): void
}

export type Query = { readonly refId: string; readonly builder: Builder<Dataquery> }

export function sql(text: string, format: PostgresqlQuery['format'] = 'table', refId = 'A'): Query {
  const query: PostgresqlQuery = {
    datasource: POSTGRESQL,
    editorMode: 'code',
    format,
    rawQuery: true,
    rawSql: dedent(text),
    refId,
    _implementsDataqueryVariant() {},
  }
  return { refId, builder: { build: () => query } }
}

/** Rows of (time, metric, value): Grafana makes a line of each metric. They must be in the order of time. */
export function sqlSeries(text: string, refId = 'A'): Query {
  return sql(text, 'time_series', refId)
}

export function promql(expr: string, legend: string, refId = 'A'): Query {
  const builder = new DataqueryBuilder()
    .datasource(PROMETHEUS)
    .expr(dedent(expr))
    .legendFormat(legend)
    .refId(refId)
    .range()
  return { refId, builder }
}

/** One number a series, as of the end of the time range. */
export function promqlNow(expr: string, legend: string, refId = 'A'): Query {
  const builder = new DataqueryBuilder()
    .datasource(PROMETHEUS)
    .expr(dedent(expr))
    .legendFormat(legend)
    .format(PromQueryFormat.TimeSeries)
    .refId(refId)
    .instant()
  return { refId, builder }
}

/** The text as it is read in Grafana's editor, without the indentation of the file it stands in. */
function dedent(text: string): string {
  const lines = text.replace(/^\n+|\s+$/g, '').split('\n')
  const widths = lines.filter((line) => line.trim() !== '').map((line) => line.search(/\S/))
  const width = Math.min(...widths)
  return lines.map((line) => line.slice(width)).join('\n')
}
