/**
 * Panels of the kinds that the dashboards are made of. Each says what it shows, what is normal and what to do, and has
 * a unit; one with a limit has it as a threshold. A panel that cannot say these three things is left out.
 */
import { PanelBuilder as BarGaugeBuilder } from '@grafana/grafana-foundation-sdk/bargauge'
import type { Builder } from '@grafana/grafana-foundation-sdk/cog'
import {
  BigValueColorMode,
  BigValueGraphMode,
  GraphDrawStyle,
  GraphThresholdsStyleConfigBuilder,
  GraphThresholdsStyleMode,
  LegendDisplayMode,
  LegendPlacement,
  ReduceDataOptionsBuilder,
  SortOrder,
  StackingConfigBuilder,
  StackingMode,
  TableCellDisplayMode,
  TableCellHeight,
  type TableCellOptions,
  TableSortByFieldStateBuilder,
  TooltipDisplayMode,
  VisibilityMode,
  VizLegendOptionsBuilder,
  VizOrientation,
  VizTooltipOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common'
import {
  type DashboardLink,
  type DynamicConfigValue,
  FieldColorBuilder,
  FieldColorModeId,
  MappingType,
  type Panel,
  type ThresholdsConfig,
  ThresholdsConfigBuilder,
  ThresholdsMode,
  type ValueMapping,
} from '@grafana/grafana-foundation-sdk/dashboard'
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat'
import { PanelBuilder as TimelineBuilder } from '@grafana/grafana-foundation-sdk/statetimeline'
import { PanelBuilder as TableBuilder } from '@grafana/grafana-foundation-sdk/table'
import { PanelBuilder as SeriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries'
import { dataLink, type LinkTo } from './links.ts'
import type { Query } from './queries.ts'

export type Colour =
  | 'green'
  | 'yellow'
  | 'orange'
  | 'red'
  | 'super-light-blue'
  | 'light-blue'
  | 'blue'
  | 'dark-blue'
  | 'purple'
  | 'text'

/** From this value on, this colour; below the first one, the base colour. */
export type Steps = { readonly base: Colour; readonly from: readonly (readonly [number, Colour])[] }

type Common = {
  readonly title: string
  readonly help: { readonly shows: string; readonly normal: string; readonly act: string }
  /** Of the grid's 24 columns, and rows. */
  readonly width: number
  readonly height: number
}

export const NONE_IS_RIGHT: Steps = { base: 'green', from: [[1, 'red']] }
export const FULLNESS: Steps = {
  base: 'green',
  from: [
    [0.8, 'yellow'],
    [0.95, 'red'],
  ],
}
/** Seconds until something runs out: an hour, a day. */
export const TIME_LEFT: Steps = {
  base: 'red',
  from: [
    [3_600, 'yellow'],
    [86_400, 'green'],
  ],
}

/** How much of a part of a pool is used: a full one is nothing to be alarmed at. */
export const DENSITY: Steps = {
  base: 'super-light-blue',
  from: [
    [0.01, 'light-blue'],
    [0.5, 'blue'],
    [0.95, 'dark-blue'],
  ],
}

/** Colours of states and of quarantine reasons, the same in every chart. */
export const STATE_COLOURS: Readonly<Record<string, Colour>> = {
  free: 'green',
  cooling: 'blue',
  reserved: 'yellow',
  active: 'purple',
  quarantined: 'red',
  excluded: 'text',
}

type StatInput = Common & {
  readonly unit: string
  readonly query: Query
  readonly steps: Steps
  readonly link?: LinkTo
  /** In place of a value where there is none. */
  readonly none?: string
  /** One number for each column of the row. */
  readonly columns?: true
}

export function stat(input: StatInput): Builder<Panel> {
  const { query, steps, link, none, columns } = input
  const builder = new StatBuilder()
    .unit(input.unit)
    .withTarget(query.builder)
    .thresholds(thresholds(steps))
    .colorScheme(new FieldColorBuilder().mode(FieldColorModeId.Thresholds))
    .colorMode(BigValueColorMode.Value)
    .graphMode(BigValueGraphMode.None)
    .reduceOptions(
      new ReduceDataOptionsBuilder()
        .calcs(['lastNotNull'])
        .fields(columns ? '/.*/' : '')
        .values(false),
    )
  if (none !== undefined) builder.noValue(none)
  return finished(builder, input, link)
}

type SeriesInput = Common & {
  readonly unit: string
  readonly queries: readonly Query[]
  readonly steps?: Steps
  /** Areas on top of each other, or bars. */
  readonly draw?: 'lines' | 'areas' | 'bars'
  readonly min?: number
  readonly max?: number
  readonly maxDataPoints?: number
  /** By name of the series. */
  readonly colours?: Readonly<Record<string, Colour>>
  /** Shown as a line in any panel. */
  readonly limit?: string
}

export function series(input: SeriesInput): Builder<Panel> {
  const { queries, steps, draw = 'lines', min = 0, max, colours = {}, limit, maxDataPoints } = input
  const builder = new SeriesBuilder()
    .unit(input.unit)
    .targets(queries.map((query) => query.builder))
    .min(min)
    .drawStyle(draw === 'bars' ? GraphDrawStyle.Bars : GraphDrawStyle.Line)
    .lineWidth(1)
    .fillOpacity(draw === 'lines' ? 5 : 60)
    .showPoints(VisibilityMode.Never)
    .legend(
      new VizLegendOptionsBuilder()
        .displayMode(LegendDisplayMode.List)
        .placement(LegendPlacement.Bottom)
        .showLegend(true)
        .calcs([]),
    )
    .tooltip(new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi).sort(SortOrder.Descending))
  if (max !== undefined) builder.max(max)
  if (maxDataPoints !== undefined) builder.maxDataPoints(maxDataPoints)
  if (draw !== 'lines') builder.stacking(new StackingConfigBuilder().mode(StackingMode.Normal).group('A'))
  if (steps !== undefined) {
    builder
      .thresholds(thresholds(steps))
      .thresholdsStyle(new GraphThresholdsStyleConfigBuilder().mode(GraphThresholdsStyleMode.Dashed))
  }
  for (const [name, colour] of Object.entries(colours)) {
    builder.overrideByName(name, [
      { id: 'color', value: { mode: FieldColorModeId.Fixed, fixedColor: colour } },
    ])
  }
  if (limit !== undefined) {
    builder.overrideByName(limit, [
      { id: 'custom.stacking', value: { mode: StackingMode.None, group: 'B' } },
      { id: 'custom.drawStyle', value: GraphDrawStyle.Line },
      { id: 'custom.fillOpacity', value: 0 },
      { id: 'custom.lineStyle', value: { fill: 'dash', dash: [10, 10] } },
    ])
  }
  return finished(builder, input)
}

type BarsInput = Common & {
  readonly unit: string
  readonly query: Query
  readonly steps: Steps
}

/** A bar a row of (metric, value). */
export function bars(input: BarsInput): Builder<Panel> {
  const builder = new BarGaugeBuilder()
    .unit(input.unit)
    .min(0)
    .withTarget(input.query.builder)
    .orientation(VizOrientation.Horizontal)
    .thresholds(thresholds(input.steps))
    .colorScheme(new FieldColorBuilder().mode(FieldColorModeId.Thresholds))
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(['lastNotNull']).values(true).fields(''))
  return finished(builder, input)
}

export type Column = {
  readonly title?: string
  /** Of a number; text has none. */
  readonly unit?: string
  readonly width?: number
  readonly hidden?: true
  readonly steps?: Steps
  readonly look?: 'gauge' | 'coloured' | 'wrapped' | 'json'
  readonly links?: readonly LinkTo[]
  readonly range?: readonly [number, number]
  readonly decimals?: number
}

type TableInput = Common & {
  readonly query: Query
  /** By their names in the answer; any that is not named here is shown as it comes. */
  readonly columns: Readonly<Record<string, Column>>
  readonly sortBy?: readonly { readonly title: string; readonly descending: boolean }[]
  readonly footer?: false
  readonly tall?: true
}

export function table(input: TableInput): Builder<Panel> {
  const { query, columns, sortBy = [] } = input
  const builder = new TableBuilder()
    .withTarget(query.builder)
    .unit('none')
    .noValue('none')
    .filterable(true)
    .cellHeight(input.tall ? TableCellHeight.Lg : TableCellHeight.Sm)
    .showHeader(true)
    .sortBy(
      sortBy.map(({ title, descending }) =>
        new TableSortByFieldStateBuilder().displayName(title).desc(descending),
      ),
    )
  for (const [name, column] of Object.entries(columns)) builder.overrideByName(name, settings(column))
  return finished(builder, input)
}

type TimelineInput = Common & {
  readonly query: Query
  /** A band for each of its values. */
  readonly by: string
  readonly colours: Readonly<Record<string, Colour>>
}

/** Rows of (time, by, a text a band): a text lasts until the next row of its band; null ends it. */
export function timeline(input: TimelineInput): Builder<Panel> {
  const { query, by, colours } = input
  const builder = new TimelineBuilder()
    .unit('string')
    .withTarget(query.builder)
    .withTransformation({
      id: 'partitionByValues',
      options: { fields: [by], keepFields: false, naming: { asLabels: true } },
    })
    .colorScheme(new FieldColorBuilder().mode(FieldColorModeId.PaletteClassicByName))
    .mappings(mapped(colours))
    .mergeValues(true)
    .showValue(VisibilityMode.Auto)
    .spanNulls(false)
    .rowHeight(0.9)
    .fillOpacity(70)
    .lineWidth(0)
    .legend(
      new VizLegendOptionsBuilder()
        .displayMode(LegendDisplayMode.List)
        .placement(LegendPlacement.Bottom)
        .showLegend(true)
        .calcs([]),
    )
    .tooltip(new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Single).sort(SortOrder.None))
  return finished(builder, input)
}

type AnyPanelBuilder = StatBuilder | SeriesBuilder | BarGaugeBuilder | TableBuilder | TimelineBuilder

function finished(builder: AnyPanelBuilder, input: Common, link?: LinkTo): Builder<Panel> {
  const { shows, normal, act } = input.help
  builder
    .title(input.title)
    .description(`${shows}\n\n**Normal:** ${normal}\n\n**What to do:** ${act}`)
    .span(input.width)
    .height(input.height)
  const panel = builder.build()
  const first = panel.targets?.[0] as { readonly datasource?: Panel['datasource'] } | undefined
  if (first?.datasource !== undefined) panel.datasource = first.datasource
  if (link !== undefined) {
    // The SDK asks for every field of a dashboard's link where a data link has two.
    panel.fieldConfig!.defaults.links = [dataLink(link) as unknown as DashboardLink]
  }
  return { build: () => panel }
}

function thresholds({ base, from }: Steps): Builder<ThresholdsConfig> {
  return new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps(stepsOf({ base, from }))
}

function stepsOf({ base, from }: Steps): ThresholdsConfig['steps'] {
  return [{ value: null, color: base }, ...from.map(([value, color]) => ({ value, color }))]
}

function mapped(colours: Readonly<Record<string, Colour>>): ValueMapping[] {
  const options = Object.entries(colours).map(([value, color], index) => [value, { color, index }])
  return options.length === 0 ? [] : [{ type: MappingType.ValueToText, options: Object.fromEntries(options) }]
}

const LOOKS = {
  gauge: { type: TableCellDisplayMode.Gauge },
  coloured: { type: TableCellDisplayMode.ColorBackground },
  wrapped: { type: TableCellDisplayMode.Auto, wrapText: true },
  json: { type: TableCellDisplayMode.JSONView },
} satisfies Record<string, TableCellOptions>

function settings(column: Column): DynamicConfigValue[] {
  const { title, unit, width, hidden, steps, look, links, range, decimals } = column
  const made: DynamicConfigValue[] = []
  if (title !== undefined) made.push({ id: 'displayName', value: title })
  if (unit !== undefined) made.push({ id: 'unit', value: unit })
  if (decimals !== undefined) made.push({ id: 'decimals', value: decimals })
  if (width !== undefined) made.push({ id: 'custom.width', value: width })
  if (hidden) made.push({ id: 'custom.hidden', value: true })
  if (range !== undefined) made.push({ id: 'min', value: range[0] }, { id: 'max', value: range[1] })
  if (steps !== undefined) {
    made.push(
      { id: 'thresholds', value: { mode: ThresholdsMode.Absolute, steps: stepsOf(steps) } },
      { id: 'color', value: { mode: FieldColorModeId.Thresholds } },
    )
  }
  if (look !== undefined) made.push({ id: 'custom.cellOptions', value: LOOKS[look] })
  else if (steps !== undefined) {
    made.push({ id: 'custom.cellOptions', value: { type: TableCellDisplayMode.ColorText } })
  }
  if (look === 'json' || look === 'wrapped') made.push({ id: 'custom.inspect', value: true })
  if (links !== undefined) made.push({ id: 'links', value: links.map(dataLink) })
  return made
}
