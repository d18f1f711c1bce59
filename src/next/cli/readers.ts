/** How the words of a command line are read. What is malformed is refused here; what it means is the server's business. */
import { type Duration, durationFromMs, durationMs, type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt'
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

export function wholes(text: string): readonly number[] {
  return list(text).map(whole)
}

export type LabelMap = Readonly<Record<string, string>>

export function label(text: string, before: LabelMap = {}): LabelMap {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('A label is written key=value.')
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) }
}

export function jsonObject(text: string): object {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Said below.
  }
  throw new InvalidArgumentError('It must be a JSON object.')
}

type EnumOf<E> = Exclude<E[keyof E], 0>

/** Values of a protobuf enum by their names, in any case; `-` stands for `_`. */
export function names<const E extends Readonly<Record<string, number>>>(
  known: E,
): (text: string, before?: readonly EnumOf<E>[]) => readonly EnumOf<E>[] {
  // 0 is "unspecified": no name of it belongs in a request.
  const all = Object.keys(known).filter((one) => known[one] !== 0)
  return (text, before = []) => [
    ...before,
    ...list(text).map((part) => {
      const name = part.toUpperCase().replaceAll('-', '_')
      if (!all.includes(name)) throw new InvalidArgumentError(`It must be one of ${all.join(', ')}.`)
      return known[name] as EnumOf<E>
    }),
  ]
}

/** One value of a protobuf enum by its name. */
export function name<const E extends Readonly<Record<string, number>>>(
  known: E,
): (text: string) => EnumOf<E> {
  const read = names(known)
  return (text) => read(text)[0]!
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

export function when(text: string, now: number = Date.now()): When {
  const asked = text.trim()
  if (/^\d{1,16}$/.test(asked)) return { seq: BigInt(asked) }
  if (asked === 'now') return { ms: now }
  if (/^-\d/.test(asked)) return { ms: now - durationMs(duration(asked.slice(1))) }
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

/** For commander, which gives a second argument of its own. */
export function whenOption(text: string): When {
  return when(text)
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
