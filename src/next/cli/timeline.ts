/**
 * Who held when, drawn as text: a row a span, a column a stretch of time. Plain characters, so that it survives a copy
 * into a ticket. Pure: times in, lines out.
 *
 * A column in which several things were shows the gravest; a span shorter than a column still has one.
 */
import { milliseconds, table } from './print.ts'

export type Mark = 'reserved' | 'active' | 'quarantined'

export type Drawn = {
  /** What stands before the bar, by column. */
  readonly cells: readonly string[]
  /** Milliseconds since 1970. */
  readonly from: number
  /** Null: it goes on. */
  readonly until: number | null
  /** Null: nothing cools after it. Drawn until then, or until somebody else has the address. */
  readonly coolsUntil: number | null
  /** Oldest first, the first at `from`. */
  readonly states: readonly { readonly mark: Mark; readonly at: number }[]
}

export type Timeline = {
  /** Titles of the cells; those that are empty everywhere are left out. */
  readonly titles: readonly string[]
  readonly spans: readonly Drawn[]
  readonly from: number
  readonly to: number
  /** Characters of a line, if they are enough for the cells and a short bar. */
  readonly width: number
}

const SIGNS: Readonly<Record<Mark, string>> = { reserved: '-', active: '=', quarantined: '#' }
const GRAVITY: readonly Mark[] = ['reserved', 'active', 'quarantined']
const LEGEND = '- reserved  = active  # quarantined  . cooling  < began before  > goes on'
const SHORTEST_BAR = 20
/** Names have up to 253 bytes; the events below say them whole. */
const LONGEST_CELL = 40
export const MOST_DRAWN = 40

export function drawTimeline({ titles, spans, from, to, width }: Timeline): string {
  const shown = spans.slice(0, MOST_DRAWN)
  const cells = shown.map((span) => [...span.cells.map(clipped), heldFor(span, to)])
  const labels = table([...titles, 'FOR'], cells).split('\n')
  const indent = Math.max(...labels.map((label) => label.length)) + 2
  const columns = Math.max(SHORTEST_BAR, width - indent)
  // At least a millisecond a column: finer than that nothing is known.
  const scale = { from, to: Math.max(to, from + columns), columns }
  const bars = [axis(scale), ...shown.map((span) => bar(span, scale))]
  return [
    ...labels.map((label, at) => `${label.padEnd(indent)}${bars[at]}`.trimEnd()),
    ...(spans.length > shown.length ? [`and ${spans.length - shown.length} more`] : []),
    '',
    LEGEND,
  ].join('\n')
}

function clipped(cell: string): string {
  return cell.length <= LONGEST_CELL ? cell : `${cell.slice(0, LONGEST_CELL - 1)}…`
}

type Scale = { readonly from: number; readonly to: number; readonly columns: number }

function columnOf({ from, to, columns }: Scale, at: number): number {
  return Math.max(0, Math.min(columns - 1, Math.floor(((at - from) / (to - from)) * columns)))
}

/** Where a column begins. */
function timeOf({ from, to, columns }: Scale, column: number): number {
  return from + ((to - from) * column) / columns
}

function bar(span: Drawn, scale: Scale): string {
  const signs: string[] = new Array(scale.columns).fill(' ')
  const end = span.until ?? scale.to
  const [first, last] = [columnOf(scale, span.from), columnOf(scale, end)]
  if (span.coolsUntil !== null && span.coolsUntil > end && end < scale.to)
    signs.fill('.', last, columnOf(scale, span.coolsUntil) + 1)
  for (let column = first; column <= last; column++) signs[column] = SIGNS[gravest(span, scale, column)]
  const beganBefore = span.from < scale.from
  const goesOn = span.until === null || span.until > scale.to
  if (first === last && !beganBefore && !goesOn) signs[first] = '|'
  else {
    signs[first] = beganBefore ? '<' : '['
    signs[last] = goesOn ? '>' : first === last ? '<' : ']'
  }
  return signs.join('')
}

function gravest({ states, from, until }: Drawn, scale: Scale, column: number): Mark {
  const begin = Math.max(timeOf(scale, column), from)
  const end = Math.min(timeOf(scale, column + 1), until ?? Number.POSITIVE_INFINITY)
  const there = states.filter((state, at) => {
    const next = states[at + 1]?.at ?? Number.POSITIVE_INFINITY
    return (state.at < end || state.at === from) && next > begin
  })
  return GRAVITY.findLast((mark) => there.some((one) => one.mark === mark)) ?? states.at(-1)?.mark ?? 'active'
}

function heldFor({ from, until }: Drawn, to: number): string {
  const ms = Math.max(0, (until ?? to) - from)
  const [first, second] = milliseconds(ms).match(/\d+[a-z]+/g) ?? []
  return `${first ?? '0ms'}${second ?? ''}${until === null ? '+' : ''}`
}

const STEPS: readonly number[] = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((one) => one * 1_000),
  ...[1, 2, 5, 10, 15, 30].map((one) => one * 60_000),
  ...[1, 2, 3, 6, 12].map((one) => one * 3_600_000),
  ...[1, 2, 7, 14, 30, 90, 365, 3_650].map((one) => one * 86_400_000),
]

/** `|03:10     |03:20`, as many as have room. */
function axis(scale: Scale): string {
  const perColumn = (scale.to - scale.from) / scale.columns
  const step = STEPS.find((one) => one / perColumn >= labelOf(0, one).length + 3) ?? STEPS.at(-1)!
  let line = ''
  for (let at = Math.ceil(scale.from / step) * step; at < scale.to; at += step) {
    const column = columnOf(scale, at)
    const label = `|${labelOf(at, step)}`
    if (column < line.length || column + label.length > scale.columns) continue
    line = line.padEnd(column) + label
  }
  return line
}

function labelOf(at: number, step: number): string {
  const text = new Date(at).toISOString()
  if (step < 1_000) return text.slice(11, 23)
  if (step < 60_000) return text.slice(11, 19)
  if (step < 86_400_000) return text.slice(11, 16)
  return text.slice(0, 10)
}
