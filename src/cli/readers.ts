/** How the words of a command line are read. What is malformed is refused here; what it means is the server's business. */
import { type DescEnum, type DescField, ScalarType } from '@bufbuild/protobuf'
import {
  type Duration,
  durationFromMs,
  durationMs,
  type Timestamp,
  timestampFromMs,
} from '@bufbuild/protobuf/wkt'
import { InvalidArgumentError } from 'commander'

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** `30s`, `2m`, `1h30m`, `500ms`, `7d`. */
export function duration(text: string): Duration {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)]
  if (parts.length === 0 || parts.map((part) => part[0]).join('') !== text)
    throw new InvalidArgumentError('A duration is a number with ms, s, m, h or d: 30s, 2m, 1h30m.')
  const ms = parts.reduce((sum, part) => sum + Number(part[1]) * UNITS[part[2] as keyof typeof UNITS], 0)
  return durationFromMs(Math.round(ms))
}

/** A 64-bit number of the ledger: a version, a position. */
export function seq(text: string): bigint {
  if (!/^\d{1,19}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.')
  return BigInt(text)
}

export function whole(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.')
  return Number(text)
}

/** For options that may be repeated, or hold several values with commas between. */
export function list(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, ...text.split(',').map((part) => part.trim())]
}

/** For options that may be repeated and whose values may hold commas. */
export function repeated(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}

type LabelMap = Readonly<Record<string, string>>

function label(text: string, before: LabelMap = {}): LabelMap {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('A label is written key=value.')
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) }
}

function jsonObject(text: string): object {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Said below.
  }
  throw new InvalidArgumentError('It must be a JSON object.')
}

/** Values of an enum by their names, in any case; `-` stands for `_`. 0 is "unspecified": no name of it belongs in a request. */
function names({ values }: DescEnum): (text: string, before?: readonly number[]) => readonly number[] {
  const known = values.filter(({ number }) => number !== 0)
  return (text, before = []) => [
    ...before,
    ...list(text).map((part) => {
      const found = known.find(({ name }) => name === part.toUpperCase().replaceAll('-', '_'))
      if (found !== undefined) return found.number
      throw new InvalidArgumentError(`It must be one of ${known.map(({ name }) => name).join(', ')}.`)
    }),
  ]
}

/** How a field of a request is read. Undefined: as it is written, or it is a flag. */
export function readerOf(field: DescField): ((text: string, before?: never) => unknown) | undefined {
  switch (field.fieldKind) {
    case 'enum':
      return (text) => names(field.enum)(text)[0]
    case 'map':
      return label
    case 'message':
      return field.message.name === 'Duration' ? duration : jsonObject
    case 'list':
      if (field.listKind === 'enum') return names(field.enum)
      return field.scalar === ScalarType.UINT32 ? (text) => list(text).map(whole) : list
    case 'scalar':
      if (field.scalar === ScalarType.UINT64) return seq
      return field.scalar === ScalarType.UINT32 ? whole : undefined
  }
}

/** `default/42` names a lease; an address has no slash. */
export function leaseOrAddress(text: string): { leaseId: string } | { address: string } {
  return text.includes('/') ? { leaseId: text } : { address: text }
}

// Points of time and of the log.

/** A number of the log, or milliseconds since 1970. */
export type When = { readonly seq: bigint } | { readonly ms: number }

export const WHEN_HELP = `
Times are RFC 3339, or UTC as in "2026-11-20 03:12"; -15m is a quarter of an hour ago; a plain number is one of the log.`

const TIME = /^(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?)? ?([Zz]|[+-]\d\d:\d\d|UTC)?$/

export function when(text: string): When {
  const asked = text.trim()
  if (/^\d{1,16}$/.test(asked)) return { seq: BigInt(asked) }
  if (asked === 'now') return { ms: Date.now() }
  if (/^-\d/.test(asked)) return { ms: Date.now() - durationMs(duration(asked.slice(1))) }
  const [found, date, minute = '00:00', second = '', zone = 'Z'] = TIME.exec(asked) ?? []
  const offset = /^[+-]/.test(zone) ? zone : 'Z'
  const ms = found === undefined ? Number.NaN : Date.parse(`${date}T${minute}${second}${offset}`)
  // 30 February is parsed, as a day of March.
  if (Number.isNaN(ms) || !new Date(`${date}T00:00Z`).toISOString().startsWith(date!))
    throw new InvalidArgumentError(
      'It must be a time (2026-11-20T03:12:00Z, "2026-11-20 03:12" in UTC, -15m) or a number of the log.',
    )
  return { ms }
}

/** Of a method that is asked about one point. */
export function momentOf(asked: When): { seq: bigint } | { time: Timestamp } {
  return 'seq' in asked ? asked : { time: timestampFromMs(asked.ms) }
}

/** Of a method that is asked about a stretch; both ends belong to it. */
export function fromOf(asked: When): { afterSeq: bigint } | { from: Timestamp } {
  if ('seq' in asked) return { afterSeq: asked.seq === 0n ? 0n : asked.seq - 1n }
  return { from: timestampFromMs(asked.ms) }
}

export function toOf(asked: When): { beforeSeq: bigint } | { to: Timestamp } {
  return 'seq' in asked ? { beforeSeq: asked.seq + 1n } : { to: timestampFromMs(asked.ms) }
}
