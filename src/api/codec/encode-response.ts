/**
 * From a view to the JSON of a message, by the message's descriptor: each field that the message has; what a view has besides is
 * left out. Times are milliseconds since 1970, durations milliseconds under a name that ends in `Ms`, numbers of the log are
 * numbers, enums are names, bytes are base64. Null and undefined are absent.
 *
 * Most callers get the JSON as it is, so that no message is made for them.
 */
import { type DescField, type DescMessage, type Message, ScalarType } from '@bufbuild/protobuf'
import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt'

export type View<T> = T extends string
  ? string | bigint
  : T extends Uint8Array
    ? string
    : T extends bigint | Timestamp | Duration
      ? number
      : T extends number
        ? number extends T
          ? number
          : string
        : T extends readonly (infer I)[]
          ? readonly View<I>[]
          : T extends Message
            ? {
                readonly [K in keyof T as PropertyName<K, T[K]>]-?:
                  | View<Exclude<T[K], undefined>>
                  | null
                  | undefined
              }
            : T extends boolean
              ? boolean
              : object

/** Fields of a `oneof` have their own names, unchecked. */
export type PropertyName<K, V> = K extends '$typeName' | '$unknown'
  ? never
  : [V] extends [{ readonly case: unknown }]
    ? never
    : [V] extends [Duration | undefined]
      ? `${K & string}Ms`
      : K

/** The property of a view, or of a decoded request, that has a field. */
export function propertyName({ localName, message }: DescField): string {
  return message?.typeName === 'google.protobuf.Duration' ? `${localName}Ms` : localName
}

type Encode = (value: never) => unknown

export function encoderOf(desc: DescMessage): (view: object) => object {
  const fields = desc.fields.map((field) => {
    const { jsonName } = field
    return { from: propertyName(field), jsonName, encode: fieldEncoder(field), absent: zeroOf(field) }
  })
  return (view) => {
    const json: Record<string, unknown> = {}
    for (const { from, jsonName, encode, absent } of fields) {
      const value = (view as Readonly<Record<string, unknown>>)[from]
      const one = value === null || value === undefined ? absent : encode ? encode(value as never) : value
      if (one !== undefined) json[jsonName] = one
    }
    return json
  }
}

/** Undefined: the value is its JSON. */
function fieldEncoder({ fieldKind, message, scalar }: DescField): Encode | undefined {
  if (fieldKind === 'map') return undefined
  const isText = scalar === ScalarType.UINT64 || scalar === ScalarType.STRING
  const encode = message === undefined ? (isText ? String : undefined) : messageEncoder(message)
  if (encode === undefined || fieldKind !== 'list') return encode
  return (items: readonly never[]) => items.map(encode as (item: never) => unknown)
}

function messageEncoder(desc: DescMessage): Encode | undefined {
  switch (desc.typeName) {
    case 'google.protobuf.Timestamp':
      return timeText
    case 'google.protobuf.Duration':
      return durationText
    case 'google.protobuf.Struct':
      return undefined
    default:
      return encoderOf(desc)
  }
}

/** The JSON of an absent value; undefined: none. */
export function zeroOf({ fieldKind, enum: values, scalar }: DescField): unknown {
  if (fieldKind === 'map') return {}
  if (fieldKind === 'list') return []
  return values === undefined ? ZEROS.get(scalar) : values.values[0]!.name
}

const ZEROS: ReadonlyMap<unknown, unknown> = new Map<unknown, unknown>([
  [ScalarType.STRING, ''],
  [ScalarType.BYTES, ''],
  [ScalarType.BOOL, false],
  [ScalarType.UINT32, 0],
  [ScalarType.UINT64, '0'],
])

let last = { second: 0, text: '1970-01-01T00:00:00' }

/** `2030-01-31T12:00:00.123Z`. Most times are of the second of the time before. */
function timeText(ms: number): string {
  const second = Math.floor(ms / 1_000)
  if (second !== last.second) last = { second, text: new Date(second * 1_000).toISOString().slice(0, 19) }
  const left = ms - second * 1_000
  return left === 0 ? `${last.text}Z` : `${last.text}.${String(left).padStart(3, '0')}Z`
}

/** `90s`, `0.500s` */
function durationText(ms: number): string {
  return `${ms % 1_000 === 0 ? ms / 1_000 : (ms / 1_000).toFixed(3)}s`
}
