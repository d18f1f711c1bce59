/**
 * A report may have 200,000 entries and 32 MiB. Read at once it would keep everybody waiting for a second, so its entries are
 * cut out of the body and read by turns, in slices of some 64 KiB; what remains is an ordinary small message.
 */
import { fromBinary } from '@bufbuild/protobuf'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import * as pb from '../../gen/ipledger/v1/liveness_pb.ts'
import { MOST_ENTRIES } from '../../sources/source.ts'
import { invalidField } from './errors.ts'
import { readJson } from './read-json.ts'

export const MOST_REPORT_BYTES = 32 * 1024 * 1024
/** What is read at once: a millisecond or two of the process. Also the longest entry, and the longest rest. */
export const SLICE_BYTES = 64 * 1024
const ENTRIES = 'entries'
const FIELDS: ReadonlySet<string> = new Set(pb.SnapshotEntrySchema.fields.map(({ jsonName }) => jsonName))

export const REPORT_PATH = `/${pb.LivenessService.typeName}/${pb.LivenessService.method.reportSnapshot.name}`

/** A slice with each step. */
export function* readingReport(body: Buffer, isJson: boolean): Generator<void, pb.ReportSnapshotRequest> {
  const entries: pb.SnapshotEntry[] = []
  const rest: Buffer[] = []
  yield* isJson ? cuttingJson(body, entries, rest) : cuttingBinary(body, entries, rest)
  const small = Buffer.concat(rest)
  if (small.length > SLICE_BYTES) {
    throw invalidField('', `must have at most ${SLICE_BYTES} bytes besides its entries`)
  }
  const message = isJson
    ? (readJson(pb.ReportSnapshotRequestSchema, small.toString()) as pb.ReportSnapshotRequest)
    : fromBinary(pb.ReportSnapshotRequestSchema, small)
  message.entries = entries
  return message
}

function* cuttingBinary(body: Buffer, entries: pb.SnapshotEntry[], rest: Buffer[]): Generator<void> {
  const reader = new BinaryReader(body)
  const { number } = pb.ReportSnapshotRequestSchema.field.entries
  for (let cut = 0; reader.pos < reader.len; ) {
    const from = reader.pos
    const [field, wireType] = reader.tag()
    if (field === number && wireType === WireType.LengthDelimited) {
      add(entries, fromBinary(pb.SnapshotEntrySchema, reader.bytes()))
    } else {
      reader.skip(wireType, field)
      rest.push(body.subarray(from, reader.pos))
    }
    if (reader.pos - cut < SLICE_BYTES) continue
    cut = reader.pos
    yield
  }
}

const QUOTE = 0x22
const COMMA = 0x2c
const BACKSLASH = 0x5c

/** Follows strings and brackets, nothing else: whatever is wrong is found when a slice, or the rest, is parsed. */
function* cuttingJson(body: Buffer, entries: pb.SnapshotEntry[], rest: Buffer[]): Generator<void> {
  let depth = 0
  let kept = 0
  /** Begin of the slice; not in the entries: -1. */
  let slice = -1
  let key = ''
  for (let i = 0; i < body.length; i += 1) {
    const byte = body[i]!
    if (byte === QUOTE) {
      const from = i + 1
      for (i = from; i < body.length && body[i] !== QUOTE; i += 1) {
        if (body[i] === BACKSLASH) i += 1
      }
      if (depth === 1) key = i - from === ENTRIES.length ? body.toString('latin1', from, i) : ''
    } else if (byte === 0x7b || byte === 0x5b) {
      depth += 1
      if (byte === 0x5b && depth === 2 && key === ENTRIES && slice < 0) {
        rest.push(body.subarray(kept, i + 1))
        slice = i + 1
      }
    } else if (byte === 0x7d || byte === 0x5d) {
      depth -= 1
      if (depth !== 1 || slice < 0) continue
      addJson(entries, body.subarray(slice, i))
      kept = i
      slice = -1
    } else if (byte === COMMA && depth === 2 && slice >= 0 && i - slice >= SLICE_BYTES / 2) {
      addJson(entries, body.subarray(slice, i))
      slice = i + 1
      yield
    }
  }
  // Of a list that does not end, the rest is no JSON.
  rest.push(body.subarray(slice < 0 ? kept : body.length))
}

function addJson(entries: pb.SnapshotEntry[], slice: Buffer): void {
  const path = `${ENTRIES}[${entries.length}]`
  if (slice.length > SLICE_BYTES) throw invalidField(path, `must have at most ${SLICE_BYTES / 2} bytes`)
  let values: unknown
  try {
    values = JSON.parse(`[${slice.toString()}]`)
  } catch (error) {
    throw invalidField(path, `from here on it is not JSON: ${error instanceof Error ? error.message : error}`)
  }
  for (const value of values as unknown[]) add(entries, entryOf(value, `${ENTRIES}[${entries.length}]`))
}

/** As it was parsed: a copy of each would cost more than the parsing. */
function entryOf(value: unknown, path: string): pb.SnapshotEntry {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw invalidField(path, 'must be a JSON object')
  }
  const entry = value as Record<string, unknown>
  for (const name in entry) {
    if (!FIELDS.has(name)) {
      throw invalidField(
        `${path}.${name.slice(0, 64)}`,
        `unknown; the fields here are ${[...FIELDS].join(', ')}`,
      )
    }
    if (entry[name] === null) entry[name] = ''
    else if (typeof entry[name] !== 'string') throw invalidField(`${path}.${name}`, 'expected a string')
  }
  entry.address ??= ''
  return entry as pb.SnapshotEntry
}

function add(entries: pb.SnapshotEntry[], entry: pb.SnapshotEntry): void {
  if (entries.length === MOST_ENTRIES)
    throw invalidField(ENTRIES, `must have at most ${MOST_ENTRIES} entries`)
  entries.push(entry)
}
