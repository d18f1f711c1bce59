/**
 * A report may have 200,000 entries and 32 MiB. Decoded at once it would block the process for a second, so its entries are cut
 * out of the body and decoded in slices of some 64 KiB; the rest is an ordinary small message.
 */
import { fromBinary } from '@bufbuild/protobuf'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import * as pb from '../../gen/ipledger/v1/liveness_pb.ts'
import { type GivenEntry, MOST_ENTRIES } from '../../sources/source.ts'
import { checkEntry, type Decoded, decoderOf, NO_MESSAGE, parseJson, readable } from './decode-request.ts'
import { invalidField } from './errors.ts'

export const MOST_REPORT_BYTES = 32 * 1024 * 1024
/** A millisecond or two of the process. Also the longest entry, and the longest rest. */
export const SLICE_BYTES = 64 * 1024
const ENTRIES = 'entries'

export const REPORT_PATH = `/${pb.LivenessService.typeName}/${pb.LivenessService.method.reportSnapshot.name}`

const decoder = decoderOf(pb.ReportSnapshotRequestSchema)

/** A slice with each step. */
export function* readingReport(
  body: Buffer,
  isJson: boolean,
): Generator<void, Decoded<pb.ReportSnapshotRequest>> {
  const entries: GivenEntry[] = []
  const parts: Buffer[] = []
  yield* isJson ? cuttingJson(body, entries, parts) : cuttingBinary(body, entries, parts)
  const rest = Buffer.concat(parts)
  if (rest.length > SLICE_BYTES)
    throw invalidField('', `must have at most ${SLICE_BYTES} bytes besides its entries`)
  const request = isJson
    ? decoder.fromJson(parseJson(rest.toString()))
    : decoder.fromMessage(readable(NO_MESSAGE, () => fromBinary(pb.ReportSnapshotRequestSchema, rest)))
  return { ...request, entries: request.entries.concat(entries) }
}

function* cuttingBinary(body: Buffer, entries: GivenEntry[], rest: Buffer[]): Generator<void> {
  const reader = new BinaryReader(body)
  const { number } = pb.ReportSnapshotRequestSchema.field.entries
  const cutField = () => {
    const from = reader.pos
    const [field, wireType] = reader.tag()
    if (field === number && wireType === WireType.LengthDelimited) {
      add(entries, fromBinary(pb.SnapshotEntrySchema, reader.bytes()))
    } else {
      reader.skip(wireType, field)
      rest.push(body.subarray(from, reader.pos))
    }
  }
  for (let cut = 0; reader.pos < reader.len; ) {
    readable(NO_MESSAGE, cutField)
    if (reader.pos - cut < SLICE_BYTES) continue
    cut = reader.pos
    yield
  }
}

const [QUOTE, BACKSLASH, COMMA, LIST, LIST_END, OBJECT, OBJECT_END] = Buffer.from('"\\,[]{}')

/** Follows strings and brackets, nothing else: any error is found when a slice, or the rest, is parsed. */
function* cuttingJson(body: Buffer, entries: GivenEntry[], rest: Buffer[]): Generator<void> {
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
    } else if (byte === OBJECT || byte === LIST) {
      depth += 1
      if (byte === LIST && depth === 2 && key === ENTRIES && slice < 0) {
        rest.push(body.subarray(kept, i + 1))
        slice = i + 1
      }
    } else if (byte === OBJECT_END || byte === LIST_END) {
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

function addJson(entries: GivenEntry[], slice: Buffer): void {
  const path = `${ENTRIES}[${entries.length}]`
  if (slice.length > SLICE_BYTES) throw invalidField(path, `must have at most ${SLICE_BYTES / 2} bytes`)
  const cut = `[${slice.toString()}]`
  const values: readonly unknown[] = readable('from here on it is not JSON: ', () => JSON.parse(cut), path)
  for (const value of values) add(entries, checkEntry(value, `${ENTRIES}[${entries.length}]`))
}

function add(entries: GivenEntry[], entry: GivenEntry): void {
  if (entries.length === MOST_ENTRIES)
    throw invalidField(ENTRIES, `must have at most ${MOST_ENTRIES} entries`)
  entries.push(entry)
}
