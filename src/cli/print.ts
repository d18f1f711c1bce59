/** Output: tables for people, the API's JSON for programs. */
import { styleText } from 'node:util'
import type { DescEnum, DescField, DescMessage, Message } from '@bufbuild/protobuf'
import { durationMs, type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt'
import { Help, Option } from 'commander'
import { UsageError } from './exit.ts'

/** As the API answers: fields without content are there. */
export const JSON_ANSWERS = { alwaysEmitImplicit: true } as const

/** `wide`: of each thing all that the API says; `name`: what other commands take for it. */
export const FORMATS = ['json', 'yaml', 'wide', 'name'] as const
export type Format = (typeof FORMATS)[number]

export const outputOption = (formats: readonly Format[] = FORMATS) =>
  new Option(
    '-o, --output <format>',
    'json, yaml: the answer of the API; wide: every field; name: only names',
  ).choices(formats)

/** How a list is shown. */
export type Look = {
  /** Title of a column, in any case; with `-` before it the greatest first. */
  readonly sort?: string
  readonly headers?: boolean
  /** A column for each field. */
  readonly isWide?: boolean
  /** Ages are those of this time. Default: now. */
  readonly at?: Timestamp | undefined
}

/** By the format, for people without one. */
export async function print(format: Format | undefined, value: unknown, people: () => string): Promise<void> {
  if (format === 'yaml') process.stdout.write((await import('yaml')).stringify(value))
  else console.log(format === 'json' ? JSON.stringify(value, null, 2) : coloured(people()))
}

const COLOURS = {
  green: /\b(?:ACTIVE|READY|ENABLED|GOOD)\b/g,
  yellow: /\b(?:RESERVED|RECOVERING|REGISTERED|PARTIAL|COLD)\b/g,
  red: /\b(?:QUARANTINED|SILENT)\b/g,
} as const

/** On a terminal, unless NO_COLOR says otherwise; titles of columns are as they are. */
function coloured(text: string): string {
  const lines = text.split('\n').map((line) => {
    if (/^[A-Z ]+$/.test(line)) return line
    return Object.entries(COLOURS).reduce(
      (all, [colour, words]) => all.replace(words, (word) => styleText(colour as 'red', word)),
      line,
    )
  })
  return lines.join('\n')
}

type Rows = readonly (readonly string[])[]

/** Columns as wide as their widest cell; those without any content are left out. */
export function table(titles: readonly string[], unsorted: Rows, look: Look = {}): string {
  const rows = sorted(titles, unsorted, look.sort)
  const columns = titles.flatMap((title, at) => {
    if (rows.length > 0 && rows.every((row) => row[at] === '')) return []
    const cells = [title, ...rows.map((row) => row[at]!)]
    const width = widest(cells)
    return [cells.map((cell) => cell.padEnd(width))]
  })
  const lines = [titles, ...rows].map((_, at) =>
    columns
      .map((cells) => cells[at])
      .join('  ')
      .trimEnd(),
  )
  return lines.slice(look.headers === false ? 1 : 0).join('\n')
}

const WORDS = new Intl.Collator('en', { numeric: true })

function sorted(titles: readonly string[], rows: Rows, sort: string | undefined): Rows {
  if (sort === undefined) return rows
  const wanted = sort.replace(/^-/, '').replaceAll('_', ' ').toUpperCase()
  const at = titles.indexOf(wanted)
  if (at < 0)
    throw new UsageError(`There is no column ${wanted} to sort by: name one of ${titles.join(', ')}.`)
  const order = rows.toSorted(({ [at]: one = '' }, { [at]: other = '' }) => {
    const difference = weight(one) - weight(other)
    return Number.isFinite(difference) && difference !== 0 ? difference : WORDS.compare(one, other)
  })
  return sort.startsWith('-') ? order.toReversed() : order
}

/** Of an age in ms, of a large size in addresses; NaN: a text, or a number as Intl compares it. */
function weight(cell: string): number {
  const [, count, unit] = /^(\d+)([dhms])$/.exec(cell) ?? []
  if (unit !== undefined) return Number(count) * Object.fromEntries(AGES)[unit]!
  const [, bits] = /^2\^(\d+)/.exec(cell) ?? []
  return bits === undefined ? Number(/^\d+$/.exec(cell)?.[0] ?? Number.NaN) : 2 ** Number(bits)
}

/** Of more texts than a call may have arguments. */
function widest(texts: readonly string[]): number {
  return texts.reduce((most, text) => Math.max(most, text.length), 0)
}

type Cell = string | number | boolean | bigint | null | undefined | readonly string[]

/** A table with a column for each field; `none` if there are no rows: `no tokens`. */
export function tableOf(
  none: string,
  things: readonly Readonly<Record<string, Cell>>[],
  look: Look = {},
): string {
  if (things.length === 0) return none
  const names = [...new Set(things.flatMap((thing) => Object.keys(thing)))]
  const titles = names.map((name) => titleOf(name).toUpperCase())
  const rows = things.map((thing) => names.map((name) => String(thing[name] ?? '')))
  return table(titles, rows, look)
}

/** One thing, a line for each field; fields without content are left out. */
export function sheet(fields: Readonly<Record<string, Cell>>): string {
  const lines = Object.entries(fields)
    .map(([name, cell]) => [titleOf(name), String(cell ?? '')] as const)
    .filter(([, text]) => text !== '')
  const width = widest(lines.map(([title]) => title))
  return lines.map(([title, text]) => `${title.padEnd(width)}  ${text}`).join('\n')
}

/** The fields of a message and of its messages, by name. Fields in `own` stay empty: their text comes from there. */
export function rowOf(
  desc: DescMessage,
  message: Message,
  own: object = {},
): Readonly<Record<string, string>> {
  const cells = desc.fields.map((field): Readonly<Record<string, string>> => {
    const { localName: name } = field
    const value = (message as unknown as Readonly<Record<string, unknown>>)[name]
    if (value === undefined || name in own) return { [name]: '' }
    const isOurs = field.fieldKind === 'message' && !field.message.typeName.startsWith('google.')
    return isOurs ? rowOf(field.message, value as Message, own) : { [name]: textOf(field, value as never) }
  })
  return Object.assign({}, ...cells)
}

/** `confirmWithin` → `confirm within` */
function titleOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
}

export function textOf(field: DescField, value: never): string {
  switch (field.fieldKind) {
    case 'enum':
      return value === 0 ? '' : nameOf(field.enum, value)
    case 'map':
      return Object.entries<string>(value)
        .map(([key, text]) => `${key}=${text}`)
        .join(',')
    case 'list':
      return field.listKind === 'scalar' ? (value as readonly unknown[]).join(', ') : ''
    case 'message':
      if (field.message.name === 'Timestamp') return time(value)
      return field.message.name === 'Duration' ? milliseconds(durationMs(value)) : JSON.stringify(value)
    default:
      if (typeof value === 'boolean') return value ? 'yes' : ''
      return value === 0n ? '' : String(value)
  }
}

/** In decimal up to 2^32; beyond, by the next power of two: `2^64-3`. */
export function large(decimal: string): string {
  const size = BigInt(decimal)
  const bits = (size - 1n).toString(2).length
  const missing = 2n ** BigInt(bits) - size
  if (bits <= 32 || missing > 2n ** 32n) return decimal
  return `2^${bits}${missing === 0n ? '' : `-${missing}`}`
}

/** `path`: `owner.node` */
export function fieldAt(desc: DescMessage, path: string): DescField {
  const [name, ...rest] = path.split('.')
  const found = desc.fields.find(({ localName }) => localName === name)
  if (found === undefined) throw new Error(`${desc.name} has no field ${name}`)
  return rest.length === 0 ? found : fieldAt(found.message!, rest.join('.'))
}

export function nameOf(desc: DescEnum, value: number): string {
  return desc.value[value]?.name ?? String(value)
}

/** UTC, to the second. */
export function time(at: Timestamp | undefined): string {
  if (at === undefined) return ''
  const text = timestampDate(at).toISOString()
  return text.replace(/\.\d+Z$/, 'Z')
}

const NARROW = new Intl.DurationFormat('en', { style: 'narrow' })

/** `90` s is `1m30s`; below a second `250ms`. */
export function milliseconds(ms: number): string {
  const smallestUnit = ms < 1_000 ? 'milliseconds' : 'seconds'
  const duration = Temporal.Duration.from({ milliseconds: Math.round(ms) })
  const text = NARROW.format(duration.round({ largestUnit: 'days', smallestUnit }))
  return text.replaceAll(' ', '') || '0ms'
}

const AGES = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const

/** In the greatest unit of which there are two: `90s`, `5m`, `47h`. */
export function age(ms: number): string {
  const [unit, size] = AGES.find(([, one]) => ms >= 2 * one) ?? AGES[3]
  return `${Math.floor(Math.max(ms, 0) / size)}${unit}`
}

/** On a terminal: how far, how fast, and how long still if `all` is known. Over itself, and gone at the end: all are done, or `what` is empty. */
export function progressOf(): (what: string, done?: number, all?: number) => void {
  const begun = performance.now()
  return (what, done = 0, all = 0) => {
    if (!process.stderr.isTTY) return
    const perMs = done / (performance.now() - begun)
    const rate = perMs < 0.001 ? '' : `, ${Math.round(perMs * 1_000)}/s`
    const counted = `${what} ${done}${all > 0 ? ` of ${all}` : ''}${rate}`
    const left = all > done && perMs > 0 ? `, ${age((all - done) / perMs)} left` : ''
    const isOver = all > 0 && done >= all
    process.stderr.write(`\r\x1b[K${isOver ? '' : done > 0 ? counted + left : what}`)
  }
}

const terminalWidth = () => process.stdout.columns ?? 100

/** Broken between words into lines of at most `width` characters. */
export function wrapped(text: string, width = terminalWidth()): string {
  return new Help().boxWrap(text, width)
}

/** As a table; the last column is broken where the line ends. */
export function prose(titles: readonly string[], rows: Rows, width = terminalWidth()): string {
  const [head, ...others] = [titles, ...rows].map((row) => row.slice(0, -1))
  const before = table(head!, others).split('\n')
  const indent = widest(before) + 2
  const lines = [titles, ...rows].map((row, at) => {
    const text = wrapped(row.at(-1)!, Math.max(40, width - indent))
    return before[at]!.padEnd(indent) + text.replaceAll('\n', `\n${' '.repeat(indent)}`)
  })
  return lines.join('\n')
}
