/**
 * Panels drawn as SVG from what their queries answer: a picture of the data and of the panel's own settings (colours, thresholds,
 * stacking, units, names of columns), where no Grafana is at hand. It is not what Grafana's renderer makes of them.
 */
import type { PanelJson } from './grafana.ts'

export type Rows = readonly Readonly<Record<string, unknown>>[]
export type Span = { readonly from: Date; readonly to: Date }
export type Mark = { readonly at: number; readonly colour: string; readonly name: string }
/** At the top left of it; as wide and high as it is drawn. */
export type Drawn = { readonly svg: string; readonly height: number }

const WIDTH = 940
const LEFT = 56
const RIGHT = 12
const COLOURS: Readonly<Record<string, string>> = {
  green: '#56a64b',
  yellow: '#e0b400',
  orange: '#eb7b18',
  red: '#c4162a',
  'super-light-blue': '#dbe7fa',
  'light-blue': '#a8c5f2',
  blue: '#3274d9',
  'dark-blue': '#1f60c4',
  purple: '#8f3bb8',
  text: '#6e7780',
}
const PALETTE = ['#3274d9', '#56a64b', '#eb7b18', '#8f3bb8', '#c4162a', '#e0b400', '#1f9aa8', '#6e7780']

/** Below each other, with a heading. */
export function picture(title: string, parts: readonly Drawn[]): string {
  let y = 44
  const placed = parts.map(({ svg, height }) => {
    const at = `<g transform="translate(10 ${y})">${svg}</g>`
    y += height + 14
    return at
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH + 20}" height="${y}" viewBox="0 0 ${WIDTH + 20} ${y}" font-family="Inter, Helvetica, Arial, sans-serif" font-size="12" fill="#24292e">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="100%" height="100%" fill="#f4f5f5"/>`,
    words(10, 28, title, { size: 17, weight: 600 }),
    ...placed,
    '</svg>\n',
  ].join('\n')
}

/** Lines, stacked areas or bars over time; rows of (time, metric, value), or of time and a number a column. */
export function drawSeries(panel: PanelJson, rows: Rows, span: Span, marks: readonly Mark[] = []): Drawn {
  const height = 230
  const { inner, top, bottom } = frame(panel, height)
  const custom = customOf(panel)
  const stacked = custom.stacking?.mode === 'normal'
  const bars = custom.drawStyle === 'bars'
  const lines = seriesOf(rows)
  const limit = limitOf(panel)
  const times = [...new Set(rows.map(({ time }) => timeOf(time)))].sort((a, b) => a - b)
  const x = (at: number) => scale(at, span)
  const base = new Map(times.map((time) => [time, 0]))
  const layers = lines.map(({ name, points }) => {
    const isLimit = name === limit
    const lifted = points.map(({ at, value }) => {
      if (!stacked || isLimit) return { at, from: 0, to: value }
      const from = base.get(at) ?? 0
      base.set(at, from + value)
      return { at, from, to: from + value }
    })
    return { name, isLimit, points: lifted }
  })
  const most = Math.max(
    maxOf(panel) ?? 0,
    ...layers.flatMap(({ points }) => points.map(({ to }) => to)),
    Number.MIN_VALUE,
  )
  const ceiling = maxOf(panel) ?? nice(most)
  const y = (value: number) => bottom - (value / ceiling) * (bottom - top)
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => share * ceiling)
  const grid = ticks.map(
    (tick) =>
      line(LEFT, y(tick), WIDTH - RIGHT, y(tick), '#e4e7e9') +
      words(LEFT - 6, y(tick) + 4, inUnit(tick, unitOf(panel)), { anchor: 'end', fill: '#6e7780', size: 11 }),
  )
  const limits = stepsOf(panel).flatMap(({ value, color }) =>
    value === null || value > ceiling
      ? []
      : [line(LEFT, y(value), WIDTH - RIGHT, y(value), COLOURS[color] ?? color, '6 4')],
  )
  const gaps = times.slice(1).map((at, index) => at - times[index]!)
  const barWidth = Math.max(4, 0.8 * (x(span.from.getTime() + Math.min(...gaps, 3_600_000)) - LEFT))
  const drawn = layers.map(({ name, isLimit, points }, index) => {
    const colour = colourOf(panel, name, index)
    if (points.length === 0) return ''
    if (isLimit)
      return path(
        points.map(({ at, to }) => [x(at), y(to)]),
        colour,
        { dash: '10 8' },
      )
    if (bars) {
      return points
        .filter(({ from, to }) => to > from)
        .map(({ at, from, to }) =>
          rect(Math.max(LEFT, x(at)), y(to), barWidth, y(from) - y(to), colour, name),
        )
        .join('')
    }
    if (!stacked)
      return path(
        points.map(({ at, to }) => [x(at), y(to)]),
        colour,
        {},
      )
    const over = points.map(({ at, to }) => [x(at), y(to)] as const)
    const under = points.map(({ at, from }) => [x(at), y(from)] as const).reverse()
    return `<path d="M${[...over, ...under].map(([a, b]) => `${round(a)} ${round(b)}`).join('L')}Z" fill="${colour}" fill-opacity="0.6"/>`
  })
  const flagged = marks
    .filter(({ at }) => at >= span.from.getTime() && at <= span.to.getTime())
    .map(({ at, colour, name }) => {
      const shown = COLOURS[colour] ?? colour
      return (
        line(x(at), top, x(at), bottom, shown, '2 3') +
        `<path d="M${round(x(at) - 4)} ${bottom + 7}h8l-4 -7z" fill="${shown}"><title>${escaped(name)}</title></path>`
      )
    })
  const names = legend(
    layers.map(({ name }, index) => [name, colourOf(panel, name, index)] as const),
    height - 10,
  )
  return {
    svg: [inner, ...grid, ...hours(span, top, bottom), ...flagged, ...drawn, ...limits, names].join('\n'),
    height,
  }
}

/** Bands of text over time, a pair for each value of `by`. */
export function drawTimeline(panel: PanelJson, rows: Rows, by: string, span: Span): Drawn {
  const columns = Object.keys(rows[0] ?? {}).filter((name) => name !== 'time' && name !== by)
  const bands = [...new Set(rows.map((row) => String(row[by])))].flatMap((value) =>
    columns.map((column) => ({ value, column })),
  )
  const height = 62 + bands.length * 34 + 22
  const { inner, top } = frame(panel, height)
  const left = 130
  const x = (at: number) => left + ((at - span.from.getTime()) / length(span)) * (WIDTH - RIGHT - left)
  const seen: string[] = []
  const drawn = bands.map(({ value, column }, index) => {
    const at = top + index * 34
    const own = rows.filter((row) => String(row[by]) === value)
    const spans = own.map((row, nth) => ({
      from: timeOf(row.time),
      to: nth + 1 < own.length ? timeOf(own[nth + 1]!.time) : span.to.getTime(),
      text: row[column] === null ? null : String(row[column]),
    }))
    const shown = spans
      .filter(({ text }) => text !== null)
      .map(({ from, to, text }) => {
        if (!seen.includes(text!)) seen.push(text!)
        const fill = mappedOf(panel, text!) ?? PALETTE[seen.indexOf(text!) % PALETTE.length]!
        const wide = x(to) - x(from)
        const label =
          wide > 7 * text!.length ? words(x(from) + 6, at + 19, text!, { fill: '#ffffff', size: 11 }) : ''
        return rect(x(from), at, Math.max(1, wide), 28, fill, text!) + label
      })
    return words(8, at + 18, `${value} ${column}`, { size: 11, fill: '#6e7780' }) + shown.join('')
  })
  return {
    svg: [inner, ...hours(span, top, top + bands.length * 34, left), ...drawn].join('\n'),
    height,
  }
}

/** A table whose cells are coloured by their thresholds: the map of a pool. */
export function drawCells(panel: PanelJson, rows: Rows): Drawn {
  const cell = 24
  const height = 66 + rows.length * cell
  const { inner, top } = frame(panel, height)
  const cells = panel.fieldConfig!.overrides.filter(({ properties }) =>
    properties.some(({ id, value }) => id === 'custom.cellOptions' && typeIn(value) === 'color-background'),
  )
  const wide = 46
  const left = 150
  const heads = cells.map(({ properties }, index) =>
    words(left + index * wide + wide / 2, top - 2, String(settingOf(properties, 'displayName')), {
      anchor: 'middle',
      size: 11,
      fill: '#6e7780',
    }),
  )
  const drawn = rows.map((row, index) => {
    const at = top + 6 + index * cell
    const boxes = cells.map(({ matcher, properties }, nth) => {
      const value = row[matcher.options]
      if (value === null || value === undefined) return ''
      const steps = (settingOf(properties, 'thresholds') as { steps: Steps } | undefined)?.steps ?? []
      const share = Number(value)
      const fill = COLOURS[stepOf(steps, share)] ?? '#e4e7e9'
      const label =
        share === 0
          ? ''
          : words(left + nth * wide + wide / 2, at + 16, `${Math.round(100 * share)}%`, {
              anchor: 'middle',
              size: 10,
              fill: '#ffffff',
            })
      return rect(left + nth * wide, at, wide - 2, cell - 2, fill, `${matcher.options}: ${share}`) + label
    })
    return words(8, at + 16, String(row.first_address), { size: 11, fill: '#6e7780' }) + boxes.join('')
  })
  return { svg: [inner, ...heads, ...drawn].join('\n'), height }
}

/** The first rows of a table, the columns that are named, each as wide as it says. */
export function drawRows(
  panel: PanelJson,
  rows: Rows,
  columns: Readonly<Record<string, number>>,
  span: Span,
  most = 8,
): Drawn {
  const shown = rows.slice(0, most)
  const setting = (name: string, id: string) => {
    const override = panel.fieldConfig!.overrides.find(({ matcher }) => matcher.options === name)
    return override === undefined ? undefined : settingOf(override.properties, id)
  }
  let x = 10
  const places = Object.entries(columns).map(([name, wide]) => {
    const from = x
    x += wide
    const steps = (setting(name, 'thresholds') as { steps: Steps } | undefined)?.steps
    const cell = setting(name, 'custom.cellOptions') as { readonly wrapText?: boolean } | undefined
    return { name, from, wide, steps, unit: setting(name, 'unit'), wraps: cell?.wrapText === true }
  })
  const lines = shown.map((row) =>
    places.map(({ name, from, wide, steps, unit, wraps }) => {
      const value = row[name]
      const number = value === null || value === '' ? Number.NaN : Number(value)
      const text =
        value === null || value === undefined
          ? ''
          : isTime(name)
            ? clock(timeOf(value), span)
            : typeof unit === 'string' && Number.isFinite(number)
              ? inUnit(number, unit)
              : String(value)
      const fill =
        steps !== undefined && Number.isFinite(number)
          ? (COLOURS[stepOf(steps, number)] ?? '#24292e')
          : '#24292e'
      return { from, fill, parts: wrapped(text, wide, wraps ? MOST_LINES : 1) }
    }),
  )
  const heights = lines.map((cells) => 8 + 15 * Math.max(...cells.map(({ parts }) => parts.length)))
  const height = 68 + heights.reduce((sum, one) => sum + one, 0)
  const { inner, top } = frame(panel, height)
  const heads = places.map(({ name, from, wide }) =>
    words(from, top + 4, short(String(setting(name, 'displayName') ?? name), wide), {
      size: 11,
      weight: 600,
    }),
  )
  let y = top + 24
  const drawn = lines.flatMap((cells, index) => {
    const at = y
    y += heights[index]!
    return cells.flatMap(({ from, fill, parts }) =>
      parts.map((part, nth) => words(from, at + 15 * nth, part, { size: 11, fill })),
    )
  })
  return { svg: [inner, ...heads, ...drawn].join('\n'), height }
}

const MOST_LINES = 4
/** Of the font, on average: a little more than it takes. */
const CHARACTER = 6.2

function wrapped(text: string, wide: number, most: number): readonly string[] {
  const fits = Math.max(1, Math.floor((wide - 8) / CHARACTER))
  const lines: string[] = []
  let rest = text
  while (rest.length > fits && lines.length < most - 1) {
    const at = rest.lastIndexOf(' ', fits)
    const end = at > 0 ? at : fits
    lines.push(rest.slice(0, end))
    rest = rest.slice(end).trimStart()
  }
  return [...lines, short(rest, wide)]
}

type Steps = readonly { readonly value: number | null; readonly color: string }[]

function frame(panel: PanelJson, height: number) {
  return {
    inner:
      `<rect width="${WIDTH}" height="${height}" fill="#ffffff" stroke="#dfe2e5"/>` +
      words(8, 20, panel.title, { size: 13, weight: 600 }),
    top: 38,
    bottom: height - 48,
  }
}

function seriesOf(rows: Rows) {
  const lines = new Map<string, { readonly at: number; readonly value: number }[]>()
  for (const { time, metric, ...values } of rows) {
    for (const [column, value] of Object.entries(values)) {
      if (value === null) continue
      const name = typeof metric === 'string' ? metric : column
      const points = lines.get(name) ?? []
      points.push({ at: timeOf(time), value: Number(value) })
      lines.set(name, points)
    }
  }
  return [...lines].map(([name, points]) => ({ name, points }))
}

/** Of what a query answers: milliseconds, or seconds as `$__timeGroup` makes them. */
function timeOf(value: unknown): number {
  const time = Number(value)
  return time < 1e11 ? time * 1_000 : time
}

function isTime(name: string): boolean {
  return name === 'at' || name === 'since' || name === 'until' || name.endsWith('_at')
}

function length({ from, to }: Span): number {
  return to.getTime() - from.getTime()
}

function scale(at: number, span: Span): number {
  return LEFT + ((at - span.from.getTime()) / length(span)) * (WIDTH - RIGHT - LEFT)
}

/** Since the span began: the day on which it was drawn is of no interest. */
function clock(at: number, { from }: Span): string {
  const minutes = Math.floor((at - from.getTime()) / 60_000)
  return `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`
}

function hours(span: Span, top: number, bottom: number, left = LEFT): readonly string[] {
  const count = Math.floor(length(span) / 3_600_000)
  return Array.from({ length: Math.floor(count / 2) + 1 }, (_, index) => {
    const at = left + ((index * 2 * 3_600_000) / length(span)) * (WIDTH - RIGHT - left)
    return (
      line(at, top, at, bottom, '#eef0f1') +
      words(at, bottom + 18, `${String(index * 2).padStart(2, '0')}:00`, {
        anchor: 'middle',
        size: 11,
        fill: '#6e7780',
      })
    )
  })
}

function legend(names: readonly (readonly [string, string])[], y: number): string {
  let x = LEFT
  return names
    .map(([name, colour]) => {
      const at = x
      x += 28 + 7.4 * name.length
      return rect(at, y - 8, 12, 4, colour, name) + words(at + 16, y, name, { size: 11, fill: '#6e7780' })
    })
    .join('')
}

function customOf(panel: PanelJson): { drawStyle?: string; stacking?: { mode: string } } {
  return (
    (panel.fieldConfig!.defaults as { custom?: { drawStyle?: string; stacking?: { mode: string } } })
      .custom ?? {}
  )
}

function unitOf(panel: PanelJson): string {
  return panel.fieldConfig!.defaults.unit ?? 'none'
}

function maxOf(panel: PanelJson): number | undefined {
  return (panel.fieldConfig!.defaults as { max?: number }).max
}

function stepsOf(panel: PanelJson): Steps {
  return panel.fieldConfig!.defaults.thresholds?.steps ?? []
}

function settingOf(
  properties: readonly { readonly id: string; readonly value?: unknown }[],
  wanted: string,
): unknown {
  return properties.find(({ id }) => id === wanted)?.value
}

function typeIn(value: unknown): unknown {
  return (value as { readonly type?: unknown }).type
}

function limitOf(panel: PanelJson): string | undefined {
  return panel.fieldConfig!.overrides.find(({ properties }) =>
    properties.some(({ id }) => id === 'custom.lineStyle'),
  )?.matcher.options
}

function colourOf(panel: PanelJson, name: string, index: number): string {
  for (const { matcher, properties } of panel.fieldConfig!.overrides) {
    if (matcher.options !== name) continue
    const fixed = (settingOf(properties, 'color') as { fixedColor?: string } | undefined)?.fixedColor
    if (fixed !== undefined) return COLOURS[fixed] ?? fixed
  }
  return PALETTE[index % PALETTE.length]!
}

function mappedOf(panel: PanelJson, text: string): string | undefined {
  const { mappings } = panel.fieldConfig!.defaults as {
    mappings?: readonly { readonly options: Readonly<Record<string, { readonly color?: string }>> }[]
  }
  const colour = mappings?.[0]?.options[text]?.color
  return colour === undefined ? undefined : (COLOURS[colour] ?? colour)
}

function stepOf(steps: Steps, value: number): string {
  return steps.findLast((step) => step.value === null || value >= step.value)?.color ?? 'text'
}

function inUnit(value: number, unit: string): string {
  switch (unit) {
    case 'percentunit':
      return `${Math.round(100 * value)}%`
    case 'dtdurations':
    case 's':
      if (value < 120) return `${Math.round(value)} s`
      if (value < 7_200) return `${Math.round(value / 60)} min`
      return value < 172_800 ? `${(value / 3_600).toFixed(1)} h` : `${Math.round(value / 86_400)} d`
    default:
      if (value >= 1e6) return value.toExponential(1)
      return Number.isInteger(value) ? String(value) : value.toFixed(1)
  }
}

/** The next round number. */
function nice(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value))
  return ([1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value) ?? 10) * power
}

function short(text: string, wide: number): string {
  const most = Math.max(1, Math.floor((wide - 8) / CHARACTER))
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`
}

function round(value: number): number {
  return Math.round(value * 10) / 10
}

function words(
  x: number,
  y: number,
  text: string,
  { anchor, fill, size, weight }: { anchor?: string; fill?: string; size?: number; weight?: number } = {},
): string {
  const more = [
    anchor && `text-anchor="${anchor}"`,
    fill && `fill="${fill}"`,
    size && `font-size="${size}"`,
    weight && `font-weight="${weight}"`,
  ].filter(Boolean)
  return `<text x="${round(x)}" y="${round(y)}" ${more.join(' ')}>${escaped(text)}</text>`
}

function line(x1: number, y1: number, x2: number, y2: number, colour: string, dash = ''): string {
  const dashed = dash === '' ? '' : ` stroke-dasharray="${dash}"`
  return `<path d="M${round(x1)} ${round(y1)}L${round(x2)} ${round(y2)}" stroke="${colour}" fill="none"${dashed}/>`
}

function path(
  points: readonly (readonly [number, number])[],
  colour: string,
  { dash = '' }: { dash?: string },
): string {
  const dashed = dash === '' ? '' : ` stroke-dasharray="${dash}"`
  return `<path d="M${points.map(([a, b]) => `${round(a)} ${round(b)}`).join('L')}" stroke="${colour}" stroke-width="1.5" fill="none"${dashed}/>`
}

function rect(x: number, y: number, width: number, height: number, fill: string, title: string): string {
  return `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${fill}"><title>${escaped(title)}</title></rect>`
}

function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}
