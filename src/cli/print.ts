/** What is printed: tables for people, the API's JSON for programs. */
import type { DescEnum, DescField, DescMessage, Message, MessageShape } from '@bufbuild/protobuf'
import { type Duration, durationMs, type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt'
import { Option } from 'commander'

/** As the API answers: fields without content are there. */
export const JSON_ANSWERS = { alwaysEmitImplicit: true } as const

/** `wide`: of each thing all that the API says. */
export const FORMATS = ['json', 'yaml', 'wide'] as const
export type Format = (typeof FORMATS)[number]

export const outputOption = () =>
  new Option('-o, --output <format>', 'json, yaml: what the API answers; wide: every field').choices(FORMATS)

/** For programs, if that was asked for, else for people. */
export async function print(format: Format | undefined, value: unknown, people: () => string): Promise<void> {
  if (format === 'yaml') process.stdout.write((await import('yaml')).stringify(value))
  else console.log(format === 'json' ? JSON.stringify(value, null, 2) : people())
}

/** Columns as wide as their widest cell; those without any content are left out. */
export function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const shown = titles.flatMap((_, at) =>
    rows.length === 0 || rows.some((row) => row[at] !== '') ? [at] : [],
  )
  const cells = [titles, ...rows].map((row) => shown.map((at) => row[at] ?? ''))
  // Of more rows than a call may have arguments.
  const widths = shown.map((_, at) => cells.reduce((most, row) => Math.max(most, row[at]!.length), 0))
  return cells
    .map((row) => row.map((cell, at) => (at === row.length - 1 ? cell : cell.padEnd(widths[at]!))).join('  '))
    .map((line) => line.trimEnd())
    .join('\n')
}

type Cell = string | number | boolean | bigint | null | undefined | readonly string[]

/** A table of things with a column for each of their fields; where there are none, that: `no tokens`. */
export function tableOf(none: string, things: readonly Readonly<Record<string, Cell>>[]): string {
  const names = [...new Set(things.flatMap((thing) => Object.keys(thing)))]
  const rows = things.map((thing) => names.map((name) => String(thing[name] ?? '')))
  return rows.length === 0
    ? none
    : table(
        names.map((name) => titleOf(name).toUpperCase()),
        rows,
      )
}

/** One thing, a line for each field; fields without content are left out. */
export function sheet(fields: Readonly<Record<string, Cell>>): string {
  const shown = Object.entries(fields).flatMap(([name, cell]) => {
    const words = String(cell ?? '')
    return words === '' ? [] : [[titleOf(name), words] as const]
  })
  const width = Math.max(...shown.map(([title]) => title.length))
  return shown.map(([title, words]) => `${title.padEnd(width)}  ${words}`).join('\n')
}

/**
 * A message as a sheet, by its descriptor: its fields and those of the messages in it. `own` are other words for a field,
 * undefined for none, and under a name that is no field a line of its own at the end.
 */
export function sheetOf<D extends DescMessage>(
  desc: D,
  message: MessageShape<D> | undefined,
  own: Readonly<Record<string, string | undefined>> = {},
): string {
  return message === undefined ? '' : sheet({ ...rowsOf(desc, message, own), ...own })
}

/** Messages as a table with a column for each field, by their descriptor. */
export function wideTable(desc: DescMessage, messages: readonly Message[]): string {
  const rows = messages.map((message) => rowsOf(desc, message, {}))
  return tableOf('nothing', rows)
}

/** By the names of its fields and of those in its messages; what has other words keeps its place. */
function rowsOf(desc: DescMessage, message: Message, own: object): Readonly<Record<string, string>> {
  const rows = desc.fields.map((field): Readonly<Record<string, string>> => {
    const { localName: name } = field
    const value = (message as unknown as Readonly<Record<string, unknown>>)[name]
    if (value === undefined || name in own) return { [name]: '' }
    const isOurs = field.fieldKind === 'message' && !field.message.typeName.startsWith('google.')
    return isOurs ? rowsOf(field.message, value as Message, own) : { [name]: wordsOf(field, value as never) }
  })
  return Object.assign({}, ...rows)
}

/** `confirmWithin` → `confirm within` */
function titleOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
}

export function wordsOf(field: DescField, value: never): string {
  switch (field.fieldKind) {
    case 'enum':
      return value === 0 ? '' : nameOf(field.enum, value)
    case 'map':
      return labels(value)
    case 'list':
      return field.listKind === 'scalar' ? (value as readonly unknown[]).join(', ') : ''
    case 'message':
      if (field.message.name === 'Timestamp') return time(value)
      return field.message.name === 'Duration' ? span(value) : JSON.stringify(value)
    default:
      if (typeof value === 'boolean') return value ? 'yes' : ''
      return value === 0n ? '' : String(value)
  }
}

/** By the names of messages in each other: `owner.node`. */
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
  return at === undefined ? '' : iso(timestampDate(at).getTime())
}

function iso(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')
}

export function span(duration: Duration | undefined): string {
  return duration === undefined ? '' : milliseconds(durationMs(duration))
}

/** `90` s is `1m30s`; below a second `250ms`. */
export function milliseconds(ms: number): string {
  if (ms < 1_000) return `${ms}ms`
  const seconds = Math.round(ms / 1_000)
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ] as const
  return parts.flatMap(([count, unit]) => (count === 0 ? [] : [`${count}${unit}`])).join('')
}

export function labels(map: Readonly<Record<string, string>> = {}): string {
  return Object.entries(map)
    .map(([key, value]) => `${key}=${value}`)
    .join(',')
}

/** What people see of a line: as wide as the terminal, or as is read well where there is none. */
export function lineWidth(): number {
  return process.stdout.columns ?? 100
}

/** Lines of at most so many characters, broken between words; a longer word stays whole. */
export function wrapped(text: string, width: number): readonly string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const last = lines.at(-1)
    if (last === undefined || last.length + 1 + word.length > width) lines.push(word)
    else lines[lines.length - 1] = `${last} ${word}`
  }
  return lines
}

/** As a table; the last column is broken where the line ends. */
export function prose(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  width: number,
): string {
  const before = table(
    titles.slice(0, -1),
    rows.map((row) => row.slice(0, -1)),
  ).split('\n')
  const indent = Math.max(...before.map((line) => line.length)) + 2
  return [titles, ...rows]
    .flatMap((row, at) => {
      const [first = '', ...others] = wrapped(row.at(-1)!, Math.max(40, width - indent))
      return [`${before[at]!.padEnd(indent)}${first}`, ...others.map((one) => ' '.repeat(indent) + one)]
    })
    .map((line) => line.trimEnd())
    .join('\n')
}
