/**
 * Messages of LivenessService, read: every field checked, every default filled in. The entries of a report are not: what is
 * wrong with one makes the report partial and nothing more, since what it lists is in use all the same.
 */
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { Family } from '../core/address.ts'
import type { Command } from '../core/command.ts'
import { type Details, type HoldCause, SOURCE_KINDS, type SourceDeclaration } from '../core/event.ts'
import { POLICY } from '../core/policy.ts'
import * as pb from '../gen/ipledger/v1/liveness_pb.ts'
import { HoldCauseSchema } from '../gen/ipledger/v1/network_pb.ts'
import type { ReportGiven, Reporting, Verdict } from '../sources/intake-types.ts'
import { checkDeclaration } from '../sources/settings.ts'
import { endedAt, MOST_ENTRIES, sentence } from '../sources/source.ts'
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
import { allowedNetwork, command } from './requests.ts'
import { checkNode, mayReport } from './rights.ts'

const MOST_OWNER_KINDS = 64
const MOST_VERDICTS = 1_000
const SHORTEST_INTERVAL_MS = 1_000
const LONGEST_INTERVAL_MS = 3_600_000
/** Where a source is and how it is asked; far above what any kind has. */
const SETTINGS_BYTES = 16 * 1024
const DETAIL_BYTES = 1_024

// Sources.

export function readRegisterSource(message: pb.RegisterSourceRequest, call: Call): Command<'registerSource'> {
  const network = allowedNetwork(call, message.network)
  const named = known(message.kind, pb.SourceKindSchema, 'kind').toLowerCase()
  const kind = SOURCE_KINDS.find((one) => one === named) ?? 'push'
  const { sight } = message
  if (sight === undefined) throw invalidField('sight', 'required: what the source can see')
  const node = text(sight.node, 'sight.node', LIMITS.nameBytes)
  checkNode(call.caller, node)
  const interval = duration(sight.interval, 'sight.interval', SHORTEST_INTERVAL_MS, LONGEST_INTERVAL_MS)
  const declaration: SourceDeclaration = {
    id: requiredText(message.id, 'id', LIMITS.nameBytes),
    kind,
    node,
    ownerKinds: readOwnerKinds(sight.ownerKinds),
    families: readFamilies(sight.families),
    intervalMs: interval ?? (kind === 'push' ? POLICY.agentIntervalMs : POLICY.pulledIntervalMs),
    settings: readSettings(message.settings ?? {}),
  }
  const bad = checkDeclaration(declaration)
  if (bad !== null) throw new Refused(bad)
  return command(call, network, message.requestId, { type: 'registerSource', declaration })
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

function readSettings(settings: JsonObject): Details {
  if (Buffer.byteLength(JSON.stringify(settings)) > SETTINGS_BYTES) {
    throw invalidField('settings', `has more than ${SETTINGS_BYTES} bytes`)
  }
  requireStorable(settings, 'settings')
  return settings as Details
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

export function readSourceCommand<T extends 'enableSource' | 'retireSource'>(type: T) {
  return (message: pb.EnableSourceRequest | pb.RetireSourceRequest, call: Call) => {
    const id = requiredText(message.id, 'id', LIMITS.nameBytes)
    return command(call, allowedNetwork(call, message.network), message.requestId, { type, id })
  }
}

// Reports.

export function readReporting(
  message: { readonly network: string; readonly source: string },
  call: Call,
): Reporting {
  return {
    network: allowedNetwork(call, message.network),
    source: requiredText(message.source, 'source', LIMITS.nameBytes),
    actor: { name: call.caller.name, node: call.caller.node },
    traceId: call.traceId,
    deadline: call.deadline,
    mayReport: mayReport(call.caller),
  }
}

export function readReport(message: pb.ReportSnapshotRequest, call: Call): ReportGiven {
  const reporting = readReporting(message, call)
  const { entries, complete, begunAt } = message
  const unchanged = text(message.unchanged, 'unchanged', LIMITS.nameBytes)
  if (unchanged !== '' && entries.length > 0) {
    throw invalidField('unchanged', 'entries and unchanged exclude each other')
  }
  atMost(entries.length, MOST_ENTRIES, 'entries')
  if (begunAt === undefined) throw invalidField('begunAt', 'required, from BeginSnapshot or the last answer')
  const sequence = ledgerNumber(message.sequence, 'sequence')
  if (sequence === 0) throw invalidField('sequence', 'required, from BeginSnapshot or the last answer')
  return {
    ...reporting,
    epoch: requiredText(message.epoch, 'epoch', LIMITS.nameBytes),
    sequence,
    head: ledgerNumber(message.head, 'head'),
    begunAt: instant(begunAt, 'begunAt'),
    complete,
    content: unchanged === '' ? { entries } : { unchanged },
  }
}

export function readVerdicts(verdicts: readonly pb.LookUpVerdict[]): readonly Verdict[] {
  if (verdicts.length === 0) throw invalidField('verdicts', `required: 1 to ${MOST_VERDICTS}`)
  atMost(verdicts.length, MOST_VERDICTS, 'verdicts')
  return verdicts.map((verdict, index) => readVerdict(verdict, `verdicts[${index}]`))
}

function readVerdict(verdict: pb.LookUpVerdict, path: string): Verdict {
  const { id, terminalSince } = verdict
  const named = specified(verdict.answer, pb.LookUpAnswerSchema, `${path}.answer`)
  if (Buffer.byteLength(verdict.detail) > DETAIL_BYTES) {
    throw invalidField(`${path}.detail`, `is longer than ${DETAIL_BYTES} bytes`)
  }
  // Errors of a runtime have lines; refusing a verdict for them would leave it unanswered for ever.
  const detail = sentence(verdict.detail)
  const answer = named.toLowerCase() as Verdict['answer']
  if (answer !== 'terminal') {
    if (terminalSince !== undefined) throw invalidField(`${path}.terminalSince`, 'only with TERMINAL')
    return { id, answer, terminalSince: null, detail }
  }
  if (terminalSince === undefined) throw invalidField(`${path}.terminalSince`, 'required with TERMINAL')
  const ended = endedAt(instant(terminalSince, `${path}.terminalSince`), detail)
  return {
    id,
    answer: ended.answer,
    terminalSince: ended.answer === 'terminal' ? ended.since : null,
    detail: ended.detail,
  }
}

// The rest.

export function readResumeHold(message: pb.ResumeHoldRequest, call: Call): Command<'resumeHold'> {
  const cause = known(message.cause, HoldCauseSchema, 'cause')
  return command(call, allowedNetwork(call, message.network), message.requestId, {
    type: 'resumeHold',
    hold: message.cause === 0 ? null : (cause as HoldCause),
    why: requiredText(message.why, 'why', LIMITS.whyBytes),
  })
}
