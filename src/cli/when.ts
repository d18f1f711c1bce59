/** Points of time and of the log, as people type them. */
import { durationMs, type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { InvalidArgumentError } from 'commander'
import { duration } from './options.ts'

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
  const isDay = !Number.isNaN(ms) && new Date(`${date}T00:00Z`).toISOString().startsWith(date!)
  if (!isDay) {
    throw new InvalidArgumentError(
      'It must be a time (2026-11-20T03:12:00Z, "2026-11-20 03:12" in UTC, -15m) or a number of the log.',
    )
  }
  return { ms }
}

/** For commander, which gives a second argument of its own. */
export function whenOption(text: string): When {
  return when(text)
}

/** Of a method that is asked about one point. */
export function momentOf(asked: When): { seq: bigint } | { time: Timestamp } {
  return 'seq' in asked ? { seq: asked.seq } : { time: timestampFromMs(asked.ms) }
}

/** Of a method that is asked about a stretch; both ends belong to it. */
export function rangeOf({ from, to }: { readonly from?: When | undefined; readonly to?: When | undefined }): {
  afterSeq?: bigint
  beforeSeq?: bigint
  from?: Timestamp
  to?: Timestamp
} {
  return {
    ...(from === undefined
      ? {}
      : 'seq' in from
        ? { afterSeq: before(from.seq) }
        : { from: timestampFromMs(from.ms) }),
    ...(to === undefined ? {} : 'seq' in to ? { beforeSeq: to.seq + 1n } : { to: timestampFromMs(to.ms) }),
  }
}

function before(seq: bigint): bigint {
  return seq === 0n ? 0n : seq - 1n
}
