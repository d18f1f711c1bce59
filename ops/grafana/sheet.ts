/**
 * A dashboard: its variables, what is marked in its charts, and its rows of panels. Panels get their numbers and places
 * from the order in which they are written, so that the same source gives the same JSON.
 */
import type { Builder } from '@grafana/grafana-foundation-sdk/cog'
import {
  AnnotationQueryBuilder,
  type Dashboard,
  DashboardBuilder,
  DashboardCursorSync,
  type Panel,
  QueryVariableBuilder,
  RowBuilder,
  TextBoxVariableBuilder,
  VariableRefresh,
  VariableSort,
} from '@grafana/grafana-foundation-sdk/dashboard'
import { SIBLINGS, TAG, type Target, UIDS } from './links.ts'
import { NETWORKS, POSTGRESQL, PROMETHEUS, sql } from './queries.ts'

/** A choice of what a query answers, or a text. */
export type Variable =
  | {
      readonly name: string
      readonly label: string
      readonly about: string
      readonly from: 'postgresql' | 'prometheus'
      readonly query: string
      /** Several at once, all of them at first. */
      readonly many: boolean
    }
  | { readonly name: string; readonly label: string; readonly about: string; readonly from: 'text' }

export type Row = { readonly title: string; readonly panels: readonly Builder<Panel>[] }

type Sheet = {
  readonly target: Target
  readonly title: string
  readonly about: string
  readonly variables: readonly Variable[]
  /** Reaps, conflicts and eras of the networks that are chosen, in every chart over time. */
  readonly marked: boolean
  readonly rows: readonly Row[]
}

export const NETWORK_VARIABLE = {
  name: 'network',
  label: 'Network',
  about: 'Networks of the ledger.',
  from: 'postgresql',
  query: 'select network from ipledger_audit.network order by network',
  many: false,
} as const satisfies Variable

/** Grafana's grid. */
const COLUMNS = 24

export function dashboard({ target, title, about, variables, marked, rows }: Sheet): Dashboard {
  const builder = new DashboardBuilder(`ipledger: ${title}`)
    .uid(UIDS[target])
    .description(about)
    .tags([TAG])
    .timezone('utc')
    .time({ from: 'now-24h', to: 'now' })
    .refresh('1m')
    .tooltip(DashboardCursorSync.Crosshair)
    .readonly()
    .links([{ build: () => SIBLINGS }])
    .variables(variables.map(variable))
    .annotations(marked ? MARKS.map(annotation) : [])
  let id = 0
  let y = 0
  for (const row of rows) {
    id += 1
    builder.withRow(new RowBuilder(row.title).id(id).collapsed(false).gridPos({ x: 0, y, w: COLUMNS, h: 1 }))
    y += 1
    let x = 0
    let tallest = 0
    for (const made of row.panels) {
      const panel = made.build()
      const { w, h } = panel.gridPos!
      if (x + w > COLUMNS) {
        x = 0
        y += tallest
        tallest = 0
      }
      id += 1
      const placed: Panel = { ...panel, id, gridPos: { x, y, w, h } }
      builder.withPanel({ build: () => placed })
      x += w
      tallest = Math.max(tallest, h)
    }
    y += tallest
  }
  return builder.build()
}

function variable(given: Variable): ReturnType<typeof asBuilder> {
  if (given.from === 'text') {
    return asBuilder(
      new TextBoxVariableBuilder(given.name).label(given.label).description(given.about).defaultValue(''),
    )
  }
  const builder = new QueryVariableBuilder(given.name)
    .label(given.label)
    .description(given.about)
    .datasource(given.from === 'postgresql' ? POSTGRESQL : PROMETHEUS)
    .query(given.query)
    .definition(given.query)
    .refresh(VariableRefresh.OnDashboardLoad)
    .sort(VariableSort.Disabled)
    .multi(given.many)
    .includeAll(given.many)
  if (given.many) builder.current({ selected: true, text: ['All'], value: ['$__all'] })
  return asBuilder(builder)
}

function asBuilder(builder: QueryVariableBuilder | TextBoxVariableBuilder) {
  return { build: () => builder.build() }
}

type Mark = { readonly name: string; readonly colour: string; readonly query: string }

/** At most so many of a kind: a chart with more marks shows nothing else. */
const MOST_MARKS = 200

const marksOf = (mark: string) => `
  select at as time, what as text, mark || ',' || network as tags
    from ipledger_audit.marks($__timeFrom()::timestamptz, $__timeTo()::timestamptz)
   where mark = '${mark}' and network = ${NETWORKS}
   order by at desc
   limit ${MOST_MARKS}`

const MARKS: readonly Mark[] = [
  { name: 'Reaps', colour: 'orange', query: marksOf('reap') },
  { name: 'Conflicts', colour: 'red', query: marksOf('conflict') },
  { name: 'Eras', colour: 'purple', query: marksOf('era') },
  { name: 'Holds', colour: 'yellow', query: marksOf('hold') },
]

function annotation({ name, colour, query }: Mark) {
  return new AnnotationQueryBuilder()
    .name(name)
    .datasource(POSTGRESQL)
    .enable(true)
    .hide(false)
    .iconColor(colour)
    .target(sql(query, 'table', 'Anno').builder)
}
