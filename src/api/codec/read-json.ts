/**
 * Requests from JSON. What cannot be read is told as INVALID_FIELD with the path of the field: protobuf-es stops at the first
 * error and names the type, not the place, so after it has refused a text, its parts are tried alone. That costs nothing while
 * requests are well-formed, and is given up after some thousands of items.
 */
import {
  type DescField,
  type DescMessage,
  fromJson,
  fromJsonString,
  type JsonValue,
  type Message,
  ScalarType,
} from '@bufbuild/protobuf'
import { invalidField, type Refused } from './errors.ts'

const LONGEST_NAME = 64
/** Items of a list or map that are tried, each about a microsecond. */
const MOST_TRIED = 10_000

/** @throws Refused INVALID_FIELD */
export function readJson(desc: DescMessage, text: string): Message {
  try {
    return fromJsonString(desc, text)
  } catch (error) {
    // `cannot decode field ipledger.v1.Owner.kind from JSON: expected string, got 7` → `expected string, got 7`
    throw (
      inMessage(desc, parse(text), '') ??
      invalidField('', messageOf(error).replace(/^cannot decode .{1,200}? from JSON: /s, ''))
    )
  }
}

function parse(text: string): JsonValue {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw invalidField('', `the body is not JSON: ${messageOf(error)}`)
  }
}

/** What is wrong with a message, if it is wrong with a part of it. */
function inMessage(desc: DescMessage, json: JsonValue, path: string): Refused | null {
  if (json === null || typeof json !== 'object' || Array.isArray(json))
    return invalidField(path, 'must be a JSON object')
  for (const [key, value] of Object.entries(json)) {
    const at = path === '' ? short(key) : `${path}.${short(key)}`
    const field = desc.fields.find((one) => one.jsonName === key || one.name === key)
    if (field === undefined) {
      const names = desc.fields.map(({ jsonName }) => jsonName).join(', ')
      return invalidField(at, `unknown; the fields here are ${names}`)
    }
    if (!isRead(desc, field, value)) return inField(desc, field, value, at)
  }
  return null
}

function inField(desc: DescMessage, field: DescField, value: JsonValue, path: string): Refused {
  const wrong = (at: string, what: JsonValue) =>
    invalidField(at, `must be ${expected(field)}; it is ${short(JSON.stringify(what))}`)
  if (field.fieldKind === 'message' && !field.message.typeName.startsWith('google.protobuf.'))
    return inMessage(field.message, value, path) ?? wrong(path, value)
  if (field.fieldKind !== 'list' && field.fieldKind !== 'map') return wrong(path, value)
  const isList = field.fieldKind === 'list'
  if (isList !== Array.isArray(value) || typeof value !== 'object')
    return invalidField(path, `must be a JSON ${isList ? 'array' : 'object'}`)
  for (const [key, item] of Object.entries(value!).slice(0, MOST_TRIED)) {
    if (isRead(desc, field, isList ? [item] : { [key]: item })) continue
    const at = `${path}[${isList ? key : JSON.stringify(short(key))}]`
    return (field.message && inMessage(field.message, item, at)) ?? wrong(at, item)
  }
  return wrong(path, value)
}

/** What a field, or an item of it, is to be. */
function expected({ message, enum: names, scalar }: DescField): string {
  const type = message?.typeName ?? scalar
  if (names === undefined) return (type && EXPECTED.get(type)) ?? (message ? 'a JSON object' : 'another type')
  const said = names.values.slice(1).map(({ name }) => name)
  return `one of ${said.join(', ')}`
}

const EXPECTED: ReadonlyMap<string | ScalarType, string> = new Map<string | ScalarType, string>([
  ['google.protobuf.Duration', 'seconds with an s, as in "90s"'],
  ['google.protobuf.Timestamp', 'a time by RFC 3339, as in "2030-01-31T12:00:00Z"'],
  ['google.protobuf.FieldMask', 'names of fields with commas, as in "labels,exclude"'],
  [ScalarType.STRING, 'a string'],
  [ScalarType.BOOL, 'true or false'],
  [ScalarType.BYTES, 'bytes in base64'],
  [ScalarType.UINT32, 'a whole number from 0 to 4294967295'],
  [ScalarType.UINT64, 'a whole number, not negative, as a string or a number'],
])

/** Whether protobuf-es takes it by itself. */
function isRead(desc: DescMessage, { jsonName }: DescField, value: JsonValue): boolean {
  try {
    fromJson(desc, { [jsonName]: value })
    return true
  } catch {
    return false
  }
}

function short(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
