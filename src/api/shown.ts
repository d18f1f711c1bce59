/**
 * From what the house knows to the JSON of a message, by the message's descriptor: every field that it has, and of a value
 * that says more, nothing else. Times are milliseconds since 1970, durations milliseconds under a name that ends in `Ms`,
 * numbers of the log are numbers, enums are names. Null and undefined are absent.
 *
 * Most callers get the JSON as it is, so that no message is made for them.
 */
import { type DescField, type DescMessage, type Message, ScalarType } from '@bufbuild/protobuf'
import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt'
import { durationText, timeText } from './times.ts'

/** What a handler says of a message, every field mentioned. */
export type Shown<T> = T extends string
  ? string | bigint
  : T extends bigint | Timestamp
    ? number
    : T extends number
      ? ShownNumber<T>
      : T extends readonly (infer I)[]
        ? readonly Shown<I>[]
        : T extends Message
          ? ShownMessage<T>
          : T extends boolean
            ? boolean
            : object

type ShownNumber<T extends number> = number extends T ? number : string
type ShownMessage<T> = {
  readonly [K in keyof T as ShownName<K, T[K]>]-?: ShownField<Exclude<T[K], undefined>> | null | undefined
}
/** Fields of a `oneof` are said by their own names, unchecked. */
type ShownName<K, V> = K extends '$typeName' | '$unknown'
  ? never
  : [V] extends [{ readonly case: unknown }]
    ? never
    : [V] extends [Duration | undefined]
      ? `${K & string}Ms`
      : K
type ShownField<V> = V extends Duration ? number : Shown<V>

type Write = (value: never) => unknown
type Place = {
  readonly from: string
  readonly to: string
  readonly write: Write
  /** What stands for an absent value; undefined: the field is absent. */
  readonly absent: unknown
}

/** Answers a function that writes a value as the message's JSON. */
export function writerOf(desc: DescMessage): (value: object) => object {
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
  const { localName: from, jsonName: to } = field
  switch (field.fieldKind) {
    case 'map':
      return { from, to, write: asItIs, absent: {} }
    case 'list': {
      const write = field.message === undefined ? scalarOf(field.scalar) : messageOf(field.message)
      return { from, to, write: (items: readonly never[]) => items.map((item) => write(item)), absent: [] }
    }
    case 'message': {
      const isDuration = field.message.typeName === 'google.protobuf.Duration'
      return { from: isDuration ? `${from}Ms` : from, to, write: messageOf(field.message), absent: undefined }
    }
    case 'enum':
      return { from, to, write: asItIs, absent: field.enum.values[0]!.name }
    case 'scalar':
      return { from, to, write: scalarOf(field.scalar), absent: ZEROS.get(field.scalar) }
  }
}

const ZEROS: ReadonlyMap<ScalarType, unknown> = new Map<ScalarType, unknown>([
  [ScalarType.STRING, ''],
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
      return writerOf(desc)
  }
}
