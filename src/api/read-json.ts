/**
 * Requests from JSON. What cannot be read is told as INVALID_FIELD with the path of the field: protobuf-es stops at the first
 * error and names the type, not the place, so after it has refused a text, the text is walked along the message's fields. That
 * costs nothing while requests are well-formed, and is given up after some thousands of values.
 */
import {
  type DescField,
  type DescMessage,
  fromJson,
  fromJsonString,
  type JsonValue,
  type Message,
} from '@bufbuild/protobuf'
import { invalidField, type Refused } from './errors.ts'

const LONGEST_NAME = 64
/** As deep as protobuf-es reads. */
const DEEPEST = 100
/** Values read one by one, each about a microsecond. */
const MOST_VALUES = 10_000

/** @throws Refused INVALID_FIELD */
export function readJson(desc: DescMessage, text: string): Message {
  try {
    return fromJsonString(desc, text)
  } catch (error) {
    throw inMessage({ left: MOST_VALUES }, desc, parse(text), '', 0) ?? invalidField('', reasonOf(error))
  }
}

function parse(text: string): JsonValue {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw invalidField('', `the body is not JSON: ${messageOf(error)}`)
  }
}

type Search = { left: number }

function inMessage(
  search: Search,
  desc: DescMessage,
  json: JsonValue,
  path: string,
  depth: number,
): Refused | null {
  if (depth > DEEPEST) return invalidField(path, 'is nested too deeply')
  if (desc.typeName.startsWith('google.protobuf.')) return alone(search, desc, json, path)
  if (json === null || typeof json !== 'object' || Array.isArray(json)) {
    return invalidField(path, 'must be a JSON object')
  }
  for (const [key, value] of Object.entries(json)) {
    const at = path === '' ? short(key) : `${path}.${short(key)}`
    const field = desc.fields.find((one) => one.jsonName === key || one.name === key)
    if (field === undefined) {
      const names = desc.fields.map(({ jsonName }) => jsonName).join(', ')
      return invalidField(at, `unknown; the fields here are ${names}`)
    }
    const found = value === null ? null : inField(search, desc, field, value, at, depth)
    if (found !== null) return found
  }
  return null
}

function inField(
  search: Search,
  desc: DescMessage,
  { fieldKind, jsonName, message }: DescField,
  value: JsonValue,
  path: string,
  depth: number,
): Refused | null {
  const each = (items: Iterable<readonly [string, JsonValue, JsonValue]>): Refused | null => {
    for (const [at, whole, item] of items) {
      const found =
        message === undefined
          ? alone(search, desc, { [jsonName]: whole }, at)
          : inMessage(search, message, item, at, depth + 1)
      if (found !== null) return found
    }
    return null
  }
  switch (fieldKind) {
    case 'message':
      return inMessage(search, message!, value, path, depth + 1)
    case 'list':
      if (!Array.isArray(value)) return invalidField(path, 'must be a JSON array')
      return each(value.map((item, index) => [`${path}[${index}]`, [item], item]))
    case 'map':
      if (typeof value !== 'object' || Array.isArray(value))
        return invalidField(path, 'must be a JSON object')
      return each(
        Object.entries(value!).map(([key, item]) => [
          `${path}[${JSON.stringify(short(key))}]`,
          { [key]: item },
          item,
        ]),
      )
    default:
      return alone(search, desc, { [jsonName]: value }, path)
  }
}

/** Read by itself: does protobuf-es take it? */
function alone(search: Search, desc: DescMessage, json: JsonValue, path: string): Refused | null {
  search.left -= 1
  if (search.left < 0) return null
  try {
    fromJson(desc, json)
    return null
  } catch (error) {
    return invalidField(path, reasonOf(error))
  }
}

/** `cannot decode field ipledger.v1.Owner.kind from JSON: expected string, got 7` → `expected string, got 7` */
function reasonOf(error: unknown): string {
  return messageOf(error).replace(/^cannot decode .{1,200}? from JSON: /s, '')
}

function short(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
