/** LivenessService: sources and what they report, what follows from it, and what waits. One function a method. */
import type { JsonObject } from '@bufbuild/protobuf'
import type { Family } from '../core/address.ts'
import type { Answer } from '../core/command.ts'
import type { Details, HoldCause, SourceDeclaration, SourceKind } from '../core/event.ts'
import type { SourceState } from '../core/image.ts'
import { POLICY } from '../core/policy.ts'
import type { LivenessService, LookUpVerdict } from '../gen/ipledger/v1/liveness_pb.ts'
import { ATTENTION_CODES } from '../ledger/read-sources.ts'
import { asking } from '../ledger/reads.ts'
import type { Reporting, Verdict } from '../sources/intake.ts'
import { checkAllowed, checkDeclaration } from '../sources/settings.ts'
import { endedAt, sentence } from '../sources/source.ts'
import { shownHolds, shownLease, shownSighting, shownSource, shownVerification } from './answers.ts'
import type { Asked } from './asked.ts'
import {
  accepted,
  allowedNetwork,
  type Backend,
  type Call,
  commandedIn,
  type Handlers,
  ofNetwork,
  poolNotFound,
} from './call.ts'
import { invalidField, Refused, refused } from './errors.ts'
import { address, excluding, ipAddress, knownTexts, optionalCidr, required } from './fields.ts'
import { pageOf } from './page-token.ts'
import { reconcile } from './reconcile.ts'
import { checkNode, mayReport } from './rights.ts'

/** Where a source is and how it is asked; far above what any kind has. */
const SETTINGS_BYTES = 16 * 1024
const DETAIL_BYTES = 1_024

const NO_OWNER = { ownerKind: null, ownerName: null, ownerUid: null }
const EVERY_LEASE = { ...NO_OWNER, states: [], quarantineReasons: [], node: null, labels: {} }
const NOT_READ = { freshness: null, failure: null, failingSince: null }

export function livenessHandlers(backend: Backend): Handlers<typeof LivenessService> {
  const { reads, intake, secrets } = backend

  const namedSource = (network: string, id: string) =>
    reads.sources(network, { id, node: null, states: [], after: null, limit: 1 })

  /** As the command left it; how it stands by its reports if that can be read. */
  async function answered({ source }: Answer, { network }: { readonly network: string }) {
    const found = await namedSource(network, source!.declaration.id).catch(() => null)
    return { source: shownSource(network, { ...NOT_READ, ...found?.[0], source: source! }) }
  }

  async function requireSource(network: string, id: string): Promise<void> {
    if (ofNetwork(await namedSource(network, id), network).length > 0) return
    throw refused('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id })
  }

  return {
    registerSource: commandedIn(
      backend,
      ({ id, kind: named, sight, settings }, call, network) => {
        const kind = (named?.toLowerCase() ?? 'push') as SourceKind
        const { node, ownerKinds, families, intervalMs } = required(sight, 'sight')
        checkNode(call.caller, node)
        if (ownerKinds.length === 0) {
          throw invalidField(
            'sight.ownerKinds',
            'required: the kinds of workloads that it can see, as in pod',
          )
        }
        const declaration: SourceDeclaration = {
          id: required(id, 'id'),
          kind,
          node,
          ownerKinds: [...new Set(ownerKinds)],
          families: readFamilies(families),
          intervalMs: intervalMs ?? (kind === 'push' ? POLICY.agentIntervalMs : POLICY.pulledIntervalMs),
          settings: readSettings(settings ?? {}),
        }
        const bad = checkDeclaration(declaration) ?? checkAllowed(secrets, network, declaration)
        if (bad !== null) throw new Refused(bad)
        return { type: 'registerSource', declaration }
      },
      answered,
    ),
    enableSource: commandedIn(
      backend,
      ({ id }) => ({ type: 'enableSource', id: required(id, 'id') }),
      answered,
    ),
    retireSource: commandedIn(
      backend,
      ({ id }) => ({ type: 'retireSource', id: required(id, 'id') }),
      async (answer, command) => {
        const { unwitnessed, unlisted } = answer
        return { ...(await answered(answer, command)), unwitnessed, unlisted }
      },
    ),

    listSources: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const page = pageOf(message)
      const filter = {
        id: message.id || null,
        node: message.node || null,
        states: message.states as readonly SourceState['state'][],
        after: page.after,
        limit: page.size + 1,
      }
      const found = ofNetwork(await reads.sources(network, filter), network)
      const { items, nextPageToken } = page.cut(found, ({ source }) => source.declaration.id)
      return { sources: items.map((source) => shownSource(network, source)), nextPageToken }
    },

    listSightings: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const { vanished } = message
      const source = message.source || null
      const at = message.address === '' ? null : ipAddress(message.address, 'address')
      const page = pageOf(message)
      if (source !== null) await requireSource(network, source)
      const found = await reads.sightings(network, { source, address: at, vanished }, page)
      const { sightings, next } = ofNetwork(found, network)
      return { sightings: sightings.map(shownSighting), nextPageToken: page.next(next) }
    },

    beginSnapshot: async (message, call) =>
      accepted(await asking(intake.begin(readReporting(message, call)))),

    reportSnapshot: async (message, call) => {
      const { entries, unchanged, sequence, head, complete } = message
      if (unchanged !== '' && entries.length > 0) excluding('unchanged', 'entries', 'unchanged')
      const report = {
        ...readReporting(message, call),
        begunAt: required(message.begunAt, 'begunAt'),
        sequence: required(sequence || undefined, 'sequence'),
        epoch: required(message.epoch, 'epoch'),
        head,
        complete,
        content: unchanged === '' ? { entries } : { unchanged },
      }
      const { next, ...reported } = accepted(await asking(intake.report(report)))
      return {
        ...reported,
        verifications: reported.verifications.map(shownVerification),
        nextSequence: next.sequence,
        nextHead: next.head,
        nextBegunAt: next.begunAt,
      }
    },

    reportVerdicts: async (message, call) => {
      const reporting = readReporting(message, call)
      const epoch = required(message.epoch, 'epoch')
      if (message.verdicts.length === 0) throw invalidField('verdicts', 'required: 1 to 1000 verdicts')
      const verdicts = message.verdicts.map(readVerdict)
      return accepted(await asking(intake.verdicts({ ...reporting, epoch, verdicts })))
    },

    reconcile: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const { pool, kept } = message
      const source = message.source || null
      const page = pageOf(message, address)
      if (source !== null) await requireSource(network, source)
      const leases = {
        ...EVERY_LEASE,
        pools: pool === '' ? [] : [pool],
        cidr: optionalCidr(message.address, 'address'),
      }
      const wanted = { network, leases, source, kept, ...page, deadline: call.deadline }
      const { findings, next, head, unknownPools } = ofNetwork(await reconcile(backend, wanted), network)
      if (unknownPools.length > 0) throw poolNotFound(network, pool)
      return {
        findings: findings.map(({ lease, ...found }) => ({
          ...found,
          address: lease.address,
          lease: shownLease(lease),
        })),
        nextPageToken: page.next(next),
        head,
      }
    },

    resumeHold: commandedIn(
      backend,
      ({ cause, why }) => ({
        type: 'resumeHold',
        hold: (cause as HoldCause | undefined) ?? null,
        why: required(why, 'why'),
      }),
      ({ network }) => ({ holds: shownHolds(network!.network) }),
    ),

    listAttention: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const codes = knownTexts(message.codes, ATTENTION_CODES, 'codes')
      const page = pageOf(message)
      const { items, next } = ofNetwork(await reads.attention(network, { codes }, page), network)
      return { items, nextPageToken: page.next(next) }
    },
  }
}

// What is asked.

function readReporting(
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

function readFamilies(given: readonly number[]): readonly Family[] {
  if (given.length === 0) return [4, 6]
  const families = given.map((family, index) => {
    if (family !== 4 && family !== 6) throw invalidField(`sight.families[${index}]`, 'must be 4 or 6')
    return family
  })
  return [...new Set(families)]
}

function readSettings(settings: JsonObject): Details {
  // PostgreSQL's text holds everything but this.
  const json = JSON.stringify(settings, (key, value) => {
    const isStorable = [key, value].every(
      (one) => typeof one !== 'string' || (one.isWellFormed() && !one.includes('\0')),
    )
    if (!isStorable) throw invalidField('settings', 'must be well-formed text without NUL')
    return value
  })
  if (Buffer.byteLength(json) > SETTINGS_BYTES) {
    throw invalidField('settings', `must have at most ${SETTINGS_BYTES} bytes of JSON`)
  }
  return settings as Details
}

function readVerdict(
  { id, answer: named, terminalSince, ...said }: Asked<LookUpVerdict>,
  index: number,
): Verdict {
  const path = `verdicts[${index}]`
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
