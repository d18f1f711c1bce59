/**
 * How PostgreSQL's values arrive. Set for each connection, never in pg's global table, which graphile-worker shares.
 *
 * int8         number; beyond 2^53 it throws, so that a number is never silently another one (numbers of the ledger stay
 *              below: era × 2^40)
 * numeric      text (a v6 /48 has 2^80 addresses)
 * timestamptz  milliseconds since 1970, whole: what is finer is cut off towards the past
 * inet, cidr, date, interval    text as PostgreSQL prints it
 * json, jsonb  parsed
 * arrays of these likewise
 */
import pg from 'pg'

const asText = (value: string): string => value

// pg-types' own array parser handles quoting and NULL; its types describe the factory wrongly.
type ArrayParser = {
  readonly create: <T>(source: string, transform: (entry: string) => T) => { parse: () => (T | null)[] }
}
const arrayParser = pg.types.arrayParser as unknown as ArrayParser

const arrayOf =
  <T>(transform: (entry: string) => T) =>
  (source: string): (T | null)[] =>
    arrayParser.create(source, transform).parse()

/** By type oid. */
const PARSERS: ReadonlyMap<number, (value: string) => unknown> = new Map<number, (value: string) => unknown>([
  [20, parseInt8],
  [1016, arrayOf(parseInt8)],
  [1184, parseTimestamptz],
  [1185, arrayOf(parseTimestamptz)],
  [1231, arrayOf(asText)], // numeric[]
  [1082, asText], // date
  [1114, asText], // timestamp
  [1186, asText], // interval
])

export const valueTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    (format !== 'binary' && PARSERS.get(oid)) ||
    pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
}

function parseInt8(value: string): number {
  const number = Number(value)
  if (!Number.isSafeInteger(number)) throw new RangeError(`int8 ${value} is beyond what a number can hold`)
  return number
}

const TIMESTAMPTZ = /^([1-9]\d{3}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,3})\d{0,3})?([+-]\d\d)(?::(\d\d))?$/

/** Milliseconds since 1970, of the years 1000 to 9999. */
export function parseTimestamptz(value: string): number {
  const found = TIMESTAMPTZ.exec(value)
  if (found === null) throw new RangeError(`"${value}" is not a timestamptz in ISO form`)
  const [, date, time, fraction = '0', hours, minutes = '00'] = found
  return Date.parse(`${date}T${time}.${fraction.padEnd(3, '0')}${hours}:${minutes}`)
}

const NEEDS_ESCAPE = /["\\]/

/** The literal of an array of strings, numbers, booleans and nulls; the driver's own looks at every element twice. */
export function arrayLiteral(cells: readonly unknown[]): string {
  let literal = '{'
  for (const [index, cell] of cells.entries()) {
    if (index > 0) literal += ','
    if (cell === null) literal += 'NULL'
    else if (typeof cell !== 'string') literal += String(cell)
    else if (NEEDS_ESCAPE.test(cell)) literal += `"${cell.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
    else literal += `"${cell}"`
  }
  return `${literal}}`
}

/** A parameter as text: strings, numbers and booleans as they print, an array as its literal. */
export function parameterText(value: unknown): string | null {
  if (value === null) return null
  return Array.isArray(value) ? arrayLiteral(value) : String(value)
}
