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
    throw inMessage(desc, parse(text), '') ?? invalidField('', reasonOf(error))
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
    const why = tried(desc, field, value)
    if (why !== null) return inField(desc, field, value, at, why)
  }
  return null
}

function inField(desc: DescMessage, field: DescField, value: JsonValue, path: string, why: string): Refused {
  if (field.fieldKind === 'message' && !field.message.typeName.startsWith('google.protobuf.'))
    return inMessage(field.message, value, path) ?? invalidField(path, why)
  if (field.fieldKind !== 'list' && field.fieldKind !== 'map') return invalidField(path, why)
  const isList = field.fieldKind === 'list'
  if (isList !== Array.isArray(value) || typeof value !== 'object')
    return invalidField(path, `must be a JSON ${isList ? 'array' : 'object'}`)
  for (const [key, item] of Object.entries(value!).slice(0, MOST_TRIED)) {
    const inItem = tried(desc, field, isList ? [item] : { [key]: item })
    if (inItem === null) continue
    const at = `${path}[${isList ? key : JSON.stringify(short(key))}]`
    return (field.message && inMessage(field.message, item, at)) ?? invalidField(at, inItem)
  }
  return invalidField(path, why)
}

/** Why protobuf-es does not take it by itself; null: it does. */
function tried(desc: DescMessage, { jsonName }: DescField, value: JsonValue): string | null {
  try {
    fromJson(desc, { [jsonName]: value })
    return null
  } catch (error) {
    return reasonOf(error)
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
