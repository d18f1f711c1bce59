/**
 * What is wrong with a request that could not be read at all, told as INVALID_FIELD with the path of the field.
 * protobuf-es stops at the first error and names the type, not the place; so after it has refused a text, this walks
 * the text along the message's fields and finds the place, if it is among the first thousands of values. It costs
 * nothing while requests are well-formed.
 */
import { type DescField, type DescMessage, fromJson, type JsonValue } from '@bufbuild/protobuf'
import { invalidField, type Refused } from './errors.ts'

const LONGEST_NAME = 64
/** As deep as protobuf-es reads. */
const DEEPEST = 100
/** Values read one by one, each about a microsecond: 175,000 of them in one message took 100 ms. */
const MOST_VALUES = 10_000

/** How many more values are looked at. */
type Search = { left: number }

export function malformedJson(desc: DescMessage, text: string, error: unknown): Refused {
  let json: JsonValue
  try {
    json = JSON.parse(text)
  } catch (syntax) {
    return invalidField('', `the body is not JSON: ${messageOf(syntax)}`)
  }
  const place = findInMessage({ left: MOST_VALUES }, desc, json, '', 0)
  // Not in the fields: a name that is written twice, or nesting that is too deep.
  return place ?? invalidField('', reasonOf(error))
}

export function malformedBinary(error: unknown): Refused {
  return invalidField('', `the body is not a message of this method: ${messageOf(error)}`)
}

function findInMessage(
  search: Search,
  desc: DescMessage,
  json: JsonValue,
  path: string,
  depth: number,
): Refused | null {
  if (depth > DEEPEST) return invalidField(path, 'is nested too deeply')
  if (desc.typeName.startsWith('google.protobuf.')) return tryAlone(search, desc, json, path)
  if (json === null || typeof json !== 'object' || Array.isArray(json)) {
    return invalidField(path, 'must be a JSON object')
  }
  for (const [key, value] of Object.entries(json)) {
    const field = desc.fields.find((one) => one.jsonName === key || one.name === key)
    if (field === undefined) {
      return invalidField(join(path, key), `unknown; the fields here are ${namesOf(desc)}`)
    }
    const found = findInField(search, desc, field, value, join(path, key), depth)
    if (found !== null) return found
  }
  return null
}

function findInField(
  search: Search,
  desc: DescMessage,
  field: DescField,
  value: JsonValue,
  path: string,
  depth: number,
): Refused | null {
  if (value === null) return null
  const { message } = field
  if (field.fieldKind === 'list') {
    if (!Array.isArray(value)) return invalidField(path, 'must be a JSON array')
    for (const [index, item] of value.entries()) {
      const place = `${path}[${index}]`
      const found =
        message === undefined
          ? tryField(search, desc, field, [item], place)
          : findInMessage(search, message, item, place, depth + 1)
      if (found !== null) return found
    }
    return null
  }
  if (field.fieldKind === 'message') return findInMessage(search, field.message, value, path, depth + 1)
  if (field.fieldKind === 'map') {
    if (typeof value !== 'object' || Array.isArray(value)) return invalidField(path, 'must be a JSON object')
    for (const [key, item] of Object.entries(value)) {
      const found = tryField(search, desc, field, { [key]: item }, `${path}[${JSON.stringify(short(key))}]`)
      if (found !== null) return found
    }
    return null
  }
  return tryField(search, desc, field, value, path)
}

/** Reads the field by itself: does protobuf-es take it? */
function tryField(
  search: Search,
  desc: DescMessage,
  field: DescField,
  value: JsonValue,
  path: string,
): Refused | null {
  return tryAlone(search, desc, { [field.jsonName]: value }, path)
}

function tryAlone(search: Search, desc: DescMessage, json: JsonValue, path: string): Refused | null {
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

function namesOf(desc: DescMessage): string {
  return desc.fields.map((one) => one.jsonName).join(', ')
}

function join(path: string, key: string): string {
  return path === '' ? short(key) : `${path}.${short(key)}`
}

function short(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
