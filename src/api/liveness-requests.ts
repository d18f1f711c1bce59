/**
 * From what LivenessService was asked to commands and reports. The entries of a report are not looked at: what is wrong with
 * one makes the report partial and nothing more, since what it lists is in use all the same.
 */
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { Family } from '../core/address.ts'
import type { Command } from '../core/command.ts'
import type { Details, SourceDeclaration, SourceKind } from '../core/event.ts'
import { POLICY } from '../core/policy.ts'
import type * as pb from '../gen/ipledger/v1/liveness_pb.ts'
import type { ReportGiven, Reporting, Verdict } from '../sources/intake.ts'
import { checkAllowed, checkDeclaration, type SourceSecrets } from '../sources/settings.ts'
import { endedAt, sentence } from '../sources/source.ts'
import type { Asked } from './asked.ts'
import type { Call } from './call.ts'
import { invalidField, Refused } from './errors.ts'
import { excluding, required } from './fields.ts'
import { allowedNetwork, command } from './requests.ts'
import { checkNode, mayReport } from './rights.ts'

/** Where a source is and how it is asked; far above what any kind has. */
const SETTINGS_BYTES = 16 * 1024
const DETAIL_BYTES = 1_024

// Sources.

export function readRegisterSource(
  message: Asked<pb.RegisterSourceRequest>,
  call: Call,
  secrets: SourceSecrets,
): Command<'registerSource'> {
  const network = allowedNetwork(call, message.network)
  const kind = (message.kind?.toLowerCase() ?? 'push') as SourceKind
  const { node, ownerKinds, families, intervalMs } = required(message.sight, 'sight')
  checkNode(call.caller, node)
  if (ownerKinds.length === 0) {
    throw invalidField('sight.ownerKinds', 'required: the kinds of workloads that it can see, as in pod')
  }
  const declaration: SourceDeclaration = {
    id: required(message.id, 'id'),
    kind,
    node,
    ownerKinds: [...new Set(ownerKinds)],
    families: readFamilies(families),
    intervalMs: intervalMs ?? (kind === 'push' ? POLICY.agentIntervalMs : POLICY.pulledIntervalMs),
    settings: readSettings(message.settings ?? {}),
  }
  const bad = checkDeclaration(declaration) ?? checkAllowed(secrets, network, declaration)
  if (bad !== null) throw new Refused(bad)
  return command(call, network, message.requestId, { type: 'registerSource', declaration })
}

function readFamilies(given: readonly number[]): readonly Family[] {
  if (given.length === 0) return [4, 6]
  const families = given.map((family, index) => {
    if (family !== 4 && family !== 6) throw invalidField(`sight.families[${index}]`, 'must be 4 or 6')
    return family
  })
  return [...new Set(families)]
}

function readSettings(settings: JsonObject): Details {
  if (Buffer.byteLength(JSON.stringify(settings)) > SETTINGS_BYTES) {
    throw invalidField('settings', `must have at most ${SETTINGS_BYTES} bytes of JSON`)
  }
  requireStorable(settings, 'settings')
  return settings as Details
}

/** PostgreSQL's text holds everything but this. */
function requireStorable(value: JsonValue, path: string): void {
  if (typeof value === 'string') {
    if (value.includes('\0') || !value.isWellFormed())
      throw invalidField(path, 'must be well-formed text without NUL')
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) {
      requireStorable(key, path)
      requireStorable(inner as JsonValue, path)
    }
  }
}

export function readSourceCommand<T extends 'enableSource' | 'retireSource'>(type: T) {
  return (message: Asked<pb.EnableSourceRequest | pb.RetireSourceRequest>, call: Call) =>
    command(call, allowedNetwork(call, message.network), message.requestId, {
      type,
      id: required(message.id, 'id'),
    })
}

// Reports.

export function readReporting(
  message: { readonly network: string; readonly source: string },
  call: Call,
): Reporting {
  return {
    network: allowedNetwork(call, message.network),
    source: required(message.source, 'source'),
    traceId: call.traceId,
    deadline: call.deadline,
    mayReport: mayReport(call.caller),
  }
}

export function readReport(message: Asked<pb.ReportSnapshotRequest>, call: Call): ReportGiven {
  const { entries, unchanged, sequence, head, complete } = message
  if (unchanged !== '' && entries.length > 0) {
    excluding('unchanged', 'entries', 'unchanged')
  }
  return {
    ...readReporting(message, call),
    begunAt: required(message.begunAt, 'begunAt'),
    sequence: required(sequence || undefined, 'sequence'),
    epoch: required(message.epoch, 'epoch'),
    head,
    complete,
    content: unchanged === '' ? { entries } : { unchanged },
  }
}

export function readVerdicts(verdicts: readonly Asked<pb.LookUpVerdict>[]): readonly Verdict[] {
  if (verdicts.length === 0) throw invalidField('verdicts', 'required: 1 to 1000 verdicts')
  return verdicts.map((verdict, index) => readVerdict(verdict, `verdicts[${index}]`))
}

function readVerdict(
  { id, answer: named, terminalSince, ...said }: Asked<pb.LookUpVerdict>,
  path: string,
): Verdict {
  const answer = required(named, `${path}.answer`).toLowerCase() as Verdict['answer']
  if (Buffer.byteLength(said.detail) > DETAIL_BYTES) {
    throw invalidField(`${path}.detail`, `must have at most ${DETAIL_BYTES} bytes`)
  }
  // Errors of a runtime have lines; refusing a verdict for them would leave it unanswered for ever.
  const detail = sentence(said.detail)
  if (answer !== 'terminal') {
    if (terminalSince !== undefined)
      throw invalidField(`${path}.terminalSince`, 'is only for the answer TERMINAL')
    return { id, answer, terminalSince: null, detail }
  }
  const ended = endedAt(required(terminalSince, `${path}.terminalSince`), detail)
  return {
    id,
    answer: ended.answer,
    terminalSince: ended.answer === 'terminal' ? ended.since : null,
    detail: ended.detail,
  }
}
