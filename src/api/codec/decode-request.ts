/**
 * From the JSON of a request to what handlers work with, in one walk by the message's descriptor: every field checked by its type
 * and name, texts canonical. Times are milliseconds since 1970, durations milliseconds under a name that ends in `Ms`, numbers
 * of the log are numbers, enums are names. Absent is undefined, of plain texts the empty one. A message is decoded by its JSON.
 *
 * An error is INVALID_FIELD with the field's path in JSON spelling. Whether a field is required, and what depends on the state of
 * a network, is not checked here.
 */
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  fromJsonString,
  type JsonValue,
  type Message,
  type MessageShape,
  ScalarType,
  toJson,
} from '@bufbuild/protobuf'
import {
  type Duration,
  EmptySchema,
  type FieldMask,
  FeatureSet_FieldPresence as Presence,
  type Timestamp,
} from '@bufbuild/protobuf/wkt'
import type { ConfirmRequest, ReleaseRequest, ReserveRequest } from '../../gen/ipledger/v1/lease_pb.ts'
import { type SnapshotEntry, SnapshotEntrySchema } from '../../gen/ipledger/v1/liveness_pb.ts'
import { type GivenEntry, MOST_ENTRIES } from '../../sources/source.ts'
import { type PropertyName, propertyName, zeroOf } from './encode-response.ts'
import { invalidField, Refused } from './errors.ts'
import * as fields from './fields.ts'

export type Decoded<T> = T extends bigint | Timestamp | Duration
  ? number
  : T extends number
    ? number extends T
      ? number
      : string | undefined
    : T extends readonly (infer I)[]
      ? readonly DecodedItem<I>[]
      : T extends FieldMask
        ? readonly string[]
        : T extends Message
          ? { readonly [K in keyof T as PropertyName<K, T[K]>]: Decoded<Exclude<T[K], undefined>> }
          : T
type DecodedItem<I> = I extends ReserveRequest | ConfirmRequest | ReleaseRequest
  ? Decoded<I> | Refused
  : I extends SnapshotEntry
    ? GivenEntry
    : Decoded<I>

export type Decoder = ReturnType<typeof decoderOf>

export function decoderOf<D extends DescMessage>(desc: D) {
  const fromJson = messageDecoder(desc) as (json: JsonValue) => Decoded<MessageShape<D>>
  const fromMessage = (message: MessageShape<D>) => fromJson(readable('', () => toJson(desc, message)))
  return { fromJson, fromMessage }
}

export function parseJson(body: string): JsonValue {
  let value: JsonValue
  try {
    value = JSON.parse(body)
  } catch (error) {
    throw unreadable('the body is not JSON: ', error)
  }
  // Outside of strings each colon is of a member. JSON.parse keeps the last of two equal keys; protobuf-es says which.
  let colons = 0
  let isInText = false
  for (let i = 0; i < body.length; i += 1) {
    const char = body[i]
    if (char === '"') isInText = !isInText
    else if (char === '\\') i += 1
    else if (char === ':' && !isInText) colons += 1
  }
  if (membersOf(value) < colons)
    readable('', () => fromJsonString(EmptySchema, `{"":${body}}`, { ignoreUnknownFields: true }))
  return value
}

export const NO_MESSAGE = 'the body is not a message of this method: '

/** @throws Refused INVALID_FIELD that says what `read` threw */
export function readable<T>(prefix: string, read: () => T, path = ''): T {
  try {
    return read()
  } catch (error) {
    throw error instanceof Refused ? error : unreadable(prefix, error, path)
  }
}

function unreadable(prefix: string, error: unknown, path = ''): Refused {
  const message = error instanceof Error ? error.message : String(error)
  return invalidField(path, prefix + message.replace(/^cannot decode .{1,80} from JSON: /, ''))
}

function membersOf(json: JsonValue, depth = 0): number {
  if (json === null || typeof json !== 'object') return 0
  if (depth === 100) throw invalidField('', 'the body is nested more than 100 deep')
  let count = 0
  for (const value of Object.values(json)) count += membersOf(value as JsonValue, depth + 1)
  return Array.isArray(json) ? count : count + Object.keys(json).length
}

type Decode = (json: never, path: string) => unknown

function messageDecoder(desc: DescMessage): Decode {
  const members = desc.fields.map((field) => {
    const { name, jsonName, presence } = field
    const decode = fieldDecoder(field)
    // Shared by all requests.
    const absent =
      presence === Presence.IMPLICIT ? Object.freeze(decode(zeroOf(field) as never, '')) : undefined
    return { name, jsonName, to: propertyName(field), decode, absent }
  })
  return (json: JsonValue, path = '') => {
    if (!isObject(json)) throw new WrongType(path, 'must be a JSON object')
    const prefix = path === '' ? '' : `${path}.`
    const decoded: Record<string, unknown> = {}
    let count = 0
    for (const { name, jsonName, to, decode, absent } of members) {
      const value = json[jsonName] === undefined ? json[name] : json[jsonName]
      if (value !== undefined) count += 1
      const one = value === undefined || value === null ? absent : decode(value as never, prefix + jsonName)
      if (one !== undefined) decoded[to] = one
    }
    if (count < Object.keys(json).length) throw wrongKey(desc, json, prefix)
    return decoded
  }
}

function fieldDecoder(field: DescField): Decode {
  if (field.fieldKind === 'map') return labelsOf
  return field.fieldKind === 'list' ? listDecoder(field) : valueDecoder(field)
}

function labelsOf(json: unknown, path: string) {
  if (!isObject(json)) throw new WrongType(path, 'must be a JSON object')
  for (const key in json)
    if (!isText(key) || !isText(json[key]))
      throw wrongType(`${path}[${JSON.stringify(short(key))}]`, 'a string', json[key])
  return fields.labels(json as Readonly<Record<string, string>>, path)
}

function listDecoder(field: DescField): Decode {
  const most = named(MOST, field) ?? field.enum?.values.length
  const { localName } = field
  const one = localName === 'entries' ? checkEntry : valueDecoder(field)
  const decode = localName === 'requests' ? itemDecoder(one) : one
  return (json: readonly never[], path) => {
    if (!Array.isArray(json)) throw new WrongType(path, 'must be a JSON array')
    if (most !== undefined) fields.checkCount(json.length, most, path)
    const decoded: unknown[] = []
    for (const item of json) decoded.push(decode(item as never, `${path}[${decoded.length}]`))
    return decoded
  }
}

/** Of a batch: a value that is refused refuses the item, a wrong type all. */
function itemDecoder(decode: Decode): Decode {
  return (json, path) => {
    try {
      return decode(json, '')
    } catch (error) {
      return error instanceof Refused && error.constructor !== WrongType ? error : decode(json, path)
    }
  }
}

const ENTRY_FIELDS: ReadonlySet<string> = new Set(SnapshotEntrySchema.fields.map(({ jsonName }) => jsonName))

/** As it was parsed: the intake checks the texts, and a copy of each would cost more than the parsing. */
export function checkEntry(json: unknown, path: string): GivenEntry {
  if (!isObject(json)) throw new WrongType(path, 'must be a JSON object')
  for (const key in json) {
    if (!ENTRY_FIELDS.has(key)) throw wrongKey(SnapshotEntrySchema, json, `${path}.`)
    const value = json[key]
    if (value === null) json[key] = ''
    else if (!isText(value)) throw wrongType(`${path}.${key}`, 'a string', value)
  }
  json.address ??= ''
  return json as GivenEntry
}

function valueDecoder(field: DescField): Decode {
  const { message, scalar } = field
  if (field.enum !== undefined)
    return enumDecoder(field.enum, field.presence !== Presence.IMPLICIT || field.fieldKind === 'list')
  const check = checkOf(field)
  if (scalar === ScalarType.STRING) {
    const isEmptyAbsent = field.fieldKind !== 'list' && field.presence === Presence.IMPLICIT
    return (json: unknown, path) => {
      if (typeof json !== 'string' || !json.isWellFormed()) throw wrongType(path, 'a string', json)
      return json === '' && isEmptyAbsent ? json : check(json as never, path)
    }
  }
  const type = TYPES.get(message?.typeName ?? scalar!)
  if (type === undefined) return messageDecoder(message!)
  const [expected, read] = type
  return (json, path) => {
    const value = read(json)
    if (value === undefined) throw wrongType(path, expected, json)
    return check(value as never, path)
  }
}

/** Undefined: it is not of the type. */
type Read = (json: unknown) => unknown

/** JSON can spell half of a surrogate pair, which has no UTF-8. */
function isText(json: unknown): json is string {
  return typeof json === 'string' && json.isWellFormed()
}

function textAs(form: RegExp, read: (text: string) => unknown): Read {
  return (json) => (isText(json) && form.test(json) ? read(json) : undefined)
}

function wholeNumber(most: number): Read {
  return (json) => {
    const number =
      typeof json === 'number' ? json : isText(json) && /^[0-9]{1,20}$/.test(json) ? Number(json) : -1
    return Number.isInteger(number) && number >= 0 && number <= most ? number : undefined
  }
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/
/** Finer than a millisecond is cut off, and before 1970 was before every log. */
const instant = (text: string) => (Number.isNaN(Date.parse(text)) ? undefined : Math.max(0, Date.parse(text)))
const milliseconds = (text: string) => Math.round(Number.parseFloat(text) * 1_000) || 0
const base64 = (text: string) => Buffer.from(text, 'base64')
const paths = (text: string) => text.split(',').filter(Boolean)

const TYPES: ReadonlyMap<unknown, readonly [expected: string, Read]> = new Map<unknown, [string, Read]>([
  [ScalarType.BOOL, ['true or false', (json) => (typeof json === 'boolean' ? json : undefined)]],
  [ScalarType.BYTES, ['bytes in base64', textAs(/^([\w+/-]{4})*([\w+/-]{2,3}={0,2})?$/, base64)]],
  [ScalarType.UINT32, ['a whole number from 0 to 4294967295', wholeNumber(2 ** 32 - 1)]],
  [ScalarType.UINT64, ['a whole number, not negative, as a string or a number', wholeNumber(Infinity)]],
  [
    'google.protobuf.Duration',
    ['seconds with an s, as in "90s"', textAs(/^-?\d{1,20}(\.\d{1,9})?s$/, milliseconds)],
  ],
  ['google.protobuf.Timestamp', ['a time by RFC 3339, as in "2030-01-31T12:00:00Z"', textAs(TIME, instant)]],
  [
    'google.protobuf.FieldMask',
    ['names of fields with commas, as in "labels,exclude"', textAs(/^[A-Za-z0-9,]*$/, paths)],
  ],
  ['google.protobuf.Struct', ['a JSON object', (json) => (isObject(json) ? json : undefined)]],
])

/** Open enums have any number. `…_UNSPECIFIED` is absent, where a value may be. */
function enumDecoder({ values, value: byNumber }: DescEnum, isExplicit: boolean): Decode {
  const numbers = new Map(values.map(({ name, number }) => [name, number]))
  const expected = `one of ${values.flatMap(({ name, number }) => (number === 0 ? [] : name)).join(', ')}`
  return (json: unknown, path) => {
    const number = typeof json === 'string' ? numbers.get(json) : json
    if (typeof number !== 'number') throw wrongType(path, expected, json)
    if (number === 0 && !isExplicit) return undefined
    if (number !== 0 && byNumber[number] !== undefined) return byNumber[number].name
    throw invalidField(path, `must be ${expected}`)
  }
}

class WrongType extends Refused {
  constructor(path: string, why: string) {
    super(invalidField(path, why).refusal)
  }
}

function wrongType(path: string, expected: string, json: unknown): WrongType {
  return new WrongType(path, `must be ${expected}; it is ${short(JSON.stringify(json))}`)
}

function wrongKey(desc: DescMessage, json: object, prefix: string): WrongType {
  const names = desc.fields.flatMap(({ name, jsonName }) => [name, jsonName])
  const unknown = Object.keys(json).find((key) => !names.includes(key))
  if (unknown === undefined) return new WrongType(prefix.slice(0, -1), 'has a field in both spellings')
  const known = desc.fields.map(({ jsonName }) => jsonName).join(', ')
  return new WrongType(prefix + short(unknown), `unknown; the fields here are ${known}`)
}

function isObject(json: unknown): json is Record<string, unknown> {
  return json !== null && typeof json === 'object' && !Array.isArray(json)
}

const short = (text: string): string => (text.length > 64 ? `${text.slice(0, 64)}…` : text)

/** By message and field, or by the field alone. */
type ByName<T> = Readonly<Record<string, T>>
function named<T>(table: ByName<T>, { parent, localName }: DescField): T | undefined {
  return table[`${parent.name}.${localName}`] ?? table[localName]
}

const asItIs: Decode = (value) => value

function checkOf(field: DescField): Decode {
  if (field.scalar === ScalarType.STRING) return named(TEXTS, field) ?? fields.text
  if (field.scalar === ScalarType.UINT64) return ledgerNumber
  if (field.localName === 'pageSize') return pageSize
  return field.message?.typeName === 'google.protobuf.Duration' ? boundsOf(named(BOUNDS, field)) : asItIs
}

const textUpTo = (limit: number) => (value: string, path: string) => fields.text(value, path, limit)
const why = textUpTo(fields.LIMITS.whyBytes)
const { address, cidr, ownerKind, poolName } = fields

/** Any other text is a name. */
const TEXTS: ByName<Decode> = {
  address,
  'UpdatePoolRequest.gateway': (value: string, path) => (value === '' ? value : address(value, path)),
  'UpdatePoolRequest.cidr': cidr,
  'UpdatePoolRequest.subnet': cidr,
  liveAddresses: fields.addressInUse,
  'Owner.kind': ownerKind,
  ownerKinds: ownerKind,
  'Owner.interface': fields.interfaceName,
  pool: poolName,
  pools: poolName,
  newName: poolName,
  'CreatePoolRequest.name': poolName,
  'UpdatePoolRequest.name': poolName,
  'DeletePoolRequest.name': poolName,
  'GetPoolRequest.name': poolName,
  requestId: textUpTo(fields.LIMITS.requestId),
  why,
  description: why,
  // Checked by their handlers: a token's position; lines of a runtime's error.
  pageToken: asItIs,
  'LookUpVerdict.detail': asItIs,
}

const MOST: ByName<number> = {
  claims: 8,
  'Claim.pools': 8,
  pools: 64,
  liveAddresses: 4_096,
  routes: 64,
  dns: 16,
  requests: 1_000,
  entries: MOST_ENTRIES,
  verdicts: 1_000,
  ownerKinds: 64,
  families: 2,
}

type Bounds = readonly [leastMs: number, mostMs: number]
const ANY: Bounds = [0, 30 * 24 * 3_600_000]
const BOUNDS: ByName<Bounds> = {
  'ReserveRequest.confirmWithin': [1_000, ANY[1]],
  interval: [1_000, 3_600_000],
}

function boundsOf([leastMs, mostMs] = ANY): Decode {
  return (ms: number, path) => {
    if (ms >= leastMs && ms <= mostMs) return ms
    throw invalidField(path, `must be between ${leastMs / 1000}s and ${mostMs / 1000}s; it is ${ms / 1000}s`)
  }
}

/** Version, token, position: all of them are below 2^53. */
function ledgerNumber(value: number, path: string): number {
  if (value <= Number.MAX_SAFE_INTEGER) return value
  throw invalidField(path, 'must be below 2^53, which no log reaches')
}

/** AIP-158: a size above the limit is the limit. */
const pageSize = (value: number) => Math.min(value, 1_000)
