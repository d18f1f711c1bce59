/**
 * An event as the one text from which its digest is made and images are loaded: its columns in order, joined by U+001F, null as
 * U+001E, times in milliseconds since 1970, json verbatim. `ipledger.event_text` writes the same in SQL; a property test holds
 * the two together. One flat function writes it and one reads it, made from the table of columns at start: a loop over the
 * columns takes half as long again, and leaves larger objects.
 */
import { hash } from 'node:crypto'
import type { AddressRecord, LedgerEvent } from '../core/event.ts'
import { EVENT_COLUMNS } from '../core/event-columns.ts'
import { UnknownFormat } from './log.ts'

/** The format that this process writes, and the greatest it can read. A change that adds meaning counts it up. */
const FORMAT = 1

export const SEPARATOR = '\u001f'
export const NULL = '\u001e'
/** The digest before the first event. */
export const NO_DIGEST = '0'.repeat(64)
const COLUMNS = Object.entries(EVENT_COLUMNS)
const placeOf = (field: keyof typeof EVENT_COLUMNS) => COLUMNS.findIndex(([one]) => one === field)
const [NETWORK_AT, SEQ_AT, FORMAT_AT] = [placeOf('network'), placeOf('seq'), placeOf('format')]

/** Of the event of this text, after an event of that digest; both in hexadecimal. */
export function digestOf(previous: string, text: string): string {
  return hash('sha256', Buffer.concat([Buffer.from(previous, 'hex'), Buffer.from(text)]), 'hex')
}

export function textOf(network: string, event: LedgerEvent): string {
  // An event without a record has some of its fields itself.
  return write(network, event, 'record' in event ? event.record : event)
}

/** @throws UnknownFormat */
export function eventOf(text: string): LedgerEvent {
  const event = readEvent(cellsOf(text))
  if (event.previous !== null) return event as LedgerEvent
  const { record, previous: _, details, ...header } = event
  const { owner, node, poolId } = record
  if (owner !== null) return { ...header, owner, node } as LedgerEvent
  return { ...header, ...(poolId !== null && { poolId }), details } as LedgerEvent
}

/** Of an event about an address. @throws UnknownFormat */
export function recordOfText(text: string): AddressRecord {
  return readRecord(cellsOf(text))
}

function cellsOf(text: string): readonly string[] {
  const cells = text.split(SEPARATOR)
  const format = cells[FORMAT_AT]
  if (Number(format) <= FORMAT && cells.length === COLUMNS.length) return cells
  throw new UnknownFormat(
    `event ${cells[NETWORK_AT]}/${cells[SEQ_AT]} has format ${format}, this process knows ${FORMAT}: a newer ipledger writes this network; upgrade this one`,
  )
}

// Called by the flat functions.

const NOTHING = {}

function writeJson(value: object): string {
  for (const _ in value) return JSON.stringify(value)
  return '{}'
}

function readJson(cell: string): object {
  return cell === '{}' ? NOTHING : JSON.parse(cell)
}

const bytes = Buffer.allocUnsafe(4_096)
/** Shorter ones are copied when a text is split. */
const SLICED = 13
let lastCopy = ''

/** A piece of a long text keeps all of it in memory: of a million records 250 MB. A uid is often the name before it. */
function copy(cell: string): string {
  if (cell.length < SLICED || cell.length * 3 > bytes.length) return cell
  if (cell !== lastCopy) lastCopy = bytes.toString('utf8', 0, bytes.write(cell))
  return lastCopy
}

const copies = new Map<string, string>()

/** One copy of what comes again and again: of a million records 100 MB. */
function oneCopy(cell: string): string {
  const known = copies.get(cell)
  if (known !== undefined) return known
  if (copies.size >= 10_000) copies.clear()
  const kept = copy(cell)
  copies.set(kept, kept)
  return kept
}

// The flat functions.

const USES = { SEPARATOR, NULL, writeJson, readJson, copy, oneCopy }

function compile<F>(parameters: string, body: string): F {
  return new Function(...Object.keys(USES), `return (${parameters}) => ${body}`)(...Object.values(USES)) as F
}

const write = compile<(network: string, event: LedgerEvent, record: object) => string>(
  'network, event, record',
  COLUMNS.map(([field, [, type]]) => {
    if (field === 'network') return field
    if (field === 'format') return String(FORMAT)
    const value = field.startsWith('record.') ? field.replace(/(\.\w+)\./, '$1?.') : `event.${field}`
    return type === 'json' ? `(${value} ? writeJson(${value}) : NULL)` : `(${value} ?? NULL)`
  }).join(' + SEPARATOR + '),
)

/** The object of the fields whose names begin with `prefix`. A nested one is null where its first cell is. */
function literal(prefix: string): string {
  const cells = COLUMNS.map(([field, column], at) => [field, column, `cells[${at}]`] as const)
  const within = cells.filter(
    ([field]) => field.startsWith(prefix) && field !== 'network' && field !== 'format',
  )
  const groups = Map.groupBy(within, ([field]) => field.slice(prefix.length).split('.')[0]!)
  const fields = [...groups].map(([name, [first]]) => {
    const [field, [, type, few], cell] = first!
    if (name === 'record') return `record: ${literal('record.')}`
    if (field !== prefix + name) return `${name}: ${cell} === NULL ? null : ${literal(`${prefix}${name}.`)}`
    const text = few ? `oneCopy(${cell})` : prefix === '' ? cell : `copy(${cell})`
    const value = type === 'json' ? `readJson(${cell})` : /text|inet/.test(type) ? text : `Number(${cell})`
    return `${name}: ${cell} === NULL ? null : ${value}`
  })
  return `{ ${prefix === 'record.' ? `seq: Number(cells[${SEQ_AT}]), at: Number(cells[${placeOf('at')}]), ` : ''}${fields.join(', ')} }`
}

type Read = Omit<LedgerEvent, 'details'> & {
  readonly record: AddressRecord
  readonly previous: number | null
  readonly details: object | null
}
const readRecord = compile<(cells: readonly string[]) => AddressRecord>('cells', `(${literal('record.')})`)
const readEvent = compile<(cells: readonly string[]) => Read>('cells', `(${literal('')})`)
