/**
 * Messages of LivenessService, read: every field checked, every default filled in. The entries of a snapshot are not:
 * what is wrong with one makes the snapshot partial and nothing more, since what it lists is in use all the same.
 */
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { Family } from '../core/address.ts'
import type { FenceNode, ResumeHold } from '../core/command.ts'
import { POLICY } from '../core/policy.ts'
import * as pb from '../gen/ipledger/v1/liveness_pb.ts'
import { checkSettings, checkSight } from '../liveness/asked.ts'
import type { Registration } from '../liveness/register.ts'
import {
  type Chunk,
  MOST_CHUNKS,
  MOST_ENTRIES,
  MOST_VERDICTS,
  type Quoted,
  type SnapshotReport,
  type Verdict,
} from '../liveness/report.ts'
import {
  endedSince,
  type LookUpReply,
  printable,
  type SourceKind,
  type SourceState,
} from '../liveness/source.ts'
import { STUCK_CODES } from '../liveness/stuck.ts'
import type { Call } from './call.ts'
import { invalidField, Refused } from './errors.ts'
import {
  atMost,
  duration,
  instant,
  known,
  LIMITS,
  ledgerNumber,
  ownerKind,
  requiredText,
  specified,
  text,
} from './fields.ts'
import { allowedNetwork, envelope } from './requests.ts'
import { checkNode } from './rights.ts'

const MOST_OWNER_KINDS = 64
const SHORTEST_INTERVAL_MS = 1_000
const LONGEST_INTERVAL_MS = 3_600_000
/** Where a source is and how it is asked; far above what any kind has. */
const SETTINGS_BYTES = 16 * 1024
const DETAIL_BYTES = 1_024
/**
 * Entries of usual length fill a request at 4,400. Without a limit 20,000 of the shortest would: some 0.4 s of the
 * process, which may hold a network's lock meanwhile.
 */
const ENTRIES_AT_ONCE = 5_000
const MOST_CODES = 32
const CODE_BYTES = 64
const KNOWN_CODES: ReadonlySet<string> = new Set(STUCK_CODES)

const KINDS: ReadonlyMap<pb.SourceKind, SourceKind> = new Map([
  [pb.SourceKind.SOURCE_KIND_UNSPECIFIED, 'push'],
  [pb.SourceKind.PUSH, 'push'],
  [pb.SourceKind.DOCKER, 'docker'],
  [pb.SourceKind.KUBERNETES, 'kubernetes'],
  [pb.SourceKind.HTTP, 'http'],
])

const STATES: ReadonlyMap<pb.SourceState, SourceState> = new Map([
  [pb.SourceState.REGISTERED, 'REGISTERED'],
  [pb.SourceState.ENABLED, 'ENABLED'],
  [pb.SourceState.RETIRED, 'RETIRED'],
])

// Sources.

/** Which one, in a network that the caller may use. */
export type SourceNamed = { readonly network: string; readonly id: string; readonly by: string }

export function readSourceId(
  message: { readonly network: string; readonly id: string },
  call: Call,
): SourceNamed {
  return {
    network: allowedNetwork(call, message.network),
    id: requiredText(message.id, 'id', LIMITS.nameBytes),
    by: call.caller.name,
  }
}

export function readRegistration(message: pb.RegisterSourceRequest, call: Call): Registration {
  const { network, id, by } = readSourceId(message, call)
  known(message.kind, pb.SourceKindSchema, 'kind')
  const kind = KINDS.get(message.kind)!
  const { sight } = message
  if (sight === undefined) throw invalidField('sight', 'required: what the source can see')
  const node = text(sight.node, 'sight.node', LIMITS.nameBytes)
  checkNode(call.caller, node)
  if (sight.bootEndsAll && node === '') {
    throw invalidField('sight.bootEndsAll', 'only with sight.node, whose boots are meant')
  }
  const bad = checkSight(kind, { node, bootEndsAll: sight.bootEndsAll })
  if (bad !== null) throw new Refused(bad)
  const interval = duration(sight.interval, 'sight.interval', SHORTEST_INTERVAL_MS, LONGEST_INTERVAL_MS)
  return {
    network,
    id,
    by,
    kind,
    node,
    ownerKinds: readOwnerKinds(sight.ownerKinds),
    families: readFamilies(sight.families),
    seesStopped: sight.seesStopped,
    bootEndsAll: sight.bootEndsAll,
    intervalMs: interval ?? (kind === 'push' ? POLICY.agentIntervalMs : POLICY.pulledIntervalMs),
    settings: readSettings(kind, message.settings ?? {}),
  }
}

function readOwnerKinds(given: readonly string[]): readonly string[] {
  if (given.length === 0) {
    throw invalidField('sight.ownerKinds', 'required: kinds of the owners that it can see')
  }
  atMost(given.length, MOST_OWNER_KINDS, 'sight.ownerKinds')
  return [...new Set(given.map((kind, index) => ownerKind(kind, `sight.ownerKinds[${index}]`)))]
}

function readFamilies(given: readonly number[]): readonly Family[] {
  if (given.length === 0) return [4, 6]
  atMost(given.length, 2, 'sight.families')
  const families = given.map((family, index) => {
    if (family !== 4 && family !== 6) throw invalidField(`sight.families[${index}]`, 'must be 4 or 6')
    return family
  })
  return [...new Set(families)]
}

function readSettings(kind: SourceKind, settings: JsonObject): Registration['settings'] {
  if (kind === 'push') {
    if (Object.keys(settings).length > 0)
      throw invalidField('settings', 'a source that reports has no settings')
    return {}
  }
  if (Buffer.byteLength(JSON.stringify(settings)) > SETTINGS_BYTES) {
    throw invalidField('settings', `has more than ${SETTINGS_BYTES} bytes`)
  }
  requireStorable(settings, 'settings')
  const bad = checkSettings(kind, settings)
  if (bad !== null) throw new Refused(bad)
  return settings
}

/** PostgreSQL's text holds everything but this. */
function requireStorable(value: JsonValue, path: string): void {
  if (typeof value === 'string') {
    if (value.includes('\0') || !value.isWellFormed()) throw invalidField(path, 'is not well-formed text')
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) {
      requireStorable(key, path)
      requireStorable(inner as JsonValue, path)
    }
  }
}

/** None: all of them. */
export function readSourceStates(states: readonly pb.SourceState[]): readonly SourceState[] {
  atMost(states.length, pb.SourceStateSchema.values.length, 'states')
  if (states.length === 0) return [...STATES.values()]
  const read = states.map((state, index) => {
    specified(state, pb.SourceStateSchema, `states[${index}]`)
    return STATES.get(state)!
  })
  return [...new Set(read)].sort()
}

// Reports.

/** Which source, and what the caller saw of the ledger. */
export type Reporting = {
  readonly network: string
  readonly source: string
  readonly quoted: Quoted
  readonly boundTo?: string
}

export function readReporting(
  message: {
    readonly network: string
    readonly source: string
    readonly seenEra: number
    readonly seenHead: bigint
  },
  call: Call,
): Reporting {
  const { node } = call.caller
  return {
    network: allowedNetwork(call, message.network),
    source: requiredText(message.source, 'source', LIMITS.nameBytes),
    quoted: { era: message.seenEra, head: ledgerNumber(message.seenHead, 'seenHead') },
    ...(node === null ? {} : { boundTo: node }),
  }
}

export function readReport(message: pb.ReportSnapshotRequest, call: Call): SnapshotReport {
  const reporting = readReporting(message, call)
  const { entries, token, complete } = message
  const epoch = requiredText(message.epoch, 'epoch', LIMITS.nameBytes)
  const chunk = message.chunk === undefined ? null : readChunk(message.chunk)
  if (entries.length > ENTRIES_AT_ONCE) {
    throw invalidField('entries', `has more than ${ENTRIES_AT_ONCE} entries; send them in chunks`)
  }
  const unchanged = text(message.unchanged, 'unchanged', LIMITS.nameBytes)
  if (unchanged !== '') {
    if (entries.length > 0) throw invalidField('unchanged', 'entries and unchanged exclude each other')
    if (chunk !== null) throw invalidField('chunk', 'a set that did not change has no chunks')
    return { ...reporting, token, epoch, complete, content: { unchanged }, chunk }
  }
  return { ...reporting, token, epoch, complete, content: { entries }, chunk }
}

function readChunk({ number, total }: pb.SnapshotChunk): Chunk {
  if (number >= MOST_CHUNKS) throw invalidField('chunk.number', `must be below ${MOST_CHUNKS}`)
  if (total === undefined) return { number, last: null }
  const { entries, digest } = total
  if (entries > MOST_ENTRIES) throw invalidField('chunk.total.entries', `must be at most ${MOST_ENTRIES}`)
  if (!/^[0-9a-f]{64}$/.test(digest)) {
    throw invalidField('chunk.total.digest', 'must be 64 hexadecimal digits, in lower case')
  }
  return { number, last: { entries, digest } }
}

export function readVerdicts(verdicts: readonly pb.LookUpVerdict[]): readonly Verdict[] {
  if (verdicts.length === 0) throw invalidField('verdicts', `required: 1 to ${MOST_VERDICTS}`)
  atMost(verdicts.length, MOST_VERDICTS, 'verdicts')
  return verdicts.map((verdict, index) => ({
    id: verdict.id,
    answer: readAnswer(verdict, `verdicts[${index}]`),
  }))
}

function readAnswer(verdict: pb.LookUpVerdict, path: string): LookUpReply {
  const { terminalSince } = verdict
  specified(verdict.answer, pb.LookUpAnswerSchema, `${path}.answer`)
  const detail = readDetail(verdict.detail, `${path}.detail`)
  if (verdict.answer !== pb.LookUpAnswer.TERMINAL && terminalSince !== undefined) {
    throw invalidField(`${path}.terminalSince`, 'only with TERMINAL')
  }
  switch (verdict.answer) {
    case pb.LookUpAnswer.LIVE:
      return { answer: 'live', detail }
    case pb.LookUpAnswer.TERMINAL:
      if (terminalSince === undefined) throw invalidField(`${path}.terminalSince`, 'required with TERMINAL')
      return endedSince(instant(terminalSince, `${path}.terminalSince`), detail)
    case pb.LookUpAnswer.GONE:
      return { answer: 'gone', detail }
    case pb.LookUpAnswer.ERROR:
      return { answer: 'error', detail }
    default:
      return { answer: 'unknown', detail }
  }
}

/** Errors of a runtime have lines; refusing a verdict for them would leave it unanswered for ever. */
function readDetail(detail: string, path: string): string {
  if (Buffer.byteLength(detail) > DETAIL_BYTES)
    throw invalidField(path, `is longer than ${DETAIL_BYTES} bytes`)
  return printable(detail)
}

// Commands.

export function readFenceNode(message: pb.FenceNodeRequest, call: Call): FenceNode {
  const network = allowedNetwork(call, message.network)
  const node = requiredText(message.node, 'node', LIMITS.nameBytes)
  checkNode(call.caller, node)
  const content = {
    type: 'fenceNode' as const,
    node,
    boot: requiredText(message.boot, 'boot', LIMITS.nameBytes),
    head: message.head === 0n ? null : ledgerNumber(message.head, 'head'),
    why: requiredText(message.why, 'why', LIMITS.whyBytes),
  }
  return { ...envelope(call, network, message.requestId, content), ...content }
}

export function readResumeHold(message: pb.ResumeHoldRequest, call: Call): ResumeHold {
  const network = allowedNetwork(call, message.network)
  const source = text(message.source, 'source', LIMITS.nameBytes)
  const content = {
    type: 'resumeHold' as const,
    source: source === '' ? null : source,
    why: requiredText(message.why, 'why', LIMITS.whyBytes),
  }
  return { ...envelope(call, network, message.requestId, content), ...content }
}

/** Of a misspelt one nothing would seem to wait. */
export function readCodes(codes: readonly string[]): readonly string[] {
  atMost(codes.length, MOST_CODES, 'codes')
  return [...new Set(codes.map((code, index) => readCode(code, `codes[${index}]`)))].sort()
}

function readCode(code: string, path: string): string {
  const read = requiredText(code, path, CODE_BYTES)
  if (KNOWN_CODES.has(read)) return read
  throw invalidField(path, `${read} is no code; it must be one of ${STUCK_CODES.join(', ')}`)
}
