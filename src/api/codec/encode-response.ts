/**
 * From what the house knows to the JSON of a message, by the message's descriptor: every field that it has, and of a value
 * that says more, nothing else. Times are milliseconds since 1970, durations milliseconds under a name that ends in `Ms`,
 * numbers of the log are numbers, enums are names, bytes are base64. Null and undefined are absent.
 *
 * Most callers get the JSON as it is, so that no message is made for them.
 */
import { type DescField, type DescMessage, type Message, ScalarType } from '@bufbuild/protobuf'
import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt'

/** What a handler says of a message, every field mentioned. */
export type View<T> = T extends string
  ? string | bigint
  : T extends Uint8Array
    ? string
    : T extends bigint | Timestamp
      ? number
      : T extends number
        ? ShownNumber<T>
        : T extends readonly (infer I)[]
          ? readonly View<I>[]
          : T extends Message
            ? ShownMessage<T>
            : T extends boolean
              ? boolean
              : object

type ShownNumber<T extends number> = number extends T ? number : string
type ShownMessage<T> = {
  readonly [K in keyof T as PropertyName<K, T[K]>]-?: ShownField<Exclude<T[K], undefined>> | null | undefined
}
/** Fields of a `oneof` are said by their own names, unchecked. */
export type PropertyName<K, V> = K extends '$typeName' | '$unknown'
  ? never
  : [V] extends [{ readonly case: unknown }]
    ? never
    : [V] extends [Duration | undefined]
      ? `${K & string}Ms`
      : K
type ShownField<V> = V extends Duration ? number : View<V>

type Write = (value: never) => unknown
type Place = {
  readonly from: string
  readonly to: string
  readonly write: Write
  /** What stands for an absent value; undefined: the field is absent. */
  readonly absent: unknown
}

/** Answers a function that writes a value as the message's JSON. */
export function encoderOf(desc: DescMessage): (value: object) => object {
  const places = desc.fields.map(placeOf)
  return (value) => {
    const json: Record<string, unknown> = {}
    for (const { from, to, write, absent } of places) {
      const one = (value as Readonly<Record<string, unknown>>)[from]
      const said = one === null || one === undefined ? absent : write(one as never)
      if (said !== undefined) json[to] = said
    }
    return json
  }
}

function placeOf(field: DescField): Place {
  const { jsonName: to, fieldKind, message, scalar } = field
  const one = message === undefined ? scalarOf(scalar) : messageOf(message)
  const list = (items: readonly never[]) => items.map((item) => one(item))
  const write = fieldKind === 'list' ? list : fieldKind === 'map' ? asItIs : one
  return { from: propertyName(field), to, write, absent: zeroOf(field) }
}

/** What stands in JSON for an absent value; undefined: nothing. */
export function zeroOf(field: DescField): unknown {
  switch (field.fieldKind) {
    case 'map':
      return {}
    case 'list':
      return []
    case 'message':
      return undefined
    case 'enum':
      return field.enum.values[0]!.name
    case 'scalar':
      return ZEROS.get(field.scalar)
  }
}

/** What a field is called here. */
export function propertyName({ localName, message }: DescField): string {
  return message?.typeName === 'google.protobuf.Duration' ? `${localName}Ms` : localName
}

const ZEROS: ReadonlyMap<ScalarType, unknown> = new Map<ScalarType, unknown>([
  [ScalarType.STRING, ''],
  [ScalarType.BYTES, ''],
  [ScalarType.BOOL, false],
  [ScalarType.UINT32, 0],
  [ScalarType.UINT64, '0'],
])

const asItIs = (value: unknown): unknown => value

function scalarOf(scalar: ScalarType | undefined): Write {
  return scalar === ScalarType.UINT64 || scalar === ScalarType.STRING ? String : asItIs
}

function messageOf(desc: DescMessage): Write {
  switch (desc.typeName) {
    case 'google.protobuf.Timestamp':
      return timeText
    case 'google.protobuf.Duration':
      return durationText
    case 'google.protobuf.Struct':
      return asItIs
    default:
      return encoderOf(desc)
  }
}

let last = { second: 0, text: '1970-01-01T00:00:00' }

/** `2030-01-31T12:00:00.123Z`. Most are of the same second as the one before. */
export function timeText(ms: number): string {
  const second = Math.floor(ms / 1_000)
  if (second !== last.second) last = { second, text: new Date(second * 1_000).toISOString().slice(0, 19) }
  const left = ms - second * 1_000
  return left === 0 ? `${last.text}Z` : `${last.text}.${String(left).padStart(3, '0')}Z`
}

/** `90s`, `0.500s` */
export function durationText(ms: number): string {
  return `${ms % 1_000 === 0 ? ms / 1_000 : (ms / 1_000).toFixed(3)}s`
}
