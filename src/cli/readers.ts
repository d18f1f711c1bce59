/** Readers of arguments and options. They refuse malformed text; the server checks the meaning. */
import { type DescEnum, type DescField, ScalarType } from '@bufbuild/protobuf'
import {
  durationFromMs,
  durationMs,
  type Timestamp,
  timestampFromMs,
  timestampNow,
} from '@bufbuild/protobuf/wkt'
import { InvalidArgumentError } from 'commander'

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** `30s`, `2m`, `1h30m`, `500ms`, `7d`. */
export function duration(text: string) {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)]
  if (parts.length === 0 || parts.map((part) => part[0]).join('') !== text)
    throw new InvalidArgumentError('A duration is a number with ms, s, m, h or d: 30s, 2m, 1h30m.')
  const ms = parts.reduce((sum, part) => sum + Number(part[1]) * UNITS[part[2] as keyof typeof UNITS], 0)
  return durationFromMs(Math.round(ms))
}

function digits(text: string, most: number): string {
  if (/^\d+$/.test(text) && text.length <= most) return text
  throw new InvalidArgumentError('It must be a whole number.')
}

/** A 64-bit number of the ledger: a version, a position. */
export const seq = (text: string) => BigInt(digits(text, 19))
export const whole = (text: string) => Number(digits(text, 9))

/** For options that may be repeated, or hold several values with commas between. */
export function list(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, ...text.split(',').map((part) => part.trim())]
}

/** For options that may be repeated and whose values may hold commas. */
export function repeated(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}

function label(text: string, before: object = {}): object {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('A label is written key=value.')
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) }
}

function jsonObject(text: string): object {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {}
  throw new InvalidArgumentError('It must be a JSON object.')
}

/** 0 is "unspecified", which no request may have. */
const known = ({ values }: DescEnum) => values.filter(({ number }) => number !== 0)

/** As people write the values of a field; undefined: they are not of an enum. */
export function choicesOf({ enum: desc }: DescField): string[] | undefined {
  return desc && known(desc).map(({ name }) => name.toLowerCase().replaceAll('_', '-'))
}

/** Values of an enum by name, in any case; `-` stands for `_`. */
function names(desc: DescEnum): (text: string, before?: readonly number[]) => readonly number[] {
  return (text, before = []) => [
    ...before,
    ...list(text).map((part) => {
      const found = known(desc).find(({ name }) => name === part.toUpperCase().replaceAll('-', '_'))
      if (found !== undefined) return found.number
      throw new InvalidArgumentError(
        `It must be one of ${known(desc)
          .map(({ name }) => name)
          .join(', ')}.`,
      )
    }),
  ]
}

/** How a field of a request is read. Undefined: as text, or it is a flag. */
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

export type When = { readonly seq: bigint } | { readonly time: Timestamp }

export const WHEN_HELP = `
Times are RFC 3339, or UTC as in "2026-11-20 03:12"; -15m is a quarter of an hour ago; a plain number is one of the log.`

const TIME = /^(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?) ?(Z|UTC|[+-]\d\d:\d\d)?$/i

export function when(text: string): When {
  if (/^\d{1,16}$/.test(text)) return { seq: BigInt(text) }
  if (text === 'now') return { time: timestampNow() }
  if (/^-\d/.test(text)) return { time: timestampFromMs(Date.now() - durationMs(duration(text.slice(1)))) }
  // PlainDateTime takes more, and drops a zone in another spelling.
  const [, local = '', zone = 'Z'] = TIME.exec(text) ?? []
  try {
    const offset = /^[+-]/.test(zone) ? zone : 'UTC'
    const { epochMilliseconds } = Temporal.PlainDateTime.from(local).toZonedDateTime(offset)
    return { time: timestampFromMs(epochMilliseconds) }
  } catch {
    throw new InvalidArgumentError(
      'It must be a time (2026-11-20T03:12:00Z, "2026-11-20 03:12" in UTC, -15m) or a number of the log.',
    )
  }
}

/** The ends of a range belong to it. */
export function fromOf(point: When): { afterSeq: bigint } | { from: Timestamp } {
  if ('time' in point) return { from: point.time }
  return { afterSeq: point.seq === 0n ? 0n : point.seq - 1n }
}

export function toOf(point: When): { beforeSeq: bigint } | { to: Timestamp } {
  return 'time' in point ? { to: point.time } : { beforeSeq: point.seq + 1n }
}
