/**
 * A dashboard as SVG, with the rows that its queries answered: so that a reader of docs sees what it shows without Grafana,
 * whose own drawing this is not. Where Prometheus is asked the frame says so.
 */
import { type DashboardJson, type PanelJson, panelsOf, type Range } from './grafana.ts'

export type Row = Readonly<Record<string, unknown>>
type Box = { readonly x: number; readonly y: number; readonly w: number; readonly h: number }

const COLUMN = 50
const LINE = 30
/** Wide enough for capitals. */
const LETTER = 6.8
const COLOURS = [
  '#5794f2',
  '#73bf69',
  '#f2cc0c',
  '#ff780a',
  '#b877d9',
  '#e02f44',
  '#8ab8ff',
  '#96d98d',
  '#ffb357',
]
const NAMED: Readonly<Record<string, string>> = {
  red: '#e02f44',
  orange: '#ff780a',
  yellow: '#c99a00',
  green: '#299c46',
  blue: '#5794f2',
  purple: '#b877d9',
  text: '#888888',
  'super-light-blue': '#eef4ff',
  'light-blue': '#b3d0ff',
  'dark-blue': '#1f60c4',
}

/** `answers`: the rows of each panel, by its id; null where Prometheus is asked. */
export function draw(
  { title, panels }: DashboardJson,
  answers: ReadonlyMap<number, readonly Row[] | null>,
  range: Pick<Range, 'from' | 'to'>,
): string {
  const boxOf = ({ gridPos: { x, y, w, h } }: PanelJson): Box => ({
    x: x * COLUMN + 4,
    y: y * LINE + 44,
    w: w * COLUMN - 8,
    h: h * LINE - 6,
  })
  const height = Math.max(...panels.map((panel) => boxOf(panel).y + boxOf(panel).h)) + 10
  const rows = panels.filter(({ type }) => type === 'row')
  const body = [
    text({ x: 8, y: 28 }, title, 'font-size="18"'),
    ...rows.map((row) =>
      text({ x: boxOf(row).x + 2, y: boxOf(row).y + 18 }, `▾ ${row.title}`, 'font-weight="600"'),
    ),
    ...panelsOf({ panels } as DashboardJson).flatMap((panel) => {
      const box = boxOf(panel)
      const inside = { x: box.x + 10, y: box.y + 30, w: box.w - 20, h: box.h - 38 }
      const answer = answers.get(panel.id) ?? null
      return [
        `<rect x="${box.x}" y="${box.y}" width="${box.w}" height="${box.h}" rx="3" fill="#fff" stroke="#d8dbe0"/>`,
        text({ x: box.x + 10, y: box.y + 20 }, cut(panel.title, inside.w), 'font-weight="600"'),
        ...(answer === null
          ? [text({ x: inside.x, y: inside.y + 14 }, 'from Prometheus', 'fill="#999"')]
          : DRAWN[panel.type]!(panel, answer, inside, range)),
      ]
    }),
  ]
  const size = `width="${24 * COLUMN}" height="${height}" viewBox="0 0 ${24 * COLUMN} ${height}"`
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="11" fill="#222">
<title>${title}</title>
<rect width="100%" height="100%" fill="#f4f5f8"/>\n${body.join('\n')}\n</svg>\n`
}

type Draw = (panel: PanelJson, rows: readonly Row[], box: Box, range: Pick<Range, 'from' | 'to'>) => string[]

const DRAWN: Readonly<Record<string, Draw>> = {
  stat({ fieldConfig }, [row], { x, y, w }) {
    const values = Object.entries(row!)
    return values.flatMap(([name, value], at) => {
      const left = x + (at * w) / values.length
      const { unit, thresholds } = fieldConfig!.defaults
      const colour = `fill="${colourAt(value, thresholds?.steps)}"`
      const label = values.length === 1 ? [] : [text({ x: left, y: y + 56 }, name, '')]
      return [text({ x: left, y: y + 34 }, shownAs(value, unit), `font-size="26" ${colour}`), ...label]
    })
  },
  bargauge(_, rows, { x, y, w }) {
    const most = Math.max(1, ...rows.map(({ value }) => Number(value)))
    return rows.flatMap(({ metric, value }, at) => {
      const top = y + at * 24
      const length = ((w - 40) * Number(value)) / most
      const bar = `<rect x="${x}" y="${top + 8}" width="${length.toFixed(1)}" height="9" fill="${COLOURS[0]}"/>`
      return [
        text({ x, y: top + 5 }, String(metric), ''),
        bar,
        text({ x: x + w - 30, y: top + 17 }, String(value), ''),
      ]
    })
  },
  table({ fieldConfig }, rows, { x, y, w, h }) {
    const names = Object.keys(rows[0] ?? {})
    const shown = rows.slice(0, Math.floor((h - 18) / 19))
    const property = (name: string, id: string) =>
      fieldConfig!.overrides
        .find(({ matcher }) => matcher.options === name)
        ?.properties.find((one) => one.id === id)?.value
    const cells = (row: Row) =>
      names.map((name) => shownAs(row[name], property(name, 'unit') as string | undefined))
    const titles = names.map((name) => String(property(name, 'displayName') ?? name))
    const lines = shown.map(cells)
    const asked = titles.map(
      (title, at) =>
        12 + LETTER * Math.min(60, Math.max(title.length, ...lines.map((line) => line[at]!.length))),
    )
    const whole = asked.reduce((sum, one) => sum + one, 0)
    const widths = asked.map((one) => (one * w) / whole)
    const backgrounds = (row: Row, top: number) =>
      names.flatMap((name, at) => {
        const { type } = (property(name, 'custom.cellOptions') ?? {}) as { readonly type?: string }
        if (type !== 'color-background' || row[name] === null) return []
        const { steps } = property(name, 'thresholds') as { readonly steps: Steps }
        const left = x + widths.slice(0, at).reduce((sum, one) => sum + one, 0) - 4
        const place = `x="${left.toFixed(1)}" y="${top - 13}" width="${widths[at]!.toFixed(1)}" height="18"`
        return [`<rect ${place} fill="${colourAt(row[name], steps)}" fill-opacity=".7"/>`]
      })
    const line = (values: readonly string[], top: number, style: string) => {
      let left = x
      return values.map((value, at) => {
        const drawn = text({ x: left, y: top }, cut(value, widths[at]! - 6), style)
        left += widths[at]!
        return drawn
      })
    }
    const body = lines.flatMap((values, at) => [
      ...backgrounds(shown[at]!, y + 30 + at * 19),
      ...line(values, y + 30 + at * 19, ''),
    ])
    const left = rows.length - shown.length
    const more = left === 0 ? [] : [text({ x: x + w - 60, y: y - 10 }, `${left} more`, 'fill="#999"')]
    return [...line(titles, y + 11, 'fill="#3871dc"'), ...body, ...more]
  },
  timeseries({ fieldConfig }, rows, { x, y, w, h }, { from, to }) {
    const points = rows.flatMap((row) =>
      Object.entries(row).flatMap(([name, value]) =>
        name === 'time' || name === 'metric' || value === null
          ? []
          : [
              {
                name: String(row.metric ?? name),
                at: Number(row.time),
                value: Number(value),
              },
            ],
      ),
    )
    const most = Math.max(...points.map(({ value }) => value), Number.MIN_VALUE)
    const bottom = y + h - 22
    const series = Map.groupBy(points, ({ name }) => name)
    const lines = [...series.values()].map((of, at) => {
      const place = of.map((point) => {
        const across = x + 40 + ((w - 44) * (point.at - from.getTime())) / (to.getTime() - from.getTime())
        return `${across.toFixed(1)},${(bottom - ((bottom - y - 6) * point.value) / most).toFixed(1)}`
      })
      return `<polyline points="${place.join(' ')} ${place.at(-1)}" fill="none" stroke="${COLOURS[at % COLOURS.length]}" stroke-width="2" stroke-linecap="round"/>`
    })
    let left = x
    const legend = [...series.keys()].flatMap((name, at) => {
      if (left > x + w - 60) return []
      const drawn = text({ x: left, y: y + h - 2 }, `— ${name}`, `fill="${COLOURS[at % COLOURS.length]}"`)
      left += (name.length + 4) * LETTER
      return [drawn]
    })
    const { unit } = fieldConfig!.defaults
    const axis = `<path d="M${x + 40} ${y}V${bottom}H${x + w}" fill="none" stroke="#ccc"/>`
    return [
      axis,
      text({ x, y: y + 9 }, shownAs(most, unit), ''),
      text({ x, y: bottom }, '0', ''),
      ...lines,
      ...legend,
    ]
  },
  'state-timeline'({ transformations, fieldConfig }, rows, { x, y, w, h }, { from, to }) {
    const partition = transformations![0]!.options.fields[0]!
    const names = Object.keys(rows[0] ?? {}).filter((name) => name !== 'time' && name !== partition)
    const colours = fieldConfig!.defaults.mappings?.[0]?.options ?? {}
    const bands = [...Map.groupBy(rows, (row) => String(row[partition]))].flatMap(([of, told]) =>
      names.map((name) => ({ name: `${of} ${name}`, told, of: name })),
    )
    const tall = Math.min(40, h / Math.max(1, bands.length))
    const at = (time: unknown) =>
      x + 130 + ((w - 134) * (Number(time) - from.getTime())) / (to.getTime() - from.getTime())
    return bands.flatMap(({ name, told, of }, band) => {
      const top = y + band * tall
      const seen = [...new Set(told.map((row) => row[of]))]
      const parts = told.flatMap((row, index) => {
        if (row[of] === null) return []
        const [start, end] = [at(row.time), at(told[index + 1]?.time ?? to)]
        const colour =
          NAMED[colours[String(row[of])]?.color ?? ''] ?? COLOURS[seen.indexOf(row[of]) % COLOURS.length]
        const place = `x="${start.toFixed(1)}" y="${top}" width="${(end - start).toFixed(1)}" height="${tall - 6}"`
        const bar = `<rect ${place} fill="${colour}" fill-opacity=".75"/>`
        return [bar, text({ x: start + 4, y: top + tall / 2 + 1 }, cut(String(row[of]), end - start - 6), '')]
      })
      return [text({ x, y: top + tall / 2 + 1 }, name, ''), ...parts]
    })
  },
}

function text({ x, y }: Pick<Box, 'x' | 'y'>, words: string, style: string): string {
  const escaped = words.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${style}>${escaped}</text>`
}

function cut(words: string, width: number): string {
  const fits = Math.max(0, Math.floor(width / LETTER))
  return words.length <= fits ? words : `${words.slice(0, Math.max(0, fits - 1))}${fits > 2 ? '…' : ''}`
}

type Steps = readonly { readonly value: number | null; readonly color: string }[]

function colourAt(value: unknown, steps: Steps = []): string {
  const step = steps.findLast((one) => one.value === null || Number(value) >= one.value)
  return NAMED[step?.color ?? 'text'] ?? '#222'
}

function shownAs(value: unknown, unit = ''): string {
  if (value === null || value === undefined) return '–'
  if (value instanceof Date) return value.toISOString().slice(0, 19).replace('T', ' ')
  if (typeof value === 'object') return JSON.stringify(value)
  if (unit === 'percentunit') return `${Math.round(Number(value) * 100)} %`
  if (unit.startsWith('dtduration')) return `${(Number(value) / 3_600).toFixed(1)} h`
  return typeof value === 'number' && !Number.isInteger(value) ? value.toFixed(2) : String(value)
}
