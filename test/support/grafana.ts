/**
 * The dashboards as they are committed, and their queries as Grafana's PostgreSQL data source would send them. Grafana itself is
 * not needed to know what PostgreSQL is asked: variables are filled in by the browser, macros by the data source.
 *
 * Variables: https://grafana.com/docs/grafana/latest/visualizations/dashboards/variables/variable-syntax/ (sqlstring: each value quoted, quotes
 * doubled, values joined by commas; regex: escaped, several as alternatives).
 * Macros: https://grafana.com/docs/grafana/latest/datasources/postgres/query-editor/#macros, and pkg/tsdb/grafana-postgresql-datasource
 * (macros.go; sqleng/sql_engine.go Interpolate) of grafana/grafana, which fills in $__interval_ms and $__interval before any other and
 * refuses a macro that it does not know. Types of columns: convertResultsToFrame of the same file.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { ROOT } from './root.ts'

export type Target = {
  readonly refId: string
  readonly datasource: { readonly type: string; readonly uid: string }
  readonly rawSql?: string
  readonly format?: 'table' | 'time_series'
  readonly expr?: string
}

type Override = {
  readonly properties: readonly { readonly id: string; readonly value?: unknown }[]
}

type DataLink = { readonly title: string; readonly url: string }

export type PanelJson = {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly targets?: readonly Target[]
  readonly maxDataPoints?: number
  readonly transformations?: readonly {
    readonly id: string
    readonly options: { readonly fields: readonly string[] }
  }[]
  readonly fieldConfig?: {
    readonly defaults: {
      readonly links?: readonly DataLink[]
    }
    readonly overrides: readonly Override[]
  }
}

type VariableJson = {
  readonly name: string
  readonly type: string
  readonly query?: string
  readonly multi?: boolean
  readonly datasource?: { readonly uid: string }
}

export type DashboardJson = {
  readonly uid: string
  readonly title: string
  readonly panels: readonly PanelJson[]
  readonly templating: { readonly list: readonly VariableJson[] }
  readonly annotations: {
    readonly list: readonly {
      readonly name: string
      readonly datasource: { readonly uid: string }
      readonly target: Target
    }[]
  }
}

const DIRECTORY = new URL('ops/grafana/dashboards/', ROOT)

/** By the names of their files. */
export function readDashboards(): ReadonlyMap<string, DashboardJson> {
  const files = readdirSync(DIRECTORY).sort()
  return new Map(
    files.map((file) => [
      file.replace('.json', ''),
      JSON.parse(readFileSync(new URL(file, DIRECTORY), 'utf8')) as DashboardJson,
    ]),
  )
}

/** Panels that show something; rows have none below them, as none is collapsed. */
export function panelsOf(dashboard: DashboardJson): readonly PanelJson[] {
  return dashboard.panels.filter(({ type }) => type !== 'row')
}

export function linksOf(panel: PanelJson): readonly DataLink[] {
  const { defaults, overrides } = panel.fieldConfig!
  return [
    ...(defaults.links ?? []),
    ...overrides.flatMap(({ properties }) =>
      properties.flatMap(({ id, value }) => (id === 'links' ? (value as readonly DataLink[]) : [])),
    ),
  ]
}

export type Values = Readonly<Record<string, string | readonly string[]>>

/** Variables as the browser fills them in. A name that the dashboard has no variable for is an error here. */
export function withVariables(text: string, values: Values): string {
  return text.replaceAll(/\$\{(\w+)(?::(\w+))?\}/g, (all, name: string, format: string | undefined) => {
    const value = values[name]
    if (value === undefined) throw new Error(`no variable ${name}`)
    const list = typeof value === 'string' ? [value] : value
    switch (format) {
      case 'sqlstring':
        return list.map((one) => `'${one.replaceAll("'", "''")}'`).join(',')
      case 'regex':
        return list.length === 1 ? escaped(list[0]!) : `(${list.map(escaped).join('|')})`
      default:
        throw new Error(`${all}: this format is not used here`)
    }
  })
}

function escaped(value: string): string {
  return value.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&')
}

type Range = { readonly from: Date; readonly to: Date; readonly intervalMs: number }

/** Macros as the data source fills them in. */
export function withMacros(text: string, range: Range): string {
  const { from, to, intervalMs } = range
  const filled = text
    .replaceAll('$__interval_ms', String(intervalMs))
    .replaceAll('$__interval', duration(intervalMs))
  // Arguments end at the first closing parenthesis, and are split at every comma.
  return filled.replaceAll(/\$([_a-zA-Z0-9]+)\(([^)]*)\)/g, (_, name: string, list: string) =>
    macro(
      name,
      list.split(',').map((one) => one.trim()),
      { from, to },
    ),
  )
}

function macro(name: string, args: readonly string[], { from, to }: Omit<Range, 'intervalMs'>): string {
  const [column = '', interval = ''] = args
  switch (name) {
    case '__timeFrom':
      return `'${from.toISOString()}'`
    case '__timeTo':
      return `'${to.toISOString()}'`
    case '__timeGroupAlias': {
      const seconds = secondsOf(interval.replaceAll("'", ''))
      return `floor(extract(epoch from ${column})/${seconds})*${seconds} AS "time"`
    }
    default:
      throw new Error(`unknown macro ${name}`)
  }
}

const UNITS: readonly (readonly [string, number])[] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
  ['ms', 1],
]

/** `2m`: in the largest unit that it fills, rounded down. */
function duration(ms: number): string {
  const [unit, size] = UNITS.find(([, size]) => ms >= size)!
  return `${Math.floor(ms / size)}${unit}`
}

function secondsOf(text: string): number {
  const [, count, unit] = /^(\d+)(ms|s|m|h|d)$/.exec(text) ?? []
  const size = UNITS.find(([name]) => name === unit)?.[1]
  if (size === undefined) throw new Error(`not an interval: ${text}`)
  return (Number(count) * size) / 1_000
}

/** As Grafana chooses it: the range by the points that fit, rounded, and no finer than the data source's `timeInterval`. */
export function intervalOf(range: Pick<Range, 'from' | 'to'>, points = 1_000): number {
  const fits = (range.to.getTime() - range.from.getTime()) / points
  const steps = [60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 10_800].map((seconds) => seconds * 1_000)
  return steps.find((step) => fits <= step * 1.3) ?? steps.at(-1)!
}
